"""Rows of blocks by torch and numpy, with the same results and errors as gather.cpp, if that cannot be compiled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn
from weakref import WeakSet

import numpy as np
import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block, code_fault, wrong_code
from serrate.table.gathering.sources import Chosen, Pieces, Sources, check_block, source_name
from serrate.table.schema import Column, Schema, parent_of
from serrate.tensor import bits
from serrate.tensor.offsets import INT32_MAX

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_MANY, _APART = 2**12, 96


class ListBounds(NamedTuple):
    """Where the lists of a level begin and how long they are: int64, as numpy arrays or as tensors of a device."""

    starts: Any
    lengths: Any

    @classmethod
    def of(cls, ends: torch.Tensor) -> ListBounds:
        """Return the bounds of the lists that these offsets describe."""
        found: Any = ends.numpy() if ends.is_cpu else ends.to(torch.int64)
        return cls(found[:-1], found[1:] - found[:-1])


class GroupedRows(NamedTuple):
    """The rows of a batch, packed, and grouped by their source."""

    block: Block
    lists: Mapping[str, ListBounds]
    """The lists of each level that has a parent, on the device of the values."""
    rows: torch.Tensor | None
    """For each row of the block its position in the batch; None if both are in the same order."""
    longest: Mapping[str, int]
    """For each level that has a parent the length of its longest list."""


def take(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> Block:
    """Return the rows as one block with the stored dtypes of the schema."""
    block, _, rows, _ = grouped(sources, schema, chosen, pieces)
    if rows is not None:
        back = torch.empty_like(rows).scatter_(0, rows, torch.arange(rows.numel()))
        block = grouped(
            Sources(), schema, Chosen((block,), (0,), (back.numel(),), None, back), Pieces(None, back)
        ).block
    narrow = {
        level: ends.to(torch.int32)
        for level, ends in block.offsets.items()
        if block.counts[level] <= INT32_MAX and all(each.offsets[level].dtype == torch.int32 for each in chosen.blocks)
    }
    return replace(block, offsets={**block.offsets, **narrow})


def grouped(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> GroupedRows:
    """Return the rows as one block with the stored dtypes of the schema, grouped by source, with offsets in int64."""
    checked = sources.kept("checked", schema, lambda _: WeakSet[Block]())
    for block, number in zip(chosen.blocks, chosen.numbers, strict=True):
        if block not in checked:
            check_block(block, schema, source_name(sources, number))
            checked.add(block)
    rows, bounds = None, [0, chosen.row.numel()]
    if chosen.which is not None:
        rows = torch.from_numpy(chosen.which.numpy().argsort(kind="stable"))
        bounds[1:] = chosen.ends
    followed = _follow(sources, schema, chosen, pieces, rows, bounds)
    values, valid, vocabularies = {}, {}, {}
    for name, column in schema.items():
        if column.text:
            several = len(sources) > 1
            vocabularies[name] = sources.words(name).words if several else chosen.blocks[0].vocabularies.get(name, ())
        here = range(1 if column.level is None else len(chosen.blocks))
        ids = [None if column.level is None else followed.ids(column.level, k) for k in here]
        if column.nullable:
            valid[name] = _one([_valid(chosen.blocks[k], name, ids[k]) for k in here])
        values[name] = _one([_values(sources, chosen, k, name, column, ids[k]) for k in here])
    block = Block(schema, followed.counts, followed.offsets, values, valid, vocabularies)
    return GroupedRows(block, followed.lists, rows, followed.longest)


def _one(each: list[torch.Tensor]) -> torch.Tensor:
    return each[0] if len(each) == 1 else torch.cat(each)


class _Followed(NamedTuple):
    """What the rows of a batch have at each level."""

    counts: dict[str, int]
    offsets: dict[str, torch.Tensor]
    """The offsets of the packed rows."""
    lists: dict[str, ListBounds]
    longest: dict[str, int]
    entries: dict[str, Numbers]
    """The number that each packed entry has in its block."""
    rows: dict[str, Numbers]
    """Where the packed entries of each row begin, and where the last ones end. In the block they are a run as well."""
    bounds: dict[str, list[int]]
    """Where the packed entries of each block begin, and where the last ones end."""

    def ids(self, level: str, block: int) -> torch.Tensor:
        """Return the numbers of the entries that are taken from one block."""
        entries, bounds = self.entries[level], self.bounds[level]
        return torch.from_numpy(entries if len(bounds) == 2 else entries[bounds[block] : bounds[block + 1]])


def _follow(
    sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces, rows: torch.Tensor | None, bounds: list[int]
) -> _Followed:
    """Find the entries of all levels, from the rows downwards.

    `rows` has the positions in the batch in the order of the blocks, and `bounds` says where the rows of each block
    begin.
    """
    made = _Followed({}, {}, {}, {}, {}, {}, {})
    for level in schema.levels:
        above = parent_of(level)
        if above is None or above not in made.entries:
            row = chosen.row.numpy()
            made.entries[level] = row if rows is None else row.take(rows.numpy())
            made.counts[level], made.rows[level], made.bounds[level] = row.size, numbers(row.size + 1), bounds
            _check_rows(sources, chosen, level, made)
            continue
        first, lengths, made.longest[level] = _lists(sources, chosen, level, above, made)
        if level == pieces.level and pieces.start is not None and pieces.stop is not None:
            start, stop = (each.numpy() if rows is None else each[rows].numpy() for each in (pieces.start, pieces.stop))
            first, lengths = _cut(first, lengths, above, level, made.entries[above], start, stop)
            made.longest[level] = int(lengths.max(initial=0))
        ends = np.empty(first.size + 1, dtype=np.int64)
        ends[0] = 0
        np.cumsum(lengths, out=ends[1:])
        made.counts[level] = total = int(ends[-1])
        made.lists[level] = ListBounds(ends[:-1], lengths)
        begin = made.rows[above]
        made.rows[level] = here = ends.take(begin)
        made.bounds[level] = here.take(bounds).tolist()
        # A row without lists may have any value here.
        heads = first.take(begin[:-1], mode="clip") if first.size else here[:-1]
        # One number per row, because lists are many and short.
        made.entries[level] = np.repeat(heads - here[:-1], here[1:] - here[:-1])
        made.entries[level] += numbers(total)
        made.offsets[level] = torch.from_numpy(ends)
    return made


def _check_rows(sources: Sources, chosen: Chosen, level: str, made: _Followed) -> None:
    """Raise an IndexError unless the blocks have the rows that are asked for."""
    for k, (start, stop) in enumerate(pairwise(made.bounds[level])):
        row, count = made.entries[level][start:stop], chosen.blocks[k].counts[level]
        if row.size and (row.min() < 0 or row.max() >= count):
            outside = row[(row < 0) | (row >= count)]
            raise_row(source_name(sources, chosen.numbers[k]), level, int(outside[0]), count)


def _lists(sources: Sources, chosen: Chosen, level: str, above: str, made: _Followed) -> tuple[Numbers, Numbers, int]:
    """Return where the lists of the entries of `above` begin, their lengths, and the greatest length."""
    entries, bounds = made.entries[above], made.bounds[above]
    first, last = np.empty((2, entries.size), dtype=np.int64)
    inside = True
    for block, start, stop in zip(chosen.blocks, bounds, bounds[1:], strict=False):
        given, ids = block.offsets[level].numpy(), entries[start:stop]
        first[start:stop] = given.take(ids)
        last[start:stop] = ends = given[1:].take(ids)
        inside = inside and ends.max(initial=0) <= block.counts[level]
    lengths = last - first
    if not (inside and all(each.min(initial=0) >= 0 for each in (first, last, lengths))):
        _raise_offsets(sources, chosen, level, above, made, first, last)
    return first, lengths, int(lengths.max(initial=0))


def _raise_offsets(
    sources: Sources, chosen: Chosen, level: str, above: str, made: _Followed, first: Numbers, last: Numbers
) -> NoReturn:
    """Raise the error for the first offsets that do not describe a list."""
    entries, bounds = made.entries[above], made.bounds[above]
    most = np.repeat([block.counts[level] for block in chosen.blocks], np.diff(bounds))
    i = int(((first < 0) | (last < first) | (last > most)).argmax())
    where = source_name(sources, chosen.numbers[bisect_right(bounds, i) - 1])
    raise_offsets(where, above, int(entries[i]), level, int(first[i]), int(last[i]), int(most[i]))


def _cut(
    first: Numbers, lengths: Numbers, above: str, level: str, entries: Numbers, start: Numbers, stop: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the starts and lengths of the parts of lists that are asked for."""
    wrong = (start < 0) | (stop < start) | (stop > lengths)
    if wrong.any():
        i = int(wrong.argmax())
        raise_cut(above, int(entries[i]), level, int(start[i]), int(stop[i]), int(lengths[i]))
    return first + start, stop - start


def repeat_each(each: Any, lengths: Any, total: int) -> Any:
    """Repeat each entry as often as its length says, `total` entries in all. Takes numpy arrays or tensors."""
    if isinstance(each, np.ndarray):
        return np.repeat(each, lengths)
    return torch.repeat_interleave(each, lengths, output_size=total)


def numbers(count: int, device: torch.device | None = None) -> Any:
    """Return 0, 1, …, count - 1 as int64: a numpy array that must not be written to, or a tensor of a device."""
    if device is not None and device.type != "cpu":
        return torch.arange(count, device=device)
    return _NUMBERS[:count] if count <= _NUMBERS.size else np.arange(count)


_NUMBERS = np.arange(2**16)


def _valid(block: Block, name: str, ids: torch.Tensor | None) -> torch.Tensor:
    """Return which entries are present; without a mask all of them are."""
    if name not in block.valid:
        return torch.ones(() if ids is None else ids.numel(), dtype=torch.bool)
    return block.valid[name].clone() if ids is None else block.valid[name].index_select(0, ids)


def _taken(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return some entries of a column.

    If there are many, a few that are far apart are read first, so that the waits for their memory overlap.
    """
    if ids.numel() >= _MANY:
        bits.take(values, ids[::_APART])
    return bits.take(values, ids)


def _values(
    sources: Sources, chosen: Chosen, k: int, name: str, column: Column, ids: torch.Tensor | None
) -> torch.Tensor:
    """Return the values of these entries of a block as the schema stores them."""
    block, number = chosen.blocks[k], chosen.numbers[k]
    found = block.values[name].clone() if ids is None else _taken(block.values[name], ids)
    if not column.text:
        return found if found.dtype is column.stored else found.to(column.stored)
    valid = _valid(block, name, ids) if column.nullable else None
    check_codes(found, valid, block, source_name(sources, number), name)
    codes = sources.words(name).codes[number] if len(sources) > 1 else None
    if codes is None:
        return found if found.dtype is column.stored else found.to(column.stored)
    new = (codes if codes.numel() else torch.zeros(1, dtype=torch.int64))[found.to(torch.int64)]
    return (new if valid is None else torch.where(valid, new, 0)).to(column.stored)


def check_codes(codes: torch.Tensor, valid: torch.Tensor | None, block: Block, where: str, column: str) -> None:
    """Raise an error if codes of a block are not positions in the vocabulary of the column."""
    words = len(block.vocabularies.get(column, ()))
    code = wrong_code(codes, valid, words)
    if code is not None:
        raise_code(where, column, code, words)


# ------------------------------------------------------------------------------------------------------- errors


def raise_row(where: str, level: str, row: int, count: int) -> NoReturn:
    """Raise the error for a row that a source does not have."""
    raise IndexError(f"{where}: entry {row} of {level!r} is asked for, but there are {count}")


def raise_offsets(where: str, above: str, entry: int, level: str, first: int, last: int, count: int) -> NoReturn:
    """Raise the error for offsets that decrease or point outside of their level."""
    raise TableFormatError(
        f"{where}: by the offsets, entry {entry} of {above!r} has the entries {first} to {last} of {level!r}, "
        f"which has {count}"
    )


def raise_cut(above: str, row: int, level: str, start: int, stop: int, length: int) -> NoReturn:
    """Raise the error for entries of a row that the row does not have."""
    raise IndexError(f"entries {start} to {stop} of {level!r} are asked for, but entry {row} of {above!r} has {length}")


def raise_code(where: str, column: str, code: int, words: int) -> NoReturn:
    """Raise the error for a code that is not a position in the vocabulary."""
    raise TableFormatError(f"{where}: {code_fault(column, code, words)}")
