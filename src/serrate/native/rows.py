"""Runs of packed rows on the CPU, by rows.cpp: copied, counted, cut and summed.

torch has no call that copies runs of rows: its calls take an index of each row, and two to three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from serrate.native.loading import allocate, are_vectors, empty, load, plain, transforming
from serrate.tensor.offsets import INT32_MAX

_INTEGERS = {torch.int32: "int32", torch.int64: "int64"}
_NUMBERS = {torch.float32: "float32", torch.float64: "float64", **_INTEGERS}
_BY_LENGTHS = ("copy_runs", "put_runs", "select_runs", "slice_runs", "complete", "offsets", "keep", "ranges", "expand")


@cache
def _library() -> Mapping[tuple[Any, ...], Callable[..., int]] | None:
    """The functions of the source by their name and the dtypes of lengths; None where it cannot be compiled."""
    names: dict[tuple[Any, ...], str] = {
        (name, lengths): f"{name}_{kind}" for name in _BY_LENGTHS for lengths, kind in _INTEGERS.items()
    }
    for (values, number), (ends, kind) in product(_NUMBERS.items(), _INTEGERS.items()):
        names["sums", values, ends] = f"sums_{number}_{kind}"
        if values.is_floating_point:
            names["add_runs", values, ends] = f"add_runs_{number}_{kind}"
    library = load("rows.cpp", names.values())
    return None if library is None else {key: library[name] for key, name in names.items()}


def _routine(name: str, lengths: Any, *values: torch.dtype) -> Any:
    """The function of this name for a vector of lengths of their dtype, and values of theirs, if there is one."""
    library = _library()
    return library.get((name, *values, lengths.dtype)) if library is not None and are_vectors(lengths) else None


def _narrows(given: Tensor, lengths: Tensor) -> bool:
    """Whether numbers would lose bits in the dtype of lengths."""
    return given.dtype != lengths.dtype and given.dtype != torch.int32


# ------------------------------------------------------------------------------------------------- runs of rows


def copy_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """The runs of `lengths` rows from `source`, int64, on, one after the other: `rows` rows, which they have together.

    Both come from `select_runs` or `slice_runs`, so that they lie within `values`.
    """
    return _moved(_routine("copy_runs", lengths), values, source, lengths, rows, values.element_size())


def put_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """`rows` rows with `values` as the runs that `copy_runs` takes, 0 elsewhere; no two share a row."""
    return _moved(_routine("put_runs", lengths), values, source, lengths, rows, values.element_size())


def add_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """The same for runs that may share rows, which are added up."""
    return _moved(_routine("add_runs", lengths, values.dtype), values, source, lengths, rows, 1)


def _moved(routine: Any, values: Tensor, source: Tensor, lengths: Tensor, rows: int, unit: int) -> Tensor | None:
    """What a routine makes of runs of rows, whose width it counts in units of so many per element."""
    if routine is None or not values.is_cpu:
        return None
    values = plain(values)
    made = empty((rows, *values.shape[1:]), values.dtype)
    width = unit * math.prod(values.shape[1:])
    routine(values.data_ptr(), source.data_ptr(), lengths.data_ptr(), lengths.numel(), width, rows, made.data_ptr())
    return made


Found = tuple[Tensor, Tensor, int]
"""Where runs begin, int64, their lengths, and how many rows they have together."""


def select_runs(lengths: Tensor, offsets: Tensor, index: Tensor) -> Found | None:
    """The components at `index`; `offsets`, int64, are the complete sums of `lengths`."""
    routine = _routine("select_runs", lengths)
    if routine is None or not are_vectors(index) or index.dtype not in _INTEGERS:
        return None
    index = index.to(torch.int64)
    source, picked = allocate((index.numel(),), (1,), torch.int64), allocate((index.numel(),), (1,), lengths.dtype)
    rows = routine(
        lengths.data_ptr(), offsets.data_ptr(), lengths.numel(), index.data_ptr(), index.numel(), source.data_ptr(),
        picked.data_ptr(),
    )  # fmt: skip
    return None if rows < 0 else (source, picked, rows)


def slice_runs(lengths: Tensor, start: Tensor, rows: int, most: int) -> Found | None:
    """What is left of each component from its `start` on, at most `most` rows of it; lengths add up to `rows`."""
    routine = _routine("slice_runs", lengths)
    if routine is None or not are_vectors(start) or start.numel() != lengths.numel() or most < 0:
        return None
    if start.dtype not in _INTEGERS or _narrows(start, lengths):
        return None
    start = start.to(lengths.dtype)
    source, picked = allocate((lengths.numel(),), (1,), torch.int64), allocate((lengths.numel(),), (1,), lengths.dtype)
    left = routine(
        lengths.data_ptr(), start.data_ptr(), lengths.numel(), rows, most, source.data_ptr(), picked.data_ptr()
    )
    return None if left < 0 else (source, picked, left)


# --------------------------------------------------------------------------------------------- numbers of rows


def complete(given: Tensor) -> Tensor | None:
    """The running sums of a vector, or of each line of a matrix, with a 0 before, if the dtype holds them."""
    return _complete("complete", given, given.dtype, 2)


def offsets(lengths: Tensor) -> Tensor | None:
    """The same in int64, for lengths, none of which may be negative."""
    return _complete("offsets", lengths, torch.int64, 3)


def _complete(name: str, given: Tensor, dtype: torch.dtype, faults: int) -> Tensor | None:
    library = _library()
    routine = None if library is None else library.get((name, given.dtype))
    if routine is None or type(given) is not Tensor or transforming():
        return None
    if not (given.is_cpu and given.is_contiguous() and given.ndim):
        return None
    *outer, columns = given.shape
    made = empty((*outer, columns + 1), dtype)
    failed = routine(given.data_ptr(), math.prod(outer), columns, made.data_ptr()) & faults
    return None if failed else made


def keep(mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor] | None:
    """Where a bool mask holds, int64, and how many values of each component are left; lengths add up to its size."""
    routine = _routine("keep", lengths)
    if routine is None or not are_vectors(mask) or mask.dtype != torch.bool:
        return None
    index, left = allocate((mask.numel() + 1,), (1,), torch.int64), allocate((lengths.numel(),), (1,), lengths.dtype)
    count = routine(
        mask.data_ptr(), lengths.data_ptr(), lengths.numel(), mask.numel(), index.data_ptr(), left.data_ptr()
    )
    return None if count < 0 else (index[:count], left)


def ranges(starts: Tensor, size: int) -> Tensor | None:
    """For each of `size` values its place after the start before it, of the dtype of `starts`, which holds `size`."""
    routine = _routine("ranges", starts)
    if routine is None or size < 0:
        return None
    made = allocate((size,), (1,), starts.dtype)
    return None if routine(starts.data_ptr(), starts.numel(), size, made.data_ptr()) else made


def expand(permute: Any, given: Any, places: Any, size: Any) -> Tensor | None:
    """Numbers given[permute[i]] .. given[permute[i] + 1], which `places` are the offsets of and `size` the number."""
    library = _library()
    if library is None or not are_vectors(permute, given, places) or type(size) is not int or size < 0:
        return None
    routine = library.get(("expand", given.dtype))
    if routine is None or places.dtype is not given.dtype:
        return None
    features, chosen = given.numel() - 1, permute.numel()
    if features < 0 or places.numel() != chosen + 1:
        return None
    if permute.dtype is not given.dtype:
        if permute.dtype is not torch.int32:  # which fits int64, but not the other way round
            return None
        permute = permute.to(given.dtype)
    made = allocate((size,), (1,), given.dtype)
    failed = routine(permute.data_ptr(), given.data_ptr(), places.data_ptr(), features, chosen, size, made.data_ptr())
    return None if failed else made


def sums(values: Tensor, ends: Any, batch: int = 1) -> Tensor | None:
    """The sums of the values ends[i] · batch .. ends[i + 1] · batch, of their dtype, if that holds them."""
    # What `are_vectors` asks, written out: a call more is a fiftieth of the sums of some thousand numbers.
    library = _library()
    if library is None or not type(values) is type(ends) is Tensor or forward_ad._current_level >= 0:
        return None
    if not (values.is_cpu and ends.is_cpu and values.is_contiguous() and ends.stride() == (1,)):
        return None
    dtype = values.dtype
    routine = library.get(("sums", dtype, ends.dtype))
    if routine is None or (dtype not in _INTEGERS and values.is_neg()):
        return None
    segments = ends.numel() - 1
    if segments < 0 or not 0 <= batch <= INT32_MAX:
        return None
    made = allocate((segments,), (1,), dtype)
    try:
        failed = routine(values.data_ptr(), values.numel(), ends.data_ptr(), segments, batch, made.data_ptr())
    except RuntimeError:  # a transform stands in for them: they have no address
        return None
    return None if failed else made
