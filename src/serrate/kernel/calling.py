"""Calls of kernels: one Python function for each, written once, for the devices that its inputs lie on.

All that follows from the fusion is decided when the function is written: which axis says which size, which offsets are
computed of which, how large outputs are, in which order a kernel takes its arguments. What is left for a call is to
read the shapes of its inputs, to look up what is remembered of their offsets (`fusion.remembering`), to make memory
for outputs, and to launch the kernel. The dtypes, devices and ranks of inputs, and that they are contiguous, are what
the function was written for: it does not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH, room
from serrate.fusion.scalar import Scalar
from serrate.fusion.view import TensorView
from serrate.kernel.arguments import ArgumentReader
from serrate.kernel.dependencies import rows_of
from serrate.kernel.parameters import faults, is_offsets
from serrate.kernel.signatures import python_text
from serrate.kernel.teams import memory_axes
from serrate.native.loading import empty
from serrate.tensor import host

if TYPE_CHECKING:
    from serrate.kernel.lowered import Lowered

NARROW = 2**31 - 2**24
"""What the indices of elements, with those of one tile, stay below where 32 bits hold them."""

_HOSTS = ("cpu", "meta")
"""Devices whose memory the host reads as its own; tensors without elements play the part of any device in tests."""

Call = Callable[..., list[torch.Tensor]]
Arguments = tuple[dict[str, torch.Tensor], dict[str, int]]


def call_of(lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool, checked: bool) -> Call:
    """A function of the inputs, and then of memory for the outputs if that is given, that returns the outputs.

    If it is `checked` it asks whether its arguments are such as it was written for. If not, it lets `lowered.otherwise`
    find out what they are, and torch is told that given memory is written to.
    """
    writer = _Writer(lowered, devices, given_outputs, checked)
    writer.launch()
    writer.line(f"return [{', '.join(writer.results())}]")
    return writer.call()


def arguments_of(lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool) -> Callable[..., Arguments]:
    """As `call_of`, but nothing is launched: a function that returns the kernel's buffers and its sizes, by name."""
    writer = _Writer(lowered, devices, given_outputs, checked=False)
    buffers = ", ".join(f"{buffer.name!r}: {writer.tensors[buffer.name]}" for buffer in lowered.kernel.buffers)
    sizes = ", ".join(f"{name!r}: {text}" for name, text in writer.kernel_sizes().items())
    writer.line(f"return {{{buffers}}}, {{{sizes}}}")
    return writer.call()


class _Writer(ArgumentReader):
    """The function line by line: what it reads, memory for what it makes, and the launch."""

    def __init__(self, lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool, checked: bool) -> None:
        super().__init__(lowered, devices, given_outputs, checked)
        self.meanings |= _MEANINGS
        self.shapes: dict[TensorView, list[str]] = {}
        self._narrow_indices()
        self._memory()

    def _narrow_indices(self) -> None:
        """Whether no index can leave 32 bits, where somebody asks."""
        self.narrow = ""
        asked = self.lowered.kernel.index == "int32"
        if asked or self.lowered.target.narrow_indices:
            texts = [self.text(bound) for bound in self.lowered.bounds if not bound.is_const or bound.value >= NARROW]
            pairs = zip(self.inputs, self.fusion.inputs, strict=True)
            texts += [f"{variable}.numel()" if t.strides is None else f"span({variable})" for variable, t in pairs]
            stored = [tensor for tensor in self.fusion.outputs if not is_offsets(tensor)]
            texts += [" * ".join(["1", *self._shape(tensor)]) for tensor in stored]
            self.narrow = " and ".join(f"{text} < {NARROW}" for text in dict.fromkeys(texts))
            if asked:
                self.refuse_unless(self.narrow)

    # Memory

    def _memory(self) -> None:
        """A variable for each buffer of the kernel."""
        outputs = {tensor.name: tensor for tensor in self.fusion.outputs}
        if self.given_outputs:
            for variable, tensor in zip(self.outputs, self.fusion.outputs, strict=True):
                if not is_offsets(tensor):
                    self.refuse_unless(f"{variable}.shape == {self._shape_text(tensor)}")
                    self.tensors[tensor.name] = variable
        for number, buffer in enumerate(self.lowered.kernel.buffers):
            if buffer.name in self.tensors:
                continue
            if buffer.name in self.lowered.raggedness:
                self.tensors[buffer.name] = self._derived(self.lowered.raggedness[buffer.name])
                continue
            variable = self.tensors[buffer.name] = f"buffer{number}"
            dtype = self.meaning("dtype", TORCH[buffer.dtype])
            if buffer.name in faults(self.lowered.kernel.body):
                self._fault_buffer(variable)
            elif buffer.name not in outputs:
                self.line(f"{variable} = zeros({self._size(buffer.size)}, dtype={dtype}, device=device)")
            elif self.lowered.team is not None and buffer.name in self.lowered.team.parts:
                shape = self._shape_text(outputs[buffer.name])
                self.line(f"{variable} = zeros({shape}, dtype={dtype}, device=device)")
            elif self.device.type == "cpu":
                self.line(f"{variable} = empty({self._shape_text(outputs[buffer.name])}, {dtype})")
            else:
                shape = self._shape_text(outputs[buffer.name])
                self.line(f"{variable} = new({shape}, dtype={dtype}, device=device)")

    def _fault_buffer(self, variable: str) -> None:
        """A variable for the number that says which gather met an index out of range: 0 as long as none did. A GPU
        writes it to pinned memory, so that the host neither clears nor copies it."""
        if self.device.type in _HOSTS:
            self.line(f"{variable} = zeros((), dtype=int64, device=device)")
        else:
            self.line("landing = landing_on(device)")
            self.line(f"{variable} = landing.verdict")

    def _shape_text(self, tensor: TensorView) -> str:
        return f"({''.join(size + ', ' for size in self._shape(tensor))})"

    def _shape(self, tensor: TensorView) -> list[str]:
        if tensor not in self.shapes:
            self.shapes[tensor] = [self._capacity(axis) for axis in memory_axes(self.lowered.team, tensor)]
        return self.shapes[tensor]

    def _capacity(self, axis: IterDomain) -> str:
        """How many indices an output has room for. Where only data tells it, lengths on the host are looked at, and
        those on a device are not waited for."""
        known = room(axis)
        if known is not None:
            return self.text(known)
        if self.device.type != "cpu":
            return self.text(axis.bound)
        arrays, symbols = rows_of(axis)
        return self._remembered(object(), self._given_arrays(arrays), symbols, lambda run: run.capacity(axis))

    def _size(self, size: Scalar) -> str:
        return python_text(size, {symbol: self._size_of(str(symbol.value)) for symbol in size.symbols})

    def kernel_sizes(self) -> dict[str, str]:
        """The sizes of the kernel in its order: of inputs, or of the buffers that they are named after."""
        return {name: self._size_of(name) for name in (str(size.value) for size in self.lowered.kernel.sizes)}

    def _size_of(self, name: str) -> str:
        buffer = name.removesuffix("_size")
        if name not in self.sizes and buffer not in self.tensors:
            raise ValueError(f"{self.lowered.kernel.name} needs the size {name}, which no input has")
        return self.sizes[name] if name in self.sizes else f"{self.tensors[buffer]}.numel()"

    # The kernel

    def launch(self) -> None:
        """The line that launches the variant of the kernel that is right for the addresses and sizes."""
        lowered, variant = self.lowered, ["0"]
        addresses = {buffer.name: f"{self.tensors[buffer.name]}.data_ptr()" for buffer in lowered.kernel.buffers}
        if self.narrow and lowered.kernel.index != "int32":
            made = [t for n, t in self.tensors.items() if n in addresses and t not in self.inputs]
            variant.append(" and ".join([self.narrow, *(f"{variable}.numel() < {NARROW}" for variable in made)]))
        if lowered.alignments:
            self.meanings["aligned"] = lowered.aligned
            variant.append(f"2 * aligned({', '.join(addresses[name] for name in lowered.alignments)})")
        self.meanings["launches"] = _launches(lowered, self.device)
        if self.checked and self.given_outputs:
            self.line(f"increment_version([{', '.join(self.outputs)}])")  # torch cannot see that they are written to
        arguments = ", ".join([*addresses.values(), *self.kernel_sizes().values()])
        self.line(f"launches[{' + '.join(f'({part})' for part in variant)}]({arguments})")
        for name in faults(lowered.kernel.body):
            self.meanings["fault"] = lowered.fault
            error = f"lambda place: fault(place, [{', '.join(self.inputs)}])"
            if self.device.type in _HOSTS:
                self.line(f"if {self.tensors[name]}.item(): defer({self.tensors[name]}, {error})")
            else:
                self.line(f"watch(landing, device, {error})")

    def results(self) -> list[str]:
        """The outputs in their order, in the memory that was given for them."""
        made = [self.tensors[tensor.name] for tensor in self.fusion.outputs]
        if not self.given_outputs:
            return made
        pairs = zip(self.outputs, made, strict=True)
        return [to if to == result else f"{to}.copy_({result})" for to, result in pairs]


_MEANINGS: dict[str, Any] = {
    "empty": empty, "new": torch.empty, "zeros": torch.zeros, "int64": torch.int64,
    "defer": host.defer, "landing_on": host.landing_on, "watch": host.watch,
    "increment_version": torch.autograd.graph.increment_version,
}  # fmt: skip
"""What the functions of all kernels use besides."""


def _launches(lowered: Lowered, device: torch.device) -> list[Callable[..., None]]:
    """What launches each variant of a kernel: with indices of 32 bits, + 1, and with wide accesses, + 2. One that was
    not called yet is compiled first."""
    made: list[Callable[..., None]] = []

    def compiled_first(number: int) -> Callable[..., None]:
        def launch(*arguments: int) -> None:
            made[number] = lowered.variant(narrow=bool(number & 1), wide=bool(number & 2)).launcher(device)
            made[number](*arguments)

        return launch

    made.extend(map(compiled_first, range(4)))
    return made
