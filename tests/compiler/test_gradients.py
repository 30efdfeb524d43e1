"""Gradients: double backward, forward mode, torch.func; random numbers; what is saved and what is recomputed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, compiled, same
from torch.autograd import forward_ad

import serrate as sr

L = [3, 0, 2]


def rows(*features: int, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(sum(L), *features, generator=generator, dtype=torch.float64) - 0.3, L)


def leaf(x: sr.Tensor) -> sr.Tensor:
    return x._with(x.values.detach().clone().requires_grad_())


def block(x: Any) -> Any:
    return sr.sum(sr.softmax(sr.gelu(x), axis=1) * x, axis=2)


X = rows(3)


# ------------------------------------------------------------------------------------------------ first derivatives


def test_a_compiled_call_is_one_node_of_autograd():
    got = sr.jit(block)(leaf(X)).values
    nodes, seen = [got.grad_fn], []
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.append(node)
            nodes += [each for each, _ in node.next_functions]
    assert sum("AccumulateGrad" not in node.name() for node in seen) == 1


def test_backward_twice_raises_unless_it_is_retained():
    got = sr.sum(sr.jit(block)(leaf(X)))
    got.values.backward(retain_graph=True)
    got.values.backward()
    with pytest.raises(RuntimeError, match=r"second time|freed"):
        got.values.backward()


def test_gradients_accumulate():
    x, made = leaf(X), sr.jit(block)
    for _ in range(3):
        sr.sum(made(x)).values.backward()
    y = leaf(X)
    sr.sum(block(y)).values.backward()
    torch.testing.assert_close(x.values.grad, 3 * y.values.grad)


def test_only_inputs_that_need_gradients_have_them():
    made = sr.jit(lambda x, y: sr.exp(x) * y)
    x, y = leaf(X), X._with(X.values.clone())
    sr.sum(made(x, y)).values.backward()
    assert y.values.grad is None
    torch.testing.assert_close(x.values.grad, sr.exp(X).values * X.values)


def test_integers_and_comparisons_beside_need_none():
    agree_with_gradients(lambda x: (x * 2, x > 0, sr.argmax(x, axis=1), sr.sum(x, axis=1)), X)


def test_a_gradient_that_is_expanded_or_strided_is_right():
    x, y = leaf(X), leaf(X)
    sr.jit(block)(x).values.sum().backward()  # whose gradient is one number, expanded
    block(y).values.sum().backward()
    torch.testing.assert_close(x.values.grad, y.values.grad)
    x, y = leaf(X), leaf(X)
    way = torch.rand(3, 5, dtype=torch.float64).T
    sr.jit(lambda x: x * x)(x).values.backward(way)
    (y * y).values.backward(way)
    torch.testing.assert_close(x.values.grad, y.values.grad)


def test_hooks_on_results_and_leaves_run():
    x, seen = leaf(X), []
    got = sr.jit(block)(x).values
    got.register_hook(lambda g: seen.append(g) or g * 2)
    x.values.register_hook(seen.append)
    got.sum().backward()
    y = leaf(X)
    (block(y).values.sum() * 2).backward()
    torch.testing.assert_close(x.values.grad, y.values.grad)
    assert len(seen) == 2


def test_gradients_of_a_batch_without_rows_and_of_other_lengths():
    made = compiled(block)
    for lengths in ([2, 1], [], [0], [0, 5, 0], [1]):
        x = leaf(sr.from_lengths(torch.rand(sum(lengths), 3, dtype=torch.float64), lengths))
        y = leaf(x)
        sr.sum(made(x)).values.backward()
        sr.sum(block(y)).values.backward()
        torch.testing.assert_close(x.values.grad, y.values.grad)
    assert made.stats.traces == 1


def test_what_is_saved_is_freed_after_backward():
    x = leaf(X)
    kept = sr.jit(block)(x)
    node = weakref.ref(kept.values.grad_fn)
    sr.sum(kept).values.backward()
    del kept
    gc.collect()
    assert node() is None


def test_a_saved_argument_that_is_written_to_is_noticed():
    x = leaf(X)
    y = x._with(x.values * 1)
    got = sr.sum(sr.jit(lambda x: sr.exp(x) * x * x)(y))
    with torch.no_grad():
        y.values.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        got.values.backward()


def test_saved_tensor_hooks_see_what_is_saved():
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        got = sr.jit(block)(leaf(X))
    assert packed
    sr.sum(got).values.backward()


def test_cheap_values_are_recomputed_and_explain_says_so():
    stages = sr.jit(lambda x: sr.sum(sr.gelu(x) * x + 1, axis=1)).lower(leaf(X))
    assert stages.compiled.recomputed
    text = str(stages)
    assert any(name in text for name in stages.compiled.recomputed)


# ---------------------------------------------------------------------------------------------------- beyond the first


FUNCTIONS = {
    "softmax of gelu": block,
    "norm": lambda x: sr.layer_norm(x, axis=-1) * x,
    "sums over rows of means of features": lambda x: sr.sum(sr.exp(sr.mean(x, axis=2, keepdims=True) * x), axis=1),
    "running sums": lambda x: sr.cumulative_sum(sr.sin(x), axis=1),
    "products": lambda x: sr.matmul(x, x.mT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_backward_is_that_of_the_eager_form(name):
    function = FUNCTIONS[name]
    found = []
    for run in (sr.jit(function), function):
        x = leaf(X)
        out = run(x).values
        way = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape).requires_grad_()
        (first,) = torch.autograd.grad(out, x.values, way, create_graph=True)
        assert first.requires_grad
        found.append((first.detach(), *torch.autograd.grad(first.square().sum(), [x.values, way])))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_and_gradgradcheck(name):
    made = sr.jit(FUNCTIONS[name])
    small = sr.from_lengths(torch.rand(3, 2, dtype=torch.float64), [2, 0, 1])
    values = small.values.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: made(small._with(v)).values, (values,))
    assert torch.autograd.gradgradcheck(lambda v: made(small._with(v)).values, (values,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_runs_the_eager_form(name):
    function, along = FUNCTIONS[name], torch.rand_like(X.values)
    found = []
    for run in (sr.jit(function), function):
        with forward_ad.dual_level():
            out = run(X._with(forward_ad.make_dual(X.values, along))).values
            found.append(forward_ad.unpack_dual(out))
    torch.testing.assert_close(found[0].primal, found[1].primal)
    torch.testing.assert_close(found[0].tangent, found[1].tangent)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_of_torch_func_run_the_eager_form(name):
    function, made = FUNCTIONS[name], sr.jit(FUNCTIONS[name])
    at, along = X.values, torch.rand_like(X.values)
    made(X)  # it is compiled already

    def total(run: Any) -> Any:
        return lambda v: run(X._with(v)).values.square().sum()

    for transform in (torch.func.grad, torch.func.hessian):
        torch.testing.assert_close(transform(total(made))(at), transform(total(function))(at))
    mine, theirs = (torch.func.jvp(total(run), (at,), (along,))[1] for run in (made, function))
    torch.testing.assert_close(mine, theirs)
    mine, theirs = (torch.vmap(total(run))(torch.stack([at, at * 2])) for run in (made, function))
    torch.testing.assert_close(mine, theirs)


def test_a_transform_inside_of_a_compiled_function():
    def inside(x: Any) -> Any:
        return sr.sum(x) * 2

    gradient = torch.func.grad(lambda v: sr.jit(inside)(X._with(v)).values)(X.values)
    torch.testing.assert_close(gradient, torch.full_like(X.values, 2.0))


# ---------------------------------------------------------------------------------------------------- random numbers


RANDOM = {
    "dropout": lambda x: sr.dropout(x, 0.4) * x,
    "dropout of torch": lambda x: torch.nn.functional.dropout(x, 0.4) * x,
    "two dropouts": lambda x: sr.dropout(sr.dropout(x, 0.3) + x, 0.5),
    "one of them unused": lambda x: (sr.dropout(x, 0.3), sr.dropout(x, 0.5))[1],
    "dropout in a norm": lambda x: sr.layer_norm(sr.dropout(x, 0.2) + x, axis=-1),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_operations_equal_eager_with_the_same_seed_and_advance_the_generator_equally(name):
    function = RANDOM[name]
    made = compiled(function)
    for seed in (0, 1):
        torch.manual_seed(seed)
        want = [function(X), function(X)]
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        got = [made(X), made(X)]
        same(got, want)
        assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(got[0].values, got[1].values)
    assert made.stats.traces == 1


@pytest.mark.parametrize("name", RANDOM)
def test_the_way_back_uses_the_random_numbers_of_the_way_there(name):
    made = agree_with_gradients(RANDOM[name], X)
    x = leaf(X)
    torch.manual_seed(3)
    got = made(x)
    state = torch.get_rng_state()
    torch.rand(7)
    sr.sum(got * got).values.backward()
    y = leaf(X)
    torch.manual_seed(3)
    want = RANDOM[name](y)
    assert torch.equal(state, torch.get_rng_state())
    sr.sum(want * want).values.backward()
    torch.testing.assert_close(x.values.grad, y.values.grad)


def test_double_backward_of_random_functions_uses_the_same_numbers():
    made = sr.jit(RANDOM["dropout"])
    found = []
    for run in (made, RANDOM["dropout"]):
        x = leaf(X)
        torch.manual_seed(5)
        out = run(x).values
        torch.rand(3)
        (first,) = torch.autograd.grad(out.sum(), x.values, create_graph=True)
        found.append((out.detach(), first.detach(), *torch.autograd.grad(first.square().sum(), x.values)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
