"""Scalar expressions as z3 terms, and what it means that z3 proves something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import z3

from serrate.fusion.dtypes import BOOL
from serrate.fusion.scalar import Scalar

XOR_BITS = 4

_DIRECT: dict[str, Callable[..., z3.ExprRef]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "index_divide": lambda a, b: a / b,  # of z3 Ints: Euclidean
    "index_remainder": lambda a, b: a % b,
    "negative": lambda a: -a,
    "minimum": lambda a, b: z3.If(a <= b, a, b),
    "maximum": lambda a, b: z3.If(a >= b, a, b),
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "logical_and": z3.And,
    "logical_or": z3.Or,
    "logical_not": z3.Not,
    "where": z3.If,
    "cast": lambda a: a,
}


class Translation:
    """z3 terms of scalar expressions; gathers what is known of the arrays they read and the divisors they use.

    An array is a function that never decreases and starts at 0. What that says about the elements that are read is
    added to `facts`, for the indices at which they are read, so that no proof needs quantifiers.
    """

    def __init__(self, counts: dict[str, z3.ExprRef] | None = None) -> None:
        self.counts = counts or {}  # the number of components of each array of offsets
        self.facts: list[z3.BoolRef] = []
        self.divisors: list[z3.ExprRef] = []
        self.searched: list[tuple[z3.ExprRef, z3.ExprRef]] = []  # (position, total)
        self._read: dict[str, list[z3.ExprRef]] = {}
        self._made: dict[Scalar, z3.ExprRef] = {}

    def __call__(self, expression: Scalar | int) -> z3.ExprRef:
        if isinstance(expression, int):
            return z3.IntVal(expression)
        for node in expression.walk():
            if node not in self._made:
                self._made[node] = self._translated(node, [self._made[argument] for argument in node.args])
        return self._made[expression]

    def _translated(self, node: Scalar, args: Sequence[z3.ExprRef]) -> z3.ExprRef:
        match node.op:
            case "const":
                return z3.BoolVal(node.value) if node.dtype == BOOL else z3.IntVal(node.value)
            case "symbol":
                return z3.Bool(node.value) if node.dtype == BOOL else z3.Int(node.value)
            case "load":
                return self.element(node.value, args[0])
            case "search":
                return self._component(node.value, args[0], args[1])
            case "bitwise_xor":
                return _xor(args[0], args[1])
            case "index_divide" | "index_remainder":
                self.divisors.append(args[1])
        return _DIRECT[node.op](*args)

    def element(self, array: str, index: z3.ExprRef) -> z3.ExprRef:
        offsets = z3.Function(array, z3.IntSort(), z3.IntSort())
        seen = self._read.setdefault(array, [])
        if not seen:
            self.facts.append(offsets(0) == 0)
            seen += [z3.IntVal(0), self.counts[array]]
            self.facts.append(z3.Implies(self.counts[array] >= 0, offsets(self.counts[array]) >= 0))
        for other in seen:
            for low, high in ((index, other), (other, index)):
                inside = z3.And(low >= 0, low <= high, high <= self.counts[array])
                self.facts.append(z3.Implies(inside, offsets(low) <= offsets(high)))
        seen.append(index)
        return offsets(index)

    def _component(self, array: str, count: z3.ExprRef, position: z3.ExprRef) -> z3.ExprRef:
        found = z3.Int(f"search_{array}_{len(self.facts)}")
        total = self.element(array, count)
        here, after = self.element(array, found), self.element(array, found + 1)
        inside = z3.And(position >= 0, position < total)
        self.searched.append((position, total))
        self.facts.append(z3.Implies(inside, z3.And(found >= 0, found < count, here <= position, position < after)))
        return found


def _xor(a: z3.ExprRef, b: z3.ExprRef) -> z3.ExprRef:
    """For operands of XOR_BITS bits."""
    bits = [(z3.If((a / 2**bit) % 2 != (b / 2**bit) % 2, 2**bit, 0)) for bit in range(XOR_BITS)]
    return z3.Sum(bits)


def counterexample(claim: z3.BoolRef, given: Sequence[z3.BoolRef] = (), seconds: float = 20) -> z3.ModelRef | None:
    """Values for which all of `given` holds and the claim does not; None if z3 proves that there are none."""
    alone = z3.Context()  # what z3 finds depends on the terms it has seen before
    solver = z3.Solver(ctx=alone)
    solver.set("timeout", int(seconds * 1000))
    solver.add(*(term.translate(alone) for term in (*given, z3.Not(claim))))
    answer = solver.check()
    assert answer != z3.unknown, f"z3 gave up: {solver.reason_unknown()}"
    return solver.model().translate(z3.main_ctx()) if answer == z3.sat else None


def proven(claim: z3.BoolRef, given: Sequence[z3.BoolRef] = ()) -> bool:
    """Whether the claim holds wherever all of `given` does."""
    return counterexample(claim, given) is None


def inside(index: z3.ExprRef, extent: z3.ExprRef) -> z3.BoolRef:
    """That an index is in bounds."""
    return z3.And(index >= 0, index < extent)


def unique(
    x: z3.ExprRef, n: z3.ExprRef, quotient: z3.ExprRef, remainder: z3.ExprRef
) -> tuple[list[z3.BoolRef], z3.BoolRef]:
    """Conditions, and what follows from them: that these are the quotient and the remainder of x / n."""
    conditions = [n > 0, x == n * quotient + remainder, remainder >= 0, remainder < n]
    return conditions, z3.And(x / n == quotient, x % n == remainder)


def divided(
    x: z3.ExprRef, n: z3.ExprRef, quotient: z3.ExprRef, remainder: z3.ExprRef, given: Sequence[z3.BoolRef] = ()
) -> z3.BoolRef:
    """That x / n is `quotient` and x mod n `remainder`, once proven to be; z3 may not see it by itself."""
    conditions, result = unique(x, n, quotient, remainder)
    assert proven(z3.And(conditions), given)
    return result
