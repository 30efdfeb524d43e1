"""The oracle of everything that picks positions along axes: slices, lists, points, masks, indices within rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, parents, same_axes, size_at, uniform_if_alone
from tests.programs.verdicts import Refused, Undecided


@dataclass(frozen=True)
class Pick:
    """What is taken of an axis: its positions, given a size. Afterwards the axis is gone, uniform, or what it was."""

    positions: Callable[[int], Sequence[int]]
    becomes: str = "kept"
    count: int = 0
    """How many there are, where the axis becomes uniform."""


def one(i: int) -> Pick:
    return Pick(lambda n: (wrapped(i, n),), "gone")


def part(cut: slice) -> Pick:
    return Pick(lambda n: range(*cut.indices(n)))


def several(which: Sequence[int]) -> Pick:
    return Pick(lambda n: [wrapped(i, n) for i in which], "uniform", len(which))


def wrapped(i: int, n: int) -> int:
    """Position i of n, counted from the end if it is negative."""
    if not -n <= i < n:
        raise Refused(IndexError)
    return i + n if i < 0 else i


def select(x: Mapped, picks: Mapping[int, Pick]) -> tuple[list[Axis], dict[Index, Index]]:
    """The axes that are left when every axis is picked from at once, and the old index of each new one."""
    picks = {a: picks.get(a, part(slice(None))) for a in range(x.ndim)}
    gone = [a for a, pick in picks.items() if pick.becomes == "gone"]
    left = {a: k for k, a in enumerate(a for a in range(x.ndim) if a not in gone)}

    def places(axis: int, index: Mapping[int, int]) -> list[int]:
        """The new positions of what stands at an index; none if it is not picked."""
        try:
            chosen = picks[axis].positions(size_at(x.axes, axis, index))
        except Refused:
            return []  # a row that lacks it is reported by _check_rows, if it is one of those picked
        return [k for k, i in enumerate(chosen) if i == index[axis]]

    def images(nest: Sequence[int], index: Mapping[int, int]) -> list[Index]:
        found = [[(a, k) for k in places(a, index)] for a in nest]
        return [tuple(k for a, k in image if a in left) for image in itertools.product(*found)]

    _check_rows(x, picks, images)
    axes: list[Axis] = []
    for a in left:
        axis, pick = x.axes[a], picks[a]
        if pick.becomes == "uniform":
            axes.append(pick.count)
        elif isinstance(axis, Lengths):
            table = {
                image: len(pick.positions(n))
                for key, n in axis.table.items()
                for image in images(axis.parents, dict(zip(axis.parents, key, strict=True)))
            }
            kept = [left[p] for p in axis.parents if p in left]
            axes.append(uniform_if_alone(Lengths(tuple(kept), table, axis.loose)))
        else:
            axes.append(len(pick.positions(axis)))
    every = range(x.ndim)
    return axes, {image: index for index in x.indices for image in images(every, dict(enumerate(index)))}


def _check_rows(x: Mapped, picks: Mapping[int, Pick], images: Callable[..., list[Index]]) -> None:
    """Every row that is picked must have the positions asked for; one that other axes leave without cells may lack."""
    unsure = False
    for a, pick in picks.items():
        axis = x.axes[a]
        if isinstance(axis, int):
            pick.positions(axis)
            continue
        for key, n in axis.table.items():
            if pick.becomes == "kept" or not images(axis.parents, dict(zip(axis.parents, key, strict=True))):
                continue
            try:
                pick.positions(n)
            except Refused:
                if _is_reached(x, picks, a, key):
                    raise
                unsure = True
    if unsure:
        raise Undecided


def _is_reached(x: Mapped, picks: Mapping[int, Pick], axis: int, key: Index) -> bool:
    """Whether a row of `axis` would hold elements, given what is picked of the axes that do not depend on it."""
    free = [a for a in range(x.ndim) if a != axis and axis not in parents(x.axes[a])]
    own = parents(x.axes[axis])
    for index in cells(x.axes, free):
        at = dict(zip(free, index, strict=True))
        try:
            chosen = all(at[a] in picks[a].positions(size_at(x.axes, a, at)) for a in free)
        except Refused:
            continue
        if chosen and tuple(at[p] for p in own) == key:
            return True
    return False


def taken(x: Mapped, picks: Mapping[int, Pick], *, view: bool = False, stored: bool = False) -> Mapped:
    axes, source = select(x, picks)
    return x.seen(axes, source, stored=stored) if view else x.moved(axes, source)


def split_axis(x: Mapped, axis: int, sizes: Sequence[int]) -> Mapped:
    """A uniform axis as several; what depends on it depends on them all."""
    more = len(sizes) - 1
    places = [tuple(i) for i in itertools.product(*map(range, sizes))]
    if len(places) != x.axes[axis]:
        raise Refused(ValueError)
    axes: list[Axis] = []
    for old in x.axes:
        if isinstance(old, Lengths):
            where = old.parents.index(axis) if axis in old.parents else None
            new = [a + more * (a > axis) for a in old.parents if a != axis]
            table = dict(old.table)
            if where is not None:
                new[where:where] = range(axis, axis + more + 1)
                table = {(*k[:where], *places[k[where]], *k[where + 1 :]): n for k, n in old.table.items()}
            axes.append(uniform_if_alone(Lengths(tuple(new), table, old.loose)))
        else:
            axes.append(old)
    axes[axis : axis + 1] = sizes
    source = {(*i[:axis], *places[i[axis]], *i[axis + 1 :]): i for i in x.indices}
    return x.seen(axes, source)


def points(x: Mapped, on: Sequence[int], arrays: Sequence[np.ndarray], at: int) -> Mapped:
    """Arrays on the axes `on` meeting point by point; the axes of the points stand at `at` of those left over."""
    try:
        met = np.broadcast_arrays(*arrays)
    except ValueError:
        raise Refused(IndexError, ValueError) from None
    shape = met[0].shape
    if any(p not in on for a in on for p in parents(x.axes[a])):
        raise Undecided
    found: dict[Index, dict[int, int]] = {}
    for point in np.ndindex(*shape):
        index: dict[int, int] = {}
        for a in sorted(on, key=lambda a: len(parents(x.axes[a]))):
            index[a] = wrapped(int(met[on.index(a)][point]), size_at(x.axes, a, index))
        found[tuple(point)] = index
    if not found and any(
        isinstance(x.axes[a], int) and not _reaches(m, x.axes[a]) for a, m in zip(on, arrays, strict=True)
    ):
        raise Undecided  # positions that nothing has, of which none is taken
    rest = [a for a in range(x.ndim) if a not in on]
    new = {a: k + len(shape) * (k >= at) for k, a in enumerate(rest)}
    span = tuple(range(at, at + len(shape)))

    def placed(point: Index, others: Index) -> Index:
        return (*others[:at], *point, *others[at:])

    axes: list[Axis] = []
    for a in rest:
        axis = x.axes[a]
        if isinstance(axis, Lengths) and set(axis.parents) & set(on):
            kept = [p for p in axis.parents if p not in on]
            table: dict[Index, int] = {}
            for point, index in found.items():
                for key, n in axis.table.items():
                    named = dict(zip(axis.parents, key, strict=True))
                    if all(named[p] == index[p] for p in axis.parents if p in on):
                        table[(*point, *[named[p] for p in kept])] = n
            axis = uniform_if_alone(Lengths((*span, *[new[p] for p in kept]), table, True))
        elif isinstance(axis, Lengths):
            axis = axis.renamed(new)
        axes.append(axis)
    axes[at:at] = shape
    source = {
        placed(point, tuple(i[a] for a in rest)): i
        for point, index in found.items()
        for i in x.indices
        if all(i[a] == index[a] for a in on)
    }
    return x.moved(axes, source)


def _reaches(array: np.ndarray, size: int) -> bool:
    return bool(((array >= -size) & (array < size)).all())


def check_order(x: Mapped, count: int) -> None:
    """Among axes that are filtered or indexed together, none may be seen before one that it depends on."""
    if any(p > a for a in range(count) for p in parents(x.axes[a])):
        raise Refused(IndexError)


def within_rows(x: Mapped, last: int, lengths: Mapping[Index, int], source: Mapping[Index, Index]) -> Mapped:
    """Axis `last` replaced by one that depends on all axes before it; `source`: old index of each up to there."""
    if any(last in parents(x.axes[a]) for a in range(last)):
        raise Undecided  # an axis before it depends on it, so it cannot depend on that one
    axes: list[Axis] = list(x.axes)
    axes[last] = uniform_if_alone(Lengths(tuple(range(last)), dict(lengths), True))
    below = [a for a in range(x.ndim) if last in parents(x.axes[a])]
    for a in sorted(below, key=lambda a: len(parents(x.axes[a]))):  # an axis after those it depends on
        axis = x.axes[a]
        assert isinstance(axis, Lengths)
        wider = tuple(sorted({*axis.parents, *range(last)}))
        table = {}
        for index in cells(axes, wider):
            named = dict(zip(wider, index, strict=True))
            named |= dict(enumerate(source[tuple(named[a] for a in range(last + 1))]))
            table[index] = axis.table[tuple(named[p] for p in axis.parents)]
        axes[a] = Lengths(wider, table, True)
    old: dict[Index, list[Index]] = {}
    for index in x.indices:
        old.setdefault(index[: last + 1], []).append(index[last + 1 :])
    return x.moved(axes, {(*i, *rest): (*s, *rest) for i, s in source.items() for rest in old.get(s, [])})


def masked(x: Mapped, mask: Mapped) -> Mapped:
    """x[mask] for a ragged mask: its innermost axis filtered, every row kept."""
    last = mask.ndim - 1
    if mask.ndim > x.ndim or not same_axes(mask.axes, x.axes[: mask.ndim]):
        raise Refused(IndexError, ValueError)
    check_order(x, mask.ndim)
    lengths = dict.fromkeys(cells(mask.axes, range(last)), 0)
    source = {}
    for index, keep in zip(mask.indices, mask.flat.tolist(), strict=True):
        if keep:
            row = index[:-1]
            source[(*row, lengths[row])] = index
            lengths[row] += 1
    return within_rows(x, last, lengths, source)


def indexed(x: Mapped, index: Mapped) -> Mapped:
    """x[index] for a ragged integer index: positions within each row."""
    last = index.ndim - 1
    if index.ndim > x.ndim or not same_axes(index.axes[:last], x.axes[:last]):
        raise Refused(IndexError, ValueError)
    if isinstance(x.axes[last], int):
        raise Undecided  # "a ragged integer index gathers within rows" says nothing about rows that are all alike
    check_order(x, index.ndim)
    lengths = dict.fromkeys(cells(index.axes, range(last)), 0)
    source = {}
    for at, i in zip(index.indices, index.flat.tolist(), strict=True):
        row = at[:-1]
        source[at] = (*row, wrapped(int(i), size_at(x.axes, last, row)))
        lengths[row] += 1
    return within_rows(x, last, lengths, source)
