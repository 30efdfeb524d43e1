"""dead-code: only what a result needs is computed, and draws stay."""

from __future__ import annotations

from typing import Any

import pytest
from tests.passes.running import RAGGED, names, program_of, run, same

import serrate as sr
from serrate.passes import dead_code


def wasteful(x: Any) -> Any:
    y = sr.exp(x)
    z = sr.sin(y)
    sr.cumulative_sum(z, axis=1)
    sr.cos(x)
    return y * 2


def test_only_what_a_result_needs_is_left():
    program = program_of(wasteful, RAGGED)
    made = dead_code.run(program)
    assert names(made) == ["exp", "multiply"]
    same(run(made, RAGGED), run(program, RAGGED))


def test_a_program_without_dead_code_stays():
    program = program_of(lambda x: (sr.exp(x), sr.sum(sr.sin(x), axis=1)), RAGGED)
    assert dead_code.run(program) == program


def test_one_result_of_several_keeps_its_instruction():
    program = program_of(lambda x: sr.unique_counts(x).counts, RAGGED)
    assert names(dead_code.run(program)) == ["unique_counts"]


@pytest.mark.parametrize("kept", [True, False])
def test_draws_that_nobody_reads_stay_where_they_count_calls(kept):
    program = program_of(lambda x: (sr.dropout(x, 0.5), x * 2)[1], RAGGED)
    made = dead_code.run(program, frozenset({"dropout"}) if kept else frozenset())
    assert ("dropout" in names(made)) is kept


def test_what_only_a_draw_reads_stays_with_it():
    program = program_of(lambda x: (sr.dropout(sr.exp(x), 0.5), x * 2)[1], RAGGED)
    assert names(dead_code.run(program, frozenset({"dropout"}))) == ["exp", "dropout", "multiply"]
