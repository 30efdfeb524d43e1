"""Jobs, what a kernel does for each index of some loops; and what tensors have to do with the loops of a reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import history
from serrate.fusion.expressions import Cover, Split
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.view import TensorView


class Role(Enum):
    """What a job does with the element that its loops have come to."""

    REDUCE = "reduce"  # the element of the operand enters the state
    SCAN = "scan"  # the same, and what the state then holds is the value
    KEEP = "keep"  # the value is kept for later phases
    STORE = "store"  # the value is stored in the memory of an output


@dataclass(frozen=True)
class Job:
    """Something to do for each index of some loops."""

    role: Role
    tensor: TensorView


@dataclass(eq=False)
class WalkedFusion:
    """A fusion under the loops of a reference tensor."""

    fusion: Fusion
    reference: TensorView
    graph: AxisGraph
    loops: tuple[IterDomain, ...]
    needed: list[TensorView]  # what the outputs are computed of, in the order of definition
    iterated: dict[TensorView, tuple[IterDomain, ...]]
    """The axes that a tensor is computed over, as they would lie in memory."""
    origins: dict[IterDomain, frozenset[IterDomain]] = field(default_factory=dict)
    """For each loop the groups of the logical axes that it walks."""
    _groups: dict[Job, frozenset[IterDomain]] = field(default_factory=dict)
    _walks: dict[Job, tuple[IterDomain, ...]] = field(default_factory=dict)

    @cached_property
    def _positions(self) -> dict[IterDomain, set[IterDomain]]:
        """For rows the positions up to the longest of them."""
        found: dict[IterDomain, set[IterDomain]] = {}
        for step in self.graph.expressions:
            if isinstance(step, Cover):
                found.setdefault(self.graph.find(step.inputs[0]), set()).add(self.graph.find(step.outputs[0]))
        return found

    @cached_property
    def _links(self) -> dict[IterDomain, set[IterDomain]]:
        """Rows and positions: a loop over one walks the other."""
        found = {rows: set(positions) for rows, positions in self._positions.items()}
        for rows, positions in self._positions.items():
            for axis in positions:
                found.setdefault(axis, set()).add(rows)
        return found

    def linked(self, groups: frozenset[IterDomain]) -> frozenset[IterDomain]:
        return groups.union(*(self._links.get(group, ()) for group in groups)) if self._links else groups

    def groups(self, job: Job) -> frozenset[IterDomain]:
        """The groups of the axes of a job; a reduction is stored without those that it reduced."""
        if job not in self._groups:
            domain = job.tensor.domain
            groups = self.graph.groups((*domain.root, *domain.logical))
            if is_reduction(job.tensor) and job.role != Role.REDUCE:
                covered = [a.definition.inputs[0] for a in domain.logical if isinstance(a.definition, Cover)]
                groups -= self.graph.groups([*covered, *(a for a in domain.logical if a.is_reduction)])
            self._groups[job] = groups
        return self._groups[job]

    def involves(self, job: Job, loop: IterDomain) -> bool:
        """Whether a loop walks axes of a job; it walks all of its axes for the job, or none."""
        return loop in self.loops_of(job)

    def loops_of(self, job: Job) -> tuple[IterDomain, ...]:
        """The loops that a job is done in, outermost first."""
        if job not in self._walks:
            groups = self.linked(self.groups(job))
            self._walks[job] = tuple(loop for loop in self.loops if self._is_walked(job, groups, loop))
        return self._walks[job]

    def _is_walked(self, job: Job, groups: frozenset[IterDomain], loop: IterDomain) -> bool:
        origins = self.origins[loop]
        if origins and origins <= groups:
            return True
        if origins & groups:
            raise ScheduleError(
                f"loop {loop} of {self.reference.name} walks axes of which {job.tensor} has only some; do not merge "
                f"them, or give {job.tensor.name} a kernel of its own",
                tensor=job.tensor,
            )
        return False

    def covering(self, job: Job, loop: IterDomain) -> list[IterDomain]:
        """The axes of positions that a loop over rows, outside of their component's loop, stands for."""
        groups = self.groups(job)
        if not self._positions or self.origins[loop] <= groups:
            return []
        return [axis for origin in self.origins[loop] for axis in self._positions.get(origin, ()) if axis in groups]

    def nest_of(self, job: Job) -> tuple[object, ...]:
        """What two jobs have in common if one element of each belongs together."""
        axes = iterated(job.tensor) if job.role == Role.REDUCE else _axes_stored(job.tensor)
        return (self.loops_of(job), self.graph.groups(axes))

    def is_reduced_by(self, tensor: TensorView, loop: IterDomain) -> bool:
        """Whether a loop walks what a reduction reduces; it walks only that, or none of it."""
        reduced = self.linked(self.graph.groups(axis for axis in tensor.domain.logical if axis.is_reduction))
        origins = self.origins[loop]
        if origins <= reduced:
            return bool(origins)
        if origins & reduced:
            raise ScheduleError(
                f"loop {loop} of {self.reference.name} walks both reduced and kept axes of {tensor}; do not merge them",
                tensor=tensor,
            )
        return False

    def _scanned(self, tensor: TensorView) -> frozenset[IterDomain]:
        assert tensor.definition is not None
        return self.linked(self.graph.groups([tensor.domain.root[tensor.definition.options[0]]]))

    def parts_in_order(self, tensor: TensorView) -> list[IterDomain]:
        """The parts that the axis a tensor is scanned along was split into, the outer before the inner."""
        domain, group = self.reference.domain, self._scanned(tensor)
        parts = {step.inputs[0]: step.outputs for step in history(self.loops) if isinstance(step, Split)}
        order = [axis for axis in dict.fromkeys((*domain.logical, *domain.root)) if self.graph.find(axis) in group][:1]
        while any(axis in parts for axis in order):
            order = [part for axis in order for part in parts.get(axis, (axis,))]
        return order

    def is_scanned_by(self, tensor: TensorView, loop: IterDomain) -> bool:
        """Whether a loop walks the axis that a tensor is scanned along; it walks only that, or nothing of it."""
        group = self._scanned(tensor)
        origins = self.origins[loop]
        if origins & group and not origins <= group:
            raise ScheduleError(
                f"loop {loop} of {self.reference.name} walks the axis that {tensor} is scanned along together with "
                f"others; do not merge them",
                tensor=tensor,
            )
        return bool(origins & group)

    def moved_by_scan(self, tensor: TensorView, loops: Iterable[IterDomain]) -> IterDomain | None:
        """One of these loops whose indices stand for others of the rows at each index that a scan goes along: ragged
        rows that were cut in as many parts, say, however long they are."""
        stop, scanned = {*self.reference.domain.logical, *self.reference.domain.root}, self._scanned(tensor)
        for loop in loops:
            waiting, seen = [loop], {*stop}
            while waiting:
                axis = waiting.pop()
                if axis in seen or axis.definition is None:
                    continue
                seen.add(axis)
                needed = {other for step in history(axis.definition.needs) for other in step.inputs}
                if self.graph.groups([*needed, *axis.definition.needs]) & scanned:
                    return loop
                waiting += axis.definition.inputs
        return None

    def begins_scan(self, job: Job, loop: IterDomain) -> bool:
        """Whether a loop is the outermost that a scan goes along."""
        if job.role != Role.SCAN:
            return False
        return next((each for each in self.loops if self.is_scanned_by(job.tensor, each)), None) is loop

    def direction(self, job: Job, loop: IterDomain) -> bool | None:
        """Whether a scan walks a loop from its end; None if it does not matter."""
        if job.role != Role.SCAN or not self.is_scanned_by(job.tensor, loop):
            return None
        assert job.tensor.definition is not None
        return bool(job.tensor.definition.options[2])


def iterated(tensor: TensorView) -> list[IterDomain]:
    """The axes of which each combination of indices computes something."""
    axes = tensor.domain.root if is_reduction(tensor) else tensor.domain.kept
    return [axis for axis in axes if not axis.is_broadcast]


def _axes_stored(tensor: TensorView) -> list[IterDomain]:
    return [axis for axis in tensor.domain.kept if not axis.is_broadcast]


def stored_outputs(fusion: Fusion) -> list[TensorView]:
    """The outputs of a fusion that a kernel stores: all but offsets, which follow from others."""
    return [t for t in fusion.outputs if t.definition is None or t.definition.kind != "offsets"]


def is_reduction(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "reduce"


def is_scan(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "scan"


def is_gathered(tensor: TensorView) -> bool:
    """Whether a tensor is gathered by walking loops, so that the kernel has it only for the indices of these."""
    return is_reduction(tensor) or is_scan(tensor)
