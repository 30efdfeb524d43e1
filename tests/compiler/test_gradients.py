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


def test_a_gradient_that_torch_knows_to_be_0_is_right():
    x = leaf(X)
    sr.jit(block)(x).values.sgn().sum().backward()  # whose gradient has no memory
    assert x.values.grad is not None
    assert not x.values.grad.any()


def test_rows_that_go_back_from_groups_have_gradients_and_so_have_the_weights_of_their_groups():
    values, keys = torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2), torch.tensor([0, 2, 1, 2, 0])

    def back_from_groups(values: Any) -> Any:
        groups = sr.group_by(values, keys, 3)
        return groups.ungroup(sr.sin(groups) * 2)

    agree_with_gradients(back_from_groups, values)
    several = torch.tensor([[0, 1], [1, 2], [2, 0], [-1, 1], [1, 1]])

    def weighted(values: Any, weights: Any) -> Any:
        groups = sr.group_by(values, several, 3, weights=weights)
        return groups.ungroup(sr.sin(groups) * 2)

    agree_with_gradients(weighted, values, torch.linspace(0.1, 1, 10, dtype=torch.float64).view(5, 2))


@pytest.mark.parametrize("moved", [lambda x: sr.flip(x, axis=1), lambda x: sr.concat([x, x[:, :1]], axis=1)])
def test_running_products_along_an_axis_that_others_depend_on_have_gradients(moved):
    x = sr.from_lengths(torch.linspace(-1, 2, 16, dtype=torch.float64).view(8, 2), [[3, 1], [2, 1, 4, 1]])
    made = agree_with_gradients(lambda x: sr.cumulative_prod(moved(x), axis=1), x)
    assert made.stats.eager_calls == 0


PADDED = {
    "sums": lambda x: sr.from_dense(sr.cumulative_sum(x.to_dense(0.25), axis=1), like=x),
    "products": lambda x: sr.from_dense(sr.cumulative_prod(x.to_dense(0.25), axis=1), like=x),
    "products of sums": lambda x: sr.from_dense(
        sr.cumulative_prod(sr.cumulative_sum(x.to_dense(0.25), axis=1), axis=1), like=x
    ),
    "some rows": lambda x: sr.from_dense(sr.cumulative_sum(x[1:].to_dense(0.25), axis=1), like=x[1:]),
    "joined rows": lambda x: (lambda y: sr.from_dense(sr.cumulative_sum(y.to_dense(0.25), axis=1), like=y))(
        sr.concat([x, x[:, :1]], axis=1)
    ),
}


@pytest.mark.parametrize("name", PADDED)
def test_scans_of_padded_rows_are_compiled_with_their_way_back(name):
    made = agree_with_gradients(PADDED[name], X)
    for lengths in ([1, 5], [4], [0, 2, 1, 3]):
        x = sr.from_lengths(torch.rand(sum(lengths), 3, dtype=torch.float64), lengths)
        same(made(x), PADDED[name](x))
    assert made.stats.eager_calls == 0


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


def test_an_argument_that_the_way_back_does_not_read_may_be_written_to():
    made = sr.jit(lambda x, y: (x + y) * (x + y))
    x, y = leaf(X), X._with(X.values.clone())
    got, added = sr.sum(made(x, y)), sr.jit(lambda x, y: x + y)(x, y)
    y.values.add_(1)
    added.values.sum().backward(retain_graph=True)
    torch.testing.assert_close(x.values.grad, torch.ones_like(X.values))
    (gradient,) = torch.autograd.grad(added.values.square().sum(), x.values, create_graph=True)
    assert gradient.requires_grad
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(got.values, x.values, create_graph=True)


def test_arguments_are_freed_after_backward():
    x, y = leaf(X), X.values.clone()
    got = sr.jit(lambda x, y: x + y)(x, X._with(y))
    kept = weakref.ref(y)
    del y
    gc.collect()
    assert kept() is not None  # for a second derivative
    got.values.sum().backward()
    gc.collect()
    assert kept() is None


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


def second(run: Any, x: torch.Tensor, *, autocast: bool = False) -> tuple[Any, ...]:
    """A result, its gradient, and that of the sum of the squares of this one."""
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = run(x)
    (first,) = torch.autograd.grad((out.to(x.dtype) ** 3).sum(), x, create_graph=True)
    return out.detach(), first.detach(), *torch.autograd.grad(first.square().sum(), x)


def test_double_backward_casts_as_the_call_did():
    weights = torch.linspace(-1, 1, 16, dtype=torch.bfloat16).view(4, 4)  # which x meets under autocast alone

    def cast(x: Any) -> Any:
        return torch.tanh(x @ weights)

    found = [second(run, torch.linspace(-2, 2, 20).view(5, 4).requires_grad_(), autocast=True)
             for run in (sr.jit(cast), cast)]  # fmt: skip
    assert found[0][0].dtype is torch.bfloat16
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)


def test_double_backward_writes_to_no_statistics():
    found = []
    for compile in (sr.jit, lambda module: module):
        module = torch.nn.BatchNorm1d(4).double()
        x = torch.linspace(-2, 2, 20, dtype=torch.float64).view(5, 4).square().requires_grad_()
        found.append((*second(compile(module), x), *(each.clone() for each in module.buffers())))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_double_backward_writes_to_nothing_a_second_time_and_reads_what_the_call_read():
    found = []
    for compile in (sr.jit, lambda function: function):
        factor, steps = torch.tensor([2.0, 3.0], dtype=torch.float64), torch.zeros((), dtype=torch.int64)

        def scaled(x: Any, factor: torch.Tensor = factor, steps: torch.Tensor = steps) -> Any:
            factor.mul_(2)
            steps.add_(1)
            return x * x * factor

        made = compile(scaled)
        x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64, requires_grad=True)
        found.append((*second(made, x), factor.clone(), steps.clone()))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_double_backward_of_a_function_that_writes_to_its_argument():
    def moved(x: Any, state: Any) -> Any:
        y = x * x * state
        with torch.no_grad():
            state += 1
        return y

    made, state = sr.jit(moved), torch.tensor([2.0, 3.0], dtype=torch.float64)
    found = second(lambda x: made(x, state), torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True))
    before = torch.tensor([2.0, 3.0], dtype=torch.float64)
    wanted = second(lambda x: x * x * before, torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True))
    torch.testing.assert_close(state, before + 1)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_double_backward_under_hooks_on_saved_tensors():
    x = leaf(X)
    with torch.autograd.graph.save_on_cpu():
        got = sr.jit(block)(x).values
    (first,) = torch.autograd.grad(got.sum(), x.values, create_graph=True)
    (wanted,) = torch.autograd.grad(block(x).values.sum(), x.values, create_graph=True)
    torch.testing.assert_close(first, wanted)
    for mine, theirs in zip(*(torch.autograd.grad(each.sum(), x.values) for each in (first, wanted)), strict=True):
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


@pytest.mark.parametrize("include_initial", [False, True])
def test_running_products_of_zeros_and_of_nan_have_the_gradients_of_eager_code(include_initial):
    numbers = [0.0, 1.5, -2.0, float("nan"), 0.5, 3.0]
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 6, (300,), generator=generator)
    chosen = torch.randint(0, len(numbers), (int(lengths.sum()),), generator=generator)
    x = sr.from_lengths(torch.tensor(numbers, dtype=torch.float64)[chosen], lengths)
    agree_with_gradients(lambda x: sr.cumulative_prod(x, axis=1, include_initial=include_initial), x)


def test_parts_that_are_put_together_again_have_gradients():
    for first, second in ((slice(None, 1), slice(1, None)), (slice(2, None), slice(None, 2))):
        agree_with_gradients(lambda x: sr.concat([x[first], x[second]], axis=0) * 2, X)  # noqa: B023
        agree_with_gradients(lambda x: torch.cat([x.values[first], x.values[second]]) * x.values, X)  # noqa: B023
