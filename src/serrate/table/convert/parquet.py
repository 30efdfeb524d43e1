"""Parquet, both ways, a row group at a time: reading and writing need no more memory than that."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

from serrate.table.block import Block
from serrate.table.convert.awkward import refuse_empty_features
from serrate.table.convert.fields import Path
from serrate.table.convert.from_arrow import leaves_in, list_paths, names_in, read_rows
from serrate.table.convert.to_arrow import milliseconds, to_arrow
from serrate.table.joining import join_schemas
from serrate.table.storage.folders import is_url, naming, parent_folder
from serrate.table.storage.progress import progress

if TYPE_CHECKING:
    from serrate.table.table import Table

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A Parquet file, a folder of them, or several of either, by path or by fsspec URL."""

GROUP_BYTES = 2**26
"""About how many bytes of memory a row group takes if no number of rows is given."""


def from_parquet(
    files: Files,
    columns: Iterable[str] | None = None,
    *,
    levels: Mapping[str, str] | None = None,
    nulls: str = "error",
) -> Table:
    """Return the rows of Parquet files as a table in memory; each row group becomes a source of the table.

    `columns` are the columns to read, with the names that `from_arrow` gives them. The other options are described
    there.

    >>> import tempfile, serrate as sr
    >>> t = sr.Table({"age": [41, 63], "time": [[3, 9], []]}, schema={"time": "visits"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_parquet(t, f"{folder}/t.parquet")
    ...     from_parquet(f"{folder}/t.parquet", columns=["time"]).tolist()
    {'time': [[3, 9], []]}
    """
    from serrate.table.table import Table

    blocks = list(parquet_blocks(files, columns, levels=levels, nulls=nulls))
    return Table._of(reduce(join_schemas, (block.schema for block in blocks)), blocks)


def parquet_blocks(
    files: Files,
    columns: Iterable[str] | None = None,
    *,
    levels: Mapping[str, str] | None = None,
    nulls: str = "error",
    rows: int | None = None,
) -> Iterator[Block]:
    """Yield the rows of Parquet files by row groups, or at most `rows` rows at a time; one block at least per file."""
    wanted = None if columns is None else tuple(columns)
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the string {columns!r:.60}")
    paths = _paths(files)
    with progress("reading Parquet", len(paths), "files") as done:
        for path in paths:
            yield from _blocks(path, wanted, levels, nulls, rows)
            done(1)


def to_parquet(
    table: Table,
    path: str | os.PathLike[str],
    *,
    flat: bool = False,
    rows_per_group: int | None = None,
    compression: str = "zstd",
) -> None:
    """Write a table as one Parquet file, with row groups of `rows_per_group` rows, or of about 64 MiB; see `to_arrow`.

    The file appears under its name when all of it is written.
    """
    import pyarrow.parquet as pq

    refuse_empty_features(table.schema, "Parquet")
    step = _group(table) if rows_per_group is None else rows_per_group
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"rows_per_group must be a positive number of rows, got {rows_per_group!r:.60}")
    first = to_arrow(table[:0].block(), flat=flat, stable=True)
    folder, name = parent_folder(path)
    with ExitStack() as stack:
        stack.enter_context(naming(name, folder))
        stream = stack.enter_context(folder.writing(name))
        done = stack.enter_context(progress("writing Parquet", len(table)))
        with pq.ParquetWriter(stream, first.schema, compression=compression) as writer:
            for start in range(0, len(table), step):
                part = table[start : start + step].block()
                _require_milliseconds(part)
                writer.write_table(to_arrow(part, flat=flat, stable=True))
                done(part.rows)


def parquet_to_folder(
    files: Files,
    path: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    *,
    levels: Mapping[str, str] | None = None,
    nulls: str = "error",
    rows: int = 65536,
    **options: Any,
) -> None:
    """Convert Parquet files to a folder that `sr.open` opens, in memory that does not grow with the files.

    At most `rows` rows are read at a time. The other options are those of `sr.TableWriter`.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_parquet(sr.Table({"time": [[3, 9], []]}), f"{folder}/t.parquet")
    ...     parquet_to_folder(f"{folder}/t.parquet", f"{folder}/t")
    ...     sr.open(f"{folder}/t").tolist()
    {'time': [[3, 9], []]}
    """
    write_blocks(parquet_blocks(files, columns, levels=levels, nulls=nulls, rows=rows), path, **options)


def write_blocks(blocks: Iterable[Block], path: str | os.PathLike[str], **options: Any) -> None:
    """Write blocks, one after the other, to the folder of a table; the options are those of `sr.TableWriter`."""
    from serrate.table.storage.writer import TableWriter
    from serrate.table.table import Table

    with TableWriter(path, **options) as writer:
        for block in blocks:
            writer.write(Table._from_block(block))


def _group(table: Table) -> int:
    """Return how many rows take about as many bytes as a row group should."""
    total = 0
    for level in table.levels:
        described = [table.schema[name] for name in table.keys_at(level)]
        width = sum(column.dtype.itemsize * prod(column.features) + column.nullable for column in described)
        total += (width + 8 * len(table.schema.children(level))) * table.count(level)
    return max(1, min(len(table), GROUP_BYTES * len(table) // max(total, 1)))


# --------------------------------------------------------------------------------------------------------- reading


def _paths(files: Files) -> list[str]:
    """Return the paths of all files; those of a folder are sorted by name."""
    given = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found: list[str] = []
    for each in given:
        path = os.fspath(each)
        inside = _inside(path)
        if inside == []:
            raise FileNotFoundError(f"folder {path} has no file whose name ends in .parquet")
        found += [path] if inside is None else inside
    if not found:
        raise ValueError("from_parquet needs at least one file, got none")
    return found


def _inside(path: str) -> list[str] | None:
    """Return the Parquet files of a folder; None if the path is a file."""
    if is_url(path):
        import fsspec

        system, place = fsspec.url_to_fs(path)
        if not system.isdir(place):
            return None
        return [system.unstrip_protocol(name) for name in sorted(system.ls(place, detail=False)) if _is_parquet(name)]
    if not os.path.isdir(path):
        return None
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if _is_parquet(name)]


def _is_parquet(name: str) -> bool:
    return name.endswith((".parquet", ".pq"))


def _blocks(
    path: str, columns: tuple[str, ...] | None, levels: Mapping[str, str] | None, nulls: str, rows: int | None
) -> Iterator[Block]:
    """Yield the rows of one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        stream: Any = path
        if is_url(path):
            import fsspec

            stream = stack.enter_context(fsspec.open(path, "rb"))
        try:
            file = stack.enter_context(pq.ParquetFile(stream, memory_map=not is_url(path)))
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet file: {error}") from error
        names = names_in(file.schema_arrow)
        seconds = [names[path] for path in _in_seconds(file) if path in names]
        leaves = None if columns is None else _leaves(file, names, columns, path)
        levels = _among(file.schema_arrow, names, columns, levels)
        first = 0
        for part in _parts(file, leaves, rows):
            block = read_rows(part, levels=levels, nulls=nulls, names=names, first=first)
            first += block.rows
            for name in seconds:
                block = _seconds(block, name, path)
            yield block if columns is None else block.select(columns)


def _in_seconds(file: Any) -> Iterator[Path]:
    """Yield the fields that had times in seconds when pyarrow wrote the file.

    Parquet has no unit of seconds, so the file holds milliseconds.
    """
    import pyarrow as pa

    text = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if text is None:
        return
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))  # pyarrow has read this schema before.
    for path, kind in leaves_in(written):
        while pa.types.is_fixed_size_list(kind):
            kind = kind.value_type
        if pa.types.is_timestamp(kind) and kind.unit == "s":
            yield path


def _seconds(block: Block, name: str, path: str) -> Block:
    """Return the block with a column of milliseconds converted to seconds."""
    if name not in block.schema or block.schema[name].unit != "datetime64[ms]":
        return block
    values = block.values[name]
    if bool((values % 1000).any()):
        raise ValueError(f"{path}: column {name!r} has fractions of seconds, though the file says that it has none")
    column = replace(block.schema[name], unit="datetime64[s]")
    return replace(
        block,
        schema=block.schema.with_columns({name: column}),
        values={**block.values, name: values.div(1000, rounding_mode="floor")},
    )


def _require_milliseconds(block: Block) -> None:
    """Raise an OverflowError that names a column of times in seconds which do not fit into Parquet's milliseconds."""
    for name, column in block.schema.items():
        if column.unit == "datetime64[s]":
            milliseconds(block.values[name], name)


def _parts(file: Any, leaves: list[str] | None, rows: int | None) -> Iterator[Any]:
    """Yield Arrow tables of one row group each, or of some rows; one empty table if there are no rows."""
    import pyarrow as pa

    schema = file.schema_arrow
    if file.metadata.num_rows == 0:
        yield file.read(columns=leaves)
    elif rows is None:
        for number in range(file.num_row_groups):
            part = file.read_row_group(number, columns=leaves)
            if part.num_rows:
                yield part.replace_schema_metadata(schema.metadata)
    else:
        for batch in file.iter_batches(rows, columns=leaves):
            yield pa.Table.from_batches([batch]).replace_schema_metadata(schema.metadata)


def _leaves(file: Any, names: Mapping[Any, str], columns: tuple[str, ...], path: str) -> list[str]:
    """Return Parquet's names of the leaves of some columns."""
    unknown = [name for name in columns if name not in names.values()]
    if unknown:
        raise KeyError(f"{path} has no columns {unknown}; the columns are {sorted(names.values())}")
    # The leaves are in the same order in both schemas.
    places = {name: place for place, name in enumerate(names.values())}
    return [file.schema.column(places[name]).path for name in columns]


def _among(
    schema: Any, names: Mapping[Any, str], columns: tuple[str, ...] | None, levels: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    """Return the given levels of those lists that are read, and of unknown names. The others do not matter."""
    if columns is None or levels is None:
        return levels
    read = [path for path, name in names.items() if name in columns]
    left_out = [path for path in list_paths(schema) if not any(leaf[: len(path)] == path for leaf in read)]
    known = {key for path in left_out for key in (".".join(path), path[-1])}
    kept = {key for path in list_paths(schema) if path not in left_out for key in (".".join(path), path[-1])}
    return {key: level for key, level in levels.items() if key in kept or key not in known}
