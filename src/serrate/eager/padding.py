"""From packed to padded and back by compiled copies of whole rows: `to_dense`, `mask` and `from_dense` on the CPU."""

from __future__ import annotations

import math
from typing import Any

import torch

from serrate.native import padded as library
from serrate.native.loading import reads
from serrate.tensor import dense, unpad
from serrate.tensor.host import lasting_property
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor


def pads(x: Any, /, padding_value: Any = 0, max_lengths: Any = None, axis: Any = None) -> bool:
    """Whether compiled code pads this tensor: all of its ragged axes, whose rows lie in the memory of the CPU."""
    return axis is None and isinstance(x, Tensor) and x.is_ragged and reads(x.values) and library.is_there()


def to_dense(x: Tensor, /, padding_value: Any = 0, max_lengths: Any = None, axis: Any = None) -> Tensor:
    """`Tensor.to_dense` of tensors that `pads` accepts."""
    cut = x.structure.derived("cut", _Cut)
    if max_lengths is None:
        grid = cut.grid
        if cut.is_full:
            return dense.reshaped(x, grid, padding_value)
    else:
        sizes = dense.padded_sizes(x, dense.chosen_axes(x, axis), max_lengths)
        grid = tuple(axis if isinstance(axis, int) else sizes[c] for c, axis in enumerate(x.structure.axes))
    outer = cut.outer
    made = library.pad(x.values, cut.offsets(), grid[outer:], padding_value)
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
    if given.ndim != len(like.order) or like.order != tuple(range(given.ndim)):
        return None
    cut = like.structure.derived("cut", _Cut)
    made = library.unpad(given, cut.offsets(), cut.rows, padding_value)
    return None if made is None else Tensor(made, like.structure, like.order)


def _gather(given: torch.Tensor, structure: Structure, order: tuple[int, ...], padding_value: Any) -> torch.Tensor:
    """`dense.gather_from` by compiled code."""
    arranged = dense.arranged_as(given, structure, order)
    cut = structure.derived("cut", _Cut)
    grid = arranged.reshape(math.prod(arranged.shape[: cut.outer]), *arranged.shape[cut.outer :])
    made = library.unpad(grid, cut.offsets(), cut.rows, padding_value)
    return dense.gather_from(given, structure, order, padding_value) if made is None else made


class _Cut:
    """How the rows of a structure lie in a padded tensor. It is kept with the structure."""

    def __init__(self, structure: Structure) -> None:
        axes, whole = structure.axes, structure.whole
        self.structure = structure
        self.outer = next(c for c, axis in enumerate(axes) if isinstance(axis, Ragged))
        """How many uniform axes stand outermost."""
        self.levels = [structure.level(whole[: c + 1]) for c in range(self.outer, len(axes))]
        """For each axis behind them its partition, or its size."""
        last = self.levels[-1]
        assert isinstance(last, Partition)
        self.rows = last.num_values
        """How many rows there are, undefined ones included."""

    def offsets(self) -> list[torch.Tensor | None]:
        """The offsets of each level, None for a size; an error if they were written to."""
        return [level.offsets_on(CPU) if isinstance(level, Partition) else None for level in self.levels]

    @lasting_property
    def grid(self) -> tuple[int, ...]:
        """The sizes of the packed axes, each ragged one as long as its longest row, for which the host may wait."""
        return tuple(axis if isinstance(axis, int) else axis.partition.max_length for axis in self.structure.axes)

    @lasting_property
    def is_full(self) -> bool:
        """Whether each place of that grid has its row: all rows are equally long."""
        return self.structure.is_exact and math.prod(self.grid) == self.rows
