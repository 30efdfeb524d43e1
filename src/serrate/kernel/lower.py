"""Lowering: a scheduled fusion becomes a kernel.

The shared loops of the reference are opened; inside them each phase is a loop nest that reduces, keeps or stores.
Indices and predicates come from the axis table by `fusion.indices`; an index is computed, and a guard stands, in the
outermost loop where all it depends on is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH, room
from serrate.fusion.fusion import Fusion
from serrate.fusion.indices import Indices, route
from serrate.fusion.scalar import TRUE, Scalar, both, cast, ceildiv, const, equal, less, logical_not, multiply, symbol
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.builder import axis_name
from serrate.kernel.costs import check_needs
from serrate.kernel.elements import Elements
from serrate.kernel.ir import For, Kernel, Prefetch, Store
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
from serrate.kernel.nests import Blocks, Nests, label
from serrate.kernel.parameters import parameters
from serrate.kernel.phases import PhasedFusion, divide_into_phases, is_reduction
from serrate.kernel.simplification import simplified
from serrate.kernel.states import States
from serrate.kernel.targets import Target, target_named


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
        for i_inner in 4:  # i of y, within 4
          i = i_outer * 4 + i_inner
          if i < n:
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
        self.builder = self.nests.builder
        self.states = States(self.nests, target.state_loops)
        self.keeping = Keeping(self.nests, target)
        self.walked_loops: set[tuple[IterDomain, ...]] = set()  # inner loops that some phase has walked

    def run(self) -> Lowered:
        indices = Indices(self.phased.graph)
        with self.builder.scope():
            for loop in self.phased.shared:
                self.nests.open(loop, indices)
                self.nests.advance_shared(indices)
            for phase in self.phased.phases:
                self._phase(phase, indices)
        for tensor in self.phased.outputs:
            if tensor.fill is not None:
                self._fill_holes(tensor)
        body = simplified(self.builder.body, self.launch)
        buffers, sizes, arrays = parameters(self.phased, body, self.launch, self.states.workspaces)
        kernel = Kernel(self.name, buffers, sizes, body, self.launch, self.index)
        check_needs(kernel, self.target)
        required, bounds = requirements(self.phased, self.target), index_bounds(self.phased)
        return Lowered(kernel, self.phased.fusion, arrays, self.target, required, bounds)

    def held(self, tensor: TensorView, elements: Elements) -> Scalar | None:
        """What the kernel has of a tensor: a kept value, or the result of a reduction."""
        kept = self.keeping.value(tensor, elements)
        return self.states.value(tensor) if kept is None else kept

    def _phase(self, tensors: Sequence[TensorView], indices: Indices) -> None:
        """Loop nests, each for all that walks the same axes; then what reductions leave is stored."""
        outputs = [tensor for tensor in tensors if tensor in self.phased.outputs]
        alone = [tensor for tensor in outputs if is_reduction(tensor) or self._lacks_loops(tensor)]
        groups: dict[tuple[object, ...], list[TensorView]] = {}
        for tensor in tensors:
            if is_reduction(tensor) or tensor not in alone:
                groups.setdefault(self.phased.nest_of(tensor), []).append(tensor)
        for group in groups.values():
            self._together(group, indices)
        for tensor in alone:
            self._store(tensor, indices)

    def _together(self, tensors: Sequence[TensorView], indices: Indices) -> None:
        """Tensors that walk the same loops, in one nest."""
        loops = self.phased.loops_of(tensors[0])
        kept = [tensor for tensor in tensors if tensor in self.phased.kept]
        reductions = [tensor for tensor in tensors if is_reduction(tensor)]
        for tensor in kept:
            self.keeping.allocate(tensor, loops, indices)
        for tensor in reductions:
            self.states.allocate(tensor, loops)

        def leaf(local: Indices) -> None:
            elements = Elements(self, local)
            for tensor in tensors:
                if is_reduction(tensor):
                    self.states.accumulate(tensor, elements)
                    continue
                if tensor in kept:
                    self.keeping.store(tensor, elements)
                if tensor in self.phased.outputs:
                    self._store_element(tensor, elements)
            self._prefetch(loops, elements)

        wanted = [axis for tensor in tensors for axis in self.nests.wanted(tensor, not is_reduction(tensor))]
        states = self.states
        blocks = Blocks(
            states.blocks(reductions), partial(states.begin_block, reductions), partial(states.end_block, reductions)
        )
        self.nests.nest(wanted, loops, indices, leaf, blocks)
        self.walked_loops.add(loops)
        self.keeping.done(kept)
        for tensor in reductions:
            self.states.finish(tensor, loops)

    def _prefetch(self, loops: Sequence[IterDomain], elements: Elements) -> None:
        """In a nest that was walked before: what the next iteration of the shared loops will read, a row further on."""
        if not self.target.prefetch or loops not in self.walked_loops:
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

    def _store(self, tensor: TensorView, indices: Indices) -> None:
        """A nest that stores a tensor; of a reduction without the loops it reduced."""
        loops = [loop for loop in self.phased.loops_of(tensor) if not self.phased.is_gone(tensor, loop)]
        with self.builder.scope():
            self._only_once(tensor, loops)
            wanted = self.nests.wanted(tensor, storing=True)
            self.nests.nest(wanted, loops, indices, lambda local: self._store_element(tensor, Elements(self, local)))

    def _lacks_loops(self, tensor: TensorView) -> bool:
        """Whether something walks around a tensor that it does not have."""
        loops = [loop for loop in self.phased.loops if self.phased.involves(tensor, loop)]
        bound = {loop.parallel_type for loop in loops}
        unbound = any(kind not in bound for kind, _ in dimensions(self.launch))
        return unbound or any(loop not in loops for loop in self.phased.shared)

    def _only_once(self, tensor: TensorView, loops: Sequence[IterDomain]) -> None:
        """A tensor without an axis that is walked around it is stored at index 0 of that axis."""
        bound = {loop.parallel_type for loop in (*loops, *self.phased.shared)} | self.states.joined
        for loop in self.phased.shared:
            if not self.phased.involves(tensor, loop) or self.phased.is_gone(tensor, loop):
                self.builder.guard(equal(self.nests.variables[loop], 0))
        self._only_first(f"{tensor.name} is stored once", bound)

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
        builder, axes = self.builder, tensor.domain.allocation
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
