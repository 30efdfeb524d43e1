"""Indexing: one key for the rows, and further keys for the lists of each deeper level.

Each key first selects entries of its level; an integer selects one entry. Then the levels of the integers are dropped.
So `t[3, 5:9]` and `t[3][5:9]` are the same, and `t[:, 0]` has the first entry of each row.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.gathering import gather
from serrate.table.gathering.uncompiled import repeat_each
from serrate.table.reshaping import drop_level
from serrate.table.schema import ROWS, parent_of
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.table.table import Table


def index(table: Table, key: Any) -> Block:
    """Return what `table[key]` holds if the key is not the name of a column."""
    keys = key if isinstance(key, tuple) else (key,)
    if not keys:
        return table.block()
    levels = _levels(table, len(keys))
    read = [_read(entry, level) for entry, level in zip(keys, levels, strict=True)]
    block = take_rows(table, read[0], levels[0])
    for entry, level in zip(read[1:], levels[1:], strict=True):
        block = _inner(block, level, entry)
    for level in _dropped(read, levels):
        block = drop_level(block, level)
    return block


def _dropped(keys: list[Key], levels: list[str]) -> list[str]:
    """Return the levels that integer keys drop, in the order in which they are dropped.

    The integers at the front come first, outermost first, so that the names of the levels below stay. The levels of
    other integers follow, deepest first.
    """
    whole = next((i for i, key in enumerate(keys) if not isinstance(key, int)), len(keys))
    inner = [level for key, level in zip(keys[whole:], levels[whole:], strict=True) if isinstance(key, int)]
    return [*levels[:whole], *reversed(inner)]


def _levels(table: Table, count: int) -> list[str]:
    """Return the levels that `count` keys index, from the rows downwards."""
    levels = [table.row_level]
    while len(levels) < count:
        below = table.schema.children(levels[-1])
        if not below:
            raise IndexError(
                f"the key has {count} entries, but the table has only {len(levels)} levels to index: "
                f"{', '.join(levels)}"
            )
        if len(below) > 1:
            raise IndexError(
                f"below {levels[-1]!r} there are levels {', '.join(below)}, and a key does not say which; select the "
                f"columns of one of them first"
            )
        levels.append(below[0])
    return levels


Key = int | slice | torch.Tensor
"""An integer, a slice of integers, or a vector of int64 or bool."""


def _read(given: Any, level: str) -> Key:
    """Return a key as an integer, a slice or a vector; raise a TypeError if it is none of these."""
    if isinstance(given, slice):
        return slice(*(None if part is None else _as_int(part) for part in (given.start, given.stop, given.step)))
    if isinstance(given, Tensor):
        if given.is_ragged:
            raise TypeError(f"the key for {level!r} is ragged; t.filter(mask, level=…) takes a mask of inner entries")
        given = given.values
    if isinstance(given, (list, tuple, np.ndarray, range)):
        given = _vector(given, level)
    if isinstance(given, torch.Tensor):
        if given.ndim == 0 and not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
            return int(given)
        if given.ndim == 1 and given.dtype == torch.bool:
            return given.cpu()
        if given.ndim == 1 and not given.is_floating_point() and not given.is_complex():
            return _signed(given.cpu(), level)
        raise TypeError(
            f"the key for {level!r} must be a vector of integers or bools, got {given.dtype} of shape "
            f"{list(given.shape)}"
        )
    if isinstance(given, (bool, np.bool_)):
        raise TypeError(f"the key for {level!r} must be an integer, a slice, or a vector, got the bool {given}")
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(
            f"the key for {level!r} must be an integer, a slice, or a vector of integers or bools, got {given!r:.60}"
        ) from None


def _as_int(part: Any) -> int:
    try:
        return operator.index(part)
    except TypeError:
        raise TypeError(f"the bounds of a slice must be integers, got {part!r:.60}") from None


def _vector(given: Any, level: str) -> torch.Tensor:
    if isinstance(given, (list, tuple)) and any(isinstance(entry, str) for entry in given):
        raise TypeError("columns are selected with t.select([...]); t[...] takes one name, or rows")
    made = np.asarray(given)
    if made.size == 0 and not isinstance(given, np.ndarray):
        made = made.astype(np.int64)
    if made.dtype.kind not in "iub":
        raise TypeError(f"the key for {level!r} must hold integers or bools, got {given!r:.60}")
    return torch.from_numpy(made.astype(made.dtype.newbyteorder("="), order="C"))


def _signed(key: torch.Tensor, level: str) -> torch.Tensor:
    """Return integers as int64. Large numbers of uint64 raise an error, since they would become negative."""
    made = key.to(torch.int64)
    if key.dtype == torch.uint64 and bool((made < 0).any()):
        place = int((made < 0).nonzero()[0])
        raise IndexError(
            f"position {place} of the key for {level!r} asks for {key[place].item()}, which is out of range"
        )
    return made


# ----------------------------------------------------------------------------------------------------------- rows


def take_rows(table: Table, key: Key, level: str = ROWS) -> Block:
    """Return the rows that a key selects, as one block; it is a view if the rows follow each other in memory."""
    count = len(table)
    if isinstance(key, int):
        place = _within(key, count, level)
        key = slice(place, place + 1)
    if isinstance(key, slice):
        start, stop, step = key.indices(count)
        step = max(min(step, count + 1), -count - 1)  # A larger step passes the end at once as well.
        if step == 1 and len(table.sources) == 1 and isinstance(table.sources[0], Block):
            return run_of_rows(table.sources[0].select(tuple(table.keys())), start, max(start, stop))
        numbers = torch.arange(start, stop, step) if (stop - start) * step > 0 else torch.zeros(0, dtype=torch.int64)
    else:
        numbers = positions(key, count, level)
    return gather.take(table.sources, table.schema, table.pieces(numbers))


def positions(key: torch.Tensor, count: int, level: str) -> torch.Tensor:
    """Return the numbers of the entries for which a vector of bools is True; return integers unchanged."""
    if key.dtype != torch.bool:
        return key
    if key.numel() != count:
        raise IndexError(f"a mask for {level!r} needs {count} entries, got {key.numel()}")
    return key.nonzero().flatten()


def _within(key: int, count: int, level: str) -> int:
    if not -count <= key < count:
        raise IndexError(f"{level!r} has {count} entries, but the key asks for {key}")
    return key % count if count else 0


def run_of_rows(block: Block, start: int, stop: int) -> Block:
    """Return the rows from `start` to `stop`; their values are views."""
    (root,) = block.schema.roots
    spans = {root: (start, stop)}
    offsets = {}
    for level in block.schema.levels:
        if level not in block.offsets:
            continue
        low, high = spans[parent_of(level) or ROWS]
        cut = block.offsets[level][low : high + 1]
        spans[level] = (int(cut[0]), int(cut[-1]))
        offsets[level] = cut - cut[0] if spans[level][0] else cut
    return replace(
        block,
        counts={level: high - low for level, (low, high) in spans.items()},
        offsets=offsets,
        values={name: _cut(values, block, name, spans) for name, values in block.values.items()},
        valid={name: _cut(values, block, name, spans) for name, values in block.valid.items()},
    )


def _cut(values: torch.Tensor, block: Block, name: str, spans: dict[str, tuple[int, int]]) -> torch.Tensor:
    level = block.schema[name].level
    return values if level is None else values[slice(*spans[level])]


# ---------------------------------------------------------------------------------------------------- inner entries


def _inner(block: Block, level: str, key: Key) -> Block:
    """Return the block with only those entries of each list of a level that a key selects."""
    if isinstance(key, slice) and key == slice(None):
        return block
    partition = block.partition(level)
    begins, lengths = partition.offsets[:-1].to(torch.int64), partition.lengths.to(torch.int64)
    if isinstance(key, slice):
        start, count, step = sliced(lengths, key)
        return take_runs(block, level, begins + start, count, step)
    if isinstance(key, torch.Tensor) and key.dtype == torch.bool:
        raise TypeError(f"a mask for the lists of {level!r} is ragged; use t.filter(mask, level={level!r})")
    asked = torch.tensor([key]) if isinstance(key, int) else key
    for place, each in enumerate(asked.tolist()):
        bad = (lengths <= each) if each >= 0 else (lengths < -each)
        if bad.any():
            entry = int(bad.nonzero()[0])
            what = f"asks for {each}" if isinstance(key, int) else f"asks at position {place} for {each}"
            raise IndexError(
                f"list {entry} of level {level!r} has {int(lengths[entry])} entries, but the key {what}; "
                f"a slice takes only entries that exist"
            )
    inner = torch.where(asked < 0, asked + lengths[:, None], asked)
    ids = (begins[:, None] + inner).flatten()
    offsets = torch.arange(lengths.numel() + 1) * asked.numel()
    return gather.take_entries(block, level, ids, offsets)


def sliced(lengths: torch.Tensor, key: slice) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the start of a slice in lists of these lengths, its number of entries in each list, and its step."""
    step = 1 if key.step is None else max(min(key.step, 2**61), -(2**61))  # This keeps the sums below from an overflow.
    if step == 0:
        raise ValueError("the step of a slice must not be 0")
    low, high = (0, lengths) if step > 0 else (-1, lengths - 1)

    def bound(given: int | None, default: Any) -> torch.Tensor:
        if given is None:
            return torch.as_tensor(default).expand_as(lengths)
        given = max(min(given, 2**62), -(2**62))
        place = torch.full_like(lengths, given) if given >= 0 else lengths + given
        return torch.minimum(torch.clamp(place, min=low), torch.as_tensor(high))

    start, stop = bound(key.start, low if step > 0 else high), bound(key.stop, high if step > 0 else low)
    gap = (stop - start) if step > 0 else (start - stop)
    count = torch.clamp((gap + abs(step) - 1) // abs(step), min=0)
    return start, count, step


def take_runs(block: Block, level: str, begins: torch.Tensor, count: torch.Tensor, step: int = 1) -> Block:
    """Return the block with `count` entries of each list of a level: every step-th one, from `begins` on."""
    offsets = torch.zeros(count.numel() + 1, dtype=torch.int64)
    torch.cumsum(count, 0, out=offsets[1:])
    total = int(offsets[-1])
    ids = repeat_each(begins - offsets[:-1] * step, count, total) + torch.arange(total) * step
    return gather.take_entries(block, level, ids, offsets)
