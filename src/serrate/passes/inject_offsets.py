"""inject-offsets: every ragged value that leaves a kernel brings its offsets.

Most have the rows of a tensor that was given, whose partition is at hand. Where an operation inside of a kernel makes
rows of its own, as a slice of each row does, the step gets to know that operation: the host program runs it on tensors
without features, which gives the partition of the result and costs next to nothing. Users never see any of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from serrate.lowering.forms import makes_rows_alone
from serrate.program.partitions import Expression
from serrate.program.program import Instruction

if TYPE_CHECKING:
    from serrate.passes.lower_ptensor import Step

NAME = "inject-offsets"


class NoOffsets(Exception):
    """This exception names an operation whose rows nobody outside of its kernel could know."""

    def __init__(self, region: str, message: str) -> None:
        super().__init__(message)
        self.region = region


def run(steps: Sequence[Step], known: Iterable[Expression]) -> Iterator[Step]:
    """The steps, of which the fused ones say which of their instructions make rows that leave them.

    `known` are the partitions that the program is given.
    """
    from serrate.passes.lower_ptensor import Called

    have = set(known)
    for step in steps:
        if isinstance(step, Called):
            have |= _partitions(step.instruction)
            yield step
            continue
        wanted = {each for value in step.results for each in value.type.partitions}
        makers = []
        for part in step.instructions:
            fresh = _partitions(part) - have - {each for value in part.operands for each in value.type.partitions}
            if not fresh:
                continue
            if makes_rows_alone(part):
                makers.append(part)
                have |= fresh
            elif fresh & wanted:
                raise NoOffsets(part.region, f"the rows of its result are made inside of a kernel: {fresh}")
        made = {each for part in makers for each in _partitions(part)}
        yield replace(step, makers=tuple(makers)) if wanted & made else step


def _partitions(instruction: Instruction) -> set[Expression]:
    return {each for value in instruction.results for each in value.type.partitions}
