"""common-subexpressions: equal instructions become one, and those that only look equal stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.passes.running import RAGGED, names, program_of, run, same

import serrate as sr
from serrate.passes import common_subexpressions

MERGED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the same call": (lambda x: sr.exp(x) + sr.exp(x), 2),
    "the same call of the same call": (lambda x: sr.sin(sr.exp(x)) * sr.sin(sr.exp(x)), 3),
    "a constant of the same value": (lambda x: (x * 2.0) - (x * 2.0), 2),
    "the same keywords": (lambda x: sr.sum(x, axis=1) + sr.sum(x, axis=1), 2),
}
KEPT: dict[str, tuple[Callable[[Any], Any], int]] = {
    "another order": (lambda x: (x - sr.exp(x)) * (sr.exp(x) - x), 4),
    "another type of number": (lambda x: (x * 2, x * 2.0, x * True), 3),
    "zeros of both signs": (lambda x: (x * 0.0, x * -0.0), 2),
    "other keywords": (lambda x: (sr.sum(x, axis=1), sr.sum(x, axis=2), sr.sum(x, axis=1, keepdims=True)), 3),
    "another operation": (lambda x: sr.sin(x) + sr.cos(x), 3),
}


@pytest.mark.parametrize("name", [*MERGED, *KEPT])
def test_equal_instructions_are_one_and_others_stay(name):
    function, count = {**MERGED, **KEPT}[name]
    program = program_of(function, RAGGED)
    made = common_subexpressions.run(program, lambda each: True)
    assert len(made.instructions) == count
    same(run(made, RAGGED), run(program, RAGGED))


def test_what_is_not_repeatable_stays():
    program = program_of(lambda x: sr.exp(x) + sr.exp(x), RAGGED)
    assert len(common_subexpressions.run(program, lambda each: each.op != "exp").instructions) == 3


def test_draws_of_random_numbers_are_not_one():
    program = program_of(lambda x: sr.dropout(x, 0.5) + sr.dropout(x, 0.5), RAGGED)
    made = common_subexpressions.run(program, lambda each: each.op != "dropout")
    assert names(made).count("dropout") == 2
    assert len(common_subexpressions.run(program, lambda each: True).instructions) == 2


def test_results_are_renamed_in_what_is_returned():
    program = program_of(lambda x: (sr.sin(sr.exp(x)), {"again": sr.exp(x)}), RAGGED)
    made = common_subexpressions.run(program, lambda each: True)
    assert names(made) == ["exp", "sin"]
    assert made.outputs[1]["again"] is made.instructions[0].result


def test_two_results_that_are_returned_stay_two():
    program = program_of(lambda x: (sr.exp(x), {"again": sr.exp(x)}, sr.exp(x) + 1), RAGGED)
    made = common_subexpressions.run(program, lambda each: True)
    assert names(made) == ["exp", "exp", "add"]
    assert made.outputs[0] is not made.outputs[1]["again"]
