"""Lengths born on a device: nothing waits for them, and rows of capacity past the total never show."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle import WHOLE, Sample, build, chain, check, levels, many, slices

import serrate as sr
from serrate.errors import RaggednessError, SyncError
from serrate.tensor.structure import Ragged

RAGGED = [[3, 0, 2, 4], [2, 1, 0, 4, 1, 0, 2, 3, 1]]  # [4, r, r]
ROWS = [[3, 2, 5, 4]]
SPARE = 97  # what sr.testing.device_born puts into undefined rows

Form = Callable[[sr.Tensor], Any]


def born(x: sr.Tensor, device: str = "cpu", spare: int = 3) -> sr.Tensor:
    return sr.testing.device_born(x.to(device), spare=spare)


def same(run: Form, s: Sample, device: str = "cpu", spare: int = 3) -> sr.Tensor:
    """What `run` gives for device-born lengths, made without a wait, is what it gives for lengths the host knows."""
    want = run(s.x.to(device))
    x = born(s.x, device, spare)
    with sr.testing.forbid_sync():
        got = run(x)
    sr.testing.raise_deferred()
    assert got.tolist() == want.tolist()
    assert [row.tolist() for row in got.rows()] == [row.tolist() for row in want.rows()]
    assert got.to_dense(-1).tolist() == want.to_dense(-1).tolist()
    for wanted, offsets in zip(want.offsets, got.offsets, strict=True):  # an inner level may cut rows of capacity too
        assert offsets.tolist()[: wanted.numel()] == wanted.tolist()
    return check(got)


# ------------------------------------------------------------------------------------------------------ no waiting

FORMS: dict[str, Form] = {
    "prefix": lambda x: x[:, :2],
    "deep prefix": lambda x: x[:, :, :2],
    "both": lambda x: x[:, 1:3, -2:],
    "every other": lambda x: x[:, ::2],
    "suffix": lambda x: x[:, -1:],
    "reversed": lambda x: x[:, ::-1],
    "reversed inside": lambda x: x[:, :, ::-1],
    "nothing": lambda x: x[:, 5:],
    "rows reversed": lambda x: x[::-1, :2],
    "whole": lambda x: x[:],
    "new axis": lambda x: x[:, None],
    "feature": lambda x: x[..., 0],
    "features": lambda x: x[..., [1, 0]],
    "flip": lambda x: sr.flip(x, axis=1),
    "flip inside": lambda x: sr.flip(x, axis=2),
    "roll": lambda x: sr.roll(x, 1, axis=1),
    "roll inside": lambda x: sr.roll(x, -2, axis=2),
    "roll features": lambda x: sr.roll(x, 1, axis=3),
    "repeat": lambda x: sr.repeat(x, 2, axis=1),
    "repeat inside": lambda x: sr.repeat(x, 2, axis=2),
    "tile": lambda x: sr.tile(x, (1, 2, 2, 1)),
    "split": lambda x: sr.split(x, [2, 3], axis=1)[1],
    "expand_dims": lambda x: sr.expand_dims(x, axis=2),
    "positions": lambda x: sr.positions(x, axis=1),
    "equal": lambda x: x == x,
    "equal a copy": lambda x: x == x.clone(),
    "equal a number": lambda x: x == 3,
    "permuted": lambda x: x.permute_dims((0, 3, 1, 2)),
    "permuted, cut": lambda x: x.permute_dims((0, 3, 1, 2))[:, :, :2],
    "concat": lambda x: sr.concat([x, x], axis=1),
    "concat inside": lambda x: sr.concat([x, x], axis=2),
    "concat rows": lambda x: sr.concat([x, x], axis=0),
    "concat features": lambda x: sr.concat([x, x], axis=3),
    "stack": lambda x: sr.stack([x, x]),
    "stack rows": lambda x: sr.stack([x, x], axis=1),
    "stack features": lambda x: sr.stack([x, x], axis=-1),
    "to_dense": lambda x: x.to_dense(max_lengths=(3, 2)),
    "to_dense more": lambda x: x.to_dense(-5, max_lengths=9),
    "to_dense outside": lambda x: x.to_dense(max_lengths=2, axis=1),
    "to_dense inside": lambda x: x.to_dense(-5, max_lengths=2, axis=2),
    "mask": lambda x: x.mask(max_lengths=4),
    "clone": lambda x: x.clone(),
    "copy": copy.deepcopy,
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("name", FORMS)
def test_nothing_waits_and_nothing_leaks(name: str, device: str) -> None:
    same(FORMS[name], chain(RAGGED, (2,)), device)


ONE_LEVEL: dict[str, Form] = {
    "first": lambda x: x[:, 0],
    "last": lambda x: x[:, -1],
    "columns": lambda x: x[:, [1, 0, -1]],
    "gather": lambda x: x[sr.ragged([[0, 0, -1], [], [4], [1]]).to(x.device, non_blocking=True)],
    "from_dense": lambda x: sr.from_dense(torch.arange(32, device=x.device).view(4, 4, 2), like=x, padding_value=-3),
    "from_dense, no features": lambda x: sr.from_dense(torch.arange(16, device=x.device).view(4, 4), like=x[..., 0]),
    "concat dense": lambda x: sr.concat([torch.zeros(4, 1, 2, dtype=torch.int64, device=x.device), x], axis=1),
    "concat three": lambda x: sr.concat([x[:, :1], x, x[:, 2:]], axis=1),
    "cut twice": lambda x: x[:, :4][:, ::-2],
    "turned": lambda x: x.mT[:, :, :2].mT,
}


@pytest.mark.parametrize("name", ONE_LEVEL)
def test_one_level(name: str, device: str) -> None:
    same(ONE_LEVEL[name], chain(ROWS, (2,)), device)


@many
@given(levels(1, 4), slices, st.data())
def test_any_cut_of_any_level(lengths: list[list[int]], cut: slice, data: Any) -> None:
    s = chain(lengths)
    axis = data.draw(st.integers(1, len(lengths)))
    same(lambda x: x[(*[WHOLE] * axis, cut)], s)


@given(levels(1, 3), st.integers(-5, 5), st.data())
def test_any_roll_and_join_of_any_level(lengths: list[list[int]], by: int, data: Any) -> None:
    s = chain(lengths)
    axis = data.draw(st.integers(0, len(lengths)))
    same(lambda x: sr.roll(x, by, axis=axis), s)
    same(lambda x: sr.concat([x, sr.flip(x, axis=len(lengths))], axis=axis), s)


def test_a_device_born_and_a_host_born_part() -> None:
    host = chain([[1, 0, 2, 1]], (2,)).x
    same(lambda x: sr.concat([x, host], axis=1), chain(ROWS, (2,)))
    same(lambda x: sr.concat([host, x], axis=1), chain(ROWS, (2,)))
    same(lambda x: sr.concat([x, host], axis=0), chain(ROWS, (2,)))


PRODUCT: dict[str, Form] = {
    "flip": lambda x: sr.flip(x, axis=2),
    "prefix": lambda x: x[:, :1],
    "prefix inside": lambda x: x[:, :, :2],
    "to_dense": lambda x: x.to_dense(max_lengths=2),
    "equal": lambda x: x == x,
    "turned": lambda x: x.mT,
}


@pytest.mark.parametrize("name", PRODUCT)
def test_products(name: str, device: str) -> None:
    s = build([3, Ragged([2, 1, 3]), Ragged([3, 0, 2])])
    same(PRODUCT[name], s, device, spare=0)
    x = born(s.x, device)
    assert PRODUCT[name](x).to_dense(-1).tolist() == PRODUCT[name](s.x).to_dense(-1).tolist()


@pytest.mark.parametrize("name", ["prefix", "flip", "deep prefix", "concat", "to_dense", "every other"])
def test_int32_offsets_and_gradients(name: str) -> None:
    s = chain(RAGGED, (2,), dtype=torch.int32)
    values = s.x.values.double().requires_grad_()
    want = FORMS[name](sr.Tensor(values, s.x.structure)).values
    (wanted,) = torch.autograd.grad(want.square().sum(), values)
    x = born(sr.Tensor(values, s.x.structure))
    with sr.testing.forbid_sync():
        y = FORMS[name](x)
    assert {o.dtype for o in y.offsets} <= {torch.int32}
    (got,) = torch.autograd.grad(y.values[: want.shape[0]].square().sum(), values)
    assert torch.equal(got, wanted)


def test_assignment_writes_what_is_read_and_nothing_else() -> None:
    s = chain(ROWS)
    x = born(s.x)
    with sr.testing.forbid_sync():
        x[:, :1] = -1
        x[:, -1] = torch.tensor([10, 20, 30, 40])
        x[:, 1:-1] = -2
    assert x.tolist() == [[-1, -2, 10], [-1, 20], [-1, -2, -2, -2, 30], [-1, -2, -2, 40]]
    with sr.testing.forbid_sync():
        x[...] = 5
    assert x.tolist() == [[5] * 3, [5] * 2, [5] * 5, [5] * 4]


# ------------------------------------------------------------------------------------------------------ waiting allowed

WAITS: dict[str, Form] = {
    "row": lambda x: x[1],
    "last row": lambda x: x[-1],
    "some rows": lambda x: x[1:3],
    "rows twice": lambda x: x[[0, 2, 2]],
    "ragged mask": lambda x: x[x == 3],
    "rows": lambda x: x.rows(),
    "iteration": list,
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "max_lengths": lambda x: x.max_lengths,
    "to_dense": lambda x: x.to_dense(),
    "mask": lambda x: x.mask(),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_may_wait_says_so_where_that_is_forbidden(name: str, device: str) -> None:
    x = born(chain(ROWS).x, device)
    with sr.testing.forbid_sync(), pytest.raises(SyncError, match="forbid_sync"):
        WAITS[name](x)
    WAITS[name](x)


def test_what_waits_gives_the_right_rows() -> None:
    s = chain(RAGGED)
    x = born(s.x)
    assert [x[i].tolist() for i in range(-4, 4)] == s.nested + s.nested
    assert x[1:3].tolist() == s.nested[1:3]
    assert x[[3, 0, 3]].tolist() == [s.nested[i] for i in (3, 0, 3)]
    assert x[[True, False, True, True]].tolist() == [s.nested[i] for i in (0, 2, 3)]
    assert x[[0, 2], [1, -1]].tolist() == [s.nested[0][1], s.nested[2][-1]]
    assert x[3, 2:].tolist() == s.nested[3][2:]
    assert x[x == 3].tolist() == s.x[s.x == 3].tolist()
    assert x[x != SPARE].tolist() == s.nested
    assert [row.tolist() for row in x] == s.nested
    assert x.max_lengths == s.x.max_lengths
    assert x.to_dense(-1).tolist() == s.x.to_dense(-1).tolist()
    assert x.mask().tolist() == s.x.mask().tolist()
    assert str(SPARE) not in repr(x)


def test_the_undefined_rows_are_in_no_answer() -> None:
    s = chain(ROWS)
    x = born(s.x)
    assert SPARE not in x
    assert 3 in x
    assert x[x == SPARE].tolist() == [[], [], [], []]
    for i, row in enumerate(x.rows()):
        assert row.values.shape[0] == ROWS[0][i]
    empty = born(chain([[0, 0, 0]]).x)
    assert SPARE not in empty
    assert empty.tolist() == [[], [], []]
    assert empty.to_dense(max_lengths=2).tolist() == [[0, 0]] * 3
    none = born(chain([[]]).x)
    assert none.tolist() == []
    assert none.to_dense(max_lengths=2).tolist() == []
    assert sr.flip(none, axis=1).tolist() == []
    assert sr.concat([none, born(s.x)], axis=0).tolist() == s.nested


def test_the_capacity_of_a_prefix_is_bounded() -> None:
    x = born(sr.from_lengths(torch.arange(1000), [500, 500]))
    with sr.testing.forbid_sync():
        y = x[:, :3]
    assert y.values.shape[0] <= 6
    assert y.partitions[0].max_length_bound <= 3


def test_a_row_that_lacks_the_position_is_named() -> None:
    x = born(chain([[3, 1, 2]]).x)
    with pytest.raises(IndexError, match=r"index 1 .*row 1 with 1 entries"):
        x[:, 1]
    with pytest.raises(IndexError, match="row 1"):
        x[:, -2]


def test_raggedness_that_differs_is_an_error() -> None:
    x, y = born(chain([[3, 1, 2]]).x), born(chain([[3, 2, 1]]).x)
    with pytest.raises(RaggednessError, match=r"differ.*\[3, 1, 2\].*\[3, 2, 1\]"):
        _ = x == y


def test_joins_of_cut_levels_leave_undefined_components_out() -> None:
    x = sr.ragged([[[1, 2, 3], [4]], [[5], [6, 7]]])
    for cut in (slice(1, None), slice(None, None, 2), slice(-1, None)):
        want, got = x[:, cut], born(x)[:, cut]
        for axis in (0, 1, 2):
            assert sr.concat([got, got], axis=axis).tolist() == sr.concat([want, want], axis=axis).tolist()
        for axis in (0, 1):
            assert sr.stack([got, got], axis=axis).tolist() == sr.stack([want, want], axis=axis).tolist()
        assert sr.from_rows([got, got]).tolist() == sr.from_rows([want, want]).tolist()


def test_products_count_no_undefined_cell() -> None:
    one = sr.from_product(torch.arange(4) + 1, *[sr.Partition.from_lengths([2])] * 2)
    cut = born(one)[:, 2:]
    assert cut.to_dense(-5, max_lengths=2).tolist() == one[:, 2:].to_dense(-5, max_lengths=2).tolist()
    assert 1 not in cut
    written = born(one)
    written[:, 2:] = -9
    assert written.tolist() == one.tolist()
    two = sr.from_product(torch.arange(1, 9), sr.Partition.from_lengths([1, 3]), sr.Partition.from_lengths([2, 2]))
    assert sr.concat([born(two)[:, 2:]] * 2).tolist() == sr.concat([two[:, 2:]] * 2).tolist()
    assert born(one).flat().tolist() == one.flat().tolist()


def test_nothing_undefined_leaves() -> None:
    x = sr.ragged([[1.0], [2.0]])
    assert sr.to_jagged(born(x))[0].tolist() == [[1.0], [2.0]]
    assert sr.roll(born(x), 1).tolist() == [[2.0], [1.0]]
    assert sr.repeat(born(x), 2).tolist() == [1.0, 1.0, 2.0, 2.0]
    assert sr.concat([born(x)], axis=None).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="one element"):
        born(sr.ragged([[]], dtype=torch.float32), spare=1).item()
    product = sr.testing.device_born(sr.from_product(torch.arange(4), *[sr.Partition.from_lengths([2])] * 2))
    with pytest.raises(RaggednessError, match="cuts 4 values, but values has 9 rows"):
        sr.from_product(torch.arange(9), *product.partitions)


def test_reversing_rows_shares_their_partition() -> None:
    x = chain(ROWS).x
    assert sr.flip(x, axis=1).partitions[0] is x.partitions[0]
    assert sr.roll(x, 1, axis=1).partitions[0] is x.partitions[0]
