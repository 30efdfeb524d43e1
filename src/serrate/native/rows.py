"""This module copies, selects, counts and sums runs of packed rows on the CPU, by rows.cpp.

torch has no call that copies runs of rows: its calls need the index of each row, and take two to three times as long.
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

from serrate.native.loading import allocate, are_vectors, empty, load, plain, size_of, threads_for, transforming
from serrate.tensor import host
from serrate.tensor.offsets import INT32_MAX

_INTEGERS = {torch.int32: "int32", torch.int64: "int64"}
_NUMBERS = {torch.float32: "float32", torch.float64: "float64", **_INTEGERS}
_BY_LENGTHS = (
    "copy_runs", "put_runs", "select_runs", "slice_runs", "cut_runs", "complete", "offsets", "keep", "ranges", "expand",
)  # fmt: skip


@cache
def _library() -> Mapping[tuple[Any, ...], Callable[..., int]] | None:
    """Return the compiled functions by name and dtypes; None if there is no library with them."""
    names: dict[tuple[Any, ...], str] = {
        (name, lengths): f"{name}_{kind}" for name in _BY_LENGTHS for lengths, kind in _INTEGERS.items()
    }
    for (values, number), (ends, kind) in product(_NUMBERS.items(), _INTEGERS.items()):
        names["sums", values, ends] = f"sums_{number}_{kind}"
        if values.is_floating_point:
            names["add_runs", values, ends] = f"add_runs_{number}_{kind}"
    library = load("rows.cpp", names.values())
    return None if library is None else {key: library[name] for key, name in names.items()}


def is_there() -> bool:
    """Return whether there is compiled code."""
    return _library() is not None


def _routine(name: str, lengths: Any, *values: torch.dtype) -> Any:
    """Return the function of this name for the dtype of the lengths, a vector, and for the dtypes of the values.

    It is None if there is no such function.
    """
    library = _library()
    return library.get((name, *values, lengths.dtype)) if library is not None and are_vectors(lengths) else None


def _narrows(given: Tensor, lengths: Tensor) -> bool:
    """Return whether numbers may lose bits in the dtype of the lengths."""
    return given.dtype != lengths.dtype and given.dtype != torch.int32


# ------------------------------------------------------------------------------------------------- runs of rows


def copy_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """Copy runs of rows, one after the other: run j has `lengths[j]` rows from row `source[j]`, int64, on.

    All must lie within `values`, and together they must have `rows` rows.
    """
    return _moved(("copy_runs", lengths.dtype), values, source, lengths, rows, values.element_size())


def put_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """Return `rows` rows: `values` lie in the runs that `copy_runs` reads, and all other rows are 0.

    No two runs may share a row.
    """
    return _moved(("put_runs", lengths.dtype), values, source, lengths, rows, values.element_size())


def add_runs(values: Tensor, source: Tensor, lengths: Tensor, rows: int) -> Tensor | None:
    """Return the same for runs that may share rows: values for the same row are added up."""
    return _moved(("add_runs", values.dtype, lengths.dtype), values, source, lengths, rows, 1)


def _moved(
    key: tuple[Any, ...], values: Tensor, source: Tensor, lengths: Tensor, rows: int, unit: int
) -> Tensor | None:
    """Return the result of a function for runs of rows; the width of a row is `unit` times its number of elements."""
    library = _library()
    routine = None if library is None else library.get(key)
    if routine is None or not values.is_cpu or not are_vectors(source, lengths) or source.dtype is not torch.int64:
        return None
    count = lengths.numel()
    if source.numel() != count or host.is_batch(values):
        return None
    values = plain(values)
    shape = values.shape
    features = shape[1:]
    made = empty((rows, *features), values.dtype)
    failed = routine(
        values.data_ptr(), shape[0], source.data_ptr(), lengths.data_ptr(), count, unit * math.prod(features), rows,
        made.data_ptr(), threads_for(size_of(made)),
    )  # fmt: skip
    return None if failed else made


Found = tuple[Tensor, Tensor, int]
"""The first row of each run, int64, the lengths of the runs, and the number of all their rows."""


def select_runs(lengths: Tensor, offsets: Tensor, index: Tensor, ends: Tensor | None = None) -> Found | None:
    """Return the components at `index` as runs; `offsets`, int64, must be those of `lengths`.

    If `ends` is given, a vector of the dtype of the lengths, the offsets of the runs are written there.
    """
    routine = _routine("select_runs", lengths)
    if routine is None or not are_vectors(index) or index.dtype not in _INTEGERS:
        return None
    index = index if index.dtype is torch.int64 else index.to(torch.int64)
    count = index.numel()
    source, picked = allocate((count,), (1,), torch.int64), allocate((count,), (1,), lengths.dtype)
    rows = routine(
        lengths.data_ptr(), offsets.data_ptr(), lengths.numel(), index.data_ptr(), count, source.data_ptr(),
        picked.data_ptr(), 0 if ends is None else ends.data_ptr(),
    )  # fmt: skip
    return None if rows < 0 else (source, picked, rows)


def slice_runs(lengths: Tensor, start: Tensor, rows: int, most: int) -> Found | None:
    """Return a run of at most `most` rows of each component, from its `start` on; lengths must add up to `rows`."""
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


def cut_runs(offsets: Tensor, start: int, stop: int | None, ends: Tensor) -> Found | None:
    """Return the rows start .. stop of each component as a run; negative positions count from its end, as in Python.

    The offsets of the runs are written to `ends`, which is like the offsets.
    """
    routine = _routine("cut_runs", offsets)
    if routine is None or not offsets.numel() or not -_FAR <= start <= _FAR or not -_FAR <= (stop or 0) <= _FAR:
        return None
    count = offsets.numel() - 1
    source, picked = allocate((count,), (1,), torch.int64), allocate((count,), (1,), offsets.dtype)
    rows = routine(
        offsets.data_ptr(), count, start, _FAR if stop is None else stop, source.data_ptr(), picked.data_ptr(),
        ends.data_ptr(),
    )  # fmt: skip
    return None if rows < 0 else (source, picked, rows)


_FAR = 2**62
"""A position that no component reaches."""


# ------------------------------------------------------------------------------------- offsets, masks and sums


def complete(given: Tensor) -> Tensor | None:
    """Return the running sums of a vector, or of each line of a matrix, with a 0 before; None if one does not fit."""
    return _complete("complete", given, given.dtype, 2)


def offsets(lengths: Tensor) -> Tensor | None:
    """Return the running sums of lengths in int64, with a 0 before; None if a length is negative or a sum too large."""
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
    """Return the positions at which a bool mask is true, int64, and how many of them each component has.

    Lengths must add up to the size of the mask.
    """
    routine = _routine("keep", lengths)
    if routine is None or not are_vectors(mask) or mask.dtype != torch.bool:
        return None
    index, left = allocate((mask.numel() + 1,), (1,), torch.int64), allocate((lengths.numel(),), (1,), lengths.dtype)
    count = routine(
        mask.data_ptr(), lengths.data_ptr(), lengths.numel(), mask.numel(), index.data_ptr(), left.data_ptr()
    )
    return None if count < 0 else (index[:count], left)


def ranges(starts: Tensor, size: int) -> Tensor | None:
    """Return for each of `size` values its distance from the last start before it, in the dtype of `starts`.

    This dtype must hold `size`.
    """
    routine = _routine("ranges", starts)
    if routine is None or size < 0:
        return None
    made = allocate((size,), (1,), starts.dtype)
    return None if routine(starts.data_ptr(), starts.numel(), size, made.data_ptr()) else made


def expand(permute: Any, given: Any, places: Any, size: Any) -> Tensor | None:
    """Return the numbers given[permute[i]] .. given[permute[i] + 1] for each i, one range after the other.

    `places` must be the offsets of these ranges, and `size` must be the number of all numbers.
    """
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
        if permute.dtype is not torch.int32:  # int32 fits int64, but int64 does not fit int32.
            return None
        permute = permute.to(given.dtype)
    made = allocate((size,), (1,), given.dtype)
    failed = routine(permute.data_ptr(), given.data_ptr(), places.data_ptr(), features, chosen, size, made.data_ptr())
    return None if failed else made


def sums(values: Tensor, ends: Any, batch: int = 1) -> Tensor | None:
    """Return the sums of the values ends[i] · batch .. ends[i + 1] · batch in their dtype; None if one does not fit."""
    # This is `are_vectors`, written out: one more call takes a fiftieth of the time of summing some thousand numbers.
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
    except RuntimeError:  # Under a transform of torch, tensors have no address.
        return None
    return None if failed else made
