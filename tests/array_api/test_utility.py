"""all, any and diff against array_api_strict."""

from __future__ import annotations

import pytest
from tests.array_api.strict import ALL, NUMERIC, SHAPES, array, axis_choices, check, each_axis

import serrate as sr


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ["all", "any"])
def test_truth(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    for special in (False, True):
        x = array(dtype, shape, special=special)
        for axis in axis_choices(len(shape)):
            for keepdims in (False, True):
                check(name, x, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape], ids=str)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_diff(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    check("diff", x)
    for axis in each_axis(len(shape)):
        other = list(shape)
        other[axis] = 2
        ends = {"prepend": array(dtype, tuple(other), 1), "append": array(dtype, tuple(other), 2)}
        for n in range(4):
            check("diff", x, axis=axis, n=n)
            check("diff", x, axis=axis, n=n, **ends)
            check("diff", x, axis=axis, n=n, append=ends["append"])


def test_wrong_calls() -> None:
    x = sr.ones((2, 3))
    for function in (sr.all, sr.any, sr.diff):
        with pytest.raises(ValueError, match="axis 2 is out of range"):
            function(x, axis=2)
        with pytest.raises(TypeError, match=r"expected an sr\.Tensor"):
            function([1, 2])
        with pytest.raises(TypeError):
            function(x, 0)
    with pytest.raises(ValueError, match="0 or more times"):
        sr.diff(x, n=-1)
    with pytest.raises(ValueError, match="out of range"):
        sr.diff(sr.ones(()))
    with pytest.raises(ValueError, match="one shape"):
        sr.diff(x, prepend=sr.ones((3, 1)))
