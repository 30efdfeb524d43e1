"""Losses: the mean, the sum or each of what is defined; rows have no padding that would have to be left out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.elementwise import apply
from serrate.errors import AxisError, RaggednessError
from serrate.ops.derivatives import in_dtype, reduced_to
from serrate.ops.record import TABLE, operation, ops, record
from serrate.ops.reductions import accumulating, count
from serrate.tensor import abstract
from serrate.tensor.broadcast import align
from serrate.tensor.combine import zeroed
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


def _reduced(losses: Tensor, reduction: str) -> Tensor:
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
            return _reduced(losses, reduction)
        losses = apply(torch.mul, losses, weight)
        if reduction != "mean" or name not in _WEIGHTED_MEAN:
            return _reduced(losses, reduction)
        weights = apply(torch.mul, TABLE["ones_like"].function(losses), weight)
        return apply(torch.div, _reduced(losses, "sum"), TABLE["sum"].function(weights))

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


@operation
def _cross_entropy(
    x: Any,
    target: Any,
    /,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    logits, wanted = as_tensor(x), as_tensor(target)
    if not logits.is_floating_point():
        raise TypeError(f"cross_entropy needs floating-point elements, got {logits.dtype}")
    if not logits.is_ragged:
        sizes = logits.values.shape
        sizes = sizes if wanted.is_floating_point() else sizes[:1] + sizes[2:]
        if len(sizes) == wanted.ndim:
            abstract.meet(wanted.values.shape, sizes)
        classes = _class_weights(weight, logits.values)
        options: dict[str, Any] = {"reduction": reduction, "label_smoothing": label_smoothing}
        return Tensor(F.cross_entropy(logits.values, wanted.torch(), classes, ignore_index=ignore_index, **options))
    if logits.ndim < 2 or logits.order[1] < len(logits.structure.axes):
        raise AxisError(
            f"cross_entropy takes classes at axis 1, as torch does, and they must be uniform, got shape "
            f"{logits.shape}; x.mT turns [batch, sequence, classes] into it, a view"
        )
    place = logits.order[1]
    dim = place - len(logits.structure.axes) + 1
    order = tuple(c - (c > place) for i, c in enumerate(logits.order) if i != 1)
    like = Tensor(
        logits.values.select(dim, 0) if logits.values.shape[dim] else logits.values.sum(dim), logits.structure, order
    )
    values = logits.values.movedim(dim, 1)
    if wanted.is_floating_point():
        given = _same_shape(wanted, logits).values.movedim(dim, 1)
        return _of_distributions(like, values, given, weight, reduction, label_smoothing)
    labels = _same_shape(wanted, like).values.to(torch.int64)
    if not like.structure.is_exact:
        labels = torch.where(like.structure.defined_rows(labels), labels, ignore_index)
    classes = _class_weights(weight, values)
    made = F.cross_entropy(
        values, labels, classes, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return like._with(made) if reduction == "none" else Tensor(made, team=logits.team)


def _class_weights(weight: Any, values: torch.Tensor) -> torch.Tensor | None:
    """A weight for each class of the values, whose classes stand at dimension 1, or are all that there is."""
    if weight is None:
        return None
    made = as_tensor(weight).torch()
    abstract.meet(made.shape, values.shape[:2][-1:])
    return made


def _of_distributions(
    like: Tensor, values: torch.Tensor, given: torch.Tensor, weight: Any, reduction: str, smoothing: float
) -> Tensor:
    """Targets are probabilities of classes."""
    classes = _class_weights(weight, values)
    losses = like._with(F.cross_entropy(values, given, classes, reduction="none", label_smoothing=smoothing))
    return _reduced(losses, reduction)


def _same_shape(given: Tensor, like: Tensor) -> Tensor:
    """`given` in the layout of `like`, whose shape it must have."""
    if given.ndim != like.ndim:
        raise ValueError(f"target must have shape {like.shape}, got {given.shape}")
    for i, (a, b) in enumerate(zip(given.shape, like.shape, strict=True)):
        if isinstance(a, Ragged) != isinstance(b, Ragged) or abstract.unlike((a,), (b,)):
            error = RaggednessError if isinstance(a, Ragged) or isinstance(b, Ragged) else ValueError
            raise error(f"axis {i} of the target must be {b}, got {a}")
    return like._with(align(given, like).expand(like.values.shape))


def _answer_cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    if size_average is not None or reduce is not None:
        raise TypeError("size_average and reduce are long deprecated; use reduction")
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
    return _cross_entropy(input, target, reduction=reduction, **options)


# ------------------------------------------------------------------------------------------- bodies and derivatives

_WEIGHTED_MEAN = ("mse_loss", "l1_loss")
"""Losses whose mean is divided by the weights that there are, as torch does it."""
_ALIKE = ("huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
"""Losses whose targets are taken in the dtype of the input."""
_LEAST_LOG, _LEAST_SHARE = -100.0, 1e-12  # where torch cuts off logarithms of probabilities, and what divides slopes


def _target(name: str, input: Any, target: Any) -> Any:
    """The target in the dtype that it is compared in."""
    return target if target.is_floating_point() and name not in _ALIKE else ops.astype(target, input.dtype)


def _summed_up(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else ops[reduction](losses)


def _body(name: str, loss: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a loss, given that of one element's."""

    def body(input: Any, target: Any, /, *, weight: Any = None, reduction: str = "mean", **attributes: Any) -> Any:
        losses = loss(input, _target(name, input, target), **attributes)
        if weight is None:
            return _summed_up(losses, reduction)
        losses = losses * weight
        if reduction != "mean" or name not in _WEIGHTED_MEAN:
            return _summed_up(losses, reduction)
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
    return _opposite(ops.where(ops.abs(d) < beta, d / beta, ops.sign(d)) if beta else ops.sign(d))


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
    of_one, of_zero = _logarithms(x)
    return (x - y) / ops.clip(x * (1 - x), min=_LEAST_SHARE), of_zero - of_one


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
    lambda x, y: _opposite(ops.sign(x - y)),
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


def _cross_entropy_body(
    x: Any,
    target: Any,
    /,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    axis = min(x.ndim - 1, 1)
    logarithms, weights = ops.log_softmax(accumulating(x), axis=axis), _along_classes(weight, x)
    weighted = logarithms if weight is None else logarithms * weights
    if target.is_floating_point():
        wanted = target * (1 - label_smoothing) + label_smoothing / x.shape[axis] if label_smoothing else target
        losses = -ops.sum(weighted * wanted, axis=axis)
        return ops.astype(_summed_up(losses, reduction), x.dtype)
    ignored = ops.equal(target, ignore_index)
    labels = ops.expand_dims(ops.where(ignored, 0, ops.astype(target, torch.int64)), axis=axis)
    losses = -ops.squeeze(ops.gather(weighted, labels, axis=axis), axis=axis)
    if label_smoothing:
        even = ops.sum(weighted, axis=axis) / x.shape[axis]
        losses = (1 - label_smoothing) * losses - label_smoothing * even
    losses = ops.where(ignored, 0, losses)
    if reduction != "mean":
        return ops.astype(_summed_up(losses, reduction), x.dtype)
    return ops.astype(ops.sum(losses) / ops.sum(_shares(target, ignore_index, weights, x)), x.dtype)


def _along_classes(weight: Any, x: Any) -> Any:
    """A weight for each class, shaped to meet x."""
    if weight is None:
        return None
    return ops.reshape(weight, tuple(-1 if a == min(x.ndim - 1, 1) else 1 for a in range(x.ndim)))


def _chosen(target: Any, ignore_index: int, x: Any) -> Any:
    """Whether a class is the one that the target names, in the shape of x; none is where the target is ignored."""
    axis = min(x.ndim - 1, 1)
    named = ops.expand_dims(ops.where(ops.equal(target, ignore_index), -1, ops.astype(target, torch.int64)), axis=axis)
    return ops.equal(named, _along_classes(ops.arange(x.shape[axis], device=x.device), x))


def _shares(target: Any, ignore_index: int, weights: Any, x: Any) -> Any:
    """What each target adds to the number that a mean is divided by: its weight, and 1 without weights."""
    if weights is None:
        return ops.astype(ops.not_equal(target, ignore_index), accumulating(x).dtype)
    return ops.sum(ops.where(_chosen(target, ignore_index, x), weights, 0), axis=min(x.ndim - 1, 1))


def _cross_entropy_vjp(
    g: Any,
    out: Any,
    x: Any,
    target: Any,
    weight: Any,
    *,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> tuple[Any, ...]:
    """The rule, in which class numbers count as distributions: all of it on one class."""
    axis, wide = min(x.ndim - 1, 1), accumulating(x)
    logarithms, weights = ops.log_softmax(wide, axis=axis), _along_classes(weight, x)
    distributed = target.is_floating_point()
    share, even = 1 - label_smoothing, label_smoothing / x.shape[axis]
    if distributed:
        chosen, wanted = None, target * share + even
    else:
        chosen = _chosen(target, ignore_index, x)
        counted = ops.expand_dims(ops.not_equal(target, ignore_index), axis=axis)
        wanted = ops.where(counted, ops.astype(chosen, wide.dtype) * share + even, 0)
    weighted = wanted if weight is None else wanted * weights
    of_all = ops.sum(weighted, axis=axis)
    g, total = accumulating(g), None
    if reduction == "none":
        g = ops.expand_dims(g, axis=axis)
    elif reduction == "mean":
        total = count(of_all, None) if distributed else ops.sum(_shares(target, ignore_index, weights, x))
        g = g / total
    to_x = g * (ops.exp(logarithms) * ops.expand_dims(of_all, axis=axis) - weighted)
    to_target = g * (-share * logarithms if weight is None else -share * logarithms * weights) if distributed else None
    to_weight = None
    if weight is not None:
        terms = wanted * logarithms
        if reduction == "mean" and not distributed:  # the mean is divided by weights, which count in it too
            terms = terms + ops.where(chosen, accumulating(out), 0)
        to_weight = ops.reshape(reduced_to(-g * terms, weights), weight.shape)
    return in_dtype(to_x, x.dtype), reduced_to(to_target, target), to_weight


_CLASSES = "sr.concat([x[:, None], 1 - x[:, None]], axis=1)"
_LABELS = "(x > 0.5).to(torch.int64)"
record(
    "losses",
    "cross_entropy",
    _cross_entropy,
    _answer_cross_entropy,
    summary="The cross entropy of logits, classes at axis 1, with class numbers or distributions.",
    example=(
        "sr.cross_entropy(sr.ragged([[[0., 100.]], []], ragged_rank=1).mT, sr.ragged([[1], []])).item()",
        "0.0",
    ),
    operands=("x", "target", "weight"),
    body=_cross_entropy_body,
    vjp=_cross_entropy_vjp,
    kinds=("float",),
    samples=(
        "x[:, None], sr.zeros_like(x, dtype=torch.int64)",
        f"{_CLASSES}, {_LABELS}, ignore_index=0, label_smoothing=0.1",
        f"{_CLASSES}, {_LABELS}, label_smoothing=0.1, reduction='none'",
        f"{_CLASSES}, {_CLASSES}, weight=torch.tensor([0.5, 2.0], dtype=x.dtype), label_smoothing=0.1",
    ),
    errors=(
        ("x, sr.ragged([[0] * 3, [0], [0] * 2])", AxisError, "classes at axis 1"),
        ("x.mT, sr.ragged([[0], [0] * 3, [0] * 2])", RaggednessError, "axis 1 of the target must be"),
        ("x.mT, torch.zeros(3, 3, dtype=torch.int64)", RaggednessError, "axis 1 of the target must be"),
        ("x.to(torch.int64), x", TypeError, "cross_entropy needs floating-point"),
    ),
)
