"""Loop nests: opening loops, computing indices where they are first known, and guarding what may be out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import raggedness_of
from serrate.fusion.domain import history
from serrate.fusion.expressions import Combine, Merge, Split, component_of
from serrate.fusion.indices import Indices, route
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.scalar import Scalar, ceildiv, minimum
from serrate.fusion.view import TensorView
from serrate.kernel.builder import Builder, axis_name
from serrate.kernel.elements import axes_read
from serrate.kernel.ir import Launch
from serrate.kernel.launching import is_bound, reduces_across_threads
from serrate.kernel.phases import PhasedFusion, is_reduction
from serrate.kernel.source import identifier


@dataclass(frozen=True)
class Blocks:
    """Loops that are walked by blocks: how long those are, and what to do before and after each."""

    lengths: Mapping[IterDomain, int]
    begin: Callable[[IterDomain], None]
    end: Callable[[IterDomain], None]


class Nests:
    """The loops of a kernel under construction, and the builder they are written with."""

    def __init__(self, phased: PhasedFusion, launch: Launch, name: str) -> None:
        self.phased, self.graph, self.launch = phased, phased.graph, launch
        bounds = [axis.bound for tensor in phased.fusion.tensors for axis in tensor.domain.logical]
        sizes = {str(size.value) for bound in bounds for size in bound.symbols}
        taken = {tensor.name for tensor in phased.fusion.tensors} | sizes | {name}
        taken |= raggedness_of(phased.fusion.tensors).keys()
        _check_names(taken)
        taken = {identifier(word) for word in taken}
        self.builder = Builder(reduces_across_threads(phased), taken)
        self.variables: dict[IterDomain, Scalar] = {}  # of loops that are open

    def axes_read(self, tensor: TensorView) -> list[IterDomain]:
        """The axes whose indices are needed to compute a tensor from what is in memory."""
        return axes_read(tensor, self.is_held)

    def is_held(self, tensor: TensorView) -> bool:
        """Whether the kernel holds the values of a tensor, for the indices of the loops that are open."""
        return tensor in self.phased.kept or is_reduction(tensor)

    def wanted(self, tensor: TensorView, storing: bool) -> list[IterDomain]:
        """The axes whose indices a nest needs: those it walks, as they would lie in memory, and all it loads and stores
        by. A reduction is stored from its state, without what it reduced."""
        domain = tensor.domain
        if tensor.kept_in is not None:
            return [*tensor.kept_in.domain.allocation, *self.phased.iterated[tensor], *self.axes_read(tensor)]
        if tensor.reads_holes and not storing:
            return list(_filled_operand(tensor).domain.allocation)
        wanted: dict[IterDomain, None] = {}
        if storing:
            wanted.update(dict.fromkeys(domain.allocation))
            if any(step.makes_holes for step in history(domain.allocation)):
                wanted.update(dict.fromkeys(axis for axis in domain.kept if not axis.is_broadcast))
        if not (storing and is_reduction(tensor)):
            wanted.update(dict.fromkeys(self.phased.iterated[tensor]))
            wanted.update(dict.fromkeys(self.axes_read(tensor)))
        if not storing and tensor.definition is not None and tensor.definition.name.startswith("arg"):
            wanted.update(dict.fromkeys(axis for axis in domain.root if axis.is_reduction))
        return list(wanted)

    def open(self, loop: IterDomain, indices: Indices) -> None:
        """Open a loop and bind its index. A ragged one inside its component's loop runs to the end of its row."""
        parallel = loop.parallel_type
        extent, exact = self._bound(loop, indices)
        if is_bound(loop):
            exact = exact and extent == self.launch.size(parallel)
            extent = loop.bound
        var = self.builder.loop(axis_name(loop), extent, label(self.phased.reference, loop), parallel)
        self.variables[loop] = var
        indices.set(loop, var, unsafe=not exact)

    def _bound(self, loop: IterDomain, indices: Indices) -> tuple[Scalar, bool]:
        """How far a loop runs here, and whether that is its extent."""
        if not loop.is_ragged:
            return loop.extent, True
        component = component_of(loop)
        self._make_known(component, indices)
        if not indices.has(component):
            self._check_order(loop)
            return loop.bound, False
        indices.guard(component, self.builder.guard)
        return self.bind_extent(loop, indices), True

    def bind_extent(self, loop: IterDomain, indices: Indices) -> Scalar:
        """The length of a row by a name, after those of the axes the loop was split from."""
        step = loop.definition
        if step is not None and loop not in self.phased.reference.domain.logical:
            for axis in step.inputs:
                if axis.is_ragged and component_of(axis) is component_of(loop):
                    self.bind_extent(axis, indices)
        return self.builder.let(f"{axis_name(loop)}_extent", indices.extent(loop))

    def _make_known(self, axis: IterDomain, indices: Indices) -> None:
        """Compute an index from open loops, if it follows from them."""
        if indices.has(axis):
            return
        try:
            steps = route(self.graph, [loop for loop in self.variables if indices.has(loop)], [axis])
        except ScheduleError:
            return
        indices.advance(steps, self.builder.guard, self.builder.index)

    def _check_order(self, loop: IterDomain) -> None:
        """A ragged loop outside of its component's: only whole, up to the longest row."""
        if loop.definition is not None and loop not in self.phased.reference.domain.logical:
            raise ScheduleError(
                f"loop {loop} of {self.phased.reference.name} stands outside the loop of its component axis "
                f"{component_of(loop)}; only a ragged axis that is not transformed can, walked to the longest row"
            )

    def advance_shared(self, indices: Indices) -> None:
        """Indices that all phases can share, as soon as the loops so far give them."""
        opened = [loop for loop in self.phased.shared if loop in self.variables]
        for phase in self.phased.phases:
            for tensor in phase:
                loops = [*self.phased.shared, *self.phased.loops_of(tensor)]
                if all(self.phased.involves(tensor, loop) for loop in opened):
                    steps = route(self.graph, loops, self.wanted(tensor, not is_reduction(tensor)))
                    indices.advance(steps, self.builder.guard, self.builder.index)
        for loop in self.phased.inner:  # row lengths, once for all phases
            if loop.is_ragged and indices.has(component_of(loop)) and not indices.is_unsafe(component_of(loop)):
                self.bind_extent(loop, indices)

    def nest(
        self,
        wanted: Sequence[IterDomain],
        loops: Sequence[IterDomain],
        indices: Indices,
        leaf: Callable[[Indices], None],
        blocks: Blocks | None = None,
    ) -> None:
        """The loops of a phase, the guards they need, and what stands inside."""
        builder = self.builder
        with ExitStack() as opened:
            opened.enter_context(builder.scope())
            local = indices.copy()
            steps = route(self.graph, [*self.phased.shared, *loops], wanted)
            local.advance(steps, builder.guard, builder.index)
            for loop in loops:
                if blocks is not None and loop in blocks.lengths:
                    self._open_blocks(loop, local, blocks, opened)
                else:
                    self.open(loop, local)
                local.advance(steps, builder.guard, builder.index)
            for axis in wanted:
                local.guard(axis, builder.guard)
            with builder.leaf():
                leaf(local)
        for loop in loops:
            del self.variables[loop]

    def _open_blocks(self, loop: IterDomain, indices: Indices, blocks: Blocks, opened: ExitStack) -> None:
        """Open a serial loop as two: over its blocks, and within one."""
        builder, length, name = self.builder, blocks.lengths[loop], axis_name(loop)
        extent, exact = self._bound(loop, indices)
        text = label(self.phased.reference, loop)
        block = builder.loop(f"{name}_block", ceildiv(extent, length), f"{text}, blocks of {length}")
        blocks.begin(loop)
        opened.callback(blocks.end, loop)
        opened.enter_context(builder.scope())
        step = builder.loop(f"{name}_step", minimum(extent - block * length, length), f"{text}, within a block")
        self.variables[loop] = builder.let(name, block * length + step)
        indices.set(loop, self.variables[loop], unsafe=not exact)


def _check_names(names: set[str]) -> None:
    """Refuse names that would be one in C++."""
    written: dict[str, str] = {}
    for name in sorted(names):
        if not name:
            raise ValueError("a tensor, a size and a kernel need a name of at least one letter")
        other = written.setdefault(identifier(name), name)
        if other != name:
            raise ValueError(f"{other!r} and {name!r} would be one name in C++, {identifier(name)!r}; rename one")


def label(tensor: TensorView, axis: IterDomain) -> str:
    """What a loop says of itself."""
    step = axis.definition
    if isinstance(step, Split) and axis not in tensor.domain.logical:
        outer, inner = axis_name(step.inputs[0]), step.factor
        return f"{outer} of {tensor.name}, {'by' if axis is step.outputs[0] else 'within'} {inner}"
    if isinstance(step, (Merge, Combine)) and axis not in tensor.domain.logical:
        return f"{' and '.join(axis_name(part) for part in step.inputs)} of {tensor.name}"
    return f"{axis_name(axis)} of {tensor.name}"


def _filled_operand(tensor: TensorView) -> TensorView:
    """The operand of a reduction that reads holes: they must hold what changes nothing."""
    operation = tensor.definition
    assert operation is not None
    operand = operation.inputs[0]
    neutral = MONOIDS[operation.name].neutral
    if operand.definition is not None or operand.fill is None:
        raise ScheduleError(f"{tensor} reads holes of {operand}, which is not an input that holds a fill value in them")
    if neutral is None or operand.fill != neutral:
        wanted = "no value changes nothing" if neutral is None else f"only {neutral} changes nothing"
        raise ScheduleError(
            f"{tensor} reads holes of {operand}, which hold {operand.fill}; in a {operation.name} {wanted}"
        )
    return operand
