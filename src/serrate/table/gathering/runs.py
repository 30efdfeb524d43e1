"""Rows of blocks by torch and numpy: what gather.cpp does, where it cannot be compiled; the same results and errors."""

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
from serrate.table.gathering.sources import Chosen, Pieces, Sources, check_block, name_of
from serrate.table.schema import Column, Schema, parent_of
from serrate.tensor import bits
from serrate.tensor.offsets import INT32_MAX

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_MANY, _APART = 2**12, 96


class Lists(NamedTuple):
    """The lists of a level, one after the other: numpy arrays, or tensors of a device, int64."""

    starts: Any
    lengths: Any

    @classmethod
    def of(cls, ends: torch.Tensor) -> Lists:
        """Those that offsets cut."""
        found: Any = ends.numpy() if ends.is_cpu else ends.to(torch.int64)
        return cls(found[:-1], found[1:] - found[:-1])


class Grouped(NamedTuple):
    """The rows of a batch, packed, those of one source after those of another."""

    block: Block
    lists: Mapping[str, Lists]
    """Those of each level that has a parent, where its values lie."""
    rows: torch.Tensor | None
    """For each row of the block its place in the batch; None: its own."""
    longest: Mapping[str, int]
    """For each level that has a parent its longest list."""


def take(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> Block:
    """The rows as one block of the schema, its stored dtypes included."""
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


def grouped(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> Grouped:
    """The rows as one block of the schema, its stored dtypes included, by sources; offsets in int64."""
    checked = sources.kept("checked", schema, lambda _: WeakSet[Block]())
    for block, number in zip(chosen.blocks, chosen.numbers, strict=True):
        if block not in checked:
            check_block(block, schema, name_of(sources, number))
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
    return Grouped(block, followed.lists, rows, followed.longest)


def _one(each: list[torch.Tensor]) -> torch.Tensor:
    return each[0] if len(each) == 1 else torch.cat(each)


class _Followed(NamedTuple):
    """What the rows of a batch have at each level."""

    counts: dict[str, int]
    offsets: dict[str, torch.Tensor]
    """Those of the packed rows."""
    lists: dict[str, Lists]
    longest: dict[str, int]
    entries: dict[str, Numbers]
    """Which entries of its block each is."""
    rows: dict[str, Numbers]
    """Where those of each row begin, and where the last end; in its block they are a run."""
    bounds: dict[str, list[int]]
    """Where those of each block begin, and where the last end."""

    def ids(self, level: str, block: int) -> torch.Tensor:
        """Which entries of one block are there."""
        entries, bounds = self.entries[level], self.bounds[level]
        return torch.from_numpy(entries if len(bounds) == 2 else entries[bounds[block] : bounds[block + 1]])


def _follow(
    sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces, rows: torch.Tensor | None, bounds: list[int]
) -> _Followed:
    """Go down from the rows, `rows` of the batch, those of each block within bounds, to all levels."""
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
        made.lists[level] = Lists(ends[:-1], lengths)
        begin = made.rows[above]
        made.rows[level] = here = ends.take(begin)
        made.bounds[level] = here.take(bounds).tolist()
        heads = first.take(begin[:-1], mode="clip") if first.size else here[:-1]  # of a row without lists any will do
        made.entries[level] = np.repeat(heads - here[:-1], here[1:] - here[:-1])  # by rows: lists are many, and short
        made.entries[level] += numbers(total)
        made.offsets[level] = torch.from_numpy(ends)
    return made


def _check_rows(sources: Sources, chosen: Chosen, level: str, made: _Followed) -> None:
    """An IndexError unless the blocks have the rows that are asked for."""
    for k, (start, stop) in enumerate(pairwise(made.bounds[level])):
        row, count = made.entries[level][start:stop], chosen.blocks[k].counts[level]
        if row.size and (row.min() < 0 or row.max() >= count):
            outside = row[(row < 0) | (row >= count)]
            raise_row(name_of(sources, chosen.numbers[k]), level, int(outside[0]), count)


def _lists(sources: Sources, chosen: Chosen, level: str, above: str, made: _Followed) -> tuple[Numbers, Numbers, int]:
    """Where the lists of the entries of a level above begin, how long they are, and the longest of them."""
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
    """The error for the first lists that are none."""
    entries, bounds = made.entries[above], made.bounds[above]
    most = np.repeat([block.counts[level] for block in chosen.blocks], np.diff(bounds))
    i = int(((first < 0) | (last < first) | (last > most)).argmax())
    where = name_of(sources, chosen.numbers[bisect_right(bounds, i) - 1])
    raise_offsets(where, above, int(entries[i]), level, int(first[i]), int(last[i]), int(most[i]))


def _cut(
    first: Numbers, lengths: Numbers, above: str, level: str, entries: Numbers, start: Numbers, stop: Numbers
) -> tuple[Numbers, Numbers]:
    """The parts of lists that are asked for."""
    wrong = (start < 0) | (stop < start) | (stop > lengths)
    if wrong.any():
        i = int(wrong.argmax())
        raise_cut(above, int(entries[i]), level, int(start[i]), int(stop[i]), int(lengths[i]))
    return first + start, stop - start


def spread(each: Any, lengths: Any, total: int) -> Any:
    """Each entry as often as its length says, `total` together; numpy arrays, or tensors of a device."""
    if isinstance(each, np.ndarray):
        return np.repeat(each, lengths)
    return torch.repeat_interleave(each, lengths, output_size=total)


def numbers(count: int, device: torch.device | None = None) -> Any:
    """0, 1, …, count - 1, int64: a numpy array, not to be written to, or a tensor of a device."""
    if device is not None and device.type != "cpu":
        return torch.arange(count, device=device)
    return _NUMBERS[:count] if count <= _NUMBERS.size else np.arange(count)


_NUMBERS = np.arange(2**16)


def _valid(block: Block, name: str, ids: torch.Tensor | None) -> torch.Tensor:
    """Which entries are there; all are in a source that says nothing about it."""
    if name not in block.valid:
        return torch.ones(() if ids is None else ids.numel(), dtype=torch.bool)
    return block.valid[name].clone() if ids is None else block.valid[name].index_select(0, ids)


def _taken(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Some entries of a column; of many a few far apart first, for which memory is waited for once and not in turn."""
    if ids.numel() >= _MANY:
        bits.take(values, ids[::_APART])
    return bits.take(values, ids)


def _values(
    sources: Sources, chosen: Chosen, k: int, name: str, column: Column, ids: torch.Tensor | None
) -> torch.Tensor:
    """The values of these entries of a block as the schema stores them."""
    block, number = chosen.blocks[k], chosen.numbers[k]
    found = block.values[name].clone() if ids is None else _taken(block.values[name], ids)
    if not column.text:
        return found if found.dtype is column.stored else found.to(column.stored)
    valid = _valid(block, name, ids) if column.nullable else None
    check_codes(found, valid, block, name_of(sources, number), name)
    codes = sources.words(name).codes[number] if len(sources) > 1 else None
    if codes is None:
        return found if found.dtype is column.stored else found.to(column.stored)
    new = (codes if codes.numel() else torch.zeros(1, dtype=torch.int64))[found.to(torch.int64)]
    return (new if valid is None else torch.where(valid, new, 0)).to(column.stored)


def check_codes(codes: torch.Tensor, valid: torch.Tensor | None, block: Block, where: str, column: str) -> None:
    """Nothing, or an error if codes of a block are no places in the vocabulary of a column."""
    words = len(block.vocabularies.get(column, ()))
    code = wrong_code(codes, valid, words)
    if code is not None:
        raise_code(where, column, code, words)


# ------------------------------------------------------------------------------------------------------- errors


def raise_row(where: str, level: str, row: int, count: int) -> NoReturn:
    """A row that a source does not have."""
    raise IndexError(f"{where}: entry {row} of {level!r} is asked for, but there are {count}")


def raise_offsets(where: str, above: str, entry: int, level: str, first: int, last: int, count: int) -> NoReturn:
    """Offsets that decrease or point outside of their level."""
    raise TableFormatError(
        f"{where}: by the offsets, entry {entry} of {above!r} has the entries {first} to {last} of {level!r}, "
        f"which has {count}"
    )


def raise_cut(above: str, row: int, level: str, start: int, stop: int, length: int) -> NoReturn:
    """A part of a row that the row does not have."""
    raise IndexError(f"entries {start} to {stop} of {level!r} are asked for, but {above!r} entry {row} has {length}")


def raise_code(where: str, column: str, code: int, words: int) -> NoReturn:
    """A code that is no place in the vocabulary."""
    raise TableFormatError(f"{where}: {code_fault(column, code, words)}")
