"""Committing: the step by which shards become a version of a dataset, all at once.

Shards are in the folder before anything names them. Then the manifest is replaced in one step, so everybody who opens
the dataset sees either the old or the new version. Parts are lists of shards that writers in several processes leave,
and that one commit joins.
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
    """Return the manifest of the current version; None if there is no dataset."""
    try:
        text = folder.read(NAME, LONGEST_MANIFEST)
    except FileNotFoundError:
        return None
    return Manifest.from_json(text, f"{folder.where}/{NAME}")


def require_place(folder: Folder, overwrite: bool) -> Manifest | None:
    """Return the manifest of the dataset that is to be replaced; None if there is none, or if it cannot be read.

    Raise a FileExistsError if a dataset must not be written there.
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
    except TableFormatError:  # A dataset that cannot be read can be replaced, but rows cannot be appended to it.
        return None


def _is_own(folder: Folder) -> bool:
    """Return whether a manifest can be that of a table: it says so, or it is cut off or damaged."""
    try:
        found = json.loads(folder.read(NAME, LONGEST_MANIFEST))
    except (ValueError, RecursionError, OSError, TableFormatError):
        return True
    return isinstance(found, dict) and found.get("format") == FORMAT


@dataclass(frozen=True)
class Basis:
    """What the rows that replace a dataset are based on: its old manifest, and the shards that they were read from.

    Whoever replaces a dataset must have seen all of it; otherwise rows that another writer added meanwhile would be
    lost.
    """

    manifest: Manifest | None = None
    """The manifest when the writing began; None if there was no dataset, or if it could not be read."""
    read: frozenset[str] = frozenset()
    """The names of its shards that the rows were read from; empty if they came from somewhere else."""

    def check(self, now: Manifest | None, where: str) -> None:
        """Raise a ConflictError if the dataset has changed since."""
        if now == self.manifest:
            new = [] if now is None else [shard for shard in now.shards if shard.file not in self.read]
            if not (new and self.read):
                return
            changed = f"it has {sum(shard.rows for shard in new)} rows that were not there when the table was opened"
        else:
            one, two = (
                "not there" if each is None else f"generation {each.generation}" for each in (self.manifest, now)
            )
            changed = f"it was {one} when the writing began, and is {two} now"
        raise ConflictError(
            f"somebody else changed the dataset at {where} meanwhile: {changed}; nothing was replaced, so that nothing "
            f"is lost; open the dataset again and repeat what you did"
        )


def publish(
    folder: Folder, schema: Schema, shards: Sequence[Shard], *, append: bool, overwrite: bool, basis: Basis | None
) -> None:
    """Make shards the new version of a dataset, or append them to it. The caller holds the lock of the folder.

    `basis` is compared with the dataset that is replaced; it is None if the caller has done so.
    """
    before = read_manifest(folder) if append else require_place(folder, overwrite)
    if basis is not None and not append:
        basis.check(before, folder.where)
    generation = 1 if before is None else before.generation + 1
    kept: tuple[Shard, ...] = ()
    if append and before is not None:
        kept = before.shards
        schema = join_schemas(before.schema, schema, "the dataset", "the new part")
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
    """Raise a ConflictError if shards do not exist any more: a manifest never names such shards."""
    missing = sorted({shard.file for shard in shards}.difference(folder.names()))
    if missing:
        raise ConflictError(
            f"{len(missing)} of {len(shards)} shards that were written to {folder.where} are not there any more, "
            f"{missing[0]} among them: somebody deleted them before the manifest named them; the dataset is "
            f"unchanged; write the rows again"
        )


def _remove_committed(folder: Folder, manifest: Manifest | None) -> None:
    """Delete the parts that the manifest contains, before their shards are deleted.

    Otherwise a later commit would name the deleted shards again.
    """
    for name in folder.names():
        if PART.fullmatch(name):
            # A part that cannot be read cannot be committed either.
            with suppress(TableFormatError, FileNotFoundError):
                if is_committed(Part.read(folder, name), manifest):
                    folder.remove(name)


def _replace_manifest(folder: Folder, text: bytes) -> None:
    try:
        with folder.writing(NAME) as stream:
            stream.write(text)
    except OSError:
        # The store may have done what it was asked to do, and only its answer was lost.
        with suppress(OSError):
            if folder.read(NAME, LONGEST_MANIFEST) == text:
                return
        raise


def _remove(folder: Folder, names: Iterable[str]) -> None:
    """Delete shards that nothing names any more; a repair deletes those that cannot be deleted now."""
    for name in names:
        if SHARD.fullmatch(name):  # A manifest that was manipulated may name other files.
            with suppress(OSError):
                folder.remove(name)


def _named(folder: Folder) -> set[str]:
    """Return the names of the shards that the manifest or a part names.

    The parts are read first, because a commit deletes them after the manifest names their shards.
    """
    parts = read_parts(folder)
    manifest = read_manifest(folder)
    named = {shard.file for part in parts for shard in part.shards}
    return named | manifest.files if manifest else named


def discard(folder: Folder, shards: Sequence[Shard]) -> None:
    """Delete the shards of a writer that ends, unless something names them; a repair deletes what is left."""
    with suppress(OSError, TableFormatError):
        named = _named(folder)
        _remove(folder, (shard.file for shard in shards if shard.file not in named))


# ------------------------------------------------------------------------------------------------------------- parts


def commit(
    path: str | os.PathLike[str], *, append: bool = False, overwrite: bool = False, parts: int | None = None
) -> None:
    """Join all parts that `TableWriter.part` left at `path` into one version of a dataset.

    Parts with an `order` come first, in that order; the others follow in the order in which they were started. `parts`
    is the number of parts that must be there. With `append` their rows follow the rows of the dataset, and with
    `overwrite` they replace them.

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
                one = "an earlier part"
                schema = part.schema if schema is None else join_schemas(schema, part.schema, one, part.file)
        if schema is None:
            raise ValueError(f"the parts at {folder.where} have no rows and no schema, so there is nothing to commit")
        shards = [shard for part in found for shard in part.shards]
        kept = [shard for shard in shards if shard.rows] or shards[:1]
        publish(folder, schema, kept, append=append, overwrite=overwrite, basis=None)
        for part in found:
            with suppress(OSError):  # The next commit or repair finds that the manifest contains its shards.
                folder.remove(part.file)
        _remove(folder, {shard.file for shard in shards} - {shard.file for shard in kept})


def _uncommitted(folder: Folder) -> list[Part]:
    """Return the parts that are not committed yet; delete those that are."""
    manifest = None
    with suppress(TableFormatError):  # `publish` reports what is wrong with the manifest if it matters.
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
                f"wrong one, and repair() then deletes its shards"
            )


def _check_generations(found: list[Part], folder: Folder) -> None:
    """Raise a ConflictError if parts are to replace another version of the dataset than the one when they began."""
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
