"""Selections: what to keep of one axis. Every way of indexing, padding and rearranging is one of these per axis.

Each kind says for its axis what level it leaves (`level`) and where its cells come from (`source`); the walk over the
axes is `serrate.tensor.plan`. `drop` says that the axis is removed afterwards; `copies`, how often an entry is taken at
most; `replaces_parents`, that the axis depends on all axes before it afterwards; `misses`, that some cells may come
from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from serrate.tensor import abstract, host
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import step_into

if TYPE_CHECKING:
    from serrate.tensor.plan import Place

Cells = range | torch.Tensor


class _Kind:
    drop: bool = False
    copies: int | None = 1
    replaces_parents: ClassVar[bool] = False

    @property
    def misses(self) -> bool:
        return False

    def starts(self, at: Place, device: torch.device) -> torch.Tensor | None:
        """For each new row the old cell it begins with, where each is a run of old cells in order; None otherwise."""
        return None


@dataclass(frozen=True)
class Whole(_Kind):
    """All positions of the axis, in order."""

    def level(self, at: Place) -> int | Partition:
        if isinstance(at.old, int):
            return at.old
        if isinstance(at.outer, range):
            return at.old.slice(at.outer.start, at.outer.stop)
        return at.old.take(at.outer, capacity=at.capacity)

    def source(self, at: Place, device: torch.device) -> Cells:
        if isinstance(at.outer, range):
            if isinstance(at.old, int):
                return range(at.outer.start * at.old, at.outer.stop * at.old)
            first, last = at.old.span(at.outer.start, at.outer.stop)
            return range(first, first + len(at.outer) * at.new if isinstance(at.new, int) else last)
        if isinstance(at.old, int):
            return at.on_grid(torch.arange(at.old, device=device))
        return at.on_rows(device)

    def starts(self, at: Place, device: torch.device) -> torch.Tensor | None:
        return None if isinstance(at.outer, range) else at.starts(device)


@dataclass(frozen=True)
class Span(_Kind):
    """Positions start .. stop of a uniform axis, or of every row; `drop` removes the axis, as an integer index does."""

    start: int
    stop: int
    drop: bool = False

    def level(self, at: Place) -> int | Partition:
        if isinstance(at.old, Partition):
            both = [self.start, self.stop - 1] if self.stop > self.start else []
            ends = torch.tensor(both, dtype=torch.int64, device=CPU)
            at.check_reach(host.send(ends, at.home))
        return self.stop - self.start

    def source(self, at: Place, device: torch.device) -> Cells:
        if isinstance(at.outer, range):
            if isinstance(at.old, int) and (len(at.outer) == 1 or self.stop - self.start == at.old):
                first = at.outer.start * at.old + self.start
                return range(first, first + len(at.outer) * (self.stop - self.start))
            if isinstance(at.old, Partition) and len(at.outer) == 1 and self.start >= 0:
                first, _ = at.old.span(at.outer.start, at.outer.stop)
                if first + self.stop <= at.old.num_values:  # If the row is too short, a later call may raise the error.
                    return range(first + self.start, first + self.stop)
        return at.on_grid(torch.arange(self.start, self.stop, device=device))


@dataclass(frozen=True)
class Pick(_Kind):
    """The same positions of every row, negative ones from its end: the axis becomes uniform."""

    index: torch.Tensor  # [m] int64
    drop: bool = False
    copies: int | None = None

    def level(self, at: Place) -> int | Partition:
        at.check_reach(self.index)
        return self.index.numel()

    def source(self, at: Place, device: torch.device) -> Cells:
        old, outer = at.old, at.outer
        if (
            self.drop
            and isinstance(outer, range)
            and len(outer) == 1
            and isinstance(old, Partition)
            and old.is_host_born
        ):
            first, last = old.span(outer.start, outer.stop)  # One entry of one row is a view.
            cell = int(self.index) + (last if self.index < 0 else first)
            return range(cell, cell + 1)
        return at.on_grid(host.send(self.index, device))


@dataclass(frozen=True)
class Cut(_Kind):
    """A Python slice of every row of a ragged axis, clipped to that row."""

    slice: slice

    @property
    def _step(self) -> int:
        return 1 if self.slice.step is None else int(self.slice.step)

    def _bounds(self, lengths: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """For rows of these lengths, the first position, and how many positions there are; None if all begin at 0."""
        start, stop, step = self.slice.start, self.slice.stop, self._step
        if step == 1 and not start and (stop is None or stop >= 0):
            return None, lengths if stop is None else lengths.clamp(max=stop)
        low, high = (0, lengths) if step > 0 else (-1, lengths - 1)

        def bound(given: int | None, default: int | torch.Tensor) -> int | torch.Tensor:
            if given is None:
                return default
            return torch.minimum(
                (lengths + given if given < 0 else torch.full_like(lengths, given)).clamp(min=low), high
            )

        first = bound(start, low if step > 0 else high)
        last = bound(stop, high if step > 0 else low)
        span = (last - first if step > 0 else first - last) + (abs(step) - 1)
        assert isinstance(span, torch.Tensor)
        count = span.clamp(min=0) if abs(step) == 1 else span.clamp(min=0).div(abs(step), rounding_mode="floor")
        return first if isinstance(first, torch.Tensor) else torch.full_like(lengths, first), count

    def _at_most(self) -> int | None:
        """The most positions any row keeps, where the slice alone says so."""
        start: int = self.slice.start or 0
        stop: int | None = self.slice.stop
        step: int = self.slice.step or 1
        if stop is None and start < 0 < step:
            stop = 0
        if stop is None or step < 0 or (start < 0 < stop) or (stop < 0 <= start):
            return None
        return max(0, -((start - stop) // step))

    def _name(self) -> tuple[Any, ...]:
        """The name of the lengths that the slice leaves; slices that leave equal lengths have one name."""
        start, stop, step = self.slice.start or 0, self.slice.stop, self._step
        if step == 1 and (stop is None or start == 0):
            if (start >= 0) if stop is None else (stop < 0):
                return "shortened", start if stop is None else -stop
            return "at_most", -start if stop is None else stop
        return "cut", slice(start, stop, step)

    def level(self, at: Place) -> int | Partition:
        if at.is_own and self.slice.start is None and self.slice.stop is None and abs(self._step) == 1:
            return at.own  # Every row is kept as a whole, perhaps reversed.
        _, count = self._bounds(at.own.lengths_on(at.home).to(torch.int64))
        most = self._at_most()
        outer_cells = len(at.outer) if isinstance(at.outer, range) else at.outer.numel()
        capacity = at.capacity
        if most is not None and not at.plan.ends_uniform(at.nest[-1]):
            capacity = most * outer_cells if capacity is None else abstract.least(capacity, most * outer_cells)
        missing = at.missing(at.home)
        lengths = at.of_component(count)
        return at.own.with_lengths(
            lengths if missing is None else torch.where(missing, 0, lengths),
            capacity=capacity,
            bound=most,
            name=self._name() if abstract.current() is not None and at.is_own else (),
        )

    def source(self, at: Place, device: torch.device) -> Cells:
        start, _ = self._bounds(at.own.lengths_on(device).to(torch.int64))
        first = None if start is None else at.of_component(start)
        if isinstance(at.outer, range) and len(at.outer) == 1 and self._step == 1 and at.own.is_host_born:
            begin = at.old_partition.span(at.outer.start, at.outer.stop)[0] + (0 if first is None else int(first))
            return range(begin, begin + (at.new if isinstance(at.new, int) else at.new.num_values))
        return at.on_rows(device, first, self._step)

    def starts(self, at: Place, device: torch.device) -> torch.Tensor | None:
        if self._step != 1 or (isinstance(at.outer, range) and len(at.outer) == 1):
            return None
        start, _ = self._bounds(at.own.lengths_on(device).to(torch.int64))
        return at.starts(device, None if start is None else at.of_component(start))


@dataclass(frozen=True)
class Pad(_Kind):
    """The first `size` positions of every row, missing ones filled: the axis becomes uniform."""

    size: int

    @property
    def misses(self) -> bool:
        return True

    def level(self, at: Place) -> int | Partition:
        return self.size

    def source(self, at: Place, device: torch.device) -> Cells:
        positions = torch.arange(self.size, device=device)
        if at.old_partition.num_components == 0:  # There is no old row, so all is padding.
            return torch.full((at.outer_cells(device).numel() * self.size,), -1, device=device)
        lengths = at.of_component(at.own.lengths_on(device).to(torch.int64))
        return torch.where(
            positions < lengths[:, None], at.on_grid(positions).view(lengths.numel(), self.size), -1
        ).flatten()


@dataclass(frozen=True)
class Keep(_Kind):
    """The positions of each row where a mask over the nest holds; structure outside is kept."""

    mask: torch.Tensor  # [cells of the nest up to this axis] bool
    replaces_parents = True

    def _held(self, at: Place) -> torch.Tensor:
        mask, old = self.mask, at.old_partition
        if not old.is_host_born:  # Cells past the last offset are no part of the tensor.
            cells = torch.arange(mask.numel(), device=mask.device)
            return mask & (cells < old.offsets_on(mask.device)[-1])
        # A mask may have room for more cells.
        return mask if mask.numel() <= old.num_values else mask[: old.num_values]

    def level(self, at: Place) -> int | Partition:
        old, held = at.old_partition, self._held(at)
        before = torch.zeros(held.numel() + 1, dtype=torch.int64, device=held.device)
        torch.cumsum(held, 0, out=before[1:])
        offsets = before[old.offsets_on(held.device).to(torch.int64)]
        lengths = torch.diff(offsets)
        return old.with_lengths(lengths if old.home == lengths.device else host.read(lengths, "filtering by a mask"))

    def source(self, at: Place, device: torch.device) -> Cells:
        return host.send(abstract.places(self._held(at), at.new_partition.num_values), device)


@dataclass(frozen=True)
class Gather(_Kind):
    """Positions of each row that a ragged index names; the index's ragged axis takes the place of this one."""

    partition: Partition  # It has one component per outer cell.
    index: torch.Tensor  # [N of that partition] int64
    copies = None
    replaces_parents = True

    @property
    def misses(self) -> bool:
        return not self.partition.is_host_born

    def level(self, at: Place) -> int | Partition:
        return self.partition

    def source(self, at: Place, device: torch.device) -> Cells:
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

        cells = step_into(at.old, rows, torch.minimum(wrapped.clamp(min=0), (have - 1).clamp(min=0)))
        bad = (wrapped < 0) | (wrapped >= have)
        if not self.partition.is_host_born:
            defined = torch.arange(bad.numel(), device=device) < self.partition.offsets_on(device)[-1]
            bad, cells = bad & defined, torch.where(defined, cells, -1)
        host.defer(host.first_fault(bad), error)
        return cells


@dataclass(frozen=True)
class Remap(_Kind):
    """Every row rearranged by one rule: position r of the new row is position `rule(r, old length)` of the old one."""

    partition: Partition  # The partition that the axis has afterwards, on the same parents.
    rule: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    copies: int = 1

    def level(self, at: Place) -> int | Partition:
        return self.partition if at.is_own else self.partition.take(at.component(at.home))

    def source(self, at: Place, device: torch.device) -> Cells:
        old, new = at.old_partition, at.new_partition
        rows, positions = new.row_ids_on(device), new.positions_on(device)
        if old.num_components == 0:
            return positions
        have = old.lengths_on(device).to(torch.int64)[rows]
        return at.only_defined(step_into(old, rows, self.rule(positions, have)))


Selection = Whole | Remap | Span | Pick | Cut | Pad | Keep | Gather
WHOLE = Whole()
