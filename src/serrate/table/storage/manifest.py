"""Manifest: which files a dataset has and what they hold; and `open_table`, which opens a folder or a file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serrate.table.block import Source
from serrate.table.gathering.sources import empty_block
from serrate.table.schema import Schema
from serrate.table.storage import strict
from serrate.table.storage.files import FileSource, ShardRecord
from serrate.table.storage.folders import LocalFolder, is_url
from serrate.table.storage.header import FORMAT, VERSION, check_version, count_rows, counts_from, schema_from
from serrate.table.storage.strict import fail

if TYPE_CHECKING:
    from serrate.table.table import Table

NAME = "manifest.json"
LONGEST_MANIFEST = 2**28
_CHECKSUM = re.compile(r"[0-9a-f]{16}")
_LEADS_ELSEWHERE = {*"/\\:;%?#", *map(chr, range(32)), chr(127)}
"""Characters that end a name, or have a special meaning, in a path or in a URL. Even "..;" can be read as ".."."""


@dataclass(frozen=True)
class Shard:
    """A file of a dataset: its name, its numbers of rows, bytes and entries of each level, and its checksum."""

    file: str
    rows: int
    bytes: int
    xxh3: str
    counts: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the shard as an object for JSON."""
        return {
            "file": self.file, "rows": self.rows, "bytes": self.bytes, "xxh3": self.xxh3, "counts": dict(self.counts)
        }  # fmt: skip

    @classmethod
    def from_json(cls, given: Any, schema: Schema, where: str) -> Shard:
        """Return the shard that `to_json` wrote; raise a TableFormatError for anything else."""
        given = strict.fields(given, {"file", "rows", "bytes", "xxh3", "counts"}, "a shard", where)
        file, xxh3 = given["file"], given["xxh3"]
        if not isinstance(file, str) or not is_plain(file):
            fail(where, f"a shard must be in the folder of the manifest, got the file name {file!r:.60}")
        if not isinstance(xxh3, str) or not _CHECKSUM.fullmatch(xxh3):
            fail(where, f"a checksum must be 16 digits from 0 to f, but shard {file!r:.60} has {xxh3!r:.60}")
        counts = counts_from(given["counts"], schema, f"{where}, shard {file!r:.60}")
        if given["rows"] != count_rows(schema, counts) or type(given["rows"]) is not int:
            fail(
                where,
                f"shard {file!r:.60} has {count_rows(schema, counts)} rows by its counts, got {given['rows']!r:.60}",
            )
        return cls(file, given["rows"], strict.size(given["bytes"], "bytes", where), xxh3, counts)


def is_plain(name: str) -> bool:
    """Return whether this is the name of a file, on a disk and in a URL; not a path or a query that leads elsewhere.

    >>> [is_plain(name) for name in ("a.safetensors", "..", "%2e%2e%2fa", "a?b", "a#b")]
    [True, False, False, False, False]
    """
    return name not in ("", ".", "..") and name == name.strip() and not set(name) & _LEADS_ELSEWHERE


@dataclass(frozen=True)
class Manifest:
    """The contents of a dataset. Every change of the dataset makes a new manifest, of the next generation."""

    schema: Schema
    shards: tuple[Shard, ...]
    generation: int = 1

    @cached_property
    def files(self) -> frozenset[str]:
        """The names of the shards."""
        return frozenset(shard.file for shard in self.shards)

    def described(self) -> dict[str, Any]:
        """Return the manifest as an object for JSON."""
        return {
            "format": FORMAT, "version": str(VERSION), "generation": self.generation, "schema": self.schema.to_json(),
            "shards": [shard.to_json() for shard in self.shards],
        }  # fmt: skip

    def to_json(self) -> str:
        """Return the text of the file; raise a ValueError if it is longer than readers accept."""
        text = json.dumps(self.described(), ensure_ascii=False, indent=1) + "\n"
        check_length(text, len(self.shards))
        return text

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Manifest:
        """Return the manifest that `to_json` wrote.

        For anything else raise a TableFormatError that names the file, which `where` describes, and the fault.

        >>> import torch
        >>> from serrate.table import Column
        >>> made = Manifest(Schema(["rows"], {"age": Column("rows", torch.int64)}), ())
        >>> Manifest.from_json(made.to_json().encode(), "manifest.json") == made
        True
        """
        return cls.of(strict.parse(text, where, LONGEST_MANIFEST), where)

    @classmethod
    def of(cls, given: Any, where: str) -> Manifest:
        """Return the manifest that `described` returned."""
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            fail(where, f"this is not the manifest of a table: it does not say that its format is {FORMAT!r}")
        check_version(given.get("version"), where)
        given = strict.fields(given, {"format", "version", "generation", "schema", "shards"}, "a manifest", where)
        schema = schema_from(given["schema"], where)
        if not isinstance(given["shards"], list):
            fail(where, f"shards must be a list, got {given['shards']!r:.60}")
        shards = tuple(Shard.from_json(shard, schema, where) for shard in given["shards"])
        if len({shard.file for shard in shards}) != len(shards):
            fail(where, "a file occurs twice")
        if len(shards) > 1 and len(schema.roots) != 1:
            fail(where, f"a table without rows, of the levels {schema.levels}, must be in one file, got {len(shards)}")
        return cls(schema, shards, strict.size(given["generation"], "generation", where))


def check_length(text: str, shards: int) -> None:
    """Raise a ValueError if a manifest is longer than readers accept."""
    if len(text.encode()) > LONGEST_MANIFEST:
        raise ValueError(
            f"a manifest has at most {LONGEST_MANIFEST} bytes, but with {shards} shards it would have "
            f"{len(text.encode())}; what was there before is untouched; make larger shards, of more rows each"
        )


def read_local_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of a folder of this machine."""
    return Manifest.from_json(LocalFolder(folder).read(NAME, LONGEST_MANIFEST), os.path.join(folder, NAME))


def open_table(path: str | os.PathLike[str], *, columns: Iterable[str] | None = None) -> Table:
    """Open a dataset as a table: a folder with a manifest, or one file, on this machine or at an fsspec URL.

    Values are read only when they are needed. If a file is changed, cut off or replaced later, the next read raises an
    error. The table can be sent to other processes, which open the same files.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sr.Table({"time": [[3, 7], []]}).save(f"{folder}/visits")
    ...     sr.open(f"{folder}/visits")["time"].tolist()
    [[3, 7], []]
    """
    from serrate.table.table import Table

    if isinstance(path, str) and is_url(path):
        from serrate.table.storage.remote import open_remote

        schema, sources = open_remote(path)
    else:
        schema, sources = _open_local(os.fsdecode(path))
    made = Table._of(schema, sources)
    return made if columns is None else made.select(columns)


def _open_local(path: str) -> tuple[Schema, list[Source]]:
    if not os.path.isdir(path):
        source = FileSource(path)
        return source.schema, [source]
    try:
        manifest = read_local_manifest(path)
        while True:
            try:
                return manifest.schema, _shards(path, manifest)
            except FileNotFoundError as error:
                # A writer that overwrites a dataset deletes the old files after the new manifest is in place.
                before, manifest = manifest, read_local_manifest(path)
                if manifest == before:
                    name = os.path.basename(error.filename)
                    fail(path, f"the manifest names the file {name!r:.80}, which is not there")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the folder has no {NAME}, so it is not a dataset of a table") from None


def _shards(path: str, manifest: Manifest) -> list[Source]:
    files: list[Source] = [FileSource(Path(path, shard.file), record) for shard, record in shard_records(manifest)]
    return files or [empty_block(manifest.schema)]


def shard_records(manifest: Manifest) -> list[tuple[Shard, ShardRecord]]:
    """Return each shard with what the manifest states about its file."""
    return [(shard, ShardRecord(manifest.schema, shard.rows, shard.bytes, shard.counts)) for shard in manifest.shards]
