"""Verifying: a change of any byte is noticed, and said to be where it is."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.storage.checking import faults, verify
from serrate.table.storage.header import Header
from serrate.table.storage.manifest import open_table
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save

COLUMNS: dict[str, Any] = {
    "age": [41, 63, 5, 80],
    "name": ["ann", None, "bo", "ann"],
    "flag": [True, False, None, True],
    "dose": [0.5, None, 1.5, 2.5],
    "time": [[0, 3, 9], [2], [], [7, 7]],
    "code": [[[7, 5], [], [300]], [[-5, 5, 9]], [], [[], [1]]],
}


def table() -> sr.Table:
    return sr.Table(COLUMNS, schema={"time": "visits", "code": "visits.codes"})


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    save(table(), tmp_path / "a", rows_per_shard=2)
    return tmp_path / "a"


def shards(path: Path) -> list[Path]:
    return [path / shard["file"] for shard in json.loads((path / "manifest.json").read_text())["shards"]]


def header(path: Path) -> Header:
    return open_table(path).sources[0].header  # type: ignore[attr-defined, no-any-return]


def signed(path: Path) -> None:
    """Write the sizes and checksums that files have now into the manifest, as somebody who tampers with them would."""
    manifest = json.loads((path / "manifest.json").read_text())
    for shard in manifest["shards"]:
        content = (path / shard["file"]).read_bytes()
        shard["bytes"], shard["xxh3"] = len(content), xxhash.xxh3_64_hexdigest(content)
    (path / "manifest.json").write_text(json.dumps(manifest))


def change(path: Path, tensor: str, entry: int, value: bytes) -> None:
    """Change an entry of a tensor of a file."""
    span = header(path).tensors[tensor]
    content = bytearray(path.read_bytes())
    start = span.start + entry * len(value)
    assert span.start <= start < span.stop
    content[start : start + len(value)] = value
    path.write_bytes(content)


def fault(path: Path) -> str:
    (found,) = faults(path)
    with pytest.raises(TableFormatError) as error:
        verify(path)
    assert found == str(error.value)
    return found


def test_a_dataset_that_is_right(dataset: Path) -> None:
    verify(dataset)
    verify(str(dataset))
    verify(shards(dataset)[0])
    open_table(dataset).verify()
    open_table(dataset).rename({"age": "years"}).select(["years"]).verify()
    table().verify()
    assert list(faults(dataset)) == []


def test_every_bit_counts(dataset: Path) -> None:
    """Each byte of each shard, with a bit flipped: the fault names the shard."""
    random.seed(0)
    for shard in shards(dataset):
        content = shard.read_bytes()
        places = [*random.sample(range(len(content)), 150), 0, 7, 8, len(content) - 1]
        for place in places:
            broken = bytearray(content)
            broken[place] ^= 1 << random.randrange(8)
            shard.write_bytes(broken)
            found = list(faults(dataset))
            assert found, place
            assert all(each.startswith(str(shard)) for each in found), found
            assert "checksum" in found[0]
        shard.write_bytes(content)
    verify(dataset)


@settings(max_examples=200)
@given(st.data())
def test_nothing_but_format_errors(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Several bytes changed, cut off or added, the checksum made to fit: found or harmless, never another error."""
    path = tmp_path_factory.getbasetemp() / "verify"
    if not path.exists():
        save(table(), path)
    (shard,) = shards(path)
    held = shard.read_bytes(), (path / "manifest.json").read_bytes()
    content = bytearray(held[0])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    shard.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) - 1, 100, 8, 0]))])
    signed(path)
    try:
        for each in faults(path):
            assert each.startswith(str(shard))
    finally:
        shard.write_bytes(held[0])
        (path / "manifest.json").write_bytes(held[1])


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1, -64])
def test_truncated(dataset: Path, size: int) -> None:
    shard = shards(dataset)[1]
    shard.write_bytes(shard.read_bytes()[:size])
    found = list(faults(dataset))
    assert all(each.startswith(str(shard)) for each in found)
    assert "checksum" in found[0]
    assert "bytes" in found[1]


def test_longer(dataset: Path) -> None:
    shard = shards(dataset)[1]
    with shard.open("ab") as stream:
        stream.write(b"x")
    assert list(faults(dataset))


def test_missing(dataset: Path) -> None:
    shards(dataset)[0].unlink()
    assert fault(dataset) == f"{shards(dataset)[0]}: the file is not there"


def test_exchanged(dataset: Path) -> None:
    """Files that are right, but not where they belong."""
    one, two = shards(dataset)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert len({each.split(": ")[0] for each in faults(dataset)}) == 2


def test_all_faults_are_told(dataset: Path) -> None:
    for shard in shards(dataset):
        change(shard, "values/age", 0, b"\xff" * 8)
    with pytest.raises(TableFormatError, match="2 faults") as error:
        verify(dataset)
    for shard in shards(dataset):
        assert str(shard) in str(error.value)


def test_a_manifest_that_is_none(dataset: Path) -> None:
    (dataset / "manifest.json").write_text("{")
    assert "manifest.json" in fault(dataset)


@pytest.mark.parametrize(
    ("change_it", "match"),
    [
        (lambda m: m["shards"][0].update(rows=3), "rows"),
        (lambda m: m["shards"][0]["counts"].update(rows=3), "rows"),
        (lambda m: m["shards"][0]["counts"].update(visits=9), "counts"),
        (lambda m: m["shards"][0].update(bytes=9), "bytes"),
        (lambda m: m["schema"]["columns"][0][1].update(dtype="int32", stored="int32"), "age"),
        (lambda m: m["schema"]["columns"].pop(0), "age"),
        (lambda m: m["schema"]["columns"][1][1].pop("nullable"), "name"),
        (lambda m: m.update(version="2"), "version 2"),
    ],
)
def test_a_manifest_that_says_something_else(dataset: Path, change_it: Callable[[Any], None], match: str) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    change_it(manifest)
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TableFormatError, match=match):
        verify(dataset)


@pytest.mark.parametrize(
    ("tensor", "entry", "value", "match"),
    [
        ("offsets/visits", 0, struct.pack("<i", 1), "'visits'"),
        ("offsets/visits", 1, struct.pack("<i", 5), "'visits'"),
        ("offsets/visits", 1, struct.pack("<i", -1), "'visits'"),
        ("offsets/visits", 2, struct.pack("<i", 3), "'visits'"),
        ("offsets/visits.codes", 2, struct.pack("<i", 2**31 - 1), "'visits.codes'"),
        ("composed/visits.codes", 1, struct.pack("<i", 1), "composed offsets of level 'visits.codes' .* row 1"),
        ("values/name", 0, struct.pack("<i", 2), "positions 0 to 1"),
        ("values/name", 0, struct.pack("<i", -1), "positions 0 to 1"),
        ("values/name", 1, struct.pack("<i", 1), "missing"),
        ("values/dose", 1, struct.pack("<d", 0.25), "missing"),
        ("valid/dose", 0, b"\2", "mask"),
        ("values/flag", 0, b"\3", "bools"),
        ("vocabulary/name/bytes", 0, b"\xff", "UTF-8"),
        ("vocabulary/name/offsets", 1, struct.pack("<i", 99), "vocabulary"),
    ],
)
def test_contents_that_somebody_signed(dataset: Path, tensor: str, entry: int, value: bytes, match: str) -> None:
    """Checksums fit, but offsets, strings, masks or bools do not; in a file on its own too."""
    shard = shards(dataset)[0]
    change(shard, tensor, entry, value)
    signed(dataset)
    for path in (dataset, shard):
        with pytest.raises(TableFormatError, match=match) as error:
            verify(path)
        assert str(shard) in str(error.value)


def test_a_string_that_is_there_twice(tmp_path: Path) -> None:
    save(sr.Table({"w": ["aa", "bb"]}), tmp_path / "a")
    (shard,) = shards(tmp_path / "a")
    change(shard, "vocabulary/w/bytes", 0, b"bbbb")
    signed(tmp_path / "a")
    with pytest.raises(TableFormatError, match="twice"):
        verify(tmp_path / "a")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint16, torch.uint64, torch.complex128, torch.float16])
def test_what_is_missing_is_0_in_every_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    made = sr.Table({"x": [1, None, 3]}, schema={"x": dtype})
    save(made, tmp_path / "a.safetensors")
    verify(tmp_path / "a.safetensors")
    change(tmp_path / "a.safetensors", "values/x", 1, b"\1" * dtype.itemsize)
    with pytest.raises(TableFormatError, match="missing"):
        verify(tmp_path / "a.safetensors")


def test_shards_that_differ_in_how_they_are_stored(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "a", rows_per_shard=1, narrow=True) as writer:
        for rows in ({"x": [1], "w": ["a"]}, {"x": [None], "w": [None]}, {"x": [-(2**40)], "w": ["b"]}):
            writer.write(rows)
    verify(tmp_path / "a")
    open_table(tmp_path / "a").verify()


def test_a_row_of_a_table(tmp_path: Path) -> None:
    for key in (0, (0, 0), 1):
        save(table()[key], tmp_path / "row.safetensors", overwrite=True)
        verify(tmp_path / "row.safetensors")


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "no.safetensors", tmp_path):
        with pytest.raises(FileNotFoundError):
            verify(path)
    with pytest.raises(FileNotFoundError):
        verify("memory://test_verify/nothing")


def test_elsewhere() -> None:
    import fsspec

    url = "memory://test_verify/a"
    save(table(), url)
    verify(url)
    open_table(url).verify()
    files = fsspec.filesystem("memory")
    (path,) = (path for path in files.ls("/test_verify/a", detail=False) if path.endswith(".safetensors"))
    content = bytearray(files.cat_file(path))
    content[-1] ^= 1
    files.pipe_file(path, bytes(content))
    with pytest.raises(TableFormatError, match=os.path.basename(path)):
        verify(url)
    with pytest.raises(TableFormatError, match="checksum"):
        open_table(url).verify()


def test_zero_size_features_and_no_entries(tmp_path: Path) -> None:
    made = sr.Table({"x": np.zeros((2, 0, 3), np.float32), "y": [[], []], "flag": torch.zeros(2, 0, dtype=torch.bool)})
    save(made, tmp_path / "a")
    verify(tmp_path / "a")
