"""Permuted views in every operation: what is seen is what a permuted nested list or padded tensor would give."""

from __future__ import annotations

import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError


def heads() -> sr.Tensor:
    """[2, 2, r] with r on both axes before it."""
    return sr.stack([sr.ragged([[1], [2, 3]]), sr.ragged([[4, 5, 6], [7, 8, 9, 10]])])


SEEN = [[[1], [4, 5, 6]], [[2, 3], [7, 8, 9, 10]]]  # the first two axes exchanged


def test_parents_keep_the_order_that_numbers_the_components():
    z, w = heads(), heads().permute_dims((1, 0, 2))
    assert w.shape[2] == sr.Ragged([1, 2, 3, 4], (1, 0))
    assert z.shape != w.shape
    assert w.tolist() == SEEN
    assert w.to_awkward().tolist() == SEEN
    assert w.to_arrow().to_pylist() == SEEN
    assert [row.tolist() for row in w] == SEEN
    assert w.to_dense().tolist() == z.to_dense().permute_dims((1, 0, 2)).tolist()
    with pytest.raises(RaggednessError, match="different raggedness"):
        _ = z == w
    with pytest.raises(RaggednessError, match="different raggedness"):
        z[...] = w
    assert z.tolist() == heads().tolist()
    assert (w == w.clone()).tolist() == [[[True] * len(r) for r in rows] for rows in SEEN]
    assert (w == torch.tensor([[[1], [4]], [[2], [7]]])).tolist()[0] == [[True], [True, False, False]]


def test_more_levels_below_exchanged_parents():
    deep = sr.stack([sr.ragged([[[1], []], [[2, 3]]]), sr.ragged([[[4]], [[5], [6, 7]]])])
    turned = deep.permute_dims((1, 0, 2, 3))
    want = [[[[1], []], [[4]]], [[[2, 3]], [[5], [6, 7]]]]
    assert turned.tolist() == want
    assert turned.to_awkward().tolist() == want
    assert sr.from_awkward(turned.to_awkward()).to_awkward().tolist() == want
    assert turned[1].tolist() == want[1]
    assert turned[:, 1, ::-1].tolist() == [rows[1][::-1] for rows in want]


def test_parts_stored_otherwise_join():
    a = torch.arange(24.0).view(3, 2, 4)
    x = sr.from_lengths(a, [1, 2])
    y = sr.from_lengths(a.transpose(1, 2).contiguous(), [1, 2]).permute_dims((0, 1, 3, 2))
    assert x.shape == y.shape
    assert sr.concat([x, y], axis=1).tolist() == sr.concat([x, x], axis=1).tolist()
    assert sr.stack([y, x]).tolist() == sr.stack([x, x]).tolist()
    assert sr.collate([x, y]).tolist() == sr.collate([x, x]).tolist()
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])
    block = sr.from_product(torch.tensor([0, 1, 2, 3, 4]), p, q)
    turned = sr.from_product(torch.tensor([0, 1, 2, 3, 4]), q, p).mT
    assert sr.concat([block, turned], axis=0).tolist() == block.tolist() + turned.tolist()


def test_a_new_axis_between_an_axis_and_one_it_depends_on_is_refused():
    y = sr.ragged([[[1, 2, 3]]]).permute_dims((0, 2, 1))
    with pytest.raises(RaggednessError, match=r"stacking at axis 2 .*permute the axes first"):
        sr.stack([y, y], axis=2)


def test_combining_across_a_uniform_axis_of_size_0():
    empty = sr.stack([sr.ragged([])] * 3)
    assert empty.combine(2).tolist() == [[], [], []]
    assert empty.combine(2)[0].tolist() == []


# ------------------------------------------------------------------------------- masks and points of permuted views


def block() -> tuple[sr.Tensor, list[list[list[int]]]]:
    """[2, q, k] as it is seen with q and k exchanged, and the lists of that."""
    x = sr.from_product(torch.arange(1, 11), sr.Partition.from_lengths([3, 1]), sr.Partition.from_lengths([2, 4])).mT
    return x, [[[1, 3, 5], [2, 4, 6]], [[7], [8], [9], [10]]]


def features() -> tuple[sr.Tensor, list[list[list[int]]]]:
    """[2, 3, r], features before the ragged axis, and the lists of that."""
    x = sr.from_lengths(torch.arange(1, 16).view(5, 3), [2, 3]).mT
    return x, [[[1, 4], [2, 5], [3, 6]], [[7, 10, 13], [8, 11, 14], [9, 12, 15]]]


@pytest.mark.parametrize("make", [block, features])
@pytest.mark.parametrize("spare", [None, 0, 2])
def test_masks_of_permuted_views(make, spare):
    x, nested = make()
    x = x if spare is None else sr.testing.device_born(x, spare)
    assert x[x > 4].tolist() == [[[v for v in row if v > 4] for row in rows] for rows in nested]
    assert x[x > 99].tolist() == [[[] for _ in rows] for rows in nested]
    y = x.clone()
    y[y % 2 == 0] = 0
    assert y.tolist() == [[[v if v % 2 else 0 for v in row] for row in rows] for rows in nested]
    assert y.order == x.order


@pytest.mark.parametrize("make", [block, features])
@pytest.mark.parametrize("spare", [None, 2])
def test_points_of_permuted_views(make, spare):
    x, nested = make()
    x = x if spare is None else sr.testing.device_born(x, spare)
    assert x[[0, 1, 1], [1, -1, 0]].tolist() == [nested[0][1], nested[1][-1], nested[1][0]]
    assert x[[[0], [1]], 0].tolist() == [[nested[0][0]], [nested[1][0]]]
    assert x[[1, 0], [0, 1], [0, 0]].tolist() == [nested[1][0][0], nested[0][1][0]]
    assert x[[1, 0], [0, 1], :1].tolist() == [nested[1][0][:1], nested[0][1][:1]]
    y = x.clone()
    y[[0, 1], [1, 0]] = 0
    wanted = [[list(row) for row in rows] for rows in nested]
    wanted[0][1], wanted[1][0] = [0] * len(nested[0][1]), [0] * len(nested[1][0])
    assert y.tolist() == wanted
    index = sr.argsort(x, axis=2, descending=True)
    assert x[index].tolist() == [[sorted(row, reverse=True) for row in rows] for rows in nested]


def test_masks_end_on_any_axis():
    nested = [[[[1, 2], []], [[3], [4]]], [[[5], [6, 7]]]]  # [2, r, 2, s] with s on all before it
    x = sr.stack([sr.ragged([[[1, 2], [3]], [[5]]]), sr.ragged([[[], [4]], [[6, 7]]])], axis=2)
    assert x.tolist() == nested
    mask = sr.ragged([[[True, False], [True, True]], [[False, True]]], ragged_rank=1)
    kept = [[[[1, 2]], [[3], [4]]], [[[6, 7]]]]
    assert x[mask].tolist() == kept
    assert sr.testing.device_born(x, 2)[mask].tolist() == kept
    x[mask] = 0
    assert x.tolist() == [[[[0, 0], []], [[0], [0]]], [[[5], [0, 0]]]]


def test_an_axis_seen_before_one_it_depends_on_is_not_filtered():
    turned = sr.ragged([[1, 2], [3]]).permute_dims((1, 0))
    with pytest.raises(IndexError, match=r"axis 0 of shape .* depends on an axis behind it"):
        turned[turned > 1]


def test_exchanged_parents_are_numbered_anew():
    w = heads().permute_dims((1, 0, 2))
    assert w[[0, 1], [1, 0]].tolist() == [SEEN[0][1], SEEN[1][0]]
    assert w[w > 3].tolist() == [[[v for v in row if v > 3] for row in rows] for rows in SEEN]


def test_one_array_of_several_axes_on_an_inner_axis():
    x = sr.ragged([[[1, 2], [3]], [[4], [5, 6]]])
    assert x[:, [[0, 1], [1, 1]]].tolist() == [[[[1, 2], [3]], [[3], [3]]], [[[4], [5, 6]], [[5, 6], [5, 6]]]]
    assert x[[[1, 0]], None].tolist() == [[[x.tolist()[1]], [x.tolist()[0]]]]
    assert x[:, [[0]], 0].tolist() == [[[1]], [[4]]]


def test_stacks_of_what_is_stored_otherwise():
    x, nested = block()
    other = sr.from_product(x.flat().values, *[axis.partition for axis in x.shape[1:]])
    assert other.shape == x.shape
    assert other.order != x.order
    assert sr.stack([x, other]).tolist() == [nested, other.tolist()]
    assert sr.stack([x, other], axis=1).tolist() == [[m, n] for m, n in zip(nested, other.tolist(), strict=True)]
    assert sr.stack([other, x], axis=2).tolist() == [
        [[p, q] for p, q in zip(m, n, strict=True)] for m, n in zip(other.tolist(), nested, strict=True)
    ]
    assert sr.stack([other, x], axis=3).tolist() == [
        [[[a, b] for a, b in zip(p, q, strict=True)] for p, q in zip(m, n, strict=True)]
        for m, n in zip(other.tolist(), nested, strict=True)
    ]


def test_a_mask_of_another_size_is_refused_where_there_are_no_rows_too():
    with pytest.raises(RaggednessError, match="axis 2 of the key must be 1"):
        sr.zeros((1, sr.Ragged([0]), 1))[sr.ones((1, sr.Ragged([0]), 2), dtype=torch.bool)]


def test_what_is_filtered_is_depended_on_by_what_depended_on_it_and_nothing_else():
    x = sr.zeros((1, sr.Ragged([2]), sr.Ragged([1]), 2, sr.Ragged([1, 3], (0, 3))))
    kept = x[sr.ones((1, sr.Ragged([2]), sr.Ragged([1]), 2), dtype=torch.bool)]
    assert [axis.parents for axis in kept.shape if isinstance(axis, sr.Ragged)] == [(0,), (0,), (0, 1, 2), (0, 1, 2, 3)]
    gathered = sr.zeros((1, sr.Ragged([2]), sr.Ragged([1]), sr.Ragged([3, 1], (0, 1))))[sr.ragged([[1, 0]])]
    assert [axis.parents for axis in gathered.shape if isinstance(axis, sr.Ragged)] == [(0,), (0,), (0, 1)]


def test_axes_that_depend_on_each_other_do_not_broadcast():
    turned = sr.zeros((1, sr.Ragged([0]))).permute_dims((1, 0))
    with pytest.raises(RaggednessError, match="depend on each other in a circle"):
        _ = sr.zeros((1, sr.Ragged([1]))) + turned
    x = sr.zeros((1, 2, sr.Ragged([1]))).permute_dims((2, 1, 0))
    assert (sr.ragged([[1.0]]) + x).shape == (sr.Ragged([1, 1], (1, 2)), 2, sr.Ragged([1, 1], (1,)))
