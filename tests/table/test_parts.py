"""Parts: several processes write shards, and one commits them as one dataset."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.table.batches import TYPES, batch, files, joined

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.schema import Column, Schema
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.folders import LocalFolder
from serrate.table.storage.manifest import open_table, read_local_manifest
from serrate.table.storage.parts import read_parts
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save


def _write_part(path: str, rank: int, start: Any) -> None:
    start.wait()
    with TableWriter.part(path, TYPES, order=rank, rows_per_shard=3, narrow=rank % 2 == 0) as writer:
        for n in range(rank):
            writer.write(batch(100 * rank + 7 * n, 7))


def test_processes_write_parts(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    workers = [context.Process(target=_write_part, args=(str(tmp_path / "a"), n, start)) for n in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with pytest.raises(FileNotFoundError):
        open_table(tmp_path / "a")
    assert repair(tmp_path / "a") == []
    commit(tmp_path / "a", parts=4)
    verify(tmp_path / "a")
    expected = [batch(100 * rank + 7 * n, 7) for rank in range(4) for n in range(rank)]
    back = open_table(tmp_path / "a")
    assert back.tolist() == joined(*expected)
    assert len(files(tmp_path / "a")) == 1 + len(back.sources) == 1 + 3 + 5 + 7
    assert len({source.schema["code"].stored for source in back.sources}) > 1
    assert repair(tmp_path / "a") == []


def test_parts_without_order_come_as_they_were_started(tmp_path: Path) -> None:
    writers = [TableWriter.part(tmp_path / "a") for _ in range(5)]
    for n in (3, 1, 4, 0, 2):
        writers[n].write({"x": [n]})
        writers[n].close()
    late = TableWriter.part(tmp_path / "a", order=7)
    late.write({"x": [7]})
    late.close()
    commit(tmp_path / "a")
    assert open_table(tmp_path / "a")["x"].tolist() == [7, 0, 1, 2, 3, 4]


def test_commit_appends_overwrites_or_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(sr.Table({"x": [0]}), path)
    with TableWriter.part(path) as writer:
        writer.write({"x": [1]})
    with pytest.raises(FileExistsError):
        commit(path)
    commit(path, append=True)
    assert open_table(path)["x"].tolist() == [0, 1]
    with TableWriter.part(path) as writer:
        writer.write({"x": [2]})
    commit(path, overwrite=True)
    assert open_table(path)["x"].tolist() == [2]
    assert len(files(path)) == 2


def test_commit_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError, match="no parts"):
        commit(path)
    save(sr.Table({"x": [0]}), path)
    with pytest.raises(FileNotFoundError, match="no parts"):
        commit(path, append=True)
    for _ in range(2):
        with TableWriter.part(path, order=1) as writer:
            writer.write({"x": [1]})
    with pytest.raises(ValueError, match="3 parts were expected"):
        commit(path, append=True, parts=3)
    with pytest.raises(ValueError, match="order 1"):
        commit(path, append=True)
    assert len(repair(path, parts=True)) == 4
    with TableWriter.part(path) as writer:
        writer.write({"y": [1]})
    with pytest.raises(KeyError, match="'x'"):
        commit(path, append=True)
    with TableWriter.part(path) as writer:
        writer.write({"x": [1]})
    with pytest.raises(KeyError, match="part-"):
        commit(path, overwrite=True)
    part = next(name for name in files(path) if name.startswith("part-"))
    (path / part).write_text("{}")
    with pytest.raises(TableFormatError, match=part):
        commit(path, append=True)
    assert open_table(path)["x"].tolist() == [0]


def test_parts_without_rows(tmp_path: Path) -> None:
    for _ in range(2):
        TableWriter.part(tmp_path / "a").close()
    with pytest.raises(ValueError, match="nothing to commit"):
        commit(tmp_path / "a")
    schema = Schema(("rows",), {"x": Column("rows", torch.int64)})
    TableWriter.part(tmp_path / "a", schema).close()
    TableWriter.part(tmp_path / "a", schema).close()
    commit(tmp_path / "a", parts=4)
    assert len(open_table(tmp_path / "a")) == 0
    assert len(read_local_manifest(tmp_path / "a").shards) == 1
    with TableWriter.part(tmp_path / "a") as writer:
        writer.write({"x": [1]})
    TableWriter.part(tmp_path / "a", schema).close()
    commit(tmp_path / "a", append=True)
    assert open_table(tmp_path / "a")["x"].tolist() == [1]


def test_a_commit_that_was_interrupted_does_not_count_twice(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TableWriter.part(path) as writer:
        writer.write({"x": [1]})
    (part,) = read_parts(LocalFolder(path))
    text = (path / part.file).read_text()
    commit(path)
    (path / part.file).write_text(text)  # as if the commit had ended right after the manifest
    with pytest.raises(FileNotFoundError, match="no parts"):
        commit(path, append=True)
    (path / part.file).write_text(text)
    assert repair(path) == [part.file]
    assert open_table(path)["x"].tolist() == [1]


def test_a_part_whose_shards_are_gone(tmp_path: Path) -> None:
    """As an interrupted commit and a replaced dataset left it, in versions before."""
    path = tmp_path / "a"
    for count in (1, 2):
        with TableWriter.part(path, rows_per_shard=1) as writer:
            writer.write({"x": [1, 2]})
        shards = sorted(name for name in files(path) if name.endswith(".safetensors"))
        for name in shards[:count]:
            (path / name).unlink()
        with pytest.raises(TableFormatError, match=rf"part-.*names the shard {shards[0]}, which is not there.*repair"):
            commit(path, append=True)
        assert not (path / "manifest.json").exists()
        left = repair(path)
        assert bool(left) == (count == 2)  # whoever has a shard may have rows that are nowhere else
        repair(path, parts=True)
        assert files(path) == set()
    save(sr.Table({"x": [7]}), path)
    with pytest.raises(FileNotFoundError, match="no parts"):
        commit(path, append=True)
