"""This module finds the greatest or least of packed rows on the CPU, by row_extremes.cpp.

torch has no such call for components of different lengths but by the number of each row, which takes three times as
long. A function here returns None for other dtypes, for tensors whose memory cannot be read, and without a compiler.
"""

from __future__ import annotations

import math
from functools import cache

import torch

from serrate.native.loading import Routines, empty, load, plain, reads, size_of, threads_for

_NUMBERS = {torch.float32: "float32", torch.float64: "float64", torch.int32: "int32", torch.int64: "int64"}


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    return load(
        "row_extremes.cpp", [f"{form}_{number}" for form in ("largest", "least") for number in _NUMBERS.values()]
    )


def extremes(values: torch.Tensor, offsets: torch.Tensor, largest: bool) -> torch.Tensor | None:
    """Return [K, …]: the greatest (least) of the rows of each component of values [N, …]; NaN if one of them is NaN.

    Where there are no rows it is the least (greatest) number of the dtype.
    """
    number, library = _NUMBERS.get(values.dtype), _library()
    if number is None or library is None or not reads(values, offsets):
        return None
    values = plain(values)
    if offsets.dtype is not torch.int64 or not offsets.is_contiguous():
        offsets = offsets.to(torch.int64).contiguous()
    rows, *features = values.shape
    made = empty((offsets.numel() - 1, *features), values.dtype)
    failed = library[f"{'largest' if largest else 'least'}_{number}"](
        values.data_ptr(), offsets.data_ptr(), offsets.numel() - 1, rows, math.prod(features), made.data_ptr(),
        threads_for(size_of(values)),
    )  # fmt: skip
    return None if failed else made
