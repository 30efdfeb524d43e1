"""Stores elsewhere, for tests: with the habits of fsspec's file systems, and with failures and stops at any request."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

Hook = Callable[[str, str], None]


class Watched:
    """Calls `hook` with the name of each request and its path; the hook may raise or wait. Objects lie in `kept`."""

    hook: ClassVar[Hook | None] = None
    kept: ClassVar[dict[str, bytes]] = {}

    @classmethod
    def asked(cls, what: str, path: str) -> None:
        if cls.hook is not None:
            cls.hook(what, path)

    @classmethod
    def reset(cls) -> None:
        cls.hook = None
        cls.kept.clear()

    @classmethod
    def files(cls) -> dict[str, bytes]:
        return dict(cls.kept)


def _listed(kept: dict[str, bytes], path: str) -> list[dict[str, Any]]:
    inside = path.rstrip("/") + "/"
    found = [
        {"name": name, "size": len(kept[name]), "type": "file"} for name in sorted(kept) if name.startswith(inside)
    ]
    if not found:
        raise FileNotFoundError(path)
    return found


class Chunk(AbstractBufferedFile):  # type: ignore[misc]
    """A stream as fsspec's object stores have it: parts go out as they are full, and closing makes them an object."""

    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.fs.asked("upload", self.path)
        self.parts.append(self.buffer.getvalue())
        if final:
            whole = b"".join(self.parts)
            self.fs.kept[self.path] = whole[: len(whole) - self.fs.short]
        return True

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.kept[self.path][start:end]
        return found


class Chunks(Watched, AbstractFileSystem):  # type: ignore[misc]
    """A store whose objects are made of parts of 1000 bytes; an error in the midst of a `with` block makes half of one.

    It can copy, and neither move nor make an object only where there is none.
    """

    protocol = "chunks"
    blocksize = 1000
    short: ClassVar[int] = 0
    """How many bytes of each object do not arrive."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + super()._strip_protocol(path).lstrip("/")

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.asked("ls", path)
        found = _listed(self.kept, self._strip_protocol(path))
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self.asked("info", path)
        path = self._strip_protocol(path)
        if path not in self.kept:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.kept[path]), "type": "file"}

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Chunk:
        self.asked("open", path)
        return Chunk(self, path, mode, block_size=1000, **options)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        self.asked("copy", path2)
        self.kept[self._strip_protocol(path2)] = self.kept[self._strip_protocol(path1)]

    def _rm(self, path: str) -> None:
        self.asked("remove", path)
        if self.kept.pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass


class Plain(Chunks):
    """The same that cannot even copy."""

    protocol = "plain"
    cp_file = AbstractFileSystem.cp_file


class Steps(Watched, MemoryFileSystem):  # type: ignore[misc]
    """fsspec's memory; a stream puts what it has in place at once, and every write to it is a request."""

    protocol = "steps"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def reset(cls) -> None:
        cls.hook = None
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]

    @classmethod
    def files(cls) -> dict[str, bytes]:
        return {path: held.getvalue() for path, held in cls.store.items()}

    def ls(self, path: str, *given: Any, **options: Any) -> Any:
        self.asked("ls", path)
        return super().ls(path, *given, **options)

    def cat_file(self, path: str, *given: Any, **options: Any) -> Any:
        self.asked("read", path)
        return super().cat_file(path, *given, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self.asked("create" if mode == "create" else "pipe", path)
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        time.sleep(0.002)  # it looks first, and writes then
        MemoryFile(self, self._strip_protocol(path), value).commit()

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        self.asked("copy", path2)
        super().cp_file(path1, path2, **options)

    def rm_file(self, path: str) -> None:
        self.asked("remove", path)
        self._rm(path)

    def _open(self, path: str, mode: str = "rb", *given: Any, **options: Any) -> Any:
        self.asked("open", path)
        made = super()._open(path, mode, *given, **options)
        if mode != "wb" or "data" in options:
            return made
        write = made.write

        def watched(data: Any) -> int:
            for start in range(0, len(data), 1000):
                self.asked("write", path)
                write(data[start : start + 1000])
            return len(data)

        made.write = watched
        return made

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        with self.open(rpath, "wb") as stream, open(lpath, "rb") as local:
            stream.write(local.read())


class Cloud(Watched, AsyncFileSystem):  # type: ignore[misc]
    """An object store by asynchronous requests: each is done whole or not at all, some only after it was given up."""

    protocol = "cloud"
    slow: ClassVar[dict[str, float]] = {}
    """How many seconds it takes to put a file of some name there."""
    lost: ClassVar[set[str]] = set()
    """Names whose next request is done, but not answered."""

    @classmethod
    def reset(cls) -> None:
        super().reset()
        cls.slow, cls.lost = {}, set()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + super()._strip_protocol(path).lstrip("/")

    async def _done(self, what: str, path: str) -> None:
        self.asked(what, path)
        await asyncio.sleep(self.slow.get(os.path.basename(path), 0) if what == "put" else 0)

    def _keep(self, path: str, value: bytes, mode: str) -> None:
        path = self._strip_protocol(path)
        if mode == "create" and path in self.kept:
            raise FileExistsError(path)
        self.kept[path] = bytes(value)
        name = os.path.basename(path)
        if name in self.lost:
            self.lost.discard(name)
            raise OSError(errno.ETIMEDOUT, "the answer was lost")

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        await self._done("pipe", path)
        self._keep(path, value, mode)

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **options: Any) -> None:
        with open(lpath, "rb") as stream:
            content = stream.read()
        await self._done("put", rpath)
        self._keep(rpath, content, mode)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        await self._done("read", path)
        path = self._strip_protocol(path)
        if path not in self.kept:
            raise FileNotFoundError(path)
        return self.kept[path][start:end]

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        await self._done("info", path)
        path = self._strip_protocol(path)
        if path not in self.kept:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.kept[path]), "type": "file"}

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        await self._done("ls", path)
        found = _listed(self.kept, self._strip_protocol(path))
        return found if detail else [each["name"] for each in found]

    async def _rm_file(self, path: str, **options: Any) -> None:
        await self._done("remove", path)
        if self.kept.pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass


STORES: dict[str, type[Watched]] = {"chunks": Chunks, "plain": Plain, "steps": Steps, "cloud": Cloud}
for _name, _store in STORES.items():
    _store.kept = {}
    fsspec.register_implementation(_name, _store, clobber=True)
