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
