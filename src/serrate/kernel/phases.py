"""What a kernel has to do, and in which order: the loops of the reference tensor, and inside each of them phases.

A job is something that is done for each index of some loops: an element enters a reduction, a value is kept, or an
element of an output is stored. Jobs share their loops, from the outermost on. The result of a reduction is known when
the outermost loop that it reduces has ended; what reads the result is done in a later phase, which walks that loop
again. What a phase needs and nobody holds, it computes again: a pointwise value in place, and a reduction over inner
loops in phases of its own, inside the loops that are open. So phases stand inside loops of other phases, to any depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import packed
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import MOVED, AxisGraph, read_here
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import Job, Role, WalkedFusion, is_gathered, is_reduction, is_scan, iterated, stored_outputs


@dataclass
class Phase:
    """Jobs that are done together, what is known when they are done, and the scans that go along with them."""

    jobs: list[Job] = field(default_factory=list)
    reductions: list[TensorView] = field(default_factory=list)
    scans: list[TensorView] = field(default_factory=list)
    kept: list[TensorView] = field(default_factory=list)


@dataclass(eq=False)
class PhasedFusion(WalkedFusion):
    """A fusion under the loops of a reference tensor, and the phases that jobs make of each loop."""

    kept: set[TensorView] = field(default_factory=set)
    """Intermediate tensors whose values are kept where more than one phase reads them."""
    hoisted: set[TensorView] = field(default_factory=set)
    """Those of them that are kept only before loops that they do not have, since they are cheap to compute."""
    _sources: dict[TensorView, frozenset[TensorView]] = field(default_factory=dict)

    # What there is to do

    @property
    def outputs(self) -> list[TensorView]:
        """The outputs that the kernel stores."""
        return stored_outputs(self.fusion)

    @cached_property
    def reductions(self) -> list[TensorView]:
        """The reductions that the outputs are computed of."""
        return [tensor for tensor in self.needed if is_reduction(tensor)]

    @cached_property
    def jobs(self) -> list[Job]:
        """All jobs of the kernel."""
        made = [Job(Role.REDUCE, tensor) for tensor in self.reductions]
        made += [Job(Role.SCAN, tensor) for tensor in self.needed if is_scan(tensor)]
        made += [Job(Role.KEEP, tensor) for tensor in self.needed if tensor in self.kept]
        return made + [Job(Role.STORE, tensor) for tensor in self.outputs]

    @cached_property
    def users(self) -> Counter[TensorView]:
        """How many operands each tensor is."""
        return Counter(x for t in self.fusion.tensors if t.definition is not None for x in t.definition.inputs)

    @cached_property
    def _order(self) -> dict[TensorView, int]:
        return {tensor: number for number, tensor in enumerate(self.needed)}

    def is_source(self, tensor: TensorView) -> bool:
        """Whether a tensor is computed by a job of its own, which those that read it wait for."""
        return is_gathered(tensor) or tensor in self.kept

    def forget(self, tensor: TensorView) -> None:
        """From now on a tensor is not kept, but computed again where it is read."""
        self.kept.discard(tensor)
        self._sources.clear()

    def _sources_of(self, tensor: TensorView) -> frozenset[TensorView]:
        """What a tensor is computed of: the nearest reductions and kept values, itself included."""
        if not self._sources:
            for x in self.needed:  # operands come first
                inputs = () if x.definition is None or x.definition.kind == "offsets" else x.definition.inputs
                self._sources[x] = frozenset[TensorView]().union(*(self._read_by(x, y) for y in inputs))
        return frozenset([tensor]) if self.is_source(tensor) else self._sources[tensor]

    def _read_by(self, tensor: TensorView, operand: TensorView) -> frozenset[TensorView]:
        """The sources that a tensor reads through an operand. Where it reads the operand at other indices, a value that
        is kept for the indices of the loops is of no use."""
        operation = tensor.definition
        assert operation is not None
        here = operation.kind not in MOVED or operand in read_here(operation)
        held = is_gathered(operand) or (operand in self.kept and here)
        return frozenset([operand]) if held else self._sources[operand]

    def reads(self, job: Job) -> frozenset[TensorView]:
        """The reductions and kept values that a job reads."""
        if job.role == Role.STORE:
            return self._sources_of(job.tensor)
        self._sources_of(job.tensor)
        return self._sources[job.tensor]

    def waits_for(self, jobs: Iterable[Job], known: AbstractSet[TensorView]) -> list[Job]:
        """The further jobs that these need to be done first, what they need in turn included; not for what is known."""
        stack = list(jobs)
        own = {job.tensor for job in stack if job.role != Role.STORE}
        found: set[TensorView] = set()
        while stack:
            for source in self.reads(stack.pop()):
                if source not in found and source not in known and source not in own:
                    found.add(source)
                    stack.append(_job_of(source))
        return [_job_of(source) for source in sorted(found, key=self._order.__getitem__)]

    # Phases

    def phases(self, depth: int, jobs: Sequence[Job], known: AbstractSet[TensorView]) -> list[Phase]:
        """The phases that jobs make of the loop at a depth, where the loops outside of it are open."""
        loop, waited = self.loops[depth], self.waits_for(jobs, known)
        ends = [job for job in waited if self._ends(job, loop)]
        items = self._in_order([*waited, *jobs])
        numbers = self._numbers(items, loop, set(ends))
        read_later = [job for job in waited if self._is_read_later(job, loop, jobs, ends, numbers, known)]
        ends += [job for job in read_later if job not in ends]
        numbers = self._numbers(items, loop, set(ends))
        made = [Phase() for _ in range(max(numbers.values()) + 1)]
        for job in items:
            if job in ends:
                phase = made[numbers[job]]
                (phase.reductions if job.role == Role.REDUCE else phase.kept).append(job.tensor)
            if job in ends or job in jobs:
                made[numbers[job]].jobs.append(job)
        held = known | {end.tensor for end in ends}
        parts = [part for phase in made if phase.jobs for part in self._by_direction(phase, loop, held)]
        for phase in parts:
            begun = [job for job in self.waits_for(phase.jobs, held) if self.begins_scan(job, loop)]
            phase.scans = [job.tensor for job in begun]
            phase.jobs = self._in_order([*begun, *phase.jobs])
        return parts

    def _in_order(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs in the order of definition, so that what reads something comes after it."""
        return sorted(jobs, key=lambda job: (self._order[job.tensor], job.role == Role.STORE))

    def _by_direction(self, phase: Phase, loop: IterDomain, held: AbstractSet[TensorView]) -> list[Phase]:
        """A phase as two where some of its scans walk the loop from its beginning, and others from its end."""
        ways = {job: self._ways([job], loop, held) for job in phase.jobs}
        if len(set().union(*ways.values())) < 2:
            return [phase]
        for job, found in ways.items():
            if len(found) > 1:
                raise ScheduleError(
                    f"{job.tensor} reads scans in both directions along loop {loop}; keep one of them, by a copy of it "
                    f"(`cache_after`)",
                    tensor=job.tensor,
                )
        backward = {job.tensor for job, found in ways.items() if found == {True}}
        kept_backward = [tensor for tensor in phase.kept if tensor in backward]
        if kept_backward and len(kept_backward) < len(phase.kept):
            raise ScheduleError(
                f"values are kept along loop {loop} in both directions, {phase.kept[0]} among them; keep fewer",
                tensor=phase.kept[0],
            )
        return [
            Phase(
                [job for job in phase.jobs if (job.tensor in backward) is reverse],
                [tensor for tensor in phase.reductions if (tensor in backward) is reverse],
                [],
                [tensor for tensor in phase.kept if (tensor in backward) is reverse],
            )
            for reverse in ((True, False) if kept_backward else (False, True))  # what is kept is read by the others
        ]

    def _ways(self, jobs: Sequence[Job], loop: IterDomain, held: AbstractSet[TensorView]) -> set[bool]:
        """In which directions the scans that jobs go along with walk a loop."""
        found = {self.direction(job, loop) for job in (*jobs, *self.waits_for(jobs, held))}
        return {way for way in found if way is not None}

    def _ends(self, job: Job, loop: IterDomain) -> bool:
        """Whether what a job computes is known when the loop has ended, or does not depend on it."""
        walked = self.involves(job, loop)
        if job.role == Role.SCAN:
            return False
        return not walked or (job.role == Role.REDUCE and self.is_reduced_by(job.tensor, loop))

    def _numbers(self, items: Sequence[Job], loop: IterDomain, ends: set[Job]) -> dict[Job, int]:
        """The phase of each job: after the last one that ends what it reads. A value that is kept can be read in the
        same walk of the loop."""
        numbers: dict[Job, int] = {}
        by_source = {job.tensor: job for job in items if job.role != Role.STORE}
        for job in items:
            number = 0
            for source in self.reads(job):
                other = by_source.get(source)
                if other is None or other not in numbers:
                    continue
                together = other.role == Role.KEEP and self.involves(other, loop) and self.involves(job, loop)
                number = max(number, numbers[other] + (other in ends and not together))
            numbers[job] = number
        return numbers

    def _is_read_later(
        self,
        job: Job,
        loop: IterDomain,
        jobs: Sequence[Job],
        ends: Sequence[Job],
        numbers: dict[Job, int],
        known: AbstractSet[TensorView],
    ) -> bool:
        """Whether a value that is kept is read in another phase than the one that computes it."""
        if job.role != Role.KEEP or job.tensor in self.hoisted:
            return False
        held = known | {end.tensor for end in ends}
        readers = [top for top in (*jobs, *ends) if job in self.waits_for([top], held)]
        both_ways = any(len(self._ways([reader], loop, held)) > 1 for reader in readers)
        return both_ways or any(numbers[reader] != numbers[job] for reader in readers)


def _job_of(source: TensorView) -> Job:
    if is_scan(source):
        return Job(Role.SCAN, source)
    return Job(Role.REDUCE if is_reduction(source) else Role.KEEP, source)


def divide_into_phases(fusion: Fusion, reference: TensorView, before: PhasedFusion | None = None) -> PhasedFusion:
    """A fusion under the loops of a reference; refused where no kernel can compute it in these loops.

    `before` is what this function gave for the same loops and tensors, of which others were kept: what axes have to do
    with each other is then known.
    """
    if reference.fusion is not fusion:
        raise ScheduleError(f"{reference} is a tensor of another fusion")
    for tensor in fusion.tensors:
        if tensor is not reference and tensor.is_scheduled and not tensor.box_axes:
            raise ScheduleError(f"{tensor} is scheduled, but loops are those of the reference, {reference}")
    if not stored_outputs(fusion):
        raise ScheduleError(f"the fusion of {reference} has no output that a kernel could store")
    _check_offsets(fusion)
    needed = _needed(fusion)
    if before is not None and before.needed == needed:
        walked, graph = before.iterated, before.graph
    else:
        walked = {tensor: packed(iterated(tensor)) for tensor in needed}
        graph = AxisGraph(needed, [axis for axes in walked.values() for axis in axes])
        _check_distinct(graph, needed)
    loops = tuple(loop for loop in reference.loop if not loop.is_broadcast)
    made = PhasedFusion(fusion, reference, graph, loops, needed, walked)
    if before is not None and before.graph is graph and before.loops == loops:
        made.origins = before.origins
    else:
        made.origins = {loop: _origins(graph, reference, loop) for loop in loops}
    _check_reached(made)
    made.kept = {tensor for tensor in needed if _is_cached(tensor)}
    made.hoisted = _hoisted(made) - made.kept
    made.kept |= made.hoisted
    return made


def _check_distinct(graph: AxisGraph, needed: Sequence[TensorView]) -> None:
    """Refuse to read a tensor at two indices at once, as in the sum of a matrix and its transpose: one index would have
    to be both of its axes."""
    twisted = []
    for tensor in needed:
        axes = [axis for axis in tensor.domain.kept if not axis.is_broadcast]
        if len(graph.groups(axes)) < len(axes):
            twisted.append(tensor)
    if twisted:
        permuted = [t for t in twisted if t.definition is not None and t.definition.name == "permute"]
        tensor = (permuted or twisted)[-1]
        raise ScheduleError(
            f"{tensor} would be read at two indices at once, since two of its axes are walked by one loop; store it by "
            f"a kernel of its own",
            tensor=tensor,
        )


def _check_reached(made: PhasedFusion) -> None:
    reached = frozenset[IterDomain]().union(*made.origins.values())
    for tensor in made.reductions:
        for axis in tensor.domain.logical:
            if axis.is_reduction and not made.linked(frozenset([made.graph.find(axis)])) & reached:
                raise ScheduleError(
                    f"{axis} of {tensor} is reduced, but the reference {made.reference} does not walk it; choose a "
                    f"tensor that has it as the reference",
                    tensor=tensor,
                )


def _check_offsets(fusion: Fusion) -> None:
    """Offsets are computed before the kernel runs, from what is there by then."""
    for tensor in fusion.tensors:
        operation = tensor.definition
        for x in operation.inputs if operation is not None and operation.kind == "offsets" else ():
            if x.definition is not None and x.definition.kind != "offsets":
                raise ScheduleError(
                    f"{tensor} = {operation} needs {x} before the kernel runs; make it an input, as stages_of does",
                    tensor=x,
                )


def _is_cached(tensor: TensorView) -> bool:
    kept = tensor.is_cached and not tensor.box_axes
    return kept and tensor.memory != Memory.GLOBAL and not is_reduction(tensor)


def _hoisted(made: PhasedFusion) -> set[TensorView]:
    """What is computed of results of reductions, and read inside loops that it does not have: once, before them."""
    of_results: set[TensorView] = set()
    found: set[TensorView] = set()
    for tensor in made.needed:
        operation = tensor.definition
        if operation is None or operation.kind not in ("pointwise", "broadcast"):
            continue
        if operation.inputs and all(x in of_results or is_reduction(x) for x in operation.inputs):
            of_results.add(tensor)
            continue
        for x in operation.inputs:
            source = _renamed(x)
            if source in of_results and source not in made.outputs and _can_be_hoisted(made, source, tensor):
                found.add(source)
    return found


def _can_be_hoisted(made: PhasedFusion, source: TensorView, reader: TensorView) -> bool:
    """Whether a value for each index of the loops that follow is a constant number of values."""
    own, others = (made.loops_of(Job(Role.KEEP, tensor)) for tensor in (source, reader))
    lacking = [loop for loop in others if loop not in own]
    if not lacking:
        return False
    after = [loop for loop in own if made.loops.index(loop) > made.loops.index(lacking[0])]
    return all(loop.extent.is_const and not loop.is_ragged for loop in after)


def _renamed(tensor: TensorView) -> TensorView:
    """The tensor that others only broadcast."""
    while tensor.definition is not None and tensor.definition.kind == "broadcast":
        tensor = tensor.definition.inputs[0]
    return tensor


def _needed(fusion: Fusion) -> list[TensorView]:
    wanted = set(stored_outputs(fusion))
    for tensor in reversed(fusion.tensors):
        if tensor in wanted and tensor.definition is not None:
            wanted.update(tensor.definition.inputs)
    return [tensor for tensor in fusion.tensors if tensor in wanted]


def _origins(graph: AxisGraph, reference: TensorView, loop: IterDomain) -> frozenset[IterDomain]:
    """The logical axes of the reference that a loop axis was made of."""
    stop = set(reference.domain.logical) | set(reference.domain.root)
    found: set[IterDomain] = set()
    stack = [loop]
    while stack:
        axis = stack.pop()
        if axis in stop or axis.definition is None:
            found.add(graph.find(axis))
        else:
            stack.extend(axis.definition.inputs)
    return frozenset(found)
