"""The reduction scheduler: one number of many, over features, rows, components, or all of them.

What is kept of the outermost loop is spread over threads. Where that loop itself is reduced, it is cut into a constant
number of parts, each with a result of its own, which are combined in their order: results are the same in every run,
whatever the number of threads.
"""

from __future__ import annotations

from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "reduction"


def can_schedule(structure: Structure) -> bool:
    """Whether something is reduced, and no reduced axis is walked again."""
    return bool(structure.reductions) and not structure.scans and not structure.has_phases


def parameters(structure: Structure) -> Parameters:
    """Loops of axes that are used alike; parts of the outermost one, if it is reduced."""
    return with_lanes(structure, Parameters(structure.runs))
