"""The scan scheduler: running sums and their like, with all that is computed before and after them in the same walk.

A scanned loop is serial. Threads take what stands outside of it, and lanes the features inside of it; where the scanned
axis is the outermost one, blocks of features go outside.
"""

from __future__ import annotations

from serrate.schedule.lanes import with_lanes
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

NAME = "scan"


def can_schedule(structure: Structure) -> bool:
    """Whether something is scanned."""
    return bool(structure.scans)


def parameters(structure: Structure) -> Parameters:
    """Components on threads, features as lanes; what several walks need is kept."""
    return with_lanes(structure, Parameters(structure.runs, keep=structure.has_phases))
