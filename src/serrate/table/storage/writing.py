"""Writing: a whole table is written to a folder or a file; if that fails, nothing has changed."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

from serrate.errors import TableFormatError
from serrate.table.block import Block, Source
from serrate.table.gathering.sources import empty_block
from serrate.table.joining import as_stored, compacted, join_blocks
from serrate.table.schema import Schema
from serrate.table.storage.block_file import write_block
from serrate.table.storage.committing import Basis, discard, publish, require_place
from serrate.table.storage.contents import faults_of_block
from serrate.table.storage.folders import Folder, LocalFolder, Place, folder_at, naming, parent_folder
from serrate.table.storage.progress import progress
from serrate.table.storage.sharding import Narrowest, Shards, widest

if TYPE_CHECKING:
    from serrate.table.table import Table


_ELSEWHERE = {".parquet": "to_parquet", ".nrt": "to_nrt"}


def save(
    table: Table,
    path: str | os.PathLike[str],
    *,
    rows_per_shard: int | None = None,
    overwrite: bool = False,
    narrow: bool | None = None,
    composed: bool = True,
) -> None:
    """Write a table, as `Table.save` describes."""
    rows_per_shard = checked_rows(rows_per_shard)
    for ending, method in _ELSEWHERE.items():
        if os.fspath(path).endswith(ending):
            raise ValueError(f"{os.fspath(path)!r} is the name of a file of another format; t.{method} writes one")
    stored = _stored(table, narrow)
    if os.fspath(path).endswith(".safetensors"):
        if rows_per_shard is not None:
            raise ValueError(f"rows_per_shard is for a folder of shards, but {os.fspath(path)!r} is to be one file")
        _save_file(table, stored, path, overwrite, composed)
    else:
        _save_folder(table, stored, path, rows_per_shard, overwrite, composed)


def checked_rows(rows: Any) -> int | None:
    """Return the number of rows of a shard; raise a ValueError if it cannot be one."""
    if rows is None:
        return None
    if isinstance(rows, bool) or not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows_per_shard must be a positive number of rows, or None, got {rows!r:.60}")
    return int(rows)


def _stored(table: Table, narrow: bool | None) -> Schema:
    """Return the schema by which the columns of a table are stored."""
    if narrow is None:
        return table.schema
    if not narrow:
        return widest(table.schema)
    least = Narrowest()
    with progress("finding the smallest types", len(table.sources), "sources") as done:
        for source in table.sources:
            least.see(source.whole(), table.schema)
            done(1)
    return least.narrowed(table.schema)


def block_of_source(source: Source, schema: Schema) -> Block:
    """Return the rows of a source with the columns of a table; a block of a file is checked first."""
    block = source.whole()
    columns = {name: replace(column, stored=block.schema[name].stored) for name, column in schema.items()}
    block = as_stored(block, Schema(schema.levels, columns))
    if not block.trusted:
        where = getattr(source, "path", "the table")
        for fault in faults_of_block(block, where):
            raise TableFormatError(fault)
    return replace(block, trusted=True)


def has_rows(schema: Schema) -> bool:
    """Return whether a table has rows; `t[3]` has none."""
    return len(schema.roots) == 1 and not schema.columns_at(None)


def _save_folder(
    table: Table,
    stored: Schema,
    path: str | os.PathLike[str],
    rows_per_shard: int | None,
    overwrite: bool,
    composed: bool,
) -> None:
    folder = dataset_folder(path)
    basis = Basis(require_place(folder, overwrite), shards_read(table, folder))
    shards = Shards(folder, stored, rows_per_shard, composed)
    try:
        if has_rows(stored):
            with progress("saving", len(table)) as done:
                shards.schema = table.schema
                for source in table.sources:
                    shards.add(block_of_source(source, table.schema), done=done)
                shards.finish()
        else:
            (source,) = table.sources
            shards.put(as_stored(block_of_source(source, table.schema), stored))
        assert shards.stored is not None
        with folder.locked(needed=False):
            publish(folder, shards.stored, shards.shards, append=False, overwrite=overwrite, basis=basis)
        if basis.read:  # This table, and those that it was made from, may replace the new dataset again.
            for origin in table.sources.origins:
                origin.files.update(folder.place(shard.file) for shard in shards.shards)
    except BaseException:
        discard(folder, shards.shards)
        raise
    finally:
        shards.release()


def shards_read(table: Table, folder: Folder) -> frozenset[str]:
    """Return the names of those files of a folder that a table is read from, or was made from."""
    names: dict[Place, set[str]] = {}
    for files, path in set().union(*(origin.files for origin in table.sources.origins)):
        above, _, name = path.rpartition("/")
        names.setdefault((files, above), set()).add(name)
    return frozenset().union(*(held for place, held in names.items() if folder.is_at(*place)))


def dataset_folder(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of a dataset; raise a NotADirectoryError if there is a file at the path."""
    folder = folder_at(path)
    folder.require_writable()
    if isinstance(folder, LocalFolder) and folder.path.exists() and not folder.path.is_dir():
        raise NotADirectoryError(
            f'{folder.where} is a file, but a dataset is a folder; a path that ends in ".safetensors" means one file'
        )
    return folder


def _save_file(table: Table, stored: Schema, path: str | os.PathLike[str], overwrite: bool, composed: bool) -> None:
    folder, name = parent_folder(path)
    folder.require_writable()
    if isinstance(folder, LocalFolder) and (folder.path / name).is_dir():
        raise IsADirectoryError(f'{os.fspath(path)} is a folder, but a path that ends in ".safetensors" means one file')
    if not overwrite and name in folder.names():
        raise FileExistsError(f"there is a file at {os.fspath(path)} already; overwrite=True replaces it")
    blocks = [block_of_source(source, table.schema) for source in table.sources]
    block = join_blocks(blocks, stored) if blocks else empty_block(stored)
    with naming(f"file {name}", folder):
        folder.create()
        with folder.writing(name) as stream:
            write_block(stream, compacted(block), composed=composed)
    folder.sync()
