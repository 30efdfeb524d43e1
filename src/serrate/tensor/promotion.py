"""The one dtype of several operands, by the array API: each tensor counts by its dtype, a number only by its kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

WIDE = frozenset((torch.uint16, torch.uint32, torch.uint64))
"""The unsigned types for which torch lacks most arithmetic and all promotion."""
INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)) | WIDE
_SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def narrow(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which torch has kernels for elements of `dtype`: int64 for wide unsigned types."""
    return torch.int64 if dtype in WIDE else dtype


def promote(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    """The dtype of a result of two dtypes. It is the one that torch promotes to, where torch can.

    >>> promote(torch.int8, torch.uint16), promote(torch.uint16, torch.uint64), promote(torch.uint64, torch.float32)
    (torch.int32, torch.uint64, torch.float32)
    """
    if left == right:
        return left
    if not {left, right} & WIDE:
        return torch.promote_types(left, right)
    for one, other in ((left, right), (right, left)):
        if one == torch.bool or other.is_floating_point or other.is_complex:
            return other
    if not left.is_signed and not right.is_signed:
        return left if left.itemsize > right.itemsize else right
    signed, unsigned = (left, right) if left.is_signed else (right, left)
    bits = 8 * max(signed.itemsize, 2 * unsigned.itemsize)
    if bits > 64:
        raise TypeError(f"{left} and {right} have no integer type in common; convert one of them with sr.astype")
    return _SIGNED[bits]


def beside(dtype: torch.dtype, number: Any) -> torch.dtype:
    """The dtype of a result of a tensor and a Python number, which counts only if it is of a higher kind.

    >>> beside(torch.int8, 1), beside(torch.float64, 1j), beside(torch.uint64, 2)
    (torch.int8, torch.complex128, torch.uint64)
    """
    if isinstance(number, bool) or dtype.is_complex:
        return dtype
    if isinstance(number, int):
        return torch.int64 if dtype == torch.bool else dtype
    real = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return real.to_complex() if isinstance(number, complex) else real


def together(operands: Sequence[Any]) -> torch.dtype:
    """The dtype of a result of tensors (at least one) and numbers."""
    tensors = [operand.dtype for operand in operands if isinstance(operand, torch.Tensor)]
    made = functools.reduce(promote, tensors)
    return functools.reduce(beside, [o for o in operands if not isinstance(o, torch.Tensor)], made)


def fits(number: Any, dtype: torch.dtype) -> bool:
    """Whether an integer dtype holds an integer; True for other dtypes and numbers."""
    if dtype not in INTEGERS or not isinstance(number, int):
        return True
    limits = torch.iinfo(dtype)
    return bool(limits.min <= number <= limits.max)


def is_far(number: Any) -> bool:
    """Whether a Python number is an integer that int64 does not hold. torch does not make a float of such a number."""
    return isinstance(number, int) and not -(2**63) <= number < 2**63


def as_number(number: Any, dtype: torch.dtype) -> Any:
    """A Python number that torch takes beside elements of `dtype`: a far integer becomes a float beside floats."""
    inexact = dtype.is_floating_point or dtype.is_complex
    return float(number) if inexact and is_far(number) else number


def as_operand(number: Any, dtype: torch.dtype) -> torch.Tensor:
    """A Python number as a 0-d tensor on the host, which goes with tensors on any device."""
    return torch.full((), as_number(number, dtype), dtype=dtype, device="cpu")


def require_whole(given: torch.dtype | str, dtype: torch.dtype) -> None:
    """A TypeError if `given` is a complex dtype, or the name of something complex, and `dtype` is not complex."""
    if (isinstance(given, str) or given.is_complex) and not dtype.is_complex:
        raise TypeError(f"{given} does not become {dtype}: a part would be lost; take sr.real or sr.abs")


def require_fit(name: str, number: Any, dtype: torch.dtype) -> None:
    """An OverflowError if an integer dtype does not hold the number."""
    if not fits(number, dtype):
        raise OverflowError(f"{name} of {dtype} and {number}, which that type does not hold; sr.astype(x, …) widens it")
