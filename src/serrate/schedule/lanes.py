"""Which loop is run as lanes, and which on threads: the choice that all schedulers share."""

from __future__ import annotations

from dataclasses import replace

from serrate.schedule import model
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure


def with_lanes(structure: Structure, wanted: Parameters) -> Parameters:
    """The parameters with lanes for the innermost loop, and threads for the outermost."""
    return _with_threads(structure, _with_width(structure, wanted))


def _with_width(structure: Structure, wanted: Parameters) -> Parameters:
    """Lanes of the innermost loop: all features at once if they are few, else blocks of them. A scanned loop has
    none."""
    if not wanted.runs or structure.scanned[wanted.runs[-1][-1]]:
        return wanted
    width = model.lanes([*structure.fusion.inputs, *structure.fusion.outputs])
    innermost = wanted.runs[-1]
    if len(innermost) == 1 and model.are_few(structure.axes[innermost[0]]):
        return replace(wanted, lanes=int(structure.axes[innermost[0]].extent.value))
    around = [number for number, run in enumerate(wanted.runs[:-1]) if _is_walked(structure, run)]
    if around and not _is_walked(structure, innermost):
        # States are kept for each index of the loops inside: a block of features at a time is a short state.
        return replace(wanted, lanes=model.FEATURE_BLOCK, block=model.FEATURE_BLOCK, outside=around[0])
    return replace(wanted, lanes=width)


def _with_threads(structure: Structure, wanted: Parameters) -> Parameters:
    """Threads take the outermost loop; parts of it, if it is reduced."""
    if not wanted.runs or (wanted.block and not wanted.outside):
        return wanted
    first = wanted.runs[0]
    if any(structure.scanned[at] for at in first):
        return replace(wanted, threads=False)
    if not any(structure.reduced[at] for at in first):
        return wanted
    kept = [at for at, reduced in enumerate(structure.reduced) if not reduced]
    state = 1
    for at in kept:
        extent = structure.axes[at].extent
        state *= int(extent.value) if extent.is_const and not structure.axes[at].is_ragged else model.MOST_LANES
    return replace(wanted, parts=model.parts(state))


def _is_walked(structure: Structure, run: tuple[int, ...]) -> bool:
    return any(structure.reduced[at] or structure.scanned[at] for at in run)
