"""Entries: what stands in the innermost of nested lists, as values: numbers, strings, times, and what is missing.

The types of entries say what a column holds, never how large they are: Python's ints are int64, its floats float64.
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
"""What numbers of Python become."""
_TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_DIFFERENCES = (datetime.timedelta, np.timedelta64)

Read = tuple[torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]


@dataclass(frozen=True)
class Wanted:
    """What is declared of the entries of lists, where they do not tell it themselves."""

    dtype: torch.dtype | None = None
    features: tuple[int, ...] = ()
    text: bool = False
    unit: str | None = None


def plain(values: torch.Tensor, name: str) -> torch.Tensor:
    """A tensor that a column can be."""
    if values.ndim == 0:
        raise ValueError(f"column {name!r} needs an entry per row, got a 0-d tensor")
    if values.device.type != "cpu":
        raise ValueError(f"column {name!r} must lie on the CPU, got {values.device}; move it there first")
    if values.requires_grad:
        raise ValueError(f"column {name!r} requires a gradient, which a table does not carry; detach it first")
    dtype_name(values.dtype)
    return values.resolve_conj().resolve_neg().contiguous()


def first_of(level: Any) -> Any:
    """The first entry that is not missing; None if there is none."""
    return next((entry for entry in level if entry is not None), None)


def entry_at(outer: Sequence[torch.Tensor], place: int) -> str:
    """Where entry `place` of the innermost lists stands: `[2][0]`; `outer` are the offsets of all levels."""
    path: list[int] = []
    for offsets in reversed(outer):
        parent = int(torch.searchsorted(offsets, place, right=True)) - 1
        path.insert(0, place - int(offsets[parent]))
        place = parent
    return "".join(f"[{i}]" for i in (place, *path))


def read_entries(level: list[Any], name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> Read:
    """Values, mask, vocabulary and unit of flat entries, the lists around which `outer` cuts."""
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
    """What stands where entries are missing, until there are values: of the shape and kind of the first that is not."""
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
    """Strings as places in the vocabulary of those that occur, in order of appearance."""
    places: dict[str, int] = {}
    try:
        made = np.fromiter((0 if word is None else places.setdefault(word, len(places)) for word in level), np.int32)
    except TypeError:  # an entry that has no hash, such as a list
        raise _mixed(level, name, outer) from None
    if not all(isinstance(word, str) for word in places):
        raise _mixed(level, name, outer)
    return torch.from_numpy(made), valid, tuple(map(str, places))


def _mixed(level: list[Any], name: str, outer: Sequence[torch.Tensor]) -> TypeError:
    """What is said of the first entry that is no string among strings."""
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
    """Dates, times or differences of them as counts of the finest unit among them; those of pandas have units too."""
    differences = {issubclass(kind, _DIFFERENCES) for kind in kinds if not _is_nat(kind)}
    if len(differences) > 1:
        raise TypeError(f"column {name!r} mixes dates with differences of them")
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
        raise TypeError(f"column {name!r} mixes units that have none in common: {error}") from None
    if np.datetime_data(made.dtype)[0] == "generic":
        if wanted.unit is None or not np.isnat(made).all():
            raise TypeError(f"column {name!r} has times without a unit; NaT alone does not tell one, a schema does")
        made = made.astype(wanted.unit)
    _require_held(level, made, name, outer)
    values = torch.from_numpy(made.view(np.int64))
    return values if valid is None else values.masked_fill(~valid, 0), made.dtype.name


def _require_held(level: list[Any], made: Any, name: str, outer: Sequence[torch.Tensor]) -> None:
    """An OverflowError if a time does not fit the finer unit of another; numpy makes any other time of it."""
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
    """Whether a type is that of NaT of pandas, which stands for a time and for a difference of times."""
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
            return plain(torch.stack(level), name)
        return _rectangular(level, name, outer, wanted)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"column {name!r}: entries must have one shape, unless a schema, as {{{name!r}: 'visits'}}, makes them "
            f"lists: {error}"
        ) from None


def _of_python(
    level: list[Any], kinds: set[type], name: str, outer: Sequence[torch.Tensor], wanted: Wanted
) -> torch.Tensor:
    """Numbers of Python."""
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
    """The error that names the first number of Python that a dtype does not hold."""
    for place, entry in enumerate(level):
        try:
            np.array(entry, dtype)
        except OverflowError:
            where = f"entry {entry_at(outer, place)}, {entry!r:.40},"
            return OverflowError(f"column {name!r}: {where} does not fit {dtype.name}")
    raise AssertionError("all of the entries fit")


def _rectangular(level: list[Any], name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> torch.Tensor:
    """Entries that have axes themselves, and numbers of numpy and torch."""
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
    if made.numel() == 0 and 0 in wanted.features:  # an empty list does not tell the axes inside it
        return made.reshape(count, *wanted.features)
    return made.reshape(count, *sizes, *made.shape[1:])


def _as_array(entry: Any, name: str, outer: Sequence[torch.Tensor], wanted: Wanted) -> Any:
    """A list among arrays as one of them."""
    return _rectangular([entry], name, outer, wanted)[0].numpy() if isinstance(entry, LISTS) else entry


def _of_numpy(level: list[Any], name: str, outer: Sequence[torch.Tensor]) -> torch.Tensor:
    """Numbers and arrays of numpy, and numbers of Python among them."""
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
    """The dtype of an array or a number, which its type alone decides."""
    if isinstance(entry, (np.generic, np.ndarray)):
        return entry.dtype
    return np.dtype(next((made for kind, made in _NUMBERS.items() if isinstance(entry, kind)), np.object_))
