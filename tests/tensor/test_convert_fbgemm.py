"""FBGEMM: its jagged operators agree with to_dense and from_dense, and its triples convert both ways."""

from __future__ import annotations

import fbgemm_gpu  # noqa: F401 (registers torch.ops.fbgemm)
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.tensor.structures import chains, nest, numbers

import serrate as sr

FLOATS = [torch.float32, torch.float16, torch.bfloat16]  # FBGEMM's CPU kernel has no float64


@st.composite
def jagged(draw, dtypes=(torch.float32,)):
    """Triples FBGEMM takes (2-D values, at least one row), with max lengths below, at and above the longest."""
    chain = draw(chains(max_levels=3, dtypes=dtypes, max_features=0))
    assume(chain.lengths[0])
    features = draw(st.integers(1, 3))
    x = sr.from_offsets(numbers(chain.x.numel(), features, dtype=chain.x.dtype), list(chain.x.partitions))
    return x, [draw(st.integers(1, 4)) for _ in chain.lengths]


@given(jagged(dtypes=FLOATS), st.sampled_from([0.0, -1.0, 7.5]))
def test_to_dense_equals_jagged_to_padded_dense(given_, padding):
    x, max_lengths = given_
    values, offsets, _ = sr.to_jagged(x)
    theirs = torch.ops.fbgemm.jagged_to_padded_dense(values, offsets, max_lengths, padding)
    assert torch.equal(x.to_dense(padding, max_lengths=max_lengths).torch(), theirs)


@given(jagged())
def test_to_dense_without_truncation(given_):
    x, _ = given_
    values, offsets, max_lengths = sr.to_jagged(x)
    assume(min(max_lengths) > 0)
    theirs = torch.ops.fbgemm.jagged_to_padded_dense(values, offsets, max_lengths, 0.0)
    assert torch.equal(x.to_dense().torch(), theirs)


@given(jagged())
def test_from_dense_equals_dense_to_jagged(given_):
    x, max_lengths = given_
    dense = numbers(len(x), *max_lengths, x.shape[-1])
    theirs, _ = torch.ops.fbgemm.dense_to_jagged(dense, list(x.offsets))
    for made in (
        sr.from_dense(dense, offsets=list(x.offsets)),
        sr.from_dense(dense, lengths=list(x.lengths)),
        sr.from_dense(dense, like=x),
    ):
        assert torch.equal(made.values, theirs)
        assert made.shape == x.shape


@given(jagged())
def test_gradients_agree(given_):
    x, max_lengths = given_
    values, offsets, _ = sr.to_jagged(x)
    mine, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()
    weight = numbers(len(x), *max_lengths, values.shape[1])
    (x._with(mine).to_dense(max_lengths=max_lengths).torch() * weight).sum().backward()
    (torch.ops.fbgemm.jagged_to_padded_dense(theirs, offsets, max_lengths, 0.0) * weight).sum().backward()
    assert torch.equal(mine.grad, theirs.grad)


@given(chains(max_levels=3, max_features=3))
def test_triples_round_trip(chain):
    values, offsets, max_lengths = sr.to_jagged(chain.x)
    assert values.ndim == 2
    assert values.shape[0] == chain.x.values.shape[0]
    assert max_lengths == [max(level, default=0) for level in chain.lengths]
    back = sr.from_jagged(values, offsets, max_lengths)
    assert back.partitions[-1].same_as(chain.x.partitions[-1])
    assert torch.equal(back.values.reshape(chain.x.values.shape), chain.x.values)
    assert back.tolist() == nest(chain.lengths, values.tolist())


def test_one_dimensional_values_get_one_feature():
    values, offsets, max_lengths = sr.to_jagged(sr.ragged([[1.0, 2.0], [], [3.0]]))
    assert values.tolist() == [[1.0], [2.0], [3.0]]
    assert [o.tolist() for o in offsets] == [[0, 2, 2, 3]]
    assert max_lengths == [2]


def test_values_are_not_copied():
    values, offsets = numbers(3, 2), torch.tensor([0, 2, 3])
    x = sr.from_jagged(values, [offsets], [2])
    assert x.values.data_ptr() == values.data_ptr()
    assert sr.to_jagged(x)[0].data_ptr() == values.data_ptr()


def test_max_lengths_above_the_longest_are_taken_and_below_refused():
    values, offsets = numbers(3, 2), [torch.tensor([0, 2, 3])]
    assert sr.from_jagged(values, offsets, [9]).shape == (2, sr.Ragged([2, 1]), 2)
    with pytest.raises(sr.errors.RaggednessError, match=r"level 0 .*row of 2 .*max length 1"):
        sr.from_jagged(values, offsets, [1])
    with pytest.raises(sr.errors.RaggednessError, match=r"one entry per level, 1, got \[2, 2\]"):
        sr.from_jagged(values, offsets, [2, 2])


@pytest.mark.parametrize(
    "x",
    [
        sr.asarray([[1.0]]),
        sr.from_lengths(numbers(3, 2), [1, 2]).mT,
        sr.from_product(torch.ones(6), sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 0])),
        sr.view_as_nested(numbers(2, 3), torch.tensor([[0, 1, 3], [0, 3, 3]]), 1),
    ],
)
def test_what_fbgemm_cannot_hold_is_refused(x):
    with pytest.raises(sr.errors.RaggednessError, match="FBGEMM"):
        sr.to_jagged(x)
