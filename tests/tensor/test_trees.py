"""Tensors under torch's tree functions and the transforms of torch.func: what is a tensor, what is stacked, what fails.

What vmap gives for tensors beside a ragged one is compared with one call for each; Jacobians with gradients.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.utils import _pytree as pytree

import serrate as sr
from serrate.compat.torchrec import JaggedTensor, KeyedJaggedTensor
from serrate.tensor.trees import Stacked


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LENGTHS = [3, 0, 1, 2]
WEIGHTS = noise(5, 2, 3, seed=1)


@pytest.fixture
def x() -> sr.Tensor:
    return sr.from_lengths(noise(6, 2), LENGTHS)


def per_row(function: Any, x: sr.Tensor) -> torch.Tensor:
    return torch.stack([function(row.torch()) for row in x])


# ------------------------------------------------------------------------------------------------- vmap over rows

REFUSED = {
    "sums": lambda x: vmap(torch.sum)(x),
    "the same tensor": lambda x: vmap(lambda row: row)(x),
    "values": lambda x: vmap(lambda row: row.values)(x),
    "in a dict": lambda x: vmap(lambda p: sr.sum(p["x"]), in_dims=({"x": 0},))({"x": x}),
    "beside a dense one": lambda x: vmap(lambda row, w: sr.sum(row) * w)(x, torch.ones(6)),
    "features": lambda x: vmap(sr.sum, in_dims=1)(x),
    "the last axis": lambda x: vmap(sr.sum, in_dims=-1)(x),
    "in chunks": lambda x: vmap(torch.sum, chunk_size=2)(x),
    "gradients of each row": lambda x: vmap(grad(lambda w, row: torch.sum(row @ w)), in_dims=(None, 0))(WEIGHTS[0], x),
    "torch.vmap": lambda x: torch.vmap(torch.sum)(x),
    "nested": lambda x: vmap(lambda w: vmap(lambda row: sr.sum(row) * w)(x))(torch.ones(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_vmap_over_a_ragged_tensor_is_refused_by_name(name, x):
    """Never an answer about packed values, whatever their number and birth place."""
    for rows in (x, x[:1], sr.testing.device_born(x, spare=2), sr.from_lengths(noise(4, 2), [2, 2])):
        with pytest.raises(
            (TypeError, ValueError), match=r"torch\.vmap cannot map over a ragged tensor|same size in the"
        ):
            REFUSED[name](rows)


def test_the_refusal_says_what_to_do(x):
    with pytest.raises(TypeError, match=r"shape \(4, Ragged\(\[3, 0, 1, 2\]\), 2\).*in_dims=None.*torch\.func\.jacrev"):
        vmap(torch.sum)(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sr.group_by(noise(6, 2), torch.tensor([0, 1, 0, 2, 1, 1]), 3),
        lambda: sr.from_lengths(noise(6, 2), LENGTHS).mT,
        lambda: sr.from_product(noise(5), sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([1, 3])),
        lambda: JaggedTensor(torch.arange(6.0), lengths=torch.tensor(LENGTHS)),
        lambda: KeyedJaggedTensor(["a", "b"], torch.arange(6.0), lengths=torch.tensor(LENGTHS)),
    ],
    ids=["grouped", "permuted", "product", "JaggedTensor", "KeyedJaggedTensor"],
)
def test_every_kind_of_ragged_tensor_refuses(make):
    with pytest.raises(TypeError, match=r"torch\.vmap cannot map over a ragged tensor"):
        vmap(lambda t: t)(make())


# --------------------------------------------------------------------------------------- vmap beside ragged tensors

BESIDE = {
    "a product with weights": lambda x, w: sr.sum(x @ w),
    "each row": lambda x, w: sr.sum(x @ w, axis=(1, 2)),
    "torch's face": lambda x, w: torch.mean(x @ w, (1, 2)),
    "softmax": lambda x, w: sr.max(sr.softmax(x @ w, axis=1), axis=(1, 2)),
    "attention": lambda x, w: sr.norm(sr.attention(x @ w, x @ w, x @ w, causal=True)),
    "scores": lambda x, w: sr.sum(sr.logsumexp((x @ w) @ (x @ w).mT, axis=2)),
    "padded": lambda x, w: (x @ w).to_dense(),
    "sorted": lambda x, w: sr.sort(x @ w, axis=1).to_dense(),
    "a row": lambda x, w: (x @ w)[3],
    "values": lambda x, w: (x @ w).values,
}


def plain(given: Any) -> torch.Tensor:
    return given.torch() if isinstance(given, sr.Tensor) else given


@pytest.mark.parametrize("name", BESIDE)
def test_vmap_over_dense_tensors_beside_a_ragged_one(name, x):
    """Closed over, or passed with in_dims=None; host-born or not."""
    function = BESIDE[name]
    want = torch.stack([plain(function(x, w)) for w in WEIGHTS])
    for rows in (x, sr.testing.device_born(x)):
        closed = vmap(lambda w, rows=rows: function(rows, w))(WEIGHTS)
        passed = vmap(function, in_dims=(None, 0))(rows, WEIGHTS)
        torch.testing.assert_close(plain(closed), want, equal_nan=True)
        torch.testing.assert_close(plain(passed), want, equal_nan=True)


def test_vmap_over_an_ensemble_of_modules(x):
    models = [nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 1)).double() for _ in range(3)]
    params, buffers = stack_module_state(models)

    def predict(p: Any, b: Any, rows: sr.Tensor) -> sr.Tensor:
        return sr.mean(functional_call(models[0], (p, b), (rows,)), axis=1)

    got = vmap(predict, in_dims=(0, 0, None))(params, buffers, x)
    assert got.shape == (3, 4, 1)
    want = torch.stack([sr.mean(model(x), axis=1).torch() for model in models])
    torch.testing.assert_close(got.torch(), want, equal_nan=True)


def test_dense_tensors_are_mapped_over_as_torch_s_are():
    dense = sr.asarray(noise(4, 3, 2))
    got = vmap(lambda t: t * 2 + sr.sum(t, axis=0))(dense)
    assert got.shape == (4, 3, 2)
    torch.testing.assert_close(got.torch(), dense.torch() * 2 + dense.torch().sum(1, keepdim=True))
    assert vmap(lambda t: sr.sum(t), out_dims=0)(dense).shape == (4,)
    assert vmap(lambda t: t, in_dims=1, out_dims=2)(dense).shape == (4, 2, 3)


def test_ragged_results_are_stacked_values(x):
    """Not a tensor, since nobody could tell lines and packed rows apart where there are as many of both."""
    made = vmap(lambda w: x @ w)(WEIGHTS)
    assert isinstance(made, Stacked)
    torch.testing.assert_close(made.values, torch.stack([(x @ w).values for w in WEIGHTS]))
    torch.testing.assert_close(vmap(lambda w: x @ w, chunk_size=2)(WEIGHTS).values, made.values)
    assert "values of shape [5, 6, 3]" in repr(made)
    with pytest.raises(TypeError, match=r"torch's exp takes no Stacked.*torch\.vmap.*`values`"):
        torch.exp(made)
    with pytest.raises(AttributeError, match=r"Stacked has no shape.*`values`"):
        made.shape  # noqa: B018
    with pytest.raises(TypeError, match="Stacked"):
        sr.exp(made)
    columns = vmap(lambda w: (x @ w).values, out_dims=1)(WEIGHTS)
    kept = sr.from_lengths(columns, LENGTHS)
    assert kept.shape[2:] == (5, 3)
    torch.testing.assert_close(kept[:, :, 1].values, (x @ WEIGHTS[1]).values)


# -------------------------------------------------------------------------------------------------------- Jacobians


def cubes(x: sr.Tensor) -> sr.Tensor:
    return sr.softmax(x * x * x, axis=1)


def test_gradients_for_each_row_are_a_jacobian_of_losses(x):
    def losses(w: torch.Tensor) -> torch.Tensor:
        return torch.sum((x @ w).exp(), (1, 2))

    want = torch.stack([grad(lambda w, row=row: (row.torch() @ w).exp().sum())(WEIGHTS[0]) for row in x])
    for transform in (jacrev, jacfwd):
        torch.testing.assert_close(transform(losses)(WEIGHTS[0]), want)


def test_jacobians_of_modules_with_respect_to_parameters(x):
    module = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 1)).double()
    params = {name: p.detach() for name, p in module.named_parameters()}

    def totals(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.sum(functional_call(module, p, (x,)), (1, 2))

    got, forward = jacrev(totals)(params), jacfwd(totals)(params)
    for i, row in enumerate(x):
        back = torch.autograd.grad(module(row.torch()).sum(), list(module.parameters()))
        for name, want in zip(params, back, strict=True):
            torch.testing.assert_close(got[name][i], want)
            torch.testing.assert_close(forward[name][i], want)


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians_with_respect_to_ragged_tensors_are_stacked_values(transform, x):
    """[*values of the result, *values of the operand], for each of dense and ragged on both sides."""
    leaf = x.values.clone().requires_grad_()
    want = torch.stack(
        [torch.autograd.grad(e, leaf, retain_graph=True)[0] for e in cubes(x._with(leaf)).values.flatten()]
    )
    ragged = transform(cubes)(x)
    assert isinstance(ragged, Stacked)
    torch.testing.assert_close(ragged.values, want.view(6, 2, 6, 2))
    sums = transform(lambda t: torch.sum(t * t, 1))(x)
    assert sums.values.shape == (4, 2, 6, 2)
    torch.testing.assert_close(sums.values[3, 1, 5], torch.stack([x.values[5, 1] * 0, 2 * x.values[5, 1]]))
    assert transform(lambda t: sr.sum(t * t, axis=1))(x).values.shape == (4, 2, 6, 2)
    weights = transform(lambda w: x @ w)(WEIGHTS[0])
    assert weights.values.shape == (6, 3, 2, 3)
    torch.testing.assert_close(weights.values[4, 2, :, 2], x.values[4])
    both = transform(lambda p: torch.sum(p["x"] @ p["w"], (1, 2)))({"x": x, "w": WEIGHTS[0]})
    assert both["x"].values.shape == (4, 6, 2)
    assert both["w"].shape == (4, 2, 3)


def test_the_jacobian_of_a_number_is_a_tensor_and_its_hessian_is_stacked(x):
    def total(t: sr.Tensor) -> torch.Tensor:
        return torch.sum(t * t * t)

    gradient = jacrev(total)(x)
    assert isinstance(gradient, sr.Tensor)
    assert gradient.shape == x.shape
    torch.testing.assert_close(gradient.values, 3 * x.values.square())
    torch.testing.assert_close(grad(total)(x).values, gradient.values)
    second = hessian(total)(x)
    torch.testing.assert_close(second.values.view(12, 12), torch.diag(6 * x.values.flatten()))


def test_products_with_jacobians_keep_raggedness(x):
    tangent = x._with(noise(6, 2, seed=4))
    out, along = jvp(cubes, (x,), (tangent,))
    _, back = vjp(cubes, x)
    (found,) = back(tangent)
    for made in (out, along, found):
        assert isinstance(made, sr.Tensor)
        assert made.structure is x.structure
    jacobian = jacrev(cubes)(x).values.view(12, 12)
    torch.testing.assert_close(along.values.flatten(), jacobian @ tangent.values.flatten())
    torch.testing.assert_close(found.values.flatten(), tangent.values.flatten() @ jacobian)


def test_as_many_lines_as_rows_are_never_taken_for_each_other(x):
    """Square Jacobians and stacks, which sizes alone do not tell apart."""
    weights = noise(6, 2, 3, seed=7)
    assert isinstance(vmap(lambda w: x @ w)(weights), Stacked)
    line = noise(6)
    for transform in (jacrev, jacfwd):
        made = transform(lambda w: sr.from_lengths(w, LENGTHS) * 2)(line)
        assert isinstance(made, Stacked)
        assert torch.equal(made.values, 2 * torch.eye(6, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------- tree functions


def test_tree_functions_that_change_the_axes_make_no_tensor(x):
    assert isinstance(pytree.tree_map(torch.sum, x), Stacked)
    both = pytree.tree_map(lambda a, b: torch.stack([a, b]), x, x * 2)
    assert isinstance(both, Stacked)
    leaves, spec = pytree.tree_flatten(both)
    assert leaves[0] is both.values
    back = pytree.tree_unflatten([leaves[0][1]], spec)
    assert isinstance(back, sr.Tensor)
    assert back.shape == x.shape
    assert isinstance(pytree.tree_unflatten(leaves, spec), Stacked)
    ((path, _),), _ = pytree.tree_flatten_with_path({"a": both})
    assert pytree.keystr(path) == "['a'].values"
    dense = pytree.tree_map(lambda v: v.sum(0), sr.asarray(noise(3, 2)))
    assert dense.shape == (2,)


def test_offsets_of_tensors_inside_of_transforms():
    values = torch.arange(5.0)
    offsets = torch.tensor([0, 2, 5])

    def total(given: torch.Tensor) -> torch.Tensor:
        return sr.sum(sr.from_offsets(given, offsets) ** 2).torch()

    assert torch.func.grad(total)(values).tolist() == (2 * values).tolist()
    _, tangent = torch.func.jvp(total, (values,), (torch.ones(5),))
    assert tangent.item() == 20.0
