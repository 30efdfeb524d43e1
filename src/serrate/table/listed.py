"""Listed: nested lists as offsets per level, and what stands in the innermost ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.native import nesting
from serrate.table.entries import ARRAYS, LISTS, Wanted, entry_at, first_of, plain, read_entries

DEEPEST = 64
"""Lists nest no deeper, so that one that holds itself is an error, too."""

Read = tuple[tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor | None, tuple[str, ...] | None, str | None]


def read_lists(given: Sequence[Any], name: str, depth: int | None, wanted: Wanted) -> Read:
    """Offsets of the levels, values, mask, vocabulary and unit of nested lists."""
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
    """The entries of innermost lists that are all arrays, or all tensors, of numbers of one dtype and shape."""
    # one without entries, as np.array([]), need not fit the others
    level = [each for each in level if len(each)] or level
    kinds = set(map(type, level))
    if len(kinds) != 1 or not kinds <= ARRAYS or len({(each.dtype, each.shape[1:]) for each in level}) > 1:
        return None
    if kinds == {torch.Tensor}:
        return plain(torch.cat(level), name)
    return plain(torch.from_numpy(np.concatenate(level)), name) if level[0].dtype.kind in "biufc" else None


def _from_plain_lists(given: Any, name: str, depth: int | None) -> tuple[tuple[torch.Tensor, ...], torch.Tensor] | None:
    """Offsets and values, if there is nothing but lists and numbers of one kind in them, as deep as they should be."""
    found, first = 0, first_of(given)
    while isinstance(first, LISTS):
        found += 1
        if found > DEEPEST:
            raise ValueError(f"column {name!r}: lists nest at most {DEEPEST} deep, got more; does one hold itself?")
        first = first_of(_flattened(given, found))
    if depth is not None and depth != found:
        return None
    made = nesting.read(given, found, type(first))
    return nesting.read(given, found, float) if made is None and type(first) is int else made


def _flattened(given: Any, times: int) -> Any:
    """The entries below so many lists, one by one."""
    for _ in range(times):
        given = chain.from_iterable(entry for entry in given if isinstance(entry, LISTS))
    return given


def _cut(level: list[Any], name: str, outer: list[torch.Tensor]) -> torch.Tensor:
    """The offsets of lists."""
    kinds = set(map(type, level))
    arrays = kinds & ARRAYS
    if not kinds <= {*LISTS, *ARRAYS} or (arrays and not all(map(_is_list, level))):
        place = next(i for i, entry in enumerate(level) if not _is_list(entry))
        raise ValueError(
            f"column {name!r}: lists must nest to one depth, but entry {entry_at(outer, place)} is "
            f"{level[place]!r:.40} where a list was expected"
        )
    made = np.zeros(len(level) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, level), np.int64, len(level)), out=made[1:])
    return torch.from_numpy(made)


def _is_list(entry: Any) -> bool:
    return isinstance(entry, LISTS) or (isinstance(entry, (np.ndarray, torch.Tensor)) and entry.ndim > 0)
