"""One kernel or not: the schedulers are asked one after another, and each schedule that they want is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.fusion import Fusion
from serrate.fusion.view import TensorView
from serrate.kernel import Lowered, can_lower
from serrate.schedule import copy, model, normalization, pointwise, reduction, scan
from serrate.schedule.grid import Grid, on_grid, with_rows
from serrate.schedule.lengths import ByLength, named, rows_of
from serrate.schedule.loops import Parameters, schedule, simpler
from serrate.schedule.structure import Structure

MOST_REFERENCES = 4
"""Tensors whose loops are tried at most."""


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
    way: Way
    parameters: Parameters | Grid
    kept: tuple[tuple[str, str], ...]
    """The tensors whose values are kept, and where."""
    rank: int = 0
    """How much less was done than was wanted."""

    def renamed(self, name: str) -> Scheduled:
        """The same with another name of the kernel."""
        return replace(self, lowered=named(self.lowered, name))

    def by_length(self) -> ByLength | None:
        """The kernels that take its place for short rows, and for a row that threads share; None if there are none."""
        if isinstance(self.parameters, Grid):
            return self._by_length_on_grid(self.parameters)
        rows = rows_of(self.way.structure, self.parameters) if self.parameters.threads else None
        if rows is None:
            return None
        along = rows.loop == len(self.parameters.runs) - 1 and self.parameters.lanes > 0
        walked = any(self.way.structure.reduced[at] for at in self.parameters.runs[rows.loop])
        short = self._otherwise(replace(self.parameters, lanes=0)) if along and walked else None
        parts = model.parts([rows.width]) if walked else model.PARTS
        within = self._otherwise(replace(self.parameters, shared=rows.loop, parts=parts))
        made = ByLength(self.lowered, rows, short, within)
        return made.renamed(self.lowered.kernel.name) if short or within else None

    def _by_length_on_grid(self, grid: Grid) -> ByLength | None:
        structure = self.way.structure
        rows = rows_of(structure, grid)
        short = None if rows is None else with_rows(structure, grid, short=True)
        if rows is None or short is None or short == grid:
            return None
        made = ByLength(self.lowered, rows, self._otherwise(short), None)
        return made.renamed(self.lowered.kernel.name) if made.short else None

    def _otherwise(self, parameters: Parameters | Grid) -> Lowered | None:
        made = self.way.lowered(parameters, self.lowered.kernel.name)
        return made.lowered if isinstance(made, Scheduled) else None


@dataclass(frozen=True)
class Refused:
    """Why a fusion is no kernel, and the tensor that stands in the way, by name, if it is one."""

    reason: str
    tensor: str | None = None


@dataclass(frozen=True)
class Way:
    """A fusion under the loops of one of its tensors, as a scheduler has it."""

    structure: Structure
    scheduler: Scheduler
    target: str

    def best(self, name: str) -> Scheduled | Refused:
        """The kernel of the schedule that is wanted, else of the first of those that ask for less. The plainest is
        asked before the others: if it is refused, so are they."""
        wanted, *less = self._choices()
        made = self.lowered(wanted, name)
        if isinstance(made, Scheduled) or not less:
            return made
        plainest = self.lowered(less[-1], name)
        if isinstance(plainest, Refused):
            return plainest
        for rank, parameters in enumerate(less[:-1], 1):
            made = self.lowered(parameters, name)
            if isinstance(made, Scheduled):
                return replace(made, rank=rank)
        return replace(plainest, rank=len(less))

    def _choices(self) -> Sequence[Parameters | Grid]:
        """What is tried one after another, what is wanted first."""
        parameters = self.scheduler.parameters(self.structure)
        if self.target == "cuda":
            return on_grid(self.structure, parameters.keep).simpler(self.structure)
        return simpler(self.structure, parameters)

    def lowered(self, parameters: Parameters | Grid, name: str) -> Scheduled | Refused:
        """The kernel of a copy of the fusion under one schedule."""
        own = self.structure.fusion.clone()
        structure = Structure(own, own.named(self.structure.reference.name))
        try:
            if isinstance(parameters, Grid):
                kept = parameters.schedule(structure, self.target)
            else:
                kept = schedule(structure, parameters, self.target)
        except (ScheduleError, RaggednessError) as error:
            tensor = getattr(error, "tensor", None)
            return Refused(str(error), tensor.name if isinstance(tensor, TensorView) else None)
        answer = can_lower(own, structure.reference, name=name, target=self.target)
        if answer.lowered is None:
            return Refused(answer.reason, None if answer.tensor is None else answer.tensor.name)
        places = tuple((tensor.name, _place(tensor)) for tensor in kept)
        return Scheduled(answer.lowered, self, parameters, places)


def attempt(fusion: Fusion, references: Sequence[str], name: str, target: str) -> Scheduled | Refused:
    """A fusion as one kernel under the loops of one of these tensors, by the best schedule that can be lowered; or why
    there is none."""
    refused: Refused | None = None
    for reference in references[:MOST_REFERENCES]:
        structure = Structure(fusion, fusion.named(reference))
        scheduler = next(each for each in SCHEDULERS if each.can_schedule(structure))
        made = Way(structure, scheduler, target).best(name)
        if isinstance(made, Scheduled):
            return made
        refused = refused or made
    return refused or Refused("no loops walk the axes of all that it stores and reduces")


def _place(tensor: TensorView) -> str:
    return "memory of the thread" if tensor.kept_in is None else f"the memory of {tensor.kept_in.name}"
