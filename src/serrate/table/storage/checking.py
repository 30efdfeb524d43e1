"""Checking: whether every byte of a dataset is as it was written; and deleting what interrupted writers left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO

import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block, unrenamed
from serrate.table.storage.block_file import checksum
from serrate.table.storage.committing import read_manifest
from serrate.table.storage.contents import faults_of_block
from serrate.table.storage.files import FileSource, ShardRecord
from serrate.table.storage.folders import (
    CLAIM,
    SHARD,
    TEMPORARY,
    Folder,
    LocalFolder,
    folder_at,
    parent_folder,
)
from serrate.table.storage.header import OFFSETS, FileSpan, Header
from serrate.table.storage.manifest import Manifest, Shard
from serrate.table.storage.parts import Part, is_committed, read_parts
from serrate.table.storage.progress import progress
from serrate.table.storage.remote import RemoteSource
from serrate.table.storage.stores import RemoteFolder

if TYPE_CHECKING:
    from serrate.table.table import Table

_CHUNK = 2**23
Done = Callable[[int], object]


def verify(what: Table | str | os.PathLike[str]) -> None:
    """Read all of a dataset, or all files that a table is read from, and check every checksum and every offset.

    Each shard must have the size, the checksum and the counts that the manifest states. Offsets must rise from 0 to the
    number of entries, and composed offsets must agree with the offsets of the levels. Codes must be positions in their
    vocabulary, bools must be 0 or 1, and missing entries must be 0. A single file has no checksum. All faults are
    raised together, as one TableFormatError.

    >>> import tempfile, serrate as sr
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sr.Table({"time": [[0, 3, 9], [2]]}).save(folder)
    ...     verify(folder)
    ...     shard = next(Path(folder).glob("*.safetensors"))
    ...     _ = shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    ...     verify(folder)
    Traceback (most recent call last):
        ...
    serrate.errors.TableFormatError: ...safetensors: the manifest says that the checksum is ..., but it is ...
    """
    found = list(faults(what))
    if found:
        many = f"{len(found)} faults\n" if len(found) > 1 else ""
        raise TableFormatError(many + "\n".join(found))


def faults(what: Table | str | os.PathLike[str]) -> Iterator[str]:
    """Yield the faults of a dataset; each begins with the name of the file."""
    if not isinstance(what, (str, os.PathLike)):
        yield from _faults_of_table(what)
        return
    folder, name = place_of(what)
    if name is not None:
        if name not in folder.names():
            raise FileNotFoundError(f"there is no file {os.fspath(what)}")
        yield from _faults_of_file(folder, name, None, None, lambda count: None)
        return
    try:
        manifest = read_manifest(folder)
    except TableFormatError as error:
        yield str(error)
        return
    if manifest is None:
        raise FileNotFoundError(f"{folder.where}: the folder has no manifest.json, so it is not a dataset of a table")
    with progress("verifying", sum(shard.bytes for shard in manifest.shards), "bytes") as done:
        for shard in manifest.shards:
            yield from _faults_of_file(folder, shard.file, manifest, shard, done)


def place_of(path: str | os.PathLike[str]) -> tuple[Folder, str | None]:
    """Return the folder of a dataset and None, or the folder and the name of a file."""
    if os.fspath(path).endswith(".safetensors") and not os.path.isdir(path):
        return parent_folder(path)
    folder = folder_at(path)
    if isinstance(folder, LocalFolder) and not folder.path.is_dir():
        if folder.path.exists():
            return parent_folder(path)
        raise FileNotFoundError(f"there is nothing at {folder.where}")
    return folder, None


def _faults_of_table(table: Table) -> Iterator[str]:
    """Yield the faults of the files of a table; the manifests next to the files are used too."""
    manifests: dict[str, Manifest | None] = {}
    with progress("verifying", len(table.sources), "sources") as done:
        for source in map(unrenamed, table.sources):
            if isinstance(source, FileSource | RemoteSource):
                path = source.path if isinstance(source, FileSource) else source.where
                folder, name = parent_folder(path)
                if folder.where not in manifests:
                    manifests[folder.where] = read_manifest(folder)
                manifest = manifests[folder.where]
                shard = next((each for each in manifest.shards if each.file == name), None) if manifest else None
                yield from _faults_of_file(folder, name, manifest, shard, lambda count: None)
            else:
                yield from faults_of_block(source.whole(), "in memory")
            done(1)


# -------------------------------------------------------------------------------------------------------- one file


def _faults_of_file(
    folder: Folder, name: str, manifest: Manifest | None, shard: Shard | None, done: Done
) -> Iterator[str]:
    """Yield the faults of a file, by itself and by what the manifest states about it."""
    where = f"{folder.where.rstrip('/')}/{name}"
    try:
        with folder.reading(name) as stream:
            if shard is not None:
                yield from _faults_of_checksum(stream, shard, where, done)
            source = _source(folder, name, manifest, shard)
            header = source.header
            block = source.whole()
            sound = True
            for fault in faults_of_block(block, where):
                sound = False
                yield fault
            if sound:
                yield from _faults_of_composed(stream, header, block, where)
    except FileNotFoundError:
        yield f"{where}: the file is not there"
    except TableFormatError as error:
        yield str(error)
    except OSError as error:
        yield f"{where}: the file cannot be read: {error}"


def _source(folder: Folder, name: str, manifest: Manifest | None, shard: Shard | None) -> FileSource | RemoteSource:
    record = None
    if manifest is not None and shard is not None:
        record = ShardRecord(manifest.schema, shard.rows, shard.bytes, shard.counts)
    if isinstance(folder, LocalFolder):
        return FileSource(folder.path / name, record)
    assert isinstance(folder, RemoteFolder)
    return RemoteSource(folder.files, folder.at(name), record)


def _faults_of_checksum(stream: BinaryIO, shard: Shard, where: str, done: Done) -> Iterator[str]:
    digest = checksum()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        done(len(chunk))
    if digest.hexdigest() != shard.xxh3:
        yield f"{where}: the manifest says that the checksum is {shard.xxh3}, but it is {digest.hexdigest()}"


def _faults_of_composed(stream: BinaryIO, header: Header, block: Block, where: str) -> Iterator[str]:
    """Yield the composed offsets that do not agree with the offsets of the levels."""
    for name, span in header.tensors.items():
        kind, _, level = name.partition("/")
        if kind != "composed":
            continue
        held, wanted = _read(stream, span), block.composed(level)
        wrong = (held != wanted).nonzero().flatten()
        if wrong.numel():
            row = int(wrong[0])
            yield (
                f"{where}: the composed offsets of level {level!r} hold {int(held[row])} for row {row}, "
                f"but it begins at entry {int(wanted[row])}"
            )


def _read(stream: BinaryIO, span: FileSpan) -> torch.Tensor:
    stream.seek(span.start)
    return torch.frombuffer(bytearray(stream.read(span.stop - span.start)), dtype=OFFSETS[span.code])


# ---------------------------------------------------------------------------------------------------------- repair


def repair(
    path: str | os.PathLike[str], *, parts: bool = False, dry_run: bool = False, alone: bool = False
) -> list[str]:
    """Delete what interrupted writers left, and nothing else; return the names of those files.

    These are temporary files, and shards that neither the manifest nor a part names, if their writers have ended; and
    parts that were committed or have no shard left. With `parts` it also deletes parts that are complete but not
    committed. Next to a single file it deletes only temporary files. With `dry_run` it deletes nothing.

    A remote store does not show which writers have ended, so there it deletes only files that no writer claims. `alone`
    says that no writer is at work: then it also deletes the claims, the lock and the files of writers that were
    interrupted. If a writer is at work nevertheless, it gets a ConflictError, and its rows are lost.

    >>> import tempfile, serrate as sr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sr.Table({"time": [[0, 3, 9], [2]]}).save(folder)
    ...     repair(folder)
    []
    """
    folder, name = place_of(path)
    with nullcontext() if dry_run else folder.locked(needed=False, alone=alone):
        found = _leftovers(folder, parts, alone) if name is None else _temporary(folder, folder.names(), alone)
        if not dry_run:
            found = [each for each in found if _is_deleted(folder, each, alone)]
            folder.sync()
    return found


def _is_deleted(folder: Folder, name: str, alone: bool) -> bool:
    """Delete a leftover, and return whether that was done: by now a writer may hold a file that it has just made."""
    if TEMPORARY.fullmatch(name) or CLAIM.fullmatch(name):
        return folder.discard(name, alone=alone)
    folder.remove(name)
    return True


def _temporary(folder: Folder, names: list[str], alone: bool) -> list[str]:
    """Return the temporary files that nobody holds."""
    files = (each for each in names if TEMPORARY.fullmatch(each) and folder.is_file(each))
    return [each for each in files if not folder.held(each, alone=alone)]


def _leftovers(folder: Folder, parts: bool, alone: bool) -> list[str]:
    """Return the files of this library that nothing names and nobody holds.

    Claims come last, because they show which writer the other files belong to. The order of the steps matters, because
    a remote store may change meanwhile. A writer makes its claim before its shards, and deletes it after they are
    named. So a shard is a leftover if it existed before the claims were listed, and the manifest that was read after
    that does not name it.
    """
    names = [each for each in folder.names() if folder.is_file(each)]
    claims = {match["writer"]: each for each in folder.names() if (match := CLAIM.fullmatch(each))}
    ended = {writer for writer, each in claims.items() if folder.is_file(each) and not folder.held(each, alone=alone)}
    at_work = claims.keys() - ended
    found = read_parts(folder)
    manifest = read_manifest(folder)
    there = set(names)

    def is_dropped(part: Part) -> bool:
        gone = bool(part.shards) and part.writer not in at_work and not any(s.file in there for s in part.shards)
        return parts or gone or is_committed(part, manifest)

    dropped = {part.writer: part.file for part in found if is_dropped(part)}
    named = {shard.file for part in found if part.writer not in dropped for shard in part.shards}
    named |= manifest.files if manifest else set()

    def is_left(writer: str) -> bool:
        # Without a manifest, only the claim or part of a writer shows that its shard is a leftover. The manifest may be
        # lost.
        return writer not in at_work and (manifest is not None or writer in ended or writer in dropped)

    shards = ((each, match["writer"]) for each in names if (match := SHARD.fullmatch(each)) and each not in named)
    return [
        *_temporary(folder, names, alone),
        *(each for each, writer in shards if is_left(writer)),
        *dropped.values(),
        *(claims[writer] for writer in sorted(ended)),
    ]
