"""Sums of packed rows on the CPU, by row_sums.cpp: accurate, and with the same bits for any number of threads.

torch has no call for rows of different lengths that does both: its sums by an index or by bags add up one row after the
other, in the type of the rows. Every function here gives None where it does not serve: for other dtypes, for tensors
whose memory torch may not let us read, without a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch

from serrate.native.loading import Routines, empty, load, plain, size_of, threads_for, transforming
from serrate.tensor import host

_FLOATS = {torch.float32: "float32", torch.float64: "float64"}
_NUMBERS = {**_FLOATS, torch.int64: "int64"}
_FORMS = {
    "sums": _NUMBERS,
    "sums_by_index": _NUMBERS,
    "sums_by_position": _NUMBERS,
    "distances": _FLOATS,
    "centred": _FLOATS,
}


@cache
def _library() -> Routines | None:
    """The compiled source; None where it cannot be compiled."""
    names = [f"{form}_{number}" for form, numbers in _FORMS.items() for number in numbers.values()]
    return load("row_sums.cpp", names, headers=("trees.h", "components.h"))


def sums(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """[K, …]: the sums of the rows offsets[c] .. offsets[c + 1] of values [N, …]."""
    count = offsets.numel() - 1
    return _call("sums", values, offsets, count, (count, values.shape[0]))


def distances(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """[K, …]: the sums of the squares of the distances of these rows from their mean."""
    count = offsets.numel() - 1
    return _call("distances", values, offsets, count, (count, values.shape[0]))


def centred(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """[N, …]: these rows less their mean; 0 for rows past the last offset."""
    return _call("centred", values, offsets, values.shape[0], (offsets.numel() - 1, values.shape[0]))


def sums_by_index(values: torch.Tensor, index: torch.Tensor, cells: int) -> torch.Tensor | None:
    """[cells, …]: for each number below `cells` the sum of the rows of values [N, …] that have it in the index [N].

    Rows that have the number `cells` itself are left out.
    """
    return _call("sums_by_index", values, index, cells, (values.shape[0], cells))


def sums_by_position(values: torch.Tensor, offsets: torch.Tensor, cells: int) -> torch.Tensor | None:
    """[cells, …]: for each position the sum of the rows that components, none longer than `cells`, have there."""
    return _call("sums_by_position", values, offsets, cells, (offsets.numel() - 1, values.shape[0], cells))


def _call(
    form: str, values: torch.Tensor, where: torch.Tensor, results: int, counts: Sequence[int]
) -> torch.Tensor | None:
    """[results, …]: what a function makes of values and a vector of integers, offsets or an index."""
    number = _FORMS[form].get(values.dtype)
    if number is None or not values.is_cpu or not where.is_cpu or transforming():
        return None
    library = None if host.stands_in(values) or host.stands_in(where) else _library()
    if library is None:
        return None
    values = plain(values)
    if where.dtype is not torch.int64 or not where.is_contiguous():
        where = where.to(torch.int64).contiguous()
    made = empty((results, *values.shape[1:]), values.dtype)
    width = math.prod(values.shape[1:])
    if made.numel():
        routine = library[f"{form}_{number}"]
        threads = threads_for(size_of(values))
        if routine(values.data_ptr(), where.data_ptr(), *counts, width, made.data_ptr(), threads):
            return None
    return made
