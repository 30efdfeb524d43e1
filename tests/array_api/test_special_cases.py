"""Special values of floating-point numbers: the standard's rules written out, for each dtype."""

from __future__ import annotations

import math
from collections.abc import Callable

import array_api_strict as xp
import numpy as np
import pytest
import torch

import serrate as sr

INF, NAN = math.inf, math.nan
PI = math.pi
POSITIVE, NEGATIVE = (0.5, 1.0, 1.5, 3.0, 1e30), (-0.5, -1.0, -1.5, -3.0, -1e30)
ZEROS, INFINITE = (0.0, -0.0), (INF, -INF)
FINITE = POSITIVE + NEGATIVE

# For each function what it gives; keys are arguments, or groups of them.
UNARY: dict[str, list[tuple[float, float]]] = {
    "abs": [(NAN, NAN), (-0.0, 0.0), (-INF, INF)],
    "acos": [(NAN, NAN), (1.5, NAN), (-1.5, NAN), (1.0, 0.0), (INF, NAN)],
    "acosh": [(NAN, NAN), (0.5, NAN), (1.0, 0.0), (INF, INF), (-INF, NAN)],
    "asin": [(NAN, NAN), (1.5, NAN), (-1.5, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "atan": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2)],
    "atanh": [(NAN, NAN), (-1.5, NAN), (1.5, NAN), (-1.0, -INF), (1.0, INF), (0.0, 0.0), (-0.0, -0.0)],
    "ceil": [(INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (-0.5, -0.0), (3.0, 3.0)],
    "cos": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "cosh": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF)],
    "exp": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0)],
    "expm1": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0)],
    "floor": [(INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (0.5, 0.0), (-3.0, -3.0)],
    "log": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "log1p": [(NAN, NAN), (-1.5, NAN), (-1.0, -INF), (-0.0, -0.0), (0.0, 0.0), (INF, INF)],
    "log2": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "log10": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "negative": [(NAN, NAN), (0.0, -0.0), (-0.0, 0.0), (INF, -INF), (-INF, INF)],
    "reciprocal": [(NAN, NAN), (0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0)],
    "round": [(INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (0.5, 0.0), (1.5, 2.0), (-0.5, -0.0)],
    "sign": [(-3.0, -1.0), (0.0, 0.0), (3.0, 1.0), (NAN, NAN), (INF, 1.0), (-INF, -1.0)],
    "sin": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "sinh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "sqrt": [(NAN, NAN), (-1.0, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF)],
    "tan": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "tanh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "trunc": [(INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (-0.5, -0.0), (1.5, 1.0)],
}
Group = tuple[float, ...]
Rule = tuple[Group, Group, float | Callable[[float, float], float]]
BOTH_ZERO = (ZEROS, ZEROS, NAN)
BOTH_INFINITE = (INFINITE, INFINITE, NAN)
QUOTIENT: list[Rule] = [
    ((NAN,), FINITE + ZEROS + INFINITE, NAN),
    (FINITE + ZEROS + INFINITE, (NAN,), NAN),
    BOTH_INFINITE,
    BOTH_ZERO,
    ((0.0,), POSITIVE, 0.0),
    ((-0.0,), POSITIVE, -0.0),
    ((0.0,), NEGATIVE, -0.0),
    ((-0.0,), NEGATIVE, 0.0),
    (POSITIVE, (0.0,), INF),
    (POSITIVE, (-0.0,), -INF),
    (NEGATIVE, (0.0,), -INF),
    (NEGATIVE, (-0.0,), INF),
    ((INF,), POSITIVE, INF),
    ((INF,), NEGATIVE, -INF),
    ((-INF,), POSITIVE, -INF),
    ((-INF,), NEGATIVE, INF),
    (POSITIVE, (INF,), 0.0),
    (POSITIVE, (-INF,), -0.0),
    (NEGATIVE, (INF,), -0.0),
    (NEGATIVE, (-INF,), 0.0),
]
BINARY: dict[str, list[Rule]] = {
    "divide": QUOTIENT,
    "floor_divide": QUOTIENT,
    "remainder": [
        *QUOTIENT[:4],
        (ZEROS, POSITIVE, 0.0),
        (ZEROS, NEGATIVE, -0.0),
        (FINITE, ZEROS, NAN),
        (INFINITE, FINITE, NAN),
        (POSITIVE, (INF,), lambda x, y: x),
        (POSITIVE, (-INF,), lambda x, y: y),
        (NEGATIVE, (INF,), lambda x, y: y),
        (NEGATIVE, (-INF,), lambda x, y: x),
        (FINITE[:4] + FINITE[5:9], FINITE[:4] + FINITE[5:9], lambda x, y: x % y),
    ],
    "add": [
        ((NAN,), FINITE + INFINITE, NAN),
        ((INF,), (-INF,), NAN),
        ((-INF,), (INF,), NAN),
        ((INF,), FINITE + ZEROS + (INF,), INF),
        ((-INF,), FINITE + ZEROS + (-INF,), -INF),
        ((-0.0,), (-0.0,), -0.0),
        ((-0.0,), (0.0,), 0.0),
        ((0.0,), ZEROS, 0.0),
        (POSITIVE, ZEROS, lambda x, y: x),
        (FINITE, FINITE, lambda x, y: x + y),
    ],
    "subtract": [
        ((INF,), (INF,), NAN),
        ((0.0,), (-0.0,), 0.0),
        ((-0.0,), (0.0,), -0.0),
        (FINITE, FINITE, lambda x, y: x - y),
    ],
    "multiply": [
        (INFINITE, ZEROS, NAN),
        (ZEROS, INFINITE, NAN),
        ((INF,), (*NEGATIVE, -INF), -INF),
        ((-INF,), (*NEGATIVE, -INF), INF),
        (POSITIVE, (-0.0,), -0.0),
        (NEGATIVE, (-0.0,), 0.0),
    ],
    "atan2": [
        ((NAN,), FINITE, NAN),
        (POSITIVE, ZEROS, PI / 2),
        (NEGATIVE, ZEROS, -PI / 2),
        ((0.0,), (*POSITIVE, 0.0), 0.0),
        ((0.0,), (*NEGATIVE, -0.0), PI),
        ((-0.0,), (*POSITIVE, 0.0), -0.0),
        ((-0.0,), (*NEGATIVE, -0.0), -PI),
        (POSITIVE, (INF,), 0.0),
        (POSITIVE, (-INF,), PI),
        (NEGATIVE, (INF,), -0.0),
        (NEGATIVE, (-INF,), -PI),
        ((INF,), FINITE, PI / 2),
        ((-INF,), FINITE, -PI / 2),
        ((INF,), (INF,), PI / 4),
        ((INF,), (-INF,), 3 * PI / 4),
        ((-INF,), (INF,), -PI / 4),
        ((-INF,), (-INF,), -3 * PI / 4),
    ],
    "copysign": [
        ((NAN,), FINITE, NAN),
        (FINITE, (-0.0, *NEGATIVE), lambda x, y: -abs(x)),
        (FINITE, (0.0, *POSITIVE), lambda x, y: abs(x)),
        (ZEROS, NEGATIVE, -0.0),
    ],
    "hypot": [
        (INFINITE, (*FINITE, NAN), INF),
        ((*FINITE, NAN), INFINITE, INF),
        (ZEROS, FINITE, lambda x, y: abs(y)),
        (FINITE, (NAN,), NAN),
        ((NAN,), ZEROS, NAN),
    ],
    "logaddexp": [
        ((NAN,), FINITE, NAN),
        (FINITE, (NAN,), NAN),
        ((INF,), FINITE, INF),
        (FINITE, (INF,), INF),
        ((-INF,), (-INF,), -INF),
        (FINITE, (-INF,), lambda x, y: x),
    ],
    "maximum": [((NAN,), FINITE, NAN), (FINITE, (NAN,), NAN), (FINITE, INFINITE, max)],
    "minimum": [((NAN,), FINITE, NAN), (FINITE, (NAN,), NAN), (FINITE, INFINITE, min)],
    "nextafter": [((NAN,), FINITE, NAN), (FINITE, (NAN,), NAN), ((-0.0,), (0.0,), 0.0), ((0.0,), (-0.0,), -0.0)],
    "pow": [
        (FINITE[:1] + FINITE[2:] + INFINITE, (NAN,), NAN),
        (FINITE + ZEROS + INFINITE + (NAN,), ZEROS, 1.0),
        ((NAN,), FINITE, NAN),
        ((1.5, -1.5, 3.0, INF), (INF,), INF),
        ((1.5, -1.5, 3.0, -INF), (-INF,), 0.0),
        ((1.0, -1.0), INFINITE, 1.0),
        ((0.5, -0.5), (INF,), 0.0),
        ((0.5, -0.5), (-INF,), INF),
        ((INF,), POSITIVE, INF),
        ((INF,), NEGATIVE, 0.0),
        ((-INF,), (1.0, 3.0), -INF),
        ((-INF,), (0.5, 1.5), INF),
        ((-INF,), (-1.0, -3.0), -0.0),
        ((-INF,), (-0.5, -1.5), 0.0),
        ((0.0,), POSITIVE, 0.0),
        ((0.0,), NEGATIVE, INF),
        ((-0.0,), (1.0, 3.0), -0.0),
        ((-0.0,), (0.5, 1.5), 0.0),
        ((-0.0,), (-1.0, -3.0), -INF),
        ((-0.0,), (-0.5, -1.5), INF),
        (NEGATIVE[:4], (0.5, 1.5, -0.5), NAN),
    ],
}
DTYPES = [torch.float32, torch.float64]


def same(got: list[float], want: list[float], dtype: torch.dtype) -> None:
    found, expected = np.asarray(got), torch.tensor(want, dtype=dtype).double().numpy()
    np.testing.assert_allclose(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=0)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[signed]), np.signbit(expected[signed]))


# One element runs torch's scalar loop, many its vectorized one; they differ in what they make of special values.
@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, dtype, copies):
    for argument, result in UNARY[name]:
        made = getattr(sr, name)(sr.full((copies,), argument, dtype=dtype))
        same(made.tolist(), [result] * copies, dtype)


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, dtype, copies):
    for left, right, result in BINARY[name]:
        pairs = [(x, y) for x in left for y in right] * copies
        want = [result(x, y) if callable(result) else result for x, y in pairs]
        x, y = (sr.asarray(column, dtype=dtype) for column in zip(*pairs, strict=True))
        same(getattr(sr, name)(x, y).tolist(), want, dtype)
        for each in right:  # a number beside a tensor, and before it
            made = getattr(sr, name)(sr.asarray(left, dtype=dtype), each).tolist()
            same(made, [result(v, each) if callable(result) else result for v in left], dtype)
        for each in left:
            made = getattr(sr, name)(each, sr.asarray(right, dtype=dtype)).tolist()
            same(made, [result(each, v) if callable(result) else result for v in right], dtype)


def test_operators_have_the_same_special_cases():
    x, y = sr.asarray([INF, 1.0, -0.0, -1.0]), sr.asarray([2.0, -INF, 1.0, 1.0])
    for operator, name in (("__floordiv__", "floor_divide"), ("__mod__", "remainder")):
        want = getattr(sr, name)(x, y).tolist()
        same(getattr(x, operator)(y).tolist(), want, torch.float32)
        made = x.clone()
        getattr(made, operator.replace("__", "__i", 1))(y)
        same(made.tolist(), want, torch.float32)
    ragged = sr.from_lengths(x.values, [1, 0, 3])
    assert (ragged // sr.from_lengths(y.values, [1, 0, 3])).tolist() == [[INF], [], [-0.0, -0.0, -1.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, *DTYPES])
def test_remainder_is_exact_for_any_magnitude(dtype):
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    generator = torch.Generator().manual_seed(1)
    limits = torch.iinfo(bits)
    x, y = (torch.randint(limits.min, limits.max, (3000,), dtype=bits, generator=generator) for _ in range(2))
    x, y = x.view(dtype), y.view(dtype)
    keep = x.isfinite() & y.isfinite() & (y != 0)
    x, y = x[keep], y[keep]
    want = [a % b for a, b in zip(x.double().tolist(), y.double().tolist(), strict=True)]
    same(sr.remainder(x, y).tolist(), want, dtype)


def test_gradient_of_remainder_where_it_is_zero():
    x, y = torch.tensor([4.0, -3.0, 5.0], requires_grad=True), torch.tensor([2.0, -1.5, -2.0], requires_grad=True)
    sr.sum(sr.remainder(x, y)).values.backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert y.grad.tolist() == [-2.0, -2.0, 3.0]


def test_truth_of_special_values():
    x = sr.asarray([NAN, INF, -INF, 0.0, -0.0, 1.0])
    assert sr.isnan(x).tolist() == [True, False, False, False, False, False]
    assert sr.isinf(x).tolist() == [False, True, True, False, False, False]
    assert sr.isfinite(x).tolist() == [False, False, False, True, True, True]
    assert sr.signbit(sr.asarray([-0.0, 0.0, -INF, 1.0])).tolist() == [True, False, True, False]
    assert (x == x).tolist() == [False, True, True, True, True, True]
    assert sr.not_equal(x, x).tolist() == [True, False, False, False, False, False]
    assert sr.equal(sr.asarray([0.0, INF]), sr.asarray([-0.0, -INF])).tolist() == [True, False]
    for name in ("less", "less_equal", "greater", "greater_equal"):
        assert not bool(getattr(sr, name)(sr.asarray([NAN]), 1.0))


PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, INF, -INF, NAN)
COMPLEX = [complex(a, b) for a in PARTS for b in PARTS]


def parts_agree(got: sr.Tensor, want: np.ndarray, rtol: float) -> None:
    for found, expected in ((got.values.real, want.real), (got.values.imag, want.imag)):
        values = found.numpy()
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=1e-30)
        signed = ~np.isnan(expected) & ~np.isnan(values)
        np.testing.assert_array_equal(np.signbit(values[signed]), np.signbit(expected[signed]))


def torus(radius: float, angle: float) -> complex:
    """radius · cis(angle)."""
    return complex(radius * np.cos(angle), radius * np.sin(angle))


# Of the standard's text; numpy's own complex functions differ. NaN in a wanted part: NaN; the sign of 0 is free.
EXPM1 = [
    (complex(INF, 0.0), complex(INF, 0.0)),
    (complex(-INF, 1.0), complex(-1.0, 0.0)),
    (complex(INF, 1.0), torus(INF, 1.0)),
    (complex(INF, 2.0), torus(INF, 2.0)),
    (complex(-INF, INF), complex(-1.0, 0.0)),
    (complex(INF, INF), complex(INF, NAN)),
    (complex(-INF, NAN), complex(-1.0, 0.0)),
    (complex(INF, NAN), complex(INF, NAN)),
    (complex(NAN, 0.0), complex(NAN, 0.0)),
    (complex(NAN, 1.0), complex(NAN, NAN)),
    (complex(NAN, NAN), complex(NAN, NAN)),
    (complex(1.0, INF), complex(NAN, NAN)),
    (complex(1.0, NAN), complex(NAN, NAN)),
    (complex(1e-20, 1e-20), complex(1e-20, 1e-20)),
]
LOG1P = [
    (complex(-1.0, 0.0), complex(-INF, 0.0)),
    (complex(1.0, INF), complex(INF, np.pi / 2)),
    (complex(1.0, NAN), complex(NAN, NAN)),
    (complex(-INF, 1.0), complex(INF, np.pi)),
    (complex(INF, 1.0), complex(INF, 0.0)),
    (complex(-INF, INF), complex(INF, 3 * np.pi / 4)),
    (complex(INF, INF), complex(INF, np.pi / 4)),
    (complex(INF, NAN), complex(INF, NAN)),
    (complex(-INF, NAN), complex(INF, NAN)),
    (complex(NAN, 1.0), complex(NAN, NAN)),
    (complex(NAN, INF), complex(INF, NAN)),
    (complex(NAN, NAN), complex(NAN, NAN)),
    (complex(1e-20, 1e-20), complex(1e-20, 1e-20)),
]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(("name", "given", "want"), [("expm1", *c) for c in EXPM1] + [("log1p", *c) for c in LOG1P])
def test_complex_values_that_numpy_has_wrong(name, given, want, dtype):
    got = getattr(sr, name)(sr.asarray(given, dtype=dtype)).values.item()
    for found, expected in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "name",
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "conj",
        "cosh",
        "exp",
        "log",
        "negative",
        "round",
        "sinh",
        "sqrt",
        "tanh",
    ],
)
def test_complex_values_of_one_operand(name, dtype):
    given = np.asarray(COMPLEX, dtype=dtype)
    with np.errstate(all="ignore"):
        want = getattr(xp, name)(xp.asarray(given))._array
    parts_agree(getattr(sr, name)(sr.asarray(given)), want, 1e-5)
    for i in range(0, len(COMPLEX), 7):
        parts_agree(getattr(sr, name)(sr.asarray(given[i : i + 1])), want[i : i + 1], 1e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["add", "subtract"])
def test_parts_of_complex_numbers_are_added_apart(name, dtype):
    x, y = (side.ravel() for side in np.meshgrid(np.asarray(COMPLEX, dtype=dtype), np.asarray(COMPLEX, dtype=dtype)))
    function = {"add": np.add, "subtract": np.subtract}[name]
    with np.errstate(all="ignore"):
        parts_agree(getattr(sr, name)(sr.asarray(x), sr.asarray(y)), function(x, y), 0)
        parts_agree(getattr(sr, name)(sr.asarray(x), 1 + 2j), function(x, np.asarray(1 + 2j, dtype=dtype)), 0)
        parts_agree(getattr(sr, name)(2.0, sr.asarray(x)), function(np.asarray(2.0, dtype=dtype), x), 0)
    made = sr.asarray(x, copy=True)
    made += sr.asarray(y)
    with np.errstate(all="ignore"):
        parts_agree(made, x + y, 0)


def test_complex_sign_and_gradients():
    x = sr.asarray([3 + 4j, 0j, complex(NAN, 1), 1e30 + 0j])
    made = sr.sign(x)
    assert made.tolist()[:2] == pytest.approx([0.6 + 0.8j, 0j])
    assert sr.isnan(sr.real(made)).tolist() == sr.isnan(sr.imag(made)).tolist() == [False, False, True, False]
    for name in ("add", "subtract"):
        leaf = [torch.tensor([1 + 2j, 3j], dtype=torch.complex128, requires_grad=True) for _ in range(2)]
        assert torch.autograd.gradcheck(lambda a, b, name=name: getattr(sr, name)(a, b).values, leaf)
    for name in ("acos", "negative", "sign"):
        leaf = [torch.tensor([0.3 + 2j, -0.2 + 0.1j], dtype=torch.complex128, requires_grad=True)]
        assert torch.autograd.gradcheck(lambda a, name=name: getattr(sr, name)(a).values, leaf)
        assert torch.autograd.gradgradcheck(lambda a, name=name: getattr(sr, name)(a).values, leaf)
