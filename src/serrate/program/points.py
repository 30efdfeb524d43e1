"""Points: a number for each symbol, and the way back from numbers to the sizes that they stand for.

A `Point` puts a prime number in the place of each symbol. Eager code can then run on plain numbers, and the polynomial
that a resulting number stands for is found again by division: the primes are far larger than the coefficients, so a
number has one such reading but for rare chances, which a second point with other primes finds out. A number that has
none is a symbol of its own, and `is_said` tells it from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serrate.program.sizes import Polynomial, Size, Symbol, product_of, replaced, size_of, sum_of, symbol, terms_of

_SMALL = 2**10
"""Numbers below this are taken for themselves."""
_MANY = 2**14
"""Coefficients lie below this."""
_NEAR = 2
"""A number that is added to two products of symbols lies up to this."""


class _Primes:
    """Primes that stand for symbols, each smaller than the one before by no simple ratio: few sums meet.

    Each is about `ratio` times the one before, less an irregular part of it, which is up to a `parts`-th.
    """

    def __init__(self, first: int, ratio: float, least: int, parts: int = 6_700) -> None:
        self._first, self._ratio, self._least, self._parts = first, ratio, least, parts
        self._found: list[int] = []

    def __getitem__(self, number: int) -> int:
        while len(self._found) <= number:
            last = self._found[-1] if self._found else 0
            irregular = 7919 * len(self._found) % (last // self._parts + 1)
            scaled = int(last * self._ratio) - irregular if last else self._first
            candidate = (scaled if scaled > self._least else last - 2) | 1
            while any(candidate % divisor == 0 for divisor in range(3, int(candidate**0.5) + 1, 2)):
                candidate -= 2
            self._found.append(candidate)
        return self._found[number]


@dataclass(frozen=True)
class Scale:
    """How large the numbers are that stand for symbols, and how they are read."""

    primes: tuple[_Primes, ...]
    """Those that stand for symbols, for each point."""
    lengths: tuple[_Primes, ...]
    """Those that stand for lengths of rows. They are small: a padded tensor has a size of several of them, and torch
    counts its elements."""
    large: int
    """Numbers above this stand for sizes that no type knows, unless an operand has them."""
    few: int
    """In a sum of two products of symbols, one has a coefficient up to this."""
    added: int
    """A number that is added to one product of symbols lies below this."""


SCALES = (
    Scale(
        (_Primes(66_947_177, 0.9531, 2**20), _Primes(61_400_033, 0.9417, 2**20)),
        (_Primes(8_191, 0.99, 2**12), _Primes(7_919, 0.99, 2**12)),
        large=2**20,
        few=64,
        added=256,
    ),
    Scale(
        (_Primes(32_749, 0.969, 2**13, parts=70), _Primes(31_543, 0.961, 2**13, parts=60)),
        (_Primes(4_093, 0.99, 2**11), _Primes(3_907, 0.99, 2**11)),
        large=2**13,
        few=16,
        added=64,
    ),
)
"""The first scale reads most sizes. The second one is for tensors of three or four sizes that no type knows, which have
more elements on the first scale than torch can count."""
POINTS = 2
"""How many points a scale has. A number that is misread at one of them is read otherwise at another."""
_PARTS = ("least", "most", "sliced", "start")
"""Symbols that are no larger than the sizes that they are of."""


def _nearest(number: int, one: int) -> tuple[int, int]:
    """The multiple of `one` that is nearest to a number: how many times, and what is left."""
    times = (number + one // 2) // one
    return times, number - times * one


class Point:
    """A prime for each symbol: numbers to run eager code on, and the sizes that its numbers stand for.

    A symbol that is met later gets a smaller prime, so that a part is smaller than what it is a part of. Numbers in
    `plain` are sizes that a type knows, however large they are.
    """

    def __init__(
        self,
        replacements: Mapping[Symbol, Size],
        which: int = 0,
        scale: Scale = SCALES[0],
        plain: frozenset[int] = frozenset(),
    ) -> None:
        self._replacements = replacements
        self.scale, self._plain = scale, plain
        self._primes, self._lengths = scale.primes[which], scale.lengths[which]
        self.guessed: set[int] = set()
        """Numbers whose reading may be wrong, since it is no product of large primes."""
        self._numbers: dict[Symbol, int] = {}
        self._read: dict[int, Size] = {}

    def number(self, size: Size) -> int:
        """The number that stands for a size."""
        if isinstance(size, int):
            if size >= _SMALL:
                self._read[size] = size
            return size
        total = 0
        for monomial, coefficient in size.terms:
            product = coefficient
            for each in monomial:
                product *= self._of_symbol(each)
            total += product
        self._read.setdefault(total, replaced(size, self._canonical))
        return total

    def _of_symbol(self, symbol: Symbol) -> int:
        if symbol in self._replacements:
            return self.number(self._replacements[symbol])
        if symbol not in self._numbers:
            primes = self._lengths if self._is_length(symbol) else self._primes
            self._numbers[symbol] = primes[len(self._numbers)]
        return self._numbers[symbol]

    def _is_length(self, symbol: Symbol) -> bool:
        """Whether it is a length of rows, or a part of one."""
        if symbol.kind in _PARTS:
            sizes = [size for size in symbol.of if isinstance(size, Polynomial)]
            return any(self.number(size) <= self._lengths[0] for size in sizes)
        return symbol.kind == "longest"

    def _canonical(self, symbol: Symbol) -> Size:
        """What stands for a symbol that was found equal to another size."""
        found = self._replacements.get(symbol)
        return Polynomial((((symbol,), 1),)) if found is None else replaced(found, self._canonical)

    def size(self, number: int) -> Size:
        """The size that a number stands for; negative numbers count from the end of an axis."""
        if number <= -_SMALL:
            return product_of(self.size(-number), -1)
        if number < _SMALL or number in self._plain:
            return number
        found = self._read.get(number)
        if found is None:
            found = self._product(number)
            if found is None or number <= self.scale.large:
                self.guessed.add(number)
            found = self._summed(number) if found is None else found
            if found == number > self.scale.large and self._numbers:
                found = symbol("unsaid", number)
                self._numbers[Symbol("unsaid", (number,))] = number
            self._read[number] = found
        return found

    def _product(self, number: int) -> Size | None:
        """A number as a product of symbols and a small coefficient; None if it is none."""
        monomial: list[Symbol] = []
        for each, prime in self._numbers.items():
            while number % prime == 0:
                number //= prime
                monomial.append(each)
        large = any(self._numbers[each] > self.scale.large for each in monomial)
        if not large and (number >= _MANY or not monomial):
            return None
        return size_of({tuple(sorted(monomial, key=str)): number})

    def _summed(self, number: int, depth: int = 1) -> Size:
        """A number as a sum of one or two products of symbols and a small number, or of a size that was met and such a
        sum; the number itself, where it is none.
        """
        found: set[Size] = set()
        products = self._known_products(number > self.scale.large)
        for one, size in products.items():
            times, rest = _nearest(number, one)
            if 0 < times < _MANY and abs(rest) <= _NEAR:
                return sum_of(product_of(size, times), rest)
        exact: set[Size] = set()
        for one, size in products.items():
            for times in range(1, min(number // one + 1, self.scale.few) + 1):
                for other, further in products.items():
                    count, rest = _nearest(number - times * one, other)
                    if count and other != one and abs(count) < _MANY and abs(rest) <= _NEAR:
                        total = sum_of(sum_of(product_of(size, times), product_of(further, count)), rest)
                        found.add(total)
                        if not rest:
                            exact.add(total)
        for one, size in products.items() if len(exact) != 1 else ():
            times, rest = _nearest(number, one)
            if 0 < times < _MANY and abs(rest) < self.scale.added:
                return sum_of(product_of(size, times), rest)
        found = exact or found
        for known, size in tuple(self._read.items()) if not found and depth else ():
            if not isinstance(size, int) and number > known:
                left = self._product(number - known)
                if left is None:
                    left = self._summed(number - known, depth - 1)
                if not isinstance(left, int):
                    found.add(sum_of(size, left))
        if len(found) > 1:
            raise TypeError(f"a size may be any of {', '.join(map(str, found))}")
        return found.pop() if found else number

    def _known_products(self, large: bool) -> dict[int, Size]:
        """The products of symbols in all sizes that were met, by the numbers that stand for them.

        Large numbers are sums of large ones, and small numbers of lengths of rows.
        """
        found: dict[int, Size] = {}
        for size in tuple(self._read.values()):
            for monomial in terms_of(size):
                if monomial:
                    term = size_of({monomial: 1})
                    found[self.number(term)] = term
        return {number: term for number, term in found.items() if (number > self.scale.large) == large}
