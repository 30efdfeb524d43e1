"""Data frames of pandas and polars, both ways."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError
from serrate.table.convert.frames import from_pandas, from_polars, to_pandas, to_polars
from serrate.table.table import Table

VISITS = [
    [{"time": 3, "codes": [{"code": "a", "dose": 1.5}, {"code": "b", "dose": None}]}, {"time": 9, "codes": []}],
    [],
    [{"time": 1, "codes": [{"code": "a", "dose": 2.5}]}],
]


def lists(block):
    return Table._from_block(block.check()).tolist()


# ---------------------------------------------------------------------------------------------------------- pandas


def test_columns_of_objects():
    frame = pd.DataFrame({
        "age": [41, 63, 5], "lists": [[1, 2], [], [3]], "arrays": [np.array([1.5, np.nan]), np.zeros(0), np.ones(1)],
        "deep": [[["a"], []], [], [["b", None]]], "visits": VISITS, "w": pd.Series(["x", None, np.nan], dtype=object),
        "m": pd.Series([[1.0], np.nan, [np.nan]], dtype=object),
    })  # fmt: skip
    with pytest.raises(ValueError, match="field 'm', row 1: the list is missing"):
        from_pandas(frame)
    made = lists(from_pandas(frame, nulls="empty", levels={"m": "m"}))
    np.testing.assert_equal(made["m"], [[1.0], [], [np.nan]])
    frame = frame.drop(columns="m")
    made = lists(from_pandas(frame))
    assert made["age"] == [41, 63, 5]
    assert made["lists"] == [[1, 2], [], [3]]
    np.testing.assert_equal(made["arrays"], [[1.5, np.nan], [], [1.0]])
    assert made["deep"] == [[["a"], []], [], [["b", None]]]
    assert made["dose"] == [[[1.5, None], []], [], [[2.5]]]
    assert made["w"] == ["x", None, None]
    assert from_pandas(frame).schema.levels == ("rows", "level1", "visits", "level1.level2", "visits.codes")


def test_kinds_of_columns():
    frame = pd.DataFrame({
        "f": [1.0, np.nan], "i": pd.array([1, None], "Int64"), "b": pd.array([True, None], "boolean"),
        "t": pd.to_datetime(["2020-01-01", None]), "d": pd.to_timedelta([1, 2], "s"),
        "s": pd.Series(["a", None], dtype="string"),
        "c": pd.Categorical(["b", "a"], categories=["b", "a", "z"]), "u": np.array([1, 2], np.uint8),
        "l": pd.Series([[1], []], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        "z": pd.to_datetime(["2020-01-01", "2020-01-02"], utc=True),
    })  # fmt: skip
    block = from_pandas(frame)
    assert not block.schema["f"].nullable  # NaN is a number among floats
    assert torch.isnan(block.values["f"]).tolist() == [False, True]
    made = lists(block)
    assert made["i"] == [1, None]
    assert made["b"] == [True, None]
    assert made["s"] == ["a", None]
    assert made["c"] == ["b", "a"]
    assert made["l"] == [[1], []]
    assert made["t"][1] is None
    assert block.vocabularies["c"] == ("b", "a", "z")
    assert block.values["u"].dtype == torch.uint8
    assert block.schema["t"].unit.startswith("datetime64")
    assert block.schema["d"].unit.startswith("timedelta64")


def test_indexes():
    frame = pd.DataFrame({"x": [1, 2, 3]})
    assert lists(from_pandas(frame[frame.x > 1])) == {"x": [2, 3]}
    assert lists(from_pandas(frame.set_index(pd.Index([7, 8, 9], name="id")))) == {"id": [7, 8, 9], "x": [1, 2, 3]}


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        ({"x": [1]}, TypeError, "takes a DataFrame, got dict"),
        (pd.DataFrame({3: [1]}), TypeError, "the name of a column must be a string, got 3"),
        (pd.DataFrame({"x": [1 + 2j]}), TypeError, "column 'x' of the DataFrame cannot be converted to Arrow"),
        (pd.DataFrame({"x": [[1], "a"]}), TypeError, "column 'x' of the DataFrame"),
        (pd.DataFrame({"x": [pd.Period("2020-01")]}), TypeError, "'x' is of Arrow's type extension"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), ValueError, "more than once"),
        (pd.DataFrame({"x": [[1], None]}), ValueError, "field 'x', row 1: the list is missing"),
        (pd.DataFrame({"x": [[1], []], "y": [[], [1]]}), RaggednessError, "'x' and 'y' share level 'level1'"),
    ],
)
def test_frames_that_are_no_tables(frame, error, words):
    with pytest.raises(error, match=words):
        from_pandas(frame)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_pandas_and_back(flat, rows):
    t = Table._from_block(from_pandas(pd.DataFrame({"age": [41, 63, 5], "visits": VISITS})))[:rows]
    frame = to_pandas(t.block(), flat=flat)
    assert len(frame) == rows
    levels = {name: t.schema[name].level for name in ("time", "code", "dose")} if flat else None
    assert Table._from_block(from_pandas(frame, levels=levels)) == t


# ---------------------------------------------------------------------------------------------------------- polars


def polars_frame():
    return pl.DataFrame({
        "age": [41, 63, 5], "visits": VISITS, "cat": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
        "enum": pl.Series(["x", None, "y"], dtype=pl.Enum(["y", "x"])),
        "grid": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int16, 2)),
        "d": pl.Series([1, 2, 3], dtype=pl.Date),
        "t": pl.Series([1, 2, None], dtype=pl.Datetime("ms")), "dur": pl.Series([1, 2, 3], dtype=pl.Duration("us")),
        "who": [{"a": 1, "b": "p"}, None, {"a": 2, "b": "q"}],
    })  # fmt: skip


def test_what_polars_has():
    block = from_polars(polars_frame())
    made = lists(block)
    assert made["code"] == [[["a", "b"], []], [], [["a"]]]
    assert made["cat"] == ["x", "y", "x"]
    assert made["enum"] == ["x", None, "y"]
    assert block.vocabularies["enum"] == ("y", "x")
    assert made["grid"] == [[1, 2], [3, 4], None]
    assert (made["a"], made["b"]) == ([1, None, 2], ["p", None, "q"])
    assert {name: block.schema[name].unit for name in ("d", "t", "dur")} == {
        "d": "datetime64[D]", "t": "datetime64[ms]", "dur": "timedelta64[us]"
    }  # fmt: skip


def test_slices_and_lazy_frames():
    frame = polars_frame()
    assert lists(from_polars(frame[1:]))["time"] == [[], [1]]
    assert lists(from_polars(frame.lazy().filter(pl.col("age") < 10)))["time"] == [[1]]
    assert lists(from_polars(pl.concat([frame, frame])))["age"] == [41, 63, 5] * 2
    assert lists(from_polars(frame[:0]))["dose"] == []
    with pytest.raises(TypeError, match="takes a DataFrame or LazyFrame, got DataFrame"):
        from_polars(pd.DataFrame({"x": [1]}))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_polars_and_back(flat, rows):
    t = Table._from_block(from_polars(polars_frame()))[:rows]
    frame = to_polars(t.block(), flat=flat)
    assert frame.height == rows
    if not flat:
        assert frame["visits"].to_list() == VISITS[:rows]
    levels = {name: t.schema[name].level for name in ("time", "code", "dose")} if flat else None
    back = Table._from_block(from_polars(frame, levels=levels))
    assert back.tolist() == t.tolist()
    assert back.schema.levels == t.schema.levels
    if rows == 3:
        assert back == t


def test_what_polars_cannot_read():
    with pytest.raises(TypeError, match=r"'x' has features \(2, 0\), but polars"):
        to_polars(sr.Table({"x": torch.zeros(3, 2, 0)}).block())
