"""Programs as text and back: the text of every sample of every record stands for the same program."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
import torch
from tests.compiler.harness import packed, with_gradients
from tests.compiler.programs import BATCHES, batch, drawn
from tests.compiler.test_every_operation import samples_of
from tests.dialects.traced import differentiated, traced
from tests.ops.samples import DTYPES, NAMES

from serrate.compiler.compiling import runnable
from serrate.dialects.from_text import program_of
from serrate.dialects.objects import CannotWrite
from serrate.dialects.texts import parse
from serrate.dialects.to_text import module_of
from serrate.ops.record import TABLE
from serrate.program.inputs import Inputs
from serrate.program.program import Instruction, Program
from serrate.program.types import Value

UNTRACED = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError)


def again(program: Program) -> str:
    """The text of a program, after it was read and found to be that program."""
    text = str(module_of(program))
    read = program_of(parse(text))
    assert_same(read, program)
    assert str(module_of(read)) == text
    return text


def assert_same(one: Program, other: Program) -> None:
    """Both are the same program: every part of it, and its names."""
    assert str(one) == str(other)
    for left, right in zip(one.instructions, other.instructions, strict=True):
        assert left == right, f"{left} is not {right}"
    assert one.inputs == other.inputs
    assert one.guards == other.guards
    assert one.outputs == other.outputs
    for left, right in zip(partitions_of(one), partitions_of(other), strict=True):
        for name in ("components", "capacity", "uniform_length", "bound", "same_lengths"):
            assert getattr(left, name) == getattr(right, name), (left, name)


def partitions_of(program: Program) -> list[Any]:
    values = [*program.inputs, *(each for step in program.instructions for each in step.results)]
    return list(dict.fromkeys(each for value in values for each in value.type.partitions))


def check(name: str, structures: list[str]) -> int:
    op, count = TABLE[name], 0
    for kind in op.kinds[:1]:
        for text, function, operands in samples_of(op, structures, DTYPES[kind][0]):
            try:
                program = traced(function, *operands)
            except UNTRACED:
                program = None
            if program is None:
                try:
                    program = traced(function, *operands, is_static=True)
                except UNTRACED:  # it runs eagerly
                    continue
            count += 1
            try:
                again(program)
            except CannotWrite as error:
                pytest.fail(f"{text}: {error}")
    return count


@pytest.mark.parametrize("name", TABLE)
def test_every_sample_of_every_record(name: str) -> None:
    assert check(name, ["features"]) or name in ("split", "Grouped.ungroup")


@pytest.mark.slow
@pytest.mark.parametrize("structure", NAMES)
@pytest.mark.parametrize("name", TABLE)
def test_every_sample_of_every_record_on_every_structure(name: str, structure: str) -> None:
    check(name, [structure])


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_and_their_ways_back(seed: int) -> None:
    program = drawn(seed, most=12)
    made = traced(program.function(), *with_gradients(batch(program, BATCHES[seed % len(BATCHES)])))
    again(made)
    for half in differentiated(made):
        again(half)


@pytest.mark.parametrize("seed", range(8))
def test_a_program_that_was_read_gives_what_the_function_gives(seed: int) -> None:
    drawing = drawn(seed, most=8)
    given = batch(drawing, BATCHES[0])
    read = program_of(parse(again(traced(drawing.function(), *given))))
    with torch.no_grad():
        for one, other in zip(runnable(read).run(*given), drawing.function()(*given), strict=True):
            torch.testing.assert_close(packed(one), packed(other), equal_nan=True)


CONSTANTS = [
    None, True, 1, -1, 2**70, 1.5, -0.0, 1e-30, 1e300, float("inf"), float("-inf"), 1j, complex(0.0, -0.0), "", "a",
    'quotes " and \\', "line\nbreak", "a loc(unknown)",
    "ünï 🙂", b"\x00a", torch.float8_e4m3fn, torch.device("cuda", 1), ...,
    slice(None, 2, -1), (), (1,), [], [(1, [2])], {"a": (1,)}, range(3), torch.relu, torch.Tensor.add_, int,
    torch.Size([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CONSTANTS)))
def test_constants_of_all_kinds(number: int) -> None:
    constant = CONSTANTS[number]
    kind = Inputs().type_of(torch.ones(3))
    x, y = Value(kind, "x"), Value(kind, "y_1")
    step = Instruction("torch.anything", (x, constant), (("option", constant),), y, torch.relu, "a#1", "file.py:3")
    program = Program((x,), (step,), [y, {"x": (x, constant)}])
    read = program_of(parse(str(module_of(program))))
    assert read == program
    assert repr(read.instructions[0].arguments) == repr(step.arguments)  # -0.0 and 0.0 are equal


def test_what_has_no_text_says_so() -> None:
    kind = Inputs().type_of(torch.ones(3))
    x = Value(kind, "x")
    for part in (object, lambda: None, threading.Lock(), {1, 2}, torch.ones(1)):
        step = Instruction("f", (x, part), (), Value(kind, "y"))
        if part is not object:
            with pytest.raises(CannotWrite, match=r"has no text|has no name|another thing"):
                module_of(Program((x,), (step,), x))


def test_compiled_functions_run_without_xdsl() -> None:
    program = """
        import sys
        sys.modules["xdsl"] = None  # as if it were not installed
        import serrate as sr
        x = sr.ragged([[1.0, 2.0], [3.0]])
        made = sr.jit(lambda x: sr.softmax(x * 2, axis=1))
        assert made(x).shape == x.shape
        assert "softmax" in str(sr.explain(made, x))
        try:
            made.lower(x).mlir()
        except ModuleNotFoundError as error:
            assert "pip install 'serrate[opt]'" in str(error), error
        else:
            raise AssertionError("there is a text without xDSL")
        from serrate.opt import main
        assert main(["--list-passes"]) == 1
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'serrate[opt]'" in done.stderr
