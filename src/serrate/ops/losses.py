"""Losses: the mean, the sum or each of what is defined; rows have no padding that would have to be left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.elementwise import apply
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import TABLE, operation, record
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
    name: str, each: Callable[..., torch.Tensor], summary: str, slope: str, by_target: str, **defaults: Any
) -> None:
    """Define a loss between elements of an input and a target; the rules are those of `reduction="none"`."""
    weighted_mean = name in ("mse_loss", "l1_loss")  # divided by the weights there are, as torch does it

    @operation
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
            losses = apply(lambda a, b, w: compared(a, b, pos_weight=w), x, other, positive)
        if weight is None:
            return _reduced(losses, reduction)
        losses = apply(torch.mul, losses, weight)
        if reduction != "mean" or not weighted_mean:
            return _reduced(losses, reduction)
        weights = apply(torch.mul, TABLE["ones_like"].function(losses), weight)
        return apply(torch.div, _reduced(losses, "sum"), TABLE["sum"].function(weights))

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
        return eager(input, target, weight=weight, reduction=reduction, **options)

    def answer_without_weight(
        input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **options: Any
    ) -> Tensor:
        return answer(input, target, options.pop("weight", None), size_average, reduce, reduction, **options)

    record(
        "losses",
        name,
        eager,
        answer if name.startswith("binary") else answer_without_weight,
        summary=summary,
        example=(f"sr.{name}(sr.ragged([[0.], []]), sr.ragged([[0.], []])).item() >= 0", "True"),
        gradient=f"(g * ({slope}), g * ({by_target}))",
        kinds=("float",),
        samples=("x, x", "x, x, reduction='none'", "x, x, reduction='sum'"),
        errors=(
            ("x.to(torch.int64), x", TypeError, f"{name} needs floating-point elements"),
            ("x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", RaggednessError, "different raggedness"),
            ("x, x, reduction='most'", ValueError, "reduction must be"),
        ),
    )


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


_D = "(input - target)"
_elementwise("mse_loss", F.mse_loss, "(input - target)², its mean by default.", f"2 * {_D}", f"-2 * {_D}")
_elementwise("l1_loss", F.l1_loss, "|input - target|, its mean by default.", f"sign{_D}", f"-sign{_D}")
_elementwise(
    "smooth_l1_loss",
    F.smooth_l1_loss,
    "Half the square of small differences, the rest linear.",
    f"where(abs{_D} < beta, {_D} / beta, sign{_D})",
    f"-where(abs{_D} < beta, {_D} / beta, sign{_D})",
    beta=1.0,
)
_elementwise(
    "huber_loss",
    F.huber_loss,
    "Half the square up to `delta`, then linear.",
    f"where(abs{_D} < delta, {_D}, delta * sign{_D})",
    f"-where(abs{_D} < delta, {_D}, delta * sign{_D})",
    delta=1.0,
)
_elementwise(
    "binary_cross_entropy",
    F.binary_cross_entropy,
    "The cross entropy of probabilities with 0 or 1.",
    f"{_D} / (input * (1 - input))",
    "log(1 - input) - log(input)",
)
_elementwise(
    "binary_cross_entropy_with_logits",
    F.binary_cross_entropy_with_logits,
    "The cross entropy of sigmoid(input) with 0 or 1, without overflow.",
    "sigmoid(input) - target",
    "-input",
    pos_weight=None,
)
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
    gradient="",
    kinds=("float",),
    samples=("x[:, None], sr.zeros_like(x, dtype=torch.int64)",),
    errors=(
        ("x, sr.ragged([[0] * 3, [0], [0] * 2])", AxisError, "classes at axis 1"),
        ("x.mT, sr.ragged([[0], [0] * 3, [0] * 2])", RaggednessError, "axis 1 of the target must be"),
        ("x.mT, torch.zeros(3, 3, dtype=torch.int64)", RaggednessError, "axis 1 of the target must be"),
        ("x.to(torch.int64), x", TypeError, "cross_entropy needs floating-point"),
    ),
)
