"""dead-code: instructions whose results nobody reads are left out.

Draws of random numbers stay: they count calls. So do writes, deletions and calls of functions, each in its place.
"""

from __future__ import annotations

from dataclasses import replace

from serrate.ops.effects import has_effects
from serrate.program.program import Program
from serrate.program.types import Value

NAME = "dead-code"


def run(program: Program, keeps: frozenset[str] = frozenset()) -> Program:
    """The program without what it computes for nothing; operations of the names in `keeps` stay."""
    wanted: set[Value] = set(program.results)
    kept = []
    for instruction in reversed(program.instructions):
        if instruction.op in keeps or has_effects(instruction) or any(value in wanted for value in instruction.results):
            kept.append(instruction)
            wanted.update(instruction.operands)
    return replace(program, instructions=tuple(reversed(kept)))
