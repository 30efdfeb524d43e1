"""Views: view_as_nested and what undoes it, permutations, combine, and the parents that shapes show."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import chains, numbers, samples
from torch.autograd import gradcheck

import serrate as sr


def join(entries, depth):
    """Lists with levels `depth` and `depth + 1` merged."""
    return list(itertools.chain(*entries)) if depth == 0 else [join(entry, depth - 1) for entry in entries]


def same_memory(made, data):
    made = made.torch()
    assert made.data_ptr() == data.data_ptr()
    assert made.shape == data.shape
    assert made.stride() == data.stride()
    return True


@st.composite
def cuts(draw, size):
    """Offsets of 0 … 4 components that cut `size`."""
    if size == 0:
        return [0] * draw(st.integers(1, 4))
    inner = draw(st.lists(st.integers(0, size), max_size=3).map(sorted))
    return [0, *inner, size]


@given(st.data(), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_one_cut_for_every_outer_index(data, sizes):
    k = data.draw(st.integers(-len(sizes), len(sizes) - 1))
    offsets = data.draw(cuts(sizes[k]))
    axes = data.draw(st.permutations(range(len(sizes))))
    source = numbers(*[sizes[axes.index(i)] for i in range(len(sizes))]).permute(tuple(axes))
    x = sr.view_as_nested(source, offsets, ragged_dim=k)
    k %= len(sizes)
    lengths = [b - a for a, b in itertools.pairwise(offsets)]
    assert x.shape == (*sizes[:k], len(lengths), sr.Ragged(lengths, (k,)), *sizes[k + 1 :])
    assert x.values.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    rows = [source.narrow(k, a, b - a) for a, b in itertools.pairwise(offsets)]
    moved = x.permute_dims((k, *range(k), *range(k + 1, x.ndim)))
    assert [row.tolist() for row in moved.rows()] == [row.tolist() for row in rows]
    assert same_memory(x.flat(), source)
    assert same_memory(x.combine(k + 1), source)
    assert same_memory(x.combine(k + 1 - x.ndim), source)


@given(st.data(), st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_a_cut_of_its_own_for_each_outer_index(data, sizes):
    k = data.draw(st.integers(1, len(sizes) - 1))
    components = data.draw(st.integers(1, 3))
    inner = st.lists(st.integers(0, sizes[k]), min_size=components - 1, max_size=components - 1).map(sorted)
    outer = list(itertools.product(*map(range, sizes[:k])))
    table = [[0, *data.draw(inner), sizes[k]] for _ in outer]
    offsets = torch.tensor(table, dtype=data.draw(st.sampled_from([torch.int32, torch.int64])))
    source = numbers(*sizes)
    dim = data.draw(st.sampled_from([k, k - len(sizes)]))
    x = sr.view_as_nested(source, offsets.view(*sizes[:k], components + 1), ragged_dim=dim)
    lengths = torch.diff(offsets, dim=1).flatten().tolist()
    assert x.shape == (*sizes[:k], components, sr.Ragged(lengths, range(k + 1)), *sizes[k + 1 :])
    assert x.offsets[0].dtype == offsets.dtype
    assert x.values.data_ptr() == source.data_ptr()
    for cell, cut in zip(outer, table, strict=True):
        row = x.tolist()
        for i in cell:
            row = row[i]
        assert row == [source[cell][a:b].tolist() for a, b in itertools.pairwise(cut)]
    assert same_memory(x.combine(k + 1), source)
    assert same_memory(x.flat(), source.view(-1, *sizes[k + 1 :]))


def test_no_components_and_no_outer_indices():
    x = sr.view_as_nested(torch.zeros(2, 0, 3), torch.zeros(2, 1, dtype=torch.int64), 1)
    assert x.shape == (2, 0, sr.Ragged([], (0, 1)), 3)
    assert x.combine(2).shape == (2, 0, 3)
    y = sr.view_as_nested(torch.zeros(0, 4), torch.zeros(0, 3, dtype=torch.int64), 1)
    assert y.shape == (0, 2, sr.Ragged([], (0, 1)))
    assert y.combine(2).shape == (0, 4)


@pytest.mark.parametrize("offsets", [torch.tensor([0, 1, 4]), torch.tensor([[0, 1, 4], [0, 4, 4], [0, 2, 4]])])
def test_gradients_flow_through_the_view_and_back(offsets):
    data = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)

    def through(source):
        x = sr.view_as_nested(source, offsets, 1)
        return x._with(x.values * 3).combine(2).torch()

    assert torch.equal(through(data), data * 3)
    assert gradcheck(through, data)


def test_writing_through_the_view_writes_the_data():
    data = torch.zeros(4, 2)
    sr.view_as_nested(data, [0, 1, 4]).values[1] = 5.0
    assert data[1].tolist() == [5.0, 5.0]


def test_a_source_that_cannot_be_viewed_says_so():
    data = numbers(6, 4).T  # axes 0 and 1 are no contiguous run
    with pytest.raises(ValueError, match=r"contiguous\(\)"):
        sr.view_as_nested(data, torch.tensor([[0, 6]] * 4), 1)
    assert (
        sr.view_as_nested(data, [0, 2, 6], 1).values.untyped_storage().data_ptr() == data.untyped_storage().data_ptr()
    )


def test_lists_of_offsets_per_outer_index():
    x = sr.view_as_nested(numbers(2, 3), [[0, 1, 3], [0, 3, 3]], 1)
    assert x.tolist() == [[[1], [2, 3]], [[4, 5, 6], []]]


def test_lists_of_offsets_lie_on_the_host_whatever_the_default_device():
    data = numbers(2, 3)
    with torch.device("meta"):
        x = sr.view_as_nested(data, [[0, 1, 3], [0, 3, 3]], 1)
    assert x.tolist() == [[[1], [2, 3]], [[4, 5, 6], []]]


def test_partition_instead_of_offsets_is_shared():
    p = sr.Partition.from_lengths([1, 2])
    x = sr.view_as_nested(numbers(3, 2), p)
    assert x.partitions[0] is p


@given(chains())
def test_flat_is_the_packed_values(chain):
    assert same_memory(chain.x.flat(), chain.x.values)


@given(chains(max_levels=4))
def test_combine_undoes_the_innermost_level(chain):
    levels = len(chain.lengths)
    made = chain.x.combine(levels)
    assert made.values.data_ptr() == chain.x.values.data_ptr()
    if levels == 1:
        assert same_memory(made, chain.x.values)
        return

    assert made.tolist() == join(chain.lists, levels - 1)
    assert len(made.partitions) == levels - 1
    assert made.partitions[: levels - 2] == chain.x.partitions[: levels - 2]


@given(chains(max_levels=4))
def test_combine_of_the_outermost_level(chain):
    made = chain.x.combine(1)
    assert made.tolist() == list(itertools.chain(*chain.lists))
    assert made.values.data_ptr() == chain.x.values.data_ptr()
    assert made.partitions == chain.x.partitions[1:]


@given(chains(max_levels=4))
def test_combining_all_levels_is_flat(chain):
    x = chain.x
    for _ in chain.lengths:
        x = x.combine(1)
    assert same_memory(x, chain.x.values)


@given(st.data(), samples())
def test_combine_on_any_structure(data, sample):
    ragged = [i for i, axis in enumerate(sample.x.structure.axes) if isinstance(axis, sr.Ragged)]
    axis = data.draw(st.sampled_from(ragged))
    made = sample.x.combine(axis)
    assert made.tolist() == join(sample.x.tolist(), axis - 1)
    assert made.ndim == sample.x.ndim - 1
    if sample.x.structure.is_chain:  # else the merged axis may be no parent any more, and storage changes its order
        assert made.values.untyped_storage().data_ptr() == sample.x.values.untyped_storage().data_ptr()


def test_combine_on_a_product():
    p, q = sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([2, 1, 3])
    x = sr.from_product(torch.arange(7), p, q)
    assert x.tolist() == [[[0, 1], [2, 3]], [], [[4, 5, 6]]]
    inner = x.combine(2)
    assert inner.shape == (3, sr.Ragged([4, 0, 3]))
    assert inner.tolist() == [[0, 1, 2, 3], [], [4, 5, 6]]
    outer = x.combine(1)
    assert outer.shape == (3, sr.Ragged([2, 2, 3]))
    assert outer.tolist() == [[0, 1], [2, 3], [4, 5, 6]]
    assert inner.values.data_ptr() == outer.values.data_ptr() == x.values.data_ptr()
    assert same_memory(x.flat(), x.values)


@pytest.mark.parametrize("axis", [0, 2, 3, -4])
def test_combine_needs_a_ragged_axis(axis):
    with pytest.raises(sr.errors.AxisError, match=f"axis {axis}"):
        sr.from_lengths(numbers(3, 2), [1, 2]).combine(axis)


def test_combine_needs_the_axis_before_it():
    with pytest.raises(sr.errors.AxisError, match="permute"):
        sr.from_lengths(numbers(3, 2), [1, 2]).mT.combine(2)


@given(st.data(), samples())
def test_permutations_are_views_and_undo_each_other(data, sample):
    x = sample.x
    axes = data.draw(st.permutations(range(x.ndim)))
    y = x.permute_dims(axes)
    assert y.values is x.values
    assert y.partitions == x.partitions
    assert all(mine is theirs for mine, theirs in zip(y.offsets, x.offsets, strict=True))
    for seen, number in enumerate(axes):
        axis = x.shape[number]
        if isinstance(axis, sr.Ragged):
            assert isinstance(y.shape[seen], sr.Ragged)
            assert y.shape[seen].partition is axis.partition
            assert y.shape[seen].parents == tuple(axes.index(p) for p in axis.parents)
        else:
            assert y.shape[seen] == axis
    back = y.permute_dims([axes.index(i) for i in range(x.ndim)])
    assert back.shape == x.shape
    assert torch.equal(y.to_dense().torch(), x.to_dense().torch().permute(tuple(axes)))
    negative = x.permute_dims([a - x.ndim for a in axes])
    assert negative.shape == y.shape
    assert torch.equal(sr.permute_dims(x, tuple(axes)).to_dense().torch(), y.to_dense().torch())


def test_mT_exchanges_the_last_two_axes():
    x = sr.from_lengths(numbers(3, 2, dtype=torch.int64), [1, 2])
    assert x.mT.shape == (2, 2, sr.Ragged([1, 2]))
    assert x.mT.tolist() == [[[1], [2]], [[3, 5], [4, 6]]]
    assert x.mT.mT.shape == x.shape
    assert x.mT.values is x.values
    assert sr.asarray([[1, 2]]).mT.tolist() == [[1], [2]]
    with pytest.raises(sr.errors.AxisError, match="two axes"):
        _ = sr.asarray([1]).mT


def test_mT_of_a_product_exchanges_its_ragged_axes():
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 0])
    x = sr.from_product(torch.arange(6), p, q).mT
    assert x.shape == (2, sr.Ragged(q), sr.Ragged(p))
    assert x.partitions == (p, q)  # canonical storage does not change
    assert x.tolist() == [[[0, 3], [1, 4], [2, 5]], []]


def test_mT_of_nested_levels_shows_the_parent_behind():
    x = sr.ragged([[[1], [2, 3]], [[4]]])
    assert x.mT.shape[1].parents == (0, 2)
    assert x.mT.shape[2].parents == (0,)


@pytest.mark.parametrize("axes", [(0, 0, 1), (0, 1), (0, 1, 2, 3), (0, 1, 3)])
def test_bad_permutations_are_refused(axes):
    with pytest.raises(sr.errors.AxisError, match=r"ax[ei]s"):
        sr.from_lengths(numbers(3, 2), [1, 2]).permute_dims(axes)


def test_flat_of_a_permuted_tensor_keeps_the_packed_axis_in_place():
    data = numbers(2, 5, 3)
    x = sr.view_as_nested(data, [0, 2, 5], 1).permute_dims((0, 3, 1, 2))
    assert same_memory(x.flat(), data.permute(0, 2, 1))


def test_ragged_on_the_batch_and_on_batch_and_heads_are_different_shapes():
    on_batch = sr.from_lengths(numbers(5, 2), [2, 3]).mT  # [B, H, r], r on B
    on_both = sr.view_as_nested(numbers(2, 5), torch.tensor([[0, 2, 5], [0, 2, 5]]), 1)  # r on (B, K)
    assert on_batch.shape == (2, 2, sr.Ragged([2, 3]))
    assert on_batch.shape[2].parents == (0,)
    assert on_both.shape == (2, 2, sr.Ragged([2, 3, 2, 3], (0, 1)))
    assert on_both.shape[2].parents == (0, 1)
    assert on_batch.shape != on_both.shape
    assert sr.Ragged([2, 3], (0,)) != sr.Ragged([2, 3], (1,))
    assert "parents=(0, 1)" in repr(on_both.shape)
    assert on_batch.partitions[0].num_components == 2
    assert on_both.partitions[0].num_components == 4


def test_ragged_is_no_number():
    ragged = sr.ragged([[1], [2, 3]]).shape[1]
    assert not hasattr(ragged, "__index__")
    with pytest.raises(TypeError):
        torch.zeros(sr.ragged([[1], [2, 3]]).shape)


# ---------------------------------------------------------------------------------------------------- refusals

DATA = numbers(4, 6)


@pytest.mark.parametrize(
    ("offsets", "match"),
    [
        (torch.tensor([[0, 6], [0, 6]]), r"\[4, K\+1\].*\[4, 6\].*\[2, 2\]"),
        (torch.zeros(1, 4, 2, dtype=torch.int64), r"\[4, K\+1\].*\[1, 4, 2\]"),
        (torch.zeros(4, 0, dtype=torch.int64), r"\[4, K\+1\].*\[4, 0\]"),
        (torch.tensor([[0, 6], [0, 6], [0, 5], [0, 6]]), r"outer index 2, .*6, .*position 1, holds 5"),
        (torch.tensor([[0, 3, 6], [0, 4, 6], [0, 7, 6], [0, 1, 6]]), r"index 2, .*position 2 holds 6 after 7"),
        (torch.tensor([[1, 3, 6], [0, 4, 6], [0, 7, 6], [0, 1, 6]]), r"index 0, .*position 0 holds 1"),
        (torch.tensor([[0, -1, 6]] * 4), r"index 0, .*position 1 holds -1 after 0"),
        (torch.tensor([[0.0, 6.0]] * 4), r"^offsets.*int32 or int64.*float32"),
        (torch.tensor([[False, True]] * 4), r"^offsets.*int32 or int64.*bool"),
        (torch.tensor([[0, 6]] * 4, dtype=torch.uint64), r"^offsets.*int64.*uint64"),
        ([[0, 6], [0, 3, 6], [0, 6], [0, 6]], r"^offsets"),
        ([[0, None]] * 4, r"^offsets"),
        ([0, 3, 4], r"end with.*6.*position 2, holds 4"),
    ],
)
def test_bad_offsets_per_outer_index(offsets, match):
    with pytest.raises(sr.errors.RaggednessError, match=match):
        sr.view_as_nested(DATA, offsets, 1)


def test_offsets_of_two_axes_for_the_first_axis():
    with pytest.raises(sr.errors.RaggednessError, match=r"1-D.*\[1, 2\]") as caught:
        sr.view_as_nested(DATA, torch.tensor([[0, 4]]), 0)
    assert "[, K+1]" not in str(caught.value)


@pytest.mark.parametrize("k", [2, -3])
def test_ragged_dim_out_of_range(k):
    with pytest.raises(sr.errors.AxisError, match=rf"ragged_dim {k} .*\[4, 6\]"):
        sr.view_as_nested(DATA, [0, 6], k)


def test_data_that_is_no_tensor():
    with pytest.raises(TypeError, match="data must be a tensor, got list"):
        sr.view_as_nested([1, 2], [0, 2])


def test_an_entry_counted_from_the_end_of_one_row_is_a_view():
    x = sr.ragged([[3, 4], [0]])
    x[0, -1][...] = 9
    x[1][-1][...] = 8
    assert x.tolist() == [[3, 9], [8]]
