"""What a scheduler asks about a fusion: can it be one kernel, under whose loops, and which values are worth keeping.

Nothing here raises for a fusion that cannot be one kernel: the answer says why, and which tensor to store instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import elementwise
from serrate.fusion.dtypes import accumulator
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.fusion import Fusion
from serrate.fusion.scalar import symbol
from serrate.fusion.types import Memory
from serrate.fusion.view import Operation, TensorView
from serrate.kernel.jobs import Job, Role, is_reduction, stored_outputs
from serrate.kernel.launching import loop_not_walked
from serrate.kernel.lower import lower
from serrate.kernel.lowered import Lowered
from serrate.kernel.phases import Phase, PhasedFusion, divide_into_phases
from serrate.kernel.targets import Target, target_named


@dataclass(frozen=True)
class Answer:
    """Whether a fusion can be one kernel: the kernel, or why not."""

    lowered: Lowered | None
    reason: str = ""
    tensor: TensorView | None = None
    """The tensor that stands in the way. Stored in memory by a kernel of its own, it no longer would."""

    def __bool__(self) -> bool:
        return self.lowered is not None


def can_lower(
    fusion: Fusion, reference: TensorView, *, name: str = "kernel", target: str = "cpp", index: str = "int64"
) -> Answer:
    """Whether a fusion can be one kernel under the loops of a reference; never raises where it cannot.

    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import can_lower
    >>> fusion = Fusion()
    >>> x = fusion.input("x", [8, "n"])
    >>> y = fusion.output(fusion.reduce("sum", x, [0]), "y")
    >>> bool(can_lower(fusion, y)), can_lower(fusion, y, target="cuda").tensor
    (True, y[rS_i{8}, iS_d{n}] float32)
    """
    try:
        return Answer(lower(fusion, reference, name=name, target=target, index=index))
    except (ScheduleError, RaggednessError) as error:
        tensor = getattr(error, "tensor", None)
        return Answer(None, str(error), tensor if isinstance(tensor, TensorView) else None)


def choose_reference(fusion: Fusion, *, target: str = "cpp") -> TensorView | None:
    """A tensor whose loops the whole fusion can be computed in, or None; of several the one with the most axes."""
    return next((tensor for tensor in references(fusion) if can_lower(fusion, tensor, target=target)), None)


def references(fusion: Fusion) -> list[TensorView]:
    """The tensors whose loops a kernel may have: outputs and what is reduced for them, those with the most axes first,
    and of these the outputs that are not reduced."""
    outputs = stored_outputs(fusion)
    found = [tensor for tensor in fusion.tensors if tensor in outputs or is_reduction(tensor)]

    def rank(tensor: TensorView) -> tuple[int, bool, int]:
        axes = [axis for axis in tensor.domain.root if not axis.is_broadcast]
        return -len(axes), is_reduction(tensor), fusion.tensors.index(tensor)

    return sorted(found, key=rank)


# Which values are kept

_ACCESS = 2.0  # what storing or loading a kept value costs, in additions
_CALL = 10.0  # what a function of C's mathematical library costs
_SLOW = {"divide": 4.0, "sqrt": 4.0, "floor_divide": 6.0, "remainder": 6.0, "philox": 100.0}
_INNER = 64.0  # elements that a reduction over an inner loop is taken to have
_MOST = 4  # values that are kept at most for the phases of one loop


def choose_kept(fusion: Fusion, reference: TensorView, *, target: str = "cpp") -> list[TensorView]:
    """Keep the values that cost more to compute again, in each phase that reads them, than to store and load: in the
    place of an output that is stored later, else in memory of the thread. Returns the tensors that are kept.

    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import choose_kept
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n", 8])
    >>> exponentials = fusion.unary("exp", x)
    >>> y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    >>> choose_kept(fusion, y)
    [t1[iS_i{n}, iS_d{8}] float32]
    >>> exponentials.kept_in is y
    True
    """
    return _Chooser(fusion, reference, target_named(target, reference)).run()


class _Chooser:
    def __init__(self, fusion: Fusion, reference: TensorView, target: Target) -> None:
        self.fusion, self.reference, self.target = fusion, reference, target
        self.chosen: list[TensorView] = []

    def run(self) -> list[TensorView]:
        phased = None
        for _ in range(_MOST * max(len(self.reference.loop), 1)):
            phased = divide_into_phases(self.fusion, self.reference, phased)
            best = max(self._offers(phased), key=lambda offer: offer.gain, default=None)
            if best is None or best.gain <= 0:
                break
            self._keep(best)
        return self.chosen

    def _offers(self, phased: PhasedFusion) -> Iterator[_Offer]:
        """What could be kept, for each loop that several phases walk."""
        jobs = [Job(Role.STORE, tensor) for tensor in phased.outputs]
        stack: list[tuple[int, list[Job], frozenset[TensorView]]] = [(0, jobs, frozenset())]
        while stack:
            depth, jobs, known = stack.pop()
            if depth == len(phased.loops):
                continue
            if not any(phased.involves(job, phased.loops[depth]) for job in (*jobs, *phased.waits_for(jobs, known))):
                stack.append((depth + 1, jobs, known))
                continue
            phases = phased.phases(depth, jobs, known)
            ahead = known
            computed: list[set[TensorView]] = []
            for phase in phases:
                computed.append(_computed(phased, phase, ahead))
                stack.append((depth + 1, phase.jobs, ahead))
                ahead = ahead | {*phase.reductions, *phase.kept}
            if len(phases) > 1:
                yield from self._at(phased, depth, phases, computed)

    def _at(
        self, phased: PhasedFusion, depth: int, phases: Sequence[Phase], computed: Sequence[set[TensorView]]
    ) -> Iterator[_Offer]:
        loop = phased.loops[depth]
        for tensor in phased.needed:
            times = [number for number, found in enumerate(computed) if tensor in found]
            if len(times) < 2 or not _is_worth_asking(tensor) or tensor in phased.kept:
                continue
            job = Job(Role.REDUCE if is_reduction(tensor) else Role.STORE, tensor)
            if not phased.involves(job, loop):
                continue
            inside = [each for each in phased.loops_of(Job(Role.KEEP, tensor)) if phased.loops.index(each) >= depth]
            if not self.target.scratch and any(each.is_ragged or not each.extent.is_const for each in inside):
                continue
            gain = (len(times) - 1) * cost_of(tensor, phased.kept) - len(times) * _ACCESS
            yield _Offer(tensor, gain, self._output_for(phased, tensor, phases, times[0]))

    def _output_for(
        self, phased: PhasedFusion, tensor: TensorView, phases: Sequence[Phase], first: int
    ) -> TensorView | None:
        """An output of the same elements that is stored in a later phase, and that nothing else is kept in."""
        taken = {other.kept_in for other in self.fusion.tensors}
        if is_reduction(tensor) or tensor.dtype != accumulator(tensor.dtype):
            return None
        nest = phased.nest_of(Job(Role.KEEP, tensor))
        for phase in phases[first + 1 :]:
            for job in phase.jobs:
                output = job.tensor
                if job.role != Role.STORE or output in taken or is_reduction(output) or output.dtype != tensor.dtype:
                    continue
                if phased.nest_of(job) == nest and output is not tensor and loop_not_walked(phased, job) is None:
                    return output
        return None

    def _keep(self, offer: _Offer) -> None:
        tensor = offer.tensor
        if is_reduction(tensor):
            tensor = tensor.cache_after(Memory.REGISTER)  # the copy is kept, for each index of the loops around it
        elif offer.output is not None:
            tensor.keep_in(offer.output)
        else:
            tensor.set_memory_type(Memory.REGISTER)
        self.chosen.append(tensor)


@dataclass(frozen=True)
class _Offer:
    tensor: TensorView
    gain: float  # of keeping it, in additions for each element
    output: TensorView | None  # whose place it could be kept in


def _computed(phased: PhasedFusion, phase: Phase, known: frozenset[TensorView]) -> set[TensorView]:
    """The tensors that a phase computes elements of."""
    jobs = [*phase.jobs, *phased.waits_for(phase.jobs, known)]
    found: set[TensorView] = set()
    stack = [x for job in jobs for x in _read(job)]
    held = known | set(phase.kept)
    while stack:
        x = stack.pop()
        if x in found or x in held:
            continue
        found.add(x)
        if not is_reduction(x) and x.definition is not None and x.definition.kind != "offsets":
            stack.extend(x.definition.inputs)
    return found


def _read(job: Job) -> tuple[TensorView, ...]:
    if job.role == Role.STORE:
        return (job.tensor,)
    return () if job.tensor.definition is None else job.tensor.definition.inputs


def _is_worth_asking(tensor: TensorView) -> bool:
    return is_reduction(tensor) or (tensor.definition is not None and tensor.definition.kind == "pointwise")


def cost_of(tensor: TensorView, kept: Collection[TensorView] = ()) -> float:
    """What computing an element takes, in additions; what is loaded, or kept already, is loaded in any case."""
    total, seen, stack = 0.0, set[TensorView](), [(tensor, 1.0)]
    while stack:
        x, times = stack.pop()
        operation = x.definition
        if x in seen or x in kept or operation is None or operation.kind == "offsets":
            continue
        seen.add(x)
        if is_reduction(x):
            if x is not tensor:
                continue  # held by the kernel
            times *= _INNER
            total += times
        elif operation.kind == "pointwise":
            total += times * _operation_cost(operation)
        else:
            total += times  # an address
        stack.extend((y, times) for y in operation.inputs)
    return total


def _operation_cost(operation: Operation) -> float:
    if not elementwise.is_known(operation.name):
        return 1.0
    operands = tuple(x.dtype if isinstance(x, TensorView) else x for x in operation.operands)
    return _row_cost(operation.name, operands, tuple(operation.settings))


@cache
def _row_cost(name: str, given: tuple[str | float, ...], settings: tuple[tuple[str, object], ...]) -> float:
    operands = [symbol(f"x{n}", accumulator(x)) if isinstance(x, str) else x for n, x in enumerate(given)]
    made = elementwise.named(name)(*operands, **dict(settings))
    total = 0.0
    for node in made.walk():
        if node.op in FUNCTIONS:
            total += _SLOW.get(node.op, _CALL if FUNCTIONS[node.op].has_vector_form else 1.0)
    return total
