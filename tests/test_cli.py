"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nested_ragged_tensors.ragged_numpy import JointNestedRaggedTensorDict

import serrate as sr
from serrate.cli import main

COLUMNS: dict[str, Any] = {"age": [41, 63, 5], "time": [[0, 3, 9], [2], []]}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    sr.Table(COLUMNS, schema={"time": "visits"}).save(tmp_path / "a", rows_per_shard=2, narrow=True)
    return tmp_path / "a"


def run(*words: object) -> int:
    return main(["table", *map(str, words)])


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors"))


def test_info(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", dataset) == 0
    found = capsys.readouterr().out
    for words in ("3 rows", "visits", "age int64", "stored narrowly: age as uint8", "2 shards of ", "generation 1"):
        assert words in found
    assert run("info", shards(dataset)[0]) == 0
    assert "one file of version 1" in capsys.readouterr().out


def test_verify(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", dataset) == 0
    size = sum(path.stat().st_size for path in shards(dataset))
    assert capsys.readouterr().out == f"3 rows in 2 files of {size} bytes, all as they were written\n"
    assert run("verify", shards(dataset)[0]) == 0
    assert "1 file of" in capsys.readouterr().out
    broken = shards(dataset)[1]
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    assert run("verify", dataset) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert f"serrate: {broken}: the manifest says that the checksum is" in found.err


def test_repair(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = dataset / ".serrate-0123456789abcdef.tmp"
    left.write_text("half")
    assert run("repair", dataset, "--dry-run") == 0
    assert capsys.readouterr().out == f"{left.name}\n1 file would be deleted\n"
    assert left.exists()
    assert run("repair", dataset) == 0
    assert capsys.readouterr().out == f"{left.name}\n1 file deleted\n"
    assert not left.exists()
    with sr.TableWriter.part(dataset) as writer:
        writer.write(COLUMNS)
    assert run("repair", dataset) == 0
    assert capsys.readouterr().out == "0 files deleted\n"
    assert run("repair", dataset, "--parts") == 0
    assert "2 files deleted\n" in capsys.readouterr().out
    assert run("verify", dataset) == 0


@pytest.mark.parametrize("names", [("b.parquet", "b"), ("b.nrt", "b.safetensors"), ("b.safetensors", "b"), ("b", "c")])
def test_there_and_back(dataset: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    there, back = (tmp_path / name for name in names)
    assert run("convert", dataset, there) == 0
    level = "level1" if there.suffix == ".nrt" else "visits"
    assert run("convert", there, back) == 0
    assert sr.open(back) == sr.Table(COLUMNS, schema={"time": level})


def test_others_read_what_is_written(dataset: Path, tmp_path: Path) -> None:
    assert run("convert", dataset, tmp_path / "b.nrt") == 0
    assert run("convert", dataset, tmp_path / "b.parquet", "--column", "age") == 0
    theirs = JointNestedRaggedTensorDict(tensors_fp=tmp_path / "b.nrt")
    assert theirs.tensors["dim0/age"].tolist() == COLUMNS["age"]
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == {"age": COLUMNS["age"]}


def test_levels_of_what_others_wrote(tmp_path: Path) -> None:
    pq.write_table(pa.table({**COLUMNS, "dose": [[1.5], [], [2.5, 3.5]]}), tmp_path / "b.parquet")
    levels = ["--level", "time=visits", "--level", "dose=drugs"]
    for target in ("b", "b.safetensors"):
        assert run("convert", tmp_path / "b.parquet", tmp_path / target, *levels) == 0
        assert sr.open(tmp_path / target).levels == ("rows", "visits", "drugs")
        assert sr.open(tmp_path / target)["dose"].tolist() == [[1.5], [], [2.5, 3.5]]


def test_options(dataset: Path, tmp_path: Path) -> None:
    target = tmp_path / "b"
    assert run("convert", dataset, target, "--rows-per-shard", 1, "--column", "age") == 0
    assert len(shards(target)) == 3
    assert list(sr.open(target).keys()) == ["age"]
    sr.Table(COLUMNS).save(tmp_path / "wide")
    assert run("convert", tmp_path / "wide", target, "--overwrite", "--narrow") == 0
    assert sr.open(target).schema["age"].stored == sr.uint8
    assert run("convert", dataset, tmp_path / "one.parquet") == 0
    assert run("convert", tmp_path / "one.parquet", tmp_path / "one.parquet", target, "--overwrite") == 0
    assert sr.open(target)["age"].tolist() == COLUMNS["age"] * 2
    (tmp_path / "folder").mkdir()
    os.rename(tmp_path / "one.parquet", tmp_path / "folder" / "one.parquet")
    assert run("convert", tmp_path / "folder", tmp_path / "c.safetensors") == 0
    assert sr.open(tmp_path / "c.safetensors")["age"].tolist() == COLUMNS["age"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "{0}/no"], "no"),
        (["verify", "{0}/no"], "nothing at"),
        (["repair", "{0}/no"], "nothing at"),
        (["info", "{0}"], "no manifest.json"),
        (["convert", "{0}/a", "{0}/a"], "overwrite"),
        (["convert", "{0}/a", "{0}/there.nrt"], "--overwrite replaces it"),
        (["convert", "{0}/a", "{0}/b.nrt", "--narrow"], "--narrow"),
        (["convert", "{0}/a", "{0}/b", "--column", "nope"], "nope"),
        (["convert", "{0}/a", "{0}/a", "{0}/b"], "several"),
        (["convert", "{0}/a", "{0}/b", "--level", "x"], "LISTS=LEVEL"),
        (["convert", "{0}/a", "{0}/b", "--level", "x=y"], "Parquet"),
        (["convert", "{0}/a", "{0}/b", "--rows-per-shard", "0"], "positive"),
        (["convert", "{0}/there.nrt", "{0}/b"], "there.nrt"),
    ],
)
def test_what_goes_wrong_is_said(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "there.nrt").write_text("mine")
    assert run(*(word.format(tmp_path) for word in words)) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("serrate: ")
    assert message in found.err
    assert (tmp_path / "there.nrt").read_text() == "mine"
    assert not (tmp_path / "b").exists() or os.listdir(tmp_path / "b") == []


@pytest.mark.parametrize("words", [[], ["table"], ["table", "info"], ["table", "nope"], ["tables"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: serrate" in capsys.readouterr().err


def test_as_a_module(dataset: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "serrate.cli", "table", "verify", str(dataset)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("3 rows in 2 files")
    assert done.stderr == ""
