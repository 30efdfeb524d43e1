"""A disk that is full, or that fails: a clear OSError, and what was there before is still there, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.table.test_killed import fork, rows

import serrate as sr
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.manifest import open_table
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save


def save_folder(path: Path) -> None:
    save(sr.Table(rows(1)), path, rows_per_shard=2, overwrite=True)


def save_file(path: Path) -> None:
    save(sr.Table(rows(1)), path.with_suffix(".safetensors"), overwrite=True)


def write(path: Path) -> None:
    with TableWriter(path, append=True, rows_per_shard=2) as writer:
        writer.write(rows(1))


def write_parts(path: Path) -> None:
    for order in range(2):
        with TableWriter.part(path, order=order) as writer:
            writer.write(rows(1))
    commit(path, overwrite=True)


def attempt(action: Callable[[Path], None], path: Path) -> OSError | None:
    """The error that something ends with, if it does."""
    try:
        action(path)
    except OSError as error:
        return error
    return None


ACTIONS = [save_folder, save_file, write, write_parts]


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.fixture
def before(tmp_path: Path) -> dict[str, bytes]:
    """A dataset and a file that are there already."""
    save(sr.Table(rows(0)), tmp_path / "a")
    save(sr.Table(rows(0)), tmp_path / "a.safetensors")
    return tree(tmp_path)


class Full(io.RawIOBase):
    """A stream to a disk that has room for some writes."""

    def __init__(self, inner: Any, room: list[int], error: int) -> None:
        self.inner, self.room, self.error = inner, room, error

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.room[0] -= 1
        if self.room[0] < 0:
            raise OSError(self.error, os.strerror(self.error))
        return int(self.inner.write(data))

    def flush(self) -> None:
        if not self.inner.closed:
            self.inner.flush()

    def close(self) -> None:
        self.inner.close()
        super().close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("action", ACTIONS)
def test_each_write_fails_once(
    tmp_path: Path,
    before: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[Path], None],
    error: int,
) -> None:
    """The first write, the second, … until all go through."""
    real = os.fdopen
    for count in range(400):
        room = [count]
        monkeypatch.setattr(os, "fdopen", lambda fd, mode, room=room: Full(real(fd, mode), room, error))
        found = attempt(action, tmp_path / "a")
        if found is None:
            break
        assert found.errno == error
        assert os.strerror(error) in str(found)
        assert str(tmp_path) in str(found)
        assert "what was there before is untouched" in str(found)
        assert ("disk is full" in str(found)) == (error == errno.ENOSPC)
        repair(tmp_path / "a", parts=True)  # of several parts the first may have been finished
        if action is not write_parts:
            assert repair(tmp_path / "a") == []
        assert tree(tmp_path) == before, count
    assert count > 3
    monkeypatch.undo()
    assert tree(tmp_path) != before
    verify(tmp_path / "a")


@pytest.mark.parametrize("action", ACTIONS)
def test_each_call_fails_once(
    tmp_path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, action: Callable[[Path], None]
) -> None:
    """Each fsync, rename, creation and lock, one after the other: the version before or the one after, whole."""
    old = open_table(tmp_path / "a").tolist()
    done = 0
    for step in range(1, 300):
        count = 0

        def counted(function: Callable[..., Any], step: int = step) -> Callable[..., Any]:
            def wrapped(*args: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count == step:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return function(*args, **options)

            return wrapped

        with monkeypatch.context() as patched:
            for module, name in ((os, "fsync"), (os, "replace"), (os, "open"), (fcntl, "flock"), (os, "unlink")):
                patched.setattr(module, name, counted(getattr(module, name)))
            found = attempt(action, tmp_path / "a")
        if count < step:
            break
        # Old files that cannot be deleted are no reason to fail.
        assert found is None or found.errno == errno.EIO
        done += found is not None
        for path in (tmp_path / "a", tmp_path / "a.safetensors"):
            verify(path)
        now = open_table(tmp_path / "a").tolist()
        assert now["id"][:5] in (old["id"], rows(1)["id"])
        for path in (tmp_path / "a", tmp_path / "a.safetensors"):
            repair(path, parts=True)
        assert len(os.listdir(tmp_path)) == 2
        assert len(os.listdir(tmp_path / "a")) == 1 + len(open_table(tmp_path / "a").sources)
    assert done > 5


def _limited(path: Path, limit: int, action: Callable[[Path], None]) -> None:
    """Fail, since no file may be larger than the limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    found = attempt(action, path)
    assert found is not None
    assert found.errno == errno.EFBIG
    assert "File too large" in str(found)
    assert "untouched" in str(found)


@pytest.mark.parametrize("limit", [0, 1, 100, 4096, 2**16, 300_000])
@pytest.mark.parametrize("action", ["folder", "file", "writer"])
def test_files_may_not_grow(tmp_path: Path, before: dict[str, bytes], limit: int, action: str) -> None:
    large = sr.Table({"x": torch.arange(100_000)})

    def work(path: Path) -> None:
        if action == "folder":
            save(large, path, overwrite=True)
        elif action == "file":
            save(large, path.with_suffix(".safetensors"), overwrite=True)
        else:
            with TableWriter(path, overwrite=True) as writer:
                for start in range(0, 100_000, 10_000):
                    writer.write(large[start : start + 10_000])

    child = fork(lambda: _limited(tmp_path / "a", limit, work))
    assert os.waitpid(child, 0)[1] == 0
    assert tree(tmp_path) == before
    verify(tmp_path / "a")


def test_a_writer_that_failed_is_closed(
    tmp_path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TableWriter(tmp_path / "a", overwrite=True, rows_per_shard=2)
    writer.write({"x": [1]})
    real = os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda fd, mode: Full(real(fd, mode), [0], errno.ENOSPC))
    with pytest.raises(OSError, match="disk is full"):
        writer.write({"x": [2, 3]})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="closed"):
        writer.write({"x": [2]})
    writer.close()  # makes nothing visible: rows are missing
    assert tree(tmp_path) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_device_that_is_full(tmp_path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdopen

    def full(fd: int, mode: str) -> Any:
        target = os.open("/dev/full", os.O_WRONLY)
        os.dup2(target, fd)
        os.close(target)
        return real(fd, mode)

    monkeypatch.setattr(os, "fdopen", full)
    for path in (tmp_path / "a", tmp_path / "a.safetensors"):
        with pytest.raises(OSError, match="disk is full") as found:
            save(sr.Table({"x": torch.arange(100_000)}), path, overwrite=True)
        assert found.value.errno == errno.ENOSPC
    assert tree(tmp_path) == before
