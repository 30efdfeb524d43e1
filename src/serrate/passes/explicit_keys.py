"""explicit-keys: each draw of a program is made of a key, and keys are drawn in each call, in the program's order.

An operation that draws by itself becomes two instructions: one draws a key, as the eager operation does, and the other
computes its numbers from that key. Numbers can therefore be computed again, in a kernel or on the way back, and need
not be kept.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from serrate.lowering.keys import DRAW, Drawn, draw
from serrate.ops.record import TABLE
from serrate.ops.recording import Names
from serrate.program.program import Instruction, Program
from serrate.program.types import TensorType, Value

NAME = "explicit-keys"


def run(program: Program) -> Program:
    """The program in which each draw has a key that the program draws."""
    names = Names([str(value.name) for each in program.instructions for value in each.results])
    made: list[Instruction] = []
    for instruction in program.instructions:
        if not draws(instruction):
            made.append(instruction)
            continue
        kind = TensorType(torch.int64, torch.device("cpu"), (), None, (), ())
        key = Drawn(Value(kind, names.fresh("seed")), Value(kind, names.fresh("call")))
        made.append(Instruction(DRAW, (), (), tuple(key), draw, where=instruction.where))
        named = tuple((name, each) for name, each in instruction.named if name != "key")
        made.append(replace(instruction, named=(*named, ("key", key))))
    return replace(program, instructions=tuple(made))


def draws(instruction: Instruction) -> bool:
    """Whether an instruction draws a key by itself."""
    op = TABLE.get(instruction.op)
    if op is None or instruction.function is not None or "key" not in op.signature.parameters:
        return False
    if op.name == "Tensor.getitem" or op.name == "Tensor.setitem":
        return False
    bound = op.signature.bind(*instruction.arguments, **dict(instruction.named)).arguments
    if bound.get("key") is not None:
        return False
    if op.name == "dropout":
        return bool(bound.get("training", True)) and 0 < round(bound.get("p", 0.5) * 2**32) < 2**32
    return True
