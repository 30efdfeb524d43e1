"""The walk that turns selections into a result: new levels, and for each cell of the result the cell it comes from.

Going inwards through the nest, the walk knows for each new cell the old one: a contiguous `range` as long as that holds
(then the result is a view), else an index tensor, in which −1 means "comes from nowhere, fill it".

Levels are worked out where the offsets live (`structure.home`); only the last step, the rows of the values, runs on the
values' device. So a batch whose offsets the host knows stays one whose offsets the host knows.

Where lengths were born on a device, a level has room for at least as many cells as are defined (`Structure.room` says
for how many), and a cell past the defined ones comes from nowhere. A level of one row, whose parents are all dropped,
is a size. The host has to know it, so it waits for the device, and no cell of such a level is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from serrate.tensor import abstract, bits, host
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.select import WHOLE, Cells, Pad, Selection
from serrate.tensor.structure import Axis, Nest, Ragged, Structure, step_into


@dataclass
class Place:
    """One axis in the walk: what a selection may ask about where it stands."""

    plan: Plan
    nest: Nest
    outer: Cells  # The old cell for each new cell of the nest outside; a tensor lies on `home`.
    old: int | Partition
    copies: int | None  # How often an old outer cell is used at most; None where only data tells.

    @property
    def home(self) -> torch.device:
        """Where levels are worked out."""
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
    def capacity(self) -> int | None:
        """The most cells that keeping whole rows can give; None where only the data tells, or a size is wanted."""
        if self.copies is None or self.plan.ends_uniform(self.nest[-1]):
            return None
        return self.old_partition.num_values * self.copies

    @property
    def old_partition(self) -> Partition:
        """`old`, known to be a partition."""
        assert isinstance(self.old, Partition)
        return self.old

    @property
    def new(self) -> int | Partition:
        """The new level."""
        return self.plan.level(self.nest)

    @property
    def new_partition(self) -> Partition:
        """`new`, known to be a partition: no axis is dropped."""
        assert isinstance(self.new, Partition)
        return self.new

    def outer_cells(self, device: torch.device) -> torch.Tensor:
        """`outer` as a tensor on `device`."""
        if isinstance(self.outer, range):
            return torch.arange(self.outer.start, self.outer.stop, device=device)
        return host.send(self.outer, device)

    def missing(self, device: torch.device) -> torch.Tensor | None:
        """Which new outer cells come from nowhere, or from an undefined old one; None if none can."""
        if not self.plan.misses:
            return None
        defined = self.plan.structure.defined_cells(self.nest[:-1])
        if isinstance(self.outer, torch.Tensor):
            cells = host.send(self.outer, device)
            return (cells < 0) | (cells >= defined)
        return None if isinstance(defined, int) else self.outer_cells(device) >= defined

    def component(self, device: torch.device) -> torch.Tensor:
        """For each new outer cell the component of the axis's own partition."""
        cells = self.outer_cells(device).clamp(min=0)
        axis = self.plan.structure.axes[self.nest[-1]]
        assert isinstance(axis, Ragged)
        if axis.parents == self.nest[:-1]:
            return cells
        own = self.plan.structure.project(self.nest[:-1], axis.parents, device)
        return own[cells] if own.numel() else cells  # Without old cells, every new cell is missing.

    def of_component(self, each: torch.Tensor) -> torch.Tensor:
        """A vector with an entry per component of the own partition, as one with an entry per new outer cell."""
        if self.is_own:
            return each
        component = self.component(each.device)
        return each[component] if each.numel() else each.new_zeros(component.numel())

    def spread(self, each: torch.Tensor) -> torch.Tensor:
        """A vector with an entry per new outer cell as one with an entry per new cell."""
        new = self.new
        return new.spread(each) if isinstance(new, Partition) else each.repeat_interleave(new)

    def starts(self, device: torch.device, first: torch.Tensor | None = None) -> torch.Tensor:
        """For each new row the old cell at position first[i] of its old row."""
        starts = self.old_partition.offsets_on(device)[:-1].to(torch.int64)
        if not (isinstance(self.outer, range) and len(self.outer) == self.old_partition.num_components):
            starts = starts[self.outer_cells(device).clamp(min=0)]
        return starts if first is None else starts + first

    def on_rows(self, device: torch.device, first: torch.Tensor | None = None, step: int = 1) -> torch.Tensor:
        """The old cells when position r of new row i is position first[i] + step·r of the old row."""
        old, new = self.old_partition, self.new
        rows = len(self.outer) if isinstance(self.outer, range) else self.outer.numel()
        count = new.num_values if isinstance(new, Partition) else rows * new
        if rows == 0 or old.num_components == 0:
            return torch.full((count,), -1, device=device)  # Without old rows, all new cells come from nowhere.
        starts = self.starts(device, first)
        # Cell i of new row c comes from starts[c] + step·(i − the first cell of c).
        firsts = new.offsets_on(device)[:-1] if isinstance(new, Partition) else torch.arange(rows, device=device) * new
        cells = torch.arange(count, device=device)
        return self.only_defined(self.spread(starts - firsts * step) + (cells if step == 1 else cells * step))

    def only_defined(self, cells: torch.Tensor) -> torch.Tensor:
        """Old cells, one per new cell: −1 for one that comes from nowhere, and all others brought into range."""
        missing = self.missing(cells.device)
        if missing is not None:
            cells = torch.where(self.spread(missing), -1, cells)
        if isinstance(self.new, int) or self.new.is_host_born:
            return cells
        defined = torch.arange(cells.numel(), device=cells.device) < self.new.offsets_on(cells.device)[-1]
        return torch.where(defined, cells.clamp(-1, max(self.old_partition.num_values - 1, -1)), -1)

    def on_grid(self, positions: torch.Tensor) -> torch.Tensor:
        """Old cells of a uniform result: the same `positions` in every row, negative ones from its end."""
        outer = self.outer_cells(positions.device)
        if outer.numel() == 0:
            return positions.new_zeros(0)
        if isinstance(self.old, Partition) and self.old.num_components == 0:
            return torch.full((outer.numel() * positions.numel(),), -1, device=positions.device)
        rows = outer.clamp(min=0)[:, None]
        if isinstance(self.old, int):
            cells = rows * self.old + torch.where(positions < 0, positions + self.old, positions)
            # A position outside of the axis is an error, but perhaps only a later call raises it.
            cells = cells.clamp(0, max(self.plan.structure.cells(self.nest) - 1, 0))
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
        have = self.old.lengths_on(self.home).to(torch.int64)
        lengths = have[cells.clamp(min=0)] if have.numel() else torch.zeros_like(cells)
        lacking = (lengths < -index.min()) | (lengths <= index.max())
        missing = self.missing(self.home)
        lacking = lacking if missing is None else lacking & ~missing

        def row_error(i: int) -> IndexError:
            have = int(lengths[i])
            wanted = next(k for k in index.tolist() if not -have <= k < have)
            return IndexError(f"index {wanted} is out of range for row {int(cells[i])} with {have} entries")

        host.defer(host.first_fault(lacking), row_error)


@dataclass
class Plan:
    """What selecting on some axes of a structure gives: new levels, and for each new cell the old one."""

    structure: Structure
    selections: Mapping[int, Selection]
    _levels: dict[int, int | Partition] = field(default_factory=dict)
    _structures: dict[int, Structure] = field(default_factory=dict)
    _sources: dict[tuple[Nest, torch.device], Cells] = field(default_factory=dict)

    @cached_property
    def misses(self) -> bool:
        """Whether some new cells may come from nowhere: padding, or what lies past the last device-born offset."""
        return any(s.misses for s in self.selections.values()) or not self.structure.is_host_born

    @cached_property
    def parents(self) -> dict[int, Nest]:
        """The parents of each ragged axis afterwards, by the old numbers."""
        parents: dict[int, Nest] = {}
        for number, axis in enumerate(self.structure.axes):
            if isinstance(axis, Ragged):
                own = tuple(range(number)) if self._selection(number).replaces_parents else axis.parents
                parents[number] = tuple(sorted({*own, *(q for p in own for q in parents.get(p, ()))}))
        return parents

    def _structure_after(self, last: int) -> Structure:
        """The new axes up to `last`, those to be dropped still there with size 1."""
        found = self._structures.get(last)
        if found is None:
            axes: list[Axis] = []
            for number in range(last + 1):
                level = self._own_level(number)
                axes.append(Ragged(level, self.parents[number]) if isinstance(level, Partition) else level)
            found = self._structures[last] = Structure(
                axes, self._capacity if last == len(self.structure.axes) - 1 else None
            )
        return found

    @property
    def _capacity(self) -> int | None:
        """The most rows the result can have, where the host knows."""
        before, copies = self.structure.capacity, self._copies(self.structure.whole)
        pads = any(isinstance(s, Pad) for s in self.selections.values())
        return None if before is None or copies is None or pads else before * copies

    def ends_uniform(self, number: int) -> bool:
        """Whether all parents of a ragged axis are dropped, which leaves it one row."""
        return all(self._selection(p).drop for p in self.parents[number])

    def _own_level(self, number: int) -> int | Partition:
        """The new level of one axis over its parents: a size, or its partition."""
        found = self._levels.get(number)
        if found is None:
            nest = (*self.parents.get(number, tuple(range(number))), number)
            found = self._selection(number).level(self._place(nest))
            if isinstance(found, Partition) and self.ends_uniform(number):
                found = found.total
            self._levels[number] = found
        return found

    def level(self, nest: Nest) -> int | Partition:
        """The new level of `nest`."""
        own = self._own_level(nest[-1])
        if isinstance(own, int) or self.parents[nest[-1]] == nest[:-1]:
            return own
        return self._structure_after(nest[-1]).level(nest)

    def source(self, nest: Nest, device: torch.device) -> Cells:
        """For each new cell of `nest` the old one."""
        if not nest:
            return range(1)
        found = self._sources.get((nest, device))
        if found is None:
            self._own_level(nest[-1])  # This checks bounds before anything is read.
            found = self._sources[nest, device] = self._selection(nest[-1]).source(self._place(nest), device)
        return found

    def runs(self, device: torch.device) -> tuple[torch.Tensor, Partition] | None:
        """For each new row of the innermost axis the old cell it begins with, and the new rows.

        None unless the result is a copy of such runs of old cells.
        """
        nest = self.structure.whole
        new = self.level(nest)  # checks bounds before anything is read
        if not isinstance(new, Partition):
            return None
        place = self._place(nest)
        if not isinstance(place.old, Partition) or not place.old.num_components:
            return None
        starts = self._selection(nest[-1]).starts(place, device)
        return None if starts is None else (starts, new)

    @property
    def repeats(self) -> bool:
        """Whether some old cell may become several new ones."""
        return self._copies(self.structure.whole) != 1

    def _selection(self, number: int) -> Selection:
        return self.selections.get(number, WHOLE)

    def _copies(self, nest: Nest) -> int | None:
        copies = 1
        for number in nest:
            times = self._selection(number).copies
            if times is None:
                return None
            copies *= times
        return copies

    def _place(self, nest: Nest) -> Place:
        outer = nest[:-1]
        return Place(
            self, nest, self.source(outer, self.structure.home), self.structure.level(nest), self._copies(outer)
        )

    def result(self) -> list[tuple[int, Axis]]:
        """The axes that remain, each with the number it had; parents of a ragged one count the remaining axes."""
        remaining = [n for n in self.structure.whole if not self._selection(n).drop]
        result: list[tuple[int, Axis]] = []
        for number in remaining:
            level = self._own_level(number)
            if isinstance(level, Partition):
                result.append(
                    (number, Ragged(level, [remaining.index(p) for p in self.parents[number] if p in remaining]))
                )
            else:
                result.append((number, level))
        return result

    def read(self, values: torch.Tensor, fill: bool | int | float | complex | None = None) -> torch.Tensor:
        """The rows of `values` that the new cells come from: a view of a range, else a copy, missing ones filled."""
        cells = self.source(self.structure.whole, values.device)
        if isinstance(cells, range):
            if len(cells) == values.shape[0]:
                return values
            if abstract.current() is not None:  # Where rows begin is no part of a type.
                return values.new_empty((len(cells), *values.shape[1:]))
            return values.narrow(0, cells.start, len(cells))
        # Without old rows every cell is out of range, and a later call may raise the error.
        misses = self.misses or values.shape[0] == 0
        return take_or_fill(values, cells, fill) if misses else bits.take(values, cells)


Reader = Callable[[Plan, torch.Tensor], torch.Tensor]


def read(walk: Plan, values: torch.Tensor) -> torch.Tensor:
    """What the selected rows hold."""
    return walk.read(values)


def number(walk: Plan, values: torch.Tensor) -> torch.Tensor:
    """Which rows are selected: their numbers, shaped like rows with features of size 1."""
    cells = walk.source(walk.structure.whole, values.device)
    if isinstance(cells, range):
        cells = torch.arange(cells.start, cells.stop, device=values.device)
    return cells.clamp(min=0).view(-1, *[1] * (values.ndim - 1))


def take_or_fill(
    values: torch.Tensor, cells: torch.Tensor, fill: bool | int | float | complex | None = None
) -> torch.Tensor:
    """The rows of `values` at `cells`. Where a cell is −1, a row holds `fill`, or anything, and has no gradient."""
    filling = bits.constant(0 if fill is None else fill, values.dtype, values.device)
    # Every cell is missing. One row, which is then read, keeps the result in the graph of gradients.
    if values.shape[0] == 0:
        values, cells = torch.cat([values, filling.expand(1, *values.shape[1:])]), torch.full_like(cells, -1)
    found = bits.take(values, cells.clamp(min=0))
    if fill is None and not found.requires_grad:
        return found
    missing = (cells < 0).view(-1, *[1] * (values.ndim - 1))
    return bits.where(missing, filling, found)


def host_index(index: torch.Tensor, structure: Structure) -> torch.Tensor:
    """An index on the device on which levels of the structure are worked out."""
    if index.device == structure.home:
        return index
    if structure.home == CPU:
        return host.read(index, "indexing rows by an index that lies on a device")
    return host.send(index, structure.home)
