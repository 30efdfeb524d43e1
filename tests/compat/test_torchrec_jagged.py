"""serrate.compat.torchrec.JaggedTensor does what TorchRec's does, and says no where that one keeps silent."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from tests.compat.torchrec_pairs import random_jagged, same, same_jagged
from torch.utils import _pytree as pytree
from torchrec.sparse import jagged_tensor as real

import serrate as sr
from serrate.compat.torchrec import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from serrate.errors import RaggednessError

each_pair = pytest.mark.parametrize(
    "pair",
    [
        lambda: random_jagged(5, weighted=True, dtype=torch.int32),
        lambda: random_jagged(5, weighted=False),
        lambda: random_jagged(1, weighted=True, features=(3,), seed=3),
        lambda: random_jagged(4, weighted=False, features=(2,), dtype=torch.int32, seed=1),
    ],
    ids=["int32 weighted", "int64", "one row of features", "features"],
)


@each_pair
def test_methods_give_what_torchrec_gives(pair):
    one, other = pair()
    same_jagged(one, other)
    same(one.weights_or_none() is None, other.weights_or_none() is None)
    for length in (None, 2, 7, 0):
        same(one.to_padded_dense(length, -1.5), other.to_padded_dense(length, -1.5))
        if other.weights_or_none() is not None:
            same(one.to_padded_dense_weights(length, 2.0), other.to_padded_dense_weights(length, 2.0))
    if other.weights_or_none() is None:
        assert one.to_padded_dense_weights() is None
        assert one.to_dense_weights() is None
    same_jagged(one.to("cpu"), other.to("cpu"))
    same_jagged(JaggedTensor.from_torchrec(other), other)
    same(one.to_torchrec().to_dense(), other.to_dense())
    same(one.to_torchrec().weights_or_none(), other.weights_or_none())


def test_by_offsets_and_by_both():
    values, offsets = torch.arange(4.0), torch.tensor([0, 2, 2, 4], dtype=torch.int32)
    same_jagged(JaggedTensor(values, offsets=offsets), real.JaggedTensor(values, offsets=offsets))
    same_jagged(
        JaggedTensor(values, lengths=offsets.diff(), offsets=offsets),
        real.JaggedTensor(values, lengths=offsets.diff(), offsets=offsets),
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_from_dense_lengths(weighted, dtype):
    values, lengths = torch.randn(4, 3, 2), torch.tensor([3, 0, 1, 2], dtype=dtype)
    weights = torch.rand(4, 3) if weighted else None
    one = JaggedTensor.from_dense_lengths(values, lengths, weights)
    same_jagged(one, real.JaggedTensor.from_dense_lengths(values, lengths, weights))


def test_from_dense():
    values = [torch.randn(2, 3), torch.randn(0, 3), torch.randn(1, 3)]
    weights = [torch.rand(2), torch.rand(0), torch.rand(1)]
    same_jagged(JaggedTensor.from_dense(values, weights), real.JaggedTensor.from_dense(values, weights))
    same_jagged(JaggedTensor.from_dense(values), real.JaggedTensor.from_dense(values))


def test_empty_has_no_rows():
    options = {"is_weighted": True, "values_dtype": torch.int64, "weights_dtype": torch.float64}
    one, other = JaggedTensor.empty(**options), real.JaggedTensor.empty(**options)
    for name in ("values", "weights", "lengths", "to_dense", "to_dense_weights"):
        same(getattr(one, name)(), getattr(other, name)())
    assert one.offsets().tolist() == [0]  # TorchRec has no offset at all here
    assert one.offsets().dtype == torch.int32
    assert one.to_padded_dense().shape == (0, 0)
    same(JaggedTensor.empty().values(), real.JaggedTensor.empty().values())
    made = JaggedTensor(
        torch.empty(0), lengths=torch.tensor([]), offsets=torch.tensor([])
    )  # as TorchRec's empty() does
    assert made.to_dense() == []


def test_empty_like():
    one, other = random_jagged(3, weighted=True, dtype=torch.int32)
    small = JaggedTensor.empty_like(one)
    for name in ("values", "weights", "lengths"):
        same(getattr(small, name)(), getattr(real.JaggedTensor.empty_like(other), name)())
    large = JaggedTensor.empty_like(one, torch.device("cpu"))
    same(large.lengths(), one.lengths())
    assert large.values().shape == one.values().shape
    assert large.values().data_ptr() != one.values().data_ptr()
    assert JaggedTensor.empty_like(one, torch.device("meta")).values().is_meta


def test_copy_overwrites_memory_and_takes_the_rows():
    one = JaggedTensor(torch.arange(3.0), torch.rand(3), lengths=torch.tensor([2, 1]))
    memory = one.values()
    other = JaggedTensor(torch.tensor([5.0, 6.0, 7.0]), torch.ones(3), lengths=torch.tensor([0, 3]))
    assert one.copy_(other) is one
    assert memory.tolist() == [5.0, 6.0, 7.0]
    assert one.weights().tolist() == [1.0, 1.0, 1.0]
    assert one.lengths().tolist() == [0, 3]
    with pytest.raises(ValueError, match="one shape"):
        one.copy_(JaggedTensor(torch.ones(4), torch.ones(4), lengths=torch.tensor([4])))
    with pytest.raises(ValueError, match="weights on both sides"):
        one.copy_(JaggedTensor(torch.ones(3), lengths=torch.tensor([3])))


def test_gradients_reach_values_and_weights():
    values = torch.randn(4, requires_grad=True)
    weights = torch.rand(4, requires_grad=True)
    lengths = torch.tensor([3, 0, 1])
    found = []
    for kind in (JaggedTensor, real.JaggedTensor):
        jt = kind(values, weights, lengths)
        loss = (jt.to_padded_dense(2) ** 2).sum() + (jt.to_padded_dense_weights(padding_value=3.0) ** 3).sum()
        loss = loss + sum(row.exp().sum() for row in jt.to_dense())
        found.append(torch.autograd.grad(loss, (values, weights)))
    torch.testing.assert_close(found[0], found[1])


def test_the_tensor_inside():
    one, _ = random_jagged(3, weighted=True)
    assert isinstance(one.tensor, sr.Tensor)
    assert one.weight_tensor.partitions[0] is one.tensor.partitions[0]
    assert one.values() is one.tensor.values
    assert JaggedTensor.from_tensor(one.tensor, one.weight_tensor).weights() is one.weights()
    assert JaggedTensor.from_tensor(one.tensor, one.weights()).lengths().tolist() == one.lengths().tolist()
    with pytest.raises(RaggednessError, match=r"must be \[rows, ragged"):
        JaggedTensor.from_tensor(sr.ragged([[[1], []], [[2]]]))
    with pytest.raises(RaggednessError, match="differ in raggedness"):
        JaggedTensor.from_tensor(sr.ragged([[1], [2, 3]]), sr.ragged([[1, 2], [3]]))


def test_sizes_and_streams():
    one, other = random_jagged(3, weighted=True)
    values, offsets = one.values(), one.offsets()
    assert one.size_in_bytes() == values.nbytes + one.weights().nbytes + offsets.nbytes
    other.offsets()
    assert other.size_in_bytes() - one.size_in_bytes() == other.lengths().nbytes  # TorchRec stores lengths as well
    same(one.lengths_or_none(), one.lengths())
    same(one.offsets_or_none(), one.offsets())


WRONG = [
    (lambda: JaggedTensor(torch.ones(3)), ValueError, "lengths or offsets"),
    (lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([1, 1])), RaggednessError, "3"),
    (lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([4, -1])), RaggednessError, "0 or more"),
    (lambda: JaggedTensor(torch.ones(3), offsets=torch.tensor([0, 3, 2])), RaggednessError, "never decrease"),
    (lambda: JaggedTensor(torch.ones(3), offsets=torch.tensor([1, 3])), RaggednessError, "0"),
    (lambda: JaggedTensor(torch.ones(3), offsets=torch.tensor([0, 2])), RaggednessError, "3"),
    (lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([1.0, 2.0])), TypeError, "integers"),
    (lambda: JaggedTensor(torch.ones(3), lengths=[1, 2]), TypeError, "lengths must be a torch.Tensor"),
    (lambda: JaggedTensor(torch.ones(()), lengths=torch.tensor([1])), RaggednessError, "0-d"),
    (lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([3], device="meta")), RaggednessError, "lie on meta"),
    (lambda: JaggedTensor(torch.ones(3), torch.ones(3, device="meta"), torch.tensor([3])), RuntimeError, "weights lie"),
    (lambda: JaggedTensor([1, 2, 3], lengths=torch.tensor([3])), TypeError, "values of a JaggedTensor"),
    (lambda: JaggedTensor(torch.ones(3), torch.ones(2), torch.tensor([3])), RaggednessError, "each of the 3 values"),
    (lambda: JaggedTensor(torch.ones(3), torch.ones(()), torch.tensor([3])), RaggednessError, "each of the 3 values"),
    (lambda: JaggedTensor(torch.ones(3), [1, 2, 3], torch.tensor([3])), TypeError, "weights must be"),
    (
        lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([1, 2]), offsets=torch.tensor([0, 2, 3])),
        RaggednessError,
        "lengths and offsets must agree",
    ),
    (
        lambda: JaggedTensor.from_dense_lengths(torch.ones(2, 2), torch.tensor([1, 3])),
        RaggednessError,
        "must not exceed the 2 columns",
    ),
    (lambda: JaggedTensor.from_dense([torch.ones(2)], [torch.ones(1)]), RaggednessError, "differ in raggedness"),
    (lambda: JaggedTensor.from_dense([]), ValueError, "at least one row"),
    (lambda: JaggedTensor(torch.ones(3), lengths=torch.tensor([3])).weights(), ValueError, "has no weights"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_pickles_and_copies(weighted):
    one, other = random_jagged(4, weighted=weighted, dtype=torch.int32)
    doubled = pytree.tree_map(lambda leaf: leaf * 2, one)
    same(doubled.values(), other.values() * 2)
    same(doubled.lengths(), other.lengths())
    if weighted:
        same(doubled.weights(), other.weights() * 2)
    leaves, spec = pytree.tree_flatten(one)
    assert len(leaves) == 1 + weighted
    assert spec == pytree.tree_flatten(copy.copy(one))[1]
    assert pytree.tree_map(lambda leaf: "anything", one).values() == "anything"
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(one)[0]]
    assert paths == [".values", ".weights"][: 1 + weighted]
    same_jagged(pickle.loads(pickle.dumps(one)), other)
    same_jagged(copy.deepcopy(one), other)
    file = io.BytesIO()
    torch.save(one, file)
    file.seek(0)
    same_jagged(torch.load(file, weights_only=True), other)


def test_a_bad_pickle_is_refused():
    function, state = JaggedTensor(torch.ones(2), torch.ones(2), torch.tensor([2])).__reduce__()
    with pytest.raises(RaggednessError, match="one of"):
        function("Something", *state[1:])
    with pytest.raises(RaggednessError, match="each of the 2 values"):
        function(state[0], state[1], torch.ones(3))


def test_text_shows_rows_and_weights():
    jt = JaggedTensor(torch.tensor([1, 2, 3]), torch.tensor([0.5, 0.25, 4.0]), lengths=torch.tensor([2, 1]))
    for part in ("JaggedTensor", "'values'", "'weights'", "[1, 2]", "0.5", "Ragged([2, 1])"):
        assert part in repr(jt)
    assert "weights" not in repr(JaggedTensor(torch.arange(3), lengths=torch.tensor([2, 1])))


# What TorchRec's classes have and ours do not, and why.
LACKING = {
    "JaggedTensor": {},
    "KeyedTensor": {},
    "KeyedJaggedTensor": {
        "clear_storage": "leaves an object whose tensors cannot be read; `del kjt` frees the memory",
        "dist_init": "part of the exchange between ranks",
        "dist_labels": "part of the exchange between ranks",
        "dist_splits": "part of the exchange between ranks",
        "dist_tensors": "part of the exchange between ranks",
    },
}


@pytest.mark.parametrize("kind", [JaggedTensor, KeyedJaggedTensor, KeyedTensor])
def test_public_methods_that_are_not_offered(kind):
    theirs = {name for name in dir(getattr(real, kind.__name__)) if not name.startswith("_")}
    assert theirs - set(dir(kind)) == set(LACKING[kind.__name__])
