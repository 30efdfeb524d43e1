"""Folder: where the files of a dataset lie. A file appears there whole or not at all.

A file is written under a temporary name, brought to the disk, and renamed. Whoever writes holds a lock on the
temporary file, and on a file named after the writer as long as it has shards that no manifest names; the system gives
locks back when a process ends, however it ends. So a leftover is a file of ours that nothing names and nobody holds.
What is no regular file is never opened: a pipe would wait for its other end, and a device may do anything.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from serrate.table.storage.strict import fail

Place = tuple[Any, str]
"""Where a file is: the fsspec file system, or None for that of this machine, and the path."""
TEMPORARY = re.compile(r"\.serrate-[0-9a-f]{16}\.tmp")
CLAIM = re.compile(r"\.serrate-(?P<writer>[0-9a-f]{16})\.lock")
SHARD = re.compile(r"(?P<writer>[0-9a-f]{16})-\d{5,9}\.safetensors")


def new_name() -> str:
    """A name that no other writer has."""
    return secrets.token_hex(8)


def shard_name(writer: str, number: int) -> str:
    """The file name of a writer's shard."""
    return f"{writer}-{number:05}.safetensors"


class Folder(Protocol):
    """What writing a dataset asks of the place it lies in."""

    where: str

    def is_at(self, files: Any, path: str) -> bool:
        """Whether it is the folder with a path, of an fsspec file system or (None) of this machine."""

    def place(self, name: str) -> Place:
        """Where a file is."""

    def require_writable(self) -> None:
        """Nothing, or an error where tables can only be read."""

    def create(self) -> None:
        """Make the folder, if it is not there."""

    def names(self) -> list[str]:
        """The names of all that lies in it; none if it is not there."""

    def is_file(self, name: str) -> bool:
        """Whether a name is that of a file that can be read."""

    def read(self, name: str, longest: int) -> bytes:
        """The bytes of a small file, of a longer one some more than `longest`; or FileNotFoundError."""

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A stream of the bytes of a file."""

    def writing(self, name: str, *, new: bool = False) -> AbstractContextManager[BinaryIO]:
        """A stream; what was written to it stands under this name once the block ends without an error.

        Until then, and after an error, what was there before stands there; `new` says that it cannot be anything.
        """

    def sync(self) -> None:
        """Wait until the names of files are on the disk."""

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""

    def require_lock(self) -> None:
        """Raise an error if the place has no lock that keeps two writers of the manifest apart."""

    def locked(self, *, needed: bool = True, alone: bool = False) -> AbstractContextManager[None]:
        """Alone among those who change the manifest.

        Where the place cannot do that it is an error, or nothing if it is not `needed`. `alone` says that there is
        nobody else, so that a lock that is there is that of a process that has ended.
        """

    def claim(self, writer: str) -> Callable[[], None]:
        """Say that a writer is at work, until the result is called or the process ends."""

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Whether a process holds a temporary file or a claim, or may do so; `alone` says that there is no other."""


class LocalFolder:
    """A folder of the file system."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.where = str(self.path)

    def is_at(self, files: Any, path: str) -> bool:
        """Whether it is the folder with a path, by whatever links."""
        return files is None and os.path.realpath(path) == os.path.realpath(self.path)

    def place(self, name: str) -> Place:
        """On this machine, at its path."""
        return None, str(self.path / name)

    def require_writable(self) -> None:
        """Do nothing: the system reports missing permissions when a file is written."""

    def create(self) -> None:
        """Make the folder and those above it."""
        missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync(made.parent)

    def names(self) -> list[str]:
        """All names, in order."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def is_file(self, name: str) -> bool:
        """Whether it is a regular file, or a link to one."""
        return (self.path / name).is_file()

    def read(self, name: str, longest: int) -> bytes:
        """The bytes of a file."""
        with self.reading(name) as stream:
            return stream.read(longest + 1)

    def reading(self, name: str) -> BinaryIO:
        """A stream."""
        return open(open_regular(self.path / name), "rb")

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[BinaryIO]:
        """A stream to a temporary file that takes the name, on the disk, in the end."""
        if not new and (self.path / name).exists() and not self.is_file(name):
            raise FileExistsError(f"{self.path / name} is no regular file, so no file is put in its place")
        descriptor, temporary = _claimed(lambda: self.path / f".serrate-{new_name()}.tmp")
        stream = os.fdopen(descriptor, "wb")
        try:
            yield stream
            stream.flush()
            os.fsync(descriptor)
            os.replace(temporary, self.path / name)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            # After a failed write closing tries once more what is left in the buffer, and fails again.
            with suppress(OSError):
                stream.close()

    def sync(self) -> None:
        """Wait for the folder itself."""
        _sync(self.path)

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / name)

    def require_lock(self) -> None:
        """Nothing: file systems have locks."""

    @contextmanager
    def locked(self, *, needed: bool = True, alone: bool = False) -> Iterator[None]:
        """Hold the lock of the folder itself, so that no file is needed for it."""
        del needed, alone  # the system knows which processes are there
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def claim(self, writer: str) -> Callable[[], None]:
        """Hold a file named after the writer."""
        descriptor, path = _claimed(lambda: self.path / f".serrate-{writer}.lock")
        held = _Held(descriptor)

        def release() -> None:
            with suppress(OSError):  # a claim that nobody holds is no harm, and repair deletes it
                os.unlink(path)
            held.close()

        return release

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Whether somebody is at work with a file: its lock is taken, or it has just gone to where it belongs."""
        del alone  # the system knows which processes are there
        try:
            descriptor = os.open(self.path / name, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class _Held:
    """A handle that is closed, and its lock given back, when nobody refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self.close = weakref.finalize(self, os.close, descriptor)


def _claimed(name: Callable[[], Path]) -> tuple[int, Path]:
    """A new file that this process holds the lock of."""
    while True:
        path = name()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            os.unlink(path)
            raise
        # Before the lock was there a repair may have found the file without an owner and removed it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor, path
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str]) -> int:
    """A handle to read a regular file by; a TableFormatError where there is something else, which is not opened."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        fail(os.fspath(path), "it is no regular file")
    # Not to wait for a pipe that has taken its place in between.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        fail(os.fspath(path), "it is no regular file")
    return descriptor


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_at(path: str | os.PathLike[str]) -> Folder:
    """The folder of a path or of an fsspec URL."""
    if not isinstance(path, str) or not is_url(path):
        return LocalFolder(path)
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    from serrate.table.storage.stores import RemoteFolder

    files, inner = url_to_fs(path)
    return LocalFolder(inner) if isinstance(files, LocalFileSystem) else RemoteFolder(files, inner, path)


def parent_folder(path: str | os.PathLike[str]) -> tuple[Folder, str]:
    """The folder that a file lies in, and its name there."""
    if isinstance(path, str) and is_url(path):
        above, _, name = path.rpartition("/")
        return folder_at(above), name
    local = Path(path)
    return LocalFolder(local.parent), local.name


def is_url(path: str) -> bool:
    """Whether a string names a place by protocol ("s3://…", "memory://…") and not by path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+(::|://)", path) is not None


@contextmanager
def naming(what: str, folder: Folder) -> Iterator[None]:
    """OSErrors inside say what was being written, and that nothing else has changed."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = os.strerror(error.errno)
        hint = {errno.ENOSPC: "; the disk is full", errno.EDQUOT: "; the quota is used up"}.get(error.errno, "")
        message = f"{reason}: {what} could not be written to {folder.where}{hint}; what was there before is untouched"
        raise OSError(error.errno, message) from error
