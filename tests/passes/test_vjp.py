"""vjp: the way back of a program, what is saved for it, and what it computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.running import RAGGED, names

import serrate as sr
from serrate.compiler.compiling import Compiled

W = torch.tensor([[1.0, -2.0], [0.5, 0.25]], dtype=torch.float64)


def halves_of(function: Callable[..., Any], *needed: bool) -> Compiled:
    """A function of RAGGED and W, of which those that need gradients are said."""
    x = RAGGED._with(RAGGED.values.clone().requires_grad_(needed[0]))
    given = (x, W.clone().requires_grad_(needed[1])) if len(needed) > 1 else (x,)
    found = sr.jit(function).lower(*given).compiled
    assert not isinstance(found, str), found
    return found


def test_there_is_no_way_back_where_nothing_needs_gradients():
    assert halves_of(lambda x: sr.exp(x), False).back is None
    with torch.no_grad():
        assert halves_of(lambda x: sr.exp(x), True).back is None
    assert halves_of(lambda x: x > 0, True).back is None


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
def test_only_gradients_that_are_wanted_are_computed(needed):
    back = halves_of(lambda x, w: sr.tanh(x @ w), *needed).back
    assert back is not None
    assert len(back.program.results) == sum(needed)


def test_cheap_operations_are_computed_again_and_costly_ones_are_saved():
    made = halves_of(lambda x: sr.exp(sr.sum(sr.sin(x) * 2, axis=1)), True)
    assert made.back is not None
    again = names(made.back.program)
    assert "sum" not in again
    assert "sum" not in made.recomputed
    product = halves_of(lambda x, w: sr.tanh(x @ w), True, True)
    assert product.back is not None
    assert "tanh" not in names(product.back.program) or "matmul" not in product.recomputed


def test_the_way_there_computes_no_gradients():
    made = halves_of(lambda x: sr.softmax(sr.gelu(x), axis=1), True)
    assert len(names(made.forward.program)) <= len(names(made.traced)) + 12


def test_what_needs_no_saved_value_saves_none():
    made = halves_of(lambda x: x * 2 + 1, True)
    assert made.back is not None
    assert len(made.back.program.inputs) == 1  # the gradient alone


def test_gradients_stop_at_stop_gradient():
    assert halves_of(lambda x: x.detach() * 2, True).back is None


RULES: dict[str, Callable[[Any], Any]] = {
    "the same twice": lambda x: x * x + x,
    "a sum over rows": lambda x: sr.sum(sr.exp(x), axis=1),
    "a sum over features": lambda x: sr.sum(sr.exp(x), axis=2),
    "a stretched operand": lambda x: x * sr.sum(x, axis=1, keepdims=True),
    "a slice": lambda x: x[:, 1:] * 2,
    "a permutation": lambda x: sr.exp(x.mT) * 3,
    "several results": lambda x: (sr.exp(x), sr.sum(x, axis=1), sr.sin(x)),
    "a library call": lambda x: sr.sort(x, axis=1) * 2,
    "padded rows": lambda x: sr.exp(x.to_dense(0.0)),
    "greatest ones": lambda x: sr.max(x, axis=1),
}


@pytest.mark.parametrize("name", RULES)
def test_the_way_back_of_programs_agrees_with_differences(name):
    function = sr.jit(RULES[name])

    def values(v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = function(RAGGED._with(v))
        parts = made if isinstance(made, tuple) else (made,)
        found = tuple(part.values if isinstance(part, sr.Tensor) else part for part in parts)
        return tuple(part for part in found if part.requires_grad)

    at = sr.from_lengths(RAGGED.values + torch.linspace(0, 0.3, 12, dtype=torch.float64).view(6, 2), [3, 0, 2, 1])
    start = at.values.clone().requires_grad_()
    step, along = 1e-6, torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2).exp()
    ends = [values((start.detach() + sign * step * along).requires_grad_()) for sign in (1, -1)]
    for number, out in enumerate(values(start)):
        way = torch.linspace(1, 2, out.numel(), dtype=torch.float64).view(out.shape)
        finite = out.detach().isfinite()
        (gradient,) = torch.autograd.grad(out[finite], start, way[finite], retain_graph=True)
        change = (ends[0][number] - ends[1][number]).detach()[finite] / (2 * step)
        torch.testing.assert_close((gradient * along).sum(), (change * way[finite]).sum(), rtol=1e-6, atol=1e-7)
