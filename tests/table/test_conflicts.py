"""Two who change one dataset: who began later finds out, and nothing of the other one is lost."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.table.batches import files

import serrate as sr
from serrate.errors import ConflictError
from serrate.table.storage.checking import repair
from serrate.table.storage.committing import commit
from serrate.table.storage.manifest import open_table
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save


def _grow(path: Path | str) -> None:
    with TableWriter(path, append=True) as writer:
        writer.write({"x": [9]})


@pytest.mark.parametrize("place", ["a", "link", "../a", "memory"])
def test_a_table_that_grew_since_it_was_opened_is_not_replaced_by_itself(tmp_path: Path, place: str) -> None:
    path: Any = "memory://test_writer/a" if place == "memory" else tmp_path / "a"
    save(sr.Table({"x": [1, 2]}), path, overwrite=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "b").mkdir()
    other: Any = path if place == "memory" else tmp_path / "b" / place if place.startswith("..") else tmp_path / place
    made: list[Any] = [
        lambda t: t, lambda t: t.select(["x"]), lambda t: t.rename({"x": "y"}).rename({"y": "x"}), lambda t: t[:1],
        lambda t: t.filter([True, False]), lambda t: sr.Table.concat([sr.Table({"x": [0]}), t]),
        lambda t: t.sort_by("x"), lambda t: t[0].unsqueeze(), lambda t: t.with_column("x", [3, 4]),
        lambda t: t.map(lambda held: {"x": held["x"] + 1}), lambda t: t[[1]].drop([]),
        lambda t: t.rename({"x": "y"})[:1].rename({"y": "x"}),
        lambda t: pickle.loads(pickle.dumps(t[[1, 0]])), lambda t: copy.deepcopy(t[[1, 0]]), copy.deepcopy,
    ]  # fmt: skip
    old = open_table(other)
    tables = [make(old) for make in made]
    _grow(path)
    for table_ in tables:
        with pytest.raises(ConflictError, match=r"1 rows that were not there when .* opened.*open the dataset again"):
            save(table_, path, overwrite=True)
        writer = TableWriter(path, overwrite=True)
        writer.write({"x": [5]})
        writer.write(table_)
        with pytest.raises(ConflictError, match="1 rows that were not there"):
            writer.close()
    save(tables[3], tmp_path / "elsewhere", overwrite=True)  # which is another place
    assert open_table(path)["x"].tolist() == [1, 2, 9]
    assert repair(path) == []
    save(open_table(path), path, overwrite=True, rows_per_shard=100)
    assert open_table(path)["x"].tolist() == [1, 2, 9]
    assert len(open_table(path).sources) == 1


def test_a_table_may_replace_what_it_replaced_before(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(sr.Table({"x": [3, 1, 2]}), path)
    some = open_table(path).filter([True, False, True])
    save(some, path, overwrite=True)
    save(some, path, overwrite=True)
    save(some.sort_by("x"), path, overwrite=True)
    save(some[:1], path, overwrite=True)
    save(some.sort_by("x"), path, overwrite=True)
    assert open_table(path)["x"].tolist() == [2, 3]
    _grow(path)
    with pytest.raises(ConflictError, match="1 rows that were not there"):
        save(some, path, overwrite=True)
    fresh = sr.Table({"x": [7]})  # which has nothing to do with it
    for _ in range(2):
        save(fresh, path, overwrite=True)
        _grow(path)
    assert open_table(path)["x"].tolist() == [7, 9]


def test_a_dataset_that_changed_since_a_writer_began_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(sr.Table({"x": [1]}), path)
    for change in (_grow, lambda path: save(sr.Table({"x": [3]}), path, overwrite=True)):
        writer = TableWriter(path, overwrite=True)
        writer.write({"x": [5]})
        change(path)
        held = open_table(path)["x"].tolist()
        with pytest.raises(ConflictError, match=r"generation \d+ when the writing began, and is generation \d+ now"):
            writer.close()
        assert open_table(path)["x"].tolist() == held
        assert repair(path) == []
    writer = TableWriter(tmp_path / "new", overwrite=True)
    writer.write({"x": [5]})
    save(sr.Table({"x": [3]}), tmp_path / "new")
    with pytest.raises(ConflictError, match="it was not there when the writing began, and is generation 1 now"):
        writer.close()
    assert open_table(tmp_path / "new")["x"].tolist() == [3]


def test_a_dataset_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    """Of the same generation, as many rows and bytes."""
    path = tmp_path / "a"
    save(sr.Table({"x": [1]}), path)
    writer = TableWriter(path, overwrite=True)
    writer.write({"x": [5]})
    for name in os.listdir(path):
        if not name.startswith(writer._shards.writer) and not name.startswith("."):
            os.unlink(path / name)
    save(sr.Table({"x": [3]}), path)
    with pytest.raises(ConflictError, match="generation 1 now"):
        writer.close()
    assert open_table(path)["x"].tolist() == [3]


def test_parts_do_not_replace_what_they_did_not_know_of(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(sr.Table({"x": [1]}), path)
    with TableWriter.part(path) as writer:
        writer.write({"x": [2]})
    _grow(path)
    with pytest.raises(ConflictError, match=r"generation 1 when part-.* was begun, and has 2 now.*append=True"):
        commit(path, overwrite=True)
    commit(path, append=True)
    assert open_table(path)["x"].tolist() == [1, 9, 2]
    with TableWriter.part(path) as writer:
        writer.write({"x": [3]})
    (part,) = (path / name for name in files(path) if name.startswith("part-"))
    told = json.loads(part.read_text())
    assert told.pop("generation") == 3
    part.write_text(json.dumps(told))  # as earlier versions wrote them
    _grow(path)
    commit(path, overwrite=True)
    assert open_table(path)["x"].tolist() == [3]
