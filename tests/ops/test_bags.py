"""embedding_bag: against torch on each row, with gradients of both orders, as a module, and bad input."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.enumeration import seen
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, RaggednessError

STRUCTURES = [n for n in NAMES if n != "NaN and inf"]
MODES = ["sum", "mean", "max"]


def bags_of(x: sr.Tensor, weights: sr.Tensor | None = None) -> list[tuple[list[int], list[float]]]:
    """Indices and weights of each bag, in the order of the result: rows of the innermost ragged axis, by feature."""
    packed = len(x.structure.axes)
    level = x.structure.level(x.structure.whole)
    made = []
    for start, stop in zip(level.offsets.tolist()[:-1], level.offsets.tolist()[1:], strict=True):
        block = x.values[start:stop].flatten(1) if x.values.ndim > 1 else x.values[start:stop, None]
        other = torch.ones(block.shape) if weights is None else weights.values[start:stop].reshape(block.shape)
        made.extend((block[:, f].tolist(), other[:, f].tolist()) for f in range(block.shape[1]))
    assert packed
    return made


def oracle(ids: list[int], weights: list[float], table: torch.Tensor, mode: str, padding: int | None) -> torch.Tensor:
    kept = [(i, w) for i, w in zip(ids, weights, strict=True) if i != padding]
    if not kept:
        return torch.zeros(table.shape[1], dtype=torch.float64)
    rows = torch.stack([table[i].double() * (w if mode == "sum" else 1) for i, w in kept])
    return {"sum": rows.sum(0), "mean": rows.mean(0), "max": rows.amax(0)}[mode]


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_equal_enumeration(name, mode, padding):
    for dtype in (torch.int64, torch.int32):
        x = sample(name, dtype)
        for kind in DTYPES["float"]:
            table = elements(6, (3,), kind, seed=2)
            weights = sample(name, kind, seed=5) if mode == "sum" else None
            for given in (None, weights) if weights is not None else (None,):
                got = sr.embedding_bag(x, table, mode=mode, per_sample_weights=given, padding_idx=padding)
                axis = x.order.index(len(x.structure.axes) - 1)
                assert got.shape == (*sr.sum(x, axis=axis).shape, 3)
                assert got.dtype == kind
                want = [oracle(ids, w, table, mode, padding) for ids, w in bags_of(x, given)]
                mine = got.values.reshape(-1, 3) if want else got.values.reshape(0, 3)
                fine = 32 * torch.finfo(kind).eps
                assert mine.shape[0] == len(want)
                for one, other in zip(mine, want, strict=True):
                    torch.testing.assert_close(one.double(), other, rtol=fine, atol=fine)


VIEWED: dict[str, tuple[Any, ...]] = {
    "rows": (3, sr.Ragged([2, 0, 3])),
    "features": (3, sr.Ragged([2, 0, 3]), 2),
    "two levels": (3, sr.Ragged([2, 0, 2]), sr.Ragged([3, 2, 0, 2], (0, 1))),
    "product": (3, sr.Ragged([2, 0, 3]), sr.Ragged([3, 2, 2])),
    "product without cells": (2, sr.Ragged([2, 0]), sr.Ragged([0, 1])),
}


@pytest.mark.parametrize("name", VIEWED)
@pytest.mark.parametrize("mode", MODES)
def test_bags_are_rows_of_the_last_ragged_axis_as_it_is_seen(name, mode):
    """Every order of the axes, and lengths born on a device, with undefined rows and without."""
    table = elements(6, (3,), torch.float64, seed=2).requires_grad_()
    like = sr.zeros(VIEWED[name])
    size = (like.values.shape[0], tuple(like.values.shape[1:]))
    plain, factors = like._with(elements(*size, torch.int64)), like._with(elements(*size, torch.float64, seed=5))
    for axes in itertools.permutations(range(plain.ndim)):
        views = [(plain, factors)]
        if plain.values.shape[0]:
            views += [tuple(sr.testing.device_born(v, spare=spare) for v in (plain, factors)) for spare in (0, 2)]
        for ids, weights in views:
            x, given = ids.permute_dims(axes), weights.permute_dims(axes) if mode == "sum" else None
            axis = max(a for a, size in enumerate(x.shape) if isinstance(size, sr.Ragged))
            bags: dict[tuple[int, ...], list[tuple[int, float]]] = {}
            factor = seen(weights.permute_dims(axes))
            for index, value in seen(x).items():
                bags.setdefault((*index[:axis], *index[axis + 1 :]), []).append((value, factor[index]))
            got = sr.embedding_bag(x, table, mode=mode, per_sample_weights=given)
            assert got.shape[:-1] == sr.sum(x, axis=axis).shape
            found = seen(got)
            assert {index[:-1] for index in found} >= set(bags)
            for index in {index[:-1] for index in found}:
                pairs = bags.get(index, [])
                want = oracle([i for i, _ in pairs], [w for _, w in pairs], table.detach(), mode, None)
                torch.testing.assert_close(torch.tensor([found[*index, c] for c in range(3)]), want.float())
        assert gradcheck(
            lambda t, x=x, g=given: sr.embedding_bag(x, t, mode=mode, per_sample_weights=g).values, [table]
        )


def test_outer_partitions_are_shared_and_dense_rows_are_bags():
    x = sample("two levels", torch.int64)
    assert sr.embedding_bag(x, torch.ones(6, 3)).partitions[0] is x.partitions[0]
    dense = torch.tensor([[1, 2], [0, 3]])
    assert torch.equal(sr.embedding_bag(dense, torch.eye(4)).torch(), F.embedding_bag(dense, torch.eye(4)))
    assert sr.embedding_bag(dense.view(1, 2, 2), torch.eye(4), mode="sum").shape == (1, 2, 4)
    assert sr.embedding_bag(sr.ragged([[], []], dtype=torch.int64), torch.ones(0, 3)).tolist() == [[0.0] * 3] * 2
    assert sr.embedding_bag(x, torch.ones(6, 0)).shape[-1] == 0


@pytest.mark.parametrize("name", ["rows", "features", "empty rows", "two levels", "permuted"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_of_both_orders(name, mode, padding):
    x = sample(name, torch.int64)
    table = elements(6, (2,), torch.float64, seed=2).requires_grad_()

    def run(t: torch.Tensor) -> torch.Tensor:
        return sr.embedding_bag(x, t, mode=mode, padding_idx=padding).values ** 2

    assert gradcheck(run, [table])
    assert gradgradcheck(run, [table])
    if mode == "sum":
        weights = sample(name, torch.float64, seed=5).values.clone().requires_grad_()

        def weighted(t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return sr.embedding_bag(x, t, mode=mode, per_sample_weights=x._with(w), padding_idx=padding).values ** 2

        assert gradcheck(weighted, [table, weights])
        assert gradgradcheck(weighted, [table, weights])
        assert gradgradcheck(lambda w: weighted(table.detach(), w), [weights])


OPTIONS = [(mode, options) for mode in MODES for options in ({}, {"padding_idx": 1}, {"max_norm": 0.5})]
OPTIONS += [(mode, {name: True}) for mode in ("sum", "mean") for name in ("sparse", "scale_grad_by_freq")]


@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_the_module_trains_as_on_offsets(mode, options):
    ids = sr.from_lengths(torch.tensor([1, 2, 2, 0, 5, 1]), [2, 0, 3, 1])
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(torch.nn.EmbeddingBag(6, 4, mode=mode, include_last_offset=True, **options))
    ours, theirs = modules
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in modules]
    for _ in range(3):
        results = [ours(ids), theirs(ids.values, ids.offsets[0])]
        assert type(results[0]) is torch.Tensor
        torch.testing.assert_close(*results)
        for result, optimiser in zip(results, optimisers, strict=True):
            optimiser.zero_grad()
            (result**2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    if mode == "sum" and not options:
        weights = ids._with(torch.rand(6))
        torch.testing.assert_close(
            ours(ids, per_sample_weights=weights), theirs(ids.values, ids.offsets[0], weights.values)
        )


def test_first_gradients_equal_those_torch_has():
    torch.manual_seed(0)
    ids = sr.from_lengths(torch.randint(0, 50, (300,)), torch.tensor([0, 100, 3, 0, 150, 47]))
    for mode in MODES:
        table = torch.randn(50, 8)
        grads = []
        for give in (
            lambda t, m=mode: sr.embedding_bag(ids, t, mode=m).values,
            lambda t, m=mode: F.embedding_bag(ids.values, t, ids.offsets[0], mode=m, include_last_offset=True),
        ):
            leaf = table.clone().requires_grad_()
            give(leaf).sin().sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads, rtol=0, atol=0)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_that_are_differentiated_again_equal_those_that_are_not(name, mode):
    x = sample(name, torch.int64)
    table = elements(6, (2,), torch.float64, seed=2).requires_grad_()
    weights = sample(name, torch.float64, seed=5).requires_grad_() if mode == "sum" else None
    for padding in (None, 3):
        made = sr.embedding_bag(x, table, mode=mode, per_sample_weights=weights, padding_idx=padding).values.sin().sum()
        inputs = [table] if weights is None else [table, weights.values]
        once = torch.autograd.grad(made, inputs, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(made, inputs, create_graph=True), once)


def test_undefined_entries_are_in_no_bag():
    for name in ("rows", "features", "two levels", "empty rows", "all rows empty", "no rows", "permuted"):
        x = sample(name, torch.int64)
        d = sr.testing.device_born(x, spare=3)  # the spare entries hold 97
        weights = d._with(torch.full(d.values.shape, float("nan"), dtype=torch.float64))
        weights.values[: x.values.shape[0]] = 0.5
        for mode in MODES:
            grads = []
            for given, factor in ((x, x._with(torch.full(x.values.shape, 0.5, dtype=torch.float64))), (d, weights)):
                table = elements(6, (2,), torch.float64, seed=2).requires_grad_()
                factors = factor if mode == "sum" else None
                with sr.testing.forbid_sync():
                    got = sr.embedding_bag(given, table, mode=mode, per_sample_weights=factors, padding_idx=1)
                (got.values**2)[: sum(1 for _ in bags_of(x))].sum().backward()
                grads.append((got.flat().torch(), table.grad))
            torch.testing.assert_close(*grads)
    with pytest.raises(TypeError, match="lengths must be known to the host"):
        F.embedding_bag(d, torch.ones(6, 2), max_norm=1.0)
    none = sr.testing.device_born(sr.ragged([[], []], dtype=torch.int64), spare=2)
    with sr.testing.forbid_sync():
        assert sr.embedding_bag(none, torch.ones(0, 1)).tolist() == [[0.0], [0.0]]


def test_the_torch_face():
    x = sr.ragged([[1, 2], [], [3]])
    table = torch.randn(4, 2)
    assert type(F.embedding_bag(x, table)) is torch.Tensor
    assert torch.equal(F.embedding_bag(x, table), sr.embedding_bag(x, table).torch())
    assert F.embedding_bag(sr.ragged([[[1], []], [[2]]]), table).shape == (2, sr.Ragged([2, 1]), 2)
    with pytest.raises(TypeError, match="takes no offsets"):
        F.embedding_bag(x, table, torch.tensor([0]))


def test_bad_input_is_named():
    table = torch.ones(4, 2)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for mode in MODES:
            with pytest.raises(IndexError, match="index 9, packed element 1, is out of range for a table of 4 rows"):
                sr.embedding_bag(sr.ragged([[1, 9], [-5]]), table.to(dtype), mode=mode)
            with pytest.raises(IndexError, match="index -1, packed element 0, is out of range"):
                sr.embedding_bag(sr.ragged([[-1]]), table.to(dtype).requires_grad_(), mode=mode)
    with pytest.raises(IndexError, match="index 1, packed element 0"):
        sr.embedding_bag(sr.ragged([[1]]), torch.ones(0, 2))
    with pytest.raises(AxisError, match="the last ragged axis"):
        sr.embedding_bag(torch.tensor([1, 2]), table)
    with pytest.raises(RaggednessError, match="different raggedness"):
        sr.embedding_bag(sr.ragged([[1], [2, 3]]), table, mode="sum", per_sample_weights=sr.ragged([[1.0, 2.0], [3.0]]))


@pytest.mark.parametrize("born", [False, True])
@pytest.mark.parametrize("name", ["rows", "features", "empty rows", "two levels"])
@pytest.mark.parametrize("mode", MODES)
def test_a_device_gives_what_the_host_gives_without_a_wait(device, name, mode, born):
    x, weights = sample(name, torch.int64), sample(name, torch.float64)
    found = []
    for where in (device, "cpu"):
        given = x.to(where)
        factors = given._with(weights.values.to(where)) if mode == "sum" else None
        if born and where == device:
            given = sr.testing.device_born(given, spare=3)
            factors = None if factors is None else given._with(sr.testing.device_born(factors, spare=3).values)
        given.offsets  # noqa: B018 (copied there now, not inside the measurement)
        table = elements(6, (2,), torch.float64, seed=2).to(where).requires_grad_()
        with sr.testing.forbid_sync():
            got = sr.embedding_bag(given, table, mode=mode, per_sample_weights=factors, padding_idx=1)
        sr.testing.raise_deferred()
        (first,) = torch.autograd.grad((got.values**3).sum(), table, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), table, retain_graph=True)
        (plain,) = torch.autograd.grad((got.values**3).sum(), table)
        found.append([t.detach().cpu() for t in (got.flat().torch(), first, second, plain)])
    torch.testing.assert_close(*found)


def test_indices_out_of_range_are_reported_on_a_device_too(device):
    def use() -> None:
        sr.embedding_bag(sr.ragged([[1, 99], [2]]).to(device), torch.ones(4, 2, device=device))
        sr.testing.raise_deferred()

    with pytest.raises(IndexError, match="index 99, packed element 1"):
        use()
    assert sr.embedding_bag(sr.ragged([[1]]).to(device), torch.ones(4, 2, device=device)).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_indices_that_are_overwritten_before_the_backward_pass_are_noticed(mode):
    ids = sr.zeros((1, sr.Ragged([1])), dtype=torch.int64)
    table = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    made = sr.embedding_bag(ids, table, mode=mode)
    ids += 50
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.values.sum().backward()
