"""Tables from columns of every kind; against plain Python lists and numpy."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError
from serrate.native import nesting

NESTED = [[[7, 5], [1, 1, 2, 8], [4]], [], [[5, 5, 9], []]]


@pytest.fixture(params=["compiled", "interpreted"], autouse=True)
def way(request, monkeypatch):
    """Lists are read by compiled code, and without it."""
    if request.param == "interpreted":
        monkeypatch.setattr(nesting, "_library", lambda: None)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (NESTED, torch.int64),
        ([[[1.5], [2.0, 3.0]], []], torch.float64),
        ([[1, 2.5], [3]], torch.float64),
        ([[2.5, 1], [3]], torch.float64),
        ([[True], [], [False, True]], torch.bool),
        ([[1j, 2], [3.0]], torch.complex128),
        ([((1, 2), (3,)), ()], torch.int64),
        ([[], [[]], [[1]]], torch.int64),
        ([[], []], torch.float64),
        ([5, 6, 7], torch.int64),
        ([-(2**63), 2**63 - 1], torch.int64),
    ],
)
def test_lists(given, dtype):
    t = sr.Table({"x": given})
    assert t.schema["x"].dtype == dtype

    def plain(entry):
        return [plain(each) for each in entry] if isinstance(entry, (list, tuple)) else entry

    assert t.tolist()["x"] == plain(given)
    assert t["x"].tolist() == plain(given)


def test_missing_strings_and_times():
    day = datetime.datetime(2024, 2, 29, 12)
    t = sr.Table(
        {
            "dose": [[1.5, None], [], [2.0]],
            "word": [["b", "a"], [], [None]],
            "when": [[day, None], [], [day]],
            "wait": [[datetime.timedelta(seconds=2), None], [], [None]],
            "count": [[None, 3], [], [None]],
            "flag": [[None, True], [], [False]],
        }
    )
    when = np.datetime64(day)
    assert t.tolist() == {
        "dose": [[1.5, None], [], [2.0]],
        "word": [["b", "a"], [], [None]],
        "when": [[when, None], [], [when]],
        "wait": [[np.timedelta64(2, "s"), None], [], [None]],
        "count": [[None, 3], [], [None]],
        "flag": [[None, True], [], [False]],
    }
    assert t.schema["when"].unit == "datetime64[us]"
    assert t.vocabulary("word") == ("b", "a")
    assert t.valid("dose").tolist() == [[True, False], [], [True]]
    assert t["count"].tolist() == [[0, 3], [], [0]]  # zeros where nothing is


def test_arrays_and_tensors():
    values = torch.arange(6.0).reshape(3, 2)
    t = sr.Table(
        {
            "dense": values,
            "transposed": np.arange(6).reshape(2, 3).T,
            "big": np.array([1, 2, 3], ">i4"),
            "ragged": sr.from_lengths(torch.arange(8).reshape(4, 2), [1, 0, 3]),
            "time": np.array(["2020-01-01", "NaT", "2021-01-01"], "datetime64[D]"),
            "name": np.array(["x", "y", "x"]),
        }
    )
    assert t["dense"].values.data_ptr() == values.data_ptr()
    assert t["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert t["big"].tolist() == [1, 2, 3]
    assert t["big"].dtype == torch.int32
    assert t["ragged"].tolist() == [[[0, 1]], [], [[2, 3], [4, 5], [6, 7]]]
    assert t.schema["time"].unit == "datetime64[D]"
    assert t.tolist()["name"] == ["x", "y", "x"]


def test_no_copy_of_tensors():
    x = sr.ragged([[1, 2], [], [3]])
    assert sr.Table({"x": x})["x"].values.data_ptr() == x.values.data_ptr()


def test_columns_share_partitions():
    t = sr.Table({"a": [[1, 2], []], "b": [[3, 4], []], "c": [[[1], []], []]})
    assert t["a"].partitions[0] is t["b"].partitions[0]
    assert t["a"].partitions[0] is t["c"].partitions[0]


def test_schema_names_levels_and_tells_them_apart():
    t = sr.Table(
        {"code": [[[1, 2], []]], "lab": [[[0.5], [1.5]]], "time": [[3, 4]]},
        schema={"code": "visits.codes", "lab": "visits.labs", "time": "visits"},
    )
    assert t.levels == ("rows", "visits", "visits.codes", "visits.labs")
    assert t["code"].partitions[0] is t["lab"].partitions[0]
    with pytest.raises(RaggednessError, match=r"'code' and 'lab' share level 'level1.level2'"):
        sr.Table({"code": [[[1, 2], []]], "lab": [[[0.5], [1.5]]]})


def test_schema_gives_depth_and_dtype():
    columns = {"x": [[], []], "y": [[1, 2], [3, 4]], "z": [[[1, 2]], [[3, 4], [5, 6]]]}
    z = sr.table.Column("steps", torch.int32, features=(2,))
    t = sr.Table(columns, schema={"x": sr.table.Column("a.b", torch.float64), "y": "rows", "z": z})
    assert t["z"].shape[2:] == (2,)
    assert t["z"].dtype == torch.int32
    assert t.levels == ("rows", "a", "steps", "a.b")
    assert t["x"].dtype == torch.float64
    assert t.schema["y"].features == (2,)
    assert sr.Table({"y": torch.arange(6).reshape(2, 3)}, schema={"y": "steps"})["y"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_narrow():
    t = sr.Table({"a": [[300, 2], []], "b": [-1, 5], "c": [1.5, 2], "d": [True, False]}, narrow=True)
    assert (t.schema["a"].stored, t.schema["b"].stored) == (torch.uint16, torch.int8)
    assert t.schema["c"].stored == torch.float64
    assert t["a"].dtype == torch.int64
    assert t["a"].tolist() == [[300, 2], []]
    assert t == sr.Table({"a": [[300, 2], []], "b": [-1, 5], "c": [1.5, 2], "d": [True, False]})


@pytest.mark.parametrize(
    ("columns", "schema", "error", "text"),
    [
        ({}, None, ValueError, "at least one column"),
        ([1], None, TypeError, "mapping of columns"),
        ({3: [1]}, None, TypeError, "name of a column must be a string, got 3"),
        ({"a": 3}, None, TypeError, "column 'a' must be a tensor, an array or nested lists, got int"),
        ({"a": "abc"}, None, TypeError, "got str"),
        ({"a": [1], "b": [1, 2]}, None, RaggednessError, "column 'a' has 1 and column 'b' has 2"),
        ({"a": [[1], 2]}, None, ValueError, r"entry \[1\] is 2 where a list was expected"),
        ({"a": [1, [2]]}, None, (TypeError, ValueError), "one shape"),
        ({"a": [[1, True]]}, None, TypeError, r"entry \[0\]\[0\] is 1, entry \[0\]\[1\] is True"),
        ({"a": [["x", 3]]}, None, TypeError, r"mixes strings with int: entry \[0\]\[1\] is 3"),
        ({"a": [[1], [2**63]]}, None, OverflowError, r"entry \[1\]\[0\], 9223372036854775808, does not fit int64"),
        ({"a": [[object()]]}, None, TypeError, r"entry \[0\]\[0\] must be a number, a string or a time"),
        ({"a": torch.tensor(3)}, None, ValueError, "0-d"),
        ({"a": torch.ones(2, requires_grad=True)}, None, ValueError, "requires a gradient"),
        ({"a": torch.ones(2, device="meta")}, None, ValueError, "must lie on the CPU"),
        ({"a": [1]}, {"b": "x"}, KeyError, "describes columns"),
        ({"a": [1]}, {"a": "x"}, ValueError, "where a list was expected"),
        ({"a": [[1]]}, {"a": "x..y"}, ValueError, "no word may be empty"),
        ({"a": [[1]]}, {"a": 3}, TypeError, "declared by a level"),
        ({"a": [[1]]}, 3, TypeError, "a schema must be a Schema"),
        ({"a": [[1.5]]}, {"a": torch.int32}, ValueError, "not a whole number"),
        ({"a": [[300]]}, {"a": torch.uint8}, OverflowError, r"entry \[0\]\[0\], 300, does not fit torch.uint8"),
    ],
)
def test_wrong_columns(columns, schema, error, text):
    with pytest.raises(error, match=text):
        sr.Table(columns, schema)


def test_lists_that_change_while_they_are_read():
    nested = [[1, 2], [3]]
    grown = nesting._library()
    if grown is None:
        pytest.skip("only compiled code reads lists twice")
    counts = np.array([2, 2], np.int64)  # as if one number had been there when they were counted
    offsets = [torch.zeros(3, dtype=torch.int64)]
    places = np.array([offsets[0].data_ptr()], np.uint64)
    written, values = np.zeros(2, np.int64), torch.zeros(2, dtype=torch.int64)
    arguments = (places.ctypes.data, counts.ctypes.data, written.ctypes.data, values.data_ptr())
    assert not grown.serrate_fill(nested, 1, 0, *arguments)


def test_lists_among_strings_are_named():
    with pytest.raises(TypeError, match=r"column 'a' mixes strings with list: entry \[0\]\[1\] is \[1\]"):
        sr.Table({"a": [["x", [1]], []]})
