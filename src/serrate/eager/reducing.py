"""How a reduction over any set of axes runs: features by torch, packed axes by segments.

Over a ragged axis each row is reduced on its own, so a NaN stays in its row, and an empty row gives what torch gives
for no elements. Over an axis that ragged ones depend on, the reduction is position by position, over the rows that
reach a position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.eager.precision import widened
from serrate.eager.segments import Segments, centred_by, neutral, segments_of
from serrate.eager.unsigned import comparable, restored, summed
from serrate.tensor import bits, host
from serrate.tensor.broadcast import align
from serrate.tensor.host import lasting_property
from serrate.tensor.indexing import expand_dims
from serrate.tensor.layout import assemble
from serrate.tensor.structure import DENSE, Structure, parents_of
from serrate.tensor.tensor import Tensor, as_tensor

AxisLike = int | Sequence[int] | None


class _Plan:
    """How axes of a structure are reduced, whatever the values are; kept with the structure, which it does not hold."""

    def __init__(self, structure: Structure, order: tuple[int, ...], axes: tuple[int, ...]) -> None:
        count = len(structure.axes)
        gone = sorted(order[a] for a in axes)
        self.packed = tuple(c for c in gone if c < count)
        self.dims = tuple(c - count + 1 if count else c for c in gone if c >= count)
        self.segments = segments_of(structure, self.packed) if self.packed else None
        self.seen = [order[a] for a in range(len(order)) if a not in axes]
        self.features = [c for c in range(count, len(order)) if c in self.seen]
        kept = [*range(count), *self.features] if self.segments is None else [*self.segments.kept, *self.features]
        self.order = tuple(kept.index(c) for c in self.seen)
        self.moves = self.order != tuple(range(len(self.order)))

    @lasting_property
    def left(self) -> tuple[tuple[int, ...], Structure] | None:
        """The sizes of the packed axes that are left, if all are uniform, or else the structure of these axes.

        It is None if no packed axis is left, or if those that are left are stored in another order than before.
        """
        assert self.segments is not None
        axes = self.segments.axes
        sizes = tuple(axis for axis in axes if isinstance(axis, int))
        if len(sizes) == len(axes):
            return (sizes, DENSE) if sizes else None
        needed = {parent for axis in axes for parent in parents_of(axis)}
        if isinstance(axes[-1], int) or any(isinstance(a, int) and i not in needed for i, a in enumerate(axes)):
            return None
        return (), Structure(axes, self.segments.cells)

    def result(self, x: Tensor, values: torch.Tensor) -> Tensor:
        """The reduced tensor around `values`, for an `x` that is ragged."""
        if self.segments is None:
            return Tensor(values, x.structure, self.order, x.team)
        if self.left is None:
            axes = list(zip(self.segments.kept, self.segments.axes, strict=True))
            if axes:
                return assemble(x, values, axes, self.seen, self.features)
            return Tensor(values.reshape(values.shape[1:]).permute(self.order), team=x.team)
        sizes, structure = self.left
        if structure is not DENSE:
            return Tensor(values, structure, self.order, x.team)
        values = values if len(sizes) == 1 else values.reshape(*sizes, *values.shape[1:])
        # A permutation takes as long as a small reduction, so one that changes nothing is left out.
        return (
            Tensor(values.permute(self.order), team=x.team) if self.moves else Tensor(values, DENSE, self.order, x.team)
        )


class Reduction:
    """One call: what is reduced, and how its result is put together."""

    __slots__ = ("_plan", "axes", "dims", "packed", "segments", "x")

    def __init__(self, x: Tensor, axes: tuple[int, ...]) -> None:
        self.x = x
        self.axes = axes
        """The reduced axes, as the user numbers them."""
        structure, order = x.structure, x.order
        if structure is DENSE:
            plan = _Plan(DENSE, order, axes)
        else:
            plan = structure.derived(("reduction", order, axes), lambda _: _Plan(structure, order, axes))
        self._plan = plan
        self.packed = plan.packed
        """The reduced axes that are packed."""
        self.dims = plan.dims
        """The reduced axes that are dimensions of the values."""
        self.segments = plan.segments
        """How rows are grouped, if any packed axis is reduced."""

    def over(
        self,
        values: torch.Tensor,
        dims: Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor],
        rows: Callable[[Segments, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """The values with dimensions reduced by `dims`, then rows by `rows`. All rows together count as a dimension."""
        segments = self.segments
        if segments is not None and not segments.kept and segments.structure.is_exact:
            return dims(values, (0, *self.dims)).unsqueeze(0)
        made = dims(values, self.dims) if self.dims else values
        made = made if segments is None else rows(segments, made)
        # Nothing is reduced, but the result must not share memory with x.
        return made.clone() if made is self.x.values else made

    def spread(self, reduced: torch.Tensor) -> torch.Tensor:
        """Each result of the reduction beside each element that it was made of."""
        for d in self.dims:
            reduced = reduced.unsqueeze(d)
        return reduced if self.segments is None else self.segments.spread(reduced)

    def finish(self, values: torch.Tensor, keepdims: bool) -> Tensor:
        """The result around `values`, whose reduced dimensions and rows are gone."""
        made = self._plan.result(self.x, values) if self.x.is_ragged else Tensor(values, team=self.x.team)
        if keepdims:
            for axis in sorted(self.axes):
                made = expand_dims(made, axis)
        return made


def reduction(x: Any, axis: AxisLike) -> Reduction:
    """The call for `axis`: an int, several, or None for all."""
    tensor = as_tensor(x)
    if axis is None:
        chosen = tuple(range(tensor.ndim))
    elif type(axis) is int:
        chosen = (tensor._axis(axis),)
    else:
        given = axis if isinstance(axis, Sequence) else (axis,)
        chosen = tuple(tensor._axis(a) for a in given)
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"an axis is named twice in {axis}")
    return Reduction(tensor, chosen)


def expanded(call: Reduction, reduced: Tensor) -> Tensor:
    """What a reduction gave, or a tensor of the same shape, back beside each element of what it reduced."""
    x = call.x
    left = [n for d, n in enumerate(x.values.shape) if d not in call.dims]
    if call.segments is not None:
        left[0] = call.segments.cells
    # The result's own layout may be another than the reduction's: numbers of places go the same way, and say which.
    places = torch.arange(math.prod(left), device=x.device).view(left)
    shown = call.finish(places, keepdims=False)
    if reduced.ndim != shown.ndim:
        raise ValueError(f"what was reduced along axes {call.axes} has shape {shown.shape}, got {reduced.shape}")
    laid_out = align(reduced, shown).expand(shown.values.shape).reshape(-1)
    back = torch.empty_like(places).view(-1).index_copy(0, shown.values.reshape(-1), places.view(-1))
    carried = bits.as_carrier(laid_out)
    made = call.spread(carried.index_select(0, back).view(left)).expand(x.values.shape)
    return x._with(made if carried is laid_out else made.view(reduced.dtype))


# ------------------------------------------------------------------------------------------------ what is computed


def sum_values(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """Sums; integers and bools in int64."""
    dtype = values.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        values = values.to(torch.int64)
    return call.over(values, _sum_of_dims, Segments.sum)


def _sum_of_dims(values: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return values.sum() if len(dims) == values.ndim else values.sum(dims)


def total(x: Any, axis: AxisLike, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    """The sum along `axis` as a tensor: computed in `dtype` if one is given, else integers in a wide one."""
    call = reduction(x if dtype is None else as_tensor(x).to(dtype), axis)
    made = sum_values(call, call.x.values)
    wanted = summed(call.x.dtype, made.dtype) if dtype is None else dtype
    return call.finish(made if made.dtype is wanted else made.to(wanted), keepdims)


def _count(call: Reduction) -> torch.Tensor | int:
    """The number of elements of each result, shaped to divide it."""
    per_row = 1
    for d in call.dims:
        per_row *= call.x.values.shape[d]
    segments = call.segments
    if segments is None:
        return per_row
    counts = segments.counts(call.x.device)
    left = call.x.values.ndim - 1 - len(call.dims)
    counts = counts if per_row == 1 else counts * per_row
    return counts.view(-1, *[1] * left) if left else counts


def mean_values(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """Sums divided by how many elements there are."""
    if not (values.is_floating_point() or values.is_complex()):
        raise TypeError(f"mean needs floating-point elements, got {values.dtype}")
    wide = widened(values)  # A half type may not hold the sum of its elements.
    total, count = sum_values(call, wide), _count(call)
    # Nobody else has the memory of these sums, so they are overwritten.
    own = call.segments is not None and host.is_constant(total)
    made = total.div_(count) if own else total / count
    return made if made.dtype is values.dtype else made.to(values.dtype)


def var_values(call: Reduction, values: torch.Tensor, correction: float) -> torch.Tensor:
    """Variances: sums of squares divided by the number of elements less a correction."""
    if not values.is_floating_point():
        raise TypeError(f"var needs real floating-point elements, got {values.dtype}")
    wide, count = widened(values), _count(call)
    left = count - correction
    left = left.clamp(min=0).to(wide.dtype) if isinstance(left, torch.Tensor) else max(left, 0.0)
    return (_distances(call, wide) / left).to(values.dtype)


def _distances(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """The sums of the squares of distances from the mean."""
    segments = call.segments
    if segments is not None and not call.dims:
        return segments.distances(values)
    if segments is None and call.dims and values.numel():
        return values.var(call.dims, correction=0) * _count(call)
    centred = centred_values(call, values)
    return sum_values(call, centred * centred)


def centred_values(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """Values, which are of no half type, less their mean."""
    if call.segments is not None and not call.dims:
        return call.segments.centred(values)
    return centred_by(lambda each: call.spread(mean_values(call, each)), values)


def extreme_values(call: Reduction, values: torch.Tensor, largest: bool) -> torch.Tensor:
    """The greatest or least."""

    def by(v: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        if any(v.shape[d] == 0 for d in dims):
            shape = [n for d, n in enumerate(v.shape) if d not in dims]
            return torch.full(shape, neutral(v.dtype, largest), dtype=v.dtype, device=v.device)
        return v.amax(dims) if largest else v.amin(dims)

    if values.is_complex():
        raise TypeError(f"{'max' if largest else 'min'} needs ordered elements, got {values.dtype}")
    made = call.over(comparable(values), by, lambda segments, v: segments.extreme(v, largest))
    return restored(made, values.dtype)


def logsumexp_values(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """log(sum(exp(values))), without overflow."""
    dtype, values = values.dtype, widened(values)
    segments = call.segments
    if segments is not None and segments.kept and not call.dims:
        return segments.logsumexp(values).to(dtype)
    top = extreme_values(call, values.detach(), largest=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    return (sum_values(call, (values - call.spread(top)).exp()).log() + top).to(dtype)


def product_values(call: Reduction, values: torch.Tensor) -> torch.Tensor:
    """Products; integers and bools in int64."""
    if values.dtype == torch.bool or not (values.is_floating_point() or values.is_complex()):
        values = values.to(torch.int64)

    def by(v: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        for d in sorted(dims, reverse=True):
            v = v.prod(d)
        return v

    return call.over(values, by, Segments.product)


def root(values: torch.Tensor, order: float = 2) -> torch.Tensor:
    """Square roots. The derivative at 0, where there is none, is 0, as in torch."""
    positive = torch.where(values == 0, torch.ones_like(values), values)
    return torch.where(values == 0, 0.0, positive.sqrt() if order == 2 else positive ** (1 / order))


def _powers(sizes: torch.Tensor, order: float) -> torch.Tensor:
    """sizes ** order. The derivative at 0, where there is none, is 0, as in torch."""
    if order >= 2:
        return sizes**order
    zero = sizes == 0
    return torch.where(zero, 0.0 if order > 0 else float("inf"), torch.where(zero, 1.0, sizes) ** order)


def norm_values(call: Reduction, values: torch.Tensor, order: float) -> torch.Tensor:
    """Norms of any order; those of complex values are real."""
    if not (values.is_floating_point() or values.is_complex()):
        raise TypeError(f"norm needs floating-point elements, got {values.dtype}")
    dtype = values.real.dtype if values.is_complex() else values.dtype
    wide = widened(values)
    if order == 2:
        squares = wide.real * wide.real + wide.imag * wide.imag if wide.is_complex() else wide * wide
        return root(sum_values(call, squares)).to(dtype)
    sizes = wide.abs()
    if order == 0:
        made = sum_values(call, (sizes != 0).to(sizes.dtype))
    elif order == 1:
        made = sum_values(call, sizes)
    elif abs(order) == float("inf"):
        made = extreme_values(call, sizes, largest=order > 0)
        count = _count(call)
        if isinstance(count, torch.Tensor):
            made = torch.where(count == 0, 0.0, made)
        elif count == 0:
            made = torch.zeros_like(made)
    else:
        made = root(sum_values(call, _powers(sizes, order)), order)
    return made.to(dtype)
