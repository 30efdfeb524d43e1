"""This module moves packed rows into a padded grid, and back; each move is the gradient of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.compat.fbgemm.levels import Levels
from serrate.compat.fbgemm.moves import Move, longest, to_grid
from serrate.native import padded as library


@dataclass(frozen=True, eq=False)
class Grid:
    """A dense grid [B, *sizes] for `rows` packed rows, which `levels` cut; a row that does not fit has no cell."""

    levels: Levels
    sizes: Sequence[int]
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid, [B, *sizes]."""
        return (self.levels[0].num_components, *self.sizes)

    @cached_property
    def move(self) -> Move:
        """The move from packed rows to cells."""
        return to_grid(self.levels, self.sizes, self.rows)

    @cached_property
    def offsets(self) -> torch.Tensor | None:
        """The offsets if there is one level and the host knows it, else None; whole components are copied by them."""
        return self.levels[0].offsets if len(self.levels) == 1 and self.levels[0].is_host_born else None

    @cached_property
    def covers(self) -> bool:
        """Whether every row is known to have a cell."""
        known = self.offsets is not None and self.levels[0].num_values == self.rows
        return known and longest(self.levels[0]) <= self.sizes[0]

    def pad(self, values: torch.Tensor, padding: Any = 0) -> torch.Tensor:
        """Return [B, *sizes, …]: the packed `values` in their cells, and `padding` in all others."""
        made = library.pad(values, (self.offsets,), self.sizes[:1], padding)
        return self.move(values, padding).view(*self.shape, *values.shape[1:]) if made is None else made

    def unpad(self, dense: torch.Tensor) -> torch.Tensor:
        """Return the packed rows that `dense` [B, *sizes, …] holds in its cells; rows without a cell are 0."""
        made = library.unpad(dense, (self.offsets,), self.rows)
        if made is None:
            shape = self.shape
            made = self.move.back(dense.reshape(math.prod(shape), *dense.shape[len(shape) :]))
        return made

    def clear(self, values: torch.Tensor) -> torch.Tensor:
        """Set the rows of the packed `values` that have no cell to 0, in place, and return the values."""
        return values if self.covers else self.move.back.clear(values)
