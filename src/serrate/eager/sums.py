"""Sums of packed rows, by runs of neighbours or by an index: as accurate on every device as torch's of dense rows.

On the CPU they are compiled (`serrate.native.row_sums`). Elsewhere, without a compiler, and where torch traces or
transforms what it computes, they are torch's sums: of blocks of neighbours first, then of these sums; by an index in
float64. Half types are added up in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
import torch.nn.functional as F

from serrate.eager.precision import ACCUMULATE, WAITING
from serrate.native import row_sums as library
from serrate.native.loading import transforming
from serrate.tensor.partition import Partition

_BLOCK = 16  # A block has so many rows.


def sum_of_runs(values: torch.Tensor, runs: Partition) -> torch.Tensor:
    """[K, …]: the sums of the rows of each component of values [N, …]; rows past the last offset are left out."""
    if values.dtype in library.NUMBERS:
        return _sum_of_runs(values, runs)
    return _in_numbers(lambda numbers: _sum_of_runs(numbers, runs), values)


def sum_by_index(values: torch.Tensor, index: torch.Tensor, cells: int) -> torch.Tensor:
    """[cells, …]: the sums of the rows of values [N, …] that have the same number in the index [N].

    Rows that have the number `cells`, one past the last, are left out.
    """
    return _in_numbers(lambda numbers: _sum_by_index(numbers, index, cells), values)


def sum_by_position(values: torch.Tensor, runs: Partition, cells: int) -> torch.Tensor | None:
    """[cells, …]: the sums of the rows that components have at the same position; None where it is not compiled."""
    if values.dtype in ACCUMULATE or values.is_complex():
        return None
    return library.sums_by_position(values, runs.offsets_on(values.device), cells)


def _in_numbers(function: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """`function` of values, which it is given as float32, float64 or integers, whatever their dtype is."""
    if values.is_complex():
        return torch.view_as_complex(function(torch.view_as_real(values.resolve_conj())))
    if values.dtype in ACCUMULATE:
        return function(values.to(ACCUMULATE[values.dtype])).to(values.dtype)
    return function(values)


def _sum_of_runs(values: torch.Tensor, runs: Partition) -> torch.Tensor:
    made = library.sums(values, runs.offsets_on(values.device))
    if made is not None:
        return made
    count, features = runs.num_components, values.shape[1:]
    if not features.numel() or not values.shape[0] or not count:
        return values.new_zeros((count, *features))
    level = runs.derived(("sums", values.device), lambda: _of(runs, values.device))
    return _by_blocks(values.reshape(values.shape[0], -1), level)[:count].view(count, *features)


def _sum_by_index(values: torch.Tensor, index: torch.Tensor, cells: int) -> torch.Tensor:
    made = library.sums_by_index(values, index, cells)
    if made is not None:
        return made
    wide = values.to(WAITING.get(values.dtype, values.dtype))
    base = wide.new_zeros((cells + 1, *values.shape[1:]))
    return base.index_add(0, index, wide)[:cells].to(values.dtype)


# ------------------------------------------------------------------------------------------------ blocks of neighbours


class _Cut:
    """Rows cut into runs, as torch's kernels take them. Rows past the last offset belong to the last run."""

    def __init__(self, offsets: torch.Tensor, rows: int) -> None:
        self.offsets, self.rows = offsets, rows

    @property
    def count(self) -> int:
        """How many runs there are."""
        return self.offsets.numel() - 1

    @cached_property
    def index(self) -> torch.Tensor:
        """For each row its run."""
        rows = torch.arange(self.rows, device=self.offsets.device)
        return torch.searchsorted(self.offsets[1:], rows, right=True).clamp(max=self.count - 1)

    def add(self, values: torch.Tensor) -> torch.Tensor:
        """The sums of the rows [rows, columns] of each run, one row after the other."""
        known = values.dtype == torch.float32 or (values.is_cuda and values.dtype == torch.float64)
        # This passes over the values once, at the speed of memory, but has no forward mode.
        if known and not transforming():
            rows = torch.arange(self.rows, device=values.device)
            return F.embedding_bag(rows, values, self.offsets, mode="sum", include_last_offset=True)
        return values.new_zeros((self.count, *values.shape[1:])).index_add(0, self.index, values)


class _Level:
    """Rows cut into components, of which none has more than `most`, and into blocks of these."""

    def __init__(self, offsets: torch.Tensor, rows: int, most: int) -> None:
        self.whole, self.most = _Cut(offsets, rows), most

    @cached_property
    def blocks(self) -> tuple[_Cut, _Level]:
        """Blocks of these rows, and how components cut the blocks."""
        starts, ends = blocks_of(self.whole.offsets, self.whole.rows, _BLOCK)
        return _Cut(starts, self.whole.rows), _Level(ends, starts.numel() - 1, -(-self.most // _BLOCK))


def blocks_of(offsets: torch.Tensor, rows: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 offsets of blocks of at most `size` rows of one component, and offsets that cut blocks into components.

    The host knows how many there may be; the last ones have no rows, and belong to no component.
    """
    count = offsets.numel() - 1
    ends = F.pad(torch.cumsum((torch.diff(offsets) + size - 1) // size, 0), (1, 0))
    blocks = torch.arange((rows + count * (size - 1)) // size + 1, device=offsets.device)
    component = torch.searchsorted(ends[1:], blocks, right=True).clamp(max=count - 1)
    starts = offsets[component] + (blocks - ends[component]) * size
    return torch.minimum(starts, offsets[-1]), ends


def _of(runs: Partition, device: torch.device) -> _Level:
    """The components of a partition, and one for the rows past its last offset if there may be some."""
    offsets = runs.offsets_on(device).to(torch.int64)
    if not runs.is_exact:
        offsets = F.pad(offsets, (0, 1), value=runs.num_values)
    return _Level(offsets, runs.num_values, runs.max_length_bound)


def _by_blocks(values: torch.Tensor, level: _Level) -> torch.Tensor:
    if level.most <= _BLOCK:
        return level.whole.add(values)
    blocks, rest = level.blocks
    parts = blocks.add(values)
    if parts.dtype == torch.float32:
        return rest.whole.add(parts.to(torch.float64)).to(torch.float32)
    return _by_blocks(parts, rest)
