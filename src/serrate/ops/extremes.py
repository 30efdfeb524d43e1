"""The greatest and the least, and where they stand: max, min, argmax and argmin; torch's max and min give both."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.elementwise import apply
from serrate.eager.reducing import AxisLike, Reduction, extreme_values, reduction, sum_values
from serrate.eager.unsigned import comparable
from serrate.ops.record import REAL, operation, written
from serrate.ops.reductions import extreme_vjp, reduces
from serrate.tensor import host
from serrate.tensor.combine import exact
from serrate.tensor.differentiable import beyond_gradients
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _max(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(extreme_values(call, call.x.values, largest=True), keepdims)


@operation
def _min(x: Any, /, *, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    call = reduction(x, axis)
    return call.finish(extreme_values(call, call.x.values, largest=False), keepdims)


@operation
def _argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    return _place_of_extreme(x, axis, keepdims, largest=True)


@operation
def _argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    return _place_of_extreme(x, axis, keepdims, largest=False)


def _place_of_extreme(x: Any, axis: int | None, keepdims: bool, largest: bool) -> Tensor:
    """The first position along `axis` of the greatest or least; without an axis, the place in the packed elements."""
    if axis is None:
        flat = exact(as_tensor(x))
        call = reduction(flat, None)
        values = _comparable(flat.values.detach().reshape(-1))
        nothing = torch.full((), -1, device=values.device)
        found = (values.argmax() if largest else values.argmin()) if values.numel() else nothing
        return call.finish(found.view([1] * (1 if flat.is_ragged else 0)), keepdims)
    call = reduction(x, axis)
    return call.finish(_places(call, largest), keepdims)


def _comparable(values: torch.Tensor) -> torch.Tensor:
    if values.is_complex():
        raise TypeError(f"the greatest and the least need ordered elements, got {values.dtype}")
    return values.to(torch.uint8) if values.dtype == torch.bool else comparable(values)


def _places(call: Reduction, largest: bool) -> torch.Tensor:
    """The positions along one axis, as values that `finish` takes."""
    values = _comparable(call.x.values.detach())
    segments = call.segments
    if segments is None:
        (d,) = call.dims
        if values.shape[d] == 0:
            return torch.full([n for i, n in enumerate(values.shape) if i != d], -1, device=values.device)
        return values.argmax(d) if largest else values.argmin(d)
    grid = segments.grid(values)
    if grid is not None:
        return grid.argmax(1) if largest else grid.argmin(1)
    along = call.x.structure.positions(call.x.structure.whole, call.packed[0], values.device)
    best = extreme_values(call, values, largest)
    chosen = segments.spread(best)
    has, at_hand = values == chosen, host.is_at_hand(values)
    if values.is_floating_point() and (not at_hand or bool(best.isnan().any())):
        has = has | (values.isnan() & chosen.isnan())
    if not at_hand:  # a device, which reduces floats faster than integers; they count exactly this far
        axis_size = call.x.shape[call.axes[0]]
        longest = axis_size if isinstance(axis_size, int) else axis_size.partition.max_length_bound
        far, dtype = (2**24, torch.float32) if longest <= 2**24 else (2**53, torch.float64)
        places = torch.where(has, along.view(-1, *[1] * (values.ndim - 1)).to(dtype), far)
        found = segments.extreme(places, largest=False).clamp(max=far).to(torch.int64)
    else:  # few elements are the greatest, and the host may look for them
        far, width = torch.iinfo(torch.int64).max, math.prod(values.shape[1:])
        rows, column = has.flatten(1).nonzero().unbind(1) if values.ndim > 1 else (has.nonzero().flatten(), 0)
        found = torch.full(((segments.cells + 1) * width,), far, device=values.device)
        found.scatter_reduce_(0, segments.index(values.device)[rows] * width + column, along[rows], "amin")
        found = found.view(segments.cells + 1, *values.shape[1:])[: segments.cells]
    return torch.where(found == far, -1, found)


def _named(call: Reduction, places: torch.Tensor, largest: bool) -> torch.Tensor:
    """The greatest or least with the gradient of torch's pair: all of it goes to the one that is named."""
    values, segments = call.x.values, call.segments
    if segments is None:
        (d,) = call.dims
        along = torch.arange(values.shape[d], device=values.device).view(-1, *[1] * (values.ndim - 1 - d))
        chosen = along == places.unsqueeze(d)
    else:
        along = call.x.structure.positions(call.x.structure.whole, call.packed[0], values.device)
        chosen = along.view(-1, *[1] * (values.ndim - 1)) == segments.spread(places)
    picked = sum_values(call, torch.where(chosen, values, 0))
    return torch.where(places < 0, extreme_values(call, values.detach(), largest), picked)


Extreme = namedtuple("Extreme", ["values", "indices"])


def _answer_extreme(largest: bool) -> Callable[..., Any]:
    """torch's max and min: all elements, a pair along one axis, or elementwise with a second tensor."""

    def handler(input: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        other = options.pop("other", dim if isinstance(dim, (Tensor, torch.Tensor)) else None)
        if other is not None:
            return apply(torch.maximum if largest else torch.minimum, input, other)
        axis, keep = options.pop("axis", dim), options.pop("keepdims", keepdim)
        if axis is None:
            return (_max if largest else _min)(input, keepdims=keep)
        call = reduction(input, axis)
        places = _places(call, largest)
        asked = call.x.requires_grad or beyond_gradients()
        values = _named(call, places, largest) if asked else extreme_values(call, call.x.values, largest)
        return Extreme(call.finish(values, keep), call.finish(places, keep))

    return handler


# fmt: off
_PLACE = "the result is a position"
reduces("max", _max, torch.amax, "The greatest along `axis`; of nothing -inf or the least integer.",
        "[[1, 2], [3]]", "[2, 3]", REAL, vjp=extreme_vjp, others=("amax",),
        answers=dict.fromkeys((torch.max, torch.Tensor.max), _answer_extreme(largest=True)),
        dialect=written("reduce", "max", x="rhs"))
reduces("min", _min, torch.amin, "The least along `axis`; of nothing +inf or the greatest integer.",
        "[[1, 2], [3]]", "[1, 3]", REAL, vjp=extreme_vjp, others=("amin",),
        answers=dict.fromkeys((torch.min, torch.Tensor.min), _answer_extreme(largest=False)),
        dialect=written("reduce", "min", x="rhs"))
reduces("argmax", _argmax, torch.argmax, "The first position of the greatest along `axis`; -1 of nothing.",
        "[[1, 2], [], [3]]", "[1, -1, 0]", REAL, flat=_PLACE, dialect=written("find_index", "argmax", x="rhs"))
reduces("argmin", _argmin, torch.argmin, "The first position of the least along `axis`; -1 of nothing.",
        "[[1, 2], [], [3]]", "[0, -1, 0]", REAL, flat=_PLACE, dialect=written("find_index", "argmin", x="rhs"))
# fmt: on
