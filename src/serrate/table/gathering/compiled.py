"""Rows of blocks by gather.cpp: it measures them first and then packs or pads them; its faults become exceptions."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn, TypeVar

import torch

from serrate.native import gather as library
from serrate.native.loading import allocate
from serrate.table.block import Block
from serrate.table.gathering import uncompiled
from serrate.table.gathering.arguments import BoundBlock, Layout
from serrate.table.gathering.memory import TensorSpecs
from serrate.table.gathering.sources import Chosen, Pieces, Sources, source_name
from serrate.table.schema import Schema
from serrate.tensor.offsets import INT32_MAX

_NO_FAULT = bytes(8 * 7)
_LARGE = 2**26

_THERE = torch.ones((), dtype=torch.bool)

Memory = TypeVar("Memory")
Allocate = Callable[[TensorSpecs], tuple[Memory, Sequence[torch.Tensor]]]
"""A function that returns memory, and tensors in it."""


class Measured(NamedTuple):
    """What gather.cpp found about the rows of a batch: where their entries are, and how many there are."""

    sources: Sources
    layout: Layout
    chosen: Chosen
    bound: list[BoundBlock]
    blocks: array[int]
    rows: int
    found: torch.Tensor
    """int64: [levels, 2, rows], the bounds of entries in their block; then [levels, rows + 1], those in the result."""
    runs_at: int
    """The address of the bounds in the block."""
    ends_at: int
    """The address of the bounds in the result."""
    counts: array[int]
    """For each level the number of entries of all rows."""
    longest: array[int]
    """For each level the length of its longest list."""

    @property
    def ends(self) -> torch.Tensor:
        """The bounds of entries in the result: [levels, rows + 1]."""
        levels = len(self.layout.levels)
        return self.found[2 * levels * self.rows :].view(levels, self.rows + 1)


def measure(sources: Sources, schema: Schema, chosen: Chosen, pieces: Pieces) -> Measured | None:
    """Find where the entries of a batch are; return None if gather.cpp is not compiled or cannot do it."""
    routines, layout = library.routines(), sources.kept("layout", schema, Layout.of)
    if routines is None or not layout.is_walkable:
        return None
    bound = [layout.bind(sources, *pair) for pair in zip(chosen.blocks, chosen.numbers, strict=True)]
    blocks = bound[0].numbers if len(bound) == 1 else array("q", b"".join(each.numbers.tobytes() for each in bound))
    rows, levels = chosen.row.numel(), len(layout.levels)
    found = allocate((levels * (3 * rows + 1),), (1,), torch.int64)
    counts, longest, fault = array("q", layout.none), array("q", layout.none), array("q", _NO_FAULT)
    cut, start, stop = -1, None, None
    if pieces.level in layout.levels and pieces.start is not None and pieces.stop is not None:
        cut, start, stop = layout.levels.index(pieces.level), pieces.start.contiguous(), pieces.stop.contiguous()
    runs_at = found.data_ptr()
    ends_at = runs_at + 16 * levels * rows
    failed = routines["measure"](
        _at(layout.numbers), _at(blocks), _of(chosen.which), _of(chosen.row), rows, cut, _of(start), _of(stop),
        runs_at, ends_at, _at(counts), _at(longest), _at(fault),
    )  # fmt: skip
    if failed:
        _raise(sources, layout, chosen, fault)
    return Measured(sources, layout, chosen, bound, blocks, rows, found, runs_at, ends_at, counts, longest)


def _threads(size: int) -> int:
    """Return how many threads write `size` bytes.

    A normal batch is written by one thread, because several batches are made at the same time.
    """
    return torch.get_num_threads() if size >= _LARGE else 1


def _at(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


def _of(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


# --------------------------------------------------------------------------------------------------------- packed


def packed_block(measured: Measured, allocate: Allocate[Memory]) -> tuple[Block, Memory]:
    """Return the measured rows as a block in memory that `allocate` returns, and that memory."""
    layout, counts = measured.layout, measured.counts
    lists = [number for number, parent in enumerate(layout.parents) if parent >= 0]
    wanted: list[tuple[tuple[int, ...], torch.dtype]] = []
    for number in lists:
        narrow = counts[number] <= INT32_MAX and all(each.narrow[number] for each in measured.bound)
        wanted.append(((counts[layout.parents[number]] + 1,), torch.int32 if narrow else torch.int64))
    for slot in layout.tensors:
        entries = () if slot.level < 0 else (counts[slot.level],)
        wanted.append(((*entries, *slot.features), slot.dtype))
    memory, made = allocate(wanted)
    offsets = {layout.levels[number]: ends for number, ends in zip(lists, made, strict=False)}
    held: dict[str, dict[str, torch.Tensor]] = {"values": {}, "valid": {}}
    for slot, each in zip(layout.tensors, made[len(lists) :], strict=True):
        held[slot.kind][slot.name] = each
    values, valid = held["values"], held["valid"]
    out: list[int] = []
    for level in layout.levels:
        ends = offsets.get(level)
        out += (_of(ends), ends is not None and ends.dtype == torch.int64)
    size = 0
    for column in layout.columns:
        out += (values[column.name].data_ptr(), _of(valid.get(column.name)))
        size += values[column.name].nbytes
    _call("pack", measured, (measured.runs_at, measured.ends_at), array("q", out), _threads(size))
    copy_loose(measured, values, valid)
    by_level = dict(zip(layout.levels, counts, strict=True))
    return Block(layout.schema, by_level, offsets, values, valid, vocabularies(measured)), memory


def copy_loose(measured: Measured, values: Mapping[str, torch.Tensor], valid: Mapping[str, torch.Tensor]) -> None:
    """Write the columns that have one value for the whole table."""
    for name in measured.layout.loose:
        block = measured.chosen.blocks[0]
        if name in measured.layout.texts:
            where = source_name(measured.sources, measured.chosen.numbers[0])
            uncompiled.check_codes(block.values[name], block.valid.get(name), block, where, name)
        values[name].copy_(block.values[name])
        if name in valid:
            valid[name].copy_(block.valid.get(name, _THERE))


def vocabularies(measured: Measured) -> dict[str, tuple[str, ...]]:
    """Return the words of each column of strings."""
    sources, texts = measured.sources, measured.layout.texts
    if len(sources) > 1:
        return {name: sources.words(name).words for name in texts}
    return {name: measured.chosen.blocks[0].vocabularies.get(name, ()) for name in texts}


# --------------------------------------------------------------------------------------------------------- padded


def can_pad() -> bool:
    """Return whether the routines that pad can be compiled."""
    return library.padding_routines() is not None


def pad(
    measured: Measured, sizes: Sequence[int], keep: array[int], left: array[int],
    fillings: Mapping[str, torch.Tensor | None], columns: Mapping[str, torch.Tensor],
    valid: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor],
) -> None:  # fmt: skip
    """Write the measured rows to contiguous rectangles; `sizes`, `keep` and `left` have one number for each level."""
    layout = measured.layout
    out = [_of(masks.get(level)) for level in layout.levels]
    size = 0
    for slot in layout.columns:
        name = slot.name
        out += (columns[name].data_ptr(), _of(valid.get(name)), _of(fillings.get(name)))
        size += columns[name].nbytes
    wanted = array("q", sizes)
    options = (measured.runs_at, _at(wanted), _at(keep), _at(left))
    _call("pad_measured", measured, options, array("q", out), _threads(size))


def _call(name: str, measured: Measured, arguments: tuple[int, ...], out: array[int], threads: int) -> None:
    routines = library.padding_routines() if name == "pad_measured" else library.routines()
    fault = array("q", _NO_FAULT)
    assert routines is not None
    layout, chosen = measured.layout, measured.chosen
    failed = routines[name](
        _at(layout.numbers), _at(measured.blocks), len(chosen.blocks), _of(chosen.which), measured.rows, *arguments,
        _at(out), _at(fault), threads,
    )  # fmt: skip
    if failed:
        _raise(measured.sources, layout, chosen, fault)


def _raise(sources: Sources, layout: Layout, chosen: Chosen, fault: array[int]) -> NoReturn:
    """Raise the exception for a fault that gather.cpp reports."""
    kind, of, block, entry, first, last, length = fault
    where = source_name(sources, chosen.numbers[block])
    if kind == 4:
        name = layout.columns[of].name
        unsigned = chosen.blocks[block].values[name].dtype == torch.uint64
        uncompiled.raise_code(where, name, first % 2**64 if unsigned else first, last)
    level = layout.levels[of]
    if kind == 1:
        uncompiled.raise_row(where, level, entry, last)
    above = layout.levels[layout.parents[of]]
    if kind == 2:
        uncompiled.raise_offsets(where, above, entry, level, first, last, chosen.blocks[block].counts[level])
    uncompiled.raise_cut(above, int(chosen.row[entry]), level, first, last, length)
