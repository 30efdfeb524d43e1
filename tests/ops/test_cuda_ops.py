"""Operations on a CUDA device: the host's results, without a wait, for host-born and device-born lengths."""

from __future__ import annotations

import pytest
import torch
from tests.ops.samples import sample

import serrate as sr
from serrate.ops.table import TABLE, signature

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

NAMES = ["features", "empty rows", "equal rows", "two levels", "permuted"]


def on_device(x: sr.Tensor, born: bool) -> sr.Tensor:
    moved = x.to("cuda")
    if not born:
        moved.offsets  # noqa: B018 (copied there now, not inside the measurement)
        return moved
    return sr.testing.device_born(moved, spare=3)


def close(got: sr.Tensor, want: sr.Tensor) -> None:
    assert got.device.type == "cuda"
    mine, theirs = got.cpu().flat().torch(), want.flat().torch()
    assert mine.dtype == theirs.dtype
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("born", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_elementwise(name, born):
    for op in [op for op in TABLE.values() if op.family == "elementwise"]:
        dtype = {"float": torch.float64, "complex": torch.complex128, "int": torch.int64}.get(op.kinds[0], torch.int64)
        count = sum(p.kind is p.POSITIONAL_ONLY for p in signature(op).parameters.values())
        host = [sample(name, dtype, seed) for seed in range(count)]
        if op.name == "where":
            host[0] = host[0]._with(host[0].values > 0.5)
        device = [on_device(x, born) for x in host]
        with sr.testing.forbid_sync():
            got = op.eager(*device)
        sr.testing.raise_deferred()
        close(got, op.eager(*host))


@pytest.mark.parametrize("born", [False, True])
@pytest.mark.parametrize("name", ["features", "empty rows", "equal rows", "two levels"])
def test_reductions_and_normalizations(name, born):
    x = sample(name, torch.float64)
    device = on_device(x, born)
    for op in [op for op in TABLE.values() if op.family in ("reductions", "normalizations")]:
        for axis in range(1, x.ndim):
            if axis == 1 and x.ndim == 4:
                continue  # a parent of another axis: the size of what is reduced is data
            if born:
                device = on_device(x, born)
            torch.cuda.synchronize()
            with sr.testing.forbid_sync():
                got = op.eager(device, axis=axis)
            sr.testing.raise_deferred()
            close(got, op.eager(x, axis=axis))


def test_parents_and_everything():
    x = sample("two levels", torch.float64)
    for born in (False, True):
        device = on_device(x, born)
        for axis in (0, 1, (0, 1), (1, 2), None):
            close(sr.sum(device, axis=axis), sr.sum(x, axis=axis))
            close(sr.max(device, axis=axis), sr.max(x, axis=axis))


def test_gradients_equal_those_on_the_host():
    x = sample("empty rows", torch.float64)
    for op in [op for op in TABLE.values() if op.family in ("reductions", "normalizations") and op.gradient]:
        grads = []
        for device in ("cpu", "cuda"):
            leaf = x.to(device)._with(x.values.to(device).clone().requires_grad_())
            made = op.eager(leaf, axis=2)
            made.values.sum().backward()
            grads.append(leaf.values.grad.cpu())
        torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


def test_indices_out_of_a_table_are_reported_not_asserted():
    x = sr.ragged([[1, 99], [2]]).to("cuda")

    def use() -> None:
        sr.embedding(x, torch.ones(4, 2, device="cuda"))
        sr.testing.raise_deferred()

    with pytest.raises(IndexError, match="index 99, packed element 1"):
        use()
    torch.cuda.synchronize()
    assert sr.embedding(sr.ragged([[1]]).to("cuda"), torch.ones(4, 2, device="cuda")).tolist() == [[[1.0, 1.0]]]


def test_modules_under_autocast():
    x = sr.from_lengths(torch.randn(6, 8, device="cuda"), [3, 0, 2, 1])
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model[0](x).dtype == torch.bfloat16
        assert torch.isfinite(model(x).values).all()
