"""serrate.compat.torchrec.KeyedTensor does what TorchRec's does, checked."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from tests.compat.torchrec_pairs import same
from torch.utils import _pytree as pytree
from torchrec.sparse import jagged_tensor as real

from serrate.compat.torchrec import KeyedTensor

METHODS = ("keys", "values", "key_dim", "length_per_key", "offset_per_key", "to_dict", "device", "size_in_bytes")


def both(keys=("a", "b", "c"), widths=(2, 0, 3), rows=4, dim=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = [(rows, width) if dim == 1 else (width, rows) for width in widths]
    tensors = [torch.randn(*size, generator=generator) for size in sizes]
    return tuple(kind.from_tensor_list(list(keys), tensors, dim, dim) for kind in (KeyedTensor, real.KeyedTensor))


def same_keyed_tensor(one, other):
    assert type(one) is KeyedTensor
    for name in METHODS:
        same(getattr(one, name)(), getattr(other, name)())


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("rows", [0, 4])
def test_methods_give_what_torchrec_gives(dim, rows):
    one, other = both(dim=dim, rows=rows)
    same_keyed_tensor(one, other)
    for key in other.to_dict():
        same(one[key], other[key])
    same_keyed_tensor(one.to("cpu"), other.to("cpu"))
    same_keyed_tensor(KeyedTensor.from_torchrec(other), one.to_torchrec())
    same_keyed_tensor(KeyedTensor(other.keys(), other.length_per_key(), other.values(), dim), other)


@pytest.mark.parametrize(
    "groups", [[["a"], ["b", "c"], ["d", "e"]], [["e", "a"], ["d"], ["c", "b"]], [["a", "d"], ["a"]], [["c", "e"]]]
)
def test_groups(groups):
    (one, other), (two, another) = both(widths=(2, 1, 3)), both(keys="de", widths=(1, 2), seed=3)
    same(KeyedTensor.regroup([one, two], groups), real.KeyedTensor.regroup([other, another], groups))
    names = [str(i) for i in range(len(groups))]
    mine, theirs = (
        kind.regroup_as_dict(tensors, groups, names)
        for kind, tensors in ((KeyedTensor, [one, two]), (real.KeyedTensor, [other, another]))
    )
    same(mine, theirs)


def test_gradients_of_groups():
    values = torch.randn(3, 5, requires_grad=True)
    found = []
    for kind in (KeyedTensor, real.KeyedTensor):
        kt = kind(["a", "b"], [2, 3], values)
        left, right = kind.regroup([kt], [["b", "a"], ["b"]])
        found.append(torch.autograd.grad((left**2).sum() + (right**3).sum() + kt["a"].sum(), values))
    torch.testing.assert_close(found[0], found[1])


VALUES = torch.ones(2, 5)
WRONG = [
    (lambda: KeyedTensor(["a", "b"], [2, 2], VALUES), ValueError, r"sum to the size of axis 1, 5, got \[2, 2\]"),
    (lambda: KeyedTensor(["a"], [2, 3], VALUES), ValueError, "each of the 1 keys"),
    (lambda: KeyedTensor(["a", "b"], [6, -1], VALUES), ValueError, "each of the 2 keys"),
    (lambda: KeyedTensor(["a", "a"], [2, 3], VALUES), ValueError, "distinct"),
    (lambda: KeyedTensor(["a", "b"], [2, 3], VALUES, 2), ValueError, "key_dim"),
    (lambda: KeyedTensor(["a", "b"], [2, 3], VALUES.tolist()), TypeError, "torch.Tensor"),
    (lambda: KeyedTensor(["a", "b"], [2, 3], VALUES, 1, [0, 3, 5]), ValueError, "offset_per_key must be"),
    (lambda: KeyedTensor(["a", "b"], [2, 3], VALUES)["c"], KeyError, "no key 'c'"),
    (lambda: KeyedTensor.from_tensor_list(["a", "b"], [VALUES, VALUES], cat_dim=0), ValueError, "sum to the size"),
    (lambda: KeyedTensor.from_tensor_list([], []), ValueError, "at least one"),
    (lambda: KeyedTensor.regroup([], [["a"]]), ValueError, "at least one"),
    (lambda: KeyedTensor.regroup([both()[0]], [["x"]]), KeyError, "no key 'x'"),
    (lambda: KeyedTensor.regroup([both()[0], both()[0]], [["a"]]), ValueError, "in 2 of the KeyedTensors"),
    (lambda: KeyedTensor.regroup([both()[0], both(dim=0)[0]], [["a"]]), ValueError, "one key_dim"),
    (lambda: KeyedTensor.regroup_as_dict([both()[0]], [["a"]], []), ValueError, "each of the 1 groups"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dim", [0, 1])
def test_trees_pickles_and_copies(dim):
    one, other = both(dim=dim)
    same_keyed_tensor(pytree.tree_map(lambda leaf: leaf.clone(), one), other)
    assert pytree.tree_flatten(one)[1] == pytree.tree_flatten(copy.copy(one))[1]
    same_keyed_tensor(pickle.loads(pickle.dumps(one)), other)
    same_keyed_tensor(copy.deepcopy(one), other)
    file = io.BytesIO()
    torch.save(one, file)
    file.seek(0)
    same_keyed_tensor(torch.load(file, weights_only=True), other)


def test_no_keys_and_no_groups():
    one = KeyedTensor([], [], torch.empty(3, 0))
    assert one.to_dict() == {}
    assert repr(one) == "KeyedTensor({})"
    assert KeyedTensor.regroup([both()[0]], [[], ["a"]])[0].shape == (4, 0)


def test_text_shows_every_key():
    for part in ("KeyedTensor", "'a'", "'c'", "tensor("):
        assert part in repr(both()[0])
