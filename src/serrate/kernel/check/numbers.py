"""Arithmetic of the checking interpreter: what the Python source of a kernel calls.

A value of dtype index is a Python int, one of dtype bool is a truth value, all others are numpy scalars. float16 and
bfloat16 are kept as float32 and rounded after every operation.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from serrate.fusion.dtypes import BOOL, DTYPES, FLOATS, INDEX, SIZED, kind_of, wrapped
from serrate.fusion.functions import FUNCTIONS, Function
from serrate.kernel.check.accesses import SharedMemory, Violation, bad_load, outside


def numpy_dtype(dtype: str, index: str) -> np.dtype[Any]:
    """The dtype of the numpy array that holds a buffer, where an index is `index`."""
    return np.dtype({"bfloat16": "float32", INDEX: index}.get(dtype, dtype))


def _to_float16(value: Any) -> Any:
    return np.float32(np.float16(value))


def _to_bfloat16(value: Any) -> Any:
    value = np.float32(value)
    if not np.isfinite(value):
        return value
    bits = int(value.view(np.uint32))
    bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
    return np.uint32(bits & 0xFFFF0000).view(np.float32)


def _to_integer(dtype: str) -> Callable[[Any], Any]:
    numpy_type = np.dtype(dtype)

    def convert(value: Any) -> Any:
        return numpy_type.type(wrapped(value, dtype)) if isinstance(value, int) else value.astype(numpy_type)

    return convert


def _to_index(value: Any) -> int:
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise Violation(f"{value} is cast to an index") from None


CONVERT: dict[str, Callable[[Any], Any]] = {
    "float16": _to_float16, "bfloat16": _to_bfloat16, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128, BOOL: bool,
    **{dtype: _to_integer(dtype) for dtype in SIZED}, INDEX: _to_index,
}  # fmt: skip


def values(array: np.ndarray, dtype: str) -> list[Any]:
    """The elements of an array as values of `dtype`."""
    if dtype in (INDEX, BOOL):
        return array.tolist()  # type: ignore[no-any-return]
    if dtype in ("float16", "bfloat16"):
        return [CONVERT[dtype](value) for value in array]
    return list(array.astype(np.dtype(dtype), copy=False))


def array(elements: Sequence[Any], dtype: np.dtype[Any]) -> np.ndarray:
    """The array of these elements; those that hold nothing are nan, or 0."""
    nothing = math.nan if dtype.kind == "f" else 0
    return np.array([nothing if value is None else value for value in elements], dtype=dtype)


def overflow(value: int) -> NoReturn:
    """Report an index that does not fit."""
    raise Violation(f"overflow: {value} does not fit the index type of the kernel")


def over_launch(extent: int, launched: int) -> NoReturn:
    """Report a loop that the launch does not cover."""
    raise Violation(f"the loop has extent {extent}, the launch only {launched}")


def _check_divisor(a: Any, b: Any) -> None:
    if b == 0:
        raise Violation(f"division by zero: {a} by {b}")
    if a < 0 and b < 0:
        raise Violation(f"division of negative operands: {a} by {b}")


def index_divide(a: Any, b: Any) -> Any:
    """The quotient of Euclidean division."""
    if b > 0:
        return a // b
    _check_divisor(a, b)
    return -(a // -b)


def index_remainder(a: Any, b: Any) -> Any:
    """The remainder of Euclidean division."""
    if b > 0:
        return a % b
    _check_divisor(a, b)
    return a % -b


def search(name: str, offsets: Sequence[int], size: int, count: int, position: int) -> int:
    """The component that holds the position."""
    if not 0 <= count < size:
        outside(name, count, size)
    if not offsets[0] <= position < offsets[count]:
        bounds = f"{offsets[0]} <= position < {offsets[count]}"
        raise Violation(f"search out of range: position {position} in {name} of {count} components, {bounds}")
    return bisect_right(offsets, position, 0, count) - 1


def environment() -> dict[str, Any]:
    """What the generated source may name: what it checks with, conversions, and scalar functions by dtype."""
    functions = {
        function_name(row, dtype): row.number_of(dtype)
        for row in FUNCTIONS.values()
        for dtype in (*DTYPES, INDEX)
        if dtype in row.kinds or kind_of(dtype) in row.kinds
    }
    return {**{name: function for name, function in functions.items() if callable(function)}, **_CHECKS}


def function_name(row: Function, dtype: str) -> str:
    """The name of a scalar function in the source, for operands of a dtype."""
    return f"{row.name}_of_{dtype}"


_CHECKS: dict[str, Any] = {
    **{f"to_{dtype}": function for dtype, function in CONVERT.items()},
    "index_divide": index_divide, "index_remainder": index_remainder, "search": search, "SharedMemory": SharedMemory,
    "range": range, "bad_load": bad_load, "outside": outside, "overflow": overflow, "over_launch": over_launch,
}  # fmt: skip


def rounded(text: str, dtype: str) -> str:
    """The source of a value just computed, rounded if it is kept in a wider type than its own."""
    return f"to_{dtype}({text})" if dtype in FLOATS[:2] else text
