"""sort and argsort against array_api_strict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.array_api.strict import FLOAT, REAL, SHAPES, array, check, each_axis, ours

import serrate as sr


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape] + [(40,)], ids=str)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_sorted(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    check(name, x)
    for axis in each_axis(len(shape)):
        for descending in (False, True):
            check(name, x, axis=axis, descending=descending)
            check(name, x, axis=axis, descending=descending, stable=True)


@pytest.mark.parametrize("dtype", FLOAT)
def test_nan_is_the_greatest(dtype: str) -> None:
    x = array(dtype, (40,), special=True)
    made = sr.sort(ours(x)).values.numpy()
    np.testing.assert_array_equal(made, np.sort(x))
    places = sr.argsort(ours(x), descending=True).values.numpy()
    np.testing.assert_array_equal(x[places], made[::-1])
    assert sorted(places.tolist()) == list(range(40))


def test_wrong_calls() -> None:
    for function in (sr.sort, sr.argsort):
        with pytest.raises(ValueError, match="axis 1 is out of range"):
            function(sr.ones(3), axis=1)
        with pytest.raises(ValueError, match="out of range"):
            function(sr.ones(()))
        with pytest.raises(TypeError, match="needs ordered elements"):
            function(sr.ones(3, dtype=torch.complex64))
        with pytest.raises(TypeError):
            function(sr.ones(3), 0)
