"""Statistical functions against array_api_strict."""

from __future__ import annotations

import inspect

import array_api_strict as xp
import numpy as np
import pytest
import torch
from tests.array_api.strict import (
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMERIC,
    REAL,
    SHAPES,
    array,
    axis_choices,
    check,
    each_axis,
    ours,
)

import serrate as sr


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_and_products(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    for axis in axis_choices(len(shape)):
        for keepdims in (False, True):
            check(name, x, axis=axis, keepdims=keepdims, exact=dtype in INTEGER)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    for special in (False, True):
        x = array(dtype, shape, special=special)
        for axis in axis_choices(len(shape)):
            reduced = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
            if all(shape[a] for a in reduced):
                check(name, x, axis=axis, exact=dtype in INTEGER)
                check(name, x, axis=axis, keepdims=True, exact=dtype in INTEGER)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom")
def test_moments(dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    for axis in axis_choices(len(shape)):
        for keepdims in (False, True):
            check("mean", x, axis=axis, keepdims=keepdims, exact=False)
            for correction in (0, 1, 0.5, 1.5, 2):
                check("var", x, axis=axis, correction=correction, keepdims=keepdims, exact=False)
                check("std", x, axis=axis, correction=correction, keepdims=keepdims, exact=False)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape], ids=str)
@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = array(dtype, shape)
    for axis in [*each_axis(len(shape)), *([None] if len(shape) == 1 else [])]:
        for initial in (False, True):
            check(name, x, axis=axis, include_initial=initial, exact=dtype in INTEGER)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_mean_of_complex(dtype: str) -> None:
    for shape in SHAPES:
        x = array(dtype, shape)
        for axis in axis_choices(len(shape)):
            want = np.asarray(x.mean(axis) if x.size or axis == () else np.full(x.sum(axis).shape, np.nan, dtype))
            made = sr.mean(ours(x), axis=axis).values.numpy()
            assert made.dtype == want.dtype
            np.testing.assert_allclose(made, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", INTEGER)
@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_asked_for_a_dtype(name: str, dtype: str) -> None:
    small, large = array(dtype, (2, 3, 4), large=False), array(dtype, (2, 3, 4))
    for wanted in INTEGER:
        check(name, small, axis=1, dtype=f"dtype:{wanted}")
        if np.can_cast(dtype, wanted):
            check(name, large, axis=1, dtype=f"dtype:{wanted}")
    for wanted in FLOAT + COMPLEX:
        check(name, small, axis=2, dtype=f"dtype:{wanted}", exact=False)


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_torch_sums_unsigned_integers_in_int64(name: str) -> None:
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        x = sr.from_lengths(torch.tensor([200, 100, 3]).to(dtype), [2, 1])
        made = getattr(torch, name)(x, 1)
        assert made.dtype == torch.int64
        assert made.tolist() == getattr(x, name)(1).tolist() == [300 if name == "sum" else 20000, 3]
        assert getattr(sr, name)(x, axis=1).dtype == torch.uint64


def test_ragged_extremes_of_wide_unsigned_integers() -> None:
    x = sr.from_lengths(torch.tensor([2**64 - 1, 5, 2**63, 0], dtype=torch.uint64), [3, 0, 1])
    assert sr.max(x, axis=1).tolist() == [2**64 - 1, 0, 0]
    assert sr.min(x, axis=1).tolist() == [5, 2**64 - 1, 0]
    assert sr.argmax(x, axis=1).tolist() == [0, -1, 0]
    assert sr.argmin(x, axis=1).tolist() == [1, -1, 0]
    assert sr.max(x, axis=0).tolist() == [2**64 - 1, 5, 2**63]
    assert sr.sum(x[:, 1:], axis=1).tolist() == [2**63 + 5, 0, 0]
    ids = torch.tensor([1, 0, 1, 0])
    assert sr.segment_max(x.values, ids, 3).tolist() == [5, 2**64 - 1, 0]
    assert sr.segment_min(x.values, ids, 3).tolist() == [0, 2**63, 2**64 - 1]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
def test_wrong_calls(name: str) -> None:
    function, x = getattr(sr, name), sr.ones((2, 3))
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        function(x, axis=2)
    with pytest.raises(ValueError, match="named twice"):
        function(x, axis=(0, -2))
    with pytest.raises(TypeError, match="an axis is an integer"):
        function(x, axis=0.5)
    with pytest.raises(TypeError, match=r"expected an sr\.Tensor"):
        function([1.0])
    with pytest.raises(TypeError):
        function(x, 0)
    with pytest.raises(TypeError):
        function(x=x)


def test_elements_of_the_wrong_kind() -> None:
    for name in ("mean", "var", "std"):
        with pytest.raises(TypeError, match=r"needs .*floating-point elements"):
            getattr(sr, name)(sr.ones(3, dtype=torch.int64))
    for name in ("max", "min"):
        with pytest.raises(TypeError, match="needs ordered elements"):
            getattr(sr, name)(sr.ones(3, dtype=torch.complex64))
    for name in ("cumulative_sum", "cumulative_prod"):
        with pytest.raises(ValueError, match="needs an axis"):
            getattr(sr, name)(sr.ones((2, 3)))


NAMES = (
    "all any argmax argmin argsort concat count_nonzero cumulative_prod cumulative_sum diff expand_dims flip max mean "
    "min moveaxis nonzero permute_dims prod repeat reshape roll searchsorted sort squeeze stack std sum take "
    "take_along_axis tile unique_all unique_counts unique_inverse unique_values unstack var"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_signatures(name: str) -> None:
    mine = inspect.signature(getattr(sr, name)).parameters
    strict = inspect.signature(getattr(xp, name)).parameters
    assert list(mine)[: len(strict)] == list(strict)
    for key, parameter in strict.items():
        assert mine[key].kind == parameter.kind
        if parameter.default is not inspect.Parameter.empty:
            assert mine[key].default == parameter.default
    for key in list(mine)[len(strict) :]:  # our own: optional and by name
        assert mine[key].kind == inspect.Parameter.KEYWORD_ONLY
        assert mine[key].default is not inspect.Parameter.empty
