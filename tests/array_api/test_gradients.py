"""Gradients where torch and numbers need care: norms at zero, signs, bounds, quotients and remainders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr

Function = Callable[[torch.Tensor], torch.Tensor]


def first(function: Function, values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    p = torch.tensor(values, dtype=dtype, requires_grad=True)
    return torch.autograd.grad(function(p).sum(), p)[0]


def second(function: Function, values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    p = torch.tensor(values, dtype=dtype, requires_grad=True)
    (g,) = torch.autograd.grad(function(p).sum(), p, create_graph=True)
    return torch.autograd.grad(g.abs().sum() if g.is_complex() else g.sum(), p)[0]


@pytest.mark.parametrize("order", [2, 3, 1, 0.5, 0.25, -1, -2, -0.5])
@pytest.mark.parametrize("values", [[0.0, 1.0], [3.0, -4.0], [0.0, 0.0], [0.0, -2.0, 0.0]], ids=str)
def test_vector_norm(values: list[float], order: float) -> None:
    def ours(p: torch.Tensor) -> torch.Tensor:
        return sr.linalg.vector_norm(sr.asarray(p), ord=order).values

    expected = first(lambda p: torch.linalg.vector_norm(p, order), values)
    torch.testing.assert_close(ours(torch.tensor(values)), torch.linalg.vector_norm(torch.tensor(values), order))
    torch.testing.assert_close(first(ours, values), expected)
    lengths = [1, len(values) - 1, 0]
    ragged = first(lambda p: sr.norm(sr.from_lengths(p, lengths), axis=1, ord=order).values, values)
    rows = [first(lambda p: torch.linalg.vector_norm(p, order), part) for part in (values[:1], values[1:])]
    torch.testing.assert_close(ragged, torch.cat(rows))


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0, 0.0, 2.0], [3.0, -4.0]], ids=str)
def test_second_derivative_of_the_norm(values: list[float]) -> None:
    expected = second(torch.linalg.vector_norm, values)
    torch.testing.assert_close(second(lambda p: sr.linalg.vector_norm(sr.asarray(p)).values, values), expected)
    torch.testing.assert_close(second(lambda p: sr.linalg.matrix_norm(sr.asarray(p[None])).values, values), expected)
    p = torch.tensor(values, dtype=torch.complex128, requires_grad=True)
    assert gradgradcheck(lambda p: sr.linalg.vector_norm(sr.asarray(p)).values, p)


def test_second_derivative_at_the_origin() -> None:
    for zeros in ([0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]):
        assert not second(lambda p: sr.linalg.vector_norm(sr.asarray(p)).values, zeros).any()
    assert not second(lambda p: sr.linalg.matrix_norm(sr.asarray(p)).values, [[0.0, 0.0]]).any()
    assert not second(lambda p: sr.std(sr.asarray(p)).values, [1.0, 1.0]).any()


def test_sign() -> None:
    values = [1.0, -2.0, 0.0, -0.0, math.inf, math.nan]
    made = first(lambda p: sr.sign(sr.asarray(p)).values, values)
    assert made.numpy().tolist() == [0.0] * 6
    found = sr.sign(sr.asarray(values)).tolist()
    assert found[:5] == [1.0, -1.0, 0.0, 0.0, 1.0]
    assert math.isnan(found[5])
    opposite = sr.sign(sr.asarray([math.inf, -math.inf])).tolist()  # whose sum is NaN
    assert opposite == [1.0, -1.0]


def test_clip_at_its_bounds() -> None:
    values = [-1.0, 0.0, 0.5, 1.0, 2.0]
    expected = first(lambda p: torch.clamp(p, 0, 1), values)
    for bounds in ((0, 1), (0.0, torch.ones((), dtype=torch.float64)), (torch.zeros(5), sr.ones(5))):
        made = first(lambda p, b=bounds: sr.clip(sr.asarray(p), *b).values, values)
        torch.testing.assert_close(made, expected)
    low = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    sr.clip(sr.asarray(torch.tensor(values)), low, None).values.sum().backward()
    assert low.grad is not None
    assert low.grad.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert math.isnan(sr.clip(sr.asarray([math.nan]), 0, 1).tolist()[0])
    assert math.isnan(sr.clip(sr.asarray([0.5]), torch.tensor([math.nan]), 1).tolist()[0])


@pytest.mark.parametrize("divisor", [2, -2.0, math.inf, torch.tensor([2.0, -3.0, math.inf]), sr.asarray([2.0, 0.0, 1])])
def test_floor_divide_has_no_slope(divisor: Any) -> None:
    assert first(lambda p: (sr.asarray(p) // divisor).values, [3.0, -7.5, math.inf]).tolist() == [0.0] * 3
    p = torch.tensor([2.0, 3.0], requires_grad=True)
    (5.0 // sr.asarray(p)).values.sum().backward()
    assert p.grad is not None
    assert p.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_remainders_are_exact_whatever_the_quotient(dtype: torch.dtype) -> None:
    far, tiny = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    dividends = torch.tensor([5.5, -5.5, 0.0, -0.0, 6.0, -6.0, far, -far, tiny, 1.0] * 3, dtype=dtype)
    divisors = torch.tensor([3.0, 3.0, 2.0, 2.0, -3.0, -3.0, tiny, tiny, 3.0, math.inf] * 3, dtype=dtype)
    for sign in (1, -1):
        for count in (10, 30, 5):  # without the last five, no quotient is too large
            a, b = dividends[:count], (divisors * sign)[:count]
            expected = torch.tensor([x % y for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype=dtype)
            made = sr.asarray(a) % sr.asarray(b)
            assert made.values.tolist() == expected.tolist()
            assert torch.signbit(made.values).tolist() == torch.signbit(expected).tolist()
            with_gradient = sr.asarray(a.clone().requires_grad_()) % b
            assert with_gradient.values.tolist() == expected.tolist()
            assert torch.signbit(with_gradient.values).tolist() == torch.signbit(expected).tolist()
            for number in (3.0 * sign, math.inf * sign):
                parts = (sr.asarray(a) % number, sr.asarray(a.clone().requires_grad_()) % number)
                expected = torch.tensor([x % number for x in a.tolist()], dtype=dtype)
                for part in parts:
                    assert part.values.tolist() == expected.tolist()
                    assert torch.signbit(part.values).tolist() == torch.signbit(expected).tolist()


def test_one_row_with_nan_does_not_change_another() -> None:
    x = sr.ragged([[5.5, -0.0], [math.nan, math.inf]])
    assert (x % 3.0)[0].tolist() == [2.5, 0.0]
    assert (x // 2.0)[0].tolist() == [2.0, -0.0]
    assert (x // 2.0)[1, 1].tolist() == math.inf
    assert sr.sign(x)[0].tolist() == [1.0, 0.0]


def test_gradient_of_the_remainder() -> None:
    a = torch.tensor([5.5, -5.5, 6.25, -7.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([3.0, 3.0, -4.0, -3.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a, b: (sr.asarray(a) % sr.asarray(b)).values, (a, b))
    for divisor in (3.0, -3.0, torch.tensor([3.0], dtype=torch.float64)):
        assert first(lambda p, d=divisor: (sr.asarray(p) % d).values, [6.0, -0.0, 1.0]).tolist() == [1.0] * 3
    tangent = torch.func.jvp(lambda p: (sr.asarray(p) % 3.0).values, (a.detach(),), (torch.ones_like(a),))[1]
    assert tangent.tolist() == [1.0] * 4
    each = torch.func.vmap(lambda p: (sr.asarray(p) % 3.0).torch())(torch.tensor([[5.5], [-0.0]]))
    assert each.tolist() == [[2.5], [0.0]]


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_complex_numbers_that_are_not_finite(name: str) -> None:
    function, torchs = getattr(sr, name), getattr(torch, name)
    finite = torch.tensor([1 + 2j, 1e-9 + 0j, -0.5j])
    mixed = torch.cat([finite, torch.tensor([complex(math.inf, 0.0)])])
    assert torch.equal(function(sr.asarray(finite)).values, torchs(finite))
    made = function(sr.asarray(mixed)).values
    torch.testing.assert_close(made[:3], torchs(finite))
    assert made[3].real == math.inf
