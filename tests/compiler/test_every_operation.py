"""Every operation of the table, compiled: results, raggedness and gradients are those of the operation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree, agree_with_gradients, compiled, is_inexact
from tests.ops.matrix import absent, arguments
from tests.ops.samples import DTYPES, NAMES, sample

import serrate as sr
from serrate.ops.record import TABLE, Op

UNDEFINED = ("empty", "empty_like")
"""Operations whose results have no defined elements."""
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


@pytest.mark.parametrize("name", TABLE)
def test_every_operation_compiled_is_itself(name):
    check(TABLE[name], ["features"], DTYPES[TABLE[name].kinds[0]][0])


@pytest.mark.slow
@pytest.mark.parametrize("structure", NAMES)
@pytest.mark.parametrize("name", TABLE)
def test_every_operation_compiled_on_every_structure_and_dtype(name, structure):
    for kind in TABLE[name].kinds:
        for dtype in DTYPES[kind]:
            check(TABLE[name], [structure], dtype)
