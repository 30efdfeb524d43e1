"""Modules: compiled as a whole, inside of forward, with autocast, checkpointing and DDP."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn
from torch.utils.checkpoint import checkpoint

import serrate as sr

L = [3, 0, 2]


def rows(lengths: list[int] | None = None, width: int = 4) -> sr.Tensor:
    lengths = L if lengths is None else lengths
    generator = torch.Generator().manual_seed(sum(lengths))
    return sr.from_lengths(torch.rand(sum(lengths), width, generator=generator), lengths)


class Block(nn.Module):
    def __init__(self, width: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        y = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return sr.softmax(x + self.dropout(y) * self.scale, axis=1)


@pytest.fixture
def pair() -> tuple[Any, nn.Module]:
    torch.manual_seed(0)
    module = Block()
    return sr.jit(module), copy.deepcopy(module)


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.grad for name, each in module.named_parameters()}


def check_training(made: Any, mine: nn.Module, other: nn.Module, x: sr.Tensor) -> None:
    """One step of training of both."""
    for module in (mine, other):
        module.zero_grad()
    sr.sum(made(x) * x).values.backward()
    sr.sum(other(x) * x).values.backward()
    want = gradients(other)
    for name, each in gradients(mine).items():
        torch.testing.assert_close(each, want[name], rtol=1e-4, atol=1e-6)


def test_a_compiled_module_is_the_module(pair):
    made, other = pair
    for lengths in (L, [1], [], [0, 4]):
        same(made(rows(lengths)), other(rows(lengths)))
    assert made.stats.traces == 1
    check_training(made, made.function, other, rows())


def test_optimizer_steps_change_the_results_without_a_trace(pair):
    made, other = pair
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.1) for module in (made.function, other)]
    for _ in range(4):
        check_training(made, made.function, other, rows())
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(made(rows()).values, other(rows()).values, rtol=1e-3, atol=1e-4)
    assert made.stats.traces == 1


def test_a_parameter_that_is_exchanged_is_noticed(pair):
    made, other = pair
    same(made(rows()), other(rows()))
    for module in (made.function, other):
        module.up = copy.deepcopy(module.up)
        with torch.no_grad():
            module.up.weight.mul_(2)
        module.norm.bias = nn.Parameter(torch.ones(4))
    same(made(rows()), other(rows()))
    for module in (made.function, other):
        module.norm = nn.Identity()
    same(made(rows()), other(rows()))
    check_training(made, made.function, other, rows())


def test_a_parameter_that_is_frozen_is_noticed(pair):
    made, other = pair
    check_training(made, made.function, other, rows())
    for module in (made.function, other):
        module.up.requires_grad_(False)
        module.up.weight.grad = None
    check_training_frozen = sr.sum(made(rows())).values
    check_training_frozen.backward()
    assert made.function.up.weight.grad is None
    assert made.function.down.weight.grad is not None


def test_eval_and_train_are_different_programs():
    module = Block(dropout=0.5)
    made, x = sr.jit(module), rows()
    module.eval()
    same(made(x), module(x))
    module.train()
    torch.manual_seed(0)
    got = made(x)
    torch.manual_seed(0)
    same(got, module(x))
    module.eval()
    same(made(x), module(x))
    assert made.stats.traces == 2


def test_a_state_that_is_loaded_and_a_cast_count(pair):
    made, other = pair
    made(rows())
    state = {name: each + 0.25 for name, each in other.state_dict().items()}
    for module in (made.function, other):
        module.load_state_dict(state)
    same(made(rows()), other(rows()))
    for module in (made.function, other):
        module.double()
    x = rows()._with(rows().values.double())
    same(made(x), other(x))


def test_jit_inside_of_forward():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4))

        @sr.jit
        def scaled(self, x: Any) -> Any:
            return sr.gelu(x * self.weight)

        def forward(self, x: Any) -> Any:
            return sr.sum(self.scaled(x), axis=1)

    one, two, x = Outer(), Outer(), rows()
    for module in (one, two, one):
        got = module(x)
        same(got, sr.sum(sr.gelu(x * module.weight), axis=1))
        sr.sum(got).values.backward()
        assert module.weight.grad is not None
    assert list(one.state_dict()) == ["weight"]
    copied = copy.deepcopy(one)
    with torch.no_grad():
        copied.weight.mul_(3)
    same(copied(x), sr.sum(sr.gelu(x * copied.weight), axis=1))


def test_forward_may_be_decorated():
    class Decorated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4))

        @sr.jit
        def forward(self, x: Any) -> Any:
            return x * self.weight

    one, two, x = Decorated(), Decorated(), rows()
    same(one(x), x * one.weight)
    same(two(x), x * two.weight)


def test_hooks_of_a_module_that_is_compiled_run(pair):
    made, _ = pair
    seen: list[str] = []
    made.function.register_forward_hook(lambda *_: seen.append("forward"))
    made(rows())
    assert seen


# ------------------------------------------------------------------------------------------------------ autocast


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_in_eager_code_and_is_a_part_of_the_signature(pair, dtype):
    made, other = pair
    plain = made(rows())
    with torch.autocast("cpu", dtype):
        got, want = made(rows()), other(rows())
    assert got.dtype == want.dtype
    torch.testing.assert_close(got.values, want.values, rtol=2e-2, atol=2e-2)
    same(made(rows()), plain)
    assert made.stats.traces == 2


def test_gradients_under_autocast_have_the_dtypes_of_the_parameters(pair):
    made, other = pair
    for module in (made, other):
        with torch.autocast("cpu", torch.bfloat16):
            loss = sr.sum(module(rows()) * rows()).values
        loss.float().backward()
    want = gradients(other)
    for name, each in gradients(made.function).items():
        assert each.dtype == want[name].dtype == torch.float32
        torch.testing.assert_close(each, want[name], rtol=5e-2, atol=2e-2)


def test_products_under_autocast_are_in_its_dtype():
    def product(x: Any, w: Any) -> Any:
        return x @ w

    w = torch.rand(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = sr.jit(product)(rows(), w), product(rows(), w)
    assert got.dtype == want.dtype


# ---------------------------------------------------------------------------------------------------- checkpoint


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_checkpoint_that_is_not_reentrant_recomputes_with_the_same_random_numbers(dropout):
    torch.manual_seed(0)
    module = Block(dropout=dropout)
    other = copy.deepcopy(module)
    made, x = sr.jit(module), rows()
    torch.manual_seed(1)
    sr.sum(checkpoint(made, x, use_reentrant=False) * x).values.backward()
    torch.manual_seed(1)
    sr.sum(other(x) * x).values.backward()
    want = gradients(other)
    for name, each in gradients(module).items():
        torch.testing.assert_close(each, want[name], rtol=1e-4, atol=1e-6)


def test_a_checkpoint_inside_of_a_compiled_function():
    def inside(x: Any) -> Any:
        return checkpoint(lambda y: sr.softmax(sr.gelu(y), axis=1), x, use_reentrant=False) * 2

    x = rows()._with(rows().values.requires_grad_())
    y = rows()._with(rows().values.requires_grad_())
    sr.sum(sr.jit(inside)(x) * x).values.backward()
    sr.sum(inside(y) * y).values.backward()
    torch.testing.assert_close(x.values.grad, y.values.grad)


# ------------------------------------------------------------------------------------------------------------- DDP


@pytest.fixture
def group(tmp_path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_compiled_function_inside_of_a_module_that_ddp_wraps():
    class Outer(nn.Module):
        def __init__(self, run: Callable[..., Any]) -> None:
            super().__init__()
            self.block = Block()
            self.run = run

        def forward(self, x: Any) -> Any:
            return sr.sum(self.run(self.block(x)), axis=1)

    torch.manual_seed(0)
    mine = Outer(sr.jit(lambda x: sr.gelu(x) * x))
    theirs = copy.deepcopy(mine.block)
    wrapped = nn.parallel.DistributedDataParallel(mine)
    sr.sum(wrapped(rows())).values.backward()
    y = theirs(rows())
    sr.sum(sr.sum(sr.gelu(y) * y, axis=1)).values.backward()
    want = gradients(theirs)
    for name, each in gradients(mine.block).items():
        torch.testing.assert_close(each, want[name], rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("group")
def test_a_module_that_ddp_wraps_is_compiled():
    torch.manual_seed(0)
    module = Block()
    other = copy.deepcopy(module)
    wrapped = nn.parallel.DistributedDataParallel(module)
    made = sr.jit(wrapped)
    for _ in range(2):
        module.zero_grad()
        other.zero_grad()
        sr.sum(made(rows()) * rows()).values.backward()
        sr.sum(other(rows()) * rows()).values.backward()
        want = gradients(other)
        for name, each in gradients(module).items():
            torch.testing.assert_close(each, want[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", [torch.manual_seed, sr.random.seed])
def test_a_call_that_turns_out_to_run_eagerly_draws_once(seed):
    def function(x, mask, bias):
        return sr.dropout(x, 0.5)[mask] + bias

    compiled, x = sr.jit(function), torch.arange(1.0, 5.0)
    compiled(x, torch.tensor([True, True, True, False]), torch.ones(3))
    masked = x, torch.tensor([True, False, False, False]), torch.ones(3)
    found = []
    try:
        for each in (compiled, function):
            seed(1)
            found.append((sr.asarray(each(*masked)).tolist(), sr.random.uniform((3,)).tolist(), torch.rand(2).tolist()))
    finally:
        sr.random.seed(None)
    assert compiled.stats.eager_calls == 1
    assert found[0][:2] == found[1][:2]
    assert seed is sr.random.seed or found[0] == found[1]
