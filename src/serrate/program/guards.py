"""Guards: what has to be equal for a type to hold, and what follows from that for other sizes and partitions."""

from __future__ import annotations

from dataclasses import dataclass

from serrate.program.partitions import Expression
from serrate.program.sizes import Polynomial, Size, Symbol, lone_symbol, replaced


@dataclass(frozen=True)
class Guard:
    """Two sizes, or two partitions, that have to be equal for a type to hold."""

    one: Size | Expression
    other: Size | Expression

    @property
    def sides(self) -> tuple[Size | Expression, Size | Expression]:
        """Both."""
        return self.one, self.other

    def __str__(self) -> str:
        return f"{self.one} == {self.other}"


class Meeting(Exception):
    """Eager code met two sizes or partitions that have to be equal, which no type says."""

    def __init__(self, one: Size | Expression, other: Size | Expression) -> None:
        super().__init__(f"{one} and {other} are taken for equal")
        self.guard = Guard(one, other)


class Known:
    """What is taken for equal."""

    def __init__(self, guards: tuple[Guard, ...] = ()) -> None:
        self.sizes: dict[Symbol, Size] = {}
        self.partitions: dict[Expression, Expression] = {}
        for guard in guards:
            if isinstance(guard.one, Expression) and isinstance(guard.other, Expression):
                self._same_partitions(guard.one, guard.other)
            elif not isinstance(guard.one, Expression) and not isinstance(guard.other, Expression):
                self._same_sizes(guard.one, guard.other)

    def _same_partitions(self, one: Expression, other: Expression) -> None:
        one, other = self.partition(one), self.partition(other)
        if (one.kind != "input", one.depth) > (other.kind != "input", other.depth):
            # What an operation made is the one that is replaced, and of two of these the one that took more of them:
            # in the place of the other one, it would grow with each partition that is taken for equal.
            one, other = other, one
        self.partitions[other] = one
        self._same_sizes(one.components, other.components)
        self._same_sizes(one.values, other.values)
        self._same_sizes(one.longest, other.longest)

    def _same_sizes(self, one: Size, other: Size) -> None:
        """Put `one` in the place of `other`, or the other way round where only that can be."""
        one, other = self.size(one), self.size(other)
        if one == other:
            return
        pairs = sorted(((_rank(old), old, new) for old, new in ((other, one), (one, other))), key=lambda p: -p[0])
        for _, old, new in pairs:
            lone = lone_symbol(old)
            if lone is not None and lone not in _symbols(new):
                self.sizes[lone] = new
                return
        raise TypeError(f"sizes {one} and {other} have to be equal, which no type can say")

    def size(self, given: Size) -> Size:
        """A size with what is taken for equal to its symbols."""
        if not self.sizes:
            return given
        return replaced(given, lambda s: self.size(self.sizes[s]) if s in self.sizes else Polynomial((((s,), 1),)))

    def partition(self, given: Expression) -> Expression:
        """The expression that stands for all that are taken for equal to one."""
        while given in self.partitions:
            given = self.partitions[given]
        return given


def _symbols(size: Size) -> set[Symbol]:
    """The symbols in a size, and those in the sizes that these are parts of: a part stands for no whole of itself."""
    found = set() if isinstance(size, int) else {each for monomial, _ in size.terms for each in monomial}
    wholes = [whole for each in found for whole in each.of if isinstance(whole, Polynomial)]
    return found.union(*map(_symbols, wholes))


def _rank(size: Size) -> int:
    """How far a size is from what inputs have: of two equal ones, the nearer one stands for both."""
    lone = lone_symbol(size)
    if lone is None or lone.kind == "size":
        return 0
    return 1 if getattr(lone.of[0], "kind", "") == "input" else 2
