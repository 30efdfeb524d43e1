"""Sharding: rows come in blocks of any size, and are written as files of about the same size.

About one shard of rows waits to be written, so the memory does not grow with the number of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import torch

from serrate.table.block import Block
from serrate.table.build import bounds
from serrate.table.gathering.sources import empty_block
from serrate.table.indexing import run_of_rows
from serrate.table.joining import compacted, join_blocks, join_schemas
from serrate.table.schema import Column, Schema, is_integer, least_dtype
from serrate.table.storage.block_file import write_block
from serrate.table.storage.folders import Folder, naming, new_name, shard_name
from serrate.table.storage.header import count_rows
from serrate.table.storage.manifest import LONGEST_MANIFEST, Manifest, Shard
from serrate.table.storage.strict import LARGEST

SHARD_BYTES = 2**28
"""The number of bytes of a shard if no number of rows is given."""
_FEW_BYTES, _MANY_BLOCKS = 2**23, 64

Storing = Callable[[Schema, list[Block]], Schema]
"""A function of the joint schema of some blocks, and of these; it returns the schema by which their shard is stored."""


def as_given(schema: Schema, blocks: list[Block]) -> Schema:
    """Store each column as it is stored already."""
    return schema


def widest(schema: Schema, blocks: list[Block] | None = None) -> Schema:
    """Store each integer column in the dtype that readers get; strings stay as they are."""
    wide = {
        name: replace(column, stored=column.dtype)
        for name, column in schema.items()
        if is_integer(column.dtype) and not column.text
    }
    return schema.with_columns(wide)


class Narrowest:
    """The smallest integer types that hold all values seen so far. Times stay as they are."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}

    def see(self, block: Block, columns: Mapping[str, Column]) -> None:
        """Take the values of a block into account."""
        for name, column in columns.items():
            if not _may_narrow(column):
                continue
            least, greatest = self._ranges.get(name, (0, 0))
            if column.text:
                low, high = 0, max(len(block.vocabularies[name]) - 1, 0)
            elif block.values[name].numel():
                low, high = bounds(block.values[name])
            else:
                continue
            self._ranges[name] = min(least, low), max(greatest, high)

    def narrowed(self, schema: Schema) -> Schema:
        """Return the schema with columns stored in these types."""
        columns = {}
        for name, column in schema.items():
            if _may_narrow(column):
                least = least_dtype(*self._ranges.get(name, (0, 0)))
                columns[name] = replace(
                    column, stored=least if least.itemsize < column.dtype.itemsize else column.dtype
                )
        return schema.with_columns(columns)

    def __call__(self, schema: Schema, blocks: list[Block]) -> Schema:
        """Return how a shard of these blocks is stored, with all values before it taken into account."""
        for block in blocks:
            self.see(block, schema)
        return self.narrowed(schema)


def _may_narrow(column: Column) -> bool:
    return is_integer(column.dtype) and column.unit is None


@dataclass(frozen=True, eq=False)
class _Waiting:
    """Rows that are not written yet; `joins` counts how often they were joined from smaller blocks."""

    block: Block
    bytes: int
    joins: int = 0


class Shards:
    """The files that one writer puts into a folder. They are not part of a dataset until a manifest names them.

    `storing` is the schema by which all shards are stored, or a function that returns one for each shard.
    """

    def __init__(
        self,
        folder: Folder,
        storing: Storing | Schema = as_given,
        rows_per_shard: int | None = None,
        composed: bool = True,
    ) -> None:
        self.folder, self.storing, self.rows_per_shard, self.composed = folder, storing, rows_per_shard, composed
        self.schema: Schema | None = None
        """The schema of all rows that came, as they came."""
        self.stored: Schema | None = None
        """The schema of all shards, as they are stored."""
        self.shards: list[Shard] = []
        self.writer = new_name()
        with naming("a dataset", folder):
            folder.create()
            self._release = folder.claim(self.writer)
        self._waiting: list[_Waiting] = []
        self._left = self._size()
        self._named = 0  # This is about the number of bytes that the shards take in the manifest.

    def begin_after(self, manifest: Manifest) -> None:
        """Let the rows follow those of a dataset."""
        self.schema = manifest.schema
        self._named = sum(map(_bytes_of, manifest.shards[-1:])) * len(manifest.shards)

    def _size(self) -> int:
        """Return the size of a shard, in rows or in bytes."""
        return SHARD_BYTES if self.rows_per_shard is None else self.rows_per_shard

    def add(self, block: Block, *, copy: bool = False, done: Callable[[int], object] = lambda rows: None) -> None:
        """Write the rows that fill shards; the others wait. With `copy` they are copied, as their memory may change."""
        self.schema = self.require(block.check().schema)
        before = self._before(block)
        start, last = 0, None
        while start < block.rows:
            # Take at least one row, however large, unless other rows wait already.
            room = int(torch.searchsorted(before, int(before[start]) + self._left, right=True)) - 1
            stop = min(block.rows, max(room, start if self._waiting else start + 1))
            if stop > start:
                last = _Waiting(run_of_rows(block, start, stop), int(before[stop] - before[start]))
                self._waiting.append(last)
                self._left -= last.bytes
            if stop < block.rows or self._left <= 0:
                self.flush()
            done(stop - start)
            start = stop
        if copy and last is not None and self._waiting:
            self._waiting[-1] = replace(last, block=_copied(last.block))
        self._tidy()

    def require(self, schema: Schema, rows: int = 0) -> Schema:
        """Return the schema of all rows so far and of those to come; raise an error if they do not fit.

        This also checks that the manifest has room for `rows` more rows. If that came out only at the end, when the
        manifest is written, all rows would be lost.
        """
        joined = _joined(self.schema, schema)
        if rows and self.rows_per_shard is not None:
            shards = -(-(rows + self.rows_per_shard - self._left) // self.rows_per_shard)
            longest = shard_name(self.writer, len(self.shards) + shards)
            last = Shard(longest, rows, LARGEST, "0" * 16, dict.fromkeys(joined.levels, LARGEST))
            self._require_room(joined, shards, shards * _bytes_of(last))
        return joined

    def _require_room(self, schema: Schema, shards: int, size: int) -> None:
        """Raise a ValueError if the manifest would be too long for its readers with `shards` more shards."""
        taken = self._named + size
        # A schema takes less than half of a manifest, so its length matters only if the shards take more than half.
        if taken > LONGEST_MANIFEST // 2:
            taken += len(Manifest(schema, (), LARGEST).to_json().encode())
        if taken > LONGEST_MANIFEST:
            raise ValueError(
                f"a manifest has at most {LONGEST_MANIFEST} bytes, which {len(self.shards)} shards of this writer and "
                f"{shards} more would exceed; close() keeps the rows that were written so far; make larger shards, of "
                f"more rows each"
            )

    def redeclare(self, name: str, column: Column) -> None:
        """Change the description of a column that has had no entries, or only missing ones. No shard may exist yet."""
        assert self.schema is not None
        assert not self.shards
        self.schema = self.schema.with_columns({name: column})
        self._waiting = [replace(each, block=_with_zeros(each.block, name, column)) for each in self._waiting]

    def _before(self, block: Block) -> torch.Tensor:
        """Return for each row, and for the end, how much of a shard the rows before it take."""
        if self.rows_per_shard is not None:
            return torch.arange(block.rows + 1)
        return bytes_before(block, self.storing if isinstance(self.storing, Schema) else block.schema)

    def _tidy(self) -> None:
        """Join many small blocks to one, so that a writer of single rows does not keep a block for each row."""
        while len(self._waiting) >= _MANY_BLOCKS:
            last = self._waiting[-_MANY_BLOCKS:]
            if last[0].joins != last[-1].joins or sum(each.block.nbytes for each in last) > _FEW_BYTES:
                return
            assert self.schema is not None
            joined = join_blocks([each.block for each in last], self.schema)
            self._waiting[-_MANY_BLOCKS:] = [_Waiting(joined, sum(each.bytes for each in last), last[0].joins + 1)]

    def flush(self) -> None:
        """Write the rows that wait as a shard."""
        blocks = [each.block for each in self._waiting]
        if blocks:
            assert self.schema is not None
            self.put(join_blocks(blocks, self._stored(self.schema, blocks)))
        self._waiting.clear()
        self._left = self._size()

    def _stored(self, schema: Schema, blocks: list[Block]) -> Schema:
        return self.storing if isinstance(self.storing, Schema) else self.storing(schema, blocks)

    def put(self, block: Block) -> None:
        """Write a block as a shard, as it is."""
        block = compacted(block)
        name = shard_name(self.writer, len(self.shards))
        self._require_room(block.schema, 1, 0)
        with naming(f"shard {name}", self.folder), self.folder.writing(name, new=True) as stream:
            written = write_block(stream, block, composed=self.composed)
        rows = count_rows(block.schema, block.counts)
        shard = Shard(name, rows, written.bytes, written.xxh3, dict(block.counts))
        self.shards.append(shard)
        self._named += _bytes_of(shard)
        self.stored = _joined(self.stored, block.schema)

    def finish(self, empty: bool = True) -> None:
        """Write the rows that still wait. If there were none, but the schema is known, write an empty shard."""
        self.flush()
        if empty and not self.shards and self.schema is not None:
            self.put(empty_block(self._stored(self.schema, [])))

    def release(self) -> None:
        """End the claim: the shards are named now, or deleted."""
        self._waiting.clear()
        self._release()
        self._release = lambda: None


def _bytes_of(shard: Shard) -> int:
    """Return the number of bytes that a shard takes in a manifest, including its indentation and separators."""
    text = json.dumps(shard.to_json(), ensure_ascii=False, indent=1)
    return len(text.encode()) + 2 * (text.count("\n") + 1) + 2


def _joined(before: Schema | None, schema: Schema) -> Schema:
    return schema if before is None else join_schemas(before, schema, "the dataset so far", "the new batch")


def bytes_before(block: Block, schema: Schema) -> torch.Tensor:
    """Return for each row, and for the end, about how many bytes of a file the rows before it take."""
    total = torch.zeros(block.rows + 1, dtype=torch.int64)
    for level in schema.levels:
        columns = [schema[name] for name in schema.columns_at(level)]
        width = sum(column.stored.itemsize * prod(column.features) + column.nullable for column in columns)
        width += 4 * len(schema.children(level))
        if width:
            total += block.composed(level).to(torch.int64) * width
    return total


def _with_zeros(block: Block, name: str, column: Column) -> Block:
    """Return the block with zeros in a column, whatever it held before."""
    assert column.level is not None
    count = block.counts[column.level]
    valid = block.valid.get(name, torch.ones(count, dtype=torch.bool))
    return replace(
        block,
        schema=block.schema.with_columns({name: column}),
        values={**block.values, name: torch.zeros((count, *column.features), dtype=column.stored)},
        valid={**block.valid, name: valid} if column.nullable else block.valid,
        vocabularies={**block.vocabularies, name: ()} if column.text else block.vocabularies,
    )


def _copied(block: Block) -> Block:
    def copied(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in tensors.items()}

    return replace(block, offsets=copied(block.offsets), values=copied(block.values), valid=copied(block.valid))
