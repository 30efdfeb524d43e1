"""This module moves rows: some rows of one tensor become some rows of another, and back.

Padding, packing, cutting rows off and putting them back are moves of whole rows. A move reads no row twice and writes
no row twice. So the gradient of a move is the move back, and every move can be differentiated any number of times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from serrate.compat.fbgemm.levels import Levels
from serrate.tensor import bits, host
from serrate.tensor.dense import grid_cells
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure


@dataclass(frozen=True, eq=False)
class Move:
    """A move makes row `read[i]` of `given` rows the row `write[i]` of `made` rows."""

    given: int
    made: int
    entries: int
    """The length of `read` and `write`: this many rows move, or fewer if `valid` says so."""
    read: torch.Tensor | None = None
    """The rows that are read. None means the first rows, in order."""
    write: torch.Tensor | None = None
    """The rows that are written. None means the first rows, in order."""
    valid: torch.Tensor | None = None
    """Which entries move, if only the device knows this. None means that all entries move."""

    @property
    def back(self) -> Move:
        """The move in the other direction."""
        return Move(self.made, self.given, self.entries, self.write, self.read, self.valid)

    @property
    def is_onto(self) -> bool:
        """Whether every row of the result is known to be a moved row, so that there is no padding."""
        return self.valid is None and self.entries == self.made

    def __call__(self, values: torch.Tensor, padding: Any = 0) -> torch.Tensor:
        """Return the `made` rows: the rows of `values` that move there, else `padding`. It is no view of `values`."""
        return _Moved.call(values, self, padding)

    def clear(self, values: torch.Tensor) -> torch.Tensor:
        """Return `values`, which have `made` rows; rows to which no row moves are set to 0, in place."""
        if self.is_onto:
            return values
        if self.valid is not None:
            return values.masked_fill_(~_meeting(self.valid, values), 0)
        if self.write is None:
            values[self.entries :].zero_()
            return values
        hit = torch.ones(self.made, dtype=torch.bool, device=values.device).index_fill_(0, self.write, False)
        return values.index_fill_(0, hit.nonzero().flatten(), 0)

    def compute(self, values: torch.Tensor, padding: Any) -> torch.Tensor:
        """Return the `made` rows, without a gradient."""
        if self.valid is not None:
            return self._masked(values, self.valid, padding)
        moved = values if self.entries == self.given else values[: self.entries]
        moved = moved if self.read is None else bits.take(values, self.read)
        if self.write is not None:
            return bits.padded(self.made, self.write, moved, padding)
        bits.constant(padding, values.dtype, values.device)  # a wrong padding is an error, even if none is needed
        if self.entries == self.made:
            return moved.clone(memory_format=torch.contiguous_format) if self.read is None else moved
        return bits.padded(self.made, torch.arange(self.entries, device=values.device), moved, padding)

    def _masked(self, values: torch.Tensor, valid: torch.Tensor, padding: Any) -> torch.Tensor:
        """Do the same if only the device knows which entries move; the others read row 0 and write past the end."""
        shape = (self.made, *values.shape[1:])
        filling = bits.constant(padding, values.dtype, values.device)
        if not self.given or not self.entries:
            return filling.expand(shape).clone()
        moved = values if self.read is None else bits.take(values, torch.where(valid, self.read, 0))
        if self.write is None:
            return bits.where(_meeting(valid, moved), moved, filling)
        place = torch.where(valid, self.write, self.made)
        return bits.padded(self.made + 1, place, moved, padding)[: self.made]


class _Moved(Differentiable):
    @staticmethod
    def forward(values: torch.Tensor, move: Move, padding: Any) -> torch.Tensor:
        return move.compute(values, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.move = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.move.back(gradient), None, None


def _meeting(valid: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return valid.view(-1, *[1] * (values.ndim - 1))


# ------------------------------------------------------------------------------------------------ moves to a grid


def longest(level: Partition) -> int:
    """Return the length of the longest component of a level that the host knows."""
    offsets = host.array(level.offsets)
    return int((offsets[1:] - offsets[:-1]).max(initial=0))


def to_grid(levels: Levels, sizes: Sequence[int], rows: int) -> Move:
    """Return the move from `rows` packed rows to a dense grid [B, *sizes]; rows that do not fit do not move."""
    cells = math.prod(sizes, start=levels[0].num_components)
    if not all(p.is_host_born for p in levels):
        return _to_grid_on_device(levels, sizes, rows, cells)
    place, inside = _host_cells(levels, sizes)
    if inside is not None:
        kept = np.flatnonzero(inside)
        return Move(rows, cells, kept.size, torch.from_numpy(kept), torch.from_numpy(place[kept]))
    # If there are as many rows as cells, every row keeps its place, since no two rows share a cell.
    return Move(rows, cells, place.size, None, None if place.size == cells else torch.from_numpy(place))


def _host_cells(levels: Levels, sizes: Sequence[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Return for each packed row its cell in the grid, and which rows have a cell; None means that all have one."""
    cells: np.ndarray[Any, Any] = np.arange(levels[0].num_components)
    inside: np.ndarray[Any, Any] | None = None
    for level, size in zip(levels, sizes, strict=True):
        offsets = host.array(level.offsets).astype(np.int64, copy=False)
        starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
        row = np.arange(level.num_values)
        outer = cells * size
        outer -= starts
        cells = np.repeat(outer, lengths)
        cells += row
        if inside is not None or lengths.max(initial=0) > size:
            near = row - np.repeat(starts, lengths) < size
            inside = near if inside is None else np.repeat(inside, lengths) & near
    return cells, inside


def _to_grid_on_device(levels: Levels, sizes: Sequence[int], rows: int, cells: int) -> Move:
    axes: list[Axis] = [levels[0].num_components, *(Ragged(p, range(i + 1)) for i, p in enumerate(levels))]
    place = grid_cells(Structure(axes), (levels[0].num_components, *sizes), levels[0].home, cells)
    return Move(rows, cells, place.numel(), None, place, place < cells)


# -------------------------------------------------------------------------- moves of the first rows of components


def first_rows(level: Partition, most: int, rows: int) -> tuple[Partition, Move]:
    """Return a level of the first `most` rows of each component, and the move from `rows` rows to these rows."""
    if not level.is_host_born:
        return _first_rows_on_device(level, most, rows)
    if longest(level) <= most:
        return level, Move(rows, level.num_values, level.num_values)
    offsets = host.array(level.offsets)
    lengths = np.minimum(offsets[1:] - offsets[:-1], most)
    ends = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    total = int(ends[-1])
    kept = np.repeat(offsets[:-1] - ends[:-1], lengths) + np.arange(total)
    return Partition._of(torch.from_numpy(ends), total), Move(rows, total, total, torch.from_numpy(kept))


def _first_rows_on_device(level: Partition, most: int, rows: int) -> tuple[Partition, Move]:
    """Return the same for a level that the host does not know.

    The host does not know how many rows are left. So there are as many rows as before, and the rows past the last
    offset are undefined.
    """
    cut = level.with_lengths(level.lengths.to(torch.int64).clamp(max=most), capacity=rows, bound=most)
    here = level.home
    count = cut.num_values
    valid = torch.arange(count, device=here) < cut.offsets[-1]
    kept = cut.spread(level.offsets[:-1].to(torch.int64)) + cut.positions_on(here)
    return cut, Move(rows, count, count, kept, None, valid)
