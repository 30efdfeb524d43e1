"""Lowered: a kernel with what it takes to call it: which tensors its buffers are, and how its sizes follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import torch

from serrate.errors import ScheduleError
from serrate.fusion.analysis import evaluate
from serrate.fusion.binding import TORCH, Run, bind, check_offsets, compute_offsets, stored_raggedness
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.requirements import Requirement
from serrate.fusion.scalar import Scalar
from serrate.fusion.strides import check_strides, span
from serrate.fusion.view import TensorView
from serrate.kernel.arguments import overlap
from serrate.kernel.calling import NARROW, Arguments, Call, arguments_of, call_of
from serrate.kernel.costs import Needs, moved_bytes, needs, raggedness_by_array
from serrate.kernel.elements import gathers
from serrate.kernel.ir import Kernel
from serrate.kernel.parameters import is_offsets
from serrate.kernel.targets import Target
from serrate.kernel.teams import Team, memory_axes
from serrate.kernel.wide import alignments, widened
from serrate.runtime.signature import Compiled


@dataclass(frozen=True, repr=False)
class Lowered:
    """A kernel and the fusion it computes. Call it with the inputs of the fusion; it returns the outputs.

    A call checks dtypes, devices and memory layouts once for each combination of them, and offsets once for each tensor
    of offsets. `prepared` gives a function that does not even ask which combination it is called with.
    """

    kernel: Kernel
    fusion: Fusion
    raggedness: Mapping[str, Raggedness]  # arrays of offsets that follow from others
    target: Target
    requirements: tuple[Requirement, ...] = ()
    bounds: tuple[Scalar, ...] = ()  # what indices of loops stay below
    team: Team | None = None  # the loop that is spread over the ranks of a team
    given: Mapping[str, int] = field(default_factory=dict)  # sizes that no input has: the rank that the kernel is of

    def __repr__(self) -> str:
        return str(self.kernel)

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # what was compiled stays here

    # The kernel

    @cached_property
    def wide(self) -> Kernel:
        """The kernel with wide accesses, which is right if the buffers have the `alignments`."""
        return widened(self.kernel, self.requirements)

    @cached_property
    def alignments(self) -> dict[str, int]:
        """The buffers with wide accesses, and the numbers of bytes that their addresses must be multiples of."""
        return alignments(self.wide) if self.target.wide_accesses else {}

    @cached_property
    def aligned(self) -> Callable[..., bool]:
        """Whether the addresses of the buffers of `alignments`, in their order, are such multiples."""
        names = [f"a{number}" for number in range(len(self.alignments))]
        pairs = zip(names, self.alignments.values(), strict=True)
        conditions = [f"{name} % {size} == 0" for name, size in pairs] or ["False"]
        made: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {' and '.join(conditions)}")
        return made

    def is_aligned(self, made: Mapping[str, torch.Tensor]) -> bool:
        """Whether there are wide accesses, and the buffers lie at addresses that these need."""
        return self.aligned(*(made[name].data_ptr() for name in self.alignments))

    @cached_property
    def _variants(self) -> dict[tuple[bool, bool], Compiled]:
        return {}

    def variant(self, *, narrow: bool = False, wide: bool = False) -> Compiled:
        """The compiled kernel: with indices of 32 bits, if no index of a call can leave them; with wide accesses, if
        its buffers are aligned; without both it is right for every call. Each variant is compiled on first use."""
        found = self._variants.get((narrow, wide))
        if found is None:
            found = self._variants[narrow, wide] = self.target.compile(self.variant_kernel(narrow, wide))
        return found

    @property
    def is_compiled(self) -> bool:
        """Whether there is a variant that is compiled."""
        return bool(self._variants)

    def variant_kernel(self, narrow: bool, wide: bool) -> Kernel:
        """What a variant is compiled of."""
        kernel = self.wide if wide else self.kernel
        return replace(kernel, index="int32") if narrow else kernel

    @property
    def source(self) -> str:
        """The generated source; where the target has wide accesses, that for aligned buffers."""
        return self.target.source(self.wide if self.target.wide_accesses else self.kernel)

    # Teams

    def on_rank(self, rank: int, size: int) -> Lowered:
        """The kernel as rank `rank` of a team of `size` calls it. See `ParallelType.DIDx` in docs/loops.md.

        >>> from serrate.fusion import Fusion, ParallelType
        >>> from serrate.kernel import lower
        >>> fusion = Fusion()
        >>> y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
        >>> y.split(0, 2, inner_split=False).parallelize(0, ParallelType.DIDx)
        y[iD_i_outer{2}, iS_i_inner{(n + 1) / 2}] float32
        >>> [lower(fusion, y).on_rank(rank, 2)(torch.ones(3)) for rank in range(2)]
        [[tensor([2., 2., 0.])], [tensor([0., 0., 2.])]]
        """
        if self.team is None:
            raise ScheduleError(f"no loop of {self.kernel.name} is spread over the ranks of a team (DIDx)")
        sizes, required = self.team.given(rank, size)
        made = replace(self, given=sizes, requirements=(*self.requirements, *required))
        made.__dict__["_variants"] = self._variants  # what is compiled is the same for all ranks
        return made

    # Questions before it runs

    @cached_property
    def moved_bytes(self) -> Scalar:
        """The bytes of all that the kernel reads or writes, each once, in terms of sizes; of a team, by all ranks."""
        return moved_bytes(self.kernel, self.fusion)

    @cached_property
    def needs(self) -> Needs:
        """The registers, shared memory, scratch memory and workspaces that the schedule asks for."""
        return needs(self.kernel, self.target, {**self.raggedness, **raggedness_by_array(self.fusion)})

    # Calls

    def prepared(self, devices: Sequence[torch.device | str], *, given_outputs: bool = False) -> Call:
        """A function of inputs on these devices, one for each input, that returns the outputs.

        It takes tensors of the right dtypes and ranks that lie contiguously on these devices, and asks nothing of that:
        only that shapes fit each other, and offsets their tensors. With `given_outputs` it takes memory for the outputs
        after the inputs. Torch is not told that this was written to.

        >>> from serrate.fusion import Fusion
        >>> from serrate.kernel import lower
        >>> fusion = Fusion()
        >>> y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
        >>> double = lower(fusion, y).prepared(["cpu"])
        >>> double(torch.ones(3))
        [tensor([2., 2., 2.])]
        """
        return self._prepared(tuple(map(torch.device, devices)), given_outputs, checked=False)

    def _prepared(self, devices: tuple[torch.device, ...], given_outputs: bool, checked: bool) -> Call:
        key = devices, given_outputs, checked
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = call_of(self, *key)
        return found

    @cached_property
    def _calls(self) -> dict[Hashable, Call]:
        return {}

    def arguments(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None = None) -> Arguments:
        """What a call would give the kernel: a tensor for each buffer, and its sizes, both by name."""
        bind(self.fusion, inputs, self.given)
        made = arguments_of(self, [given.device for given in inputs], outputs is not None)
        return made(*inputs, *(outputs or ()))

    def buffers(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """A tensor for each buffer: those given, offsets computed where they are needed, outputs made if not given."""
        return self.arguments(inputs, outputs)[0]

    def __call__(
        self, *inputs: torch.Tensor, out: torch.Tensor | Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        outputs = None if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
        call = self._expected.get(outputs is not None)
        if call is None or len(inputs) != len(self.fusion.inputs):
            return self.otherwise(inputs, outputs)
        if outputs is None:
            return call(*inputs)
        known = len(outputs) == len(self.fusion.outputs)
        return call(*inputs, *outputs) if known else self.otherwise(inputs, outputs)

    @cached_property
    def _expected(self) -> dict[bool, Call]:
        """What the next call is expected to be like, without and with memory for outputs: as the last one was."""
        return {}

    def otherwise(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """A call that was not expected: it raises what is wrong with its arguments, else the next may be like it."""
        self._check(inputs, outputs)
        devices, given_outputs = tuple(given.device for given in inputs), outputs is not None
        self._expected[given_outputs] = self._prepared(devices, given_outputs, checked=True)
        plain = [given.resolve_neg().resolve_conj() for given in inputs]
        if outputs is not None:
            torch.autograd.graph.increment_version(outputs)  # torch cannot see that they are written to
        return self._prepared(devices, given_outputs, checked=False)(*plain, *(outputs or ()))

    def _check(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None) -> None:
        """Refuse arguments whose number, dtypes, devices or layouts are wrong, or that share memory."""
        bind(self.fusion, inputs, self.given)
        if torch.is_grad_enabled() and any(given.requires_grad for given in inputs):
            raise RuntimeError(
                f"{self.kernel.name} has no gradient; detach its inputs, or call it under torch.no_grad()"
            )
        self._check_memory(self.fusion.inputs, inputs)
        if outputs is None:
            return
        if len(outputs) != len(self.fusion.outputs):
            names = ", ".join(tensor.name for tensor in self.fusion.outputs)
            raise TypeError(f"`out` takes a tensor for each output ({names}), got {len(outputs)}")
        self._check_memory(self.fusion.outputs, outputs)
        for number, output in enumerate(outputs):
            if any(overlap(output, other) for other in (*inputs, *outputs[:number])):
                tensor = self.fusion.outputs[number]
                raise ValueError(f"`out` for {tensor} shares memory with an input or another output")

    def _check_memory(self, tensors: Sequence[TensorView], given: Sequence[torch.Tensor]) -> None:
        """Refuse what the kernel could not read or write: it must lie contiguously on one device of the target."""
        used = {buffer.name for buffer in self.kernel.buffers}
        device = None
        for tensor, memory in zip(tensors, given, strict=True):
            if tensor.name not in used:
                continue
            device = memory.device if device is None else device
            fits = memory.dtype == TORCH[tensor.dtype] and (memory.is_contiguous() or tensor.strides is not None)
            check_strides(tensor, memory)
            if not fits or memory.device.type != self.target.device or memory.device != device:
                layout = "contiguous" if memory.is_contiguous() else "not contiguous"
                raise TypeError(
                    f"{self.kernel.name}: {tensor} must be a contiguous {TORCH[tensor.dtype]} tensor on "
                    f"{self.target.device if device.type != self.target.device else device}, got {memory.dtype} on "
                    f"{memory.device}, {layout}"
                )

    # What is wrong

    def refuse(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] | None) -> None:
        """Raise what is wrong with a call, in the words of the check that fails."""
        run = bind(self.fusion, inputs, self.given)
        compute_offsets(self.fusion, run)
        check_offsets(stored_raggedness(self.fusion), run)
        for required in self.requirements:
            required.check(run)
        counts = [span(given) for given in inputs]
        stored = [tensor for tensor in self.fusion.outputs if not is_offsets(tensor)]
        counts += [math.prod(self._shape(run, tensor, inputs[0].device)) for tensor in stored]
        largest = max([*counts, *(evaluate(bound, run.sizes) for bound in self.bounds)], default=0)
        if self.kernel.index == "int32" and largest >= NARROW:
            raise ScheduleError(f"{self.kernel.name} has indices of 32 bits, which do not reach {largest}")
        for tensor, output in zip(self.fusion.outputs, outputs or (), strict=True):
            shape = self._shape(run, tensor, output.device)
            if not is_offsets(tensor) and list(output.shape) != shape:
                raise ValueError(f"`out` for {tensor} must have shape {shape}, got {list(output.shape)}")
        raise AssertionError(f"a call of {self.kernel.name} was refused, and nothing is wrong with it")

    def _shape(self, run: Run, tensor: TensorView, device: torch.device) -> list[int]:
        axes = memory_axes(self.team, tensor)
        if device.type == "cpu":
            return [run.capacity(axis) for axis in axes]
        return [evaluate(axis.bound, run.sizes) for axis in axes]

    def fault(self, position: int, inputs: Sequence[torch.Tensor]) -> IndexError:
        """The error of the gather that reported an index out of range."""
        tensor = gathers(self.fusion)[position]
        operation = tensor.definition
        assert operation is not None
        x, chosen = operation.inputs
        axis, which = x.domain.kept[0], ""
        while chosen.definition is not None and chosen.definition.kind == "nest":
            chosen = chosen.definition.inputs[0]
        if chosen in self.fusion.inputs:
            run = bind(self.fusion, inputs, self.given)
            compute_offsets(self.fusion, run)
            size, indices = run.size(axis), inputs[self.fusion.inputs.index(chosen)].reshape(-1)
            wrong = ((indices < 0) | (indices >= size)).nonzero()[:, 0]
            which = f", of {size}: position {int(wrong[0])} holds {int(indices[wrong[0]])}" if len(wrong) else ""
        return IndexError(f"{tensor} = {operation}: an index is outside of {axis}{which}")


def compile_together(kernels: Sequence[Lowered]) -> None:
    """Compile kernels that will be called by one run of the compiler for each target, into one library.

    Of each kernel it is the variant that most calls use; others are compiled when they are first called.

    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import compile_together, lower
    >>> made = []
    >>> for factor in (2.0, 3.0):
    ...     fusion = Fusion()
    ...     made.append(lower(fusion, fusion.output(fusion.input("x", ["n"]) * factor, "y")))
    >>> compile_together(made)
    >>> [times(torch.ones(2)) for times in made]
    [[tensor([2., 2.])], [tensor([3., 3.])]]
    """
    for target in dict.fromkeys(lowered.target for lowered in kernels):
        own = [lowered for lowered in kernels if lowered.target == target]
        usual = [(target.narrow_indices, bool(lowered.alignments)) for lowered in own]
        names = _distinct([lowered.kernel.name for lowered in own])
        parts = [
            replace(lowered.variant_kernel(*which), name=name)
            for lowered, which, name in zip(own, usual, names, strict=True)
        ]
        for lowered, which, made in zip(own, usual, target.compile_together(parts), strict=True):
            lowered._variants[which] = made


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with numbers behind those that came before."""
    made: dict[str, None] = {}
    for name in names:
        wanted, number = name, 2
        while wanted in made:
            wanted, number = f"{name}_{number}", number + 1
        made[wanted] = None
    return list(made)
