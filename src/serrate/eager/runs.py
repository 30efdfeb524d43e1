"""Along one axis: the groups of entries that scans, sorts and sets work on, and the order of elements of any dtype.

Along a feature axis, groups are lines of a dimension of the values. Along a packed axis, each cell of the other axes is
a group of rows of the packed values, in the order of their positions along the axis: a contiguous run along the
innermost axis, else brought together by a stable sort. Nothing here waits for lengths that were born on a device,
except where an axis that others depend on changes its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from serrate.eager.segments import Segments, segments_of
from serrate.eager.unsigned import comparable
from serrate.tensor.combine import zeroed
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.promotion import WIDE
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

MOST_TAGS = 2**30
"""How many groups `tagged` tells apart."""
_ROOM = 2**62
_UNDEFINED = 2**63 - 1


class Indexed(NamedTuple):
    """Elements, and for each the position along the axis that it came from."""

    values: Tensor
    indices: Tensor


@dataclass(eq=False)
class Runs:
    """The rows of a structure in *run order*: grouped by their cell of all axes but one, along which each run goes."""

    structure: Structure
    axis: int
    device: torch.device

    @property
    def contiguous(self) -> bool:
        """Whether rows lie in run order already."""
        return self.axis == len(self.structure.axes) - 1

    @property
    def level(self) -> Partition:
        """The partition whose components are the runs, which must be contiguous."""
        level = segments_of(self.structure, (self.axis,)).runs
        assert level is not None
        return level

    @cached_property
    def rows(self) -> int:
        """How many rows there are, undefined ones included."""
        return self.place.numel()

    @property
    def bound(self) -> int:
        """A length that no row of the axis exceeds; rows in which no cell of the structure lies count, too."""
        return _bound(self.structure.axes[self.axis])

    @cached_property
    def longest(self) -> int:
        """A length no run exceeds."""
        return min(self.bound, self.rows)

    @cached_property
    def _sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows in run order, and for each whether it begins a run. Undefined rows form the last run."""
        order: torch.Tensor | None = None
        keys = self._keys()
        for key in keys:
            found = torch.sort(key if order is None else key[order], stable=True).indices
            order = found if order is None else order[found]
        assert order is not None
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = torch.stack([key[order][1:] != key[order][:-1] for key in keys]).any(0)
        return order, first

    def _keys(self) -> list[torch.Tensor]:
        """As few numbers per row as possible by which to sort rows by their positions along the other axes; the least
        significant number comes first."""
        keys: list[torch.Tensor] = []
        room = _ROOM
        for c in reversed(self.structure.whole):
            if c == self.axis:
                continue
            position = self.structure.positions(self.structure.whole, c, self.device)
            size = max(_bound(self.structure.axes[c]), 1)
            if room * size < _ROOM:
                keys[-1] = keys[-1] + position * room
                room *= size
            else:
                keys.append(position)
                room = size
        if self.structure.is_exact:
            return keys
        defined = self.structure.defined_rows(keys[0])
        return [torch.where(defined, key, _UNDEFINED) for key in keys]

    @cached_property
    def order(self) -> torch.Tensor | None:
        """For each place in run order, the row there; None if rows lie in run order."""
        return None if self.contiguous else self._sorted[0]

    @cached_property
    def back(self) -> torch.Tensor | None:
        """For each row, its place in run order; None if rows lie in run order."""
        if self.order is None:
            return None
        return torch.empty_like(self.order).scatter_(0, self.order, torch.arange(self.rows, device=self.device))

    @cached_property
    def group(self) -> torch.Tensor:
        """For each row, the number of its run. Undefined rows form a run of their own, the last one."""
        if not self.contiguous:
            return self.returned(self._sorted[1].cumsum(0) - 1)
        ids = self.level.row_ids_on(self.device)
        if self.level.is_exact:
            return ids
        rows = torch.arange(ids.numel(), device=self.device)
        return torch.where(rows < self.level.offsets_on(self.device)[-1], ids, self.level.num_components)

    @property
    def count(self) -> int:
        """A number that is greater than all of `group`."""
        return self.level.num_components + 1 if self.contiguous else self.rows

    @cached_property
    def place(self) -> torch.Tensor:
        """For each place in run order, how many rows of the same run stand before it."""
        if self.contiguous:
            positions = self.level.positions_on(self.device)
            if self.level.is_exact:
                return positions
            behind = torch.arange(positions.numel(), device=self.device) - self.level.offsets_on(self.device)[-1]
            return torch.where(behind < 0, positions, behind)
        _, first = self._sorted
        rows = torch.arange(first.numel(), device=self.device)
        return rows - torch.where(first, rows, 0).cummax(0).values if rows.numel() else rows

    @cached_property
    def rest(self) -> torch.Tensor:
        """For each place in run order, how many rows of its run stand behind it; for undefined rows perhaps below 0."""
        rows = torch.arange(self.rows, device=self.device)
        if self.contiguous:
            return self.level.spread(self.level.offsets_on(self.device)[1:].to(torch.int64)) - 1 - rows
        last = self._sorted[1].roll(-1)  # The first row begins a run, so the last row ends one.
        return torch.where(last, rows, self.rows).flip(0).cummin(0).values.flip(0) - rows if rows.numel() else rows

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Rows brought into run order."""
        return values if self.order is None else values.index_select(0, self.order)

    def returned(self, values: torch.Tensor) -> torch.Tensor:
        """Rows in run order back where they lie."""
        return values if self.back is None else values.index_select(0, self.back)


def _bound(axis: Axis) -> int:
    return axis if isinstance(axis, int) else axis.partition.max_length_bound


@dataclass(eq=False)
class Along:
    """One axis of one tensor: a dimension of the values (`dim`), or runs of their rows."""

    x: Tensor
    axis: int  # It is numbered as the user sees it.

    @property
    def label(self) -> int:
        """The canonical axis."""
        return self.x.order[self.axis]

    @property
    def dim(self) -> int | None:
        """The dimension of the values, if the axis is not packed."""
        packed, label = len(self.x.structure.axes), self.label
        if label < packed:
            return None
        return label - packed + 1 if packed else label

    @property
    def segments(self) -> Segments:
        """The groups as results of a reduction."""
        return segments_of(self.x.structure, (self.label,))

    @cached_property
    def runs(self) -> Runs:
        """The groups as runs of rows."""
        return Runs(self.x.structure, self.label, self.x.device)

    @cached_property
    def positions(self) -> torch.Tensor:
        """For each row its position along the axis."""
        return self.x.structure.positions(self.x.structure.whole, self.label, self.x.device)

    @property
    def depended_on(self) -> bool:
        """Whether a ragged axis has this one as a parent."""
        return any(isinstance(axis, Ragged) and self.label in axis.parents for axis in self.x.structure.axes)

    @property
    def longest(self) -> int:
        """A length no group exceeds."""
        return self.runs.longest if self.dim is None else self.x.values.shape[self.dim]

    def by_torch(self, values: torch.Tensor, function: Callable[..., torch.Tensor]) -> torch.Tensor | None:
        """`function(values, dim)` if groups are lines of a dimension of the values, or rows of a grid; else None."""
        if self.dim is not None:
            return function(values, self.dim)
        grid = self.segments.grid(values)
        return None if grid is None else function(grid, 1).flatten(0, 1)

    def sorted_rows(self, keys: torch.Tensor, narrow: bool) -> torch.Tensor:
        """For each place in run order, the row that stands there once each run is sorted by `keys`, stably."""
        grid = self.segments.grid(keys)
        if grid is None:
            return sort_rows(keys, narrow, self.runs.group, self.runs.count)
        starts = torch.arange(grid.shape[0], device=keys.device) * grid.shape[1]
        return (_argsort(grid, 1) + starts.view(-1, *[1] * (grid.ndim - 1))).flatten(0, 1)

    def regrouped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Regrouped:
        """Groups of the lengths that `change` gives, for an axis that others depend on; then it depends on all."""
        structure, segments = self.x.structure, self.segments
        counts = segments.counts(structure.home)
        made = structure.partitions[0].with_lengths(change(counts))
        rows, place = made.row_ids_on(self.x.device), made.positions_on(self.x.device)
        starts = counts.cumsum(0) - counts
        first = starts.to(self.x.device, non_blocking=True).index_select(0, rows)
        axes = [*zip(segments.kept, segments.axes, strict=True), (self.label, Ragged(made, range(len(segments.kept))))]
        return Regrouped(self, axes, first, place)

    def along_rows(self, values: torch.Tensor, rows: torch.Tensor) -> Indexed:
        """The elements of `values` in the rows that `rows` gives for each element, and the positions of these rows."""
        return Indexed(self.x._with(pick(values, rows, 0)), self.x._with(self.positions[rows]))


@dataclass(eq=False)
class Regrouped:
    """Groups with new lengths: for each new entry where its group begins in run order, and its place there."""

    call: Along
    axes: list[tuple[int, Axis]]
    first: torch.Tensor
    place: torch.Tensor

    def tensor(self, values: torch.Tensor) -> Tensor:
        """The result, whose axes stand where they stood."""
        return assemble(self.call.x, values, self.axes, self.call.x.order)


def settled(x: Tensor) -> Tensor:
    """x with 0 in rows that are undefined, so that no gradient comes through them."""
    return x if x.structure.is_exact else x._with(zeroed(x.values, x.structure))


def along(x: Any, axis: Any) -> Along:
    """The call along `axis` of `x`."""
    tensor = as_tensor(x)
    return Along(tensor, tensor._axis(axis))


# ------------------------------------------------------------------------------------------------ order of elements


def ordered(values: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """int64 numbers that compare as the elements do, NaN the greatest; and whether they fit int33."""
    values = values.detach()
    if values.is_complex():
        raise TypeError(f"complex elements have no order, got {values.dtype}")
    if not values.is_floating_point():
        return comparable(values).to(torch.int64), values.dtype.itemsize <= 4
    narrow = values.dtype.itemsize <= 4
    whole = torch.int32 if narrow else torch.int64
    most = torch.iinfo(whole).max
    plus = values.to(torch.float32 if narrow else torch.float64) + 0.0  # This turns -0.0 into 0.0.
    bits = plus.view(whole)
    return torch.where(plus.isnan(), most, torch.where(bits < 0, bits ^ most, bits)).to(torch.int64), narrow


def tagged(keys: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """Keys that fit 33 bits, with the number of the group in the bits above, so that one comparison looks at both."""
    return (keys + 2**31) + (group << 33).view(-1, *[1] * (keys.ndim - 1))


def sort_rows(keys: torch.Tensor, narrow: bool, group: torch.Tensor, groups: int) -> torch.Tensor:
    """For each feature, the rows in the order of their group, then of their `keys`, and else as they lie."""
    if narrow and groups <= MOST_TAGS:
        return _argsort(tagged(keys, group), 0)
    by_key = _argsort(keys, 0)
    return by_key.gather(0, _argsort(group[by_key], 0))


def _argsort(keys: torch.Tensor, dim: int) -> torch.Tensor:
    """A stable argsort along a dimension, which is made the innermost one, since torch sorts that fastest."""
    return torch.sort(keys.movedim(dim, -1).contiguous(), dim=-1, stable=True).indices.movedim(-1, dim)


def pick(values: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """What `values.gather` gives, for every dtype."""
    if values.dtype in WIDE:
        return values.to(torch.int64).gather(dim, index).to(values.dtype)
    return values.gather(dim, index)
