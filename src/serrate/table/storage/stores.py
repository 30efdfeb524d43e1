"""RemoteFolder: a folder of an fsspec file system, an object store as a rule. A file appears there whole or not at all.

What is written is complete on this machine before the first byte of it goes out, since fsspec's own streams put what
they have in place of what was there when they are closed, after an error too. A store gives no lock back when a process
ends, so locks and claims are files: the lock is made by the one request that fails where the file is there already.
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
"""The file that whoever changes the manifest has made."""
PATIENCE = 30.0
"""How many seconds to wait for another process that is changing the manifest."""
_PAUSE = 0.05, 0.3
_creating: dict[int, threading.Lock] = {}
"""One lock for each process: fsspec's file system in memory checks first and then writes, so two threads may meet."""


class RemoteFolder:
    """A folder of an fsspec file system."""

    def __init__(self, files: Any, path: str, where: str) -> None:
        self.files, self.path, self.where = files, path, where
        self._can_create: bool | None = None

    def is_at(self, files: Any, path: str) -> bool:
        """Whether it is the folder with a path; each thread may have an instance of one file system."""
        same = type(files) is type(self.files) and files.storage_args == self.files.storage_args
        return same and files.storage_options == self.files.storage_options and path == self.path.rstrip("/")

    def at(self, name: str) -> str:
        """The path of a file, for the file system."""
        return f"{self.path.rstrip('/')}/{name}"

    def place(self, name: str) -> Place:
        """In the file system, at its path."""
        return self.files, self.at(name)

    def require_writable(self) -> None:
        """Nothing, or an error where tables can only be read."""
        from fsspec.implementations.cached import CachingFileSystem

        protocols = self.files.protocol
        if "http" in ((protocols,) if isinstance(protocols, str) else protocols):
            raise io.UnsupportedOperation(f"tables can be read by HTTP but not written, so not to {self.where}")
        if isinstance(self.files, CachingFileSystem):
            raise io.UnsupportedOperation(
                f"{self.where} is read through a cache, which does not show what others write meanwhile; give the URL "
                f"without it to write there"
            )

    def create(self) -> None:
        """Make the folder, where the store has folders."""
        self.files.makedirs(self.path, exist_ok=True)

    def names(self) -> list[str]:
        """All names, in order, as they are now."""
        self.files.invalidate_cache()
        try:
            return sorted(path.rstrip("/").rpartition("/")[2] for path in self.files.ls(self.path, detail=False))
        except FileNotFoundError:
            return []

    def is_file(self, name: str) -> bool:
        """Always: stores have nothing else."""
        del name
        return True

    def read(self, name: str, longest: int) -> bytes:
        """The bytes of a file."""
        del longest
        made = self.files.cat_file(self.at(name))
        assert isinstance(made, bytes)
        return made

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A stream, read by blocks."""
        made: AbstractContextManager[BinaryIO] = self.files.open(self.at(name), "rb")
        return made

    def sync(self) -> None:
        """Nothing: a request waits for the store."""

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            self.files.rm_file(self.at(name))

    # ------------------------------------------------------------------------------------------------- whole files

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[BinaryIO]:
        """A stream to a temporary file of this machine, which is sent to the store in the end."""
        with tempfile.NamedTemporaryFile(prefix="serrate-") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            self._put(stream.name, name, new)

    def _put(self, local: str, name: str, new: bool) -> None:
        if self.files.async_impl:  # object stores, where a request, or the last one of several, makes the file
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
        """Nothing, or an error where the store cannot make a file only if there is none."""
        if self._can_create is None:
            self._can_create = self._probe()
        if not self._can_create:
            raise io.UnsupportedOperation(
                f"the store at {self.where} ({type(self.files).__name__}) cannot make a file only where there is none, "
                f"so nothing would keep two writers from undoing each other's changes; write to a folder of this "
                f"machine, or to a new dataset, and copy that there when it is complete"
            )

    def _probe(self) -> bool:
        """Whether the second of two files of one name is refused."""
        name = f".serrate-{new_name()}.tmp"
        try:
            self._create(name, b"1")
            with suppress(OSError):
                self._create(name, b"2")
            return bytes(self.files.cat_file(self.at(name))) == b"1"
        except OSError:
            raise
        except Exception:  # what file systems raise for an option or a mode that they do not know is not agreed on
            return False
        finally:
            with suppress(OSError):
                self.remove(name)

    def _create(self, name: str, content: bytes) -> None:
        """Make a file, or FileExistsError; not by what fsspec has for those that cannot: it looks, and writes then."""
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
        """Have made the file that nobody else has made."""
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
            except OSError as error:  # it may be there all the same, if the answer was lost
                failure = error
            holder = self._holder()
            if holder == mine:
                return
            if holder is None and failure is not None and not isinstance(failure, FileExistsError):
                raise failure
            if time.monotonic() > deadline:
                who = "nobody whose name can be read" if holder is None else f"{holder.decode(errors='replace'):.200}"
                raise ConflictError(
                    f"somebody else is changing the dataset at {self.where}, and did not end within {PATIENCE:g} "
                    f"seconds: {who}; try again, or if that process has ended, let "
                    f"serrate.table.repair({self.where!r}, alone=True) remove its lock"
                ) from None
            time.sleep(random.uniform(*_PAUSE))

    def _holder(self) -> bytes | None:
        """What the lock says, if there is one."""
        try:
            return bytes(self.files.cat_file(self.at(LOCK)))
        except FileNotFoundError:
            return None

    def claim(self, writer: str) -> Callable[[], None]:
        """Leave a file named after the writer."""
        name = f".serrate-{writer}.lock"
        self.files.pipe_file(self.at(name), _who())

        def release() -> None:
            with suppress(OSError):
                self.remove(name)

        return release

    def held(self, name: str, *, alone: bool = False) -> bool:
        """Unless there is nobody: a file does not tell whether the process that made it has ended."""
        del name
        return not alone


def _who() -> bytes:
    """What a lock or a claim says, different each time."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    told = {"host": socket.gethostname(), "process": os.getpid(), "since": since, "key": new_name()}
    return json.dumps(told).encode()


def _has_own(files: Any, name: str) -> bool:
    """Whether a file system has its own way to do something, and not the one that fsspec makes of others."""
    from fsspec import AbstractFileSystem

    return getattr(type(files), name) is not getattr(AbstractFileSystem, name)


def _can_move(files: Any) -> bool:
    return _has_own(files, "mv") or _has_own(files, "cp_file")


def to_the_end(work: Callable[[], object]) -> None:
    """Do something that goes on in another thread anyway, and wait for its end also if the waiting is interrupted.

    A request that was sent cannot be taken back: who went on before it is known how it ended would go on wrongly.
    """
    failures: list[BaseException] = []
    done = threading.Event()  # a thread that was joined and interrupted would count as ended, in Python 3.11

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
