"""Sizes: numbers that a type knows, and symbols for numbers that differ from batch to batch.

A size is an int, or a polynomial in symbols with whole coefficients: `4`, `rows`, `2·rows + 3`. Polynomials have one
normal form, so that equal ones are the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Symbol:
    """A number that is not known: what it counts, and of what."""

    kind: str
    """"size" for the size of an input's axis; "values", "longest" and "total" for numbers of a partition; "least" and
    "most" for the smaller and the greater of two sizes; "sliced" and "start" for the number of positions that a `Slice`
    of an axis has, and the first of them; "count" for what only elements tell; "unsaid" for a number that was not
    read."""
    of: tuple[Hashable, ...]

    @cached_property
    def text(self) -> str:
        """The symbol as it is shown."""
        return str(self.of[0]) if self.kind == "size" else f"{self.kind}({', '.join(map(str, self.of))})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Symbol], tuple[object, ...]]:
        return Symbol, (self.kind, self.of)


Monomial = tuple[Symbol, ...]
"""A product of symbols, in the order of their texts."""


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of symbols, each with a whole coefficient that is not 0; at least one has a symbol."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return sum_of(self, other)

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        return product_of(self, other)

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join(_term(monomial, coefficient) for monomial, coefficient in self.terms)


Size = int | Polynomial


@dataclass(frozen=True)
class Slice:
    """A slice whose bounds are sizes, or sizes counted from the end, which are negative."""

    start: Size | None
    stop: Size | None
    step: Size | None

    def __str__(self) -> str:
        return ":".join("" if part is None else str(part) for part in (self.start, self.stop, self.step))


def symbol(kind: str, *of: Hashable) -> Polynomial:
    """The size that is one symbol."""
    return Polynomial((((Symbol(kind, of),), 1),))


def is_said(size: Size) -> bool:
    """Whether a type can say the size: it follows from other sizes by sums and products."""
    return isinstance(size, int) or not any(each.kind == "unsaid" for monomial, _ in size.terms for each in monomial)


def symbols_of(size: Size) -> set[Symbol]:
    """The symbols in a size."""
    return set() if isinstance(size, int) else {each for monomial, _ in size.terms for each in monomial}


def lone_symbol(size: Size) -> Symbol | None:
    """The symbol that a size is; None if it is something else."""
    if isinstance(size, int) or len(size.terms) != 1:
        return None
    ((monomial, coefficient),) = size.terms
    return monomial[0] if len(monomial) == 1 and coefficient == 1 else None


def replaced(size: Size, by: Callable[[Symbol], Size]) -> Size:
    """The size with another size in the place of each symbol."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        product: Size = coefficient
        for each in monomial:
            product = product_of(product, by(each))
        total = sum_of(total, product)
    return total


def _term(monomial: Monomial, coefficient: int) -> str:
    parts = ([] if coefficient == 1 and monomial else [str(coefficient)]) + [str(each) for each in monomial]
    return "·".join(parts)


def terms_of(size: Size) -> Mapping[Monomial, int]:
    """The coefficient of each product of symbols in a size."""
    if isinstance(size, int):
        return {(): size} if size else {}
    return dict(size.terms)


def size_of(terms: Mapping[Monomial, int]) -> Size:
    """The size that has these coefficients, in its normal form."""
    left = sorted(((m, c) for m, c in terms.items() if c), key=lambda term: [*map(str, term[0])], reverse=True)
    if not left:
        return 0
    return left[0][1] if len(left) == 1 and not left[0][0] else Polynomial(tuple(left))


def sum_of(one: Size, other: Size) -> Size:
    """The sum of two sizes."""
    made = dict(terms_of(one))
    for monomial, coefficient in terms_of(other).items():
        made[monomial] = made.get(monomial, 0) + coefficient
    return size_of(made)


def product_of(one: Size, other: Size) -> Size:
    """The product of two sizes."""
    made: dict[Monomial, int] = {}
    for left, a in terms_of(one).items():
        for right, b in terms_of(other).items():
            monomial = tuple(sorted((*left, *right), key=str))
            made[monomial] = made.get(monomial, 0) + a * b
    return size_of(made)
