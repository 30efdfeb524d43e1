"""Lowered: a kernel with what it takes to call it: which tensors its buffers are, and how its sizes follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from serrate.errors import ScheduleError
from serrate.fusion.analysis import evaluate
from serrate.fusion.binding import TORCH, Run, bind, check_offsets, compute_offsets, stored_raggedness
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.requirements import Requirement
from serrate.fusion.scalar import Scalar
from serrate.fusion.view import TensorView
from serrate.kernel.ir import Buffer, Kernel
from serrate.kernel.parameters import is_offsets
from serrate.kernel.targets import Target
from serrate.kernel.wide import alignments, widened

_NARROW = 2**31 - 2**24  # elements and one tile


@dataclass(frozen=True, repr=False)
class Lowered:
    """A kernel and the fusion it computes. Call it with the inputs of the fusion; it returns the outputs."""

    kernel: Kernel
    fusion: Fusion
    raggedness: Mapping[str, Raggedness]  # arrays of offsets that follow from others
    target: Target
    requirements: tuple[Requirement, ...] = ()
    bounds: tuple[Scalar, ...] = ()  # what indices of loops stay below

    def __repr__(self) -> str:
        return str(self.kernel)

    @cached_property
    def function(self) -> Callable[..., None]:
        """The compiled kernel that is right for all sizes and addresses. `variant` may give a faster one."""
        return self.target.compile(self.kernel)

    @cached_property
    def wide(self) -> Kernel:
        """The kernel with wide accesses, which is right if the buffers have the `alignments`."""
        return widened(self.kernel, self.requirements)

    @cached_property
    def alignments(self) -> dict[str, int]:
        """The buffers with wide accesses, and the numbers of bytes that their addresses must be multiples of."""
        return alignments(self.wide) if self.target.wide_accesses else {}

    @cached_property
    def _variants(self) -> dict[tuple[bool, bool], Callable[..., None]]:
        return {}

    def variant(self, run: Run, made: Mapping[str, torch.Tensor]) -> Callable[..., None]:
        """The fastest compiled kernel that is right for these buffers: with indices of 32 bits if no index can leave
        them, and with wide accesses if the buffers are aligned. Each variant is compiled on first use."""
        narrow = self._fits_narrow_indices(run, made) and self.target.narrow_indices
        wide = self.is_aligned(made)
        if not narrow and not wide:
            return self.function
        if (narrow, wide) not in self._variants:
            kernel = self.wide if wide else self.kernel
            self._variants[narrow, wide] = self.target.compile(replace(kernel, index="int32") if narrow else kernel)
        return self._variants[narrow, wide]

    def _fits_narrow_indices(self, run: Run, made: Mapping[str, torch.Tensor]) -> bool:
        """Whether all indices fit 32 bits. A kernel whose indices have 32 bits is refused if they do not."""
        if self.kernel.index != "int32" and not self.target.narrow_indices:
            return False  # nobody asks
        largest: int = max((tensor.numel() for tensor in made.values()), default=0)
        largest = max([largest, *(evaluate(bound, run.sizes) for bound in self.bounds)])
        if self.kernel.index == "int32" and largest >= _NARROW:
            raise ScheduleError(f"{self.kernel.name} has indices of 32 bits, which do not reach {largest}")
        return largest < _NARROW

    def is_aligned(self, made: Mapping[str, torch.Tensor]) -> bool:
        """Whether there are wide accesses, and the buffers lie at addresses that these need."""
        needed = self.alignments
        return bool(needed) and all(made[name].data_ptr() % size == 0 for name, size in needed.items())

    @property
    def source(self) -> str:
        """The generated source; where the target has wide accesses, that for aligned buffers."""
        return self.target.source(self.wide if self.target.wide_accesses else self.kernel)

    def buffers(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """A tensor for each buffer: those given, offsets computed where they are needed, outputs made if not given."""
        run = bind(self.fusion, inputs)
        return self._buffers(run, inputs, outputs)

    def _buffers(
        self, run: Run, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None
    ) -> dict[str, torch.Tensor]:
        given = dict(zip((tensor.name for tensor in self.fusion.inputs), inputs, strict=True))
        given |= compute_offsets(self.fusion, run)
        check_offsets(self._stored, run)
        for required in self.requirements:
            required.check(run)
        if outputs is not None:
            self._check_outputs(run, inputs, outputs)
            pairs = zip(self.fusion.outputs, outputs, strict=True)
            given.update((tensor.name, output) for tensor, output in pairs if not is_offsets(tensor))
        made: dict[str, torch.Tensor] = {}
        for buffer in self.kernel.buffers:
            if buffer.name in given:
                made[buffer.name] = given[buffer.name]
            elif buffer.name in self.raggedness:
                offsets = self.raggedness[buffer.name].offsets(run.arrays, run.sizes)
                made[buffer.name] = offsets.to(inputs[0].device, TORCH[buffer.dtype], non_blocking=True)
            else:
                made[buffer.name] = self._output(run, buffer, inputs)
        return made

    @cached_property
    def _stored(self) -> list[Stored]:
        return stored_raggedness(self.fusion)

    def _check_outputs(self, run: Run, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Memory that is given for results: as many tensors, of the right sizes, and nobody else's."""
        if len(outputs) != len(self.fusion.outputs):
            names = ", ".join(tensor.name for tensor in self.fusion.outputs)
            raise TypeError(f"`out` takes a tensor for each output ({names}), got {len(outputs)}")
        for number, (tensor, output) in enumerate(zip(self.fusion.outputs, outputs, strict=True)):
            if not is_offsets(tensor):
                shape = self._shape(run, tensor, inputs[0].device)
                if list(output.shape) != shape:
                    raise ValueError(f"`out` for {tensor} must have shape {shape}, got {list(output.shape)}")
            for other in (*inputs, *outputs[:number]):
                if _overlap(output, other):
                    raise ValueError(f"`out` for {tensor} shares memory with an input or another output")

    def _output(self, run: Run, buffer: Buffer, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        device = inputs[0].device
        for tensor in self.fusion.outputs:
            if tensor.name == buffer.name:
                return torch.empty(self._shape(run, tensor, device), dtype=TORCH[tensor.dtype], device=device)
        return torch.zeros(evaluate(buffer.size, run.sizes), dtype=TORCH[buffer.dtype], device=device)

    def _shape(self, run: Run, tensor: TensorView, device: torch.device) -> list[int]:
        """The shape of an output in memory. Lengths on the host say it; those on a device are not waited for."""
        axes = tensor.domain.allocation
        return [run.size(axis) if device.type == "cpu" else evaluate(axis.bound, run.sizes) for axis in axes]

    def sizes(self, run: Run, made: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """The sizes of the kernel, in its order: by the shapes of inputs, or of the buffer they are named after."""
        names = [str(size.value) for size in self.kernel.sizes]
        return {n: run.sizes[n] if n in run.sizes else made[n.removesuffix("_size")].numel() for n in names}

    def __call__(
        self, *inputs: torch.Tensor, out: torch.Tensor | Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        run = bind(self.fusion, inputs)
        if torch.is_grad_enabled() and any(given.requires_grad for given in inputs):
            raise RuntimeError(
                f"{self.kernel.name} has no gradient; detach its inputs, or call it under torch.no_grad()"
            )
        inputs = tuple(given.resolve_neg() if given.is_neg() else given for given in inputs)
        out = [out] if isinstance(out, torch.Tensor) else out
        made = self._buffers(run, inputs, out)
        sizes = self.sizes(run, made).values()
        try:
            self.variant(run, made)(*(made[buffer.name] for buffer in self.kernel.buffers), *sizes)
        finally:
            for tensor in out or ():
                torch.autograd.graph.increment_version(tensor)  # torch cannot see that it was written to
        results = [made[t.name] if t.name in made else run.arrays[t.name] for t in self.fusion.outputs]
        if out is None:
            return results
        return [to if to is result else to.copy_(result) for to, result in zip(out, results, strict=True)]


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors share memory."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not one.numel() or not other.numel():
        return False
    start, begin = one.data_ptr(), other.data_ptr()
    return start < begin + other.nbytes and begin < start + one.nbytes
