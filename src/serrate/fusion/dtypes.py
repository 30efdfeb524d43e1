"""The dtypes of scalars and tensors, by name: torch's, and `index`, in which indices and sizes are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeVar

import torch

from serrate.tensor import promotion

INDEX, BOOL = "index", "bool"
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
COMPLEX = ("complex64", "complex128")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SIZED = (*UNSIGNED, "int8", "int16", "int32", "int64")
"""Whole numbers of so many bits."""
INTEGERS = (*SIZED, INDEX)
DTYPES = (BOOL, *SIZED, *FLOATS, *COMPLEX)
WIDER = {"float32": "float64", "complex64": "complex128"}
"""What long sums are added up in."""

T = TypeVar("T")


def accumulator(dtype: str) -> str:
    """What is computed in: half types in float32, all others in themselves."""
    return "float32" if dtype in HALVES else dtype


def kind_of(dtype: str) -> str:
    """The kind of a dtype: "float", "complex", "int" or "bool"."""
    if dtype in FLOATS or dtype in COMPLEX:
        return "float" if dtype in FLOATS else "complex"
    return "int" if dtype in INTEGERS else BOOL


def parts_of(dtype: str) -> str:
    """The dtype of the real and the imaginary part; of a dtype that is not complex, itself."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def complex_of(dtype: str) -> str:
    """The complex dtype whose parts are of this dtype."""
    return "complex128" if dtype == "float64" else "complex64"


def of_dtype(choices: Mapping[str, T], dtype: str) -> T | None:
    """What is said for a dtype, else for its kind, else for all (""); half types count as float32 before their kind."""
    for name in (dtype, accumulator(dtype), kind_of(dtype), ""):
        if name in choices:
            return choices[name]
    return None


def holds(dtype: str, number: complex) -> bool:
    """Whether a dtype has numbers of the kind of this one: whole ones, those of a line, or of a plane."""
    if dtype in COMPLEX or isinstance(number, bool):
        return True
    if isinstance(number, complex):
        return False
    return dtype in FLOATS or (math.isfinite(number) and number == int(number))


def wrapped(number: int, dtype: str) -> int:
    """The whole number that a dtype holds in the place of this one, modulo its size."""
    limits = torch.iinfo(getattr(torch, dtype))
    held: int = (number - limits.min) % 2**limits.bits + limits.min
    return held


def common_dtype(given: Sequence[str | complex]) -> str:
    """The dtype of what is computed of tensors of some dtypes and of numbers, as eager operations choose it: numbers
    count only if they are of a higher kind. Complex numbers of half precision are complex64.

    >>> common_dtype(["int8", "uint16"]), common_dtype(["float16", "int64", 2.5]), common_dtype(["int32", 2.5])
    ('int32', 'float16', 'float32')
    """
    tensors = [getattr(torch, each) for each in given if isinstance(each, str)]
    numbers = [each for each in given if not isinstance(each, str)]
    made = reduce(promotion.beside, numbers, reduce(promotion.promote, tensors, torch.bool))
    return "complex64" if made == torch.complex32 else str(made).removeprefix("torch.")
