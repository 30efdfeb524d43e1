"""Functions and methods of torch on torch tensors, in any spelling; random numbers that torch draws itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, compiled, same
from torch import nn
from torch.nn import functional as F

import serrate as sr

D = torch.linspace(-0.9, 1.4, 12).view(3, 4)
X = sr.from_lengths(torch.linspace(-1, 2, 20).view(5, 4), [3, 0, 2])

SPELLINGS: list[Callable[..., Any]] = [
    lambda a: (torch.exp(a), a.exp(), sr.exp(a)),
    lambda a: (a + 1, 1 + a, torch.add(a, 1), a.add(1), torch.add(a, a, alpha=2), a.__add__(1), sr.add(a, 1)),
    lambda a: (
        a @ a.T,
        torch.matmul(a, a.mT),
        a.mm(a.t()),
        torch.einsum("ij,kj->ik", a, a),
        a.matmul(a.transpose(0, 1)),
    ),
    lambda a: (a.sum(), a.sum(1), a.sum(dim=1, keepdim=True), torch.sum(a, (0, 1)), sr.sum(a, axis=1)),
    lambda a: (a.softmax(-1), torch.softmax(a, 1), F.softmax(a, dim=-1), a.log_softmax(1)),
    lambda a: (F.gelu(a, approximate="tanh"), F.relu(a), a.relu(), torch.relu(a), nn.ReLU()(a), F.silu(a)),
    lambda a: (a.erfc(), a.lerp(a * 2, 0.5), a.lgamma(), a.logit(1e-3), a.nansum(1), a.fmod(2), a.frac()),
    lambda a: (a.select(0, 1), a.narrow(1, 1, 2), a.unbind(0)[1], a.chunk(2)[0], a.split([1, 2])[1], a.ravel()),
    lambda a: (a.real, a.H, a.data, a.median(), a.aminmax(dim=1)[1], a.quantile(0.5)),
    lambda a: (a.to(torch.float64), a.double(), a.type_as(a.double()), a.to(a.double()), a.half().float()),
    lambda a: (a.view(-1), a.reshape(4, 3), a.flatten(), a.unsqueeze(0), a[None], a[..., 1], a[1:, ::2], a[a > 0]),
    lambda a: (a.max(), a.max(1)[0], a.max(dim=1).indices, torch.max(a, a * 0), a.topk(2)[0], a.sort(1)[1], a.argmax()),
    lambda a: a * 2 if isinstance(a, (torch.Tensor, sr.Tensor)) and not a.is_inference() else -a,
    lambda a: (a.median(0), torch.mode(a, 1).values, a.kthvalue(2).indices, a.take_along_dim(a.argsort(1))),
    lambda a: (torch.zeros_like(a), a.new_zeros(3), torch.full_like(a, 2.0), a.new_tensor([1.0]), torch.eye(2)),
    lambda a: (a.clone().mul_(2), a.clone().clamp_(0, 1), a.clone().fill_(3.0), a.clone().zero_()),
    lambda a: torch.stack([a, a]) + torch.cat([a, a]).view(2, 3, 4),
]


@pytest.mark.parametrize("function", SPELLINGS, ids=range(len(SPELLINGS)))
def test_functions_and_methods_give_torch_tensors_as_they_do_eagerly(function):
    made = sr.jit(function)
    got, want = made(D.clone()), function(D.clone())
    if isinstance(want, tuple):
        for one, other in zip(got, want, strict=True):
            same(one, other)
    else:
        same(got, want)
    assert made.stats.eager_calls == 0, made.lower(D).reason


def test_methods_keep_their_gradients():
    agree_with_gradients(lambda a: (a.erfc() * a.T.t(), a.lerp(a * 2, 0.5).logsumexp(1)), D)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.sign() * a,
        lambda a: a.sgn() * a,
        lambda a: (a @ a.mT + torch.eye(3)).det(),
        lambda a: tuple((a @ a.mT + torch.eye(3)).slogdet()),
        lambda a: tuple(a.sort()),
        lambda a: a.remainder(2.0) * a,
    ],
    ids=["sign", "sgn", "det", "slogdet", "sort", "remainder"],
)
def test_methods_that_torch_differentiates_keep_their_gradients(function):
    made = agree_with_gradients(function, D)
    assert made.stats.eager_calls == 0, made.lower(D).reason


def test_what_functions_of_c_cannot_take_runs_eagerly_with_the_reason():
    made = sr.jit(lambda a: torch.Tensor.exp(a) * 2)
    same(made(D), D.exp() * 2)
    assert "function of C" in made.lower(D).reason


def test_a_function_whose_gradient_torch_alone_knows_runs_eagerly_with_the_reason():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 7

    def function(x: Any) -> Any:
        return Square.apply(x) * 2

    made = agree_with_gradients(function, D)
    assert "autograd.Function" in made.lower(D.clone().requires_grad_()).reason
    made(D)
    assert made.stats.library_calls + made.stats.kernels > 0, "without gradients it is compiled"


def test_gradients_that_are_asked_for_inside_run_eagerly_with_the_reason():
    def function(x: Any) -> Any:
        return torch.autograd.grad((x.values * x.values).sum(), x.values)[0] * x.values

    made, x = sr.jit(function), X._with(X.values.clone().requires_grad_())
    same(made(x), function(x))
    assert "autograd" in made.lower(x).reason


# ------------------------------------------------------------------------------------------------ random numbers

RANDOM: dict[str, Callable[..., Any]] = {
    "dropout": lambda a: F.dropout(a, 0.5) * a,
    "two dropouts": lambda a: F.dropout(F.dropout(a, 0.3) + a, 0.5) * 2,
    "made of nothing": lambda a: a * torch.randn(4) + torch.rand(3, 1),
    "like another, twice": lambda a: a * torch.rand_like(a) + torch.rand_like(a),
    "bernoulli and noise": lambda a: torch.bernoulli(torch.sigmoid(a)) * a + torch.randn_like(a),
    "gumbel": lambda a: F.gumbel_softmax(a, dim=-1),
    "of both libraries": lambda a: sr.dropout(sr.asarray(a), 0.5).torch() * torch.rand_like(a) + sr.random.uniform(4),
    "those of torch first": lambda a: F.dropout(a, 0.5) * sr.dropout(sr.asarray(a), 0.25).torch() + torch.rand(4),
    "unused": lambda a: (torch.rand(3), a * torch.rand(4))[1],
    "in place": lambda a: a * torch.empty(4).uniform_() + a.clone().normal_(),
}


@pytest.mark.parametrize("name", RANDOM)
def test_numbers_that_torch_draws_are_those_of_eager_code_and_other_ones_in_each_call(name):
    function = RANDOM[name]
    made = compiled(function)
    torch.manual_seed(3)
    want = [function(D), function(D)]
    state = torch.get_rng_state()
    torch.manual_seed(3)
    got = [made(D), made(D)]
    same(got, want)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(got[0], got[1])
    assert made.stats.traces == 1
    assert made.stats.eager_calls == 0


@pytest.mark.parametrize("name", ["two dropouts", "of both libraries", "bernoulli and noise"])
def test_the_way_back_and_the_way_back_of_that_use_the_numbers_that_torch_drew(name):
    function = RANDOM[name]
    agree_with_gradients(function, D, scale=4)
    found = []
    for run in (sr.jit(function), function):
        x = D.double().requires_grad_()
        torch.manual_seed(5)
        out = run(x) * x.square()
        torch.rand(3)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        found.append((out.detach(), first.detach(), *torch.autograd.grad(first.square().sum(), x)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_dropout_in_eval_mode_draws_nothing():
    made = sr.jit(nn.Sequential(nn.Dropout(0.5), nn.ReLU()).eval())
    state = torch.get_rng_state()
    same(made(D), F.relu(D))
    assert torch.equal(torch.get_rng_state(), state)
    assert made.stats.library_calls == 0


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout_advances_the_generator_equally_for_empty_batches(p):
    function = lambda x: sr.dropout(x, p) + sr.dropout(x, p)  # noqa: E731
    made, states = sr.jit(function), []
    for x in (X, X[:0]):
        for run in (function, made):
            torch.manual_seed(0)
            run(x)
            states.append(torch.get_rng_state())
        assert torch.equal(states[-1], states[-2])


def test_a_generator_of_ones_own_is_drawn_from_in_each_call():
    mine, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    made = sr.jit(lambda a: a * torch.rand(4, generator=mine))
    for _ in range(3):
        same(made(D), D * torch.rand(4, generator=theirs))
