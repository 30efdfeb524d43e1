"""Fusions that must become few kernels: activations, norms, softmax, padding, scans, means, and their derivatives.

Each function gives a fusion; `REQUIRED` says how many kernels it may become, and `inputs_of` makes tensors for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from serrate.fusion import Fusion, TensorView, symbol
from serrate.fusion.binding import TORCH

FEATURES = 5
P = 0.25  # of elements that dropout drops


def rows_of(fusion: Fusion, features: int, *names: str) -> list[TensorView]:
    """Inputs of the same rows, [k, r, d] each."""
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return [fusion.view_as_nested(fusion.input(name, ["n", features]), offsets) for name in names]


def gelu(x: TensorView) -> TensorView:
    return x.fusion.unary("gelu", x)


def gelu_derivative(x: TensorView) -> TensorView:
    """Φ(x) + x φ(x)."""
    fusion = x.fusion
    cumulative = (fusion.unary("erf", x * math.sqrt(0.5)) + 1.0) * 0.5
    return cumulative + x * fusion.unary("exp", x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def normalized(x: TensorView) -> tuple[TensorView, TensorView]:
    """(x - mean) / std over features, and 1 / std."""
    fusion, last = x.fusion, x.ndim - 1
    centered = x - fusion.reduce("mean", x, [last], keepdims=True)
    scale = fusion.unary("rsqrt", fusion.reduce("mean", centered * centered, [last], keepdims=True) + 1e-5)
    return centered * scale, scale


def norm_gradient(dy: TensorView, x_hat: TensorView, scale: TensorView) -> TensorView:
    """The gradient of what was normalized, of that of the normalized."""
    fusion, last = dy.fusion, dy.ndim - 1
    mean = fusion.reduce("mean", dy, [last], keepdims=True)
    along = fusion.reduce("mean", dy * x_hat, [last], keepdims=True)
    return (dy - mean - x_hat * along) * scale


# Forward


def activation(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (x,) = rows_of(fusion, features, "x")
    fusion.output(gelu(x) * x + 1, "y")
    return fusion


def layer_norm(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (x,) = rows_of(fusion, features, "x")
    w, b = fusion.input("w", [features]), fusion.input("b", [features])
    fusion.output(normalized(x)[0] * w + b, "y")
    return fusion


def bias_block(features: int = FEATURES) -> Fusion:
    """gelu(layer_norm(x + bias + residual))."""
    fusion = Fusion()
    x, residual = rows_of(fusion, features, "x", "residual")
    bias, w, b = (fusion.input(name, [features]) for name in ("bias", "w", "b"))
    fusion.output(gelu(normalized(x + bias + residual)[0] * w + b), "y")
    return fusion


def dropped(fusion: Fusion, x: TensorView) -> tuple[TensorView, TensorView]:
    """Dropout by numbers that are drawn where they are used, and what it keeps."""
    key = [fusion.input(name, [], "int64") for name in ("seed", "call")]
    kept = fusion.binary("greater_equal", fusion.uniform(x, *key), P)
    return fusion.where(kept, x * (1 / (1 - P)), 0.0), kept


def dropout_block(features: int = FEATURES) -> Fusion:
    """layer_norm(dropout(x) + residual)."""
    fusion = Fusion()
    x, residual = rows_of(fusion, features, "x", "residual")
    w, b = fusion.input("w", [features]), fusion.input("b", [features])
    fusion.output(normalized(dropped(fusion, x)[0] + residual)[0] * w + b, "y")
    return fusion


def softmax_of(x: TensorView, axis: int = 1) -> TensorView:
    fusion = x.fusion
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [axis], keepdims=True))
    return exponentials / fusion.reduce("sum", exponentials, [axis], keepdims=True)


def masked_softmax(features: int = FEATURES) -> Fusion:
    """Over the rows, of scaled values, without those that are masked."""
    fusion = Fusion()
    (x,) = rows_of(fusion, features, "x")
    offsets = fusion.named("offsets")
    mask = fusion.view_as_nested(fusion.input("mask", ["n", features], "bool"), offsets)
    fusion.output(softmax_of(fusion.where(mask, x * 0.125, -1e9)), "y")
    return fusion


def unpad_and_pad(features: int = FEATURES) -> Fusion:
    """to_dense of gelu of from_dense."""
    fusion = Fusion()
    (like,) = rows_of(fusion, features, "like")
    dense = fusion.input("dense", ["k", 4, features])
    fusion.output(fusion.to_dense(gelu(fusion.from_dense(dense, like)), 1, 4), "y")
    return fusion


def pad_and_unpad(features: int = FEATURES) -> Fusion:
    """from_dense of gelu of to_dense."""
    fusion = Fusion()
    (x,) = rows_of(fusion, features, "x")
    fusion.output(fusion.from_dense(gelu(fusion.to_dense(x, 1, 4)), x), "y")
    return fusion


def running_sums(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (x,) = rows_of(fusion, features, "x")
    fusion.output(fusion.scan("sum", fusion.unary("exp", x), 1), "y")
    return fusion


def codes_of_visits(fusion: Fusion, features: int, *names: str) -> list[TensorView]:
    """Inputs [patients, visits, codes, d]."""
    visits = fusion.input("visit_offsets", [symbol("m") + 1], "int64")
    patients = fusion.input("offsets", [symbol("k") + 1], "int64")
    made = []
    for name in names:
        codes = fusion.view_as_nested(fusion.input(name, ["n", features]), visits, names=("v", "code"))
        made.append(fusion.view_as_nested(codes, patients, names=("p", "visit")))
    return made


def mean_of_means(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (x,) = codes_of_visits(fusion, features, "x")
    fusion.output(fusion.reduce("mean", fusion.reduce("mean", x, [2]), [1]), "y")
    return fusion


# Backward


def activation_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    x, dy = rows_of(fusion, features, "x", "dy")
    fusion.output(dy * (gelu_derivative(x) * x + gelu(x)), "dx")
    return fusion


def softmax_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    y, dy = rows_of(fusion, features, "y", "dy")
    fusion.output(y * (dy - fusion.reduce("sum", y * dy, [1], keepdims=True)), "dx")
    return fusion


def masked_softmax_gradient(features: int = FEATURES) -> Fusion:
    """What is saved is the input: softmax is computed again."""
    fusion = Fusion()
    x, dy = rows_of(fusion, features, "x", "dy")
    mask = fusion.view_as_nested(fusion.input("mask", ["n", features], "bool"), fusion.named("offsets"))
    y = softmax_of(fusion.where(mask, x * 0.125, -1e9))
    dx = y * (dy - fusion.reduce("sum", y * dy, [1], keepdims=True)) * 0.125
    fusion.output(fusion.where(mask, dx, 0.0), "dx")
    return fusion


def layer_norm_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    x, dy = rows_of(fusion, features, "x", "dy")
    w = fusion.input("w", [features])
    x_hat, scale = normalized(x)
    fusion.output(norm_gradient(dy * w, x_hat, scale), "dx")
    fusion.output(fusion.reduce("sum", dy * x_hat, [0, 1]), "dw")
    fusion.output(fusion.reduce("sum", dy, [0, 1]), "db")
    return fusion


def bias_block_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    x, residual, dy = rows_of(fusion, features, "x", "residual", "dy")
    bias, w, b = (fusion.input(name, [features]) for name in ("bias", "w", "b"))
    x_hat, scale = normalized(x + bias + residual)
    d_norm = dy * gelu_derivative(x_hat * w + b)
    dx = norm_gradient(d_norm * w, x_hat, scale)
    fusion.output(dx, "dx")
    fusion.output(fusion.reduce("sum", dx, [0, 1]), "d_bias")
    fusion.output(fusion.reduce("sum", d_norm * x_hat, [0, 1]), "dw")
    fusion.output(fusion.reduce("sum", d_norm, [0, 1]), "db")
    return fusion


def dropout_block_gradient(features: int = FEATURES) -> Fusion:
    """The numbers are drawn again."""
    fusion = Fusion()
    x, residual, dy = rows_of(fusion, features, "x", "residual", "dy")
    w = fusion.input("w", [features])
    x_dropped, kept = dropped(fusion, x)
    x_hat, scale = normalized(x_dropped + residual)
    d_sum = norm_gradient(dy * w, x_hat, scale)
    fusion.output(d_sum, "d_residual")
    fusion.output(fusion.where(kept, d_sum * (1 / (1 - P)), 0.0), "dx")
    fusion.output(fusion.reduce("sum", dy * x_hat, [0, 1]), "dw")
    fusion.output(fusion.reduce("sum", dy, [0, 1]), "db")
    return fusion


def unpad_and_pad_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (like,) = rows_of(fusion, features, "like")
    dense, dy = (fusion.input(name, ["k", 4, features]) for name in ("dense", "dy"))
    inside = fusion.from_dense(dense, like)
    fusion.output(fusion.to_dense(fusion.from_dense(dy, like) * gelu_derivative(inside), 1, 4), "dx")
    return fusion


def running_sums_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    x, dy = rows_of(fusion, features, "x", "dy")
    fusion.output(fusion.scan("sum", dy, 1, reverse=True) * fusion.unary("exp", x), "dx")
    return fusion


def mean_of_means_gradient(features: int = FEATURES) -> Fusion:
    fusion = Fusion()
    (x,) = codes_of_visits(fusion, features, "x")
    dy = fusion.input("dy", ["k", features])
    visits = fusion.cast(fusion.row_lengths(x, 1), "float32")
    codes = fusion.cast(fusion.row_lengths(x, 2), "float32")
    each = fusion.broadcast(dy, [False, True, True, False])
    each = each / fusion.broadcast(visits, [False, True, True, True])
    fusion.output(fusion.expand(each / fusion.broadcast(codes, [False, False, True, True]), x), "dx")
    return fusion


@dataclass(frozen=True)
class Required:
    """A fusion, and how many kernels it may become at most."""

    make: Callable[..., Fusion]
    kernels: int


REQUIRED = {
    make.__name__: Required(make, most)
    for make, most in {
        activation: 1, layer_norm: 1, bias_block: 1, dropout_block: 1, masked_softmax: 1, unpad_and_pad: 1,
        pad_and_unpad: 1, running_sums: 1, mean_of_means: 2, activation_gradient: 3, softmax_gradient: 3,
        masked_softmax_gradient: 3, layer_norm_gradient: 3, bias_block_gradient: 3, dropout_block_gradient: 3,
        unpad_and_pad_gradient: 3, running_sums_gradient: 3, mean_of_means_gradient: 3,
    }.items()
}  # fmt: skip


def inputs_of(fusion: Fusion, lengths: list[int], visits: list[int]) -> list[torch.Tensor]:
    """Tensors for the inputs of one of these fusions: rows of these lengths; patients of so many visits."""
    numbers = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0)])
    levels = {"offsets": offsets}
    if any(tensor.name == "visit_offsets" for tensor in fusion.inputs):
        levels = {"visit_offsets": offsets, "offsets": torch.tensor([0, *torch.tensor(visits).cumsum(0)])}
    sizes = {"n": sum(lengths), "k": len(levels["offsets"]) - 1, "m": len(lengths)}
    made = []
    for tensor in fusion.inputs:
        shape = [sizes.get(str(axis.extent), axis.extent.value) for axis in tensor.domain.logical]
        if tensor.name in levels:
            made.append(levels[tensor.name])
        elif tensor.dtype == "bool":
            made.append(torch.rand(shape, generator=numbers) < 0.8)
        elif tensor.dtype == "int64":
            made.append(torch.tensor(12))
        else:
            made.append(torch.randn(shape, generator=numbers).to(TORCH[tensor.dtype]))
    return made
