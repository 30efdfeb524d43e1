"""inline-calls: a program and those that it calls become one program.

An instruction whose operation is called `@name` calls the program of that name. Its instructions take the place of the
call: their values get names of their own, and the sizes and partitions of its inputs become those of the operands. The
types of results are found again for these, of which more may be known than of the inputs of the called program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from serrate.lowering.factories import FACTORIES, made_by
from serrate.ops.checking import found_types, has_rule, types_in
from serrate.ops.recording import Names
from serrate.passes.matching import Matching, Mismatch
from serrate.program.guards import Guard, Known
from serrate.program.partitions import Expression
from serrate.program.program import Instruction, Program
from serrate.program.substitution import Substitution
from serrate.program.types import Value

NAME = "inline-calls"


class CannotInline(ValueError):
    """This error is raised for a call that does not fit the program that it calls, and says why."""


def callee_of(instruction: Instruction) -> str | None:
    """The name of the program that an instruction calls; None if it calls none."""
    return instruction.op[1:] if instruction.op.startswith("@") else None


def callees_of(program: Program) -> list[str]:
    """The names of the programs that a program calls, each once."""
    found = (callee_of(each) for each in program.instructions)
    return list(dict.fromkeys(name for name in found if name is not None))


def run(programs: Mapping[str, Program]) -> dict[str, Program]:
    """The programs that no other calls, each one with what it calls in the places of calls.

    >>> import torch
    >>> from serrate.passes import inline_calls
    >>> from serrate.program.inputs import Inputs
    >>> from serrate.program.program import Instruction, Program
    >>> from serrate.program.types import Value
    >>> a, b, x, y = (Value(Inputs().type_of(torch.ones(3)), name) for name in "abxy")
    >>> twice = Program((a,), (Instruction("multiply", (a, 2), (), b),), b)
    >>> main = Program((x,), (Instruction("@twice", (x,), (), y),), y)
    >>> print(inline_calls.run({"twice": twice, "main": main})["main"])
    program(x: float32[n0] on cpu):
      v0: float32[n0] on cpu = multiply(x, 2)
      return v0
    """
    called = {name for program in programs.values() for name in callees_of(program)}
    return {name: inlined(program, programs) for name, program in programs.items() if name not in called}


def inlined(program: Program, programs: Mapping[str, Program]) -> Program:
    """A program with those that it calls in the places of calls."""
    if not callees_of(program):
        return program
    taken = [str(value.name) for value in program.inputs]
    taken += [str(value.name) for each in program.instructions for value in each.results]
    inliner = Inliner(programs, Names(taken), program.guards, _stamp(program.inputs))
    inside = Matching(known=Known(program.guards), change_function=_with_other_sizes)
    made = inliner.steps(program, inside, keeps_names=True)
    return replace(program, instructions=tuple(made), outputs=inside.parts(program.outputs))


class Inliner:
    """Puts instructions in the places of calls."""

    def __init__(
        self, programs: Mapping[str, Program], names: Names, guards: tuple[Guard, ...], stamp: int | None
    ) -> None:
        self.programs, self.names, self.guards, self.stamp = programs, names, guards, stamp
        self._known = Known(guards)
        self._open: list[str] = []

    def call(self, name: str, operands: Sequence[Value]) -> tuple[list[Instruction], tuple[Value, ...]]:
        """The instructions of the program of a name for operands, and the values that it gives."""
        if name in self._open:
            way = " calls ".join(f"@{each}" for each in (*self._open[self._open.index(name) :], name))
            raise CannotInline(f"a function may not call itself, and {way}")
        if name not in self.programs:
            there = ", ".join(f"@{each}" for each in self.programs) or "none"
            raise CannotInline(f"there is no function @{name}; there are {there}")
        program = self.programs[name]
        if len(operands) != len(program.inputs):
            raise CannotInline(f"@{name} takes {len(program.inputs)} operands, and {len(operands)} are given")
        inside = Matching(known=self._known, change_function=_with_other_sizes, tokens={})
        for number, (given, value) in enumerate(zip(operands, program.inputs, strict=True)):
            try:
                inside.match(value.type, given.type)
            except Mismatch as error:
                raise CannotInline(
                    f"operand {number} of @{name} is {given.type}, and the function takes {value.type}: {error}"
                ) from None
            inside.values[value] = given
        for guard in program.guards:
            self._require(inside.guard(guard), f"@{name}")
        self._open.append(name)
        made = self.steps(program, inside)
        self._open.pop()
        return made, tuple(inside.parts(list(program.results)))

    def steps(self, program: Program, inside: Matching, keeps_names: bool = False) -> list[Instruction]:
        """The instructions of a program for what stands for its inputs."""
        made: list[Instruction] = []
        for step in program.instructions:
            callee = callee_of(step)
            given, named, function = inside.parts((step.arguments, step.named, step.function))
            if callee is not None:
                steps, results = self.call(callee, replace(step, arguments=given).operands)
                made += (replace(each, where=each.where or step.where) for each in steps)
            else:
                step_given = replace(step, arguments=given, named=named, function=function)
                results = self._results(step, step_given, inside, keeps_names)
                inside.values.update(zip(step.results, results, strict=True))
                made.append(replace(step_given, result=inside.parts(step.result)))
            for value, other in zip(step.results, results, strict=True):
                inside.learn(value.type, other.type)
                inside.values[value] = other
        return made

    def _results(
        self, step: Instruction, given: Instruction, inside: Substitution, keeps_names: bool
    ) -> tuple[Value, ...]:
        """The values that an instruction makes for other operands."""
        if has_rule(step):
            found = found_types(given, self.guards, self.stamp)
            for guard in found.guards[len(self.guards) :]:
                self._require(guard, step.op)
            types = types_in(found.result)
        else:
            types = [replace(inside.type(value.type), program=self.stamp) for value in step.results]
        names = [value.name if keeps_names else self.names.fresh() for value in step.results]
        return tuple(Value(kind, name) for kind, name in zip(types, names, strict=True))

    def _require(self, guard: Guard, what: str) -> None:
        """Refuse what has to be equal, and is not said to be."""
        one, other = (
            self._known.partition(each) if isinstance(each, Expression) else self._known.size(each)
            for each in guard.sides
        )
        if one != other:
            raise CannotInline(f"{what} needs the guard {guard}, which ptensor.guards does not have")


def _with_other_sizes(function: Callable[..., Any], inside: Substitution) -> Callable[..., Any]:
    """A function of an instruction that was made of sizes and partitions, made of others."""
    found = made_by(function)
    if found is None:
        return function
    name, of = found
    made: Callable[..., Any] = FACTORIES[name](*inside.parts(of))
    return made


def _stamp(values: Sequence[Value]) -> int | None:
    """The `Inputs` that the types of a program come from."""
    return next((value.type.program for value in values if value.type.program is not None), None)
