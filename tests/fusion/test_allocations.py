"""Allocations of random graphs of axes: what is accepted gives every element one place of its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from tests.fusion.brute_force import Axes
from tests.fusion.random_axes import Tape, random_axes

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import IterDomain
from serrate.fusion.domain import check_allocation

GRAPHS = 3000


def candidates(axes: Axes, tape: Tape) -> Iterator[list[IterDomain]]:
    """The leaves; and wrong ones: a leaf left out, a leaf twice, one of another step instead or beside."""
    leaves = list(axes.leaves)
    yield leaves
    at, other = tape.below(len(leaves)), tape.pick([axis for rule in axes.rules for axis in rule.inputs] or leaves)
    yield leaves[:at] + leaves[at + 1 :]
    yield [*leaves, leaves[at]]
    yield [*leaves[:at], other, *leaves[at + 1 :]]
    yield [*leaves, other]


def places(axes: Axes, allocation: list[IterDomain]) -> int:
    """How many places the elements have that are left."""
    return len({tuple(point[axis] for axis in allocation) for point in axes.points})


def is_accepted(axes: Axes, allocation: list[IterDomain]) -> bool:
    try:
        check_allocation(allocation, axes.logical)
    except (ScheduleError, RaggednessError):
        return False
    return True


def test_what_is_accepted_has_one_place_for_each_element() -> None:
    counts: Counter[str] = Counter()
    for seed in range(GRAPHS):
        tape = Tape(random.Random(seed).randbytes(72))
        axes = random_axes(tape, allow_cover=True)
        for number, allocation in enumerate(candidates(axes, tape)):
            kind = "leaves" if number == 0 else "other"
            is_right = kind == "leaves" and not axes.cuts and not any(axis.is_ragged for axis in allocation)
            accepted = is_accepted(axes, allocation)
            counts[f"{kind} {'accepted' if accepted else 'refused'}"] += 1
            assert accepted or not is_right, (allocation, axes.rules)
            if accepted:
                assert len(set(allocation)) == len(allocation)
                assert places(axes, allocation) == len(axes.points), (allocation, axes.rules)
                assert kind == "other" or len(axes.points) == axes.elements, (allocation, axes.rules)
    assert counts["leaves accepted"] > 0.1 * GRAPHS
    assert counts["other refused"] > counts["other accepted"]
