"""Rows of blocks by torch and numpy: what gather.cpp does, where it cannot be compiled; the same results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn
from weakref import WeakSet

import numpy as np
import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block
from serrate.table.gathering.sources import Chosen, Pieces, Sources, check_block, name_of
from serrate.table.joining import joined
from serrate.table.schema import Column, Schema, parent_of
from serrate.tensor import bits
from serrate.tensor.offsets import INT32_MAX

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Lists(NamedTuple):
    """The lists of a level, one after the other: numpy arrays, or tensors of a device, int64."""

    starts: Any
    lengths: Any

    @classmethod
    def of(cls, ends: torch.Tensor) -> Lists:
        """Those that offsets cut."""
        found: Any = ends.numpy() if ends.is_cpu else ends.to(torch.int64)
        return cls(found[:-1], found[1:] - found[:-1])


class Part(NamedTuple):
    """Some rows of a batch, packed."""

    block: Block
    lists: Mapping[str, Lists]
    """Those of each level that has a parent, where its values lie."""
    rows: torch.Tensor | None
    """Which rows of the batch they are; None: all, in their order."""


def take(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> Block:
    """The rows as one block of the schema, its stored dtypes included."""
    found = parts(sources, schema, chosen, pieces)
    if chosen.which is None:
        return found[0].block
    order = np.argsort(chosen.which.numpy(), kind="stable")
    back = np.empty_like(order)
    back[order] = numbers(order.size)
    whole = Chosen((joined([part.block for part in found]),), (0,), None, torch.from_numpy(back))
    return _take_one(Sources(), schema, whole, 0, None, Pieces(None, whole.row)).block


def parts(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> list[Part]:
    """The rows of each block as one of the schema, its stored dtypes included."""
    checked = sources.kept("checked", schema, lambda _: WeakSet[Block]())
    for block, number in zip(chosen.blocks, chosen.numbers, strict=True):
        if block not in checked:
            check_block(block, schema, name_of(sources, number))
            checked.add(block)
    if chosen.which is None:
        return [_take_one(sources, schema, chosen, 0, None, pieces)]
    which = chosen.which.numpy()
    rows = [torch.from_numpy(np.flatnonzero(which == k)) for k in range(len(chosen.blocks))]
    return [_take_one(sources, schema, chosen, k, some, pieces) for k, some in enumerate(rows)]


def _take_one(
    sources: Sources, schema: Schema, chosen: Chosen, k: int, rows: torch.Tensor | None, pieces: Pieces
) -> Part:
    """Those rows of a batch that are in one block."""
    block, number = chosen.blocks[k], chosen.numbers[k]
    where = name_of(sources, number)
    some = slice(None) if rows is None else rows
    cut = None if pieces.start is None or pieces.stop is None else (pieces.start[some], pieces.stop[some])
    row = chosen.row if rows is None else chosen.row[rows]
    counts, offsets, lists, entries = _follow(block, schema, row, pieces.level, cut, where)
    values, valid, vocabularies = {}, {}, {}
    for name, column in schema.items():
        codes = None
        if column.text:
            vocabularies[name] = block.vocabularies.get(name, ())
            if len(sources) > 1:
                words = sources.words(name)
                vocabularies[name], codes = words.words, words.codes[number]
        ids = None if column.level is None else entries[column.level]
        if column.nullable:
            valid[name] = _valid(block, name, ids)
        values[name] = _values(block, name, column, ids, codes, valid.get(name), where)
    return Part(Block(schema, counts, offsets, values, valid, vocabularies), lists, rows)


def _follow(
    block: Block, schema: Schema, row: torch.Tensor, cut_level: str | None,
    cut: tuple[torch.Tensor, torch.Tensor] | None, where: str,
) -> tuple[dict[str, int], dict[str, torch.Tensor], dict[str, Lists], dict[str, torch.Tensor]]:  # fmt: skip
    """For each level the number of entries, the new offsets and lists, and the old entries in the new order."""
    counts: dict[str, int] = {}
    offsets: dict[str, torch.Tensor] = {}
    lists: dict[str, Lists] = {}
    entries: dict[str, Numbers] = {}
    for level in schema.levels:
        above, count = parent_of(level), block.counts[level]
        if above is None or above not in entries:
            entries[level], counts[level] = row.numpy(), row.numel()
            if row.numel() and (entries[level].min() < 0 or entries[level].max() >= count):
                outside = (row < 0) | (row >= count)
                raise_row(where, level, int(row[outside][0]), count)
            continue
        first, lengths = _lists(block, level, above, entries[above], where)
        if level == cut_level and cut is not None:
            first, lengths = _cut(first, lengths, above, level, entries[above], cut)
        ends = np.empty(first.size + 1, dtype=np.int64)
        ends[0] = 0
        np.cumsum(lengths, out=ends[1:])
        counts[level] = total = int(ends[-1])
        lists[level] = Lists(ends[:-1], lengths)
        entries[level] = np.repeat(first - ends[:-1], lengths)
        entries[level] += numbers(total)
        narrow = block.offsets[level].dtype == torch.int32 and total <= INT32_MAX
        offsets[level] = torch.from_numpy(ends.astype(np.int32) if narrow else ends)
    return counts, offsets, lists, {level: torch.from_numpy(each) for level, each in entries.items()}


def _lists(block: Block, level: str, above: str, entries: Numbers, where: str) -> tuple[Numbers, Numbers]:
    """Where the lists of some entries of a level above begin, and how long they are."""
    given, count = block.offsets[level].numpy(), block.counts[level]
    first, last = (each.take(entries).astype(np.int64, copy=False) for each in (given, given[1:]))
    lengths = last - first
    # A difference that goes past the end of int64 is negative, or more than `count`.
    if entries.size and not (
        first.min() >= 0 and lengths.min() >= 0 and lengths.max() <= count and last.max() <= count
    ):
        i = int(((first < 0) | (last < first) | (last > count)).nonzero()[0][0])
        raise_offsets(where, above, int(entries[i]), level, int(first[i]), int(last[i]), count)
    return first, lengths


def _cut(
    first: Numbers, lengths: Numbers, above: str, level: str, entries: Numbers, cut: tuple[torch.Tensor, torch.Tensor]
) -> tuple[Numbers, Numbers]:
    """The parts of lists that are asked for."""
    start, stop = (each.numpy() for each in cut)
    wrong = (start < 0) | (stop < start) | (stop > lengths)
    if wrong.any():
        i = int(wrong.nonzero()[0][0])
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


def _values(
    block: Block, name: str, column: Column, ids: torch.Tensor | None, codes: torch.Tensor | None,
    valid: torch.Tensor | None, where: str,
) -> torch.Tensor:  # fmt: skip
    """The values of these entries as the schema stores them."""
    found = block.values[name].clone() if ids is None else bits.take(block.values[name], ids)
    if codes is None:
        return found if found.dtype is column.stored else found.to(column.stored)
    old = found.to(torch.int64)
    if valid is not None:
        old = torch.where(valid, old, 0)
    known = max(codes.numel(), 1)
    wrong = (old < 0) | (old >= (codes.numel() if valid is None else known))
    if bool(wrong.any()):
        raise_code(where, name, int(old[wrong].flatten()[0]), codes.numel())
    new = (codes if codes.numel() else torch.zeros(1, dtype=torch.int64))[old]
    return (new if valid is None else torch.where(valid, new, 0)).to(column.stored)


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
    raise TableFormatError(f"{where}: column {column!r} has code {code}, but its vocabulary has {words} words")
