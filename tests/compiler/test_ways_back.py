"""Ways back from some of the results of a call, and gradients that are 0, as eager code has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import same

import serrate as sr


def leaf() -> sr.Tensor:
    x = sr.ragged([[1.0, 2.0], [], [0.0, 3.0]])
    return x._with(x.values.clone().requires_grad_())


def gradient_of(x: sr.Tensor) -> Any:
    return None if x.values.grad is None else x.values.grad.clone()


def _two_that_share(x: Any, y: Any) -> Any:
    made = sr.exp(x)
    return made * 2, made * y


RESULTS: dict[str, Callable[..., Any]] = {
    "nothing is shared": lambda x, y: (sr.exp(x), sr.exp(y)),
    "an exponential is shared": _two_that_share,
    "one has no derivative at 0": lambda x, y: (x * 2.5, sr.sqrt(x) * y),
    "sums, which read nothing": lambda x, y: (x + 1, x + y),
    "one is constant between steps": lambda x, y: (sr.floor(x), sr.exp(y) * x),
    "one result twice": lambda x, y: (sr.exp(x), sr.exp(x)),
    "gradients are stopped": lambda x, y: (sr.exp(x), sr.exp(y.detach()) * x),
    "an argument": lambda x, y: (sr.exp(x), y),
}
ORDERS = ("0", "1", "0 1", "1 0", "0 0", "1 1", "both", "both 0", "r0 0", "r0 1 0", "0 r1 1 1", "r1 0 1 1")


def _pulled(function: Callable[..., Any], order: str) -> list[Any]:
    """The gradients after each `backward`, or the error that it raises; "r" retains what is saved."""
    x, y = leaf(), leaf()
    results, made = function(x, y), []
    for each in order.split():
        chosen = results if each == "both" else [results[int(each[-1])]]
        try:
            torch.stack([result.values.sum() for result in chosen]).sum().backward(retain_graph="r" in each)
            made.append([gradient_of(x), gradient_of(y)])
        except RuntimeError as error:
            made.append(str(error)[:40])
    return made


@pytest.mark.parametrize("name", RESULTS)
def test_results_go_back_one_by_one_as_in_eager_code(name):
    for order in ORDERS:
        want, got = _pulled(RESULTS[name], order), _pulled(sr.jit(RESULTS[name]), order)
        same(got, want)


def test_what_was_written_to_between_two_ways_back_is_noticed():
    made = sr.jit(lambda x, y: (sr.exp(x), y * y))
    x, y = leaf(), sr.ragged([[1.0, 2.0], [], [0.0, 3.0]])
    first, second = made(x, y._with(y.values.requires_grad_()))
    first.values.sum().backward()
    with torch.no_grad():
        y.values.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.values.sum().backward()


def test_a_way_back_from_some_results_is_made_once():
    made = sr.jit(RESULTS["one has no derivative at 0"])
    for _ in range(3):
        first, second = made(leaf(), leaf())
        first.values.sum().backward()
        second.values.sum().backward()
    assert made.stats.traces == 1
    ((compiled, *others),) = [list(family.programs.values()) for family in made._families.values()]
    assert others == []
    assert set(compiled.run.ways.made) == {(0,), (1,)}


STEPS = [sr.floor, sr.ceil, sr.sign, sr.round, sr.trunc, torch.floor, torch.ceil, torch.sign, torch.round, torch.fix]


@pytest.mark.parametrize("function", STEPS)
def test_what_is_constant_between_steps_has_gradients_of_zero(function):
    for given in (leaf(), torch.tensor([0.5, -1.5], requires_grad=True)):
        values = given.values if isinstance(given, sr.Tensor) else given
        for wrapped in (function, lambda x: function(sr.exp(x) if isinstance(x, sr.Tensor) else torch.exp(x))):
            values.grad = None
            result = sr.jit(wrapped)(given)
            assert result.requires_grad
            (result.values if isinstance(result, sr.Tensor) else result).sum().backward()
            assert torch.equal(values.grad, torch.zeros_like(values))


def test_gradients_of_zero_beside_others_and_in_a_graph_of_torch():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.floor(x) * torch.exp(y)

    made = sr.jit(function)
    for call in (function, made, torch.compile(lambda x, y: made(x, y), backend="aot_eager", fullgraph=True)):
        x, y = torch.tensor([0.5, 2.5], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
        call(x, y).sum().backward()
        assert torch.equal(x.grad, torch.zeros(2))
        torch.testing.assert_close(y.grad, torch.floor(x.detach()) * torch.exp(y.detach()))
