"""Block: rows of a table in memory or in a mapped file, and what a reader asks of any source of rows.

For each level the number of its entries, for each level with a parent in the block the offsets [entries of the parent
+ 1] that say which entries belong to which, for each column its values [entries of its level, *features]. Entries of
every level lie in the order of the rows, so that those of one row, or of any run of rows, are a run at every level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch

from serrate.errors import RaggednessError, TableFormatError
from serrate.table.schema import Schema, parent_of, path_to
from serrate.table.storage.mapping import Lazy
from serrate.table.words import Vocabularies
from serrate.tensor import bits
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


class Source(Protocol):
    """Rows that can be read: a block, a mapped file, a file elsewhere."""

    @property
    def schema(self) -> Schema:
        """What the rows hold."""

    @property
    def rows(self) -> int:
        """How many entries the row level has."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many entries each level has."""

    def whole(self) -> Block:
        """All rows; mapped where that is possible."""

    def part(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """A block that has at least these rows and columns, and the numbers of the rows in it.

        Rows are int64 and in range, in any order, some perhaps more than once.
        """


@dataclass(frozen=True, eq=False)
class Renamed:
    """Some columns of a source, under other names."""

    source: Source
    names: Mapping[str, str]
    """For each column its name in the source."""
    _made: WeakKeyDictionary[Block, Block] = field(default_factory=WeakKeyDictionary, init=False, repr=False)
    """What was made of blocks before, so that what is known of one is found out once."""

    @classmethod
    def of(cls, source: Source, names: Mapping[str, str]) -> Renamed:
        """The same; names that were given before are forgotten."""
        if isinstance(source, Renamed):
            return cls(source.source, {name: source.names[own] for name, own in names.items()})
        return cls(source, names)

    def __reduce__(self) -> tuple[Any, ...]:
        return Renamed, (self.source, dict(self.names))

    @property
    def schema(self) -> Schema:
        """What the rows hold, under the new names."""
        old = self.source.schema
        return Schema(old.levels, {name: old[own] for name, own in self.names.items()})

    @property
    def rows(self) -> int:
        """As many as the source has."""
        return self.source.rows

    @property
    def counts(self) -> Mapping[str, int]:
        """As many as the source has."""
        return self.source.counts

    def whole(self) -> Block:
        """All rows."""
        return self._renamed(self.source.whole())

    def part(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """A block that has these rows and columns, and the numbers of the rows in it."""
        block, numbers = self.source.part(rows, tuple(self.names[name] for name in columns))
        return self._renamed(block), numbers

    def _renamed(self, block: Block) -> Block:
        found = self._made.get(block)
        if found is not None:
            return found

        def new(held: Mapping[str, Any]) -> Lazy[Any]:
            return Lazy([name for name, own in self.names.items() if own in held], lambda name: held[self.names[name]])

        made = self._made[block] = replace(
            block,
            schema=Schema(block.schema.levels, dict(new(block.schema))),
            values=new(block.values),
            valid=new(block.valid),
            vocabularies=new(block.vocabularies),
        )
        made._composed, made._partitions = block._composed, block._partitions  # the same levels, so the same partitions
        return made


def unrenamed(source: Source) -> Source:
    """The source itself, where it is one under other names."""
    return source.source if isinstance(source, Renamed) else source


@dataclass(eq=False)
class Block:
    """Rows whose memory is at hand."""

    schema: Schema
    counts: Mapping[str, int]
    """The number of entries of each level."""
    offsets: Mapping[str, torch.Tensor]
    """For each level that has its parent here: int32 or int64, from 0."""
    values: Mapping[str, torch.Tensor]
    """[entries, *features] of the stored dtype; [*features] for a column without a level."""
    valid: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """For each nullable column: bool, which entries are there. Where they are not, values are zeros."""
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each column of strings."""
    trusted: bool = True
    """Whether offsets are known to be right; those of a file are not before they are used."""
    _composed: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False)
    _partitions: dict[str, Partition] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """How many entries the only root has."""
        (root,) = self.schema.roots
        return self.counts[root]

    def whole(self) -> Block:
        """Itself."""
        return self

    def part(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Itself, and the same numbers."""
        return self, rows

    def partition(self, level: str) -> Partition:
        """How entries of a level belong to those of its parent; checked on first use."""
        made = self._partitions.get(level)
        if made is None:
            try:
                made = Partition.from_offsets(
                    self.offsets[level],
                    self.counts[level],
                    copy=False,
                    validate=not self.trusted,
                    name=f"offsets of {level!r}",
                )
            except RaggednessError as error:
                raise TableFormatError(str(error)) from error
            self._partitions[level] = made
        return made

    def composed(self, level: str) -> torch.Tensor:
        """For each entry of the root, and the end, the first entry of a level below: [rows + 1]."""
        made = self._composed.get(level)
        if made is None:
            above = parent_of(level)
            if above is None or above not in self.counts:
                return torch.arange(self.counts[level] + 1)
            made = self.partition(level).offsets
            if above in self.offsets:
                made = made[self.composed(above).to(torch.int64)]
            self._composed[level] = made
        return made

    def tensor(self, column: str) -> Tensor:
        """A column as a tensor over the same memory, as stored."""
        return self.shaped(self.values[column], self.schema[column].level)

    def shaped(self, values: torch.Tensor, level: str | None) -> Tensor:
        """Values with an entry per entry of a level, as a tensor [rows, ragged, …]."""
        ragged = [] if level is None else [above for above in path_to(level) if above in self.offsets]
        if not ragged:
            return Tensor(values)
        outermost = parent_of(ragged[0])
        assert outermost is not None
        axes: list[Axis] = [self.counts[outermost]]
        axes += [Ragged(self.partition(above), range(i + 1)) for i, above in enumerate(ragged)]
        return Tensor(values, Structure(axes))

    def codes(self, column: str) -> torch.Tensor:
        """The places of a column of strings in its vocabulary, int64, -1 for what is missing."""
        codes = self.values[column].to(torch.int64)
        return torch.where(self.valid[column], codes, -1) if column in self.valid else codes

    def check_codes(self, column: str) -> None:
        """Nothing, or a TableFormatError if a column of strings has codes that are no places in its vocabulary."""
        words = len(self.vocabularies[column])
        code = wrong_code(self.values[column], self.valid.get(column), words)
        if code is not None:
            raise TableFormatError(code_fault(column, code, words))

    def select(self, names: tuple[str, ...]) -> Block:
        """Some of the columns."""
        schema = self.schema.select(names)
        made = Block(
            schema,
            {level: self.counts[level] for level in schema.levels},
            {level: self.offsets[level] for level in schema.levels if level in self.offsets},
            {name: self.values[name] for name in names},
            {name: self.valid[name] for name in names if name in self.valid},
            {name: self.vocabularies[name] for name in names if name in self.vocabularies},
            self.trusted,
        )
        made._composed, made._partitions = self._composed, self._partitions  # the same levels, so the same partitions
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of values, masks and offsets; vocabularies come on top."""
        return sum(t.nbytes for kind in (self.offsets, self.values, self.valid) for t in kind.values())

    def __reduce__(self) -> tuple[Any, ...]:
        kept = (
            {name: _alone(tensor) for name, tensor in kind.items()} for kind in (self.offsets, self.values, self.valid)
        )
        return _restored, (self.schema, dict(self.counts), *kept, Vocabularies(self.vocabularies), self.trusted)

    def check(self) -> Block:
        """Itself, or a RaggednessError, TypeError or TableFormatError that says what does not fit what."""
        for level in self.schema.levels:
            above = parent_of(level)
            if above not in self.schema.levels:
                continue
            offsets = self.offsets[level]
            if offsets.numel() != self.counts[above] + 1:
                raise RaggednessError(
                    f"level {level!r} needs {self.counts[above] + 1} offsets, one more than {above!r} has entries, "
                    f"got {offsets.numel()}"
                )
            self.partition(level)
        for name, column in self.schema.items():
            wanted = column.features if column.level is None else (self.counts[column.level], *column.features)
            for tensor in (self.values[name], *([self.valid[name]] if column.nullable else [])):
                expected = wanted if tensor is self.values[name] else wanted[: int(column.level is not None)]
                if tuple(tensor.shape) != expected:
                    raise RaggednessError(f"column {name!r} needs shape {expected}, got {tuple(tensor.shape)}")
            if self.values[name].dtype != column.stored:
                raise TypeError(f"column {name!r} is stored as {column.stored}, got {self.values[name].dtype}")
            if column.text:
                self.check_codes(name)
        return self


def wrong_code(codes: torch.Tensor, valid: torch.Tensor | None, words: int) -> int | None:
    """The first code that is no place in a vocabulary of so many words; None if all are.

    What is missing has such a code, too, or 0.
    """
    held: Any = codes.numpy()
    limit = min(words, np.iinfo(held.dtype).max + 1)
    if held.size == 0 or held.view(f"u{held.itemsize}").max() < limit:  # negative ones are the greatest then
        return None
    limits = words if valid is None else np.where(valid.numpy(), words, max(words, 1))
    wrong = held[(held < 0) | (held >= limits)]
    return int(wrong[0]) if wrong.size else None


def code_fault(column: str, code: int, words: int) -> str:
    """What is said of a code that is no place in the vocabulary."""
    return f"column {column!r} has code {code}, but its vocabulary has {words} words"


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as torch can pickle it: not of the types that it cannot, and without the memory around a view."""
    tensor = bits.as_carrier(tensor)
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def _restored(
    schema: Schema, counts: Any, offsets: Any, values: dict[str, torch.Tensor], valid: Any, words: Any, trusted: bool
) -> Block:
    """The block that was pickled."""
    held = {name: tensor.view(schema[name].stored) for name, tensor in values.items()}
    return Block(schema, counts, offsets, held, valid, words, trusted)
