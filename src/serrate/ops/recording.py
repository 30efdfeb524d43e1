"""Recording: what a program over operations calls, as instructions on typed values.

The program runs on tensors without elements (`serrate.program.abstract`), while a recorder at the door notes down each
call. So bodies of operations, rules of derivatives and calls by torch's spellings become instructions, and types of
what these give are found by the same code that finds the types of results (`serrate.ops.meta`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch

from serrate.ops.call import TRACER
from serrate.ops.meta import Typed, call_name, found_at_points, given_at, program_of
from serrate.ops.record import TABLE, Op
from serrate.ops.remembering import answer_to, question, remember
from serrate.program.abstract import AbstractRun
from serrate.program.devices import stood_for
from serrate.program.guards import Guard
from serrate.program.partitions import AbstractPartition, Call
from serrate.program.program import Instruction, replaced, values_in
from serrate.program.sizes import is_said
from serrate.program.types import RaggedAxis, Value
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor


class NotRecorded(TypeError):
    """This error is raised for a program that computes tensors by other means than operations."""


class Recorded(NamedTuple):
    """The calls of a program, what it gives, and what has to be equal for its types."""

    instructions: tuple[Instruction, ...]
    result: Any
    guards: tuple[Guard, ...]


class Names:
    """Gives names to values: one that says what a value is, if that is free, else with a number."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._next = 0
        self._taken = set(taken)

    def fresh(self, prefix: str = "v") -> str:
        """A name that no value has."""
        while True:
            name, self._next = f"{prefix}{self._next}", self._next + 1
            if name not in self._taken:
                return name


def record_calls(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    names: Names,
    *,
    guards: tuple[Guard, ...] = (),
    title: str = "",
    memo: Hashable,
) -> Recorded:
    """What a program calls for arguments in which a `Value` stands for each tensor.

    `guards` are taken for given; more that are needed come with what is recorded. A program that makes a tensor without
    an operation is a `NotRecorded`, as is one whose calls depend on numbers that no type knows. Programs of the same
    `memo` do the same for arguments of the same types, so that the second one need not run.
    """
    given = list(dict.fromkeys(values_in((arguments, named))))
    title = title or getattr(function, "__name__", "a program")
    program = program_of(title, (arguments, named))
    asked = question("calls", memo, arguments, named, guards)
    found = answer_to(asked, program)
    if isinstance(found, str):
        raise NotRecorded(found)
    if found is None:
        stand_ins = {value: Value(value.type, _Given(number)) for number, value in enumerate(given)}
        inside = replaced((arguments, named), lambda part: stand_ins[part] if isinstance(part, Value) else part)
        try:
            found = _recorded(function, inside, title, program, guards)
        except NotRecorded as error:
            remember(asked, str(error))
            raise
        if any(TABLE[step[0]].decides for step in found.result[0]):
            # What elements of values decide about is named after these values, and not after what stands for them.
            found = _recorded(function, (arguments, named), title, program, guards)
        else:
            remember(asked, found)
    steps, result = found.result
    fresh: dict[int, str] = {}

    def rename(part: Any) -> Any:
        if isinstance(part, Value) and isinstance(part.name, _Given):
            return given[part.name.place]
        if isinstance(part, Value) and isinstance(part.name, _Number):
            if part.name.number not in fresh:
                fresh[part.name.number] = names.fresh()
            return Value(part.type, fresh[part.name.number])
        return part

    made = []
    for op, operands, options, gives, spelling in steps:
        operands, options, gives = replaced((operands, options, gives), rename)
        made.append(Instruction(op, operands, tuple(options.items()), gives, spelling))
    return Recorded(tuple(made), replaced(result, rename), found.guards)


def _recorded(
    function: Callable[..., Any], given: tuple[Any, ...], title: str, program: int | None, guards: tuple[Guard, ...]
) -> Typed:
    """The steps of a program, and what it gives."""

    def run(abstract: AbstractRun) -> tuple[Any, ...]:
        return _Recorder(abstract).run(function, *given)

    return found_at_points(title, run, Call("recorded", (object(),)), program, guards=guards)


class _Given(NamedTuple):
    """The name of a value that a remembered program was given."""

    place: int


class _Number(NamedTuple):
    """The name of a value while a program is recorded: how many were made before it."""

    number: int


class _Recorder:
    """A tracer that notes down the calls of one run on tensors without elements."""

    def __init__(self, run: AbstractRun) -> None:
        self.abstract = run
        self.steps: list[tuple[Any, ...]] = []
        self.made = 0
        self.values: dict[int, tuple[Any, Value]] = {}  # by the identity of a tensor, which is kept so that it stays
        self.tensors: dict[Value, Tensor] = {}

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        with self.abstract.entered():
            given, options = replaced((arguments, named), self._tensor)
            token = TRACER.set(self)
            try:
                result = function(*given, **options)
            finally:
                TRACER.reset(token)
            return tuple(self.steps), replaced(result, self._value)

    def __call__(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        if op.writes:
            raise NotRecorded(f"{op.name} writes to a tensor inside of a program that is recorded")
        given, options = replaced((arguments, named), self._value)
        outside = self.abstract.call
        self.abstract.call = call_name(op, given, options, spelling)
        self.abstract.restart_names()
        token = TRACER.set(None)
        try:
            function = op.implementations[-1].function if spelling is None else op.spellings[spelling]
            result = function(*arguments, **named)
        finally:
            TRACER.reset(token)
        self.abstract.call = outside
        self.steps.append((op.name, given, options, replaced(result, self._fresh), spelling))
        return result

    def _tensor(self, part: Any) -> Any:
        """The tensor without elements that stands for a value, the same one each time."""
        if not isinstance(part, Value):
            return given_at(self.abstract, part)
        if part not in self.tensors:
            made = self.tensors[part] = self.abstract.tensor(part.type)
            self.values[id(made)] = made, part
        return self.tensors[part]

    def _fresh(self, part: Any) -> Any:
        """A new value for a tensor that an operation made."""
        if not isinstance(part, (Tensor, torch.Tensor)):
            return part
        made = Value(self.abstract.type_of(part), _Number(self.made))
        self.made += 1
        self.values[id(part)] = part, made
        return made

    def _value(self, part: Any) -> Any:
        """What stands in an instruction for a part of its arguments."""
        if isinstance(part, (Tensor, torch.Tensor)):
            if id(part) in self.values:
                return self.values[id(part)][1]
            if isinstance(part, Tensor) and id(part.values) in self.values and not part.is_ragged:
                return self.values[id(part.values)][1]
            raise NotRecorded("a program computes a tensor by other means than an operation")
        if isinstance(part, AbstractPartition):
            return part.expression
        if isinstance(part, Ragged):
            return RaggedAxis(self.abstract.expression_of(part.partition), part.parents)
        if isinstance(part, torch.device):
            return stood_for(part)
        if type(part) is not int:
            return part
        size = self.abstract.size(part)
        return size if is_said(size) else part  # a number of the program's own is the same at all points
