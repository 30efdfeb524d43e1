"""The predicate walk on random graphs of axes: every index of every loop is tried, and compared with brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fusion.brute_force import Axes
from tests.fusion.enumeration import Launch, Loops, failure
from tests.fusion.random_axes import Tape, random_axes, random_extent, random_launch, random_lengths

from serrate.fusion import IterDomain, RaggedIterDomain, Scalar, symbol
from serrate.fusion import expressions as table
from serrate.fusion import indices as indices_module
from serrate.fusion.analysis import evaluate
from serrate.fusion.indices import Indices, route
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.raggedness import listed
from serrate.fusion.scalar import FALSE, TRUE

GRAPHS = max(5000, 20 * settings().max_examples)
TAPE = 72  # bytes that say all there is to say about a graph


def check(tape: Tape) -> str | None:
    """What is wrong with a random graph, walked in one of the directions, exactly and launched beyond."""
    forward = tape.below(2) == 1
    axes = random_axes(tape, allow_cover=not forward)
    loops = axes.logical if forward else axes.leaves
    for exact in (True, False, False):
        launch = random_launch(axes, tape, loops, exact)
        wrong = None if launch is None else failure(axes, launch, forward)
        if wrong is not None:
            return wrong
    return None


@settings(max_examples=GRAPHS)
@given(st.binary(min_size=TAPE, max_size=TAPE))
def test_every_element_is_reached_once(data: bytes) -> None:
    wrong = check(Tape(data))
    assert wrong is None, wrong


@given(st.binary(min_size=TAPE, max_size=TAPE))
def test_loops_compute_what_expressions_evaluate_to(data: bytes) -> None:
    """The source that is run here and `evaluate` are two readings of the same expressions."""
    tape = Tape(data)
    axes = random_axes(tape)
    launch = random_launch(axes, tape, axes.leaves, exact=False)
    if launch is None:
        return
    loops = Loops(axes, replace(launch, named=False), axes.logical)
    for indices, found in itertools.islice(loops.run(), 20):
        values = {**axes.sizes, **{f"loop{number}": index for number, index in enumerate(indices)}}
        assert found == tuple(evaluate(index, values, axes.arrays) for index in loops.wanted)
        assert all(evaluate(condition, values, axes.arrays) for condition in loops.conditions)


def test_a_step_waits_for_the_component() -> None:
    axes = Axes()
    component = axes.regular(3)
    axes.resize(axes.rows(component, [2, 0, 4]), -1, 0)
    axes.cover(axes.leaves[1])
    wrong = failure(axes, Launch((axes.leaves[1], component), {}), forward=False)
    assert wrong is None, wrong


def test_a_step_waits_for_rows_of_rows() -> None:
    """Resize backward waits for the component of its rows, which a later step of the route gives."""
    axes = Axes()
    component = axes.regular(2)
    rows = axes.rows(component, [1, 2])
    inner = axes.rows(axes.combined(component, rows), [1, 0, 2])
    axes.resize(inner, 0, -1)
    axes.cover(axes.leaves[2])
    axes.cover(rows)
    indices = Indices(AxisGraph((), [*axes.logical, *axes.leaves]))
    for number, axis in enumerate(axes.leaves):
        indices.set(axis, symbol(f"loop{number}"))
    steps = route(indices.graph, axes.leaves, [*axes.logical, Axes.component(inner)])
    indices.advance(steps, lambda _: None, lambda _, index: index)
    indices.of(inner)


def test_rows_that_do_not_fill_an_axis_are_not_that_axis() -> None:
    axes = Axes()
    axes.partition(axes.regular(7), [2, 3], kind=0)
    axes.combine(*axes.leaves)
    wrong = failure(axes, Launch(tuple(axes.logical), {}), forward=True)
    assert wrong is None, wrong


def test_rows_of_no_components_can_be_listed() -> None:
    outer, component = IterDomain(2), IterDomain(0)
    rows = RaggedIterDomain.of(listed(()), component=component)
    merged = IterDomain.merge(outer, IterDomain.resize(component, 0, 1))
    indices = Indices(AxisGraph((), [outer, component, rows, merged]))
    indices.set(merged, symbol("merged"))
    found: list[Scalar] = []
    indices.advance(route(indices.graph, [merged], [outer, component]), found.append, lambda _, index: index)
    indices.guard(component, found.append)
    assert FALSE in found
    indices.extent(rows)


# How many conditions


def conditions(axes: Axes, beyond: Sequence[IterDomain] = ()) -> list[str]:
    """The conditions under which the loops over the leaves reach logical indices."""
    launch = Launch(tuple(axes.leaves), dict.fromkeys(beyond, 1), named=True)
    assert failure(axes, launch, forward=False) is None
    return [str(condition) for condition in Loops(axes, launch, axes.logical).conditions]


def test_figure_2() -> None:
    axes = Axes()
    i0 = axes.regular(15)
    axes.split(i0, 6)
    i1, i2 = axes.leaves
    axes.split(i1, 2)
    axes.split(i2, 4)
    for number, axis in enumerate((i0, i1, i2)):
        axis.name = f"i{number}"
    assert [axes.lengths[axis] for axis in axes.leaves] == [2, 2, 2, 4]
    assert sorted(conditions(axes)) == ["i0 < 15", "i2 < 6"]  # Theorem 1: not i1 < 3


def test_what_divides_needs_no_condition() -> None:
    axes = Axes()
    axes.split(axes.regular(24), 6)
    axes.split(axes.leaves[1], 3)
    axes.split(axes.leaves[0], 2, inner_split=False)
    axes.merge(axes.leaves[0], axes.leaves[3])
    component = axes.regular(3)
    rows = axes.rows(component, [4, 0, 8])
    axes.split(rows, 4)
    assert conditions(axes) == []


def test_a_loop_that_runs_too_far_needs_one_condition() -> None:
    axes = Axes()
    axes.split(axes.regular(24), 6)
    for axis in axes.leaves:
        assert len(conditions(axes, [axis])) == 1
    assert len(conditions(axes, axes.leaves)) == 2


def _regular(axes: Axes, tape: Tape) -> IterDomain:
    return axes.regular(random_extent(tape, 7), symbolic=True)


def _rows(axes: Axes, tape: Tape) -> IterDomain:
    component = axes.regular(random_extent(tape), symbolic=True)
    return axes.rows(component, random_lengths(tape, axes.longest(component)), kind=1)


def _product(axes: Axes, tape: Tape) -> bool:
    rows = _rows(axes, tape)
    component = Axes.component(rows)
    return axes.merge(rows, axes.rows(component, random_lengths(tape, axes.longest(component)), kind=1))


def _combine(axes: Axes, tape: Tape) -> bool:
    rows = _rows(axes, tape)
    return axes.combine(Axes.component(rows), rows)


def _partition(axes: Axes, tape: Tape, spare: int) -> bool:
    lengths = random_lengths(tape, random_extent(tape))
    return axes.partition(axes.regular(sum(lengths) + spare, symbolic=True), lengths, kind=1)


# One step each, of extents that are known only when it runs, so that the conditions are the same for all of them.
STEPS: dict[str, Callable[[Axes, Tape], bool]] = {
    "split": lambda axes, tape: axes.split(_regular(axes, tape), 3),
    "split by a symbol": lambda axes, tape: axes.split(_regular(axes, tape), tape.between(1, 5), symbolic=True),
    "outer split": lambda axes, tape: axes.split(_regular(axes, tape), 3, inner_split=False),
    "merge": lambda axes, tape: axes.merge(_regular(axes, tape), _regular(axes, tape)),
    "merge with 3": lambda axes, tape: axes.merge(_regular(axes, tape), axes.regular(3)),
    "shift": lambda axes, tape: axes.swizzle(_regular(axes, tape), _regular(axes, tape), "shift"),
    "xor": lambda axes, tape: axes.swizzle(axes.regular(4), axes.regular(4), "xor"),
    "ragged split": lambda axes, tape: axes.split(_rows(axes, tape), 3),
    "ragged outer split": lambda axes, tape: axes.split(_rows(axes, tape), 3, inner_split=False),
    "merge of ragged and regular": lambda axes, tape: axes.merge(_rows(axes, tape), _regular(axes, tape)),
    "merge of regular and ragged": lambda axes, tape: axes.merge(_regular(axes, tape), _rows(axes, tape)),
    "product": _product,
    "combine": _combine,
    "partition": lambda axes, tape: _partition(axes, tape, 0),
    "partition of a part": lambda axes, tape: _partition(axes, tape, 2),
    "cover": lambda axes, tape: axes.cover(_rows(axes, tape)),
}


def _resize(make: Callable[[Axes, Tape], IterDomain], left: int, right: int) -> Callable[[Axes, Tape], bool]:
    return lambda axes, tape: axes.resize(make(axes, tape), left, right)


for _left, _right in itertools.product((-2, 0, 2), repeat=2):
    STEPS[f"resize by {_left}, {_right}"] = _resize(_regular, _left, _right)
    STEPS[f"ragged resize by {_left}, {_right}"] = _resize(_rows, _left, _right)


# Where nothing is negative, what is predicated first follows from the other condition; the walk does not know that.
IMPLIED = {(f"{kind}resize by -2, 2", False) for kind in ("", "ragged ")}
IMPLIED |= {(f"{kind}resize by 2, -2", True) for kind in ("", "ragged ")}
IMPLIED |= {("partition of a part", True)}


def _steps() -> list[Any]:
    """Each step in both directions; no route takes a Cover forward."""
    both = [(name, forward) for name in STEPS for forward in (False, True) if (name, forward) != ("cover", True)]
    return [pytest.param(*step, id=f"{step[0]}, {'forward' if step[1] else 'backward'}") for step in both]


@pytest.mark.parametrize(("name", "forward"), _steps())
def test_every_condition_of_a_step_is_needed(name: str, forward: bool) -> None:
    """Whichever of the loops run too far: without any one of the conditions, something goes wrong for some extents."""
    needless: dict[tuple[bool, ...], set[int]] = {}
    for seed in range(60):
        tape, axes = Tape(random.Random(seed).randbytes(TAPE)), Axes()
        if not STEPS[name](axes, tape):
            continue
        loops = axes.logical if forward else sorted(axes.leaves, key=lambda axis: axis.is_ragged)
        for chosen in itertools.product((False, True), repeat=len(loops)):
            beyond = {axis: 4 for axis, too_far in zip(loops, chosen, strict=True) if too_far}
            launch = Launch(tuple(loops), beyond)
            assert (wrong := failure(axes, launch, forward)) is None, wrong
            count = len(Loops(axes, launch, axes.leaves if forward else axes.logical).conditions)
            left = needless.setdefault(chosen, set(range(count)))
            left -= {number for number in left if failure(axes, launch, forward, without=number)}
    assert any(needless.values()) == ((name, forward) in IMPLIED), needless


# The test can fail


def _without(part: int) -> Callable[[Any], Any]:
    """A walk rule that predicates nothing (0), or after which everything is safe (1)."""
    return lambda walk: (
        lambda self, unsafe: tuple(() if number == part else axes for number, axes in enumerate(walk(self, unsafe)))
    )


def _always(value: object) -> Callable[[Any], Any]:
    return lambda original: property(lambda self: value) if isinstance(original, property) else lambda *_: value


PREDICATES, UNSAFE = 0, 1
RULES: list[tuple[type[table.AxisExpression], str, int]] = [
    *itertools.product((table.Split, table.Merge, table.Resize), ("forward", "backward"), (PREDICATES, UNSAFE)),
    *itertools.product((table.Swizzle, table.Partition, table.Combine), ("forward", "backward"), (PREDICATES,)),
    (table.Cover, "backward", UNSAFE),
]
MUTATIONS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    f"{row.__name__} {direction} without its {('predicates', 'unsafe axes')[part]}":
        (row, f"walk_{direction}", _without(part)) for row, direction, part in RULES
}  # fmt: skip
MUTATIONS |= {
    "every split is divisible": (table.Split, "is_divisible", _always(True)),
    "every resize only adds": (table.Resize, "cuts", _always(False)),
    "every resize only cuts": (table.Resize, "makes_holes", _always(False)),
    "rows fill every axis": (table.Partition, "condition", _always(TRUE)),
    "no divisor is 0": (table, "is_positive", _always(True)),
    "no index is negative": (indices_module, "is_natural", _always(True)),
}


def tapes(count: int) -> Iterator[Tape]:
    return (Tape(random.Random(seed).randbytes(TAPE)) for seed in range(count))


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutate = MUTATIONS[name]
    original = vars(owner)[attribute]
    monkeypatch.setattr(owner, attribute, mutate(original))
    assert any(check(tape) is not None for tape in tapes(3000))


def test_no_other_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[tuple[type[table.AxisExpression], str, int]] = set()

    def spy(row: type[table.AxisExpression], direction: str) -> Callable[..., table.Walk]:
        walk = vars(row)[f"walk_{direction}"]

        def spied(self: table.AxisExpression, unsafe: Callable[[IterDomain], bool]) -> table.Walk:
            result: table.Walk = walk(self, unsafe)
            used.update((row, direction, part) for part in (PREDICATES, UNSAFE) if result[part])
            return result

        return spied

    for row, direction in itertools.product(table.TABLE, ("forward", "backward")):
        monkeypatch.setattr(row, f"walk_{direction}", spy(row, direction))
    for tape in tapes(1000):
        check(tape)
    assert used == set(RULES)
