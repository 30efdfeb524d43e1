"""The states of reductions: registers that elements are gathered in, and how partial states become one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from serrate.errors import ScheduleError
from serrate.fusion.analysis import common
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import accumulator
from serrate.fusion.monoids import MONOIDS, Monoid
from serrate.fusion.scalar import Scalar, cast, const, load, symbol
from serrate.fusion.types import Memory, ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.builder import axis_name
from serrate.kernel.elements import Elements
from serrate.kernel.ir import Allocate, BlockReduce, Buffer, CombineRule, GridReduce, Store
from serrate.kernel.launching import BLOCKS, THREADS, is_bound
from serrate.kernel.nests import Nests
from serrate.kernel.phases import is_reduction

_ENOUGH = 8  # partial sums
BLOCK = 64  # elements that are summed one after another


@dataclass(frozen=True)
class State:
    """The state of one reduction: register buffers, and which loops its elements belong to."""

    monoid: Monoid
    element: str  # the dtype in which elements enter the state
    buffers: tuple[str, ...]
    dtypes: tuple[str, ...]
    kept: tuple[IterDomain, ...]  # inner loops of which each index has a state of its own
    size: int  # of kept
    lanes: tuple[IterDomain, ...]  # reduced loops of which each index has a partial state
    width: int

    def at(self, place: Scalar) -> tuple[Scalar, ...]:
        """The state at a place of its buffers."""
        return tuple(load(buffer, place, dtype) for buffer, dtype in zip(self.buffers, self.dtypes, strict=True))


@dataclass(frozen=True)
class Blocked:
    """A float sum over a long loop: blocks of it are summed one by one, so that errors grow with the length of a block
    and the number of blocks, not with their product."""

    loop: IterDomain
    length: int  # of a block, in indices of the loop
    partial: State  # of one block; for the loops inside


class States:
    """The states of the reductions of a kernel."""

    def __init__(self, nests: Nests, lanes: ParallelType) -> None:
        self.nests, self.phased, self.builder = nests, nests.phased, nests.builder
        self._lanes = lanes  # how the target runs through a state
        self._states: dict[TensorView, State] = {}
        self._blocked: dict[TensorView, Blocked] = {}
        self.workspaces: list[Buffer] = []
        self.joined: set[ParallelType] = set()  # blocks of which only the last goes on

    def allocate(self, tensor: TensorView, loops: Sequence[IterDomain]) -> None:
        """Registers with the neutral value."""
        operation = tensor.definition
        assert operation is not None
        monoid = MONOIDS[operation.name]
        element = accumulator(monoid.enters(operation.inputs[0].dtype))
        init = monoid.init(element)
        kept, lanes = [], []
        for loop in loops:
            if is_bound(loop):
                continue
            if not self.phased.is_reduced_by(tensor, loop):
                kept.append(loop)
            elif loop.parallel_type.is_lanes or loop.parallel_type == ParallelType.Unroll:
                lanes.append(loop)
        size, width = constant(tensor, kept), constant(tensor, lanes)
        state = State(monoid, element, (), tuple(i.dtype for i in init), tuple(kept), size, tuple(lanes), width)
        names = tuple(f"{tensor.name}_{part}" for part in monoid.parts)
        self._states[tensor] = self._registers(names, state, init)
        if monoid.by_blocks and init[monoid.result].dtype == "float32":
            self._block(tensor, loops, state)

    def _registers(self, names: Sequence[str], state: State, init: Sequence[Scalar]) -> State:
        """A state with the neutral value in it."""
        buffers, count = tuple(self.builder.name(name) for name in names), state.size * state.width
        for buffer, value in zip(buffers, init, strict=True):
            self.builder.add(Allocate(Buffer(buffer, value.dtype, const(max(count, 1)), Memory.REGISTER)))
        with self.builder.scope():
            at = const(0) if count == 1 else self.builder.loop("s", const(count), "states", self._lanes)
            for buffer, value in zip(buffers, init, strict=True):
                self.builder.add(Store(buffer, at, value))
        return replace(state, buffers=buffers)

    def _block(self, tensor: TensorView, loops: Sequence[IterDomain], state: State) -> None:
        """Sum by blocks if lanes and threads do not make enough partial sums already."""
        reduced = [loop for loop in loops if self.phased.is_reduced_by(tensor, loop)]
        spread = [loop.bound for loop in reduced if is_bound(loop)]
        if any(not bound.is_const for bound in spread):
            return
        if state.width * math.prod(bound.value for bound in spread) >= _ENOUGH:
            return
        length = BLOCK
        for loop in reversed([loop for loop in reduced if loop.parallel_type == ParallelType.Serial]):
            if not loop.is_ragged and loop.extent.is_const and loop.extent.value <= length:
                length //= max(loop.extent.value, 1)
                continue
            inside = loops[loops.index(loop) :]
            kept = tuple(axis for axis in state.kept if axis in inside)
            lanes = tuple(axis for axis in state.lanes if axis in inside)
            sizes = constant(tensor, kept), constant(tensor, lanes)
            partial = State(state.monoid, state.element, (), state.dtypes, kept, sizes[0], lanes, sizes[1])
            self._blocked[tensor] = Blocked(loop, max(length, 1), partial)
            return

    def blocks(self, tensors: Sequence[TensorView]) -> dict[IterDomain, int]:
        """The loops that are to be walked by blocks, and how long those are."""
        found: dict[IterDomain, int] = {}
        for blocked in [self._blocked[tensor] for tensor in tensors if tensor in self._blocked]:
            found[blocked.loop] = min(blocked.length, found.get(blocked.loop, blocked.length))
        return found

    def begin_block(self, tensors: Sequence[TensorView], loop: IterDomain) -> None:
        """Registers for the sums of one block of a loop."""
        for tensor in tensors:
            blocked = self._blocked.get(tensor)
            if blocked is not None and blocked.loop is loop:
                whole = self._states[tensor]
                names = [f"{buffer}_block" for buffer in whole.buffers]
                partial = self._registers(names, blocked.partial, whole.monoid.init(whole.element))
                self._blocked[tensor] = replace(blocked, partial=partial)

    def end_block(self, tensors: Sequence[TensorView], loop: IterDomain) -> None:
        """The sums of a block become part of the whole."""
        for tensor in tensors:
            blocked = self._blocked.get(tensor)
            if blocked is None or blocked.loop is not loop:
                continue
            whole, partial = self._states[tensor], blocked.partial
            walked = (*partial.lanes, *partial.kept)
            variables = dict(self.nests.variables)
            with self.builder.scope():
                for axis in walked:
                    lanes = self._lanes if axis is walked[-1] else ParallelType.Serial
                    variable = self.builder.loop(axis_name(axis), axis.extent, "sums of blocks", lanes)
                    self.nests.variables[axis] = variable
                at, place = self._place((*whole.lanes, *whole.kept)), self._place(walked)
                self._store(whole, at, whole.monoid.combine(whole.at(at), partial.at(place)))
            self.nests.variables.update(variables)

    def _place(self, loops: Sequence[IterDomain]) -> Scalar:
        place = const(0)
        for loop in loops:
            place = place * loop.extent + self.nests.variables[loop]
        return place

    def accumulate(self, tensor: TensorView, elements: Elements) -> None:
        """Take in the element of the loops that are open."""
        operation, state = tensor.definition, self._states[tensor]
        assert operation is not None
        if tensor in self._blocked:
            state = self._blocked[tensor].partial
        at = self._place((*state.lanes, *state.kept))
        element = cast(elements.operand(tensor), state.element)
        gone = [axis for axis in tensor.domain.root if axis.is_reduction]
        position = elements.indices.of(gone[0]) if state.monoid.positions else const(0)
        self._store(state, at, state.monoid.step(state.at(at), element, position))

    def _store(self, state: State, at: Scalar, values: Sequence[Scalar]) -> None:
        """All new values before any is stored, as each may read all old ones; what they have in common first."""
        if len(values) > 1:
            for term in common(values):
                self.builder.let(f"{state.buffers[0]}_term", term)
            values = [self.builder.let(f"{b}_next", v) for b, v in zip(state.buffers, values, strict=True)]
        for buffer, value in zip(state.buffers, values, strict=True):
            self.builder.add(Store(buffer, at, value))

    def finish(self, tensor: TensorView, loops: Sequence[IterDomain]) -> None:
        """Lanes become one by a tree, then threads, then blocks."""
        state = self._states[tensor]
        width = state.width
        while width > 1:
            half = (width + 1) // 2
            with self.builder.scope():
                count = (width - half) * state.size
                at = const(0) if count == 1 else self.builder.loop("s", const(count), "partial results", self._lanes)
                self._store(state, at, state.monoid.combine(state.at(at), state.at(at + half * state.size)))
            width = half
        crossed = [loop.parallel_type for loop in loops if self.phased.is_reduced_by(tensor, loop)]
        threads = tuple(kind for kind in THREADS if kind in crossed)
        blocks = tuple(kind for kind in BLOCKS if kind in crossed)
        rule = _rule(state)
        if threads:
            self._check_converged(tensor)
            self.builder.add(BlockReduce(state.buffers, state.size, threads, rule))
        if blocks:
            self._check_last(tensor, blocks)
            self._across_blocks(tensor, state, blocks, rule)
        self._settle(state)

    def _settle(self, state: State) -> None:
        """The result in place of the state, once for all that read it."""
        with self.builder.scope():
            at = const(0) if state.size == 1 else self.builder.loop("s", const(state.size), "results", self._lanes)
            states = state.at(at)
            result = state.monoid.finish(states)
            if result != states[state.monoid.result]:
                self.builder.add(Store(state.buffers[state.monoid.result], at, result))

    def _across_blocks(
        self, tensor: TensorView, state: State, blocks: tuple[ParallelType, ...], rule: CombineRule
    ) -> None:
        """The last block to arrive goes on alone."""
        groups, size = const(1), const(state.size)
        for kind, count in zip(BLOCKS, self.nests.launch.grid, strict=True):
            groups = groups * (1 if kind in blocks else count)
        for count in (*self.nests.launch.grid, *self.nests.launch.block):
            size = size * count
        names = tuple(self.builder.name(f"{buffer}_blocks") for buffer in state.buffers)
        counter = self.builder.name(f"{tensor.name}_arrived")
        self.workspaces += [Buffer(n, d, size, written=True) for n, d in zip(names, state.dtypes, strict=True)]
        self.workspaces.append(Buffer(counter, "int32", groups, written=True))
        self.joined.update(blocks)
        self.builder.last_block(GridReduce(state.buffers, state.size, blocks, rule, names, counter, ()))

    def _check_last(self, tensor: TensorView, blocks: tuple[ParallelType, ...]) -> None:
        """Nothing else may be left to do for the other blocks."""
        for loop in self.phased.shared:
            if not is_bound(loop):
                raise ScheduleError(f"{tensor} is reduced across blocks inside loop {loop}, which each of them repeats")
        for other in [t for phase in self.phased.phases for t in phase]:
            walks = [loop for loop in self.phased.loops_of(other) if not self.phased.is_gone(other, loop)]
            if (other is not tensor and is_reduction(other)) or any(loop.parallel_type in blocks for loop in walks):
                raise ScheduleError(
                    f"{tensor} is reduced across blocks ({', '.join(b.name for b in blocks)}), which must be the last "
                    f"thing a kernel does; {other} is left: give it a kernel of its own"
                )

    def _check_converged(self, tensor: TensorView) -> None:
        for loop in self.phased.shared:
            differs = self.nests.variables[loop] in self.builder.varying
            if differs and not loop.parallel_type.is_thread:
                raise ScheduleError(
                    f"{tensor} is reduced across threads inside loop {loop}, whose bound they differ in"
                )

    def value(self, tensor: TensorView) -> Scalar | None:
        """The result of a reduction, for the loops that are open."""
        state = self._states.get(tensor)
        return None if state is None else state.at(self._place(state.kept))[state.monoid.result]


def constant(tensor: TensorView, loops: Sequence[IterDomain]) -> int:
    """How many indices loops have together; each must have a number of them."""
    count = 1
    for loop in loops:
        if loop.is_ragged or not loop.extent.is_const:
            raise ScheduleError(
                f"{tensor} needs a value for each index of loop {loop}, whose extent is not a constant: put the loop "
                f"outside of what is reduced, or split it by a constant and put the outer part outside"
            )
        count *= loop.extent.value
    return count


def _rule(state: State) -> CombineRule:
    left = tuple(symbol(f"left{n}", dtype) for n, dtype in enumerate(state.dtypes))
    right = tuple(symbol(f"right{n}", dtype) for n, dtype in enumerate(state.dtypes))
    return CombineRule(left, right, state.monoid.combine(left, right))
