"""take and take_along_axis against array_api_strict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.array_api.strict import ALL, INTEGER, SHAPES, array, check, each_axis

import serrate as sr


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if 0 not in shape and shape], ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_take(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape, special=True)
    for axis in each_axis(len(shape)):
        for indices in ([0], [-1, 0, shape[axis] - 1], [], [-shape[axis]]):
            check("take", x, np.array(indices, dtype=np.int64), axis=axis)
    if len(shape) == 1:
        check("take", x, np.array([0, -1]))


@pytest.mark.parametrize("dtype", INTEGER)
def test_indices_of_any_dtype(dtype: str) -> None:
    x = array("float64", (2, 3, 4))
    check("take", x, np.array([1, 0, 1], dtype=dtype), axis=1)
    check("take_along_axis", x, np.ones((2, 3, 2), dtype=dtype))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape], ids=str)
@pytest.mark.parametrize("dtype", ALL)
def test_take_along_axis(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape, special=True)
    for axis in each_axis(len(shape)):
        for count in (0, 1, 5) if shape[axis] else (0,):
            sizes = [count if a == axis % len(shape) else n for a, n in enumerate(shape)]
            indices = np.random.default_rng(0).integers(-shape[axis], max(shape[axis], 1), sizes)
            check("take_along_axis", x, indices, axis=axis)
            alone = [n if a == axis % len(shape) else 1 for a, n in enumerate(sizes)]
            check("take_along_axis", x, np.zeros(alone, dtype=np.int64), axis=axis)


def test_wrong_calls() -> None:
    x, index = sr.ones((2, 3)), sr.asarray([0])
    wrong = [
        (lambda: sr.take(x, index), TypeError, "take needs an axis"),
        (lambda: sr.take(x, index, axis=2), IndexError, "axis 2 is out of range"),
        (lambda: sr.take(x, sr.asarray([2]), axis=0), IndexError, "index 2 is out of range"),
        (lambda: sr.take(x, sr.asarray([-3]), axis=0), IndexError, "index -3 is out of range"),
        (lambda: sr.take(x, sr.ones(1), axis=0), TypeError, "indices must be integers"),
        (lambda: sr.take(sr.ones(0), index), IndexError, "has no entry to take"),
        (lambda: sr.take_along_axis(x, index), ValueError, "as many axes"),
        (lambda: sr.take_along_axis(x, sr.asarray([[3]])), IndexError, "index 3 is out of range"),
        (lambda: sr.take_along_axis(x, sr.ones((2, 3))), TypeError, "indices must be integers"),
        (lambda: sr.take_along_axis(x, sr.zeros((3, 3), dtype=torch.int64)), ValueError, "do not broadcast"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=message):
            call()
