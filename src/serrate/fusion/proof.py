"""Proofs of inequalities between indices from bounds: sums of products, from which one bounded part after another is
replaced by the end of its range that is worst, until a number is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serrate.fusion.dtypes import INDEX
from serrate.fusion.scalar import Scalar, add, const, multiply, subtract

Bounds = Mapping[Scalar, tuple[Scalar, Scalar | None]]  # [low, high); a high of None is unknown
Monomial = tuple[int, tuple[Scalar, ...]]  # a number times expressions that are not products
Polynomial = Mapping[tuple[Scalar, ...], int]  # from factors, in one order, to their coefficient; () is the constant
Ends = tuple[list[Polynomial], list[Polynomial]]  # what is at most, and what is at least, the value of an expression

LARGEST = 64  # terms to which a product of sums is multiplied out
DEEPEST = 16  # replacements in one proof


def factors(node: Scalar) -> Monomial:
    """A product taken apart."""
    coefficient, parts, stack = 1, [], [node]
    while stack:
        part = stack.pop()
        if part.is_const:
            coefficient *= part.value
        elif part.op == "multiply" and part.dtype == INDEX:
            stack += reversed(part.args)
        else:
            parts.append(part)
    return coefficient, tuple(parts)


def product_of(a: Monomial, b: Monomial) -> Monomial:
    """Two products as one."""
    return a[0] * b[0], a[1] + b[1]


def expression(product: Monomial) -> Scalar:
    """A product put together, its number last."""
    coefficient, parts = product
    if not parts or coefficient == 0:
        return const(coefficient)
    result = parts[0]
    for part in parts[1:]:
        result = multiply(result, part)
    return multiply(result, coefficient)


class Prover:
    """Proves comparisons for all values of symbols within `bounds`; what it cannot prove may hold all the same."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.rank: dict[Scalar, int] = {}
        self._products: dict[tuple[Scalar, bool], tuple[Monomial, ...]] = {}
        self._polynomials: dict[Scalar, Polynomial] = {}
        self._ends: dict[Scalar, Ends] = {}
        self._depth: dict[Scalar, int] = {}
        self._least: dict[frozenset[tuple[tuple[Scalar, ...], int]], int | None] = {}
        # A range that something lies in is not empty.
        spans = [self.difference(high, low) for low, high in bounds.values() if high is not None]
        self.facts = [_shifted(span, -1) for span in spans if set(span) - {()}]
        self.implied = {high: low for low, high in bounds.values() if high is not None and high.op == "symbol"}

    # Sums

    def terms(self, node: Scalar, expand: bool = True) -> list[Scalar]:
        """The terms of a sum, products of sums multiplied out if `expand`; like ones added up, the constant last."""
        products = sorted(self.products(node, expand), key=lambda product: not product[1])
        return [expression(product) for product in products]

    def sum_of(self, terms: Sequence[Scalar]) -> Scalar:
        """Terms added up, those with a minus after the others, the constant last."""
        products = [factors(term) for term in terms]
        number = sum(coefficient for coefficient, parts in products if not parts)
        signed = [product for product in products if product[1] and product[0]]
        positive = [expression(product) for product in signed if product[0] > 0]
        negative = [expression((-product[0], product[1])) for product in signed if product[0] < 0]
        result, number = (positive.pop(0), number) if positive else (const(number), 0)
        for term in positive:
            result = add(result, term)
        for term in negative:
            result = subtract(result, term)
        return add(result, number)

    def normal(self, node: Scalar) -> Scalar:
        """A sum with like terms added up, a product with its number last."""
        if node.op == "multiply":
            return expression(factors(node))
        terms = self.terms(node, expand=False)
        multiplied = self.terms(node)
        return self.sum_of(multiplied if len(multiplied) < len(terms) else terms)

    def products(self, node: Scalar, expand: bool) -> tuple[Monomial, ...]:
        """The terms of a sum taken apart, like ones added up."""
        key = (node, expand)
        if key not in self._products:
            self._products[key] = self._merged(self._parts(node, expand))
        return self._products[key]

    def _parts(self, node: Scalar, expand: bool) -> Sequence[Monomial]:
        if node.dtype != INDEX or node.op not in ("const", "add", "subtract", "multiply", "negative"):
            return [(1, (node,))]
        if node.op == "const":
            return [(node.value, ())]
        if node.op == "negative":
            return [(-coefficient, parts) for coefficient, parts in self.products(node.args[0], expand)]
        if node.op == "multiply" and not expand:
            return [factors(node)]
        left, right = (self.products(argument, expand) for argument in node.args)
        if node.op == "multiply":
            if len(left) * len(right) > LARGEST:
                return [factors(node)]
            return [product_of(a, b) for a in left for b in right]
        sign = 1 if node.op == "add" else -1
        return [*left, *((sign * coefficient, parts) for coefficient, parts in right)]

    def _merged(self, products: Sequence[Monomial]) -> tuple[Monomial, ...]:
        made: dict[tuple[Scalar, ...], Monomial] = {}
        for coefficient, parts in products:
            key = self._sorted(parts)
            before, first = made.get(key, (0, parts))
            made[key] = before + coefficient, first
        return tuple(product for product in made.values() if product[0])

    def _sorted(self, parts: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        for part in parts:
            self.rank.setdefault(part, len(self.rank))
        return tuple(sorted(parts, key=self.rank.__getitem__)) if len(parts) > 1 else parts

    def polynomial(self, node: Scalar) -> Polynomial:
        """The node as a sum of products."""
        if node not in self._polynomials:
            products = self.products(node, True)
            self._polynomials[node] = {self._sorted(parts): coefficient for coefficient, parts in products}
        return self._polynomials[node]

    def difference(self, a: Scalar, b: Scalar) -> Polynomial:
        """a − b."""
        return self._plus(self.polynomial(a), self.polynomial(b), -1)

    def _plus(self, a: Polynomial, b: Polynomial, times: int = 1) -> Polynomial:
        made = dict(a)
        for parts, coefficient in b.items():
            made[parts] = made.get(parts, 0) + times * coefficient
        return {parts: coefficient for parts, coefficient in made.items() if coefficient}

    def _times(self, a: Polynomial, b: Polynomial) -> Polynomial:
        made: dict[tuple[Scalar, ...], int] = {}
        for left, m in a.items():
            for right, n in b.items():
                key = self._sorted(left + right)
                made[key] = made.get(key, 0) + m * n
        return {parts: coefficient for parts, coefficient in made.items() if coefficient}

    # Proofs

    def holds(self, condition: Scalar) -> bool:
        """Whether a comparison is proven."""
        if condition.is_const:
            return bool(condition.value)
        return condition.op in ("less", "less_equal") and all(map(self.nonnegative, self.claims(condition)))

    def claims(self, condition: Scalar) -> list[Polynomial]:
        """What must be 0 or more, all of it, for a comparison to hold; nothing is known of other conditions."""
        a, b = condition.args
        match condition.op:
            case "less":
                return [_shifted(self.difference(b, a), -1)]
            case "less_equal":
                return [self.difference(b, a)]
        return [self.difference(b, a), self.difference(a, b)]

    def implies(self, fact: Scalar, condition: Scalar) -> bool:
        """Whether a condition is proven to hold where `fact` does."""
        if fact == condition:
            return True
        if not (_comparable(fact) and _comparable(condition)):
            return False
        given = self.claims(fact)
        return all(any(self._follows(claim, known) for known in given) for claim in self.claims(condition))

    def excludes(self, fact: Scalar, condition: Scalar) -> bool:
        """Whether a condition is proven to fail where `fact` holds."""
        if not (_comparable(fact) and _comparable(condition)):
            return False
        opposites = (_shifted({parts: -n for parts, n in claim.items()}, -1) for claim in self.claims(condition))
        given = self.claims(fact)
        return any(self._follows(opposite, known) for opposite in opposites for known in given)

    def _follows(self, claim: Polynomial, known: Polynomial) -> bool:
        return self.nonnegative(self._plus(claim, known, -1))

    def nonnegative(self, value: Polynomial) -> bool:
        """Whether a sum is proven to be 0 or more."""
        least = self.least(value)
        if least is not None and least >= 0:
            return True
        for fact in self.facts:
            if not any(product and product in value for product in fact):
                continue
            least = self.least(self._plus(value, fact, -1))
            if least is not None and least >= 0:
                return True
        return False

    def least(self, value: Polynomial, deepest: int = DEEPEST) -> int | None:
        """A number the value is never below, if one is found."""
        key = frozenset(value.items())
        if key not in self._least:
            self._least[key] = None  # while it is looked for
            self._least[key] = self._search(value, deepest)
        return self._least[key]

    def _search(self, value: Polynomial, deepest: int) -> int | None:
        parts = {part for product in value for part in product}
        if not parts:
            return value.get((), 0)
        if deepest == 0:
            return None
        # What has bounds made of others goes before those others.
        chosen = max(parts, key=lambda part: (self.depth(part), self.rank[part]))
        slope = {_without(product, chosen): n for product, n in value.items() if chosen in product}
        rest = {product: n for product, n in value.items() if chosen not in product}
        rising = self.least(slope, deepest - 1)
        if rising is not None and rising >= 0:
            ends = self.ends(chosen)[0]
        else:
            falling = self.least({product: -n for product, n in slope.items()}, deepest - 1)
            if falling is None or falling < 0:
                return None
            ends = self.ends(chosen)[1]
        found = [self.least(self._plus(rest, self._times(slope, end)), deepest - 1) for end in ends]
        return max((number for number in found if number is not None), default=None)

    def depth(self, node: Scalar) -> int:
        """0 for what has no bounds, else more than any part of its bounds."""
        if node not in self._depth:
            self._depth[node] = 0
            around = [*node.args, *(end for end in self.bounds.get(node, ()) if end is not None)]
            self._depth[node] = max((self.depth(part) for part in around), default=-1) + 1
        return self._depth[node]

    def ends(self, node: Scalar) -> Ends:
        """Lower and upper bounds of a node."""
        if node not in self._ends:
            self._ends[node] = ([], [])  # while they are looked for
            lows, highs = self._ends_by_operation(node)
            low, high = self.bounds.get(node, (None, None))
            if low is not None:
                lows.append(self.polynomial(low))
            if high is not None:
                highs.append(_shifted(self.polynomial(high), -1))
            if node in self.implied:
                lows.append(_shifted(self.polynomial(self.implied[node]), 1))
            self._ends[node] = lows, highs
        return self._ends[node]

    def _ends_by_operation(self, node: Scalar) -> Ends:
        numbers = [self.polynomial(argument) for argument in node.args if argument.dtype == INDEX]
        match node.op:
            case "index_remainder" | "index_divide" if self.nonnegative(_shifted(numbers[1], -1)):
                return self._ends_of_division(node.op, numbers[0], numbers[1])
            case "search":
                return [{}], [_shifted(numbers[0], -1)]
            case "minimum":
                return self._extreme(numbers, least=True), numbers
            case "maximum":
                return numbers, self._extreme(numbers, least=False)
            case "where" if node.dtype == INDEX:
                return self._extreme(numbers, least=True), self._extreme(numbers, least=False)
        return [], []

    def _ends_of_division(self, op: str, x: Polynomial, n: Polynomial) -> Ends:
        lowest = self.least(x)
        lows: list[Polynomial] = [{}] if op == "index_remainder" or (lowest is not None and lowest >= 0) else []
        highs = [x] if lowest is not None and lowest >= 0 else []
        if op == "index_remainder":
            return lows, [_shifted(n, -1), *highs]
        if set(n) == {()}:
            lows += [_number(number // n[()]) for number in [lowest] if number is not None]
            highs += [_number(-least // n[()]) for least in [self._greatest_negated(x)] if least is not None]
        return lows, highs

    def _greatest_negated(self, x: Polynomial) -> int | None:
        return self.least({parts: -n for parts, n in x.items()})

    def _extreme(self, values: Sequence[Polynomial], least: bool) -> list[Polynomial]:
        """A number below (above, if not `least`) all of the values, if there is one."""
        found = [self.least(value) if least else self._greatest_negated(value) for value in values]
        numbers = [number for number in found if number is not None]
        if len(numbers) < len(values):
            return []
        return [_number(min(numbers) if least else -min(numbers))]


def _comparable(condition: Scalar) -> bool:
    return condition.op in ("less", "less_equal", "equal") and condition.args[0].dtype == INDEX


def _number(value: int) -> Polynomial:
    return {(): value} if value else {}


def _shifted(value: Polynomial, by: int) -> Polynomial:
    return {**value, (): value.get((), 0) + by}


def _without(product: tuple[Scalar, ...], part: Scalar) -> tuple[Scalar, ...]:
    left = list(product)
    left.remove(part)
    return tuple(left)
