"""What newcomers try first: arrays and tensors in lists, strings and gaps in filters, wrong names, wrong files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

import serrate as sr
from serrate.errors import TableFormatError

LISTS = [[1, 2], [], [3, 4, 5]]
NUMPY = [np.bool_, np.uint8, np.int16, np.uint64, np.int64, np.float16, np.float32, np.float64, np.complex64, ">i4"]
TORCH = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", NUMPY)
def test_lists_of_arrays(dtype):
    t = sr.Table({"x": [np.array(row, dtype) for row in LISTS]}, schema={"x": "tokens"})
    assert t["x"].tolist() == [np.array(row, dtype).tolist() for row in LISTS]
    assert t["x"].values.numpy().dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("dtype", TORCH)
def test_lists_of_tensors(dtype):
    t = sr.Table({"x": [torch.tensor(row, dtype=dtype) for row in LISTS]}, schema={"x": "tokens"})
    assert t["x"].tolist() == [torch.tensor(row, dtype=dtype).tolist() for row in LISTS]
    assert t["x"].dtype == dtype


@pytest.mark.parametrize(
    "rows",
    [
        [np.array([]), np.array([1, 2]), np.array([])],  # numpy's empty array is of floats
        [[], np.array([1, 2]), ()],
        [np.arange(6)[::2], np.arange(3)[::-1]],
        [np.arange(3, dtype=np.int16), np.arange(2)],
        [np.arange(3, dtype=">i8")],
        [torch.arange(6)[::2], [], torch.tensor([])],
    ],
)
def test_lists_of_unlike_arrays(rows):
    t = sr.Table({"x": rows}, schema={"x": "tokens"})
    assert t["x"].tolist() == [list(map(int, row)) for row in rows]
    assert t["x"].dtype == torch.int64


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_lists_of_empty_arrays_keep_their_dtype(made):
    rows = [made([1])[:0], made([2])[:0]]
    t = sr.Table({"x": rows}, schema={"x": "tokens"})
    assert (t["x"].tolist(), t["x"].dtype) == ([[], []], torch.int64)


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_lists_of_arrays_with_further_axes(made):
    """Rows of an array are lists as far as the schema says, and features beyond."""
    rows = [[[1, 2], [3, 4]], [[5, 6]]]
    given = [made(row) for row in rows]
    t = sr.Table({"x": given, "y": given}, schema={"x": "visits", "y": "visits.codes"})
    assert (t.schema["x"].features, t["x"].tolist()) == ((2,), rows)
    assert (t.schema["y"].features, t["y"].tolist()) == ((), rows)
    deeper = sr.Table({"x": [given, given[:1]]}, schema={"x": "visits.codes"})
    assert deeper["x"].tolist() == [rows, rows[:1]]


def test_lists_of_arrays_of_times_and_strings():
    days = [np.array(["2020-01-01", "NaT"], "datetime64[D]"), np.array([], "datetime64[D]")]
    words = [np.array(["a", "b"]), np.array([], str)]
    t = sr.Table({"day": days, "word": words}, schema={"day": "visits", "word": "visits"})
    assert t.schema["day"].unit == "datetime64[D]"
    assert t.tolist()["word"] == [["a", "b"], []]
    assert t["day"].values[0] == (days[0][0] - np.datetime64(0, "D")).astype(int)


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_array_without_axes_is_no_list(made):
    with pytest.raises(ValueError, match=r"entry \[1\] is .* where a list was expected"):
        sr.Table({"x": [made([1]), made(2)]}, schema={"x": "visits"})


@pytest.mark.parametrize("empty", [torch.arange(0), torch.tensor([]), []])
def test_lists_of_tensors_are_joined_not_walked(empty):
    """A million entries one by one take seconds; the bound is far above what joining takes."""
    rows = [*torch.arange(10**6).split(200), empty]
    start = time.process_time()
    t = sr.Table({"x": rows}, schema={"x": "tokens"})
    assert time.process_time() - start < 1
    assert torch.equal(t["x"].values, torch.arange(10**6))


def patients() -> sr.Table:
    return sr.Table(
        {"sex": ["F", "M", "F"], "age": [41, 63, None], "time": [[3], [], [1, 2]]}, schema={"time": "visits"}
    )


def test_filter_by_string_says_how():
    t = patients()
    with pytest.raises(TypeError, match=r"got False.*t\.isin\("):
        t.filter(lambda t: t["sex"] == "F")
    assert t.filter(t["sex"] == t.vocabulary("sex").index("F"))["time"].tolist() == [[3], [1, 2]]


def test_missing_is_zero_in_a_mask():
    t = patients()
    assert t.filter(t["age"] < 50).tolist()["age"] == [41, None]
    assert t.filter((t["age"] < 50) & t.valid("age")).tolist()["age"] == [41]


def test_map_of_a_masked_array_keeps_gaps():
    t = patients()
    made = t.map(lambda c: {"age": np.ma.array((c["age"] * 2).values, mask=~t.valid("age").values)})
    assert made.tolist()["age"] == [82, 126, None]
    assert t.map(lambda c: {"age": c["age"] * 2}).tolist()["age"] == [82, 126, 0]


def test_names():
    t = patients()
    with pytest.raises(
        KeyError, match=r"no column 'visits'; it is a level with the columns time; the columns are 'sex'"
    ):
        t["visits"]
    with pytest.raises(TypeError, match=r"the name of one column was expected, got \['sex', 'age'\]"):
        t.sort_by(["sex", "age"])
    with pytest.raises(TypeError, match=r"'num_worker'.*serrate\.table\.Loader"):
        t.loader(2, num_worker=1)
    for batch in (t.to_packed(), t.to_dense()):
        assert "nope" not in batch
        with pytest.raises(KeyError, match=r"no column 'nope'; the columns are 'sex', 'age', 'time'"):
            batch["nope"]


def test_data_loader_without_collate_says_what_to_give():
    for to in ("packed", "dense"):
        with pytest.raises(KeyError, match=r"collate_fn=rows\.collate"):
            next(iter(DataLoader(patients().dataset(to=to), batch_size=2)))


def test_rows_given_as_columns():
    with pytest.raises(TypeError, match=r"got list; Table\.from_rows"):
        sr.Table([{"a": 1}])


def test_files_of_others_name_their_reader(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TableFormatError, match=r"Parquet file, which sr\.Table\.from_parquet reads"):
        sr.open(tmp_path / "a.parquet")
    sr.Table({"a": [[1], [2]]}).to_nrt(tmp_path / "a.nrt")
    with pytest.raises(TableFormatError, match=r"sr\.Table\.from_nrt reads"):
        sr.open(tmp_path / "a.nrt")


# ------------------------------------------------------------------------------------------------------------- isin


def test_isin() -> None:
    day = np.datetime64("2024-02-29")
    t = sr.Table(
        {
            "word": [["a", "b"], [], [None, "a"]],
            "count": [[1, None], [], [3, 1]],
            "real": [[0.5, float("nan")], [], [2.0, 0.5]],
            "day": [[day, day + 1], [], [None, day]],
            "half": sr.from_lengths(torch.tensor([1, 2, 3, 1], dtype=torch.bfloat16), [2, 0, 2]),
        },
        narrow=True,
    )
    assert t.isin("word", ["a", "c"]).tolist() == [[True, False], [], [False, True]]
    assert t.isin("word", "b").tolist() == [[False, True], [], [False, False]]
    assert t.isin("word", []).tolist() == [[False, False], [], [False, False]]
    assert t.isin("count", [0, 1]).tolist() == [[True, False], [], [False, True]]  # the missing one is stored as 0
    assert t.isin("real", 0.5).tolist() == [[True, False], [], [False, True]]
    assert t.isin("half", [1.0]).tolist() == [[True, False], [], [False, True]]
    assert t.isin("day", [day.astype("datetime64[s]")]).tolist() == [[True, False], [], [False, True]]
    assert t.isin("day", [np.datetime64("2024-02-29T12:00")]).tolist() == [[False, False], [], [False, False]]
    with pytest.raises(TypeError, match="column 'word' holds strings, got numbers"):
        t.isin("word", [3])
    with pytest.raises(TypeError, match=r"column 'day' holds datetime64\[D\], got numbers"):
        t.isin("day", [3])
    with pytest.raises(KeyError, match="there is no column 'nope'"):
        t.isin("nope", [3])


def test_saving_under_the_name_of_another_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="to_parquet"):
        sr.Table({"a": [1]}).save(tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())
