"""Values that later phases read: in registers, in shared memory, in scratch memory, or in the place of an output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import accumulator
from serrate.fusion.indices import Indices
from serrate.fusion.scalar import Scalar, load
from serrate.fusion.types import Memory, ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.elements import Elements
from serrate.kernel.ir import Allocate, Buffer, Store
from serrate.kernel.jobs import Job, Role, is_reduction
from serrate.kernel.launching import is_bound, loop_not_walked
from serrate.kernel.nests import Nests
from serrate.kernel.phases import Phase
from serrate.kernel.places import Place, buffer_for, check_constant
from serrate.kernel.targets import Target


@dataclass(frozen=True)
class Kept:
    """Values of an intermediate tensor: a buffer, and the loops that it is indexed by; or the output they lie in."""

    name: str
    place: Place
    output: TensorView | None = None


class Keeping:
    """The kept values of a kernel."""

    def __init__(self, nests: Nests, target: Target) -> None:
        self.nests, self.phased, self.builder, self.target = nests, nests.phased, nests.builder, target
        self._kept: dict[TensorView, Kept] = {}

    def allocate(self, tensor: TensorView, depth: int, phases: Sequence[Phase], indices: Indices) -> None:
        """Memory outside of the loops from a depth on: of each thread its own, or all of a block's in shared memory."""
        output = tensor.kept_in
        if output is not None:
            self._check_place(tensor, output, phases)
            if all(other.output is not output for other in self._kept.values()):
                self._kept[tensor] = Kept(output.name, Place(), output)
                return
        walked = self.phased.loops_of(Job(Role.KEEP, tensor))
        loops = [loop for loop in walked if self.phased.loops.index(loop) >= depth]
        own = [loop for loop in loops if not is_bound(loop)]
        dtype, name = accumulator(tensor.dtype), self.builder.name(f"{tensor.name}_kept")
        if tensor.memory == Memory.SHARED:
            self._check_threads(tensor, walked)
            threads = [loop for loop in self.nests.variables if loop.parallel_type.is_thread]
            own = threads + [loop for loop in loops if loop.parallel_type != ParallelType.DIDx]
            place = self.nests.place(own, indices)
            check_constant(tensor, place)
            buffer = Buffer(name, dtype, place.size, Memory.SHARED)
        else:
            place = self.nests.place(own, indices)
            buffer = buffer_for(name, dtype, place, tensor, self.target, self.nests.variables)
        self.builder.add(Allocate(buffer))
        self._kept[tensor] = Kept(name, place)

    def _check_threads(self, tensor: TensorView, walked: Sequence[IterDomain]) -> None:
        """Each element that lies in shared memory is stored by one thread."""
        kinds = {loop.parallel_type for loop in (*walked, *self.nests.variables)}
        for loop in self.phased.loops:
            if loop.parallel_type.is_thread and loop.parallel_type not in kinds:
                raise ScheduleError(
                    f"{tensor} cannot be kept in shared memory: all threads of loop {loop} would store the same "
                    f"elements of it at once; keep it in registers",
                    tensor=tensor,
                )

    def _check_place(self, tensor: TensorView, output: TensorView, phases: Sequence[Phase]) -> None:
        """The output must have the same elements, by the same loops, and be stored in a later phase."""
        keep, store = Job(Role.KEEP, tensor), Job(Role.STORE, output)
        kept_at, stored_at = ([n for n, phase in enumerate(phases) if job in phase.jobs] for job in (keep, store))
        why = None
        if output not in self.phased.outputs or output in self.phased.kept:
            why = "it is not an output"
        elif output.dtype != accumulator(tensor.dtype) or output.dtype != tensor.dtype:
            why = f"it holds {output.dtype}, not {accumulator(tensor.dtype)}"
        elif is_reduction(output) or self.phased.nest_of(store) != self.phased.nest_of(keep) or not stored_at:
            why = "it is not computed over the same axes"
        elif stored_at[0] <= kept_at[0]:
            why = "it is stored before that, or with it"
        elif (loop := loop_not_walked(self.phased, store)) is not None:
            why = f"all indices of loop {loop} would store the same elements of it at once"
        if why is not None:
            raise ScheduleError(f"{tensor} cannot be kept in {output}: {why}", tensor=tensor)

    def store(self, tensor: TensorView, elements: Elements) -> None:
        """Keep the element of the loops that are open."""
        value, kept = elements.named(tensor), self._kept[tensor]
        if kept.output is not None:
            self.builder.add(Store(kept.name, elements.address(kept.output), value, draft=True))
        else:
            self.builder.add(Store(kept.name, kept.place.at(self.nests.variables), value))

    def in_place_of(self, output: TensorView) -> Iterator[TensorView]:
        """The tensors whose values lie in the memory where an output is about to be stored."""
        for tensor, kept in self._kept.items():
            if kept.output is output and tensor in self.nests.known:
                yield tensor

    def value(self, tensor: TensorView, elements: Elements) -> Scalar:
        """What is kept of a tensor, for the loops that are open."""
        kept = self._kept[tensor]
        if kept.output is not None:
            return load(kept.name, elements.address(kept.output), tensor.dtype)
        return load(kept.name, kept.place.at(self.nests.variables), accumulator(tensor.dtype))
