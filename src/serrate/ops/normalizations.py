"""Normalizations along any axis: each row of a ragged axis on its own, half types computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager import softmax
from serrate.eager.elementwise import apply
from serrate.eager.precision import widened
from serrate.eager.reducing import (
    Reduction,
    centred_values,
    extreme_values,
    mean_values,
    reduction,
    root,
    sum_values,
)
from serrate.eager.runs import settled
from serrate.eager.segments import Segments
from serrate.errors import AxisError
from serrate.ops.derivatives import in_dtype, reduced_to
from serrate.ops.record import Implementation, operation, ops, record
from serrate.ops.reductions import accumulating, square_root
from serrate.tensor import abstract
from serrate.tensor.combine import zeroed
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import untraced


def _wide(x: Tensor, name: str) -> Tensor:
    if not x.is_floating_point():
        raise TypeError(f"{name} needs floating-point elements, got {x.dtype}")
    return x._with(widened(x.values))


def _shifted(call: Reduction) -> torch.Tensor:
    """Values less the greatest of their row, so that no exponential overflows; NaN if that is infinite, as in torch."""
    return call.x.values - call.spread(extreme_values(call, call.x.values.detach(), largest=True))


@operation
def _softmax(x: Any, /, *, axis: int | Sequence[int] = -1) -> Tensor:
    given = as_tensor(x)
    wide = _wide(given, "softmax")
    made = _along_a_dimension(torch.softmax, wide, axis)
    return (_softmax_of_rows(wide, axis) if made is None else made).to(given.dtype)


def _along_a_dimension(function: Callable[..., torch.Tensor], x: Tensor, axis: Any) -> Tensor | None:
    """torch's own kernel, where the axis is a dimension of the values."""
    if isinstance(axis, Sequence):
        return None
    place, packed = x.order[x._axis(axis)] if x.ndim else 0, len(x.structure.axes)
    if place < packed:
        return None
    return x._with(function(x.values, place - packed + 1 if x.is_ragged else place))


@untraced
def _softmax_of_rows(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    call = reduction(settled(x), axis)
    segments = call.segments
    if segments is not None and not call.dims:
        made = _Softmax.call(call.x.values, segments)
    else:
        exponentials = _shifted(call).exp()
        made = exponentials / call.spread(sum_values(call, exponentials))
    return call.x._with(made)


class _Softmax(Differentiable):
    """Softmax of each result's rows with two buffers; the gradient is composed, so it can be differentiated again."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        grid = segments.grid(values)
        if grid is not None:
            return torch.softmax(grid, 1).flatten(0, 1)
        top = segments.extreme(values, largest=True)
        made = segments.spread(top)
        torch.sub(values, made, out=made).exp_()
        total = segments.spread(segments.sum(made))
        return made.div_(total if segments.covers else total.masked_fill_(total == 0, 1))

    @staticmethod
    def composed(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        return softmax.composed_softmax(values, segments, log=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return softmax.composed_gradient(gradient, out, ctx.segments, log=False), None


@operation
def _log_softmax(x: Any, /, *, axis: int | Sequence[int] = -1) -> Tensor:
    given = as_tensor(x)
    wide = _wide(given, "log_softmax")
    made = _along_a_dimension(torch.log_softmax, wide, axis)
    return (_log_softmax_of_rows(wide, axis) if made is None else made).to(given.dtype)


@untraced
def _log_softmax_of_rows(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    call = reduction(settled(x), axis)
    if call.segments is not None and not call.dims:
        return call.x._with(softmax.composed_softmax(call.x.values, call.segments, log=True))
    shifted = _shifted(call)
    return call.x._with(shifted - call.spread(sum_values(call, shifted.exp()).log()))


@operation
def _layer_norm(
    x: Any, /, weight: Any = None, bias: Any = None, *, axis: int | Sequence[int] = -1, eps: float = 1e-5
) -> Tensor:
    given = as_tensor(x)
    made = _by_torch(F.layer_norm, given, axis, weight, bias, eps) if given.is_floating_point() else None
    return _layer_norm_of_rows(given, weight, bias, axis, eps) if made is None else made


@untraced
def _layer_norm_of_rows(x: Tensor, weight: Any, bias: Any, axis: int | Sequence[int], eps: float) -> Tensor:
    call = reduction(_wide(x, "layer_norm"), axis)
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
    call = reduction(_wide(x, "rms_norm"), axis)
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
    call = reduction(_wide(given, "normalize"), axis)
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


def _answer_softmax(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def handler(input: Any, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None, **options: Any) -> Tensor:
        axis = options.get("axis", dim)
        dtype = _stacklevel if isinstance(_stacklevel, torch.dtype) else dtype  # torch.softmax has it there
        if axis is None:
            raise TypeError("softmax of an sr.Tensor needs dim")
        return eager(input if dtype is None else input.to(dtype), axis=axis)

    return handler


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


def _record(
    name: str,
    eager: Callable[..., Tensor],
    answer: Callable[..., Any],
    summary: str,
    call: str,
    gives: str,
    samples: tuple[str, ...] = (),
    **fields: Any,
) -> None:
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


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _softmax_body(x: Any, /, *, axis: int | Sequence[int] = -1) -> Any:
    raised = ops.exp(_less_greatest(x, axis))
    return ops.astype(raised / _total(raised, axis), x.dtype)


def _log_softmax_body(x: Any, /, *, axis: int | Sequence[int] = -1) -> Any:
    shifted = _less_greatest(x, axis)
    return ops.astype(shifted - ops.log(_total(ops.exp(shifted), axis)), x.dtype)


def _less_greatest(x: Any, axis: int | Sequence[int]) -> Any:
    """x less the greatest along the axis, so that no exponential overflows; the result does not depend on it."""
    wide = accumulating(x)
    return wide - ops.expand_like(ops["Tensor.detach"](ops.max(wide, axis=axis)), wide, axis=axis)


def _total(x: Any, axis: int | Sequence[int]) -> Any:
    """The sum along the axis beside each element that is in it."""
    return ops.expand_like(ops.sum(x, axis=axis), x, axis=axis)


def _average(x: Any, axis: int | Sequence[int]) -> Any:
    """The mean along the axis beside each element that is in it."""
    return ops.expand_like(ops.mean(x, axis=axis), x, axis=axis)


def _softmax_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int]) -> Any:
    wide, share = accumulating(g), accumulating(out)
    return in_dtype(share * (wide - _total(wide * share, axis)), x.dtype)


def _log_softmax_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int]) -> Any:
    wide = accumulating(g)
    return in_dtype(wide - ops.exp(accumulating(out)) * _total(wide, axis), x.dtype)


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
    along = ops.where(length < eps, 0, made * _total(wide * made, axis))
    return in_dtype((wide - along) / divisor, x.dtype)


# fmt: off
_WEIGHT = "torch.linspace(0.5, 2, x.shape[-1] if isinstance(x.shape[-1], int) else 1, dtype=x.dtype)"
_record("softmax", _softmax, _answer_softmax(_softmax),
        "exp(x) divided by its sum along `axis`; an empty row stays empty.",
        "sr.softmax(sr.ragged([[0., 0.], [], [7.]]), axis=1).tolist()", "[[0.5, 0.5], [], [1.0]]",
        ("x, axis=(0, 1)",), body=_softmax_body, vjp=_softmax_vjp,
        native=(Implementation("native", softmax.softmax, softmax.applies),))
_record("log_softmax", _log_softmax, _answer_softmax(_log_softmax), "The logarithm of softmax along `axis`.",
        "sr.log_softmax(sr.ragged([[7.], []]), axis=1).tolist()", "[[0.0], []]",
        body=_log_softmax_body, vjp=_log_softmax_vjp,
        native=(Implementation("native", softmax.log_softmax, softmax.applies),))
_record("layer_norm", _layer_norm, _answer_layer_norm,
        "x with mean 0 and variance 1 along `axis`, then times weight, plus bias.",
        "sr.layer_norm(sr.ragged([[-1., 1.], []]), axis=1, eps=0).tolist()", "[[-1.0, 1.0], []]",
        (f"x, {_WEIGHT}, {_WEIGHT}", f"x, weight={_WEIGHT}, axis=1"), operands=("x", "weight", "bias"),
        body=_layer_norm_body, vjp=_layer_norm_vjp)
_record("rms_norm", _rms_norm, _answer_rms_norm,
        "x divided by the root of its mean square along `axis`, then times weight.",
        "sr.rms_norm(sr.ragged([[2., -2.], []]), axis=1, eps=0).tolist()", "[[1.0, -1.0], []]",
        (f"x, {_WEIGHT}", f"x, {_WEIGHT}, axis=1, eps=0.1"), operands=("x", "weight"),
        body=_rms_norm_body, vjp=_rms_norm_vjp)
_record("normalize", _normalize, _answer_normalize, "x divided by its length along `axis`.",
        "sr.normalize(sr.ragged([[0., -4.], []]), axis=1).tolist()", "[[0.0, -1.0], []]",
        ("x, axis=1, eps=2.0",), body=_normalize_body, vjp=_normalize_vjp)
# fmt: on
