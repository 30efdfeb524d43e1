"""How a fusion becomes phases: which loops are shared, which are walked again by each phase, what each phase computes.

The loops of the reference tensor up to the first that walks a reduced axis are shared by all. Inside them each phase is
a loop nest of its own: a reduction waits for those it reads, and what is pointwise is computed again where needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import packed
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.types import Memory, ParallelType
from serrate.fusion.view import TensorView


@dataclass
class PhasedFusion:
    """What lowering has to do."""

    fusion: Fusion
    reference: TensorView
    graph: AxisGraph
    shared: tuple[IterDomain, ...]  # loops around all phases
    inner: tuple[IterDomain, ...]  # loops of the phases
    origins: dict[IterDomain, frozenset[IterDomain]]  # for each loop the groups of logical axes it walks
    iterated: dict[
        TensorView, tuple[IterDomain, ...]
    ]  # the axes a tensor is computed over, as they would lie in memory
    kept: set[TensorView] = field(default_factory=set)  # intermediate tensors whose values are kept for later phases
    phases: list[list[TensorView]] = field(default_factory=list)  # reductions, kept values and outputs, in order

    def involves(self, tensor: TensorView, loop: IterDomain) -> bool:
        """Whether a loop walks axes of a tensor; all of its axes must be, or none."""
        groups = self.graph.groups((*tensor.domain.root, *tensor.domain.logical))
        origins = self.origins[loop]
        if origins <= groups:
            return True
        if origins & groups:
            raise ScheduleError(
                f"loop {loop} of {self.reference.name} walks axes of which {tensor} has only some; do not merge them"
            )
        return False

    def loops_of(self, tensor: TensorView) -> tuple[IterDomain, ...]:
        """The inner loops that compute a tensor."""
        return tuple(loop for loop in self.inner if self.involves(tensor, loop))

    def nest_of(self, tensor: TensorView) -> tuple[object, ...]:
        """What two tensors must have in common to be computed in one loop nest."""
        return (self.loops_of(tensor), self.graph.groups(_iterated(tensor)))

    @property
    def outputs(self) -> list[TensorView]:
        """The outputs that the kernel stores."""
        return stored_outputs(self.fusion)

    @property
    def loops(self) -> tuple[IterDomain, ...]:
        """All loops of the reference."""
        return (*self.shared, *self.inner)

    def phase_of(self, tensor: TensorView) -> int:
        """The number of the phase that computes a tensor."""
        return next(number for number, phase in enumerate(self.phases) if tensor in phase)

    def is_gone(self, tensor: TensorView, loop: IterDomain) -> bool:
        """Whether a loop walks what a tensor has reduced."""
        return is_reduction(tensor) and self.is_reduced_by(tensor, loop)

    def users(self, tensor: TensorView) -> int:
        """How many tensors read this one."""
        tensors = self.fusion.tensors
        return sum(t.definition.inputs.count(tensor) for t in tensors if t.definition is not None)

    def is_reduced_by(self, tensor: TensorView, loop: IterDomain) -> bool:
        """Whether a loop of a reduction walks what is reduced; all of it, or none."""
        reduced = self.graph.groups(axis for axis in tensor.domain.logical if axis.is_reduction)
        origins = self.origins[loop]
        if origins <= reduced:
            return True
        if origins & reduced:
            raise ScheduleError(
                f"loop {loop} of {self.reference.name} walks both reduced and kept axes of {tensor}; do not merge them"
            )
        return False


def divide_into_phases(fusion: Fusion, reference: TensorView) -> PhasedFusion:
    """The phases of a fusion under the loops of a reference tensor."""
    if reference.fusion is not fusion:
        raise ScheduleError(f"{reference} is a tensor of another fusion")
    for tensor in fusion.tensors:
        if tensor is not reference and tensor.is_scheduled:
            raise ScheduleError(f"{tensor} is scheduled, but loops are those of the reference, {reference}")
    if not stored_outputs(fusion):
        raise ScheduleError(f"the fusion of {reference} has no output that a kernel could store")
    _check_offsets(fusion)
    needed = _needed(fusion)
    iterated = {tensor: packed(_iterated(tensor)) for tensor in needed}
    graph = AxisGraph(needed, [axis for axes in iterated.values() for axis in axes])
    loops = tuple(loop for loop in reference.loop if not loop.is_broadcast)
    origins = {loop: _origins(graph, reference, loop) for loop in loops}
    reductions = [tensor for tensor in needed if is_reduction(tensor)]
    reduced = graph.groups(axis for t in reductions for axis in t.domain.logical if axis.is_reduction)
    reached = frozenset[IterDomain]().union(*origins.values())
    for tensor in reductions:
        for axis in tensor.domain.logical:
            if axis.is_reduction and graph.find(axis) not in reached:
                raise ScheduleError(
                    f"{axis} of {tensor} is reduced, but the reference {reference} does not walk it; choose a tensor "
                    f"that has it as the reference"
                )
    first = next((at for at, loop in enumerate(loops) if origins[loop] & reduced), 0 if not reductions else len(loops))
    made = PhasedFusion(fusion, reference, graph, loops[:first], loops[first:], origins, iterated)
    made.kept = {tensor for tensor in needed if _is_cached(tensor)} | _hoisted(made, needed)
    made.phases = _phases(made, needed)
    _check_outputs(made)
    return made


def _iterated(tensor: TensorView) -> list[IterDomain]:
    """The axes of which each combination of indices computes something."""
    axes = tensor.domain.root if is_reduction(tensor) else tensor.domain.kept
    return [axis for axis in axes if not axis.is_broadcast]


def _check_offsets(fusion: Fusion) -> None:
    """Offsets are computed before the kernel runs, from what is there by then."""
    for tensor in fusion.tensors:
        operation = tensor.definition
        for x in operation.inputs if operation is not None and operation.kind == "offsets" else ():
            if x.definition is not None and x.definition.kind != "offsets":
                raise ScheduleError(
                    f"{tensor} = {operation} needs {x} before the kernel runs; make it an input, as stages_of does"
                )


def stored_outputs(fusion: Fusion) -> list[TensorView]:
    """The outputs of a fusion that a kernel stores: all but offsets, which follow from others."""
    return [t for t in fusion.outputs if t.definition is None or t.definition.kind != "offsets"]


def is_reduction(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "reduce"


def _is_cached(tensor: TensorView) -> bool:
    return tensor.is_cached and tensor.memory != Memory.GLOBAL and not is_reduction(tensor)


def _hoisted(made: PhasedFusion, needed: list[TensorView]) -> set[TensorView]:
    """What is computed of results of reductions, and read inside loops that it does not have: once, before them."""
    of_results: set[TensorView] = set()
    found: set[TensorView] = set()
    for tensor in needed:
        operation = tensor.definition
        if operation is None or operation.kind not in ("pointwise", "broadcast"):
            continue
        if operation.inputs and all(x in of_results or is_reduction(x) for x in operation.inputs):
            of_results.add(tensor)
            continue
        for x in operation.inputs:
            source = _renamed(x)
            if source not in of_results or source in made.outputs:
                continue
            if all(loop.extent.is_const and not loop.is_ragged for loop in made.loops_of(source)):
                found.add(source)
    return found


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


def _phases(made: PhasedFusion, needed: list[TensorView]) -> list[list[TensorView]]:
    """A tensor comes in the phase after the last reduction it reads; what is kept can be read in the same loops."""
    number: dict[TensorView, int] = {}
    held: dict[TensorView, set[TensorView]] = {}  # kept tensors that are read to compute a tensor
    phases: list[list[TensorView]] = []
    for tensor in needed:
        operation = tensor.definition
        inputs = () if operation is None else operation.inputs
        number[tensor] = max((number[x] for x in inputs), default=0)
        held[tensor] = {h for x in inputs for h in ({x} if x in made.kept else held[x])}
        if operation is None or not (is_reduction(tensor) or tensor in made.kept or tensor in made.outputs):
            continue
        nest = made.nest_of(tensor)
        if any(number[h] == number[tensor] and made.nest_of(h) != nest for h in held[tensor]):
            number[tensor] += 1
        while len(phases) <= number[tensor]:
            phases.append([])
        phases[number[tensor]].append(tensor)
        if is_reduction(tensor):
            number[tensor] += 1
            held[tensor] = set()
    return phases


def _check_outputs(made: PhasedFusion) -> None:
    for phase in made.phases:
        for tensor in phase:
            for loop in made.shared:
                if not made.involves(tensor, loop) and not (loop.extent.is_const and loop.extent.value > 0):
                    raise ScheduleError(
                        f"{tensor} does not have the shared loop axis {loop}, which may have no index at all; give it "
                        f"a kernel of its own"
                    )
            for loop in made.inner:
                threaded = loop.parallel_type == ParallelType.Thread and is_reduction(tensor)
                if threaded and made.involves(tensor, loop) and made.is_reduced_by(tensor, loop):
                    raise ScheduleError(
                        f"loop {loop} is reduced by {tensor}: Thread loops cannot be. Run a loop so that is kept; or "
                        f"split this one, rfactor the outer part, let what that returns be the output instead of "
                        f"{tensor.name}, run its outer part so, and reduce it in a fusion of its own"
                    )
