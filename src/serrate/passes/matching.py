"""Matching: what the sizes and partitions of one program are in terms of another, found from types on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from serrate.program.guards import Known
from serrate.program.partitions import Call, Expression
from serrate.program.sizes import Polynomial, Size, lone_symbol, symbols_of
from serrate.program.substitution import Substitution
from serrate.program.types import RaggedAxis, TensorType


class Mismatch(ValueError):
    """This error is raised for two types of which one cannot stand for the other, and says which part of it cannot."""


@dataclass
class Matching(Substitution):
    """A substitution that is found by matching types with others.

    What is taken for equal in the program that the other types are of is `known`.
    """

    known: Known = field(default_factory=Known)

    def match(self, mine: TensorType, other: TensorType) -> None:
        """Let the sizes and partitions of a type be those of another one; refuse a type that says otherwise."""
        if len(mine.axes) != len(other.axes) or len(mine.features) != len(other.features):
            raise Mismatch(f"it has {len(other.shape)} axes, of which {len(other.axes)} are packed, and not "
                           f"{len(mine.shape)} axes, of which {len(mine.axes)} are packed")  # fmt: skip
        for name in ("dtype", "device", "order", "team", "origin"):
            one, two = getattr(mine, name), getattr(other, name)
            if one != two:
                raise Mismatch(f"its {name} is {two}, and not {one}")
        for one, two in zip(mine.axes, other.axes, strict=True):
            if isinstance(one, RaggedAxis) and isinstance(two, RaggedAxis):
                if one.parents != two.parents:
                    raise Mismatch(f"the rows of {two} are numbered by the axes {two.parents}, and not {one.parents}")
                self._match_partition(one.partition, two.partition)
            elif isinstance(one, RaggedAxis) or isinstance(two, RaggedAxis):
                raise Mismatch(f"an axis is {two}, and not {one}")
            else:
                self._match_size(one, two)
        pairs = [*zip((mine.rows, *mine.features), (other.rows, *other.features), strict=True)]
        for size, wanted in sorted(pairs, key=lambda pair: pair[0] is not None and lone_symbol(pair[0]) is None):
            if size is not None and wanted is not None:
                self._match_size(size, wanted)

    def keep(self, kind: TensorType) -> None:
        """Let the sizes and partitions of a type be what they are: nothing else may stand for them."""
        for each in kind.partitions:
            self.partitions.setdefault(each, each)
        for size in (kind.rows, *kind.axes, *kind.features):
            if isinstance(size, Polynomial):
                for symbol in symbols_of(size):
                    self.sizes.setdefault(symbol, Polynomial((((symbol,), 1),)))

    def learn(self, mine: TensorType, other: TensorType) -> None:
        """Let new sizes and partitions of a result be those of what is known to be the same result."""
        for one, two in zip(mine.axes, other.axes, strict=True):
            if isinstance(one, RaggedAxis) and isinstance(two, RaggedAxis):
                self.partitions.setdefault(one.partition, two.partition)
        for one, two in zip((*mine.axes, *mine.features), (*other.axes, *other.features), strict=True):
            if not isinstance(one, RaggedAxis) and not isinstance(two, RaggedAxis):
                symbol = lone_symbol(one)
                if symbol is not None:
                    self.sizes.setdefault(symbol, two)

    def _match_size(self, mine: Size, other: Size) -> None:
        symbol = lone_symbol(mine)
        if symbol is not None and symbol not in self.sizes and symbol.kind == "size":
            self.sizes[symbol] = other
        for each in symbols_of(mine):
            if each.kind == "size" and each not in self.sizes:
                raise Mismatch(f"the size {mine} does not say what {each} is, nor does any before it")
        said = self.size(mine)
        if self.known.size(said) != self.known.size(other):
            raise Mismatch(f"a size is {other}, and not {mine}" + (f", which is {said}" if said != mine else ""))

    def _match_partition(self, mine: Expression, other: Expression) -> None:
        if mine not in self.partitions:
            self._match_new(mine, other)
        elif self.known.partition(self.partitions[mine]) != self.known.partition(other):
            raise Mismatch(f"a partition is {other}, and not {mine}, which is {self.partitions[mine]}")

    def _match_new(self, mine: Expression, other: Expression) -> None:
        for name in ("host_born", "exact", "dtype", "device"):
            one, two = getattr(mine, name), getattr(other, name)
            if one != two:
                raise Mismatch(f"the {name} of the partition {other} is {two}, and not {one}")
        if mine.kind not in ("input", "result"):  # these say nothing of what they are made of
            if mine.kind != other.kind or len(mine.operands) != len(other.operands):
                raise Mismatch(f"a partition is {other}, and not {mine}")
            for one, two in zip(mine.operands, other.operands, strict=True):
                self._match_operand(one, two, mine, other)
        self.partitions[mine] = other
        self._match_size(mine.components, other.components)
        for name in ("uniform_length", "bound"):
            one, two = getattr(mine, name), getattr(other, name)
            if one is not None:
                if two is None:
                    raise Mismatch(f"nothing says the {name} of the partition {other}, which is to be {one}")
                self._match_size(one, two)

    def _match_operand(self, one: Any, two: Any, mine: Expression, other: Expression) -> None:
        """Match parts of what two partitions were made of."""
        if isinstance(one, Expression) and isinstance(two, Expression):
            self._match_partition(one, two)
        elif isinstance(one, (int, Polynomial)) and isinstance(two, (int, Polynomial)):
            self._match_size(one, two)
        elif isinstance(one, RaggedAxis) and isinstance(two, RaggedAxis) and one.parents == two.parents:
            self._match_partition(one.partition, two.partition)
        elif isinstance(one, Call) and isinstance(two, Call) and one.operation == two.operation:
            self._match_operand(one.arguments, two.arguments, mine, other)
        elif type(one) is tuple and type(two) is tuple and len(one) == len(two):
            for each, part in zip(one, two, strict=True):
                self._match_operand(each, part, mine, other)
        elif one != two:
            raise Mismatch(f"a partition is {other}, and not {mine}")
