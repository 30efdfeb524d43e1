"""dtypes and special values of torch tensors inside of compiled functions: those that torch gives."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, compiled

import serrate as sr

DTYPES = [
    torch.bool,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, tuple):
        for one, other in zip(got, want, strict=True):
            same(one, other)
    else:
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, equal_nan=True)
        signs = [each.real.double().signbit() for each in (got, want)]
        torch.testing.assert_close(*signs)


@pytest.mark.parametrize("function", [operator.add, torch.mul, torch.maximum, torch.eq, operator.truediv])
def test_a_tensor_without_axes_decides_only_by_its_kind(function: Callable[..., Any]) -> None:
    for one, other in itertools.product(DTYPES, repeat=2):
        x, s = torch.tensor([1, 0, 2]).to(one), torch.tensor(2).to(other)
        if function is torch.maximum and (one.is_complex or other.is_complex):
            continue
        same(compiled(function)(x, s), function(x, s))
        same(compiled(function)(s, x), function(s, x))
        same(compiled(function)(s, s), function(s, s))


def test_captured_tensors_parameters_and_sums_without_axes() -> None:
    scale, half = torch.nn.Parameter(torch.tensor(0.5)), torch.ones(3, dtype=torch.float16)
    same(compiled(lambda x: x * scale.exp() + x.sum())(half).detach(), (half * scale.exp() + half.sum()).detach())


def test_divisions_with_infinite_numbers_and_zeros_are_those_of_torch() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // y, x % y, 1.0 // x, x // 2.0, x % 3, torch.remainder(x, y), torch.floor_divide(x, y)

    x = torch.tensor([1.0, math.inf, -0.0, 5.0, -7.5, math.nan])
    y = torch.tensor([-math.inf, 1.0, 3.0, 0.0, 2.0, 1.0])
    same(compiled(function)(x, y), function(x, y))
    made = compiled(function)
    for count in (6, 4, 5):
        same(made(x[:count], y[:count]), function(x[:count], y[:count]))
    assert made.stats.traces == 1


@pytest.mark.parametrize("function", [operator.floordiv, operator.mod])
def test_whole_numbers_that_are_divided_by_zero_raise_what_eager_code_raises(function: Callable[..., Any]) -> None:
    x, zeros, made = sr.ragged([[7, 8], [9]]), sr.ragged([[0, 2], [3]]), sr.jit(function)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            made(x, x._with(zeros.values))
    assert made(x, x).tolist() == function(x, x).tolist()
    by_two = compiled(lambda x: function(x, 2))
    assert by_two(x).tolist() == function(x, 2).tolist()
    assert by_two.stats.library_calls == 0


@pytest.mark.parametrize("numbers", [(1024.0, 32768.0, 65536.0), (1.01, 1.001, 1.003)])
def test_numbers_that_are_inputs_are_not_rounded_to_half_types(numbers: tuple[float, ...]) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = sr.ragged([[1e-3, 1000.0], [3.0]], dtype=dtype)

        def function(x: Any, n: float) -> list[Any]:
            y = x.values
            return [x * n, x / n, x > n, y * n, n * y, y / n, y > n]

        made = compiled(function)
        for number in numbers:
            for one, other in zip(made(x, number), function(x, number), strict=True):
                assert one.dtype == other.dtype
                one, other = (each.values if isinstance(each, sr.Tensor) else each for each in (one, other))
                torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sort", "topk", "cummax", "cummin", "max", "min"])
def test_several_results_come_in_the_tuples_of_torch(name: str) -> None:
    x = torch.randn(4, 3)
    arguments = {"sort": (1,), "topk": (2, 1)}.get(name, (1,))
    want = getattr(x, name)(*arguments)
    for function in (lambda x: getattr(x, name)(*arguments), lambda x: getattr(torch, name)(x, *arguments)):
        same(compiled(function)(x), want)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2, x * 2),
        lambda x: (x.clone(), x.clone()),
        lambda x: (sr.exp(x), sr.exp(x) + 1, sr.exp(x)),
        lambda x: (sr.ones((3,)), sr.ones((3,))),
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_that_are_equal_have_memory_of_their_own(function: Callable[..., Any], requires_grad: bool) -> None:
    x = torch.arange(6.0).view(3, 2).requires_grad_(requires_grad)
    for made in (function(x), compiled(function)(x)):
        values = [each.values if isinstance(each, sr.Tensor) else each for each in made]
        assert len({each.data_ptr() for each in values}) == len(values)


def test_the_trace_of_a_matrix() -> None:
    x = torch.randn(3, 3)
    same(compiled(lambda x: x.trace() + torch.trace(x))(x), 2 * x.trace())


def test_whole_numbers_to_a_negative_power_raise_what_eager_code_raises() -> None:
    x, y = sr.ragged([[1, 2], [], [3]]), torch.tensor([1, 2])
    for function in (lambda x: x**-1, lambda x: sr.pow(x, -2), lambda x: torch.pow(x, -1), lambda x: x.pow(-1)):
        for given in (x, y):
            with pytest.raises(RuntimeError, match="negative integer powers"):
                function(given)
            with pytest.raises(RuntimeError, match="negative integer powers"):
                compiled(function)(given)
    made = compiled(lambda x, n: x**n)
    for number in (1, 2, 3, 5):
        assert made(x, number).tolist() == (x**number).tolist()
    assert made.stats.eager_calls == 0
    with pytest.raises(RuntimeError, match="negative integer powers"):
        made(x, -1)
    computed = compiled(lambda x, n: x ** (n - 3))
    for number in (5, 6, 7):
        assert computed(x, number).tolist() == (x ** (number - 3)).tolist()
    with pytest.raises(RuntimeError, match="negative integer powers"):
        computed(x, 2)
    for number in (-1, -2, 3, -4):
        of_floats = x.to(torch.float64)
        assert compiled(lambda x, n: x**n)(of_floats, number).tolist() == (of_floats**number).tolist()
    assert compiled(lambda x, y: x**y)(x, -x).tolist() == (x ** (-x)).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_rounded_once_for_all_operations_of_a_kernel(dtype: torch.dtype) -> None:
    def function(x: Any) -> Any:
        return sr.tanh(sr.exp(x * 0.3) + x) * x - sr.sin(x) * 0.7

    generator = torch.Generator().manual_seed(0)
    x = sr.from_lengths(torch.randn(4000, generator=generator).to(dtype), [1500, 0, 2500])
    made = compiled(function)
    got, eager = made(x), function(x)
    exact = function(x.to(torch.float64)).values
    assert made.stats.kernels == 1
    assert got.dtype is eager.dtype is dtype
    unit = torch.finfo(dtype).eps
    size = exact.abs().clamp(min=torch.finfo(dtype).tiny)
    assert ((got.values.double() - exact).abs() <= 0.51 * unit * size + 1e-6).all()  # half of the last place
    assert (got.values - eager.values).abs().max() <= 8 * unit * exact.abs().max()  # eager code rounds eight times


@pytest.mark.parametrize("base", [2, 0.5, 1, 0, -2.0, 1j])
def test_powers_of_a_number_are_differentiated_in_kernels(base: complex) -> None:
    x = sr.ragged([[1.0, 2.0, -1.0], [], [0.0]], dtype=torch.float64)
    made = agree_with_gradients(lambda x: base**x, x)
    assert made.lower(x).reason == ""


@pytest.mark.parametrize("multiply", [operator.matmul, torch.matmul, torch.mm, lambda x, y: x.matmul(y)])
def test_torch_multiplies_no_matrices_of_two_dtypes(multiply: Callable[..., Any]) -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64)
    made = compiled(multiply)
    for pair in ((x, y), (y, x)):
        with pytest.raises(RuntimeError, match="same dtype"):
            multiply(*pair)
        with pytest.raises(RuntimeError, match="same dtype"):
            made(*pair)
    same(made(x, x.T), multiply(x, x.T))
