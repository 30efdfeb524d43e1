"""Modules that communicate in each call: hooks of FSDP and of DDP run around what is compiled, in every call."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import serrate as sr

X = sr.from_lengths(torch.linspace(-1, 2, 20).view(5, 4), [3, 0, 2])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return sr.softmax(x + self.down(torch.nn.functional.gelu(self.up(self.norm(x)))), axis=1)


class Decorated(Block):
    @sr.jit
    def forward(self, x: Any) -> Any:
        return super(Decorated, self).forward(x)  # noqa: UP008 - what is compiled is no function of the class body


@pytest.fixture
def mesh(tmp_path) -> Iterator[DeviceMesh]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def check_steps(run: Any, mine: nn.Module, theirs: nn.Module) -> None:
    """Three steps of training of both."""
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (mine, theirs)]
    for _ in range(3):
        for each in optimizers:
            each.zero_grad()
        got, want = run(X), theirs(X)
        same(got, want, 10)
        for out in (got, want):
            sr.sum(out * X).values.backward()
        for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
            whole = one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
            torch.testing.assert_close(whole, other.grad, rtol=1e-4, atol=1e-6)
        for each in optimizers:
            each.step()


def pair(kind: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    module = kind()
    other = Block()
    other.load_state_dict(copy.deepcopy(module.state_dict()))
    return module, other


def test_a_module_that_fsdp_shards_is_compiled_inside_of_its_hooks(mesh):
    module, other = pair(Block)
    fully_shard(module, mesh=mesh)
    made, seen = sr.jit(module), []
    module.register_forward_hook(lambda *_: seen.append(1))
    check_steps(made, module, other)
    assert len(seen) == 3
    assert (made.stats.traces, made.stats.eager_calls) == (1, 0)
    assert "softmax" in made.lower(X).program


def test_a_compiled_forward_of_a_module_that_fsdp_shards(mesh):
    module, other = pair(Decorated)
    fully_shard(module, mesh=mesh)
    check_steps(module, module, other)
    assert (module.forward.stats.traces, module.forward.stats.eager_calls) == (1, 0)


def test_a_function_around_modules_that_fsdp_shards_runs_eagerly_with_the_reason(mesh):
    module, other = pair(Block)
    fully_shard(module, mesh=mesh)
    made = sr.jit(lambda x: module(x))
    check_steps(made, module, other)
    assert made.stats.eager_calls == 3
    assert "communicate" in made.lower(X).reason


def test_hooks_of_ddp_run_in_each_call(mesh, monkeypatch):
    module, other = pair(Block)
    wrapped, calls = nn.parallel.DistributedDataParallel(module), []
    before = wrapped._pre_forward
    monkeypatch.setattr(wrapped, "_pre_forward", lambda *given, **named: calls.append(1) or before(*given, **named))
    made = sr.jit(wrapped)
    check_steps(made, module, other)
    assert len(calls) == 3
    assert (made.stats.traces, made.stats.eager_calls) == (1, 0)
    assert "forward" not in vars(module)
