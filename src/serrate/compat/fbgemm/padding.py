"""This module pads packed rows, packs padded ones, and leaves out rows that do not count, for FBGEMM's functions.

On the CPU rows are copied by compiled code, several levels in one pass. Elsewhere, and where torch transforms what it
computes, they are tensors of Serrate, and padding is `x.to_dense`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from serrate.compat.fbgemm.levels import Levels, structure_of, tensor_of
from serrate.native import padded as library
from serrate.ops.record import TABLE
from serrate.tensor import dense, host, plan
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


def pad(values: torch.Tensor, levels: Levels, sizes: Sequence[int], padding: Any = 0) -> torch.Tensor:
    """Return [B, *sizes, …]: packed `values`, which the levels cut, and `padding` where a component has no row."""
    made = library.pad(values, [level.offsets for level in levels], sizes, padding) if _are_known(levels) else None
    if made is None:
        made = TABLE["Tensor.to_dense"].function(tensor_of(values, *levels), padding, list(sizes)).values
    return made


def unpad(padded: torch.Tensor, levels: Levels, rows: int) -> torch.Tensor:
    """Return `rows` packed rows of a padded tensor [B, *sizes, …]; rows that it does not hold are 0."""
    made = library.unpad(padded, [level.offsets for level in levels], rows) if _are_known(levels) else None
    if made is not None:
        return made
    return lengthened(dense.gather_from(padded, structure_of(*levels), tuple(range(padded.ndim)), 0), rows)


def are_held(levels: Levels, sizes: Sequence[int], rows: int) -> torch.Tensor:
    """Return for each of `rows` packed rows whether it has a place in a padded tensor [B, *sizes]."""
    grid = torch.ones((levels[0].num_components, *sizes), dtype=torch.bool, device=levels[0].home)
    return unpad(grid, levels, rows)


def lengthened(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Return `values` with rows of 0 behind them, `rows` in all."""
    missing = rows - values.shape[0]
    return values if not missing else torch.cat([values, values.new_zeros((missing, *values.shape[1:]))])


def _are_known(levels: Levels) -> bool:
    return all(level.is_host_born for level in levels)


# -------------------------------------------------------------------------------------- the first rows of components


def longest(level: Partition) -> int:
    """Return the length of the longest component of a level that the host knows."""
    offsets = host.array(level.offsets)
    return int((offsets[1:] - offsets[:-1]).max(initial=0))


def first_rows(values: torch.Tensor, level: Partition, most: int) -> Tensor:
    """Return the first `most` rows of each component as a tensor."""
    x = tensor_of(values, level)
    return x if level.is_host_born and longest(level) <= most else x[:, :most]


def put_back(made: Tensor, level: Partition, rows: int) -> torch.Tensor:
    """Return `rows` rows: those of `made`, which has the first rows of the components of a level, and 0 elsewhere."""
    (cut,) = made.partitions
    if cut is level and level.is_host_born:
        return lengthened(made.values, rows)
    device = made.device
    row, position = level.row_ids_on(device), level.positions_on(device)
    starts, lengths = (each.to(torch.int64)[row] for each in (cut.offsets_on(device)[:-1], cut.lengths_on(device)))
    inside = (position < lengths) & (torch.arange(row.numel(), device=device) < level.offsets_on(device)[-1])
    return lengthened(plan.take_or_fill(made.values, torch.where(inside, starts + position, -1), 0), rows)
