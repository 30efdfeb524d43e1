"""The copy scheduler: elements read at other indices (pad, slice, concat, gather, to and from a box), and what is
computed of them.

Axes along which elements move keep loops of their own, so that where an element comes from is found once for each
position. Features are lanes.
"""

from __future__ import annotations

from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "copy"


def can_schedule(structure: Structure) -> bool:
    """Whether elements move, and nothing is gathered by loops."""
    return structure.has_moves and not structure.reductions and not structure.scans


def parameters(structure: Structure) -> Parameters:
    """Loops of axes that are used alike."""
    return with_lanes(structure, Parameters(structure.runs))
