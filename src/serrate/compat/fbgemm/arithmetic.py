"""Packed values with padded ones, element by element, by FBGEMM's names.

Beyond its extent the padded operand counts as 0: what is added there leaves the packed values as they are, and
products are 0. In Serrate this is `x + sr.from_dense(y, like=x)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from serrate.compat.fbgemm.grid import Grid
from serrate.compat.fbgemm.padding import sizes_in
from serrate.compat.fbgemm.structure import Levels, levels_of, packed
from serrate.ops.differentiable import Differentiable


def jagged_dense_elementwise_add(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> torch.Tensor:
    """A padded tensor as large as y: the packed values, padded with 0 and cut where y ends, plus y.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_add(x, offsets, torch.full((2, 2, 1), 10.0)).squeeze(-1)
    tensor([[11., 10.],
            [12., 13.]])
    """
    x_values = packed(x_values, "x_values")
    levels = levels_of(x_offsets, x_values, x_values.shape[0], "x_offsets")
    grid = _grid(x_values, levels, y, "y")
    return _PaddedSum.call(x_values, y, grid) if _alike(x_values, y) else grid.pad(x_values) + y


def jagged_dense_elementwise_add_jagged_output(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The packed values plus what y has at their places, and the offsets.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_add_jagged_output(x, offsets, torch.full((2, 1, 1), 10.0))[0].squeeze(-1)
    tensor([11., 12.,  3.])
    """
    x_values = packed(x_values, "x_values")
    levels = levels_of(x_offsets, x_values, x_values.shape[0], "x_offsets")
    grid = _grid(x_values, levels, y, "y")
    made = _PackedSum.call(x_values, grid, grid, y) if _alike(x_values, y) else x_values + grid.unpad(y)
    return made, list(x_offsets)


def jagged_dense_dense_elementwise_add_jagged_output(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y_0: torch.Tensor, y_1: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The packed values plus what y_0 and y_1 have at their places, and the offsets.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> y = torch.full((2, 1, 1), 10.0)
    >>> fbgemm.jagged_dense_dense_elementwise_add_jagged_output(x, offsets, y, 2 * y)[0].squeeze(-1)
    tensor([31., 32.,  3.])
    """
    x_values = packed(x_values, "x_values")
    levels = levels_of(x_offsets, x_values, x_values.shape[0], "x_offsets")
    grid, other = _grid(x_values, levels, y_0, "y_0"), _grid(x_values, levels, y_1, "y_1")
    other = grid if other.sizes == grid.sizes else other
    if _alike(x_values, y_0, y_1):
        return _PackedSum.call(x_values, grid, other, y_0, y_1), list(x_offsets)
    return x_values + grid.unpad(y_0) + other.unpad(y_1), list(x_offsets)


def jagged_dense_elementwise_mul(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The packed values times what y has at their places, 0 where it does not reach, and the offsets.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_mul(x, offsets, torch.full((2, 1, 1), 10.0))[0].squeeze(-1)
    tensor([10., 20.,  0.])
    """
    x_values = packed(x_values, "x_values")
    levels = levels_of(x_offsets, x_values, x_values.shape[0], "x_offsets")
    grid = _grid(x_values, levels, y, "y")
    if _alike(x_values, y):
        return _PackedProduct.call(x_values, y, grid), list(x_offsets)
    return grid.clear(x_values * grid.unpad(y)), list(x_offsets)


def _grid(x: torch.Tensor, levels: Levels, y: torch.Tensor, name: str) -> Grid:
    """From packed rows to the grid of y, which must have the features of x, or some that broadcast with them."""
    y = packed(y, name)
    depth = len(levels)
    if y.ndim != depth + x.ndim:
        raise ValueError(
            f"{name} must have the axes [B, *lengths] and the features of x_values, so {depth + x.ndim}, got shape "
            f"{list(y.shape)} for x_values of shape {list(x.shape)}"
        )
    sizes = sizes_in(y, levels, name)
    if y.device != x.device:
        raise ValueError(f"{name} lies on {y.device}, x_values on {x.device}")
    for a, b in zip(x.shape[1:], y.shape[depth + 1 :], strict=True):
        if a != b and 1 not in (a, b):
            raise ValueError(
                f"the features of {name} must be those of x_values, got shapes {list(y.shape)} and {list(x.shape)}"
            )
    return Grid(levels, sizes, x.shape[0])


def _alike(x: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether padded operands have the dtype and the features of x, so that results and gradients have them too."""
    return all(y.dtype == x.dtype and y.shape[y.ndim - x.ndim + 1 :] == x.shape[1:] for y in others)


class _PaddedSum(Differentiable):
    """x, padded, plus y."""

    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor, grid: Grid) -> torch.Tensor:
        return grid.pad(x).add_(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.grid = inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.grid.unpad(gradient) if ctx.needs_input_grad[0] else None, gradient, None


class _PackedSum(Differentiable):
    """x plus what padded operands have at its places: the first in the cells of `grid`, the second of `other`."""

    @staticmethod
    def forward(x: torch.Tensor, grid: Grid, other: Grid, *ys: torch.Tensor) -> torch.Tensor:
        made = grid.unpad(ys[0]).add_(x)
        return made.add_(other.unpad(ys[1])) if len(ys) > 1 else made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.grid, ctx.other, *_ = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        first, *second = ctx.needs_input_grad[3:]
        same = ctx.other is ctx.grid
        there = ctx.grid.pad(gradient) if first or (same and any(second)) else None
        asked = [there if same else ctx.other.pad(gradient)] if any(second) else [None] * len(second)
        return gradient, None, None, there if first else None, *asked


class _PackedProduct(Differentiable):
    """x times what y has at its places, 0 where it does not reach."""

    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor, grid: Grid) -> torch.Tensor:
        return grid.clear(grid.unpad(y).mul_(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, y, ctx.grid = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, y = (operand.conj() for operand in ctx.saved_tensors)
        for_x = _PackedProduct.call(gradient, y, ctx.grid) if ctx.needs_input_grad[0] else None
        return for_x, ctx.grid.pad(x * gradient) if ctx.needs_input_grad[1] else None, None
