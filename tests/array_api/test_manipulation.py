"""Manipulation functions against array_api_strict."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.array_api.strict import (
    ALL,
    INTEGER,
    SHAPES,
    SIGNED,
    UNSIGNED,
    array,
    axis_choices,
    check,
    each_axis,
    ours,
)

import serrate as sr

MIXED = [
    *itertools.combinations(SIGNED, 2),
    *itertools.combinations(UNSIGNED, 2),
    ("uint8", "int8"),
    ("uint16", "int16"),
    ("uint32", "int8"),
    ("float32", "float64"),
    ("float32", "complex128"),
    ("float64", "complex64"),
    ("complex64", "complex128"),
]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape], ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_concat(dtype: str, shape: tuple[int, ...]) -> None:
    parts = [array(dtype, shape, seed) for seed in range(3)]
    check("concat", parts)
    check("concat", tuple(parts[:1]))
    check("concat", parts, axis=None)
    for axis in each_axis(len(shape)):
        check("concat", parts, axis=axis)


@pytest.mark.parametrize("dtypes", MIXED, ids=str)
def test_concat_of_dtypes(dtypes: tuple[str, str]) -> None:
    one, other = (array(dtype, (2, 3)) for dtype in dtypes)
    check("concat", [one, other], axis=0)
    check("concat", [other, one], axis=1)
    check("concat", [other, one[:1]], axis=None)
    check("stack", [one, other], axis=1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_stack(dtype: str, shape: tuple[int, ...]) -> None:
    parts = [array(dtype, shape, seed) for seed in range(3)]
    check("stack", parts)
    for axis in range(-len(shape) - 1, len(shape) + 1):
        check("stack", tuple(parts), axis=axis)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_axes(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    ndim = len(shape)
    for axis in range(-ndim - 1, ndim + 1):
        check("expand_dims", x, axis=axis)
        check("expand_dims", x, axis)
    for axes in itertools.permutations(range(ndim)):
        check("permute_dims", x, axes)
        check("permute_dims", x, axes=axes)
    for source, destination in itertools.product(each_axis(ndim), repeat=2):
        check("moveaxis", x, source, destination)
    for source, destination in itertools.product(itertools.permutations(range(ndim)), repeat=2):
        check("moveaxis", x, source, destination)
    for axis in axis_choices(ndim):
        check("flip", x, axis=axis)
    for axis in each_axis(ndim):
        check("unstack", x, axis=axis)


@pytest.mark.parametrize("shape", [(1,), (1, 3, 1), (1, 1), (0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_squeeze(dtype: str, shape: tuple[int, ...]) -> None:
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    x = array(dtype, shape)
    for axis in ones:
        check("squeeze", x, axis)
        check("squeeze", x, axis=axis - len(shape))
    for count in range(len(ones) + 1):
        for axes in itertools.combinations(ones, count):
            check("squeeze", x, axes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_roll(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    for shift in (0, 1, -2, 7):
        check("roll", x, shift)
        check("roll", x, shift=shift, axis=None)
        for axis in each_axis(len(shape)):
            check("roll", x, shift, axis=axis)
            check("roll", x, (shift, 1), axis=(axis, axis))
        for axes in itertools.combinations(range(len(shape)), 2):
            check("roll", x, (shift, -1), axis=axes)
            check("roll", x, shift, axis=axes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_repeat_and_tile(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    for times in (0, 1, 3):
        check("repeat", x, times)
        check("repeat", x, np.asarray(times), axis=None)
        for axis in each_axis(len(shape)):
            check("repeat", x, times, axis=axis)
            check("repeat", x, np.asarray([times]), axis=axis)
            check("repeat", x, np.arange(shape[axis]), axis=axis)
        for count in range(len(shape) + 2):
            check("tile", x, (times,) * count)
            check("tile", x, tuple(range(1, count + 1)))


@pytest.mark.parametrize("dtype", INTEGER)
def test_repeat_by_counts_of_any_dtype(dtype: str) -> None:
    counts = np.array([2, 0, 1, 3], dtype=dtype)
    check("repeat", array("float32", (2, 2)), counts)
    check("repeat", array("uint16", (4, 2)), counts, axis=0)
    check("repeat", array("int64", (2, 4)), counts, axis=-1)
    check("repeat", array("int64", (2, 4)), counts[:1], axis=-1)


RESHAPES = [
    ((), (1, 1)),
    ((), (-1,)),
    ((1,), ()),
    ((0,), (2, 0)),
    ((2, 0), (0, 5)),
    ((2, 3, 4), (24,)),
    ((2, 3, 4), (4, -1)),
    ((2, 3, 4), (2, 3, 4)),
]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(("shape", "wanted"), RESHAPES, ids=str)
def test_reshape(dtype: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    check("reshape", x, wanted)
    check("reshape", x, shape=wanted, copy=True)
    mine = ours(x)
    for copy in (None, True, False):
        made = sr.reshape(mine, wanted, copy=copy)
        np.testing.assert_array_equal(made.values.numpy(), x.reshape(wanted))
        shared = made.values.untyped_storage().data_ptr() == mine.values.untyped_storage().data_ptr()
        assert shared is not (copy is True) or not x.size


def test_reshape_that_would_copy() -> None:
    x = sr.permute_dims(ours(array("int64", (2, 3))), (1, 0))
    assert sr.reshape(x, (6,)).tolist() == sr.reshape(x, (6,), copy=True).tolist()
    with pytest.raises(ValueError, match="no view of these strides"):
        sr.reshape(x, (6,), copy=False)


def test_wrong_calls() -> None:
    x, zero = sr.ones((2, 3)), sr.ones(())
    wrong = [
        (lambda: sr.concat([]), ValueError, "at least one tensor"),
        (lambda: sr.concat([x, x], axis=2), IndexError, "axis 2 is out of range"),
        (lambda: sr.concat([zero, zero]), ValueError, "axis 0 is out of range"),
        (lambda: sr.concat([x, sr.ones((3, 2))]), ValueError, "one shape but for axis 0"),
        (lambda: sr.concat([x, sr.ones(3)]), ValueError, "one shape but for axis 0"),
        (lambda: sr.concat([sr.ones(0), x]), ValueError, "one shape but for axis 0"),
        (lambda: sr.concat([ours(array("uint64", (2,))), ours(array("int8", (2,)))]), TypeError, "no integer type"),
        (lambda: sr.stack([]), ValueError, "at least one tensor"),
        (lambda: sr.stack([x, x], axis=3), IndexError, "axis 3 is out of range"),
        (lambda: sr.stack([x, sr.ones((3, 2))]), ValueError, "one shape"),
        (lambda: sr.expand_dims(x, axis=3), IndexError, "axis 3 is out of range"),
        (lambda: sr.expand_dims(x, axis=-4), IndexError, "axis -4 is out of range"),
        (lambda: sr.squeeze(x, axis=0), ValueError, "has not size 1"),
        (lambda: sr.squeeze(x, axis=2), IndexError, "axis 2 is out of range"),
        (lambda: sr.flip(x, axis=(0, 2)), IndexError, "axis 2 is out of range"),
        (lambda: sr.permute_dims(x, (0,)), ValueError, "each of the 2 axes once"),
        (lambda: sr.moveaxis(x, (0, 1), 0), ValueError, "as many sources"),
        (lambda: sr.roll(x, (1, 2), axis=0), ValueError, "one shift per axis"),
        (lambda: sr.repeat(x, [1, 2, 3], axis=0), ValueError, "one count per entry"),
        (lambda: sr.repeat(x, -1), ValueError, "0 or more"),
        (lambda: sr.repeat(x, 1.5), TypeError, "repeats must be an int"),
        (lambda: sr.reshape(x, (4, 2)), ValueError, "does not become"),
        (lambda: sr.reshape(x, (-1, -1)), ValueError, "does not become"),
        (lambda: sr.tile(x, (-1,)), ValueError, "0 or more"),
        (lambda: sr.unstack(zero), ValueError, "axis 0 is out of range|at least one axis"),
        (lambda: sr.unstack(x, axis=2), IndexError, "axis 2 is out of range"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=message):
            call()


def test_gradients() -> None:
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    calls = [
        lambda v: sr.concat([sr.Tensor(v), sr.Tensor(v * v)], axis=1),
        lambda v: sr.stack([sr.Tensor(v), sr.Tensor(v * v)], axis=-1),
        lambda v: sr.roll(sr.Tensor(v), (1, 2), axis=(0, 1)),
        lambda v: sr.flip(sr.Tensor(v)),
        lambda v: sr.repeat(sr.Tensor(v), 2),
        lambda v: sr.tile(sr.Tensor(v), (2, 1)),
    ]
    for call in calls:
        assert torch.autograd.gradcheck(lambda v, call=call: call(v).values, x)
        assert torch.autograd.gradgradcheck(lambda v, call=call: call(v).values ** 2, x)
