"""Losses between elements of an input and a target: the mean, the sum or each; rows have no padding to be left out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.elementwise import apply
from serrate.errors import RaggednessError
from serrate.ops.record import TABLE, operation, ops, record
from serrate.ops.reductions import count
from serrate.ops.rules import reduced_to, slope_of_size
from serrate.tensor.combine import zeroed
from serrate.tensor.tensor import Tensor, as_tensor


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of losses, or each of them."""
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    return TABLE[reduction].function(losses)  # type: ignore[no-any-return]


def _elementwise(
    name: str,
    each: Callable[..., torch.Tensor],
    summary: str,
    loss: Callable[..., Any],
    slopes: Callable[..., tuple[Any, ...]],
    option: str = "",
    default: Any = None,
) -> None:
    """Define a loss between elements of an input and a target.

    `loss` is the program of one element's loss, `slopes` that of its derivatives by input and target, and by pos_weight
    where that is the option that the loss has.
    """
    defaults = {option: default} if option else {}

    def eager(input: Any, target: Any, /, *, weight: Any = None, reduction: str = "mean", **options: Any) -> Tensor:
        unknown = set(options) - set(defaults)
        if unknown:
            raise TypeError(f"{name} takes no {sorted(unknown)[0]}")
        chosen = defaults | options
        positive = chosen.pop("pos_weight", None)
        x, other = _met(name, input, target)

        def compared(a: torch.Tensor, b: torch.Tensor, **more: Any) -> torch.Tensor:
            # torch warns where sizes differ; it would show sizes of packed values.
            a, b = torch.broadcast_tensors(a, b)  # type: ignore[no-untyped-call]
            return each(a, b, reduction="none", **more)

        if positive is None:
            losses = apply(lambda a, b: compared(a, b, **chosen), x, other)
        else:
            losses = apply(_positively_weighted, x, other, positive)
        if weight is None:
            return reduced(losses, reduction)
        losses = apply(torch.mul, losses, weight)
        if reduction != "mean" or name not in _WEIGHTED_MEAN:
            return reduced(losses, reduction)
        weights = apply(torch.mul, TABLE["ones_like"].function(losses), weight)
        return apply(torch.div, reduced(losses, "sum"), TABLE["sum"].function(weights))

    parameters = [p for p in inspect.signature(eager).parameters.values() if p.kind is not p.VAR_KEYWORD]
    own = [inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Any)] if option else []
    eager.__signature__ = inspect.Signature([*parameters, *own], return_annotation=Tensor)  # type: ignore[attr-defined]
    public = operation(eager)

    def answer(
        input: Any,
        target: Any,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        **options: Any,
    ) -> Tensor:
        if size_average is not None or reduce is not None:
            raise TypeError("size_average and reduce are long deprecated; use reduction")
        return public(input, target, weight=weight, reduction=reduction, **options)

    def answer_without_weight(
        input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **options: Any
    ) -> Tensor:
        return answer(input, target, options.pop("weight", None), size_average, reduce, reduction, **options)

    record(
        "losses",
        name,
        public,
        answer if name.startswith("binary") else answer_without_weight,
        summary=summary,
        example=(f"sr.{name}(sr.ragged([[0.], []]), sr.ragged([[0.], []])).item() >= 0", "True"),
        operands=("input", "target", "weight", "pos_weight")[: 4 if option == "pos_weight" else 3],
        body=_body(name, loss),
        vjp=_vjp(name, loss, slopes, option),
        kinds=("float",),
        samples=(
            "x, x",
            "x, x, reduction='none'",
            "x, x, reduction='sum'",
            "x, 1 - x, weight=x",
            *([f"x, 1 - x, {option}={'x' if option == 'pos_weight' else 0.3}, reduction='none'"] if option else []),
        ),
        errors=(
            ("x.to(torch.int64), x", TypeError, f"{name} needs floating-point elements"),
            ("x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", RaggednessError, "different raggedness"),
            ("x, x, reduction='most'", ValueError, "reduction must be"),
        ),
    )


def _positively_weighted(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """torch's binary_cross_entropy_with_logits(pos_weight=weight), which has no derivative by the weight."""
    return (1 - y) * x - ((weight - 1) * y + 1) * F.logsigmoid(x)


def _met(name: str, input: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Input and target, of as many axes: torch's losses of unlike shapes are nearly always mistakes."""
    x, other = as_tensor(input), as_tensor(target)
    if not x.is_floating_point():
        raise TypeError(f"{name} needs floating-point elements, got {x.dtype}")
    if x.ndim != other.ndim:
        raise ValueError(f"input and target must have as many axes, got shapes {x.shape} and {other.shape}")
    promotes = other.is_floating_point() and not name.startswith(("binary", "huber"))
    other = other if promotes else other.to(x.dtype)
    # What is undefined may be no probability.
    return x._with(zeroed(x.values, x.structure)), other._with(zeroed(other.values, other.structure))


# ----------------------------------------------------------------------------------------------- bodies and derivatives

_WEIGHTED_MEAN = ("mse_loss", "l1_loss")
"""Losses whose mean is divided by the weights that there are, as torch does it."""
_ALIKE = ("huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
"""Losses whose targets are taken in the dtype of the input."""
_LEAST_LOG, _LEAST_SHARE = -100.0, 1e-12  # where torch cuts off logarithms of probabilities, and what divides slopes


def _target(name: str, input: Any, target: Any) -> Any:
    """The target in the dtype that it is compared in."""
    return target if target.is_floating_point() and name not in _ALIKE else ops.astype(target, input.dtype)


def summed_up(losses: Any, reduction: str) -> Any:
    """The same in a body."""
    return losses if reduction == "none" else ops[reduction](losses)


def _body(name: str, loss: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a loss, given that of one element's."""

    def body(input: Any, target: Any, /, *, weight: Any = None, reduction: str = "mean", **attributes: Any) -> Any:
        losses = loss(input, _target(name, input, target), **attributes)
        if weight is None:
            return summed_up(losses, reduction)
        losses = losses * weight
        if reduction != "mean" or name not in _WEIGHTED_MEAN:
            return summed_up(losses, reduction)
        return ops.sum(losses) / ops.sum(ops.ones_like(losses) * weight)

    return body


def _vjp(
    name: str, loss: Callable[..., Any], slopes: Callable[..., tuple[Any, ...]], option: str
) -> Callable[..., Any]:
    """The rule of a loss, given the body and the derivatives of one element's."""

    def vjp(
        g: Any, out: Any, input: Any, target: Any, weight: Any, *positive: Any, reduction: str, **attributes: Any
    ) -> tuple[Any, ...]:
        chosen = attributes | dict(zip([option], positive, strict=False))
        wanted = _target(name, input, target)
        each = slopes(input, wanted, **chosen)
        each = each if weight is None else tuple(None if slope is None else slope * weight for slope in each)
        shares = weight is not None and name in _WEIGHTED_MEAN and reduction == "mean"
        if shares:
            g = g / ops.sum(ops.ones_like(each[0]) * weight)
        elif reduction == "mean":
            g = g / count(each[0], None)
        to_weight = None
        if weight is not None:
            losses = loss(input, wanted, **chosen)
            to_weight = reduced_to(g * (losses - out if shares else losses), weight)
        by_input, by_target, *by_positive = (
            None if slope is None else reduced_to(g * slope, operand)
            for slope, operand in zip(each, (input, target, *positive), strict=False)
        )
        return (by_input, by_target, to_weight, *by_positive)

    return vjp


def _opposite(slope: Any) -> tuple[Any, Any]:
    """The derivatives of a function of the difference."""
    return slope, -slope


def _smooth_l1(x: Any, y: Any, beta: float = 1.0) -> Any:
    size = ops.abs(x - y)
    return ops.where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta) if beta else size


def _smooth_l1_slope(x: Any, y: Any, beta: float = 1.0) -> tuple[Any, ...]:
    d = x - y
    return _opposite(ops.where(ops.abs(d) < beta, d / beta, ops.sign(d)) if beta else slope_of_size(d))


def _huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    size = ops.abs(x - y)
    return ops.where(size < delta, size * size * 0.5, delta * (size - 0.5 * delta))


def _huber_slope(x: Any, y: Any, delta: float = 1.0) -> tuple[Any, ...]:
    d = x - y
    return _opposite(ops.where(ops.abs(d) < delta, d, delta * ops.sign(d)))


def _logarithms(x: Any) -> tuple[Any, Any]:
    """The logarithms of a probability and of that of the opposite, cut off far below 0."""
    return ops.clip(ops.log(x), min=_LEAST_LOG), ops.clip(ops.log1p(-x), min=_LEAST_LOG)


def _binary(x: Any, y: Any) -> Any:
    of_one, of_zero = _logarithms(x)
    return (y - 1) * of_zero - y * of_one


def _binary_slopes(x: Any, y: Any) -> tuple[Any, ...]:
    return (x - y) / ops.clip(x * (1 - x), min=_LEAST_SHARE), ops.log1p(-x) - ops.log(x)


def _logits(x: Any, y: Any, pos_weight: Any = None) -> Any:
    of_one = ops.log_sigmoid(x)
    return (1 - y) * x - (of_one if pos_weight is None else ((pos_weight - 1) * y + 1) * of_one)


def _logits_slopes(x: Any, y: Any, pos_weight: Any = None) -> tuple[Any, ...]:
    if pos_weight is None:
        return ops.sigmoid(x) - y, -x, None
    of_one, more = ops.log_sigmoid(x), pos_weight - 1
    return (1 - y) - (more * y + 1) * ops.sigmoid(-x), -x - more * of_one, -y * of_one


_elementwise(
    "mse_loss",
    F.mse_loss,
    "(input - target)², its mean by default.",
    lambda x, y: ops.square(x - y),
    lambda x, y: _opposite(2 * (x - y)),
)


_elementwise(
    "l1_loss",
    F.l1_loss,
    "|input - target|, its mean by default.",
    lambda x, y: ops.abs(x - y),
    lambda x, y: _opposite(slope_of_size(x - y)),
)


_elementwise(
    "smooth_l1_loss",
    F.smooth_l1_loss,
    "Half the square of small differences, the rest linear.",
    _smooth_l1,
    _smooth_l1_slope,
    "beta",
    1.0,
)


_elementwise(
    "huber_loss", F.huber_loss, "Half the square up to `delta`, then linear.", _huber, _huber_slope, "delta", 1.0
)


_elementwise(
    "binary_cross_entropy",
    F.binary_cross_entropy,
    "The cross entropy of probabilities with 0 or 1.",
    _binary,
    _binary_slopes,
)


_elementwise(
    "binary_cross_entropy_with_logits",
    F.binary_cross_entropy_with_logits,
    "The cross entropy of sigmoid(input) with 0 or 1, without overflow.",
    _logits,
    _logits_slopes,
    "pos_weight",
)
