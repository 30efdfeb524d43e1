"""Searching functions against array_api_strict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.array_api.strict import ALL, FLOAT, REAL, SHAPES, array, axis_choices, check, each_axis

import serrate as sr


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if 0 not in shape], ids=str)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    for special in (False, True):
        x = array(dtype, shape, special=special)
        for axis in [None, *each_axis(len(shape))]:
            check(name, x, axis=axis)
            check(name, x, axis=axis, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_count_nonzero(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape, special=True)
    for axis in axis_choices(len(shape)):
        for keepdims in (False, True):
            check("count_nonzero", x, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape], ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_nonzero(dtype: str, shape: tuple[int, ...]) -> None:
    check("nonzero", array(dtype, shape, special=True))


@pytest.mark.parametrize("dtype", ALL)
def test_nonzero_of_0d(dtype: str) -> None:
    with pytest.raises(ValueError, match="0-d tensor has none"):
        sr.nonzero(sr.Tensor(sr.asarray(array(dtype, ())).values))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("size", [0, 1, 9])
def test_searchsorted(dtype: str, size: int) -> None:
    x1, x2 = array(dtype, (size,)), array(dtype, (2, 3, 2), seed=1)
    for side in ("left", "right"):
        for sought in (x2, x2[0, 0, 0, ...], x2[:0], array(dtype, (5,))):
            check("searchsorted", np.sort(x1), sought, side=side)
            check("searchsorted", x1, sought, side=side, sorter=np.argsort(x1, stable=True))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_where(dtype: str, shape: tuple[int, ...]) -> None:
    condition = array("bool", shape)
    check("where", condition, array(dtype, shape, special=True), array(dtype, shape, seed=1))
    check("where", condition, array(dtype, shape), array(dtype, ()))
    check("where", array("bool", ()), array(dtype, shape), array(dtype, (1,) * len(shape)))


@pytest.mark.parametrize("dtype", REAL)
def test_numbers(dtype: str) -> None:
    x = array(dtype, (3,))
    for number in (0, 1, 3):
        check("where", array("bool", (3,)), x, number)
        check("where", array("bool", (3,)), number, x)
        check("searchsorted", np.sort(array(dtype, (9,), large=False)), number)
    if dtype in FLOAT:
        check("where", array("bool", (3,)), x, 0.1)
        check("searchsorted", np.sort(array(dtype, (9,))), 0.25, side="right")


@pytest.mark.parametrize(
    ("one", "other"), [("uint8", "uint32"), ("int8", "uint16"), ("float32", "float64"), ("int8", "int64")]
)
def test_searchsorted_of_dtypes(one: str, other: str) -> None:
    for dtypes in ((one, other), (other, one)):
        check("searchsorted", np.sort(array(dtypes[0], (7,))), array(dtypes[1], (2, 4)))


def test_nothing_has_no_place() -> None:
    for x in (sr.ones(0), sr.ones((2, 0))):
        assert sr.argmax(x).item() == sr.argmin(x).item() == -1
    assert sr.argmax(sr.ones((2, 0)), axis=1).tolist() == [-1, -1]
    assert sr.argmax(sr.ones((2, 0)), axis=0, keepdims=True).shape == (1, 0)


def test_wrong_calls() -> None:
    x = sr.ones((2, 3))
    for name in ("argmax", "argmin", "count_nonzero"):
        with pytest.raises(ValueError, match="axis 2 is out of range"):
            getattr(sr, name)(x, axis=2)
        with pytest.raises(TypeError):
            getattr(sr, name)(x, 0)
    with pytest.raises(ValueError, match="side must be"):
        sr.searchsorted(x[0], x, side="middle")
    with pytest.raises(TypeError, match="needs ordered elements"):
        sr.searchsorted(sr.astype(x[0], torch.complex64), x)
    with pytest.raises(TypeError, match="sorter must hold integers"):
        sr.searchsorted(x[0], x, sorter=x[0])
    with pytest.raises(IndexError, match="sorter holds 3"):
        sr.searchsorted(x[0], x, sorter=sr.asarray([0, 1, 3]))
    with pytest.raises(TypeError, match="got"):
        sr.searchsorted(x[0], "a")


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_bools_and_of_complex_numbers(name: str) -> None:
    x = np.array([[False, True, True], [False, False, False]])
    for axis in (None, 0, 1):
        assert getattr(sr, name)(sr.asarray(x), axis=axis).tolist() == getattr(np, name)(x, axis=axis).tolist()
    ragged = sr.ragged([[False, True], [], [True, False, True]])
    expected = {"argmax": [1, -1, 0], "argmin": [0, -1, 1]}[name]
    assert getattr(sr, name)(ragged, axis=1).tolist() == expected
    assert int(getattr(sr, name)(ragged)) == {"argmax": 1, "argmin": 0}[name]
    for axis in (None, 0):
        with pytest.raises(TypeError, match=r"need ordered elements, got torch\.complex64"):
            getattr(sr, name)(torch.tensor([1j, 2]), axis=axis)
