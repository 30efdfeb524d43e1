"""Activations: elementwise functions that networks use, each written with other operations."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from serrate.ops.record import FLOAT, FLOATS, REAL, ops
from serrate.ops.scalar import torch_dtype, unary

_HALF_ROOT = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715  # of the approximation of gelu by tanh
_THRESHOLD = 20  # above which softplus, as torch has it, is the element itself


def _gelu(x: Any, /, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + ops.tanh(_tanh_argument(x)))
    return 0.5 * x * (1 + ops.erf(x * _HALF_ROOT))


def _gelu_derivative(out: Any, x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        t = ops.tanh(_tanh_argument(x))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (_TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x))
    return 0.5 * (1 + ops.erf(x * _HALF_ROOT)) + x * (_DENSITY * ops.exp(-0.5 * x * x))


def _tanh_argument(x: Any) -> Any:
    return _TANH_SCALE * (x + _TANH_CUBE * x * x * x)


def _silu_derivative(out: Any, x: Any) -> Any:
    share = ops.sigmoid(x)
    return share * (1 + x * (1 - share))


def _mish_derivative(out: Any, x: Any) -> Any:
    t = ops.tanh(ops.softplus(x))
    return t + x * ops.sigmoid(x) * (1 - t * t)


def _nan_to_num(x: Any, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    if not torch_dtype(x).is_floating_point:
        return ops.positive(x)
    limits = torch.finfo(torch_dtype(x))
    greatest, least = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    above = ops.where(ops.logical_and(ops.isinf(x), x > 0), greatest, x)
    below = ops.where(ops.logical_and(ops.isinf(x), x < 0), least, above)
    return ops.where(ops.isnan(x), nan, below)


def _between(x: Any, low: float, high: float, gradient: Any) -> Any:
    """A gradient for elements strictly between two bounds."""
    return ops.where(ops.logical_and(x > low, x < high), gradient, 0)


# fmt: off
activation = partial(unary, family="activations")
activation("relu", torch.relu, "The greater of x and 0.", "[[-1., 2.]]", "[[0.0, 2.0]]", REAL,
           body=lambda x, /: ops.where(x < 0, 0, x), vjp=lambda g, out, x: ops.where(x > 0, g, 0))
activation("sigmoid", torch.sigmoid, "1 / (1 + exp(-x)).", "[[0.], []]", "[[0.5], []]", FLOATS, ("expit",),
           body=lambda x, /: 1 / (1 + ops.exp(-x)), derivative=lambda out, x: out * (1 - out))
activation("log_sigmoid", F.logsigmoid, "log(sigmoid(x)).", "[[float('-inf')], []]", "[[-inf], []]", FLOAT,
           ("logsigmoid",), body=lambda x, /: ops.minimum(x, 0) - ops.log1p(ops.exp(-ops.abs(x))),
           derivative=lambda out, x: ops.sigmoid(-x))
activation("silu", F.silu, "x * sigmoid(x).", "[[0.], []]", "[[0.0], []]", FLOAT,
           body=lambda x, /: x * ops.sigmoid(x), derivative=_silu_derivative)
activation("softplus", F.softplus, "log(1 + exp(x)).", "[[100.], []]", "[[100.0], []]", FLOAT,
           body=lambda x, /: ops.where(x > _THRESHOLD, x, ops.log1p(ops.exp(x))),
           vjp=lambda g, out, x: ops.where(x > _THRESHOLD, g, g * ops.sigmoid(x)))
activation("gelu", F.gelu, "x times the normal distribution's cumulative probability of x.", "[[0.], []]",
           "[[0.0], []]", FLOAT, defaults={"approximate": "none"}, body=_gelu, derivative=_gelu_derivative)
activation("leaky_relu", F.leaky_relu, "x, or a small multiple of it below 0.", "[[-100., 1.]]", "[[-1.0, 1.0]]", FLOAT,
           defaults={"negative_slope": 0.01},
           body=lambda x, /, *, negative_slope=0.01: ops.where(x > 0, x, negative_slope * x),
           vjp=lambda g, out, x, *, negative_slope: ops.where(x > 0, g, negative_slope * g))
activation("elu", F.elu, "x, or alpha * (exp(x) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]", FLOAT,
           defaults={"alpha": 1.0}, body=lambda x, /, *, alpha=1.0: ops.where(x > 0, x, alpha * ops.expm1(x)),
           vjp=lambda g, out, x, *, alpha: ops.where(x > 0, g, g * (alpha * ops.exp(x))))
activation("mish", F.mish, "x * tanh(softplus(x)).", "[[0.], []]", "[[0.0], []]", FLOAT,
           body=lambda x, /: x * ops.tanh(ops.softplus(x)), derivative=_mish_derivative)
activation("celu", F.celu, "x, or alpha * (exp(x / alpha) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]", FLOAT,
           defaults={"alpha": 1.0}, body=lambda x, /, *, alpha=1.0: ops.where(x > 0, x, alpha * ops.expm1(x / alpha)),
           vjp=lambda g, out, x, *, alpha: ops.where(x > 0, g, g * ops.exp(x / alpha)))
activation("hardtanh", F.hardtanh, "x between -1 and 1.", "[[-3., 0.5]]", "[[-1.0, 0.5]]", FLOAT,
           body=lambda x, /: ops.clip(x, min=-1, max=1), vjp=lambda g, out, x: _between(x, -1, 1, g))
activation("relu6", F.relu6, "x between 0 and 6.", "[[-3., 7.]]", "[[0.0, 6.0]]", REAL,
           body=lambda x, /: ops.clip(x, min=0, max=6), vjp=lambda g, out, x: _between(x, 0, 6, g))
activation("hardswish", F.hardswish, "x times (x + 3) / 6 between 0 and 1.", "[[0., 9.]]", "[[0.0, 9.0]]", FLOAT,
           body=lambda x, /: x * ops.clip(x + 3, min=0, max=6) / 6,
           vjp=lambda g, out, x: ops.where(x <= -3, 0, ops.where(x < 3, g * (x / 3 + 0.5), g)))
activation("softsign", F.softsign, "x / (1 + abs(x)).", "[[0., 1.]]", "[[0.0, 0.5]]", FLOAT,
           body=lambda x, /: x / (1 + ops.abs(x)), derivative=lambda out, x: 1 / ops.square(1 + ops.abs(x)))
activation("tanhshrink", F.tanhshrink, "x - tanh(x).", "[[0.], []]", "[[0.0], []]", FLOAT,
           body=lambda x, /: x - ops.tanh(x), derivative=lambda out, x: ops.square(ops.tanh(x)))
activation("nan_to_num", torch.nan_to_num, "0 for NaN, and the greatest and least numbers for infinities.",
           "[[float('nan'), 1.]]", "[[0.0, 1.0]]", REAL,
           defaults={"nan": 0.0, "posinf": None, "neginf": None}, body=_nan_to_num, in_own_dtype=True,
           vjp=lambda g, out, x, **_: ops.where(ops.isfinite(x), g, 0))
# fmt: on
