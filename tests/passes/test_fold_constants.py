"""fold-constants: what depends on no tensor is computed when the program is made."""

from __future__ import annotations

from typing import Any

import torch
from tests.passes.running import RAGGED, names, program_of, run, same

import serrate as sr
from serrate.ops.record import TABLE
from serrate.passes import fold_constants
from serrate.program.program import Instruction, Program


def evaluated(each: Instruction) -> Any:
    return TABLE[each.op].function(*each.arguments, **dict(each.named))


def folded(program: Program) -> tuple[Program, list[Any]]:
    return fold_constants.run(program, frozenset({"dropout"}), evaluated)


def test_what_depends_on_no_tensor_becomes_an_input():
    program = program_of(lambda x: x @ sr.eye(2, dtype=torch.float64) + sr.arange(2), RAGGED)
    made, constants = folded(program)
    assert "eye" not in names(made)
    assert "arange" not in names(made)
    assert len(made.inputs) == len(program.inputs) + len(constants) == 3
    same(run(made, RAGGED, *constants), run(program, RAGGED))


def test_a_constant_that_is_returned_is_made_in_each_call():
    program = program_of(lambda x: (x + 1, sr.arange(3)), RAGGED)
    made, constants = folded(program)
    assert "arange" in names(made)
    assert constants == []
    function = sr.jit(lambda x: (x + 1, sr.arange(3)))
    first = function(RAGGED)[1]
    first.values.fill_(9)
    assert function(RAGGED)[1].tolist() == [0, 1, 2]


def test_large_constants_are_not_kept():
    program = program_of(lambda x: sr.sum(x) + sr.sum(sr.arange(200_000)), RAGGED)
    made, constants = folded(program)
    assert "arange" in names(made)
    assert constants == []


def test_random_numbers_are_no_constants():
    function = sr.jit(lambda x: x * sr.random.normal((2,), dtype=torch.float64))
    one, two = function(RAGGED), function(RAGGED)
    assert not torch.equal(one.values, two.values)
    made, constants = folded(program_of(lambda x: x * sr.random.normal((2,)), RAGGED))
    assert constants == []
    assert "random.normal" in names(made)


def test_what_depends_on_a_batch_is_no_constant():
    function = sr.jit(lambda x: sr.sum(x, axis=(1, 2)) + sr.arange(x.shape[0]))
    for lengths in ([1, 2], [1, 0, 2, 3], []):
        x = sr.from_lengths(torch.ones(sum(lengths), 2), lengths)
        assert function(x).tolist() == [2.0 * length + row for row, length in enumerate(lengths)]
