"""The dist dialect: tensors that the processes of a team hold in parts, with the operations of the PTensor proposal.

A team is an `i64`, and so is the number by which the team knows a tensor (`gid`, or `dtensor_id`). A slice is given by
three numbers for each axis: where it begins, how many elements it has, and how far they are apart. The proposal's
listings leave the team out in some calls; here it is always the first operand, as in its signatures. `finalize_reduce`
says what is reduced, which the proposal leaves out, and `exchange` is ours: rows go to other processes and come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import IndexType, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, traits_def, var_operand_def, var_result_def
from xdsl.traits import MemoryFreeEffect, MemoryReadEffect, MemoryWriteEffect, OpTrait
from xdsl.utils.exceptions import VerifyException

KINDS = ("sum", "prod", "max", "min", "any", "all")
"""What a reduction over a team may compute."""


@dataclass(frozen=True)
class OpClass:
    """An operation of the dialect. `*shape` stands for one number for each axis, `*slice` for three."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...] = ()
    effect: str = "write"


def _classes() -> Iterator[OpClass]:
    yield OpClass("init_dtensor", ("team", "*shape"), ("dtensor_id",))
    yield OpClass("fini_dtensor", ("team", "dtensor_id"), effect="free")
    yield OpClass("init_view", ("team", "dtensor_id", "*slice"), ("dtensor_id",))
    yield OpClass("local_shape", ("team", "dtensor_id"), ("*shape",), "read")
    yield OpClass("local_slice", ("team", "dtensor_id"), ("*slice",), "read")
    yield OpClass("copy", ("team", "from_id", "to_id", "from_ltensor", "to_ltensor"))
    yield OpClass("finalize_reduce", ("team", "dtensor_id", "ltensor"))
    yield OpClass("exchange", ("team", "ltensor", "counts"), ("ltensor", "counts"))


CLASSES = {each.name: each for each in _classes()}
"""The operations by their names."""


class DistOperation(IRDLOperation):
    """An operation of the dialect."""

    @property
    def op_class(self) -> OpClass:
        """Which operation it is."""
        return CLASSES[self.name.removeprefix("dist.")]

    def verify_(self) -> None:
        """Refuse operands and results that are not those of its class, and a reduction without a kind."""
        of = self.op_class
        _verify(self.name, "operands", of.operands, [each.type for each in self.operands])
        _verify(self.name, "results", of.results, [each.type for each in self.results])
        kind = self.attributes.get("kind")
        if of.name == "finalize_reduce" and not (isinstance(kind, StringAttr) and kind.data in KINDS):
            raise VerifyException(f"dist.finalize_reduce has no kind {kind}; there are {', '.join(KINDS)}")


def _verify(name: str, what: str, wanted: tuple[str, ...], given: list[Attribute]) -> None:
    shown = f"{name} has the {what} {', '.join(wanted) or 'none'}"
    single = [each for each in wanted if not each.startswith("*")]
    rest = given[len(single) :]
    several = [each for each in wanted if each.startswith("*")]
    if len(given) < len(single) or (rest and not several) or (several == ["*slice"] and len(rest) % 3):
        raise VerifyException(f"{shown}, got {len(given)}")
    expected = [_TYPES.get(each, i64) for each in single] + [IndexType()] * len(rest)
    for number, (each, type_) in enumerate(zip(given, expected, strict=True)):
        if not (isinstance(each, type_) if isinstance(type_, type) else each == type_):
            raise VerifyException(f"{shown}; number {number} has the type {each}")


_EFFECTS: dict[str, OpTrait] = {
    "read": MemoryReadEffect(), "write": MemoryWriteEffect(), "free": MemoryFreeEffect(),
}  # fmt: skip
_TYPES: dict[str, type[Attribute]] = dict.fromkeys(("ltensor", "from_ltensor", "to_ltensor", "counts"), TensorType)


def _defined(each: OpClass) -> type[DistOperation]:
    """The class of operations, as xDSL has it."""
    body = {
        "__doc__": f"`{each.name}({', '.join(each.operands)})`.",
        "__module__": __name__,
        "name": f"dist.{each.name}",
        "given": var_operand_def(),
        "made": var_result_def(),
        "traits": traits_def(_EFFECTS[each.effect]),
    }
    return irdl_op_definition(type(f"{each.name.title().replace('_', '')}Op", (DistOperation,), body))


OPERATIONS = {each.name: _defined(each) for each in CLASSES.values()}
"""The operations, as xDSL has them, by their names."""

DIST = Dialect("dist", [*OPERATIONS.values()], [])
