"""uint16, uint32 and uint64, for which torch lacks arithmetic and order. They are computed in int64, and uint64 in the
int64 of the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from serrate.tensor.promotion import WIDE

_TOP = torch.iinfo(torch.int64).min  # The highest bit.


def compute(name: str, function: Callable[..., torch.Tensor], values: list[Any], options: Any) -> torch.Tensor:
    """The operation `name` of tensors of one wide unsigned dtype, modulo its size; for int64 it is `function`."""
    dtype = values[0].dtype
    place = next((v.device for v in values if v.ndim), values[0].device)
    values = [v.to(place, non_blocking=True) for v in values]  # A number lies on the host.
    if dtype != torch.uint64:
        made = function(*[v.to(torch.int64) for v in values], **options)
        return made.to(dtype) if made.dtype == torch.int64 else made
    made = _BITS.get(name, function)(*[v.view(torch.int64) for v in values], **options)
    return made.view(dtype) if made.dtype == torch.int64 else made


def _ordered(bits: torch.Tensor) -> torch.Tensor:
    """int64 numbers in the order of the unsigned ones."""
    return bits ^ _TOP


def _as_they_are(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _none(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x, dtype=torch.bool)


def _floor_divide(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """x1 // x2. Twice the quotient of half of x1 is right or 1 too small; by 2⁶³ or more, the quotient is 0 or 1."""
    large = x2 < 0
    half = (x1 >> 1) & ~_TOP
    quotient = torch.floor_divide(half, torch.where(large, 1, x2)) << 1
    quotient = torch.where(large, 0, quotient)
    return quotient + (_ordered(x1 - quotient * x2) >= _ordered(x2))


def _right_shift(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    # The highest bit is left out here, since it would be copied as a sign.
    moved = torch.bitwise_right_shift(x1 & ~_TOP, x2)
    inside = (x2 >= 0) & (x2 < 64)
    top = torch.where(inside & (x1 < 0), torch.bitwise_left_shift(torch.ones_like(x2), 63 - x2), 0)
    return torch.where(inside, moved | top, 0)


def _maximum(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return _ordered(torch.maximum(_ordered(x1), _ordered(x2)))


def _minimum(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return _ordered(torch.minimum(_ordered(x1), _ordered(x2)))


def _pow(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """x1 ** x2. The top bit of x2 means a power of 2⁶³, which modulo 2⁶⁴ is 1 for odd numbers and 0 for even ones."""
    made = torch.pow(x1, x2 & ~_TOP)
    return torch.where((x2 < 0) & (x1 & 1 == 0), 0, made)


def _clip(x: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    for bound, nearer in ((min, _maximum), (max, _minimum)):
        if isinstance(bound, torch.Tensor):
            x = nearer(
                x, bound.view(torch.int64) if bound.dtype == torch.uint64 else bound.to(torch.int64).clamp(min=0)
            )
        elif bound is not None:
            within = math.ceil(bound) if nearer is _maximum else math.floor(bound)
            within = sorted((0, within, 2**64 - 1))[1]
            x = nearer(x, torch.full_like(x, within - 2**64 if within >= 2**63 else within))
    return x


# Operations that differ from those of int64 on the same bits; sums, products, equality and bitwise ones do not.
_BITS: dict[str, Callable[..., torch.Tensor]] = {
    "abs": _as_they_are,
    "bitwise_right_shift": _right_shift,
    "clip": _clip,
    "floor_divide": _floor_divide,
    "greater": lambda x1, x2: _ordered(x1) > _ordered(x2),
    "greater_equal": lambda x1, x2: _ordered(x1) >= _ordered(x2),
    "less": lambda x1, x2: _ordered(x1) < _ordered(x2),
    "less_equal": lambda x1, x2: _ordered(x1) <= _ordered(x2),
    "maximum": _maximum,
    "minimum": _minimum,
    "nan_to_num": lambda x, **options: x.clone(),
    "pow": _pow,
    "relu": _as_they_are,
    "relu6": lambda x: _minimum(x, torch.full_like(x, 6)),
    "remainder": lambda x1, x2: x1 - _floor_divide(x1, x2) * x2,
    "sign": lambda x: (x != 0).to(torch.int64),
    "signbit": _none,
}


# ------------------------------------------------------------------------------------------- order and sums


def comparable(values: torch.Tensor) -> torch.Tensor:
    """Wide unsigned integers as int64 numbers in the same order; others as they are.

    The least int64 stands for the least of them, and the greatest for the greatest.
    """
    if values.dtype == torch.uint64:
        return _ordered(values.view(torch.int64))
    return values.to(torch.int64) if values.dtype in WIDE else values


def restored(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The elements of `dtype` that `comparable` was given, from what it made of them."""
    if dtype == torch.uint64:
        return _ordered(numbers).view(torch.uint64)
    return numbers.to(dtype) if dtype in WIDE else numbers


def summed(dtype: torch.dtype, otherwise: torch.dtype | None = None) -> torch.dtype:
    """The array API's dtype of sums and products: for integers the widest one of the same sign, else `otherwise`."""
    if dtype.is_floating_point or dtype.is_complex:
        return dtype if otherwise is None else otherwise
    return torch.uint64 if dtype == torch.uint8 or dtype in WIDE else torch.int64


def summed_by_torch(x: Any) -> torch.dtype | None:
    """The dtype to ask for as torch means it: torch sums all integers in int64, and the array API does not."""
    return torch.int64 if x.dtype == torch.uint8 or x.dtype in WIDE else None
