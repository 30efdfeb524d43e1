"""PackedSequence, both ways: sorted and unsorted, as recurrent networks take and give it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import chains, numbers
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import serrate as sr

LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def rows(lengths, *features):
    return list(numbers(sum(lengths), *features).split(lengths))


@given(LENGTHS, st.lists(st.integers(1, 2), max_size=2))  # torch packs no features of size 0
def test_from_unsorted(lengths, features):
    given_rows = rows(lengths, *features)
    x = sr.from_packed_sequence(pack_sequence(given_rows, enforce_sorted=False))
    assert x.lengths[0].tolist() == lengths
    assert x.tolist() == [row.tolist() for row in given_rows]


@given(LENGTHS.map(lambda lengths: sorted(lengths, reverse=True)))
def test_from_sorted(lengths):
    given_rows = rows(lengths, 2)
    packed = pack_sequence(given_rows)
    assert packed.unsorted_indices is None
    assert sr.from_packed_sequence(packed).tolist() == [row.tolist() for row in given_rows]


@given(LENGTHS)
def test_to_equals_torchs_own_packing(lengths):
    given_rows = rows(lengths, 2)
    mine = sr.from_rows(given_rows).to_packed_sequence()
    theirs = pack_sequence(given_rows, enforce_sorted=False)
    assert isinstance(mine, PackedSequence)
    assert torch.equal(mine.data, theirs.data)
    assert torch.equal(mine.batch_sizes, theirs.batch_sizes)
    assert mine.batch_sizes.dtype == theirs.batch_sizes.dtype
    padded, padded_lengths = pad_packed_sequence(mine, batch_first=True)
    assert padded_lengths.tolist() == lengths
    assert torch.equal(padded, sr.from_rows(given_rows).to_dense().torch())


@given(chains(max_levels=1, min_length=1, dtypes=[torch.float32, torch.int64, torch.bool, torch.float64]))
def test_round_trip(chain):
    back = sr.from_packed_sequence(chain.x.to_packed_sequence())
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape
    assert back.dtype == chain.x.dtype


def test_through_a_recurrent_network():
    network = torch.nn.GRU(3, 4, batch_first=True)
    x = sr.from_rows([torch.randn(n, 3) for n in (2, 5, 1)])
    out, _ = network(x.to_packed_sequence())
    y = sr.from_packed_sequence(out)
    assert y.shape == (3, sr.Ragged([2, 5, 1]), 4)
    for row, made in zip(x.rows(), y.rows(), strict=True):
        torch.testing.assert_close(made.torch(), network(row.torch()[None])[0][0])


def test_gradients_flow_both_ways():
    x = sr.from_lengths(numbers(6), [1, 3, 2]).requires_grad_()
    y = sr.from_packed_sequence(x.to_packed_sequence())
    (y.values * numbers(6)).sum().backward()
    assert torch.equal(x.grad.values, numbers(6))


def test_empty_sequences_are_refused():
    with pytest.raises(ValueError, match="row 1 is empty"):
        sr.from_lengths(torch.ones(2), [2, 0]).to_packed_sequence()
    with pytest.raises(ValueError, match="no rows"):
        sr.from_lengths(torch.ones(0), []).to_packed_sequence()


@pytest.mark.parametrize("x", [sr.ragged([[[1]]]), sr.asarray([1.0]), sr.from_lengths(torch.ones(2, 2), [2]).mT])
def test_other_shapes_are_refused(x):
    with pytest.raises(sr.errors.RaggednessError, match=r"\[B, ragged, …\]"):
        x.to_packed_sequence()


def test_what_is_no_packed_sequence_is_refused():
    with pytest.raises(TypeError, match="PackedSequence, got Tensor"):
        sr.from_packed_sequence(torch.ones(2))


def test_one_long_sequence_among_many_costs_memory_for_its_entries_only():
    lengths = torch.ones(20_000, dtype=torch.int64)
    lengths[7] = 20_000
    x = sr.from_lengths(torch.arange(int(lengths.sum())), lengths)
    back = sr.from_packed_sequence(x.to_packed_sequence())
    assert torch.equal(back.values, x.values)
    assert back.partitions[0].same_as(x.partitions[0])
