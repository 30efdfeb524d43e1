"""Block: rows of a table in memory or in a mapped file; and Source, which is what readers need of anything with rows.

A block has the number of entries of each level. Each level whose parent is in the block has offsets [entries of the
parent + 1], which say which entries belong to which entry of the parent. Each column has its values [entries of its
level, *features]. The entries of every level are in the order of the rows, so the entries of one row, or of a run of
rows, are a run at every level.
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
from serrate.table.storage.memory_map import Lazy
from serrate.table.words import Vocabularies
from serrate.tensor import bits
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


class Source(Protocol):
    """Rows that can be read: a block, a mapped file, or a file in a remote store."""

    @property
    def schema(self) -> Schema:
        """What the rows hold."""

    @property
    def rows(self) -> int:
        """The number of entries of the row level."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of entries of each level."""

    def whole(self) -> Block:
        """Return all rows, mapped if possible."""

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Return a block that has at least these rows and columns, and the numbers that the rows have in it.

        The row numbers are int64 and in range, in any order; a number may occur several times.
        """


@dataclass(frozen=True, eq=False)
class Renamed:
    """Some columns of a source under other names."""

    source: Source
    names: Mapping[str, str]
    """The name of each column in the source."""
    _made: WeakKeyDictionary[Block, Block] = field(default_factory=WeakKeyDictionary, init=False, repr=False)
    """The blocks made before, so that what is known about a block is found only once."""

    @classmethod
    def of(cls, source: Source, names: Mapping[str, str]) -> Renamed:
        """Return the source with these names. If it has been renamed already, the names in between are dropped."""
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
        """The number of rows of the source."""
        return self.source.rows

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of entries of each level."""
        return self.source.counts

    def whole(self) -> Block:
        """Return all rows."""
        return self._renamed(self.source.whole())

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Return a block that has these rows and columns, and the numbers that the rows have in it."""
        block, numbers = self.source.block_with(rows, tuple(self.names[name] for name in columns))
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
        # The levels are the same, so the partitions are the same.
        made._composed, made._partitions = block._composed, block._partitions
        return made


def unrenamed(source: Source) -> Source:
    """Return the original source if this one only renames its columns, and the source itself otherwise."""
    return source.source if isinstance(source, Renamed) else source


@dataclass(eq=False)
class Block:
    """Rows that are in memory or in a mapped file."""

    schema: Schema
    counts: Mapping[str, int]
    """The number of entries of each level."""
    offsets: Mapping[str, torch.Tensor]
    """The offsets of each level whose parent is in the block: int32 or int64, beginning with 0."""
    values: Mapping[str, torch.Tensor]
    """The values of each column in its stored dtype: [entries, *features], or [*features] if it has no level."""
    valid: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """For each nullable column the mask of the entries that are present. The value of a missing entry is 0."""
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of each column of strings."""
    trusted: bool = True
    """Whether the offsets are known to be right. Those of a file are not, until they have been checked."""
    _composed: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False)
    _partitions: dict[str, Partition] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """The number of entries of the only root."""
        (root,) = self.schema.roots
        return self.counts[root]

    def whole(self) -> Block:
        """Return the block itself."""
        return self

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        """Return the block itself and the same row numbers."""
        return self, rows

    def partition(self, level: str) -> Partition:
        """Return how a level is partitioned among the entries of its parent; the offsets are checked on first use."""
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
        """Return the first entry of a level for each row, and at the end the number of all entries: [rows + 1]."""
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
        """Return a column in its stored dtype, as a tensor over the same memory."""
        return self.shaped(self.values[column], self.schema[column].level)

    def shaped(self, values: torch.Tensor, level: str | None) -> Tensor:
        """Return values, one for each entry of a level, as a tensor [rows, ragged, …]."""
        ragged = [] if level is None else [above for above in path_to(level) if above in self.offsets]
        if not ragged:
            return Tensor(values)
        outermost = parent_of(ragged[0])
        assert outermost is not None
        axes: list[Axis] = [self.counts[outermost]]
        axes += [Ragged(self.partition(above), range(i + 1)) for i, above in enumerate(ragged)]
        return Tensor(values, Structure(axes))

    def codes(self, column: str) -> torch.Tensor:
        """Return the codes of a column of strings as int64, with -1 for missing entries."""
        codes = self.values[column].to(torch.int64)
        return torch.where(self.valid[column], codes, -1) if column in self.valid else codes

    def check_codes(self, column: str) -> None:
        """Raise a TableFormatError if a code of a column of strings is not a position in its vocabulary."""
        words = len(self.vocabularies[column])
        code = wrong_code(self.values[column], self.valid.get(column), words)
        if code is not None:
            raise TableFormatError(code_fault(column, code, words))

    def select(self, names: tuple[str, ...]) -> Block:
        """Return the block with some of the columns."""
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
        # The levels are the same, so the partitions are the same.
        made._composed, made._partitions = self._composed, self._partitions
        return made

    @property
    def nbytes(self) -> int:
        """The number of bytes of values, masks and offsets. Vocabularies are not counted."""
        return sum(t.nbytes for kind in (self.offsets, self.values, self.valid) for t in kind.values())

    def __reduce__(self) -> tuple[Any, ...]:
        kept = (
            {name: _alone(tensor) for name, tensor in kind.items()} for kind in (self.offsets, self.values, self.valid)
        )
        return _restored, (self.schema, dict(self.counts), *kept, Vocabularies(self.vocabularies), self.trusted)

    def check(self) -> Block:
        """Return the block itself; raise a RaggednessError, TypeError or TableFormatError if its tensors do not fit."""
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
    """Return the first code that is not a position in a vocabulary of `words` words; None if there is no such code.

    The code of a missing entry may also be 0, even if the vocabulary is empty.
    """
    held: Any = codes.numpy()
    limit = min(words, np.iinfo(held.dtype).max + 1)
    # As unsigned numbers, negative codes are the greatest.
    if held.size == 0 or held.view(f"u{held.itemsize}").max() < limit:
        return None
    limits = words if valid is None else np.where(valid.numpy(), words, max(words, 1))
    wrong = held[(held < 0) | (held >= limits)]
    return int(wrong[0]) if wrong.size else None


def code_fault(column: str, code: int, words: int) -> str:
    """Return the message about a code that is not a position in the vocabulary."""
    return f"column {column!r} has code {code}, but its vocabulary has {words} words"


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch can pickle: of a dtype that it knows, and without the memory around a view."""
    tensor = bits.as_carrier(tensor)
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def _restored(
    schema: Schema, counts: Any, offsets: Any, values: dict[str, torch.Tensor], valid: Any, words: Any, trusted: bool
) -> Block:
    """Return the block that was pickled."""
    held = {name: tensor.view(schema[name].stored) for name, tensor in values.items()}
    return Block(schema, counts, offsets, held, valid, words, trusted)
