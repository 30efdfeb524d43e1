"""Nested lists, and rows as mappings, read into offsets of the levels and the entries of the innermost lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.native import nesting
from serrate.table.entries import ARRAYS, LISTS, Wanted, column_values, entry_at, first_of, read_entries

if TYPE_CHECKING:
    from serrate.table.build import Declared

DEEPEST = 64
"""Lists may be nested at most this deep. A list that contains itself is therefore an error."""

ReadLists = tuple[tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]


def columns_of(rows: Iterable[Mapping[str, Any]], declared: Declared) -> dict[str, list[Any]]:
    """Return rows, each a mapping, as columns. All rows have the same columns; without rows the schema names them."""
    held = list(rows)
    names = list(held[0]) if held and isinstance(held[0], Mapping) else list(declared or ())
    if not names:
        raise ValueError("rows need at least one column; without rows, a schema must name the columns")
    for place, row in enumerate(held):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {place} must be a mapping of columns, got {type(row).__name__}")
        if row.keys() != dict.fromkeys(names).keys():
            raise KeyError(f"row {place} must have the columns {names}, got {list(row)}")
    return {name: [row[name] for row in held] for name in names}


def read_lists(given: Sequence[Any], name: str, depth: int | None, wanted: Wanted) -> ReadLists:
    """Return the offsets of the levels, the values, the mask, the vocabulary and the unit of nested lists."""
    read = _from_plain_lists(given, name, depth)
    if read is not None:
        return *read, None, None, None
    level: Any = given
    offsets: list[torch.Tensor] = []
    while (len(offsets) < depth) if depth is not None else isinstance(first_of(level), LISTS):
        offsets.append(_cut(level, name, offsets))
        joined = _joined(level, name) if len(offsets) == depth else None
        if joined is not None:
            return tuple(offsets), joined, None, None, None
        level = list(chain.from_iterable(level))
    return tuple(offsets), *read_entries(level, name, offsets, wanted)


def _joined(level: list[Any], name: str) -> torch.Tensor | None:
    """Join innermost lists that are all arrays, or all tensors, of one numeric dtype and shape; otherwise None."""
    # An empty array, such as np.array([]), may have another dtype than the others.
    level = [each for each in level if len(each)] or level
    kinds = set(map(type, level))
    if len(kinds) != 1 or not kinds <= ARRAYS or len({(each.dtype, each.shape[1:]) for each in level}) > 1:
        return None
    if kinds == {torch.Tensor}:
        return column_values(torch.cat(level), name)
    return column_values(torch.from_numpy(np.concatenate(level)), name) if level[0].dtype.kind in "biufc" else None


def _from_plain_lists(given: Any, name: str, depth: int | None) -> tuple[tuple[torch.Tensor, ...], torch.Tensor] | None:
    """Return the offsets and values of lists of numbers of one kind; None if there is anything else in the lists.

    The result is None as well if the lists are not nested as deep as `depth` says.
    """
    found, first = 0, first_of(given)
    while isinstance(first, LISTS):
        found += 1
        if found > DEEPEST:
            raise ValueError(
                f"column {name!r}: lists may be nested at most {DEEPEST} deep, got more; does one contain itself?"
            )
        first = first_of(_flattened(given, found))
    if depth is not None and depth != found:
        return None
    made = nesting.read(given, found, type(first))
    return nesting.read(given, found, float) if made is None and type(first) is int else made


def _flattened(given: Any, times: int) -> Any:
    """Return an iterable of the entries that are `times` lists deep."""
    for _ in range(times):
        given = chain.from_iterable(entry for entry in given if isinstance(entry, LISTS))
    return given


def _cut(level: list[Any], name: str, outer: list[torch.Tensor]) -> torch.Tensor:
    """Return the offsets of lists."""
    kinds = set(map(type, level))
    arrays = kinds & ARRAYS
    if not kinds <= {*LISTS, *ARRAYS} or (arrays and not all(map(_is_list, level))):
        place = next(i for i, entry in enumerate(level) if not _is_list(entry))
        raise ValueError(
            f"column {name!r}: all lists must be nested equally deep, but entry {entry_at(outer, place)} is "
            f"{level[place]!r:.40} where a list was expected"
        )
    made = np.zeros(len(level) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, level), np.int64, len(level)), out=made[1:])
    return torch.from_numpy(made)


def _is_list(entry: Any) -> bool:
    return isinstance(entry, LISTS) or (isinstance(entry, (np.ndarray, torch.Tensor)) and entry.ndim > 0)
