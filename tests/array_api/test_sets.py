"""unique_* against array_api_strict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.array_api.strict import ALL, COMPLEX, FLOAT, SHAPES, array, check, ours

import serrate as sr

NAMES = ("unique_all", "unique_counts", "unique_inverse", "unique_values")


@pytest.mark.parametrize("shape", [*SHAPES, (5, 8)], ids=str)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", NAMES)
def test_unique(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    check(name, array(dtype, shape))


@pytest.mark.parametrize("shape", [(), (3,), (5, 8), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", FLOAT + COMPLEX)
@pytest.mark.parametrize("seed", range(5))
def test_each_nan_is_distinct(dtype: str, shape: tuple[int, ...], seed: int) -> None:
    x = array(dtype, shape, seed, special=True)
    made = sr.unique_all(ours(x))
    values, indices, inverse, counts = (part.values.numpy() for part in made)
    assert inverse.shape == shape
    flat = x.reshape(-1)
    np.testing.assert_array_equal(flat[indices], values)
    np.testing.assert_array_equal(values[inverse], x)
    np.testing.assert_array_equal(np.bincount(inverse.reshape(-1), minlength=len(values)), counts)
    numbers = flat[~np.isnan(flat)]
    assert len(values) == len(set(numbers.tolist())) + np.isnan(flat).sum()
    assert (counts[np.isnan(values)] == 1).all()
    for value, index in zip(values, indices, strict=True):
        assert np.isnan(value) or flat.tolist().index(value) == index
    np.testing.assert_array_equal(sr.unique_values(ours(x)).values.numpy(), values)
    np.testing.assert_array_equal(sr.unique_counts(ours(x)).counts.values.numpy(), counts)
    np.testing.assert_array_equal(sr.unique_inverse(ours(x)).inverse_indices.values.numpy(), inverse)


def test_results_have_names() -> None:
    x = sr.asarray([2, 1, 2])
    assert sr.unique_all(x)._fields == ("values", "indices", "inverse_indices", "counts")
    assert sr.unique_counts(x)._fields == ("values", "counts")
    assert sr.unique_inverse(x)._fields == ("values", "inverse_indices")
    for part in sr.unique_all(x)[1:]:
        assert part.dtype == torch.int64


@pytest.mark.parametrize("name", NAMES)
def test_wrong_calls(name: str) -> None:
    with pytest.raises(TypeError, match=r"expected an sr\.Tensor"):
        getattr(sr, name)([1, 2])
    with pytest.raises(TypeError):
        getattr(sr, name)(x=sr.ones(3))
    with pytest.raises(ValueError, match="axis 1 is out of range"):
        getattr(sr, name)(sr.ones(3), axis=1)
