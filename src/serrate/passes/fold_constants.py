"""fold-constants: what depends on no tensor is computed once, when the program is made, and given to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from serrate.ops.record import TABLE
from serrate.program.program import Instruction, Program
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, Value

NAME = "fold-constants"
MOST = 1 << 16
"""Constants have at most so many elements: larger ones are made in each call, rather than kept."""


def run(program: Program, draws: frozenset[str], evaluate: Callable[[Instruction], Any]) -> tuple[Program, list[Any]]:
    """The program without such instructions, and the tensors that it is given for them, behind its other inputs.

    What a function returns is its caller's to write to, so a constant that is returned is made in each call.
    """
    returned = set(program.results)
    kept: list[Instruction] = []
    constants: list[tuple[Value, Any]] = []
    for instruction in program.instructions:
        if _is_constant(instruction, draws) and not returned.intersection(instruction.results):
            constants.append((instruction.result, evaluate(instruction)))
        else:
            kept.append(instruction)
    inputs = (*program.inputs, *(value for value, _ in constants))
    return replace(program, inputs=inputs, instructions=tuple(kept)), [each for _, each in constants]


def _is_constant(instruction: Instruction, draws: frozenset[str]) -> bool:
    op = TABLE.get(instruction.op)
    result = instruction.result
    if op is None or instruction.function is not None or instruction.op in draws or not isinstance(result, Value):
        return False
    if op.family == "random" or op.name in ("full", "zeros", "ones", "empty"):  # kernels make these themselves
        return False
    kind = result.type
    if instruction.operands or kind.axes or not all(isinstance(size, int) for size in kind.features):
        return False
    if not all(_is_plain(part) for part in (instruction.arguments, instruction.named)):
        return False
    return prod(size for size in kind.features if isinstance(size, int)) <= MOST


def _is_plain(given: Any) -> bool:
    """Whether an argument says everything itself."""
    if isinstance(given, (tuple, list)):
        return all(map(_is_plain, given))
    return not isinstance(given, (Polynomial, RaggedAxis))
