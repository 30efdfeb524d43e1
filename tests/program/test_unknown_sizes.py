"""Types where sizes of features are symbols too: every operation has the type of its eager result, or a guard.

Operands share their sizes, or each has symbols of its own and the guards say which of them have to be equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.bindings import Bindings, sample_arguments
from tests.ops.matrix import arguments
from tests.ops.samples import DTYPES, elements

import serrate as sr
from serrate.ops.meta import Typed, meta
from serrate.ops.record import TABLE, Op
from serrate.program.abstract import mapped
from serrate.program.guards import Guard, Meeting
from serrate.program.inputs import Inputs
from serrate.program.partitions import Expression
from serrate.program.sizes import Size, replaced, symbol
from serrate.program.types import RaggedAxis, TensorType, Value

OPS = list(TABLE.values())
H, N, M = (symbol("size", name) for name in "HNM")
REFUSED = {"Tensor.rows", "unstack", "split"}
"""Operations that give as many results as an axis has entries, which a type does not know."""
BOUNDED = {"topk"}
"""Operations that take no more entries than an axis has, which no type can promise."""
Case = tuple[TensorType, list[sr.Tensor]]


def dense(dtype: torch.dtype, *features: Size) -> TensorType:
    return TensorType(dtype, torch.device("cpu"), (), None, features, tuple(range(len(features))))


def cases(dtype: torch.dtype) -> Iterator[Case]:
    """Types, and tensors of each."""

    def ragged(lengths: list[int], *features: int) -> sr.Tensor:
        return sr.from_lengths(elements(sum(lengths), features, dtype), lengths)

    def filled(*sizes: int) -> sr.Tensor:
        return sr.Tensor(elements(sizes[0], sizes[1:], dtype))

    def unknown(x: sr.Tensor, *features: Size) -> TensorType:
        return dataclasses.replace(Inputs().type_of(x), features=features)

    some = [ragged([3, 1, 2], 2), ragged([0, 2], 3), ragged([4], 5)]
    yield unknown(some[0], H), some
    yield dense(dtype, N, M), [filled(3, 2), filled(2, 3), filled(3, 3), filled(0, 2)]
    yield dense(dtype, N, M, H), [filled(3, 2, 2), filled(2, 3, 3)]
    born = [sr.testing.device_born(x, spare=spare) for spare, x in enumerate(some, start=1)]
    yield unknown(born[0], H), born
    turned = [x.permute_dims((0, 2, 1)) for x in some]
    yield unknown(turned[0], H), turned
    wide = [ragged([3, 1, 2], 2, 3), ragged([0, 2], 3, 3)]
    yield unknown(wide[0], H, M), wide
    yield dense(dtype, N, N), [filled(3, 3), filled(2, 2)]
    yield dense(dtype, N), [filled(3), filled(2)]
    yield dense(dtype, 3, M), [filled(3, 2), filled(3, 3)]


def taken(op: Op, text: str, tensors: list[sr.Tensor]) -> list[tuple[sr.Tensor, Any]]:
    """What eager code gives for each tensor, or the error that it raises."""
    made: list[tuple[sr.Tensor, Any]] = []
    for x in tensors:
        try:
            args, options = arguments(text, x)
            made.append((x, op.function(*args, **options)))
        except (TypeError, ValueError, LookupError, RuntimeError, NotImplementedError) as error:
            made.append((x, error))
    return made


def _holds(guard: Guard, bindings: Bindings) -> bool:
    """Whether two sizes are equal; True for those of tensors that the sample makes, and for partitions."""
    try:
        return isinstance(guard.one, Expression) or bindings.number(guard.one) == bindings.number(guard.other)
    except KeyError:
        return True


def check_result(op: Op, found: Typed, bindings: Bindings, result: Any) -> None:
    """A result is of its type where the guards hold, and an error comes only where one does not."""
    holds = all(_holds(guard, bindings) for guard in found.guards)
    if isinstance(result, Exception):
        assert not holds or op.name in BOUNDED, result
    else:
        assert holds, list(map(str, found.guards))
        bindings.check(found.result, result)


def check_shared(op: Op, text: str, kind: TensorType, tensors: list[sr.Tensor]) -> None:
    """The sample's operands share the sizes of x."""
    results = taken(op, text, tensors)
    try:
        found = meta(op, *sample_arguments(text, kind))
    except (TypeError, ValueError, LookupError, Meeting) as error:  # a Meeting while the sample is evaluated
        refused = "does not say how many" in str(error) and op.name in REFUSED
        if not refused and not isinstance(error, Meeting) and not all(isinstance(r, Exception) for _, r in results):
            raise
        return
    for x, result in results:
        bindings = Bindings()
        bindings.check(kind, x)
        check_result(op, found, bindings, result)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_operations_on_features_of_unknown_sizes(op: Op) -> None:
    quick = list(cases(DTYPES[op.kinds[0]][0]))[:3]
    for text in op.samples:
        for kind, tensors in quick:
            check_shared(op, text, kind, tensors)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_operations_on_more_tensors_of_unknown_sizes(op: Op) -> None:
    for text in op.samples:
        for kind, tensors in list(cases(DTYPES[op.kinds[0]][0]))[3:]:
            check_shared(op, text, kind, tensors)


# ------------------------------------------------------------------------------------- symbols of each operand's own


def _other(size: Size) -> Size:
    """A size with other symbols."""

    def renamed(each: Any) -> Size:
        if each.kind == "size":
            return symbol("size", f"{each.of[0]}'")
        return symbol(each.kind, *(_primed(part) if isinstance(part, Expression) else part for part in each.of))

    return replaced(size, renamed)


def _primed(given: Expression) -> Expression:
    assert given.kind == "input"
    return dataclasses.replace(
        given,
        operands=(f"{given.operands[0]}'",),
        components=_other(given.components),
        capacity=None if given.capacity is None else _other(given.capacity),
    )


def own_symbols(kind: TensorType) -> TensorType:
    """The type with other symbols and partitions in the place of its own."""
    axes = tuple(
        RaggedAxis(_primed(a.partition), a.parents) if isinstance(a, RaggedAxis) else _other(a) for a in kind.axes
    )
    rows = None if kind.rows is None else _other(kind.rows)
    return dataclasses.replace(kind, axes=axes, rows=rows, features=tuple(map(_other, kind.features)))


def check_apart(op: Op, text: str, kind: TensorType, tensors: list[sr.Tensor]) -> int:
    """Only the first operand has the sizes of x; how many operands were renamed."""
    seen: list[TensorType] = []

    def renamed(part: Any) -> Any:
        if not isinstance(part, (TensorType, Value)):
            return part
        seen.append(part.type if isinstance(part, Value) else part)
        return part if len(seen) == 1 else own_symbols(seen[-1])

    results = [pair for pair in taken(op, text, tensors) if not isinstance(pair[1], Exception)]
    try:
        args, options = mapped(sample_arguments(text, kind), renamed)
    except (AssertionError, TypeError, ValueError, LookupError, Meeting):
        return 0  # an operand has a partition that was made of others, or the sample is none for this tensor
    if len(seen) < 2 or not results:
        return 0
    found = meta(op, args, options)
    for x, result in results:
        bindings = Bindings()
        bindings.check(kind, x)
        bindings.check(own_symbols(kind), x)
        check_result(op, found, bindings, result)
    return len(seen) - 1


SEVERAL = [op for op in OPS if len(op.operands) > 1 or any(text.count("x") > 1 for text in op.samples)]


@pytest.mark.parametrize("op", SEVERAL, ids=lambda op: op.name)
def test_sizes_of_other_operands_that_have_to_be_equal_are_guards(op: Op) -> None:
    for text in op.samples:
        for kind, tensors in list(cases(DTYPES[op.kinds[0]][0]))[:2]:
            check_apart(op, text, kind, tensors)


@pytest.mark.slow
@pytest.mark.parametrize("op", SEVERAL, ids=lambda op: op.name)
def test_sizes_of_other_operands_are_guards_for_more_tensors(op: Op) -> None:
    for text in op.samples:
        for kind, tensors in list(cases(DTYPES[op.kinds[0]][0]))[2:]:
            check_apart(op, text, kind, tensors)


def test_the_search_sees_operands_apart() -> None:
    kind, tensors = next(cases(torch.float64))
    assert check_apart(TABLE["add"], "x, x", kind, tensors) == 1
    assert check_apart(TABLE["where"], "x > 0, x, x", kind, tensors) == 2


def test_a_type_that_is_wrong_and_a_guard_that_is_missing_are_found() -> None:
    kind, (x, *_) = next(cases(torch.float64))
    bindings = Bindings()
    bindings.check(kind, x)
    right = meta(TABLE["exp"], (kind,), {})
    check_result(TABLE["exp"], right, bindings, x.exp())
    with pytest.raises(AssertionError):
        check_result(TABLE["exp"], Typed(dataclasses.replace(kind, features=(H + 1,)), ()), bindings, x.exp())
    with pytest.raises(AssertionError):
        check_result(TABLE["exp"], right, bindings, ValueError("eager code refuses it"))
    with pytest.raises(AssertionError):
        check_result(TABLE["exp"], Typed(right.result, (Guard(H, 99),)), bindings, x.exp())
