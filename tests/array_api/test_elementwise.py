"""Elementwise functions on dense tensors, each dtype and shape the standard asks for, against array_api_strict."""

from __future__ import annotations

import warnings

import array_api_strict as xp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace
from tests.array_api.strict import (
    ALL,
    BOOL,
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMERIC,
    REAL,
    UNSIGNED,
    agree,
    array,
    check,
    ours,
)

import serrate as sr

FLOATING = FLOAT + COMPLEX
UNARY = {
    **dict.fromkeys(["abs", "negative", "positive", "square", "sign", "round", "isfinite", "isinf", "isnan"], NUMERIC),
    **dict.fromkeys(["ceil", "floor", "trunc"], REAL),
    **dict.fromkeys(
        [
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "exp",
            "expm1",
            "log",
            "log1p",
            "log2",
            "log10",
        ],
        FLOATING,
    ),
    **dict.fromkeys(
        ["reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"],
        FLOATING,
    ),
    "bitwise_invert": BOOL + INTEGER,
    "conj": NUMERIC,
    "imag": COMPLEX,
    "logical_not": BOOL,
    "real": NUMERIC,
    "signbit": FLOAT,
}
BINARY = {
    **dict.fromkeys(["add", "subtract", "multiply", "pow"], NUMERIC),
    **dict.fromkeys(["floor_divide", "remainder", "greater", "greater_equal", "less", "less_equal"], REAL),
    **dict.fromkeys(["maximum", "minimum"], REAL),
    **dict.fromkeys(["atan2", "copysign", "hypot", "logaddexp", "nextafter"], FLOAT),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], BOOL + INTEGER),
    **dict.fromkeys(["bitwise_left_shift", "bitwise_right_shift"], INTEGER),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], BOOL),
    **dict.fromkeys(["equal", "not_equal"], ALL),
    "divide": FLOATING,
}
EXACT = {"abs", "negative", "positive", "sign", "round", "ceil", "floor", "trunc", "conj", "real", "imag", "copysign"}
EXACT |= {"add", "subtract", "multiply", "remainder", "floor_divide", "maximum", "minimum", "nextafter"}
SHAPES = [(), (0,), (3,), (2, 0), (4, 9)]
PAIRS = [((), ()), ((3,), ()), ((), (2, 3)), ((0,), (1,)), ((2, 1), (1, 3)), ((2, 0), (2, 1)), ((5, 7), (5, 7))]


def domain(name: str, given: np.ndarray) -> np.ndarray:
    """Elements for which the operation has a value, so that nothing but agreement is asked for."""
    if name == "acosh" and given.dtype.kind == "f":
        return np.abs(given) + 1
    if name in ("acos", "asin", "atanh") and given.dtype.kind == "f":
        return given / 8
    return np.abs(given) + 0.5 if name.startswith("log") and given.dtype.kind == "f" else given


def second(name: str, given: np.ndarray) -> np.ndarray:
    """A second operand for which the result is specified."""
    if given.dtype.kind not in "iu":
        return given
    if name in ("floor_divide", "remainder"):
        return np.where(given == 0, 1, given).astype(given.dtype)
    if name in ("bitwise_left_shift", "bitwise_right_shift", "pow"):
        return (np.abs(given.astype("int64")) % 7).astype(given.dtype)
    return given


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    for dtype in UNARY[name]:
        for shape in SHAPES:
            x = np.asarray(domain(name, array(dtype, shape, large=name not in ("abs", "negative"))))
            if name == "reciprocal":
                x = np.where(x == 0, 1, x).astype(dtype)
            check(name, x, exact=name in EXACT and dtype not in COMPLEX)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    for dtype in BINARY[name]:
        for left, right in PAIRS:
            x, y = array(dtype, left), np.asarray(second(name, array(dtype, right, seed=1)))
            if (name == "floor_divide" and dtype in FLOAT) or name == "divide":
                y = np.where(y == 0, 2, y).astype(dtype)
            if name == "pow":
                x = np.asarray(np.abs(x) + 1).astype(dtype)
            if name == "remainder" and dtype in FLOAT:
                y = np.where(y == 0, 2, y).astype(dtype)
            check(name, x, y, exact=name in EXACT or dtype in INTEGER)


MIXED = [
    ("int8", "uint8"),
    ("int8", "int64"),
    ("uint8", "uint16"),
    ("uint16", "int8"),
    ("uint16", "uint64"),
    ("int32", "uint32"),
    ("uint32", "int64"),
    ("float32", "float64"),
    ("complex64", "complex128"),
    ("float64", "complex64"),
]


@pytest.mark.parametrize("pair", MIXED, ids="-".join)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "equal", "less", "bitwise_and", "atan2", "copysign"])
def test_dtypes_promote_whatever_the_number_of_axes(name, pair):
    if not set(pair) <= set(BINARY[name]):
        return
    for left, right in (pair, pair[::-1]):
        for shapes in [((), (3,)), ((3,), ()), ((), ()), ((2, 3), (3,))]:
            check(name, array(left, shapes[0]), array(right, shapes[1], seed=1), exact=name != "atan2")


@pytest.mark.parametrize("name", BINARY)
def test_a_number_takes_the_dtype_of_the_tensor(name):
    for dtype in BINARY[name]:
        number = {"b": True, "i": 2, "u": 2, "f": 0.1, "c": 0.1 + 2j}[np.dtype(dtype).kind]
        x = array(dtype, (2, 3), large=False)
        x = (np.abs(x) + 1).astype(dtype) if name in ("pow", "floor_divide", "remainder", "divide") else x
        x = second(name, x)
        want = xp.asarray(np.asarray(number, dtype=dtype))
        wide = dtype in INTEGER or name in EXACT
        with np.errstate(all="ignore"):
            agree(getattr(sr, name)(ours(x), number), getattr(xp, name)(xp.asarray(x), want), exact=wide)
            agree(getattr(sr, name)(number, ours(x)), getattr(xp, name)(want, xp.asarray(x)), exact=wide)


def test_numbers_of_a_lower_kind():
    for dtype in FLOATING:
        x = ours(array(dtype, (3,)))
        for number in (2, 2.5):
            assert (x + number).dtype == sr.add(number, x).dtype == x.dtype
    x = ours(array("float64", (3,)))
    assert (x + 1j).dtype == sr.complex128
    assert sr.maximum(x, 0.1).tolist() == [max(v, 0.1) for v in x.tolist()]  # 0.1 in double precision
    assert (0.1 + x).tolist() == [0.1 + v for v in x.tolist()]


def test_comparisons_with_numbers_the_dtype_does_not_hold():
    x = sr.asarray([0, 44, 255], dtype=sr.uint8)
    assert (x == 300).tolist() == (x > 300).tolist() == (x < -1).tolist() == [False] * 3
    assert (x != 300).tolist() == (x < 300).tolist() == (x >= -1).tolist() == [True] * 3
    assert sr.less(300, x).tolist() == sr.greater_equal(-1, x).tolist() == [False] * 3
    assert sr.greater(2**70, sr.asarray([2**63 - 1])).tolist() == [True]
    assert 300 not in x
    for wrong in (lambda: x + 300, lambda: sr.maximum(-1, x), lambda: sr.multiply(x, 2**70)):
        with pytest.raises(OverflowError, match="does not hold"):
            wrong()


def test_uint64_above_the_signed_range():
    generator = np.random.default_rng(3)
    x = generator.integers(0, 2**64, 200, dtype="uint64")
    y = generator.integers(1, 2**64, 200, dtype="uint64") >> generator.integers(0, 64, 200, dtype="uint64")
    y = np.maximum(y, np.uint64(1))
    for name in ("add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "minimum", "less", "greater"):
        check(name, x, y)
        check(name, x, np.asarray(y[0]))
    for name in ("less_equal", "greater_equal", "equal", "bitwise_xor"):
        check(name, x, np.where(x % 2 == 0, x, y))
    shifts = generator.integers(0, 70, 200, dtype="uint64")
    for name, shift in (("bitwise_right_shift", np.right_shift), ("bitwise_left_shift", np.left_shift)):
        want = np.where(shifts < 64, shift(x, np.minimum(shifts, 63)), 0)
        np.testing.assert_array_equal(getattr(sr, name)(ours(x), ours(shifts)).values.numpy(), want)
    for name in ("abs", "sign", "negative", "square", "bitwise_invert", "positive", "isfinite"):
        check(name, x)
    assert sr.clip(ours(x), min=2**63, max=2**63 + 5).values.numpy().tolist() == x.clip(2**63, 2**63 + 5).tolist()
    assert sr.divide(ours(x), 2).dtype == sr.float32
    np.testing.assert_allclose(sr.divide(ours(x), 2).values.numpy(), x / 2, rtol=1e-6)


def test_wide_unsigned_of_ragged_rows():
    x = sr.from_lengths(torch.tensor([65535, 1, 2**15], dtype=torch.uint16), [2, 0, 1])
    assert (x + 1).tolist() == [[0, 2], [], [2**15 + 1]]
    assert (x > 2).tolist() == [[True, False], [], [True]]
    assert (x + sr.asarray(-1, dtype=sr.int8)).dtype == sr.int32


def test_no_integer_type_in_common():
    x, y = sr.asarray([1], dtype=sr.uint64), sr.asarray([1], dtype=sr.int8)
    with pytest.raises(TypeError, match=r"uint64 and torch.int8 have no integer type in common"):
        sr.add(x, y)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_kinds_that_are_refused(name):
    takes = UNARY.get(name) or BINARY[name]
    count = 1 if name in UNARY else 2
    if "bool" not in takes and not name.startswith("is"):
        with pytest.raises(TypeError, match=r"bool"):
            getattr(sr, name)(*[sr.asarray([True, False])] * count)
    if name.startswith("bitwise"):
        with pytest.raises(TypeError, match=r"float32"):
            getattr(sr, name)(*[sr.asarray([1.0])] * count)
    if name in ("floor", "ceil", "trunc", "less", "remainder", "maximum", "atan2", "signbit"):
        with pytest.raises(TypeError, match=r"complex64"):
            getattr(sr, name)(*[sr.asarray([1j])] * count)


def test_numbers_alone_and_strangers_are_refused():
    with pytest.raises(TypeError, match="at least one tensor, got numbers only"):
        sr.add(1, 2)
    with pytest.raises(TypeError, match="takes tensors and numbers, got str"):
        sr.maximum(sr.asarray([1.0]), "a")


CLIPS = [
    {},
    {"min": 1},
    {"max": 1},
    {"min": 1, "max": 2},
    {"min": "array"},
    {"max": "array"},
    {"min": 1, "max": "array"},
    {"min": "array", "max": "array"},
]


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("bounds", CLIPS, ids=str)
def test_clip(dtype, bounds):
    for shape in [(), (0,), (3,), (4, 3)]:
        x = array(dtype, shape, special=True)
        low, high = array(dtype, (3,) if shape else (), seed=1), array(dtype, (), seed=2)
        low, high = (np.minimum(low, high), np.maximum(low, high)) if shape != (0,) else (high, high)
        low, high = np.asarray(low), np.asarray(high)
        given = {k: {"min": low, "max": high}[k] if v == "array" else v for k, v in bounds.items()}
        if isinstance(given.get("max"), np.ndarray) and "min" in given:
            given["max"] = np.asarray(np.maximum(given["max"], given["min"]))
        check("clip", x, **given)


def test_clip_bounds_of_other_types():
    x = sr.asarray([1.0, 5.0])
    assert sr.clip(x, 2).tolist() == sr.clip(x, 2, None).tolist() == [2.0, 5.0]
    assert sr.clip(x, min=2).dtype == sr.clip(x, max=sr.asarray(2.0, dtype=sr.float64)).dtype == sr.float32
    assert sr.isnan(sr.clip(x, min=float("nan"))).tolist() == [True, True]
    small = sr.asarray([1, 100], dtype=sr.int8)
    assert sr.clip(small, min=-1000, max=1000).tolist() == [1, 100]
    with pytest.raises(OverflowError):
        sr.clip(small, min=1000)
    made = sr.clip(x)
    made[0] = 9.0
    assert x.tolist() == [1.0, 5.0]
    for wrong in (sr.asarray([True]), sr.asarray([1j])):
        with pytest.raises(TypeError, match="clip takes"):
            sr.clip(wrong, min=0)


@pytest.mark.parametrize("dtype", ALL)
def test_where(dtype):
    condition = array("bool", (3,))
    for left, right in [((3,), (3,)), ((), (2, 3)), ((2, 1), ()), ((), ())]:
        check("where", condition, array(dtype, left), array(dtype, right, seed=1))
    x = ours(array(dtype, (3,)))
    number = {"b": True, "i": 2, "u": 2, "f": 0.1, "c": 0.1j}[np.dtype(dtype).kind]
    beside = sr.full((3,), number, dtype=x.dtype)
    for made, want in (
        (sr.where(ours(condition), x, number), sr.where(ours(condition), x, beside)),
        (sr.where(ours(condition), number, x), sr.where(ours(condition), beside, x)),
    ):
        assert made.dtype == x.dtype
        assert made.tolist() == want.tolist()


def test_where_promotes_and_wants_bools():
    condition = sr.asarray([True, False])
    assert sr.where(condition, sr.asarray(1.0), sr.asarray(2.0, dtype=sr.float64)).dtype == sr.float64
    assert sr.where(condition, sr.asarray(1, dtype=sr.uint16), sr.asarray([1], dtype=sr.int8)).dtype == sr.int32
    with pytest.raises(TypeError, match="condition of bools"):
        sr.where(sr.asarray([1, 0]), 1, 2)


XPS = make_strategies_namespace(sr)


@given(st.data())
def test_hypothesis_draws_arrays_of_serrate(data):
    dtype = data.draw(XPS.scalar_dtypes())
    x = data.draw(XPS.arrays(dtype, XPS.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4)))
    assert isinstance(x, sr.Tensor)
    assert x.dtype == dtype
    y = data.draw(XPS.arrays(dtype, x.shape))
    made = (x == y).values.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(made, x.values.numpy() == y.values.numpy())
    if str(dtype).removeprefix("torch.") in (*UNSIGNED, "int32", "int64"):
        np.testing.assert_array_equal(
            (x * y - x).values.numpy(), x.values.numpy() * y.values.numpy() - x.values.numpy()
        )
