"""Tracing: a function runs once on tensors that have types and no elements, and its calls become a Program."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch

from serrate.compiler.containers import opened, tensors_hidden_in
from serrate.compiler.mismatches import Called, devices_named
from serrate.compiler.numbers import Limit, Pinned, TracedNumber, size_as_number
from serrate.compiler.promoting import as_torch_promotes, narrow, require_one_dtype, with_numbers
from serrate.compiler.refusing import NOTED, is_inside_of_a_function_of_autograd, refuse, refuse_at, users_line
from serrate.compiler.spellings import (
    UNKNOWN,
    TorchFunctions,
    as_ours,
    is_plain_operand,
    loops,
    tensors_in,
    writes,
)
from serrate.compiler.traced import Traced, give_operators
from serrate.compiler.traced_sizes import TracedPartition, TracedSize, traced_size
from serrate.compiler.writing import (
    is_in_place,
    link,
    link_values,
    updates_statistics,
    write,
    write_by_torch,
    write_in_place,
    write_statistics,
)
from serrate.eager.precision import autocast_state
from serrate.fusion import elementwise
from serrate.lowering import parts
from serrate.lowering.keys import draws_from_torch
from serrate.ops import answers
from serrate.ops.call import TRACER
from serrate.ops.meta import call_name, typed
from serrate.ops.record import TABLE, Op
from serrate.ops.recording import Names, NotRecorded, record_calls
from serrate.ops.remembering import answer_to, question, remember
from serrate.passes.vjp import elements_of, is_cut
from serrate.program.guards import Guard, Known
from serrate.program.inputs import Inputs
from serrate.program.partitions import Call, Expression
from serrate.program.program import Instruction, Program, replaced
from serrate.program.sizes import Polynomial, Symbol
from serrate.program.types import RaggedAxis, TensorType, Value
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


_OTHER_VALUES = ("floor_divide", "remainder")
"""Functions of elements that torch and the array API compute differently at zeros and infinite numbers."""


def _where() -> str:
    """The line of the user's program that runs now, as instructions say it."""
    file, line, _ = users_line()
    return f"{os.path.basename(file)}:{line}"


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
        self.standing: dict[int, Traced] = {}
        """What stands for them; an entry is found by the identity of the tensor."""
        self.asked: dict[int, torch.Tensor] = {}
        """The tensors outside of the arguments that the function asked for facts, such as shapes, by their identity."""
        self.made_inside: dict[int, Any] = {}
        """The tensors that the function itself had torch make of nothing, by their identity."""
        self.partitions: dict[Expression, Partition] = {}
        """The partitions that the function found outside of its arguments."""
        self._differentiable: set[Value] = set()
        self._cut: dict[Value, Value] = {}
        """What stands for values where no gradients are recorded."""
        self._is_asked = False
        self._has_gradients, self._casts = torch.is_grad_enabled(), autocast_state()
        self.written: list[int] = []
        """The numbers of the inputs that were written to; what they hold comes behind what is returned."""
        self.not_one: set[Any] = set()
        """The sizes that differ from call to call, and are never 1."""
        self.pins: dict[Symbol, int] = {}
        """The sizes of features that differ from call to call, with the places of their tensors among the variables."""
        self.limits: dict[int, Limit] = {}
        """What numbers must be, by their places among the variables."""
        self.is_over = False
        self.call: Called | None = None
        """The function that runs, and its arguments."""
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
        self._is_asked |= given.requires_grad
        if not value.type.axes:  # a batch of one in a dense tensor is another signature
            self.not_one.update(size for size in value.type.features if not isinstance(size, int))
        self.given.append(value)
        made = Traced.of(value, self, is_plain=isinstance(given, torch.Tensor), is_given=True)
        self.arguments.append(made)
        return made

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Program:
        """The program of a function of these arguments."""
        trace, tracer = _CURRENT.set(self), TRACER.set(self)
        self.call = function, arguments, named
        noted: list[BaseException] = []
        noting = NOTED.set(noted)
        try:
            with TorchFunctions(self):
                try:
                    result = function(*arguments, **named)
                except TypeError as error:  # functions of C take Python's numbers alone, and name what they got instead
                    if "TracedNumber" in str(error) and self.limits:
                        raise Pinned(frozenset(self.limits)) from error
                    if "TracedSize" in str(error):
                        refuse_at(
                            error, "a size that differs from call to call is given to a function that takes Python's "
                            "numbers alone", "use operators, or functions of sr such as sr.zeros and sr.arange",
                        )  # fmt: skip
                    if "'Traced" in str(error):
                        raise NotImplementedError(f"a function of C takes no traced tensor: {error}") from error
                    raise
            outputs = replaced(opened(result), self._output)
            if noted:
                raise noted[0]
            written = self._written()
            if written:
                self.written = [self.given.index(before) for before, _ in written]
                self.plain += [False] * len(written)
                outputs = (outputs, tuple(after for _, after in written))
        finally:
            NOTED.reset(noting)
            TRACER.reset(tracer)
            _CURRENT.reset(trace)
            self.is_over, self.call = True, None
        return Program(tuple(self.given), tuple(self.instructions), outputs, self.guards)

    def _written(self) -> list[tuple[Value, Value]]:
        """The inputs that were written to, and what they hold in the end."""
        ours = [each for given, each in zip(self.captured, self.standing.values(), strict=True)
                if id(given) not in self.made_inside]  # fmt: skip
        pairs = [(each.first, each.value) for each in (*self.arguments, *ours)]
        return [(before, after) for before, after in pairs if before != after]

    def written_outside(self) -> list[Tensor | torch.Tensor]:
        """The tensors outside of the arguments that were written to."""
        first = len(self.given) - len(self.captured)
        return [self.captured[number - first] for number in self.written if number >= first]

    def _output(self, part: Any) -> Any:
        """A part of what the function returns."""
        if isinstance(part, TracedSize):
            return part.size
        if isinstance(part, TracedNumber):
            part.pin()
        if isinstance(part, Traced):
            self.plain.append(part.is_plain)
            # An argument is returned as itself, after it was written to, too.
            return part.first if part.is_given else part.value
        if isinstance(part, (Tensor, torch.Tensor)):
            self.plain.append(isinstance(part, torch.Tensor))
            return self._own(part)
        if isinstance(part, (Ragged, Partition)):
            return self.typed(part)
        if isinstance(part, Iterator):
            refuse(
                f"a {type(part).__name__} is returned", "return a list or a tuple, which the compiled function fills"
            )
        if any(isinstance(each, (Traced, TracedSize, TracedNumber)) for each in tensors_hidden_in(part)):
            refuse(
                f"an object of the class {type(part).__name__} that holds tensors is returned",
                "return tuples, lists, dicts or dataclasses, or register the class as a tree with torch",
            )
        return part

    def _own(self, given: Tensor | torch.Tensor) -> Value:
        """A tensor that is no traced one, as it is returned: itself, or another one in each call if made inside."""
        value = self.capture(given)
        if id(given) not in self.made_inside:
            return self.standing[id(given)].first
        run = parts.clone
        return self.entered("a copy", Call("clone", (object(),)), run, (value,), {}, "", run)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------------ calls

    def __call__(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        """What the tracer answers to a call of an operation."""
        if op.writes:
            return write(self, op, arguments, named, spelling)
        count = len(self.instructions)
        result = self._recorded(op, arguments, named, spelling)
        if len(self.instructions) == count + 1 and isinstance(result, Traced):
            link(self, result, arguments[0] if arguments else None, self.instructions[-1])
        # torch's functions and methods of torch tensors give torch tensors.
        asks = spelling is not None or op.home == "Tensor"
        if not asks or not all(map(is_plain_operand, tensors_in((arguments, named)))):
            return result
        return self.as_torch_returns(spelling, self.plain_result(result))

    def _recorded(
        self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None
    ) -> Any:
        if any(isinstance(part, (TracedNumber, TracedSize)) for part in arguments) and elementwise.is_known(op.name):
            arguments = tuple(
                size_as_number(self, part.size) if isinstance(part, TracedSize) else part for part in arguments
            )
            half = narrow(op, arguments)
            if half is not None:  # torch computes with the number itself, and rounds the result to the half type
                made = self._recorded(op, with_numbers(self, op, arguments, torch.float32), named, spelling)
                return self._wrapped(self.cast(made.value, half)) if made.dtype is torch.float32 else made
            arguments = with_numbers(self, op, arguments)
        given, options = replaced((arguments, named), self.typed)
        where = _where()
        if spelling is None:
            return self._wrapped(self.called(op, given, options, where))
        try:
            with devices_named(op.name, (given, options), self.instructions, self.call):
                found = record_calls(
                    op.spellings[spelling], given, options, self.names,
                    guards=self.guards, title=spelling.__name__, memo=("spelling", op.name, spelling),
                )  # fmt: skip
        except NotRecorded:
            return self._wrapped(self.called(op, given, options, where, spelling))
        self.guards = found.guards
        for each in found.instructions:
            self._enter(each, where)
        return self._wrapped(found.result)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """A value in another dtype."""
        if value.type.dtype == dtype:
            return value
        result: Value = self.called(TABLE["astype"], (value, dtype), {}, "")
        return result

    def beside_tensor(self, name: str, *operands: Any) -> Any:
        """An elementwise operation of a tensor and a number that differs from call to call."""
        made = self(TABLE[name], operands, {}, None)
        return self.plain_result(made) if all(map(is_plain_operand, tensors_in(operands))) else made

    def called(
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
        return self.entered(op.name, call_name(op, given, options, spelling), function, given, options, where, spelling)

    def entered(
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
            with devices_named(name, (given, options), self.instructions, self.call):
                found = typed(name, call, function, given, options, self.inputs.program, self.guards)
            remember(asked, found)
        self.guards = found.guards
        result = replaced(
            found.result, lambda part: Value(part, self.names.fresh()) if isinstance(part, TensorType) else part
        )
        self._enter(Instruction(name, given, tuple(options.items()), result, spelling), where)
        return result

    def _enter(self, instruction: Instruction, where: str) -> None:
        if torch.is_grad_enabled() is not self._has_gradients:
            instruction = self._without_history(instruction)
        casts = autocast_state()
        made = Instruction(
            instruction.op,
            instruction.arguments,
            instruction.named,
            instruction.result,
            instruction.function,
            instruction.region,
            where,
            None if casts == self._casts else tuple(casts.items()),
        )
        self.instructions.append(made)
        if torch.is_grad_enabled() and not is_cut(made) and not self._differentiable.isdisjoint(elements_of(made)):
            self._differentiable.update(
                value for value in made.results if value.type.dtype.is_floating_point or value.type.dtype.is_complex
            )

    def _without_history(self, instruction: Instruction) -> Instruction:
        """The instruction on operands through which no gradient flows, as under `torch.no_grad`."""
        if not self._has_gradients:
            if self._is_asked or any(each.requires_grad for each in self.captured):
                raise NotImplementedError("gradients are switched on inside of a call that is made without gradients")
            return instruction
        if is_cut(instruction) or self._differentiable.isdisjoint(instruction.operands):
            return instruction
        if is_inside_of_a_function_of_autograd():
            raise NotImplementedError("a torch.autograd.Function is called, whose way back torch alone knows")

        def cut(part: Any) -> Any:
            if not isinstance(part, Value) or part not in self._differentiable:
                return part
            if part not in self._cut:
                self._cut[part] = self.called(TABLE["Tensor.detach"], (part,), {}, instruction.where)
            return self._cut[part]

        arguments, named = replaced((instruction.arguments, instruction.named), cut)
        return replace(instruction, arguments=arguments, named=named)

    def torch_function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch that is called with a traced tensor, with captured ones alone, or to draw numbers."""
        if is_in_place(function, args, kwargs):
            return write_in_place(self, function, args, kwargs)
        op = answers.SPELLED.get(function)
        is_plain = all(map(is_plain_operand, tensors_in((args, kwargs))))
        if is_plain and op is not None and op.name in _OTHER_VALUES and not kwargs:
            args = tuple(map(self.typed, as_torch_promotes(self, args)))
            run = parts.of_elements(function, op.name)
            name = f"torch.{op.name}"
            return self._wrapped(
                self.entered(name, Call(name, (object(),)), run, args, {}, _where(), run), is_plain=True
            )
        if is_plain and op is not None:
            require_one_dtype(op.name, args)
        if is_plain and op is not None and op.name != "where" and elementwise.is_known(op.name):
            args = as_torch_promotes(self, args)
        if is_plain and writes(function) and (op is None or not isinstance(args[0], Traced)):
            return write_by_torch(self, function, args, kwargs)
        if op is not None and not (is_plain and draws_from_torch(function, args, kwargs)):
            return self.plain_result(self(op, args, kwargs, function))
        if function in answers.QUESTIONS:
            return answers.QUESTIONS[function](*args, **kwargs)
        given, options = replaced((args, kwargs), self.typed)
        tensors = Instruction("", given, tuple(options.items()), ()).operands
        name = f"torch.{getattr(function, '__name__', function)}"
        if any(value.type.axes for value in tensors):
            return answers.answer(function, args, kwargs)
        if function in UNKNOWN:
            refuse(f"{name} is called", "use sr.all, sr.where and their like, which give tensors")
        if function is torch.autograd.grad or function is torch.autograd.backward:
            raise NotImplementedError("torch.autograd is called inside of the function, and a trace has no gradients")
        if loops(function, args, kwargs):
            raise NotImplementedError(f"{name} goes step by step over an axis whose size differs from call to call")
        if updates_statistics(function, args, kwargs):
            return self._wrapped(write_statistics(self, function, args, kwargs), is_plain=True)
        run = parts.of_torch(function)
        result = self.entered(name, Call(name, (object(),)), run, given, options, _where(), run)
        return self._wrapped(result, is_plain=True)

    def part(self, x: Traced, name: str, *arguments: Any) -> Any:
        """The packed values of a tensor, its offsets or its lengths, as a torch tensor."""
        if name == "values" and not x.is_ragged:
            return x.alias()
        run = parts.PARTS[name]
        given = (x.value, *map(self.typed, arguments))
        result = self.entered(f"x.{name}", Call(name, (object(),)), run, given, {}, _where(), run)
        made = self._wrapped(result, is_plain=name != "ungroup")
        if name == "values":
            link_values(self, made, x)
        return made

    # ----------------------------------------------------------------------------------------- between both worlds

    def typed(self, part: Any) -> Any:
        """A part of arguments as instructions have it."""
        if isinstance(part, Traced):
            if part._trace is not self:
                refuse("a tensor of another trace is used", "return it from the function that made it")
            return part.value
        if isinstance(part, (Tensor, torch.Tensor)):
            return self.capture(part)
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

    def capture(self, given: Tensor | torch.Tensor) -> Value:
        """The value of a tensor that the function found outside of its arguments."""
        found = self.standing.get(id(given))
        if found is None:
            if isinstance(given, Tensor) and id(given.values) in self.made_inside:
                self.made_inside[id(given)] = given
            value = Value(self.inputs.type_of(given, is_static=True, apart=True), f"captured{len(self.captured)}")
            found = Traced.of(value, self, is_plain=isinstance(given, torch.Tensor), is_given=True)
            self.standing[id(given)] = found
            self.captured.append(given)
            self.given.append(value)
            if given.requires_grad:
                self._differentiable.add(value)
        return found.value

    def facts(self) -> tuple[torch.Tensor, ...]:
        """The tensors outside of the arguments that were asked for facts."""
        return tuple(each for key, each in self.asked.items() if key not in self.made_inside)

    def _wrapped(self, result: Any, is_plain: bool = False) -> Any:
        """A result as the function sees it."""

        def seen(part: Any) -> Any:
            if isinstance(part, Value):
                return Traced.of(part, self, is_plain)
            return traced_size(part) if isinstance(part, Polynomial) else part

        return replaced(result, seen)

    def as_torch_returns(self, function: Callable[..., Any] | None, result: Any) -> Any:
        """Several results of a function of torch tensors, in the tuple of torch's that has the function's name."""
        kind = getattr(torch.return_types, getattr(function, "__name__", ""), None)
        return result if kind is None or not hasattr(result, "_fields") else kind(list(result))

    def plain_result(self, result: Any) -> Any:
        """A result as torch's callers expect it: without a ragged axis, a torch tensor."""

        def seen(part: Any) -> Any:
            if isinstance(part, Traced) and not part.is_ragged and not part.is_plain:
                return part.alias()
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
