"""What a call of a kernel reads of its arguments: that they are such as the call was written for, the sizes that their
shapes say, the offsets that follow from others, and what must hold of all these."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch

from serrate.fusion.binding import (
    TORCH,
    Run,
    check_offsets,
    computed_offsets,
    offset_bases,
    raggedness_of,
    size_and_number,
    stored_raggedness,
)
from serrate.fusion.dtypes import COMPLEX
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.remembering import memory_of, remembered
from serrate.fusion.scalar import Scalar
from serrate.fusion.strides import span, span_of
from serrate.fusion.view import TensorView
from serrate.kernel.dependencies import arrays_read, symbols_in
from serrate.kernel.generated import GeneratedFunction
from serrate.kernel.parameters import is_offsets
from serrate.kernel.signatures import python_functions, python_text
from serrate.kernel.teams import memory_axes
from serrate.tensor import host

if TYPE_CHECKING:
    from serrate.kernel.lowered import Lowered


class ArgumentReader(GeneratedFunction):
    """The beginning of a function that calls a kernel, line by line. Tensors and sizes are its variables."""

    def __init__(self, lowered: Lowered, devices: Sequence[torch.device], given_outputs: bool, checked: bool) -> None:
        super().__init__(f"call of {lowered.kernel.name}", {**python_functions(), **_MEANINGS})
        self.lowered, self.fusion = lowered, lowered.fusion
        self.given_outputs, self.checked = given_outputs, checked
        self.inputs = [f"input{number}" for number in range(len(self.fusion.inputs))]
        self.outputs = [f"output{number}" for number in range(len(self.fusion.outputs))]
        self.tensors: dict[str, str] = {}  # variables of inputs, offsets and outputs, by name
        self.arrays: dict[str, str] = {}  # those of integer vectors, which may be offsets
        self.devices: dict[str, torch.device] = {}  # of arrays
        self.sizes = {name: str(number) for name, number in lowered.given.items()}
        self.memories: dict[str, str] = {}  # by the variable of a tensor, that of what is remembered about it
        if lowered.team is not None and not lowered.given:
            raise TypeError(
                f"{lowered.kernel.name} is one rank's part of the work of a team, spread over loop "
                f"{lowered.team.loop}; say which rank calls it: on_rank(rank, size)"
            )
        used = {buffer.name for buffer in lowered.kernel.buffers}
        named = dict(zip((tensor.name for tensor in self.fusion.inputs), devices, strict=True))
        read = [on for name, on in named.items() if name in used]
        self.device = next(iter([*read, *devices]), torch.device(lowered.target.device))
        self.meanings |= {
            "device": self.device,
            "fusion": self.fusion,
            "refuse": lowered.refuse,
            "otherwise": lowered.otherwise,
        }
        if checked:
            self._check_arguments(named)
        self._bind(named)
        self._offsets()
        self._requirements()

    # What is written

    def call(self) -> Callable[..., Any]:
        """The function, as it is written so far."""
        return self.function([*self.inputs, *(self.outputs if self.given_outputs else ())])

    @property
    def given(self) -> str:
        """The arguments of the function, as others take them."""
        outputs = f"[{', '.join(self.outputs)}]" if self.given_outputs else "None"
        return f"[{', '.join(self.inputs)}], {outputs}"

    def refuse_unless(self, condition: str) -> None:
        """A line that finds out what is wrong, and raises it, unless a condition holds."""
        self.line(f"if not ({condition}): refuse({self.given})")

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
        if asked:
            self.line(f"if not ({' and '.join(asked)}): return otherwise({self.given})")

    def _layout(self, variable: str, tensor: TensorView, device: torch.device) -> list[str]:
        parts = [f"dtype is {self.meaning('dtype', TORCH[tensor.dtype])}", f"is_{device.type}"]
        parts.append(f"ndim == {len(memory_axes(self.lowered.team, tensor))}")
        parts += ["is_contiguous()"] if tensor.strides is None else []
        if device.index is not None:
            parts.append(f"get_device() == {device.index}")
        asked = [f"{variable}.{part}" for part in parts]
        asked += [f"not {variable}.is_neg()"] + [f"not {variable}.is_conj()"] * (tensor.dtype in COMPLEX)
        for at, stride in enumerate(tensor.strides or ()):
            if stride.is_const:
                asked.append(f"({variable}.stride({at}) == {stride} or {variable}.shape[{at}] < 2)")
        return [f"isinstance({variable}, Tensor)", *asked]

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
                elif not arrays_read(axis.extent):  # that of rows is checked with their offsets
                    later.append((axis.extent, place))
            self._bind_strides(variable, tensor)
            if tensor.dtype in ("int32", "int64"):
                self.arrays[tensor.name], self.devices[tensor.name] = variable, devices[tensor.name]
        for extent, place in later:
            known = all(symbol.value in self.sizes for symbol in extent.symbols)
            self.refuse_unless(f"{place} == {self.text(extent)}" if known else "False")

    def _bind_strides(self, variable: str, tensor: TensorView) -> None:
        """Variables for the strides that a call says, and for how far apart the first and the last element lie."""
        if tensor.strides is None:
            return
        for at, stride in enumerate(tensor.strides):
            if not stride.is_const:
                name = self.sizes[stride.value] = f"{variable}_stride{at}"
                self.line(f"{name} = {variable}.stride({at})")
        name = self.sizes[span_of(tensor).value] = f"{variable}_span"
        self.line(f"{name} = span({variable})")

    def _offsets(self) -> None:
        """Offsets that follow from extents and from other offsets; and the checks of those that are given."""
        for tensor in self.fusion.tensors:
            operation = tensor.definition
            if operation is None or operation.kind != "offsets":
                continue
            bases, options = offset_bases(operation), operation.options
            if all(base in self.arrays for base in bases):
                make = partial(computed_offsets, operation)
                variable = self._remembered(f"{operation.name} {options!r}", bases, symbols_in(options), make)
                self.tensors[tensor.name] = self.arrays[tensor.name] = variable
                self.devices[tensor.name] = self.devices[bases[0]] if bases else torch.device("cpu")
        for rows in stored_raggedness(self.fusion):
            if rows.array in self.arrays:  # those on a device are checked without waiting for them
                self._remembered(f"check {rows!r}", [rows.array], symbols_in(rows), partial(_checked, rows))

    def _derived(self, raggedness: Raggedness) -> str:
        """Offsets that only the kernel needs, such as those of tiles."""
        device = self.device

        def make(run: Run) -> torch.Tensor:
            return raggedness.offsets(run.arrays, run.sizes).to(device, torch.int64, non_blocking=True)

        return self._remembered(
            f"offsets on {device} {raggedness!r}", raggedness.base_arrays, symbols_in(raggedness), make
        )

    def _remembered(
        self, key: Hashable, arrays: Sequence[str], symbols: Iterable[Scalar], make: Callable[[Run], object]
    ) -> str:
        """A variable for what `make` gives, which depends on some arrays and sizes: made once for those."""
        sizes = [self.sizes[str(symbol.value)] for symbol in symbols if symbol.value in self.sizes]
        variables = [self.arrays[name] for name in arrays]
        named = ", ".join(f"{name!r}: {variable}" for name, variable in self.sizes.items())
        given = ", ".join(f"{name!r}: {variable}" for name, variable in self.arrays.items())
        run = f"Run({{{named}}}, {{{given}}}, fusion)"
        parts = ", ".join([self.meaning("key", key), *sizes])
        found = f"found{len(self.lines)}"
        if not variables:
            names = [name for name, variable in self.sizes.items() if variable in sizes]
            listed = self.meaning("listed", _of_sizes(self.fusion, names, make))
            self.line(f"{found} = {listed}({', '.join(self.sizes[name] for name in names)})")
        elif len(variables) == 1:
            memory, maker = self._memory_of(variables[0]), self.meaning("make", _lasting(make))
            self.line(f"{found} = {memory}.get(({parts},))")
            self.line(f"if {found} is None: {found} = {memory}[{parts},] = {maker}({run})")
        else:
            tensors, maker = f"({', '.join(variables)})", self.meaning("make", _lasting(make))
            self.line(f"{found} = remembered({tensors}, ({parts},), lambda: {maker}({run}))")
        return found

    def _given_arrays(self, names: Iterable[str]) -> list[str]:
        """The arrays that are given among some, and those that the others follow from."""
        derived = raggedness_of(self.fusion)
        found = [
            (name,) if name in self.arrays else derived[name].base_arrays
            for name in names
            if name in derived or name in self.arrays
        ]
        return list(dict.fromkeys(name for part in found for name in part if name in self.arrays))

    def _memory_of(self, variable: str) -> str:
        if variable not in self.memories:
            self.memories[variable] = f"memory{len(self.memories)}"
            self.line(f"{self.memories[variable]} = memory_of({variable})")
        return self.memories[variable]

    # What must hold

    def _requirements(self) -> None:
        for required in self.lowered.requirements:
            read = self._given_arrays(arrays_read(required.condition))
            if any(symbol.value not in self.sizes for symbol in required.condition.symbols):
                self.refuse_unless("False")  # which says what is not known
            elif not read:
                self.refuse_unless(self.text(required.condition))
            elif all(name in self.arrays and self.devices[name].type == "cpu" for name in read):
                symbols = symbols_in(required.condition)
                self.refuse_unless(self._remembered(f"holds {required.condition!r}", read, symbols, required.holds))


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share memory; between the elements of a tensor, what lies there counts as its own."""
    start, begin = one.data_ptr(), other.data_ptr()
    ends = begin + other.itemsize * span(other), start + one.itemsize * span(one)
    return start < ends[0] and begin < ends[1] and one.numel() > 0 and other.numel() > 0


_MEANINGS: dict[str, Any] = {
    "Run": Run, "memory_of": memory_of, "remembered": remembered, "overlap": overlap, "span": span,
    "Tensor": torch.Tensor, "is_grad_enabled": torch.is_grad_enabled,
}  # fmt: skip
"""What the functions of all kernels use to read their arguments."""


def _checked(rows: Stored, run: Run) -> bool:
    """True, if nothing is wrong with offsets; else it is raised."""
    check_offsets([rows], run)
    return True


def _lasting(make: Callable[[Run], object]) -> Callable[[Run], object]:
    """As `make`, but what it makes can be kept, wherever it is first asked for."""

    def made(run: Run) -> object:
        with host.lasting():
            return make(run)

    return made


def _of_sizes(fusion: Fusion, names: Sequence[str], make: Callable[[Run], object]) -> Callable[..., object]:
    """What `make` gives, which depends on these sizes alone, and is kept for the last ones."""
    lasting = _lasting(make)
    return lru_cache(maxsize=64)(lambda *values: lasting(Run(dict(zip(names, values, strict=True)), {}, fusion)))
