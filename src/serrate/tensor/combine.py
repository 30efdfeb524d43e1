"""Undoing a cut: a ragged axis merged with the axis that numbers its rows, and leaving out what is undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from serrate.errors import AxisError
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Nest, Ragged, Structure
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def flat(x: Tensor, /) -> Tensor:
    """The packed values as a dense view: the packed axis stands where the outermost packed axis stood.

    >>> import serrate as sr
    >>> sr.ragged([[1, 2], [], [3]]).flat().tolist()
    [1, 2, 3]
    """
    if not x.is_ragged:
        return x
    packed = len(x.structure.axes)
    dims = [max(0, c - packed + 1) for c in x.order if c == 0 or c >= packed]
    return type(x)(exact(x).values.permute(dims), team=x.team)


def exact(x: Tensor) -> Tensor:
    """x without the undefined entries past device-born last offsets; waits for the device only if there may be some."""
    if x.structure is DENSE or x.structure.is_exact:
        return x
    axes: list[Axis] = []
    for axis in x.structure.axes:
        if isinstance(axis, Ragged):
            axis = Ragged(axis.partition.trimmed(Structure(axes).cells(axis.parents)), axis.parents)
        axes.append(axis)
    structure = Structure(axes)
    rows = structure.cells(structure.whole)
    return type(x)(x.values[:rows], Structure(axes, rows), x.order, x.team)


def zeroed(values: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Packed values with 0 in undefined rows, and no gradient from there. What sums over rows calls this first."""
    return values if structure.is_exact else _zeroed(values, structure)


@untraced
def _zeroed(values: torch.Tensor, structure: Structure) -> torch.Tensor:
    nothing = False if values.dtype == torch.bool else 0  # An int would turn bools into numbers.
    return torch.where(structure.defined_rows(values), values, nothing)


def fitted(values: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Packed values with as many rows as the structure has room for: only undefined rows are added or left out."""
    rows = structure.cells(structure.whole)
    missing = rows - values.shape[0]
    if missing == 0:
        return values
    return torch.cat([values, values.new_zeros((missing, *values.shape[1:]))]) if missing > 0 else values[:rows]


def combine(x: Tensor, /, axis: int) -> Tensor:
    """Axis `axis`, ragged, merged with the axis before it, which numbers its rows; a view.

    >>> import serrate as sr
    >>> sr.ragged([[[1], []], [[2, 3]]]).combine(2).tolist()
    [[1], [2, 3]]
    """
    inner = x._axis(axis)
    c = x.order[inner]
    if not x.is_ragged or c >= len(x.structure.axes) or not isinstance(x.structure.axes[c], Ragged):
        raise AxisError(f"axis {axis} of shape {x.shape} is not ragged")
    if inner == 0 or x.order[inner - 1] != c - 1:
        raise AxisError(
            f"axis {axis} of shape {x.shape} does not stand right behind the axis stored before it; "
            f"permute it there first"
        )
    x = exact(x)
    axes = merge_axes(x.structure, c)
    labels = [n for n in x.structure.whole if n != c]
    return assemble(x, x.values, list(zip(labels, axes, strict=True)), [label for label in x.order if label != c])


def merge_axes(structure: Structure, c: int) -> list[Axis]:
    """The axes once packed axes c−1 and c, which is ragged, are one.

    An axis that cannot have the merged one as a parent, say since it depends on one of the two alone, is expanded
    over all axes up to them.
    """
    outer: Nest = tuple(range(c - 1))
    level = structure.level(tuple(range(c + 1)))
    assert isinstance(level, Partition)
    merged: Axis
    if not outer:
        merged = level.num_values
    else:
        above = structure.level(tuple(range(c)))
        coarse = level.coarsened(above, structure.cells(outer))
        merged = coarse.uniform_length if coarse.uniform_length is not None else Ragged(coarse, outer)
    axes: list[Axis] = [*structure.axes[: c - 1], merged]
    for n in range(c + 1, len(structure.axes)):
        axis = structure.axes[n]
        if isinstance(axis, Ragged):
            fits = (c - 1 in axis.parents) == (c in axis.parents) and (
                c not in axis.parents or not isinstance(merged, Ragged) or set(outer) <= set(axis.parents)
            )
            parents = axis.parents if fits else tuple(sorted({*axis.parents, *range(c + 1)}))
            part = structure.level((*parents, n))
            assert isinstance(part, Partition)
            axis = Ragged(part, sorted({p - (p >= c) for p in parents}))
        axes.append(axis)
    return axes


def merge_outermost(structure: Structure) -> Structure:
    """Packed axes 0 and 1 as one uniform axis."""
    if isinstance(structure.axes[1], Ragged):
        return Structure(merge_axes(structure, 1), structure.capacity)
    a, b, *inner = structure.axes
    assert isinstance(a, int)
    assert isinstance(b, int)
    merged: list[Axis] = [a * b]
    for number, axis in enumerate(inner, start=2):
        if isinstance(axis, Ragged):
            fits = (0 in axis.parents) == (1 in axis.parents)
            parents = axis.parents if fits else tuple(sorted({*axis.parents, 0, 1}))
            level = structure.level((*parents, number))
            axis = Ragged(level, sorted({max(p - 1, 0) for p in parents}))
        merged.append(axis)
    return Structure(merged, structure.capacity)


def row_offsets(x: Tensor) -> Partition:
    """How the first axis, which must be the outermost packed one, cuts the packed axis."""
    if not x.is_ragged or x.order[0] != 0:
        raise AxisError(f"the first axis of shape {x.shape} does not cut the packed axis")
    structure = x.structure
    return group_partition(structure, 1, structure.whole)


def group_partition(structure: Structure, depth: int, nest: Nest) -> Partition:
    """How the cells of the first `depth` axes of `nest` cut the cells of the whole of it."""
    result: Partition | None = None
    for inner in range(len(nest), depth, -1):
        level = structure.level(nest[:inner])
        if result is None:
            if isinstance(level, int):
                result = Partition.uniform(structure.cells(nest[: inner - 1]), level)
            else:
                result = level
        else:
            result = result.coarsened(level, structure.cells(nest[: inner - 1]))
    assert result is not None
    return result
