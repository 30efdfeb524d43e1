"""Spellings: functions of torch that a traced function calls, and what they are for a program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from serrate.compiler.refusing import OURS
from serrate.compiler.traced import OPERATORS, TracedTorch
from serrate.compiler.traced_sizes import TracedSize
from serrate.lowering.keys import draws_from_torch
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
        if TRACER.get() is not self.trace or abstract.current() is not None:
            return function(*args, **named)
        is_property = getattr(function, "__name__", "") == "__get__"
        if is_property or function in _QUESTIONS:
            asks = not sys._getframe(1).f_code.co_filename.startswith(OURS)
            if asks and is_property and id(args[0]) not in self.trace.made_inside:
                return self._property(function, args)
            found = (each for each in tensors_in((args, named)) if asks and isinstance(each, torch.Tensor))
            self.trace.asked.update((id(each), each) for each in found)
            return function(*args, **named)
        if draws_from_torch(function, args, named) or is_symbolic((args, named), self._constants()):
            return self.trace.torch_function(function, args, named)
        made = function(*args, **named)
        self.trace.made_inside.update((id(each), each) for each in tensors_in(made))
        return made

    def _constants(self) -> Collection[int]:
        """The tensors that a function of Serrate may compute with while the function is traced, by their identity:
        those that it made of the numbers of Python, as `sr.ragged` does, and that the program does not know yet."""
        if not sys._getframe(2).f_code.co_filename.startswith(OURS):
            return ()
        return self.trace.made_inside.keys() - self.trace.standing.keys()

    def _property(self, function: Any, args: tuple[Any, ...]) -> Any:
        """An attribute of a tensor that the function finds outside of its arguments."""
        given, name = args[0], getattr(function.__self__, "__name__", "")
        if name in _GRADIENTS:
            raise NotImplementedError(
                f"{name} of a tensor outside of the arguments is read, which differs in each call"
            )
        if name in _TENSORS:
            self.trace.capture(given)
            return getattr(self.trace.standing[id(given)], name)
        self.trace.asked[id(given)] = given
        return function(*args)


_TENSORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
"""Attributes of a tensor that are tensors with the same elements."""
_GRADIENTS = frozenset({"grad", "_grad", "_version"})
"""Attributes of a tensor that no trace may keep."""
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
    torch.is_inference,
    torch.Tensor.is_inference,
    torch.is_same_size,
    torch.Tensor.is_pinned,
    torch.Tensor.is_shared,
    torch.Tensor.is_set_to,
    torch.Tensor.data_ptr,
    torch.Tensor.element_size,
    torch.Tensor.get_device,
    torch.can_cast,
    torch.result_type,
}
"""Functions of torch that ask about a tensor, and give no tensor."""
UNKNOWN = {
    torch.equal,
    torch.Tensor.equal,
    torch.allclose,
    torch.Tensor.allclose,
    torch.is_nonzero,
    torch.Tensor.is_nonzero,
}
"""Functions of torch that ask for elements."""
CHANGES_SHAPE = frozenset(
    [
        "t_",
        "transpose_",
        "swapaxes_",
        "swapdims_",
        "squeeze_",
        "unsqueeze_",
        "resize_",
        "resize_as_",
        "set_",
        "as_strided_",
        "detach_",
        "rename_",
        "requires_grad_",
        "share_memory_",
    ]
)
"""Functions of torch that write no elements, and change the tensor itself."""


def is_symbolic(given: Any, constants: Collection[int] = ()) -> bool:
    """Whether tensors other than the constants, or sizes that differ from call to call, are among the arguments."""
    if isinstance(given, (Tensor, torch.Tensor, TracedSize)):
        return id(given) not in constants
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else ()
    return any(is_symbolic(part, constants) for part in parts)


def writes(function: Callable[..., Any]) -> bool:
    """Whether a function of torch writes to its first operand."""
    name = getattr(function, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE


def loops(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a function of torch goes step by step over an axis whose size differs from call to call."""
    name = getattr(function, "__name__", "")
    if name in ("gru", "lstm", "rnn_tanh", "rnn_relu"):
        if len(arguments) != 9:  # packed sequences, whose lengths are data
            return True
        return isinstance(arguments[0].shape[1 if arguments[8] else 0], TracedSize)
    if name in ("unbind", "split", "unsafe_split", "chunk", "unsafe_chunk"):
        dim = named.get("dim", arguments[-1] if len(arguments) > (1 if name == "unbind" else 2) else 0)
        return isinstance(arguments[0].shape[dim], TracedSize)
    return False


_IN_PLACE = ("__setitem__", *(f"__i{name}__" for name in OPERATORS))


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
