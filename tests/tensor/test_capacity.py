"""Room for undefined rows: a structure says how many rows its values have, and no undefined row reaches a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.errors import SyncError
from serrate.tensor.combine import exact

lengths = sr.Partition.from_lengths
born = sr.testing.device_born
R = sr.Ragged


def product(dtype: torch.dtype = torch.float64) -> sr.Tensor:
    """[2, q, k] with blocks of 3 × 3 and 1 × 3."""
    return sr.from_product(torch.arange(1, 13, dtype=dtype), lengths([3, 1]), lengths([3, 3]))


BLOCKS = [[[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[10, 11, 12]]]


def nested() -> sr.Tensor:
    return sr.ragged([[[11, 12], [21], [31]], [[41]]])


def consistent(x: sr.Tensor) -> sr.Tensor:
    """x, whose values have one row per cell of its structure, undefined ones included."""
    if x.is_ragged:
        x.structure.check()
        assert x.values.shape[0] == x.structure.cells(x.structure.whole)
    return x


# ------------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("spare", [0, 2])
def test_assignment_to_a_row_of_a_product_writes_there_alone(spare: int) -> None:
    s = born(product(), spare)
    s[:, -1] = -9.0
    assert s.tolist() == [[BLOCKS[0][0], BLOCKS[0][1], [-9] * 3], [[-9] * 3]]


@pytest.mark.parametrize("spare", [0, 2])
def test_a_row_of_a_product_has_the_rows_that_its_partition_counts(spare: int) -> None:
    q, k = born(sr.ragged([[1.0, 2.0, 3.0], [4.0]]), spare), born(sr.ragged([[5.0, 6.0], [7.0, 8.0]]), spare)
    row = consistent(sr.outer(q, k)[:, 0])
    assert row.tolist() == [[5.0, 6.0], [28.0, 32.0]]
    assert row.flat().tolist() == [5.0, 6.0, 28.0, 32.0]
    assert (row + row.clone()).tolist() == [[10.0, 12.0], [56.0, 64.0]]
    assert sr.where(row > 6, row, 0.0).tolist() == [[0.0, 0.0], [28.0, 32.0]]
    assert sr.sort(row, axis=1, descending=True).tolist() == [[6.0, 5.0], [32.0, 28.0]]
    assert sr.concat([row, row], axis=1).tolist() == [[5.0, 6.0] * 2, [28.0, 32.0] * 2]
    assert sr.stack([row, row]).tolist() == [row.tolist()] * 2
    for one, want in zip(sr.softmax(row, axis=1).tolist(), [[5.0, 6.0], [28.0, 32.0]], strict=True):
        assert one == pytest.approx(torch.softmax(torch.tensor(want), 0).tolist())


CUTS: dict[str, Any] = {
    "prefix": (slice(None), slice(1)),
    "suffix": (slice(None), slice(-1, None)),
    "inside": (slice(None), slice(None), slice(2)),
    "both": (slice(None), slice(2), slice(1, None)),
    "nothing": (slice(None), slice(5, None)),
    "reversed": (slice(None), slice(None, None, -1)),
    "rows": (slice(1, None),),
    "last": (slice(None), -1),
    "last inside": (slice(None), slice(None), -1),
}


@pytest.mark.parametrize("spare", [0, 2])
@pytest.mark.parametrize("name", CUTS)
def test_what_is_cut_from_a_product_joins(name: str, spare: int) -> None:
    want, got = product()[CUTS[name]], consistent(born(product(), spare)[CUTS[name]])
    assert got.tolist() == want.tolist()
    assert consistent(exact(got)).shape == want.shape
    for axis in range(want.ndim):
        joined = consistent(sr.concat([got, got], axis=axis))
        assert joined.tolist() == sr.concat([want, want], axis=axis).tolist()
    for axis in range(want.ndim + 1):
        stacked = consistent(sr.stack([got, 2 * got], axis=axis))
        assert stacked.tolist() == sr.stack([want, 2 * want], axis=axis).tolist()


def test_one_row_of_device_born_lengths_is_uniform_and_has_nothing_undefined() -> None:
    assert born(nested(), 3)[0, -1].tolist() == [31]
    assert born(nested(), 3)[0, 0].shape == (2,)
    assert born(product(), 2)[0, :2].tolist() == BLOCKS[0][:2]
    assert born(product(), 2)[1, :, 1:].tolist() == [[11, 12]]
    deep = born(sr.zeros((1, R([2]), R([0, 1], (0, 1)), 1, R([0], (0, 1, 2, 3)))))
    assert consistent(deep[-1, -2]).shape == (0, 1, R([], (0, 1)))


@pytest.mark.parametrize("spare", [0, 2])
@pytest.mark.parametrize("name", ["sum", "softmax", "sort", "argmax", "max", "var", "cumulative_sum"])
def test_products_without_cells(name: str, spare: int) -> None:
    empty = sr.from_product(torch.zeros(0), lengths([0, 0]), lengths([3, 3]))
    for axis in (0, 1, 2):
        want = getattr(sr, name)(empty, axis=axis)
        assert repr(consistent(getattr(sr, name)(born(empty, spare), axis=axis)).tolist()) == repr(want.tolist())
    assert sr.where(born(empty, spare) > 0, empty, 1.0).shape == empty.shape


def test_the_host_knows_how_many_rows_repeated_ones_have() -> None:
    """[B, 1, r] + [B, H, 1]: r is repeated H times; nothing waits, and nothing is undefined."""
    x = born(sr.ragged([[1.0, 2.0, 3.0], [4.0]]))
    with sr.testing.forbid_sync():
        y = consistent(x[:, None] + torch.tensor([[[10.0], [20.0]], [[30.0], [40.0]]]))
    assert y.structure.is_exact
    assert y.tolist() == [[[11.0, 12.0, 13.0], [21.0, 22.0, 23.0]], [[34.0], [44.0]]]


def test_a_size_that_is_data_waits() -> None:
    with sr.testing.forbid_sync(), pytest.raises(SyncError):
        born(nested())[0, -1]


def test_products_of_different_capacity_meet() -> None:
    s = product()
    assert (born(s, 3) + born(s)).tolist() == (s + s).tolist()
    assert (born(s) * born(s, 3)).tolist() == (s * s).tolist()
    assert (s - born(s, 3)).tolist() == (born(s, 3) - s).tolist() == (s * 0).tolist()
    assert (born(s, 3).mT == s.mT).tolist() == (s.mT == s.mT).tolist()
    for other in (s, born(s, 3)):
        assert sr.stack([born(s), other], axis=3).tolist() == sr.stack([s, s], axis=3).tolist()
    target = born(s)
    target[...] = born(s, 2) + 1
    assert target.tolist() == (s + 1).tolist()


def test_a_move_keeps_the_room() -> None:
    s = born(product(), 2)
    assert consistent(s.to("meta")).values.shape == (14,)


# ------------------------------------------------------------------------------------------------- undefined cells


def test_indices_past_the_last_one_are_not_read() -> None:
    p = born(sr.zeros((2, 1, R([1, 0], parents=(0, 1)))))
    index = born(sr.zeros(p.shape, dtype=torch.int64), spare=1)
    index.values[1:] = 99
    assert p[index].tolist() == [[[0.0]], [[]]]
    host = sr.ragged([[1.0, 2.0], []])
    wanted = born(sr.ragged([[1, 0, 1], []]), spare=2)
    values = host.values.requires_grad_()
    found = sr.Tensor(values, host.structure)[wanted]
    found.values.backward(torch.tensor([1.0, 10.0, 100.0, float("nan"), float("nan")]))
    assert values.grad.tolist() == [10.0, 101.0]


def test_positions_are_asked_of_defined_rows_alone() -> None:
    x = born(sr.ragged([[[1, 2], [3]], [[4, 5]]]), spare=2)
    assert x[:, ::-1][:, :1, [0, 0]].tolist() == [[[3, 3]], [[4, 4]]]
    assert x[:, 5:][:, :, [1, 1]].tolist() == [[], []]


def test_repeats_in_undefined_rows_do_not_count() -> None:
    y = born(sr.ragged([[1, 2, 3], [4, 5]]), spare=2)
    assert sr.repeat(y, y % 3, axis=1).tolist() == [[1, 2, 2], [4, 5, 5]]
    counts = born(sr.ragged([[1, 0, 2], [0, 1]]), spare=2)
    counts.values[5:] = -1
    assert sr.repeat(y, counts, axis=1).tolist() == [[1, 3, 3], [5]]


EMPTY: dict[str, Callable[[], sr.Tensor]] = {
    "take": lambda: sr.take(sr.permute_dims(sr.zeros((2, R([0, 0]), 3)), (0, 2, 1)), -1, axis=2, fill=0),
    "scan": lambda: sr.cumulative_sum(sr.zeros((3, R([1, 1, 0]), R([0, 0, 1]))), axis=0, include_initial=True),
    "cut": lambda: born(sr.zeros((1, R([0]), R([], parents=(0, 1)))))[[0, 0, 0], -3:-2, 0:-1],
    "cut backwards": lambda: born(sr.zeros((2, R([0, 0]), R([], (0, 1)))))[[0, -2, -2], -4:-2, 3:-3:-1],
    "repeat": lambda: sr.repeat(nested()[:0], [], axis=0),
}
SHAPES = {
    "take": (2, 3),
    "scan": (R([1], parents=(1, 2)), 1, 1),
    "cut": (3, R([0, 0, 0]), R([], parents=(0, 1))),
    "cut backwards": (3, R([0, 0, 0]), R([], parents=(0, 1))),
    "repeat": (0, R([]), R([], parents=(0, 1))),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_read(name: str) -> None:
    made = consistent(EMPTY[name]())
    assert exact(made).shape == SHAPES[name]
    assert not made.flat().values.any()


def test_indices_of_nothing_are_checked_all_the_same() -> None:
    none = sr.from_lengths(torch.zeros(0, 2), [0, 0])
    with pytest.raises(IndexError, match="index 2 is out of range for axis 2 with size 2"):
        none[:, :, [0, 2]]
    with pytest.raises(IndexError, match="index -3 is out of range for axis 1 with size 2"):
        sr.Tensor(torch.zeros(0, 2))[:, [-3]]


# -------------------------------------------------------------------------------------------------------- gradients


def written(x: sr.Tensor, key: Any, v: torch.Tensor) -> sr.Tensor:
    y = x * 1
    y[key] = v
    return y


def gradients(run: Callable[[sr.Tensor, torch.Tensor], sr.Tensor], x: sr.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Of x's defined values and of v, for a cotangent of 1, 2, 3, … and NaN in undefined rows."""
    leaf, v = x.values.clone().requires_grad_(), v.clone().requires_grad_()
    made = run(x._with(leaf), v)
    count = exact(made).values.numel()
    cotangent = torch.full_like(made.values, float("nan"))
    cotangent.view(-1)[:count] = torch.arange(1.0, count + 1)
    found = torch.autograd.grad(made.values, (leaf, v), cotangent, allow_unused=True)
    return [torch.zeros_like(of) if g is None else g for g, of in zip(found, (leaf, v), strict=True)]


PAIRS = {
    "assigned suffix": (lambda x, v: written(x, (slice(None), slice(1, None)), v), (1,)),
    "assigned nothing": (lambda x, v: written(x, (slice(None), slice(5, None)), v), ()),
    "assigned last": (lambda x, v: written(x, (slice(None), -1), v), ()),
    "assigned all": (lambda x, v: written(x, (slice(None),), v), (2, 1)),
    "assigned a number": (lambda x, v: written(x, ..., v), ()),
    "assigned backwards": (lambda x, v: written(x, (slice(None), slice(None, None, -2)), v), (1,)),
    "broadcast_to": (lambda x, v: sr.broadcast_to(v, x.shape) * 2, (2, 1)),
    "broadcast_arrays": (lambda x, v: sr.broadcast_arrays(v, x)[0], (2, 1)),
    "expand_as": (lambda x, v: sr.Tensor(v).expand_as(x), (2, 1)),
    "plus": (lambda x, v: x + v, (2, 1)),
    "times a number": (lambda x, v: x * v, ()),
    "copy_": (lambda x, v: (x * 1).copy_(v), (2, 1)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("levels", [1, 2])
def test_gradients_have_no_part_of_undefined_rows(name: str, levels: int) -> None:
    run, shape = PAIRS[name]
    x = sr.ragged([[1.0, 2.0, 3.0], [4.0, 5.0]]) if levels == 1 else product(torch.float32)
    v = torch.full((*shape, *[1] * (levels - 1) * (len(shape) > 1)), 3.0)
    want = gradients(run, x, v)
    for spare in (0, 1, 3):
        got = gradients(run, born(x, spare), v)
        assert torch.equal(got[0][: want[0].shape[0]], want[0])
        assert torch.equal(got[1], want[1])


def test_the_gradient_of_what_is_assigned_counts_each_entry_once() -> None:
    y = born(sr.ragged([[1.0, 2.0, 3.0], [4.0, 5.0]])) * 1
    v = torch.ones(1, requires_grad=True)
    y[:, 1:] = v
    y.values.backward(torch.arange(1.0, 6.0))
    assert v.grad.tolist() == [2.0 + 3.0 + 5.0]


def test_an_assignment_to_no_defined_row_leaves_gradients_alone() -> None:
    leaf = torch.zeros(1, 1, 3, requires_grad=True)
    y = sr.testing.device_born(sr.from_lengths(leaf, [1])) * 1
    y[:, :-3, [0, 0], [2, 2]] = 5.0
    y.values.backward(torch.tensor([[[1.0, 2.0, 3.0]]]))
    assert leaf.grad.tolist() == [[[1.0, 2.0, 3.0]]]


def test_a_number_with_a_gradient_leaves_the_dtype_alone() -> None:
    x, number = sr.ragged([[1.0, 2.0]]), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    for given in (x, born(x, 1)):
        assert torch.mul(given, number).dtype == torch.float32
        assert sr.multiply(given, number).dtype == torch.float64
