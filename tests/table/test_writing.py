"""Saving: what is read back is what was saved, however it is cut; what was there before stays until it is replaced."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.table.comparing import check
from tests.table.strategies import Sample, samples
from tqdm import tqdm

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.schema import DTYPES, Column, Schema
from serrate.table.storage import progress, sharding
from serrate.table.storage.checking import verify
from serrate.table.storage.manifest import open_table, read_local_manifest
from serrate.table.storage.writing import save

COLUMNS: dict[str, Any] = {
    "age": [41, 63, 5, 80],
    "name": ["ann", None, "bo", "ann"],
    "time": [[0, 3, 9], [2], [], [7, 7]],
    "code": [[[7, 5], [], [300]], [[-5, 5, 9]], [], [[], [1]]],
    "lab": [[[0.5], [float("nan"), 1.5], []], [[]], [], [[2.5], [3.5]]],
}
LEVELS = {"time": "visits", "code": "visits.codes", "lab": "visits.labs"}


def table(columns: dict[str, Any] | None = None) -> sr.Table:
    return sr.Table(columns or COLUMNS, schema=LEVELS)


def shards(path: Path) -> list[Path]:
    return [path / shard.file for shard in read_local_manifest(path).shards]


def same(one: sr.Table, other: sr.Table) -> bool:
    return one.equals(other, equal_nan=True)


# ------------------------------------------------------------------------------------------------------- round trips


@given(samples(), st.integers(1, 4), st.sampled_from([None, True, False]), st.booleans())
def test_any_table_comes_back(sample: Sample, rows: int, narrow: bool | None, composed: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = sample.table()
        save(made, f"{folder}/a", rows_per_shard=rows, narrow=narrow, composed=composed)
        save(made, f"{folder}/a.safetensors", narrow=narrow, composed=composed)
        for path in (f"{folder}/a", f"{folder}/a.safetensors"):
            verify(path)
            back = open_table(path)
            check(back, sample.plain, sample.kinds)
            assert same(back, made), path
            assert list(back.keys()) == list(made.keys())


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype_comes_back(tmp_path: Path, name: str) -> None:
    values = torch.arange(6).to(DTYPES[name]).reshape(3, 2)
    made = sr.Table({"x": values, "y": values[:, :0], "one": values[:, 0]})
    save(made, tmp_path / "a", rows_per_shard=2, narrow=True)
    back = open_table(tmp_path / "a")
    assert back["x"].dtype == DTYPES[name]
    assert back["x"].tolist() == values.tolist()
    assert back["y"].shape == (3, 0)
    verify(tmp_path / "a")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 100])
def test_shards_have_the_rows_asked_for(tmp_path: Path, rows: int) -> None:
    save(table(), tmp_path / "a", rows_per_shard=rows)
    counts = [shard.rows for shard in read_local_manifest(tmp_path / "a").shards]
    assert counts == [min(rows, 4 - start) for start in range(0, 4, rows)]
    assert same(open_table(tmp_path / "a"), table())


def test_shards_are_cut_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "SHARD_BYTES", 10_000)
    lengths = [10, 0, 100, 5000, 3, 700, 700, 1, 0, 0, 900, 20]  # one row alone is larger than a shard
    made = sr.Table({"x": [list(range(n)) for n in lengths]})
    save(made, tmp_path / "a")
    found = read_local_manifest(tmp_path / "a").shards
    assert same(open_table(tmp_path / "a"), made)
    expected, size = [0], 0  # as many rows as fit, one at least
    for n in lengths:
        if expected[-1] and size + 8 * n + 4 > 10_000:
            expected.append(0)
            size = 0
        expected[-1] += 1
        size += 8 * n + 4
    assert [shard.rows for shard in found] == expected
    assert sum(shard.bytes for shard in found) < 8 * sum(lengths) + 1000 * len(found)


def test_default_shards_hold_256_megabytes() -> None:
    assert sharding.SHARD_BYTES == 2**28


def test_narrow_shards_are_cut_by_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "SHARD_BYTES", 1000)
    made = sr.Table({"x": list(range(200)) * 20})
    save(made, tmp_path / "a", narrow=True)
    assert [shard.rows for shard in read_local_manifest(tmp_path / "a").shards] == [1000] * 4


@pytest.mark.parametrize("columns", [{"x": []}, {"x": torch.zeros(0, 3)}, {"x": sr.ragged([[]])[:0]}])
def test_no_rows(tmp_path: Path, columns: dict[str, Any]) -> None:
    made = sr.Table(columns)
    save(made, tmp_path / "a")
    save(made, tmp_path / "a.safetensors")
    for path in (tmp_path / "a", tmp_path / "a.safetensors"):
        back = open_table(path)
        assert len(back) == 0
        assert same(back, made)
        verify(path)


def test_no_sources(tmp_path: Path) -> None:
    made = sr.Table._of(table().schema, ())
    for name in ("a", "a.safetensors"):
        save(made, tmp_path / name)
        assert same(open_table(tmp_path / name), table()[:0])


@pytest.mark.parametrize("key", [3, (0, 1), (0, 0, 1)])
def test_what_has_no_rows_is_one_file(tmp_path: Path, key: Any) -> None:
    made = table().select(["age", "name", "time", "code"])[key]
    for name in ("a", "a.safetensors"):
        save(made, tmp_path / name)
        assert same(open_table(tmp_path / name), made)
        verify(tmp_path / name)


def test_several_sources_are_cut_anew(tmp_path: Path) -> None:
    """Sources that differ in vocabulary, stored types and masks."""
    first = table()
    second = table({**COLUMNS, "name": ["zoe", "bo", "cy", None], "age": [1000, 2, 3, 4]})
    save(first, tmp_path / "one", narrow=True)
    save(second, tmp_path / "two", rows_per_shard=3)
    one, two = open_table(tmp_path / "one"), open_table(tmp_path / "two")
    both = sr.Table._of(second.schema, (*one.sources, *two.sources))
    save(both, tmp_path / "both", rows_per_shard=3)
    save(both, tmp_path / "both.safetensors")
    save(both, tmp_path / "narrow", rows_per_shard=5, narrow=True)
    for name in ("both", "both.safetensors", "narrow"):
        back = open_table(tmp_path / name)
        verify(tmp_path / name)
        assert back["name"].shape == (8,)
        assert back.tolist()["name"] == COLUMNS["name"] + ["zoe", "bo", "cy", None]
        assert back.tolist()["age"] == COLUMNS["age"] + [1000, 2, 3, 4]
        assert back.tolist()["code"] == COLUMNS["code"] * 2
        np.testing.assert_array_equal(back["lab"].values, np.concatenate([first["lab"].values, second["lab"].values]))


def test_a_selection_and_a_renaming_are_saved_as_seen(tmp_path: Path) -> None:
    save(table(), tmp_path / "a", rows_per_shard=2)
    made = open_table(tmp_path / "a").select(["code", "age"]).rename({"code": "a/b é"})
    save(made, tmp_path / "b")
    back = open_table(tmp_path / "b")
    assert back.levels == ("rows", "visits", "visits.codes")
    assert back.tolist() == {"a/b é": COLUMNS["code"], "age": COLUMNS["age"]}


def test_a_large_vocabulary_is_not_written_into_every_shard(tmp_path: Path) -> None:
    words = [f"word {n}" for n in range(3000)]
    made = sr.Table({"word": words, "again": [None if n % 7 == 0 else "ab"[n % 2] for n in range(3000)]})
    save(made, tmp_path / "a", rows_per_shard=100)
    assert sum(path.stat().st_size for path in shards(tmp_path / "a")) < 10 * 3000 * 10
    back = open_table(tmp_path / "a")
    assert back.tolist()["word"] == words
    assert same(back, made)
    assert set(open_table(shards(tmp_path / "a")[7]).vocabulary("word")) == set(words[700:800])


def test_missing_strings_stay_0_when_a_vocabulary_shrinks(tmp_path: Path) -> None:
    made = sr.Table({"word": ["a", "b", "c", "d", None, "d", None, "e"]})
    save(made, tmp_path / "a", rows_per_shard=2)
    verify(tmp_path / "a")
    assert open_table(tmp_path / "a").tolist() == made.tolist()


# ------------------------------------------------------------------------------------------------------------ narrow


def test_narrow_is_decided_for_all_shards_together(tmp_path: Path) -> None:
    made = sr.Table({"x": [1, 2, 3, 70_000], "y": [1, 2, 3, -4], "flag": [True, False, True, True]})
    save(made, tmp_path / "a", rows_per_shard=1, narrow=True)
    back = open_table(tmp_path / "a")
    for schema in (back.schema, *(source.schema for source in back.sources)):
        assert (schema["x"].stored, schema["y"].stored, schema["flag"].stored) == (torch.uint32, torch.int8, torch.bool)
        assert schema["x"].dtype == torch.int64
    assert same(back, made)


def test_narrow_leaves_times_and_types_of_the_same_size(tmp_path: Path) -> None:
    made = sr.Table(
        {
            "when": np.array(["1970-01-02", "1970-01-01"], "datetime64[s]"),
            "small": torch.tensor([1, 100], dtype=torch.int8),
            "large": torch.tensor([0, 2**64 - 1], dtype=torch.uint64),
            "wide": torch.tensor([-1, 200], dtype=torch.int32),
            "real": torch.tensor([1.0, 2.0]),
        }
    )
    save(made, tmp_path / "a", narrow=True)
    stored = {name: column.stored for name, column in open_table(tmp_path / "a").schema.items()}
    assert stored == {
        "when": torch.int64, "small": torch.int8, "large": torch.uint64, "wide": torch.int16, "real": torch.float32
    }  # fmt: skip
    assert same(open_table(tmp_path / "a"), made)


def test_narrow_false_undoes_it_and_none_keeps_it(tmp_path: Path) -> None:
    save(table(), tmp_path / "a", narrow=True)
    narrow = open_table(tmp_path / "a")
    assert narrow.schema["age"].stored == torch.uint8
    save(narrow, tmp_path / "kept")
    save(narrow, tmp_path / "wide", narrow=False)
    assert open_table(tmp_path / "kept").schema["age"].stored == torch.uint8
    assert open_table(tmp_path / "wide").schema["age"].stored == torch.int64
    assert same(open_table(tmp_path / "wide"), table())


# ----------------------------------------------------------------------------------------------- what is there before


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    for name in ("a", "a.safetensors"):
        save(table(), tmp_path / name)
        before = sorted(os.listdir(tmp_path / "a"))
        with pytest.raises(FileExistsError, match=r"overwrite=True"):
            save(table()[:1], tmp_path / name)
        assert same(open_table(tmp_path / name), table())
        assert sorted(os.listdir(tmp_path / "a")) == before


def test_overwriting_removes_the_old_shards_and_counts_generations(tmp_path: Path) -> None:
    save(table(), tmp_path / "a", rows_per_shard=1)
    (tmp_path / "a" / "README.md").write_text("mine")
    old = shards(tmp_path / "a")
    assert read_local_manifest(tmp_path / "a").generation == 1
    save(table()[:2], tmp_path / "a", overwrite=True)
    assert read_local_manifest(tmp_path / "a").generation == 2
    assert not any(path.exists() for path in old)
    assert sorted(os.listdir(tmp_path / "a")) == sorted(["README.md", "manifest.json", shards(tmp_path / "a")[0].name])


@pytest.mark.parametrize("name", ["a", "a.safetensors"])
def test_saving_onto_the_files_that_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save(table(), path)
    for _ in range(3):
        opened = open_table(path)
        save(opened, path, overwrite=True, **({"rows_per_shard": 3} if name == "a" else {}))
    assert same(open_table(path), table())
    with pytest.raises(TableFormatError, match="open the table again"):
        opened["age"]
    half = open_table(path).select(["age"])
    save(half, path, overwrite=True)
    assert open_table(path).tolist() == {"age": COLUMNS["age"]}


def test_a_damaged_dataset_can_be_overwritten(tmp_path: Path) -> None:
    save(table(), tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text("{")
    with pytest.raises(FileExistsError):
        save(table(), tmp_path / "a")
    save(table(), tmp_path / "a", overwrite=True)
    assert same(open_table(tmp_path / "a"), table())


def test_a_manifest_cannot_make_us_delete_other_files(tmp_path: Path) -> None:
    save(table(), tmp_path / "a")
    (tmp_path / "a" / "precious.txt").write_text("mine")
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["file"] = "precious.txt"
    path.write_text(json.dumps(manifest))
    save(table(), tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "precious.txt").read_text() == "mine"


def test_a_damaged_source_is_not_copied(tmp_path: Path) -> None:
    save(table(), tmp_path / "a")
    (shard,) = shards(tmp_path / "a")
    opened = open_table(tmp_path / "a")
    span = opened.sources[0].header.tensors["offsets/visits"]  # type: ignore[attr-defined]
    held = shard.read_bytes()
    content = bytearray(held)
    content[span.start + 4 : span.start + 8] = (99).to_bytes(4, "little")
    shard.write_bytes(content)
    for name in ("b", "b.safetensors"):
        with pytest.raises(TableFormatError, match="visits"):
            save(open_table(tmp_path / "a"), tmp_path / name)
    shard.write_bytes(held)
    span = opened.sources[0].header.tensors["values/name"]  # type: ignore[attr-defined]
    content = bytearray(held)
    content[span.start : span.start + 4] = (99).to_bytes(4, "little")
    shard.write_bytes(content)
    for name in ("b", "b.safetensors"):
        with pytest.raises(TableFormatError, match="vocabulary"):
            save(open_table(tmp_path / "a"), tmp_path / name)
    assert not (tmp_path / "b.safetensors").exists()
    assert not (tmp_path / "b" / "manifest.json").exists()


# -------------------------------------------------------------------------------------------------------------- paths


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(table(), tmp_path / "deep" / "er" / "a")
    save(table(), str(tmp_path / "deep" / "two" / "a.safetensors"))
    save(table(), f"file://{tmp_path}/url")
    monkeypatch.chdir(tmp_path)
    save(table(), "here")
    save(table(), "here.safetensors")
    for name in ("deep/er/a", "deep/two/a.safetensors", "url", "here", "here.safetensors"):
        assert same(open_table(tmp_path / name), table())
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_wrong_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(NotADirectoryError, match="is a file"):
        save(table(), tmp_path / "file", overwrite=True)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(table(), tmp_path / "folder.safetensors", overwrite=True)
    with pytest.raises(NotADirectoryError):
        save(table(), tmp_path / "file" / "a")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(TypeError):
        save(table(), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, "3"])
def test_wrong_rows_per_shard(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(ValueError, match="rows_per_shard"):
        save(table(), tmp_path / "a", rows_per_shard=rows)
    assert not (tmp_path / "a").exists()


def test_rows_per_shard_of_numpy(tmp_path: Path) -> None:
    save(table(), tmp_path / "a", rows_per_shard=np.int64(3))  # type: ignore[arg-type]
    assert len(shards(tmp_path / "a")) == 2


def test_rows_per_shard_is_not_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one file"):
        save(table(), tmp_path / "a.safetensors", rows_per_shard=2)


def test_a_store_elsewhere(tmp_path: Path) -> None:
    url = "memory://test_writing/a"
    save(table(), url, rows_per_shard=2)
    verify(url)
    assert same(open_table(url), table())
    with pytest.raises(FileExistsError):
        save(table(), url)
    save(table()[::-1], url, overwrite=True)
    assert same(open_table(url), table()[::-1])
    save(table(), "memory://test_writing/a.safetensors")
    assert same(open_table("memory://test_writing/a.safetensors"), table())
    import fsspec

    assert len(fsspec.filesystem("memory").ls("/test_writing/a")) == 2


# ----------------------------------------------------------------------------------------------------------- the rest


def test_save_is_a_method(tmp_path: Path) -> None:
    table().save(tmp_path / "a", rows_per_shard=2, narrow=True)
    assert same(sr.open(tmp_path / "a"), table())
    sr.open(tmp_path / "a").verify()


def test_files_are_readable_by_others_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save(table(), tmp_path / "a")
    finally:
        os.umask(before)
    for path in (tmp_path / "a").iterdir():
        assert path.stat().st_mode & 0o777 == 0o644, path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_after_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = {}
    for delay, kind in ((0.0, Terminal), (60.0, Terminal), (0.0, io.StringIO)):
        stream = kind()
        monkeypatch.setattr(progress, "DELAY", delay)
        monkeypatch.setattr(sys, "stderr", stream)
        save(table(), tmp_path / "a", rows_per_shard=1, overwrite=True)
        verify(tmp_path / "a")
        shown[delay, kind] = stream.getvalue()
    assert "saving" in shown[0.0, Terminal]
    assert "verifying" in shown[0.0, Terminal]
    assert re.search(r"\d/4", shown[0.0, Terminal])
    assert shown[60.0, Terminal] == shown[0.0, io.StringIO] == ""


def test_a_bar_does_not_wait_for_the_lock_that_tqdm_shares_with_forked_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with tqdm.get_lock():
            held.set()
            done.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress("saving", 2) as step:
        step(1)
    assert holder.is_alive()
    done.set()
    holder.join()


def test_levels_without_columns_are_kept(tmp_path: Path) -> None:
    schema = Schema(("rows", "visits", "visits.codes"), {"code": Column("visits.codes", torch.int64)})
    made = sr.Table({"code": COLUMNS["code"]}, schema=schema)
    save(made, tmp_path / "a", rows_per_shard=2)
    assert open_table(tmp_path / "a").levels == schema.levels
    assert same(open_table(tmp_path / "a"), made)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("text", ['{"app": "mine"}', "[]", "3"])
def test_the_manifest_of_something_else_stays(tmp_path: Path, overwrite: bool, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    table = sr.Table({"a": [1, 2]})
    with pytest.raises(FileExistsError, match="is not the manifest of a table"):
        table.save(tmp_path, overwrite=overwrite)
    with pytest.raises(FileExistsError, match="is not the manifest of a table"):
        sr.TableWriter(tmp_path, overwrite=overwrite)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"manifest.json": text}
