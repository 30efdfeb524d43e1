"""A tensor whose packed axes are stored in another order. It is a copy, for code that needs them in the order seen.

`restored` stores chosen axes first, in a given order; `stored_as_seen` stores the first axes that a user sees first;
`as_rows` makes a uniform axis ragged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from serrate.errors import RaggednessError
from serrate.tensor.broadcast import lay_out
from serrate.tensor.combine import exact
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure, parents_of

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def stored_as_seen(x: Tensor, depth: int) -> Tensor:
    """x with its first `depth` axes as its first packed axes, in the order in which they are seen.

    An IndexError says which axis depends on one that is seen behind it.
    """
    packed = len(x.structure.axes)
    for a, axis in enumerate(x.shape[:depth]):
        if isinstance(axis, Ragged) and any(p > a for p in axis.parents):
            raise IndexError(
                f"axis {a} of shape {x.shape} depends on an axis behind it, so the first {depth} axes have no cells to "
                f"index together; permute it behind that one first"
            )
    if x.order[:depth] == tuple(range(depth)):
        if depth <= packed:
            return x
        sizes = x.values.shape[1 : 1 + depth - packed]  # These features lie next to the rows already.
        values = x.values.reshape(x.values.shape[0] * math.prod(sizes), *x.values.shape[1 + len(sizes) :])
        return type(x)(values, Structure((*x.structure.axes, *sizes), values.shape[0]), x.order, x.team)
    first = list(range(depth))
    behind = sorted((a for a in range(depth, x.ndim) if x.order[a] < packed), key=lambda a: x.order[a])
    return restored(x, [*first, *behind], [a for a in range(depth, x.ndim) if a not in behind])


def restored(x: Tensor, packed: Sequence[int], features: Sequence[int]) -> Tensor:
    """x with the axes `packed`, all that are packed now and perhaps more, and then `features` stored in these orders.

    Axes are named as they are seen, and are seen as before. A RaggednessError says which axis would be stored before an
    axis that it depends on.
    """
    shape = x.shape
    place_of = {a: i for i, a in enumerate([*packed, *features])}
    order = tuple(place_of[a] for a in range(x.ndim))
    if not x.is_ragged:
        grid = x.values.permute(*packed, *features)
        values = grid.reshape(math.prod(grid.shape[: len(packed)]), *grid.shape[len(packed) :])
        return type(x)(values, Structure(grid.shape[: len(packed)], values.shape[0]), order, x.team)
    axes: list[Axis] = []
    for place, seen in enumerate(packed):
        axis = shape[seen]
        if isinstance(axis, Ragged):
            before = [packed.index(p) for p in axis.parents if p in packed[:place]]
            if len(before) < len(axis.parents):
                raise RaggednessError(
                    f"axis {seen} of shape {shape} depends on an axis that would be stored behind it; "
                    f"permute it behind that one first"
                )
            axis = _renumbered(x, x.order[seen], axes, before)
        axes.append(axis)
    fresh = [size for a in packed if isinstance(size := shape[a], int) and x.order[a] >= len(x.structure.axes)]
    before_fresh = x.structure.capacity
    structure = Structure(axes, None if before_fresh is None else before_fresh * math.prod(fresh))
    return type(x)(lay_out(x, structure, order), structure, order, x.team)


def _renumbered(x: Tensor, number: int, outer: list[Axis], parents: list[int]) -> Ragged:
    """Ragged axis `number` of x behind the axes `outer`; `parents` are its parents among them, in their order."""
    axis, old = x.structure.axes[number], x.structure
    assert isinstance(axis, Ragged)
    if parents == sorted(parents):
        return Ragged(axis.partition, parents)
    new, nest = Structure(outer), tuple(sorted(parents))
    where = {p: new.positions(nest, q, old.home) for p, q in zip(axis.parents, parents, strict=True)}
    component = old.rank(axis.parents, where)
    if not new.is_exact:
        component = torch.where(
            torch.arange(component.numel(), device=old.home) < new.defined_cells(nest), component, -1
        )
    partition = axis.partition
    return Ragged(partition.take(component, capacity=partition.num_values, exact=partition.is_exact), nest)


def as_rows(x: Tensor, axis: int, parents: Sequence[int]) -> Tensor:
    """x with the uniform packed axis `axis` as a ragged one of equal rows; undefined rows are left out first."""
    x = exact(x)
    size = x.structure.axes[axis]
    assert isinstance(size, int)
    axes: list[Axis] = [
        *x.structure.axes[:axis],
        Ragged(Partition.uniform(x.structure.cells(tuple(parents)), size), parents),
    ]
    for number, inner in enumerate(x.structure.axes[axis + 1 :], start=axis + 1):
        if isinstance(inner, Ragged):  # What depends on the axis depends on its parents, too.
            own = tuple(sorted({*inner.parents, *(q for p in inner.parents for q in parents_of(axes[p]))}))
            level = x.structure.level((*own, number))
            assert isinstance(level, Partition)
            inner = Ragged(level, own)
        axes.append(inner)
    return type(x)(x.values, Structure(axes, x.values.shape[0]), x.order, x.team)
