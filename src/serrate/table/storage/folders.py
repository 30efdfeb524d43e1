"""Folder: where the files of a dataset are. A file appears there completely or not at all.

A file is written under a temporary name, synchronized to the disk, and renamed. The writer holds a lock on the
temporary file. It also holds a lock on its claim, a file named after the writer, as long as it has shards that no
manifest names. The system releases locks when a process ends, in whatever way. So a leftover is a file of this library
that nothing names and nobody holds. Only regular files are opened: a pipe would wait for its other end, and a device
may do anything.
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
"""Where a file is: its fsspec file system, or None for that of this machine, and its path."""
TEMPORARY = re.compile(r"\.serrate-[0-9a-f]{16}\.tmp")
CLAIM = re.compile(r"\.serrate-(?P<writer>[0-9a-f]{16})\.lock")
SHARD = re.compile(r"(?P<writer>[0-9a-f]{16})-\d{5,9}\.safetensors")


def new_name() -> str:
    """Return a name that no other writer has."""
    return secrets.token_hex(8)


def shard_name(writer: str, number: int) -> str:
    """Return the file name of a shard of a writer."""
    return f"{writer}-{number:05}.safetensors"


class Folder(Protocol):
    """What writing a dataset needs of the place where it is."""

    where: str

    def is_at(self, files: Any, path: str) -> bool:
        """Return whether this is the folder at a path of an fsspec file system (None for that of this machine)."""

    def place(self, name: str) -> Place:
        """Return where a file is."""

    def require_writable(self) -> None:
        """Raise an error if tables can only be read there."""

    def create(self) -> None:
        """Make the folder if it does not exist."""

    def names(self) -> list[str]:
        """Return the names of everything in the folder; an empty list if it does not exist."""

    def is_file(self, name: str) -> bool:
        """Return whether there is a file of this name that can be read."""

    def read(self, name: str, longest: int) -> bytes:
        """Return the bytes of a small file, or a bit more than `longest` bytes of a longer one.

        Raise a FileNotFoundError if there is no such file.
        """

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a stream of the bytes of a file."""

    def writing(self, name: str, *, new: bool = False) -> AbstractContextManager[BinaryIO]:
        """Open a stream; the file has this name and the written content when the block ends without an error.

        Until then, and after an error, the old file stays as it was. `new` says that there cannot be an old file.
        """

    def sync(self) -> None:
        """Wait until the names of files are on the disk."""

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""

    def require_lock(self) -> None:
        """Raise an error if the place has no lock that keeps two writers of the manifest apart."""

    def locked(self, *, needed: bool = True, alone: bool = False) -> AbstractContextManager[None]:
        """Hold the lock for changes of the manifest.

        If the place has no lock, this raises an error, or does nothing if the lock is not `needed`. `alone` says that
        no other process is at work, so that an existing lock must be from a process that has ended.
        """

    def claim(self, writer: str) -> Callable[[], None]:
        """Claim that a writer is at work; the claim ends when the returned function is called, or with the process."""

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Return whether a process holds a temporary file or a claim, or might hold it.

        `alone` says that no other process is at work.
        """

    def discard(self, name: str, *, alone: bool = False) -> bool:
        """Delete a temporary file or a claim unless it is `held`, and return whether it was deleted."""


class LocalFolder:
    """A folder of the file system of this machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.where = str(self.path)

    def is_at(self, files: Any, path: str) -> bool:
        """Return whether this is the folder at a path, even if links lead there."""
        return files is None and os.path.realpath(path) == os.path.realpath(self.path)

    def place(self, name: str) -> Place:
        """Return where a file is: on this machine, at its path."""
        return None, str(self.path / name)

    def require_writable(self) -> None:
        """Do nothing: the system reports missing permissions when a file is written."""

    def create(self) -> None:
        """Make the folder and all folders above it."""
        missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync(made.parent)

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def is_file(self, name: str) -> bool:
        """Return whether it is a regular file, or a link to one."""
        return (self.path / name).is_file()

    def read(self, name: str, longest: int) -> bytes:
        """Return the bytes of a file."""
        with self.reading(name) as stream:
            return stream.read(longest + 1)

    def reading(self, name: str) -> BinaryIO:
        """Open a stream."""
        return open(open_regular(self.path / name), "rb")

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[BinaryIO]:
        """Open a stream to a temporary file, which gets the name in the end, after it is on the disk."""
        if not new and (self.path / name).exists() and not self.is_file(name):
            raise FileExistsError(f"{self.path / name} is not a regular file, so it is not replaced")
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
            # After a failed write, close() tries to write the rest of the buffer, and fails again.
            with suppress(OSError):
                stream.close()

    def sync(self) -> None:
        """Wait until the folder itself is on the disk."""
        _sync(self.path)

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / name)

    def require_lock(self) -> None:
        """Do nothing: file systems have locks."""

    @contextmanager
    def locked(self, *, needed: bool = True, alone: bool = False) -> Iterator[None]:
        """Hold the lock of the folder itself, which needs no file."""
        del needed, alone  # The system knows which processes still run.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def claim(self, writer: str) -> Callable[[], None]:
        """Make a file that is named after the writer, and hold its lock."""
        descriptor, path = _claimed(lambda: self.path / f".serrate-{writer}.lock")
        held = _Held(descriptor)

        def release() -> None:
            with suppress(OSError):  # A claim that nobody holds does no harm, and repair deletes it.
                os.unlink(path)
            held.close()

        return release

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Return whether somebody is using a file: its lock is taken, or the file has just been renamed or deleted."""
        del alone  # The system knows which processes still run.
        return not self._while_free(name, lambda: None)

    def discard(self, name: str, *, alone: bool = False) -> bool:
        """Delete a file that nobody is using.

        Its lock is held meanwhile. So a writer that has just made the file, and waits for the lock, finds the file gone
        and makes another one.
        """
        del alone
        return self._while_free(name, lambda: self.remove(name))

    def _while_free(self, name: str, work: Callable[[], None]) -> bool:
        """Do some work while holding the lock of a file; return False, and do nothing, if the lock is taken."""
        try:
            descriptor = os.open(self.path / name, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            work()
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True


class _Held:
    """A file handle that is closed, which releases its lock, when nothing refers to this object any more."""

    def __init__(self, descriptor: int) -> None:
        self.close = weakref.finalize(self, os.close, descriptor)


def _claimed(name: Callable[[], Path]) -> tuple[int, Path]:
    """Make a new file, and hold its lock."""
    while True:
        path = name()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            os.unlink(path)
            raise
        # Before the lock was taken, a repair may have deleted the file because nobody held it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor, path
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a regular file for reading and return its handle; raise a TableFormatError for anything else."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        fail(os.fspath(path), "it is not a regular file")
    # The flag avoids waiting for a pipe that has replaced the file meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        fail(os.fspath(path), "it is not a regular file")
    return descriptor


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_at(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of a path or of an fsspec URL."""
    if not isinstance(path, str) or not is_url(path):
        return LocalFolder(path)
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    from serrate.table.storage.stores import RemoteFolder

    files, inner = url_to_fs(path)
    return LocalFolder(inner) if isinstance(files, LocalFileSystem) else RemoteFolder(files, inner, path)


def parent_folder(path: str | os.PathLike[str]) -> tuple[Folder, str]:
    """Return the folder that a file is in, and the name of the file."""
    if isinstance(path, str) and is_url(path):
        above, _, name = path.rpartition("/")
        return folder_at(above), name
    local = Path(path)
    return LocalFolder(local.parent), local.name


def is_url(path: str) -> bool:
    """Return whether a string is a URL with a protocol ("s3://…", "memory://…"), not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+(::|://)", path) is not None


@contextmanager
def naming(what: str, folder: Folder) -> Iterator[None]:
    """Add to each OSError inside what was being written, and that nothing else has changed."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = os.strerror(error.errno)
        hint = {errno.ENOSPC: "; the disk is full", errno.EDQUOT: "; the quota is used up"}.get(error.errno, "")
        message = f"{reason}: {what} could not be written to {folder.where}{hint}; what was there before is untouched"
        raise OSError(error.errno, message) from error
