"""Arrow, both ways: list types, slices, chunks, refusals, and memory that is shared and not copied."""

from __future__ import annotations

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from tests.tensor.structures import DTYPES, chains, numbers, samples

import serrate as sr

ARROW_DTYPES = [d for d in DTYPES if d != torch.bfloat16 and not d.is_complex]


@given(chains(dtypes=ARROW_DTYPES))
def test_round_trip(chain):
    arrow = chain.x.to_arrow()
    assert arrow.to_pylist() == chain.lists
    arrow.validate(full=True)
    back = sr.from_arrow(arrow)
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape
    assert back.dtype == chain.x.dtype
    assert [p.dtype for p in back.partitions] == [p.dtype for p in chain.x.partitions]


@given(samples())
def test_any_structure_gives_its_lists(sample):
    arrow = sample.x.to_arrow()
    arrow.validate(full=True)
    assert arrow.to_pylist() == sample.x.tolist()
    assert sr.from_arrow(arrow).tolist() == sample.x.tolist()


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_list_kinds_keep_their_offset_type(kind):
    array = pa.array([[1.5, 2.5], [], [3.5]], kind(pa.float64()))
    x = sr.from_arrow(array)
    assert x.shape == (3, sr.Ragged([2, 0, 1]))
    assert x.dtype == torch.float64
    assert x.offsets[0].dtype == (torch.int32 if kind is pa.list_ else torch.int64)
    assert x.to_arrow().equals(array)


@pytest.mark.parametrize(
    ("kind", "rows", "shape"),
    [
        (pa.list_(pa.int64(), 2), [[1, 2], [3, 4]], (2, 2)),
        (pa.list_(pa.list_(pa.int64(), 2)), [[[1, 2], [3, 4]], []], (2, sr.Ragged([2, 0]), 2)),
        (pa.list_(pa.list_(pa.int64()), 2), [[[1, 2], [3]], [[], [4]]], (2, 2, sr.Ragged([2, 1, 0, 1], (0, 1)))),
        (
            pa.list_(pa.list_(pa.list_(pa.int64()), 2)),
            [[[[1, 2], [3]], [[], [4]]], []],
            (2, sr.Ragged([2, 0]), 2, sr.Ragged([2, 1, 0, 1], (0, 1, 2))),
        ),
        (
            pa.large_list(pa.list_(pa.int64())),
            [[[1], []], [], [[2]]],
            (3, sr.Ragged([2, 0, 1]), sr.Ragged([1, 0, 1], (0, 1))),
        ),
    ],
)
def test_fixed_size_and_nested_lists(kind, rows, shape):
    x = sr.from_arrow(pa.array(rows, kind))
    assert x.shape == shape
    assert x.tolist() == rows
    assert x.to_arrow().to_pylist() == rows
    if x.is_ragged:
        assert x.to_arrow().type == kind


def test_fixed_size_of_zero_keeps_its_rows():
    x = sr.from_arrow(pa.array([[[], []], [[]]], pa.list_(pa.list_(pa.float32(), 0))))
    assert x.shape == (2, sr.Ragged([2, 1]), 0)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[1, 2], [], [3], [4, 5]], pa.list_(pa.int32())),
        ([[1, 2], [], [3], [4, 5]], pa.large_list(pa.int32())),
        ([[[1], [2, 3]], [], [[4]], [[5, 6], [], [7]]], pa.list_(pa.list_(pa.int16()))),
        ([[[1, 2], [3, 4]], [], [[5, 6]], [[7, 8]]], pa.list_(pa.list_(pa.int64(), 2))),
        ([[[1, 2], [3]], [[], [4]], [[5], [6, 7]], [[], []]], pa.list_(pa.list_(pa.int64()), 2)),
        ([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.int64(), 2)),
        ([[True], [False, True], [], [True, True, False]], pa.list_(pa.bool_())),
    ],
)
@pytest.mark.parametrize("cut", [slice(1, None), slice(1, 3), slice(0, 2), slice(2, 2), slice(3, 4)])
def test_slices_read_only_what_they_show(rows, kind, cut):
    array = pa.array(rows, kind)[cut]
    x = sr.from_arrow(array)
    assert x.tolist() == rows[cut]
    assert all(int(offsets[0]) == 0 for offsets in x.offsets)


def test_chunks_are_joined():
    chunks = pa.chunked_array([[[1, 2]], [], [[], [3]]], pa.list_(pa.int64()))
    assert sr.from_arrow(chunks).tolist() == [[1, 2], [], [3]]
    none = pa.chunked_array([], pa.list_(pa.int64()))
    assert sr.from_arrow(none).shape == (0, sr.Ragged([]))


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_values_are_not_copied_either_way(kind):
    array = pa.array([[1.0, 2.0], [], [3.0]], kind(pa.float64()))
    x = sr.from_arrow(array)
    assert x.values.data_ptr() == array.values.buffers()[1].address
    back = x.to_arrow()
    assert back.values.buffers()[1].address == x.values.data_ptr()
    assert back.buffers()[1].address == x.partitions[0].offsets.data_ptr()


def test_a_slice_is_not_copied():
    array = pa.array([[1, 2], [3], [4, 5]], pa.list_(pa.int64()))
    x = sr.from_arrow(array[1:])
    assert x.values.data_ptr() == array.values.buffers()[1].address + 2 * 8


def test_features_are_not_copied():
    x = sr.from_lengths(numbers(3, 2, 2), [1, 2])
    leaf = x.to_arrow().values.values.values
    assert leaf.buffers()[1].address == x.values.data_ptr()
    array = pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64(), 2)))
    assert sr.from_arrow(array).values.data_ptr() == array.values.values.buffers()[1].address


def test_arrow_memory_outlives_the_arrow_array():
    array = pa.array([list(range(1000))] * 10, pa.list_(pa.int64()))
    x = sr.from_arrow(array)
    del array
    pa.array([[7] * 10000])
    assert x.tolist() == [list(range(1000))] * 10


@pytest.mark.parametrize(
    ("rows", "kind", "level", "position"),
    [
        ([[1], None], pa.list_(pa.int64()), 0, 1),
        ([[1], [2, None]], pa.list_(pa.int64()), 1, 2),
        ([[[1]], [[2], None]], pa.list_(pa.list_(pa.int64())), 1, 2),
        ([[1, 2], None], pa.list_(pa.int64(), 2), 0, 1),
        ([[True], [None]], pa.list_(pa.bool_()), 1, 1),
    ],
)
def test_nulls_are_refused(rows, kind, level, position):
    with pytest.raises(TypeError, match=f"null at level {level}, position {position}"):
        sr.from_arrow(pa.array(rows, kind))


def test_nulls_outside_the_slice_do_not_matter():
    assert sr.from_arrow(pa.array([[None], None, [2, 3]], pa.list_(pa.int64()))[2:]).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (pa.array([["a"]]), "string"),
        (pa.array([[1]], pa.list_(pa.timestamp("s"))), "timestamp"),
        (pa.array([{"a": 1}]), "struct"),
        (pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())), "map"),
    ],
)
def test_other_types_are_refused_by_name(array, named):
    with pytest.raises(TypeError, match=named):
        sr.from_arrow(array)


def test_what_is_no_arrow_array_is_refused():
    with pytest.raises(TypeError, match="Table"):
        sr.from_arrow(pa.table({"a": [[1]]}))
    with pytest.raises(TypeError, match="list"):
        sr.from_arrow([[1]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_dtypes_arrow_lacks_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=str(dtype)):
        sr.ragged([[1.0]], dtype=dtype).to_arrow()


def test_a_permuted_tensor_shows_its_order():
    x = sr.from_lengths(numbers(3, 2, dtype=torch.int64), [1, 2])
    assert x.mT.to_arrow().to_pylist() == [[[1], [2]], [[3, 5], [4, 6]]]
    with pytest.raises(TypeError, match=r"axis 0 .*permute"):
        x.permute_dims((1, 0, 2)).to_arrow()
