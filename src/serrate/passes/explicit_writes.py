"""explicit-writes: each write makes a new value, and what is read after it reads that value.

A program without writes can be put in any order that its values allow. A write changes one value alone: another one
keeps its elements, also where eager code would let both share their memory. A `delete` is left out, since the memory of
a value is freed behind its last reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from serrate.lowering import parts
from serrate.ops.effects import DELETE, writes
from serrate.ops.recording import Names
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import Value

NAME = "explicit-writes"


def run(program: Program) -> Program:
    """The program in which nothing is written to or freed."""
    if not any(each.op == DELETE or writes(each) for each in program.instructions):
        return program
    taken = [*program.inputs, *(value for each in program.instructions for value in each.results)]
    names = Names([str(value.name) for value in taken])
    now: dict[Value, Value] = {}

    def renamed(part: Any) -> Any:
        return now.get(part, part) if isinstance(part, Value) else part

    made: list[Instruction] = []
    for instruction in program.instructions:
        if instruction.op == DELETE:
            continue
        given, named = replaced((instruction.arguments, instruction.named), renamed)
        step = replace(instruction, arguments=given, named=named)
        if writes(instruction):
            before = instruction.operands[0]
            now[before] = Value(before.type, names.fresh())
            step = replace(step, result=now[before], function=parts.as_function(step.op))
        made.append(step)
    return replace(program, instructions=tuple(made), outputs=replaced(program.outputs, renamed))
