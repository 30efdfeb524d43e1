"""The normalization scheduler: rows that are walked several times, as in softmax, norms, and their derivatives.

All phases of a row are done while it lies in the cache. Values that a later phase needs are kept where computing them
again costs more (`kernel.choose_kept`). Where a row may be long, inputs are fetched ahead while a later phase reads
from the cache what the first one has read; that short rows follow each other, a processor sees by itself.
"""

from __future__ import annotations

from serrate.schedule import model
from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "normalization"


def can_schedule(structure: Structure) -> bool:
    """Whether something is reduced, and what is reduced is walked again."""
    return bool(structure.reductions) and not structure.scans and structure.has_phases


def parameters(structure: Structure) -> Parameters:
    """Loops of axes that are used alike, with what phases share kept."""
    walked = [structure.size((at,)) for at, again in enumerate(structure.walked_again) if again]
    long = any(map(model.is_fetched_ahead, walked))
    return with_lanes(structure, Parameters(structure.runs, keep=True, prefetch=long))
