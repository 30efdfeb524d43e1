"""serrate.compat.torchrec.KeyedJaggedTensor does what TorchRec's does, and more; what cannot be is refused."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from tests.compat.torchrec_pairs import KEYS, random_keyed, same, same_jagged, same_keyed
from torch.utils import _pytree as pytree
from torchrec.sparse import jagged_tensor as real

import serrate as sr
from serrate.compat.torchrec import JaggedTensor, KeyedJaggedTensor
from serrate.compat.torchrec.strides import Strides
from serrate.errors import RaggednessError
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure

VARIED = [[2, 1], [0, 1], [4, 0]]

CASES = {
    "int64": {},
    "int32 weighted": {"dtype": torch.int32, "weighted": True},
    "one example": {"batch": 1, "seed": 4},
    "one key": {"keys": ["only"], "weighted": True},
    "no keys": {"keys": [], "batch": 0},
    "varied strides": {"strides": VARIED, "weighted": True, "dtype": torch.int32},
    "equal strides per key": {"strides": [[2], [2], [2]]},
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def pair(case):
    return random_keyed(**({"batch": 4} | case))


@each_case
def test_what_it_holds(case):
    one, other = pair(case)
    if not other.keys():
        same(one.to_dict(), {})
        same((one.stride(), one.stride_per_key(), one.length_per_key()), (0, [], []))
        return
    same_keyed(one, other)
    same_keyed(KeyedJaggedTensor.from_torchrec(other), other)
    for key in one.index_per_key():
        same_jagged(one[key], other[key])
    same_keyed(one, one.to_torchrec())
    same(one.sync() is one, True)
    same(one.unsync() is one, True)
    same_keyed(one.flatten_lengths(), other.flatten_lengths())
    same_keyed(one.to("cpu"), other.to("cpu"))


@each_case
def test_keys_are_permuted_and_split(case):
    one, other = pair(case)
    count = len(other.keys())
    for order in ([2, 0, 1], [1], [0, 2], list(range(count))):
        if max(order, default=0) < count:
            same_keyed(one.permute(order), other.permute(order))
    assert one.permute([]).keys() == []
    for segments in ([1, 2], [3], [1, 1, 1], [0, 3, 0], [count]):
        if sum(segments) == count and count:
            for mine, theirs in zip(one.split(segments), other.split(segments), strict=True):
                same(mine.keys(), theirs.keys())
                same(mine.values(), theirs.values())
                same(mine.weights_or_none(), theirs.weights_or_none())
                same(mine.to_dict(), theirs.to_dict() if theirs.keys() else {})
                if not theirs.variable_stride_per_key():
                    same(mine.stride(), theirs.stride())


def test_splits_and_keys_are_views():
    one, _ = random_keyed(4, weighted=True)
    start, memory = one.values().data_ptr(), one.values().element_size()
    assert one.split([1, 2])[1].values().data_ptr() == start + one.offset_per_key()[1] * memory
    assert one["item"].values().data_ptr() == start + one.offset_per_key()[1] * memory


@each_case
def test_by_lengths_and_by_offsets(case):
    one, other = pair(case)
    if not other.keys():
        return
    options = {"weights": other.weights_or_none(), "stride_per_key_per_rank": case.get("strides")}
    for name, cuts in (("from_lengths_sync", other.lengths()), ("from_offsets_sync", other.offsets())):
        mine, theirs = (
            getattr(kind, name)(KEYS[:1] if "keys" in case else KEYS, other.values(), cuts, **options)
            for kind in (KeyedJaggedTensor, real.KeyedJaggedTensor)
        )
        same_keyed(mine, theirs)
    same(one.to_torchrec().stride(), other.stride())


@each_case
def test_dictionaries_and_back(case):
    one, other = pair(case)
    if other.keys():
        same_keyed(KeyedJaggedTensor.from_jt_dict(one.to_dict()), real.KeyedJaggedTensor.from_jt_dict(other.to_dict()))


@each_case
def test_keys_are_concatenated(case):
    one, other = pair(case)
    if not other.keys():
        return
    more, others = pair(case | {"keys": [f"{key} 2" for key in one.index_per_key()], "seed": 7})
    same_keyed(KeyedJaggedTensor.concat([one, more]), real.KeyedJaggedTensor.concat([other, others]))
    same_keyed(KeyedJaggedTensor.concat([one]), real.KeyedJaggedTensor.concat([other]))


def test_no_examples():
    one, other = random_keyed(0, weighted=True)
    with pytest.raises(IndexError):
        other.to_dict()  # TorchRec cannot
    assert {key: jt.to_dense() for key, jt in one.to_dict().items()} == {key: [] for key in KEYS}
    assert one.permute([1, 0]).stride_per_key() == [0, 0]
    assert KeyedJaggedTensor.concat_batches([one, one]).stride() == 0
    assert KeyedJaggedTensor.from_jt_dict(one.to_dict()).keys() == KEYS


def test_uniform_and_varied_strides_go_together():
    one, _ = random_keyed(4, keys=["a"])
    other, _ = random_keyed(4, keys=["b"], strides=[[2]])
    made = KeyedJaggedTensor.concat([one, other])
    assert made.stride_per_key() == [4, 2]
    assert made["b"].tensor.tolist() == other["b"].tensor.tolist()


def test_empty():
    options = {"is_weighted": True, "values_dtype": torch.int64, "lengths_dtype": torch.int64}
    one, other = KeyedJaggedTensor.empty(**options), real.KeyedJaggedTensor.empty(**options)
    for name in ("keys", "values", "weights", "lengths", "stride", "stride_per_key"):
        same(getattr(one, name)(), getattr(other, name)())
    assert one.to_dict() == {}
    one, other = random_keyed(4, weighted=True, dtype=torch.int32)
    small, theirs = KeyedJaggedTensor.empty_like(one), real.KeyedJaggedTensor.empty_like(other)
    for name in ("keys", "values", "weights", "lengths", "stride"):
        same(getattr(small, name)(), getattr(theirs, name)())
    large = KeyedJaggedTensor.empty_like(one, torch.device("cpu"))
    same((large.keys(), large.lengths(), large.stride()), (one.keys(), one.lengths(), one.stride()))
    assert KeyedJaggedTensor.empty_like(random_keyed(4, strides=VARIED)[0]).variable_stride_per_key()


def test_both_and_matrices_of_lengths():
    lengths = torch.tensor([[2, 0], [1, 1]])
    offsets = torch.tensor([0, 2, 2, 3, 4])
    one = KeyedJaggedTensor(["a", "b"], torch.arange(4), lengths=lengths, offsets=offsets)
    assert one.lengths().tolist() == [2, 0, 1, 1]
    assert one.tensor.shape[:2] == (2, 2)
    caches = {
        "stride": 2,
        "stride_per_key": [2, 2],
        "length_per_key": [2, 2],
        "offset_per_key": [0, 2, 4],
        "lengths_offset_per_key": [0, 2, 4],
        "index_per_key": {"a": 0, "b": 1},
    }
    same(
        KeyedJaggedTensor(["a", "b"], torch.arange(4), lengths=lengths, **caches).to_dict()["a"].to_dense()[0].tolist(),
        [0, 1],
    )
    for name, wrong in (("length_per_key", [1, 3]), ("offset_per_key", [0, 1, 4]), ("index_per_key", {"a": 1, "b": 0})):
        with pytest.raises(ValueError, match=name):
            KeyedJaggedTensor(["a", "b"], torch.arange(4), lengths=lengths, **(caches | {name: wrong}))


def test_weights_change_their_dtype_on_the_way():
    one, other = random_keyed(4, weighted=True)
    same_keyed(one.to("cpu", dtype=torch.float64), other.to("cpu", dtype=torch.float64))


def test_copy_overwrites_memory():
    one, other = random_keyed(4, weighted=True)
    values, weights = other.values().clone(), other.weights().clone()
    target = KeyedJaggedTensor(
        KEYS, torch.zeros_like(values), torch.zeros_like(weights), lengths=other.lengths().flip(0)
    )
    memory = target.values()
    same_keyed(target.copy_(one), other)
    same(memory, values)
    with pytest.raises(KeyError, match="same keys"):
        target.copy_(one.permute([1, 0, 2]))


# ------------------------------------------------------------------------------------- what TorchRec does not have


def rows(kjt):
    return {key: jt.tensor.tolist() for key, jt in kjt.to_dict().items()}


@pytest.mark.parametrize(
    "chosen",
    [[2, 0, 2], [], slice(1, 3), torch.tensor([3, -1]), torch.tensor([True, False, False, True]), (1,), range(2)],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_examples_of_the_batch(chosen, weighted):
    one, _ = random_keyed(4, weighted=weighted, dtype=torch.int32)
    numbers = torch.arange(4)[list(chosen) if isinstance(chosen, (tuple, range)) else chosen].tolist()
    made = one[chosen] if not isinstance(chosen, tuple) else one.select_batch(chosen)
    assert made.stride() == len(numbers)
    assert rows(made) == {key: [all_rows[i] for i in numbers] for key, all_rows in rows(one).items()}
    assert made.lengths().dtype == torch.int32
    if weighted:
        expected = torch.cat([one[key].to_dense_weights()[i] for key in KEYS for i in numbers] or [torch.empty(0)])
        same(made.weights(), expected)


def test_examples_where_strides_vary():
    one, _ = random_keyed(0, strides=[[2], [3], [3]], weighted=True)
    made = one[[1, 0]]
    assert not made.variable_stride_per_key()
    assert rows(made) == {key: [each[1], each[0]] for key, each in rows(one).items()}
    assert rows(one[1:]) == {key: each[1:] for key, each in rows(one).items()}
    with pytest.raises(IndexError):
        one[[2]]


def test_examples_with_inverse_indices():
    one, _ = random_keyed(0, strides=VARIED, inverse=(KEYS, torch.tensor([[0, 2, 1], [0, 0, 0], [3, 3, 1]])))
    made = one[[2, 0]]
    assert made.stride() == 2
    assert made.inverse_indices()[1].tolist() == [[1, 0], [0, 0], [1, 3]]
    assert rows(made) == rows(one)
    assert one.permute([2, 0]).inverse_indices()[0] == ["tag", "user"]
    assert one.permute([2, 0]).inverse_indices()[1].tolist() == [[3, 3, 1], [0, 2, 1]]
    assert one.split([1, 2])[0].inverse_indices()[1].tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_are_concatenated(weighted):
    one, _ = random_keyed(4, weighted=weighted)
    two, _ = random_keyed(2, weighted=weighted, seed=9)
    made = KeyedJaggedTensor.concat_batches([one, two.permute([2, 0, 1]), one])
    assert made.stride() == 10
    assert rows(made) == {key: rows(one)[key] + rows(two)[key] + rows(one)[key] for key in KEYS}
    same_keyed(made[4:6], two.to_torchrec())
    varied, _ = random_keyed(0, strides=VARIED, weighted=weighted)
    made = KeyedJaggedTensor.concat_batches([one, varied])
    assert made.stride_per_key() == [7, 5, 8]
    assert rows(made) == {key: rows(one)[key] + rows(varied)[key] for key in KEYS}


def test_batches_with_inverse_indices_are_concatenated():
    one, _ = random_keyed(0, strides=VARIED, inverse=(KEYS, torch.tensor([[0, 2], [0, 0], [3, 1]])))
    made = KeyedJaggedTensor.concat_batches([one, one])
    assert made.stride() == 4
    assert made.inverse_indices()[1].tolist() == [[0, 2, 3, 5], [0, 0, 1, 1], [3, 1, 7, 5]]
    joined = KeyedJaggedTensor.concat([one.permute([0]), one.permute([1, 2])])
    assert joined.inverse_indices()[0] == KEYS
    same(joined.inverse_indices()[1], one.inverse_indices()[1])


def test_gradients_reach_values_and_weights():
    lengths = torch.tensor([2, 0, 1, 1, 3, 0])
    values = torch.randn(7, 2, requires_grad=True, dtype=torch.float64)
    weights = torch.rand(7, requires_grad=True, dtype=torch.float64)

    def through(values, weights):
        kjt = KeyedJaggedTensor(["a", "b", "c"], values, weights, lengths=lengths)
        made = KeyedJaggedTensor.concat_batches([kjt.permute([2, 0])[[1, 0, 1]], kjt.permute([0, 2])])
        return made["a"].values(), made.weights(), KeyedJaggedTensor.concat(kjt.split([2, 1])).values()

    assert torch.autograd.gradcheck(through, (values, weights))
    assert torch.autograd.gradgradcheck(through, (values, weights))


def test_a_batch_born_on_a_device_waits_once():
    lengths = torch.tensor([2, 0, 1, 1])
    partition = Partition._of(torch.tensor([0, 2, 2, 3, 4]), 4, device_born=True)
    tensor = sr.Tensor(torch.arange(4), Structure((2, 2, Ragged(partition, (0, 1)))))
    kjt = KeyedJaggedTensor._of(["a", "b"], tensor, torch.rand(4), Strides(2, 2))
    assert kjt.length_per_key_or_none() is None
    assert kjt.offset_per_key_or_none() is None
    with sr.testing.forbid_sync():
        assert kjt.stride_per_key() == [2, 2]
        same(kjt.lengths(), lengths)
        with pytest.raises(sr.errors.SyncError):
            kjt.length_per_key()
    kjt.sync()
    with sr.testing.forbid_sync():
        assert kjt.length_per_key_or_none() == [2, 2]
        assert kjt[[1, 0]]["b"].to_padded_dense().tolist() == [[3], [2]]
        assert [len(jt.to_dense()) for jt in kjt.to_dict().values()] == [2, 2]


# --------------------------------------------------------------------------------------------- wrong input


def make(keys=("a", "b"), count=4, weights=None, **options):
    return KeyedJaggedTensor(
        list(keys), torch.arange(count), weights, **({"lengths": torch.tensor([2, 0, 1, 1])} | options)
    )


IDS = torch.zeros(2, 2, dtype=torch.int64)
WRONG = [
    (lambda: make(count=5), RaggednessError, "5"),
    (lambda: make(keys=["a", "b", "c"]), RaggednessError, "3 keys times a stride of 1, got 4 lengths"),
    (lambda: make(keys=[]), RaggednessError, "0 keys"),
    (lambda: make(stride=1), RaggednessError, "a stride of 1, got 4"),
    (lambda: make(keys=["a", "a"]), ValueError, "must be distinct, but 'a' is there 2 times"),
    (lambda: make(keys=["a", 3]), TypeError, "list of strings"),
    (lambda: KeyedJaggedTensor("ab", torch.arange(4), lengths=torch.tensor([2, 2])), TypeError, "list of strings"),
    (lambda: make(weights=torch.rand(3)), RaggednessError, "each of the 4 values"),
    (lambda: make(lengths=None, offsets=torch.tensor([0, 3, 2, 3, 4])), RaggednessError, "never decrease"),
    (lambda: make(lengths=None), ValueError, "lengths or offsets"),
    (lambda: make(lengths=torch.tensor([5, -1, 0, 0])), RaggednessError, "0 or more"),
    (lambda: make(stride_per_key_per_rank=[[1], [2]]), RaggednessError, r"strides \[1, 2\]"),
    (lambda: make(stride_per_key_per_rank=[[4]]), RaggednessError, "each of the 2 keys"),
    (lambda: make(stride_per_key=[1, 1]), ValueError, "stride_per_key must be"),
    (lambda: make(inverse_indices=(["a", "c"], IDS)), KeyError, "each of the keys"),
    (lambda: make(inverse_indices=(["a", "b"], IDS.float())), TypeError, "integer tensor"),
    (
        lambda: make(stride_per_key_per_rank=[[1], [3]], stride=3, inverse_indices=(["a", "b"], IDS)),
        RaggednessError,
        "3 columns",
    ),
    (lambda: make()["c"], KeyError, "no key 'c'"),
    (lambda: make()[0], TypeError, "a list, a tensor or a slice"),
    (lambda: make()[[5]], IndexError, "5"),
    (lambda: make().permute([0, 2]), IndexError, "0 … 1, got 2"),
    (lambda: make().permute([0, 0]), ValueError, "distinct"),
    (lambda: make().split([1]), ValueError, "sum to the number of keys, 2"),
    (lambda: make().split([3, -1]), ValueError, "sum to the number of keys, 2"),
    (lambda: make().weights(), ValueError, "has no weights"),
    (lambda: make().inverse_indices(), ValueError, "has no inverse indices"),
    (lambda: KeyedJaggedTensor.concat([]), ValueError, "at least one"),
    (lambda: KeyedJaggedTensor.concat([make(), make()]), ValueError, "distinct"),
    (
        lambda: KeyedJaggedTensor.concat([make(), make(keys=["c", "d"], weights=torch.rand(4))]),
        ValueError,
        "either all .* must have weights or none",
    ),
    (
        lambda: KeyedJaggedTensor.concat([make(), random_keyed(3, keys=["c"])[0]]),
        ValueError,
        r"one stride, got \[2, 3\]",
    ),
    (lambda: KeyedJaggedTensor.concat_batches([]), ValueError, "at least one"),
    (lambda: KeyedJaggedTensor.concat_batches([make(), make(keys=["a", "c"])]), KeyError, "same keys"),
    (
        lambda: KeyedJaggedTensor.concat_batches([make(), make(weights=torch.rand(4))]),
        ValueError,
        "either all .* must have weights or none",
    ),
    (lambda: KeyedJaggedTensor.from_jt_dict({}), ValueError, "at least one"),
    (
        lambda: KeyedJaggedTensor.from_jt_dict(
            {
                "a": JaggedTensor(torch.ones(1), lengths=torch.tensor([1])),
                "b": JaggedTensor(torch.ones(1), torch.ones(1), lengths=torch.tensor([1])),
            }
        ),
        ValueError,
        "either all .* must have weights or none",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -------------------------------------------------------------------------- trees, pickles and copies


@each_case
def test_trees_pickles_and_copies(case):
    one, other = pair(case)
    if not other.keys():
        return
    doubled = pytree.tree_map(lambda leaf: leaf * 2, one)
    same(doubled.values(), other.values() * 2)
    same((doubled.keys(), doubled.lengths(), doubled.stride()), (other.keys(), other.lengths(), other.stride()))
    leaves, spec = pytree.tree_flatten(one)
    assert len(leaves) == 1 + (other.weights_or_none() is not None)
    assert spec == pytree.tree_flatten(copy.copy(one))[1]
    same_keyed(pickle.loads(pickle.dumps(one)), other)
    same_keyed(copy.deepcopy(one), other)
    file = io.BytesIO()
    torch.save(one, file)
    file.seek(0)
    same_keyed(torch.load(file, weights_only=True), other)


def test_inverse_indices_travel():
    one, _ = random_keyed(0, strides=VARIED, inverse=(KEYS, torch.tensor([[0, 2], [0, 0], [3, 1]])))
    for made in (pickle.loads(pickle.dumps(one)), pytree.tree_map(lambda leaf: leaf.clone(), one), one.to("cpu")):
        assert made.inverse_indices()[0] == KEYS
        same(made.inverse_indices()[1], one.inverse_indices()[1])
        assert made.stride() == 2
    assert KeyedJaggedTensor.from_torchrec(one.to_torchrec()).stride() == 2


def test_a_bad_pickle_is_refused():
    function, state = make().__reduce__()
    with pytest.raises(RaggednessError, match="3 keys"):
        function(state[0], ["a", "b", "c"], *state[2:])


def test_text_shows_every_key():
    text = repr(make(weights=torch.rand(4)))
    for part in ("KeyedJaggedTensor", "'a'", "'b'", "[0, 1]", "weights"):
        assert part in text
    assert repr(KeyedJaggedTensor.empty()) == "KeyedJaggedTensor({})"
    many = random_keyed(1, keys=[f"key {i}" for i in range(40)])[0]
    assert "16 more" in repr(many)
    assert "'key 39'" in repr(many)
