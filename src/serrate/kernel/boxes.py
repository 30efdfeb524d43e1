"""Boxes: parts of an input that the copy engine copies to shared memory, each by one statement.

A copy of an input that `cache_after(Memory.SHARED)` makes is scheduled by itself: its inner loops, run as Bulk, are the
dimensions of a box, and its outer loops, which must be loops of the reference, say which box it is. Elements of a box
that are outside of the tensor are 0: the engine is strongly correct, with the fill 0. The rest of a row of another
length is not outside of the tensor, though, but the next row: such holes hold anything, and must not be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH, room
from serrate.fusion.dtypes import accumulator
from serrate.fusion.expressions import Combine, Merge, Partition, Split, divides_all
from serrate.fusion.indices import Indices, route
from serrate.fusion.mapping import AxisGraph, read_here
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.requirements import Requirement
from serrate.fusion.scalar import Scalar, cast, const, equal, load, multiply
from serrate.fusion.types import Memory, ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.ir import Allocate, Barrier, Buffer, BulkCopy
from serrate.kernel.jobs import Job, Role, is_gathered
from serrate.kernel.phases import PhasedFusion
from serrate.kernel.targets import Target

if TYPE_CHECKING:
    from serrate.kernel.nests import Nests


@dataclass(frozen=True)
class Box:
    """How a tensor is copied by boxes."""

    tensor: TensorView
    source: TensorView
    """The input that it is a copy of."""
    outer: tuple[IterDomain, ...]
    """The loops that say which box it is."""
    inner: tuple[IterDomain, ...]
    """Those that are its dimensions, as they lie in shared memory."""
    depth: int
    """The innermost of the reference's loops among the outer ones; -1 if there is none."""
    groups: tuple[tuple[int, ...], ...]
    """The dimensions of the source, each made of axes that lie together in memory."""
    extents: tuple[int, ...]
    """Of the box, along each of them."""


class Boxes:
    """The boxes of a kernel."""

    def __init__(self, nests: Nests, target: Target) -> None:
        self.nests, self.phased, self.builder, self.target = nests, nests.phased, nests.builder, target
        tensors = [tensor for tensor in self.phased.needed if tensor.box_axes]
        self._boxes = {tensor: box_of(self.phased, tensor, target) for tensor in tensors}
        self._buffers: dict[TensorView, str] = {}
        self.requirements = tuple(self._requirements())

    def _requirements(self) -> list[Requirement]:
        """Whatever size the last axis has, neighbours along the other dimensions are so many bytes apart."""
        made = []
        limits = self.target.limits.box
        for box in self._boxes.values():
            last = self._extent(box, box.groups[-1])
            bytes_apart, source = last * TORCH[box.source.dtype].itemsize, box.source
            if limits is None or len(box.groups) == 1:
                continue
            why = f"{box.tensor} cannot be copied by boxes: rows of {source} must be a multiple of {limits.bytes} bytes"
            if bytes_apart.is_const and bytes_apart.value % limits.bytes:
                raise ScheduleError(f"{why} apart, not {bytes_apart}", tensor=box.tensor)
            if not bytes_apart.is_const:
                condition = equal(bytes_apart % limits.bytes, 0)
                made.append(Requirement(condition, ScheduleError, f"{why} apart, not {bytes_apart}"))
        return made

    def _extent(self, box: Box, group: Sequence[int]) -> Scalar:
        axes = [box.source.domain.allocation[number] for number in group]
        return reduce(multiply, [axis.extent if (known := room(axis)) is None else known for axis in axes])

    def copy(self, depth: int, jobs: Sequence[Job], indices: Indices) -> None:
        """Copy the boxes that jobs read inside of the loop at a depth, if that says which boxes they are."""
        for tensor, box in self._boxes.items():
            if box.depth == depth and any(self._reads(job, tensor) for job in jobs):
                self._check_together(box)
                self._copy(box, indices)

    def _reads(self, job: Job, tensor: TensorView) -> bool:
        """Whether a job reads elements of a tensor, not only what is gathered or kept of them."""
        if job.role == Role.STORE and is_gathered(job.tensor):
            return False
        seen, stack = set[TensorView](), [job.tensor]
        while stack:
            x = stack.pop()
            if x is tensor:
                return True
            if x in seen or x.definition is None or (x is not job.tensor and self.nests.is_held(x)):
                continue
            seen.add(x)
            stack.extend(read_here(x.definition))
        return False

    def _check_together(self, box: Box) -> None:
        """All threads of a block copy together."""
        for loop, variable in self.nests.variables.items():
            if loop.parallel_type.is_lanes:
                raise ScheduleError(
                    f"{box.tensor} is copied by boxes inside loop {loop}, whose lanes belong to one thread; put that "
                    f"loop inside of those that say which box it is",
                    tensor=box.tensor,
                )
            if variable in self.builder.varying and not loop.parallel_type.is_thread:
                raise ScheduleError(
                    f"{box.tensor} is copied by boxes inside loop {loop}, whose bound threads of a block differ in",
                    tensor=box.tensor,
                )

    def _copy(self, box: Box, indices: Indices) -> None:
        tensor, source, graph = box.tensor, box.source, self.phased.graph
        size = reduce(multiply, [axis.extent for axis in box.inner])
        name = self._buffers[tensor] = self.builder.name(f"{tensor.name}_box")
        self.builder.add(Allocate(Buffer(name, tensor.dtype, size, Memory.SHARED)))
        at = Indices(graph)
        for axis in box.outer:
            at.set(axis, indices.of(axis))
        for axis in box.inner:
            at.set(axis, const(0))
        axes = source.domain.allocation
        at.advance(route(graph, [*box.outer, *box.inner], axes), lambda _: None, lambda _, index: index)
        start: list[Scalar] = []
        for group in box.groups:
            place = const(0)
            for number in group:
                place = place * self._extent(box, [number]) + at.of(axes[number])
            start.append(self.builder.let(f"{tensor.name}_start", place))
        shape = tuple(self._extent(box, group) for group in box.groups)
        if any(not loop.parallel_type.is_block and not loop.parallel_type.is_thread for loop in self.nests.variables):
            self.builder.add(Barrier())  # until the last box was read by all
        self.builder.add(BulkCopy(name, source.name, tuple(start), box.extents, shape))
        self.builder.add(Barrier())

    def value(self, tensor: TensorView, indices: Indices) -> Scalar:
        """The element of a box at the indices of the loops."""
        place = const(0)
        for axis in self._boxes[tensor].inner:
            place = place * axis.extent + indices.of(axis)
        made = load(self._buffers[tensor], self.builder.by_names(place), tensor.dtype)
        return cast(made, accumulator(tensor.dtype))


def box_of(phased: PhasedFusion, tensor: TensorView, target: Target) -> Box:
    """How a tensor is copied by boxes; refused where the copy engine cannot do it."""
    source = _source(phased, tensor)
    limits = target.limits.box
    if limits is None:
        raise _refused(tensor, f"Bulk is not for the target {target.name!r}")
    inner = tensor.box_axes
    outer = tuple(axis for axis in tensor.loop if axis not in inner and not axis.is_broadcast)
    if tensor.loop[-len(inner) :] != inner:
        raise _refused(tensor, f"the loops of a box must be the inner ones, got {list(tensor.loop)}")
    depth = max((_place(phased, tensor, axis) for axis in outer), default=-1)
    groups, extents = _dimensions(phased.graph, tensor, source)
    if len(groups) > limits.dimensions:
        raise _refused(tensor, f"a box has at most {limits.dimensions} dimensions, {source} has {len(groups)}")
    for axis in inner:
        if axis.extent.value > limits.extent:
            raise _refused(tensor, f"a box has at most {limits.extent} elements along a dimension, {axis} is longer")
    row = extents[-1] * TORCH[tensor.dtype].itemsize
    if row % limits.bytes:
        raise _refused(
            tensor, f"the last dimension of a box must be a multiple of {limits.bytes} bytes long, it has {row}"
        )
    return Box(tensor, source, outer, inner, depth, groups, extents)


def check_filled(tensor: TensorView, operand: TensorView) -> None:
    """Refuse a reduction that reads holes of boxes which do not hold what changes nothing."""
    assert tensor.definition is not None
    name = tensor.definition.name
    for axis in operand.box_axes:
        unfilled = _unfilled(axis)
        if unfilled is not None:
            raise ScheduleError(
                f"{tensor} reads holes of {operand}, which is copied by boxes: behind the end of {unfilled} lies what "
                f"comes next in memory, not a fill value",
                tensor=tensor,
            )
    neutral = MONOIDS[name].neutral
    if neutral is None or neutral != 0:
        wanted = "no value changes nothing" if neutral is None else f"only {neutral} changes nothing"
        raise ScheduleError(
            f"{tensor} reads holes of {operand}, which the copy engine fills with 0; in a {name} {wanted}",
            tensor=tensor,
        )


def _unfilled(axis: IterDomain) -> IterDomain | None:
    """The axis that a dimension of a box goes beyond without leaving the tensor, if there is one: rows that others
    follow, or the inner part of a longer axis."""
    step = axis.definition
    while isinstance(step, Split):
        whole = step.inputs[0]
        before = whole.definition
        if step.makes_holes and (whole.is_ragged or isinstance(before, Split)):
            return whole
        step = before
    return None


def _refused(tensor: TensorView, why: str) -> ScheduleError:
    return ScheduleError(f"{tensor} cannot be copied by boxes: {why}", tensor=tensor)


def _source(phased: PhasedFusion, tensor: TensorView) -> TensorView:
    """The input that a tensor is a copy of."""
    operation = tensor.definition
    if tensor in phased.outputs:
        raise _refused(tensor, "it is an output")
    if operation is None or operation.name != "copy" or tensor.memory != Memory.SHARED or tensor is phased.reference:
        raise _refused(tensor, "only a copy of an input is, which cache_after(Memory.SHARED) makes")
    source = operation.inputs[0]
    while source.definition is not None and source.definition.kind == "nest":
        source = source.definition.inputs[0]
    if source.definition is not None:
        raise _refused(tensor, f"it is a copy of {source}, which is not an input")
    return source


def _place(phased: PhasedFusion, tensor: TensorView, axis: IterDomain) -> int:
    """Which loop of the reference a loop outside of a box is."""
    if axis.parallel_type != ParallelType.Serial:
        raise _refused(tensor, f"{axis} is {axis.parallel_type.name}; say how it is run where the reference walks it")
    for place, loop in enumerate(phased.loops):
        if phased.graph.same(loop, axis):
            if loop.parallel_type.is_thread:
                where = f"loop {loop} of {phased.reference.name}"
                raise _refused(tensor, f"{where} says which box it is, but threads of a block have one box together")
            return place
    raise _refused(tensor, f"{axis} is not a loop of the reference, {phased.reference}; split both alike")


def _dimensions(
    graph: AxisGraph, tensor: TensorView, source: TensorView
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The dimensions of the source as the engine sees it, and the extents of a box along them."""
    boxed: dict[tuple[int, ...], int] = {}
    for axis in tensor.box_axes:
        if axis.is_ragged or not axis.extent.is_const or axis.extent.value < 1:
            raise _refused(tensor, f"the extents of a box are constants, {axis} has {axis.extent}")
        group = _along(graph, tensor, source, axis)
        assert all(set(group).isdisjoint(other) for other in boxed)  # of a split only the inner part is taken
        boxed[group] = axis.extent.value
    if list(boxed) != sorted(boxed):
        raise _refused(tensor, f"a box lies in shared memory in the order of the axes of {source}: reorder its loops")
    taken = {number for group in boxed for number in group}
    others: dict[tuple[int, ...], int] = {
        (number,): 1 for number in range(len(source.domain.allocation)) if number not in taken
    }
    extents = boxed | others
    groups = tuple(sorted(extents))
    return groups, tuple(extents[group] for group in groups)


def _along(graph: AxisGraph, tensor: TensorView, source: TensorView, axis: IterDomain) -> tuple[int, ...]:
    """The axes of the source's memory that a dimension of a box goes along; by Theorem 5 where they lie apart."""
    found = _in_memory(graph, source, axis)
    if found is not None:
        return found
    step, whole = axis.definition, axis
    while isinstance(step, Split) and whole is step.outputs[1]:  # neighbours in the inner part are neighbours
        whole, factor = step.inputs[0], step.factor
        found = _in_memory(graph, source, whole)
        if found is not None:
            return found
        step = whole.definition
    if whole is axis:
        raise _refused(tensor, f"{axis} must be a whole axis, or the inner part of one that was split by a constant")
    merged = step
    last = _in_memory(graph, source, merged.inputs[1]) if isinstance(merged, Merge) else None
    if merged is None or last is None:
        raise _refused(tensor, f"{whole} is not an axis that {source} lies in memory by")
    if not divides_all(factor, merged.inputs[1]):
        raise _refused(
            tensor,
            f"{factor} does not divide {merged.inputs[1]}, the inner axis of a merge of axes that do not follow each "
            f"other in memory (Theorem 5)",
        )
    return last


def _in_memory(graph: AxisGraph, source: TensorView, axis: IterDomain) -> tuple[int, ...] | None:
    """The axes of the source's memory that one axis walks, if they lie together."""
    axes = source.domain.allocation
    for number, other in enumerate(axes):
        if graph.same(axis, other):
            return (number,)
    for step in graph.expressions:  # rows that lie one after another
        packed = step.outputs[0] if isinstance(step, Combine) else step.inputs[0]
        rows = step.inputs if isinstance(step, Combine) else step.outputs
        if isinstance(step, (Combine, Partition)) and graph.same(rows[1], axis):
            for number, other in enumerate(axes):
                if graph.same(packed, other):
                    return (number,)
    if isinstance(axis.definition, Merge):
        parts = [_in_memory(graph, source, part) for part in axis.definition.inputs]
        if parts[0] is not None and parts[1] is not None and parts[0][-1] + 1 == parts[1][0]:
            return parts[0] + parts[1]
    return None
