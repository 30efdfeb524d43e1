"""Tracing: a function runs once on tensors that have types and no elements, and its calls become a Program."""

from __future__ import annotations

import functools
import os.path
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from serrate.compiler.numbers import DTYPES, TracedNumber, kind_of
from serrate.compiler.refusing import refuse, users_line
from serrate.compiler.spellings import TorchFunctions, as_ours, is_plain_operand, tensors_in
from serrate.compiler.traced import Traced, give_operators
from serrate.compiler.traced_sizes import TracedPartition, TracedSize, traced_size
from serrate.fusion import elementwise
from serrate.lowering import parts, views
from serrate.ops import answers
from serrate.ops.call import TRACER
from serrate.ops.meta import Typed, call_name, found_at_points, given_at
from serrate.ops.record import TABLE, Op
from serrate.ops.recording import Names, NotRecorded, record_calls
from serrate.ops.remembering import answer_to, question, remember
from serrate.passes.vjp import is_cut
from serrate.program.guards import Guard, Known
from serrate.program.inputs import Inputs
from serrate.program.partitions import Call, Expression
from serrate.program.program import Instruction, Program, replaced
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, TensorType, Value
from serrate.tensor import promotion
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor

give_operators()
_CURRENT: ContextVar[Trace | None] = ContextVar("serrate trace", default=None)


def current() -> Trace:
    """The trace of this thread."""
    found = _CURRENT.get()
    if found is None:
        refuse("a traced tensor is used after its trace has ended", "return it from the function instead")
    return found


class Trace:
    """One run of a function, and the calls that it made."""

    def __init__(self, *, is_static: bool = False) -> None:
        self.is_static = is_static
        """Whether sizes of first axes are numbers, too."""
        self.inputs = Inputs()
        self.names = Names()
        self.instructions: list[Instruction] = []
        self.guards: tuple[Guard, ...] = ()
        self.given: list[Value] = []
        """The values that the program is given: arguments, then captured tensors."""
        self.captured: list[Tensor | torch.Tensor] = []
        self._captured: dict[int, Value] = {}
        self.partitions: dict[Expression, Partition] = {}
        """The partitions that the function found outside of its arguments."""
        self._differentiable: set[Value] = set()
        self.written: list[int] = []
        """The numbers of the arguments that were written to; what they hold comes behind what is returned."""
        self.is_over = False
        self.arguments: list[Traced] = []
        self.plain: list[bool] = []
        """For each value that is returned whether it is a torch tensor there."""

    # -------------------------------------------------------------------------------------------------------- run

    def argument(
        self, given: Tensor | torch.Tensor, name: str, requires_grad: bool, loose: frozenset[int] = frozenset()
    ) -> Traced:
        """What stands for an argument, whose `loose` features have sizes that differ from call to call."""
        is_static = self.is_static or isinstance(given, torch.nn.Parameter)
        value = Value(self.inputs.type_of(given, is_static=is_static, loose=loose), name)
        if requires_grad:
            self._differentiable.add(value)
        self.given.append(value)
        made = Traced.of(value, self, is_plain=isinstance(given, torch.Tensor))
        self.arguments.append(made)
        return made

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Program:
        """The program of a function of these arguments."""
        trace, tracer = _CURRENT.set(self), TRACER.set(self)
        try:
            with TorchFunctions(self):
                result = function(*arguments, **named)
            outputs = replaced(result, self._output)
            self.written = [n for n, each in enumerate(self.arguments) if each.value != self.given[n]]
            if self.written:
                self.plain += [False] * len(self.written)
                outputs = (outputs, tuple(self.arguments[number].value for number in self.written))
        finally:
            TRACER.reset(tracer)
            _CURRENT.reset(trace)
            self.is_over = True
        return Program(tuple(self.given), tuple(self.instructions), outputs, self.guards)

    def _output(self, part: Any) -> Any:
        """A part of what the function returns."""
        if isinstance(part, TracedSize):
            return part.size
        if isinstance(part, TracedNumber):
            part.pin()
        if isinstance(part, Traced):
            self.plain.append(part.is_plain)
            # An argument is returned as itself, after it was written to, too.
            places = [number for number, each in enumerate(self.arguments) if each is part]
            return self.given[places[0]] if places else part.value
        if isinstance(part, (Tensor, torch.Tensor)):
            self.plain.append(isinstance(part, torch.Tensor))
            return self._capture(part)
        return part

    # ------------------------------------------------------------------------------------------------------ calls

    def __call__(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        """What the tracer answers to a call of an operation."""
        if op.writes:
            return self._write(op, arguments, named, spelling)
        count = len(self.instructions)
        result = self._recorded(op, arguments, named, spelling)
        if len(self.instructions) == count + 1 and isinstance(result, Traced):
            self._link(result, arguments[0] if arguments else None, self.instructions[-1])
        # torch's functions and methods of torch tensors give torch tensors.
        asks = spelling is not None or op.home == "Tensor"
        return (
            self.plain_result(result) if asks and all(map(is_plain_operand, tensors_in((arguments, named)))) else result
        )

    def _recorded(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        if any(isinstance(part, TracedNumber) for part in arguments) and elementwise.is_known(op.name):
            arguments = self._with_numbers(op, arguments)
        given, options = replaced((arguments, named), self.typed)
        file, line, _ = users_line()
        where = f"{os.path.basename(file)}:{line}"
        if spelling is None:
            return self._wrapped(self._called(op, given, options, where))
        try:
            found = record_calls(
                op.spellings[spelling], given, options, self.names,
                guards=self.guards, title=spelling.__name__, memo=("spelling", op.name, spelling),
            )  # fmt: skip
        except NotRecorded:
            return self._wrapped(self._called(op, given, options, where, spelling))
        self.guards = found.guards
        for each in found.instructions:
            self._enter(each, where)
        return self._wrapped(found.result)

    def _with_numbers(self, op: Op, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands of an elementwise operation, with tensors of the right dtype for numbers."""
        tensors = [part for part in arguments if isinstance(part, (Tensor, torch.Tensor))]
        chosen = tensors[1:] if op.name == "where" and len(tensors) > 1 else tensors
        if not chosen:
            return arguments
        dtype = functools.reduce(promotion.promote, [each.dtype for each in chosen])
        return tuple(
            Traced.of(part.beside(dtype), self) if isinstance(part, TracedNumber) else part for part in arguments
        )

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """A value in another dtype."""
        if value.type.dtype == dtype:
            return value
        result: Value = self._called(TABLE["astype"], (value, dtype), {}, "")
        return result

    def arithmetic(self, name: str, *numbers: Any) -> TracedNumber:
        """What Python computes of numbers, some of which differ from call to call."""
        kind = float if name == "divide" and kind_of(*numbers) is int else kind_of(*numbers)
        given = [
            self.cast(each.value, DTYPES[kind]) if isinstance(each, TracedNumber) else kind(each) for each in numbers
        ]
        places = frozenset[int]().union(*(each.places for each in numbers if isinstance(each, TracedNumber)))
        value = self._called(TABLE[name], tuple(given), {}, "")
        return TracedNumber(value, kind, places, self)

    def beside_tensor(self, name: str, *operands: Any) -> Any:
        """An elementwise operation of a tensor and a number that differs from call to call."""
        made = self(TABLE[name], operands, {}, None)
        return self.plain_result(made) if all(map(is_plain_operand, tensors_in(operands))) else made

    def number(self, kind: type, place: int) -> TracedNumber:
        """What stands for a Python number that differs from call to call."""
        made = TensorType(DTYPES[kind], torch.device("cpu"), (), None, (), (), program=self.inputs.program)
        value = Value(made, f"number{place}")
        self.given.append(value)
        return TracedNumber(value, kind, frozenset({place}), self)

    def _called(
        self,
        op: Op,
        given: tuple[Any, ...],
        options: dict[str, Any],
        where: str,
        spelling: Callable[..., Any] | None = None,
    ) -> Any:
        """The values that a call of an operation gives, after an instruction for it was entered."""
        ours = None if spelling is None else as_ours(op, spelling, given, options)
        if ours is not None:
            spelling, (given, options) = None, ours
        function = op.implementations[-1].function if spelling is None else op.spellings[spelling]
        return self._entered(
            op.name, call_name(op, given, options, spelling), function, given, options, where, spelling
        )

    def _entered(
        self,
        name: str,
        call: Call,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        options: dict[str, Any],
        where: str,
        spelling: Callable[..., Any] | None = None,
    ) -> Any:
        """The values that a function gives for arguments on types, after an instruction for it was entered."""

        decides = name in TABLE and bool(TABLE[name].decides)
        asked = None if decides else question("result", name, spelling, given, options, self.guards)
        found = answer_to(asked, self.inputs.program)
        if found is None:
            found = self._found(name, call, function, given, options)
            remember(asked, found)
        self.guards = found.guards
        result = replaced(
            found.result, lambda part: Value(part, self.names.fresh()) if isinstance(part, TensorType) else part
        )
        self._enter(Instruction(name, given, tuple(options.items()), result, spelling), where)
        return result

    def _found(
        self, name: str, call: Call, function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]
    ) -> Typed:
        """The types of what a function gives, found by a run on tensors without elements."""

        def at(run: Any) -> Any:
            token = TRACER.set(None)
            try:
                with run.entered(), torch._C.DisableTorchFunctionSubclass():
                    inside = replaced((given, options), lambda part: given_at(run, part))
                    result = function(*inside[0], **inside[1])
                    return replaced(
                        result, lambda part: run.type_of(part) if isinstance(part, (Tensor, torch.Tensor)) else part
                    )
            finally:
                TRACER.reset(token)

        return found_at_points(name, at, call, self.inputs.program, guards=self.guards)

    def _enter(self, instruction: Instruction, where: str) -> None:
        made = Instruction(
            instruction.op,
            instruction.arguments,
            instruction.named,
            instruction.result,
            instruction.function,
            instruction.region,
            where,
        )
        self.instructions.append(made)
        if torch.is_grad_enabled() and not is_cut(made) and not self._differentiable.isdisjoint(made.operands):
            self._differentiable.update(
                value for value in made.results if value.type.dtype.is_floating_point or value.type.dtype.is_complex
            )

    def _write(self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Any) -> Any:
        """A write becomes a new value, which the tensor stands for from now on."""
        x = arguments[0]
        if not isinstance(x, Traced):
            refuse(
                f"{op.name} writes to a tensor that is no argument",
                "give the tensor as an argument, so that the write can be made after the last kernel",
            )
        if spelling is not None:
            return op.spellings[spelling](*arguments, **named)
        file, line, _ = users_line()
        given, options = replaced((arguments, named), self.typed)
        function = parts.as_function(op)
        value = self._entered(
            f"{op.name}", call_name(op, given, options), function, given, options, f"{os.path.basename(file)}:{line}",
            function,
        )  # fmt: skip
        x.rebind(value)
        return None if op.name == "Tensor.setitem" else x

    def _link(self, view: Traced, base: Any, made: Instruction) -> None:
        """Let a tensor that eager code would make as a view see what is written to its base, and the other way."""
        if not isinstance(base, Traced) or made.operands[:1] != (base.value,) or not views.is_view(made):
            return
        where = made.where

        def derived(value: Value) -> Value:
            arguments = (value, *made.arguments[1:])
            return self._called(TABLE[made.op], arguments, dict(made.named), where)  # type: ignore[no-any-return]

        def written(value: Value, part: Value) -> Value:
            write = views.writer(made)
            given = (value, part, *made.arguments[1:])
            call = Call(f"written through {made.op}", (object(),))
            return self._entered(  # type: ignore[no-any-return]
                f"written through {made.op}", call, write, given, dict(made.named), where, write
            )

        view.follow(base, derived, written)

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch that is called with a traced tensor, or with captured ones alone."""
        op = answers.SPELLED.get(function)
        if op is not None:
            return self.plain_result(self(op, args, kwargs, function))
        if function in answers.QUESTIONS:
            return answers.QUESTIONS[function](*args, **kwargs)
        given, options = replaced((args, kwargs), self.typed)
        tensors = Instruction("", given, tuple(options.items()), ()).operands
        name = f"torch.{getattr(function, '__name__', function)}"
        if any(value.type.axes for value in tensors):
            return answers.answer(function, args, kwargs)
        if getattr(function, "__name__", "").endswith("_") and not getattr(function, "__name__", "").endswith("__"):
            refuse(f"{name} writes to its operand", "use the function without the underscore")
        file, line, _ = users_line()
        run = parts.of_torch(function)
        result = self._entered(
            name, Call(name, (object(),)), run, given, options, f"{os.path.basename(file)}:{line}", run
        )
        return self._wrapped(result, is_plain=True)

    def part(self, x: Traced, name: str, *arguments: Any) -> Any:
        """The packed values of a tensor, its offsets or its lengths, as a torch tensor."""
        if name == "values" and not x.is_ragged:
            return Traced.of(x.value, self, is_plain=True)
        run = parts.PARTS[name]
        given = (x.value, *map(self.typed, arguments))
        result = self._entered(f"x.{name}", Call(name, (object(),)), run, given, {}, "", run)
        return self._wrapped(result, is_plain=name != "ungroup")

    # ----------------------------------------------------------------------------------------- between both worlds

    def typed(self, part: Any) -> Any:
        """A part of arguments as instructions have it."""
        if isinstance(part, Traced):
            if part.trace is not self:
                refuse("a tensor of another trace is used", "return it from the function that made it")
            return part.value
        if isinstance(part, (Tensor, torch.Tensor)):
            return self._capture(part)
        if isinstance(part, TracedSize):
            return part.size
        if isinstance(part, TracedNumber):
            part.pin()
        if isinstance(part, TracedPartition):
            return part.expression
        if isinstance(part, Ragged):
            return RaggedAxis(self._partition(part.partition), part.parents)
        return self._partition(part) if isinstance(part, Partition) else part

    def _partition(self, given: Partition) -> Expression:
        if isinstance(given, TracedPartition):
            return given.expression
        expression = self.inputs.partition_of(given)
        self.partitions[expression] = given
        return expression

    def _capture(self, given: Tensor | torch.Tensor) -> Value:
        """The value of a tensor that the function found outside of its arguments."""
        if id(given) not in self._captured:
            value = Value(self.inputs.type_of(given, is_static=True, apart=True), f"captured{len(self.captured)}")
            self._captured[id(given)] = value
            self.captured.append(given)
            self.given.append(value)
            if given.requires_grad:
                self._differentiable.add(value)
        return self._captured[id(given)]

    def _wrapped(self, result: Any, is_plain: bool = False) -> Any:
        """A result as the function sees it."""

        def seen(part: Any) -> Any:
            if isinstance(part, Value):
                return Traced.of(part, self, is_plain)
            return traced_size(part) if isinstance(part, Polynomial) else part

        return replaced(result, seen)

    def plain_result(self, result: Any) -> Any:
        """A result as torch's callers expect it: without a ragged axis, a torch tensor."""

        def seen(part: Any) -> Any:
            if isinstance(part, Traced) and not part.is_ragged and not part.is_plain:
                return Traced.of(part.value, self, is_plain=True)
            return part

        return replaced(result, seen)

    # --------------------------------------------------------------------------------------------------- questions

    def needs_gradient(self, value: Value) -> bool:
        """Whether a value depends on an argument that needs a gradient."""
        return value in self._differentiable

    def is_input(self, value: Value) -> bool:
        """Whether a value was given."""
        return value in self.given

    @property
    def known(self) -> Known:
        """What the guards say."""
        return Known(self.guards)
