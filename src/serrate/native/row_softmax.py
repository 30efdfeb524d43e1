"""This module computes softmax of packed rows on the CPU, its logarithm and their gradients, by row_softmax.cpp.

Each reads its values once from memory where a component fits the cache; torch's operations on packed values go over
them five times. A function here returns None for other dtypes than float32 and float64, and without a compiler.
"""

from __future__ import annotations

import math
from functools import cache

import torch

from serrate.native.loading import Routines, empty, load, plain, size_of, threads_for

_FLOATS = {torch.float32: "float32", torch.float64: "float64"}
_FORMS = ("softmax", "log_softmax", "softmax_gradient", "log_softmax_gradient", "log_sums")


@cache
def _library() -> Routines | None:
    """Return the compiled source; None if it does not compile."""
    names = [f"{form}_{number}" for form in _FORMS for number in _FLOATS.values()]
    return load("row_softmax.cpp", names)


def is_there() -> bool:
    """Return whether there is compiled code."""
    return _library() is not None


def softmax(values: torch.Tensor, offsets: torch.Tensor, log: bool) -> torch.Tensor | None:
    """Return [N, …]: exp of each row of values [N, …] divided by the sum of these over its component, or its logarithm.

    Rows of no component are 0.
    """
    return _call("log_softmax" if log else "softmax", values, values, offsets)


def gradient(given: torch.Tensor, made: torch.Tensor, offsets: torch.Tensor, log: bool) -> torch.Tensor | None:
    """Return the gradient of the values of `softmax`, from that of its result and the result itself."""
    return _call("log_softmax_gradient" if log else "softmax_gradient", given, made, offsets)


def log_sums(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return [K, …]: the logarithm of the sum of exp of the rows of each component of values [N, …]; -inf of none."""
    return _call("log_sums", values, None, offsets, offsets.numel() - 1)


def _call(
    form: str, x: torch.Tensor, y: torch.Tensor | None, offsets: torch.Tensor, results: int | None = None
) -> torch.Tensor | None:
    """Return the result of a compiled function of x [N, …], and of y beside it if there is one."""
    number, library = _FLOATS.get(x.dtype), _library()
    if number is None or library is None or not (y is None or y.dtype is x.dtype):
        return None
    beside = None if y is None else plain(y)
    x = beside if beside is not None and x is y else plain(x)
    if offsets.dtype is not torch.int64 or not offsets.is_contiguous():
        offsets = offsets.to(torch.int64).contiguous()
    rows, *features = x.shape
    made = empty(x.shape if results is None else (results, *features), x.dtype)
    failed = library[f"{form}_{number}"](
        x.data_ptr(), *(() if beside is None else (beside.data_ptr(),)), offsets.data_ptr(), offsets.numel() - 1, rows,
        math.prod(features), made.data_ptr(), threads_for(size_of(x)),
    )  # fmt: skip
    return None if failed else made
