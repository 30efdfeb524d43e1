"""Packed rows and the padded grid that they fit into: padding and packing, each the gradient of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.compat.fbgemm.moves import Move, longest, to_grid
from serrate.compat.fbgemm.structure import Levels
from serrate.native import padded as library


@dataclass(frozen=True, eq=False)
class Grid:
    """Packed rows and a dense grid [B, *sizes] that they fit into, or stay behind: `rows` rows, cut by `levels`."""

    levels: Levels
    sizes: Sequence[int]
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        """[B, *sizes]."""
        return (self.levels[0].num_components, *self.sizes)

    @cached_property
    def move(self) -> Move:
        """From packed rows to cells."""
        return to_grid(self.levels, self.sizes, self.rows)

    @cached_property
    def offsets(self) -> torch.Tensor | None:
        """Of the one level, if there is only one and the host knows it: then each component is copied at once."""
        return self.levels[0].offsets if len(self.levels) == 1 and self.levels[0].is_host_born else None

    @cached_property
    def covers(self) -> bool:
        """Whether every row is known to have a cell."""
        known = self.offsets is not None and self.levels[0].num_values == self.rows
        return known and longest(self.levels[0]) <= self.sizes[0]

    def pad(self, values: torch.Tensor, padding: Any = 0) -> torch.Tensor:
        """[B, *sizes, …]: packed `values`, and `padding`."""
        made = library.pad(values, self.offsets, self.sizes[0], padding)
        return self.move(values, padding).view(*self.shape, *values.shape[1:]) if made is None else made

    def unpad(self, dense: torch.Tensor) -> torch.Tensor:
        """The packed rows of what `dense` [B, *sizes, …] holds, 0 where it has no cell for one."""
        made = library.unpad(dense, self.offsets, self.rows)
        if made is None:
            shape = self.shape
            made = self.move.back(dense.reshape(math.prod(shape), *dense.shape[len(shape) :]))
        return made

    def clear(self, values: torch.Tensor) -> torch.Tensor:
        """Packed `values` with 0, in place, in rows that have no cell."""
        return values if self.covers else self.move.back.clear(values)
