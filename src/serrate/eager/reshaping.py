"""Reshaping: uniform axes are split and merged around ragged ones, which stand in the new shape as they are.

Both shapes are cut at their ragged axes into runs of uniform axes. A run becomes the run in its place by groups: the
fewest axes with the same number of entries on both sides. Groups of features reshape the values; a group of axes that
number the rows of ragged ones changes only the structure, and those ragged axes follow their parents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.layout import read_shape
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class Group:
    """Axes of the old shape and the axes of the new shape that take their place."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def reshape(x: Tensor, shape: Any, copy: bool | None) -> Tensor:
    """x in a new shape: a view where that can be; with copy=True a copy, with copy=False a view or a ValueError."""
    wanted = read_shape(shape)
    if not x.is_ragged:
        if any(isinstance(axis, Ragged) for axis in wanted):
            raise RaggednessError(
                f"a dense tensor of shape {x.shape} has no ragged axis for {wanted}; "
                f"sr.view_as_nested(x, offsets) cuts an axis into rows"
            )
        sizes = [axis for axis in wanted if isinstance(axis, int)]
        return Tensor(_values(x.values, sizes, copy, x.shape, wanted), team=x.team)
    wanted, groups = _groups(x, wanted)
    structure, places = _packed(x, wanted, groups)
    packed, own = len(structure.axes), len(x.structure.axes)
    features = [axis for axis in range(len(wanted)) if axis not in places]
    sizes = [size for axis in features if isinstance(size := wanted[axis], int)]
    arranged = x.values.permute(0, *[c - own + 1 for c in x.order if c >= own])
    values = _values(arranged, [x.values.shape[0], *sizes], copy, x.shape, wanted)
    places |= {axis: packed + i for i, axis in enumerate(features)}
    return Tensor(values, structure, tuple(places[axis] for axis in range(len(wanted))), x.team)


def _values(values: torch.Tensor, sizes: Sequence[int], copy: bool | None, old: Any, new: Any) -> torch.Tensor:
    try:
        if copy is None:
            return values.reshape(sizes)
        return values.clone(memory_format=torch.contiguous_format).view(sizes) if copy else values.view(sizes)
    except RuntimeError as error:
        fits = copy is False and math.prod(sizes) == values.numel()
        why = "no view of these strides has that shape; sr.reshape copies" if fits else error
        raise ValueError(f"shape {old} does not become {new}: {why}") from None


def _groups(x: Tensor, new: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], list[Group]]:
    """The new shape, with a size in the place of −1, and which of its axes stand for which axes of x."""
    old = x.shape
    features = {i for i, c in enumerate(x.order) if c >= len(x.structure.axes)}
    named = {p for axis in new if isinstance(axis, Ragged) for p in axis.parents}
    ragged = [i for i, axis in enumerate(old) if isinstance(axis, Ragged)]
    new = _with_ragged(old, new, ragged)
    cuts = [i for i, axis in enumerate(new) if isinstance(axis, Ragged)]
    groups: list[Group] = []
    made = list(new)
    for start, stop, first, last in zip(
        [0, *(i + 1 for i in ragged)], [*ragged, len(old)], [0, *(i + 1 for i in cuts)], [*cuts, len(new)], strict=True
    ):
        run, other = range(start, stop), range(first, last)
        _fill_in(old, made, run, other, new)
        groups += _match(old, made, list(run), list(other), features, named)
        if stop < len(old):
            groups.append(Group((stop,), (last,)))
    return tuple(made), groups


def _with_ragged(old: tuple[Axis, ...], new: tuple[Axis, ...], ragged: list[int]) -> tuple[Axis, ...]:
    """The new shape with the old ragged axes in it; where one is missing, −1 stands for it."""
    given = [i for i, axis in enumerate(new) if isinstance(axis, Ragged)]
    rest = [i for i, axis in enumerate(new) if axis == -1]
    if len(given) == len(ragged) - 1 and len(rest) == 1:
        given = sorted([*given, *rest])
    if len(given) != len(ragged):
        raise RaggednessError(
            f"the ragged axes of shape {old} must all stand in the new shape, as they are and in this order, got "
            f"{new}; x.combine(axis) merges a ragged axis with the one before it, x.flat() merges all packed axes"
        )
    made = list(new)
    for mine, theirs in zip(ragged, given, strict=True):
        axis, wanted = old[mine], new[theirs]
        assert isinstance(axis, Ragged)
        if isinstance(wanted, Ragged) and not wanted.partition.same_as(axis.partition):
            raise RaggednessError(f"axis {mine} of shape {old} is {axis}, but the new shape has {wanted} in its place")
        made[theirs] = axis
    return tuple(made)


def _fill_in(old: tuple[Axis, ...], new: list[Axis], run: range, other: range, given: tuple[Axis, ...]) -> None:
    """Put a size in the place of −1, and make sure that both runs have as many entries."""
    have = math.prod(size for i in run if isinstance(size := old[i], int))
    sizes = [size for i in other if isinstance(size := new[i], int)]
    unknown = [i for i in other if new[i] == -1]
    known = math.prod(size for size in sizes if size != -1)
    if len(unknown) == 1 and known and have % known == 0:
        new[unknown[0]], known = have // known, have
    if have != known or len(unknown) > 1 or min(sizes, default=0) < -1:
        raise ValueError(
            f"shape {old} does not become {given}: "
            f"the uniform axes {tuple(old[i] for i in run)} hold {have} entries, {tuple(sizes)} does not; "
            f"x.flat() and x.combine(axis) merge a ragged axis with the axes outside it"
        )


def _match(
    old: tuple[Axis, ...], new: list[Axis], run: list[int], other: list[int], features: set[int], named: set[int]
) -> list[Group]:
    """The groups of two runs of uniform axes with as many entries.

    Where sizes of 1 leave a choice, features are left out first, and a parent stays at a place `named` as one.
    """
    groups: list[Group] = []
    empty = any(old[i] == 0 for i in run)
    while run or other:
        ones = sum(old[i] == 1 for i in run) - sum(new[i] == 1 for i in other)
        if run and old[run[0]] == 1 and run[0] in features and ones > 0:
            groups.append(Group((run.pop(0),), ()))
        elif run and other and run[0] not in features and _waits(new, other, named):
            groups.append(Group((), (other.pop(0),)))
        elif run and other and old[run[0]] == new[other[0]]:
            groups.append(Group((run.pop(0),), (other.pop(0),)))
        elif empty:  # A size of 0 tells nothing, so all that lies between equal axes is one group.
            tail: list[Group] = []
            while run and other and old[run[-1]] == new[other[-1]]:
                tail.insert(0, Group((run.pop(),), (other.pop(),)))
            return [*groups, Group(tuple(run), tuple(other)), *tail]
        elif run and old[run[0]] == 1:
            groups.append(Group((run.pop(0),), ()))
        elif other and new[other[0]] == 1:
            groups.append(Group((), (other.pop(0),)))
        else:
            groups.append(_fewest(old, new, run, other))
    return groups


def _waits(new: list[Axis], other: list[int], named: set[int]) -> bool:
    """Whether the first axis is a new one of size 1, and a later one of size 1 is named as a parent."""
    return new[other[0]] == 1 and other[0] not in named and any(new[i] == 1 and i in named for i in other)


def _fewest(old: tuple[Axis, ...], new: list[Axis], run: list[int], other: list[int]) -> Group:
    """The shortest beginnings of both runs that have equally many entries; they are taken off the runs."""
    mine, theirs = [run.pop(0)], [other.pop(0)]
    while (have := _entries(old, mine)) != (wanted := _entries(new, theirs)):
        if have < wanted:
            mine.append(run.pop(0))
        else:
            theirs.append(other.pop(0))
    return Group(tuple(mine), tuple(theirs))


def _entries(shape: Sequence[Axis], axes: Sequence[int]) -> int:
    return math.prod(size for i in axes if isinstance(size := shape[i], int))


def _packed(x: Tensor, shape: tuple[Axis, ...], groups: list[Group]) -> tuple[Structure, dict[int, int]]:
    """The new structure, which is that of x if nothing changes, and the number in it of each new packed axis."""
    old, packed = x.structure, len(x.structure.axes)
    whole: dict[int, Group] = {}
    for group in groups:
        numbers = [c for a in group.old if (c := x.order[a]) < packed]
        if numbers:
            if len(group.old) != 1 or len(group.new) != 1:
                _require_together(x, shape, group, numbers)
            whole |= dict.fromkeys(numbers, group)
    axes: list[Axis] = []
    places: dict[int, int] = {}
    for c in old.whole:
        group, axis = whole[c], old.axes[c]
        if isinstance(axis, Ragged):
            parents = dict.fromkeys(places[a] for p in axis.parents for a in whole[p].new)
            axis = Ragged(axis.partition, parents)
            places[group.new[0]] = len(axes)
            axes.append(axis)
        elif x.order[group.old[0]] == c:
            for a in group.new:
                places[a] = len(axes)
                axes.append(shape[a])
    changed = any(len(group.new) != 1 or len(group.old) != 1 for group in whole.values())
    return Structure(axes, x.values.shape[0]) if changed else old, places


def _require_together(x: Tensor, shape: tuple[Axis, ...], group: Group, numbers: list[int]) -> None:
    """A RaggednessError unless the axes of a group, stored one behind the other, number the same rows together."""
    fine = len(numbers) == len(group.old) and bool(group.new)
    fine = fine and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for axis in x.structure.axes:
        if isinstance(axis, Ragged):
            fine = fine and len(set(numbers) & set(axis.parents)) in (0, len(numbers))
    if not fine:
        raise RaggednessError(
            f"axes {group.old} of shape {x.shape} cannot become {tuple(shape[a] for a in group.new)}: "
            f"not all of them number the same rows of a ragged axis"
        )
