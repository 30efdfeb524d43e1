"""Every rule of simplification is proven; what is simplified has the value it had."""

from __future__ import annotations

import itertools
import math
import time
from random import Random

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fusion.translation import Translation, divided, proven

from serrate.fusion.analysis import evaluate
from serrate.fusion.proof import Prover
from serrate.fusion.scalar import (
    FALSE,
    TRUE,
    Scalar,
    both,
    ceildiv,
    compare,
    const,
    either,
    equal,
    less,
    less_equal,
    load,
    logical_not,
    make,
    maximum,
    minimum,
    search,
    symbol,
    where,
)
from serrate.fusion.simplify import RULES, Rule, simplify

ZERO, ONE = const(0), const(1)
I, J, K, F, N, M, O = (symbol(name) for name in "ijkfnmo")  # noqa: E741
TILED = {O: (ZERO, N), J: (ZERO, F)}

DIVISIONS = ("index_divide", "index_remainder")


def _witnesses() -> dict[str, tuple[Scalar, Scalar, Scalar, Scalar]]:
    """(x, n, x / n, x mod n) that z3 is told to look at, where a rule divides by what is not a number."""
    a, b, f, i, n, q, r, x = (symbol(name) for name in "abfinqrx")
    by_factor = (q * f + r, f, q + r // f, r % f)
    by_multiple = (q * f + r, b * f, q // b, q % b * f + r)
    return {
        "small quotient": (x, n, ZERO, x),
        "small remainder": (x, n, ZERO, x),
        "quotient of a product": (a * n, n, a, ZERO),
        "quotient of a quotient": (i, a * b, (i // a) // b, i // a % b * a + i % a),
        "quotient of a sum": by_factor,
        "remainder of a sum": by_factor,
        "quotient by a multiple": by_multiple,
        "remainder by a multiple": by_multiple,
        "remainder of a remainder": (x, n, x // (a * n) * a + x % (a * n) // n, x % (a * n) % n),
    }


WITNESSES = _witnesses()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rules_are_theorems(rule: Rule) -> None:
    translate = Translation()
    known = [translate(condition) for condition in rule.when]
    if rule.name in WITNESSES:
        known.append(divided(*map(translate, WITNESSES[rule.name]), known))
    assert proven(translate(rule.left) == translate(rule.right), known)


def _divides_below_zero(side: Scalar, values: dict[str, int]) -> bool:
    return any(node.op in DIVISIONS and evaluate(node.args[0], values) < 0 for node in side.walk())


def _breaks(rule: Rule, values: dict[str, int]) -> bool:
    """Whether a rule changes the value, or a dividend to one below 0, or divides by what is not positive."""
    divisors = [node.args[1] for side in (rule.left, rule.right) for node in side.walk() if node.op in DIVISIONS]
    if any(evaluate(divisor, values) <= 0 for divisor in divisors):
        return True
    lower = _divides_below_zero(rule.right, values) and not _divides_below_zero(rule.left, values)
    return lower or evaluate(rule.left, values) != evaluate(rule.right, values)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.when], ids=lambda rule: rule.name)
def test_no_condition_of_a_rule_is_idle(rule: Rule) -> None:
    names = sorted(name.value for name in rule.left.symbols)
    everything = [
        dict(zip(names, numbers, strict=True)) for numbers in itertools.product(range(-3, 4), repeat=len(names))
    ]
    for dropped in rule.when:
        others = [condition for condition in rule.when if condition != dropped]
        allowed = (values for values in everything if all(evaluate(condition, values) for condition in others))
        assert any(_breaks(rule, values) for values in allowed), f"{rule.name} does not need {dropped}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_rule_makes_a_dividend_negative_or_a_divisor_zero(rule: Rule) -> None:
    """Where the dividends of the left side are 0 or more, and divisors positive, so are those of the right side."""

    def divisions(side: Scalar) -> list[Scalar]:
        return [node for node in side.walk() if node.op in DIVISIONS]

    translate = Translation()
    claims = {
        side: [(translate(d.args[0]) >= 0, translate(d.args[1]) > 0) for d in divisions(side)]
        for side in (rule.left, rule.right)
    }
    known = [claim for pair in claims[rule.left] for claim in pair] + [translate(condition) for condition in rule.when]
    for dividend, divisor in claims[rule.right]:
        assert proven(z3.And(dividend, divisor), known)


def test_names_of_rules_are_distinct() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


EXAMPLES = [
    ((O * F + J) // F, TILED, O),
    ((O * F + J) % F, TILED, J),
    ((J + F * O) // F, TILED, O),
    ((O * 8 + J) // 4, {O: (ZERO, N), J: (ZERO, const(4))}, O * 2),
    ((O * 4 + J) // 8, {O: (ZERO, N), J: (ZERO, const(4))}, O // 2),
    ((O * 4 + J) % 8, {O: (ZERO, N), J: (ZERO, const(4))}, O % 2 * 4 + J),
    ((I * N + J) // (M * N), {I: (ZERO, None), J: (ZERO, N), M: (ONE, None)}, I // M),
    (((O * 4 + J) * N + K) // (N * 4), {O: (ZERO, None), J: (ZERO, const(4)), K: (ZERO, N)}, O),
    ((I // 3) // 4, {}, I // 12),
    ((I // F) // N, {F: (ONE, None), N: (ONE, None)}, I // (F * N)),
    (I % N, {I: (ZERO, N)}, I),
    (I // N, {I: (ZERO, N)}, ZERO),
    ((I * N) // N, {N: (ONE, None)}, I),
    ((I // 4) * 4 + I % 4, {}, I),
    (I % 4 + J + I // 4 * 4, {}, I + J),
    ((I // N) * N + I % N, {N: (ONE, None)}, I),
    ((I % 4) * 3 + (I // 4) * 12, {}, I * 3),
    ((I // 18 * 3 + I // 6 % 3) * 6 + I % 6, {}, I),
    (((I // 96 * 3 + I // 32 % 3) * 4 + I // 8 % 4) * 8 + I % 8, {}, I),
    (I // 6 % 3 * 5 + I // 18 * 15, {}, I // 6 * 5),
    ((I // (M * N) * M + I // N % M) * N + I % N, {M: (ONE, None), N: (ONE, None)}, I),
    (less(I // 4, 7), {}, less(I, 28)),
    (less(I // F, N), {F: (ONE, None)}, less(I, N * F)),
    (less_equal(ZERO, I // 4), {}, less_equal(ZERO, I)),
    (less(O * F + J, N * F), TILED, TRUE),
    (less(O * F + J, M * F), {J: (ZERO, F)}, less(O, M)),
    (less(I, N), {I: (ZERO, N)}, TRUE),
    (less(N, I), {I: (ZERO, N)}, FALSE),
    (less_equal(ZERO, I), {I: (ZERO, N)}, TRUE),
    (less(ZERO, N), {I: (ZERO, N)}, TRUE),  # a range that something lies in is not empty
    (equal(I, 5), {I: (ZERO, const(5))}, FALSE),
    (less(I - 2, 8), {}, less(I, 10)),
    (less_equal(ZERO, I - 2), {}, less_equal(const(2), I)),
    (less(I + J, N + I), {}, less(J, N)),
    (minimum(I, N), {I: (ZERO, N)}, I),
    (maximum(I, N), {I: (ZERO, N)}, N),
    (minimum(I, 7), {I: (ZERO, const(7))}, I),
    (minimum(I // 4, 1), {I: (ZERO, const(8))}, I // 4),
    (less(I % 4, 4), {}, TRUE),
    (less(I * I, N * N), {I: (ZERO, N)}, TRUE),
    (less(I % N, N), {N: (ONE, None)}, TRUE),
    (less_equal(I % 4, I), {I: (ZERO, None)}, TRUE),
    (less(minimum(I, J), 5), {I: (ZERO, const(5))}, TRUE),
    (less_equal(const(0), maximum(I, J)), {I: (ZERO, const(5))}, TRUE),
    (less(where(less(J, K), I, 7), 8), {I: (ZERO, const(5))}, TRUE),
    (less(search("off", N, I), N), {}, TRUE),
    (const(3) + I + 4 + J, {}, I + J + 7),
    ((I + 3) * 2 - I * 2, {}, const(6)),
    (both(less(I, N), both(less_equal(ZERO, I), less(I, N))), {}, both(less(I, N), less_equal(ZERO, I))),
    (both(less(I, 5), less(I, 9)), {}, less(I, 5)),
    (both(less(I, 9), less(I, 5)), {}, less(I, 5)),
    (both(less(I, 3), less(const(5), I)), {}, FALSE),
    (logical_not(less(I, N)), {}, less_equal(N, I)),
    (where(less(I, N), I, J), {I: (ZERO, N)}, I),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "bounds", "wanted"), EXAMPLES, ids=[str(example[0]) for example in EXAMPLES])
def test_examples(given_: Scalar, bounds: dict, wanted: Scalar) -> None:
    assert simplify(given_, bounds) == wanted


UNCHANGED = [
    ((O * F + J) // F, {}),  # nothing is known of f and j
    (I // N, {I: (ZERO, None), N: (ONE, None)}),
    (I // 18 * 18 + I // 6 % 4 * 6, {}),  # 18 is not 6 times 4
    (I // 18 * 12 + I // 6 % 3 * 6, {}),  # 12 is not 3 times 6
    (I // 18 * 3 + J // 6 % 3, {}),
    (I % N, {I: (const(-1), N), N: (ONE, None)}),
    (less(I, N), {I: (ZERO, N + 1)}),
    ((I * N) // N, {N: (ZERO, None)}),
    (less(I // F, N), {F: (ZERO, None)}),
    (minimum(I, N), {I: (ZERO, N + 2)}),
    (ceildiv(N, 4), {N: (ZERO, None)}),
    (less(I % 4, 3), {}),
    (less(I % N, N - 1), {N: (ONE, None)}),
    (minimum(I // 4, 1), {I: (ZERO, const(9))}),
    (less(minimum(I, J), 4), {I: (ZERO, const(5))}),
    (less(const(0), maximum(I, J)), {I: (ZERO, const(5))}),
    (less(where(less(J, K), I, 7), 7), {I: (ZERO, const(5))}),
    (less(search("off", N, I), N - 1), {}),
]


@pytest.mark.parametrize(("given_", "bounds"), UNCHANGED, ids=[str(example[0]) for example in UNCHANGED])
def test_what_is_not_proven_stays(given_: Scalar, bounds: dict) -> None:
    assert simplify(given_, bounds) == given_


def test_a_guard_stays_before_what_it_guards() -> None:
    guarded = both(less(I, 9), less(load("a", I), 3), less(I, 5))
    assert simplify(guarded) == guarded
    by_divisor = both(less(ZERO, N), less(J, I % N), less(const(2), N))
    assert simplify(by_divisor) == by_divisor
    assert evaluate(simplify(guarded), {"i": 20}, {"a": [1, 2]}) is False
    element = load("a", I)
    implied_by_what_it_guards = both(less(I, 2), less(I + element, 2))
    simplified = simplify(implied_by_what_it_guards, {element: (ZERO, None)})
    assert evaluate(simplified, {"i": 20}, {"a": [1, 2]}) is False


# Random expressions, and all values of their symbols

BOUNDED = {
    I: (ZERO, const(5)), J: (ZERO, F), K: (const(-2), const(2)), F: (ONE, const(4)),
}  # fmt: skip


def _values() -> list[dict[str, int]]:
    everything = itertools.product(range(5), range(3), range(-2, 2), range(1, 4))
    return [{"i": i, "j": j, "k": k, "f": f} for i, j, k, f in everything if j < f]


VALUES = _values()


def _integers() -> st.SearchStrategy[Scalar]:
    leaves = st.sampled_from([I, J, K, F, *(const(n) for n in range(-3, 9))])
    divisor = st.sampled_from([F, const(2), const(3), const(4), F * 2])

    def grow(inner: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
        pair = st.tuples(inner, inner)
        raw = st.sampled_from(["add", "subtract", "multiply", "minimum", "maximum"])
        return st.one_of(
            st.builds(lambda op, p: make(op, p), raw, pair),
            st.builds(lambda op, x, d: make(op, (x, d)), st.sampled_from(DIVISIONS), inner, divisor),
            st.builds(lambda q, d, r: q * d + r, inner, divisor, inner),
            st.builds(lambda x, d: x // d * d + x % d, inner, divisor),
            st.builds(lambda op, p, q: where(compare(op, *p), *q), st.sampled_from(["less", "equal"]), pair, pair),
        )

    return st.recursive(leaves, grow, max_leaves=10)


def _conditions() -> st.SearchStrategy[Scalar]:
    comparison = st.builds(
        compare, st.sampled_from(["less", "less_equal", "equal", "not_equal"]), _integers(), _integers()
    )
    return st.recursive(
        comparison,
        lambda inner: st.one_of(
            st.builds(both, inner, inner),
            st.builds(both, inner, inner, inner),
            st.builds(either, inner, inner),
            st.builds(logical_not, inner),
        ),
        max_leaves=5,
    )


@settings(max_examples=400)
@given(_integers() | _conditions())
def test_random_expressions_keep_their_values(expression: Scalar) -> None:
    simplified = simplify(expression, BOUNDED)
    for values in VALUES:
        assert evaluate(simplified, values) == evaluate(expression, values), (expression, simplified, values)
    assert simplify(expression, BOUNDED) == simplified


@settings(max_examples=400)
@given(_integers(), _integers())
def test_no_value_is_below_what_is_proven(left: Scalar, right: Scalar) -> None:
    prover = Prover(BOUNDED)
    least = prover.least(prover.difference(left, right))
    differences = [evaluate(left, values) - evaluate(right, values) for values in VALUES]
    assert least is None or least <= min(differences)


@settings(max_examples=100)
@given(_integers() | _conditions())
def test_simplifying_twice_is_simplifying_once(expression: Scalar) -> None:
    once = simplify(expression, BOUNDED)
    assert simplify(once, BOUNDED) == once


def test_hundreds_of_nodes_are_cheap() -> None:
    index = ZERO
    bounds = {}
    for number in range(12):
        axis = symbol(f"axis{number}")
        bounds[axis] = (ZERO, const(6))
        index = index * 6 + axis
    conditions = [less((index + number) // 4 % 9, symbol(f"n{number}")) for number in range(40)]
    expression = both(*conditions)
    nodes = sum(1 for _ in expression.walk())
    start = time.process_time()
    simplify(expression, bounds)
    spent = time.process_time() - start
    assert spent < nodes * 0.005  # several times what it takes


@pytest.mark.parametrize("seed", range(20))
def test_merged_axes_come_apart_and_together_again(seed: int) -> None:
    """The address of an element of axes that were merged, in any order of merging, is the index of the merged axis if
    memory has them in that order; if memory has them in another order, the address keeps its value."""
    random = Random(seed)
    for _ in range(20):
        extents = [random.randint(1, 5) for _ in range(random.randint(2, 5))]
        indices = _parts_of(I, extents, random)
        order = random.sample(range(len(extents)), len(extents)) if random.random() < 0.5 else range(len(extents))
        address = const(0)
        for axis in order:
            address = address * extents[axis] + indices[axis]
        inside = {I: (ZERO, const(math.prod(extents)))}
        simpler = simplify(address, inside)
        for value in range(math.prod(extents)):
            place = 0
            for axis in order:
                place = place * extents[axis] + value // math.prod(extents[axis + 1 :]) % extents[axis]
            assert evaluate(simpler, {"i": value}) == place
        if list(order) == sorted(order):
            assert simpler in (I, ZERO) if math.prod(extents) == 1 else simpler == I, (address, simpler, extents)


def _parts_of(index: Scalar, extents: list[int], random: Random) -> list[Scalar]:
    """The indices of axes that were merged to one, two at a time in a random order."""
    if len(extents) == 1:
        return [index]
    at = random.randrange(1, len(extents))
    inner = math.prod(extents[at:])
    return [*_parts_of(index // inner, extents[:at], random), *_parts_of(index % inner, extents[at:], random)]
