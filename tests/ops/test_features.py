"""Linear maps and embeddings: against torch on each row, with gradients, as modules, and bad input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.samples import leaves, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError

STRUCTURES = [
    "features",
    "empty rows",
    "all rows empty",
    "no rows",
    "one row",
    "two levels",
    "int32 offsets",
    "non-contiguous",
]


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_linear_equals_torch_on_each_row(name, dtype):
    x = sample(name, dtype)
    weight, bias = torch.randn(3, 2).to(dtype), torch.randn(3).to(dtype)
    for got in (sr.linear(x, weight, bias), F.linear(x, weight, bias)):
        assert got.partitions[0] is x.partitions[0]
        for mine, row in zip(leaves(got), leaves(x), strict=True):
            torch.testing.assert_close(mine, F.linear(row, weight, bias))
    vector = sr.linear(x, weight[0])
    assert vector.ndim == x.ndim - 1
    for mine, row in zip(leaves(vector), leaves(x), strict=True):
        torch.testing.assert_close(mine, F.linear(row, weight[0]))


def test_linear_along_a_feature_axis_seen_last():
    x = sr.from_lengths(torch.randn(5, 2, 4), [2, 0, 3]).permute_dims((0, 1, 3, 2))
    got = sr.linear(x, torch.ones(3, 2))
    assert got.shape == (3, sr.Ragged([2, 0, 3]), 4, 3)
    for mine, row in zip(leaves(got), leaves(x), strict=True):
        torch.testing.assert_close(mine, F.linear(row, torch.ones(3, 2)))


def test_gradients():
    x = sample("empty rows", torch.float64)
    values, weight, bias = x.values.clone().requires_grad_(), torch.randn(3, 2).double(), torch.randn(3).double()
    inputs = [values, weight.requires_grad_(), bias.requires_grad_()]
    assert gradcheck(lambda v, w, b: sr.linear(x._with(v), w, b).values, inputs)
    assert gradgradcheck(lambda v, w, b: sr.linear(x._with(v), w, b).values, inputs)
    table = torch.randn(6, 2).double().requires_grad_()
    ids = sample("rows", torch.int64)
    ids = ids._with(ids.values - 1)
    assert gradcheck(lambda t: sr.embedding(ids, t).values, [table])


@pytest.mark.parametrize("name", ["rows", "features", "empty rows", "no rows", "two levels", "permuted"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_embedding_equals_torch_on_each_row(name, dtype):
    x = sample(name, dtype)
    table = torch.randn(6, 3)
    for got in (sr.embedding(x, table), F.embedding(x, table), torch.nn.Embedding(6, 3, _weight=table)(x)):
        assert got.shape == (*x.shape, 3)
        for mine, row in zip(leaves(got), leaves(x), strict=True):
            torch.testing.assert_close(mine, F.embedding(row, table))


def test_a_model_of_torch_modules_trains_on_ragged_batches_as_on_padded_ones():
    torch.manual_seed(0)
    lengths = [3, 1, 4, 2]
    ids = sr.from_lengths(torch.randint(0, 10, (10,)), lengths)
    target = torch.randn(4, dtype=torch.float64)

    def model() -> torch.nn.Sequential:
        torch.manual_seed(1)
        layers = [torch.nn.Embedding(10, 8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)]
        return torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)).double()

    packed, padded = model(), model()
    optimisers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (packed, padded)]
    mask = ids.mask().torch()
    for _ in range(20):
        ours = torch.mean((sr.mean(packed(ids)[..., 0], axis=1).torch() - target) ** 2)
        scores = padded(ids.to_dense().torch())[..., 0]
        theirs = torch.mean(((scores * mask).sum(1) / mask.sum(1) - target) ** 2)
        assert abs(ours.item() - theirs.item()) < 1e-9
        for loss, optimiser in zip((ours, theirs), optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def test_undefined_entries_are_not_looked_up():
    x = sr.testing.device_born(sr.ragged([[1, 2], [3]]), spare=2)  # the spare entries hold 97
    with sr.testing.forbid_sync():
        got = sr.embedding(x, torch.arange(8.0).view(4, 2))
    assert got.tolist() == [[[2.0, 3.0], [4.0, 5.0]], [[6.0, 7.0]]]


def test_bad_input_is_named():
    x = sample("features", torch.float64)
    with pytest.raises(ValueError, match=r"weight must be \[out, 2\]"):
        sr.linear(x, torch.ones(3, 5))
    with pytest.raises(AxisError, match="linear contracts the last axis"):
        sr.linear(sr.ragged([[1.0]]), torch.ones(3, 1))
    with pytest.raises(IndexError, match="index 9, packed element 1, is out of range for a table of 4 rows"):
        sr.embedding(sr.ragged([[1, 9]]), torch.ones(4, 2))
    with pytest.raises(TypeError, match="int32 or int64"):
        sr.embedding(sr.ragged([[1.0]]), torch.ones(4, 2))


def test_embeddings_without_elements_have_derivatives():
    for ids, table in (
        (sr.zeros((1, sr.Ragged([0])), dtype=torch.int64), torch.ones(1, 1)),
        (sr.ragged([[0]]), torch.ones(1, 0)),
    ):
        table = table.double().requires_grad_()
        (first,) = torch.autograd.grad(sr.sum(sr.tanh(sr.embedding(ids, table))).torch(), table, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), table, allow_unused=True)
        assert not first.any()
        assert second is None or not second.any()
    layer = torch.nn.Embedding(5, 3, sparse=True)
    torch.sum(layer(sr.zeros((2, sr.Ragged([0, 0])), dtype=torch.int64))).backward()
    assert layer.weight.grad.is_sparse
    torch.optim.SparseAdam(layer.parameters()).step()
    with pytest.raises(IndexError, match="index 3"):
        sr.embedding(sr.ragged([[3]]), torch.ones(1, 0))
