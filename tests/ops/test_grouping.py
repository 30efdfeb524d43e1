"""group_by, bincount and reductions by ids: against Python lists, with gradients, device-born lengths and bad input."""

from __future__ import annotations

import copy
import doctest
import math
import pickle
from typing import Any

import pytest
import torch
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import _pytree as pytree

import serrate as sr
from serrate.errors import RaggednessError
from serrate.ops import grouping
from serrate.ops.derivatives import pullback
from serrate.ops.grouping import Grouped
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "grouping"]
SEGMENTS = [op for op in OPS if op.name.startswith("segment_")]
ALL_DTYPES = [d for kind in DTYPES.values() for d in kind]


def keys_for(x: sr.Tensor, copies: int | None, groups: int, drop: bool, seed: int = 3) -> Any:
    generator = torch.Generator().manual_seed(seed)
    shape = (x.values.shape[0],) if copies is None else (x.values.shape[0], copies)
    values = torch.randint(-1 if drop else 0, groups, shape, generator=generator)
    packed = len(x.structure.axes)
    order = [c for c in x.order if c < packed] + ([] if copies is None else [packed])
    return sr.Tensor(values, x.structure, tuple(order))


def seen_features(x: sr.Tensor) -> list[Any]:
    """Packed rows as lists, features in the order they are seen in."""
    packed = len(x.structure.axes)
    return x.values.permute(0, *[c - packed + 1 for c in x.order if c >= packed]).tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copies", [None, 1, 3])
@pytest.mark.parametrize("drop", [False, True])
def test_groups_equal_python_lists_and_come_back(name, copies, drop):
    for dtype in ALL_DTYPES:
        if name == "NaN and inf" and not dtype.is_floating_point:
            continue
        x = sample(name, dtype)
        keys = keys_for(x, copies, 4, drop)
        rows, wanted = seen_features(x), keys.values.reshape(x.values.shape[0], copies or 1).tolist()
        lists = [[rows[n] for n, each in enumerate(wanted) for key in each if key == e] for e in range(4)]
        sources = [[n for n, each in enumerate(wanted) for key in each if key == e] for e in range(4)]
        got = sr.group_by(x, keys, 4)
        assert type(got) is Grouped
        assert got.shape[0] == 4
        assert got.dtype == dtype
        assert str(got.tolist()) == str(lists)
        assert got.source.tolist() == sources
        assert got.source.dtype == torch.int64
        assert got.weights is None
        assert got.partitions[0].is_host_born
        assert got.partitions[0].is_exact
        back = got.ungroup(got)
        assert back.shape == x.shape
        assert back.order == x.order
        summed = dtype if dtype.is_floating_point or dtype.is_complex else torch.int64
        assert back.dtype == summed
        if copies is None:
            whole = seen_features(x._with(x.values.to(summed)))
            expected = [row if each[0] >= 0 else zeroed(row) for row, each in zip(whole, wanted, strict=True)]
            assert str(seen_features(back)) == str(expected)
        dense = sr.group_by(x.values, keys.values, 4)
        assert type(dense) is Grouped
        assert dense.ungroup(dense).shape == tuple(x.values.shape)


def zeroed(row: Any) -> Any:
    if isinstance(row, list):
        return [zeroed(each) for each in row]
    return type(row)(0)


@pytest.mark.parametrize(
    "name", ["rows", "features", "permuted", "product", "two levels", "no rows", "zero-size features"]
)
@pytest.mark.parametrize("weighted", [None, "each copy", "each row"])
def test_copies_are_added_with_their_weights(name, weighted):
    x = sample(name, torch.float64)
    keys = keys_for(x, 2, 3, drop=True)
    weights = None
    factors = torch.ones(x.values.shape[0], 2, dtype=torch.float64)
    if weighted == "each copy":
        factors = elements(x.values.shape[0], (2,), torch.float64, seed=5)
        weights = keys._with(factors)
    elif weighted == "each row":
        single = elements(x.values.shape[0], (), torch.float64, seed=6)
        factors = single[:, None].expand(-1, 2)
        weights = sr.positions(x, 0)._with(single)
    got = sr.group_by(x, keys, 3, weights=weights)
    if weights is not None:
        lists = [
            [factors[n, j].item() for n in range(x.values.shape[0]) for j in range(2) if keys.values[n, j] == e]
            for e in range(3)
        ]
        assert got.weights.tolist() == lists
    back = got.ungroup(got * 2)
    assert back.order == x.order
    kept = ((keys.values >= 0) * factors).sum(1)
    want = x.values * 2 * kept.view(-1, *[1] * (x.values.ndim - 1))
    torch.testing.assert_close(
        torch.tensor(seen_features(back), dtype=torch.float64).reshape(-1),
        torch.tensor(seen_features(x._with(want)), dtype=torch.float64).reshape(-1),
    )


@pytest.mark.parametrize("copies", [None, 2])
@pytest.mark.parametrize("lead", [(7,), (2, 5), (2, 256), (3, 1, 4), (0, 3), (2, 0)])
def test_rows_on_several_axes_are_those_that_keys_have(lead, copies):
    """Tokens [B, T, D] with keys [B, T] or [B, T, k]: as if both were flattened, and back on the same axes."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randn(*lead, 3, generator=generator, dtype=torch.float64)
    shape = lead if copies is None else (*lead, copies)
    keys = torch.randint(-1, 4, shape, generator=generator)
    count = math.prod(lead)
    for share in (None, torch.rand(shape, generator=generator), torch.rand(lead, generator=generator)):
        got = sr.group_by(tokens, keys, 4, weights=share)
        rows = tokens.reshape(count, 3)
        each = keys.reshape(count, copies or 1).tolist()
        assert got.tolist() == [[rows[n].tolist() for n in range(count) for k in each[n] if k == e] for e in range(4)]
        assert got.source.tolist() == [[n for n in range(count) for k in each[n] if k == e] for e in range(4)]
        factors = torch.ones(shape) if share is None else share
        factors = factors[..., None] if copies is None else factors if factors.shape == shape else factors[..., None]
        kept = ((keys if copies is not None else keys[..., None]) >= 0) * factors
        total = kept.expand(*lead, copies or 1).sum(-1, keepdim=True)
        torch.testing.assert_close(got.ungroup(got * 2).torch(), (tokens * 2 * total).to(torch.float64))
        scores = got.ungroup(sr.sum(got, axis=2))
        torch.testing.assert_close(scores.torch(), (tokens * total).sum(-1).to(torch.float64))
        wide = got.ungroup(got @ torch.ones(4, 3, 5, dtype=torch.float64))
        assert wide.shape == (*lead, 5)


def test_which_axes_of_keys_name_rows():
    tokens = torch.arange(24.0).view(2, 3, 4)
    each = sr.group_by(tokens, torch.tensor([1, 0]), 2)
    assert each.shape == (2, sr.Ragged([1, 1]), 3, 4)
    assert torch.equal(each.ungroup(each).torch(), tokens)
    for wrong in (
        torch.zeros(2, 4).long(),
        torch.zeros(3, 3).long(),
        torch.zeros(2, 4, 1).long(),
        torch.zeros(()).long(),
    ):
        with pytest.raises(
            ValueError, match=r"keys must have one entry for each row of shape \(2, 3, 4\), or one axis"
        ):
            sr.group_by(tokens, wrong, 2)
    with pytest.raises(ValueError, match=r"weights must have the shape of keys, \(2, 3\), or of rows, got \(2,\)"):
        sr.group_by(tokens, torch.zeros(2, 3).long(), 2, weights=torch.ones(2))
    numbers = torch.tensor([[1, 2], [3, 4]])
    assert sr.group_by(numbers, torch.tensor([[0, 1], [1, 1]]), 2).tolist() == [[[1, 2]], [[1, 2], [3, 4], [3, 4]]]
    assert sr.group_by(numbers, torch.tensor([[[0], [1]], [[1], [0]]]), 2).tolist() == [[1, 4], [2, 3]]


def test_the_operation_that_brings_entries_back_takes_weights_as_an_operand():
    """A program sees them there: what the groups were made with, or others that fit, and no others."""
    x, ungroup = sample("features", torch.float64), TABLE["Grouped.ungroup"].function
    keys = keys_for(x, 2, 3, drop=False)
    given = keys._with(elements(6, (2,), torch.float64, seed=5))
    g = sr.group_by(x, keys, 3, weights=given)
    assert g.route.weights is given
    assert ungroup(g, g).tolist() == (x * 2).tolist()
    assert ungroup(g, g, given).tolist() == g.ungroup(g).tolist()
    assert ungroup(g, g, sr.positions(x, 0)).tolist() == (x * sr.positions(x, 0)[..., None] * 2).tolist()
    with pytest.raises(ValueError, match=r"weights must have the shape of keys, .*, 2\), or of rows, got .*, 3\)"):
        ungroup(g, g, keys_for(x, 3, 3, drop=False))
    with pytest.raises(RaggednessError, match="weights must be as ragged as values"):
        ungroup(g, g, torch.ones(6, 2))


def test_gradients_reach_rows_on_several_axes():
    tokens = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    share = torch.rand(2, 5, 2, dtype=torch.float64, requires_grad=True)
    keys = torch.tensor([[[0, 1], [2, 0], [-1, 1], [1, 2], [0, 2]]] * 2)

    def routed(t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        g = sr.group_by(t, keys, 3, weights=w)
        return g.ungroup(g * g).torch()

    assert torch.autograd.gradcheck(routed, (tokens, share), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(routed, (tokens, share))


def test_other_features_come_back_last():
    x = sample("permuted", torch.float64)
    got = sr.group_by(x, keys_for(x, None, 3, drop=False), 3)
    assert got.shape == (3, got.shape[1], 2)
    scores = got.ungroup(sr.sum(got, axis=2))
    assert scores.shape == (3, sr.Ragged([3, 1, 2]))
    torch.testing.assert_close(scores.values, x.values.sum(1))
    wide = got.ungroup(sr.expand_dims(got, axis=3) * torch.ones(5))
    assert wide.shape == (3, sr.Ragged([3, 1, 2]), 2, 5)
    seen = got.ungroup(got.permute_dims((0, 2, 1)))
    torch.testing.assert_close(seen.to_dense().torch(), x.to_dense().torch())


def test_half_copies_are_added_in_float32():
    x = torch.ones(1, 1, dtype=torch.float16)
    got = sr.group_by(x, torch.zeros(1, 4096, dtype=torch.int64), 1)
    assert got.ungroup(got).item() == 4096.0
    whole = sr.group_by(torch.ones(2, dtype=torch.int8), torch.zeros(2, 200, dtype=torch.int64), 1)
    assert whole.ungroup(whole).tolist() == [200, 200]


@pytest.mark.parametrize("name", ["rows", "features", "permuted", "two levels"])
@pytest.mark.parametrize("copies", [None, 2])
def test_gradients(name, copies):
    x = sample(name, torch.float64)
    keys = keys_for(x, copies, 3, drop=True)
    shape = keys.values.shape
    values, weights = (
        x.values.clone().requires_grad_(),
        elements(shape[0], tuple(shape[1:]), torch.float64).requires_grad_(),
    )

    def run(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        got = sr.group_by(x._with(v), keys, 3, weights=keys._with(w))
        return got.ungroup(got * got * 2).values

    assert gradcheck(run, [values, weights])
    assert gradgradcheck(run, [values, weights])

    def grouped(v: torch.Tensor, w: torch.Tensor) -> Any:
        got = sr.group_by(x._with(v), keys, 3, weights=keys._with(w))
        return got.values, got.weights.values

    assert gradcheck(grouped, [values, weights])
    assert gradgradcheck(grouped, [values, weights])


def test_device_born_rows_are_grouped_without_a_wait():
    for name in ("rows", "features", "two levels", "permuted", "empty rows", "all rows empty", "no rows"):
        x = sample(name, torch.float64)
        for copies in (None, 2):
            keys = keys_for(x, copies, 3, drop=True)
            d = sr.testing.device_born(x, spare=3)
            spare = d.values.shape[0] - x.values.shape[0]
            kept = torch.cat([keys.values, keys.values.new_full((spare, *keys.values.shape[1:]), 99)])
            with sr.testing.forbid_sync():
                device_keys = sr.Tensor(kept, d.structure, keys.order)
                weights = device_keys._with(torch.full(kept.shape, 2.0, dtype=torch.float64))
                got = sr.group_by(d, device_keys, 3, weights=weights)
                back = got.ungroup(got + 1)
                weights, source = got.weights, got.source
            host = sr.group_by(x, keys, 3, weights=keys._with(torch.full(keys.values.shape, 2.0, dtype=torch.float64)))
            assert not got.partitions[0].is_host_born
            assert got.values.shape[0] == kept.numel()
            assert got.tolist() == host.tolist()
            assert weights.tolist() == host.weights.tolist()
            assert source.tolist() == host.source.tolist()
            assert back.structure is d.structure
            assert back.tolist() == host.ungroup(host + 1).tolist()


def test_nothing_undefined_or_dropped_reaches_a_gradient():
    x = sr.from_lengths(torch.tensor([[1.0], [2.0], [float("nan")]], dtype=torch.float64), [2, 1])
    d = sr.testing.device_born(x, spare=2)
    values = d.values.clone().requires_grad_()
    weights = torch.tensor([1, 1, float("nan"), 1, 1], dtype=torch.float64).requires_grad_()
    keys = sr.Tensor(torch.tensor([1, 0, -1, 0, 0]), d.structure)
    got = sr.group_by(d._with(values), keys, 2, weights=keys._with(weights))
    undefined = torch.arange(5)[:, None] >= 2
    spoilt = torch.where(undefined, float("nan"), got.values)
    spoilt.retain_grad()
    made = got.ungroup((got * 1)._with(spoilt))
    assert made.tolist() == [[[1.0], [2.0]], [[0.0]]]
    made.values.sum().backward()
    assert values.grad.flatten().tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert weights.grad.tolist() == [1.0, 2.0, 0.0, 0.0, 0.0]
    assert spoilt.grad.flatten().tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    plain = sr.group_by(d, keys, 2)
    entries = plain.values.clone().requires_grad_()
    plain.ungroup((plain * 1)._with(entries)).values.sum().backward()
    assert entries.grad.flatten().tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_operations_give_plain_tensors():
    g = sr.group_by(torch.randn(6, 2), torch.tensor([0, 1, 0, 2, 1, 0]), 3)
    made = [
        g + 1, -g, g.exp(), sr.sum(g, axis=1), sr.sum(g, axis=(0, 1)), sr.softmax(g, axis=1), g[0], g[:, :1], g[..., 0],
        g[1:], g[[0, 2]], g[:, :, [1]], g.permute_dims((0, 2, 1)), g.clone(), g.detach(), g.flat(), g.combine(1),
        g.to_dense(), sr.expand_dims(g, axis=0), *g.rows(), g.to(torch.float64), g[g > 0], g.mask(), sr.flip(g, axis=1),
        sr.testing.device_born(g), sr.concat([g, g], axis=1), sr.take(g, [0], axis=1), copy.copy(g), copy.deepcopy(g),
        pickle.loads(pickle.dumps(g)), torch.relu(g), sr.linear(g, torch.ones(3, 2)), g.source, g == g,
    ]  # fmt: skip
    assert {type(each) for each in made if isinstance(each, sr.Tensor)} == {sr.Tensor}
    assert g.contiguous() is g
    assert pickle.loads(pickle.dumps(g)).tolist() == g.tolist()


def test_tree_functions_keep_the_way_back():
    x = torch.randn(4, 2)
    g = sr.group_by(x, torch.tensor([1, 0, 1, 1]), 2)
    leaves, spec = pytree.tree_flatten(g)
    assert len(leaves) == 1
    assert leaves[0] is g.values
    doubled = pytree.tree_map(lambda v: v * 2, g)
    assert type(doubled) is Grouped
    torch.testing.assert_close(doubled.ungroup(doubled).torch(), x * 2)
    assert pytree.tree_unflatten(leaves, spec).route is g.route
    ((path, _),), _ = pytree.tree_flatten_with_path(g)
    assert str(path[0]) == ".values"


def test_wrong_calls_are_named():
    x = sample("features", torch.float32)
    good = torch.zeros(6, dtype=torch.int64)
    with pytest.raises(RaggednessError, match="ungroup takes a tensor with the raggedness"):
        sr.group_by(x.values, good, 2).ungroup(x)
    with pytest.raises(RaggednessError, match="ungroup takes a tensor with the raggedness"):
        sr.group_by(x.values, good, 2).ungroup(x.values)
    with pytest.raises(RaggednessError, match="keys must be ragged as values"):
        sr.group_by(x, sr.from_lengths(good, [1, 2, 3]), 2)
    roomy = sr.testing.device_born(sr.from_lengths(good, x.shape[1].lengths), spare=2)
    with pytest.raises(RaggednessError, match="with room for 6 and 8 entries"):
        sr.group_by(sr.testing.device_born(x), roomy, 2)
    with pytest.raises(ValueError, match="keys must have one entry for each row"):
        sr.group_by(x.values, good[:5], 2)
    with pytest.raises(ValueError, match="one axis of them"):
        sr.group_by(x.values, good.view(6, 1, 1), 2)
    with pytest.raises(ValueError, match="weights must have the shape of keys"):
        sr.group_by(x.values, good, 2, weights=torch.ones(6, 2))
    with pytest.raises(IndexError, match="key -2 of row 1 is out of range for 2 groups"):
        sr.group_by(x.values, torch.tensor([[0, 1], [-2, 0], [0, 0], [0, 0], [0, 0], [0, 0]]), 2)
    with pytest.raises(TypeError, match="num_groups must be an integer"):
        sr.group_by(x.values, good, 2.5)
    with pytest.raises(TypeError, match="expected an sr"):
        sr.group_by(x.values, [0, 1], 2)
    with pytest.raises(ValueError, match="needs rows"):
        sr.group_by(torch.tensor(1.0), torch.tensor(1), 2)
    product = sample("product", torch.float32)
    swapped = sr.positions(product, 0).permute_dims((0, 2, 1))
    with pytest.raises(RaggednessError, match="keys must be ragged as values"):
        sr.group_by(product, swapped, 3)


def test_many_groups_and_no_groups():
    for groups in (300, 70_000):
        keys = torch.randint(0, groups, (1000,), generator=torch.Generator().manual_seed(0))
        got = sr.group_by(torch.arange(1000), keys, groups)
        assert torch.equal(got.values, keys.sort(stable=True).indices)
        assert torch.equal(got.lengths[0], torch.bincount(keys, minlength=groups))
    none = sr.group_by(torch.ones(2, 3), torch.tensor([-1, -1]), 0)
    assert none.shape == (0, sr.Ragged([]), 3)
    assert none.ungroup(none).tolist() == [[0.0] * 3] * 2


# ------------------------------------------------------------------------------------------------ bincount


def cells(nested: Any, at: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Any]]:
    if not isinstance(nested, list):
        return [(at, nested)]
    return [found for i, inner in enumerate(nested) for found in cells(inner, (*at, i))]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "NaN and inf"])
@pytest.mark.parametrize("minlength", [0, 9])
def test_bincount_equals_enumeration(name, minlength):
    for dtype in DTYPES["int"]:
        x = sample(name, dtype)
        weights = sample(name, torch.float64, seed=4)
        found, weighed = cells(x.tolist()), [v for _, v in cells(weights.tolist())]
        bins = max(max((v for _, v in found), default=-1) + 1, minlength)
        for axis in (None, *range(x.ndim)):
            for factors in (None, weights):
                got = sr.bincount(x, axis=axis, minlength=minlength, weights=factors)
                assert got.shape[-1] == bins
                assert got.dtype == (torch.int64 if factors is None else torch.float64)
                want: dict[tuple[int, ...], float] = {}
                for (index, value), factor in zip(found, weighed, strict=True):
                    at = () if axis is None else (*index[:axis], *index[axis + 1 :])
                    want[*at, value] = want.get((*at, value), 0) + (1 if factors is None else factor)
                for at, value in cells(got.tolist()):
                    assert value == pytest.approx(want.pop(at, 0))
                assert not want


def test_bincount_of_data_born_on_a_device():
    x = sample("two levels", torch.int64)
    d = sr.testing.device_born(x, spare=3)
    weights = d._with(torch.full(d.values.shape, float("nan")))
    weights.values[: x.values.shape[0]] = 0.5
    with sr.testing.forbid_sync():
        plain, half = sr.bincount(d, axis=2, minlength=7), sr.bincount(d, axis=2, minlength=7, weights=weights)
        by_feature = sr.bincount(d, axis=3, minlength=7)
    assert plain.tolist() == sr.bincount(x, axis=2, minlength=7).tolist()
    assert by_feature.tolist() == sr.bincount(x, axis=3, minlength=7).tolist()
    assert half.dtype == torch.float32
    assert torch.equal(half.flat().torch(), sr.bincount(x, axis=2, minlength=7).flat().torch() / 2)
    assert sr.bincount(d).tolist() == sr.bincount(x).tolist()
    with pytest.raises(ValueError, match="needs minlength"):
        sr.bincount(d, axis=2)
    with pytest.raises(ValueError, match=r"bins for 0 \.\. 1, but packed element"):
        sr.bincount(d, axis=2, minlength=2)


def test_bincount_of_one_number():
    assert sr.bincount(sr.Tensor(torch.tensor(2)), minlength=4).tolist() == [0, 0, 1, 0]
    assert sr.bincount(torch.tensor(1), weights=torch.tensor(0.5)).tolist() == [0.0, 0.5]


def test_bincount_on_the_torch_face():
    x = sr.ragged([[0, 2, 2], [], [1]])
    assert torch.bincount(x).tolist() == [1, 1, 2]
    assert type(torch.bincount(x)) is torch.Tensor
    assert type(x.bincount()) is sr.Tensor
    assert torch.bincount(x, sr.ragged([[1.0, 2.0, 3.0], [], [4.0]]), 4).tolist() == [1.0, 4.0, 5.0, 0.0]
    factors = torch.ones(4, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda w: sr.bincount(x, weights=x._with(w), axis=1).values, [factors])


# ------------------------------------------------------------------------------------------------ segments


def reduced(name: str, rows: list[list[Any]], dtype: torch.dtype) -> list[Any]:
    """One result per feature, in double or int64."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    group = torch.tensor(rows, dtype=wide)
    return {
        "segment_sum": lambda: group.sum(0),
        "segment_mean": lambda: group.mean(0),
        "segment_max": lambda: group.amax(0),
        "segment_min": lambda: group.amin(0),
        "segment_prod": lambda: group.prod(0),
        "segment_softmax": lambda: group.softmax(0),
    }[name]()


def of_nothing(name: str, dtype: torch.dtype) -> float:
    if name in ("segment_max", "segment_min"):
        limits = torch.iinfo(dtype) if not dtype.is_floating_point else None
        least, most = (-math.inf, math.inf) if limits is None else (limits.min, limits.max)
        return least if name == "segment_max" else most
    return {"segment_sum": 0, "segment_prod": 1, "segment_mean": math.nan}[name]


@pytest.mark.parametrize("op", SEGMENTS, ids=lambda op: op.name)
def test_segments_equal_enumeration(op):
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            values = elements(7, (2,), dtype)
            ids = torch.tensor([3, 0, 3, 5, 0, 3, 0], dtype=torch.int32)
            got = op.function(values, ids, 6)
            assert isinstance(got, sr.Tensor)
            fine = 8 * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0
            for e in range(6):
                at = [n for n in range(7) if ids[n] == e]
                mine = got.torch()[at] if op.name == "segment_softmax" else got.torch()[e]
                if at:
                    want = reduced(op.name, values[at].tolist(), dtype)
                    torch.testing.assert_close(mine.to(want.dtype), want, rtol=fine, atol=fine)
                elif op.name != "segment_softmax":
                    assert mine.tolist() == pytest.approx([of_nothing(op.name, dtype)] * 2, nan_ok=True)
            integral = op.name in ("segment_sum", "segment_prod") and fine == 0
            assert got.dtype == (torch.int64 if integral else dtype)
            for features in ((), (0,), (2, 3)):
                none = op.function(elements(0, features, dtype), torch.zeros(0, dtype=torch.int64), 2)
                assert none.shape == ((0 if op.name == "segment_softmax" else 2), *features)


@pytest.mark.parametrize("op", SEGMENTS, ids=lambda op: op.name)
def test_segment_gradients_and_the_rules_for_the_compiler(op):
    ids = torch.tensor([3, 0, 3, 1, 0, 3])
    values = elements(6, (2,), torch.float64).requires_grad_()

    def run(v: torch.Tensor) -> torch.Tensor:
        made = op.function(v, ids, 4).values
        return torch.where(made.isfinite(), made, 0)

    assert gradcheck(run, [values])
    assert gradgradcheck(run, [values])
    out = op.function(values, ids, 4)
    g = sr.Tensor(elements(out.values.shape[0], (2,), torch.float64, seed=9))
    (want,) = torch.autograd.grad(out.values, [values], torch.where(out.values.isfinite(), g.values, 0))
    _, back = pullback(lambda v: op.function(v, ids, 4), sr.Tensor(values.detach()))
    (got,) = back(g)
    torch.testing.assert_close(got.values, want)


def test_products_with_zeros_have_both_derivatives():
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    values = torch.tensor([2.0, 3, 4, 0, 5, 6, 0, 0, 7, 0, 0, 0, 8], dtype=torch.float64).requires_grad_()

    def by_row(v: torch.Tensor) -> torch.Tensor:
        return torch.stack([each.prod() for each in v.split([3, 3, 3, 4])])

    ours = torch.autograd.functional.hessian(lambda v: sr.segment_prod(v, ids, 4).values.sum(), values)
    triples = torch.zeros(13, 13, dtype=torch.float64)
    for i in range(13):
        for j in range(13):
            if i != j and ids[i] == ids[j]:
                rest = [values.tolist()[n] for n in range(13) if ids[n] == ids[i] and n not in (i, j)]
                triples[i, j] = math.prod(rest)
    torch.testing.assert_close(ours, triples)
    (mine,) = torch.autograd.grad(sr.segment_prod(values, ids, 4).values.sum(), values)
    (theirs,) = torch.autograd.grad(by_row(values).sum(), values)
    torch.testing.assert_close(mine, theirs)
    rotated = elements(5, (), torch.complex128).requires_grad_()
    assert gradcheck(lambda v: sr.segment_prod(v, ids[:5], 2).values, [rotated])


def test_segments_keep_nan_apart_and_accumulate_in_float32():
    values = torch.tensor([math.nan, 1.0, math.inf, 2.0])
    ids = torch.tensor([2, 0, 1, 0])
    assert sr.segment_sum(values, ids, 3).tolist()[:2] == [3.0, math.inf]
    assert sr.segment_max(values, ids, 3).tolist()[:2] == [2.0, math.inf]
    assert sr.segment_prod(values, ids, 3).tolist()[:2] == [2.0, math.inf]
    assert math.isnan(sr.segment_max(values, ids, 3).tolist()[2])
    assert sum(sr.segment_softmax(values, ids, 3).tolist()[1::2]) == pytest.approx(1.0)
    assert sr.segment_softmax(torch.full((2,), -math.inf), torch.zeros(2).int(), 1).isnan().tolist() == [True, True]
    for dtype in DTYPES["float"][2:]:
        ones = torch.ones(5000, dtype=dtype)
        assert float(sr.segment_sum(ones, torch.zeros(5000).int(), 1)) == float(torch.tensor(5000.0, dtype=dtype))
        assert float(sr.segment_mean(ones, torch.zeros(5000).int(), 1)) == 1.0


def test_segment_errors():
    with pytest.raises(IndexError, match="out of range for 0 rows, got 2"):
        sr.segment_sum(torch.ones(2), torch.tensor([0, 0]), 0)
    with pytest.raises(TypeError, match="segment_mean needs floating-point"):
        sr.segment_mean(torch.ones(2).int(), torch.tensor([0, 0]), 1)
    with pytest.raises(TypeError, match="segment_max needs ordered"):
        sr.segment_max(torch.ones(2, dtype=torch.complex64), torch.tensor([0, 0]), 1)
    with pytest.raises(TypeError, match="segment_softmax needs floating-point"):
        sr.segment_softmax(torch.ones(2).int(), torch.tensor([0, 0]), 1)


def test_the_class_documents_itself():
    assert doctest.testmod(grouping).failed == 0


# ------------------------------------------------------------------------------------------------ devices


def test_a_device_gives_what_the_host_gives_without_a_wait(device):
    values, weights = elements(50, (3,), torch.float64), elements(50, (2,), torch.float64, seed=1)
    keys = torch.randint(-1, 5, (50, 2), generator=torch.Generator().manual_seed(0))
    ids = keys[:, 0] + 1

    def run(where: str) -> list[Any]:
        leaf, factors = (t.clone().to(where).requires_grad_() for t in (values, weights))
        by, segment = keys.to(where), ids.to(where)
        with sr.testing.forbid_sync():
            g = sr.group_by(leaf, by, 5, weights=factors)
            back = g.ungroup(g * 2)
            (back.values**2).sum().backward()
            sums = [op.function(leaf.detach(), segment, 6) for op in SEGMENTS]
            counts = sr.bincount(sr.Tensor(by + 1), axis=0, minlength=6)
        sr.testing.raise_deferred()
        assert g.partitions[0].is_host_born == (where == "cpu")
        lists = [g.tolist(), g.source.tolist(), g.weights.tolist(), counts.tolist()]
        return lists + [t.detach().cpu() for t in (back.values, leaf.grad, factors.grad, *(s.values for s in sums))]

    for mine, theirs in zip(run(device), run("cpu"), strict=True):
        if isinstance(mine, list):
            assert mine == theirs
        else:
            torch.testing.assert_close(mine, theirs)


def test_keys_and_ids_out_of_range_are_reported_on_a_device_too(device):
    def use(function: Any, *given: Any) -> None:
        function(*(g.to(device) if isinstance(g, torch.Tensor) else g for g in given))
        sr.testing.raise_deferred()

    with pytest.raises(IndexError, match="key 7 of row 1 is out of range"):
        use(sr.group_by, torch.ones(2), torch.tensor([0, 7]), 2)
    with pytest.raises(IndexError, match="row id 7 at position 1"):
        use(sr.segment_sum, torch.ones(2), torch.tensor([0, 7]), 2)
    with pytest.raises(IndexError, match="row id -1 at position 0"):
        use(sr.segment_softmax, torch.ones(2), torch.tensor([-1, 0]), 2)
    with pytest.raises(ValueError, match="packed element 0 is -4"):
        use(lambda x: sr.bincount(x, axis=1, minlength=3), torch.tensor([[-4]]))
    assert sr.segment_sum(torch.ones(2, device=device), torch.tensor([0, 1], device=device), 2).tolist() == [1.0, 1.0]


def test_keys_stored_in_another_order_than_values():
    q, k = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])
    x = sr.from_product(torch.arange(5.0), q, k)
    keys = sr.from_product(torch.tensor([0, 1, 0, 1, -1]), k, q).permute_dims((0, 2, 1))
    assert x.shape == keys.shape
    copy = sr.Tensor(
        torch.tensor([keys[b, i, j].item() for b, n, m in ((0, 2, 1), (1, 1, 3)) for i in range(n) for j in range(m)]),
        x.structure,
    )
    assert copy.tolist() == keys.tolist()
    for weights in (None, keys * 1.0):
        got, want = (sr.group_by(x, by, 2, weights=weights) for by in (keys, copy))
        assert got.tolist() == want.tolist()
        assert got.ungroup(got).tolist() == want.ungroup(want).tolist()
