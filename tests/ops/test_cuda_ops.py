"""Operations on a CUDA device: the host's results, without a wait, for host-born and device-born lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.ops.matrix import arguments, cells, result_of
from tests.ops.samples import sample

import serrate as sr
from serrate.ops.record import TABLE

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
    for op in [op for op in TABLE.values() if op.family in ("elementwise", "activations")]:
        dtype = {"float": torch.float64, "complex": torch.complex128, "int": torch.int64}.get(op.kinds[0], torch.int64)
        count = sum(p.kind is p.POSITIONAL_ONLY for p in op.signature.parameters.values())
        host = [sample(name, dtype, seed) for seed in range(count)]
        if op.name == "where":
            host[0] = host[0]._with(host[0].values > 0.5)
        device = [on_device(x, born) for x in host]
        with sr.testing.forbid_sync():
            got = op.function(*device)
        sr.testing.raise_deferred()
        if op.name == "hardswish":  # torch's CUDA kernel has its 1/6 in single precision
            torch.testing.assert_close(
                got.cpu().flat().torch(), op.function(*host).flat().torch(), rtol=1e-7, atol=1e-7
            )
            continue
        close(got, op.function(*host))


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
                got = op.function(device, axis=axis)
            sr.testing.raise_deferred()
            close(got, op.function(x, axis=axis))


def test_parents_and_everything():
    x = sample("two levels", torch.float64)
    for born in (False, True):
        device = on_device(x, born)
        for axis in (0, 1, (0, 1), (1, 2), None):
            close(sr.sum(device, axis=axis), sr.sum(x, axis=axis))
            close(sr.max(device, axis=axis), sr.max(x, axis=axis))


def test_gradients_equal_those_on_the_host():
    x = sample("empty rows", torch.float64)
    for op in [op for op in TABLE.values() if op.family in ("reductions", "normalizations") and not op.flat]:
        grads = []
        for device in ("cpu", "cuda"):
            leaf = x.to(device)._with(x.values.to(device).clone().requires_grad_())
            made = op.function(leaf, axis=2)
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


# Cells whose numbers are drawn, or that have none.
DRAWN = ("dropout", "empty", "empty_like")
# Of indices that name a place twice any may win; without bins said, a device cannot count.
ANY = ("scatter", "bincount")
# torch has no such kernel for integers on CUDA.
NO_INTEGERS = ("matmul", "tensordot", "outer", "einsum", "conv1d")
# Nor these.
NO_KERNEL = dict.fromkeys(("prod", "segment_prod"), (torch.complex128, torch.complex64))
# Bases that are free up to a sign or a phase, which libraries choose differently.
FREE = {"linalg.eigh", "linalg.qr", "linalg.svd"}
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def tensors(result: Any) -> list[sr.Tensor]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, sr.Tensor)]


@pytest.mark.parametrize("op", list(TABLE.values()), ids=lambda op: op.name)
def test_every_cell_of_the_matrix_equals_the_host(op):
    for cell in cells(op):
        if cell.absent or op.name in ANY or (op.name in NO_INTEGERS and cell.dtype in WHOLE):
            continue
        if cell.dtype in NO_KERNEL.get(op.name, ()) or (op.name == "gelu" and cell.structure == "NaN and inf"):
            continue  # torch's gelu of inf is inf on one and NaN on the other
        if op.name.startswith("fft.") and cell.structure == "NaN and inf":
            continue  # which parts of the transform of a NaN are NaN is up to the library
        if op.name == "hardswish" and cell.dtype == torch.float64:
            continue  # compared above
        if op.name in FREE or (op.family == "decompositions" and cell.structure == "NaN and inf"):
            continue  # what becomes of NaN and inf differs from library to library
        for text in op.samples:
            x = sample(cell.structure, cell.dtype)
            args, options = arguments(text, x)
            want = result_of(op, args, options)
            with torch.device("cuda"):
                args, options = arguments(text, x.to("cuda"))
                got = result_of(op, args, options)
            sr.testing.raise_deferred()
            for mine, theirs in zip(tensors(got), tensors(want), strict=True):
                if not mine.structure.is_exact:  # lengths born on the device, with room to spare
                    assert str(mine.tolist()) == str(theirs.tolist())
                    continue
                assert mine.shape == theirs.to("cuda").shape, (op.name, cell.structure, text)
                if op.name in DRAWN:
                    continue
                a, b = mine.cpu().values, theirs.values
                steps = 512 if op.family in ("decompositions", "matrices", "fourier") else 16
                fine = steps * torch.finfo(b.dtype).eps if b.is_floating_point() or b.is_complex() else 0
                torch.testing.assert_close(a, b, rtol=max(fine, 1e-12), atol=max(fine, 1e-12), equal_nan=True)


def test_products_and_attention_do_not_wait_for_device_born_lengths():
    lengths = [70, 0, 200, 3, 64]
    x = sr.from_lengths(torch.randn(337, 64, dtype=torch.float64), lengths)
    weights = torch.randn(5, 64, 32, dtype=torch.float64)
    for dtype, fine in ((torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 0.3)):
        device = on_device(x.to(dtype), born=True)
        device.values[337:] = float("nan")
        moved = weights.to("cuda", dtype)
        heads = device.values.view(-1, 4, 16).clone()
        q = sr.Tensor(heads, device.structure, (0, 2, 1, 3))
        torch.cuda.synchronize()
        with sr.testing.forbid_sync():
            grouped, squares = device @ moved, device.mT @ device
            attended = sr.attention(q, q, q) if dtype == torch.bfloat16 else None
        for b, length in enumerate(lengths):
            row = x[b].torch().to(dtype).double()
            torch.testing.assert_close(
                grouped[b].torch().cpu().double(), row @ weights[b].to(dtype).double(), rtol=fine, atol=fine
            )
            torch.testing.assert_close(squares[b].torch().cpu().double(), row.T @ row, rtol=fine, atol=fine * 4)
            if attended is not None and length:
                r = row.view(length, 4, 16).transpose(0, 1)
                want = torch.nn.functional.scaled_dot_product_attention(r, r, r)
                torch.testing.assert_close(attended[b].torch().cpu().double(), want, rtol=0.05, atol=0.05)


def test_an_encoder_trains_in_half_precision_as_in_single():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    x = sr.from_lengths(torch.randn(60, 64), [20, 0, 33, 7]).to("cuda")
    plain = layer(x)
    with torch.autocast("cuda", torch.bfloat16):
        mixed = layer(x)
    torch.testing.assert_close(mixed.values.float(), plain.values, rtol=0.1, atol=0.1)
    for causal in (False, True):
        layer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            torch.mean(layer(x, is_causal=causal) ** 2).backward()
        half = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        torch.mean(layer(x, is_causal=causal) ** 2).backward()
        for mine, p in zip(half, layer.parameters(), strict=True):
            torch.testing.assert_close(mine, p.grad, rtol=0.2, atol=0.02)


def test_experts_on_the_device():
    torch.manual_seed(0)
    tokens = torch.randn(100, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    keys = torch.randint(0, 8, (100, 2), device="cuda")
    share = torch.rand(100, 2, device="cuda", dtype=torch.bfloat16)
    experts = torch.randn(8, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.cuda.synchronize()
    with sr.testing.forbid_sync():
        g = sr.group_by(tokens, keys, 8, weights=share)
        out = g.ungroup(sr.relu(g @ experts))
        out.values.sum().backward()
    want = sum(
        torch.relu(torch.einsum("nd,nde->ne", tokens.detach().float(), experts.detach().float()[keys[:, i]]))
        * share[:, i : i + 1].float()
        for i in range(2)
    )
    torch.testing.assert_close(out.torch().float(), want, rtol=0.1, atol=1.0)
    assert torch.isfinite(experts.grad).all()
