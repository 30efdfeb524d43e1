"""Derivatives of normalizations and losses, for every attribute.

The rules are compared with autograd through torch's own functions on each row, and with autograd through the operation.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.gradients import LENGTHS, agree_with_autograd, like, pulled, ragged, row_by_row
from tests.ops.test_bodies import tensors as results

import serrate as sr
from serrate.ops.derivatives import pullback, run_body
from serrate.ops.record import TABLE

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


# ------------------------------------------------------------------------------------------------- degenerate elements

INF, NAN = math.inf, math.nan
ODD = [[1.0, NAN, -2.0, 5.0], [3.0], [], [INF, -INF], [0.0, -0.0]]
"""Rows with elements at which functions have no derivative."""
SHARES = [[0.0, 1.0, 0.5], [1.0, 0.0]], [[0.0, 0.0, 0.5], [1.0, 1.0]]
"""Probabilities, and what they are compared with."""

DEGENERATE: dict[str, tuple[Any, Any, tuple[list[list[float]], ...]]] = {
    "clip": (lambda x: sr.clip(x, min=-1, max=3), lambda x: x.clamp(-1, 3), (ODD,)),
    "clip below": (lambda x: sr.clip(x, min=-1), lambda x: x.clamp(min=-1), (ODD,)),
    "clip above": (lambda x: sr.clip(x, max=3), lambda x: x.clamp(max=3), (ODD,)),
    "abs": (sr.abs, torch.abs, (ODD,)),
    "l1_loss": (
        lambda x, y: sr.l1_loss(x, y, reduction="none"),
        lambda x, y: F.l1_loss(x, y, reduction="none"),
        ([[1.0, NAN, 2.0]], [[0.0, 1.0, NAN]]),
    ),
    "binary_cross_entropy": (
        lambda x, y: sr.binary_cross_entropy(x, y, reduction="none"),
        lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
        SHARES,
    ),
    "var": (
        lambda x: sr.var(x, axis=1, correction=2),
        lambda x: x.var(0, correction=2),
        ([[1.0, 2.0, 4.0], [1.0, 5.0], [3.0, 3.0]],),
    ),
    "norm": (
        lambda x: sr.norm(x, axis=1, ord=INF),
        lambda x: torch.linalg.vector_norm(x, INF),
        ([[1.0, NAN, -2.0], [3.0, -3.0], [0.0, 0.0], [INF, -INF]],),
    ),
    "norm of absolute values": (
        lambda x: sr.norm(x, axis=1, ord=1),
        lambda x: torch.linalg.vector_norm(x, 1),
        ([[1.0, NAN, -2.0], [3.0, -3.0], [0.0, 0.0]],),
    ),
}  # fmt: skip


def nested(rows: list[list[float]]) -> sr.Tensor:
    """Rows of float64."""
    flat = torch.tensor([each for row in rows for each in row], dtype=torch.float64)
    return sr.from_lengths(flat, [len(row) for row in rows])


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("name", DEGENERATE)
def test_gradients_at_degenerate_elements_are_those_of_torch(name: str) -> None:
    function, of_torch, given = DEGENERATE[name]
    operands = [nested(rows) for rows in given]
    out, back = pullback(function, *operands)
    got = back(sr.ones_like(out))
    rows = [[torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in x] for x in given]
    for each in zip(*rows, strict=True):
        of_torch(*each).sum().backward()
    for mine, leaves in zip(got, rows, strict=True):
        want = torch.cat([each.grad if each.grad is not None else each.detach() for each in leaves])
        torch.testing.assert_close(mine.values, want, equal_nan=True, rtol=1e-7, atol=0)


@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 2.0, 1.0, 1.0], dtype=torch.float64)])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_ignored_targets_alone_has_the_gradient_0(weight: Any, smoothing: float) -> None:
    x, target = ragged(4), sr.zeros_like(ragged(), dtype=torch.int64)
    _, back = pullback(
        lambda x: sr.cross_entropy(x.mT, target, weight=weight, ignore_index=0, label_smoothing=smoothing), x
    )
    (got,) = back(sr.asarray(torch.ones((), dtype=torch.float64)))
    assert not got.values.any()


@pytest.mark.parametrize("name", ["var", "std"])
def test_variances_with_a_correction(name: str) -> None:
    agree_with_autograd(lambda x: TABLE[name].function(x, axis=2, correction=1), ragged(3))
    agree_with_autograd(lambda x: TABLE[name].function(x, axis=(1, 2), correction=1.5, keepdims=True), ragged(3)[::2])
