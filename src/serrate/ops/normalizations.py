"""Normalizations along any axis: each row of a ragged axis on its own, half types computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.elementwise import apply
from serrate.eager.precision import wide_floats
from serrate.eager.reducing import centred_values, mean_values, reduction, root, sum_values
from serrate.errors import AxisError
from serrate.ops.record import operation, ops, record
from serrate.ops.reductions import accumulating, square_root
from serrate.ops.rules import in_dtype, reduced_to, total_beside
from serrate.tensor import abstract
from serrate.tensor.combine import zeroed
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import untraced


@operation
def _layer_norm(
    x: Any, /, weight: Any = None, bias: Any = None, *, axis: int | Sequence[int] = -1, eps: float = 1e-5
) -> Tensor:
    given = as_tensor(x)
    made = _by_torch(F.layer_norm, given, axis, weight, bias, eps) if given.is_floating_point() else None
    return _layer_norm_of_rows(given, weight, bias, axis, eps) if made is None else made


@untraced
def _layer_norm_of_rows(x: Tensor, weight: Any, bias: Any, axis: int | Sequence[int], eps: float) -> Tensor:
    call = reduction(wide_floats(x, "layer_norm"), axis)
    centred = centred_values(call, call.x.values)
    variance = mean_values(call, centred * centred)
    made = call.x._with(centred * call.spread((variance + eps).rsqrt()))
    return _scaled(made, weight, bias, x.dtype)


@operation
def _rms_norm(x: Any, /, weight: Any = None, *, axis: int | Sequence[int] = -1, eps: float | None = None) -> Tensor:
    given = as_tensor(x)
    made = _by_torch(F.rms_norm, given, axis, weight, eps) if given.is_floating_point() else None
    return _rms_norm_of_rows(given, weight, axis, eps) if made is None else made


@untraced
def _rms_norm_of_rows(x: Tensor, weight: Any, axis: int | Sequence[int], eps: float | None) -> Tensor:
    call = reduction(wide_floats(x, "rms_norm"), axis)
    small = torch.finfo(x.dtype).eps if eps is None else eps
    squares = mean_values(call, call.x.values * call.x.values)
    made = call.x._with(call.x.values * call.spread((squares + small).rsqrt()))
    return _scaled(made, weight, None, x.dtype)


def _by_torch(function: Callable[..., torch.Tensor], tensor: Tensor, axis: Any, *parameters: Any) -> Tensor | None:
    """torch's own kernel, where the axes are the last dimensions of the values and parameters are as large as they."""
    axes = [tensor._axis(a) for a in (axis if isinstance(axis, Sequence) else (axis,))]
    count = len(axes)
    first, packed = tensor.ndim - count, len(tensor.structure.axes)
    if axes != list(range(first, tensor.ndim)) or tensor.order[first:] != tuple(range(first, tensor.ndim)):
        return None
    if first < packed:
        return None
    sizes = tensor.values.shape[tensor.values.ndim - count :]
    given = [p.values if isinstance(p, Tensor) and not p.is_ragged else p for p in parameters]
    for p in given:
        if isinstance(p, Tensor) or (isinstance(p, torch.Tensor) and (p.shape != sizes or p.dtype != tensor.dtype)):
            return None
    made = function(zeroed(tensor.values, tensor.structure), sizes, *given)
    return tensor._with(zeroed(made, tensor.structure))


def _scaled(x: Tensor, weight: Any, bias: Any, dtype: torch.dtype) -> Tensor:
    x = x if weight is None else apply(torch.mul, x, weight)
    x = x if bias is None else apply(torch.add, x, bias)
    return x.to(dtype)


@operation
def _normalize(x: Any, /, *, axis: int | Sequence[int] = -1, eps: float = 1e-12) -> Tensor:
    given = as_tensor(x)
    call = reduction(wide_floats(given, "normalize"), axis)
    length = root(sum_values(call, call.x.values * call.x.values))
    made = call.x.values / call.spread(length.clamp(min=eps))
    return call.x._with(made).to(given.dtype)


def _last_axes(x: Any, shape: Any) -> tuple[int, ...]:
    """torch's normalized_shape: the last axes, which must be uniform and of these sizes."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    tensor = as_tensor(x)
    if abstract.unlike(tensor.shape[tensor.ndim - len(sizes) :], sizes):
        raise ValueError(f"normalized_shape must be the last axes of shape {tensor.shape}, got {sizes}")
    return tuple(range(-len(sizes), 0))


def _answer_layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any
) -> Tensor:
    return _layer_norm(input, weight, bias, axis=_last_axes(input, normalized_shape), eps=eps)


def _answer_rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    return _rms_norm(input, weight, axis=_last_axes(input, normalized_shape), eps=eps)


def _answer_normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
    if p != 2.0 or out is not None:
        raise TypeError("normalize of an sr.Tensor takes p=2 and no out")
    return _normalize(input, axis=dim, eps=eps)


def record_normalization(
    name: str,
    eager: Callable[..., Tensor],
    answer: Callable[..., Any],
    summary: str,
    call: str,
    gives: str,
    samples: tuple[str, ...] = (),
    **fields: Any,
) -> None:
    """Define an operation on floats along one axis or several."""
    record(
        "normalizations",
        name,
        eager,
        answer,
        summary=summary,
        example=(call, gives),
        kinds=("float",),
        traced=name != "normalize",
        samples=("x, axis=1", "x, axis=0", "x, axis=-1", *samples),
        errors=(
            ("x, axis=5", AxisError, "axis 5 is out of range"),
            ("x.to(torch.int64), axis=1", TypeError, f"{name} needs floating-point elements"),
        ),
        **fields,
    )


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def _average(x: Any, axis: int | Sequence[int]) -> Any:
    """The mean along the axis beside each element that is in it."""
    return ops.expand_like(ops.mean(x, axis=axis), x, axis=axis)


def _standardized(x: Any, axis: int | Sequence[int], eps: float) -> tuple[Any, Any]:
    """x with mean 0 and variance 1 along the axis, and what its distances from the mean were multiplied by."""
    wide = accumulating(x)
    once = wide - _average(wide, axis)
    centred = once - _average(once, axis)  # the first mean is rounded
    scale = ops.rsqrt(_average(centred * centred, axis) + eps)
    return centred * scale, scale


def _layer_norm_body(
    x: Any, /, weight: Any = None, bias: Any = None, *, axis: int | Sequence[int] = -1, eps: float = 1e-5
) -> Any:
    made, _ = _standardized(x, axis, eps)
    made = made if weight is None else made * weight
    return ops.astype(made if bias is None else made + bias, x.dtype)


def _layer_norm_vjp(
    g: Any, out: Any, x: Any, weight: Any, bias: Any, *, axis: int | Sequence[int], eps: float
) -> tuple[Any, Any, Any]:
    made, scale = _standardized(x, axis, eps)
    wide, to_weight = _before_weight(g, made, weight)
    to_x = scale * (wide - _average(wide, axis) - made * _average(wide * made, axis))
    return in_dtype(to_x, x.dtype), to_weight, reduced_to(accumulating(g), bias)


def _before_weight(g: Any, made: Any, weight: Any) -> tuple[Any, Any]:
    """The gradients of what was multiplied by the weight, and of the weight."""
    wide = accumulating(g)
    if weight is None:
        return wide, None
    return reduced_to(wide * weight, made), reduced_to(wide * made, weight)


def _by_mean_square(x: Any, axis: int | Sequence[int], eps: float | None) -> tuple[Any, Any]:
    """x divided by the root of its mean square along the axis, and what it was multiplied by for that."""
    wide = accumulating(x)
    small = torch.finfo(x.dtype).eps if eps is None else eps
    scale = ops.rsqrt(_average(wide * wide, axis) + small)
    return wide * scale, scale


def _rms_norm_body(x: Any, /, weight: Any = None, *, axis: int | Sequence[int] = -1, eps: float | None = None) -> Any:
    made, _ = _by_mean_square(x, axis, eps)
    return ops.astype(made if weight is None else made * weight, x.dtype)


def _rms_norm_vjp(
    g: Any, out: Any, x: Any, weight: Any, *, axis: int | Sequence[int], eps: float | None
) -> tuple[Any, Any]:
    made, scale = _by_mean_square(x, axis, eps)
    wide, to_weight = _before_weight(g, made, weight)
    return in_dtype(scale * (wide - made * _average(wide * made, axis)), x.dtype), to_weight


def _length(x: Any, axis: int | Sequence[int]) -> Any:
    """The length of x along the axis, beside each element that is in it."""
    return ops.expand_like(square_root(ops.sum(x * x, axis=axis)), x, axis=axis)


def _normalize_body(x: Any, /, *, axis: int | Sequence[int] = -1, eps: float = 1e-12) -> Any:
    wide = accumulating(x)
    return ops.astype(wide / ops.clip(_length(wide, axis), min=eps), x.dtype)


def _normalize_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int], eps: float) -> Any:
    """What points along x does not change it, unless its length is too small to be divided by."""
    wide, x_wide = accumulating(g), accumulating(x)
    length = _length(x_wide, axis)
    divisor = ops.clip(length, min=eps)
    made = x_wide / divisor
    along = ops.where(length < eps, 0, made * total_beside(wide * made, axis))
    return in_dtype((wide - along) / divisor, x.dtype)


# fmt: off
_WEIGHT = "torch.linspace(0.5, 2, x.shape[-1] if isinstance(x.shape[-1], int) else 1, dtype=x.dtype)"
record_normalization("layer_norm", _layer_norm, _answer_layer_norm,
        "x with mean 0 and variance 1 along `axis`, then times weight, plus bias.",
        "sr.layer_norm(sr.ragged([[-1., 1.], []]), axis=1, eps=0).tolist()", "[[-1.0, 1.0], []]",
        (f"x, {_WEIGHT}, {_WEIGHT}", f"x, weight={_WEIGHT}, axis=1"), operands=("x", "weight", "bias"),
        body=_layer_norm_body, vjp=_layer_norm_vjp)
record_normalization("rms_norm", _rms_norm, _answer_rms_norm,
        "x divided by the root of its mean square along `axis`, then times weight.",
        "sr.rms_norm(sr.ragged([[2., -2.], []]), axis=1, eps=0).tolist()", "[[1.0, -1.0], []]",
        (f"x, {_WEIGHT}", f"x, {_WEIGHT}, axis=1, eps=0.1"), operands=("x", "weight"),
        body=_rms_norm_body, vjp=_rms_norm_vjp)
record_normalization("normalize", _normalize, _answer_normalize, "x divided by its length along `axis`.",
        "sr.normalize(sr.ragged([[0., -4.], []]), axis=1).tolist()", "[[0.0, -1.0], []]",
        ("x, axis=1, eps=2.0",), body=_normalize_body, vjp=_normalize_vjp)
# fmt: on
