"""Entries: the numbers, strings, times and missing entries of the innermost lists become values.

Only the types of the entries decide what a column holds, not their size: Python's int becomes int64, its float float64.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.table.schema import dtype_name

LISTS = (list, tuple)
ARRAYS = {np.ndarray, torch.Tensor}
_NUMBERS = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
"""The numpy types of Python's numbers."""
_TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_DIFFERENCES = (datetime.timedelta, np.timedelta64)

ReadEntries = tuple[torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]


@dataclass(frozen=True)
class Wanted:
    """What is declared about the entries of lists, for cases in which the entries themselves do not show it."""

    dtype: torch.dtype | None = None
    features: tuple[int, ...] = ()
    text: bool = False
    unit: str | None = None


def column_values(values: torch.Tensor, name: str) -> torch.Tensor:
    """Return the values if they can be a column; raise an error otherwise."""
    if values.ndim == 0:
        raise ValueError(f"column {name!r} needs an entry per row, got a 0-d tensor")
    if values.device.type != "cpu":
        raise ValueError(f"column {name!r} must lie on the CPU, got {values.device}; move it there first")
    if values.requires_grad:
        raise ValueError(f"column {name!r} requires a gradient, which a table does not carry; detach it first")
    dtype_name(values.dtype)
    return values.resolve_conj().resolve_neg().contiguous()


def first_of(level: Any) -> Any:
    """Return the first entry that is not missing; None if there is none."""
    return next((entry for entry in level if entry is not None), None)


def entry_at(outer: Sequence[torch.Tensor], place: int) -> str:
    """Return the indices of entry `place` of the innermost lists as text, such as `[2][0]`.

    `outer` has the offsets of all levels around the entry.
    """
    path: list[int] = []
    for offsets in reversed(outer):
        parent = int(torch.searchsorted(offsets, place, right=True)) - 1
        path.insert(0, place - int(offsets[parent]))
        place = parent
    return "".join(f"[{i}]" for i in (place, *path))


def read_entries(level: list[Any], name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> ReadEntries:
    """Return the values, mask, vocabulary and unit of flat entries.

    `outer` has the offsets of the lists around them.
    """
    kinds = set(map(type, level))
    valid = None
    if type(None) in kinds:
        valid = torch.tensor([entry is not None for entry in level])
        kinds.discard(type(None))
        if not kinds:
            values = torch.zeros((len(level), *wanted.features), dtype=wanted.dtype or torch.float64)
            return values, valid, () if wanted.text else None, wanted.unit
        is_text = any(issubclass(kind, str) for kind in kinds)
        filling = None if is_text else _filling(first_of(level))
        level = [filling if entry is None else entry for entry in level]
    if any(issubclass(kind, str) for kind in kinds):
        return (*_encoded(level, valid, name, outer), None)
    if kinds and all(issubclass(kind, _TIMES) for kind in kinds):
        values, unit = _times(level, kinds, valid, name, outer, wanted)
        return values, valid, None, unit
    return _numbers(level, kinds, name, outer, wanted), valid, None, None


def _filling(first: Any) -> Any:
    """Return a value with the type and shape of the first present entry, to stand in for missing entries."""
    if isinstance(first, LISTS):
        return [_filling(each) for each in first]
    if isinstance(first, torch.Tensor):
        return torch.zeros_like(first)
    if isinstance(first, np.ndarray):
        return np.zeros_like(first)
    if isinstance(first, _TIMES):
        return first
    if isinstance(first, np.generic):
        return type(first)()
    return False if isinstance(first, bool) else 0


# --------------------------------------------------------------------------------------------------- strings, times


def _encoded(
    level: list[Any], valid: torch.Tensor | None, name: str, outer: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None, tuple[str, ...]]:
    """Return strings as codes in the vocabulary of all strings that occur, in the order of their first occurrence."""
    places: dict[str, int] = {}
    try:
        made = np.fromiter((0 if word is None else places.setdefault(word, len(places)) for word in level), np.int32)
    except TypeError:  # The entry cannot be hashed; it may be a list.
        raise _mixed(level, name, outer) from None
    if not all(isinstance(word, str) for word in places):
        raise _mixed(level, name, outer)
    return torch.from_numpy(made), valid, tuple(map(str, places))


def _mixed(level: list[Any], name: str, outer: Sequence[torch.Tensor]) -> TypeError:
    """Return the error that names the first entry that is not a string among strings."""
    at, other = next((at, each) for at, each in enumerate(level) if each is not None and not isinstance(each, str))
    return TypeError(
        f"column {name!r} mixes strings with {type(other).__name__}: entry {entry_at(outer, at)} is {other!r:.40}"
    )


def _times(
    level: list[Any],
    kinds: set[type],
    valid: torch.Tensor | None,
    name: str,
    outer: Sequence[torch.Tensor],
    wanted: Wanted,
) -> tuple[torch.Tensor, str]:
    """Return dates, times or time differences as counts of the finest unit among them. pandas' types are read too."""
    differences = {issubclass(kind, _DIFFERENCES) for kind in kinds if not _is_nat(kind)}
    if len(differences) > 1:
        raise TypeError(f"column {name!r} mixes dates with differences between dates")
    is_difference = differences.pop() if differences else (wanted.unit or "").startswith("timedelta64")
    if any(getattr(entry, "tzinfo", None) is not None for entry in level):
        raise TypeError(f"column {name!r} has times with a time zone, which a table does not keep; make them UTC first")
    what, convert = ("timedelta64", "to_timedelta64") if is_difference else ("datetime64", "to_datetime64")
    if any(_is_nat(kind) or hasattr(kind, convert) for kind in kinds):
        none = np.timedelta64("NaT") if is_difference else np.datetime64("NaT")
        level = [none if _is_nat(type(e)) else getattr(e, convert)() if hasattr(e, convert) else e for e in level]
    try:
        made = np.array(level, what)
    except (TypeError, ValueError) as error:
        raise TypeError(f"column {name!r} mixes units that have no common unit: {error}") from None
    if np.datetime_data(made.dtype)[0] == "generic":
        if wanted.unit is None or not np.isnat(made).all():
            raise TypeError(f"column {name!r} has times without a unit; NaT alone has none, so give one in a schema")
        made = made.astype(wanted.unit)
    _require_held(level, made, name, outer)
    values = torch.from_numpy(made.view(np.int64))
    return values if valid is None else values.masked_fill(~valid, 0), made.dtype.name


def _require_held(level: list[Any], made: Any, name: str, outer: Sequence[torch.Tensor]) -> None:
    """Raise an OverflowError if a time does not fit the finest unit; numpy would silently change it to another time."""
    places: dict[Any, list[int]] = {}
    for place, entry in enumerate(level):
        places.setdefault(getattr(entry, "dtype", type(entry)), []).append(place)
    for some in places.values() if len(places) > 1 else ():
        own = np.array([level[place] for place in some], made.dtype.type)
        wrong = np.flatnonzero((made[some].astype(own.dtype) != own) & ~np.isnat(own))
        if wrong.size:
            place = some[int(wrong[0])]
            raise OverflowError(
                f"column {name!r}: entry {entry_at(outer, place)}, {level[place]!r:.60}, does not fit {made.dtype}, "
                f"the finest unit of the column"
            )


def _is_nat(kind: type) -> bool:
    """Return whether a type is that of pandas' NaT, which may be a time or a time difference."""
    return kind.__name__ == "NaTType"


# ----------------------------------------------------------------------------------------------------------- numbers


def _numbers(
    level: list[Any], kinds: set[type], name: str, outer: Sequence[torch.Tensor], wanted: Wanted
) -> torch.Tensor:
    if kinds <= _NUMBERS.keys():
        return _of_python(level, kinds, name, outer, wanted)
    for kind in kinds:
        if not issubclass(kind, (*_NUMBERS, *LISTS, np.generic, np.ndarray, torch.Tensor)):
            place = next(i for i, entry in enumerate(level) if type(entry) is kind)
            raise TypeError(
                f"column {name!r}: entry {entry_at(outer, place)} must be a number, a string or a time, "
                f"got {level[place]!r:.40}"
            )
    try:
        if isinstance(level[0], torch.Tensor):
            return column_values(torch.stack(level), name)
        return _rectangular(level, name, outer, wanted)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"column {name!r}: entries must have one shape; a schema such as {{{name!r}: 'visits'}} makes "
            f"them lists: {error}"
        ) from None


def _of_python(
    level: list[Any], kinds: set[type], name: str, outer: Sequence[torch.Tensor], wanted: Wanted
) -> torch.Tensor:
    """Return numbers of Python's types as a tensor."""
    if bool in kinds and len(kinds) > 1:
        place = next(i for i, entry in enumerate(level) if (type(entry) is bool) != (type(level[0]) is bool))
        raise TypeError(
            f"column {name!r} mixes bools and numbers: entry {entry_at(outer, 0)} is {level[0]!r:.40}, entry "
            f"{entry_at(outer, place)} is {level[place]!r:.40}"
        )
    dtype = np.result_type(*(_NUMBERS[kind] for kind in kinds or {float}))
    if wanted.dtype == torch.uint64 and kinds == {int}:
        dtype = np.dtype(np.uint64)
    try:
        return torch.from_numpy(np.fromiter(level, dtype, len(level)))
    except OverflowError:
        raise _overflow(level, dtype, name, outer) from None


def _overflow(level: list[Any], dtype: np.dtype[Any], name: str, outer: Sequence[torch.Tensor]) -> OverflowError:
    """Return the error that names the first number that a dtype does not hold."""
    for place, entry in enumerate(level):
        try:
            np.array(entry, dtype)
        except OverflowError:
            where = f"entry {entry_at(outer, place)}, {entry!r:.40},"
            return OverflowError(f"column {name!r}: {where} does not fit {dtype.name}")
    raise AssertionError("all of the entries fit")


def _rectangular(level: list[Any], name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> torch.Tensor:
    """Return entries that are lists or arrays of one shape, or numbers of numpy and torch, as a tensor."""
    sizes: list[int] = []
    count, path = len(level), list(outer)
    while level and all(isinstance(entry, LISTS) for entry in level):
        lengths = {len(entry) for entry in level}
        if len(lengths) > 1:
            raise ValueError(f"there are lists of lengths {sorted(lengths)}")
        sizes.append(lengths.pop())
        path.append(torch.arange(len(level) + 1) * sizes[-1])
        level = list(chain.from_iterable(level))
    kinds = set(map(type, level))
    if kinds <= _NUMBERS.keys():
        made = _of_python(level, kinds, name, path, wanted)
    elif any(issubclass(kind, LISTS) for kind in kinds):
        return _rectangular([_as_array(entry, name, path, wanted) for entry in level], name, path, wanted)
    else:
        made = _of_numpy(level, name, path)
    if made.numel() == 0 and 0 in wanted.features:  # An empty list does not show the axes inside it.
        return made.reshape(count, *wanted.features)
    return made.reshape(count, *sizes, *made.shape[1:])


def _as_array(entry: Any, name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> Any:
    """Return a list as an array; return anything else unchanged."""
    return _rectangular([entry], name, outer, wanted)[0].numpy() if isinstance(entry, LISTS) else entry


def _of_numpy(level: list[Any], name: str, outer: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return numbers and arrays of numpy, with Python's numbers among them, as a tensor."""
    level = [entry.numpy() if isinstance(entry, torch.Tensor) else entry for entry in level]
    dtypes = {_dtype_of(entry) for entry in level}
    if any(dtype.kind not in "biufc" for dtype in dtypes):
        raise ValueError(f"they must hold numbers, got {', '.join(sorted(map(str, dtypes)))}")
    dtype = np.result_type(*dtypes)
    try:
        return torch.from_numpy(np.array(level, dtype))
    except OverflowError:
        raise _overflow(level, dtype, name, outer) from None


def _dtype_of(entry: Any) -> np.dtype[Any]:
    """Return the dtype of an array or a number, which depends only on its type."""
    if isinstance(entry, (np.generic, np.ndarray)):
        return entry.dtype
    return np.dtype(next((made for kind, made in _NUMBERS.items() if isinstance(entry, kind)), np.object_))
