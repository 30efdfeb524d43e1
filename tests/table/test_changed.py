"""Files that are changed, cut off, replaced or removed while they are open: noticed before the next read."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.table.mutations import content_of

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.storage.files import FileSource

TABLE = sr.Table({"x": list(range(5000)), "y": [[i, i] for i in range(5000)]})
OTHER = sr.Table({"x": list(range(1, 5001)), "y": [[i, i] for i in range(5000)]})

Change = Callable[[Path], object]


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def longer(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"\0")


def written_over(path: Path) -> None:
    """Other bytes in the same file, as many as before."""
    time.sleep(0.02)  # a file system may count time in steps of some milliseconds
    with path.open("r+b") as stream:
        stream.write(content_of(OTHER.block()))


def replaced(path: Path) -> None:
    """Another file under the same name, of the same size and time."""
    before = path.stat()
    other = path.with_suffix(".new")
    other.write_bytes(content_of(OTHER.block()))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert other.stat().st_size == before.st_size
    os.replace(other, path)


def removed(path: Path) -> None:
    path.unlink()


CHANGES: list[tuple[Change, str]] = [
    (cut, "the file was cut off since it was opened"),
    (emptied, "the file was cut off since it was opened"),
    (longer, "the file was changed or replaced since it was opened"),
    (written_over, "the file was changed or replaced since it was opened"),
    (replaced, "the file was changed or replaced since it was opened"),
    (removed, "the file is gone since it was opened"),
]
each = pytest.mark.parametrize(("change", "fault"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.safetensors"
    found.write_bytes(content_of(TABLE.block()))
    return found


@each
def test_while_it_is_read(path: Path, change: Change, fault: str) -> None:
    table = sr.open(path)
    assert table[[4000, 3]]["x"].tolist() == [4000, 3]
    change(path)
    for read in (lambda: table[[4000, 3]], lambda: table["x"], lambda: table.to_packed(), lambda: table.tolist()):
        with pytest.raises(TableFormatError, match=fault) as caught:
            read()
        assert str(path) in str(caught.value)


@each
def test_before_it_is_read(path: Path, change: Change, fault: str) -> None:
    source = FileSource(path)
    change(path)
    with pytest.raises(TableFormatError, match=fault):
        source.block_with(torch.tensor([4000]), ("x",))
    with pytest.raises(TableFormatError, match=fault):
        source.whole()


@each
def test_before_another_process_reads_it(path: Path, change: Change, fault: str) -> None:
    sent = pickle.dumps(sr.open(path))
    change(path)
    with pytest.raises(TableFormatError, match=fault):
        pickle.loads(sent)["x"]


@each
def test_a_shard_of_a_dataset(tmp_path: Path, change: Change, fault: str) -> None:
    TABLE.save(tmp_path / "a", rows_per_shard=2500)
    table = sr.open(tmp_path / "a")
    first, second = (Path(source.path) for source in table.sources)
    assert len(table[[0, 4999]]) == 2
    if change in (replaced, written_over):
        second.write_bytes(second.read_bytes()[:-1] + b"?")
        os.utime(second)
    else:
        change(second)
    assert table.select(["y"])[[0, 7]]["y"].tolist() == [[0, 0], [7, 7]]
    with pytest.raises(TableFormatError, match=fault) as caught:
        table[[0, 4999]]
    assert second.name in str(caught.value)
    assert first.name not in str(caught.value)


def test_what_was_read_before_stays(path: Path) -> None:
    """A file that was replaced or removed lives on as long as it is mapped."""
    column = sr.open(path)["x"]
    replaced(path)
    assert column.tolist() == list(range(5000))
    path.unlink()
    assert column.tolist() == list(range(5000))


def test_opening_again_reads_what_is_there_now(path: Path) -> None:
    table = sr.open(path)
    replaced(path)
    with pytest.raises(TableFormatError):
        table["x"]
    assert sr.open(path)["x"].tolist()[:2] == [1, 2]


def test_a_copy_elsewhere_does_not_matter(path: Path, tmp_path: Path) -> None:
    table = sr.open(path)
    shutil.copy(path, tmp_path / "b.safetensors")
    assert table == TABLE


PROGRAM = """
import os, sys, torch, serrate as sr
from serrate.errors import TableFormatError
path = sys.argv[1]
table = sr.open(path)
table[:3]
os.truncate(path, 4096)
for rows in ([4000], list(range(5000)), slice(None, None, -1)):
    try:
        table[rows]
    except TableFormatError as error:
        print("noticed")
"""


def test_no_process_ends_by_a_signal(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "noticed\n" * 3), done.stderr
