"""Operands on different devices in a trace: an error that names them, and the lines where they were made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.compiler.containers import opened
from serrate.compiler.refusing import users_line
from serrate.compiler.spellings import tensors_in
from serrate.compiler.traced import Traced
from serrate.errors import OffsetsDeviceError
from serrate.ops.mismatches import Operand, mismatch
from serrate.ops.record import TABLE
from serrate.program.program import Instruction, values_in
from serrate.program.types import Value

Called = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""The function that is traced, and what stands for its arguments."""


@dataclass(frozen=True)
class devices_named:
    """Inside of this context, an error about devices names the values that are `given` to a call of `name`, and where
    the instructions that were `made` before, or the call of the traced function, have them from."""

    name: str
    given: Any
    made: Sequence[Instruction]
    called: Called | None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Raise the error that names them. A DeviceMismatchError is a RuntimeError; torch has no class for its own."""
        if not isinstance(error, RuntimeError) or isinstance(error, OffsetsDeviceError) or "device" not in str(error):
            return
        operands = [_operand(value, self.made, self.called) for value in dict.fromkeys(values_in(self.given))]
        file, line, text = users_line()
        found = mismatch(f"{self.name} ({file}:{line}{text and f': {text}'})", operands)
        if found is not None and self.name in TABLE and TABLE[self.name].writes:  # torch copies between devices here
            raise NotImplementedError(f"{self.name} writes from one device to another") from error
        if found is not None:
            raise found from error


def _operand(value: Value, made: Sequence[Instruction], called: Called | None) -> Operand:
    """A value as an error names it."""
    kind = value.type
    goes_anywhere = not kind.order and kind.device == torch.device("cpu")
    return Operand(str(value.name), kind.device, goes_anywhere, _origin(value, made, called))


def _origin(value: Value, made: Sequence[Instruction], called: Called | None) -> str:
    """Where a value comes from."""
    for each in made:
        if value in each.results:
            return f"made by {each.op} in {each.where}" if each.where else f"made by {each.op}"
    for name, argument in _arguments(called):
        if any(isinstance(part, Traced) and value in (part.first, part.value) for part in tensors_in(opened(argument))):
            return f"given as the argument {name}"
    return "found outside of the arguments"


def _arguments(called: Called | None) -> Iterator[tuple[str, Any]]:
    """The arguments of a call with their names, or numbers where the function does not say its parameters."""
    if called is None:
        return
    function, arguments, named = called
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        bound = inspect.signature(target).bind(*arguments, **named).arguments
    except (TypeError, ValueError):  # a function of C
        yield from ((f"number {number}", each) for number, each in enumerate(arguments))
        yield from named.items()
        return
    yield from bound.items()
