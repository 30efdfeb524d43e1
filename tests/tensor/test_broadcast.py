"""Axes of size 1 stretch, also those that number the rows of a ragged axis: its rows are repeated with them."""

from __future__ import annotations

import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError

R = sr.Ragged


@pytest.mark.parametrize("spare", [None, 0, 2])
def test_a_batch_of_one_stretches(spare):
    one = sr.ragged([[1.0, 2.0, 3.0]])
    one = one if spare is None else sr.testing.device_born(one, spare)
    with sr.testing.forbid_sync():
        made = one + torch.tensor([[0.0], [10.0]])
    assert made.tolist() == [[1.0, 2.0, 3.0], [11.0, 12.0, 13.0]]
    assert (torch.tensor([[0.0], [10.0]]) + one).tolist() == made.tolist()
    if not spare:  # lengths with room for more rows are not those of a tensor that has none
        assert (one * sr.ragged([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])).tolist() == [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]
        assert sr.broadcast_to(one, (3, R([3, 3, 3]))).tolist() == [[1.0, 2.0, 3.0]] * 3
    assert (one + torch.zeros(0, 1)).tolist() == []


@pytest.mark.parametrize("spare", [None, 0, 2])
def test_levels_below_are_repeated_too(spare):
    lists = [[[1, 2], [], [3]]]
    x = sr.ragged(lists)
    x = x if spare is None else sr.testing.device_born(x, spare)
    assert (x + torch.tensor([0, 10]).view(2, 1, 1)).tolist() == [lists[0], [[11, 12], [], [13]]]


@pytest.mark.parametrize("spare", [None, 0, 2])
def test_an_axis_of_size_1_stretches_to_a_ragged_one(spare):
    per_row = sr.zeros((2, 1, R([1, 2], parents=(0, 1))))
    positions = sr.ragged([[1.0, 2.0], [3.0]])
    if spare is not None:
        per_row, positions = sr.testing.device_born(per_row, spare), sr.testing.device_born(positions, spare)
    assert (per_row + positions[:, :, None]).tolist() == [[[1.0], [2.0]], [[3.0, 3.0]]]


def test_shapes_say_so():
    assert sr.broadcast_shapes((1, R([2])), (3, 1)) == (3, R([2, 2, 2]))
    assert sr.broadcast_shapes((2, 1, R([1, 3], (0, 1))), (1, 2, 1)) == (2, 2, R([1, 1, 3, 3], (0, 1)))
    with pytest.raises(RaggednessError, match=r"different raggedness: Ragged\(\[3, 3\]\) and Ragged\(\[3, 2\]\)"):
        sr.ragged([[1, 2, 3]]) + sr.ragged([[1, 2, 3], [4, 5]])
    with pytest.raises(ValueError, match="size 2 and 3"):
        sr.ragged([[1, 2], [3]]) + torch.zeros(3, 1)


@pytest.mark.parametrize("spare", [None, 2])
def test_gradients_of_what_is_repeated_are_sums(spare):
    x = sr.ragged([[1.0, 2.0, 3.0]], dtype=torch.float64)
    x = x if spare is None else sr.testing.device_born(x, spare)
    leaf, other = (
        x.values.clone().requires_grad_(),
        torch.tensor([[2.0], [5.0]], dtype=torch.float64, requires_grad=True),
    )
    made = sr.sum(x._with(leaf) * other * torch.tensor([[1.0], [10.0]]))
    made.backward()
    assert leaf.grad[:3].tolist() == [52.0] * 3
    assert other.grad.tolist() == [[6.0], [60.0]]
