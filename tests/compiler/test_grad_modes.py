"""Modes that a function switches itself: gradients, inference and autocast, inside of a compiled function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, same
from torch.nn import functional as F

import serrate as sr

X = sr.from_lengths(torch.linspace(-1, 2, 20).view(5, 4), [3, 0, 2])


def leaf() -> sr.Tensor:
    return X._with(X.values.clone().requires_grad_())


def without(x: Any) -> Any:
    with torch.no_grad():
        scale = sr.sum(x, axis=1, keepdims=True) * 2 + x
    return scale * x + sr.softmax(scale, axis=1)


@torch.no_grad()
def decorated(x: Any) -> Any:
    return x * 2


def partly(x: Any) -> Any:
    with torch.set_grad_enabled(False):
        a = x * 3
        with torch.enable_grad():
            b = x * 5
    return a * b, decorated(x) + b


def inferring(x: Any) -> Any:
    with torch.inference_mode():
        return sr.exp(x)


@pytest.mark.parametrize("function", [without, partly, decorated])
def test_no_gradient_flows_through_what_was_computed_without(function):
    made = agree_with_gradients(function, X)
    assert made.stats.eager_calls == 0


def test_what_is_computed_in_inference_mode_needs_no_gradients():
    assert not sr.jit(inferring)(leaf()).requires_grad
    same(sr.jit(inferring)(X), sr.exp(X))


def test_gradients_that_are_switched_on_inside_are_recorded():
    def function(x: Any) -> Any:
        with torch.enable_grad():
            return x * 2

    made, x = sr.jit(function), leaf()
    with torch.no_grad():
        got = made(x)
        assert "switched on" in made.lower(x).reason
    assert got.requires_grad
    sr.sum(got).values.backward()
    torch.testing.assert_close(x.values.grad, torch.full((5, 4), 2.0))


def test_a_compiled_function_in_inference_mode():
    made = sr.jit(lambda x: sr.softmax(x, axis=1))
    with torch.inference_mode():
        inside = made(X)
        assert inside.values.is_inference()
        same(made(inside), sr.softmax(inside, axis=1))
    same(made(X), sr.softmax(X, axis=1))
    sr.sum(made(leaf())).values.backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_inside_of_a_function_casts_there_alone(dtype):
    def function(x: Any, w: Any) -> Any:
        before = x @ w
        with torch.autocast("cpu", dtype):
            inside = x @ w
            with torch.autocast("cpu", enabled=False):
                after = x @ w
        return before, inside * 2, after, F.linear(x.values, w)

    w = torch.linspace(-1, 1, 16).view(4, 4)
    made = agree_with_gradients(function, X, w, scale=2500)  # as near as products of bfloat16 are
    got = made(X, w)
    assert [each.dtype for each in got] == [torch.float32, dtype, torch.float32, torch.float32]
    with torch.autocast("cpu", torch.bfloat16):
        same(made(X, w), function(X, w), 4)
    assert made.stats.eager_calls == 0


def test_a_written_argument_that_others_need_for_gradients():
    def function(x: Any, y: Any) -> Any:
        x += y
        return x * x * y

    found = []
    for run in (function, sr.jit(function)):
        a = leaf()
        x, y = a * 2, X._with(X.values + 1)
        out = run(x, y)
        sr.sum(out * x).values.backward()
        found.append((a.values.grad, x.values.detach(), out.values.detach()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_double_backward_uses_the_numbers_of_the_call():
    def function(x: Any, factor: float) -> Any:
        return sr.exp(x * factor)

    made = sr.jit(function)
    for factor in (2.0, 3.0, 0.5):
        found = []
        for run in (made, function):
            x = leaf()
            (first,) = torch.autograd.grad(run(x, factor).values.sum(), x.values, create_graph=True)
            found.append((first.detach(), *torch.autograd.grad(first.square().sum(), x.values)))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)
    assert made.stats.traces == 2
