"""TableWriter: writes a dataset batch by batch, in bounded memory, by one process or by several."""

from __future__ import annotations

import os
import sys
import time
import warnings
import weakref
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from serrate.errors import TableFormatError
from serrate.table.block import Block
from serrate.table.build import Declared, build
from serrate.table.from_lists import columns_of
from serrate.table.schema import Column, Schema
from serrate.table.storage.committing import Basis, discard, publish, read_manifest, require_place
from serrate.table.storage.parts import Part
from serrate.table.storage.sharding import Narrowest, Shards, as_given, widest
from serrate.table.storage.writing import block_of_source, checked_rows, dataset_folder, has_rows, shards_read

if TYPE_CHECKING:
    from serrate.table.storage.manifest import Manifest
    from serrate.table.table import Table

_ROWS_AT_ONCE = 4096


class TableWriter:
    """Writes a dataset batch by batch; it needs memory for about two shards, however many rows there are.

    A batch is a table or a mapping of columns. The first batch, or `schema`, decides which columns there are. Later
    batches may have wider integers, other strings, and missing entries. The dataset appears when the writer is closed,
    or at the end of its `with` block; after an exception in the block everything stays as it was. A writer that is
    dropped without being closed loses its rows, and warns. With `append` the rows follow the existing ones, and with
    `overwrite` they replace them, unless somebody else has changed the dataset since the writer was made. With
    `narrow=True` each shard is stored in the smallest integer types that hold all values so far. The other options are
    those of `Table.save`.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with sr.TableWriter(f"{folder}/words", rows_per_shard=1000) as writer:
    ...         writer.write({"word": [["a", "b"], []]})
    ...         writer.write({"word": [["c"]]})
    ...     sr.open(f"{folder}/words").tolist()
    {'word': [['a', 'b'], [], ['c']]}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Declared = None,
        *,
        rows_per_shard: int | None = None,
        append: bool = False,
        overwrite: bool = False,
        narrow: bool | None = None,
        composed: bool = True,
    ) -> None:
        if append and overwrite:
            raise ValueError("append=True keeps what is there and overwrite=True replaces it; give one of them")
        self._begin(path, schema, rows_per_shard, narrow, composed, _End(append, overwrite))

    @classmethod
    def part(
        cls,
        path: str | os.PathLike[str],
        schema: Declared = None,
        *,
        order: int | None = None,
        rows_per_shard: int | None = None,
        narrow: bool | None = None,
        composed: bool = True,
    ) -> TableWriter:
        """Return a writer for one of several parts of a dataset; `commit` joins the parts when all are closed.

        Each part may be written by a different process. `order` is the position among the parts, if it matters.
        """
        if order is not None and (isinstance(order, bool) or not isinstance(order, int)):
            raise TypeError(f"the order of a part must be an integer or None, got {order!r:.60}")
        made = object.__new__(cls)
        made._begin(path, schema, rows_per_shard, narrow, composed, _End(part=True, order=order))
        return made

    def _begin(
        self,
        path: str | os.PathLike[str],
        schema: Declared,
        rows_per_shard: int | None,
        narrow: bool | None,
        composed: bool,
        end: _End,
    ) -> None:
        rows_per_shard = checked_rows(rows_per_shard)
        if os.fspath(path).endswith(".safetensors"):
            raise ValueError(f"a writer makes a folder of shards, but {os.fspath(path)!r} is the name of one file")
        self._folder, self._declared, self._end = dataset_folder(path), schema, end
        before = self._begun()
        storing = as_given if narrow is None else Narrowest() if narrow else widest
        self._shards = Shards(self._folder, storing, rows_per_shard, composed)
        self._closed = False
        self._guessed: set[str] = set()
        if end.append and before is not None:
            self._shards.begin_after(before)
        elif isinstance(schema, Schema):
            self._shards.schema = schema
        self._unclosed = Unclosed(self._folder.where, sys._getframe(2))
        self._watched = weakref.finalize(self, self._unclosed.warn)

    def _begun(self) -> Manifest | None:
        """Return the manifest that exists when the writer begins; None if there is none."""
        end, self._generation, before = self._end, None, None
        if not (end.append or end.part):
            before = require_place(self._folder, end.overwrite)
        elif end.append:
            self._folder.create()
            self._folder.require_lock()
            before = read_manifest(self._folder)
        else:
            with suppress(TableFormatError):  # commit reports this, if it still matters then.
                before = read_manifest(self._folder)
                self._generation = 0 if before is None else before.generation
        self._basis = Basis(before)
        return before

    def write(self, rows: Table | Mapping[str, Any]) -> None:
        """Add rows: a table, or a mapping of columns from which a table can be made."""
        from serrate.table.table import Table

        if self._closed:
            raise ValueError("the writer is closed")
        if isinstance(rows, Table):
            if not has_rows(rows.schema):
                raise ValueError(
                    "a table without rows, such as t[3], cannot be added to a dataset; unsqueeze() makes it one row"
                )
            self._settle(rows.schema, void=())
            self._add(rows.schema, len(rows), (block_of_source(source, rows.schema) for source in rows.sources))
            self._basis = replace(self._basis, read=self._basis.read | shards_read(rows, self._folder))
        elif isinstance(rows, Mapping):
            block = self._built(rows)
            self._settle(block.schema, void=[name for name in block.schema if _is_void(block, name)])
            self._add(block.schema, block.rows, [block])
        else:
            raise TypeError(f"a writer takes tables and mappings of columns, got {type(rows).__name__}")

    def write_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows that are mappings, each with an entry for every column; a few thousand are taken at a time.

        >>> import tempfile, serrate as sr
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sr.TableWriter(f"{folder}/words") as writer:
        ...         writer.write_rows({"id": i, "word": ["a"] * i} for i in range(3))
        ...     sr.open(f"{folder}/words").tolist()
        {'id': [0, 1, 2], 'word': [[], ['a'], ['a', 'a']]}
        """
        waiting, taken = iter(rows), 0
        while some := list(islice(waiting, _ROWS_AT_ONCE)):
            try:
                self.write(columns_of(some, self._shards.schema or self._declared))
            except Exception as error:
                if taken:
                    error.add_note(
                        f"write_rows had accepted {taken} rows before; the numbers of rows in this error "
                        f"count from the next row"
                    )
                raise
            taken += len(some)

    def _add(self, schema: Schema, rows: int, blocks: Iterable[Block]) -> None:
        """Add blocks of rows.

        Rows that do not fit are refused before anything changes; after any other error the writer is closed.
        """
        self._shards.require(schema, rows)
        try:
            for block in blocks:
                self._shards.add(block, copy=True)
        except BaseException:
            self.discard()
            raise
        self._unclosed.rows += rows

    def _built(self, rows: Mapping[str, Any]) -> Block:
        known = self._shards.schema
        if known is None or isinstance(self._declared, Schema):
            return build(rows, self._declared, False)
        declared = {name: column.level if name in self._guessed else column for name, column in widest(known).items()}
        return build(rows, declared, False)

    def _settle(self, schema: Schema, void: Collection[str]) -> None:
        """Take the type of a column from the first batch that has entries of it; until then the type is a guess."""
        known = self._shards.schema
        if known is None:
            told = {name for name, what in (self._declared or {}).items() if not isinstance(what, str)}
            self._guessed = set(void) - told
            return
        for name in self._guessed.intersection(schema).difference(void):
            nullable = schema[name].nullable or known[name].nullable
            new = replace(schema[name], nullable=nullable)
            if new.level == known[name].level and new != replace(known[name], nullable=nullable):
                self._change(name, known[name], new)
            self._guessed.discard(name)

    def _change(self, name: str, guess: Column, column: Column) -> None:
        if self._shards.shards:
            raise TypeError(
                f"column {name!r} had no entry in the rows that are written already, so it was taken to be {guess}, "
                f"but now it is {column}; say in the schema what it holds"
            )
        self._shards.redeclare(name, column)

    def close(self) -> None:
        """Write the remaining rows and make all of them visible; do nothing if the writer is closed already."""
        if self._closed:
            return
        shards, end = self._shards, self._end
        try:
            shards.finish(empty=not end.append)
            if end.part:
                written = tuple(shards.shards)
                part = Part(shards.writer, end.order, end.started, shards.stored, written, self._generation)
                part.write(self._folder)
            elif shards.stored is not None:
                with self._folder.locked(needed=end.append):
                    publish(
                        self._folder, shards.stored, shards.shards, append=end.append, overwrite=end.overwrite,
                        basis=self._basis,
                    )  # fmt: skip
            elif not end.append:
                raise ValueError(
                    f"nothing was written to {self._folder.where}, and no schema says which columns it has"
                )
        except BaseException:
            self.discard()
            raise
        self._end_now()

    def discard(self) -> None:
        """Delete all that was written, and close."""
        if not self._closed:
            try:
                discard(self._folder, self._shards.shards)
            finally:
                self._end_now()

    def _end_now(self) -> None:
        self._closed = True
        self._watched.detach()
        self._shards.release()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.discard()


def _is_void(block: Block, name: str) -> bool:
    """Return whether a column has no entries, or only missing ones, which do not show its type."""
    return not bool(block.valid[name].any()) if name in block.valid else not block.values[name].shape[0]


class Unclosed:
    """The warning about a writer that was dropped without being closed, since its rows are lost.

    The rows are not kept, because an exception can also drop a writer, which then has only some of the rows. The
    warning is of a kind that Python shows by default. It names the line that made the writer, and comes at the latest
    when the program exits.
    """

    def __init__(self, where: str, maker: FrameType) -> None:
        self.rows = 0
        self._where, self._process = where, os.getpid()
        self._file, self._line = maker.f_code.co_filename, maker.f_lineno

    def warn(self) -> None:
        """Warn, but not in a forked process, which has only a copy of the writer."""
        if os.getpid() != self._process:
            return
        words = (
            f"a TableWriter for {self._where} was dropped before it was closed, and all rows that were written to it "
            f"({self.rows}) are lost; use it in a `with` block, or call close() to keep the rows, or discard() to drop "
            f"them; serrate.table.repair deletes the files that it left"
        )
        warnings.warn_explicit(words, RuntimeWarning, self._file, self._line)


@dataclass(frozen=True)
class _End:
    """What a writer does when it is closed."""

    append: bool = False
    overwrite: bool = False
    part: bool = False
    order: int | None = None
    started: int = field(default_factory=time.time_ns)
