"""Programs that are traced of functions, for tests of their texts: nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.compiler.signature import Arguments
from serrate.compiler.tracing import Trace
from serrate.passes import explicit_keys, vjp
from serrate.program.program import Program


def traced(function: Callable[..., Any], *operands: Any, is_static: bool = False) -> Program:
    """What is traced of a function."""
    trace, given = Trace(is_static=is_static), Arguments(operands, {}, frozenset())
    tensors = [
        trace.argument(each, f"x{number}", each.requires_grad and torch.is_grad_enabled())
        for number, each in enumerate(given.tensors)
    ]
    arguments, named = given.rebuilt(tensors, given.numbers)
    return trace.run(function, arguments, named)


def differentiated(program: Program) -> tuple[Program, Program]:
    """The two halves of a program with its way back, for all inputs of inexact numbers."""
    program = explicit_keys.run(program)
    wanted = [each for each in program.inputs if each.type.dtype.is_floating_point]
    joint = vjp.joint(program, wanted, lambda op: op.implementations[-1].function)
    halves = vjp.halves(joint, lambda _: False, frozenset(), [])
    return halves.forward, halves.back
