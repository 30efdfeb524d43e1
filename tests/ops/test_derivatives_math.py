"""Derivatives of normalizations, losses, scans, sorting, sets, tables and random numbers, for every attribute.

The rules are compared with autograd through torch's own functions on each row, and with autograd through the operation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.test_bodies import tensors as results

import serrate as sr
from serrate.ops.derivatives import pullback, run_body
from serrate.ops.record import TABLE

LENGTHS = [3, 0, 1, 4]


def ragged(*features: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = low + (high - low) * torch.rand(sum(LENGTHS), *features, generator=generator, dtype=torch.float64)
    return sr.from_lengths(values, LENGTHS)


def like(out: sr.Tensor, seed: int = 9) -> sr.Tensor:
    """A gradient for a result."""
    generator = torch.Generator().manual_seed(seed)
    return out._with(torch.randn(out.values.shape, generator=generator, dtype=torch.float64))


def pulled(function: Callable[..., Any], *operands: sr.Tensor) -> tuple[sr.Tensor, sr.Tensor, tuple[Any, ...]]:
    """What a program gives, a gradient of it, and those of the operands by the rules."""
    out, back = pullback(function, *operands)
    g = like(out)
    return out, g, back(g)


def agree_with_autograd(function: Callable[..., Any], *operands: sr.Tensor) -> None:
    """The rules against autograd through the same program, to the second derivative."""
    leaves = [x._with(x.values.clone().requires_grad_()) for x in operands]
    values = [x.values for x in leaves]
    out = function(*leaves)
    g = like(out)
    first = torch.autograd.grad(out.values, values, g.values, create_graph=True, materialize_grads=True)

    def gradients(*given: sr.Tensor) -> tuple[Any, ...]:
        return pullback(function, *given)[1](g)

    with torch.no_grad():
        made, back = pullback(gradients, *operands)
        directions = [like(x, seed=4) for x in operands]
        second = back(tuple(None if m is None else d for m, d in zip(made, directions, strict=True)))
    for x, mine, theirs in zip(operands, made, first, strict=True):
        same_gradient(x, mine, theirs)
    asked = [(f, d.values) for f, d in zip(first, directions, strict=True) if f.requires_grad]
    if not asked:
        return
    want = torch.autograd.grad(
        [f for f, _ in asked], values, [d for _, d in asked], allow_unused=True, materialize_grads=True
    )
    for x, mine, theirs in zip(operands, second, want, strict=True):
        same_gradient(x, mine, theirs)


def same_gradient(x: sr.Tensor, mine: Any, theirs: torch.Tensor) -> None:
    """A gradient by the rules, whose axes may be stored in another order than those of x, and one of its values."""
    made = sr.zeros_like(x) if mine is None else sr.zeros_like(x) + mine
    torch.testing.assert_close(made.contiguous().values, x._with(theirs).contiguous().values)


def row_by_row(
    function: Callable[..., torch.Tensor], g: sr.Tensor, x: sr.Tensor, *shared: sr.Tensor
) -> list[torch.Tensor]:
    """Autograd through torch's function on each row: the gradients of x and of what all rows share."""
    rows = [row.torch().clone().requires_grad_() for row in x]
    others = [each.values.clone().requires_grad_() for each in shared]
    for row, direction in zip(rows, g, strict=True):
        function(row, *others).backward(direction.torch())
    return [torch.cat([torch.zeros_like(r) if r.grad is None else r.grad for r in rows]), *(o.grad for o in others)]


# ------------------------------------------------------------------------------------------------ normalizations


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_row_by_row(name: str, axis: int) -> None:
    x = ragged(3)
    _, g, (got,) = pulled(lambda x: TABLE[name].function(x, axis=axis), x)
    (want,) = row_by_row(lambda row: getattr(torch, name)(row, axis - 1), g, x)
    torch.testing.assert_close(got.values, want)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm_with_weight_and_bias_row_by_row(eps: float) -> None:
    x, weight, bias = ragged(3), sr.asarray(torch.linspace(0.5, 2, 3).double()), sr.asarray(torch.ones(3).double())
    _, g, got = pulled(lambda x, w, b: sr.layer_norm(x, w, b, eps=eps), x, weight, bias)
    want = row_by_row(lambda row, w, b: F.layer_norm(row, (3,), w, b, eps), g, x, weight, bias)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.values, theirs)


@pytest.mark.parametrize("eps", [None, 0.3])
def test_rms_norm_with_weight_row_by_row(eps: float | None) -> None:
    x, weight = ragged(3) * 1e-8 if eps is None else ragged(3), sr.asarray(torch.linspace(0.5, 2, 3).double())
    _, g, got = pulled(lambda x, w: sr.rms_norm(x, w, eps=eps), x, weight)
    want = row_by_row(lambda row, w: F.rms_norm(row, (3,), w, eps), g, x, weight)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.values, theirs)


@pytest.mark.parametrize("axis", [1, (1, 2)])
def test_norms_along_rows_with_weights_that_are_stretched(axis: Any) -> None:
    x, weight = ragged(3), sr.asarray(torch.linspace(0.5, 2, 3).double())
    agree_with_autograd(lambda x, w, b: sr.layer_norm(x, w, b, axis=axis, eps=0.1), x, weight, ragged(3, seed=1))
    agree_with_autograd(lambda x, w: sr.rms_norm(x, w, axis=axis), x, weight)


@pytest.mark.parametrize("eps", [1e-12, 1.0])
def test_normalize_row_by_row_and_at_zero(eps: float) -> None:
    x = ragged(3)
    x.values[1] = 0
    _, g, (got,) = pulled(lambda x: sr.normalize(x, axis=2, eps=eps), x)
    (want,) = row_by_row(lambda row: F.normalize(row, dim=1, eps=eps), g, x)
    torch.testing.assert_close(got.values, want)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "normalize"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_differentiated_in_floats(name: str, dtype: torch.dtype) -> None:
    """The gradient is that of float32, rounded once."""
    options = {"eps": torch.finfo(dtype).eps} if name == "rms_norm" else {}
    x = ragged(3).to(dtype)
    out, back = pullback(lambda x: TABLE[name].function(x, axis=1, **options), x)
    g = like(out).to(dtype)
    (got,) = back(g)
    assert got.dtype == dtype
    _, wide = pullback(lambda x: TABLE[name].function(x, axis=1, **options), x.to(torch.float32))
    (want,) = wide(g.to(torch.float32))
    near = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.to(torch.float32).values, want.values, rtol=near, atol=near)


# -------------------------------------------------------------------------------------------------------- losses

LOSSES = {
    "mse_loss": [{}],
    "l1_loss": [{}],
    "smooth_l1_loss": [{}, {"beta": 0.3}, {"beta": 0.0}],
    "huber_loss": [{}, {"delta": 0.3}],
    "binary_cross_entropy": [{}],
    "binary_cross_entropy_with_logits": [{}],
}
EACH = [(name, options) for name, many in LOSSES.items() for options in many]


@pytest.mark.parametrize("reduction", [None, "mean", "sum", "none"])
@pytest.mark.parametrize(("name", "options"), EACH)
def test_losses_as_torch_has_them(name: str, options: dict[str, Any], reduction: str | None) -> None:
    chosen = options if reduction is None else options | {"reduction": reduction}
    x, y = ragged(2, low=0.05, high=0.95), ragged(2, seed=1, low=0.05, high=0.95)
    out, g, got = pulled(lambda x, y: TABLE[name].function(x, y, **chosen), x, y)
    leaves = [each.values.clone().requires_grad_() for each in (x, y)]
    want = getattr(F, name)(*leaves, **chosen)
    torch.testing.assert_close(out.values, want)
    for mine, theirs in zip(got, torch.autograd.grad(want, leaves, g.values), strict=True):
        torch.testing.assert_close(mine.values, theirs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "options"), EACH)
def test_weights_of_losses(name: str, options: dict[str, Any], reduction: str) -> None:
    x, y = ragged(2, low=0.05, high=0.95), ragged(2, seed=1, low=0.05, high=0.95)
    weights = [ragged(2, seed=2, low=0.5), sr.asarray(torch.tensor([0.5, 2.0]).double())]
    for weight in weights:
        agree_with_autograd(
            lambda x, y, w: TABLE[name].function(x, y, weight=w, reduction=reduction, **options), x, y, weight
        )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_positive_targets(reduction: str) -> None:
    x, y = ragged(2), ragged(2, seed=1, low=0.05, high=0.95)
    pos, weight = sr.asarray(torch.tensor([0.5, 2.0]).double()), ragged(2, seed=2, low=0.5)
    loss = sr.binary_cross_entropy_with_logits
    agree_with_autograd(lambda x, y, w, p: loss(x, y, weight=w, pos_weight=p, reduction=reduction), x, y, weight, pos)
    want = F.binary_cross_entropy_with_logits(x.values, y.values, pos_weight=pos.values, reduction=reduction)
    torch.testing.assert_close(loss(x, y, pos_weight=pos, reduction=reduction).values, want)


def test_targets_that_are_integers_or_stretched() -> None:
    x, y = ragged(2), sr.from_lengths(torch.tensor([0, 1, 1, 0, 1, 1, 0, 1]), LENGTHS)[:, :, None]
    _, g, got = pulled(lambda x, y: sr.mse_loss(x, y), x, y)
    leaf = x.values.clone().requires_grad_()
    F.mse_loss(leaf, y.values.expand_as(leaf).double()).backward(g.values)
    torch.testing.assert_close(got[0].values, leaf.grad)
    assert got[1] is None
    agree_with_autograd(lambda x, y: sr.huber_loss(x, y), x, ragged(1, seed=2))


def by_hand(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, ignored: int, reduction: str, smoothing: float
) -> torch.Tensor:
    """Cross entropy of one row [classes, entries] of logits with class numbers: losses, and weights of the entries."""
    logs, counted = torch.log_softmax(x, 0), target != ignored
    labels = torch.where(counted, target, 0)
    own = torch.where(counted, weight[labels], 0)
    even = -(logs * weight[:, None]).sum(0) / x.shape[0]
    losses = torch.where(counted, -own * logs.gather(0, labels[None])[0] * (1 - smoothing) + smoothing * even, 0)
    return torch.stack([losses, own])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_class_numbers(reduction: str, smoothing: float) -> None:
    """Class weights, of which torch has no derivative, and class numbers that are ignored."""
    x, weight = ragged(3), sr.asarray(torch.tensor([0.5, 2.0, 1.0]).double())
    target = sr.from_lengths(torch.tensor([0, 2, 1, 1, 0, 2, 1, 2]), LENGTHS)
    options: dict[str, Any] = {"ignore_index": 1, "reduction": reduction, "label_smoothing": smoothing}
    arguments: dict[str, Any] = {"weight": weight, **options}
    out, g, got = pulled(
        lambda x, w: sr.cross_entropy(x.mT, target, weight=w, **options), x, weight
    )  # fmt: skip
    leaf, classes = x.values.clone().requires_grad_(), weight.values.clone().requires_grad_()
    losses, own = by_hand(leaf.T, target.values, classes, 1, reduction, smoothing)
    want = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / own.sum()}[reduction]
    torch.testing.assert_close(out.values, want)
    torch.testing.assert_close(
        out.values,
        F.cross_entropy(x.values, target.values, weight.values, **options),
    )
    (mine,) = results(run_body(TABLE["cross_entropy"], (x.mT, target), arguments))
    torch.testing.assert_close(mine.values, want)
    for gradient, theirs in zip(got, torch.autograd.grad(want, [leaf, classes], g.values), strict=True):
        torch.testing.assert_close(gradient.values, theirs)
    agree_with_autograd(lambda x: sr.cross_entropy(x.mT, target, weight=weight, **options), x)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_distributions(reduction: str, smoothing: float) -> None:
    x, target = ragged(3), sr.softmax(ragged(3, seed=2), axis=2)
    weight = sr.asarray(torch.tensor([0.5, 2.0, 1.0]).double())
    agree_with_autograd(
        lambda x, y, w: sr.cross_entropy(x.mT, y.mT, weight=w, reduction=reduction, label_smoothing=smoothing),
        x, target, weight,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_cross_entropy_of_dense_tensors(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.zeros([n for a, n in enumerate(shape) if a != min(len(shape) - 1, 1)], dtype=torch.int64) + 2
    agree_with_autograd(lambda x: sr.cross_entropy(x, target, label_smoothing=0.1), sr.asarray(x))
    want = F.cross_entropy(x, target)
    torch.testing.assert_close(run_body(TABLE["cross_entropy"], (sr.asarray(x), target), {}).values, want)


def test_a_mean_of_nothing_is_nan() -> None:
    x, target = ragged(3), sr.from_lengths(torch.ones(8, dtype=torch.int64), LENGTHS)
    assert math.isnan(sr.cross_entropy(x.mT, target, ignore_index=1).item())
    assert math.isnan(run_body(TABLE["cross_entropy"], (x.mT, target), {"ignore_index": 1}).item())


def test_a_rule_that_forgets_an_attribute_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = TABLE["huber_loss"].vjp
    assert callable(rule)
    wrong = dataclasses.replace(TABLE["huber_loss"], vjp=lambda *args, **options: rule(*args, **options | {"delta": 1}))
    monkeypatch.setitem(TABLE, "huber_loss", wrong)
    with pytest.raises(AssertionError):
        agree_with_autograd(lambda x, y: sr.huber_loss(x, y, delta=0.3), ragged(2), ragged(2, seed=1))
