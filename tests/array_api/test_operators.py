"""Operators of dense tensors: each, reflected and in place, with tensors and numbers, is its function."""

from __future__ import annotations

import operator

import array_api_strict as xp
import numpy as np
import pytest
import torch
from tests.array_api.strict import ALL, BOOL, COMPLEX, FLOAT, INTEGER, NUMERIC, REAL, agree, array, ours

import serrate as sr

FLOATING = FLOAT + COMPLEX
BINARY = {
    "add": ("add", NUMERIC),
    "sub": ("subtract", NUMERIC),
    "mul": ("multiply", NUMERIC),
    "truediv": ("divide", FLOATING),
    "floordiv": ("floor_divide", REAL),
    "mod": ("remainder", REAL),
    "pow": ("pow", NUMERIC),
    "and": ("bitwise_and", BOOL + INTEGER),
    "or": ("bitwise_or", BOOL + INTEGER),
    "xor": ("bitwise_xor", BOOL + INTEGER),
    "lshift": ("bitwise_left_shift", INTEGER),
    "rshift": ("bitwise_right_shift", INTEGER),
}
COMPARE = {
    "eq": ("equal", ALL),
    "ne": ("not_equal", ALL),
    "lt": ("less", REAL),
    "le": ("less_equal", REAL),
    "gt": ("greater", REAL),
    "ge": ("greater_equal", REAL),
}
UNARY = {
    "abs": ("abs", NUMERIC),
    "neg": ("negative", NUMERIC),
    "pos": ("positive", NUMERIC),
    "invert": ("bitwise_invert", BOOL + INTEGER),
}


def operands(name: str, dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    made = array(dtype, shape, seed, large=False)
    return np.asarray(np.abs(made) + 1).astype(dtype) if name not in ("and", "or", "xor") and dtype != "bool" else made


def number(dtype: str) -> bool | int | float | complex:
    return {"b": True, "i": 2, "u": 2, "f": 1.5, "c": 1.5 + 1j}[np.dtype(dtype).kind]


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    function, dtypes = UNARY[name]
    for dtype in dtypes:
        for shape in [(), (0,), (2, 3)]:
            x = array(dtype, shape, large=False)
            made = getattr(sr.Tensor, f"__{name}__")(ours(x))
            agree(made, getattr(xp, function)(xp.asarray(x)), exact=dtype not in COMPLEX)


@pytest.mark.parametrize("name", [*BINARY, *COMPARE])
def test_tensors_numbers_and_reflections(name):
    function, dtypes = (BINARY | COMPARE)[name]
    exact = name not in ("truediv", "pow")
    for dtype in dtypes:
        for left, right in [((), ()), ((3,), ()), ((0,), (1,)), ((2, 1), (3,))]:
            x, y = operands(name, dtype, left), operands(name, dtype, right, 1)
            method = getattr(ours(x), f"__{name}__")
            agree(method(ours(y)), getattr(xp, function)(xp.asarray(x), xp.asarray(y)), exact)
            agree(method(number(dtype)), getattr(xp.asarray(x), f"__{name}__")(number(dtype)), exact)
            if name in BINARY:
                reflected = getattr(ours(x), f"__r{name}__")(number(dtype))
                agree(reflected, getattr(xp.asarray(x), f"__r{name}__")(number(dtype)), exact)


@pytest.mark.parametrize("name", BINARY)
def test_in_place(name):
    _function, dtypes = BINARY[name]
    exact = name not in ("truediv", "pow")
    for dtype in dtypes:
        for left, right in [((), ()), ((3,), ()), ((0,), (1,)), ((2, 3), (3,)), ((2, 3), (2, 1))]:
            x, y = operands(name, dtype, left), operands(name, dtype, right, 1)
            for other, theirs in ((ours(y), xp.asarray(y)), (number(dtype), number(dtype))):
                made = before = ours(x)
                place = made.values.data_ptr()
                made = getattr(operator, f"i{name}")(made, other)
                assert made is before
                assert made.values.data_ptr() == place
                want = getattr(operator, name if name not in ("and", "or") else f"{name}_")(xp.asarray(x), theirs)
                agree(made, want, exact)


def test_in_place_of_a_narrower_dtype_and_of_unsigned():
    x = sr.asarray([1, 2], dtype=sr.int64)
    x += sr.asarray([1, 1], dtype=sr.int8)
    assert x.dtype == sr.int64
    for narrow, wide in ((sr.uint8, sr.uint16), (sr.int8, sr.int64), (sr.uint16, sr.int64)):
        x = sr.asarray([3], dtype=narrow)
        x += sr.asarray([4], dtype=wide)
        assert (x.dtype, x.tolist()) == (narrow, [7])
    x = sr.asarray([2**64 - 1, 5], dtype=sr.uint64)
    x += 3
    x //= sr.asarray([1, 2], dtype=sr.uint8)
    assert x.dtype == sr.uint64
    assert x.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("left", "right", "kind", "pattern"),
    [
        (sr.int64, sr.float32, TypeError, r"add gives torch.float32, which does not go back into torch.int64"),
        (sr.float32, sr.complex64, TypeError, r"which does not go back"),
        (sr.uint16, sr.float32, TypeError, r"add gives torch.float32, which does not go back into torch.uint16"),
    ],
)
def test_in_place_never_changes_the_dtype(left, right, kind, pattern):
    x = sr.ones((2,), dtype=left)
    with pytest.raises(kind, match=pattern):
        x += sr.ones((2,), dtype=right)
    assert x.dtype == left
    assert x.tolist() == [1, 1]


def test_in_place_never_changes_the_shape():
    x = sr.ones((2, 1))
    with pytest.raises(ValueError, match="does not broadcast to shape"):
        x += sr.ones((2, 3))


def test_matrix_product_in_place_and_reflected():
    x = sr.asarray([[1.0, 2.0], [3.0, 4.0]])
    y = sr.asarray([[0.0, 1.0], [1.0, 0.0]])
    before, place = x, x.values.data_ptr()
    x @= y
    assert x is before
    assert x.values.data_ptr() == place
    assert x.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert x.__rmatmul__(y).tolist() == [[4.0, 3.0], [2.0, 1.0]]
    with pytest.raises(ValueError, match="does not go back into"):
        x @= sr.ones((2, 1))
    with pytest.raises(TypeError):
        x @= 2
    ragged = sr.from_lengths(torch.arange(6.0).view(3, 2), [1, 2])
    ragged @= y
    assert ragged.tolist() == [[[1.0, 0.0]], [[3.0, 2.0], [5.0, 4.0]]]


def test_strangers_are_not_operands():
    x = sr.asarray([1.0])
    for name in [*BINARY, *COMPARE, "matmul", "imatmul", "iadd", "radd"]:
        assert getattr(x, f"__{name}__")("a") is NotImplemented
    assert (x == None) is False  # noqa: E711
    assert (x == "a") is False
    with pytest.raises(TypeError):
        _ = x < "a"


def test_0d_tensors_count_and_numbers_do_not():
    single, double = sr.asarray([1.0], dtype=sr.float32), sr.asarray(2.0, dtype=sr.float64)
    assert (single * double).dtype == (double * single).dtype == sr.float64
    assert (single * 2.0).dtype == (2 * single).dtype == sr.float32
    assert (single * torch.tensor(2.0, dtype=torch.float64)).dtype == sr.float64
    assert torch.mul(single, torch.tensor(2.0, dtype=torch.float64)).dtype == sr.float32  # torch's rule on its face
    rows = sr.ragged([[1.0, 2.0], []])
    assert (rows * double).dtype == sr.float64
    assert (rows + sr.asarray(1, dtype=sr.int64)).dtype == sr.float32
    assert (sr.asarray([1], dtype=sr.int8) + sr.asarray(1, dtype=sr.int64)).dtype == sr.int64


# ------------------------------------------------------------------------------------------------- Python's numbers


def test_python_numbers():
    assert int(sr.asarray(3)) == int(sr.asarray(3.7)) == 3
    assert int(sr.asarray(2**64 - 1, dtype=sr.uint64)) == 2**64 - 1
    assert float(sr.asarray(3)) == float(sr.asarray(True)) + 2 == 3.0
    assert complex(sr.asarray(1j)) == 1j
    assert complex(sr.asarray(2.0)) == 2 + 0j
    assert bool(sr.asarray(2)) is bool(sr.asarray([-1.5])) is bool(sr.asarray(float("nan"))) is True
    assert [operator.index(sr.asarray(5, dtype=getattr(sr, d))) for d in INTEGER] == [5] * len(INTEGER)
    assert [1, 2, 3][sr.asarray(1)] == 2


@pytest.mark.parametrize("convert", [int, float, complex])
def test_only_one_element_becomes_a_number(convert):
    assert convert(sr.asarray([1])) == convert(sr.ragged([[], [1]])) == 1  # beyond the standard, as in torch
    for wrong in (sr.asarray([1, 2]), sr.ones((0,)), sr.ragged([[1], [2]])):
        with pytest.raises(ValueError, match="one element"):
            convert(wrong)


def test_only_0d_integers_are_indices():
    for wrong in (sr.asarray([1]), sr.ones((1, 1), dtype=sr.int64), sr.ragged([[1]])):
        with pytest.raises(TypeError, match="only a 0-d integer tensor is an index"):
            operator.index(wrong)


def test_kinds_that_do_not_convert():
    for convert in (int, float):
        with pytest.raises(TypeError):
            convert(sr.asarray(1j))
    for wrong in (1.0, True, 1j):
        with pytest.raises(TypeError, match="0-d integer tensor is an index"):
            operator.index(sr.asarray(wrong))
    with pytest.raises(OverflowError):
        int(sr.asarray(float("inf")))
    with pytest.raises(ValueError, match="NaN"):
        int(sr.asarray(float("nan")))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(sr.ones((2,)))


def test_matrix_product_in_place_keeps_the_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        x = sr.asarray(torch.ones(2, 2, dtype=dtype))
        x @= torch.full((2, 2), 1.5, dtype=torch.float64)
        assert x.dtype == dtype
        assert x.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    narrow = sr.ones((2, 2), dtype=torch.int8)
    narrow @= sr.ones((2, 2), dtype=torch.int64)
    assert (narrow.dtype, narrow.tolist()) == (torch.int8, [[2, 2], [2, 2]])
    for x, y in ((sr.ones((2, 2), dtype=torch.int64), torch.ones(2, 2)), (sr.ones((2, 2)), torch.ones(2, 2) * 1j)):
        before = x.tolist()
        with pytest.raises(TypeError, match=r"matmul gives .* which does not go back into"):
            x @= y
        assert x.tolist() == before
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = sr.ones((2, 2))
        x @= sr.ones((2, 2))
    assert (x.dtype, x.tolist()) == (torch.float32, [[2.0, 2.0], [2.0, 2.0]])
