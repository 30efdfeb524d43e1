"""The normalization scheduler: rows that are walked several times, as in softmax, norms, and their derivatives.

All phases of a row are done while it lies in the cache. Values that a later phase needs are kept where computing them
again costs more (`kernel.choose_kept`), and inputs are fetched ahead while a later phase works on the row before.
"""

from __future__ import annotations

from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "normalization"


def can_schedule(structure: Structure) -> bool:
    """Whether something is reduced, and what is reduced is walked again."""
    return bool(structure.reductions) and not structure.scans and structure.has_phases


def parameters(structure: Structure) -> Parameters:
    """Loops of axes that are used alike, with what phases share kept."""
    return with_lanes(structure, Parameters(structure.runs, keep=True, prefetch=True))
