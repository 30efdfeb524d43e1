"""The host program: one Python function that is written once, and launches kernels and calls libraries in their order.

It is given the tensors that the program is given, as a flat list. All that follows from types is decided when it is
written: which tensor says what a size is, whose partitions a result has, in which order kernels take their inputs. What
is left for a call is to read what tensors hold, to launch, and to put results together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from serrate.compiler.containers import Made
from serrate.eager.precision import casting
from serrate.kernel.generated import GeneratedFunction
from serrate.lowering.keys import Drawn, key_of
from serrate.ops.record import TABLE
from serrate.passes.lower_ptensor import Called, Fused, Step
from serrate.program.devices import require_device, stand_in
from serrate.program.guards import Guard
from serrate.program.partitions import Expression
from serrate.program.program import Instruction, Program
from serrate.program.sizes import Polynomial, Size, Slice, Symbol, lone_symbol
from serrate.program.types import RaggedAxis, TensorType, Value
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor

Note = Callable[..., None]
"""What is told of the first launch of a fusion: how it is planned, and what its inputs are."""


class GuardFailed(Exception):
    """This exception leaves a host program if tensors do not fit each other as they did when it was traced."""


class Unwritable(TypeError):
    """This error is raised for a program for which no host program can be written, and says why."""


def host_program(
    program: Program,
    steps: Sequence[Step],
    plain: Sequence[bool],
    partitions: Mapping[Expression, Partition],
    note: Note,
    guards: Sequence[Guard] = (),
) -> tuple[Callable[..., Any], str]:
    """The function of the tensors of `program.inputs` that returns what the program gives, and its text.

    `plain` says for each value that is returned whether as a torch tensor; `partitions` are those that are the same in
    each call; `note` is told of the first launch of each fusion. `guards` are looked at in each call, each before the
    first step that could rely on it. A way back has none, since the way forward has looked at them.
    """
    writer = _Writer(program, steps, plain, partitions, note)
    run = writer.function(guards)
    return run, "\n".join(writer.made.lines)


class _Writer:
    def __init__(
        self,
        program: Program,
        steps: Sequence[Step],
        plain: Sequence[bool],
        partitions: Mapping[Expression, Partition],
        note: Note,
    ) -> None:
        self.program, self.steps = program, steps
        self.made = GeneratedFunction(
            "serrate program",
            {
                "Tensor": Tensor,
                "TorchTensor": torch.Tensor,
                "Structure": Structure,
                "Ragged": Ragged,
                "DENSE": DENSE,
                "GuardFailed": GuardFailed,
            },
        )
        self.plain, self.note = iter(plain), note
        self.pending: list[Guard] = []
        self.values: dict[Value, str] = {}  # variables of torch tensors
        self.tensors: dict[Value, str] = {}  # variables of Tensors
        self.structures: dict[tuple[Any, ...], str] = {}  # by the packed axes of a type
        self.partitions = {key: self.made.meaning("partition", each) for key, each in partitions.items()}
        self.sizes: dict[Symbol, str] = {}
        self.called: set[Value] = set()  # results of library calls that may be views
        self.count = 0

    def function(self, guards: Sequence[Guard]) -> Callable[..., Any]:
        """The function, compiled."""
        self.pending = list(guards)
        names = [f"x{number}" for number in range(len(self.program.inputs))]
        for name, value in zip(names, self.program.inputs, strict=True):
            self._given(name, value)
        for step in self.steps:
            self._guard()
            if isinstance(step, Fused):
                self._launch(step)
            else:
                self._call(step)
        self._guard()
        for guard in self.pending:
            if not self._is_left_to_a_library(guard):
                self._condition(guard)  # raises what cannot be written
        self.line(f"return {self._returned(self.program.outputs)}")
        return self.made.function(names)

    def line(self, text: str) -> None:
        self.made.line(text)

    def variable(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -------------------------------------------------------------------------------------------------- inputs

    def _given(self, name: str, value: Value) -> None:
        """Variables for what an input says."""
        kind = value.type
        if kind.axes:
            self.tensors[value] = name
            self._note_structure(name, kind)
        else:
            # Whether it is a torch tensor or one of ours is a part of the signature, which the caller has looked at.
            variable = self.values[value] = self.variable("v")
            self.line(f"{variable} = {name}.values if isinstance({name}, Tensor) else {name}")
        self._note_features(value)

    def _note_features(self, value: Value) -> None:
        kind = value.type
        sizes = [*([] if kind.rows is None else [kind.rows]), *kind.features]
        for number, size in enumerate(sizes):
            lone = lone_symbol(size)
            if lone is not None and lone not in self.sizes:
                self.sizes[lone] = f"{self._values(value)}.shape[{number}]"

    def _note_structure(self, name: str, kind: TensorType) -> None:
        """Variables for the structure of a Tensor, its partitions, and the sizes that these say."""
        if kind.axes in self.structures:
            return
        structure = self.structures[kind.axes] = self.variable("structure")
        self.line(f"{structure} = {name}.structure")
        for number, axis in enumerate(kind.axes):
            if isinstance(axis, RaggedAxis):
                if axis.partition not in self.partitions:
                    partition = self.partitions[axis.partition] = self.variable("partition")
                    self.line(f"{partition} = {structure}.axes[{number}].partition")
            else:
                lone = lone_symbol(axis)
                if lone is not None and lone not in self.sizes:
                    self.sizes[lone] = f"{structure}.axes[{number}]"

    def _values(self, value: Value) -> str:
        """The variable of the packed values of a value."""
        if value not in self.values:
            if value not in self.tensors:
                raise Unwritable(f"nothing makes {value.name}")
            variable = self.values[value] = self.variable("v")
            self.line(f"{variable} = {self.tensors[value]}.values")
        return self.values[value]

    def _tensor(self, value: Value) -> str:
        """The variable of a Tensor."""
        if value not in self.tensors:
            kind = value.type
            variable = self.tensors[value] = self.variable("t")
            if kind.axes:
                structure = self._structure(kind)
                self.line(f"{variable} = Tensor({self._values(value)}, {structure}, {kind.order!r})")
            else:
                order = "" if kind.order == tuple(range(len(kind.order))) else f", DENSE, {kind.order!r}"
                self.line(f"{variable} = Tensor({self._values(value)}{order})")
        return self.tensors[value]

    def _structure(self, kind: TensorType) -> str:
        """The variable of a structure: that of a tensor which has the same, else a new one."""
        if kind.axes not in self.structures:
            axes = ", ".join(self._axis(axis) for axis in kind.axes)
            variable = self.variable("structure")
            self.line(f"{variable} = Structure(({axes},))")
            self.structures[kind.axes] = variable
        return self.structures[kind.axes]

    def _axis(self, axis: Any) -> str:
        if isinstance(axis, RaggedAxis):
            return f"Ragged({self._partition(axis.partition)}, {axis.parents!r})"
        return self._size(axis)

    def _partition(self, expression: Expression) -> str:
        if expression not in self.partitions and expression.kind == "slice":
            whole, start, stop = expression.operands
            bounds = f"{self._size(start)}, {self._size(stop)}"  # type: ignore[arg-type]
            text = f"{self._partition(whole)}.slice({bounds})"  # type: ignore[arg-type]
            variable = self.partitions[expression] = self.variable("partition")
            self.line(f"{variable} = {text}")
        if expression not in self.partitions:
            raise Unwritable(f"no tensor that is given or made has the partition {expression}")
        return self.partitions[expression]

    # --------------------------------------------------------------------------------------------------- sizes

    def _size(self, size: Size) -> str:
        """The text of a size."""
        if isinstance(size, int):
            return str(size)
        terms = []
        for monomial, coefficient in size.terms:
            parts = ([] if coefficient == 1 and monomial else [str(coefficient)]) + [self._symbol(s) for s in monomial]
            terms.append(" * ".join(parts))
        return f"({' + '.join(terms)})"

    def _symbol(self, symbol: Symbol) -> str:
        if symbol in self.sizes:
            return self.sizes[symbol]
        of = symbol.of
        if symbol.kind in ("values", "longest", "total") and isinstance(of[0], Expression):
            name = {"values": "num_values", "longest": "max_length", "total": "total"}[symbol.kind]
            self.sizes[symbol] = f"{self._partition(of[0])}.{name}"
        elif symbol.kind in ("least", "most"):
            function = {"least": "min", "most": "max"}[symbol.kind]
            self.sizes[symbol] = f"{function}({', '.join(self._size(each) for each in of)})"  # type: ignore[arg-type]
        elif symbol.kind in ("sliced", "start") and isinstance(of[1], Slice):
            cut = ", ".join(
                "None" if each is None else self._size(each) for each in (of[1].start, of[1].stop, of[1].step)
            )
            chosen = f"range({self._size(of[0])})[slice({cut})]"  # type: ignore[arg-type]
            self.sizes[symbol] = f"len({chosen})" if symbol.kind == "sliced" else f"({chosen}).start"
        else:
            raise Unwritable(f"no tensor says what the size {symbol} is")
        return self.sizes[symbol]

    def _guard(self) -> None:
        """Look at the guards of which both sides are known by now."""
        waiting = []
        for guard in self.pending:
            try:
                condition = self._condition(guard)
            except Unwritable:
                waiting.append(guard)
            else:
                self.line(f"if not ({condition}): raise GuardFailed({str(guard)!r})")
        self.pending = waiting

    def _is_left_to_a_library(self, guard: Guard) -> bool:
        """Whether a guard is about rows that no kernel has: the library call that makes them looks at them itself."""
        inside = [each for step in self.steps if isinstance(step, Fused) for each in step.instructions]
        values = [value for each in inside for value in (*each.operands, *each.results)]
        held = {partition for value in values for partition in value.type.partitions}
        return not held & {*_partitions_of(guard.one), *_partitions_of(guard.other)} - self.partitions.keys()

    def _condition(self, guard: Guard) -> str:
        """The text of a guard."""
        if isinstance(guard.one, Expression) and isinstance(guard.other, Expression):
            return f"{self._partition(guard.one)}.same_as({self._partition(guard.other)})"
        return f"{self._size(guard.one)} == {self._size(guard.other)}"  # type: ignore[arg-type]

    # --------------------------------------------------------------------------------------------------- steps

    def _launch(self, step: Fused) -> None:
        """Call the kernels of a fusion."""
        for maker in step.makers:
            self._skeleton(maker)
        self._guard()
        given = []
        for feed in step.fusing.feeds:
            if isinstance(feed.of, Expression):
                name = f"{self._partition(feed.of)}.offsets_on({self._device(step)})"
                given.append(name)
            elif isinstance(feed.of, Polynomial):
                given.append(f"{self.made.meaning('extent', _NOTHING)}.expand({self._size(feed.of)})")
            else:
                given.append(self._contiguous(feed.of))
        self._ask(step)
        names = [self.variable("v") for _ in step.results]
        kernels = self.made.meaning("kernels", step.planned.prepared(self._device_of(step)))
        first = self.made.meaning("first", [partial(self.note, step.planned)])
        self.line(f"if {first}: {first}.pop()({', '.join(given)})")
        self.line(f"{', '.join(names)}, = {kernels}({', '.join(given)})")
        for name, value in zip(names, step.results, strict=True):
            self.values[value] = name
            kind = value.type
            if step.makers and kind.rows is not None and kind.device.type != "cpu":
                # Rows that the kernel made have room for as many as there can be; how many there are, the host knows.
                self.line(f"{name} = {name}[:{self._size(kind.rows)}]")
            if 1 in kind.features:  # kernels leave axes of one index out
                sizes = [*([] if kind.rows is None else [f"{name}.shape[0]"]), *map(self._size, kind.features)]
                self.line(f"{name} = {name}.view({', '.join(sizes)})")
            self._note_features(value)

    def _device_of(self, step: Fused) -> torch.device:
        """The device of a fusion, which is here."""
        device = step.results[0].type.device
        require_device(device)
        assert isinstance(device, torch.device)
        return device

    def _ask(self, step: Fused) -> None:
        """Ask by name for numbers that only a device knows and that sizes of results are made of, which may wait."""
        for value in step.results:
            for size in value.type.features:
                terms = () if isinstance(size, int) else size.terms
                for symbol in {each for monomial, _ in terms for each in monomial}:
                    of = symbol.of[0]
                    if symbol.kind in ("longest", "total") and isinstance(of, Expression) and not of.host_born:
                        self.line(self._symbol(symbol))

    def _skeleton(self, maker: Instruction) -> None:
        """Run an operation on tensors without features, for the rows of its result."""

        def carrier(part: Any) -> str:
            if isinstance(part, Value) and part.type.axes:
                kind = part.type
                function = self.made.meaning("carrier", carrier_of)
                return f"{function}({self._structure(kind)}, {kind.order!r}, {len(kind.features)})"
            if isinstance(part, (tuple, list)):
                inside = "".join(f"{carrier(each)}, " for each in part)
                return f"({inside})" if isinstance(part, tuple) else f"[{inside}]"
            return self._argument(part)

        called = self.made.meaning("rows_of", TABLE[maker.op].function)
        given = [carrier(part) for part in maker.arguments]
        given += [f"{name}={carrier(part)}" for name, part in maker.named]
        result = self.variable("rows")
        self.line(f"{result} = {called}({', '.join(given)})")
        self._note_structure(result, maker.result.type)

    def _device(self, step: Fused) -> str:
        return self.made.meaning("device", step.results[0].type.device)

    def _contiguous(self, value: Value) -> str:
        """The variable of packed values that lie contiguously."""
        values = self._values(value)
        made = self.variable("c")
        self.line(f"{made} = {values} if {values}.is_contiguous() else {values}.contiguous()")
        if value.type.dtype.is_complex:
            self.line(f"{made} = {made}.resolve_conj().resolve_neg()")
        return made

    def _call(self, step: Called) -> None:
        """Call the eager implementation of an operation."""
        instruction = step.instruction
        op = TABLE.get(instruction.op)
        function = instruction.function
        if op is not None:
            function = op.function if function is None else op.spellings.get(function, function)
        assert function is not None
        if instruction.autocast is not None:
            function = under_autocast(function, dict(instruction.autocast))
        called = self.made.meaning(re.sub(r"\W+", "_", instruction.op), function)
        given = [self._argument(part) for part in instruction.arguments]
        named = {name: self._argument(part) for name, part in instruction.named}
        if op is not None and op.is_placed and instruction.function is None:  # in whatever region it is called
            named["device"] = self.made.meaning("device", stand_in(instruction.result.type.device))
        given += [f"{name}={part}" for name, part in named.items()]
        if op is None or op.primitive in ("movement", "stop_gradient", "cast") or op.body is not None:
            self.called.update(instruction.results)
        result = self.variable("r")
        self.line(f"{result} = {called}({', '.join(given)})")
        self._note_result(result, instruction.result)

    def _note_result(self, text: str, result: Any) -> None:
        if isinstance(result, Value):
            if result.type.axes or result.type.origin is not None:
                self.tensors[result] = text
                if result.type.axes:
                    self._note_structure(text, result.type)
                self._note_features(result)
            else:
                variable = self.values[result] = self.variable("v")
                self.line(f"{variable} = {text}.values if isinstance({text}, Tensor) else {text}")
                self._note_features(result)
        elif isinstance(result, (tuple, list)):
            for number, part in enumerate(result):
                if isinstance(part, (Value, tuple, list)):
                    variable = self.variable("r")
                    self.line(f"{variable} = {text}[{number}]")
                    self._note_result(variable, part)

    def _argument(self, part: Any) -> str:
        """The text of an argument of a call."""
        if isinstance(part, Value):
            return self._tensor(part)
        if isinstance(part, Expression):
            return self._partition(part)
        if isinstance(part, RaggedAxis):
            return self._axis(part)
        if isinstance(part, Polynomial):
            return self._size(part)
        if isinstance(part, Drawn):
            return f"{self.made.meaning('key_of', key_of)}({self._values(part.seed)}, {self._values(part.call)})"
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return f"{self.made.meaning('made', type(part))}({', '.join(map(self._argument, part))})"
        if isinstance(part, tuple):
            return f"({''.join(f'{self._argument(each)}, ' for each in part)})"
        if isinstance(part, list):
            return f"[{', '.join(map(self._argument, part))}]"
        if isinstance(part, dict):
            return f"{{{', '.join(f'{name!r}: {self._argument(each)}' for name, each in part.items())}}}"
        if isinstance(part, slice):
            return f"slice({', '.join(self._argument(each) for each in (part.start, part.stop, part.step))})"
        if part is None or isinstance(part, (bool, int, str)):
            return repr(part)
        return self.made.meaning("constant", part)

    # ------------------------------------------------------------------------------------------------- results

    def _returned(self, part: Any) -> str:
        """The text of what is returned."""
        if isinstance(part, Value):
            text = self._values(part) if next(self.plain) else self._tensor(part)
            if part not in self.called or not self.program.inputs:
                return text
            # A result of a library call may be a view of an argument, and what is returned is the caller's to write to.
            inputs = ", ".join(f"x{number}" for number in range(len(self.program.inputs)))
            return f"{self.made.meaning('unshared', unshared)}({text}, ({inputs},))"
        if isinstance(part, Polynomial):
            return self._size(part)
        if isinstance(part, Made):
            inside = "".join(f"{self._returned(each)}, " for each in part[1:])
            return f"{self.made.meaning('container', part[0])}(({inside}))"
        if isinstance(part, tuple):
            inside = "".join(f"{self._returned(each)}, " for each in part)
            if hasattr(part, "_fields"):
                return f"{self.made.meaning('made', type(part))}({inside})"
            if hasattr(type(part), "n_sequence_fields"):
                return f"{self.made.meaning('made', type(part))}(({inside}))"
            return f"({inside})"
        if isinstance(part, list):
            return f"[{', '.join(map(self._returned, part))}]"
        if isinstance(part, dict):
            return f"{{{', '.join(f'{self._argument(name)}: {self._returned(each)}' for name, each in part.items())}}}"
        return self._argument(part)


_NOTHING = torch.zeros((), dtype=torch.uint8, device="cpu")
"""The only element of a tensor that says by its shape what a size is."""


def unshared(result: Any, inputs: Sequence[Any]) -> Any:
    """A result, or a copy of it if it shares its memory with an input that it is not itself."""
    values = result.values if isinstance(result, Tensor) else result
    storage = values.untyped_storage().data_ptr()
    for each in inputs:
        given = each.values if isinstance(each, Tensor) else each
        if given is result or (storage and given.untyped_storage().data_ptr() == storage):
            return result.clone()
    return result


def under_autocast(function: Callable[..., Any], casts: Mapping[str, torch.dtype]) -> Callable[..., Any]:
    """The function with autocast as it was where it was called."""

    def call(*arguments: Any, **named: Any) -> Any:
        with casting(casts):
            return function(*arguments, **named)

    return call


def carrier_of(structure: Structure, order: tuple[int, ...], features: int) -> Tensor:
    """A tensor of a structure that holds next to nothing."""
    rows = structure.cells(structure.whole)
    values = torch.empty((), dtype=torch.uint8, device="cpu").expand(rows, *[0] * features)
    return Tensor(values, structure, order)


def _partitions_of(given: Size | Expression) -> set[Expression]:
    """The partitions that a side of a guard is about."""
    if isinstance(given, Expression):
        return {given}
    symbols = () if isinstance(given, int) else [each for monomial, _ in given.terms for each in monomial]
    return {part for each in symbols for part in each.of if isinstance(part, Expression)}
