"""The dtypes of scalars and tensors, by name: torch's, and `index`, in which indices and sizes are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

INDEX, BOOL = "index", "bool"
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", INDEX)

T = TypeVar("T")


def accumulator(dtype: str) -> str:
    """What is computed in: half types in float32, all others in themselves."""
    return "float32" if dtype in HALVES else dtype


def kind_of(dtype: str) -> str:
    """The kind of a dtype: "float", "int" or "bool"."""
    return "float" if dtype in FLOATS else "int" if dtype in INTEGERS else BOOL


def of_dtype(choices: Mapping[str, T], dtype: str) -> T | None:
    """What is said for a dtype, else for its kind, else for all (""); half types count as float32 before their kind."""
    for name in (dtype, accumulator(dtype), kind_of(dtype), ""):
        if name in choices:
            return choices[name]
    return None
