"""Pipes, sockets, devices and folders where files of a dataset should be: neither opened nor waited for nor deleted.

All that is done to a dataset is done in a process of its own, which is given little time.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.table.test_killed import fork, rows

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.folders import LocalFolder, open_regular
from serrate.table.storage.writer import TableWriter

HEX = "0123456789abcdef"
Make = Callable[[Path], None]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    """One that never comes to its end."""
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


KINDS: list[Make] = [pipe, unix_socket, device, folder, to_a_pipe]
each_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)


def soon(work: Callable[[], object]) -> None:
    """Do something in a process that ends within some seconds, without an error."""
    child = fork(lambda: work() and None)
    deadline = time.monotonic() + 20
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert status == 0
            return
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("it waits")
        time.sleep(0.005)


def refused(kind: type[BaseException], words: str, work: Callable[[], object]) -> None:
    """The same, with an error."""

    def run() -> None:
        with pytest.raises(kind, match=words):
            work()

    soon(run)


def modes(path: Path) -> dict[str, int]:
    """What kind of thing each name in a folder is."""
    return {each.name: stat.S_IFMT(each.lstat().st_mode) for each in path.iterdir()}


def append(path: Path) -> None:
    with TableWriter(path, append=True) as writer:
        writer.write(rows(1))


def add_part(path: Path) -> None:
    with TableWriter.part(path) as writer:
        writer.write(rows(1))


@each_kind
def test_in_the_place_of_the_manifest(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "a"
    path.mkdir()
    make(path / "manifest.json")
    before = modes(path)
    refused(TableFormatError, "not a regular file", lambda: sr.open(path))
    refused(TableFormatError, "not a regular file", lambda: verify(path))
    refused(TableFormatError, "not a regular file", lambda: append(path))
    refused(TableFormatError, "not a regular file", lambda: repair(path))
    for overwrite in (False, True):
        refused(
            FileExistsError,
            "a folder of its own",
            lambda: sr.Table(rows(1)).save(path, overwrite=overwrite),  # noqa: B023
        )
    soon(lambda: add_part(path))
    refused(TableFormatError, "not a regular file", lambda: commit(path, append=True))
    refused(FileExistsError, "a folder of its own", lambda: commit(path, overwrite=True))
    assert before.items() <= modes(path).items()


@each_kind
def test_in_the_place_of_a_shard(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "a"
    sr.Table(rows(0)).save(path, rows_per_shard=2)
    name = json.loads((path / "manifest.json").read_text())["shards"][1]["file"]
    (path / name).unlink()
    make(path / name)
    mode = modes(path)[name]
    refused(TableFormatError, f"{name}.*not a regular file", lambda: sr.open(path))
    refused(TableFormatError, f"{name}.*not a regular file", lambda: verify(path))
    if make is not folder:  # which is none of a dataset
        refused(TableFormatError, "not a regular file", lambda: verify(path / name))
        refused(TableFormatError, "not a regular file", lambda: sr.open(path / name))
    soon(lambda: append(path))
    soon(lambda: repair(path))
    assert modes(path)[name] == mode
    if make is not folder:  # that is not deleted, and left there
        soon(lambda: sr.Table(rows(2)).save(path, overwrite=True))
        assert sr.open(path).tolist() == rows(2)


@each_kind
def test_beside_the_files(tmp_path: Path, make: Make) -> None:
    """What has the name of something of ours, but is none, is left alone."""
    path = tmp_path / "a"
    sr.Table(rows(0)).save(path)
    names = [f".serrate-{HEX}.tmp", f".serrate-{HEX}.lock", f"{HEX}-00000.safetensors", "other", "x.safetensors"]
    names.append(f"{HEX[::-1]}-00000.safetensors")
    for name in names:
        make(path / name)
        (path / "elsewhere").unlink(missing_ok=True)
    before = modes(path)
    soon(lambda: verify(path))
    soon(lambda: append(path))
    soon(lambda: repair(path, parts=True))
    soon(lambda: sr.Table(rows(2)).save(path, overwrite=True))
    assert sr.open(path).tolist() == rows(2)
    soon(lambda: repair(path, parts=True))
    assert {name: before[name] for name in names}.items() <= modes(path).items()


@each_kind
def test_in_the_place_of_a_part(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "a"
    sr.Table(rows(0)).save(path)
    make(path / f"part-{HEX}.json")
    soon(lambda: append(path))
    refused(TableFormatError, f"part-{HEX}.*not a regular file", lambda: commit(path, append=True))
    refused(TableFormatError, f"part-{HEX}.*not a regular file", lambda: repair(path))
    soon(lambda: sr.Table(rows(2)).save(path, overwrite=True))
    assert sr.open(path).tolist() == rows(2)


@each_kind
def test_in_the_place_of_a_single_file(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "a.safetensors"
    make(path)
    mode = modes(tmp_path)[path.name]
    refused((TableFormatError, FileNotFoundError), "regular file|no manifest", lambda: sr.open(path))
    refused((TableFormatError, FileNotFoundError), "regular file|no manifest", lambda: verify(path))
    refused(OSError, "there is a file|is a folder", lambda: sr.Table(rows(1)).save(path))
    refused(OSError, "not a regular file|is a folder", lambda: sr.Table(rows(1)).save(path, overwrite=True))
    assert modes(tmp_path)[path.name] == mode
    assert not [name for name in modes(tmp_path) if name.startswith(".serrate")]


@each_kind
def test_in_the_place_of_the_folder(tmp_path: Path, make: Make) -> None:
    if make is folder:
        return
    path = tmp_path / "a"
    make(path)
    refused(TableFormatError, "not a regular file", lambda: sr.open(path))
    refused(TableFormatError, "not a regular file", lambda: verify(path))
    refused(NotADirectoryError, "a dataset is a folder", lambda: sr.Table(rows(1)).save(path, overwrite=True))
    refused(NotADirectoryError, "a dataset is a folder", lambda: append(path))


def test_a_pipe_that_takes_the_place_of_a_file_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the look whether it is a file, and before it is opened."""
    path = tmp_path / "manifest.json"
    path.write_text("{}")
    opened = os.open

    def swapped(*given: object, **options: object) -> int:
        path.unlink()
        os.mkfifo(path)
        return opened(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapped)
    refused(TableFormatError, "not a regular file", lambda: LocalFolder(tmp_path).read("manifest.json", 10))
    monkeypatch.undo()
    before = len(os.listdir("/proc/self/fd"))
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for _ in range(3):
        with pytest.raises(TableFormatError):
            open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == before
