"""This module sums packed rows on the CPU, by row_sums.cpp.

The sums are accurate, and their bits do not depend on the number of threads. torch has no such call for components of
different lengths: its sums by an index or by bags add up one row after the other, in the dtype of the rows. A function
here returns None for other dtypes, for tensors whose memory cannot be read, and without a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch

from serrate.native.loading import Routines, empty, load, plain, reads, size_of, threads_for

_FLOATS = {torch.float32: "float32", torch.float64: "float64"}
NUMBERS = {**_FLOATS, torch.int64: "int64"}
"""The dtypes that can be summed, and what row_sums.cpp calls them."""
_FORMS = {
    "sums": NUMBERS,
    "sums_by_index": NUMBERS,
    "sums_by_position": NUMBERS,
    "distances": _FLOATS,
    "centred": _FLOATS,
}


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    names = [f"{form}_{number}" for form, numbers in _FORMS.items() for number in numbers.values()]
    return load("row_sums.cpp", names)


def sums(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return [K, …]: for each component c the sum of the rows offsets[c] .. offsets[c + 1] of values [N, …]."""
    count = offsets.numel() - 1
    return _call("sums", values, offsets, count, (count, values.shape[0]))


def distances(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return [K, …]: for each component the sum of the squared distances of its rows from their mean."""
    count = offsets.numel() - 1
    return _call("distances", values, offsets, count, (count, values.shape[0]))


def centred(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return [N, …]: each row minus the mean of its component; rows of no component are 0."""
    return _call("centred", values, offsets, values.shape[0], (offsets.numel() - 1, values.shape[0]))


def sums_by_index(values: torch.Tensor, index: torch.Tensor, cells: int) -> torch.Tensor | None:
    """Return [cells, …]: for each number below `cells` the sum of the rows of values [N, …] with this index.

    The index [N] has a number for each row; rows with the number `cells` itself are left out.
    """
    return _call("sums_by_index", values, index, cells, (values.shape[0], cells))


def sums_by_position(values: torch.Tensor, offsets: torch.Tensor, cells: int) -> torch.Tensor | None:
    """Return [cells, …]: for each position the sum of the rows that have this position in their component.

    No component may be longer than `cells`.
    """
    return _call("sums_by_position", values, offsets, cells, (offsets.numel() - 1, values.shape[0], cells))


def _call(
    form: str, values: torch.Tensor, where: torch.Tensor, results: int, counts: Sequence[int]
) -> torch.Tensor | None:
    """Return [results, …]: the result of a compiled function for values and a vector of offsets or indices."""
    number, library = _FORMS[form].get(values.dtype), _library()
    if number is None or library is None or not reads(values, where):
        return None
    values = plain(values)
    if where.dtype is not torch.int64 or not where.is_contiguous():
        where = where.to(torch.int64).contiguous()
    features = values.shape[1:]
    made = empty((results, *features), values.dtype)
    if made.numel() and library[f"{form}_{number}"](
        values.data_ptr(), where.data_ptr(), *counts, math.prod(features), made.data_ptr(),
        threads_for(size_of(values)),
    ):  # fmt: skip
        return None
    return made
