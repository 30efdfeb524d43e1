"""Sources: where the rows of a table come from, what the sources have in common, and which of them a batch needs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch

from serrate.errors import TableFormatError
from serrate.native import gather as library
from serrate.native.loading import allocate
from serrate.table.block import Block, Source, unrenamed
from serrate.table.schema import Schema, fits_within, least_dtype, parent_of
from serrate.table.storage.folders import Place

T = TypeVar("T")
_MOST_KEPT = 64
NO_ROWS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a batch is made of: for each of its rows a source, a row of that source, and a range of the row's entries.

    >>> Pieces(None, torch.tensor([2, 0]), "visits", torch.tensor([0, 1]), torch.tensor([2, 5])).count
    2
    """

    source: torch.Tensor | None
    """The number of the source: int64 [B]. None means that all rows are in the first source."""
    row: torch.Tensor
    """The row within that source: int64 [B]."""
    level: str | None = None
    """A level right below the rows. Each row keeps only some of its entries of this level."""
    start: torch.Tensor | None = None
    """int64 [B]: each row keeps its entries from start to stop, with 0 <= start <= stop <= number of its entries."""
    stop: torch.Tensor | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.row.numel()


@dataclass(frozen=True, eq=False)
class Origin:
    """The files that rows came from. All tables that are made from one opened table share it."""

    files: set[Place]


@dataclass(frozen=True, eq=False)
class JointVocabulary:
    """The joint vocabulary of a column in all sources."""

    words: tuple[str, ...]
    codes: tuple[torch.Tensor | None, ...]
    """For each source the new code of each of its codes, as int64; None if all codes stay the same."""


class Sources(tuple[Source, ...]):
    """The sources of a table, with facts about them that are found only once."""

    _words: dict[str, JointVocabulary]
    _kept: dict[tuple[str, int], tuple[Any, Schema]]
    _made_from: tuple[Origin, ...]

    def __new__(cls, sources: Iterable[Source] = (), made_from: tuple[Origin, ...] = ()) -> Sources:
        """Return the sources as one object, or `sources` if it is one; `made_from` are the files of the rows."""
        if isinstance(sources, Sources):
            return sources
        self = super().__new__(cls, sources)
        self._words, self._kept, self._made_from = {}, {}, made_from
        return self

    @cached_property
    def origins(self) -> tuple[Origin, ...]:
        """The files that the rows are read from, or were read from before they were copied."""
        places = (getattr(unrenamed(source), "place", None) for source in self)
        files = {place for place in places if place is not None}
        return self._made_from or ((Origin(files),) if files else ())

    def __reduce__(self) -> tuple[Any, ...]:
        return Sources, (tuple(self), self._made_from)

    def words(self, column: str) -> JointVocabulary:
        """Return the words of a column of strings: those of the first source, then the new ones of the second, …."""
        found = self._words.get(column)
        if found is None:
            found = self._words[column] = _united([vocabulary_of(source, column) for source in self])
        return found

    def kept(self, what: str, schema: Schema, make: Callable[[Schema], T]) -> T:
        """Return what `make` makes of a schema. It is made once for each schema and kept."""
        found = self._kept.get((what, id(schema)))
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            # A reference to the schema keeps its id from being used again.
            found = self._kept[what, id(schema)] = (make(schema), schema)
        return found[0]


def vocabulary_of(source: Source, column: str) -> tuple[str, ...]:
    """Return the words of a column in one source."""
    return source.block_with(NO_ROWS, (column,))[0].vocabularies.get(column, ())


def _united(each: Sequence[tuple[str, ...]]) -> JointVocabulary:
    if not each or all(words is each[0] or words == each[0] for words in each):
        return JointVocabulary(each[0] if each else (), (None,) * len(each))
    places: dict[str, int] = {}
    codes = []
    for words in each:
        found = [places.setdefault(word, len(places)) for word in words]
        codes.append(None if found == list(range(len(found))) else torch.tensor(found, dtype=torch.int64))
    return JointVocabulary(tuple(places), tuple(codes))


@dataclass(frozen=True, eq=False)
class Chosen:
    """The blocks that a batch is read from; and for each of its rows the block and the row there."""

    blocks: tuple[Block, ...]
    numbers: tuple[int, ...]
    """The number of the source of each block."""
    ends: Sequence[int]
    """For each block the number of rows in it and in the blocks before it."""
    which: torch.Tensor | None
    """int64 [B]: the position of the block in `blocks`; None if all rows are in the first block."""
    row: torch.Tensor
    """int64 [B]: the row within the block."""


def choose(sources: Sources, schema: Schema, pieces: Pieces) -> Chosen:
    """Ask each source for those rows of a batch that it has."""
    names = tuple(schema)
    row = pieces.row.contiguous()
    if pieces.source is None or len(sources) < 2 or not row.numel():
        block, row = sources[0].block_with(row, names) if sources else (empty_block(schema), row)
        return Chosen((block,), (0,), (row.numel(),), None, row)
    which, grouped, used, ends = _grouped(pieces.source, row, len(sources))
    asked = grouped.split_with_sizes([stop - start for start, stop in pairwise((0, *ends))])
    parts = [sources[number].block_with(rows, names) for number, rows in zip(used, asked, strict=True)]
    if any(rows is not own for (_, rows), own in zip(parts, asked, strict=True)):
        order = np.argsort(which.numpy(), kind="stable")
        row = torch.empty_like(row)
        row.numpy()[order] = np.concatenate([rows.numpy() for _, rows in parts])
    return Chosen(tuple(block for block, _ in parts), tuple(used), ends, which, row)


def _grouped(
    source: torch.Tensor, row: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, Sequence[int], Sequence[int]]:
    """Group the rows of a batch by source.

    Return for each row the position of its source among the sources in use; the rows in the order of the sources; the
    sources in use; and where the rows of each of them end. torch is not used, because it starts all its threads for
    some of these steps.
    """
    source, routines = source.contiguous(), library.routines()
    if routines is None:
        given = source.numpy()
        if given.min() < 0 or given.max() >= count:
            _no_source(count)
        sizes = np.bincount(given, minlength=count)
        used = sizes.nonzero()[0]
        which = given if used.size == count else used.searchsorted(given)
        grouped = row.numpy().take(given.argsort(kind="stable"))
        return torch.from_numpy(which), torch.from_numpy(grouped), used.tolist(), sizes[used].cumsum().tolist()
    rows = row.numel()
    places, by_source = allocate((rows,), (1,), torch.int64), allocate((rows,), (1,), torch.int64)
    numbers = array("q", bytes(16 * count))
    at = numbers.buffer_info()[0]
    found = routines["group"](
        source.data_ptr(), row.data_ptr(), rows, count, places.data_ptr(), by_source.data_ptr(), at,
        at + 8 * count,
    )  # fmt: skip
    if found < 0:
        _no_source(count)
    return places, by_source, numbers[:found], numbers[count : count + found]


def _no_source(count: int) -> NoReturn:
    raise IndexError(f"the numbers of sources must be from 0 to {count - 1}, but other sources are asked for")


def located(rows: torch.Tensor, bounds: torch.Tensor, level: str) -> Pieces:
    """Find the source of rows of a table, given as int64. The rows of source s begin at bounds[s].

    Negative numbers count from the end.
    """
    rows, routines = rows.contiguous(), library.routines()
    if routines is None:
        return _located_by_numpy(rows, bounds, level)
    count = rows.numel()
    source, local = allocate((count,), (1,), torch.int64), allocate((count,), (1,), torch.int64)
    wrong = routines["locate"](
        rows.data_ptr(), count, bounds.data_ptr(), bounds.numel() - 1, source.data_ptr(), local.data_ptr()
    )
    if wrong:
        _no_row(rows, wrong - 1, bounds, level)
    return Pieces(source if bounds.numel() > 2 else None, local)


def _located_by_numpy(rows: torch.Tensor, bounds: torch.Tensor, level: str) -> Pieces:
    given, edges = rows.numpy(), bounds.numpy()
    if given.size:
        least, most = int(given.min()), int(given.max())
        if least < -edges[-1] or most >= edges[-1]:
            _no_row(rows, int(((given < -edges[-1]) | (given >= edges[-1])).argmax()), bounds, level)
        if least < 0:
            given = np.where(given < 0, given + edges[-1], given)
    if edges.size == 2:
        return Pieces(None, torch.from_numpy(given))
    source = edges.searchsorted(given, side="right") - 1
    return Pieces(torch.from_numpy(source), torch.from_numpy(given - edges.take(source)))


def _no_row(rows: torch.Tensor, place: int, bounds: torch.Tensor, level: str) -> NoReturn:
    count, row = int(bounds[-1]), int(rows[place])
    raise IndexError(f"{level!r} has {count} entries, but position {place} of the key asks for {row}")


def empty_block(schema: Schema) -> Block:
    """Return a block without rows; columns without a level are 0."""
    counts = dict.fromkeys(schema.levels, 0)
    offsets = {level: torch.zeros(1, dtype=torch.int64) for level in schema.levels if parent_of(level) in counts}
    values, valid = {}, {}
    for name, column in schema.items():
        entries = () if column.level is None else (0,)
        values[name] = torch.zeros(*entries, *column.features, dtype=column.stored)
        if column.nullable:
            valid[name] = torch.zeros(entries, dtype=torch.bool)
    return Block(schema, counts, offsets, values, valid, {name: () for name, column in schema.items() if column.text})


def check_block(block: Block, schema: Schema, where: str) -> None:
    """Raise a TableFormatError or TypeError unless a block has all that the schema names, in sizes that fit."""
    for level in schema.levels:
        above = parent_of(level)
        if above not in schema.levels:
            continue
        offsets, count = block.offsets[level], block.counts[level]
        if offsets.numel() != block.counts[above] + 1:
            raise TableFormatError(
                f"{where}: level {level!r} needs {block.counts[above] + 1} offsets, got {offsets.numel()}"
            )
        # The offsets between the first and the last are checked when they are used. The ends have to be checked here:
        # reading rows does not show entries that belong to no row.
        if int(offsets[0]) != 0 or int(offsets[-1]) != count:
            raise TableFormatError(
                f"{where}: offsets of {level!r} must begin with 0 and end with {count}, the number of its entries, got "
                f"{int(offsets[0])} and {int(offsets[-1])}"
            )
    for name, column in schema.items():
        own, values = block.schema[name], block.values[name]
        # Codes are never negative, so a code of a signed type fits an unsigned type of the same width.
        fits = own.stored.itemsize <= column.stored.itemsize if column.text else fits_within(own.stored, column.stored)
        if not (fits and values.dtype == own.stored):
            raise TypeError(f"{where}: column {name!r} must be stored as {column.stored}, got {values.dtype}")
        entries = () if column.level is None else (block.counts[column.level],)
        if tuple(values.shape) != (*entries, *column.features):
            expected = (*entries, *column.features)
            raise TableFormatError(f"{where}: column {name!r} needs shape {expected}, got {tuple(values.shape)}")
        if own.nullable and tuple(block.valid[name].shape) != entries:
            raise TableFormatError(
                f"{where}: the mask of column {name!r} needs shape {entries}, got {tuple(block.valid[name].shape)}"
            )


def source_name(sources: Sequence[Source], number: int) -> str:
    """Return the name of a source for error messages."""
    path = getattr(sources[number], "path", None) if number < len(sources) else None
    return f"source {number}" if path is None else str(path)


def stored_as_read(schema: Schema) -> Schema:
    """Return the schema with every column stored in the dtype that readers get."""
    if all(column.stored == column.dtype for column in schema.values()):
        return schema
    return schema.changed(**{name: {"stored": column.dtype} for name, column in schema.items()})


def holding(schema: Schema, sources: Sources) -> Schema:
    """Return the schema with codes stored wide enough for the joint words of all sources."""
    changes = {}
    for name, column in schema.items():
        if column.text and len(sources) > 1:
            last = max(len(sources.words(name).words) - 1, 0)
            if last > torch.iinfo(column.dtype).max:
                raise OverflowError(f"column {name!r} has {last + 1} words, more than {column.dtype} can count")
            if last > torch.iinfo(column.stored).max:
                changes[name] = {"stored": least_dtype(0, last)}
    return schema.changed(**changes) if changes else schema
