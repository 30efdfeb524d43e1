"""Program: operations on typed values, one behind the other, each value made once.

A `Program` is what a traced function became: a list of calls of operations, in which a `Value` stands for each tensor,
a size of a type for each number that follows from shapes, and a partition of a type for each ragged axis that was asked
for. Passes make Programs of Programs. Two of them are equal if they compute the same in the same way.

>>> import serrate as sr
>>> from serrate.program.inputs import Inputs
>>> from serrate.program.program import Instruction, Program
>>> from serrate.program.types import Value
>>> kind = Inputs().type_of(sr.ragged([[1., 2.], []]))
>>> x, y = Value(kind, "x"), Value(kind, "y")
>>> print(Program((x,), (Instruction("exp", (x,), (), y),), y))
program(x: float32[n0, p0] on cpu):
  y: float32[n0, p0] on cpu = exp(x)
  return y
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from serrate.program.guards import Guard
from serrate.program.types import Value


@dataclass(frozen=True)
class Instruction:
    """One call of an operation."""

    op: str
    """The name of its record; the name of a function of torch, if no record has it; `@name` for a call of the program
    of that name, which `serrate.passes.inline_calls` puts in its place."""
    arguments: tuple[Any, ...]
    """What is given by position: values, constants, sizes and partitions of types, and tuples, lists and slices of
    these."""
    named: tuple[tuple[str, Any], ...]
    """What is given by name."""
    result: Any
    """The value that it makes, or a tuple or a list of values."""
    function: Callable[..., Any] | None = None
    """The function of torch whose arguments these are, or what computes an operation that no record has."""
    region: str = ""
    """The operation of the user's that it is a part of, with a number: "softmax#3"."""
    where: str = ""
    """The line of the user's program that called it: "model.py:12"."""
    autocast: tuple[tuple[str, Any], ...] | None = None
    """The devices for which autocast is on where it is called, with their dtypes; None if they are those of the whole
    program."""

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """The values that it reads, in the order of its arguments."""
        return tuple(values_in((self.arguments, self.named)))

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """The values that it makes."""
        return tuple(values_in(self.result))

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What is computed of what, whatever the results are called and whoever asked for it."""
        return self.op, hashable(self.arguments), hashable(self.named), self.function, self.autocast

    def __str__(self) -> str:
        given = [text_of(each) for each in self.arguments]
        given += [f"{name}={text_of(each)}" for name, each in self.named]
        made = ", ".join(f"{each.name}: {each.type}" for each in self.results)
        return f"{made or '()'} = {self.op}({', '.join(given)})" + (f"  # {self.region}" if self.region else "")


@dataclass(frozen=True)
class Program:
    """Values that are given, calls of operations, and what they give in the end."""

    inputs: tuple[Value, ...]
    instructions: tuple[Instruction, ...]
    outputs: Any
    """Values and constants, in tuples, lists and dicts."""
    guards: tuple[Guard, ...] = ()
    """What has to be equal of the inputs for the types to hold."""

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """The values among the outputs."""
        return tuple(values_in(self.outputs))

    def __str__(self) -> str:
        lines = [f"program({', '.join(f'{each.name}: {each.type}' for each in self.inputs)}):"]
        lines += [f"  guard {guard}" for guard in self.guards]
        lines += [f"  {each}" for each in self.instructions]
        return "\n".join([*lines, f"  return {text_of(self.outputs)}"])


def values_in(given: Any) -> Iterator[Value]:
    """The values in arguments or results, from left to right."""
    if isinstance(given, Value):
        yield given
    elif isinstance(given, (tuple, list)):
        for part in given:
            yield from values_in(part)
    elif isinstance(given, dict):
        for part in given.values():
            yield from values_in(part)
    elif isinstance(given, slice):
        yield from values_in((given.start, given.stop, given.step))


def replaced(given: Any, change: Callable[[Any], Any]) -> Any:
    """Arguments or results with `change` applied to each of their parts that has no parts itself."""
    if isinstance(given, (tuple, list)):
        parts = [replaced(part, change) for part in given]
        if isinstance(given, tuple) and hasattr(given, "_fields"):
            return type(given)(*parts)
        if hasattr(type(given), "n_sequence_fields"):  # as torch's functions of several results give
            return type(given)(parts)
        return tuple(parts) if isinstance(given, tuple) else parts
    if isinstance(given, dict):
        return {name: replaced(part, change) for name, part in given.items()}
    if isinstance(given, slice):
        return slice(*(replaced(part, change) for part in (given.start, given.stop, given.step)))
    return change(given)


def text_of(given: Any) -> str:
    """Arguments or results as a program shows them."""
    if isinstance(given, Value):
        return str(given.name)
    if isinstance(given, tuple):
        return f"({', '.join(map(text_of, given))}{',' if len(given) == 1 else ''})"
    if isinstance(given, list):
        return f"[{', '.join(map(text_of, given))}]"
    if isinstance(given, dict):
        return f"{{{', '.join(f'{name!r}: {text_of(part)}' for name, part in given.items())}}}"
    if isinstance(given, slice):
        return ":".join("" if part is None else text_of(part) for part in (given.start, given.stop, given.step))
    return repr(given) if isinstance(given, (str, float, complex)) else str(given)


def hashable(given: Any, change: Callable[[Any], Any] = lambda part: part) -> Any:
    """Arguments as something that can be compared and hashed; numbers of several types are told apart. `change` is
    applied to each part that has no parts itself."""
    if isinstance(given, (tuple, list)):
        return type(given), tuple(hashable(part, change) for part in given)
    if isinstance(given, dict):
        return dict, tuple((name, hashable(part, change)) for name, part in given.items())
    if isinstance(given, slice):
        return slice, hashable((given.start, given.stop, given.step), change)
    if isinstance(given, (bool, int, float, complex)):
        return type(given), repr(given)
    return change(given)
