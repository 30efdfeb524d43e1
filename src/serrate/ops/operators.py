"""Operators and methods: `+`, `-`, … and their reflections, `x.exp()`, by torch's names and with its defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from serrate.ops import access as _access  # noqa: F401
from serrate.ops import activations as _activations  # noqa: F401
from serrate.ops import answers
from serrate.ops import arrangement as _arrangement  # noqa: F401
from serrate.ops import attention as _attention  # noqa: F401
from serrate.ops import bags as _bags  # noqa: F401
from serrate.ops import by_id as _by_id  # noqa: F401
from serrate.ops import construction as _construction  # noqa: F401
from serrate.ops import convolution as _convolution  # noqa: F401
from serrate.ops import creation as _creation  # noqa: F401
from serrate.ops import cross_entropy as _cross_entropy  # noqa: F401
from serrate.ops import decompositions as _decompositions  # noqa: F401
from serrate.ops import differences as _differences  # noqa: F401
from serrate.ops import dropout as _dropout  # noqa: F401
from serrate.ops import dtypes as _dtypes  # noqa: F401
from serrate.ops import elementwise as _elementwise  # noqa: F401 (fills the table)
from serrate.ops import extremes as _extremes  # noqa: F401
from serrate.ops import features as _features  # noqa: F401
from serrate.ops import fourier as _fourier  # noqa: F401
from serrate.ops import gathering as _gathering  # noqa: F401
from serrate.ops import grouping as _grouping  # noqa: F401
from serrate.ops import linalg as _linalg  # noqa: F401
from serrate.ops import losses as _losses  # noqa: F401
from serrate.ops import manipulation as _manipulation  # noqa: F401
from serrate.ops import matrices as _matrices  # noqa: F401
from serrate.ops import multihead as _multihead  # noqa: F401
from serrate.ops import normalizations as _normalizations  # noqa: F401
from serrate.ops import numbering as _numbering  # noqa: F401
from serrate.ops import random as _random  # noqa: F401
from serrate.ops import ranges as _ranges  # noqa: F401
from serrate.ops import reductions as _reductions  # noqa: F401
from serrate.ops import scans as _scans  # noqa: F401
from serrate.ops import scattering as _scattering  # noqa: F401
from serrate.ops import sets as _sets  # noqa: F401
from serrate.ops import shuffling as _shuffling  # noqa: F401
from serrate.ops import softmax as _softmax  # noqa: F401
from serrate.ops import sorting as _sorting  # noqa: F401
from serrate.ops import triangles as _triangles  # noqa: F401
from serrate.ops.answers import QUESTIONS, answer
from serrate.ops.call import TRACER, call
from serrate.ops.record import TABLE, members, torch_names
from serrate.tensor import broadcast, combine, host, promotion
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import part, untraced

# The operator's name, and the operation it stands for.
BINARY: dict[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
UNARY: dict[str, str] = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
COMPARISONS: dict[str, str] = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def attach() -> None:
    """Give Tensor its operators, its methods and its answer to torch."""
    answers.gather_spellings()
    for name, operation in UNARY.items():
        setattr(Tensor, f"__{name}__", _unary(operation))
    for name, operation in BINARY.items():
        setattr(Tensor, f"__{name}__", _binary(operation))
        setattr(Tensor, f"__r{name}__", _reflected(operation))
        setattr(Tensor, f"__i{name}__", _in_place(operation))
    for name, operation in COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _comparison(operation))
    for name, product in (("matmul", _product), ("rmatmul", _reflected_product), ("imatmul", _product_in_place)):
        setattr(Tensor, f"__{name}__", product)
    for name, function in methods().items():
        setattr(Tensor, name, _as_method(function, name))
    for op in TABLE.values():
        for function in op.spellings:
            name = getattr(function, "__name__", "")
            if getattr(torch.Tensor, name, None) is function and not hasattr(Tensor, name):
                setattr(Tensor, name, _method(op.name, function, name))
    for name, question in (("equal", _equal), *((name, getattr(Tensor, name)) for name in _ASKED)):
        setattr(Tensor, name, question)
        QUESTIONS.update(dict.fromkeys(torch_names(name), question))
    Tensor.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]
    part([*vars(Tensor).values(), answer, _torch_function])


_SPECIAL = {"getitem": "__getitem__", "setitem": "__setitem__"}  # what Python has a syntax for
_ASKED = ("is_floating_point", "is_complex", "numel")


def public() -> dict[str, Callable[..., Any]]:
    """The functions of `sr`, by name; extensions have their own (`members`)."""
    return members()


def methods() -> dict[str, Callable[..., Any]]:
    """The functions that Tensor has as they are, by the names of the methods."""
    found = {_SPECIAL.get(name, name): function for name, function in members("Tensor").items()}
    return found | {"permute_dims": TABLE["permute_dims"].function}


def _as_method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same function under the name of a method, with `self` for its first parameter."""
    assert isinstance(function, FunctionType)
    method = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    method.__dict__.update(vars(function))
    method.__module__, method.__qualname__, method.__doc__ = Tensor.__module__, f"Tensor.{name}", function.__doc__
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    first = first.replace(name="self", annotation=inspect.Parameter.empty)
    method.__signature__ = signature.replace(parameters=[first, *others])  # type: ignore[attr-defined]
    return method


@untraced
def _equal(left: Any, right: Any) -> bool:
    """Whether both have the same shape, raggedness included, and the same elements."""
    x, y = combine.exact(as_tensor(left)), combine.exact(as_tensor(right))
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        return False
    return bool(host.read_if_device((x == y).values.all(), "torch.equal"))


_OPERANDS = (Tensor, torch.Tensor, *broadcast.NUMBERS)


def _operand(value: Any) -> bool:
    return isinstance(value, _OPERANDS)


def _unary(operation: str) -> Callable[[Tensor], Tensor]:
    return lambda self: call(TABLE[operation], (self,), {})


def _binary(operation: str) -> Callable[[Tensor, Any], Any]:
    return lambda self, other: call(TABLE[operation], (self, other), {}) if _operand(other) else NotImplemented


def _reflected(operation: str) -> Callable[[Tensor, Any], Any]:
    return lambda self, other: call(TABLE[operation], (other, self), {}) if _operand(other) else NotImplemented


def _comparison(operation: str) -> Callable[[Tensor, Any], Any]:
    """A comparison of elements; nothing is equal to None, as Python's users expect it."""
    beside_none = {"equal": False, "not_equal": True}.get(operation, NotImplemented)

    def operator(self: Tensor, other: Any) -> Any:
        if _operand(other):
            return call(TABLE[operation], (self, other), {})
        if isinstance(other, np.ndarray):
            raise TypeError("numpy arrays do not mix with sr.Tensor; use torch.from_numpy")
        return beside_none if other is None else NotImplemented

    return operator


@untraced
def _product(self: Any, other: Any) -> Any:
    both = all(isinstance(operand, (Tensor, torch.Tensor)) for operand in (self, other))
    return call(TABLE["matmul"], (self, other), {}) if both else NotImplemented


def _reflected_product(self: Any, other: Any) -> Any:
    return _product(other, self)


@untraced
def _product_in_place(self: Any, other: Any) -> Any:
    made = _product(self, other)
    if made is NotImplemented:
        return made
    if made.shape != self.shape:
        raise ValueError(f"matmul gives shape {made.shape}, which does not go back into {self.shape} in place")
    return _written(self, made, "matmul")


def _written(x: Tensor, made: Tensor, name: str) -> Tensor:
    """x with the elements of `made`, which has its shape, or an error if their dtype does not go back into it."""
    if not _goes_into(made.dtype, x.dtype):
        raise TypeError(f"{name} gives {made.dtype}, which does not go back into {x.dtype} in place")
    return x.copy_(made)


def _in_place(operation: str) -> Callable[[Tensor, Any], Any]:
    """`x += y`: what the operation gives, written into the tensor itself."""

    def operator(self: Tensor, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        # What is overwritten is needed for the gradient of `other`, and for that of a power.
        asked = getattr(other, "requires_grad", False) or (operation == "pow" and self.values.requires_grad)
        if TRACER.get() is not None:  # which follows what is written
            made = call(TABLE[operation], (self, other), {})
            if made.ndim == self.ndim and _goes_into(made.dtype, self.dtype):
                call(TABLE["Tensor.copy_"], (self, made), {})
                return self
        made = call(TABLE[operation], (self.clone() if asked and torch.is_grad_enabled() else self, other), {})
        if made.shape != self.shape:
            raise ValueError(f"shape {tuple(other.shape)} does not broadcast to shape {self.shape}")
        return _written(self, made, operation)

    return untraced(operator)


def _goes_into(made: torch.dtype, wanted: torch.dtype) -> bool:
    """torch's rule, which it lacks for wide unsigned types: integers go into integers of any size."""
    return torch.can_cast(promotion.narrow(made), promotion.narrow(wanted))


def _method(operation: str, function: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        return call(TABLE[operation], (self, *args), options, function)  # type: ignore[no-any-return]

    method.__name__ = name
    method.__doc__ = f"`torch.Tensor.{name}` on a Tensor; the result is one too."
    return method


def _torch_function(
    cls: type[Tensor], function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    return answer(function, args, kwargs or {})
