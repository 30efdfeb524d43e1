"""Scans: a state that elements enter one after another, and what is read of it after each.

Along a serial loop the state goes from one index to the next. Along lanes it is added up by the compiler: in registers,
by as many steps as the number of lanes has bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import COMPLEX, accumulator
from serrate.fusion.indices import Indices
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.scalar import Scalar, cast, const, load
from serrate.fusion.types import ParallelType
from serrate.fusion.view import Operation, TensorView
from serrate.kernel.elements import Elements
from serrate.kernel.ir import Allocate, Buffer, Scan, Store
from serrate.kernel.jobs import Job, Role
from serrate.kernel.launching import is_bound
from serrate.kernel.places import Place, buffer_for
from serrate.kernel.states import State, States


@dataclass(frozen=True)
class _Scanned:
    """A scan that is under way: its state, the memory of the value that is read now, and whether lanes scan."""

    state: State
    now: Buffer
    by_lanes: bool


class Scans:
    """The scans of a kernel."""

    def __init__(self, states: States) -> None:
        self.states, self.nests, self.phased, self.builder = states, states.nests, states.phased, states.builder
        self._scanned: dict[TensorView, _Scanned] = {}
        self._walks: dict[TensorView, dict[IterDomain, int]] = {}  # of the loops that a scan goes along, the last ones

    def begin(self, tensor: TensorView, depth: int, indices: Indices) -> None:
        """Memory for a scan, outside of the loops from a depth on: the state so far, and the value that is read."""
        operation = _operation(tensor)
        monoid, job = MONOIDS[operation.name], Job(Role.SCAN, tensor)
        element = accumulator(monoid.enters(operation.inputs[0].dtype))
        loops = [loop for loop in self.phased.loops_of(job) if self.phased.loops.index(loop) >= depth]
        scanned = [loop for loop in loops if self.phased.is_scanned_by(tensor, loop)]
        kept = [loop for loop in loops if loop not in scanned and not is_bound(loop)]
        self._check_loops(tensor, scanned, kept)
        wide = "float64" if monoid.by_blocks and element == "float32" else element
        place = self.nests.place(kept, indices)
        state = self.states.memory(State(tensor, monoid, wide, place, Place()), monoid.parts, tensor.name)
        name = self.builder.name(f"{tensor.name}_now")
        now = buffer_for(name, accumulator(tensor.dtype), place, tensor, self.states.target, self.nests.variables)
        by_lanes = any(loop.parallel_type.is_lanes for loop in scanned)
        if not by_lanes:
            self.builder.add(Allocate(now))
        self._scanned[tensor] = _Scanned(state, now, by_lanes)

    def take_in(self, tensor: TensorView, elements: Elements) -> None:
        """Take in the element of the loops that are open; what the state holds after that, or before, is the value."""
        known = self._scanned[tensor]
        state = known.state
        scanned = self.phased.parts_in_order(tensor)
        self._walks[tensor] = {loop: self.nests.walks[loop] for loop in scanned}
        at = state.place.at(self.nests.variables)
        element = cast(elements.operand(tensor), state.element)
        before = state.at(at)
        after = state.monoid.step(before, element, const(0))
        exclusive = _operation(tensor).options[1]
        if known.by_lanes and not self.builder.right_inside_lanes:
            raise ScheduleError(
                f"loop {scanned[-1]} of {self.phased.reference.name} is run as lanes, which scan {tensor} only where "
                f"that takes no condition; run it serially",
                tensor=tensor,
            )
        if exclusive:
            self._store_now(known, at, before)
        self.states.store(state, at, after)
        if known.by_lanes:
            self.builder.add(Scan(state.buffers[0], state.monoid.operator))
            self.builder.add(Allocate(known.now))  # each lane has its own
        if not exclusive:
            self._store_now(known, at, before)  # which by now holds the element

    def value(self, tensor: TensorView) -> Scalar:
        """The value of a scan, for the loops that are open: it is there only for the index that is now scanned."""
        for loop, number in self._walks[tensor].items():
            if self.nests.walks[loop] != number:
                raise ScheduleError(
                    f"{tensor} is scanned along loop {loop} of {self.phased.reference.name}, and read where that is "
                    f"walked again; leave the loop outside of those that are walked several times, or store {tensor}",
                    tensor=tensor,
                )
        known = self._scanned[tensor]
        return load(known.now.name, known.state.place.at(self.nests.variables), accumulator(tensor.dtype))

    def _store_now(self, known: _Scanned, at: Scalar, held: tuple[Scalar, ...]) -> None:
        value = cast(known.state.monoid.finish(held), accumulator(known.state.tensor.dtype))
        self.builder.add(Store(known.now.name, at, value))

    # Loops that a scan can go along

    def _check_loops(self, tensor: TensorView, scanned: Sequence[IterDomain], kept: Sequence[IterDomain]) -> None:
        reference = self.phased.reference.name
        for loop in scanned:
            if loop.parallel_type in (ParallelType.Serial, ParallelType.Unroll):
                continue
            why = self._not_by_lanes(tensor, loop, scanned) if loop.parallel_type == ParallelType.Simd else ""
            if why or loop.parallel_type != ParallelType.Simd:
                raise ScheduleError(
                    f"loop {loop} of {reference} is run as {loop.parallel_type.name}, but {tensor} is scanned along "
                    f"it, from one index to the next{why}; run it serially",
                    tensor=tensor,
                )
        if self.phased.parts_in_order(tensor) != list(scanned):
            raise ScheduleError(
                f"loops {', '.join(map(repr, scanned))} of {reference} do not come one after another to the indices "
                f"that {tensor} is scanned along; split the axis only, and leave outer parts outside",
                tensor=tensor,
            )
        moved = self.phased.moved_by_scan(tensor, kept)
        if moved is not None:
            raise ScheduleError(
                f"the indices of loop {moved} of {reference} are other positions of a row at each index that {tensor} "
                f"is scanned along, as they depend on the length of the row; split rows by the extent of the inner "
                f"part, and merge them only with axes inside of them",
                tensor=tensor,
            )

    def _not_by_lanes(self, tensor: TensorView, loop: IterDomain, scanned: Sequence[IterDomain]) -> str:
        """Why lanes cannot scan along a loop; "" if they can."""
        operation = _operation(tensor)
        jobs = [job for job in self.phased.jobs if self.phased.involves(job, loop)]
        if not MONOIDS[operation.name].operator or operation.inputs[0].dtype in COMPLEX:
            able = " and ".join(name for name, monoid in MONOIDS.items() if monoid.operator)
            return f" (lanes can only scan {able} of real numbers)"
        if operation.options[1]:
            return ", without its own (lanes can only scan with it)"
        if len(scanned) > 1 or loop is not self.phased.loops[-1]:
            return " (lanes can only scan a whole axis, and in the innermost loop)"
        if [job.tensor for job in jobs if job.role == Role.SCAN] != [tensor] or any(
            job.role == Role.REDUCE for job in jobs
        ):
            return ", and more is gathered along it (lanes can only scan one tensor)"
        return ""


def _operation(tensor: TensorView) -> Operation:
    operation = tensor.definition
    assert operation is not None
    return operation
