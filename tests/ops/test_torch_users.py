"""What torch's users do with modules: functional transforms, autocast, checkpoints, data parallelism, optimizers.

And what they try that is not there: a torch function without an operation, an operator with a torch tensor on its left.
"""

from __future__ import annotations

import copy
import datetime
import operator
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import serrate as sr
from serrate.errors import RaggednessError

LENGTHS = [3, 1, 4, 2]
WIDTH = 8


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mask_of(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def pad(values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    mask = mask_of(lengths)
    return values.new_zeros(*mask.shape, *values.shape[1:]).index_put((mask,), values)


def layer(dropout: float = 0.0, dtype: torch.dtype = torch.float64, **options: Any) -> nn.Module:
    torch.manual_seed(3)
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout, batch_first=True, **options).to(dtype)


def encoder(dtype: torch.dtype = torch.float64, **options: Any) -> nn.Module:
    return nn.TransformerEncoder(layer(dtype=dtype, **options), 2, enable_nested_tensor=False)


def batch(dtype: torch.dtype = torch.float64) -> sr.Tensor:
    return sr.from_lengths(noise(sum(LENGTHS), WIDTH, seed=1, dtype=dtype), LENGTHS)


def close(got: Any, want: Any, fine: float = 1e-9) -> None:
    torch.testing.assert_close(got, want, rtol=fine, atol=fine)


# ------------------------------------------------------------------------------------------- torch.func


def test_func_grad_through_functional_call():
    """Parameters are differentiated, the ragged input is held constant."""
    module, x = encoder(), batch()
    params = {name: p.detach() for name, p in module.named_parameters()}
    target = noise(sum(LENGTHS), WIDTH, seed=2)

    def loss(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(module, p, (x,)), x._with(target))

    got, value = torch.func.grad_and_value(loss)(params)
    want = F.mse_loss(module(pad(x.values, LENGTHS), src_key_padding_mask=~mask_of(LENGTHS))[mask_of(LENGTHS)], target)
    close(value, want)
    for name, g in zip(params, torch.autograd.grad(want, list(module.parameters())), strict=True):
        close(got[name], g)


def plain(v: torch.Tensor, module: nn.Module) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return module(pad(v, LENGTHS), src_key_padding_mask=~mask_of(LENGTHS))[mask_of(LENGTHS)]


def test_func_grad_of_the_values():
    module, x = encoder(), batch()
    got = torch.func.grad(lambda v: module(x._with(v)).values.square().sum())(x.values)
    leaf = x.values.clone().requires_grad_()
    (want,) = torch.autograd.grad(plain(leaf, module).square().sum(), [leaf])
    close(got, want)


def test_func_grad_twice():
    module, x = layer(), batch()

    def penalty(v: torch.Tensor) -> torch.Tensor:
        inner = torch.func.grad(lambda u: module(x._with(u)).values.exp().sum())
        return inner(v).square().sum()

    leaf = x.values.clone().requires_grad_()
    (first,) = torch.autograd.grad(plain(leaf, module).exp().sum(), [leaf], create_graph=True)
    (want,) = torch.autograd.grad(first.square().sum(), [leaf])
    close(torch.func.grad(penalty)(x.values), want)


LAYER = layer()
VALUES = {
    "attention": lambda x: sr.attention(x, x, x),
    "causal attention": lambda x: sr.attention(x, x, x, causal=True),
    "attention by scores": lambda x: sr.attention(x, x, x, mask=torch.ones(4, 4) > 0, bias=torch.zeros(4, 4).double()),
    "softmax": lambda x: sr.softmax(x, axis=1),
    "layer_norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "matmul": lambda x: x @ x.mT,
    "sum": lambda x: sr.sum(x, axis=1),
    "max": lambda x: sr.max(x, axis=1),
    "conv1d": lambda x: sr.conv1d(x.mT, noise(3, WIDTH, 2, seed=7)),
    "gelu": lambda x: F.gelu(x),
    "cross_entropy": lambda x: F.cross_entropy(x.mT, sr.from_lengths(torch.arange(10) % WIDTH, LENGTHS)),
    "encoder layer": lambda x: LAYER(x),
}


def values_of(out: Any) -> torch.Tensor:
    return out.values if isinstance(out, sr.Tensor) else out


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_func_vjp(name, grad):
    x, function = batch(), VALUES[name]
    leaf = x.values.clone().requires_grad_()
    want = values_of(function(x._with(leaf)))
    g = noise(*want.shape, seed=5)
    with torch.set_grad_enabled(grad):
        got, back = torch.func.vjp(lambda v: values_of(function(x._with(v))), x.values)
        close(got, want)
        (found,) = back(g)
    close(found, torch.autograd.grad(want, [leaf], g)[0])


@pytest.mark.parametrize("name", VALUES)
def test_func_jvp(name):
    x, function = batch(), VALUES[name]
    tangent = noise(*x.values.shape, seed=6)
    _, got = torch.func.jvp(lambda v: values_of(function(x._with(v))), (x.values,), (tangent,))
    step = 1e-6
    ends = [values_of(function(x._with(x.values + s * tangent))) for s in (step, -step)]
    close(got, (ends[0] - ends[1]) / (2 * step), 1e-5)


def test_func_jvp_of_an_mlp():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).double()
    x, tangent = batch(), noise(sum(LENGTHS), WIDTH, seed=6)
    got = torch.func.jvp(lambda v: module(x._with(v)).values, (x.values,), (tangent,))
    for a, b in zip(got, torch.func.jvp(module, (x.values,), (tangent,)), strict=True):
        close(a, b)


# ------------------------------------------------------------------------------------------------- autocast


def test_autocast_through_an_encoder():
    x = batch(torch.float32)
    for training in (True, False):
        module = encoder(torch.float32).train(training)
        hidden = ~mask_of(LENGTHS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = module(x)
            want = module(pad(x.values, LENGTHS), src_key_padding_mask=hidden)[mask_of(LENGTHS)]
        assert got.dtype == want.dtype
        close(got.values.float(), want.float(), 6e-2)
        params = list(module.parameters())
        found = torch.autograd.grad(got.values.float().square().sum(), params)
        wanted = torch.autograd.grad(want.float().square().sum(), params)
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype == torch.float32
            assert (a - b).norm() <= 0.05 * b.norm() + 0.02


AUTOCAST = {
    "linear": lambda x: F.linear(x, noise(3, WIDTH, dtype=torch.float32)),
    "linear with bias": lambda x: F.linear(x, noise(3, WIDTH, dtype=torch.float32), noise(3, dtype=torch.float32)),
    "matmul": lambda x: torch.matmul(x, noise(WIDTH, 2, dtype=torch.float32)),
    "layer_norm": lambda x: F.layer_norm(x, (WIDTH,), noise(WIDTH, dtype=torch.float32)),
    "rms_norm": lambda x: F.rms_norm(x, (WIDTH,), noise(WIDTH, dtype=torch.float32)),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "gelu": lambda x: F.gelu(x),
    "relu": lambda x: F.relu(x),
    "sum": lambda x: torch.sum(x, -1),
    "mean": lambda x: torch.mean(x, -1),
    "prod": lambda x: torch.prod(x, -1),
    "exp": lambda x: torch.exp(x),
    "mse_loss": lambda x: F.mse_loss(x, x * 2),
    "l1_loss": lambda x: F.l1_loss(x, x * 2),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x * 2),
    "huber_loss": lambda x: F.huber_loss(x, x * 2),
    "with logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "attention by scores": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(1, 4, 4) > 0),
    "a product of rows": lambda x: torch.matmul(x, x.mT),
    "a sum over rows": lambda x: torch.matmul(x.mT, x),
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_each_operation_the_dtype_that_torch_gives(name, given):
    """One row alone is a dense batch of one, on which torch says what the dtype is."""
    x = sr.from_lengths(noise(4, WIDTH, seed=1, dtype=given), [4])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = AUTOCAST[name](x), AUTOCAST[name](x.values[None])
    assert got.dtype == want.dtype
    close(values_of(got).float().reshape(want.shape), want.float(), 5e-2)


def test_autocast_of_dense_and_of_no_autocast():
    x = batch(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            assert sr.attention(x, x, x).dtype == torch.float32
            assert (x @ x.mT).dtype == torch.float32
        d = batch()
        assert (d @ d.mT).dtype == torch.float64  # autocast leaves float64 alone
        assert sr.attention(d, d, d).dtype == torch.float64


# ---------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["layer", "masked layer", "encoder"])
def test_checkpoint(kind, dropout):
    module = encoder(dropout=dropout) if kind == "encoder" else layer(dropout)
    x = batch().requires_grad_()
    mask = {"src_mask": torch.ones(4, 4).triu(1) > 0} if kind == "masked layer" else {}
    found = []
    for use in (False, True):
        module.zero_grad()
        x.values.grad = None
        torch.manual_seed(5)
        out = checkpoint(module, x, use_reentrant=False, **mask) if use else module(x, **mask)
        assert isinstance(out, sr.Tensor)
        loss = out.values.square().sum()
        loss.backward()
        found.append([loss, x.values.grad.clone(), *[p.grad.clone() for p in module.parameters()]])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_checkpoint_twice_and_in_a_row():
    module, x = nn.ModuleList([layer(0.1), layer(0.1)]), batch().requires_grad_()
    found = []
    for use in (False, True):
        module.zero_grad()
        torch.manual_seed(5)
        out = x
        for each in module:
            out = checkpoint(each, out, use_reentrant=False) if use else each(out)
        out.values.square().sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_saved_tensors_may_be_moved_away():
    module, x = layer(), batch()
    with torch.autograd.graph.save_on_cpu():
        out = module(x)
    found = torch.autograd.grad(out.values.square().sum(), list(module.parameters()))
    for a, b in zip(
        found, torch.autograd.grad(module(x).values.square().sum(), list(module.parameters())), strict=True
    ):
        assert torch.equal(a, b)


# ------------------------------------------------------------------------------------------- double backward


def test_a_gradient_penalty_through_an_encoder():
    """Gradients of the gradient, for all parameters and the input, as the padded version has them."""
    module, x = encoder(norm_first=True, activation="gelu"), batch()
    params = list(module.parameters())
    found = []
    for ragged in (True, False):
        leaf = x.values.clone().requires_grad_()
        out = module(x._with(leaf)).values if ragged else plain(leaf, module)
        (first,) = torch.autograd.grad(out.square().sum(), [leaf], create_graph=True)
        loss = (first.norm() - 1).square() + out.sum()
        found.append([loss, *torch.autograd.grad(loss, [leaf, *params])])
    for a, b in zip(*found, strict=True):
        close(a, b)


# --------------------------------------------------------------------------------------------------- optimizers


def test_parameters_and_their_gradients_stay_torch_s():
    module = nn.Sequential(nn.Embedding(5, WIDTH), layer(), nn.Linear(WIDTH, 2)).double()
    ids = sr.from_lengths(torch.arange(10) % 5, LENGTHS)
    module(ids).values.square().sum().backward()
    for p in module.parameters():
        assert type(p) is nn.Parameter
        assert type(p.grad) is torch.Tensor
        assert p.grad.shape == p.shape
        assert p.grad.isfinite().all()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.01, nesterov=True, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
        lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=2),
    ],
)
def test_optimizers_see_no_difference(make):
    x, target = batch(), noise(sum(LENGTHS), WIDTH, seed=4)
    losses = []
    for ragged in (True, False):
        module = layer()
        optimizer = make(module.parameters())

        def closure(module=module, optimizer=optimizer, ragged=ragged) -> torch.Tensor:
            optimizer.zero_grad()
            out = module(x).values if ragged else plain(x.values, module)
            loss = F.mse_loss(out, target)
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            return loss.detach()

        losses.append([float(optimizer.step(closure)) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_the_values_themselves_may_be_optimized():
    x = batch().requires_grad_()
    optimizer = torch.optim.SGD([x.values], lr=0.1)
    before = float(x.square().sum())
    x.square().sum().backward()
    optimizer.step()
    assert float(x.square().sum()) < before
    with pytest.raises(TypeError, match="Tensor"):
        torch.optim.SGD([x], lr=0.1)


# ------------------------------------------------------------------------------------------ several processes

ROWS = [[3, 1, 4], [2, 5, 1]]  # of each of two processes


class Branches(nn.Module):
    """An encoder layer and a head; a second head that only some calls use."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)
        self.head, self.other = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3)

    def forward(self, ids: sr.Tensor, *, both: bool = True) -> sr.Tensor:
        made = self.layer(self.table(ids))
        return self.head(made) + self.other(made) if both else self.head(made)


def model() -> nn.Module:
    torch.manual_seed(0)
    return Branches().double()


def share(rank: int) -> tuple[sr.Tensor, sr.Tensor]:
    lengths, start = ROWS[rank], rank * sum(ROWS[0])
    numbers = torch.arange(start, start + sum(lengths))
    return sr.from_lengths(numbers * 3 % 7, lengths), sr.from_lengths(numbers % 3, lengths)


def total_loss(module: nn.Module, ids: sr.Tensor, labels: sr.Tensor, **options: Any) -> torch.Tensor:
    return F.cross_entropy(module(ids, **options).mT, labels, reduction="sum") / sum(map(sum, ROWS))


def alone(**options: Any) -> dict[str, torch.Tensor | None]:
    """The gradients that one process finds on the whole batch."""
    module = model()
    parts = [share(rank) for rank in (0, 1)]
    ids, labels = (sr.concat([part[i] for part in parts], axis=0) for i in (0, 1))
    total_loss(module, ids, labels, **options).backward()
    return {name: p.grad for name, p in module.named_parameters()}


def equal_gradients(found: dict[str, torch.Tensor | None], want: dict[str, torch.Tensor | None]) -> None:
    assert found.keys() == want.keys()
    for name, gradient in want.items():
        other = found[name]
        if gradient is None or other is None:
            assert not any(g is not None and g.any() for g in (gradient, other)), name
        else:
            close(other, gradient, 1e-10)


def by_ddp(rank: int, find_unused: bool) -> None:
    options = {"both": not find_unused}
    module = nn.parallel.DistributedDataParallel(model(), find_unused_parameters=find_unused)
    for _ in range(2):  # the second step meets buckets that the first has filled
        module.zero_grad()
        out = module(share(rank)[0], **options)
        assert isinstance(out, sr.Tensor)
        (2 * total_loss(module, *share(rank), **options)).backward()  # DDP divides by the number of processes
    equal_gradients({name: p.grad for name, p in module.module.named_parameters()}, alone(**options))


def by_ddp_that_finds_unused_parameters(rank: int) -> None:
    by_ddp(rank, True)


def by_ddp_alone(rank: int) -> None:
    by_ddp(rank, False)


def by_ddp_with_static_graph(rank: int) -> None:
    module = nn.parallel.DistributedDataParallel(model(), static_graph=True)
    for _ in range(3):
        module.zero_grad()
        (2 * total_loss(module, *share(rank))).backward()
    equal_gradients({name: p.grad for name, p in module.module.named_parameters()}, alone())


def by_fsdp(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    module = model()
    fully_shard(module.layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    for _ in range(2):
        optimizer.zero_grad()
        (2 * total_loss(module, *share(rank))).backward()
        optimizer.step()
    equal_gradients({name: p.grad.full_tensor() for name, p in module.named_parameters()}, alone())


CHECKS = [by_ddp_alone, by_ddp_that_finds_unused_parameters, by_ddp_with_static_graph, by_fsdp]


def process(rank: int, folder: str) -> None:
    """One of two processes: every check, and what came of it in a file."""
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=40)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=wait)
    for check in CHECKS:
        try:
            check(rank)
            verdict = ""
        except Exception:
            verdict = traceback.format_exc()
        Path(folder, f"{check.__name__}.{rank}").write_text(verdict)
        dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes on this machine, which meet in a file and are ended if they take too long."""
    folder = tmp_path_factory.mktemp("processes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [str(Path(__file__).parents[2]), *sys.path])  # children look for this module there
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        context = mp.spawn(process, args=(str(folder),), nprocs=2, join=False)
        until = time.monotonic() + 90
        try:
            while time.monotonic() < until and not context.join(timeout=1):
                pass
        except Exception:
            traceback.print_exc()
        finally:
            for child in context.processes:
                child.kill()
    return folder


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_gradients_of_two_processes_equal_those_of_one(check, verdicts):
    for rank in (0, 1):
        found = verdicts / f"{check.__name__}.{rank}"
        assert found.exists(), f"process {rank} never came to an end"
        assert not found.read_text(), found.read_text()


# -------------------------------------------------------------------------------------- what is not there

MISSING = {
    "cdist": lambda x: torch.cdist(x, x),
    "grid_sample": lambda x: F.grid_sample(x, x),
    "lstsq": lambda x: torch.linalg.lstsq(x, x),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "cov": lambda x: torch.cov(x),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "add_": lambda x: torch.ones(WIDTH).add_(x),
    "copy_": lambda x: torch.ones(sum(LENGTHS), WIDTH).copy_(x),
    "__setitem__": lambda x: operator.setitem(torch.ones(sum(LENGTHS), WIDTH), slice(None), x),
    "stft": lambda x: torch.stft(x, 4, return_complex=True),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "addmm": lambda x: torch.addmm(torch.ones(1), x, torch.ones(WIDTH, 2)),
    "addcmul": lambda x: torch.addcmul(x, x, x),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_function_without_an_operation_is_named(name):
    """A TypeError with the function's name and what there is, never an answer about the packed values."""
    with pytest.raises(TypeError, match=name) as caught:
        MISSING[name](batch())
    text = str(caught.value)
    assert "sr.Tensor" in text
    assert "use sr." in text or "no operation like it" in text


def test_the_nearest_operation_is_one_of_that_meaning():
    """A hint leads to a function of the same meaning, not to one spelt alike."""
    x = batch()
    for call, hint in (
        (lambda: torch.ones(WIDTH).mul_(x), "use sr.multiply"),
        (lambda: torch.add(x, x, out=torch.ones(10, WIDTH)), "add"),
        (lambda: torch.ones(WIDTH).div_(x), "use sr.divide"),
        (lambda: torch.ones(WIDTH).sub_(x), "use sr.subtract"),
        (lambda: torch.ones(WIDTH).eq_(x), "use sr.equal"),
    ):
        with pytest.raises(TypeError, match=hint):
            call()
    for call, wrong in (
        (lambda: torch.isin(x, x), "sr.isinf"),
        (lambda: torch.linalg.lu(x), "use sr."),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert wrong not in str(caught.value)


def test_a_ragged_tensor_never_becomes_a_dense_one_unasked():
    x = batch()
    same = sr.from_lengths(torch.ones(4, 2), [2, 2])  # equal rows are ragged all the same
    for each in (x, same):
        for call in (
            torch.tensor,
            torch.as_tensor,
            torch.Tensor,
            torch.from_numpy,
            np.asarray,
            torch.ones(2).new_tensor,
        ):
            with pytest.raises((TypeError, BufferError, RuntimeError, ValueError)):
                call(each)
    index = sr.ragged([[0, 1], [2]])
    with pytest.raises((TypeError, UserWarning)):
        torch.arange(9.0)[index]


# ---------------------------------------------------------------------------------------------- operators

FLOATS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
INTEGERS = ["and_", "or_", "xor", "lshift", "rshift"]


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_a_torch_tensor_on_either_side(name):
    function = getattr(operator, name)
    whole = name in INTEGERS
    x = sr.from_lengths(
        (noise(10, 3, seed=1).abs() * 3 + 1).round() if whole else noise(10, 3, seed=1).abs() + 0.5, LENGTHS
    )
    x = x.to(torch.int64) if whole else x
    others = [
        torch.tensor([2.0, 3.0, 1.0], dtype=torch.float64),
        torch.tensor(2.0, dtype=torch.float64),
        torch.tensor([[[1.0]], [[2.0]], [[3.0]], [[2.0]]], dtype=torch.float64),
        torch.ones(1, 1, 3, dtype=torch.float64),
    ]
    for given in others:
        other = given.to(torch.int64) if whole else given
        spread = (
            other.repeat_interleave(torch.tensor(LENGTHS), 0)[:, 0] if other.ndim == 3 and len(other) == 4 else other
        )
        spread = spread[0] if spread.ndim == 3 else spread
        for got, want in (
            (function(other, x), function(spread, x.values)),
            (function(x, other), function(x.values, spread)),
        ):
            assert isinstance(got, sr.Tensor)
            assert got.structure is x.structure
            assert got.dtype == want.dtype
            assert torch.equal(got.values, want)


@pytest.mark.parametrize("name", [*FLOATS, "matmul", *INTEGERS])
def test_operands_that_do_not_meet_raise_on_either_side(name):
    """Never False, never something else: torch drops a TypeError raised on the way and goes on without it."""
    function = getattr(operator, name)
    x = sr.from_lengths(torch.ones(10, 3, dtype=torch.int64), LENGTHS)
    for other in (torch.ones(4, 4, 3, dtype=torch.int64), torch.ones(10, 3, dtype=torch.int64), torch.ones(5).long()):
        for left, right in ((other, x), (x, other)):
            if name == "matmul" and other.shape == (10, 3) and left is x:
                continue
            with pytest.raises((RaggednessError, ValueError)):
                function(left, right)


def test_matmul_with_a_torch_tensor_on_its_left():
    x = batch()
    weight = noise(4, 3, WIDTH, seed=2)  # one matrix for each row
    got = weight @ x.mT
    for b in range(4):
        close(got[b].torch(), weight[b] @ x[b].torch().mT)
    got = noise(3, WIDTH, seed=2) @ x.mT
    for b in range(4):
        close(got[b].torch(), noise(3, WIDTH, seed=2) @ x[b].torch().mT)
    close((x @ noise(WIDTH, 3, seed=2)).values, x.values @ noise(WIDTH, 3, seed=2))


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv", "imod"])
def test_in_place_operators_on_a_torch_tensor(name):
    """What does not fit into the tensor on the left is no part of it afterwards: it is a new tensor, or an error."""
    x = batch()
    left = torch.ones(WIDTH, dtype=torch.float64)
    try:
        got = getattr(operator, name)(left, x)
    except (TypeError, RuntimeError, ValueError):
        pass
    else:
        assert isinstance(got, sr.Tensor)
        assert torch.equal(got.values, getattr(operator, name[1:])(torch.ones(WIDTH, dtype=torch.float64), x.values))
    assert left.eq(1).all()
    y = batch()
    same = y
    y += torch.ones(WIDTH, dtype=torch.float64)
    assert y is same
    assert torch.equal(y.values, x.values + 1)


def test_other_operands_are_refused():
    x = batch()
    for other in ([1.0], "a", object(), {}):
        for name in ("add", "mul", "lt", "matmul"):
            with pytest.raises(TypeError):
                getattr(operator, name)(x, other)
            with pytest.raises(TypeError):
                getattr(operator, name)(other, x)
        assert (x == other) is False
        assert (x != other) is True
    for name in (*FLOATS, "matmul"):
        for pair in ((np.ones(WIDTH), x), (x, np.ones(WIDTH))):
            with pytest.raises(TypeError):
                getattr(operator, name)(*pair)


def test_gradients_reach_the_torch_tensor_beside():
    x = batch()
    for name in ("add", "sub", "mul", "truediv", "pow"):
        function = getattr(operator, name)
        found = []
        for given in (x, x.values):
            w = torch.linspace(1.0, 2.0, WIDTH, dtype=torch.float64).requires_grad_()
            out = function(w, given)
            values_of(out).square().sum().backward()
            found.append(w.grad)
        close(*found)


def test_a_copied_module_works_like_its_original():
    module, x = encoder(), batch()
    close(copy.deepcopy(module)(x).values, module(x).values)
    loaded = encoder()
    loaded.load_state_dict(module.state_dict())
    close(loaded(x).values, module(x).values)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "softmax", "logsumexp", "cumulative_sum", "var", "layer_norm"])
def test_results_may_be_written_to_in_place(name):
    """torch refuses that of views that a function of ours made inside of itself."""
    for rows in ([[1.0, 2.0, 3.0], [4.0]], [[1.0, 2.0], [3.0, 4.0]]):
        x = sr.ragged(rows, dtype=torch.float64).requires_grad_()
        made = getattr(sr, name)(x * 1, axis=1)
        want = getattr(sr, name)(x.detach(), axis=1)
        made += 1
        made[0] = 7.0
        assert made[1].tolist() == (want[1] + 1).tolist()
    x = sr.ragged([[1.0, 2.0], [3.0]], dtype=torch.float64).requires_grad_()
    outer = sr.outer(x, x)
    outer[0, 0] = 0.0
    sr.sum(outer).backward()
    assert x.grad.tolist() == [[2.0, 5.0], [6.0]]  # of 2·(1 + 2) + 3·3
