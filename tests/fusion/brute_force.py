"""Axes of which every element's index is written down by brute force.

Nothing here asks the axis table how an index goes forward or backward: `Axes` takes each step on lists of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from serrate.fusion import IterDomain, RaggedIterDomain, Scalar
from serrate.fusion.analysis import evaluate
from serrate.fusion.axes import ragged
from serrate.fusion.expressions import Swizzle
from serrate.fusion.raggedness import Listed, Raggedness, Stored, listed
from serrate.fusion.scalar import const, symbol
from serrate.fusion.transforms import cover

Point = dict[IterDomain, int]  # the index of every axis, for one element
Lengths = int | list[int]  # of a ragged axis one for each component


def offsets_of(lengths: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(lengths, initial=0))


def _zipped(function: Callable[[int, int], int], first: Lengths, second: Lengths) -> Lengths:
    if isinstance(first, int) and isinstance(second, int):
        return function(first, second)
    count = len(first) if isinstance(first, list) else len(second) if isinstance(second, list) else 0
    left = first if isinstance(first, list) else [first] * count
    right = second if isinstance(second, list) else [second] * count
    return [function(a, b) for a, b in zip(left, right, strict=True)]


def _is_written(axis: IterDomain) -> bool:
    """Whether the numbers of the axis are known before it runs."""
    if not axis.is_ragged:
        return axis.extent.is_const
    raggedness = ragged(axis).raggedness
    return isinstance(raggedness, Listed) and all(extent.is_const for extent in raggedness.extents)


@dataclass(frozen=True)
class Rule:
    """Which indices follow from which: outputs from inputs and the other way round, the `needs` known."""

    inputs: tuple[IterDomain, ...]
    outputs: tuple[IterDomain, ...]
    needs: tuple[IterDomain, ...]
    both_ways: bool = True


@dataclass
class Axes:
    """Axes made step by step from logical ones, and every element's index of each of them.

    A step uses up the axes it takes, and `leaves` are those not used up. An element that a step cuts off is no longer
    in `points`.
    """

    logical: list[IterDomain] = field(default_factory=list)
    leaves: list[IterDomain] = field(default_factory=list)
    lengths: dict[IterDomain, Lengths] = field(default_factory=dict)
    points: list[Point] = field(default_factory=lambda: [{}])
    sizes: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, list[int]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    elements: int = 1  # of the logical axes, before anything is cut off
    makes_holes: bool = False  # the leaves may have indices that no element has
    cuts: bool = False  # there may be elements that no leaf has an index of

    def number(self, value: int, symbolic: bool) -> Scalar:
        """The number, or a symbol for it."""
        if not symbolic:
            return const(value)
        name = f"n{len(self.sizes)}"
        self.sizes[name] = value
        return symbol(name)

    def length(self, axis: IterDomain, point: Point) -> int:
        lengths = self.lengths[axis]
        return lengths if isinstance(lengths, int) else lengths[point[self.component(axis)]]

    @staticmethod
    def component(axis: IterDomain) -> IterDomain:
        component = ragged(axis).component
        assert component is not None
        return component

    def raggedness(
        self, lengths: list[int], count: Scalar, kind: int, spare: int = 0, size: Scalar | None = None
    ) -> Raggedness:
        """Lengths that are listed (0), stored (1), or stored with only a bound of their sum known (2)."""
        if kind == 0 and count.is_const:
            return listed(tuple(lengths))
        name = f"offsets{len(self.arrays)}"
        if size is None:
            size = self.number(sum(lengths) + (spare if kind == 2 else 0), symbolic=True)
        return Stored(name, count, size, exact=kind != 2)

    def _measure(self, axis: IterDomain, lengths: Lengths) -> None:
        self.lengths[axis] = lengths
        bound = evaluate(axis.bound, self.sizes)  # asks for no array
        assert bound >= self.longest(axis), f"{axis} is said not to exceed {axis.bound} = {bound}"
        if axis.is_ragged:
            assert isinstance(lengths, list)
            name, offsets = ragged(axis).raggedness.array, offsets_of(lengths)
            assert self.arrays.setdefault(name, offsets) == offsets, f"two arrays are called {name}"

    # Logical axes

    def regular(self, extent: int, symbolic: bool = False) -> IterDomain:
        axis = IterDomain(self.number(extent, symbolic), is_rfactor_domain=len(self.logical) % 2 == 1)
        self._add(axis, extent)
        return axis

    def rows(self, component: IterDomain, lengths: list[int], kind: int = 0, spare: int = 0) -> IterDomain:
        count = component.extent
        if component.bound != count or (kind == 1 and len(self.logical) % 2 == 1):
            count = self.number(len(lengths), symbolic=True)  # as of offsets whose number has a name of its own
        raggedness = self.raggedness(lengths, count, kind, spare)
        axis = RaggedIterDomain.of(raggedness, component=component, is_rfactor_domain=len(self.logical) % 2 == 0)
        self._add(axis, lengths)
        return axis

    def _add(self, axis: IterDomain, lengths: Lengths) -> None:
        self.logical.append(axis)
        self.leaves.append(axis)
        self._measure(axis, lengths)
        self.points = [{**p, axis: index} for p in self.points for index in range(self.length(axis, p))]
        self.elements = len(self.points)

    # Steps; each says whether it was taken

    def split(self, axis: IterDomain, factor: int, inner_split: bool = True, symbolic: bool = False) -> bool:
        outputs = IterDomain.split(axis, self.number(factor, symbolic), inner_split)
        lengths = self.lengths[axis]
        pieces = _zipped(lambda n, f: -(-n // f), lengths, factor)
        inner = outputs[1]
        if factor > 1 or symbolic:
            every = [lengths] if isinstance(lengths, int) else lengths
            self.makes_holes |= symbolic or not _is_written(axis) or any(length % factor for length in every)
        return self._take(
            Rule((axis,), outputs, self._component_of(inner)),
            (pieces, factor) if inner_split else (factor, pieces),
            lambda p: divmod(p[axis], self.length(inner, p)),
        )

    def merge(self, outer: IterDomain, inner: IterDomain) -> bool:
        made = IterDomain.merge(outer, inner)
        lengths = _zipped(lambda a, b: a * b, self.lengths[outer], self.lengths[inner])
        rule = Rule((outer, inner), (made,), self._component_of(inner))
        return self._take(rule, (lengths,), lambda p: (p[outer] * self.length(inner, p) + p[inner],))

    def resize(self, axis: IterDomain, left: int, right: int) -> bool:
        old = self.lengths[axis]
        if isinstance(old, int) and old + left + right < 0:
            return False
        made = IterDomain.resize(axis, left, right)
        lengths = _zipped(lambda n, by: max(n + by, 0), old, left + right)
        self.makes_holes |= left > 0 or right > 0
        self.cuts |= left < 0 or right < 0
        rule = Rule((axis,), (made,), ())
        return self._take(rule, (lengths,), lambda p: (p[axis] + left,))

    def swizzle(self, x: IterDomain, y: IterDomain, kind: str) -> bool:
        outputs = IterDomain.swizzle(x, y, kind)

        def indices(p: Point) -> tuple[int, ...]:
            return p[x], (p[x] ^ p[y] if kind == "xor" else (p[y] + p[x]) % self.length(y, p))

        return self._take(Rule((x, y), outputs, ()), (self.lengths[x], self.lengths[y]), indices)

    def partition(self, axis: IterDomain, lengths: list[int], kind: int) -> bool:
        old = self.lengths[axis]
        if not isinstance(old, int) or sum(lengths) > old:
            return False
        fills = sum(lengths) == old
        raggedness = self.raggedness(
            lengths, self.number(len(lengths), kind != 0), kind, size=axis.extent if fills else None
        )
        outputs = IterDomain.partition(axis, raggedness)
        self.cuts |= raggedness.total != axis.extent
        places = [(c, r) for c, length in enumerate(lengths) for r in range(length)]
        places += [(-1, -1)] * (old - len(places))
        return self._take(Rule((axis,), outputs, ()), (len(lengths), lengths), lambda p: places[p[axis]])

    def combine(self, component: IterDomain, rows: IterDomain, made: IterDomain | None = None) -> bool:
        """Combine them; into `made`, if they are combined already."""
        made = IterDomain.combine(component, rows) if made is None else made
        lengths = self.lengths[rows]
        assert isinstance(lengths, list)
        offsets = offsets_of(lengths)
        rule = Rule((component, rows), (made,), ())
        return self._take(rule, (offsets[-1],), lambda p: (offsets[p[component]] + p[rows],))

    def cover(self, rows: IterDomain) -> bool:
        made = cover(rows)
        bound, lengths = evaluate(made.extent, self.sizes, self.arrays), self.lengths[rows]
        assert isinstance(lengths, list)
        assert bound >= max(lengths, default=0)
        self.makes_holes = True
        # Rows that may be too long are predicated: their component must not follow from them alone.
        rule = Rule((rows,), (made,), (self.component(rows),), both_ways=False)
        return self._take(rule, (bound,), lambda p: (p[rows],))

    def _component_of(self, axis: IterDomain) -> tuple[IterDomain, ...]:
        return (self.component(axis),) if axis.is_ragged else ()

    def _take(self, rule: Rule, lengths: Sequence[Lengths], indices: Callable[[Point], Sequence[int]]) -> bool:
        at = min((self.leaves.index(axis) for axis in rule.inputs if axis in self.leaves), default=0)
        leaves = [axis for axis in self.leaves if axis not in rule.inputs]
        leaves[at:at] = rule.outputs
        if not set(self.logical) <= self.follow_from(leaves, [*self.rules, rule]):
            return False  # such as a merge of a component axis into its own rows
        self.leaves = leaves
        self.rules.append(rule)
        flag = any(axis.is_rfactor_domain for axis in rule.inputs)
        for axis, length in zip(rule.outputs, lengths, strict=True):
            self._measure(axis, length)
            is_swizzled = isinstance(axis.definition, Swizzle)  # whose axes are like those that they stand for
            assert axis.is_rfactor_domain == flag or is_swizzled, f"{axis} has lost its rfactor flag"
        points = self.points
        self.points = []
        for point in points:
            made = {**point, **dict(zip(rule.outputs, indices(point), strict=True))}
            # A component of -1 has no length to compare with; it comes before its rows.
            if all(made[axis] >= 0 and made[axis] < self.length(axis, made) for axis in rule.outputs):
                self.points.append(made)
        return True

    def combined(self, component: IterDomain, rows: IterDomain) -> IterDomain:
        """Both as one axis that is not a leaf: the component axis of rows within rows."""
        leaves = list(self.leaves)
        assert self.combine(component, rows)
        made = self.rules[-1].outputs[0]
        self.leaves = leaves
        return made

    def follow_from(self, known: Iterable[IterDomain], rules: Sequence[Rule] | None = None) -> set[IterDomain]:
        """The axes whose indices follow from those of the known ones."""
        found, size = set(known), -1
        while size != len(found):
            size = len(found)
            for rule in self.rules if rules is None else rules:
                if found.issuperset(rule.needs):
                    if found.issuperset(rule.outputs):
                        found.update(rule.inputs)
                    if rule.both_ways and found.issuperset(rule.inputs):
                        found.update(rule.outputs)
        return found

    def longest(self, axis: IterDomain) -> int:
        lengths = self.lengths[axis]
        return lengths if isinstance(lengths, int) else max(lengths, default=0)

    @property
    def volume(self) -> int:
        """How often loops over the leaves run at most."""
        return math.prod(self.longest(axis) for axis in self.leaves)
