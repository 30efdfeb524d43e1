"""Awkward Array, both ways: list and regular levels, packed and lazy layouts, refusals."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest
import torch
from hypothesis import given
from tests.tensor.structures import DTYPES, chains, numbers, samples

import serrate as sr

AWKWARD_DTYPES = [d for d in DTYPES if d != torch.bfloat16]


@given(chains(dtypes=AWKWARD_DTYPES))
def test_round_trip(chain):
    array = chain.x.to_awkward()
    assert array.to_list() == chain.lists
    assert ak.is_valid(array)
    back = sr.from_awkward(array)
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape
    assert back.dtype == chain.x.dtype


@given(samples())
def test_any_structure_gives_its_lists(sample):
    array = sample.x.to_awkward()
    assert ak.is_valid(array)
    assert array.to_list() == sample.x.tolist()
    assert sr.from_awkward(array).tolist() == sample.x.tolist()


@given(chains(max_features=0))
def test_from_lists_made_by_awkward(chain):
    array = ak.Array(chain.lists)
    back = sr.from_awkward(array)
    assert back.tolist() == array.to_list() == chain.lists


def test_types():
    x = sr.from_lengths(numbers(3, 2), [1, 2])
    assert str(x.to_awkward().type) == "2 * var * 2 * float32"
    assert str(sr.asarray([[1, 2]]).to_awkward().type) == "1 * 2 * int64"
    assert sr.from_awkward(ak.from_numpy(np.ones((2, 3)))).shape == (2, 3)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[[2, 0]],
        lambda a: a[::-1],
        lambda a: a[:, :1],
        lambda a: a[:, ::-1],
        lambda a: a[a > 1],
        lambda a: a[1:],
        lambda a: a[[False, False, False]],
    ],
)
def test_unpacked_layouts(view):
    array = view(ak.Array([[1, 2, 3], [], [4, 5]]))
    x = sr.from_awkward(array)
    assert x.tolist() == array.to_list()
    assert x.ndim == 2


def test_regular_levels_are_uniform_axes():
    array = ak.to_regular(ak.Array([[[1], [2, 3]], [[], [4]]]), axis=1)
    x = sr.from_awkward(array)
    assert x.shape == (2, 2, sr.Ragged([1, 2, 0, 1], (0, 1)))
    assert str(x.to_awkward().type) == "2 * 2 * var * int64"
    inner = ak.to_regular(ak.Array([[[1, 2]], [], [[3, 4], [5, 6]]]), axis=2)
    assert sr.from_awkward(inner).shape == (3, sr.Ragged([1, 0, 2]), 2)


def test_values_are_not_copied_either_way():
    x = sr.from_lengths(numbers(3, 2), [1, 2])
    leaf = np.asarray(x.to_awkward().layout.content.content.data)
    assert np.shares_memory(leaf, x.values.numpy())
    array = ak.Array([[1.0, 2.0], [3.0]])
    assert np.shares_memory(np.asarray(array.layout.content.data), sr.from_awkward(array).values.numpy())


def test_products_become_nested_lists():
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 0])
    x = sr.from_product(torch.arange(6), p, q)
    assert x.to_awkward().to_list() == [[[0, 1, 2], [3, 4, 5]], [[]]]


def test_a_permuted_tensor_shows_its_order():
    x = sr.from_lengths(numbers(3, 2, dtype=torch.int64), [1, 2])
    assert x.mT.to_awkward().to_list() == [[[1], [2]], [[3, 5], [4, 6]]]
    with pytest.raises(TypeError, match=r"axis 0 .*permute"):
        x.permute_dims((1, 0, 2)).to_awkward()


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (ak.Array([[1, None], []]), r"\?int64"),
        (ak.Array([[1], None]), "option"),
        (ak.Array([{"x": 1}]), "x: int64"),
        (ak.Array(["ab"]), "string"),
        (ak.Array([["ab"]]), "string"),
        (ak.Array([1, [2]]), "union"),
        (ak.Array(np.array(["2020-01-01"], dtype="M8[s]")), "datetime64"),
    ],
)
def test_what_is_not_lists_of_numbers_is_refused_by_type(array, named):
    with pytest.raises(TypeError, match=named):
        sr.from_awkward(array)


def test_what_is_no_awkward_array_is_refused():
    with pytest.raises(TypeError, match=r"ak\.Array, got list"):
        sr.from_awkward([[1]])
    with pytest.raises(TypeError, match="bfloat16"):
        sr.ragged([[1.0]], dtype=torch.bfloat16).to_awkward()


def test_gradients_stay_behind():
    x = sr.ragged([[1.0, 2.0], [3.0]]).requires_grad_()
    assert x.to_awkward().to_list() == [[1.0, 2.0], [3.0]]
