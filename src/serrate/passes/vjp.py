"""The pass vjp makes the way back of a program, by the rules of its operations.

The result is one joint program: it is given what the program is given and a gradient for each of its results, and gives
the gradients of the inputs that are asked for. `halves` cuts it in two: the way forward gives what the way back needs,
as far as that costs less than computing it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import torch

from serrate.lowering import parts
from serrate.lowering.forms import form_of
from serrate.lowering.keys import DRAW
from serrate.ops.derivatives import run_body, vjp
from serrate.ops.effects import FROM_RANKED
from serrate.ops.record import BY_TORCH, TABLE, Op
from serrate.ops.recording import Names, NotRecorded, record_calls
from serrate.passes import common_subexpressions, dead_code
from serrate.program.guards import Guard, Known
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import RaggedAxis, TensorType, Value

NAME = "vjp"

RECORD = TensorType(torch.uint8, torch.device("cpu"), (), None, (0,), (0,))
"""The type of the record of a library call, which torch's autograd goes back along."""


@dataclass(frozen=True)
class Joint:
    """A program with its way back."""

    forward: Program
    """The program, in which operations without a rule are taken apart."""
    back: tuple[Instruction, ...]
    gradients: tuple[Value, ...]
    """The gradients that are given, one for each result in `results`."""
    results: tuple[Value, ...]
    """The results that have gradients."""
    wanted: tuple[Value, ...]
    """The inputs whose gradients are computed."""
    found: tuple[Value | None, ...]
    """Their gradients; None for an input whose gradient no rule gives, since no result depends on it or all that
    depend on it are constant between steps."""
    reached: tuple[frozenset[Value], ...]
    """For each of these inputs the results that depend on it; some of them may be constant between steps."""
    meets: Mapping[Value, frozenset[Value]]
    """For each result those whose way back reads what its own way back reads of the way there; itself, too, if its way
    back reads anything."""
    part: Callable[[Iterable[Value]], Joint]
    """The way back from some of the results alone. Its `forward` is the same."""


class _Back:
    def __init__(self, program: Program, wanted: Iterable[Value], eager: Callable[[Op], Any]) -> None:
        self.eager = eager
        self.recorded: dict[int, Instruction] = {}
        """The library calls that torch's autograd goes back along, by their identity, with a record of each call."""
        self.reading: set[int] = set()
        """The instructions whose ways back read something of the way there, by their identity."""
        self.guards: tuple[Guard, ...] = program.guards
        taken = [str(value.name) for value in program.inputs]
        taken += [str(value.name) for each in program.instructions for value in each.results]
        self.names = Names(taken)
        self.program = program
        self.wanted = tuple(wanted)
        self.instructions: list[Instruction] = []
        self.found: dict[Value, Value] = {}
        weights = {step.result: _weights(step) for step in program.instructions if step.op == "group_by"}
        given = [_as_operation(each, weights) for each in program.instructions]
        self.steps = [part for each in given for part in self._with_rules(each)]
        self.active = set(self.wanted)
        # For each value the inputs that it depends on. A result that does not change with them has gradients, too,
        # which are 0.
        self.reached = {value: frozenset([value]) for value in self.wanted}
        for step in self.steps:
            if is_cut(step):
                continue
            if not _is_flat(step) and self.active.intersection(elements_of(step)):
                self.active.update(value for value in step.results if _has_gradient(value))
            sources = frozenset[Value]().union(*(self.reached.get(value, ()) for value in elements_of(step)))
            if sources:
                self.reached.update((value, sources) for value in step.results if _has_gradient(value))
        self.results = tuple(dict.fromkeys(v for v in program.results if v in self.reached and v not in program.inputs))
        self.gradients = {value: Value(value.type, self.names.fresh("g")) for value in self.results}

    def run(self, results: Iterable[Value]) -> Joint:
        """The way back from these results."""
        results = tuple(results)
        gradients = tuple(self.gradients[value] for value in results)
        self.instructions, self.found = [], {}
        for value, gradient in zip(results, gradients, strict=True):
            self._add(value, gradient)
        for step in reversed(self.steps):
            if self.active.intersection(step.results) and any(value in self.found for value in step.results):
                count = len(self.instructions)
                self._through(step)
                if any(map(_reads_way_there, self.instructions[count:], repeat(self._way_there))):
                    self.reading.add(id(step))
        found = tuple(self._like(value, self.found.get(value)) for value in self.wanted)
        steps = [self.recorded.get(id(step), step) for step in self.steps]
        forward = replace(self.program, instructions=tuple(steps), guards=self.guards)
        reached = tuple(frozenset(v for v in results if value in self.reached[v]) for value in self.wanted)
        return Joint(
            forward, tuple(self.instructions), gradients, results, self.wanted, found, reached, self._meets(), self.run
        )

    @cached_property
    def _way_there(self) -> frozenset[Value]:
        """The values of the way there."""
        return frozenset(self.program.inputs).union(*(step.results for step in self.steps))

    def _meets(self) -> dict[Value, frozenset[Value]]:
        """For each result those whose ways back lead through an instruction that its own leads through, too, and that
        reads something of the way there."""
        through: dict[Value, frozenset[int]] = {}
        for step in self.steps:
            if not is_cut(step):
                before = frozenset[int]().union(*(through.get(value, ()) for value in elements_of(step)))
                own = before | {id(step)} if id(step) in self.reading else before
                through.update((value, own) for value in step.results if value in self.reached)
        read = {value: through.get(value, frozenset()) for value in self.results}
        return {one: frozenset(v for v in self.results if read[v] & read[one]) for one in self.results}

    def _with_rules(self, step: Instruction) -> list[Instruction]:
        """An instruction, or those of its body, each of which has a rule or no derivative."""
        op = TABLE.get(step.op)
        if op is None or step.function is not None or op.vjp is not None or op.flat or op.body is None:
            return [step]
        if op.name == "attention":
            return [step]  # its body would store all scores, which torch's derivative of the kernel does not
        try:
            made = record_calls(
                lambda *arguments, **named: run_body(op, arguments, named),
                step.arguments, dict(step.named), self.names, guards=self.guards, title=step.op, memo=("body", step.op),
            )  # fmt: skip
        except (NotRecorded, TypeError):
            return [step]
        self.guards = made.guards
        results = dict(zip(values_of(made.result), step.results, strict=True))
        if any(one.type != other.type for one, other in results.items()):
            return [step]  # as under autocast, which knows the operation and not its body
        if not set(results) <= {value for part in made.instructions for value in part.results}:
            return [step]

        def renamed(part: Any) -> Any:
            return results.get(part, part) if isinstance(part, Value) else part

        parts = [
            replace(
                part,
                arguments=replaced(part.arguments, renamed),
                named=tuple((name, replaced(each, renamed)) for name, each in part.named),
                result=replaced(part.result, renamed),
                where=step.where,
            )
            for part in made.instructions
        ]
        return [inner for part in parts for inner in self._with_rules(part)]

    def _through(self, step: Instruction) -> None:
        """Add the gradients of what an instruction reads."""
        gradient = replaced(step.result, lambda part: self.found.pop(part, None) if isinstance(part, Value) else None)
        if step.op == FROM_RANKED:  # the same elements
            self._add(step.arguments[0], gradient)
            return
        op = TABLE.get(step.op)
        if op is None or step.function is not None or op.vjp in (BY_TORCH, None):
            self._by_torch(step, op, gradient)
            return
        try:
            made = record_calls(
                lambda g, out, arguments, named: vjp(op, arguments, named, out, g),
                (gradient, step.result, step.arguments, dict(step.named)), {}, self.names,
                guards=self.guards, title=f"the derivative of {step.op}", memo=("vjp", step.op),
            )  # fmt: skip
        except (NotRecorded, NotImplementedError):
            self._by_torch(step, op, gradient)
            return
        self.guards = made.guards
        self.instructions += [replace(part, where=step.where) for part in made.instructions]
        bound = op.signature.bind(*step.arguments, **dict(step.named))
        for name, part in zip(op.operands, made.result, strict=True):
            self._add_parts(bound.arguments.get(name), part)

    def _by_torch(self, step: Instruction, op: Op | None, gradient: Any) -> None:
        """Let torch's autograd find the gradients of an instruction. A library call keeps a record of itself for that;
        what kernels have a form for runs again."""
        function = step.function if op is None or step.function is not None else self.eager(op)
        assert function is not None
        inexact = tuple(dict.fromkeys(value for value in step.operands if _has_gradient(value)))
        asked = tuple(value in self.active for value in inexact)
        operands = tuple(value for value in inexact if value in self.active)
        made = tuple(Value(value.type, self.names.fresh()) for value in operands)
        given: tuple[Any, ...] = (gradient, step.arguments, dict(step.named))
        if form_of(step) is None:
            if id(step) not in self.recorded:
                record = Value(RECORD, self.names.fresh("record"))
                self.recorded[id(step)] = replace(
                    step, function=parts.with_record(function, asked), result=(step.result, record)
                )
            given = (*given, self.recorded[id(step)].result[1])
        back = parts.by_torch(function, asked)
        self.instructions.append(
            Instruction(f"vjp of {step.op}", given, (), made, back, where=step.where, autocast=step.autocast)
        )
        for value, part in zip(operands, made, strict=True):
            self._add(value, part)

    def _add_parts(self, operand: Any, gradient: Any) -> None:
        if operand is None or gradient is None:
            return
        if isinstance(operand, (tuple, list)):
            for each, part in zip(operand, gradient, strict=True):
                self._add_parts(each, part)
        elif isinstance(operand, Value) and isinstance(gradient, Value) and operand in self.active:
            self._add(operand, gradient)

    def _add(self, value: Value, gradient: Value) -> None:
        """Add a gradient to what is known of the value's."""
        before = self.found.get(value)
        if before is not None:
            made = record_calls(
                TABLE["add"].function, (before, gradient), {}, self.names, guards=self.guards, title="add", memo="add"
            )
            self.guards = made.guards
            self.instructions += made.instructions
            gradient = made.result
        self.found[value] = gradient

    def _like(self, value: Value, gradient: Value | None) -> Value | None:
        """A gradient that is stored as the input is."""
        known = Known(self.guards)
        if gradient is None or _stored(gradient, known) == _stored(value, known):
            return gradient
        made = Value(value.type, self.names.fresh())
        self.instructions.append(Instruction("laid out like", (gradient, value), (), made, parts.laid_out_like))
        return made


def joint(program: Program, wanted: Iterable[Value], eager: Callable[[Op], Any]) -> Joint:
    """The program with its way back to the `wanted` inputs. `eager` gives the implementation of an operation that torch
    can differentiate."""
    made = _Back(program, wanted, eager)
    return made.run(made.results)


@dataclass(frozen=True)
class Halves:
    """A program and its way back, each on its own."""

    forward: Program
    """Its outputs are those of the program, the values that are saved, and the keys that were drawn."""
    back: Program
    """Its inputs are the saved values, and then the gradients."""
    saved: tuple[Value, ...]
    recomputed: tuple[str, ...]
    """The operations of the way forward that the way back computes again."""


def halves(
    given: Joint, is_cheap: Callable[[Instruction], bool], draws: frozenset[str], stored: frozenset[Value] = frozenset()
) -> Halves:
    """The two halves: what the way back needs is saved, unless it follows from what is saved by cheap operations. What
    is `stored` on the way forward in any case is saved, too, since that costs no time."""
    makers = {value: step for step in given.forward.instructions for value in step.results}
    back = Program((), given.back, tuple(each for each in given.found if each is not None), ())
    back = dead_code.run(back)
    made_back = {value for step in back.instructions for value in step.results}
    needed = [v for step in back.instructions for v in step.operands] + list(back.results)
    free = {*given.forward.results, *given.forward.inputs, *stored}
    saved: dict[Value, None] = {}
    again: dict[int, Instruction] = {}

    def need(value: Value) -> None:
        stack = [value]
        while stack:
            each = stack.pop()
            if each in made_back or each in given.gradients or each in saved:
                continue
            step = makers.get(each)
            if step is None or each in free or not is_cheap(step):
                saved[each] = None
            elif id(step) not in again:
                again[id(step)] = step
                stack += step.operands

    for step in back.instructions:
        # What is computed again may be rounded in another way, and would then equal nothing that was computed of it.
        for value in step.operands if step.op in ("equal", "not_equal") else ():
            if value in makers and value not in free and not _is_exact(value):
                saved[value] = None
    for value in needed:
        need(value)
    recomputed = [step for step in given.forward.instructions if id(step) in again]
    inside = _with_again(given, back, recomputed, tuple(saved), draws)
    keys = tuple(value for step in given.forward.instructions if step.op == DRAW for value in step.results)
    forward = replace(given.forward, outputs=(given.forward.outputs, tuple(saved), keys))
    forward = dead_code.run(common_subexpressions.run(forward, lambda step: step.op not in draws), draws)
    return Halves(forward, inside, tuple(saved), tuple(step.op for step in recomputed))


def part_of(given: Joint, saved: tuple[Value, ...], draws: frozenset[str]) -> Program | None:
    """The way back from some of the results alone, given what is saved for the way back from all of them, and the
    gradients of these results. None if it needs more than that."""
    makers = {value: step for step in given.forward.instructions for value in step.results}
    back = Program((), given.back, tuple(each for each in given.found if each is not None), ())
    back = dead_code.run(back)
    made = {value for step in back.instructions for value in step.results}.union(saved, given.gradients)
    again: dict[int, Instruction] = {}
    stack = [value for step in back.instructions for value in step.operands] + list(back.results)
    while stack:
        each = stack.pop()
        if each in made:
            continue
        step = makers.get(each)
        if step is None:
            return None
        if id(step) not in again:
            again[id(step)] = step
            stack += step.operands
    recomputed = [step for step in given.forward.instructions if id(step) in again]
    return _with_again(given, back, recomputed, saved, draws)


def _with_again(
    given: Joint, back: Program, again: list[Instruction], saved: tuple[Value, ...], draws: frozenset[str]
) -> Program:
    """A way back behind what it computes again, given what is saved and gradients."""
    inside = replace(back, instructions=(*again, *back.instructions))
    inside = common_subexpressions.run(inside, lambda step: step.op not in draws)
    return replace(inside, inputs=(*saved, *given.gradients), guards=given.forward.guards)


def _reads_way_there(step: Instruction, way_there: frozenset[Value]) -> bool:
    """Whether an instruction of a way back reads elements of the way there, and not only how they are arranged."""
    op = TABLE.get(step.op)
    if step.function is parts.laid_out_like or (op is not None and op.flat and op.primitive != "scalar"):
        return False
    return not way_there.isdisjoint(elements_of(step))


def elements_of(step: Instruction) -> tuple[Value, ...]:
    """The operands of an instruction whose elements it reads: of some, it reads only how they are arranged."""
    op = TABLE.get(step.op)
    if op is None or step.function is not None or op.name not in _ARRANGED_LIKE:
        return step.operands
    bound = op.signature.bind(*step.arguments, **dict(step.named))
    return Instruction("", tuple(part for name, part in bound.arguments.items() if name != "like"), (), ()).operands


_ARRANGED_LIKE = ("expand_like", "collect", "distribute", "from_dense")
"""Operations of which the operand `like` says only how the result is arranged."""


def _as_operation(step: Instruction, weights: Mapping[Value, Any]) -> Instruction:
    """An instruction, or for rows that go back from groups the operation, which is told the weights of the groups:
    they have gradients, too."""
    if step.function is not parts.ungroup:
        return step
    groups, y = step.arguments
    return replace(step, op="Grouped.ungroup", arguments=(groups, y, weights.get(groups)), function=None)


def _weights(step: Instruction) -> Any:
    """The weights that rows are grouped with."""
    bound = TABLE[step.op].signature.bind(*step.arguments, **dict(step.named))
    return bound.arguments.get("weights")


def _is_exact(value: Value) -> bool:
    """Whether a value is the same however it is computed: truths and whole numbers are."""
    return not _has_gradient(value)


def values_of(given: Any) -> tuple[Value, ...]:
    """The values in a result."""
    return Instruction("", (), (), given).results


def _stored(value: Value, known: Known) -> tuple[Any, ...]:
    """How a value is stored, with one name for what is taken for equal."""
    kind = value.type
    partitions = tuple(map(known.partition, kind.partitions))
    sizes = tuple(axis for axis in kind.axes if not isinstance(axis, RaggedAxis))
    return kind.dtype, partitions, tuple(map(known.size, (*sizes, *kind.features))), kind.order


def _has_gradient(value: Value) -> bool:
    return value.type.dtype.is_floating_point or value.type.dtype.is_complex


def _is_flat(step: Instruction) -> bool:
    op = TABLE.get(step.op)
    return op is not None and step.function is None and bool(op.flat)


_DRAWN_LIKE = ("torch.rand_like", "torch.randn_like", "torch.randint_like")
"""Functions of torch whose results do not depend on the elements of their operand."""


def is_cut(step: Instruction) -> bool:
    """Whether torch asks for no gradient of what an instruction gives: gradients are stopped, or elements do not count.

    A function of elements that is constant between steps has the gradient 0 there.
    """
    op = TABLE.get(step.op)
    if op is None or step.function is not None:
        return step.op in _DRAWN_LIKE
    return op.primitive == "stop_gradient" or (bool(op.flat) and op.primitive != "scalar")
