"""Listed: nested lists as offsets per level and flat values: numbers, strings, times, and what is missing."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.library import nesting
from serrate.table.schema import dtype_name

_LISTS = (list, tuple)
_ARRAYS = {np.ndarray, torch.Tensor}
_NUMBERS = {bool, int, float, complex}
_TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_DIFFERENCES = (datetime.timedelta, np.timedelta64)
DEEPEST = 64
"""Lists nest no deeper, so that one that holds itself is an error, too."""

Leaf = tuple[torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]
Read = tuple[tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]


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


def read_lists(given: Sequence[Any], name: str, depth: int | None, wanted: Wanted) -> Read:
    """Offsets of the levels, values, mask, vocabulary and unit of nested lists."""
    read = _from_plain_lists(given, name, depth, wanted)
    if read is not None:
        return *read, None, None, None
    level: Any = given
    offsets: list[torch.Tensor] = []
    while (len(offsets) < depth) if depth is not None else _is_nested(level):
        offsets.append(_cut(level, name, offsets))
        joined = _joined(level, name) if len(offsets) == depth else None
        if joined is not None:
            return tuple(offsets), joined, None, None, None
        level = list(chain.from_iterable(level))
    return tuple(offsets), *_leaf(level, name, offsets, wanted)


def _joined(level: list[Any], name: str) -> torch.Tensor | None:
    """The entries of innermost lists that are all arrays, or all tensors, of numbers of one dtype and shape."""
    # one without entries, as np.array([]), need not fit the others
    level = [each for each in level if len(each)] or level
    kinds = set(map(type, level))
    if len(kinds) != 1 or not kinds <= _ARRAYS or len({(each.dtype, each.shape[1:]) for each in level}) > 1:
        return None
    if kinds == {torch.Tensor}:
        return plain(torch.cat(level), name)
    return plain(torch.from_numpy(np.concatenate(level)), name) if level[0].dtype.kind in "biufc" else None


def _from_plain_lists(
    given: Any, name: str, depth: int | None, wanted: Wanted
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor] | None:
    """Offsets and values, if there is nothing but lists and numbers of one kind in them, as deep as they should be."""
    found, first = 0, _first(given)
    while isinstance(first, _LISTS):
        found += 1
        if found > DEEPEST:
            raise ValueError(f"column {name!r}: lists nest at most {DEEPEST} deep, got more; does one hold itself?")
        first = _first(_flattened(given, found))
    if depth is not None and depth != found:
        return None
    real = torch.get_default_dtype() if wanted.dtype is None else torch.float64
    made = nesting.read(given, found, type(first), real)
    return nesting.read(given, found, float, real) if made is None and type(first) is int else made


def _flattened(given: Any, times: int) -> Any:
    """The entries below so many lists, one by one."""
    for _ in range(times):
        given = chain.from_iterable(entry for entry in given if isinstance(entry, _LISTS))
    return given


def _first(level: Any) -> Any:
    return next((entry for entry in level if entry is not None), None)


def _is_nested(level: list[Any]) -> bool:
    """Whether entries are lists, going by the first that is not missing."""
    return isinstance(_first(level), _LISTS)


def _cut(level: list[Any], name: str, outer: list[torch.Tensor]) -> torch.Tensor:
    """The offsets of lists."""
    kinds = set(map(type, level))
    arrays = kinds & _ARRAYS
    if not kinds <= {*_LISTS, *_ARRAYS} or (arrays and not all(map(_is_list, level))):
        place = next(i for i, entry in enumerate(level) if not _is_list(entry))
        raise ValueError(
            f"column {name!r}: lists must nest to one depth, but entry {_place(outer, place)} is "
            f"{level[place]!r:.40} where a list was expected"
        )
    made = np.zeros(len(level) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, level), np.int64, len(level)), out=made[1:])
    return torch.from_numpy(made)


def _is_list(entry: Any) -> bool:
    return isinstance(entry, _LISTS) or (isinstance(entry, (np.ndarray, torch.Tensor)) and entry.ndim > 0)


def _place(outer: Sequence[torch.Tensor], place: int) -> str:
    """Where entry `place` of the innermost level stands: `[2][0]`."""
    path: list[int] = []
    for offsets in reversed(outer):
        parent = int(torch.searchsorted(offsets, place, right=True)) - 1
        path.insert(0, place - int(offsets[parent]))
        place = parent
    return "".join(f"[{i}]" for i in (place, *path))


def _leaf(level: list[Any], name: str, outer: list[torch.Tensor], wanted: Wanted) -> Leaf:
    """Values, mask, vocabulary and unit of flat entries."""
    kinds = set(map(type, level))
    valid = None
    if type(None) in kinds:
        valid = torch.tensor([entry is not None for entry in level])
        kinds.discard(type(None))
        if not kinds:
            return *_nothing(len(level), wanted), wanted.unit
        filling = _filling(level, kinds)
        level = [filling if entry is None else entry for entry in level]
    if any(issubclass(kind, str) for kind in kinds):
        return (*_encoded(level, valid, name, outer), None)
    if kinds and all(issubclass(kind, _TIMES) for kind in kinds):
        values, unit = _times(level, kinds, valid, name)
        return values, valid, None, unit
    return _numbers(level, kinds, name, outer, wanted), valid, None, None


def _nothing(count: int, wanted: Wanted) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...] | None]:
    """Entries that are all missing."""
    values = torch.zeros((count, *wanted.features), dtype=wanted.dtype or torch.get_default_dtype())
    return values, torch.zeros(count, dtype=torch.bool), () if wanted.text else None


def _filling(level: list[Any], kinds: set[type]) -> Any:
    """What stands where entries are missing, until there are values: of the shape and kind of the others."""
    first = _first(level)
    if isinstance(first, np.generic):
        return type(first)()
    if str in kinds:
        return None
    if isinstance(first, _TIMES):
        return first
    if isinstance(first, torch.Tensor):
        return torch.zeros_like(first)
    if isinstance(first, np.ndarray):
        return np.zeros_like(first)
    if isinstance(first, _LISTS):
        return np.zeros(np.shape(first), bool).tolist()
    return False if kinds <= {bool} else 0


def _encoded(
    level: list[Any], valid: torch.Tensor | None, name: str, outer: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None, tuple[str, ...]]:
    """Strings as places in the vocabulary of those that occur, in order of appearance."""
    places: dict[str, int] = {}
    made = np.fromiter((0 if word is None else places.setdefault(word, len(places)) for word in level), np.int32)
    for word in places:
        if not isinstance(word, str):
            raise TypeError(
                f"column {name!r} mixes strings with {type(word).__name__}: entry "
                f"{_place(outer, level.index(word))} is {word!r:.40}"
            )
    return torch.from_numpy(made), valid, tuple(map(str, places))


def _times(level: list[Any], kinds: set[type], valid: torch.Tensor | None, name: str) -> tuple[torch.Tensor, str]:
    differences = {issubclass(kind, _DIFFERENCES) for kind in kinds}
    if len(differences) > 1:
        raise TypeError(f"column {name!r} mixes dates with differences of them")
    if datetime.datetime in kinds and any(getattr(entry, "tzinfo", None) is not None for entry in level):
        raise TypeError(f"column {name!r} has times with a time zone, which a table does not keep; make them UTC first")
    try:
        made = np.array(level, "timedelta64" if differences.pop() else "datetime64")
    except (TypeError, ValueError) as error:
        raise TypeError(f"column {name!r} mixes units that have none in common: {error}") from None
    values = torch.from_numpy(made.view(np.int64))
    if valid is not None:
        values = values.masked_fill(~valid, 0)
    return values, made.dtype.name


def _numbers(level: list[Any], kinds: set[type], name: str, outer: list[torch.Tensor], wanted: Wanted) -> torch.Tensor:
    if not kinds:
        return torch.zeros(len(level))
    if kinds <= _NUMBERS:
        _require_one_kind(level, kinds, name, outer)
        unsigned = wanted.dtype == torch.uint64 and kinds == {int}
        dtype = np.uint64 if unsigned else _dtype_of(kinds)
        try:
            made = torch.from_numpy(np.fromiter(level, dtype, len(level)))
        except OverflowError:
            low, high = (0, 2**64) if unsigned else (-(2**63), 2**63)
            place = next(i for i, entry in enumerate(level) if not low <= entry < high)
            raise OverflowError(
                f"column {name!r}: entry {_place(outer, place)}, {level[place]!r:.40}, does not fit "
                f"{np.dtype(dtype).name}"
            ) from None
        return made if wanted.dtype is not None or kinds <= {int, bool} else made.to(_default(dtype))
    for kind in kinds:
        if not issubclass(kind, (*_NUMBERS, *_LISTS, np.generic, np.ndarray, torch.Tensor)):
            place = next(i for i, entry in enumerate(level) if type(entry) is kind)
            raise TypeError(
                f"column {name!r}: entry {_place(outer, place)} must be a number, a string or a time, "
                f"got {level[place]!r:.40}"
            )
    return _rectangular(level, name, wanted)


def _rectangular(level: list[Any], name: str, wanted: Wanted) -> torch.Tensor:
    """Entries that have axes themselves."""
    try:
        if isinstance(level[0], torch.Tensor):
            return plain(torch.stack(level), name)
        made = np.array(level)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"column {name!r}: entries must have one shape, unless a schema, as {{{name!r}: 'visits'}}, makes them "
            f"lists: {error}"
        ) from None
    if made.dtype.kind not in "biufc":
        raise ValueError(f"column {name!r}: entries inside the lists must have one shape and be numbers")
    if made.size == 0 and 0 in wanted.features:  # an empty list does not tell the axes inside it
        made = made.reshape(len(level), *wanted.features)
    held = torch.from_numpy(made)
    keeps = wanted.dtype is not None or isinstance(level[0], (np.generic, np.ndarray))
    return held if keeps or not held.is_floating_point() else held.to(torch.get_default_dtype())


def _require_one_kind(level: list[Any], kinds: set[type], name: str, outer: list[torch.Tensor]) -> None:
    if bool in kinds and len(kinds) > 1:
        place = next(i for i, entry in enumerate(level) if (type(entry) is bool) != (type(level[0]) is bool))
        raise TypeError(
            f"column {name!r} mixes bools and numbers: entry {_place(outer, 0)} is {level[0]!r:.40}, entry "
            f"{_place(outer, place)} is {level[place]!r:.40}"
        )


def _dtype_of(kinds: set[type]) -> Any:
    if complex in kinds:
        return np.complex128
    return np.float64 if float in kinds else np.int64 if int in kinds else np.bool_


def _default(dtype: Any) -> torch.dtype:
    """The dtype that torch gives Python numbers."""
    real = torch.get_default_dtype()
    return real if dtype is np.float64 else real.to_complex()
