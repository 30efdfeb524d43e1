"""Cross entropy of logits with class numbers or distributions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from serrate.errors import AxisError, RaggednessError
from serrate.ops.losses import reduced, summed_up
from serrate.ops.record import operation, ops, record
from serrate.ops.reductions import accumulating, count
from serrate.ops.rules import in_dtype, reduced_to
from serrate.tensor import abstract
from serrate.tensor.broadcast import align
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


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
    return reduced(losses, reduction)


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


# ----------------------------------------------------------------------------------------------- bodies and derivatives


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
        return ops.astype(summed_up(losses, reduction), x.dtype)
    ignored = ops.equal(target, ignore_index)
    labels = ops.expand_dims(ops.where(ignored, 0, ops.astype(target, torch.int64)), axis=axis)
    losses = -ops.squeeze(ops.gather(weighted, labels, axis=axis), axis=axis)
    if label_smoothing:
        even = ops.sum(weighted, axis=axis) / x.shape[axis]
        losses = (1 - label_smoothing) * losses - label_smoothing * even
    losses = ops.where(ignored, 0, losses)
    if reduction != "mean":
        return ops.astype(summed_up(losses, reduction), x.dtype)
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
        chosen, counted, wanted = None, None, target * share + even
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
        g = g / total if distributed else ops.where(counted, g / total, 0)  # nothing at all may count
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
