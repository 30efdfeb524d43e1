"""Random graphs of axes, and random loops over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.fusion.brute_force import Axes
from tests.fusion.enumeration import Launch

from serrate.fusion import IterDomain

T = TypeVar("T")


class Tape:
    """Choices read off a string of bytes: the first option, once it has ended."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def below(self, count: int) -> int:
        return next(self._data, 0) % count

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]


def random_lengths(tape: Tape, count: int) -> list[int]:
    return [tape.pick((1, 2, 3, 4, 0, 2, 1)) for _ in range(count)]


def random_extent(tape: Tape, longest: int = 4) -> int:
    extent = tape.between(1, 2 * longest)
    return extent if extent <= longest else 0 if extent == 2 * longest else extent - longest


def random_logical(tape: Tape) -> Axes:
    """One to three regular axes, or rows with a regular axis, rows within rows (of rows), or two kinds of rows per
    component."""
    axes, shape = Axes(), tape.below(7)
    if shape < 2:
        count = tape.between(1, 3)
        for _ in range(count):
            axes.regular(random_extent(tape, 7 if count == 1 else 4), tape.below(2) == 1)
        return axes
    component = axes.regular(random_extent(tape), tape.below(2) == 1)
    first = axes.rows(component, random_lengths(tape, axes.longest(component)), tape.below(3), tape.below(3))
    if shape == 3:
        axes.regular(random_extent(tape), tape.below(2) == 1)
    for _ in range({4: 1, 6: 2}.get(shape, 0)):
        component = axes.combined(component, first)
        first = axes.rows(component, random_lengths(tape, axes.longest(component)), tape.below(3), tape.below(3))
    if shape == 5:
        axes.rows(component, random_lengths(tape, axes.longest(component)), tape.below(3), tape.below(3))
    return axes


def random_step(axes: Axes, tape: Tape, allow_cover: bool) -> bool:
    """One step, if what was chosen is possible."""
    axis, other = tape.pick(axes.leaves), tape.pick(axes.leaves)
    match tape.below(9):
        case 0 | 1:
            return axes.split(axis, tape.between(1, 5), tape.below(3) > 0, tape.below(4) == 3)
        case 2 | 3:
            return _random_merge(axes, tape, axis, other)
        case 4:
            return axes.resize(axis, *(tape.pick((0, 1, -1, 2, -2, 3, -3)) for _ in range(2)))
        case 5:
            return _random_swizzle(axes, axis, other)
        case 6:
            return not axis.is_ragged and _random_partition(axes, tape, axis)
        case 7:
            return _random_merge(axes, tape, *tape.pick(_rows(axes))) if _rows(axes) else False
        case _:
            return allow_cover and axis.is_ragged and axes.cover(axis)


def _random_partition(axes: Axes, tape: Tape, axis: IterDomain) -> bool:
    """Rows that fill the axis, or leave some of it at the end."""
    lengths, left = [], axes.longest(axis)
    for length in random_lengths(tape, tape.between(0, 4)):
        lengths.append(min(length, left))
        left -= lengths[-1]
    if tape.below(2) == 0:
        lengths.append(left)
    return axes.partition(axis, lengths, tape.below(3))


def _rows(axes: Axes) -> list[tuple[IterDomain, IterDomain]]:
    """Component axes and their rows, where both are leaves."""
    pairs = [(Axes.component(axis), axis) for axis in axes.leaves if axis.is_ragged]
    return [pair for pair in pairs if pair[0] in axes.leaves]


def _random_merge(axes: Axes, tape: Tape, outer: IterDomain, inner: IterDomain) -> bool:
    if outer is inner:
        return False
    if inner.is_ragged and Axes.component(inner) is outer:
        existing = [rule.outputs[0] for rule in axes.rules if rule.inputs == (outer, inner)]
        return axes.combine(outer, inner, existing[0] if existing and tape.below(2) == 0 else None)
    if outer.is_ragged and inner.is_ragged and Axes.component(outer) is not Axes.component(inner):
        return False
    return axes.merge(outer, inner)


def _random_swizzle(axes: Axes, x: IterDomain, y: IterDomain) -> bool:
    if x is y or x.is_ragged or y.is_ragged:
        return False
    size = axes.longest(y)
    is_power = x.extent.is_const and x.extent == y.extent and size in (1, 2, 4, 8)
    return axes.swizzle(x, y, "xor" if is_power else "shift")


def random_axes(tape: Tape, allow_cover: bool = False) -> Axes:
    """Logical axes and one to six steps on them."""
    axes = random_logical(tape)
    for _ in range(tape.between(1, 6)):
        for _ in range(4):
            if axes.volume > 400 or random_step(axes, tape, allow_cover):
                break
    return axes


def random_launch(axes: Axes, tape: Tape, loops: Sequence[IterDomain], exact: bool) -> Launch | None:
    """Loops in an order in which each has its component's index by then, or is a logical one that runs to the longest;
    None if there is no such order."""
    order: list[IterDomain] = []
    beyond: dict[IterDomain, int] = {}
    early = not exact and tape.below(4) == 0 and loops is axes.leaves
    while len(order) < len(loops):
        known = axes.follow_from(order)
        pending = [axis for axis in loops if axis not in order]
        ready = [axis for axis in pending if not axis.is_ragged or Axes.component(axis) in known]
        ready += [axis for axis in pending if early and axis in axes.logical and axis not in ready]
        if not ready:
            return None
        axis = tape.pick(ready)
        if axis.is_ragged and Axes.component(axis) not in known:
            beyond[axis] = 0
        elif not exact and tape.below(2) == 0:
            beyond[axis] = tape.between(0, 5)
        order.append(axis)
    return Launch(tuple(order), beyond, tape.below(2) == 1)
