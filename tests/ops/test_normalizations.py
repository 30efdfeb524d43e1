"""Normalizations, each record of the table: against torch on each row, along every axis, with gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.samples import DTYPES, NAMES, leaves, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "normalizations"]


def by_torch(name: str, row: torch.Tensor, dim: int) -> torch.Tensor:
    """The operation on a dense row, composed from its definition."""
    wide = row.double()
    if name in ("softmax", "log_softmax"):
        return getattr(torch, name)(wide, dim)
    if name == "normalize":
        return F.normalize(wide, dim=dim)
    if name == "rms_norm":
        return wide / (wide.square().mean(dim, keepdim=True) + torch.finfo(row.dtype).eps).sqrt()
    centred = wide - wide.mean(dim, keepdim=True)
    return centred / (centred.square().mean(dim, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("product", "two levels", "permuted")])
def test_along_the_ragged_axis_and_features_equals_torch_on_each_row(op, name):
    for dtype in DTYPES["float"]:
        x = sample(name, dtype)
        for axis in range(1, x.ndim):
            got = op.function(x, axis=axis)
            assert got.dtype == dtype
            assert got.partitions[0] is x.partitions[0]
            for mine, row in zip(leaves(got), leaves(x), strict=True):
                want = by_torch(op.name, row, axis - 1)
                fine = 64 * torch.finfo(dtype).eps  # rows of nearly equal elements lose digits when centred
                torch.testing.assert_close(mine.double(), want, rtol=fine, atol=fine, equal_nan=True)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_along_inner_levels_products_and_views(op):
    x = sample("two levels", torch.float64)
    for i, visits in enumerate(x):
        for j, row in enumerate(visits):
            torch.testing.assert_close(op.function(x, axis=2)[i, j].torch(), by_torch(op.name, row.torch(), 0))
    turned = sample("permuted", torch.float64)
    back = op.function(turned, axis=2).permute_dims((0, 2, 1))
    torch.testing.assert_close(back.values, op.function(turned.permute_dims((0, 2, 1)), axis=1).values)
    block = sample("product", torch.float64)
    for axis in (1, 2):
        for mine, rows in zip(op.function(block, axis=axis), block, strict=True):
            torch.testing.assert_close(mine.torch(), by_torch(op.name, rows.torch(), axis - 1), equal_nan=True)


def test_along_a_parent_axis_position_by_position():
    x = sr.ragged([[1.0, 2.0], [3.0], [0.0, 5.0]])
    got = sr.softmax(x, axis=0)
    first, second = torch.softmax(torch.tensor([1.0, 3.0, 0.0]), 0), torch.softmax(torch.tensor([2.0, 5.0]), 0)
    want = [[first[0], second[0]], [first[1]], [first[2], second[1]]]
    assert [[round(v, 5) for v in row] for row in got.tolist()] == [[round(float(v), 5) for v in row] for row in want]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("name", ["empty rows", "two levels", "product"])
def test_gradients(op, name):
    x = sample(name, torch.float64)
    values = x.values.clone().requires_grad_()
    for axis in range(1, x.ndim):
        assert gradcheck(lambda v, axis=axis: op.function(x._with(v), axis=axis, **options(op)).values, [values])
        assert gradgradcheck(lambda v, axis=axis: op.function(x._with(v), axis=axis, **options(op)).values, [values])


def options(op) -> dict[str, float]:
    """A larger eps keeps rows of one element away from a corner."""
    return {"eps": 0.1} if op.name in ("layer_norm", "rms_norm", "normalize") else {}


def test_nan_and_inf_stay_in_their_row():
    x = sr.ragged([[float("nan"), 1.0], [2.0, 2.0], [float("-inf"), 0.0], []])
    got = sr.softmax(x, axis=1)
    assert got.tolist()[1:] == [[0.5, 0.5], [0.0, 1.0], []]
    assert all(n != n for n in got.tolist()[0])


def test_modules_of_torch():
    x = sr.from_lengths(torch.randn(6, 4), [3, 0, 2, 1])
    for module in (
        torch.nn.LayerNorm(4),
        torch.nn.RMSNorm(4),
        torch.nn.Softmax(-1),
        torch.nn.LogSoftmax(1),
        torch.nn.GELU(),
        torch.nn.ReLU(),
        torch.nn.SiLU(),
    ):
        got = module(x)
        assert isinstance(got, sr.Tensor)
        per_row = torch.nn.LogSoftmax(0) if isinstance(module, torch.nn.LogSoftmax) else module
        for mine, row in zip(leaves(got), leaves(x), strict=True):
            torch.testing.assert_close(mine, per_row(row))
    with pytest.raises(ValueError, match="normalized_shape must be the last axes"):
        torch.nn.LayerNorm(3)(x)


def test_nothing_waits_for_device_born_lengths():
    x = sample("two levels", torch.float64)
    d = sr.testing.device_born(x, spare=3)
    for op in OPS:
        with sr.testing.forbid_sync():
            got = op.function(d, axis=2)
        torch.testing.assert_close(got.flat().torch(), op.function(x, axis=2).flat().torch())


def test_integers_are_refused():
    for op in OPS:
        with pytest.raises(TypeError, match=f"{op.name} needs floating-point elements, got torch.int64"):
            op.function(sr.ragged([[1]]), axis=1)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_infinite_rows_are_torchs(name):
    rows = [[torch.inf, 1.0], [-torch.inf, -torch.inf], [1.0, -torch.inf], [torch.inf, torch.inf], [], [2.0]]
    want = [getattr(torch, name)(torch.tensor(row), 0) for row in rows]
    for x, axes in ((sr.ragged(rows), 1), (sr.expand_dims(sr.ragged(rows), axis=-1), (1, 2))):
        got = getattr(sr, name)(x, axis=axes)
        torch.testing.assert_close(got.values.flatten(), torch.cat(want), equal_nan=True)
