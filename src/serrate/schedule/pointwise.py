"""The pointwise scheduler: every element on its own.

Axes that all operands treat alike are one loop: where no operand is broadcast, that is a single loop over the packed
values, whatever their raggedness, and no offset is read. Threads take parts of the outermost loop, lanes the innermost.
"""

from __future__ import annotations

from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "pointwise"


def can_schedule(structure: Structure) -> bool:
    """Whether nothing is gathered by loops, and nothing read at other indices."""
    return not structure.reductions and not structure.scans and not structure.has_moves


def parameters(structure: Structure) -> Parameters:
    """Loops of axes that are used alike."""
    return with_lanes(structure, Parameters(structure.runs))
