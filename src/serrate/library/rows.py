"""Rows of components on the CPU, by rows.cpp: copied between packed and padded memory, counted, cut and summed.

torch has no call that writes a padded tensor, or runs of rows, in one pass: its calls take two to three times as long.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from serrate.library.loading import POINTER, SIZE, SMALL, Routines, is_vector, load, plain, threads_for
from serrate.tensor import bits

_LARGE = 2**23  # bytes of a result from which on large pages are asked for
_INTEGERS = {torch.int32: "int32", torch.int64: "int64"}
_NUMBERS = _INTEGERS | {torch.float32: "float32", torch.float64: "float64"}
_BY_LENGTHS = {
    "copy_runs": [*[POINTER] * 3, SIZE, SIZE, POINTER],
    "put_runs": [*[POINTER] * 3, SIZE, SIZE, SIZE, POINTER],
    "select_runs": [POINTER, POINTER, SIZE, POINTER, SIZE, POINTER, POINTER],
    "slice_runs": [POINTER, POINTER, SIZE, SIZE, SIZE, POINTER, POINTER],
    "complete": [POINTER, SIZE, SIZE, POINTER],
    "offsets": [POINTER, SIZE, SIZE, POINTER],
    "keep": [POINTER, POINTER, SIZE, SIZE, POINTER, POINTER],
    "ranges": [POINTER, SIZE, SIZE, POINTER],
    "expand": [POINTER, POINTER, POINTER, SIZE, SIZE, SIZE, POINTER],
}


@cache
def _library() -> Routines | None:
    """The compiled source; None where it cannot be compiled."""
    signatures = {f"{name}_{kind}": types for name, types in _BY_LENGTHS.items() for kind in _INTEGERS.values()}
    summed = [POINTER, SIZE, POINTER, SIZE, SIZE, POINTER]
    signatures |= {f"sums_{kind}_{ends}": summed for kind in _NUMBERS.values() for ends in _INTEGERS.values()}
    signatures["advise"] = [POINTER, SIZE]
    signatures["total"] = [POINTER, SIZE]
    signatures["pad"] = [*[POINTER] * 3, *[SIZE] * 4, POINTER, SIZE, SMALL]
    signatures["unpad"] = [*[POINTER] * 3, *[SIZE] * 4, SMALL]
    return load("rows.cpp", signatures)


def _routine(name: str, lengths: Any) -> Any:
    """The function of this name for a vector of lengths of their dtype, if there is one."""
    library = _library()
    if library is None or not is_vector(lengths):
        return None
    return library.get(f"{name}_{_INTEGERS.get(lengths.dtype)}")


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A result to be written, of the dtype and device of `like`; on large pages where that pays."""
    made = like.new_empty(shape)
    size = made.nbytes
    if size >= _LARGE and made.is_cpu and (library := _library()) is not None:
        library["advise"](made.data_ptr(), size)
    return made


def _narrows(given: torch.Tensor, lengths: torch.Tensor) -> bool:
    """Whether numbers would lose bits in the dtype of lengths."""
    return given.dtype != lengths.dtype and given.dtype != torch.int32


def _width(values: torch.Tensor) -> int:
    """The bytes of a row."""
    return values.element_size() * math.prod(values.shape[1:])


# --------------------------------------------------------------------------------------------- packed and padded


def total(offsets: torch.Tensor) -> int | None:
    """The last of offsets, if they are known to start with 0 and never to decrease."""
    library, ends = _library(), _wide(offsets)
    if library is None or ends is None:
        return None
    found = library["total"](ends.data_ptr(), ends.numel())
    return None if found < 0 else found


def _wide(offsets: Any) -> torch.Tensor | None:
    """Offsets, at least one, in int64; None if this is something else."""
    if not is_vector(offsets) or not offsets.numel():
        return None
    if offsets.dtype == torch.int64:
        return offsets  # type: ignore[no-any-return]
    return offsets.to(torch.int64) if offsets.dtype == torch.int32 else None


def pad(values: torch.Tensor, offsets: Any, most: int, padding: Any = 0) -> torch.Tensor | None:
    """[B, most, …] out of packed rows [N, …] and offsets, which may end before N: rows padded, or cut off."""
    library, ends = _library(), _wide(offsets)
    if library is None or ends is None or not values.is_cpu or most < 0:
        return None
    filling = _filling(padding, values)
    values = plain(values)
    components, (rows, *features), size = ends.numel() - 1, values.shape, values.element_size()
    made = empty((components, most, *features), values)
    width = size * math.prod(features)
    failed = library["pad"](
        values.data_ptr(), ends.data_ptr(), made.data_ptr(), components, rows, most, width,
        None if filling is None else filling.data_ptr(), size, threads_for(components * most * width),
    )  # fmt: skip
    return None if failed else made


def pad_keys(
    values: torch.Tensor, lengths: torch.Tensor, starts: list[int], sizes: list[int], padding: Any = 0
) -> list[torch.Tensor] | None:
    """For each key k [B, sizes[k], …] out of the rows of `lengths` [K, B] from `starts[k]` up to `starts[k + 1]`.

    The K + 1 starts never decrease and lie within `values`, and sizes are 0 or more.
    """
    library = _library()
    ends = offsets(lengths) if values.is_cpu and lengths.ndim == 2 else None
    if library is None or ends is None:
        return None
    filling = _filling(padding, values)
    values = plain(values)
    components, features, size = lengths.shape[1], values.shape[1:], values.element_size()
    width, first, line = size * math.prod(features), values.data_ptr(), 8 * (components + 1)
    address = None if filling is None else filling.data_ptr()
    result = []
    for key, most in enumerate(sizes):
        made = empty((components, most, *features), values)
        failed = library["pad"](
            first + starts[key] * width, ends.data_ptr() + key * line, made.data_ptr(), components,
            starts[key + 1] - starts[key], most, width, address, size, threads_for(components * most * width),
        )  # fmt: skip
        if failed:
            return None
        result.append(made)
    return result


def _filling(padding: Any, values: torch.Tensor) -> torch.Tensor | None:
    """One element of the padding; None for zeros."""
    return None if _is_zero(padding) else bits.constant(padding, values.dtype, values.device)


def _is_zero(padding: Any) -> bool:
    """Whether all its bits are 0, as those of -0.0 are not."""
    return not isinstance(padding, complex) and padding == 0 and math.copysign(1, padding) > 0


def unpad(padded: torch.Tensor, offsets: Any, rows: int) -> torch.Tensor | None:
    """[rows, …] out of [B, most, …] and offsets, which may end before `rows`: 0 where a row is not in `padded`."""
    library, ends = _library(), _wide(offsets)
    if library is None or ends is None or not padded.is_cpu or padded.shape[0] != ends.numel() - 1:
        return None
    padded = plain(padded)
    components, most, *features = padded.shape
    made = empty((rows, *features), padded)
    width = padded.element_size() * math.prod(features)
    failed = library["unpad"](
        padded.data_ptr(), ends.data_ptr(), made.data_ptr(), components, rows, most, width, threads_for(rows * width)
    )
    return None if failed else made


# ------------------------------------------------------------------------------------------------- runs of rows


def copy_runs(values: torch.Tensor, source: torch.Tensor, lengths: torch.Tensor, rows: int) -> torch.Tensor | None:
    """The runs of `lengths` rows from `source`, int64, on, one after the other: `rows` rows, which they have together.

    Both come from `select_runs` or `slice_runs`, so that they lie within `values`.
    """
    routine = _routine("copy_runs", lengths)
    if routine is None or not values.is_cpu:
        return None
    values = plain(values)
    made = empty((rows, *values.shape[1:]), values)
    routine(values.data_ptr(), source.data_ptr(), lengths.data_ptr(), lengths.numel(), _width(made), made.data_ptr())
    return made


def put_runs(values: torch.Tensor, source: torch.Tensor, lengths: torch.Tensor, rows: int) -> torch.Tensor | None:
    """`rows` rows with `values` as the runs that `copy_runs` takes, 0 elsewhere; no two share a row."""
    routine = _routine("put_runs", lengths)
    if routine is None or not values.is_cpu:
        return None
    values = plain(values)
    made = empty((rows, *values.shape[1:]), values)
    routine(
        values.data_ptr(), source.data_ptr(), lengths.data_ptr(), lengths.numel(), _width(made), rows, made.data_ptr()
    )
    return made


Found = tuple[torch.Tensor, torch.Tensor, int]
"""Where runs begin, int64, their lengths, and how many rows they have together."""


def select_runs(lengths: torch.Tensor, offsets: torch.Tensor, index: torch.Tensor) -> Found | None:
    """The components at `index`; `offsets`, int64, are the complete sums of `lengths`."""
    routine = _routine("select_runs", lengths)
    if routine is None or not is_vector(index) or index.dtype not in _INTEGERS:
        return None
    index = index.to(torch.int64)
    source, picked = torch.empty_like(index), lengths.new_empty(index.numel())
    rows = routine(
        lengths.data_ptr(), offsets.data_ptr(), lengths.numel(), index.data_ptr(), index.numel(), source.data_ptr(),
        picked.data_ptr(),
    )  # fmt: skip
    return None if rows < 0 else (source, picked, rows)


def slice_runs(lengths: torch.Tensor, start: torch.Tensor, rows: int, most: int) -> Found | None:
    """What is left of each component from its `start` on, at most `most` rows of it; lengths add up to `rows`."""
    routine = _routine("slice_runs", lengths)
    if routine is None or not is_vector(start) or start.numel() != lengths.numel() or most < 0:
        return None
    if start.dtype not in _INTEGERS or _narrows(start, lengths):
        return None
    start = start.to(lengths.dtype)
    source, picked = lengths.new_empty(lengths.numel(), dtype=torch.int64), torch.empty_like(lengths)
    left = routine(
        lengths.data_ptr(), start.data_ptr(), lengths.numel(), rows, most, source.data_ptr(), picked.data_ptr()
    )
    return None if left < 0 else (source, picked, left)


# --------------------------------------------------------------------------------------------- numbers of rows


def complete(given: torch.Tensor) -> torch.Tensor | None:
    """The running sums of a vector, or of each line of a matrix, with a 0 before, if the dtype holds them."""
    return _complete("complete", given, given.dtype, 2)


def offsets(lengths: torch.Tensor) -> torch.Tensor | None:
    """The same in int64, for lengths, none of which may be negative."""
    return _complete("offsets", lengths, torch.int64, 3)


def _complete(name: str, given: torch.Tensor, dtype: torch.dtype, faults: int) -> torch.Tensor | None:
    library, kind = _library(), _INTEGERS.get(given.dtype)
    if library is None or kind is None or not given.is_cpu or not given.is_contiguous() or not given.ndim:
        return None
    shape = list(given.shape)
    columns = shape[-1]
    shape[-1] += 1
    made = given.new_empty(shape, dtype=dtype)
    failed = library[f"{name}_{kind}"](given.data_ptr(), math.prod(shape[:-1]), columns, made.data_ptr()) & faults
    return None if failed else made


def keep(mask: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Where a bool mask holds, int64, and how many values of each component are left; lengths add up to its size."""
    routine = _routine("keep", lengths)
    if routine is None or not is_vector(mask) or mask.dtype != torch.bool:
        return None
    index, left = lengths.new_empty(mask.numel() + 1, dtype=torch.int64), torch.empty_like(lengths)
    count = routine(
        mask.data_ptr(), lengths.data_ptr(), lengths.numel(), mask.numel(), index.data_ptr(), left.data_ptr()
    )
    return None if count < 0 else (index[:count], left)


def ranges(starts: torch.Tensor, size: int) -> torch.Tensor | None:
    """For each of `size` values its place after the start before it, of the dtype of `starts`, which holds `size`."""
    routine = _routine("ranges", starts)
    if routine is None or size < 0:
        return None
    made = starts.new_empty(size)
    return None if routine(starts.data_ptr(), starts.numel(), size, made.data_ptr()) else made


def expand(permute: torch.Tensor, given: torch.Tensor, places: torch.Tensor, size: int) -> torch.Tensor | None:
    """Numbers given[permute[i]] .. given[permute[i] + 1], which `places` are the offsets of and `size` the number."""
    routine = _routine("expand", given)
    if routine is None or not (is_vector(permute) and is_vector(places)) or places.dtype != given.dtype or size < 0:
        return None
    if not given.numel() or places.numel() != permute.numel() + 1:
        return None
    if permute.dtype not in _INTEGERS or _narrows(permute, given):
        return None
    permute = permute.to(given.dtype)
    made = given.new_empty(size)
    failed = routine(
        permute.data_ptr(), given.data_ptr(), places.data_ptr(), given.numel() - 1, permute.numel(), size,
        made.data_ptr(),
    )  # fmt: skip
    return None if failed else made


def sums(values: torch.Tensor, ends: torch.Tensor, batch: int = 1) -> torch.Tensor | None:
    """The sums of the values ends[i] · batch .. ends[i + 1] · batch, of their dtype, if that holds them."""
    library = _library()
    if library is None or not (is_vector(values) and is_vector(ends)) or batch < 0:
        return None
    routine = library.get(f"sums_{_NUMBERS.get(values.dtype)}_{_INTEGERS.get(ends.dtype)}")
    segments = ends.numel() - 1
    if routine is None or segments < 0:
        return None
    made = values.new_empty(segments)
    failed = routine(values.data_ptr(), values.numel(), ends.data_ptr(), segments, batch, made.data_ptr())
    return None if failed else made
