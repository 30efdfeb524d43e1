"""Programs of functions, and what they compute when each instruction is called on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import serrate as sr
from serrate.ops.record import TABLE
from serrate.program.program import Program, replaced
from serrate.program.types import Value

RAGGED = sr.from_lengths(torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2).sin(), [3, 0, 2, 1])


def program_of(function: Callable[..., Any], *given: Any) -> Program:
    """What is traced of a function, before any pass."""
    compiled = sr.jit(function).lower(*given).compiled
    assert not isinstance(compiled, str), compiled
    return compiled.traced


def names(program: Program) -> list[str]:
    """The operations of a program, in order."""
    return [each.op for each in program.instructions]


def run(program: Program, *given: Any) -> Any:
    """What a program without sizes gives: each instruction is a call of its operation."""
    known: dict[Value, Any] = dict(zip(program.inputs, given, strict=True))

    def filled(part: Any) -> Any:
        return known[part] if isinstance(part, Value) else part

    for each in program.instructions:
        function = each.function or TABLE[each.op].function
        made = function(*replaced(each.arguments, filled), **dict(replaced(each.named, filled)))
        results = made if isinstance(made, (tuple, list)) else (made,)
        known.update(zip(each.results, results, strict=True))
    return replaced(program.outputs, filled)


def same(got: Any, want: Any) -> None:
    """Both are the same tensors, in the same tuples."""
    if isinstance(want, (tuple, list)):
        for one, other in zip(got, want, strict=True):
            same(one, other)
        return
    one, other = (each.values if isinstance(each, sr.Tensor) else each for each in (got, want))
    torch.testing.assert_close(one, other, equal_nan=True)
