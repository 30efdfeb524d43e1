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
from serrate.library import rows as library
from serrate.ops.differentiable import Differentiable


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

    @property
    def is_simple(self) -> bool:
        """Whether there is one level and the host knows it: then each component is copied at once."""
        return len(self.levels) == 1 and self.levels[0].is_host_born

    @cached_property
    def covers(self) -> bool:
        """Whether every row is known to have a cell."""
        known = self.is_simple and self.levels[0].num_values == self.rows
        return known and longest(self.levels[0]) <= self.sizes[0]

    def pad(self, values: torch.Tensor, padding: Any = 0) -> torch.Tensor:
        """[B, *sizes, …]: packed `values`, and `padding`."""
        return _Padded.call(values, self, padding)

    def unpad(self, dense: torch.Tensor) -> torch.Tensor:
        """The packed rows of what `dense` [B, *sizes, …] holds, 0 where it has no cell for one."""
        return _Unpadded.call(dense, self)

    def clear(self, values: torch.Tensor) -> torch.Tensor:
        """Packed `values` with 0, in place, in rows that have no cell."""
        return values if self.covers else self.move.back.clear(values)


class _Padded(Differentiable):
    @staticmethod
    def forward(values: torch.Tensor, grid: Grid, padding: Any) -> torch.Tensor:
        made = library.pad(values, grid.levels[0].offsets, grid.sizes[0], padding) if grid.is_simple else None
        if made is None:
            made = grid.move.compute(values, padding).view(*grid.shape, *values.shape[1:])
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.grid = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.grid.unpad(gradient), None, None


class _Unpadded(Differentiable):
    @staticmethod
    def forward(dense: torch.Tensor, grid: Grid) -> torch.Tensor:
        made = library.unpad(dense, grid.levels[0].offsets, grid.rows) if grid.is_simple else None
        if made is None:
            cells = dense.reshape(math.prod(grid.shape), *dense.shape[len(grid.shape) :])
            made = grid.move.back.compute(cells, 0)
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.grid = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.grid.pad(gradient), None
