"""Partition: making one, what it derives and remembers, equality, and when the host has to wait for a device."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import serrate as sr
from serrate.errors import RaggednessError, SyncError

P = sr.Partition
CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(0, 4), max_size=6)


class NoTorch(TorchDispatchMode):
    """A context in which no torch operation may run."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} ran")


def born(lengths, spare=0, dtype=torch.int64):
    """A partition as if its lengths had been computed on a device."""
    x = sr.from_lengths(torch.zeros(sum(lengths)), torch.tensor(lengths, dtype=dtype))
    return sr.testing.device_born(x, spare).partitions[0]


# ---------------------------------------------------------------------------------------------------- making one


@given(LENGTHS)
def test_all_constructors_agree(lengths):
    total = sum(lengths)
    offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    ids = [c for c, n in enumerate(lengths) for _ in range(n)]
    positions = [i for n in lengths for i in range(n)]
    for p in (
        P.from_lengths(lengths),
        P.from_lengths(torch.tensor(lengths, dtype=torch.int64), total),
        P.from_offsets(offsets),
        P.from_offsets(torch.tensor(offsets), total),
        P.from_offsets(np.array(offsets), total),
        P.from_row_ids(ids, len(lengths)),
        P.from_row_ids(torch.tensor(ids, dtype=torch.int64), len(lengths)),
    ):
        assert (p.num_components, p.num_values, p.total) == (len(lengths), total, total)
        assert p.offsets.tolist() == offsets
        assert p.lengths.tolist() == lengths
        assert p.row_ids_on(CPU).tolist() == ids
        assert p.positions_on(CPU).tolist() == positions
        assert p.max_length == p.max_length_bound == max(lengths, default=0)
        assert p.is_host_born
        assert p.uniform_length is None
        assert p.dtype == torch.int64
        assert p.home == CPU


@given(LENGTHS)
def test_int32_is_kept(lengths):
    offsets = torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32)
    ids = torch.tensor([c for c, n in enumerate(lengths) for _ in range(n)], dtype=torch.int32)
    for p in (
        P.from_offsets(offsets),
        P.from_lengths(torch.diff(offsets)),
        P.from_lengths(np.array(lengths, np.int32)),
        P.from_row_ids(ids, len(lengths)),
    ):
        assert p.dtype == p.offsets.dtype == p.lengths.dtype == torch.int32
        assert p.offsets.tolist() == offsets.tolist()
        assert p.row_ids_on(CPU).dtype == p.positions_on(CPU).dtype == torch.int64
        assert p.row_ids_on(CPU).tolist() == ids.tolist()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8, torch.uint16, torch.uint32])
def test_other_integers_become_int64(dtype):
    p = P.from_lengths(torch.tensor([2, 0, 3]).to(dtype))
    assert p.offsets.dtype == torch.int64
    assert p.offsets.tolist() == [0, 2, 2, 5]


@given(st.integers(0, 4), st.integers(0, 4), st.sampled_from([torch.int32, torch.int64]))
def test_uniform(count, length, dtype):
    p = P.uniform(count, length, dtype=dtype)
    assert p.lengths.tolist() == [length] * count
    assert (p.num_components, p.num_values, p.uniform_length, p.dtype) == (count, count * length, length, dtype)
    assert P.from_lengths([length] * count).uniform_length is None  # declared, never guessed
    assert p.same_as(P.from_lengths([length] * count))


def test_uniform_widens_when_int32_would_overflow():
    assert P.uniform(2, 2**30, dtype=torch.int32).offsets.tolist() == [0, 2**30, 2**31]


@given(LENGTHS, st.data())
def test_slice(lengths, data):
    p = P.from_lengths(torch.tensor(lengths, dtype=data.draw(st.sampled_from([torch.int32, torch.int64]))))
    start = data.draw(st.integers(0, len(lengths)))
    stop = data.draw(st.integers(start, len(lengths)))
    cut = p.slice(start, stop)
    assert cut.lengths.tolist() == lengths[start:stop]
    assert cut.num_values == cut.total == sum(lengths[start:stop])
    assert int(cut.offsets[0]) == 0
    assert cut.dtype == p.dtype
    assert p.span(start, stop) == (sum(lengths[:start]), sum(lengths[:stop]))
    assert p.slice(0, len(lengths)) is p


def test_no_constructor_by_hand():
    with pytest.raises(TypeError, match="from_offsets, from_lengths, from_row_ids or uniform"):
        P()


def test_a_bound_on_the_longest_length_is_kept():
    assert P.from_offsets([0, 2, 5], max_length_bound=4).max_length_bound == 3  # the host knows better
    assert born([2, 3], spare=1).max_length_bound == 6


# ---------------------------------------------------------------------------------------------------- derived once


@pytest.mark.parametrize("make", [lambda: P.from_lengths([2, 0, 3]), lambda: born([2, 0, 3])])
def test_each_derived_tensor_is_computed_once(make):
    p = make()
    meta = torch.device("meta")
    for ask in (
        lambda: p.offsets,
        lambda: p.lengths,
        lambda: p.lengths_on(CPU),
        lambda: p.row_ids_on(CPU),
        lambda: p.positions_on(CPU),
        lambda: p.host_offsets(),
        lambda: p.offsets_on(meta),
        lambda: p.lengths_on(meta),
    ):
        first = ask()
        with NoTorch():
            assert ask() is first
    assert p.max_length == 3
    with NoTorch():
        assert p.max_length == 3


def test_tensors_share_what_was_derived():
    p = P.from_lengths([2, 1])
    x, y = sr.from_offsets(torch.zeros(3), p), sr.from_offsets(torch.ones(3, 4), p)
    assert x.partitions[0] is y.partitions[0] is p
    assert x.lengths[0] is y.lengths[0]


# ---------------------------------------------------------------------------------------------------- immutable


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_later_writes_to_given_tensors_do_not_show(dtype):
    offsets = torch.tensor([0, 2, 2, 5], dtype=dtype)
    lengths = torch.tensor([2, 0, 3], dtype=dtype)
    made = [P.from_offsets(offsets), P.from_offsets(offsets.numpy()), P.from_lengths(lengths)]
    made += [P.from_lengths(lengths.numpy()), sr.from_offsets(torch.zeros(5), offsets).partitions[0]]
    made += [sr.view_as_nested(torch.zeros(5), offsets).partitions[0], sr.Ragged(lengths).partition]
    offsets.fill_(77)
    lengths.fill_(77)
    for p in made:
        assert p.offsets.tolist() == [0, 2, 2, 5]
        assert p.lengths.tolist() == [2, 0, 3]


def test_later_writes_to_a_wider_tensor_do_not_show():
    whole = torch.tensor([9, 0, 2, 5])
    p, q = P.from_offsets(whole[1:]), P.from_offsets(torch.tensor([0, 9, 2, 9, 5])[::2])
    array = np.array([0, 9, 2, 9, 5])
    r = P.from_offsets(array[::2])
    whole.fill_(77)
    array.fill(77)
    assert p.offsets.tolist() == q.offsets.tolist() == r.offsets.tolist() == [0, 2, 5]


def test_without_a_copy_the_memory_is_shared():
    offsets = torch.tensor([0, 2, 5])
    assert P.from_offsets(offsets, copy=False).offsets.data_ptr() == offsets.data_ptr()
    assert P.from_offsets(offsets).offsets.data_ptr() != offsets.data_ptr()
    x = sr.from_offsets(torch.zeros(5), offsets, copy=False)
    assert x.offsets[0].data_ptr() == offsets.data_ptr()


@pytest.mark.parametrize("name", ["num_components", "num_values", "offsets", "lengths", "uniform_length", "dtype"])
def test_attributes_cannot_be_set(name):
    p = P.from_lengths([2, 3])
    with pytest.raises(AttributeError):
        setattr(p, name, 7)


def test_copies_are_the_same_and_pickles_equal():
    p = P.from_lengths(torch.tensor([2, 0, 3], dtype=torch.int32))
    assert copy.copy(p) is p
    assert copy.deepcopy(p) is p
    back = pickle.loads(pickle.dumps(p))
    assert back.same_as(p)
    assert back.dtype == torch.int32
    assert pickle.loads(pickle.dumps(P.uniform(3, 2))).uniform_length == 2


def test_repr_is_short():
    assert repr(P.from_lengths([3, 5, 2])) == "Partition([3, 5, 2])"
    assert repr(P.from_lengths(range(1000))) == "Partition([0, 1, 2, …, 997, 998, 999])"


# ---------------------------------------------------------------------------------------------------- equality


@given(LENGTHS, LENGTHS)
def test_same_as_is_equality_of_lengths(left, right):
    assert P.from_lengths(left).same_as(P.from_lengths(right)) == (left == right)
    assert P.from_lengths(left).same_as(P.from_lengths(list(left)))


def test_same_as_tells_components_values_and_offsets_apart():
    p = P.from_lengths([2, 3])
    assert not p.same_as(P.from_lengths([2, 3, 0]))
    assert not p.same_as(P.from_lengths([2, 4]))
    assert not p.same_as(P.from_lengths([3, 2]))
    assert p.same_as(P.from_lengths(torch.tensor([2, 3], dtype=torch.int32)))


def test_a_found_equality_is_remembered_and_passed_on():
    a, b, c, d = (P.from_lengths([2, 3]) for _ in range(4))
    assert a.same_as(b)
    assert c.same_as(d)
    assert b.same_as(d)
    with NoTorch():
        for left in (a, b, c, d):
            for right in (a, b, c, d):
                assert left.same_as(right)


def test_a_difference_is_no_memory_of_equality():
    a, b, c = P.from_lengths([2, 3]), P.from_lengths([2, 3]), P.from_lengths([3, 2])
    assert a.same_as(b)
    assert not a.same_as(c)
    assert not c.same_as(b)
    assert not a.same_as(c)


def test_equality_never_waits():
    p, q, host = born([2, 3]), born([2, 3]), P.from_lengths([2, 3])
    with sr.testing.forbid_sync():
        assert p.same_as(q)
        assert p.same_as(host)
        assert host.same_as(q)
        assert not p.same_as(born([2, 3, 0]))
        assert not host.same_as(born([2, 4]))
    with NoTorch():
        assert q.same_as(p)


def test_device_born_partitions_of_other_sizes_differ_now():
    assert not born([2, 3]).same_as(born([2, 4]))
    assert not born([2, 3]).same_as(born([2, 3], spare=1))
    assert not born([2, 3], spare=1).same_as(P.from_lengths([2, 3]))


def test_device_born_partitions_that_differ_are_reported_each_time():
    p, q = born([2, 3]), born([3, 2])
    for _ in range(2):
        with pytest.raises(RaggednessError, match=r"offset 1 is 2 .* 3 .*\[2, 3\] and \[3, 2\]"):
            p.same_as(q)  # the CPU plays the device, so the deferred comparison answers at once


# ---------------------------------------------------------------------------------------------------- waiting


def test_what_needs_no_host_number_never_waits():
    p = born([2, 0, 3], spare=2)
    with sr.testing.forbid_sync():
        assert (p.num_components, p.num_values, p.max_length_bound) == (3, 7, 7)
        assert p.offsets.tolist() == [0, 2, 2, 5]
        assert p.lengths.tolist() == [2, 0, 3]
        assert p.row_ids_on(CPU)[:5].tolist() == [0, 0, 2, 2, 2]
        assert p.positions_on(CPU)[:5].tolist() == [0, 1, 0, 1, 2]
        assert p.row_ids_on(CPU).shape == p.positions_on(CPU).shape == (7,)
        assert int(p.row_ids_on(CPU).max()) <= 2
        assert p.slice(0, 3) is p
        assert p.dtype == torch.int64


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: p.max_length,
        lambda p: p.total,
        lambda p: p.host_offsets(),
        lambda p: p.slice(1, 2),
        lambda p: p.span(1, 2),
    ],
)
def test_host_numbers_wait_once(ask):
    p = born([2, 0, 3])
    with sr.testing.forbid_sync(), pytest.raises(SyncError, match=r"wait for cpu, which forbid_sync\(\)"):
        ask(p)
    p.host_offsets()
    with sr.testing.forbid_sync():
        ask(p)


def test_host_born_partitions_answer_without_waiting():
    with sr.testing.forbid_sync():
        p = P.from_lengths([2, 0, 3])
        assert (p.max_length, p.total, p.span(1, 3)) == (3, 5, (2, 5))
        assert p.slice(1, 3).lengths.tolist() == [0, 3]


def test_forbid_sync_ends_with_its_context():
    p = born([2, 0, 3])
    with pytest.raises(KeyError), sr.testing.forbid_sync():
        raise KeyError
    assert p.max_length == 3


def test_writing_to_offsets_is_noticed_and_to_lengths_harmless():
    """torch's repeat_interleave writes as many entries as lengths say, wherever that is."""
    p = sr.Partition.from_lengths([2, 1, 3])
    p.offsets[1] = 100_000
    with pytest.raises(RuntimeError, match="written to after they were checked"):
        p.row_ids  # noqa: B018
    p = sr.Partition.from_lengths([2, 1, 3])
    p.lengths[0] = 100_000
    assert p.row_ids.tolist() == [0, 0, 1, 2, 2, 2]
    assert p.spread(torch.tensor([5, 6, 7])).tolist() == [5, 5, 6, 7, 7, 7]
