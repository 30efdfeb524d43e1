"""Plans: what the operator that stands for a compiled function is given and gives, in terms of types of its program.

A program does not depend on lengths, so that a plan holds for all batches. It is found for small examples, by the same
way that a call takes. The operator gives flat torch tensors: the values of results, the offsets of partitions that are
new, sizes as the first axis of a tensor without elements, and what the way back needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch

from serrate.compiler.compiling import Compiled, loose_inputs
from serrate.compiler.containers import Made
from serrate.compiler.described import Description
from serrate.compiler.gradients import Differentiable
from serrate.compiler.measures import Measures, symbols_of
from serrate.compiler.signature import Arguments, Unsupported
from serrate.eager.precision import autocast_state
from serrate.lowering.keys import DRAW, OF_TORCH
from serrate.passes.lower_ptensor import Called
from serrate.passes.vjp import RECORD
from serrate.program.partitions import Expression
from serrate.program.sizes import Polynomial, Size
from serrate.program.types import RaggedAxis, TensorType, Value
from serrate.tensor.tensor import Tensor

Output = Value | Expression | Polynomial
"""An output of the operator: the values of a tensor, the offsets of a partition, or a size."""


@dataclass(eq=False)
class Plan:
    """A compiled function for one description of its arguments."""

    jitted: Any
    """The function, a `Jitted`."""
    description: Description
    compiled: Compiled
    name: str
    """What it is called in a graph: the same in each process for programs with the same inputs and outputs."""
    loose: tuple[torch.Tensor, ...]
    """The Python numbers that the program takes as tensors; they are constants of a graph."""
    outputs: tuple[Output, ...]
    given: frozenset[Expression]
    """The partitions of the arguments."""
    returned: Any
    """What the function returns, as the traced code puts it together (`serrate.compiler.embedding`)."""
    shapes: tuple[tuple[Any, ...], ...]
    partitions: tuple[tuple[Any, ...], ...]
    draws: int
    """How many keys of random numbers it draws."""
    outside: Any
    """What the function found besides its arguments."""
    autocast: dict[str, torch.dtype] = field(default_factory=autocast_state)
    classes: tuple[Any, ...] = ()
    """The classes of named tuples that the function returns."""
    guard: Any = None
    """What gives torch.compile its guard (`serrate.compiler.embedding`)."""

    @cached_property
    def captured(self) -> tuple[Any, ...]:
        """The tensors that the function found outside of its arguments."""
        return self.compiled.captured

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The values that the program is given: arguments, numbers, captured tensors."""
        return self.compiled.forward.program.inputs

    @cached_property
    def packed(self) -> list[int]:
        """The numbers of the inputs that the operator is given: all but the numbers."""
        return [number for number in range(len(self.inputs)) if number not in self.loose_numbers]

    @cached_property
    def differentiable(self) -> Differentiable | None:
        """The way back, if there is one."""
        run = self.compiled.run
        return run if isinstance(run, Differentiable) else None

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """The values that the program makes, and the function returns."""
        way_back = self.differentiable
        if way_back is not None:
            return way_back.results
        return tuple(dict.fromkeys(v for v in self.compiled.forward.program.results if v not in self.inputs))

    @cached_property
    def saved(self) -> tuple[Value, ...]:
        """The values that the way back is given before the gradients."""
        saved: tuple[Value, ...] = () if self.differentiable is None else self.compiled.forward.program.outputs[1]
        return saved

    @cached_property
    def made(self) -> tuple[Value, ...]:
        """What a run of the program makes: results, then what is saved."""
        if self.differentiable is None:
            return self.compiled.forward.program.results
        return (*self.results, *self.saved)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """For each output that is the values of a tensor, which of these it is; −1 for all others."""
        return tuple(self.made.index(each) if isinstance(each, Value) else -1 for each in self.outputs)

    @cached_property
    def tells_sizes(self) -> bool:
        """Whether partitions or sizes are among the outputs."""
        return not all(isinstance(each, Value) for each in self.outputs)

    @cached_property
    def shares(self) -> bool:
        """Whether outputs may share their memory: what kernels give has memory of its own."""
        return self.tells_sizes or self.compiled.forward.library_calls > 0

    @cached_property
    def records(self) -> bool:
        """Whether torch's autograd goes back along records of library calls."""
        return any(value.type == RECORD for value in self.saved)

    @cached_property
    def recorded(self) -> frozenset[int]:
        """The inputs that records of library calls may keep, which their makers may write to meanwhile."""
        if not self.records:
            return frozenset()
        calls = [step for step in self.compiled.forward.steps if isinstance(step, Called)]
        operands = {value for step in calls for value in step.instruction.operands}
        return frozenset(number for number in self.packed if self.inputs[number] in operands)

    @cached_property
    def saved_tensors(self) -> list[Value]:
        """Those of them that a graph keeps from the way there; Python numbers are kept by the plan."""
        numbers = [self.inputs[number] for number in self.loose_numbers]
        return [value for value in self.saved if value not in numbers]

    @cached_property
    def fresh(self) -> frozenset[int]:
        """The numbers of the outputs that have no gradients."""
        way_back = self.differentiable
        kept = () if way_back is None else [way_back.results[number] for number in way_back.differentiable]
        return frozenset(number for number, each in enumerate(self.outputs) if each not in kept)

    def measures(self, packed: Sequence[torch.Tensor], offsets: Sequence[torch.Tensor]) -> Measures:
        """The sizes that the operator's inputs tell."""
        made = Measures()
        for expression, each in zip(self.expressions, offsets, strict=True):
            made.tell(expression.components, each.shape[0] - 1)
        for number, each in zip(self.packed, packed, strict=True):
            made.tell_shape(self.inputs[number].type, each.shape)
        return made

    @cached_property
    def loose_numbers(self) -> range:
        """The numbers of the inputs that are Python numbers."""
        count = len(self.description.tensors)
        return range(count, count + len(self.loose))

    @cached_property
    def expressions(self) -> list[Expression]:
        """The partitions of the arguments, as the description counts them."""
        found: dict[int, Expression] = {}
        for spec, value in zip(self.description.tensors, self.inputs, strict=False):
            for axis, kind in zip(spec.axes, value.type.axes, strict=True):
                if isinstance(kind, RaggedAxis):
                    found[axis[0]] = kind.partition
        return [found[number] for number in range(len(found))]


def plan_of(jitted: Any, description: Description) -> Plan:
    """The plan of a call. `Unsupported` is raised where no operator can stand for it, and says why."""
    outside = jitted._outside.key()
    examples = description.examples()
    arguments, named = description.arguments_of(examples)
    given = Arguments(arguments, named, jitted._static)
    family, found = jitted._found(given)
    if isinstance(found, str):
        raise Unsupported(f"it runs eagerly: {found}")
    if family.is_static:
        raise Unsupported("its program has to know the sizes of first axes")
    if found.writes:
        raise Unsupported("it writes to its arguments")
    program = found.forward.program
    values = [*program.inputs, *program.results]
    if any(value.type.origin is not None for value in values):
        raise Unsupported("a result of group_by goes in or out of it")
    if any(each.op in OF_TORCH for each in program.instructions):
        raise Unsupported("functions of torch draw random numbers in it")
    loose = loose_inputs(given, family.loose, found.limits) if family.loose else []
    if loose is None:
        raise Unsupported("its program is not right for one of the numbers that it is given")
    plan = Plan(
        jitted, description, found, "", tuple(loose), (), frozenset(), None, (), (),
        sum(each.op == DRAW for each in program.instructions), outside,
    )  # fmt: skip
    _Layout(plan, examples).run()
    plan.name = f"{jitted._name}_{_digest(plan)}"
    return plan


def _digest(plan: Plan) -> str:
    """What tells plans apart whose graphs differ: torch keeps graphs on disk, for other processes too."""
    way_back, back = plan.differentiable, plan.compiled.back
    outputs = [f"{each.name}: {each.type}" if isinstance(each, Value) else str(each) for each in plan.outputs]
    gradients = None if way_back is None else (way_back.differentiable, *way_back.ways.whole[1:], str(plan.saved))
    programs = str(plan.compiled.forward.program), None if back is None else str(back.program)
    parts = programs, plan.description, outputs, gradients, plan.returned, plan.shapes, plan.partitions
    return sha256(repr(parts).encode()).hexdigest()[:16]


class _Layout:
    """Finds the outputs of an operator, and what the function returns in terms of them."""

    def __init__(self, plan: Plan, examples: Sequence[Any]) -> None:
        self.plan = plan
        packed = [examples[n] if n < len(examples) else plan.captured[n - len(examples) - len(plan.loose)]
                  for n in plan.packed]  # fmt: skip
        tensors = [each.values if isinstance(each, Tensor) else each for each in packed]
        offsets = [torch.empty(each + 1, device="cpu") for each in _components(plan, examples)]
        self.known = plan.measures(tensors, offsets)
        self.outputs: dict[Any, int] = {}
        self.shapes: dict[tuple[Any, ...], int] = {}
        self.partitions: dict[Expression, int] = {}
        self.described: list[tuple[Any, ...]] = []
        self.axes: dict[tuple[Any, ...], int] = {}
        for number, value in enumerate(plan.inputs[: len(examples)]):
            self.axes.setdefault(value.type.axes, number)
        self.plain = iter(plan.compiled.plain)

    def run(self) -> None:
        """Fill the plan."""
        plan = self.plan
        plan.given = frozenset(plan.expressions)
        for value in plan.results:
            self._output(value)
        way_back = plan.differentiable
        outputs = plan.compiled.forward.program.outputs if way_back is None else way_back.outputs
        plan.returned = self._returned(outputs)
        for value in plan.saved:
            if value not in plan.inputs:
                self._output(value)
            for axis in value.type.axes:
                if isinstance(axis, RaggedAxis) and axis.partition not in plan.given:
                    self._new(axis.partition)
        sizes = [axis for value in (*plan.saved, *plan.results) for axis in value.type.axes]
        sizes += [size for each in self.outputs for size in shape_of(each)]
        for size in sizes:
            for symbol in () if isinstance(size, RaggedAxis) else symbols_of(size):
                if not self.known.tells(symbol):
                    self._output(Polynomial((((symbol,), 1),)))
        plan.outputs = tuple(self.outputs)
        plan.shapes, plan.partitions = tuple(self.shapes), tuple(self.described)

    def _output(self, what: Output) -> int:
        return self.outputs.setdefault(what, len(self.outputs))

    def _returned(self, part: Any) -> tuple[Any, ...]:
        """A part of what the function returns."""
        if isinstance(part, Value):
            return self._tensor(part)
        if isinstance(part, Polynomial):
            return "size", self._output(part)
        if type(part) in (tuple, list):
            return type(part).__name__, tuple(map(self._returned, part))
        if isinstance(part, tuple) and hasattr(part, "_fields") and not isinstance(part, Made):
            self.plan.classes = (*self.plan.classes, type(part))
            number = len(self.plan.classes) - 1
            return "named", tuple(map(self._returned, part)), number
        if isinstance(part, dict):
            return "dict", tuple(part), tuple(map(self._returned, part.values()))
        if part is None or isinstance(part, (bool, int, float, complex, str, torch.dtype, torch.device)):
            return "constant", part
        kind = "container of another class than tuple, list and dict" if isinstance(part, Made) else type(part).__name__
        raise Unsupported(f"it returns a {kind}")

    def _tensor(self, value: Value) -> tuple[Any, ...]:
        plain, plan = next(self.plain), self.plan
        if value in plan.inputs:
            number = plan.inputs.index(value)
            count = len(plan.description.tensors)
            if number < count:
                return "argument", number, plain
            return "captured", number - count - len(plan.loose), plain
        if plain:
            return "torch", self._output(value)
        if not value.type.axes:
            return "dense", self._output(value), value.type.order
        return "ragged", self._output(value), self._shape(value.type), value.type.order

    def _shape(self, kind: TensorType) -> int:
        """The number of the structure of a result."""
        if kind.axes in self.axes:
            made: tuple[Any, ...] = ("argument", self.axes[kind.axes])
        else:
            made = ("axes", tuple(map(self._axis, kind.axes)))
        return self.shapes.setdefault(made, len(self.shapes))

    def _axis(self, axis: Any) -> Any:
        if isinstance(axis, RaggedAxis):
            return "ragged", self._partition(axis.partition), axis.parents
        return axis if isinstance(axis, int) else ("size", self._output(axis))

    def _partition(self, each: Expression) -> int:
        """The number of a partition of a result: that of an argument, or a new one."""
        if each in self.partitions:
            return self.partitions[each]
        for number, value in enumerate(self.plan.inputs[: len(self.plan.description.tensors)]):
            for place, axis in enumerate(value.type.axes):
                if isinstance(axis, RaggedAxis) and axis.partition == each:
                    return self._described(each, ("argument", number, place))
        uniform = each.uniform_length
        if isinstance(uniform, Polynomial):
            raise Unsupported("the one length of the rows of a result differs from batch to batch")
        values = each.values
        size = values if isinstance(values, int) else ("size", self._output(values))
        return self._described(each, ("new", self._new(each), size, uniform))

    def _new(self, each: Expression) -> int:
        """The output for the offsets of a new partition."""
        if not each.host_born or not each.exact:
            raise Unsupported("only a device knows the lengths of what it makes")
        return self._output(each)

    def _described(self, each: Expression, how: tuple[Any, ...]) -> int:
        self.described.append(how)
        return self.partitions.setdefault(each, len(self.partitions))


def _components(plan: Plan, examples: Sequence[Any]) -> Iterator[int]:
    found: dict[int, int] = {}
    for spec, example in zip(plan.description.tensors, examples, strict=True):
        if isinstance(example, Tensor):
            for axis, real in zip(spec.axes, example.structure.axes, strict=True):
                if not isinstance(real, int):
                    found[axis[0]] = real.partition.num_components
    return (found[number] for number in range(len(found)))


def shape_of(output: Output) -> tuple[Size, ...]:
    """The shape of an output."""
    if isinstance(output, Value):
        kind = output.type
        return kind.features if kind.rows is None else (kind.rows, *kind.features)
    if isinstance(output, Expression):
        return (output.components + 1,)
    return output, 0
