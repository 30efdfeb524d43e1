"""Every operation of the table, compiled: results, raggedness and gradients are those of the operation itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree, agree_with_gradients, compiled, is_inexact, with_gradients
from tests.ops.matrix import absent, arguments
from tests.ops.samples import DTYPES, NAMES, sample

import serrate as sr
from serrate.ops.record import TABLE, Op

UNDEFINED = ("empty", "empty_like")
"""Operations whose results have no defined elements."""
EAGER = {
    "split": "along a ragged axis it gives as many pieces as the longest row needs",
    "Grouped.ungroup": "a Grouped, which knows the way back of its rows, is no argument of a program",
}
"""Operations of which a sample runs eagerly, and why."""
WITHOUT = {
    "linalg.matrix_power": ", 0",  # the result depends on nothing, though torch gives it a history
    "linalg.matrix_norm": "float('inf')",  # several sums are equal up to rounding, and any of them may be the greatest
}
"""Operations, and a part of those samples of them, whose gradients are not compared."""


class Place:
    """Where a tensor stands among the arguments of a sample."""

    def __init__(self, number: int) -> None:
        self.number = number


def taken_apart(given: Any, found: list[Any]) -> Any:
    """The arguments with places instead of tensors."""
    if isinstance(given, (sr.Tensor, torch.Tensor)):
        found.append(given)
        return Place(len(found) - 1)
    return _mapped(given, lambda part: taken_apart(part, found))


def put_together(given: Any, operands: tuple[Any, ...]) -> Any:
    """The arguments with tensors in their places."""
    if isinstance(given, Place):
        return operands[given.number]
    return _mapped(given, lambda part: put_together(part, operands))


def _mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(given, (tuple, list)):
        parts = [change(part) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else type(given)(parts)
    if isinstance(given, dict):
        return {name: change(part) for name, part in given.items()}
    if isinstance(given, slice):
        return slice(change(given.start), change(given.stop), change(given.step))
    return given


def function_of(op: Op, text: str, x: sr.Tensor) -> tuple[Callable[..., Any], list[Any]]:
    """A sample of an operation as a function of the tensors among its arguments, and these."""
    found: list[Any] = []
    places = taken_apart(arguments(text, x), found)

    def function(*operands: Any) -> Any:
        given, named = put_together(places, operands)
        if op.writes:
            written = sr.asarray(given[0]).clone() if not isinstance(given[0], sr.Tensor) else given[0].clone()
            op.function(written, *given[1:], **named)
            return written
        return op.function(*given, **named)

    function.__name__ = op.name.replace(".", "_")
    return function, found


def samples_of(
    op: Op, structures: list[str], dtype: torch.dtype
) -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Each sample of an operation as a text, a function, and its operands."""
    for structure in structures:
        if not absent(op, structure, dtype):
            for text in op.samples:
                yield text, *function_of(op, text, sample(structure, dtype))


def check(op: Op, structures: list[str], dtype: torch.dtype) -> None:
    """Every sample of the operation, compiled, with gradients where there are any."""
    for text, function, operands in samples_of(op, structures, dtype):
        if op.name in UNDEFINED:
            assert compiled(function)(*operands).shape == function(*operands).shape
            continue
        with torch.no_grad():
            agree(function, *operands, calls=2)
        has_gradients = dtype in (torch.float64, torch.complex128) and any(map(is_inexact, operands))
        if has_gradients and WITHOUT.get(op.name, "nothing") not in text:
            agree_with_gradients(function, *operands)


def together(
    op: Op, structure: str, dtype: torch.dtype, *, differentiated: bool
) -> tuple[Callable[..., Any], list[Any]]:
    """All samples of an operation as one function, whose kernels are compiled by one run of the compiler."""
    parts, given = [], []
    for text, function, operands in samples_of(op, [structure], dtype):
        if (WITHOUT.get(op.name, "nothing") in text) is not differentiated:
            parts.append((function, len(operands)))
            given += operands

    def function(*operands: Any) -> list[Any]:
        left = iter(operands)
        return [each(*itertools.islice(left, count)) for each, count in parts]

    function.__name__ = op.name.replace(".", "_")
    return function, given


@pytest.mark.parametrize("name", sorted(set(TABLE) - set(UNDEFINED)))
def test_every_operation_compiled_is_itself(name):
    """On one structure and dtype; results, and gradients where there are any."""
    op, dtype = TABLE[name], DTYPES[TABLE[name].kinds[0]][0]
    function, given = together(op, "features", dtype, differentiated=True)
    made = agree_with_gradients(function, *given)
    assert (made.stats.eager_calls > 0) is (name in EAGER), made.lower(*with_gradients(given)).reason
    if name in WITHOUT:
        function, given = together(op, "features", dtype, differentiated=False)
        agree(function, *given)


@pytest.mark.slow
@pytest.mark.parametrize("structure", NAMES)
@pytest.mark.parametrize("name", TABLE)
def test_every_operation_compiled_on_every_structure_and_dtype(name, structure):
    for kind in TABLE[name].kinds:
        for dtype in DTYPES[kind]:
            check(TABLE[name], [structure], dtype)
