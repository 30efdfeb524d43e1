"""The oracle of what happens along axes: which elements belong together, and the shapes that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, closed, parents, uniform_if_alone

Function = Callable[[torch.Tensor], torch.Tensor]


def groups(x: Mapped, along: Iterable[int]) -> dict[Index, list[int]]:
    """For each index along the other axes, the elements that share it, by rank and in order."""
    drop = set(along)
    found: dict[Index, list[int]] = {}
    for rank, index in enumerate(x.indices):
        found.setdefault(tuple(i for a, i in enumerate(index) if a not in drop), []).append(rank)
    return found


def without(axes: Sequence[Axis], drop: Iterable[int]) -> list[Axis]:
    """The axes that are left when some are reduced: what depends on those takes the longest length in each group."""
    gone = set(drop)
    left = [a for a in range(len(axes)) if a not in gone]
    where = {a: k for k, a in enumerate(left)}
    made: dict[int, Axis] = {}
    for a in sorted(left, key=lambda a: len(parents(axes[a]))):
        axis = axes[a]
        if not isinstance(axis, Lengths):
            made[where[a]] = axis
            continue
        kept = [k for k, p in enumerate(axis.parents) if p in where]
        own = tuple(where[axis.parents[k]] for k in kept)
        table: dict[Index, int] = dict.fromkeys(cells([made.get(b, 0) for b in range(len(left))], own), 0)
        for key, n in axis.table.items():
            short = tuple(key[k] for k in kept)
            table[short] = max(table.get(short, 0), n)
        made[where[a]] = uniform_if_alone(Lengths(own, table, axis.loose))
    return [made[k] for k in range(len(left))]


def insert_ones(axes: Sequence[Axis], at: Sequence[int]) -> list[Axis]:
    """Axes of size 1 at these places of the result."""
    total = len(axes) + len(at)
    free = [a for a in range(total) if a not in at]
    made: list[Axis] = [1] * total
    for axis, place in zip(axes, free, strict=True):
        made[place] = axis.renamed(free) if isinstance(axis, Lengths) else axis
    return made


def reduced(x: Mapped, along: Sequence[int], keepdims: bool, function: Function) -> Mapped:
    """A number for each group of elements, empty groups included."""
    axes = without(x.axes, along)
    found = groups(x, along)
    flat = x.flat
    numbers = [function(flat[torch.tensor(found.get(index, []), dtype=torch.int64)]) for index in cells(axes)]
    made = torch.stack(numbers) if numbers else function(flat[:0]).reshape(1)[:0]
    return Mapped.of(insert_ones(axes, sorted(along)) if keepdims else axes, made)


def kept(x: Mapped, along: Sequence[int], function: Function) -> Mapped:
    """As many numbers as there are elements in each group."""
    flat = x.flat
    made = torch.zeros(0)
    parts, ranks = [], []
    for members in groups(x, along).values():
        ranks += members
        parts.append(function(flat[torch.tensor(members, dtype=torch.int64)]))
    made = torch.cat(parts) if parts else function(flat)
    back = torch.tensor(ranks, dtype=torch.int64).argsort()
    return x.computed(made[back])


def resized(x: Mapped, axis: int, function: Function) -> Mapped:
    """Another number of entries along an axis, by its size alone.

    An axis that others depend on then depends on all packed axes, which take the longest length in their group.
    """
    old = x.axes[axis]
    if all(axis not in parents(a) for a in x.axes):
        if isinstance(old, Lengths):
            table = {key: function(x.flat.new_zeros(n)).numel() for key, n in old.table.items()}
            return _filled(x, axis, Lengths(old.parents, table, old.loose), function)
        return _filled(x, axis, function(x.flat.new_zeros(old)).numel(), function)
    packed = closed(x.axes, [a for a, own in enumerate(x.axes) if parents(own)])
    others = [a for a in packed if a != axis]
    nest = cells(x.axes, packed)
    reached: dict[Index, int] = {}
    for index in nest:
        key = tuple(i for a, i in zip(packed, index, strict=True) if a != axis)
        reached[key] = reached.get(key, 0) + 1
    left = without(x.axes, [axis])
    keys = cells(left, [a - (a > axis) for a in others])
    sizes = {key: function(x.flat.new_zeros(reached.get(key, 0))).numel() for key in keys}
    return _filled(x, axis, uniform_if_alone(Lengths(tuple(others), sizes, True)), function)


def chosen(x: Mapped, axis: int, function: Function) -> Mapped:
    """Some entries of each row along an axis, which then depends on all others: how many there are is data."""
    others = [a for a in range(x.ndim) if a != axis]
    found = groups(x, [axis])
    sizes = {
        index: function(x.flat[torch.tensor(found.get(index, []), dtype=torch.int64)]).numel()
        for index in cells(without(x.axes, [axis]))
    }
    return _filled(x, axis, uniform_if_alone(Lengths(tuple(others), sizes, True)), function)


def _filled(x: Mapped, axis: int, new: Axis, function: Function) -> Mapped:
    """x with another axis in the place of one, and what a function makes of each row."""
    where = [a for a in range(x.ndim) if a != axis]
    others = without(x.axes, [axis])
    axes: list[Axis] = [a.renamed(where) if isinstance(a, Lengths) else a for a in others]
    axes.insert(axis, new)
    found = groups(x, [axis])
    flat = x.flat
    rows = {index: function(flat[torch.tensor(found.get(index, []), dtype=torch.int64)]) for index in cells(others)}
    order = cells(axes)
    elements = [rows[(*index[:axis], *index[axis + 1 :])][index[axis]] for index in order]
    return Mapped.of(axes, torch.stack(elements) if elements else function(flat[:0])[:0])


def positions(x: Mapped, axis: int) -> Mapped:
    """The position of every element along an axis."""
    return Mapped.of(x.axes, torch.tensor([index[axis] for index in x.indices], dtype=torch.int64))
