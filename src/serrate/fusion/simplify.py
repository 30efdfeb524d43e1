"""Simplification of indices and predicates by a table of rules, each valid under a condition that bounds can prove.

A row of RULES is two patterns: `left` becomes `right` where all of `when` is proven. The symbols of a pattern stand for
any index expression. Patterns match up to the order of sums and products, and a sum is matched with its products
multiplied out. No rule makes a dividend negative that was not: C's division agrees with Euclid's as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from serrate.fusion.analysis import PARTIAL
from serrate.fusion.dtypes import INDEX
from serrate.fusion.proof import Bounds, Monomial, Prover, expression, factors
from serrate.fusion.scalar import (
    FALSE,
    TRUE,
    Scalar,
    both,
    compare,
    const,
    either,
    equal,
    less,
    less_equal,
    logical_not,
    maximum,
    minimum,
    rebuild,
    symbol,
)

Binding = Mapping[Scalar, Scalar]
_NO_BOUNDS: Bounds = MappingProxyType({})


@dataclass(frozen=True)
class Rule:
    """`left` becomes `right` where `when` is proven and the `constants` among its symbols stand for numbers."""

    name: str
    left: Scalar
    right: Scalar
    when: tuple[Scalar, ...] = ()
    constants: tuple[Scalar, ...] = ()


def _rules() -> tuple[Rule, ...]:
    a, b, c, d, f, i, k, m, n, q, r, x = (symbol(name) for name in "abcdfikmnqrx")
    zero = const(0)
    small, positive = (less_equal(zero, r), less(r, f)), less(zero, f)
    below, at_most = compare("less", a, b), compare("less_equal", a, b)

    orders, comparisons = ("less", "less_equal"), ("less", "less_equal", "equal", "not_equal")
    cancelled = (Rule(f"common term, {op}", compare(op, c + a, c + b), compare(op, a, b)) for op in comparisons)
    constants = (k, m)
    shifted = (Rule(f"shift, {op}", compare(op, k + a, m), compare(op, a, m - k), (), constants) for op in comparisons)
    raised = (Rule(f"raise, {op}", compare(op, m, k + a), compare(op, m - k, a), (), constants) for op in orders)
    return (
        Rule("small quotient", x // n, zero, (less_equal(zero, x), less(x, n))),
        Rule("quotient of a product", (a * n) // n, a, (less(zero, n),)),
        Rule("quotient of a quotient", (i // a) // b, i // (a * b), (less(zero, a), less(zero, b))),
        Rule("quotient of a sum", (q * f + r) // f, q + r // f, (positive, less_equal(zero, r))),
        Rule("quotient by a multiple", (q * f + r) // (b * f), q // b, (*small, less(zero, b))),
        Rule("quotient of a remainder", (x % (a * n)) // n, x // n % a, (less(zero, a), less(zero, n))),
        Rule("small remainder", x % n, x, (less_equal(zero, x), less(x, n))),
        Rule("remainder of a remainder", (x % (a * n)) % n, x % n, (less(zero, a), less(zero, n))),
        Rule("remainder of a sum", (q * f + r) % f, r % f, (positive, less_equal(zero, r))),
        Rule("remainder by a multiple", (q * f + r) % (b * f), q % b * f + r, (*small, less(zero, b))),
        Rule("whole of its parts", (x // n) * (n * k) + (x % n) * k, x * k, (less(zero, n),)),
        Rule("whole of parts of a quotient", (x // (m * n)) * (n * k) + (x // m % n) * k, x // m * k,
             (less(zero, m), less(zero, n))),
        Rule("less", below, TRUE, (below,)),
        Rule("not less", below, FALSE, (less_equal(b, a),)),
        Rule("at most", at_most, TRUE, (at_most,)),
        Rule("not at most", at_most, FALSE, (less(b, a),)),
        Rule("equal", equal(a, b), TRUE, (less_equal(a, b), less_equal(b, a))),
        Rule("below", equal(a, b), FALSE, (less(a, b),)),
        Rule("above", equal(a, b), FALSE, (less(b, a),)),
        Rule("never equal, below", compare("not_equal", a, b), TRUE, (less(a, b),)),
        Rule("never equal, above", compare("not_equal", a, b), TRUE, (less(b, a),)),
        Rule("always equal", compare("not_equal", a, b), FALSE, (less_equal(a, b), less_equal(b, a))),
        Rule("quotient less", less(i // d, x), less(i, x * d), (less(zero, d),)),
        Rule("quotient at most", less_equal(i // d, x), less(i, (x + 1) * d), (less(zero, d),)),
        Rule("less than a quotient", less(x, i // d), less_equal((x + 1) * d, i), (less(zero, d),)),
        Rule("at most a quotient", less_equal(x, i // d), less_equal(x * d, i), (less(zero, d),)),
        Rule("tile less", less(q * f + r, x * f), less(q, x), small),
        Rule("at most a tile", less_equal(x * f, q * f + r), less_equal(x, q), small),
        *cancelled, *shifted, *raised,
        Rule("first is least", minimum(a, b), a, (less_equal(a, b),)),
        Rule("second is least", minimum(a, b), b, (less_equal(b, a),)),
        Rule("first is greatest", maximum(a, b), a, (less_equal(b, a),)),
        Rule("second is greatest", maximum(a, b), b, (less_equal(a, b),)),
        Rule("not of less", logical_not(below), less_equal(b, a)),
        Rule("not of at most", logical_not(at_most), less(b, a)),
        Rule("not of equal", logical_not(equal(a, b)), compare("not_equal", a, b)),
    )  # fmt: skip


RULES: tuple[Rule, ...] = _rules()
_BY_OP: dict[str, tuple[Rule, ...]] = {
    op: tuple(rule for rule in RULES if rule.left.op == op) for op in {rule.left.op for rule in RULES}
}


def simplify(expression: Scalar, bounds: Bounds = _NO_BOUNDS) -> Scalar:
    """An expression of the same value wherever each symbol (or other node) of `bounds` is in its [low, high).

    A high of None stands for no bound. The order of conjuncts is kept, since they guard those after them.

    >>> from serrate.fusion import symbol
    >>> from serrate.fusion.scalar import const, less
    >>> o, j, f, n = (symbol(name) for name in "ojfn")
    >>> inside = {o: (const(0), n), j: (const(0), f)}
    >>> simplify((o * f + j) // f, inside), simplify((o * f + j) % f, inside), simplify(less(o * f + j, n * f), inside)
    (o, j, true)
    """
    return Simplifier(bounds).visit(expression)


class Simplifier:
    """`simplify` for one expression after another under the same bounds: what they have in common is simplified
    once."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.prover = Prover(bounds)
        self.done: dict[Scalar, Scalar] = {}

    def visit(self, root: Scalar) -> Scalar:
        """The simplified expression."""
        for node in root.walk():
            if node not in self.done:
                args = tuple(self.done[argument] for argument in node.args)
                made = self.normal(rebuild(node, args) if args else node)
                self.done[node] = self.done[made] = made
        return self.done[root]

    def normal(self, node: Scalar) -> Scalar:
        """What a node becomes whose operands are simplified already."""
        if node in self.done:
            return self.done[node]
        if node.op == "logical_and":
            return self.conjunction(node)
        if node.op == "logical_or":
            return _disjunction(node)
        if node.dtype == INDEX and node.op in ("add", "subtract", "multiply"):
            node = self.prover.normal(node)
        for rule in _BY_OP.get("add" if node.op == "subtract" else node.op, ()):
            changed = self.apply(rule, node)
            if changed is not None and changed != node:
                return self.visit(changed)
        return node

    def apply(self, rule: Rule, node: Scalar) -> Scalar | None:
        if rule.left.op == "add":
            return self.apply_within_sum(rule, node)
        for found in self.match(rule.left, node, {}):
            if self.allowed(rule, found):
                return rule.right.substitute(found)
        return None

    def apply_within_sum(self, rule: Rule, node: Scalar) -> Scalar | None:
        """The rule on two terms of a sum."""
        if node.dtype != INDEX:
            return None
        first, second = rule.left.args
        terms = self.prover.terms(node, expand=False)
        for at, term in enumerate(terms):
            for found in self.match(second, term, {}):
                for other, partner in enumerate(terms):
                    if other != at:
                        for both_found in self.match(first, partner, found):
                            if self.allowed(rule, both_found):
                                rest = [t for number, t in enumerate(terms) if number not in (at, other)]
                                return self.prover.sum_of([rule.right.substitute(both_found), *rest])
        return None

    def allowed(self, rule: Rule, found: Binding) -> bool:
        return (
            all(value.dtype == INDEX for value in found.values())
            and all(found[name].is_const for name in rule.constants)
            and all(self.prover.holds(condition.substitute(found)) for condition in rule.when)
        )

    # Matching

    def match(self, pattern: Scalar, node: Scalar, found: Binding) -> Iterator[Binding]:
        """Every way the symbols of a pattern can stand for parts of a node, those in `found` as they do there."""
        if pattern.op == "symbol":
            if pattern not in found:
                yield {**found, pattern: node}
            elif found[pattern] == node:
                yield found
        elif pattern.op == "add" and node.dtype == INDEX:
            yield from self.match_sum(pattern, node, found)
        elif pattern.op == "multiply" and node.dtype == INDEX:
            yield from self.match_product(pattern, node, found)
        elif pattern.op == node.op and pattern.args:
            # Plain symbols come first, since they leave the least choice to the rest.
            order = sorted(range(len(pattern.args)), key=lambda at: pattern.args[at].op != "symbol")
            yield from self.match_args(pattern, node, order, found)
        elif pattern == node:
            yield found

    def match_args(self, pattern: Scalar, node: Scalar, order: Sequence[int], found: Binding) -> Iterator[Binding]:
        if not order:
            yield found
            return
        for more in self.match(pattern.args[order[0]], node.args[order[0]], found):
            yield from self.match_args(pattern, node, order[1:], more)

    def match_sum(self, pattern: Scalar, node: Scalar, found: Binding) -> Iterator[Binding]:
        terms = self.prover.terms(node)
        first, second = pattern.args
        if first.op == "multiply" and first.args[0] not in found and first.args[1] in found:
            yield from self.match_multiples(pattern, terms, found)
        for at, term in enumerate(terms):
            for more in self.match(first, term, found):
                rest = self.prover.sum_of(terms[:at] + terms[at + 1 :])
                yield from self.match(second, rest, more)

    def match_multiples(self, pattern: Scalar, terms: Sequence[Scalar], found: Binding) -> Iterator[Binding]:
        """q·f + r for a known f: all terms that f divides at once."""
        (wanted, by), second = pattern.args[0].args, pattern.args[1]
        divided = [_quotient(factors(term), factors(found[by])) for term in terms]
        quotients = [expression(quotient) for quotient in divided if quotient is not None]
        if len(quotients) > 1:
            rest = [term for term, quotient in zip(terms, divided, strict=True) if quotient is None]
            yield from self.match(second, self.prover.sum_of(rest), {**found, wanted: self.prover.sum_of(quotients)})

    def match_product(self, pattern: Scalar, node: Scalar, found: Binding) -> Iterator[Binding]:
        first, second = pattern.args
        whole = factors(node)
        for known, other in ((second, first), (first, second)):
            if known.symbols <= found.keys():
                left = _quotient(whole, factors(known.substitute(found)))
                if left is not None:
                    yield from self.match(other, expression(left), found)
                return
        coefficient, parts = whole
        for at, part in enumerate(parts):
            for more in self.match(first, part, found):
                yield from self.match(second, expression((coefficient, parts[:at] + parts[at + 1 :])), more)
        if coefficient != 1 and parts:
            for more in self.match(first, expression((1, parts)), found):
                yield from self.match(second, const(coefficient), more)

    # Conditions

    def conjunction(self, node: Scalar) -> Scalar:
        """Each conjunct once, without those that follow from ones before it, or after it where it guards nothing."""
        first, second = node.args
        kept = list(_parts(first, "logical_and"))  # simplified already, so that none follows from another
        for condition in _parts(second, "logical_and"):
            if any(self.prover.implies(fact, condition) for fact in kept):
                continue
            if any(self.prover.excludes(fact, condition) for fact in kept):
                return FALSE
            while kept and _is_total(condition) and self.prover.implies(condition, kept[-1]):
                kept.pop()
            kept.append(condition)
        return both(*kept)


def _disjunction(node: Scalar) -> Scalar:
    result = FALSE
    for part in dict.fromkeys(_parts(node, "logical_or")):
        result = either(result, part)
    return result


def _parts(node: Scalar, op: str) -> list[Scalar]:
    """The operands of a chain of `and` or `or`, in the order in which they are evaluated."""
    found: list[Scalar] = []
    left = [node]
    while left:
        part = left.pop()
        if part.op == op:
            left += reversed(part.args)
        else:
            found.append(part)
    return found


def _is_total(condition: Scalar) -> bool:
    return all(node.op not in PARTIAL for node in condition.walk())


def _quotient(whole: Monomial, by: Monomial) -> Monomial | None:
    """`whole` without the factors of `by`, if it has them all."""
    coefficient, parts = whole
    if by[0] == 0 or coefficient % by[0]:
        return None
    left = list(parts)
    for part in by[1]:
        if part not in left:
            return None
        left.remove(part)
    return coefficient // by[0], tuple(left)
