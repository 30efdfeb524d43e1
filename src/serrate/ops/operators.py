"""Operators and methods: `+`, `-`, … and their reflections, `x.exp()`, by torch's names and with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.ops import arrangement as _arrangement  # noqa: F401
from serrate.ops import attention as _attention  # noqa: F401
from serrate.ops import bags as _bags  # noqa: F401
from serrate.ops import by_id as _by_id  # noqa: F401
from serrate.ops import convolution as _convolution  # noqa: F401
from serrate.ops import creation as _creation  # noqa: F401
from serrate.ops import decompositions as _decompositions  # noqa: F401
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
from serrate.ops import random as _random  # noqa: F401
from serrate.ops import reductions as _reductions  # noqa: F401
from serrate.ops import scans as _scans  # noqa: F401
from serrate.ops import sets as _sets  # noqa: F401
from serrate.ops import sorting as _sorting  # noqa: F401
from serrate.ops.apply import STANDARD, apply, operands_of, standard
from serrate.ops.table import TABLE, TORCH, answer, members, torch_names
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


def attach() -> None:
    """Give Tensor its operators, its elementwise methods and its answer to torch."""
    for name, operation in UNARY.items():
        setattr(Tensor, f"__{name}__", _unary(operation))
    for name, operation in BINARY.items():
        setattr(Tensor, f"__{name}__", _binary(operation))
        setattr(Tensor, f"__r{name}__", _reflected(operation))
        setattr(Tensor, f"__i{name}__", _in_place(operation))
    for name, product in (("matmul", _product), ("rmatmul", _reflected_product), ("imatmul", _product_in_place)):
        setattr(Tensor, f"__{name}__", product)
    Tensor._elementwise = staticmethod(standard)
    for op in TABLE.values():
        for function in op.torch:
            name = getattr(function, "__name__", "")
            if getattr(torch.Tensor, name, None) is function and not hasattr(Tensor, name):
                setattr(Tensor, name, _method(function, name))
    for name, method in (("equal", _equal), ("masked_fill", _masked_fill), ("masked_fill_", _masked_fill_in_place)):
        setattr(Tensor, name, method)
        TORCH.update(dict.fromkeys(torch_names(name), method))
    for name in ("is_floating_point", "is_complex", "numel"):
        TORCH.update({function: getattr(Tensor, name) for function in torch_names(name)})
    Tensor.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]
    _mark()


def _mark() -> None:
    """Say what torch.compile may trace: operations that say so, and what changes neither rows nor their order."""
    light = torch_names("clone", "detach", "masked_fill", "is_floating_point", "is_complex", "numel")
    traced = {TORCH[function] for op in TABLE.values() if op.traced for function in op.torch if function in TORCH}
    traced |= {TORCH[function] for function in light}
    for handler in set(TORCH.values()) - traced:
        untraced(handler)
    part([*vars(Tensor).values(), *TORCH.values(), *(op.eager for op in TABLE.values()), _torch_function])


def public() -> dict[str, Callable[..., Any]]:
    """The functions of `sr`, by name; extensions have their own (`members`)."""
    return members()


@untraced
def _equal(left: Any, right: Any) -> bool:
    """Whether both have the same shape, raggedness included, and the same elements."""
    x, y = combine.exact(as_tensor(left)), combine.exact(as_tensor(right))
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        return False
    return bool(host.read_if_device((x == y).values.all(), "torch.equal"))


def _masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
    """`value` where the mask holds, else the element."""
    return apply(torch.where, mask, value, self)


@untraced
def _masked_fill_in_place(self: Tensor, mask: Any, value: Any) -> Tensor:
    """`masked_fill`, written into the tensor itself."""
    return self.copy_(_masked_fill(self, mask, value))


def _operand(value: Any) -> bool:
    return isinstance(value, (Tensor, torch.Tensor, *broadcast.NUMBERS))


def _unary(operation: str) -> Callable[[Tensor], Tensor]:
    return lambda self: standard(operation, self)


def _binary(operation: str) -> Callable[[Tensor, Any], Any]:
    return lambda self, other: standard(operation, self, other) if _operand(other) else NotImplemented


def _reflected(operation: str) -> Callable[[Tensor, Any], Any]:
    return lambda self, other: standard(operation, other, self) if _operand(other) else NotImplemented


@untraced
def _product(self: Any, other: Any) -> Any:
    both = all(isinstance(operand, (Tensor, torch.Tensor)) for operand in (self, other))
    return TABLE["matmul"].eager(self, other) if both else NotImplemented


def _reflected_product(self: Any, other: Any) -> Any:
    return _product(other, self)


@untraced
def _product_in_place(self: Any, other: Any) -> Any:
    made = _product(self, other)
    if made is NotImplemented:
        return made
    if made.shape != self.shape:
        raise ValueError(f"matmul gives shape {made.shape}, which does not go back into {self.shape} in place")
    if not _goes_into(made.dtype, self.dtype):
        raise TypeError(f"matmul gives {made.dtype}, which does not go back into {self.dtype} in place")
    self.values.copy_(broadcast.align(made, self))
    return self


def _in_place(operation: str) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        aligned = broadcast.align(operands_of(operation, (self, other))[1], self)
        # What is overwritten is needed for the gradient of `other`, and for that of a power.
        asked = isinstance(aligned, torch.Tensor) and aligned.requires_grad
        asked = asked or (operation == "pow" and self.values.requires_grad)
        before = self.values.clone() if asked and torch.is_grad_enabled() else self.values
        new = STANDARD[operation](before, aligned)
        if not _goes_into(new.dtype, self.dtype):
            raise TypeError(f"{operation} gives {new.dtype}, which does not go back into {self.dtype} in place")
        self.values.copy_(new)
        return self

    return untraced(operator)


def _goes_into(made: torch.dtype, wanted: torch.dtype) -> bool:
    """torch's rule, which it lacks for wide unsigned types: integers go into integers of any size."""
    return torch.can_cast(promotion.narrow(made), promotion.narrow(wanted))


def _method(function: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        return TORCH[function](self, *args, **options)  # type: ignore[no-any-return]

    method.__name__ = name
    method.__doc__ = f"`torch.Tensor.{name}` on a Tensor; the result is one too."
    return method


def _torch_function(
    cls: type[Tensor], function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    return answer(function, args, kwargs or {})
