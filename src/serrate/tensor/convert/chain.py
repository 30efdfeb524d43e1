"""This module turns a tensor into a chain of list levels around a leaf, outermost level first, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from serrate.tensor.broadcast import lay_out
from serrate.tensor.combine import exact
from serrate.tensor.layout import settle
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def from_levels(outermost: int, levels: Sequence[int | Partition], leaf: torch.Tensor) -> Tensor:
    """Return the tensor [outermost, *levels, *features].

    A partition has one component for each cell of all axes before it.
    """
    from serrate.tensor.tensor import Tensor

    axes: list[Axis] = [outermost]
    for level in levels:
        axes.append(Ragged(level, range(len(axes))) if isinstance(level, Partition) else level)
    features = range(len(axes), len(axes) + leaf.ndim - 1)
    values, structure, labels = settle(leaf, list(enumerate(axes)), list(features))
    order = tuple(labels.index(label) for label in range(len(labels)))
    if structure is DENSE:
        return Tensor(values)
    structure.check()
    return Tensor(values, structure, order)


def to_levels(x: Tensor) -> tuple[int, list[int | Partition], torch.Tensor]:
    """Return the outermost size, the level of each further axis up to the last ragged one, and the leaf.

    The leaf is [cells, *features]. The levels are in the order of the shape; if the axes are stored in another order,
    the values are rearranged.
    """
    if not x.is_ragged:
        raise TypeError(f"only a ragged tensor has list levels, got shape {x.shape}")
    x = exact(x)
    shape = x.shape
    last = max(i for i, axis in enumerate(shape) if isinstance(axis, Ragged))
    for i, axis in enumerate(shape):
        if isinstance(axis, Ragged) and max(axis.parents) > i:
            raise TypeError(
                f"axis {i} of shape {shape} is ragged on an axis behind it; permute it behind that one first"
            )
    structure, values = x.structure, x.values
    if x.order != tuple(range(x.ndim)):
        structure = _as_seen(x, last)
        values = lay_out(x, structure, tuple(range(x.ndim)))
    first = structure.axes[0]
    assert isinstance(first, int)
    return first, [structure.level(structure.whole[: depth + 1]) for depth in range(1, last + 1)], values


def cells_of(outermost: int, levels: Sequence[int | Partition]) -> list[int]:
    """Return the number of cells of the outermost axis, of this axis with the first level, with the first two, …"""
    cells = [outermost]
    for level in levels:
        cells.append(cells[-1] * level if isinstance(level, int) else level.num_values)
    return cells


def _as_seen(x: Tensor, last: int) -> Structure:
    """Return the structure of the axes 0 … last in the order of the shape.

    The components of a partition are renumbered if this order changes the order of its parents.
    """
    axes: list[Axis] = []
    for axis in x.shape[: last + 1]:
        if isinstance(axis, Ragged):
            parents = tuple(sorted(axis.parents))
            partition = axis.partition
            if parents != axis.parents:
                outer = Structure(axes)
                stored = {x.order[p]: outer.positions(parents, p, outer.home) for p in parents}
                partition = partition.take(x.structure.rank(tuple(sorted(stored)), stored))
            axis = Ragged(partition, parents)
        axes.append(axis)
    return Structure(axes)
