"""Softmax and its logarithm along any axis: each row of a ragged axis on its own, half types computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.eager import softmax
from serrate.eager.precision import wide_floats
from serrate.eager.reducing import Reduction, extreme_values, reduction, sum_values
from serrate.eager.runs import settled
from serrate.ops.normalizations import record_normalization
from serrate.ops.record import Implementation, operation, ops
from serrate.ops.reductions import accumulating
from serrate.ops.rules import in_dtype, total_beside
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import untraced


def _shifted(call: Reduction) -> torch.Tensor:
    """Values less the greatest of their row, so that no exponential overflows; NaN if that is infinite, as in torch."""
    return call.x.values - call.spread(extreme_values(call, call.x.values.detach(), largest=True))


@operation
def _softmax(x: Any, /, *, axis: int | Sequence[int] = -1) -> Tensor:
    given = as_tensor(x)
    wide = wide_floats(given, "softmax")
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
        made = softmax.softmax_of_segments(call.x.values, segments)
    else:
        exponentials = _shifted(call).exp()
        made = exponentials / call.spread(sum_values(call, exponentials))
    return call.x._with(made)


@operation
def _log_softmax(x: Any, /, *, axis: int | Sequence[int] = -1) -> Tensor:
    given = as_tensor(x)
    wide = wide_floats(given, "log_softmax")
    made = _along_a_dimension(torch.log_softmax, wide, axis)
    return (_log_softmax_of_rows(wide, axis) if made is None else made).to(given.dtype)


@untraced
def _log_softmax_of_rows(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    call = reduction(settled(x), axis)
    if call.segments is not None and not call.dims:
        return call.x._with(softmax.composed_softmax(call.x.values, call.segments, log=True))
    shifted = _shifted(call)
    return call.x._with(shifted - call.spread(sum_values(call, shifted.exp()).log()))


def _answer_softmax(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def handler(input: Any, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None, **options: Any) -> Tensor:
        axis = options.get("axis", dim)
        dtype = _stacklevel if isinstance(_stacklevel, torch.dtype) else dtype  # torch.softmax has it there
        if axis is None:
            raise TypeError("softmax of an sr.Tensor needs dim")
        return eager(input if dtype is None else input.to(dtype), axis=axis)

    return handler


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def _softmax_body(x: Any, /, *, axis: int | Sequence[int] = -1) -> Any:
    raised = ops.exp(_less_greatest(x, axis))
    return ops.astype(raised / total_beside(raised, axis), x.dtype)


def _log_softmax_body(x: Any, /, *, axis: int | Sequence[int] = -1) -> Any:
    shifted = _less_greatest(x, axis)
    return ops.astype(shifted - ops.log(total_beside(ops.exp(shifted), axis)), x.dtype)


def _less_greatest(x: Any, axis: int | Sequence[int]) -> Any:
    """x less the greatest along the axis, so that no exponential overflows; the result does not depend on it."""
    wide = accumulating(x)
    return wide - ops.expand_like(ops["Tensor.detach"](ops.max(wide, axis=axis)), wide, axis=axis)


def _softmax_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int]) -> Any:
    wide, share = accumulating(g), accumulating(out)
    return in_dtype(share * (wide - total_beside(wide * share, axis)), x.dtype)


def _log_softmax_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int]) -> Any:
    wide = accumulating(g)
    return in_dtype(wide - ops.exp(accumulating(out)) * total_beside(wide, axis), x.dtype)


# fmt: off
record_normalization("softmax", _softmax, _answer_softmax(_softmax),
        "exp(x) divided by its sum along `axis`; an empty row stays empty.",
        "sr.softmax(sr.ragged([[0., 0.], [], [7.]]), axis=1).tolist()", "[[0.5, 0.5], [], [1.0]]",
        ("x, axis=(0, 1)",), body=_softmax_body, vjp=_softmax_vjp,
        native=(Implementation("native", softmax.softmax, softmax.applies),))
record_normalization("log_softmax", _log_softmax, _answer_softmax(_log_softmax),
        "The logarithm of softmax along `axis`.",
        "sr.log_softmax(sr.ragged([[7.], []]), axis=1).tolist()", "[[0.0], []]",
        body=_log_softmax_body, vjp=_log_softmax_vjp,
        native=(Implementation("native", softmax.log_softmax, softmax.applies),))
# fmt: on
