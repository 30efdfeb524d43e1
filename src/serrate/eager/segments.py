"""Segments: which rows of the packed values are reduced together, and the kernels that do it, differentiable twice.

Reducing axes of a nest leaves a smaller one. Where the axes that stay are the outermost, each result is a contiguous
run of rows; otherwise rows are found by an index. Reducing an axis that others depend on is position by position: each
of those takes the longest length in the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager.precision import widened
from serrate.eager.sums import sum_by_index, sum_by_position, sum_of_runs
from serrate.native import row_extremes, row_softmax
from serrate.native import row_sums as library
from serrate.native.loading import reads
from serrate.tensor.combine import group_partition
from serrate.tensor.differentiable import Differentiable, beyond_gradients
from serrate.tensor.host import lasting_property
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure


@dataclass(eq=False)
class Segments:
    """The rows of a structure, grouped by what is left of them when some axes are gone.

    They are kept with the structure (`segments_of`), so that what follows from it is worked out once.
    """

    structure: Structure
    gone: tuple[int, ...]

    @lasting_property
    def kept(self) -> tuple[int, ...]:
        """The axes that stay."""
        return tuple(c for c in self.structure.whole if c not in self.gone)

    @lasting_property
    def axes(self) -> list[Axis]:
        """The axes that stay, whose parents are numbered among these."""
        made: list[Axis] = []
        for c in self.kept:
            axis = self.structure.axes[c]
            made.append(self._kept_axis(axis, made) if isinstance(axis, Ragged) else axis)
        return made

    def _kept_axis(self, axis: Ragged, outer: list[Axis]) -> Axis:
        parents = tuple(self.kept.index(p) for p in axis.parents if p in self.kept)
        if len(parents) == len(axis.parents) and all(self._same(self.kept[p], outer[p]) for p in parents):
            return Ragged(axis.partition, parents)
        if not parents:
            return axis.partition.max_length
        left = Structure(outer)
        home = self.structure.home
        lengths = axis.partition.lengths_on(home).to(torch.int64)
        where = {p: self.structure.positions(axis.parents, self.kept[p], home) for p in parents}
        cells = left.cells(parents)
        rank = left.rank(parents, where)
        if not self.structure.is_host_born:  # Undefined components count for a cell of their own, one past the last.
            defined = torch.arange(rank.numel(), device=home) < self.structure.defined_cells(axis.parents)
            rank = torch.where(defined, rank, cells)
        longest = torch.zeros(cells + 1, dtype=torch.int64, device=home)
        longest = longest.scatter_reduce_(0, rank, lengths, "amax")[:cells]
        return Ragged(axis.partition.with_lengths(longest), parents)

    def _same(self, number: int, axis: Axis) -> bool:
        old = self.structure.axes[number]
        if isinstance(old, Ragged) and isinstance(axis, Ragged):
            return old.partition is axis.partition
        return old == axis

    @property
    def covers(self) -> bool:
        """Whether every row belongs to a result."""
        return self.structure.is_exact

    @lasting_property
    def cells(self) -> int:
        """How many results there are."""
        left = Structure(self.axes)
        return left.cells(left.whole)

    @lasting_property
    def runs(self) -> Partition | None:
        """Results as contiguous runs of rows, if they are."""
        outermost = self.kept == tuple(range(len(self.kept)))
        if not outermost:
            return None
        if not self.kept:
            level = self.structure.level(self.structure.whole)
            assert isinstance(level, Partition)
            ends = torch.stack([level.offsets[0], level.offsets[-1]])
            return Partition._of(ends, level.num_values, device_born=not level.is_host_born, exact=level.is_exact)
        return group_partition(self.structure, len(self.kept), self.structure.whole)

    @lasting_property
    def columns(self) -> Partition | None:
        """The partition whose rows at one position form a result, as along axis 0 of [B, r]; None for other results."""
        axes = self.structure.axes
        return axes[1].partition if self.gone == (0,) and len(axes) == 2 and isinstance(axes[1], Ragged) else None

    @lasting_property
    def length(self) -> int | None:
        """How many rows each result has, if the host knows that all have equally many: then rows form a grid."""
        runs = self.runs
        if runs is None or not runs.is_host_born or runs.num_components == 0:
            return None
        length = runs.max_length
        return length if length and length * runs.num_components == runs.num_values else None

    def grid(self, values: torch.Tensor) -> torch.Tensor | None:
        """`values` as [results, rows of each, …], where rows form a grid."""
        return None if self.length is None else values.reshape(self.cells, self.length, *values.shape[1:])

    def index(self, device: torch.device) -> torch.Tensor:
        """For each row its result; `cells`, one past the last, for rows that are undefined."""
        if self.runs is not None:
            index = self.runs.row_ids_on(device)
        else:
            left = Structure(self.axes)
            where = {i: self.structure.positions(self.structure.whole, c, device) for i, c in enumerate(self.kept)}
            if not self.structure.is_exact:  # The numbers of undefined rows may be any; below they become `cells`.
                defined = self.structure.defined_rows(next(iter(where.values())))
                where = {i: torch.where(defined, positions, 0) for i, positions in where.items()}
            index = left.rank(left.whole, where)
        if self.structure.is_exact:
            return index
        return torch.where(self.structure.defined_rows(index), index, self.cells)

    def counts(self, device: torch.device) -> torch.Tensor:
        """How many rows each result has."""
        if self.runs is not None:
            return self.runs.lengths_on(device).to(torch.int64)
        index = self.index(device)
        return torch.zeros(self.cells + 1, dtype=torch.int64, device=device).index_add(
            0, index, torch.ones_like(index)
        )[: self.cells]

    def counts_beside(self, results: torch.Tensor) -> torch.Tensor:
        """How many rows each result has, shaped to broadcast against `results`."""
        return self.counts(results.device).view(-1, *[1] * (results.ndim - 1))

    def spread(self, results: torch.Tensor) -> torch.Tensor:
        """Each row's result; undefined rows get 0."""
        return _Spread.call(results, self)

    # ----------------------------------------------------------------------------------------------- kernels

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of each result's rows, accumulated in float32 or wider."""
        return _Sum.call(values, self)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean of each result's rows; NaN if it has none."""
        made = self.sum(values)
        return made / self.counts_beside(made)

    def distances(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of squared distances of each result's rows, which are of no half type, from their mean."""
        return _Distances.call(values, self)

    def centred(self, values: torch.Tensor) -> torch.Tensor:
        """Each row, which is of no half type, less the mean of its result's rows."""
        return _Centred.call(values, self)

    def extreme(self, values: torch.Tensor, largest: bool) -> torch.Tensor:
        """The greatest or least of each result's rows; NaN if one of them is NaN."""
        return _Extreme.call(values, self, largest)

    def logsumexp(self, values: torch.Tensor) -> torch.Tensor:
        """log(sum(exp(x))) of each result's rows, which are of no half type, without overflow; -inf if it has none."""
        return _LogSumExp.call(values, self)

    def product(self, values: torch.Tensor) -> torch.Tensor:
        """The product of each result's rows."""
        return _Product.call(widened(values), self).to(values.dtype)


class _Sum(Differentiable):
    """The sum. The gradient of a row is that of its result."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        return _sum_kernel(segments, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.segments.spread(gradient), None


class _Spread(Differentiable):
    """Each row's result. The gradient is a sum over rows, which torch's own gradient would add up one by one."""

    @staticmethod
    def forward(results: torch.Tensor, segments: Segments) -> torch.Tensor:
        if segments.length is not None:
            return results.unsqueeze(1).expand(-1, segments.length, *results.shape[1:]).flatten(0, 1)
        index = segments.index(results.device)
        if not segments.covers:  # Rows without a result read a cell of their own.
            results = torch.cat([results, results.new_zeros((1, *results.shape[1:]))])
        return results.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.segments.sum(gradient), None


class _Centred(Differentiable):
    """Rows less their mean. The gradient is the gradient of the result less its mean."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        runs = segments.runs
        made = None if runs is None else library.centred(values, runs.offsets_on(values.device))
        return centred_by(lambda each: segments.spread(segments.mean(each)), values) if made is None else made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Centred.call(gradient, ctx.segments), None


class _Distances(Differentiable):
    """The sum of squared distances from the mean. The gradient of a row is twice its distance."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        runs = segments.runs
        made = None if runs is None else library.distances(values, runs.offsets_on(values.device))
        if made is not None:
            return made
        centred = segments.centred(values)
        return segments.sum(centred * centred)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.segments = inputs
        ctx.save_for_backward(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (values,) = ctx.saved_tensors
        segments: Segments = ctx.segments
        return 2 * segments.spread(gradient) * segments.centred(values), None


class _Extreme(Differentiable):
    """The greatest or least. Rows that are equal to it share the gradient evenly, as in torch's amax."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments, largest: bool) -> torch.Tensor:
        return _extreme_kernel(segments, values, largest)

    @staticmethod
    def composed(values: torch.Tensor, segments: Segments, largest: bool) -> torch.Tensor:
        chosen = _extreme_kernel(segments, values.detach(), largest)
        if not values.is_floating_point():
            return chosen
        has, wide = _has(values.detach(), segments.spread(chosen)), widened(values)
        count = segments.sum(has.to(wide.dtype))
        mean = segments.sum(torch.where(has, wide, 0)) / count.clamp(min=1)
        # The value is exact, and the mean adds only its derivative.
        exactly = torch.where(chosen.isfinite(), chosen + (mean - mean.detach()), mean)
        return torch.where(count == 0, chosen, exactly.to(values.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.segments = inputs[1]
        ctx.save_for_backward(inputs[0].detach(), output.detach())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        values, results = ctx.saved_tensors
        chosen = ctx.segments.spread(results)
        has = _has(values, chosen).to(values.dtype)
        share = has / ctx.segments.spread(_sum_kernel(ctx.segments, has))
        return ctx.segments.spread(gradient) * share, None, None


def _has(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Which rows are equal to the greatest or least of their result; a NaN is equal to a NaN."""
    return (values == chosen) | (values.isnan() & chosen.isnan())


class _LogSumExp(Differentiable):
    """log(sum(exp(x))). The gradient of a row is its part of the sum."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        runs = segments.runs
        ends = None if runs is None or not reads(values) else runs.offsets_on(values.device)
        made = None if ends is None else row_softmax.log_sums(values, ends)
        return _LogSumExp.composed(values, segments) if made is None else made

    @staticmethod
    def composed(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        top = _finite(segments.extreme(values.detach(), largest=True))
        total = segments.sum((values - segments.spread(top)).exp())
        nothing = total == 0  # The logarithm of 0 has no derivative.
        return torch.where(nothing, -torch.inf, torch.where(nothing, 1, total).log() + top)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.segments = inputs
        ctx.save_for_backward(values, output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        values, out = ctx.saved_tensors
        segments: Segments = ctx.segments
        return segments.spread(gradient) * (values - segments.spread(_finite(out))).exp(), None


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Values with 0 in the place of what is infinite or NaN."""
    return torch.where(values.isfinite(), values, torch.zeros_like(values))


class _Product(Differentiable):
    """The product. The gradient of a row is the product of the others, and its own derivative is right at 0, too."""

    @staticmethod
    def forward(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        grid = segments.grid(values)
        made = _by_runs(segments, values, "prod", 1) if grid is None else grid.prod(1)
        if made is not None:
            return made
        if values.is_cuda and values.is_complex():  # torch multiplies these by an index on the CPU only.
            return _Product.composed(values, segments)
        base = values.new_ones((segments.cells + 1, *values.shape[1:]))
        index = _expanded(segments.index(values.device), values)
        return base.scatter_reduce(0, index, values, "prod")[: segments.cells]

    @staticmethod
    def composed(values: torch.Tensor, segments: Segments) -> torch.Tensor:
        """The product in steps: each row times the one 1, 2, 4, … before it. All derivatives are right at 0."""
        groups, order = segments.index(values.device).sort(stable=True)
        made, rows = values.index_select(0, order), values.shape[0]
        shape, d = (-1, *[1] * (values.ndim - 1)), 1
        while d < rows:
            same = (groups[d:] == groups[:-d]).view(shape)
            made = torch.cat([made[:d], made[d:] * torch.where(same, made[:-d], 1)])
            d *= 2
        if not rows:
            return values.new_ones((segments.cells, *values.shape[1:]))
        results = torch.arange(segments.cells, device=values.device)
        ends = torch.searchsorted(groups, results, right=True)
        some = ends > torch.searchsorted(groups, results)
        return torch.where(some.view(shape), made.index_select(0, (ends - 1).clamp(min=0)), 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.segments = inputs
        ctx.save_for_backward(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (values,) = ctx.saved_tensors
        segments: Segments = ctx.segments
        zero = values == 0
        some = torch.where(zero, 1, values)
        zeros = segments.spread(_sum_kernel(segments, zero.to(torch.int64)))
        rest = segments.spread(_Product.call(some, segments))
        # The sum of the rows that are 0 is 0, but its derivative is not. It stands for the only 0 of a result, or for
        # the other one if there are two.
        vanishing = segments.spread(segments.sum(torch.where(zero, values, 0)))
        of_zero = torch.where(zeros == 1, rest, torch.where(zeros == 2, rest * (vanishing - values), 0))
        of_others = torch.where(zeros == 0, rest / some, torch.where(zeros == 1, rest / some * vanishing, 0))
        return segments.spread(gradient) * torch.where(zero, of_zero, of_others).conj(), None


def _sum_kernel(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    grid = None if values.is_complex() else segments.grid(values)
    if grid is not None:
        return grid.sum(1)
    if segments.runs is not None:
        return sum_of_runs(values, segments.runs)
    if segments.columns is not None:
        made = sum_by_position(values, segments.columns, segments.cells)
        if made is not None:
            return made
    return sum_by_index(values, segments.index(values.device), segments.cells)


def _by_runs(segments: Segments, values: torch.Tensor, reduce: str, initial: Any) -> torch.Tensor | None:
    """A reduction by torch's kernel for contiguous runs, for where many threads would otherwise write to one result."""
    runs = segments.runs
    if runs is None or not values.is_cuda or not values.is_floating_point() or not values.numel():
        return None
    if beyond_gradients():  # The kernel knows neither forward mode nor vmap.
        return None
    ends = runs.offsets_on(values.device).to(torch.int64)
    made: torch.Tensor = torch.segment_reduce(
        values.contiguous(), reduce, offsets=ends, axis=0, unsafe=True, initial=initial
    )
    return made


def _extreme_kernel(segments: Segments, values: torch.Tensor, largest: bool) -> torch.Tensor:
    if values.dtype == torch.bool:
        return _extreme_kernel(segments, values.to(torch.uint8), largest).to(torch.bool)
    grid = segments.grid(values)
    if grid is not None:
        return grid.amax(1) if largest else grid.amin(1)
    if segments.runs is not None:
        found = row_extremes.extremes(values, segments.runs.offsets_on(values.device), largest)
        if found is not None:
            return found
    made = _by_runs(segments, values, "max" if largest else "min", neutral(values.dtype, largest))
    if made is not None:
        return made
    base = torch.full(
        (segments.cells + 1, *values.shape[1:]),
        neutral(values.dtype, largest),
        dtype=values.dtype,
        device=values.device,
    )
    index = _expanded(segments.index(values.device), values)
    return base.scatter_reduce(0, index, values, "amax" if largest else "amin")[: segments.cells]


def neutral(dtype: torch.dtype, largest: bool) -> Any:
    """The greatest (or least) of no elements."""
    if dtype == torch.bool:
        return not largest
    if dtype.is_floating_point:
        return -float("inf") if largest else float("inf")
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max


def centred_by(mean: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """Values less their mean, which a function gives beside each; done twice, since the first mean is rounded."""
    once = values - mean(values)
    return once - mean(once)


def _expanded(index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return index.view(-1, *[1] * (values.ndim - 1)).expand(values.shape)


def segments_of(structure: Structure, gone: Sequence[int]) -> Segments:
    """The rows of `structure` grouped for reducing the packed axes `gone`, which are given in order."""
    gone = tuple(gone)
    return structure.derived(("segments", gone), lambda other: Segments(other, gone))
