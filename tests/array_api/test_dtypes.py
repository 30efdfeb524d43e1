"""dtypes: promotion, casting, limits, kinds, and broadcasting, against array_api_strict and the standard's table."""

from __future__ import annotations

import array_api_strict as xp
import numpy as np
import pytest
import torch
from tests.array_api.strict import ALL, COMPLEX, FLOAT, INTEGER, SHAPES, agree, array, check, ours

import serrate as sr


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("left", ALL)
def test_promotion_is_that_of_the_standard(left):
    for right in ALL:
        try:
            want = np.dtype(xp.result_type(getattr(xp, left), getattr(xp, right))._np_dtype).name
        except TypeError:  # kinds that the standard does not mix, and uint64 with signed integers
            continue
        x, y = sr.zeros((2,), dtype=getattr(sr, left)), sr.zeros((), dtype=getattr(sr, right))
        assert named(sr.result_type(x.dtype, y.dtype)) == named(sr.result_type(x, y)) == want
        assert named(sr.result_type(y, x.dtype, y)) == want
        assert sr.can_cast(x, getattr(sr, want))
        assert sr.can_cast(x.dtype, y.dtype) == (want == right)
        assert sr.equal(x, y).dtype == sr.bool
        if left != "bool":
            assert named((x + y).dtype) == named((y + x).dtype) == want


def test_promotion_that_the_standard_leaves_open():
    for signed in ("int8", "int16", "int32", "int64"):
        with pytest.raises(TypeError, match="no integer type in common"):
            sr.result_type(sr.uint64, getattr(sr, signed))
        assert not sr.can_cast(sr.uint64, getattr(sr, signed))
    assert sr.result_type(sr.uint64, sr.float32) == sr.result_type(sr.int64, sr.float32) == sr.float32
    assert sr.result_type(sr.uint16, sr.bool) == sr.uint16
    assert sr.result_type(sr.uint16, torch.bfloat16) == torch.bfloat16


def test_numbers_in_result_type():
    assert sr.result_type(sr.int8, 1) == sr.int8
    assert sr.result_type(sr.uint64, 2, True) == sr.uint64
    assert sr.result_type(1.5, sr.float64) == sr.float64
    assert sr.result_type(sr.float32, 1j) == sr.complex64
    assert sr.result_type(sr.float64, 1j) == sr.complex128
    assert sr.result_type(sr.bool, True) == sr.bool
    with pytest.raises(ValueError, match="at least one tensor or dtype"):
        sr.result_type(1, 2.0)


@pytest.mark.parametrize("dtype", ALL)
def test_astype(dtype):
    for shape in SHAPES:
        x = array(dtype, shape, large=False)
        x = np.asarray(np.abs(x)).astype(dtype)
        for wanted in ALL:
            if dtype in COMPLEX and wanted not in COMPLEX:
                with pytest.raises(TypeError, match="a part would be lost"):
                    sr.astype(ours(x), getattr(sr, wanted))
                continue
            check("astype", x, f"dtype:{wanted}")
            check("astype", x, f"dtype:{wanted}", copy=False)
    x = ours(array(dtype, (3,)))
    assert sr.astype(x, x.dtype, copy=False) is x
    assert sr.astype(x, x.dtype).values.data_ptr() != x.values.data_ptr()
    assert sr.astype(x, x.dtype, device="cpu").device == x.device


@pytest.mark.parametrize("dtype", FLOAT + COMPLEX)
def test_finfo(dtype):
    for given in (getattr(sr, dtype), sr.zeros((2,), dtype=getattr(sr, dtype))):
        made, want = sr.finfo(given), np.finfo(dtype)
        assert (made.bits, type(made.bits)) == (want.bits, int)
        for name in ("eps", "max", "min", "smallest_normal"):
            assert type(getattr(made, name)) is float
            assert getattr(made, name) == float(getattr(want, name))
        assert made.dtype == (sr.float32 if dtype in ("float32", "complex64") else sr.float64)


@pytest.mark.parametrize("dtype", INTEGER)
def test_iinfo(dtype):
    for given in (getattr(sr, dtype), sr.zeros((2,), dtype=getattr(sr, dtype))):
        made, want = sr.iinfo(given), np.iinfo(dtype)
        assert (made.bits, made.max, made.min) == (want.bits, want.max, want.min)
        assert {type(made.bits), type(made.max), type(made.min)} == {int}
        assert made.dtype == getattr(sr, dtype)


def test_limits_that_are_refused():
    with pytest.raises(TypeError, match=r"floating-point dtype, got torch\.int8"):
        sr.finfo(sr.int8)
    for wrong in (sr.float32, sr.bool):
        with pytest.raises(TypeError, match="integer dtype"):
            sr.iinfo(wrong)


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]


@pytest.mark.parametrize("dtype", ALL)
def test_isdtype(dtype):
    ours_, theirs = getattr(sr, dtype), getattr(xp, dtype)
    for kind in [*KINDS, ("bool", "integral"), ("real floating", "complex floating"), ()]:
        assert sr.isdtype(ours_, kind) is xp.isdtype(theirs, kind)
    for other in ALL:
        assert sr.isdtype(ours_, getattr(sr, other)) is (dtype == other)
        assert sr.isdtype(ours_, (getattr(sr, other), "bool")) is (other == dtype or dtype == "bool")
    with pytest.raises(ValueError, match="kind must be"):
        sr.isdtype(ours_, "number")
    with pytest.raises(TypeError, match="kind must be"):
        sr.isdtype(ours_, 3)


@pytest.mark.parametrize("dtype", ALL)
def test_broadcasting(dtype):
    for shape, wanted in [((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((1,), (0,)), ((1, 3), (4, 1, 3)), ((), ())]:
        check("broadcast_to", array(dtype, shape), wanted)
        made = sr.broadcast_arrays(ours(array(dtype, shape)), ours(array("bool", wanted)))
        want = xp.broadcast_arrays(xp.asarray(array(dtype, shape)), xp.asarray(array("bool", wanted)))
        agree(tuple(made), tuple(want))
        assert sr.broadcast_shapes(shape, wanted) == wanted
    assert sr.broadcast_shapes((3, 1), (1, 4), (2, 1, 1)) == (2, 3, 4)
    assert sr.broadcast_shapes((0,), (1,)) == (0,)
    assert sr.broadcast_shapes() == ()
    for wrong in (lambda: sr.broadcast_shapes((2,), (3,)), lambda: sr.broadcast_to(sr.ones((2,)), (3,))):
        with pytest.raises(ValueError, match="broadcast"):
            wrong()


def test_dtype_objects():
    for name in ALL:
        dtype = getattr(sr, name)
        assert dtype is getattr(torch, name)
        assert dtype == dtype
        assert [other for other in ALL if getattr(sr, other) == dtype] == [name]
