"""Repairing: what interrupted writes left behind goes, everything else stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.folders import LocalFolder
from serrate.table.storage.manifest import open_table
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save

DEAD = "0123456789abcdef"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    save(sr.Table({"x": [1, 2, 3]}), tmp_path / "a", rows_per_shard=2)
    return tmp_path / "a"


def files(path: Path) -> set[str]:
    return set(os.listdir(path))


def leave(path: Path, *names: str) -> None:
    path.mkdir(exist_ok=True)
    for name in names:
        (path / name).write_bytes(b"left over")


def test_leftovers_go_and_the_rest_stays(dataset: Path) -> None:
    mine = [
        "README.md",
        "x.safetensors",
        ".hidden",
        ".serrate-short.tmp",
        f"{DEAD}-1.safetensors",
        "a.tmp",
        "part.json",
    ]
    leave(dataset, *mine)
    (dataset / f"{DEAD}-99999.safetensors.d").mkdir()
    before = files(dataset)
    left = {f".serrate-{DEAD}.tmp", f".serrate-{DEAD}.lock", f"{DEAD}-00000.safetensors", f"{DEAD}-00001.safetensors"}
    leave(dataset, *left)
    assert set(repair(dataset, dry_run=True)) == left
    assert files(dataset) == before | left
    assert set(repair(dataset)) == left
    assert files(dataset) == before
    assert repair(dataset) == []
    verify(dataset)


def test_those_at_work_are_left_alone(dataset: Path) -> None:
    before = files(dataset)
    with TableWriter(dataset, append=True, rows_per_shard=1) as writer:
        writer.write({"x": [4, 5]})
        with LocalFolder(dataset).writing("other") as stream:
            stream.write(b"half")
            assert len(files(dataset)) == len(before) + 4
            assert repair(dataset, parts=True) == []
    assert open_table(dataset)["x"].tolist() == [1, 2, 3, 4, 5]


def test_finished_parts_wait_for_their_commit(dataset: Path) -> None:
    before = files(dataset)
    with TableWriter.part(dataset) as writer:
        writer.write({"x": [4]})
    assert repair(dataset) == []
    assert len(files(dataset)) == len(before) + 2
    commit(dataset, append=True)
    with TableWriter.part(dataset) as writer:
        writer.write({"x": [5]})
    assert len(repair(dataset, parts=True)) == 2
    assert open_table(dataset)["x"].tolist() == [1, 2, 3, 4]
    assert repair(dataset) == []


def test_without_a_manifest_only_what_a_writer_left_goes(tmp_path: Path) -> None:
    """A manifest that was lost does not turn shards into leftovers."""
    other = "f" * 16
    leave(tmp_path / "a", f".serrate-{DEAD}.lock", f"{DEAD}-00000.safetensors", f"{other}-00000.safetensors")
    assert set(repair(tmp_path / "a")) == {f".serrate-{DEAD}.lock", f"{DEAD}-00000.safetensors"}
    assert files(tmp_path / "a") == {f"{other}-00000.safetensors"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "serrate.table", "version": "2"}'])
def test_nothing_goes_if_the_manifest_cannot_be_read(dataset: Path, text: str) -> None:
    leave(dataset, f"{DEAD}-00000.safetensors", f".serrate-{DEAD}.lock")
    (dataset / "manifest.json").write_text(text)
    before = files(dataset)
    with pytest.raises(TableFormatError, match=r"manifest\.json"):
        repair(dataset)
    assert files(dataset) == before


def test_nothing_goes_if_a_part_cannot_be_read(dataset: Path) -> None:
    leave(dataset, f"{DEAD}-00000.safetensors", f"part-{DEAD}.json")
    before = files(dataset)
    with pytest.raises(TableFormatError, match=f"part-{DEAD}"):
        repair(dataset)
    assert files(dataset) == before


def test_a_shard_that_the_manifest_names_stays_even_if_its_writer_left_a_claim(dataset: Path) -> None:
    shard = json.loads((dataset / "manifest.json").read_text())["shards"][0]["file"]
    leave(dataset, f".serrate-{shard[:16]}.lock")
    assert repair(dataset) == [f".serrate-{shard[:16]}.lock"]
    verify(dataset)


def test_next_to_a_single_file(tmp_path: Path) -> None:
    save(sr.Table({"x": [1]}), tmp_path / "a.safetensors")
    leave(tmp_path, f".serrate-{DEAD}.tmp", "mine.tmp", f"{DEAD}-00000.safetensors")
    assert repair(tmp_path / "a.safetensors") == [f".serrate-{DEAD}.tmp"]
    assert files(tmp_path) == {"a.safetensors", "mine.tmp", f"{DEAD}-00000.safetensors"}


def test_elsewhere() -> None:
    import fsspec

    url = "memory://test_repair/a"
    save(sr.Table({"x": [1]}), url)
    fsspec.filesystem("memory").pipe_file(f"/test_repair/a/{DEAD}-00000.safetensors", b"left over")
    assert repair(url) == [f"{DEAD}-00000.safetensors"]
    assert repair(url) == []
    verify(url)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        repair(tmp_path / "no")
    assert repair(tmp_path) == []
