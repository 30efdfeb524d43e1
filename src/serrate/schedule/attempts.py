"""One kernel or not: the schedulers are asked one after another, and each schedule that they want is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.fusion import Fusion
from serrate.fusion.view import TensorView
from serrate.kernel import Lowered, can_lower
from serrate.kernel.choosing import references
from serrate.schedule import copy, model, normalization, pointwise, reduction, scan
from serrate.schedule.lengths import ByLength, rows_of
from serrate.schedule.loops import Parameters, schedule, simpler
from serrate.schedule.structure import Structure


class CannotSchedule(ScheduleError):
    """This error is raised for a fusion of which no kernels can be made.

    The message names the tensor that no kernel computes and the reason; `tensor` is that tensor. Whoever gave the
    fusion can compute it by other means.
    """


@dataclass(frozen=True)
class Scheduler:
    """One of the schedulers: whether it takes a fusion, and what it decides about it."""

    name: str
    can_schedule: Callable[[Structure], bool]
    parameters: Callable[[Structure], Parameters]


SCHEDULERS = tuple(
    Scheduler(module.NAME, module.can_schedule, module.parameters)
    for module in (pointwise, copy, scan, reduction, normalization)
)
"""Every fusion is taken by exactly one of them."""


@dataclass(frozen=True)
class Scheduled:
    """A fusion as one kernel."""

    lowered: Lowered
    scheduler: str
    parameters: Parameters
    reference: str
    kept: tuple[tuple[str, str], ...]  # tensors whose values are kept, and where
    by_length: ByLength | None = None  # the kernels that take its place for rows of some lengths


@dataclass(frozen=True)
class Refused:
    """Why a fusion is no kernel, and the tensor that stands in the way, by name, if it is one."""

    reason: str
    tensor: str | None = None


def attempt(fusion: Fusion, name: str, target: str) -> Scheduled | Refused:
    """A fusion as one kernel, under the best schedule that can be lowered, or why there is none."""
    refused: Refused | None = None
    for number, reference in enumerate(references(fusion)):
        structure = Structure(fusion, reference)
        scheduler = next(each for each in SCHEDULERS if each.can_schedule(structure))
        if number:
            plain = can_lower(fusion, reference, target=target)
            if not plain:
                continue
        for parameters in simpler(structure, scheduler.parameters(structure)):
            made = _lowered(fusion, reference.name, scheduler, parameters, name, target)
            if isinstance(made, Scheduled):
                return replace(made, by_length=_by_length(structure, scheduler, made, target))
            last = made
        refused = refused or last
    return refused or Refused("it has no output that a kernel could store")


def _lowered(
    fusion: Fusion, reference: str, scheduler: Scheduler, parameters: Parameters, name: str, target: str
) -> Scheduled | Refused:
    """The kernel of a copy of the fusion under one schedule."""
    own = fusion.clone()
    structure = Structure(own, own.named(reference))
    try:
        kept = schedule(structure, parameters, target)
    except (ScheduleError, RaggednessError) as error:
        tensor = getattr(error, "tensor", None)
        return Refused(str(error), tensor.name if isinstance(tensor, TensorView) else None)
    answer = can_lower(own, structure.reference, name=name, target=target)
    if answer.lowered is None:
        return Refused(answer.reason, None if answer.tensor is None else answer.tensor.name)
    places = tuple((tensor.name, _place(tensor)) for tensor in kept)
    return Scheduled(answer.lowered, scheduler.name, parameters, reference, places)


def _by_length(structure: Structure, scheduler: Scheduler, made: Scheduled, target: str) -> ByLength | None:
    """The kernels that take the place of one for short rows, and for a row that threads share."""
    parameters = made.parameters
    if target != "cpp" or not parameters.threads:
        return None
    rows = rows_of(structure, parameters)
    if rows is None:
        return None
    name = made.lowered.kernel.name

    def other(changed: Parameters, what: str) -> Lowered | None:
        found = _lowered(structure.fusion, made.reference, scheduler, changed, f"{name}_{what}", target)
        return found.lowered if isinstance(found, Scheduled) else None

    along = rows.loop == len(parameters.runs) - 1 and parameters.lanes > 0
    walked = any(structure.reduced[at] for at in parameters.runs[rows.loop])
    short = other(replace(parameters, lanes=0), "of_short_rows") if along and walked else None
    parts = model.parts([rows.width]) if walked else model.PARTS
    within = other(replace(parameters, shared=rows.loop, parts=parts), "of_a_long_row")
    return ByLength(made.lowered, rows, short, within) if short or within else None


def _place(tensor: TensorView) -> str:
    return "memory of the thread" if tensor.kept_in is None else f"the memory of {tensor.kept_in.name}"
