"""Lists, numpy arrays, torch tensors and DLPack, both ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import DTYPES, chains, nest, numbers, samples

import serrate as sr


def depth(lists):
    return 1 + max((depth(entry) for entry in lists if isinstance(entry, list)), default=0)


@given(chains(max_features=0, dtypes=DTYPES))
def test_lists_round_trip(chain):
    x = sr.ragged(chain.lists, ragged_rank=len(chain.lengths), dtype=chain.x.dtype)
    assert x.tolist() == chain.lists
    assert x.shape == chain.x.shape
    assert torch.equal(x.values, chain.x.values)


@given(chains(max_features=0, dtypes=[torch.int64]))
def test_lists_tell_their_own_depth_where_they_can(chain):
    x = sr.ragged(chain.lists)
    assert x.tolist() == chain.lists
    if depth(chain.lists) == len(chain.lengths) + 1:
        assert x.shape == chain.x.shape


@given(chains(dtypes=[torch.int64, torch.float64, torch.bool]))
def test_features_past_the_ragged_rank(chain):
    if 0 in chain.x.values.shape:
        return  # lists do not show the sizes of empty features
    x = sr.ragged(chain.lists, ragged_rank=len(chain.lengths), dtype=chain.x.dtype)
    assert x.shape == chain.x.shape
    assert x.tolist() == chain.lists


@given(samples())
def test_tolist_is_the_nested_walk(sample):
    made = sample.x.tolist()
    for cell, leaf in zip(sample.cells, sample.x.values.tolist(), strict=True):
        found = made
        for i in cell:
            found = found[i]
        assert found == leaf

    def count(entries, levels):
        return len(entries) if levels == 1 else sum(count(entry, levels - 1) for entry in entries)

    assert count(made, sample.packed) == len(sample.cells)


ROWS = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(ROWS, st.lists(st.integers(0, 2), max_size=2), st.sampled_from(DTYPES))
def test_lists_of_torch_tensors(lengths, features, dtype):
    rows = list(numbers(sum(lengths), *features, dtype=dtype).split(lengths))
    x = sr.from_rows(rows)
    assert x.shape == (len(lengths), sr.Ragged(lengths), *features)
    assert x.dtype == dtype
    assert len(x.rows()) == len(rows)
    assert all(torch.equal(mine.torch(), row) for mine, row in zip(x.rows(), rows, strict=True))


@given(ROWS, st.sampled_from([d for d in DTYPES if d != torch.bfloat16]))
def test_lists_of_numpy_arrays(lengths, dtype):
    rows = [row.numpy() for row in numbers(sum(lengths), 2, dtype=dtype).split(lengths)]
    x = sr.from_rows(rows)
    assert x.dtype == dtype
    for mine, row in zip(x.rows(), rows, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), row)


@given(chains(max_levels=3))
def test_rows_of_a_tensor_nest_again(chain):
    if not chain.lists:
        return
    back = sr.from_rows(chain.x.rows())
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape


def test_gradients_reach_each_row():
    rows = [torch.ones(2, requires_grad=True), torch.ones(0, requires_grad=True), torch.ones(1, requires_grad=True)]
    (sr.from_rows(rows).values * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert [row.grad.tolist() for row in rows] == [[1.0, 2.0], [], [3.0]]


def test_numpy_values_offsets_and_lengths():
    values = np.arange(5.0)
    for index in (np.int64, np.int32, np.int16, np.uint8, np.dtype(">i8")):
        assert sr.from_offsets(values, np.array([0, 2, 2, 5], index)).tolist() == [[0, 1], [], [2, 3, 4]]
        assert sr.from_lengths(values, np.array([2, 0, 3], index)).tolist() == [[0, 1], [], [2, 3, 4]]
    two = sr.from_offsets(values, [np.array([0, 2, 3]), np.array([0, 1, 1, 5])])
    assert two.tolist() == [[[0], []], [[1, 2, 3, 4]]]
    assert sr.from_row_ids(values, np.array([0, 0, 2, 2, 2]), 3).tolist() == [[0, 1], [], [2, 3, 4]]


def test_numpy_arrays_of_a_dense_tensor_share_memory():
    array = np.arange(6.0).reshape(2, 3)
    x = sr.asarray(array)
    assert x.shape == (2, 3)
    assert np.shares_memory(np.asarray(x), array)
    assert np.asarray(x, dtype=np.float32).dtype == np.float32


def test_a_ragged_tensor_is_no_numpy_array():
    with pytest.raises(TypeError, match=r"to_dense\(\)"):
        np.asarray(sr.ragged([[1], [2, 3]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.uint8, torch.complex64])
def test_dlpack_shares_memory_both_ways(dtype):
    source = numbers(2, 3, dtype=dtype)
    x = sr.from_dlpack(source)
    assert x.values.data_ptr() == source.data_ptr()
    assert x.dtype == dtype
    back = torch.from_dlpack(x)
    assert back.data_ptr() == source.data_ptr()
    array = np.from_dlpack(x)
    assert array.ctypes.data == source.data_ptr()
    assert sr.from_dlpack(array).tolist() == source.tolist()


def test_dlpack_copies_when_asked():
    source = numbers(3)
    assert sr.from_dlpack(source, copy=True).values.data_ptr() != source.data_ptr()


def test_dlpack_of_the_parts_of_a_ragged_tensor():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    with pytest.raises(BufferError, match=r"x\.values and x\.offsets"):
        torch.from_dlpack(x)
    values, offsets = np.from_dlpack(x.values), np.from_dlpack(x.offsets[0])
    assert sr.from_offsets(torch.from_dlpack(values), torch.from_dlpack(offsets)).tolist() == [[1.0, 2.0], [3.0]]


def test_asarray_takes_dense_things_and_keeps_tensors():
    assert sr.asarray(3).shape == ()
    assert sr.asarray([[1, 2], [3, 4]], dtype=torch.float64).dtype == torch.float64
    x = sr.ragged([[1], [2, 3]])
    assert sr.asarray(x) is x
    assert sr.asarray(x, copy=True).values.data_ptr() != x.values.data_ptr()
    assert sr.asarray(x, dtype=torch.float32).tolist() == [[1.0], [2.0, 3.0]]


def test_nest_is_the_inverse_of_reading_lengths():
    assert nest([[3, 1], [2, 4, 1, 3]], list(range(10))) == [[[0, 1], [2, 3, 4, 5], [6]], [[7, 8, 9]]]
