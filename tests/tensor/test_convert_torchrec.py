"""TorchRec: KeyedJaggedTensor and JaggedTensor, both ways, weighted or not, the empty ones, strides per key."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import chains, numbers
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

import serrate as sr


def lists(features):
    return {key: x.tolist() for key, x in features.items()}


def kjt(dtype=torch.int64, weights=None):
    lengths = torch.tensor([2, 0, 1, 3], dtype=dtype)
    return KeyedJaggedTensor(keys=["a", "b"], values=numbers(6), lengths=lengths, weights=weights)


A, B = [[1.0, 2.0], []], [[3.0], [4.0, 5.0, 6.0]]


@given(st.data())
def test_round_trip_of_features(data):
    rows = data.draw(st.integers(0, 3))
    one = st.lists(st.integers(0, 3), min_size=rows, max_size=rows)
    features = {}
    for key in data.draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True)):
        lengths = data.draw(one)
        features[key] = sr.from_lengths(numbers(sum(lengths)) + 10 * len(features), lengths)
    made = sr.to_kjt(features)
    assert made.keys() == list(features)
    for key, jt in made.to_dict().items() if rows else ():  # TorchRec's own to_dense() needs a row
        assert [row.tolist() for row in jt.to_dense()] == features[key].tolist()
    back, weights = sr.from_kjt(made)
    assert weights is None
    assert list(back) == list(features)
    assert lists(back) == lists(features)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_without_weights(dtype):
    features, weights = sr.from_kjt(kjt(dtype))
    assert weights is None
    assert lists(features) == {"a": A, "b": B}
    assert all(x.offsets[0].dtype == dtype for x in features.values())
    back = sr.to_kjt(features)
    assert back.lengths().dtype == dtype
    assert back.lengths().tolist() == [2, 0, 1, 3]
    assert torch.equal(back.values(), numbers(6))
    assert back.weights_or_none() is None
    assert back.stride() == 2


def test_with_weights_on_the_same_partitions():
    features, weights = sr.from_kjt(kjt(weights=numbers(6) * 10))
    assert lists(features) == {"a": A, "b": B}
    assert lists(weights) == {"a": [[10.0, 20.0], []], "b": [[30.0], [40.0, 50.0, 60.0]]}
    assert all(weights[key].partitions[0] is features[key].partitions[0] for key in features)
    back = sr.to_kjt(features, weights)
    assert torch.equal(back.weights(), numbers(6) * 10)


def test_features_are_views():
    source = kjt()
    features, _ = sr.from_kjt(source)
    assert features["a"].values.data_ptr() == source.values().data_ptr()
    assert features["b"].values.data_ptr() == source.values()[2:].data_ptr()


def test_offsets_instead_of_lengths():
    source = KeyedJaggedTensor(keys=["a", "b"], values=numbers(6), offsets=torch.tensor([0, 2, 2, 3, 6]))
    assert lists(sr.from_kjt(source)[0]) == {"a": A, "b": B}


def test_the_empty_one():
    assert sr.from_kjt(KeyedJaggedTensor.empty()) == ({}, None)
    assert sr.from_kjt(KeyedJaggedTensor.empty(is_weighted=True)) == ({}, {})
    made = sr.to_kjt({})
    assert made.keys() == []
    assert made.values().numel() == made.lengths().numel() == 0


def test_no_rows():
    none = torch.zeros(0, dtype=torch.int64)
    features, _ = sr.from_kjt(KeyedJaggedTensor(keys=["a", "b"], values=torch.zeros(0), lengths=none))
    assert [x.shape for x in features.values()] == [(0, sr.Ragged([]))] * 2


@pytest.mark.parametrize("strides", [[[1], [2], [1]], [[1, 0], [1, 1], [0, 1]]])
def test_a_stride_of_its_own_per_key(strides):
    lengths = torch.tensor([2, 0, 1, 3])
    source = KeyedJaggedTensor(
        keys=["a", "b", "c"], values=numbers(6), lengths=lengths, stride_per_key_per_rank=strides
    )
    features, _ = sr.from_kjt(source)
    assert lists(features) == {"a": [[1.0, 2.0]], "b": [[], [3.0]], "c": [[4.0, 5.0, 6.0]]}
    back = sr.to_kjt(features)
    assert back.stride_per_key() == [1, 2, 1]
    assert lists(sr.from_kjt(back)[0]) == lists(features)


def test_gradients_flow():
    values = numbers(6).requires_grad_()
    features, _ = sr.from_kjt(KeyedJaggedTensor(keys=["a", "b"], values=values, lengths=torch.tensor([2, 0, 1, 3])))
    sr.to_kjt({"b": features["b"]}).values().mul(2).sum().backward()
    assert values.grad.tolist() == [0, 0, 2, 2, 2, 2]


def test_lengths_that_do_not_add_up_are_refused():
    bad = KeyedJaggedTensor(keys=["a"], values=numbers(6), lengths=torch.tensor([2, 5]))
    with pytest.raises(sr.errors.RaggednessError, match=r"KeyedJaggedTensor.* 6.* 7"):
        sr.from_kjt(bad)


def test_weights_must_match():
    features, weights = sr.from_kjt(kjt(weights=numbers(6)))
    with pytest.raises(KeyError, match=r"\['a', 'b'\], got \['a'\]"):
        sr.to_kjt(features, {"a": weights["a"]})
    with pytest.raises(sr.errors.RaggednessError, match=r"'a' .*Ragged\(\[2, 0\]\).*Ragged\(\[1, 3\]\)"):
        sr.to_kjt(features, {"a": weights["b"], "b": weights["a"]})


def test_deeper_tensors_are_refused_by_key():
    with pytest.raises(sr.errors.RaggednessError, match="feature 'deep'"):
        sr.to_kjt({"deep": sr.ragged([[[1]]])})


@pytest.mark.parametrize("take", [sr.from_kjt, sr.from_jt])
def test_what_is_not_from_torchrec_is_refused(take):
    with pytest.raises(TypeError, match=r"JaggedTensor.*int"):
        take(3)


@given(chains(max_levels=1, dtypes=[torch.float32, torch.int64, torch.int32]))
def test_jagged_tensor_round_trip(chain):
    made = sr.to_jt(chain.x)
    assert made.lengths().tolist() == chain.lengths[0]
    back, weights = sr.from_jt(made)
    assert weights is None
    assert back.tolist() == chain.lists
    assert back.shape == chain.x.shape
    assert back.values.data_ptr() == chain.x.values.data_ptr()
    assert back.offsets[0].dtype == chain.x.offsets[0].dtype


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_jagged_tensor_with_weights(dtype):
    source = JaggedTensor(
        values=numbers(3, 2), lengths=torch.tensor([1, 0, 2], dtype=dtype), weights=torch.tensor([0.5, 1.5, 2.5])
    )
    x, weights = sr.from_jt(source)
    assert x.tolist() == [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]
    assert weights.tolist() == [[0.5], [], [1.5, 2.5]]
    assert weights.partitions[0] is x.partitions[0]
    back = sr.to_jt(x, weights)
    assert back.weights().tolist() == [0.5, 1.5, 2.5]
    assert back.offsets().tolist() == [0, 1, 1, 3]
    assert back.lengths().dtype == dtype


def test_jagged_tensor_empty_and_from_offsets():
    x, weights = sr.from_jt(JaggedTensor.empty())
    assert x.shape == (0, sr.Ragged([]))
    assert weights is None
    assert sr.from_jt(JaggedTensor(values=numbers(3), offsets=torch.tensor([0, 1, 3])))[0].tolist() == [[1], [2, 3]]


def test_undefined_rows_of_a_device_born_tensor_stay_out():
    born = sr.testing.device_born(sr.ragged([[1.0, 2.0], [3.0]]), spare=2)
    made = sr.to_kjt({"a": born, "b": sr.ragged([[4.0], [5.0]])})
    assert lists(sr.from_kjt(made)[0]) == {"a": [[1.0, 2.0], [3.0]], "b": [[4.0], [5.0]]}
    assert sr.from_jt(sr.to_jt(born))[0].tolist() == [[1.0, 2.0], [3.0]]


def test_a_dense_tensor_has_no_lengths_to_give():
    with pytest.raises(ValueError, match="for TorchRec, got shape"):
        sr.to_jt(torch.ones(2))
