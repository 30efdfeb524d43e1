"""What sums by ids, bags, losses, products and gradients lose: at most four times what torch's own do on dense rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.accuracy import EDGES, KINDS, OPERATIONS, births, check, drawn, rows, wide

import serrate as sr

# ----------------------------------------------------------------------------------------- rows by ids, bags, groups


IDS = torch.cat([torch.zeros(20_000, dtype=torch.int64), torch.randint(1, 9, (500,), generator=torch.Generator())])


@pytest.mark.parametrize("features", [(), (3,), (64,)])
@pytest.mark.parametrize("name", ["sum", "mean", "softmax"])
def test_rows_by_ids(name, features, way):
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(0))
    ids = IDS[order]
    for kind in KINDS:
        values = drawn(kind, len(ids), features).float()
        got = getattr(sr, f"segment_{name}")(values, ids, 9).torch()
        found = []
        for i in range(9):
            mine = got[ids == i] if name == "softmax" else got[i]
            found.append(OPERATIONS[name].compared(mine, values[ids == i]))
        check(found, f"segment_{name} of {kind}")


def test_rows_by_ids_of_many_cells(way):
    """More sums than stay near in memory: rows are brought together first."""
    cells, columns = 40_000, 20
    ids = torch.cat([torch.randint(0, cells, (30_000,)), torch.full((5_000,), 7)])
    values = drawn("near 10⁴", len(ids), (columns,)).float()
    got = sr.segment_sum(values, ids, cells).torch()
    truth = torch.zeros(cells, columns, dtype=torch.float64).index_add(0, ids, wide(values))
    assert float(((got - truth).abs() / truth.clamp(min=1)).max()) <= 2 * torch.finfo(torch.float32).eps


def test_bincount_with_weights(way):
    lengths = [*EDGES, 20_000]
    draw = torch.Generator().manual_seed(0)
    x = sr.from_lengths(torch.randint(0, 3, (sum(lengths),), generator=draw), lengths)
    for kind in KINDS:
        weights = drawn(kind, sum(lengths)).float()
        for axis in (1, None):
            got = sr.bincount(x, weights=x._with(weights), axis=axis, minlength=3).torch()
            pieces = zip(x.values.split(lengths), weights.split(lengths), strict=True)
            pairs = list(pieces) if axis == 1 else [(x.values, weights)]
            found = []
            for mine, (bins, amounts) in zip(got if axis == 1 else [got], pairs, strict=True):
                found += [OPERATIONS["sum"].compared(mine[b], amounts[bins == b]) for b in range(3)]
            check(found, f"bincount of {kind}")


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags(mode, weighted, way):
    if weighted and mode == "mean":
        return
    lengths = [*EDGES, 300, 20_000, 2]
    draw = torch.Generator().manual_seed(0)
    ids = sr.from_lengths(torch.randint(0, 50, (sum(lengths),), generator=draw), lengths)
    weights = ids._with(torch.rand(sum(lengths), generator=draw)) if weighted else None
    for kind in KINDS:
        table = drawn(kind, 50, (5,)).float()
        for born, *scale in births(ids, weights) if weights is not None else births(ids):
            per_sample = scale[0] if scale else None
            got = sr.embedding_bag(born, table, mode=mode, per_sample_weights=per_sample).torch()
            found = []
            for i, row in enumerate(ids):
                if not len(row):
                    continue
                taken = table[row.torch()]
                taken = taken if weights is None else taken * weights[i].torch()[:, None]
                found.append(OPERATIONS[mode].compared(got[i], taken))
            check(found, f"embedding_bag of {kind}")


def test_bags_of_any_length_have_the_gradients_of_torch(way):
    draw = torch.Generator().manual_seed(0)
    lengths = [3, 0, 300, 1_000, 256]
    ids = torch.randint(0, 50, (sum(lengths),), generator=draw)
    offsets = F.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    for mode, padding, weighted in (("sum", None, False), ("sum", 7, True), ("mean", None, False), ("mean", 7, False)):
        table = torch.rand(50, 4, generator=draw)
        weights = torch.rand(len(ids), generator=draw) if weighted else None
        outside = torch.rand(len(lengths), 4, generator=draw)
        grads = []
        for by_torch in (False, True):
            leaf = table.clone().requires_grad_()
            scale = None if weights is None else weights.clone().requires_grad_()
            if by_torch:
                made = F.embedding_bag(
                    ids,
                    leaf,
                    offsets,
                    mode=mode,
                    per_sample_weights=scale,
                    include_last_offset=True,
                    padding_idx=padding,
                )
            else:
                x = sr.from_lengths(ids, lengths)
                given = None if scale is None else x._with(scale)
                made = sr.embedding_bag(x, leaf, mode=mode, per_sample_weights=given, padding_idx=padding).torch()
            first = torch.autograd.grad((made * outside).sum(), [leaf] if scale is None else [leaf, scale])
            grads.append((made.detach(), *first))
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-4)


def test_copies_come_together(way):
    copies, count = 300, 40
    draw = torch.Generator().manual_seed(0)
    keys = torch.randint(0, 7, (count, copies), generator=draw)
    weights = torch.rand(count, copies, generator=draw)
    for kind in KINDS:
        values = drawn(kind, count, (3,)).float()
        for scale in (None, weights):
            g = sr.group_by(values, keys, 7, weights=scale)
            got = g.ungroup(g).torch()
            many = values[:, None].expand(count, copies, 3) * (1 if scale is None else scale[..., None])
            check([OPERATIONS["sum"].compared(got, many.movedim(1, 0))], f"ungroup of {kind}")


# -------------------------------------------------------------------------------------------------- losses, products


LOSSES: dict[str, Callable[..., Any]] = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses(name, reduction, way):
    for kind in KINDS:
        x = rows(kind)
        target = x._with(x.values.flip(0).clamp(0, 1) if name.startswith("binary") else x.values.flip(0) * 0.5)
        for born, aimed in births(x, target):
            got = getattr(sr, name)(born, aimed, reduction=reduction)
            own = LOSSES[name](x.values, target.values, reduction=reduction)
            truth = LOSSES[name](wide(x.values), wide(target.values), reduction=reduction)
            check([(got.torch(), own, truth)], f"{name} of {kind}")


def test_cross_entropy(way):
    x = rows("both signs", (5,), giant=8_000)
    labels = sr.Tensor(torch.arange(len(x.values)) % 5, x.structure)
    for born, aimed in births(x, labels):
        for reduction in ("mean", "sum"):
            got = sr.cross_entropy(born.mT, aimed, reduction=reduction)
            own = F.cross_entropy(x.values, labels.values, reduction=reduction)
            truth = F.cross_entropy(wide(x.values), labels.values, reduction=reduction)
            check([(got.torch(), own, truth)], f"cross_entropy, {reduction}")


@pytest.mark.parametrize("equation", ["brd,bre->bde", "brd,bre->de", "brd,br->bd", "brd,brd->b", "brd,bre->rde"])
def test_products_over_rows(equation, way):
    lengths = [*EDGES, 8_000]
    for kind in KINDS:
        x = sr.from_lengths(drawn(kind, sum(lengths), (4,)).float(), lengths)
        other = x._with(x.values.flip(0)) if "br->" not in equation else sr.Tensor(x.values[:, 0], x.structure)
        for born, right in births(x, other):
            got = sr.einsum(equation, born, right)
            found = []
            if equation.endswith("rde"):  # position by position, of which the first few have many rows
                for p in range(3):
                    a, b = (torch.stack([row.torch()[p] for row in t if len(row) > p]) for t in (x, other))
                    found.append(
                        (got[p].torch(), *[torch.einsum("nd,ne->de", f(a), f(b)) for f in (torch.clone, wide)])
                    )
            elif "b" not in equation.split("->")[1]:
                a, b = x.values, other.values
                found.append((got.torch(), *[torch.einsum("rd,re->de", f(a), f(b)) for f in (torch.clone, wide)]))
            else:
                single = equation.replace("b", "")
                for i, (a, b) in enumerate(zip(x, other, strict=True)):
                    pair = [t.torch() for t in (a, b)]
                    found.append((got[i].torch(), *[torch.einsum(single, *map(f, pair)) for f in (torch.clone, wide)]))
            check(found, f"{equation} of {kind}")


def test_products_over_many_tiles():
    """Where only the device knows lengths, a product is the sum of those of tiles of rows."""
    x = sr.from_lengths(drawn("near 10⁴", 600_000, (1,)).float(), [3, 599_997])
    got = sr.einsum("brd,bre->bde", *[sr.testing.device_born(x)] * 2)
    row = x[1].torch()[:, 0]
    check([(got[1, 0, 0].torch(), (row * row).sum(), (wide(row) * wide(row)).sum())], "a product over tiles")


# --------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("shape", [(1,), (3, 1)], ids=["one for all", "one for each row"])
@pytest.mark.parametrize("features", [(), (3,), (64,)])
def test_gradients_of_what_is_stretched(shape, features, way):
    lengths = [5_000, 3, 300]
    for kind in KINDS:
        x = sr.from_lengths(drawn("units", sum(lengths), features).float(), lengths)
        outside = drawn(kind, sum(lengths), features, seed=1).float()
        for (born,) in births(x):
            leaf = torch.ones(*shape, *features, requires_grad=True)
            made = born * leaf
            undefined = torch.full((made.values.shape[0] - len(outside), *features), float("nan"))
            made.values.backward(torch.cat([outside, undefined]))
            assert leaf.grad is not None
            products = (outside * x.values).split(lengths) if len(shape) > 1 else [outside * x.values]
            truth = (
                (wide(outside) * wide(x.values)).split(lengths) if len(shape) > 1 else [wide(outside) * wide(x.values)]
            )
            mine = leaf.grad if len(shape) > 1 else [leaf.grad]
            found = [
                (m.reshape(features), p.sum(0), t.sum(0), float(p.abs().max()))
                for m, p, t in zip(mine, products, truth, strict=True)
            ]
            check(found, f"the gradient of {shape} beside {kind}")


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n != "cumulative_sum"])
@pytest.mark.parametrize("axis", [1, 0])
def test_gradients(name, axis, way):
    operation = OPERATIONS[name]
    lengths = [3_000, 3, 200] if axis == 1 else [2, 1] * 1_000
    for kind in ("both signs", "units"):
        x = sr.from_lengths(drawn(kind, sum(lengths), (2,)).float(), lengths)
        leaf = x.values.clone().requires_grad_()
        outside = drawn("near 10⁴", 5_000, (2,), seed=2).float()
        made = operation.ours(x._with(leaf), axis)
        made.values.backward(outside[: made.values.shape[0]])
        found = []
        groups = list(torch.arange(sum(lengths)).split(lengths)) if axis == 1 else by_position(lengths)
        for i, at in enumerate(groups):
            grads = []
            for cast in (torch.clone, wide):
                dense = cast(x.values[at]).requires_grad_()
                cotangent = outside[: len(x.values)][at] if operation.each else outside[i]
                operation.dense(dense).backward(cotangent.to(dense.dtype))
                grads.append(dense.grad)
            found.append((leaf.grad[at], *grads))
        check(found, f"the gradient of {name} of {kind}")


def by_position(lengths: list[int]) -> list[torch.Tensor]:
    places = torch.cat([torch.arange(n) for n in lengths])
    return [(places == p).nonzero().flatten() for p in range(max(lengths))]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_under_torch_func():
    """Transforms have no memory to read: the sums of torch are as accurate."""
    x = rows("near 10⁴", giant=20_000)
    for name in ("sum", "var", "logsumexp"):
        found = []
        _, tangents = torch.func.jvp(
            lambda v, n=name: OPERATIONS[n].ours(x._with(v), 1).values, (x.values,), (x.values,)
        )
        by_lines = torch.func.vmap(lambda v, n=name: OPERATIONS[n].ours(x._with(v), 1).values)(x.values[None])[0]
        for i, row in enumerate(x):
            if len(row):
                found.append(OPERATIONS[name].compared(by_lines[i], row.torch()))
        check(found, f"{name} under vmap")
        if name == "sum":
            sums = [OPERATIONS[name].compared(tangents[i], row.torch()) for i, row in enumerate(x) if len(row)]
            check(sums, "the tangent of a sum")
