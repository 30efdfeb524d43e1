"""Opening tables: folders and files, lazily, in this process and in others; what is read ahead."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.table import blocks
from tests.table.mutations import content_of
from tests.table.strategies import Sample, samples

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.gathering import gather
from serrate.table.schema import Schema
from serrate.table.storage import files, memory_map, reading
from serrate.table.storage import manifest as module
from serrate.table.storage.block_file import write_block
from serrate.table.storage.files import FileSource
from serrate.table.storage.header import read_header
from serrate.table.storage.manifest import Manifest, Shard

TABLE = sr.Table(
    {"age": [41, 63, 7], "time": [[0, 3, 9], [], [2]], "code": [[["a", "b"], [], ["c"]], [], [[None]]]},
    {"time": "visits", "code": "visits.codes"},
)


def put(folder: Path, tables: list[sr.Table], schema: Schema | None = None, **change: Any) -> Path:
    """A dataset with a shard for each table."""
    folder.mkdir(exist_ok=True)
    shards = []
    for number, table in enumerate(tables):
        block, name = table.block(), f"{number}.safetensors"
        with (folder / name).open("wb") as stream:
            written = write_block(stream, block)
        shards.append(Shard(name, len(table), written.bytes, written.xxh3, dict(block.counts)))
    text = Manifest(schema or tables[0].schema, tuple(shards)).to_json()
    (folder / "manifest.json").write_text(json.dumps({**json.loads(text), **change}))
    return folder


def put_file(path: Path, table: sr.Table) -> Path:
    path.write_bytes(content_of(table.block()))
    return path


# ------------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("kind", [str, Path], ids=["str", "Path"])
def test_a_folder_and_a_file(kind: Any, tmp_path: Path) -> None:
    assert sr.open(kind(put(tmp_path / "a", [TABLE[:2], TABLE[2:]]))) == TABLE
    assert sr.open(kind(put_file(tmp_path / "a.safetensors", TABLE))) == TABLE
    assert sr.open(f"file://{tmp_path}/a") == TABLE
    assert sr.open(f"file://{tmp_path}/a.safetensors") == TABLE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(samples(), st.data())
def test_any_table_in_any_shards(tmp_path: Path, sample: Sample, data: st.DataObject) -> None:
    table = sample.table()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=3)))
    ends = [0, *cuts, len(table)]
    for old in tmp_path.glob("*.safetensors"):
        old.unlink()
    put(tmp_path, [table[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)])
    opened = sr.open(tmp_path)
    assert repr(opened.tolist()) == repr(table.tolist())
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=8)) if len(table) else []
    assert repr(opened[rows].tolist()) == repr(table[rows].tolist())


def test_columns(tmp_path: Path) -> None:
    made = sr.open(put(tmp_path, [TABLE]), columns=["code", "age"])
    assert list(made.keys()) == ["code", "age"]
    assert made == TABLE.select(["code", "age"])
    with pytest.raises(KeyError, match="there is no column 'x'"):
        sr.open(tmp_path, columns=["x"])


def test_no_shards_and_shards_without_rows(tmp_path: Path) -> None:
    assert sr.open(put(tmp_path / "a", [], TABLE.schema)) == TABLE[:0]
    assert sr.open(put(tmp_path / "b", [TABLE[:0], TABLE, TABLE[:0]])) == TABLE


def test_one_row_of_a_table(tmp_path: Path) -> None:
    row = TABLE[0]
    assert sr.open(put_file(tmp_path / "a.safetensors", row)).tolist() == row.tolist()


def test_shards_that_are_stored_in_different_ways(tmp_path: Path) -> None:
    wide = sr.Table({"x": [[300], []]})
    narrow = sr.Table({"x": [[1, 2]]}, narrow=True)
    made = sr.open(put(tmp_path, [narrow, wide], wide.schema))
    assert made.tolist() == {"x": [[1, 2], [300], []]}
    assert made["x"].dtype == torch.int64


def test_columns_in_another_order(tmp_path: Path) -> None:
    other = TABLE.select(["code", "time", "age"])
    assert sr.open(put(tmp_path, [TABLE, other], TABLE.schema)) == sr.Table.concat([TABLE, TABLE])


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sr.open(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match=r"the folder has no manifest\.json"):
        sr.open(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the folder has no manifest\.json"):
        sr.open(f"file://{tmp_path}")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    put(tmp_path, [TABLE], version="7", more="things")
    with pytest.raises(TableFormatError, match="version 7 of the format, but this Serrate reads version 1"):
        sr.open(tmp_path)


def test_a_dataset_that_is_overwritten_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old manifest is read, then its files are gone: the new manifest counts."""
    put(tmp_path / "a", [TABLE])
    put(tmp_path / "b", [TABLE[:1]])
    first = Manifest.from_json((tmp_path / "a/manifest.json").read_bytes(), "a")
    real, calls = module.read_local_manifest, iter([first])
    monkeypatch.setattr(module, "read_local_manifest", lambda folder: next(calls, None) or real(folder))
    (tmp_path / "b/0.safetensors").rename(tmp_path / "b/1.safetensors")
    text = (tmp_path / "b/manifest.json").read_text().replace("0.safetensors", "1.safetensors")
    (tmp_path / "b/manifest.json").write_text(text)
    assert sr.open(tmp_path / "b") == TABLE[:1]


# ------------------------------------------------------------------------------------------------------------ lazily


def test_nothing_but_the_manifest_is_read_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, [TABLE, TABLE])
    opened: list[str] = []
    monkeypatch.setattr(files, "read_header", lambda *given: opened.append(given[-1]) or read_header(*given))
    table = sr.open(tmp_path)
    assert len(table) == 6
    assert table.count("visits") == 8
    assert opened == []
    assert table.select(["age", "time"])[4:]["age"].tolist() == [63, 7]
    assert [Path(path).name for path in opened] == ["1.safetensors"]


def test_no_handle_stays_open(tmp_path: Path) -> None:
    table = sr.open(put(tmp_path, [TABLE] * 20))
    before = len(os.listdir("/proc/self/fd"))
    assert len(table.tolist()["age"]) == 60
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_unmapped_when_nothing_refers_to_it(tmp_path: Path) -> None:
    path = put_file(tmp_path / "a.safetensors", TABLE)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(path))

    table = sr.open(path)
    assert table.count("visits") == 4
    assert mapped() == 0
    column = table["time"]
    assert mapped() == 1
    assert table[[0]]["age"].tolist() == [41]
    assert mapped() == 2
    del table
    assert column.tolist() == [[0, 3, 9], [], [2]]
    assert mapped() == 1
    del column
    assert mapped() == 0


def test_writing_to_a_tensor_never_reaches_the_file(tmp_path: Path) -> None:
    path = put_file(tmp_path / "a.safetensors", TABLE)
    before = path.read_bytes()
    table = sr.open(path)
    table["age"].values[0] = 99
    del table
    assert path.read_bytes() == before
    assert sr.open(path)["age"].tolist() == [41, 63, 7]


def test_a_column_alone_can_be_pickled(tmp_path: Path) -> None:
    big = sr.Table({"x": torch.zeros(100_000), "y": torch.arange(10**5)})
    table = sr.open(put_file(tmp_path / "a.safetensors", big))
    assert len(pickle.dumps(table["y"][:5])) < 2 * 10**6


def test_a_file_that_cannot_be_mapped() -> None:
    with pytest.raises(OSError, match="could not map 10 bytes"):
        memory_map.map_file(-1, 10, FileSource(__file__))


# --------------------------------------------------------------------------------------------------- other processes


def read_elsewhere(table: sr.Table, queue: Any) -> None:
    queue.put((table.tolist(), table[[2, 0]].tolist()))


@pytest.mark.parametrize(("method", "used"), [("fork", False), ("fork", True), ("spawn", True)])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_other_processes(method: str, used: bool, tmp_path: Path) -> None:
    table = sr.open(put(tmp_path, [TABLE[:2], TABLE[2:]]))
    if used:
        table.tolist()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=read_elsewhere, args=(table, queue))
    process.start()
    assert queue.get(timeout=60) == (TABLE.tolist(), TABLE[[2, 0]].tolist())
    process.join(60)
    assert process.exitcode == 0


def test_pickle_holds_the_path_and_no_values(tmp_path: Path) -> None:
    big = sr.Table({"x": torch.zeros(100_000)})
    table = sr.open(put_file(tmp_path / "a.safetensors", big))
    table.tolist()
    text = pickle.dumps(table)
    assert len(text) < 5000
    assert pickle.loads(text) == big


def test_a_path_of_here_is_kept_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a", [TABLE])
    monkeypatch.chdir(tmp_path)
    table = sr.open("a")
    monkeypatch.chdir("/")
    assert table == TABLE


# ------------------------------------------------------------------------------------------------------- read ahead


def drop(path: Path) -> None:
    """Out of memory with it."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


@pytest.mark.parametrize("columns", [None, ("word",), ("bool/0",), ("nothing",), ()])
@pytest.mark.parametrize("rows", [0, 1, 400])
def test_rows_that_are_not_in_memory(columns: tuple[str, ...] | None, rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(rows)
    block = blocks.block(rng, max(rows, 1) * 3, longest=6)
    path = tmp_path / "a.safetensors"
    path.write_bytes(content_of(block))
    source = FileSource(path)
    names = tuple(source.schema) if columns is None else columns
    picked = torch.from_numpy(rng.integers(0, source.rows, rows))
    drop(path)
    found, numbers = source.block_with(picked, names)
    assert numbers.tolist() == picked.tolist()
    if names:
        expected = gather.take([block], block.schema.select(names), gather.Pieces(None, picked))
        made = gather.take([found], found.schema.select(names), gather.Pieces(None, numbers))
        assert sr.Table._from_block(made).tolist() == sr.Table._from_block(expected).tolist()


def resident(source: FileSource) -> np.ndarray:
    """Which pages of the file are in memory."""
    size = source.header.tensors["values/y"].stop
    found = (ctypes.c_ubyte * (-(-size // 4096)))()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    view = source._open().scattered
    assert view is not None
    assert libc.mincore(view.address, size, found) == 0
    return np.frombuffer(found, np.uint8) & 1


def test_what_rows_need_is_asked_for_and_little_else(tmp_path: Path) -> None:
    count = 200_000
    lengths = [torch.full((count,), 4), torch.full((4 * count,), 5)]
    ragged = sr.from_lengths(torch.arange(20 * count), lengths)
    path = put_file(tmp_path / "a.safetensors", sr.Table({"x": torch.arange(count), "y": ragged}))
    source = FileSource(path)
    picked = torch.randperm(count)[:100]
    source.block_with(picked[:0], ("y",))
    drop(path)
    if resident(source).mean() > 0.1:
        pytest.skip("the file system keeps all files in memory")
    source.block_with(picked, ("y",))
    time.sleep(0.2)
    pages, span = resident(source), source.header.tensors["values/y"]
    for row in picked.tolist():
        first, last = (span.start + 160 * row) // 4096, (span.start + 160 * row + 159) // 4096
        assert pages[first : last + 1].all()
    assert pages.sum() < 800


def test_too_much_to_ask_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_most", lambda: 0)
    path = put_file(tmp_path / "a.safetensors", TABLE)
    source = FileSource(path)
    assert source.header.rows == 3
    drop(path)
    found, _ = source.block_with(torch.tensor([0, 2]), ("code",))
    assert sr.Table._from_block(found).tolist() == TABLE.tolist()


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_library", lambda: None)
    assert sr.open(put(tmp_path, [TABLE, TABLE]))[[5, 0]].tolist() == TABLE[[2, 0]].tolist()


@pytest.mark.parametrize("row", [-1, 3, 2**62])
def test_rows_that_are_not_there(row: int, tmp_path: Path) -> None:
    source = FileSource(put_file(tmp_path / "a.safetensors", TABLE))
    with pytest.raises(IndexError, match="numbers of rows must be from 0 to 2"):
        source.block_with(torch.tensor([0, row]), ("age",))
