"""Which loop is run as lanes, and which on threads: the choice that all schedulers share."""

from __future__ import annotations

from dataclasses import replace

from serrate.schedule import model
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure


def with_lanes(structure: Structure, wanted: Parameters) -> Parameters:
    """The parameters with lanes for the innermost loop, and threads for the outermost."""
    inside = replace(wanted, runs=with_ones_outside(structure, wanted.runs))
    return _with_threads(structure, _with_width(structure, inside))


def with_ones_outside(structure: Structure, runs: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the loops without those of a single index inside of all others, which would be lanes of one."""
    inner = len(runs)
    while inner and structure.size(runs[inner - 1]) == 1:
        inner -= 1
    return (*runs[: inner - 1], *runs[inner:], runs[inner - 1]) if inner else runs


def _with_width(structure: Structure, wanted: Parameters) -> Parameters:
    """Lanes of the innermost loop: all features at once if they are few, else blocks of them. A scanned loop has
    none."""
    if not wanted.runs or structure.scanned[wanted.runs[-1][-1]]:
        return wanted
    innermost = wanted.runs[-1]
    is_walked, size = structure.is_walked(innermost), structure.size(innermost)
    width = model.lanes(structure.dtypes_along(innermost))
    around = [number for number, run in enumerate(wanted.runs[:-1]) if structure.is_walked(run)]
    lanes = 0 if not size else model.reduced_lanes(size, width) if is_walked else model.feature_lanes(size, width)
    again = any(structure.walked_again) and around
    if around and not is_walked and (not lanes or (again and size is not None and size > model.PHASE_LANES)):
        # States are kept for each index of the loops inside: a block of features at a time is a short state.
        return replace(wanted, lanes=model.FEATURE_BLOCK, block=model.FEATURE_BLOCK, outside=around[0])
    if lanes:
        return replace(wanted, lanes=lanes)
    if not is_walked and structure.axes[innermost[0]].is_ragged:
        return wanted  # of rows, which end anywhere, compilers make lanes that are as good
    return replace(wanted, lanes=width)


def _with_threads(structure: Structure, wanted: Parameters) -> Parameters:
    """Threads take the outermost loop; parts of it, if it is reduced, or the only one."""
    if not wanted.runs or (wanted.block and not wanted.outside):
        return wanted
    first = wanted.runs[0]
    size = structure.size(first)
    few = len(wanted.runs) == 1 and size is not None and size <= model.MOST_LANES
    if few or any(structure.scanned[at] for at in first):
        return replace(wanted, threads=False)
    if any(structure.reduced[at] for at in first):
        kept = [at for at, reduced in enumerate(structure.reduced) if not reduced]
        sizes = [structure.size((at,)) or model.MOST_LANES for at in kept]
        return replace(wanted, parts=model.parts(sizes))
    if len(wanted.runs) == 1:
        return replace(wanted, parts=model.PARTS)
    return wanted
