"""Lowering: a scheduled fusion becomes a kernel.

The loops of the reference are opened one inside the other; where something is reduced over a loop, phases walk it one
after another, as `kernel.phases` says. Indices and predicates come from the axis table by `fusion.indices`; an index is
computed, and a guard stands, in the outermost loop where all it depends on is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial, reduce

from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH, room
from serrate.fusion.fusion import Fusion
from serrate.fusion.indices import Indices, route
from serrate.fusion.scalar import TRUE, Scalar, both, cast, ceildiv, const, equal, less, logical_not, multiply, symbol
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.boxes import Boxes
from serrate.kernel.builder import axis_name
from serrate.kernel.costs import check_needs
from serrate.kernel.elements import Elements
from serrate.kernel.ir import For, Kernel, Prefetch, Store
from serrate.kernel.jobs import Job, Role, is_gathered, is_scan
from serrate.kernel.keeping import Keeping
from serrate.kernel.launching import (
    BLOCKS,
    THREADS,
    check_parallel_types,
    dimensions,
    index_bounds,
    launch_of,
    requirements,
)
from serrate.kernel.lowered import Lowered
from serrate.kernel.nests import Nests, label
from serrate.kernel.parameters import parameters
from serrate.kernel.phases import Phase, PhasedFusion, divide_into_phases
from serrate.kernel.scans import Scans
from serrate.kernel.simplification import simplified
from serrate.kernel.states import States
from serrate.kernel.targets import Target, target_named
from serrate.kernel.teams import memory_axes


def lower(
    fusion: Fusion, reference: TensorView, *, name: str = "kernel", target: str = "cpp", index: str = "int64"
) -> Lowered:
    """The kernel of a fusion under the loops of a reference tensor, for `target` "cpp" or "cuda".

    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import lower
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n"])
    >>> y = fusion.output(fusion.unary("exp", x), "y").split(0, 4)
    >>> print(lower(fusion, y).kernel)
    kernel kernel(const float32 x[n], float32 y[n], n) of 1×1×1 blocks of 1×1×1 threads
      for i_outer in (n + 3) / 4:  # i of y, by 4
        i_inner_extent = minimum(n - i_outer * 4, 4)
        for i_inner in i_inner_extent:  # i of y, within 4
          i = i_outer * 4 + i_inner
          y[i] = exp(x[i])
    """
    phased = divide_into_phases(fusion, reference)
    return Lowering(phased, name, target_named(target, reference), index).run()


def _lines(line: Scalar, buffer: str, count: int, width: int, start: Scalar) -> For:
    """Prefetches of the cache lines of `count` elements."""
    lines = const(-(-count // width))
    return For(line, lines, (Prefetch(buffer, start + line * width),), "of what comes next", ParallelType.Unroll)


class Lowering:
    """The lowering of one fusion that is divided into phases."""

    def __init__(self, phased: PhasedFusion, name: str, target: Target, index: str) -> None:
        check_parallel_types(phased, target)
        self.phased, self.name, self.target, self.index = phased, name, target, index
        self.launch = launch_of(phased, target)
        self.nests = Nests(phased, self.launch, name)
        self.builder, self.team = self.nests.builder, self.nests.team
        self.states = States(self.nests, target)
        self.scans = Scans(self.states)
        self.keeping = Keeping(self.nests, target)
        self.boxes = Boxes(self.nests, target)
        self.walked: set[tuple[IterDomain, ...]] = set()  # loops that some phase has walked
        self.phased_at = 0  # the depth of the innermost loop that several phases walk

    def run(self) -> Lowered:
        with self.builder.scope():
            jobs = [Job(Role.STORE, tensor) for tensor in self.phased.outputs]
            self.boxes.copy(-1, self.phased.jobs, Indices(self.phased.graph))
            self._do(0, jobs, Indices(self.phased.graph))
        for tensor in self.phased.outputs:
            if tensor.fill is not None:
                self._fill_holes(tensor)
        body = simplified(self.builder.body, self.launch)
        buffers, sizes, arrays = parameters(self.phased, body, self.launch, self.states.workspaces, self.team)
        kernel = Kernel(self.name, buffers, sizes, body, self.launch, self.index)
        check_needs(kernel, self.target, self.phased.reference)
        required = (*requirements(self.phased, self.target), *self.boxes.requirements)
        bounds = index_bounds(self.phased)
        return Lowered(kernel, self.phased.fusion, arrays, self.target, required, bounds, self.team)

    def held(self, tensor: TensorView, elements: Elements) -> Scalar | None:
        """What the kernel has of a tensor: the result of a reduction, or a kept value."""
        if is_gathered(tensor):
            return self.scans.value(tensor) if is_scan(tensor) else self.states.value(tensor)
        if tensor.box_axes:
            return self.boxes.value(tensor, elements.indices)
        return self.keeping.value(tensor, elements) if tensor in self.nests.known else None

    # Loops and phases

    def _do(self, depth: int, jobs: Sequence[Job], indices: Indices) -> None:
        """Do jobs, whose loops outside of a depth are open, and first what they wait for."""
        known = self.nests.known
        everything = [*jobs, *self.phased.waits_for(jobs, known)]
        loops = self.phased.loops
        while depth < len(loops) and not self._is_walked(everything, loops[depth]):
            depth += 1
        if depth == len(loops):
            self._leaves(jobs, indices)
            return
        phases, outer = self.phased.phases(depth, jobs, known), self.phased_at
        if len(phases) > 1:
            self.phased_at = depth
        self.nests.advance(indices, everything)
        self.nests.bind_lengths([loop for loop in loops[depth:] if self._is_walked(everything, loop)], indices)
        self.nests.known = set(known)
        for phase in phases:
            self._phase(depth, phase, phases, indices)
        self.nests.known, self.phased_at = known & self.nests.known, outer

    def _is_walked(self, jobs: Sequence[Job], loop: IterDomain) -> bool:
        return any(self.phased.involves(job, loop) for job in jobs)

    def _phase(self, depth: int, phase: Phase, phases: Sequence[Phase], indices: Indices) -> None:
        """Do the jobs of a phase: those that walk the loop at a depth in one walk, the others without it."""
        for tensor in phase.kept:
            self.keeping.allocate(tensor, depth, phases, indices)
        for tensor in phase.reductions:
            self.states.allocate(tensor, depth, indices)
        for tensor in phase.scans:
            self.scans.begin(tensor, depth, indices)
        loop = self.phased.loops[depth]
        along = [job for job in phase.jobs if self.phased.involves(job, loop)]
        aside = [job for job in phase.jobs if job not in along]
        if aside:
            with self.builder.scope():
                self._do(depth + 1, aside, indices.copy())
            self._now_kept(aside)
        if along:
            self._walk(depth, along, indices)
        for tensor in phase.reductions:
            self.states.finish(tensor)
        self.nests.known.update(phase.reductions)
        self._now_kept(phase.jobs)

    def _now_kept(self, jobs: Sequence[Job]) -> None:
        """From here on what these jobs have kept is read, not computed."""
        self.nests.known.update(job.tensor for job in jobs if job.role == Role.KEEP and job.tensor in self.phased.kept)

    def _walk(self, depth: int, jobs: Sequence[Job], indices: Indices) -> None:
        """Walk a loop, and do jobs for each of its indices. Where lanes stand inside of it that are not always all in
        bounds, first as far as they are, and then once more for the lanes that are left."""
        loop = self.phased.loops[depth]
        count = self._full_lanes(depth, jobs, indices)
        if count is None:
            self._walk_part(depth, jobs, indices)
            return
        known = set(self.nests.known)
        lanes = self.phased.loops[depth + 1]
        self.nests.full[loop] = self.nests.full[lanes] = count
        self._walk_part(depth, jobs, indices)
        self.nests.full.clear()
        self.nests.known = known
        with self.builder.scope():
            local = indices.copy()
            self.nests.set_last(loop, count, local, jobs)
            self.nests.advance(local, [*jobs, *self.phased.waits_for(jobs, known)])
            self._do(depth + 1, jobs, local)
        del self.nests.variables[loop]

    def _full_lanes(self, depth: int, jobs: Sequence[Job], indices: Indices) -> Scalar | None:
        """How many indices of a loop have all lanes of the loop inside of it in bounds; None if lanes do not stand
        there, or always are."""
        loops = self.phased.loops
        if depth + 2 != len(loops) or loops[depth + 1].parallel_type != ParallelType.Simd:
            return None
        if not all(self.phased.involves(job, loops[depth + 1]) for job in jobs):
            return None
        return self.nests.full_lanes(loops[depth], loops[depth + 1], indices)

    def _walk_part(self, depth: int, jobs: Sequence[Job], indices: Indices) -> None:
        loop, nests = self.phased.loops[depth], self.nests
        everything = [*jobs, *self.phased.waits_for(jobs, nests.known)]
        with ExitStack() as opened:
            opened.enter_context(self.builder.scope())
            local = indices.copy()
            nests.advance(local, everything)
            length = self.states.blocks(jobs, loop)
            within = None
            backward = any(self.phased.direction(job, loop) for job in jobs)
            if length is None:
                nests.open(loop, local, jobs, backward=backward)
            else:
                within = nests.open_blocks(loop, length, local, jobs, backward=backward)
            if self.states.is_parted(jobs, loop):
                self.states.begin(jobs, loop)
                opened.callback(self.states.end, jobs, loop)
                opened.enter_context(self.builder.scope())
            if within is not None:
                within()
            nests.advance(local, everything)
            self.boxes.copy(depth, everything, local)
            self._do(depth + 1, jobs, local)
        del nests.variables[loop]

    # What is done for each index

    def _leaves(self, jobs: Sequence[Job], indices: Indices) -> None:
        """Jobs whose loops are all open, those together that need the same indices and guards."""
        groups: dict[tuple[tuple[object, ...], bool], list[Job]] = {}
        for job in jobs:
            once = job.role == Role.STORE and self._lacks_dimensions(job)
            groups.setdefault((self.phased.nest_of(job), once), []).append(job)
        for (_, once), group in groups.items():
            with self.builder.scope():
                if once:
                    self._only_first(f"{group[0].tensor.name} is stored once", self._dimensions_of(group[0]))
                with self.nests.leaf(group, indices) as local:
                    self._leaf(group, Elements(self, local))
            self._now_kept(group)

    def _leaf(self, jobs: Sequence[Job], elements: Elements) -> None:
        outputs = [job.tensor for job in jobs if job.role == Role.STORE]
        replaced = [tensor for output in outputs for tensor in self.keeping.in_place_of(output)]
        for tensor in replaced:
            elements.named(tensor)  # before the output is stored where the value lies
        for job in jobs:
            match job.role:
                case Role.REDUCE:
                    self.states.accumulate(job.tensor, elements)
                case Role.SCAN:
                    self.scans.take_in(job.tensor, elements)
                case Role.KEEP:
                    self.keeping.store(job.tensor, elements)
                case Role.STORE:
                    self._store_element(job.tensor, elements)
        if self.nests.full:
            return  # the lanes that are left come after these
        for tensor in replaced:
            self.nests.known.discard(tensor)
            self.phased.forget(tensor)
        self._prefetch(jobs[0], elements)

    def _prefetch(self, job: Job, elements: Elements) -> None:
        """In loops that were walked before: what the next iteration of the loops outside will read, a row later."""
        loops = [loop for loop in self.phased.loops_of(job) if self.phased.loops.index(loop) >= self.phased_at]
        if not self.target.prefetch or tuple(loops) not in self.walked:
            self.walked.add(tuple(loops))
            return
        if not loops or not loops[-1].parallel_type.is_lanes:
            return
        lane, lanes = self.nests.variables[loops[-1]], loops[-1].extent.value
        for tensor in elements.loaded:
            if not tensor.is_prefetched:
                continue
            row = const(1)
            for loop in loops:
                row = row * (self.nests.bind_extent(loop, elements.indices) if loop.is_ragged else loop.extent)
            width = 64 // TORCH[tensor.dtype].itemsize  # of a cache line
            lines = partial(_lines, symbol(self.builder.name("line")), tensor.name, lanes, width)
            self.builder.before_lanes(lane, elements.address(tensor) + row, lines)

    def _store_element(self, tensor: TensorView, elements: Elements) -> None:
        value = cast(elements.value(tensor), tensor.dtype)
        self.builder.add(Store(tensor.name, elements.address(tensor), value))

    def _dimensions_of(self, job: Job) -> set[ParallelType]:
        """The dimensions of the launch along which a job is not repeated."""
        return {loop.parallel_type for loop in self.phased.loops_of(job)} | self.states.joined

    def _lacks_dimensions(self, job: Job) -> bool:
        return any(kind not in self._dimensions_of(job) for kind, _ in dimensions(self.launch))

    def _only_first(self, why: str, bound: set[ParallelType]) -> None:
        """Only the first block and thread along dimensions that no loop is bound to."""
        for kind, size in dimensions(self.launch):
            if kind not in bound:
                self.builder.guard(equal(self.builder.loop(kind.name.lower(), size, why, kind), 0))

    def _fill_holes(self, tensor: TensorView) -> None:
        """Strong correctness: every position of the allocation that is no element holds the fill value."""
        builder, indices = self.builder, Indices(self.phased.graph)
        with builder.scope():
            self._walk_memory(tensor, indices)
            conditions: list[Scalar] = []
            wanted = [axis for axis in tensor.domain.kept if not axis.is_broadcast]
            steps = route(self.phased.graph, tensor.domain.allocation, wanted)
            indices.advance(steps, conditions.append, lambda _, index: index)
            for axis in wanted:
                indices.guard(axis, conditions.append)
            inside = both(*conditions)
            if inside == TRUE:
                return
            builder.guard(logical_not(inside))
            assert tensor.fill is not None
            with builder.leaf():
                place = Elements(self, indices).address(tensor)
                builder.add(Store(tensor.name, place, const(tensor.fill, tensor.dtype)))

    def _walk_memory(self, tensor: TensorView, indices: Indices) -> None:
        """Every position of the allocation once: in loops, or spread over all blocks and threads of the launch."""
        builder, axes = self.builder, memory_axes(self.team, tensor)
        if self.team is not None and tensor in self.team.memory:
            indices.set(self.team.loop, self.team.rank)
        extents = [axis.extent if (known := room(axis)) is None else known for axis in axes]
        sizes = dict(dimensions(self.launch))
        spread = [(kind, sizes[kind]) for kind in (*reversed(BLOCKS), *reversed(THREADS)) if kind in sizes]
        if not spread:
            for axis, extent in zip(axes, extents, strict=True):
                position = builder.loop(axis_name(axis), extent, label(tensor, axis))
                indices.set(axis, position, unsafe=extent != axis.extent)
            return
        number, together, total = const(0), const(1), reduce(multiply, extents)
        for kind, size in spread:
            index = builder.loop(kind.name.lower(), size, f"{tensor.name} is filled by all", kind)
            number, together = number * size + index, together * size
        step = builder.loop("step", ceildiv(total, together), f"memory of {tensor.name}")
        rest = builder.let("position", step * together + number)
        builder.guard(less(rest, total))
        for axis, extent in reversed(list(zip(axes, extents, strict=True))):
            indices.set(axis, builder.let(axis_name(axis), rest % extent), unsafe=extent != axis.extent)
            rest = rest // extent
