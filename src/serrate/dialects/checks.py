"""Checks of single operations, made when a text is read: each names both sides of what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IntegerAttr,
    MemRefType,
    TensorType,
    UnrankedMemRefType,
    UnrankedTensorType,
    i64,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from serrate.dialects.attributes import ELEMENTS, PTensor, TermAttr, as_ptensor
from serrate.dialects.terms import Node, Term, Word, text_of
from serrate.ops.dtypes import result_type

if TYPE_CHECKING:
    from serrate.dialects.ptensor import PTensorOperation


def check(operation: PTensorOperation) -> None:
    """Refuse operands and results that do not fit each other."""
    special = _CHECKS.get(operation.op_class.name)
    if operation.op_class.name != "from_ranked":
        for number, operand in enumerate(operation.operands):
            _require_ptensor(operand.type, f"operand {number} of {operation.name}")
    for number, result in enumerate(operation.results):
        _require_ptensor(result.type, f"result {number} of {operation.name}")
    _require_one(operation, "device", "cpu")
    _require_one(operation, "team", "none")
    if special is not None:
        special(operation)


def _require_ptensor(kind: Attribute, which: str) -> None:
    if as_ptensor(kind) is not None:
        return
    if isinstance(kind, (UnrankedTensorType, UnrankedMemRefType)):
        raise VerifyException(f"{which} is {kind}, whose rank is unknown: a ptensor says each of its dimensions")
    ranked = isinstance(kind, (TensorType, MemRefType))
    raise VerifyException(f"{which} is no ptensor, but {kind}" + ("; ptensor.from_ranked makes one of it" * ranked))


def _require_one(operation: PTensorOperation, name: str, usual: str) -> None:
    """Refuse operands and results on several devices, or of several teams. Those of a creation, and of a call that
    moves a tensor, may be elsewhere than their operands."""
    moves = operation.op_class.is_creation or operation.op_class.name == "call"
    found: dict[str, str] = {}
    sides = [(f"operand {number}", each.type) for number, each in enumerate(operation.operands)]
    if not moves:
        sides += [(f"result {number}", each.type) for number, each in enumerate(operation.results)]
    for which, kind in sides:
        if isinstance(kind, PTensor):  # a number of the host goes with tensors of any device
            said = kind.data.detail(name)
            found.setdefault(usual if said is None else said if isinstance(said, str) else text_of(said), which)
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        verb = "on" if name == "device" else "of"
        raise VerifyException(
            f"{operation.name} has tensors {verb} different {name}s: {first} is {verb} {one}, {second} {verb} {other}"
        )


def _counted(operation: PTensorOperation, operands: int, results: int) -> None:
    given = len(operation.operands), len(operation.results)
    if given != (operands, results):
        wanted = f"{_many(operands, 'operand')} and {_many(results, 'result')}"
        raise VerifyException(f"{operation.name} has {wanted}, got {given[0]} and {given[1]}")


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _ptensor(operation: PTensorOperation, number: int) -> PTensor:
    found = as_ptensor(operation.operands[number].type)
    assert found is not None
    return found


def dimensions_of(kind: PTensor) -> tuple[Term, ...]:
    """The dimensions of a type in the order in which a user sees them."""
    order, stored = kind.data.detail("order"), kind.data.dimensions
    if not isinstance(order, Node) or sorted(map(str, order.parts)) != sorted(map(str, range(len(stored)))):
        return stored
    return tuple(stored[place] for place in order.parts if type(place) is int)


# ------------------------------------------------------------------------------------------- operation by operation


def _delete(operation: PTensorOperation) -> None:
    _counted(operation, 1, 0)


def _number(operation: PTensorOperation) -> None:
    _counted(operation, 1, 1)
    if operation.results[0].type != i64:
        raise VerifyException(f"{operation.name} gives an i64, and the text says {operation.results[0].type}")


def _shape(operation: PTensorOperation) -> None:
    _counted(operation, 1, 1)
    given = _ptensor(operation, 0)
    ragged = [each for each in given.data.dimensions if _is_ragged(each)]
    if ragged:
        raise VerifyException(f"ptensor.shape gives one number for each dimension, and {text_of(ragged[0])} of {given} "
                              f"is ragged")  # fmt: skip
    wanted = f"!ptensor.ptensor<{len(given.data.dimensions)} x i64>"
    if str(operation.results[0].type) != wanted:
        raise VerifyException(f"ptensor.shape of {given} gives {wanted}, and the text says {operation.results[0].type}")


def _is_ragged(dimension: Term) -> bool:
    return isinstance(dimension, (Word, Node)) and str(text_of(dimension)).startswith("@")


def _result_type(operation: PTensorOperation) -> None:
    from serrate.dialects.objects import Scope

    said = operation.attributes.get("dtype")
    if operation.results or not operation.operands or not isinstance(said, TermAttr):
        raise VerifyException(
            "ptensor.result_type has operands, and no results, since a type is no value: it says the type by "
            'dtype = #ptensor.term<dtype("...")>'
        )
    kinds = [
        Scope().read(Node("dtype", (_ptensor(operation, n).data.element,))) for n in range(len(operation.operands))
    ]
    right = Node("dtype", (str(result_type(*kinds)).removeprefix("torch."),))
    if said.data != right:
        raise VerifyException(
            f"ptensor.result_type gives {text_of(right)} for its operands, and the text says {text_of(said.data)}"
        )


def _from_ranked(operation: PTensorOperation) -> None:
    _counted(operation, 1, 1)
    given, made = operation.operands[0].type, operation.results[0].type
    if isinstance(given, (UnrankedTensorType, UnrankedMemRefType)):
        raise VerifyException(f"the operand of {operation.name} is {given}, whose rank is unknown")
    if not isinstance(given, (TensorType, MemRefType)):
        raise VerifyException(f"{operation.name} takes a tensor or a memref, got {given}")
    if isinstance(given, TensorType) and given.encoding.name != "none":
        raise VerifyException(f"{operation.name} takes a tensor without an encoding, got {given}")
    if isinstance(given, MemRefType) and {given.layout.name, given.memory_space.name} != {"none"}:
        raise VerifyException(f"{operation.name} takes a memref that is contiguous, in the usual memory, got {given}")
    assert isinstance(made, PTensor)
    shaped = made.data
    fits = len(shaped.dimensions) == len(given.get_shape()) and all(
        type(mine) is int and mine == size if size != DYNAMIC_INDEX else type(mine) is not int and not _is_ragged(mine)
        for size, mine in zip(given.get_shape(), shaped.dimensions, strict=True)
    )
    if not fits or shaped.details or str(given.element_type) != ELEMENTS.get(shaped.element, shaped.element):
        raise VerifyException(
            f"{operation.name} gives a tensor of the same shape and elements on the default device, without a team; "
            f"it is given {given}, and the text says {made}"
        )


def _from_dlpack(operation: PTensorOperation) -> None:
    _counted(operation, 0, 1)
    made = operation.results[0].type
    if isinstance(made, PTensor) and any(map(_is_ragged, made.data.dimensions)):
        raise VerifyException(f"{operation.name} gives a dense tensor, and the text says {made}")


def _squeeze(operation: PTensorOperation) -> None:
    if not operation.operands:
        return
    kind = _ptensor(operation, 0)
    found = dimensions_of(kind)
    for axis in _integers(operation.attributes.get("axis")):
        if -len(found) <= axis < len(found) and found[axis] != 1:
            said = found[axis]
            how = "ragged" if _is_ragged(said) else "not 1" if type(said) is int else "not known to be 1"
            raise VerifyException(
                f"squeeze needs an axis of size 1, and axis {axis} of {kind} is {text_of(said)}, which is {how}"
            )


def _integers(attribute: Attribute | None) -> Iterator[int]:
    """The whole numbers that an attribute is, or has in a tuple or a list."""
    if isinstance(attribute, IntegerAttr):
        yield attribute.value.data
    elif isinstance(attribute, TermAttr) and isinstance(attribute.data, Node):
        yield from (part for part in attribute.data.parts if type(part) is int)


def _mask(operation: PTensorOperation) -> None:
    _counted(operation, 2, 1)
    mask = _ptensor(operation, 1)
    if mask.data.element != "bool":
        raise VerifyException(f"the mask of {operation.name} has elements of type i1, and operand 1 is {mask}")


def _where(operation: PTensorOperation) -> None:
    if "cond" in operation.attributes or not operation.operands:
        return
    condition = _ptensor(operation, 0)
    if condition.data.element != "bool":
        raise VerifyException(
            f"the condition of {operation.name} has elements of type i1, and operand 0 is {condition}"
        )


_CHECKS: dict[str, Callable[[PTensorOperation], None]] = {
    "delete": _delete, "rank": _number, "size": _number, "shape": _shape, "result_type": _result_type,
    "from_ranked": _from_ranked, "from_dlpack": _from_dlpack, "squeeze": _squeeze, "extract_mask": _mask,
    "where": _where,
}  # fmt: skip
