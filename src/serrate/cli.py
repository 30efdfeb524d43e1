"""This module is the command `serrate`, which shows, checks, repairs and converts tables on disk.

serrate table info PATH       show levels, columns and shards
serrate table verify PATH     check every checksum and every offset
serrate table repair PATH     delete what interrupted writes left behind
serrate table convert A B     convert Parquet, .nrt, folders and single files; the names say which format
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from serrate.errors import ConflictError
from serrate.table.storage.checking import faults, place_of, repair
from serrate.table.storage.committing import read_manifest
from serrate.table.storage.folders import Folder, parent_folder
from serrate.table.storage.header import VERSION
from serrate.table.storage.manifest import open_table
from serrate.table.table import Table

PARQUET = (".parquet", ".pq")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return 0 if everything is right, else 1.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sr.Table({"time": [[0, 3, 9], [2]]}, schema={"time": "visits"}).save(f"{folder}/patients")
    ...     main(["table", "verify", f"{folder}/patients"])
    2 rows in 1 file of ... bytes, all as they were written
    0
    """
    given = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = given.run
        return run(given)
    except (OSError, ValueError, TypeError, KeyError, ImportError, ConflictError) as error:
        print(f"serrate: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("serrate", description="Ragged tensors, and tables of them.")
    kinds = parser.add_subparsers(required=True, metavar="table")
    table = kinds.add_parser("table", help="tables on disk").add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        made = table.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        made.set_defaults(run=run)
        return made

    path = "a folder, a .safetensors file, or an fsspec URL of one"
    command("info", _info, "show what a table holds").add_argument("path", help=path)
    command("verify", _verify, "check every checksum and every offset").add_argument("path", help=path)
    fix = command("repair", _repair, "delete what interrupted writes left behind")
    fix.add_argument("path", help=path)
    fix.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    fix.add_argument("--parts", action="store_true", help="also delete parts that were finished but never committed")
    fix.add_argument(
        "--alone",
        action="store_true",
        help="say that no other process is writing; files of unfinished writers to a URL are then deleted, too",
    )
    convert = command("convert", _convert, "write a table in another format, or in other shards")
    convert.add_argument("source", nargs="+", help=f"{path}, .parquet files or a folder of them, or a .nrt file")
    convert.add_argument("target", help="a folder, or a name that ends in .safetensors, .parquet or .nrt")
    convert.add_argument("--overwrite", action="store_true", help="replace what is there")
    convert.add_argument("--narrow", action="store_true", help="store integers in the smallest types that hold them")
    convert.add_argument("--rows-per-shard", type=int, metavar="N", help="rows of a shard; the default is about 256 MB")
    convert.add_argument("--column", action="append", metavar="NAME", help="convert only this column; may be repeated")
    convert.add_argument(
        "--level", action="append", default=[], metavar="LISTS=LEVEL", help="the level of these lists of Parquet"
    )
    return parser


# ---------------------------------------------------------------------------------------------------------- commands


def _info(given: argparse.Namespace) -> int:
    folder, name = place_of(given.path)
    table = open_table(given.path)
    print(table)
    stored = {each: column for each, column in table.schema.items() if column.stored != column.dtype}
    for each, column in stored.items():
        print(f"stored narrowly: {each} as {str(column.stored).removeprefix('torch.')}")
    if name is not None:
        print(f"one file of version {VERSION} of the format")
        return 0
    manifest = read_manifest(folder)
    assert manifest is not None
    size = sum(shard.bytes for shard in manifest.shards)
    print(f"{_count(len(manifest.shards), 'shard')} of {size} bytes, generation {manifest.generation} of the dataset")
    return 0


def _verify(given: argparse.Namespace) -> int:
    found = 0
    for fault in faults(given.path):
        print(f"serrate: {fault}", file=sys.stderr)
        found += 1
    if found:
        return 1
    rows, files, size = _sizes(*place_of(given.path))
    where = f"{_count(rows, 'row')} in " if rows is not None else ""
    print(f"{where}{_count(files, 'file')} of {size} bytes, all as they were written")
    return 0


def _sizes(folder: Folder, name: str | None) -> tuple[int | None, int, int]:
    """Return the numbers of rows, files and bytes; the rows of a single file are None."""
    if name is not None:
        with folder.reading(name) as stream:
            return None, 1, stream.seek(0, os.SEEK_END)
    manifest = read_manifest(folder)
    assert manifest is not None
    return sum(s.rows for s in manifest.shards), len(manifest.shards), sum(s.bytes for s in manifest.shards)


def _repair(given: argparse.Namespace) -> int:
    found = repair(given.path, parts=given.parts, dry_run=given.dry_run, alone=given.alone)
    for name in found:
        print(name)
    print(f"{_count(len(found), 'file')} {'would be ' if given.dry_run else ''}deleted")
    return 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -------------------------------------------------------------------------------------------------------- conversion


def _convert(given: argparse.Namespace) -> int:
    target: str = given.target
    levels = dict(_pair(each) for each in given.level) or None
    options = {"overwrite": given.overwrite, "rows_per_shard": given.rows_per_shard, "narrow": given.narrow or None}
    foreign = target.endswith((*PARQUET, ".nrt"))
    if foreign:
        _check_foreign(given)
    if _are_parquet(given.source) and not foreign and not target.endswith(".safetensors"):
        from serrate.table.convert.parquet import parquet_to_folder

        parquet_to_folder(given.source, target, given.column, levels=levels, **options)
        return 0
    table = _read(given.source, given.column, levels)
    if target.endswith(PARQUET):
        from serrate.table.convert.parquet import to_parquet

        to_parquet(table, target)
    elif target.endswith(".nrt"):
        from serrate.table.convert.nrt import to_nrt

        to_nrt(table.block(), target)
    else:
        table.save(target, **options)
    return 0


def _pair(given: str) -> tuple[str, str]:
    lists, equals, level = given.rpartition("=")
    if not equals:
        raise ValueError(f"--level takes LISTS=LEVEL, such as events=visits, got {given!r}")
    return lists, level


def _check_foreign(given: argparse.Namespace) -> None:
    """Raise an error if the target exists and may not be replaced, or if an option needs a table of Serrate."""
    if given.narrow or given.rows_per_shard is not None:
        raise ValueError(f"--narrow and --rows-per-shard are for tables of Serrate, not for {given.target}")
    folder, name = parent_folder(given.target)
    if not given.overwrite and name in folder.names():
        raise FileExistsError(f"there is a file at {given.target} already; --overwrite replaces it")


def _are_parquet(sources: list[str]) -> bool:
    """Return whether sources are Parquet files, or a folder of Parquet files that is no table of Serrate."""
    if all(source.endswith(PARQUET) for source in sources):
        return True
    folder = Path(sources[0])
    return (
        folder.is_dir()
        and not (folder / "manifest.json").exists()
        and any(_is_parquet(each) for each in folder.iterdir())
    )


def _is_parquet(path: Path) -> bool:
    return path.suffix in PARQUET


def _read(sources: list[str], columns: list[str] | None, levels: dict[str, str] | None) -> Table:
    if _are_parquet(sources):
        from serrate.table.convert.parquet import from_parquet

        return from_parquet(sources, columns, levels=levels)
    if len(sources) > 1:
        raise ValueError(f"several sources must all be Parquet files, got {sources}")
    if levels:
        raise ValueError("--level is for Parquet files; tables of Serrate and .nrt files have their own levels")
    if sources[0].endswith(".nrt"):
        from serrate.table.convert.nrt import from_nrt

        return Table._from_block(from_nrt(sources[0], columns))
    return open_table(sources[0], columns=columns)


if __name__ == "__main__":
    sys.exit(main())
