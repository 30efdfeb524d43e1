"""Spellings: functions of torch that a traced function calls, and what they are for a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from serrate.compiler.traced import TracedTorch
from serrate.ops.call import TRACER
from serrate.ops.record import Op
from serrate.program.types import Value
from serrate.tensor import abstract
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace


class TorchFunctions(TorchFunctionMode):
    """Functions of torch that a traced function calls, on tensors that it found outside of its arguments too."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if TRACER.get() is not self.trace or function in _QUESTIONS or getattr(function, "__name__", "") == "__get__":
            return function(*args, **named)
        if abstract.current() is not None:  # A type is being found, by tensors that the user's function never sees.
            return function(*args, **named)
        if not any(True for _ in tensors_in((args, named))):
            return function(*args, **named)
        return self.trace.torch_function(function, args, named)


_QUESTIONS = {
    torch.Tensor.dim,
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.is_floating_point,
    torch.Tensor.is_complex,
    torch.Tensor.is_contiguous,
    torch.Tensor.stride,
    torch.Tensor.__repr__,
    torch.Tensor.__hash__,
    torch.Tensor.__len__,
    torch.is_floating_point,
    torch.is_complex,
    torch.is_tensor,
}
"""Functions of torch that ask about a tensor, and give no tensor."""


def is_plain_operand(given: Any) -> bool:
    """Whether a torch tensor stands here in the user's function."""
    return isinstance(given, TracedTorch) or not isinstance(given, Tensor)


def tensors_in(given: Any) -> Iterator[Tensor | torch.Tensor]:
    """The tensors in arguments."""
    if isinstance(given, (Tensor, torch.Tensor)):
        yield given
    elif isinstance(given, (tuple, list)):
        for part in given:
            yield from tensors_in(part)
    elif isinstance(given, dict):
        for part in given.values():
            yield from tensors_in(part)


def as_ours(
    op: Op, spelling: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call by torch's spelling as the operation itself takes them, if it means the same by them,
    elements of special values included; None otherwise."""
    run = getattr(op.spellings[spelling], "elementwise", None)
    if run is None:
        return None
    count = len(op.operands)
    if options or len(given) != count:
        try:
            values = list(inspect.signature(spelling).bind(*given, **options).arguments.items())
        except ValueError:  # a function of C has no signature
            values = [*zip(op.operands, given, strict=False), *options.items()]
        except TypeError:
            return None
        given = tuple(each for _, each in values[:count])
        options = {name: each for name, each in values[count:] if not (name == "inplace" and not each)}
        if not options.keys() <= op.signature.parameters.keys():
            return None
    floats = all(not isinstance(each, Value) or each.type.dtype.is_floating_point for each in given)
    same = len(given) == count and floats and (run.meaning is None or op.name in _REAL)
    return (given, options) if same else None


_REAL = ("add", "subtract", "negative", "round", "acos", "expm1", "log1p")
"""Operations whose meaning differs from torch's for complex numbers alone."""
