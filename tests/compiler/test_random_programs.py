"""Random programs: compiled, run eagerly, and by an oracle row by row, with gradients and batches of any lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.compiler.harness import compiled, directions, packed, shared_alike, values_of, with_gradients
from tests.compiler.programs import BATCHES, Drawn, batch, drawn

from serrate.compiler import Jitted


def gradients(results: Sequence[Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Of all arguments, from some gradient of each result."""
    ends = [packed(x).reshape(-1) for x in results]
    asked = [(end, way) for end, way in zip(ends, directions(ends), strict=True) if end.requires_grad]
    leaves = [values_of(x) for x in inputs]
    if not asked:
        return [torch.zeros_like(leaf) for leaf in leaves]
    ends, ways = [end for end, _ in asked], [way for _, way in asked]
    return list(torch.autograd.grad(ends, leaves, ways, allow_unused=True, materialize_grads=True))


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9, equal_nan=True)


def check_results(program: Drawn, made: Jitted, given: list[Any]) -> None:
    """Compiled, eagerly, by the oracle."""
    with torch.no_grad():
        got, want, true = made(*given), program.function()(*given), program.expected(given)
    for one, eager, other in zip(got, want, true, strict=True):
        near(packed(eager).reshape(-1), other)
        near(packed(one).reshape(-1), other)
        assert one.shape == eager.shape
        assert one.dtype == eager.dtype
        assert type(one) is type(eager)
    shared_alike(got, want, given)


def check_gradients(program: Drawn, made: Jitted, given: list[Any]) -> None:
    """The gradients of all three; where the oracle's is no number, nothing is asked."""
    found = []
    for run in (made, program.function(), lambda *inputs: program.expected(inputs)):
        inputs = with_gradients(given)
        found.append(gradients(run(*inputs), inputs))
    got, want, true = found
    assert len(got) == len(want) == len(true)
    for one, eager, other in zip(got, want, true, strict=True):
        asked = other.isfinite() & eager.isfinite()
        torch.testing.assert_close(one[asked], other[asked], rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(one[asked], eager[asked], rtol=1e-7, atol=1e-8)


def check(program: Drawn, batches: Sequence[str] = BATCHES, *, forwards: bool = True, backwards: bool = True) -> None:
    """All batches with one compiled function; a batch of one in a dense operand is a signature of its own."""
    made, differentiated = compiled(program.function()), compiled(program.function())
    ones = sum(kind == "one row" for kind in batches) if any(each.kind == "batch" for each in program.inputs) else 0
    for kind in batches:
        try:
            if forwards:
                check_results(program, made, batch(program, kind))
            if backwards:
                check_gradients(program, differentiated, batch(program, kind))
        except Exception as error:
            error.add_note(f"with {kind}:\n{program.text}")
            raise
    for each in (made, differentiated):
        assert each.stats.traces <= 1 + ones, (each.stats, program.text)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_give_what_they_give_eagerly_and_row_by_row(seed):
    check(drawn(seed, most=9))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_random_programs(seed):
    """Half of them with gradients, half of them without: compilers take most of the time."""
    check(drawn(seed), forwards=seed % 2 == 0, backwards=seed % 2 == 1)
