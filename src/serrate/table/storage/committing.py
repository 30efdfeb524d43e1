"""Committing: the step by which shards become a version of a dataset, all at once.

Shards lie in the folder before anything names them. The manifest is then replaced in one step; whoever opens the
dataset sees the version before or the version after. Parts are lists of shards that writers in several processes leave
behind for one commit to join.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from serrate.errors import TableFormatError
from serrate.table.joining import join_schemas
from serrate.table.schema import Schema
from serrate.table.storage import strict
from serrate.table.storage.folders import SHARD, Folder, folder_at, naming
from serrate.table.storage.header import FORMAT
from serrate.table.storage.manifest import NAME, Manifest, Shard

PART = re.compile(r"part-(?P<writer>[0-9a-f]{16})\.json")
_PART_FORMAT, _LONGEST_PART = "serrate.table.part", 2**28


def read_manifest(folder: Folder) -> Manifest | None:
    """The current version, if there is one."""
    try:
        text = folder.read(NAME)
    except FileNotFoundError:
        return None
    return Manifest.from_json(text, f"{folder.where}/{NAME}")


def require_place(folder: Folder, overwrite: bool) -> None:
    """FileExistsError unless a dataset may be written there: there is none, or it is to be replaced."""
    if NAME not in folder.names():
        return
    if not _is_own(folder):
        raise FileExistsError(
            f"{folder.where}/{NAME} is not the manifest of a table; give the table a folder of its own"
        )
    if not overwrite:
        raise FileExistsError(
            f"there is a dataset at {folder.where} already; overwrite=True replaces it, and a TableWriter with "
            f"append=True adds rows to it"
        )


def _is_own(folder: Folder) -> bool:
    """Whether a manifest may be that of a table: it says so, or is cut off or damaged."""
    try:
        found = json.loads(folder.read(NAME))
    except (ValueError, RecursionError, OSError, TableFormatError):
        return True
    return isinstance(found, dict) and found.get("format") == FORMAT


def publish(folder: Folder, schema: Schema, shards: Sequence[Shard], *, append: bool, overwrite: bool) -> None:
    """Make shards the new version of a dataset, or add them to it; the folder is locked."""
    before: Manifest | None = None
    if not append:
        require_place(folder, overwrite)
    try:
        before = read_manifest(folder)
    except TableFormatError:
        if append:  # what cannot be read can be replaced, but not added to
            raise
    generation = 1 if before is None else before.generation + 1
    kept: tuple[Shard, ...] = ()
    if append and before is not None:
        kept = before.shards
        schema = join_schemas(before.schema, schema, "the dataset", "what is added")
    manifest = Manifest(schema, (*kept, *shards), generation)
    with naming("the manifest", folder):
        folder.sync()
        with folder.writing(NAME) as stream:
            stream.write(manifest.to_json().encode())
    folder.sync()
    if before is not None:
        named = {shard.file for shard in manifest.shards}
        _remove(folder, (shard.file for shard in before.shards if shard.file not in named))


def _remove(folder: Folder, names: Iterable[str]) -> None:
    """Delete shards that nothing names any longer; those that cannot be deleted are left to a repair."""
    for name in names:
        if SHARD.fullmatch(name):  # a manifest that was tampered with may name other files
            with suppress(OSError):
                folder.remove(name)


def named_shards(folder: Folder, without: Collection[str] = ()) -> set[str]:
    """The shards that the manifest or a part names, but for some parts."""
    manifest = read_manifest(folder)
    named = {shard.file for shard in manifest.shards} if manifest else set()
    parts = [part for part in read_parts(folder) if part.file not in without]
    return named.union(*({shard.file for shard in part.shards} for part in parts))


def discard(folder: Folder, shards: Sequence[Shard]) -> None:
    """Delete shards, unless something names them; what cannot be deleted is left to a repair."""
    with suppress(OSError, TableFormatError), folder.locked():
        named = named_shards(folder)
        _remove(folder, (shard.file for shard in shards if shard.file not in named))


# ------------------------------------------------------------------------------------------------------------- parts


@dataclass(frozen=True)
class Part:
    """The shards of one writer, finished, that wait for a commit."""

    writer: str
    order: int | None
    """Its place among the parts, if it was given one."""
    started: int
    """When its writer started, in nanoseconds: the order of parts that were given none."""
    schema: Schema | None
    """None if nothing was written and nothing is known."""
    shards: tuple[Shard, ...]

    @property
    def file(self) -> str:
        """Its file name."""
        return f"part-{self.writer}.json"

    @property
    def place(self) -> tuple[bool, int, int, str]:
        """What parts are sorted by: those with an order first."""
        return self.order is None, self.order or 0, self.started, self.writer

    def write(self, folder: Folder) -> None:
        """Leave it behind."""
        manifest = None if self.schema is None else json.loads(Manifest(self.schema, self.shards).to_json())
        text = {"format": _PART_FORMAT, "order": self.order, "started": self.started, "manifest": manifest}
        with naming(f"part {self.file}", folder):
            folder.sync()
            with folder.writing(self.file) as stream:
                stream.write(json.dumps(text, ensure_ascii=False).encode())
        folder.sync()

    @classmethod
    def read(cls, folder: Folder, file: str) -> Part:
        """The part that `write` left behind."""
        where = f"{folder.where}/{file}"
        names = {"format", "order", "started", "manifest"}
        given = strict.fields(strict.parse(folder.read(file), where, _LONGEST_PART), names, "a part", where)
        if given["format"] != _PART_FORMAT:
            strict.fail(where, f"the format of a part is {_PART_FORMAT!r}, got {given['format']!r:.60}")
        if not (given["order"] is None or type(given["order"]) is int) or type(given["started"]) is not int:
            strict.fail(where, f"order and time of a part are integers, got {given['order']!r}, {given['started']!r}")
        writer = file[len("part-") : -len(".json")]
        if given["manifest"] is None:
            return cls(writer, given["order"], given["started"], None, ())
        manifest = Manifest.from_json(json.dumps(given["manifest"]).encode(), where)
        return cls(writer, given["order"], given["started"], manifest.schema, manifest.shards)


def read_parts(folder: Folder) -> list[Part]:
    """The parts that lie in a folder, in their order."""
    found = (Part.read(folder, name) for name in folder.names() if PART.fullmatch(name))
    return sorted(found, key=lambda part: part.place)


def commit(
    path: str | os.PathLike[str], *, append: bool = False, overwrite: bool = False, parts: int | None = None
) -> None:
    """Join all parts that `TableWriter.part` left at `path` into one version of a dataset.

    Parts come in the order they were given, those without one in the order they were started. `parts` is how many
    there have to be. With `append` their rows follow those that the dataset has, with `overwrite` they replace them.

    >>> import tempfile, serrate as sr
    >>> from serrate.table import commit
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for rank in (1, 0):  # in processes of their own, if need be
    ...         with sr.TableWriter.part(f"{folder}/codes", order=rank) as writer:
    ...             writer.write({"code": [[rank, rank], []]})
    ...     commit(f"{folder}/codes", parts=2)
    ...     sr.open(f"{folder}/codes")["code"].tolist()
    [[0, 0], [], [1, 1], []]
    """
    folder = folder_at(path)
    if not folder.names():
        raise FileNotFoundError(f"there are no parts of a dataset at {folder.where}")
    with folder.locked():
        found = _uncommitted(folder)
        _check_parts(found, parts, folder)
        schema: Schema | None = None
        for part in found:
            if part.schema is not None:
                one = "parts before it"
                schema = part.schema if schema is None else join_schemas(schema, part.schema, one, part.file)
        if schema is None:
            raise ValueError(f"the parts at {folder.where} have no rows and no schema, so there is nothing to commit")
        shards = [shard for part in found for shard in part.shards]
        kept = [shard for shard in shards if shard.rows] or shards[:1]
        publish(folder, schema, kept, append=append, overwrite=overwrite)
        for part in found:
            with suppress(OSError):  # the next commit, or a repair, sees that the manifest has its shards
                folder.remove(part.file)
        _remove(folder, {shard.file for shard in shards} - {shard.file for shard in kept})


def is_committed(part: Part, manifest: Manifest | None) -> bool:
    """Whether a commit that was interrupted afterwards has joined a part already."""
    named = {shard.file for shard in manifest.shards} if manifest else set()
    return bool(part.shards) and all(shard.file in named for shard in part.shards)


def _uncommitted(folder: Folder) -> list[Part]:
    """The parts, without those that are committed already; these are deleted."""
    manifest = None
    with suppress(TableFormatError):  # `publish` says what is wrong with it, if that matters
        manifest = read_manifest(folder)
    found = []
    for part in read_parts(folder):
        folder.remove(part.file) if is_committed(part, manifest) else found.append(part)
    return found


def _check_parts(found: list[Part], count: int | None, folder: Folder) -> None:
    if count is not None and len(found) != count:
        raise ValueError(f"{count} parts were expected at {folder.where}, but there are {len(found)}")
    if not found:
        raise FileNotFoundError(f"there are no parts of a dataset at {folder.where}")
    for part, other in pairwise(found):
        if part.order is not None and part.order == other.order:
            raise ValueError(
                f"two parts at {folder.where} have the order {part.order}: {part.file} and {other.file}; delete the "
                f"one that should not be there, repair() then removes its shards"
            )
