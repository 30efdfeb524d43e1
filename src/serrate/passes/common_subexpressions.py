"""common-subexpressions: what is computed twice of the same values is computed once.

What was computed of a value before it was written to is another thing than what is computed of it afterwards. A value
that is written to, or freed, has its own memory: it is never one with another value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from serrate.ops.effects import changed_by, has_effects
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import Value

NAME = "common-subexpressions"


def run(program: Program, is_repeatable: Callable[[Instruction], bool]) -> Program:
    """The program in which equal instructions are one. An instruction that is not repeatable, such as a draw of random
    numbers, is equal to no other. Results that the program gives stay as many as they are: each has its own memory."""
    given = set(program.results)
    changed = {value for each in program.instructions for value in changed_by(each)}
    known: dict[Any, Instruction] = {}
    same: dict[Value, Value] = {}

    def renamed(part: Any) -> Any:
        return same.get(part, part) if isinstance(part, Value) else part

    kept = []
    for instruction in program.instructions:
        made = replace(
            instruction,
            arguments=replaced(instruction.arguments, renamed),
            named=tuple((name, replaced(each, renamed)) for name, each in instruction.named),
        )
        now_changed = changed_by(made)
        if now_changed:
            known = {key: each for key, each in known.items() if set(now_changed).isdisjoint(each.operands)}
        elif not has_effects(made) and changed.isdisjoint(made.results) and is_repeatable(made):
            try:
                before = known.setdefault(made.key, made)
            except TypeError:  # an argument has no hash, so that nothing is known to equal it
                before = made
            both_given = not given.isdisjoint(made.results) and not given.isdisjoint(before.results)
            if before is not made and not both_given:
                same.update(zip(made.results, before.results, strict=True))
                continue
        kept.append(made)
    return replace(program, instructions=tuple(kept), outputs=replaced(program.outputs, renamed))
