"""Calls of kernels: one Python function for each, written once, for the devices that its inputs lie on.

All that follows from the fusion is decided when the function is written: which axis says which size, which offsets are
computed of which, how large outputs are, in which order a kernel takes its arguments. What is left for a call is to
read the shapes of its inputs, to look up what is remembered of their offsets (`fusion.remembering`), to make memory
for outputs, and to launch the kernel. The dtypes, devices and ranks of inputs, and that they are contiguous, are what
the function was written for: it does not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import (
    TORCH,
    Run,
    check_offsets,
    computed_offsets,
    offset_bases,
    room,
    size_and_number,
    stored_raggedness,
)
from serrate.fusion.domain import history
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.remembering import memory_of, remembered
from serrate.fusion.scalar import Scalar
from serrate.fusion.view import TensorView
from serrate.kernel.parameters import faults, is_offsets
from serrate.kernel.signatures import python_functions, python_text
from serrate.native.loading import empty
from serrate.tensor import host

if TYPE_CHECKING:
    from serrate.kernel.lowered import Lowered

NARROW = 2**31 - 2**24
"""What the indices of elements, with those of one tile, stay below where 32 bits hold them."""

Call = Callable[..., list[torch.Tensor]]
Arguments = tuple[dict[str, torch.Tensor], dict[str, int]]


def call_of(lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool, checked: bool) -> Call:
    """A function of the inputs, and then of memory for the outputs if that is given, that returns the outputs.

    If it is `checked` it asks whether its arguments are such as it was written for. If not, it lets `lowered.otherwise`
    find out what they are, and torch is told that given memory is written to.
    """
    writer = _Writer(lowered, devices, given_outputs, checked)
    writer.launch()
    return writer.function(f"return [{', '.join(writer.results())}]")


def arguments_of(lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool) -> Callable[..., Arguments]:
    """As `call_of`, but nothing is launched: a function that returns the kernel's buffers and its sizes, by name."""
    writer = _Writer(lowered, devices, given_outputs, checked=False)
    buffers = ", ".join(f"{buffer.name!r}: {writer.tensors[buffer.name]}" for buffer in lowered.kernel.buffers)
    sizes = ", ".join(f"{name!r}: {text}" for name, text in writer.kernel_sizes().items())
    return writer.function(f"return {{{buffers}}}, {{{sizes}}}")


class _Writer:
    """The function line by line. Tensors and sizes are its variables."""

    def __init__(self, lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool, checked: bool) -> None:
        self.lowered, self.fusion = lowered, lowered.fusion
        self.given_outputs, self.checked = given_outputs, checked
        self.inputs = [f"input{number}" for number in range(len(self.fusion.inputs))]
        self.outputs = [f"output{number}" for number in range(len(self.fusion.outputs))]
        self.lines: list[str] = []
        self.tensors: dict[str, str] = {}  # variables of inputs, offsets and outputs, by name
        self.arrays: dict[str, str] = {}  # those of integer vectors, which may be offsets
        self.devices: dict[str, torch.device] = {}  # of arrays
        self.sizes: dict[str, str] = {}
        self.memories: dict[str, str] = {}  # by the variable of a tensor, that of what is remembered about it
        self.meanings: dict[str, Any] = python_functions()
        used = {buffer.name for buffer in lowered.kernel.buffers}
        named = dict(zip((tensor.name for tensor in self.fusion.inputs), devices, strict=True))
        self.device = next((on for name, on in named.items() if name in used), torch.device(lowered.target.device))
        if checked:
            self._check_arguments(named)
        self._bind(named)
        self._offsets(named)
        self._requirements()
        self._narrow_indices()
        self._memory()

    # What is written

    def line(self, text: str) -> None:
        self.lines.append(text)

    def meaning(self, name: str, value: Any) -> str:
        """A name of its own for something that the function uses."""
        name = f"{name}{len(self.meanings)}"
        self.meanings[name] = value
        return name

    def refuse_unless(self, condition: str) -> None:
        """A line that finds out what is wrong, and raises it, unless a condition holds."""
        if "refuse" not in self.meanings:
            self.meanings["refuse"] = self.lowered.refuse
        given = f"[{', '.join(self.outputs)}]" if self.given_outputs else "None"
        self.line(f"if not ({condition}): refuse([{', '.join(self.inputs)}], {given})")

    def function(self, last: str) -> Callable[..., Any]:
        """The function, which ends with this line."""
        parameters = ", ".join([*self.inputs, *(self.outputs if self.given_outputs else ())])
        body = "\n".join(f"    {line}" for line in (*self.lines, last))
        made = dict(self.meanings)
        exec(compile(f"def call({parameters}):\n{body}\n", f"<call of {self.lowered.kernel.name}>", "exec"), made)
        call: Callable[..., Any] = made["call"]
        return call

    def text(self, expression: Scalar) -> str:
        """An expression of sizes."""
        return python_text(expression, {s: self.sizes[s.value] for s in expression.symbols if s.value in self.sizes})

    # Arguments

    def _check_arguments(self, devices: dict[str, torch.device]) -> None:
        """That arguments have the dtypes, devices, ranks and layouts that the function is written for."""
        asked = []
        for variable, tensor in zip(self.inputs, self.fusion.inputs, strict=True):
            asked += self._layout(variable, tensor, devices[tensor.name])
            asked.append(f"(not {variable}.requires_grad or not is_grad_enabled())")
        if self.given_outputs:
            outputs = list(zip(self.outputs, self.fusion.outputs, strict=True))
            for number, (variable, tensor) in enumerate(outputs):
                if not is_offsets(tensor):
                    asked += self._layout(variable, tensor, self.device)
                others = (*self.inputs, *self.outputs[:number])
                asked += [f"not overlap({variable}, {other})" for other in others]
        self.meanings |= {"is_grad_enabled": torch.is_grad_enabled, "otherwise": self.lowered.otherwise}
        self.meanings["overlap"] = overlap
        given = f"[{', '.join(self.outputs)}]" if self.given_outputs else "None"
        condition = " and ".join(asked) or "True"
        self.line(f"if not ({condition}): return otherwise([{', '.join(self.inputs)}], {given})")

    def _layout(self, variable: str, tensor: TensorView, device: torch.device) -> list[str]:
        place = f"is_{device.type}" + (f" and {variable}.get_device() == {device.index}" if device.index else "")
        rank = len(tensor.domain.allocation)
        dtype = self.meaning("dtype", TORCH[tensor.dtype])
        self.meanings["Tensor"] = torch.Tensor
        parts = [f"dtype is {dtype}", place, "is_contiguous()", f"ndim == {rank}"]
        asked = [f"{variable}.{part}" for part in parts]
        return [f"isinstance({variable}, Tensor)", *asked, f"not {variable}.is_neg()"]

    # Sizes and offsets

    def _bind(self, devices: dict[str, torch.device]) -> None:
        """A variable for each size, by the shapes of inputs, and the checks that shapes agree."""
        later: list[tuple[Scalar, str]] = []
        for variable, tensor in zip(self.inputs, self.fusion.inputs, strict=True):
            self.tensors[tensor.name] = variable
            axes = tensor.domain.allocation
            places = [f"{variable}_{number}" for number in range(len(axes))]
            if places:
                self.line(f"{', '.join(places)}, = {variable}.shape")
            for axis, place in zip(axes, places, strict=True):
                base, added = size_and_number(axis.extent)
                if base.op == "symbol":
                    text = place if not added else f"{place} - {added}" if added > 0 else f"{place} + {-added}"
                    if base.value in self.sizes:
                        self.refuse_unless(f"{text} == {self.sizes[base.value]}")
                    else:
                        name = self.sizes[base.value] = f"size{len(self.sizes)}"
                        self.line(f"{name} = {text}")
                elif base.is_const:
                    self.refuse_unless(f"{place} == {base.value}")
                elif not _arrays_read(axis.extent):  # that of rows is checked with their offsets
                    later.append((axis.extent, place))
            if tensor.dtype in ("int32", "int64") and len(axes) == 1:
                self.arrays[tensor.name], self.devices[tensor.name] = variable, devices[tensor.name]
        for extent, place in later:
            known = all(symbol.value in self.sizes for symbol in extent.symbols)
            self.refuse_unless(f"{place} == {self.text(extent)}" if known else "False")

    def _offsets(self, devices: dict[str, torch.device]) -> None:
        """Offsets that follow from extents and from other offsets; and the checks of those that are given."""
        for tensor in self.fusion.tensors:
            operation = tensor.definition
            if operation is None or operation.kind != "offsets":
                continue
            raggedness, bases = operation.options[0] if operation.options else None, offset_bases(operation)
            if all(base in self.arrays for base in bases):
                make = self.meaning("offsets", lambda run, operation=operation: computed_offsets(operation, run))
                variable = self._remembered(f"{operation.name} {raggedness!r}", bases, _symbols(raggedness), make)
                self.tensors[tensor.name] = self.arrays[tensor.name] = variable
                self.devices[tensor.name] = self.devices[bases[0]] if bases else torch.device("cpu")
        for rows in stored_raggedness(self.fusion):
            if rows.array in self.arrays and self.devices[rows.array].type == "cpu":
                check = self.meaning("check", lambda run, rows=rows: check_offsets([rows], run) or True)
                self._remembered(f"check {rows!r}", [rows.array], _symbols(rows), check)

    def _derived(self, name: str, raggedness: Raggedness) -> str:
        """Offsets that only the kernel needs, such as those of tiles."""
        device = self.device

        def make(run: Run) -> torch.Tensor:
            return raggedness.offsets(run.arrays, run.sizes).to(device, torch.int64, non_blocking=True)

        key = f"offsets on {device} {raggedness!r}"
        bases = list(raggedness.base_arrays)
        return self._remembered(key, bases, _symbols(raggedness), self.meaning("offsets", make))

    def _remembered(self, key: Hashable, arrays: Sequence[str], symbols: Iterable[Scalar], make: str) -> str:
        """A variable for what `make` gives for a Run, which depends on some arrays and sizes: made once for those."""
        sizes = [self.sizes[str(symbol.value)] for symbol in symbols if symbol.value in self.sizes]
        variables = [self.arrays[name] for name in arrays]
        self.meanings |= {"Run": Run, "memory_of": memory_of, "remembered": remembered}
        named = ", ".join(f"{name!r}: {variable}" for name, variable in self.sizes.items())
        given = ", ".join(f"{name!r}: {variable}" for name, variable in self.arrays.items())
        run = f"Run({{{named}}}, {{{given}}})"
        parts = ", ".join([self.meaning("key", key), *sizes])
        found = f"found{len(self.meanings)}"
        self.meanings[found] = None
        if not variables:
            function, names = self.meanings[make], [n for n, v in self.sizes.items() if v in sizes]
            made = lru_cache(maxsize=64)(lambda *values: function(Run(dict(zip(names, values, strict=True)), {})))
            order = [self.sizes[name] for name in names]
            self.line(f"{found} = {self.meaning('listed', made)}({', '.join(order)})")
        elif len(variables) == 1:
            memory = self._memory_of(variables[0])
            self.line(f"{found} = {memory}.get(({parts},))")
            self.line(f"if {found} is None: {found} = {memory}[{parts},] = {make}({run})")
        else:
            tensors = f"({', '.join(variables)})"
            self.line(f"{found} = remembered({tensors}, ({parts},), lambda: {make}({run}))")
        return found

    def _memory_of(self, variable: str) -> str:
        if variable not in self.memories:
            self.memories[variable] = f"memory{len(self.memories)}"
            self.line(f"{self.memories[variable]} = memory_of({variable})")
        return self.memories[variable]

    # What must hold

    def _requirements(self) -> None:
        for required in self.lowered.requirements:
            read = _arrays_read(required.condition)
            if not read:
                self.refuse_unless(self.text(required.condition))
            elif all(name in self.arrays and self.devices[name].type == "cpu" for name in read):
                holds = self.meaning("holds", lambda run, required=required: 1 if required.holds(run) else 0)
                key = f"holds {required.condition!r}"
                self.refuse_unless(self._remembered(key, read, required.condition.symbols, holds))

    def _narrow_indices(self) -> None:
        """Whether no index can leave 32 bits, where somebody asks."""
        self.narrow = ""
        asked = self.lowered.kernel.index == "int32"
        if asked or self.lowered.target.narrow_indices:
            texts = [self.text(bound) for bound in self.lowered.bounds if not bound.is_const or bound.value >= NARROW]
            texts += [f"{variable}.numel()" for variable in self.inputs]
            self.narrow = " and ".join(f"{text} < {NARROW}" for text in dict.fromkeys(texts)) or "True"
            if asked:
                self.refuse_unless(self.narrow)

    # Memory

    def _memory(self) -> None:
        """A variable for each buffer of the kernel."""
        outputs = {tensor.name: tensor for tensor in self.fusion.outputs}
        if self.given_outputs:
            for variable, tensor in zip(self.outputs, self.fusion.outputs, strict=True):
                if not is_offsets(tensor):
                    self.refuse_unless(f"{variable}.shape == {self._shape(tensor)}")
                    self.tensors[tensor.name] = variable
        for number, buffer in enumerate(self.lowered.kernel.buffers):
            if buffer.name in self.tensors:
                continue
            if buffer.name in self.lowered.raggedness:
                self.tensors[buffer.name] = self._derived(buffer.name, self.lowered.raggedness[buffer.name])
                continue
            variable = self.tensors[buffer.name] = f"buffer{number}"
            dtype = self.meaning("dtype", TORCH[buffer.dtype])
            self.meanings |= {"empty": empty, "new": torch.empty, "zeros": torch.zeros, "device": self.device}
            if buffer.name in faults(self.lowered.kernel.body):
                self.line(f"{variable} = zeros((), dtype={dtype}, device=device)")
            elif buffer.name not in outputs:
                self.line(f"{variable} = zeros({self._size(buffer.size)}, dtype={dtype}, device=device)")
            elif self.device.type == "cpu":
                self.line(f"{variable} = empty({self._shape(outputs[buffer.name])}, {dtype})")
            else:
                shape = self._shape(outputs[buffer.name])
                self.line(f"{variable} = new({shape}, dtype={dtype}, device=device)")

    def _shape(self, tensor: TensorView) -> str:
        return f"({''.join(self._capacity(axis) + ', ' for axis in tensor.domain.allocation)})"

    def _capacity(self, axis: IterDomain) -> str:
        """How many indices an output has room for. Where only data tells it, lengths on the host are looked at, and
        those on a device are not waited for."""
        known = room(axis)
        if known is not None:
            return self.text(known)
        if self.device.type != "cpu":
            return self.text(axis.bound)
        capacity = self.meaning("capacity", lambda run: run.capacity(axis))
        arrays, symbols = _rows_of(axis)
        return self._remembered(object(), [name for name in arrays if name in self.arrays], symbols, capacity)

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
            self.meanings["increment_version"] = torch.autograd.graph.increment_version
            self.line(f"increment_version([{', '.join(self.outputs)}])")  # torch cannot see that they are written to
        arguments = ", ".join([*addresses.values(), *self.kernel_sizes().values()])
        self.line(f"launches[{' + '.join(f'({part})' for part in variant)}]({arguments})")
        for name in faults(lowered.kernel.body):
            self.meanings |= {"defer": host.defer, "fault": lowered.fault}
            asked = f"if {self.tensors[name]}.item(): " if self.device.type == "cpu" else ""  # at hand
            self.line(f"{asked}defer({self.tensors[name]}, lambda place: fault(place, [{', '.join(self.inputs)}]))")

    def results(self) -> list[str]:
        """The outputs in their order, in the memory that was given for them."""
        made = [self.tensors[tensor.name] for tensor in self.fusion.outputs]
        if not self.given_outputs:
            return made
        pairs = zip(self.outputs, made, strict=True)
        return [to if to == result else f"{to}.copy_({result})" for to, result in pairs]


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors share memory."""
    start, begin = one.data_ptr(), other.data_ptr()
    return start < begin + other.nbytes and begin < start + one.nbytes and one.numel() > 0 and other.numel() > 0


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


def _arrays_read(expression: Scalar) -> list[str]:
    """The arrays that an expression looks at."""
    return list(dict.fromkeys(str(node.value) for node in expression.walk() if node.op in ("load", "search")))


def _symbols(value: Any) -> list[Scalar]:
    """The sizes that occur in raggedness, each once."""
    if isinstance(value, Scalar):
        return sorted(value.symbols, key=lambda symbol: str(symbol.value))
    if isinstance(value, Raggedness):
        parts: Iterable[Any] = (getattr(value, field.name) for field in fields(value))  # type: ignore[arg-type]
    else:
        parts = value if isinstance(value, tuple) else ()
    return list(dict.fromkeys(symbol for part in parts for symbol in _symbols(part)))


def _rows_of(axis: IterDomain) -> tuple[list[str], list[Scalar]]:
    """The arrays and sizes that decide how many indices an axis has that was made of rows."""
    axes = [axis, *(x for step in history([axis]) for x in (*step.inputs, *step.outputs))]
    found = [x.raggedness for x in axes if hasattr(x, "raggedness")]
    extents = [x.extent for x in axes if not x.is_ragged]
    bases = [base for raggedness in found for base in raggedness.base_arrays]
    bases += [name for extent in extents for name in _arrays_read(extent)]
    return list(dict.fromkeys(bases)), list(dict.fromkeys(s for part in (*found, *extents) for s in _symbols(part)))
