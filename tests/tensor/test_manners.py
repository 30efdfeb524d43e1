"""Python manners: len, in, copies, pickles, autograd, pytrees, collate and DataLoader workers."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

import serrate as sr
from serrate.errors import RaggednessError

ROWS = [[1.0, 2.0], [], [3.0, 4.0, 5.0]]
NESTED = [[[1, 2], []], [], [[3], [4, 5, 6], [7]]]


@pytest.fixture
def x():
    return sr.ragged(ROWS)


def test_len_iteration_and_membership(x):
    assert len(x) == 3
    assert [row.tolist() for row in x] == ROWS
    assert 4.0 in x
    assert 9.0 not in x
    with pytest.raises(TypeError, match="first axis is ragged"):
        len(x.permute_dims((1, 0)))
    with pytest.raises(TypeError, match="0-d"):
        len(x[0, 0])
    with pytest.raises(TypeError, match=r"first axis .* is ragged"):
        list(x.permute_dims((1, 0)))


def test_comparison_is_elementwise_and_reflected(x):
    same = x == x.clone()
    assert same.tolist() == [[True, True], [], [True, True, True]]
    assert same.partitions[0] is x.partitions[0]
    assert (x != 4.0).tolist() == [[True, True], [], [True, False, True]]
    column = torch.tensor([[1.0], [2.0], [3.0]])
    for result in (x == column, column == x):
        assert isinstance(result, sr.Tensor)
        assert result.tolist() == [[True, False], [], [True, False, False]]
    assert (x == None) is False  # noqa: E711
    assert (x != None) is True  # noqa: E711
    assert (x == "text") is False
    with pytest.raises(RaggednessError, match=r"Ragged\(\[2, 0, 3\]\) and Ragged\(\[1, 1, 3\]\)"):
        _ = x == sr.ragged([[1.0], [2.0], [3.0, 4.0, 5.0]])
    with pytest.raises(RaggednessError, match="uniform"):
        _ = x == torch.zeros(3, 3)
    assert hash(x) == hash(x)


def test_comparison_broadcasts_over_levels():
    nested = sr.ragged(NESTED)
    level = sr.ragged([[1, 5], [], [3, 4, 0]])
    result = nested == sr.expand_dims(level, axis=2)
    assert result.tolist() == [[[True, False], []], [], [[True], [True, False, False], [False]]]
    outer = sr.expand_dims(sr.ragged([[1, 2], [3]]), axis=2) == sr.expand_dims(sr.ragged([[2, 1, 2], [3]]), axis=1)
    assert outer.tolist() == [[[False, True, False], [True, False, True]], [[True]]]


def test_transposed_storage_meets():
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])
    block = sr.from_product(torch.arange(5), p, q)
    other = sr.from_product(torch.tensor([0, 1, 2, 3, 4]), q, p).mT
    assert (block == other).tolist() == [[[True], [True]], [[True, True, True]]]


def test_numbers_and_truth(x):
    assert bool(x[0, 1] == 2.0)
    assert float(x[0, 1]) == 2.0
    assert int(sr.ragged([[7]])[0, 0]) == 7
    assert [10, 20, 30][sr.asarray(1)] == 20
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="0-d integer"):
        range(x)
    assert x.size == 5
    assert x.size() == x.shape
    assert x.size(0) == 3
    assert x.numel() == 5
    assert x.dim() == x.ndim == 2
    assert not x.is_nested
    assert x.nbytes == 5 * 4 + 4 * 8


def test_numpy_does_not_loop_over_it(x):
    with pytest.raises(TypeError, match="ragged"):
        np.asarray(x)
    with pytest.raises(TypeError):
        np.ones(3) + x
    assert np.asarray(x.to_dense()).shape == (3, 3)
    with pytest.raises(TypeError):
        torch.zeros(x.shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sr.ragged(ROWS),
        lambda: sr.ragged(NESTED),
        lambda: sr.from_lengths(torch.randn(5, 2), [2, 3]).mT,
        lambda: sr.from_product(torch.arange(5), sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])),
        lambda: sr.asarray([[1, 2], [3, 4]]),
        lambda: sr.ragged([]),
        lambda: sr.testing.device_born(sr.ragged(ROWS), spare=2),
        lambda: sr.view_as_nested(torch.randn(2, 5), torch.tensor([[0, 2, 5], [0, 5, 5]]), ragged_dim=1),
    ],
)
def test_copies_and_pickles(make):
    t = make()
    buffer = io.BytesIO()
    torch.save({"x": t, "y": t}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    if t.partitions:
        assert loaded["x"].partitions[0] is loaded["y"].partitions[0]
    for other in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), t.clone(), t.detach(), loaded["x"]):
        assert other.shape == t.shape
        assert other.tolist() == t.tolist()
        assert other.dtype == t.dtype
        assert other.order == t.order
    assert copy.copy(t).values is t.values
    if t.numel():
        assert copy.deepcopy(t).values.data_ptr() != t.values.data_ptr()
    if t.partitions:
        assert copy.deepcopy(t).partitions[0] is t.partitions[0]


def test_a_pickle_is_checked_when_read(x):
    rebuild, (kind, values, axes, order) = x.__reduce__()
    with pytest.raises(RaggednessError, match="cuts 5 values"):
        rebuild(kind, values[:-1], axes, order)
    with pytest.raises(RaggednessError, match="order"):
        rebuild(kind, values, axes, (0, 0))
    with pytest.raises(RaggednessError, match="never decrease"):
        rebuild("partition", torch.tensor([0, 3, 2]), 2, False, True, None)
    with pytest.raises(RaggednessError, match="ragged axis or a tensor"):
        rebuild("shell", "true")


def test_autograd(x):
    x.requires_grad_()
    assert x.is_leaf
    x[:, :1].backward(torch.ones(3, 1))
    assert isinstance(x.grad, sr.Tensor)
    assert x.grad.tolist() == [[1.0, 0.0], [], [1.0, 0.0, 0.0]]
    assert x.grad.partitions[0] is x.partitions[0]
    x.grad = None
    assert x.values.grad is None
    y = x.to_dense()
    assert y.requires_grad
    assert y.grad_fn is not None
    assert not x.detach().requires_grad
    assert "requires_grad=True" in repr(x)
    assert "grad_fn" in repr(x[:, :1])


def test_memory(x):
    assert x.to(torch.float64).dtype == torch.float64
    assert x.to(torch.float64).partitions[0] is x.partitions[0]
    assert x.to("cpu") is x
    wide = sr.from_lengths(torch.randn(4, 5).T, [2, 3])
    assert wide.contiguous().values.is_contiguous()
    assert wide.contiguous().tolist() == wide.tolist()
    y = sr.ragged([[0.0, 0.0], [], [0.0, 0.0, 0.0]])
    assert y.copy_(x) is y
    assert y.tolist() == ROWS
    with pytest.raises(RaggednessError):
        y.copy_(sr.ragged([[0.0], [0.0], [0.0, 0.0, 0.0]]))
    assert x.is_floating_point()
    assert not x.is_complex()
    assert not x.is_cuda
    assert x.device == torch.device("cpu")
    assert x.team is None
    assert x.__array_namespace__() is sr


def test_dataclass_and_pytree(x):
    assert dataclasses.is_dataclass(x)  # DistributedDataParallel looks inside dataclasses only
    leaves, spec = pytree.tree_flatten({"a": x, "b": 1})
    assert len(leaves) == 2
    assert leaves[0] is x.values
    doubled = pytree.tree_map(lambda leaf: leaf * 2, {"a": x, "b": 1})
    assert doubled["a"].tolist() == [[2.0, 4.0], [], [6.0, 8.0, 10.0]]
    assert doubled["a"].structure is x.structure
    assert pytree.tree_unflatten(["anything", None], spec)["a"].values == "anything"
    assert pytree.tree_flatten(x)[1] == pytree.tree_flatten(x.clone())[1]
    assert pytree.tree_flatten(x)[1] != pytree.tree_flatten(sr.ragged([[1.0], [2.0, 3.0], [4.0, 5.0]]))[1]
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path({"a": x})[0]]
    assert paths == ["['a'].values"]


Pair = namedtuple("Pair", ["ids", "label"])


def test_collate():
    samples = [
        {"ids": torch.tensor([1, 2]), "w": np.array([0.5]), "n": 1},
        {"ids": torch.tensor([], dtype=torch.int64), "w": np.array([]), "n": 2},
    ]
    batch = sr.collate(samples)
    assert batch["ids"].tolist() == [[1, 2], []]
    assert batch["w"].tolist() == [[0.5], []]
    assert batch["n"].tolist() == [1, 2]
    pair = sr.collate([Pair([1, 2], 0), Pair([], 1)])
    assert isinstance(pair, Pair)
    assert pair.ids.tolist() == [[1, 2], []]
    assert pair.label.tolist() == [0, 1]
    deeper = sr.collate([sr.ragged([[1], [2, 3]]), sr.ragged([[4, 5]])])
    assert deeper.tolist() == [[[1], [2, 3]], [[4, 5]]]
    with pytest.raises(KeyError, match="sample 1 has keys"):
        sr.collate([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="sample 1 has 1 entries"):
        sr.collate([(1, 2), (1,)])
    with pytest.raises(ValueError, match="at least one sample"):
        sr.collate([])


class Sequences(Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int):
        return {"ids": torch.arange(i % 4), "nested": sr.from_lengths(torch.arange(i), [i]), "label": i}


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers(context):
    loader = DataLoader(
        Sequences(), batch_size=4, collate_fn=sr.collate, num_workers=2, multiprocessing_context=context
    )
    seen = []
    for batch in loader:
        labels = batch["label"].tolist()
        assert batch["ids"].tolist() == [list(range(i % 4)) for i in labels]
        assert batch["nested"].tolist() == [[list(range(i))] for i in labels]
        assert batch["ids"].partitions[0].is_host_born
        seen += labels
    assert seen == list(range(10))


def test_numpy_numbers_are_numbers_and_arrays_are_refused(x):
    for four in (np.int64(4), np.float32(4), np.float64(4)):
        assert (x == four).tolist() == (x == 4).tolist()
        assert four in x
    x[0] = np.float32(7)
    assert x[0].tolist() == [7.0, 7.0]
    for refused in (lambda: x == np.zeros((3, 1)), lambda: np.zeros((3, 1)) == x):
        with pytest.raises(TypeError, match="numpy arrays do not mix"):
            refused()


def test_numpy_copies_when_asked():
    dense = sr.asarray(torch.zeros(2))
    np.array(dense, copy=True)[0] = 5
    assert dense.tolist() == [0.0, 0.0]
    np.asarray(dense)[0] = 5
    assert dense.tolist() == [5.0, 0.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(sr.asarray(torch.zeros(2, requires_grad=True)))


def test_gradients_are_given_and_taken_with_the_right_raggedness(x):
    x.requires_grad_()
    with pytest.raises(ValueError, match="gradient must have shape"):
        x.grad = sr.ragged([[1.0], [2.0], [3.0, 4.0, 5.0]])
    x.grad = sr.ragged([[1.0, 2.0], [], [3.0, 4.0, 5.0]])
    assert x.grad.tolist() == ROWS
    scalar = sr.asarray(torch.tensor(2.0, requires_grad=True))
    scalar.backward(3.0)
    assert scalar.grad.item() == 3.0


def test_assignment_inside_function_transforms():
    def total(values):
        y = sr.from_lengths(values * 1, [2, 1])
        y[:, 0] = 5.0
        y[0] = y[0].flat().values * 2
        return y.values.sum()

    assert torch.func.grad(total)(torch.ones(3)).tolist() == [0.0, 2.0, 0.0]


def test_writing_what_is_read():
    y = sr.ragged([[1, 2], [3, 4]])
    y[:, ::-1] = y
    assert y.tolist() == [[2, 1], [4, 3]]
    z = sr.from_lengths(torch.arange(4), [2, 2])
    z.copy_(sr.Tensor(z.values.flip(0), z.structure))
    assert z.tolist() == [[3, 2], [1, 0]]


def test_sizes_and_shapes_travel(x):
    assert pickle.loads(pickle.dumps(x.size)) == 5
    assert copy.copy(x.size) == 5
    buffer = io.BytesIO()
    torch.save({"shape": x.shape, "x": x}, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True)["shape"] == x.shape
    buffer.seek(0)
    assert torch.load(buffer, map_location="meta", weights_only=True)["x"].values.is_meta
    assert "values=None" in repr(pytree.tree_map(lambda _: None, x))


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (lambda x: x.__setitem__(0, "a"), TypeError, "got str"),
        (lambda x: x.__setitem__(0, None), TypeError, "got NoneType"),
        (lambda x: x.copy_([1]), TypeError, "got list"),
        (lambda x: x.backward([1]), TypeError, "got list"),
        (lambda x: sr.positions(torch.ones(2), 0), ValueError, "neither ragged"),
        (lambda x: x.permute_dims((0.5, 1)), TypeError, "an axis is an integer"),
        (lambda x: x.to_dense(axis="1"), TypeError, "an axis is an integer"),
        (lambda x: sr.collate([{"a": 1}, [1]]), TypeError, "sample 0 is a dict, sample 1 a list"),
        (lambda x: sr.from_offsets(None, [0, 1]), TypeError, "values must be"),
        (lambda x: x[[[0], [1, 0]]], IndexError, "rectangular"),
        (lambda x: sr.ragged([[torch.ones(2), torch.ones(3)]]), ValueError, r"entry \[0\]\[1\]"),
        (lambda x: sr.ragged([[1]], dtype="float32"), TypeError, "dtype"),
        (lambda x: sr.ragged([[1], []], dtype=torch.uint8).to_dense(-1), ValueError, "does not fit"),
        (lambda x: sr.Tensor([[1], [2]]), TypeError, "sr.ragged"),
        (lambda x: sr.Partition([1]), TypeError, "from_offsets"),
        (lambda x: sr.Partition.uniform(3, 2**62), ValueError, "int64"),
        (lambda x: sr.concat([x, [1]]), TypeError, "got list"),
        (lambda x: [1] in x, TypeError, "got list"),
    ],
)
def test_wrong_arguments_are_named(x, wrong, error, match):
    with pytest.raises(error, match=match):
        wrong(x)


def test_numpy_integers_are_integers(x):
    one = np.int64(1)
    assert sr.roll(x, one, axis=one).tolist() == sr.roll(x, 1, axis=1).tolist()
    assert len(sr.split(x, one, axis=one)) == 3
    assert x.to_dense(axis=one).shape == (3, 3)
    assert sr.flip(x, axis=one).tolist() == sr.flip(x, axis=1).tolist()


def test_offsets_of_any_kind_are_copied_in():
    import array

    for make, write in (
        (lambda: torch.tensor([0, 1, 3]), lambda o: o.__setitem__(1, 2)),
        (lambda: sr.asarray(torch.tensor([0, 1, 3])), lambda o: o.__setitem__(1, 2)),
        (lambda: np.array([0, 1, 3]), lambda o: o.__setitem__(1, 2)),
        (lambda: array.array("q", [0, 1, 3]), lambda o: o.__setitem__(1, 2)),
    ):
        offsets = make()
        y = sr.from_offsets(torch.arange(3), offsets)
        write(offsets)
        assert y.tolist() == [[0], [1, 2]]
    narrow = sr.from_offsets(torch.arange(3), torch.tensor([0, 1, 3], dtype=torch.int32))
    narrow.cu_seqlens()[1] = 9
    assert narrow.tolist() == [[0], [1, 2]]


def test_unchecked_offsets_never_crash_the_interpreter():
    for offsets in ([0, 700, 3], [0, 300000, 600000], [5, 5, 3], [0, -7, 3]):
        y = sr.from_offsets(torch.arange(3), offsets, validate=False)
        assert sr.positions(y).values.shape == (3,)
        assert y.partitions[0].row_ids.max() < 2


def test_what_is_handed_out_is_not_what_is_kept() -> None:
    x = sr.ragged([[1.0, 2.0], [3.0]])
    positions = sr.positions(x, 1)
    positions += 7
    assert sr.positions(x, 1).tolist() == [[0, 1], [0]]


def test_what_inference_mode_asked_for_first_serves_training_later() -> None:
    x = sr.from_lengths(torch.rand(51, 2), [16, 17, 18])
    with torch.inference_mode():
        x + torch.ones(3, 1, 2)
        x.to_dense()
        sr.attention(x, x, x)
        x @ x.mT
    leaf = x._with(x.values.clone().requires_grad_())
    other = torch.ones(3, 1, 2, requires_grad=True)
    made = sr.attention(leaf + other, leaf, leaf)
    (sr.sum(made) + sr.sum(leaf @ leaf.mT) + leaf.to_dense().torch().sum()).backward()
    assert other.grad is not None


def test_a_ragged_tensor_is_no_parameter() -> None:
    with pytest.raises(TypeError, match="a Parameter is a torch tensor"):
        torch.nn.Parameter(sr.ragged([[1.0], []]))


def test_dense_tensors_go_into_any_torch_function() -> None:
    m = sr.mean(sr.from_lengths(torch.rand(5, 4), [3, 2]), axis=1)
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(m, m), torch.ones(2))
    assert type(torch.nn.BatchNorm1d(4)(m)) is torch.Tensor
    assert torch.equal(torch.diagonal(m), torch.diagonal(m.torch()))
    leaf = torch.rand(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(sr.sum(sr.from_lengths(leaf, [2, 1])), leaf)
    assert torch.equal(gradient, torch.ones(3))
    assert f"{sr.sum(sr.ragged([[1.0, 2.0]])):.1f}" == "3.0"
    assert m.numpy().shape == (2, 4)


def test_names_of_torch_that_are_not_there_say_why() -> None:
    with pytest.raises(AttributeError, match=r"sr\.Tensor has no median, which torch\.Tensor has; x\.values"):
        sr.ragged([[1.0]]).median  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sr.ragged([[1.0]]).nonsense  # noqa: B018
