"""Softmax of the rows of each run, its logarithm and the gradients of both: by compiled code, and as torch composes it.

Runs are the rows along the innermost packed axis of a tensor, so that they are neighbours.
"""

from __future__ import annotations

from typing import Any

import torch

from serrate.eager.precision import widened
from serrate.eager.segments import Segments, segments_of
from serrate.native import row_softmax as library
from serrate.native.loading import reads
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.partition import CPU
from serrate.tensor.tensor import Tensor

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def applies(x: Any, /, *, axis: Any = -1) -> bool:
    """Whether compiled code takes this tensor, along this axis."""
    if not (isinstance(axis, int) and isinstance(x, Tensor) and x.is_ragged and x.dtype in _FLOATS):
        return False
    return x.order[x._axis(axis)] == len(x.structure.axes) - 1 and reads(x.values) and library.is_there()


def softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """`sr.softmax` of tensors that `applies` accepts."""
    return _of_tensor(x, log=False)


def log_softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """`sr.log_softmax` of tensors that `applies` accepts."""
    return _of_tensor(x, log=True)


def _of_tensor(x: Tensor, log: bool) -> Tensor:
    values = x.values
    made = _Softmax.call(widened(values), segments_of(x.structure, (len(x.structure.axes) - 1,)), log)
    return x._with(made if made.dtype is values.dtype else made.to(values.dtype))


def composed_softmax(values: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
    """Softmax of each result's rows, or its logarithm, made of torch's operations.

    The greatest of a row is subtracted first, so that no exponential overflows; NaN if that is infinite, as in torch.
    """
    shifted = values - segments.spread(segments.extreme(values.detach(), largest=True))
    raised = shifted.exp()
    total = segments.spread(segments.sum(raised))
    if not segments.covers:  # rows of no result have no sum; they become something finite, that has no gradient
        total = torch.where(total == 0, 1, total)
    return shifted - total.log() if log else raised / total


def composed_gradient(gradient: torch.Tensor, made: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
    """The gradient of the values, from that of softmax and from softmax itself, made of torch's operations."""
    if log:
        return gradient - made.exp() * segments.spread(segments.sum(gradient))
    return made * (gradient - segments.spread(segments.sum(gradient * made)))


def softmax_of_segments(values: torch.Tensor, segments: Segments) -> torch.Tensor:
    """Softmax of each result's rows, by torch's operations."""
    return _BySegments.call(values, segments)


class _BySegments(Differentiable):
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
        return composed_softmax(values, segments, log=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return composed_gradient(gradient, out, ctx.segments, log=False), None


def _ends(segments: Segments) -> torch.Tensor:
    runs = segments.runs
    assert runs is not None
    return runs.offsets_on(CPU)


class _Softmax(Differentiable):
    @staticmethod
    def forward(values: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
        made = library.softmax(values, _ends(segments), log)
        return composed_softmax(values, segments, log) if made is None else made

    @staticmethod
    def composed(values: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
        return composed_softmax(values, segments, log)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.segments, ctx.log = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (made,) = ctx.saved_tensors
        return _Gradient.call(gradient, made, ctx.segments, ctx.log), None, None


class _Gradient(Differentiable):
    """The gradient of softmax; as a function of the gradient of the result it is linear, and softmax's is symmetric."""

    @staticmethod
    def forward(gradient: torch.Tensor, made: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
        found = library.gradient(gradient, made, _ends(segments), log)
        return composed_gradient(gradient, made, segments, log) if found is None else found

    @staticmethod
    def composed(gradient: torch.Tensor, made: torch.Tensor, segments: Segments, log: bool) -> torch.Tensor:
        return composed_gradient(gradient, made, segments, log)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        gradient, made, ctx.segments, ctx.log = inputs
        ctx.save_for_backward(gradient, made)

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> Any:
        gradient, made = ctx.saved_tensors
        segments: Segments = ctx.segments

        def total(values: torch.Tensor) -> torch.Tensor:
            return segments.spread(segments.sum(values))

        if ctx.log:
            raised = made.exp()
            by_gradient, by_made = given - total(given * raised), -given * raised * total(gradient)
        else:
            by_gradient = _Gradient.call(given, made, segments, False)
            by_made = given * (gradient - total(gradient * made)) - gradient * total(given * made)
        return by_gradient, by_made, None, None
