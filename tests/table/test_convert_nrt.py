"""Files of nested_ragged_tensors, both ways, with the package itself and with files that lie."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import serrate as sr
from serrate.errors import TableFormatError
from serrate.table.convert.nrt import from_nrt, to_nrt
from serrate.table.table import Table

Theirs = pytest.importorskip("nested_ragged_tensors.ragged_numpy").JointNestedRaggedTensorDict

DATA = {"S": [7, 8, 9], "T": [[1, 2, 3], [], [6]], "id": [[[1, 2, 300], [], [1, 2]], [], [[0.5]]]}


def test_what_the_package_wrote(tmp_path):
    Theirs(DATA).save(tmp_path / "t.nrt")
    t = Table._from_block(from_nrt(tmp_path / "t.nrt").check())
    assert t.levels == ("rows", "level1", "level1.level2")
    assert {name: t[name].tolist() for name in DATA} == DATA
    assert t.schema["T"].dtype == torch.uint8
    assert t.schema["id"].dtype == torch.float32
    assert Table._from_block(from_nrt(tmp_path / "t.nrt", ["T"])).tolist() == {"T": DATA["T"]}
    named = from_nrt(tmp_path / "t.nrt", levels=["visits", "visits.codes"])
    assert named.schema.levels == ("rows", "visits", "visits.codes")
    assert named.schema["id"].level == "visits.codes"


def test_what_the_package_reads(tmp_path):
    t = sr.Table(DATA, schema={"T": "visits", "id": "visits.codes"}, narrow=True)
    to_nrt(t.block(), tmp_path / "t.nrt")
    assert os.listdir(tmp_path) == ["t.nrt"]
    theirs = Theirs(tensors_fp=tmp_path / "t.nrt")
    assert theirs.to_dense()["id"].tolist() == t.to_dense()["id"].tolist()
    assert theirs.schema == {"S": np.int64, "T": np.int64, "id": np.float64}
    assert load_file(tmp_path / "t.nrt")["dim1/bounds"].tolist() == [3, 3, 4]
    assert Table._from_block(from_nrt(tmp_path / "t.nrt", levels=["visits", "visits.codes"])) == t


def test_values_are_mapped(tmp_path):
    save_file({"dim0/x": np.arange(1000)}, tmp_path / "t.nrt")
    block = from_nrt(tmp_path / "t.nrt")
    block.values["x"][3] = -1  # pages are private
    assert load_file(tmp_path / "t.nrt")["dim0/x"][3] == 3
    to_nrt(from_nrt(tmp_path / "t.nrt"), tmp_path / "t.nrt")  # over itself
    assert load_file(tmp_path / "t.nrt")["dim0/x"].tolist() == list(range(1000))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"],
)
@pytest.mark.parametrize("count", [0, 3])
def test_every_dtype(tmp_path, dtype, count):
    values, ends = np.arange(count).astype(dtype), np.array([0, count, count][: 3 if count else 0], np.int64)
    save_file({"dim1/x": values, "dim1/bounds": ends, "dim0/r": np.zeros(len(ends), dtype)}, tmp_path / "t.nrt")
    block = from_nrt(tmp_path / "t.nrt").check()
    assert block.values["x"].numpy().dtype == dtype
    to_nrt(block, tmp_path / "back.nrt")
    for key, array in load_file(tmp_path / "back.nrt").items():
        np.testing.assert_array_equal(array, load_file(tmp_path / "t.nrt")[key], strict=True)


def test_names_and_other_places(tmp_path):
    t = sr.Table({"a/b": [[1], []], "ü .": [2, 3]})
    to_nrt(t.block(), "memory://nrt/t.nrt")
    assert Table._from_block(from_nrt("memory://nrt/t.nrt")) == t
    to_nrt(t.block(), tmp_path / "t.nrt")
    assert set(load_file(tmp_path / "t.nrt")) == {"dim1/bounds", "dim1/a/b", "dim0/ü ."}
    assert Table._from_block(from_nrt(tmp_path / "t.nrt")) == t
    with pytest.raises(KeyError, match=r"\['c'\] not found in .*Available: \['a/b', 'ü .'\]"):
        from_nrt(tmp_path / "t.nrt", ["c"])
    with pytest.raises(ValueError, match="levels must have one name for each depth from 1 to 1"):
        from_nrt(tmp_path / "t.nrt", levels=["a", "a.b"])
    with pytest.raises(FileNotFoundError):
        from_nrt(tmp_path / "missing.nrt")


@pytest.mark.parametrize(
    ("columns", "schema", "error", "words"),
    [
        ({"w": ["a"]}, None, TypeError, "'w' has strings"),
        ({"x": [1, None]}, None, TypeError, "'x' has missing entries"),
        ({"x": np.zeros(1, "datetime64[s]")}, None, TypeError, r"count in datetime64\[s\]"),
        ({"x": torch.zeros(1, 2)}, None, TypeError, r"features \(2,\)"),
        ({"x": torch.zeros(1, dtype=torch.bfloat16)}, None, TypeError, "dtype torch.bfloat16"),
        ({"x": torch.zeros(1, dtype=torch.complex64)}, None, TypeError, "dtype torch.complex64"),
        ({"bounds": [1]}, None, ValueError, "cannot have a column called 'bounds'"),
        ({"x": [[1]], "y": [[1]]}, {"x": "a", "y": "b"}, ValueError, "'rows' has 'a', 'b'"),
    ],
)
def test_what_the_files_cannot_hold(tmp_path, columns, schema, error, words):
    with pytest.raises(error, match=words):
        to_nrt(sr.Table(columns, schema=schema).block(), tmp_path / "t.nrt")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match=r"use t\[3:4\]"):
        to_nrt(sr.Table({"x": [[1]]})[0].block(), tmp_path / "t.nrt")


# ----------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"dim1/x": [1, 2]}, "there is no dim1/bounds"),
        ({"dim2/x": [1], "dim2/bounds": [1]}, "there is no dim1/bounds"),
        ({"dim1/x": [1, 2], "dim1/bounds": [1, 3]}, "'dim1/x' has shape"),
        ({"dim1/x": [1, 2], "dim1/bounds": [2, 1, 2]}, "dim1/bounds must never decrease, but entry 1 is 1"),
        ({"dim1/x": [1, 2], "dim1/bounds": [-1, 2]}, "dim1/bounds must never decrease, but entry 0 is -1"),
        ({"dim0/s": [1], "dim1/x": [1, 2], "dim1/bounds": [1, 2]}, "'dim0/s' has shape"),
        ({"dim1/bounds": [1, 2], "dim2/bounds": [1], "dim2/x": [1]}, "2 entries of depth 1, but dim2/bounds has 1"),
        ({"dim0/x": [1], "dim1/x": [1], "dim1/bounds": [1]}, "'x' exists at two depths"),
        ({"dim0/x": [[1, 2]]}, "one axis, got shape"),
        ({"dim0/x": [1], "dim1/bounds": [2**40]}, "entries, but no tensor"),
        ({"x": [1]}, "tensors must be called"),
        ({"dim-1/x": [1]}, "tensors must be called"),
        ({"dim99999999999/x": [1]}, "tensors must be called"),
        ({"dim1/bounds": [0.5], "dim1/x": [1.0]}, "vector of integers, got torch.float64"),
        ({}, "no tensors|first"),
    ],
    ids=str,
)  # fmt: skip
def test_tensors_that_do_not_fit(tmp_path, tensors, words):
    save_file({key: np.array(values) for key, values in tensors.items()}, tmp_path / "t.nrt")
    with pytest.raises(TableFormatError, match=words):
        from_nrt(tmp_path / "t.nrt")


def test_columns_of_other_dtypes(tmp_path):
    from safetensors.torch import save_file as save

    save({"dim0/x": torch.zeros(3, dtype=torch.float8_e4m3fn)}, tmp_path / "t.nrt")
    with pytest.raises(TableFormatError, match="must have a dtype of"):
        from_nrt(tmp_path / "t.nrt")


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"\xff" * 100, (2**62).to_bytes(8, "little"), b"\0" * 8, b"\x02" + b"\0" * 7 + b"[]"]
)
def test_files_that_are_none(tmp_path, content):
    (tmp_path / "t.nrt").write_bytes(content)
    with pytest.raises(TableFormatError, match=r"t\.nrt"):
        from_nrt(tmp_path / "t.nrt")


def test_tensors_that_are_not_aligned(tmp_path):
    header = {"dim0/b": ("U8", [3], 0, 3), "dim0/x": ("I64", [3], 3, 27)}
    text = json.dumps(
        {k: {"dtype": d, "shape": s, "data_offsets": [a, b]} for k, (d, s, a, b) in header.items()}
    ).encode()
    body = np.arange(3, dtype=np.uint8).tobytes() + np.arange(3).tobytes()
    text += b" " * (-len(text) % 8)
    (tmp_path / "t.nrt").write_bytes(len(text).to_bytes(8, "little") + text + body)
    block = from_nrt(tmp_path / "t.nrt")
    assert Table._from_block(block).tolist() == {"b": [0, 1, 2], "x": [0, 1, 2]}
    assert block.values["x"].data_ptr() % 8 == 0


@given(st.data())
def test_damaged_files_give_an_error_or_a_table(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    to_nrt(sr.Table({"S": [7, 8], "T": [[1, 2, 3], []]}).block(), folder / "t.nrt")
    content = bytearray((folder / "t.nrt").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "t.nrt").write_bytes(
        content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    )
    try:
        made = Table._from_block(from_nrt(folder / "t.nrt").check())
    except TableFormatError:
        return
    assert len(made.tolist()) >= 1
