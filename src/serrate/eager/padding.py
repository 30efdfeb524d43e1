"""From packed to padded and back by compiled copies of whole rows: `to_dense`, `mask` and `from_dense` on the CPU."""

from __future__ import annotations

import math
from typing import Any

import torch

from serrate.native import padded as library
from serrate.native.loading import reads
from serrate.tensor import dense, unpad
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor


def pads(x: Any, /, padding_value: Any = 0, max_lengths: Any = None, axis: Any = None) -> bool:
    """Whether compiled code pads this tensor: all of its ragged axes, whose rows lie in the memory of the CPU."""
    return axis is None and isinstance(x, Tensor) and x.is_ragged and reads(x.values) and library.is_there()


def to_dense(x: Tensor, /, padding_value: Any = 0, max_lengths: Any = None, axis: Any = None) -> Tensor:
    """`Tensor.to_dense` of tensors that `pads` accepts."""
    structure = x.structure
    sizes = dense.padded_sizes(x, dense.chosen_axes(x, axis), max_lengths)
    grid = [axis if isinstance(axis, int) else sizes[c] for c, axis in enumerate(structure.axes)]
    if max_lengths is None and structure.is_exact and math.prod(grid) == x.values.shape[0]:
        return dense.to_dense(x, padding_value)  # equal rows, which are copied at once
    outer, levels = _levels(structure)
    made = library.pad(x.values, levels, grid[outer:], padding_value)
    if made is None:
        return dense.to_dense(x, padding_value, max_lengths, axis)
    made = made if outer == 1 else made.view(*grid, *x.values.shape[1:])
    return type(x)(made if x.order == tuple(range(made.ndim)) else made.permute(x.order), DENSE, (), x.team)


def masks(x: Any, /, max_lengths: Any = None) -> bool:
    """Whether compiled code makes the mask of this tensor."""
    return pads(x)


def mask(x: Tensor, /, max_lengths: Any = None) -> Tensor:
    """`Tensor.mask` of tensors that `masks` accepts."""
    return to_dense(dense.present(x), False, max_lengths)


def packs(
    dense: Any, *, lengths: Any = None, offsets: Any = None, mask: Any = None, like: Any = None, padding_value: Any = 0
) -> bool:
    """Whether compiled code packs this padded tensor, which lies in the memory of the CPU."""
    given = dense.values if isinstance(dense, Tensor) and not dense.is_ragged else dense
    return mask is None and isinstance(given, torch.Tensor) and reads(given) and library.is_there()


def from_dense(
    dense: Any, *, lengths: Any = None, offsets: Any = None, mask: Any = None, like: Any = None, padding_value: Any = 0
) -> Tensor:
    """`sr.from_dense` of tensors that `packs` accepts."""
    made = _like(dense, like, padding_value) if lengths is None is offsets else None
    return unpad.packed_by(_gather, dense, lengths, offsets, mask, like, padding_value) if made is None else made


def _like(given: Any, like: Any, padding_value: Any) -> Tensor | None:
    """`from_dense(given, like=like)` of [B, r, …] in the order of storage at once; None for anything else."""
    if type(given) is not torch.Tensor or not isinstance(like, Tensor) or len(like.structure.axes) != 2:
        return None
    if given.ndim != like.ndim or like.order != tuple(range(given.ndim)):
        return None
    _, levels = _levels(like.structure)
    made = library.unpad(given, levels, like.partitions[0].num_values, padding_value)
    return None if made is None else Tensor(made, like.structure, like.order)


def _gather(given: torch.Tensor, structure: Structure, order: tuple[int, ...], padding_value: Any) -> torch.Tensor:
    """`dense.gather_from` by compiled code."""
    arranged = dense.arranged_as(given, structure, order)
    outer, levels = _levels(structure)
    grid = arranged.reshape(math.prod(arranged.shape[:outer]), *arranged.shape[outer:])
    last = structure.level(structure.whole)
    assert isinstance(last, Partition)
    made = library.unpad(grid, levels, last.num_values, padding_value)
    return dense.gather_from(given, structure, order, padding_value) if made is None else made


def _levels(structure: Structure) -> tuple[int, list[torch.Tensor | None]]:
    """How many uniform axes stand outermost, and for each axis behind them its offsets, None for a uniform one."""
    axes, whole = structure.axes, structure.whole
    if len(axes) == 2:
        return 1, [structure.partition_of(1).offsets_on(CPU)]
    outer = next(c for c, axis in enumerate(axes) if isinstance(axis, Ragged))
    levels: list[torch.Tensor | None] = []
    for c in range(outer, len(axes)):
        level = structure.level(whole[: c + 1])
        levels.append(level.offsets_on(CPU) if isinstance(level, Partition) else None)
    return outer, levels
