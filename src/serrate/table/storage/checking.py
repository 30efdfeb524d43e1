"""Checking: whether every byte of a dataset is as it was written; and removing what interrupted writes left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO

import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block, unrenamed
from serrate.table.storage.committing import read_manifest
from serrate.table.storage.contents import faults_of_block
from serrate.table.storage.files import Claim, FileSource
from serrate.table.storage.folders import (
    CLAIM,
    SHARD,
    TEMPORARY,
    Folder,
    LocalFolder,
    folder_at,
    parent_folder,
)
from serrate.table.storage.header import OFFSETS, Header, Span
from serrate.table.storage.layout import checksum
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
    """Read all of a dataset, or of the files that a table is read from, and check every checksum and every offset.

    Each shard has to have the size, the checksum and the counts that the manifest says; offsets rise from 0 to the
    number of entries; offsets that lead from rows to deeper entries agree with those of the levels between; strings are
    places in their vocabulary; bools are 0 or 1; what is missing is 0. A file on its own has no checksum. All faults
    are raised together, as one TableFormatError.

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
    """What is wrong with a dataset: each fault begins with the name of the file."""
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
        raise FileNotFoundError(f"{folder.where}: the folder has no manifest.json, so it is no dataset of a table")
    with progress("verifying", sum(shard.bytes for shard in manifest.shards), "bytes") as done:
        for shard in manifest.shards:
            yield from _faults_of_file(folder, shard.file, manifest, shard, done)


def place_of(path: str | os.PathLike[str]) -> tuple[Folder, str | None]:
    """The folder of a dataset; or the folder and the name of a file."""
    if os.fspath(path).endswith(".safetensors") and not os.path.isdir(path):
        return parent_folder(path)
    folder = folder_at(path)
    if isinstance(folder, LocalFolder) and not folder.path.is_dir():
        if folder.path.exists():
            return parent_folder(path)
        raise FileNotFoundError(f"there is nothing at {folder.where}")
    return folder, None


def _faults_of_table(table: Table) -> Iterator[str]:
    """What is wrong with the files of a table, by the manifests that lie next to them."""
    manifests: dict[str, Manifest | None] = {}
    with progress("verifying", len(table.sources), "parts") as done:
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
    """What is wrong with a file, by itself and by what the manifest says of it."""
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
    claim = None
    if manifest is not None and shard is not None:
        claim = Claim(manifest.schema, shard.rows, shard.bytes, shard.counts)
    if isinstance(folder, LocalFolder):
        return FileSource(folder.path / name, claim)
    assert isinstance(folder, RemoteFolder)
    return RemoteSource(folder.files, folder.at(name), claim)


def _faults_of_checksum(stream: BinaryIO, shard: Shard, where: str, done: Done) -> Iterator[str]:
    digest = checksum()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        done(len(chunk))
    if digest.hexdigest() != shard.xxh3:
        yield f"{where}: the manifest says that the checksum is {shard.xxh3}, but it is {digest.hexdigest()}"


def _faults_of_composed(stream: BinaryIO, header: Header, block: Block, where: str) -> Iterator[str]:
    """Offsets that skip levels say what those of the levels say."""
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


def _read(stream: BinaryIO, span: Span) -> torch.Tensor:
    stream.seek(span.start)
    return torch.frombuffer(bytearray(stream.read(span.stop - span.start)), dtype=OFFSETS[span.code])


# ---------------------------------------------------------------------------------------------------------- repair


def repair(
    path: str | os.PathLike[str], *, parts: bool = False, dry_run: bool = False, alone: bool = False
) -> list[str]:
    """Delete what interrupted writes left behind, and nothing else; gives the names of the files.

    Left behind are temporary files and shards that nothing names, of writers that are no longer at work, and parts that
    were committed or have no shard left. With `parts` also the parts that were finished but not committed. Next to a
    single file only temporary files are deleted. With `dry_run` nothing is.

    Stores elsewhere, by URL, do not tell which writers have ended, so that there only what no writer claims is left
    behind. `alone` says that nobody is at work: then the claims, the lock and the files of writers that did not come to
    their end are deleted too. A writer that was at work all the same gets a ConflictError; its rows are lost.

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
            for each in found:
                folder.remove(each)
            folder.sync()
    return found


def _temporary(folder: Folder, names: list[str], alone: bool) -> list[str]:
    """Temporary files that nobody holds."""
    files = (each for each in names if TEMPORARY.fullmatch(each) and folder.is_file(each))
    return [each for each in files if not folder.held(each, alone=alone)]


def _leftovers(folder: Folder, parts: bool, alone: bool) -> list[str]:
    """Files of ours that nothing names and nobody holds; claims last, since they tell whose the others are.

    The order counts, since stores cannot be held still. A writer claims before it has shards, and lets go after they
    are named: a shard that was there before claims were looked for, and that a manifest which was read after that does
    not name, is left behind.
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
        # Without a manifest only its writer tells whether a shard is left over, or has lost its manifest.
        return writer not in at_work and (manifest is not None or writer in ended or writer in dropped)

    shards = ((each, match["writer"]) for each in names if (match := SHARD.fullmatch(each)) and each not in named)
    return [
        *_temporary(folder, names, alone),
        *(each for each, writer in shards if is_left(writer)),
        *dropped.values(),
        *(claims[writer] for writer in sorted(ended)),
    ]
