"""RemoteFolder: a folder of an fsspec file system, usually an object store. Files appear completely or not at all.

A file is complete on this machine before its first byte is sent. fsspec's own streams are not used, because they
replace the old file when they are closed, even after an error. A store does not release a lock when a process ends, so
locks and claims are files. One request makes the lock, and fails if the file exists already.
"""

from __future__ import annotations

import io
import json
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

from serrate.errors import ConflictError
from serrate.table.storage.folders import Place, new_name

LOCK = ".serrate-commit.lock"
"""The file that a process makes before it changes the manifest."""
PATIENCE = 30.0
"""How many seconds to wait for another process that changes the manifest."""
_PAUSE = 0.05, 0.3
_creating: dict[int, threading.Lock] = {}
"""One lock for each process. fsspec's memory file system first checks and then writes, so two threads could collide."""


class RemoteFolder:
    """A folder of an fsspec file system."""

    def __init__(self, files: Any, path: str, where: str) -> None:
        self.files, self.path, self.where = files, path, where
        self._can_create: bool | None = None

    def is_at(self, files: Any, path: str) -> bool:
        """Return whether this is the folder at a path; each thread may have its own object for the same file system."""
        same = type(files) is type(self.files) and files.storage_args == self.files.storage_args
        return same and files.storage_options == self.files.storage_options and path == self.path.rstrip("/")

    def at(self, name: str) -> str:
        """Return the path of a file in the file system."""
        return f"{self.path.rstrip('/')}/{name}"

    def place(self, name: str) -> Place:
        """Return where a file is: the file system, and the path there."""
        return self.files, self.at(name)

    def require_writable(self) -> None:
        """Raise an error if tables can only be read there."""
        from fsspec.implementations.cached import CachingFileSystem

        protocols = self.files.protocol
        if "http" in ((protocols,) if isinstance(protocols, str) else protocols):
            raise io.UnsupportedOperation(f"tables can be read by HTTP, but not written, got {self.where}")
        if isinstance(self.files, CachingFileSystem):
            raise io.UnsupportedOperation(
                f"{self.where} is read through a cache, which does not show what others write meanwhile; give the URL "
                f"without the cache to write there"
            )

    def create(self) -> None:
        """Make the folder, if the store has folders."""
        self.files.makedirs(self.path, exist_ok=True)

    def names(self) -> list[str]:
        """Return all names in alphabetical order, without a cache."""
        self.files.invalidate_cache()
        try:
            return sorted(path.rstrip("/").rpartition("/")[2] for path in self.files.ls(self.path, detail=False))
        except FileNotFoundError:
            return []

    def is_file(self, name: str) -> bool:
        """Return True: stores have nothing but files."""
        del name
        return True

    def read(self, name: str, longest: int) -> bytes:
        """Return the bytes of a file."""
        del longest
        made = self.files.cat_file(self.at(name))
        assert isinstance(made, bytes)
        return made

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a stream, which reads in blocks."""
        made: AbstractContextManager[BinaryIO] = self.files.open(self.at(name), "rb")
        return made

    def sync(self) -> None:
        """Do nothing: every request waits for the store."""

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            self.files.rm_file(self.at(name))

    # ------------------------------------------------------------------------------------------------- whole files

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[BinaryIO]:
        """Open a stream to a temporary file of this machine, which is sent to the store in the end."""
        with tempfile.NamedTemporaryFile(prefix="serrate-") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            self._put(stream.name, name, new)

    def _put(self, local: str, name: str, new: bool) -> None:
        # In object stores the file appears with one request, which is the last if there are several.
        if self.files.async_impl:
            try:
                to_the_end(lambda: self.files.put_file(local, self.at(name)))
            except BaseException:
                if new:
                    with suppress(OSError):
                        self.remove(name)
                raise
        elif _can_move(self.files):
            self._put_and_move(local, name)
        elif new or name not in self.names():
            self._put_new(local, name)
        else:
            raise io.UnsupportedOperation(
                f"{type(self.files).__name__} can neither move nor copy files, so {name} at {self.where} cannot be "
                f"replaced in one step; what was there before is untouched; write to another place"
            )

    def _put_and_move(self, local: str, name: str) -> None:
        temporary = f".serrate-{new_name()}.tmp"
        self._put_new(local, temporary)
        source, target = self.at(temporary), self.at(name)
        try:
            if _has_own(self.files, "mv"):
                self.files.mv(source, target)
            else:
                self.files.cp_file(source, target)
        finally:
            with suppress(OSError):
                self.remove(temporary)

    def _put_new(self, local: str, name: str) -> None:
        try:
            self.files.put_file(local, self.at(name))
            self.files.invalidate_cache()
            size, arrived = os.path.getsize(local), self.files.info(self.at(name)).get("size")
            if arrived not in (None, size):
                raise OSError(f"of the {size} bytes of {name} only {arrived} arrived at {self.where}")
        except BaseException:
            with suppress(OSError):
                self.remove(name)
            raise

    # ---------------------------------------------------------------------------------------------- locks and claims

    def require_lock(self) -> None:
        """Raise an error if the store cannot make a file on the condition that it does not exist."""
        if self._can_create is None:
            self._can_create = self._probe()
        if not self._can_create:
            raise io.UnsupportedOperation(
                f"the store at {self.where} ({type(self.files).__name__}) cannot make a file only if it does not "
                f"exist, so nothing would keep two writers from undoing each other's changes; write to a folder of "
                f"this machine, or to a new dataset, and copy that there when it is complete"
            )

    def _probe(self) -> bool:
        """Return whether the store refuses to make a file that exists already."""
        name = f".serrate-{new_name()}.tmp"
        try:
            self._create(name, b"1")
            with suppress(OSError):
                self._create(name, b"2")
            return bytes(self.files.cat_file(self.at(name))) == b"1"
        except OSError:
            raise
        except Exception:  # File systems raise different errors for an option or a mode that they do not know.
            return False
        finally:
            with suppress(OSError):
                self.remove(name)

    def _create(self, name: str, content: bytes) -> None:
        """Make a file; raise a FileExistsError if it exists.

        fsspec's default for file systems without this operation is not used, because it first checks and then writes.
        """
        path = self.at(name)
        if self.files.async_impl:
            self.files.pipe_file(path, content, mode="create")
            return
        with _creating.setdefault(os.getpid(), threading.Lock()):
            if _has_own(self.files, "pipe_file"):
                self.files.pipe_file(path, content, mode="create")
            else:
                with self.files.open(path, "xb") as stream:
                    stream.write(content)

    @contextmanager
    def locked(self, *, needed: bool = True, alone: bool = False) -> Iterator[None]:
        """Hold the lock, a file that only one process can make."""
        self.require_writable()
        try:
            self.require_lock()
        except io.UnsupportedOperation:
            if needed:
                raise
            yield
            return
        if alone:
            self.remove(LOCK)
        mine = _who()
        self._wait_for_lock(mine)
        try:
            yield
        finally:
            with suppress(OSError):
                if self._holder() == mine:
                    self.remove(LOCK)

    def _wait_for_lock(self, mine: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            failure: OSError | None = None
            try:
                self._create(LOCK, mine)
            except OSError as error:  # The file may exist nevertheless, if only the answer was lost.
                failure = error
            holder = self._holder()
            if holder == mine:
                return
            if holder is None and failure is not None and not isinstance(failure, FileExistsError):
                raise failure
            if time.monotonic() > deadline:
                unknown = "it is not known who, because the lock cannot be read"
                who = unknown if holder is None else f"{holder.decode(errors='replace'):.200}"
                raise ConflictError(
                    f"somebody else is changing the dataset at {self.where}, and has not finished within {PATIENCE:g} "
                    f"seconds: {who}; try again, or if that process has ended, let "
                    f"serrate.table.repair({self.where!r}, alone=True) remove its lock"
                ) from None
            time.sleep(random.uniform(*_PAUSE))

    def _holder(self) -> bytes | None:
        """Return the content of the lock; None if there is no lock."""
        try:
            return bytes(self.files.cat_file(self.at(LOCK)))
        except FileNotFoundError:
            return None

    def claim(self, writer: str) -> Callable[[], None]:
        """Make a file that is named after the writer."""
        name = f".serrate-{writer}.lock"
        self.files.pipe_file(self.at(name), _who())

        def release() -> None:
            with suppress(OSError):
                self.remove(name)

        return release

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Return True unless `alone`: a file does not show whether the process that made it has ended."""
        del name
        return not alone

    def discard(self, name: str, *, alone: bool = False) -> bool:
        """Delete a file if `alone`."""
        if alone:
            self.remove(name)
        return alone


def _who() -> bytes:
    """Return the content of a lock or a claim; it is different each time."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    told = {"host": socket.gethostname(), "process": os.getpid(), "since": since, "key": new_name()}
    return json.dumps(told).encode()


def _has_own(files: Any, name: str) -> bool:
    """Return whether a file system implements an operation itself, and does not use fsspec's default."""
    from fsspec import AbstractFileSystem

    return getattr(type(files), name) is not getattr(AbstractFileSystem, name)


def _can_move(files: Any) -> bool:
    return _has_own(files, "mv") or _has_own(files, "cp_file")


def to_the_end(work: Callable[[], object]) -> None:
    """Run work in another thread and wait until it ends, even if the waiting is interrupted.

    A request cannot be taken back, so the caller must not go on before its result is known.
    """
    failures: list[BaseException] = []
    done = threading.Event()  # In Python 3.11 a thread whose join() was interrupted counts as ended.

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="serrate-store").start()
    try:
        done.wait()
    except BaseException:
        done.wait()
        raise
    if failures:
        raise failures[0]
