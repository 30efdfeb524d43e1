"""Selection: which cells of a structure to keep, axis by axis, and the structure and source rows that gives.

Every way of indexing, padding and truncating comes down to one walk over the nest. Going inwards, the walk knows for
each cell of the result the cell it comes from: a contiguous `range` as long as that holds (then the result is a view),
else an index tensor, in which −1 means "comes from nowhere, fill it". Each kind of selection says for its axis what
level it leaves (`level`) and where its cells come from (`source`).

Levels are worked out where the offsets live (`structure.home`); only the last step, the rows of the values, runs on the
values' device. So a batch whose offsets the host knows stays one whose offsets the host knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from serrate.tensor import host
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import Axis, Nest, Ragged, Structure, step_into

Cells = range | torch.Tensor


@dataclass(frozen=True)
class Whole:
    """All positions of the axis, in order."""

    drop = False

    def level(self, at: _Place) -> int | Partition:
        if isinstance(at.old, int):
            return at.old
        if isinstance(at.outer, range):
            return at.old.slice(at.outer.start, at.outer.stop)
        return at.old.take(at.outer, capacity=at.old.num_values if at.once else None)

    def source(self, at: _Place, device: torch.device) -> Cells:
        if isinstance(at.outer, range):
            if isinstance(at.old, int):
                return range(at.outer.start * at.old, at.outer.stop * at.old)
            return range(*at.old.span(at.outer.start, at.outer.stop))
        if isinstance(at.old, int):
            return at.on_grid(torch.arange(at.old, device=device))
        return at.on_rows(at.new_partition, device)


@dataclass(frozen=True)
class Span:
    """Positions start .. stop of a uniform axis, or of every row; `drop` removes the axis, as an integer index does."""

    start: int
    stop: int
    drop: bool = False

    def level(self, at: _Place) -> int | Partition:
        if isinstance(at.old, Partition):
            at.check_reach(torch.tensor([self.start, self.stop - 1]) if self.stop > self.start else torch.zeros(0))
        return self.stop - self.start

    def source(self, at: _Place, device: torch.device) -> Cells:
        if isinstance(at.outer, range):
            if isinstance(at.old, int) and (len(at.outer) == 1 or self.stop - self.start == at.old):
                first = at.outer.start * at.old + self.start
                return range(first, first + len(at.outer) * (self.stop - self.start))
            if isinstance(at.old, Partition) and len(at.outer) == 1 and self.start >= 0:
                first, _ = at.old.span(at.outer.start, at.outer.stop)
                return range(first + self.start, first + self.stop)
        return at.on_grid(torch.arange(self.start, self.stop, device=device))


@dataclass(frozen=True)
class Pick:
    """The same positions of every row, negative ones from its end: the axis becomes uniform."""

    index: torch.Tensor  # [m] int64
    drop: bool = False

    def level(self, at: _Place) -> int | Partition:
        at.check_reach(self.index)
        return self.index.numel()

    def source(self, at: _Place, device: torch.device) -> Cells:
        return at.on_grid(host.send(self.index, device))


@dataclass(frozen=True)
class Cut:
    """A Python slice of every row of a ragged axis, clipped to that row."""

    slice: slice
    drop = False

    def _bounds(self, at: _Place, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Per component of the axis's own partition: first position, and number of positions."""
        lengths = at.own.lengths_on(device).to(torch.int64)
        step = 1 if self.slice.step is None else int(self.slice.step)
        low, high = (torch.zeros_like(lengths), lengths) if step > 0 else (lengths - lengths - 1, lengths - 1)

        def bound(given: int | None, default: torch.Tensor) -> torch.Tensor:
            if given is None:
                return default
            return torch.clamp(lengths + given if given < 0 else torch.full_like(lengths, given), low, high)

        start = bound(self.slice.start, low if step > 0 else high)
        stop = bound(self.slice.stop, high if step > 0 else low)
        count = (stop - start + (step - 1 if step > 0 else step + 1)).div(step, rounding_mode="floor")
        return start, count.clamp(min=0), step

    def _at_most(self) -> int | None:
        """The most positions any row keeps, where the slice alone says so."""
        start: int = self.slice.start or 0
        stop: int | None = self.slice.stop
        step: int = self.slice.step or 1
        if stop is None or step < 0 or (start < 0) != (stop < 0):
            return None
        return max(0, -((start - stop) // step))

    def level(self, at: _Place) -> int | Partition:
        _, count, _ = self._bounds(at, at.home)
        most = self._at_most()
        outer_cells = len(at.outer) if isinstance(at.outer, range) else at.outer.numel()
        capacity = at.old_partition.num_values if at.once else None
        if most is not None:
            capacity = most * outer_cells if capacity is None else min(capacity, most * outer_cells)
        missing = at.missing(at.home)
        lengths = count[at.component(at.home)] if count.numel() else count
        return at.own.with_lengths(
            lengths if missing is None else torch.where(missing, 0, lengths), capacity=capacity, bound=most
        )

    def source(self, at: _Place, device: torch.device) -> Cells:
        start, _, step = self._bounds(at, device)
        first = start[at.component(device)] if start.numel() else start
        if isinstance(at.outer, range) and len(at.outer) == 1 and step == 1 and at.own.is_host_born:
            begin = at.old_partition.span(at.outer.start, at.outer.stop)[0] + int(first)
            return range(begin, begin + at.new_partition.num_values)
        return at.on_rows(at.new_partition, device, first, step)


@dataclass(frozen=True)
class Pad:
    """The first `size` positions of every row, missing ones filled: the axis becomes uniform."""

    size: int
    drop = False

    def level(self, at: _Place) -> int | Partition:
        return self.size

    def source(self, at: _Place, device: torch.device) -> Cells:
        positions = torch.arange(self.size, device=device)
        if at.own.num_components == 0:
            return positions.new_zeros(0)
        lengths = at.own.lengths_on(device).to(torch.int64)[at.component(device)]
        return torch.where(positions < lengths[:, None], at.on_grid(positions).view(-1, self.size), -1).flatten()


@dataclass(frozen=True)
class Keep:
    """The positions of each row where a mask over the nest holds; structure outside is kept."""

    mask: torch.Tensor  # [cells of the nest up to this axis] bool
    drop = False
    replaces_parents = True

    def _held(self, at: _Place) -> torch.Tensor:
        mask = self.mask
        if not at.old_partition.is_host_born:  # cells past the last offset are no part of the tensor
            cells = torch.arange(mask.numel(), device=mask.device)
            mask = mask & (cells < at.old_partition.offsets_on(mask.device)[-1])
        return mask

    def level(self, at: _Place) -> int | Partition:
        old = at.old_partition
        before = torch.zeros(self.mask.numel() + 1, dtype=torch.int64, device=self.mask.device)
        torch.cumsum(self._held(at), 0, out=before[1:])
        offsets = before[old.offsets_on(self.mask.device).to(torch.int64)]
        lengths = torch.diff(offsets)
        return old.with_lengths(lengths if old.home == lengths.device else host.read(lengths, "filtering by a mask"))

    def source(self, at: _Place, device: torch.device) -> Cells:
        return host.send(self._held(at).nonzero().flatten(), device)


@dataclass(frozen=True)
class Gather:
    """Positions of each row that a ragged index names; the index's ragged axis takes the place of this one."""

    partition: Partition  # one component per outer cell
    index: torch.Tensor  # [N of that partition] int64
    drop = False
    replaces_parents = True

    def level(self, at: _Place) -> int | Partition:
        return self.partition

    def source(self, at: _Place, device: torch.device) -> Cells:
        rows = self.partition.row_ids_on(device)
        index = host.send(self.index, device)
        lengths = at.old_partition.lengths_on(device).to(torch.int64)
        if lengths.numel() == 0:
            return index
        have = lengths[rows]
        wrapped = torch.where(index < 0, index + have, index)

        def error(i: int) -> IndexError:
            return IndexError(
                f"index {int(index[i])} is out of range for row {int(rows[i])} with {int(have[i])} entries"
            )

        bad = (wrapped < 0) | (wrapped >= have)
        if not self.partition.is_host_born:
            bad &= torch.arange(bad.numel(), device=device) < self.partition.offsets_on(device)[-1]
        host.defer(host.first_fault(bad), error)
        return step_into(at.old, rows, torch.minimum(wrapped.clamp(min=0), (have - 1).clamp(min=0)))


@dataclass(frozen=True)
class Remap:
    """Every row rearranged by one rule: position r of the new row is position `rule(r, old length)` of the old one."""

    partition: Partition  # the axis's partition afterwards, on the same parents
    rule: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    drop = False

    def level(self, at: _Place) -> int | Partition:
        return self.partition if at.is_own else self.partition.take(at.component(at.home))

    def source(self, at: _Place, device: torch.device) -> Cells:
        new, old = at.new_partition, at.old_partition
        rows, positions = new.row_ids_on(device), new.positions_on(device)
        if old.num_components == 0:
            return positions
        have = old.lengths_on(device).to(torch.int64)[rows]
        cells = step_into(old, rows, self.rule(positions, have))
        return cells if new.is_host_born else cells.clamp(0, max(old.num_values - 1, 0))


Selection = Whole | Remap | Span | Pick | Cut | Pad | Keep | Gather
WHOLE = Whole()


@dataclass
class _Place:
    """One axis in the walk: what a selection may ask about where it stands."""

    plan: Plan
    nest: Nest
    outer: Cells  # for each new cell of the nest outside, the old one; on `home` if it is a tensor
    old: int | Partition
    once: bool  # no old outer cell is used twice, so the result cannot outgrow the original

    @property
    def home(self) -> torch.device:
        return self.plan.structure.home

    @property
    def own(self) -> Partition:
        """The partition of the axis itself; `old` is the same expanded over the whole nest outside."""
        axis = self.plan.structure.axes[self.nest[-1]]
        assert isinstance(axis, Ragged)
        return axis.partition

    @property
    def is_own(self) -> bool:
        """Whether the nest outside is just the axis's parents, all of their cells kept."""
        axis = self.plan.structure.axes[self.nest[-1]]
        whole = isinstance(self.outer, range) and len(self.outer) == self.own.num_components
        return whole and isinstance(axis, Ragged) and axis.parents == self.nest[:-1]

    @property
    def old_partition(self) -> Partition:
        assert isinstance(self.old, Partition)
        return self.old

    @property
    def new_partition(self) -> Partition:
        level = self.plan.level(self.nest)
        assert isinstance(level, Partition)
        return level

    def outer_cells(self, device: torch.device) -> torch.Tensor:
        if isinstance(self.outer, range):
            return torch.arange(self.outer.start, self.outer.stop, device=device)
        return host.send(self.outer, device)

    def missing(self, device: torch.device) -> torch.Tensor | None:
        return host.send(self.outer, device) < 0 if isinstance(self.outer, torch.Tensor) and self.plan.fills else None

    def component(self, device: torch.device) -> torch.Tensor:
        """For each new outer cell the component of the axis's own partition."""
        cells = self.outer_cells(device).clamp(min=0)
        axis = self.plan.structure.axes[self.nest[-1]]
        assert isinstance(axis, Ragged)
        if axis.parents == self.nest[:-1]:
            return cells
        return self.plan.structure.project(self.nest[:-1], axis.parents, device)[cells]

    def on_rows(
        self, new: Partition, device: torch.device, first: torch.Tensor | None = None, step: int = 1
    ) -> torch.Tensor:
        """Old cells of a ragged result: position r of new row i is position first[i] + step·r of the old row."""
        rows, positions = new.row_ids_on(device), new.positions_on(device)
        outer = self.outer_cells(device).clamp(min=0)
        if outer.numel() == 0 or self.old_partition.num_components == 0:
            return positions[:0]
        along = positions * step if first is None else first[rows] + positions * step
        cells = step_into(self.old, outer[rows], along)
        if not new.is_host_born:  # cells past the last offset hold anything, but must lie inside
            cells = cells.clamp(0, max(self.old_partition.num_values - 1, 0))
        return cells

    def on_grid(self, positions: torch.Tensor) -> torch.Tensor:
        """Old cells of a uniform result: the same `positions` in every row, negative ones from its end."""
        outer = self.outer_cells(positions.device)
        if outer.numel() == 0:
            return positions.new_zeros(0)
        rows = outer.clamp(min=0)[:, None]
        if isinstance(self.old, int):
            cells = rows * self.old + torch.where(positions < 0, positions + self.old, positions)
        else:
            lengths = self.old.lengths_on(positions.device).to(torch.int64)[rows]
            cells = step_into(self.old, rows, torch.where(positions < 0, positions + lengths, positions))
            cells = cells.clamp(0, max(self.old.num_values - 1, 0))
        missing = self.missing(positions.device)
        return (cells if missing is None else torch.where(missing[:, None], -1, cells)).flatten()

    def check_reach(self, index: torch.Tensor) -> None:
        """An IndexError, naming the first row that lacks one of these positions."""
        if index.numel() == 0:
            return
        if isinstance(self.old, int):
            size = self.old

            def error(i: int) -> IndexError:
                return IndexError(f"index {int(index[i])} is out of range for an axis of size {size}")

            host.defer(host.first_fault((index < -size) | (index >= size)), error)
            return
        cells = self.outer_cells(self.home)
        if cells.numel() == 0:
            return
        lengths = self.old.lengths_on(self.home).to(torch.int64)[cells.clamp(min=0)]
        low, high = int(index.min()), int(index.max())
        lacking = (lengths < -low) | (lengths <= high)
        missing = self.missing(self.home)
        lacking = lacking if missing is None else lacking & ~missing

        def row_error(i: int) -> IndexError:
            have = int(lengths[i])
            wanted = high if have <= high else low
            return IndexError(f"index {wanted} is out of range for row {int(cells[i])} with {have} entries")

        host.defer(host.first_fault(lacking), row_error)


@dataclass
class Plan:
    """What selecting on some axes of a structure gives: new levels, and for each new cell the old one."""

    structure: Structure
    selections: Mapping[int, Selection]
    _levels: dict[Nest, int | Partition] = field(default_factory=dict)
    _sources: dict[tuple[Nest, torch.device], Cells] = field(default_factory=dict)

    @property
    def fills(self) -> bool:
        """Whether some result cells may come from nowhere."""
        return any(isinstance(selection, Pad) for selection in self.selections.values())

    def level(self, nest: Nest) -> int | Partition:
        """The new level of `nest`."""
        found = self._levels.get(nest)
        if found is None:
            found = self._levels[nest] = self._selection(nest).level(self._place(nest))
        return found

    def source(self, nest: Nest, device: torch.device) -> Cells:
        """For each new cell of `nest` the old one."""
        if not nest:
            return range(1)
        found = self._sources.get((nest, device))
        if found is None:
            self.level(nest)  # checks bounds before anything is read
            found = self._sources[nest, device] = self._selection(nest).source(self._place(nest), device)
        return found

    def _selection(self, nest: Nest) -> Selection:
        return self.selections.get(nest[-1], WHOLE)

    def _place(self, nest: Nest) -> _Place:
        once = not any(isinstance(self.selections.get(axis), Pick) for axis in nest[:-1])
        return _Place(self, nest, self.source(nest[:-1], self.structure.home), self.structure.level(nest), once)

    def result(self) -> list[tuple[int, Axis]]:
        """The axes that remain, each with the number it had; parents of a ragged one count the remaining axes."""
        parents: dict[int, Nest] = {}
        for number, axis in enumerate(self.structure.axes):
            if isinstance(axis, Ragged):
                replaced = getattr(self.selections.get(number), "replaces_parents", False)
                own = tuple(range(number)) if replaced else axis.parents
                closed = all(set(parents.get(p, ())) <= set(own) for p in own)
                parents[number] = own if closed else tuple(range(number))
        remaining = [n for n in self.structure.whole if not self.selections.get(n, WHOLE).drop]
        result: list[tuple[int, Axis]] = []
        for number in remaining:
            level = self.level((*parents.get(number, tuple(range(number))), number))
            if isinstance(level, Partition):
                kept = tuple(remaining.index(p) for p in parents[number] if p in remaining)
                result.append((number, Ragged(level, kept) if kept else level.total))
            else:
                result.append((number, level))
        return result


def rows(values: torch.Tensor, cells: Cells, fill: bool | int | float | complex | None = None) -> torch.Tensor:
    """The rows of `values` at `cells`: a view for a range, else a copy, with `fill` where a cell is −1."""
    if isinstance(cells, range):
        return values if len(cells) == values.shape[0] else values.narrow(0, cells.start, len(cells))
    if fill is None:
        return values.index_select(0, cells)
    if values.shape[0] == 0:
        return values.new_full((cells.numel(), *values.shape[1:]), fill)
    found = values.index_select(0, cells.clamp(min=0))
    missing = (cells < 0).view(-1, *[1] * (values.ndim - 1))
    return torch.where(missing, torch.full((), fill, dtype=values.dtype, device=values.device), found)


def host_index(index: torch.Tensor, structure: Structure) -> torch.Tensor:
    """An index given on a device, brought to where the structure's offsets are worked on."""
    if index.device == structure.home:
        return index
    if structure.home == CPU:
        return host.read(index, "indexing rows by an index that lies on a device")
    return host.send(index, structure.home)
