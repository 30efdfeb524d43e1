"""The walk rules of every row of the axis table, proven by z3 on the table as it is, for symbolic extents."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import z3
from tests.fusion.translation import Translation, counterexample, inside, proven

from serrate.fusion import IterDomain, RaggedIterDomain
from serrate.fusion.axes import ragged
from serrate.fusion.expressions import TABLE, AxisExpression, extent_of
from serrate.fusion.raggedness import Listed, Pieces, Product, Raggedness, Resized, Scaled, Stored, listed
from serrate.fusion.scalar import const, load, symbol
from serrate.fusion.transforms import cover


def _stored() -> tuple[IterDomain, RaggedIterDomain]:
    component = IterDomain("k")
    return component, RaggedIterDomain.of(Stored("off", symbol("k"), symbol("n")), component=component)


@dataclass(frozen=True)
class Case:
    """A row of the table on symbolic extents."""

    name: str
    step: AxisExpression
    outside: tuple[IterDomain, ...] = ()  # component axes that the step does not have

    def raggednesses(self) -> list[Raggedness]:
        found: list[Raggedness] = []
        for axis in (*self.step.inputs, *self.step.outputs):
            if axis.is_ragged:
                found += _with_bases(ragged(axis).raggedness)
        return list(dict.fromkeys(found))


def _with_bases(raggedness: Raggedness) -> list[Raggedness]:
    match raggedness:
        case Pieces(base, _) | Scaled(base, _) | Resized(base, _):
            return [*_with_bases(base), raggedness]
        case Product(left, right):
            return [*_with_bases(left), *_with_bases(right), raggedness]
    return [raggedness]


def _made(axes: IterDomain | tuple[IterDomain, ...]) -> AxisExpression:
    step = (axes if isinstance(axes, IterDomain) else axes[0]).definition
    assert step is not None
    return step


def _regular_cases() -> list[Case]:
    n, f = symbol("n"), symbol("f")
    cases = [
        Case("split", _made(IterDomain.split(IterDomain(n), f))),
        Case("split by 4", _made(IterDomain.split(IterDomain(n), 4))),
        Case("divisible split", _made(IterDomain.split(IterDomain(n * f), f))),
        Case("divisible split by 4", _made(IterDomain.split(IterDomain(n * 8), 4))),
        Case("outer split", _made(IterDomain.split(IterDomain(n), f, inner_split=False))),
        Case("outer split by 4", _made(IterDomain.split(IterDomain(n), 4, inner_split=False))),
        Case("divisible outer split by 4", _made(IterDomain.split(IterDomain(n * 4), 4, inner_split=False))),
        Case("merge", _made(IterDomain.merge(IterDomain("a"), IterDomain("b")))),
        Case("merge with 4", _made(IterDomain.merge(IterDomain("a"), IterDomain(4)))),
        Case("merge with 0", _made(IterDomain.merge(IterDomain("a"), IterDomain(0)))),
        Case("swizzle by xor", _made(IterDomain.swizzle(IterDomain(8), IterDomain(8)))),
        Case("swizzle by shift", _made(IterDomain.swizzle(IterDomain("a"), IterDomain("b"), "shift"))),
    ]
    for left, right in itertools.product((-2, 0, 3), repeat=2):
        cases.append(Case(f"resize by {left}, {right}", _made(IterDomain.resize(IterDomain(n), left, right))))
    return cases


def _ragged_cases() -> list[Case]:
    cases: list[Case] = []

    def case(name: str, make: Callable[[IterDomain, RaggedIterDomain], object]) -> None:
        component, rows = _stored()
        cases.append(Case(name, _made(make(component, rows)), (component,)))  # type: ignore[arg-type]

    def on_rows(name: str, step: Callable[[RaggedIterDomain], object]) -> None:
        case(name, lambda _, rows: step(rows))

    on_rows("ragged split", lambda rows: IterDomain.split(rows, 4))
    on_rows("ragged split by a symbol", lambda rows: IterDomain.split(rows, symbol("f")))
    on_rows("ragged outer split", lambda rows: IterDomain.split(rows, 4, inner_split=False))
    on_rows("divisible ragged split", lambda rows: IterDomain.split(IterDomain.merge(rows, IterDomain(8)), 4))
    on_rows("merge of ragged and regular", lambda rows: IterDomain.merge(rows, IterDomain("b")))
    on_rows("merge of ragged and 4", lambda rows: IterDomain.merge(rows, IterDomain(4)))
    on_rows("merge of regular and ragged", lambda rows: IterDomain.merge(IterDomain("a"), rows))
    on_rows("cover", cover)
    for left, right in itertools.product((-2, 0, 3), repeat=2):
        on_rows(f"ragged resize by {left}, {right}", lambda rows, by=(left, right): IterDomain.resize(rows, *by))

    def product(component: IterDomain, rows: RaggedIterDomain) -> RaggedIterDomain:
        keys = RaggedIterDomain.of(Stored("keys", symbol("k"), symbol("nk")), component=component)
        return ragged(IterDomain.merge(rows, keys))

    case("product", product)
    case("combine", IterDomain.combine)
    case("combine of pieces", lambda c, rows: IterDomain.combine(c, IterDomain.split(rows, 4)[0]))
    case("combine of a merge", lambda c, rows: IterDomain.combine(c, IterDomain.merge(rows, IterDomain("b"))))
    case("combine of a product", lambda c, rows: IterDomain.combine(c, product(c, rows)))
    case("combine of a resize", lambda c, rows: IterDomain.combine(c, IterDomain.resize(rows, -1, 0)))
    case("partition", lambda _, rows: IterDomain.partition(IterDomain("n"), rows.raggedness))
    case("partition of what is listed", lambda _, rows: IterDomain.partition(IterDomain(10), listed((3, 5, 2))))
    return cases


CASES = [*_regular_cases(), *_ragged_cases()]


def test_every_row_has_a_case() -> None:
    assert {type(case.step) for case in CASES} == set(TABLE)


class Walked:
    """One step, in one direction: indices as z3 terms, and what is known of them."""

    def __init__(self, case: Case, forward: bool) -> None:
        step = case.step
        self.case = case
        self.forward = forward
        self.sources = step.inputs if forward else step.outputs
        self.targets = step.outputs if forward else step.inputs
        self.indices = {axis: symbol(f"index{number}") for number, axis in enumerate(self.sources)}
        self.outside = [axis for axis in case.outside if axis not in (*step.inputs, *step.outputs)]
        self.indices |= {axis: symbol("component") for axis in self.outside}
        self.translate = Translation({r.array: self._count(r) for r in case.raggednesses()})
        index = step.forward if forward else step.backward
        given = [self.indices[axis] for axis in self.sources]
        computed = index(given, self.indices.__getitem__)
        for made in computed:
            self.translate(made)
        self.divisors = list(self.translate.divisors)
        self.searched = list(self.translate.searched)
        self.indices |= dict(zip(self.targets, computed, strict=True))

    @staticmethod
    def _count(raggedness: Raggedness) -> z3.ExprRef:
        return Translation()(raggedness.count)

    def inside(self, axis: IterDomain) -> z3.BoolRef:
        extent = extent_of(axis, self.indices.__getitem__)
        return inside(self.translate(self.indices[axis]), self.translate(extent))

    def walk(self, unsafe: frozenset[IterDomain]) -> tuple[tuple[IterDomain, ...], tuple[IterDomain, ...]]:
        step = self.case.step
        return (step.walk_forward if self.forward else step.walk_backward)(unsafe.__contains__)

    def condition(self) -> z3.BoolRef:
        """What the step itself asks for."""
        return self.translate(self.case.step.condition(self.forward, [self.indices[axis] for axis in self.sources]))

    def known(self) -> list[z3.BoolRef]:
        """Extents are 0 or more, factors positive; offsets begin at 0 and differ by the extents."""
        facts = [z3.Int(name) >= 0 for name in ("n", "a", "b", "k", "nk")] + [z3.Int("f") > 0]
        facts += [self.inside(axis) for axis in self.outside]
        for raggedness in self.case.raggednesses():
            facts += self._known_of(raggedness)
        return [*facts, *self.translate.facts]

    def _known_of(self, raggedness: Raggedness) -> list[z3.BoolRef]:
        array, translate = raggedness.array, self.translate
        facts = [translate(load(array, raggedness.count)) == translate(raggedness.total)]
        if isinstance(raggedness, Listed):
            return facts + [
                translate(load(array, const(c))) == translate(o) for c, o in enumerate(raggedness.all_offsets)
            ]
        for axis in (*self.case.outside, *self.sources, *self.targets):
            if not axis.is_ragged and axis.extent == raggedness.count and axis in self.indices:
                c = self.indices[axis]
                extent = translate(raggedness.extent_at(c))
                step = translate(load(array, c + 1)) - translate(load(array, c)) == extent
                bound = extent <= translate(raggedness.longest_bound)
                in_bounds = inside(translate(c), translate(raggedness.count))
                facts.append(z3.Implies(in_bounds, z3.And(step, bound)))
        return facts


def _walks() -> list[tuple[Case, bool]]:
    return [(case, forward) for case in CASES for forward in (True, False)]


@pytest.mark.parametrize(
    ("case", "forward"), _walks(), ids=[f"{case.name}, {'forward' if f else 'backward'}" for case, f in _walks()]
)
def test_walk_rules(case: Case, forward: bool) -> None:
    """For every set of unsafe axes, with what the walk predicates: (1) axes it calls safe are in bounds, (2) the others
    in bounds imply all in bounds, so that no hole gets through, (3) no divisor is 0 and no search is past the end."""
    walked = Walked(case, forward)
    for count in range(len(walked.sources) + 1):
        for chosen in itertools.combinations(walked.sources, count):
            unsafe = frozenset(chosen)
            predicates, after = walked.walk(unsafe)
            safe = [axis for axis in walked.sources if axis not in unsafe or axis in predicates]
            assumed = [walked.inside(axis) for axis in (*safe, *predicates)] + [walked.condition()]
            claims = [walked.inside(axis) for axis in walked.targets if axis not in after]
            claims += [divisor > 0 for divisor in walked.divisors]
            claims += [inside(position, total) for position, total in walked.searched]
            whole = [walked.inside(axis) for axis in walked.targets]
            known = walked.known()
            for claim in claims:
                assert proven(claim, [*assumed, *known]), (chosen, predicates, after, claim)
            for axis in walked.sources:
                assert proven(walked.inside(axis), [*assumed, *whole, *known]), (chosen, predicates, after, axis)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "merge with 0"], ids=lambda case: case.name)
def test_what_walks_assume_is_possible(case: Case) -> None:
    for forward in (True, False):
        walked = Walked(case, forward)
        everything = [walked.inside(axis) for axis in (*walked.sources, *walked.targets)]
        assert counterexample(z3.BoolVal(False), [*everything, *walked.known()]) is not None


def test_positions_past_the_last_row_are_predicated() -> None:
    test_walk_rules(Case("partition", _made(IterDomain.partition(IterDomain(12), listed((3, 5, 2))))), forward=True)


def test_a_component_is_predicated_before_its_row() -> None:
    component, rows = _stored()
    step = _made(IterDomain.combine(component, rows))
    assert step.walk_forward(lambda _: True) == ((component, rows), ())


def test_more_would_be_needed_without_each_rule() -> None:
    """The claims of `test_walk_rules` fail for a walk that predicates nothing and calls everything safe."""
    for name, forward in (("split", True), ("merge", True), ("merge of regular and ragged", False), ("combine", True)):
        case = next(case for case in CASES if case.name == name)
        walked = Walked(case, forward)
        claims = z3.And([walked.inside(axis) for axis in walked.targets])
        assert counterexample(claims, walked.known()) is not None
