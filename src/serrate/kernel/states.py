"""The states of reductions: memory that elements are gathered in, and how partial states become one.

A sum in float32 is gathered in blocks, whose sums are added up in float64, so that rounding errors grow with the length
of a block and not with the number of elements. A loop over threads that is reduced has a state for each of its indices;
they are combined in the order of the indices, so that the result does not depend on which thread was first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serrate.errors import ScheduleError
from serrate.fusion.analysis import common
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import WIDER, accumulator
from serrate.fusion.indices import Indices
from serrate.fusion.monoids import MONOIDS, Monoid
from serrate.fusion.scalar import Scalar, cast, const, load, symbol
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.builder import axis_name
from serrate.kernel.elements import Elements
from serrate.kernel.ir import Allocate, BlockReduce, Buffer, CombineRule, GridReduce, Store
from serrate.kernel.jobs import Job, Role, is_reduction
from serrate.kernel.launching import BLOCKS, THREADS, is_bound
from serrate.kernel.nests import Nests
from serrate.kernel.places import Place, buffer_for
from serrate.kernel.targets import Target

BLOCK = 64  # elements that are summed one after another
_FEW = 8  # partial results that are combined as a tree, on the CPU


@dataclass(frozen=True)
class State:
    """The state of one reduction, or of a part of it: buffers, and which loops their elements belong to."""

    tensor: TensorView
    monoid: Monoid
    element: str  # the dtype in which elements enter the state
    kept: Place  # loops of which each index has a state of its own
    lanes: Place  # reduced loops of which each index has a partial state
    buffers: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        return self.lanes + self.kept

    @property
    def width(self) -> int:
        return int(self.lanes.size.value)

    def at(self, place: Scalar) -> tuple[Scalar, ...]:
        """The state at a place of its buffers."""
        return tuple(load(buffer, place, dtype) for buffer, dtype in zip(self.buffers, self.dtypes, strict=True))


@dataclass(frozen=True)
class Part:
    """A loop of which each index, or each block of indices, has a partial state that then becomes part of the whole."""

    loop: IterDomain
    length: int | None  # of a block in indices of the loop; None if each index is one
    inside: tuple[IterDomain, ...]  # the loops inside that the partial state belongs to


class States:
    """The states of the reductions of a kernel."""

    def __init__(self, nests: Nests, target: Target) -> None:
        self.nests, self.phased, self.builder, self.target = nests, nests.phased, nests.builder, target
        self._states: dict[TensorView, list[State]] = {}  # the whole, and the parts that are being gathered
        self._parts: dict[TensorView, list[Part]] = {}
        self.workspaces: list[Buffer] = []
        self.joined: set[ParallelType] = set()  # blocks of which only the last goes on

    def allocate(self, tensor: TensorView, depth: int, indices: Indices) -> None:
        """Memory with the neutral value, outside of the loops from a depth on."""
        operation = tensor.definition
        assert operation is not None
        monoid = MONOIDS[operation.name]
        element = accumulator(monoid.enters(operation.inputs[0].dtype))
        walked = self.phased.loops_of(Job(Role.REDUCE, tensor))
        loops = [loop for loop in walked if self.phased.loops.index(loop) >= depth]
        kept: list[IterDomain] = []
        lanes: list[IterDomain] = []
        for loop in loops:
            if is_bound(loop):
                continue
            if not self.phased.is_reduced_by(tensor, loop):
                kept.append(loop)
            elif loop.parallel_type == ParallelType.Thread:
                lanes.insert(0, self._check_threaded(tensor, loop))
            elif loop.parallel_type.is_lanes or loop.parallel_type == ParallelType.Unroll:
                lanes.append(loop)
        state = State(tensor, monoid, element, self.nests.place(kept, indices), self.nests.place(lanes, indices))
        self._parts[tensor] = self._divide(state, loops)
        if monoid.by_blocks and element in WIDER and self._is_long(tensor, loops):
            state = replace(state, element=WIDER[element])
        self._states[tensor] = [self.memory(state, state.monoid.parts, tensor.name)]

    def _check_threaded(self, tensor: TensorView, loop: IterDomain) -> IterDomain:
        if loop.is_ragged or not loop.extent.is_const:
            raise ScheduleError(
                f"loop {loop} is reduced by {tensor} and run by threads, so that its number of indices must be a "
                f"constant, each with a partial result: split it by a constant that is the extent of the outer part, "
                f"and run that part as Thread",
                tensor=tensor,
            )
        return loop

    def _is_long(self, tensor: TensorView, loops: Sequence[IterDomain]) -> bool:
        """Whether more elements than a block has may be gathered one after another."""
        count = 1
        for loop in loops:
            if self.phased.is_reduced_by(tensor, loop) and loop.parallel_type == ParallelType.Serial:
                if loop.is_ragged or not loop.extent.is_const:
                    return True
                count *= loop.extent.value
        return count > BLOCK

    def _divide(self, state: State, loops: Sequence[IterDomain]) -> list[Part]:
        """The loops whose indices or blocks have partial states, outermost first."""
        tensor = state.tensor
        reduced = [loop for loop in loops if self.phased.is_reduced_by(tensor, loop)]
        threaded = [loop for loop in reduced if loop.parallel_type == ParallelType.Thread]
        made = [Part(loop, None, tuple(loops[loops.index(loop) + 1 :])) for loop in threaded]
        if not state.monoid.by_blocks or state.element not in WIDER or not self._is_long(tensor, loops):
            return made
        length = BLOCK
        for loop in reversed([loop for loop in reduced if loop.parallel_type == ParallelType.Serial]):
            if not loop.is_ragged and loop.extent.is_const and loop.extent.value <= length:
                length //= max(loop.extent.value, 1)
                continue
            inside = tuple(loops[loops.index(loop) + 1 :])
            if state.place.inside(inside).size.is_const:  # else each block would have to go through all of it
                made.append(Part(loop, max(length, 1), inside))
            break
        order = list(self.phased.loops)
        return sorted(made, key=lambda part: order.index(part.loop))

    def memory(self, state: State, names: Sequence[str], prefix: str) -> State:
        """The state in memory of its own, with the neutral value in it."""
        init = state.monoid.init(state.element)
        opened = list(self.nests.variables)
        buffers = []
        for name, value in zip(names, init, strict=True):
            wanted = self.builder.name(f"{prefix}_{name}")
            buffers.append(buffer_for(wanted, value.dtype, state.place, state.tensor, self.target, opened))
            self.builder.add(Allocate(buffers[-1]))
        with self.builder.scope():
            at = self._each(state.place.size, "states")
            for buffer, value in zip(buffers, init, strict=True):
                self.builder.add(Store(buffer.name, at, value))
        return replace(state, buffers=tuple(b.name for b in buffers), dtypes=tuple(i.dtype for i in init))

    def _each(self, count: Scalar, what: str) -> Scalar:
        """Each of so many states: the index of a loop that is opened, unless there is only one."""
        return const(0) if count == const(1) else self.builder.loop("s", count, what, self._lanes_of(count))

    def _lanes_of(self, count: Scalar) -> ParallelType:
        lanes = self.target.state_loops
        return lanes if count.is_const or lanes.is_lanes else ParallelType.Serial

    # While loops are open

    def blocks(self, jobs: Sequence[Job], loop: IterDomain) -> int | None:
        """How long the blocks of a loop are, if it is to be walked by blocks."""
        lengths = [part.length for job in jobs for part in self._parts_at(job, loop) if part.length is not None]
        return min(lengths, default=None)

    def _parts_at(self, job: Job, loop: IterDomain) -> list[Part]:
        if job.role != Role.REDUCE:
            return []
        return [part for part in self._parts[job.tensor] if part.loop is loop]

    def is_parted(self, jobs: Sequence[Job], loop: IterDomain) -> bool:
        """Whether some reduction has a partial state for each index, or each block, of a loop."""
        return any(self._parts_at(job, loop) for job in jobs)

    def begin(self, jobs: Sequence[Job], loop: IterDomain) -> None:
        """Memory for the partial states of one index, or of one block, of a loop."""
        for job in jobs:
            for part in self._parts_at(job, loop):
                states = self._states[job.tensor]
                whole = states[-1]
                narrow = {wide: own for own, wide in WIDER.items()}
                element = whole.element if part.length is None else narrow.get(whole.element, whole.element)
                kept, lanes = whole.kept.inside(part.inside), whole.lanes.inside(part.inside)
                inner = State(job.tensor, whole.monoid, element, kept, lanes)
                states.append(self.memory(inner, ["part"] * len(whole.buffers), whole.buffers[0]))

    def end(self, jobs: Sequence[Job], loop: IterDomain) -> None:
        """The partial states of an index or a block become part of the whole."""
        for job in jobs:
            for _ in self._parts_at(job, loop):
                states = self._states[job.tensor]
                part, whole = states.pop(), states[-1]
                variables = dict(self.nests.variables)
                with self.builder.scope():
                    walked = part.place.loops
                    for axis, extent in walked:
                        lanes = self._lanes_of(extent) if axis is walked[-1][0] else ParallelType.Serial
                        variable = self.builder.loop(axis_name(axis), extent, "partial results", lanes)
                        self.nests.variables[axis] = variable
                    at, place = (state.place.at(self.nests.variables) for state in (whole, part))
                    made = [cast(x, dtype) for x, dtype in zip(part.at(place), whole.dtypes, strict=True)]
                    self.store(whole, at, whole.monoid.combine(whole.at(at), tuple(made)))
                self.nests.variables.clear()
                self.nests.variables.update(variables)

    def accumulate(self, tensor: TensorView, elements: Elements) -> None:
        """Take in the element of the loops that are open."""
        state = self._states[tensor][-1]
        at = state.place.at(self.nests.variables)
        element = cast(elements.operand(tensor), state.element)
        gone = [axis for axis in tensor.domain.root if axis.is_reduction]
        position = elements.indices.of(gone[0]) if state.monoid.positions else const(0)
        self.store(state, at, state.monoid.step(state.at(at), element, position))

    def store(self, state: State, at: Scalar, values: Sequence[Scalar]) -> None:
        """All new values before any is stored, as each may read all old ones; what they have in common first."""
        if len(values) > 1:
            for term in common(values):
                self.builder.let(f"{state.buffers[0]}_term", term)
            values = [self.builder.let(f"{b}_next", v) for b, v in zip(state.buffers, values, strict=True)]
        for buffer, value in zip(state.buffers, values, strict=True):
            self.builder.add(Store(buffer, at, value))
        self.builder.forget(state.buffers)

    # When loops have ended

    def finish(self, tensor: TensorView) -> None:
        """Lanes become one by a tree, then threads, then blocks."""
        state = self._states[tensor][0]
        width, size = state.width, state.kept.size
        if self.target.state_loops.is_lanes and width > _FEW and width % _FEW == 0:
            with self.builder.scope():  # one loop for all but a few, which is short to write
                part = self.builder.loop("part", const(width // _FEW - 1), "partial results")
                at = self._each(size * _FEW, "partial results")
                self.store(state, at, state.monoid.combine(state.at(at), state.at((part + 1) * (size * _FEW) + at)))
            width = _FEW
        while width > 1:
            half = (width + 1) // 2
            with self.builder.scope():
                at = self._each(size * (width - half), "partial results")
                self.store(state, at, state.monoid.combine(state.at(at), state.at(at + size * half)))
            width = half
        loops = self.phased.loops_of(Job(Role.REDUCE, tensor))
        crossed = [loop.parallel_type for loop in loops if self.phased.is_reduced_by(tensor, loop)]
        threads = tuple(kind for kind in THREADS if kind in crossed)
        blocks = tuple(kind for kind in BLOCKS if kind in crossed)
        rule = _rule(state)
        if threads:
            self._check_converged(tensor)
            self.builder.add(BlockReduce(state.buffers, size.value, threads, rule))
        if blocks:
            self._check_last(tensor, blocks)
            self._across_blocks(tensor, state, blocks, rule)
        self._settle(state)

    def _settle(self, state: State) -> None:
        """The result in place of the state, once for all that read it."""
        with self.builder.scope():
            at = self._each(state.kept.size, "results")
            states = state.at(at)
            result = state.monoid.finish(states)
            if result != states[state.monoid.result]:
                self.builder.add(Store(state.buffers[state.monoid.result], at, result))

    def _across_blocks(
        self, tensor: TensorView, state: State, blocks: tuple[ParallelType, ...], rule: CombineRule
    ) -> None:
        """The last block to arrive goes on alone."""
        groups, size = const(1), state.kept.size
        for kind, count in zip(BLOCKS, self.nests.launch.grid, strict=True):
            groups = groups * (1 if kind in blocks else count)
        for count in (*self.nests.launch.grid, *self.nests.launch.block):
            size = size * count
        names = tuple(self.builder.name(f"{buffer}_blocks") for buffer in state.buffers)
        counter = self.builder.name(f"{tensor.name}_arrived")
        self.workspaces += [Buffer(n, d, size, written=True) for n, d in zip(names, state.dtypes, strict=True)]
        self.workspaces.append(Buffer(counter, "int32", groups, written=True))
        self.joined.update(blocks)
        self.builder.last_block(GridReduce(state.buffers, state.kept.size.value, blocks, rule, names, counter, ()))

    def _check_last(self, tensor: TensorView, blocks: tuple[ParallelType, ...]) -> None:
        """Nothing else may be left to do for the other blocks."""
        for loop in self.nests.variables:
            if not is_bound(loop):
                raise ScheduleError(
                    f"{tensor} is reduced across blocks inside loop {loop}, which each of them repeats", tensor=tensor
                )
        for job in self.phased.jobs:
            other = job.tensor
            walks = [loop for loop in self.phased.loops_of(job) if not self._is_gone(job, loop)]
            again = other is not tensor and is_reduction(other)
            if again or any(loop.parallel_type in blocks for loop in walks):
                raise ScheduleError(
                    f"{tensor} is reduced across blocks ({', '.join(b.name for b in blocks)}), which must be the last "
                    f"thing a kernel does; {other} is left: give it a kernel of its own",
                    tensor=tensor,
                )

    def _is_gone(self, job: Job, loop: IterDomain) -> bool:
        return job.role == Role.REDUCE and self.phased.is_reduced_by(job.tensor, loop)

    def _check_converged(self, tensor: TensorView) -> None:
        for loop, variable in self.nests.variables.items():
            if variable in self.builder.varying and not loop.parallel_type.is_thread:
                raise ScheduleError(
                    f"{tensor} is reduced across threads inside loop {loop}, whose bound they differ in", tensor=tensor
                )

    def value(self, tensor: TensorView) -> Scalar:
        """The result of a reduction, for the loops that are open."""
        state = self._states[tensor][0]
        result = state.at(state.kept.at(self.nests.variables))[state.monoid.result]
        return cast(result, accumulator(tensor.dtype))


def _rule(state: State) -> CombineRule:
    left = tuple(symbol(f"left{n}", dtype) for n, dtype in enumerate(state.dtypes))
    right = tuple(symbol(f"right{n}", dtype) for n, dtype in enumerate(state.dtypes))
    return CombineRule(left, right, state.monoid.combine(left, right))
