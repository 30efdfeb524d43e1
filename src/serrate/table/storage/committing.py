"""Committing: the step by which shards become a version of a dataset, all at once.

Shards lie in the folder before anything names them. The manifest is then replaced in one step; whoever opens the
dataset sees the version before or the version after. Parts are lists of shards that writers in several processes leave
behind for one commit to join.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from serrate.errors import ConflictError, TableFormatError
from serrate.table.joining import join_schemas
from serrate.table.schema import Schema
from serrate.table.storage import strict
from serrate.table.storage.folders import SHARD, Folder, folder_at, naming
from serrate.table.storage.header import FORMAT
from serrate.table.storage.manifest import LONGEST_MANIFEST, NAME, Manifest, Shard
from serrate.table.storage.parts import PART, Part, is_committed, read_parts


def read_manifest(folder: Folder) -> Manifest | None:
    """The current version, if there is one."""
    try:
        text = folder.read(NAME, LONGEST_MANIFEST)
    except FileNotFoundError:
        return None
    return Manifest.from_json(text, f"{folder.where}/{NAME}")


def require_place(folder: Folder, overwrite: bool) -> Manifest | None:
    """The version that a dataset written there replaces, if there is one that can be read.

    FileExistsError unless a dataset may be written there: there is none, or it is to be replaced.
    """
    if NAME not in folder.names():
        return None
    if not folder.is_file(NAME) or not _is_own(folder):
        raise FileExistsError(
            f"{folder.where}/{NAME} is not the manifest of a table; give the table a folder of its own"
        )
    if not overwrite:
        raise FileExistsError(
            f"there is a dataset at {folder.where} already; overwrite=True replaces it, and a TableWriter with "
            f"append=True adds rows to it"
        )
    try:
        return read_manifest(folder)
    except TableFormatError:  # what cannot be read can be replaced, but not added to
        return None


def _is_own(folder: Folder) -> bool:
    """Whether a manifest may be that of a table: it says so, or is cut off or damaged."""
    try:
        found = json.loads(folder.read(NAME, LONGEST_MANIFEST))
    except (ValueError, RecursionError, OSError, TableFormatError):
        return True
    return isinstance(found, dict) and found.get("format") == FORMAT


@dataclass(frozen=True)
class Basis:
    """What rows that replace a dataset were made from: what it was when they began, and the shards they were read from.

    Whoever replaces a dataset must know all of it: rows that another writer added meanwhile would be gone.
    """

    manifest: Manifest | None = None
    """None: there was no dataset, or one that could not be read."""
    read: frozenset[str] = frozenset()
    """The names of its shards that rows came from; none if they came from elsewhere."""

    def check(self, now: Manifest | None, where: str) -> None:
        """A ConflictError if the dataset has become another one."""
        if now == self.manifest:
            new = [] if now is None else [shard for shard in now.shards if shard.file not in self.read]
            if not (new and self.read):
                return
            changed = f"it has {sum(shard.rows for shard in new)} rows that were not there when the table was opened"
        else:
            one, two = ("none" if each is None else f"generation {each.generation}" for each in (self.manifest, now))
            changed = f"it was {one} when the writing began, and is {two} now"
        raise ConflictError(
            f"somebody else changed the dataset at {where} meanwhile: {changed}; nothing was replaced, so that nothing "
            f"is lost; open the dataset again and repeat what you did"
        )


def publish(
    folder: Folder, schema: Schema, shards: Sequence[Shard], *, append: bool, overwrite: bool, basis: Basis | None
) -> None:
    """Make shards the new version of a dataset, or add them to it; the folder is locked.

    `basis` is compared with what is replaced; None if the caller has done so.
    """
    before = read_manifest(folder) if append else require_place(folder, overwrite)
    if basis is not None and not append:
        basis.check(before, folder.where)
    generation = 1 if before is None else before.generation + 1
    kept: tuple[Shard, ...] = ()
    if append and before is not None:
        kept = before.shards
        schema = join_schemas(before.schema, schema, "the dataset", "what is added")
    manifest = Manifest(schema, (*kept, *shards), generation)
    text = manifest.to_json().encode()
    _require_files(folder, shards)
    dropped = frozenset() if before is None else before.files - manifest.files
    if dropped:
        _remove_committed(folder, before)
    with naming("the manifest", folder):
        folder.sync()
        _replace_manifest(folder, text)
    folder.sync()
    _remove(folder, sorted(dropped))


def _require_files(folder: Folder, shards: Sequence[Shard]) -> None:
    """A ConflictError if shards that are to be named are not there any more: a manifest never names such."""
    missing = sorted({shard.file for shard in shards}.difference(folder.names()))
    if missing:
        raise ConflictError(
            f"{len(missing)} of {len(shards)} shards that were written to {folder.where} are not there any more, "
            f"{missing[0]} among them: somebody deleted them before they were named; the dataset is as it was; write "
            f"the rows again"
        )


def _remove_committed(folder: Folder, manifest: Manifest | None) -> None:
    """Delete parts that the manifest has joined, before their shards go: a later commit would name those once more."""
    for name in folder.names():
        if PART.fullmatch(name):
            with suppress(TableFormatError, FileNotFoundError):  # what cannot be read cannot be committed either
                if is_committed(Part.read(folder, name), manifest):
                    folder.remove(name)


def _replace_manifest(folder: Folder, text: bytes) -> None:
    try:
        with folder.writing(NAME) as stream:
            stream.write(text)
    except OSError:
        # A store may have done what it was asked to, and only its answer was lost.
        with suppress(OSError):
            if folder.read(NAME, LONGEST_MANIFEST) == text:
                return
        raise


def _remove(folder: Folder, names: Iterable[str]) -> None:
    """Delete shards that nothing names any longer; those that cannot be deleted are left to a repair."""
    for name in names:
        if SHARD.fullmatch(name):  # a manifest that was tampered with may name other files
            with suppress(OSError):
                folder.remove(name)


def _named(folder: Folder) -> set[str]:
    """The shards that the manifest or a part names.

    Parts are read first: a commit deletes them after the manifest names their shards.
    """
    parts = read_parts(folder)
    manifest = read_manifest(folder)
    named = {shard.file for part in parts for shard in part.shards}
    return named | manifest.files if manifest else named


def discard(folder: Folder, shards: Sequence[Shard]) -> None:
    """Delete shards of a writer that ends, unless something names them; others are left to a repair."""
    with suppress(OSError, TableFormatError):
        named = _named(folder)
        _remove(folder, (shard.file for shard in shards if shard.file not in named))


# ------------------------------------------------------------------------------------------------------------- parts


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
    with folder.locked(needed=append):
        found = _uncommitted(folder)
        _check_parts(found, parts, folder)
        if overwrite:
            _check_generations(found, folder)
        schema: Schema | None = None
        for part in found:
            if part.schema is not None:
                one = "parts before it"
                schema = part.schema if schema is None else join_schemas(schema, part.schema, one, part.file)
        if schema is None:
            raise ValueError(f"the parts at {folder.where} have no rows and no schema, so there is nothing to commit")
        shards = [shard for part in found for shard in part.shards]
        kept = [shard for shard in shards if shard.rows] or shards[:1]
        publish(folder, schema, kept, append=append, overwrite=overwrite, basis=None)
        for part in found:
            with suppress(OSError):  # the next commit, or a repair, sees that the manifest has its shards
                folder.remove(part.file)
        _remove(folder, {shard.file for shard in shards} - {shard.file for shard in kept})


def _uncommitted(folder: Folder) -> list[Part]:
    """The parts, without those that are committed already; these are deleted."""
    manifest = None
    with suppress(TableFormatError):  # `publish` says what is wrong with it, if that matters
        manifest = read_manifest(folder)
    found, there = [], set(folder.names())
    for part in read_parts(folder):
        if is_committed(part, manifest):
            folder.remove(part.file)
            continue
        missing = [shard.file for shard in part.shards if shard.file not in there]
        if missing:
            strict.fail(
                f"{folder.where}/{part.file}",
                f"the part names the shard {missing[0]}, which is not there, so its rows cannot be committed; repair() "
                f"deletes a part that has no shard left, and repair(parts=True) any part",
            )
        found.append(part)
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


def _check_generations(found: list[Part], folder: Folder) -> None:
    """A ConflictError if the dataset that parts are to replace is not the one that was there when they began."""
    before: Manifest | None = None
    with suppress(TableFormatError):
        before = read_manifest(folder)
    now = 0 if before is None else before.generation
    for part in found:
        if part.generation not in (None, now):
            raise ConflictError(
                f"somebody else changed the dataset at {folder.where} meanwhile: it had the generation "
                f"{part.generation} when {part.file} was begun, and has {now} now; nothing was replaced, so that "
                f"nothing is lost; commit(append=True) adds the rows of the parts, repair(parts=True) deletes the parts"
            )
