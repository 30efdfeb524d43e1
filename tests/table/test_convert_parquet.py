"""Parquet, both ways, compared with what pyarrow itself writes and reads."""

from __future__ import annotations

import os
import tracemalloc

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import serrate as sr
from serrate.table.convert.parquet import from_parquet, parquet_blocks, parquet_to_folder, to_parquet

ROWS = [
    {"age": i, "name": f"p{i % 3}", "visits": [{"time": j, "codes": list(range(j)), "note": None if j % 2 else f"n{j}"}
     for j in range(i % 4)], "stays": [{"time": 0.5}] * (i % 2)}
    for i in range(20)
]  # fmt: skip


@pytest.fixture
def table():
    visit = pa.struct([("time", pa.int64()), ("codes", pa.list_(pa.int16())), ("note", pa.string())])
    stays = pa.list_(pa.struct([("time", pa.float64())]))
    schema = pa.schema([("age", pa.int64()), ("name", pa.string()), ("visits", pa.list_(visit)), ("stays", stays)])
    return pa.Table.from_pylist(ROWS, schema)


@pytest.fixture
def path(table, tmp_path):
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=6)
    return tmp_path / "p.parquet"


EXPECTED = {
    "age": [row["age"] for row in ROWS],
    "name": [row["name"] for row in ROWS],
    "visits.time": [[v["time"] for v in row["visits"]] for row in ROWS],
    "codes": [[v["codes"] for v in row["visits"]] for row in ROWS],
    "note": [[v["note"] for v in row["visits"]] for row in ROWS],
    "stays.time": [[s["time"] for s in row["stays"]] for row in ROWS],
}


def test_what_pyarrow_wrote(path):
    t = from_parquet(path)
    assert len(t.sources) == 4
    assert t.levels == ("rows", "visits", "stays", "visits.codes")
    assert t.tolist() == EXPECTED
    assert t.schema["note"].nullable
    assert t[[19, 0, 7]].tolist() == {name: [rows[i] for i in (19, 0, 7)] for name, rows in EXPECTED.items()}


@pytest.mark.parametrize(
    "names", [["age"], ["codes"], ["visits.time"], ["stays.time", "name"], ["note", "codes", "age"]]
)
@pytest.mark.parametrize("rows", [None, 1, 7, 1000])
def test_some_columns(path, names, rows):
    found = {name: [] for name in names}
    for block in parquet_blocks(path, names, rows=rows, levels={"codes": "visits.c"}):
        assert list(block.schema) == names
        assert block.rows <= (rows or 6)
        for name, part in sr.Table._from_block(block).tolist().items():
            found[name] += part
    assert found == {name: EXPECTED[name] for name in names}


def test_only_what_is_asked_for_is_read(path, monkeypatch):
    asked = []
    whole = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda *args, **options: asked.append(options) or whole(*args, **options)
    )
    from_parquet(path, ["codes"])
    assert asked == [{"columns": ["visits.list.element.codes.list.element"]}] * 4


def test_columns_that_are_not_there(path):
    with pytest.raises(KeyError, match=r"has no columns \['time'\]; the columns are \['age', 'codes'"):
        from_parquet(path, ["time"])
    with pytest.raises(TypeError, match="columns must be a list of names, got the string 'age'"):
        from_parquet(path, "age")
    with pytest.raises(KeyError, match="'nowhere' names no field"):
        from_parquet(path, levels={"nowhere": "x"})


def test_several_files_and_folders(table, path, tmp_path):
    pq.write_table(table.slice(0, 2), tmp_path / "q.parquet")
    (tmp_path / "notes.txt").write_text("no Parquet")
    both = from_parquet(tmp_path)
    assert both.tolist() == {name: rows + rows[:2] for name, rows in EXPECTED.items()}
    assert from_parquet([tmp_path / "q.parquet", str(path)])["age"].tolist()[:3] == [0, 1, 0]
    with pytest.raises(ValueError, match="needs at least one file"):
        from_parquet([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no file whose name ends in \.parquet"):
        from_parquet(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        from_parquet(tmp_path / "missing.parquet")
    with pytest.raises(ValueError, match=r"notes\.txt is not a Parquet file"):
        from_parquet(tmp_path / "notes.txt")


def test_no_rows(table, tmp_path):
    pq.write_table(table.slice(0, 0), tmp_path / "e.parquet")
    t = from_parquet(tmp_path / "e.parquet")
    assert len(t) == 0
    assert t.tolist() == {name: [] for name in EXPECTED}
    assert len(from_parquet(tmp_path / "e.parquet", ["codes"])) == 0
    to_parquet(t, tmp_path / "f.parquet")
    assert pq.read_table(tmp_path / "f.parquet").num_rows == 0
    assert from_parquet(tmp_path / "f.parquet") == t


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("step", [None, 1, 7, 100])
def test_the_way_back(table, path, tmp_path, flat, step):
    t = from_parquet(path)
    to_parquet(t, tmp_path / "back.parquet", flat=flat, rows_per_group=step)
    file = pq.ParquetFile(tmp_path / "back.parquet")
    assert file.num_row_groups == -(-20 // (step or 20))
    if not flat:
        assert pq.read_table(tmp_path / "back.parquet").to_pylist() == [
            {key: row[key] for key in ("age", "name", "visits", "stays")} for row in ROWS
        ]
    assert from_parquet(tmp_path / "back.parquet") == t
    assert sorted(os.listdir(tmp_path)) == ["back.parquet", "p.parquet"]


def test_row_groups_by_bytes(tmp_path, monkeypatch):
    t = sr.Table({"x": [[1] * 100] * 50})
    monkeypatch.setattr("serrate.table.convert.parquet.GROUP_BYTES", 8100)
    to_parquet(t, tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 5
    with pytest.raises(ValueError, match="rows_per_group must be a positive number"):
        to_parquet(t, tmp_path / "t.parquet", rows_per_group=0)


def test_a_failed_write_leaves_what_was_there(tmp_path):
    to_parquet(sr.Table({"x": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(TypeError, match="bfloat16"):
        to_parquet(sr.Table({"x": torch.zeros(2, dtype=torch.bfloat16)}), tmp_path / "t.parquet")
    wrong = sr.Table({"x": np.array([0] * 5 + [2**40], "datetime64[D]")})
    with pytest.raises(OverflowError):
        to_parquet(wrong, tmp_path / "t.parquet", rows_per_group=2)
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {"x": [1, 2]}
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_every_kind_of_column(tmp_path):
    columns = {str(dtype): torch.arange(6).reshape(3, 2).to(dtype) for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
        torch.int64, torch.float16, torch.float32, torch.float64,
    )}  # fmt: skip
    columns |= {f"one {name}": values[:, 0] for name, values in columns.items()}
    times = np.arange(3)
    columns |= {
        unit: times.astype(unit)
        for unit in ("datetime64[ms]", "datetime64[us]", "datetime64[ns]", "datetime64[D]", "timedelta64[s]")
    }
    columns |= {"a/b ü": [None, "x", ""], "nan": [float("nan"), None, 1.0], "inner": [["a"], [], [None, "b"]]}
    t = sr.Table(columns, schema={"inner": "words"})
    to_parquet(t, tmp_path / "t.parquet", rows_per_group=2)
    back = from_parquet(tmp_path / "t.parquet")
    assert back.equals(t, equal_nan=True)


def test_other_places(table, tmp_path):
    t = from_parquet(_written(table, tmp_path))
    to_parquet(t, "memory://tables/t.parquet")
    assert from_parquet("memory://tables/t.parquet") == t
    assert from_parquet("memory://tables") == t
    assert from_parquet("memory://tables/t.parquet", ["age"])["age"].tolist() == EXPECTED["age"]
    assert [name.rpartition("/")[2] for name in fsspec.filesystem("memory").ls("/tables", detail=False)] == [
        "t.parquet"
    ]


def _written(table, tmp_path):
    pq.write_table(table, tmp_path / "w.parquet")
    return tmp_path / "w.parquet"


def test_to_a_folder(path, tmp_path):
    parquet_to_folder([path, path], tmp_path / "folder", rows=3, rows_per_shard=11)
    t = sr.open(tmp_path / "folder")
    assert t.tolist() == {name: rows + rows for name, rows in EXPECTED.items()}
    assert len(t.sources) == 4
    parquet_to_folder(path, tmp_path / "folder", ["age"], overwrite=True, narrow=True)
    t = sr.open(tmp_path / "folder")
    assert t.tolist() == {"age": EXPECTED["age"]}
    assert t.schema["age"].stored == torch.uint8


def test_a_folder_that_fails_is_not_there(tmp_path):
    good, bad = pa.table({"x": [[1], [2]]}), pa.table({"x": [[1], None]})
    pq.write_table(pa.concat_tables([good, bad]), tmp_path / "x.parquet", row_group_size=2)
    with pytest.raises(ValueError, match=r"field 'x', row 3: the list is missing"):
        parquet_to_folder(tmp_path / "x.parquet", tmp_path / "folder", rows=2)
    assert not (tmp_path / "folder" / "manifest.json").exists()
    parquet_to_folder(tmp_path / "x.parquet", tmp_path / "folder", nulls="empty")
    assert sr.open(tmp_path / "folder").tolist() == {"x": [[1], [2], [1], []]}


@pytest.mark.parametrize("many", [1, 8])
def test_memory_does_not_grow_with_the_file(tmp_path, many):
    part = pa.table({"x": [[i] * 50 for i in range(4000)]})
    with pq.ParquetWriter(tmp_path / "x.parquet", part.schema) as writer:
        for _ in range(many):
            writer.write_table(part)
    pool = pa.default_memory_pool()
    most, before = 0, pool.bytes_allocated()
    tracemalloc.start()
    for block in parquet_blocks(tmp_path / "x.parquet", rows=1000):
        most = max(most, pool.bytes_allocated() - before)
        assert block.rows == 1000
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert most < 2**22  # the file has 1.6 MB of values for each of `many`, and 12.8 in the end


@pytest.mark.parametrize("features", [(0,), (2, 0), (0, 2)])
def test_features_that_nobody_could_read_again_are_refused(features, tmp_path):
    """pyarrow writes them, and cannot read what it wrote."""
    t = sr.Table({"x": torch.zeros(2, *features)})
    with pytest.raises(TypeError, match=r"column 'x' has features .* but Parquet cannot read lists of size 0"):
        t.to_parquet(tmp_path / "t.parquet")
    assert os.listdir(tmp_path) == []
