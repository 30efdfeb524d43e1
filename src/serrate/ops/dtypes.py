"""Conversion to other dtypes, and the array API's questions about dtypes, which are torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from serrate.ops.record import ALL, operation, ops, record, written
from serrate.ops.rules import in_dtype
from serrate.tensor import broadcast, promotion
from serrate.tensor.tensor import Tensor, as_tensor

_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex128)
_KINDS = {
    "bool": (torch.bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATING,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _FLOATING + _COMPLEX,
}


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating-point type."""

    dtype: torch.dtype
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float


@dataclass(frozen=True)
class IntInfo:
    """The limits of an integer type."""

    dtype: torch.dtype
    bits: int
    max: int
    min: int


@operation
def _astype(x: Any, dtype: torch.dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    tensor = as_tensor(x)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r:.40}")
    promotion.require_whole(tensor.dtype, dtype)
    made = tensor.to(device=tensor.device if device is None else device, dtype=dtype)
    return made.clone() if copy and made.values is tensor.values else made


def isdtype(dtype: torch.dtype, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, the name the array API has for several, or a tuple of such.

    >>> import torch, serrate as sr
    >>> sr.isdtype(torch.int32, "integral"), sr.isdtype(torch.int32, ("bool", torch.int64))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"kind must be a dtype or one of {', '.join(_KINDS)}, got {kind!r}")
        return dtype in _KINDS[kind]
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"kind must be a dtype, a name or a tuple of them, got {type(kind).__name__}")
    return dtype == kind


def result_type(*arrays_and_dtypes: Any) -> torch.dtype:
    """The dtype that tensors, dtypes and numbers give together; numbers count only if they are of a higher kind.

    >>> import torch, serrate as sr
    >>> sr.result_type(sr.ragged([[1, 2], []]), torch.float16, 2.0)
    torch.float16
    """
    numbers = [n for a in arrays_and_dtypes if isinstance(n := broadcast.plain_number(a), broadcast.SCALARS)]
    dtypes = [_dtype(a) for a in arrays_and_dtypes if not isinstance(a, broadcast.NUMBERS)]
    if not dtypes:
        raise ValueError("result_type needs at least one tensor or dtype")
    return reduce(promotion.beside, numbers, reduce(promotion.promote, dtypes))


def can_cast(from_: Any, to: torch.dtype, /) -> bool:
    """Whether a dtype, or that of a tensor, becomes another by promotion, so that nothing is lost but integer digits.

    >>> import torch, serrate as sr
    >>> sr.can_cast(torch.float32, torch.float64), sr.can_cast(torch.float64, torch.float32)
    (True, False)
    """
    if not isinstance(to, torch.dtype):
        raise TypeError(f"can_cast asks about a dtype, got {type(to).__name__}")
    try:
        return promotion.promote(_dtype(from_), to) == to
    except TypeError:  # no common type
        return False


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating-point dtype, or of a tensor's; of a complex one those of its parts.

    >>> import torch, serrate as sr
    >>> sr.finfo(torch.float32).eps
    1.1920928955078125e-07
    """
    dtype = _dtype(type)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"finfo needs a floating-point dtype, got {dtype}")
    real = dtype.to_real()
    found = torch.finfo(real)
    return FloatInfo(real, found.bits, found.eps, found.max, found.min, found.smallest_normal)


def iinfo(type: Any, /) -> IntInfo:
    """The limits of an integer dtype, or of a tensor's.

    >>> import torch, serrate as sr
    >>> sr.iinfo(torch.int8).max
    127
    """
    dtype = _dtype(type)
    if dtype not in _SIGNED + _UNSIGNED:
        raise TypeError(f"iinfo needs an integer dtype, got {dtype}")
    found = torch.iinfo(dtype)
    return IntInfo(dtype, found.bits, found.max, found.min)


def _dtype(given: Any) -> torch.dtype:
    if isinstance(given, torch.dtype):
        return given
    return as_tensor(given).dtype


_CALLS = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "byte": torch.uint8,
    "bool": torch.bool,
    "cfloat": torch.complex64,
    "cdouble": torch.complex128,
}


def _answer_call(dtype: torch.dtype) -> Callable[..., Tensor]:
    return lambda self, memory_format=None: self.to(dtype)


def _answer_type_as(self: Any, other: Any) -> Tensor:
    return as_tensor(self).to(device=other.device, dtype=other.dtype)


def _astype_vjp(g: Any, out: Any, x: Any, *, dtype: torch.dtype, **_: Any) -> Any:
    g = g if g.device == x.device else ops["Tensor.to"](g, x.device)
    inexact = all(each.is_floating_point or each.is_complex for each in (x.dtype, dtype))
    return in_dtype(g, x.dtype) if inexact else None


record(
    "dtypes",
    "astype",
    _astype,
    None,
    spellings={
        **{getattr(torch.Tensor, name): _answer_call(dtype) for name, dtype in _CALLS.items()},
        torch.Tensor.type_as: _answer_type_as,
    },
    summary="x in another dtype; a copy, unless `copy=False` allows x itself.",
    example=("sr.astype(sr.ragged([[1.5, 2.], []]), torch.int64).tolist()", "[[1, 2], []]"),
    operands=("x",),
    primitive="cast",
    vjp=_astype_vjp,
    kinds=ALL,
    traced=True,
    samples=("x, torch.complex64", "x, x.dtype", "x, x.dtype, copy=False"),
    errors=(("x, 'float32'", TypeError, "dtype must be a torch.dtype"),),
    dialect=written("cast", x="rhs", copy="do_copy"),
)
