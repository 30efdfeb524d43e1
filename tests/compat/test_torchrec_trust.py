"""What is handed out cannot change rows, what is kept stays right, and wrong calls of keyed tensors are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchrec
from tests.compat.torchrec_pairs import KEYS, random_jagged, random_keyed, same_keyed

from serrate.compat.torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
)
from serrate.errors import RaggednessError


@pytest.mark.parametrize("method", ["offsets", "lengths"])
def test_writing_to_what_is_handed_out_changes_no_rows(method):
    jagged, keyed = random_jagged(5, weighted=True)[0], random_keyed(4, weighted=True)[0]
    for one in (jagged, keyed, keyed["item"], keyed.split([1, 2])[1], keyed.permute([2, 0])):
        before, sums = one.tensor.tolist(), one.tensor.sum(-1).tolist()
        handed = getattr(one, method)()
        assert getattr(one, method)() is handed
        handed.fill_(10**6)
        assert one.tensor.tolist() == before
        assert one.tensor.sum(-1).tolist() == sums
    keyed = random_keyed(4)[0]
    before = keyed["tag"].to_dense()
    keyed.offsets().add_(5)
    assert [row.tolist() for row in keyed["tag"].to_dense()] == [row.tolist() for row in before]


def test_what_is_known_is_kept_until_it_is_overwritten():
    one, other = random_keyed(4, seed=1)
    first = one.to_dict()
    assert one.to_dict()["item"] is first["item"] is one["item"]
    first.clear()
    one.length_per_key().clear()
    one.offset_per_key().clear()
    one.stride_per_key().clear()
    one.lengths_offset_per_key().clear()
    same_keyed(one, other)
    lengths, handed = one.lengths().flip(0), one.lengths()
    theirs = torchrec.KeyedJaggedTensor(KEYS, one.values().clone(), lengths=lengths)
    one.copy_(KeyedJaggedTensor(KEYS, one.values().clone(), lengths=lengths))
    same_keyed(one, theirs)
    assert handed.tolist() == lengths.flip(0).tolist()  # it belongs to whoever asked
    rows = JaggedTensor(torch.arange(3), lengths=torch.tensor([1, 2]))
    rows.offsets()
    rows.copy_(JaggedTensor(torch.arange(3), lengths=torch.tensor([3, 0])))
    assert (rows.offsets().tolist(), rows.lengths().tolist()) == ([0, 3, 3], [3, 0])


def test_views_made_without_gradients_are_not_kept_for_those_who_want_them():
    weights = torch.rand(4)
    keyed = KeyedJaggedTensor(["a", "b"], torch.arange(4), weights, lengths=torch.tensor([1, 3]))
    keyed.to_dict()
    weights.requires_grad_()
    with torch.no_grad():
        keyed.to_dict()
    for found in (keyed.to_dict()["b"], keyed["b"]):
        (gradient,) = torch.autograd.grad(found.weights().sum(), weights)
        assert gradient.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_offsets_of_joined_keys_are_the_widest():
    narrow, their_narrow = random_keyed(3, keys=["a"], dtype=torch.int32)
    wide, their_wide = random_keyed(3, keys=["b"], dtype=torch.int64)
    for mine, theirs in (([narrow, wide], [their_narrow, their_wide]), ([wide, narrow], [their_wide, their_narrow])):
        same_keyed(KeyedJaggedTensor.concat(mine), torchrec.KeyedJaggedTensor.concat(theirs))


def test_what_is_made_in_inference_mode_serves_training():
    table = EmbeddingBagConfig(num_embeddings=10, embedding_dim=2, name="t", feature_names=KEYS)
    bags, keyed = EmbeddingBagCollection([table], is_weighted=True), random_keyed(3, weighted=True)[0]
    with torch.inference_mode():
        expected = bags(keyed).values()
        pieces = keyed.split([1, 2])
        keyed.lengths()
    made = bags(keyed).values()
    made.sum().backward()
    torch.testing.assert_close(made.detach(), expected.clone())
    assert not keyed.lengths().is_inference()
    assert not pieces[1].offsets().is_inference()


@pytest.mark.parametrize("strides", [None, [[3], [0], [2]]])
def test_gradients_of_permuted_keys(strides):
    def loss(values, weights):
        keyed = KeyedJaggedTensor(KEYS, values, weights, lengths=lengths, stride_per_key_per_rank=strides)
        made = keyed.permute([2, 0])
        return made.values() ** 2 * made.weights()

    lengths = torch.tensor([1, 2, 0, 2, 1]) if strides else torch.tensor([1, 0, 2, 1, 0, 2])
    values = torch.randn(6, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (values, weights))
    assert torch.autograd.gradgradcheck(loss, (values, weights))


def keyed(keys=("a", "b"), **options):
    return KeyedJaggedTensor(list(keys), torch.arange(6), lengths=torch.tensor([2, 0, 1, 3]), **options)


def inverse(names, rows, **options):
    return keyed(inverse_indices=(names, rows), stride_per_key_per_rank=[[1], [3]], **options)


ROWS = torch.tensor([[0, 0], [2, 1]])
WRONG = [
    (lambda: keyed()[torch.tensor(0)], IndexError, r"got a tensor of shape \[\]"),
    (lambda: keyed().select_batch(torch.tensor([[0, 1]])), IndexError, r"shape \[1, 2\]"),
    (lambda: keyed()[[[0], [1]]], TypeError, r"flat list of integers or bools, got \[\[0\], \[1\]\]"),
    (lambda: keyed()[[0.5]], TypeError, r"got \[0.5\]"),
    (lambda: keyed()[[None]], TypeError, r"got \[None\]"),
    (lambda: keyed().permute([0.9]), TypeError, "index of a key must be an integer, got 0.9"),
    (lambda: keyed().permute([True, False]), TypeError, "got True"),
    (lambda: keyed().split([1.5, 0.5]), TypeError, "segment must be an integer, got 1.5"),
    (lambda: keyed(stride=2.0), TypeError, "stride must be an integer, got 2.0"),
    (lambda: keyed(stride="2"), TypeError, "stride must be an integer, got '2'"),
    (lambda: keyed(stride=-1, stride_per_key_per_rank=[[1], [3]]), RaggednessError, "stride must be 0 or more, got -1"),
    (lambda: keyed(stride_per_key_per_rank=[[1.7], [3.2]]), TypeError, "stride_per_key_per_rank must be .* 1.7"),
    (lambda: keyed(stride_per_key=[-1, 5]), RaggednessError, r"stride_per_key must have .* got \[-1, 5\]"),
    (lambda: inverse(["a", "b"], torch.tensor([[0, 1], [2, 1]])), IndexError, "rows 0 … 0 of key 'a', got 1"),
    (lambda: inverse(["b", "a"], torch.tensor([[0, -1], [0, 0]])), IndexError, "rows 0 … 2 of key 'b', got -1"),
    (lambda: inverse(["a", "b"], ROWS.bool()), TypeError, "torch.bool"),
    (lambda: inverse(["a", "b"], ROWS.tolist()), TypeError, "got list"),
    (lambda: inverse(["a", "b"], ROWS[0]), TypeError, r"shape \[2\]"),
    (lambda: inverse(["a", "b", "a"], ROWS[[0, 1, 0]]), ValueError, "'a' is there 2 times"),
    (lambda: inverse(["a", "c"], ROWS), KeyError, "each of the keys"),
    (lambda: keyed(inverse_indices=ROWS), TypeError, "must be a pair"),
    (lambda: KeyedTensor(["a"], [1.9], torch.ones(1, 1)), TypeError, "got 1.9"),
    (lambda: KeyedTensor(["a"], [1], torch.ones(1, 1), 1.0), TypeError, "key_dim must be an integer"),
    (
        lambda: JaggedTensor.from_dense_lengths(torch.ones(2, 3), torch.tensor([1, 2]), torch.ones(2, 2)),
        RaggednessError,
        r"\[2, 3\], got shape \[2, 2\]",
    ),
    (
        lambda: JaggedTensor.from_dense_lengths(torch.ones(2, 3), torch.tensor([1, 2]), torch.ones(3, 3)),
        RaggednessError,
        r"got shape \[3, 3\]",
    ),
    (lambda: KeyedJaggedTensor.concat([keyed().to_torchrec()]), TypeError, "from_torchrec"),
    (lambda: KeyedJaggedTensor.concat_batches([keyed().to_torchrec()]), TypeError, "from_torchrec"),
    (lambda: KeyedJaggedTensor.from_jt_dict({"a": torch.ones(2)}), TypeError, "got torch.Tensor"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_whole_numbers_of_any_kind_are_taken():
    one = keyed(stride=np.int64(2))
    assert one.permute(torch.tensor([1, 0])).keys() == ["b", "a"]
    assert [piece.keys() for piece in one.split(np.array([1, 1]))] == [["a"], ["b"]]
    assert KeyedTensor(["a"], [np.int32(2)], torch.ones(1, 2)).length_per_key() == [2]
    assert inverse(["b", "a"], torch.tensor([[2, 0], [0, 0]], dtype=torch.int32)).stride() == 2
