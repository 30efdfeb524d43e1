"""Values that later phases read: in registers, in shared memory, in scratch memory, or in the place of an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import accumulator
from serrate.fusion.expressions import component_of
from serrate.fusion.indices import Indices
from serrate.fusion.scalar import Scalar, const, load
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView
from serrate.kernel.elements import Elements
from serrate.kernel.ir import Allocate, Buffer, Store
from serrate.kernel.launching import is_bound
from serrate.kernel.nests import Nests
from serrate.kernel.phases import is_reduction
from serrate.kernel.states import constant
from serrate.kernel.targets import Target


@dataclass(frozen=True)
class Kept:
    """Values of an intermediate tensor: a buffer, and the loops (with their extents) that it is indexed by."""

    name: str
    loops: tuple[tuple[IterDomain, Scalar], ...]


class Keeping:
    """The kept values of a kernel."""

    def __init__(self, nests: Nests, target: Target) -> None:
        self.nests, self.phased, self.builder = nests, nests.phased, nests.builder
        self._target = target
        self._kept: dict[TensorView, Kept] = {}
        self._readable: set[TensorView] = set()

    def allocate(self, tensor: TensorView, loops: Sequence[IterDomain], indices: Indices) -> None:
        """Memory: of each thread its own, or all of a block's in shared memory."""
        if tensor.kept_in is not None:
            self._check_place(tensor, tensor.kept_in)
            self._kept[tensor] = Kept(tensor.kept_in.name, ())
            return
        own = [loop for loop in loops if not is_bound(loop)]
        if tensor.memory == Memory.SHARED:
            own = [loop for loop in self.phased.shared if loop.parallel_type.is_thread] + list(loops)
        if self._target.scratch and tensor.memory == Memory.REGISTER:
            extents = [self._extent(tensor, loop, indices) for loop in own]
        else:
            constant(tensor, own)
            extents = [loop.extent for loop in own]
        size = const(1)
        for extent in extents:
            size = size * extent
        size = const(1) if size == const(0) else size  # memory of no elements is not memory
        if not size.is_const:
            self._check_scratch(tensor, size)
        name = self.builder.name(f"{tensor.name}_kept")
        self.builder.add(Allocate(Buffer(name, accumulator(tensor.dtype), size, tensor.memory)))
        self._kept[tensor] = Kept(name, tuple(zip(own, extents, strict=True)))

    def _check_scratch(self, tensor: TensorView, size: Scalar) -> None:
        """Scratch memory is a thread's, not a lane's."""
        for loop in self.phased.shared:
            if loop.parallel_type.is_lanes:
                raise ScheduleError(
                    f"{tensor} is kept inside loop {loop}, whose lanes would share its scratch memory of {size} "
                    f"elements; put that loop inside of those that {tensor.name} is kept for, or do not run it as "
                    f"{loop.parallel_type.name}"
                )

    def _check_place(self, tensor: TensorView, output: TensorView) -> None:
        """The output must have the same elements, by the same loops, and be stored in a later phase."""
        why = None
        if output not in self.phased.outputs or output in self.phased.kept:
            why = "it is not an output"
        elif output.dtype != accumulator(tensor.dtype) or output.dtype != tensor.dtype:
            why = f"it holds {output.dtype}, not {accumulator(tensor.dtype)}"
        elif is_reduction(output) or self.phased.nest_of(output) != self.phased.nest_of(tensor):
            why = "it is not computed over the same axes"
        elif self.phased.phase_of(output) <= self.phased.phase_of(tensor):
            why = "it is stored before that, or with it"
        elif any(other.kept_in is output for other in self.phased.kept if other is not tensor):
            why = "another tensor is kept there"
        if why is not None:
            raise ScheduleError(f"{tensor} cannot be kept in {output}: {why}")

    def _extent(self, tensor: TensorView, loop: IterDomain, indices: Indices) -> Scalar:
        """The extent of an inner loop, before any inner loop is open."""
        if not loop.is_ragged:
            return loop.extent
        component = component_of(loop)
        if not indices.has(component) or indices.is_unsafe(component):
            constant(tensor, [loop])
        return self.nests.bind_extent(loop, indices)

    def _place(self, kept: Kept) -> Scalar:
        place = const(0)
        for loop, extent in kept.loops:
            place = place * extent + self.nests.variables[loop]
        return place

    def store(self, tensor: TensorView, elements: Elements) -> None:
        """Keep the element of the loops that are open."""
        value = elements.named(tensor)
        if tensor.kept_in is not None:
            self.builder.add(Store(tensor.kept_in.name, elements.address(tensor.kept_in), value, draft=True))
        else:
            kept = self._kept[tensor]
            self.builder.add(Store(kept.name, self._place(kept), value))

    def done(self, tensors: Sequence[TensorView]) -> None:
        """From here on these are read, not computed."""
        self._readable.update(tensors)

    def value(self, tensor: TensorView, elements: Elements) -> Scalar | None:
        """What is kept of a tensor, for the loops that are open."""
        if tensor not in self._readable:
            return None
        if tensor.kept_in is not None:
            return load(tensor.kept_in.name, elements.address(tensor.kept_in), tensor.dtype)
        kept = self._kept[tensor]
        return load(kept.name, self._place(kept), accumulator(tensor.dtype))
