"""Writes to what is no argument, and through other views: captured tensors, tensors made inside, functions of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import same
from torch import nn
from torch.nn import functional as F

import serrate as sr

L = [3, 0, 2]


def rows(seed: int = 0) -> sr.Tensor:
    return sr.from_lengths(torch.rand(5, 2, generator=torch.Generator().manual_seed(seed)), L)


def dense(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def test_captured_tensors_that_are_written_to_hold_what_eager_code_leaves():
    mine, theirs, count = (rows(1), torch.zeros(2)), (rows(1), torch.zeros(2)), torch.zeros((), dtype=torch.int64)

    def function(x: Any, state: Any, total: Any) -> Any:
        state.copy_(state + x)
        state *= 2
        total += sr.sum(x, axis=(0, 1)).torch()
        return state * 1, total + 1

    x = mine[0]._with(rows(5).values)

    def counted(x: Any) -> Any:
        count.add_(1)
        return function(x, *mine)

    made = sr.jit(counted)
    for call in range(3):
        same(made(x), function(x, *theirs))
        same(list(mine), list(theirs))
        assert int(count) == call + 1
    assert made.stats.traces == 1
    assert made.stats.eager_calls == 0


def test_a_buffer_that_forward_updates_stays_the_buffer():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    module = Counting()
    buffer, made = module.calls, sr.jit(module)
    for call in range(1, 4):
        same(made(rows()), rows() * float(call))
    assert module.calls is buffer
    assert made.stats.traces == 1


def test_nothing_is_written_to_a_captured_tensor_if_the_call_raises():
    state = torch.zeros(2)

    def failing(x: Any, y: Any) -> Any:
        state.add_(1)
        return x + y

    made = sr.jit(failing)
    with pytest.raises(ValueError, match=r"ragged|lengths|size"):
        sr.jit(lambda x, y: failing(x, y).undefined)(rows(), sr.from_lengths(torch.rand(5, 2), [1, 2, 2]))
    state.zero_()
    made(rows(), rows(1))
    assert state.tolist() == [1.0, 1.0]


def test_a_captured_tensor_that_shares_memory_with_a_written_argument_is_refused():
    x = rows()
    inside = x.values

    def function(x: Any) -> Any:
        x += 1
        return x.values + inside

    with pytest.raises(ValueError, match="shares its memory"):
        sr.jit(function)(x)
    same(sr.jit(function)(rows()), rows().values + 1 + x.values)


THROUGH: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "values": (lambda x: (x.values.mul_(2), x + 1)[1], lambda: [rows()]),
    "elements of values": (lambda x: (x.values.__setitem__((..., 0), 1.0), x * 2)[1], lambda: [rows()]),
    "values of a row": (lambda x: (x[2].values.mul_(3), x * 2)[1], lambda: [rows()]),
    "zeroed values": (lambda x: x.values.zero_(), lambda: [rows()]),
    "a row": (lambda a: (a[0].zero_(), a * 2)[1], lambda: [dense(2, 3)]),
    "a new axis": (lambda a: (a.unsqueeze(0).add_(1), a + 1)[1], lambda: [dense(2, 3)]),
    "no axis of one": (lambda a: (a.squeeze(1).add_(1), a + 1)[1], lambda: [dense(2, 1, 3)]),
    "where a mask holds": (lambda a: (a.__setitem__(a > 0.5, 0.0), a * 2)[1], lambda: [dense(2, 3)]),
    "masked fill": (lambda a: a.masked_fill_(a > 0.5, 0.0), lambda: [dense(2, 3)]),
    "index add": (lambda a, b: a.index_add_(0, torch.tensor([0, 1]), b), lambda: [dense(2, 3), dense(2, 3)]),
    "in place of torch": (
        lambda a: (F.relu(a - 0.5, inplace=True), torch.clamp_(a, 0.2, 0.5) + 1), lambda: [dense(2, 3)]
    ),
    "made inside": (lambda a: torch.zeros(2, 3).add_(a).mul_(2), lambda: [dense(2, 3)]),
    "a part of what was made inside": (
        lambda a: (lambda z: (z.__setitem__(0, a[0]), z)[1])(torch.zeros(2, 3)), lambda: [dense(2, 3)]
    ),
}  # fmt: skip
UNFOLLOWED: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "a transpose": (lambda a: (a.t().add_(1), a * 2)[1], lambda: [dense(2, 3)]),
    "a transpose made before": (lambda a: (lambda v: (a.add_(1), v * 2)[1])(a.t()), lambda: [dense(2, 3)]),
    "a selected row": (lambda a: (a.select(0, 1).zero_(), a * 2)[1], lambda: [dense(2, 3)]),
    "a chunk": (lambda a: (a.chunk(2)[0].fill_(3), a * 2)[1], lambda: [dense(2, 3)]),
    "another shape": (lambda a: (a.view(-1).fill_(3), a * 2)[1], lambda: [dense(2, 3)]),
    "without history": (lambda a: (a.detach().mul_(2), a + 1)[1], lambda: [dense(2, 3)]),
    "perhaps a copy": (lambda a: (a.float().mul_(2), a.contiguous().add_(1), a + 1)[2], lambda: [dense(2, 3)]),
    "another shape in place": (lambda a: (a.t_().t_(), a * 2)[1], lambda: [dense(2, 3)]),
    "an output of torch": (lambda a, b: (torch.sin(a, out=b), b * 2)[1], lambda: [dense(2, 3), dense(2, 3)]),
}


NOT_FOLLOWED = ("memory", "out=", "what a tensor is")
"""Parts of the reasons."""


def check_writes(function: Callable[..., Any], given: Callable[[], list[Any]]) -> Any:
    """Two calls of both leave the same in what is returned and in the arguments."""
    made, mine, theirs = sr.jit(function), given(), given()
    for _ in range(2):
        same(made(*mine), function(*theirs))
        same(mine, theirs)
    return made, mine


@pytest.mark.parametrize("name", THROUGH)
def test_writes_through_views_and_by_functions_of_torch_reach_the_argument(name):
    made, _ = check_writes(*THROUGH[name])
    assert made.stats.eager_calls == 0
    assert made.stats.traces == 1 + (name in ("made inside", "index add")), "those have sizes of their own"


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_writes_through_views_that_are_not_followed_run_eagerly_with_the_reason(name):
    made, given = check_writes(*UNFOLLOWED[name])
    assert made.stats.eager_calls == 2
    assert any(part in made.lower(*given).reason for part in NOT_FOLLOWED)


NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch": (lambda: nn.BatchNorm1d(2, momentum=0.3), (5, 2)),
    "instance": (lambda: nn.InstanceNorm1d(2, affine=True, track_running_stats=True), (5, 2, 3)),
}


@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_norms_are_written_after_the_last_call_of_a_library(name):
    make, shape = NORMS[name]

    def factored(norm: nn.Module) -> Callable[..., Any]:
        return lambda x, matrix: norm(x).sum() + torch.linalg.cholesky(matrix).sum()

    theirs, mine = make(), make()
    made = sr.jit(factored(mine))
    for matrix in (torch.eye(3), torch.eye(3) * 4, -torch.eye(3), torch.eye(3)):
        x = torch.rand(shape, requires_grad=True)
        results = []
        for function in (factored(theirs), made):
            x.grad = None
            try:
                result = function(x, matrix)
                result.backward()
                results.append((result, x.grad))
            except RuntimeError as error:
                results.append((type(error), str(error)))
        same(results[1], results[0])
        for one, other in zip(mine.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(one, other)
            assert not one.requires_grad
    assert made.stats.eager_calls == 1


def test_statistics_that_are_only_read_are_not_written():
    norm = nn.BatchNorm1d(2).eval()
    made, x = sr.jit(norm), torch.rand(5, 2)
    same(made(x), norm(x))
    assert made.lower(x).reason == ""
    assert torch.equal(norm.running_mean, torch.zeros(2))


def test_a_tensor_outside_with_a_history_that_is_written_to_has_the_gradients_of_eager_code():
    def gradients(wrap: Callable[[Any], Any]) -> list[Any]:
        weight, x = torch.tensor([3.0, 4.0], requires_grad=True), torch.tensor([0.5, 0.7], requires_grad=True)
        state = weight * 1

        def function(x: Any) -> Any:
            state.mul_(x)
            return (state * state * x).sum()

        result = wrap(function)(x)
        first = torch.autograd.grad(result, [x, weight], create_graph=True)
        return [result, state, *first, *torch.autograd.grad(sum(each.square().sum() for each in first), [x, weight])]

    same(gradients(sr.jit), gradients(lambda function: function))


IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "relu": lambda y: (F.relu(y, inplace=True), y * 2),
    "silu": lambda y: (F.silu(y, inplace=True), y * 2),
    "hardtanh by position": lambda y: (F.hardtanh(y, -0.5, 0.5, True), y * 2),
    "dropout": lambda y: (F.dropout(y, 0.5, inplace=True), y * 2),
    "dropout of nothing": lambda y: (F.dropout(y, 0.5, False, True), y * 2),
    "of a view": lambda y: (F.relu(y[:, :1], inplace=True), y),
    "a module": lambda y: nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))(y) + 1,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_functions_of_torch_that_are_asked_to_write_in_place_do(name):
    def function(x: Any) -> Any:
        return IN_PLACE[name](x.values - 0.5)

    for is_asked in (False, True):
        results = []
        made = sr.jit(function)
        for each in (made, function):
            x = rows()._with(rows().values.clone().requires_grad_(is_asked))
            torch.manual_seed(0)
            result = each(x)
            results.append((result, x.values.grad))
            if is_asked:
                parts = result if isinstance(result, tuple) else (result,)
                torch.cat([part.flatten() for part in parts]).square().sum().backward()
                results[-1] = (result, x.values.grad)
        same(*results)
        assert made.stats.eager_calls == 0


def test_a_function_that_writes_in_place_to_an_argument_writes_to_it():
    for given in (rows(), dense(5, 2)):
        mine, theirs = (given - 0.5 for _ in range(2))
        same(sr.jit(lambda x: F.relu(x, inplace=True) + 1)(mine), F.relu(theirs, inplace=True) + 1)
        same(mine, theirs)


def test_random_numbers_of_the_shape_of_a_tensor_have_no_gradient():
    x = torch.rand(5, 2, requires_grad=True)
    for function in (torch.rand_like, torch.randn_like):
        assert not sr.jit(lambda x: function(x))(x).requires_grad  # noqa: B023
        assert sr.jit(lambda x: x * function(x))(x).requires_grad  # noqa: B023


def test_what_torch_says_of_the_numbers_of_a_trace_is_not_shown(capfd, caplog):
    state = torch.tensor([1.0, 2.0])

    def function(x: Any) -> Any:
        state.mul_(x)
        return state * x

    for _ in range(2):
        sr.jit(function)(torch.tensor([0.5, 0.25]))
    assert state.tolist() == [0.25, 0.125]
    assert "failed" not in capfd.readouterr().err + caplog.text
