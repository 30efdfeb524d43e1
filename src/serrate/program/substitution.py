"""Substitution: parts of programs with other sizes and partitions in the places of some.

What a size or a partition is made of is replaced too: where `n0` becomes 3, `2·n0` becomes 6, and the partition
`slice(p0, 0, n0)` becomes `slice(p0, 0, 3)`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from serrate.program.guards import Guard
from serrate.program.partitions import Call, Expression
from serrate.program.program import replaced
from serrate.program.sizes import Polynomial, Size, Slice, Symbol, symbol
from serrate.program.sizes import replaced as with_symbols
from serrate.program.types import RaggedAxis, TensorType, TypeAxis, Value


@dataclass
class Substitution:
    """What stands for symbols, for partitions and for values.

    >>> from serrate.program.sizes import Symbol, symbol
    >>> from serrate.program.substitution import Substitution
    >>> print(Substitution({Symbol("size", ("n0",)): 3}).size(2 * symbol("size", "n0") + symbol("size", "n1")))
    n1 + 6
    """

    sizes: dict[Symbol, Size] = field(default_factory=dict)
    partitions: dict[Expression, Expression] = field(default_factory=dict)
    values: dict[Value, Value] = field(default_factory=dict)
    change_function: Callable[[Callable[..., Any], Substitution], Callable[..., Any]] | None = None
    """What replaces the sizes and partitions that a function of an instruction was made of."""
    tokens: dict[object, object] | None = None
    """Objects that stand for those that tell one partition from all others; None if these stay."""

    def size(self, given: Size) -> Size:
        """A size."""
        return with_symbols(given, self._symbol)

    def _symbol(self, given: Symbol) -> Size:
        if given in self.sizes:
            return self.sizes[given]
        of = tuple(map(self._operand, given.of))
        if of == given.of:
            return Polynomial((((given,), 1),))
        if given.kind in ("values", "longest") and isinstance(of[0], Expression):
            made: Size = getattr(of[0], given.kind)  # which may be known of the other partition
            return made
        return symbol(given.kind, *of)

    def partition(self, given: Expression) -> Expression:
        """A partition."""
        found = self.partitions.get(given)
        if found is None:
            found = self.partitions[given] = replace(
                given,
                operands=tuple(map(self._operand, given.operands)),
                components=self.size(given.components),
                capacity=self._known(given.capacity),
                uniform_length=self._known(given.uniform_length),
                bound=self._known(given.bound),
                same_lengths=None if given.same_lengths is None else self.partition(given.same_lengths),
            )
        return found

    def _known(self, size: Size | None) -> Size | None:
        return None if size is None else self.size(size)

    def _operand(self, part: Any) -> Hashable:
        """A part of what a partition or a symbol is made of."""
        if isinstance(part, Call):
            return Call(part.operation, tuple(map(self._operand, part.arguments)))
        if type(part) is tuple:
            return tuple(map(self._operand, part))
        made: Hashable = self.part(part)
        return made

    def axis(self, given: TypeAxis) -> TypeAxis:
        """An axis of a type."""
        if isinstance(given, RaggedAxis):
            return RaggedAxis(self.partition(given.partition), given.parents)
        return self.size(given)

    def type(self, given: TensorType) -> TensorType:
        """A type."""
        return replace(
            given,
            axes=tuple(map(self.axis, given.axes)),
            rows=self._known(given.rows),
            features=tuple(map(self.size, given.features)),
        )

    def part(self, part: Any) -> Any:
        """Anything that has no parts itself, as it stands among the arguments of an instruction."""
        if isinstance(part, Value):
            return self.values.get(part, part)
        if isinstance(part, Polynomial):
            return self.size(part)
        if isinstance(part, Slice):
            return Slice(self._known(part.start), self._known(part.stop), self._known(part.step))
        if isinstance(part, Expression):
            return self.partition(part)
        if isinstance(part, RaggedAxis):
            return self.axis(part)
        if isinstance(part, TensorType):
            return self.type(part)
        if type(part) is object and self.tokens is not None:
            return self.tokens.setdefault(part, object())
        if callable(part) and self.change_function is not None:
            return self.change_function(part, self)
        return part

    def parts(self, given: Any) -> Any:
        """Arguments or results."""
        return replaced(given, self.part)

    def guard(self, given: Guard) -> Guard:
        """A guard."""
        return Guard(self.part(given.one), self.part(given.other))
