"""Awkward Array, both ways, compared with its own lists."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import serrate as sr
from serrate.table.convert.awkward import from_awkward, to_awkward
from serrate.table.table import Table

VISITS = [[{"time": 1.5, "codes": [7, 7]}, {"time": 2.5, "codes": []}], [], [{"time": 0.5, "codes": [1]}]]


def lists(array, **options):
    return Table._from_block(from_awkward(array, **options).check()).tolist()


def test_lists_of_records():
    array = ak.Array(VISITS)
    assert str(array.type) == "3 * var * {time: float64, codes: var * int64}"
    block = from_awkward(array)
    assert block.schema.levels == ("rows", "level1", "level1.codes")
    assert to_awkward(block).level1.tolist() == VISITS
    assert str(to_awkward(block).level1.type) == str(array.type)


def test_records_with_lists_of_records():
    array = ak.Array([{"age": i, "visits": visits} for i, visits in enumerate(VISITS)])
    block = from_awkward(array)
    assert block.schema.levels == ("rows", "visits", "visits.codes")
    assert to_awkward(block).tolist() == array.tolist()
    assert to_awkward(block).type == array.type
    flat = to_awkward(block, flat=True)
    assert flat.tolist() == [
        {"age": i, "time": [v["time"] for v in visits], "codes": [v["codes"] for v in visits]}
        for i, visits in enumerate(VISITS)
    ]


@pytest.mark.parametrize(
    "key", [slice(1, None), slice(None, None, 2), [2, 0, 0], np.array([True, False, True]), slice(0, 0)]
)
def test_arrays_that_are_not_packed(key):
    array = ak.Array([{"age": i, "visits": visits} for i, visits in enumerate(VISITS)])[key]
    assert to_awkward(from_awkward(array)).tolist() == array.tolist()


def test_kinds_of_values():
    array = ak.Array({
        "f": np.arange(6.0).reshape(3, 2), "h": np.arange(3, dtype=np.float16), "b": [True, False, True],
        "t": np.array([1, 2, 3], "datetime64[s]"), "d": np.array([1, 2, 3], "timedelta64[ms]"),
        "w": ["a", None, "b"], "o": [1, None, 3], "r": [{"x": 1}, {"x": 2}, {"x": 3}],
    })  # fmt: skip
    block = from_awkward(array).check()
    assert block.schema["f"].features == (2,)
    assert block.schema["t"].unit == "datetime64[s]"
    assert block.schema["d"].unit == "timedelta64[ms]"
    assert lists(array)["w"] == ["a", None, "b"]
    assert lists(array)["x"] == [1, 2, 3]
    assert lists(array)["o"] == [1, None, 3]
    back = to_awkward(block)
    for name in ("f", "h", "b", "t", "d", "w", "o"):
        assert back[name].tolist() == array[name].tolist(), name
    assert str(back.t.type) == "3 * datetime64[s]"  # no option where nothing is missing


def test_categories_keep_their_order():
    array = ak.Array({"c": ak.str.to_categorical(ak.Array(["b", "a", "b"]))})
    assert from_awkward(array).vocabularies["c"] == ("b", "a")
    assert from_awkward(array[1:]).vocabularies["c"] == ("b", "a")
    assert lists(array[1:]) == {"c": ["a", "b"]}


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (ak.Array({"x": np.zeros(2, complex)}), "holds what a column cannot"),
        (ak.Array({"x": np.zeros(2, "datetime64[h]")}), "holds what a column cannot"),
        (ak.Array([{"x": 1}, {"x": "a"}]), "dense_union"),
        (ak.Array([1, 2]), "no name for a column"),
        ([{"x": 1}], "takes an ak.Array, got list"),
    ],
)
def test_what_has_no_place(array, words):
    with pytest.raises(TypeError, match=words):
        from_awkward(array)


def test_missing_lists():
    array = ak.Array([{"x": [1]}, {"x": None}])
    with pytest.raises(ValueError, match="field 'x', row 1: the list is missing"):
        from_awkward(array)
    assert lists(array, nulls="empty") == {"x": [[1], []]}
    assert from_awkward(array, nulls="empty", levels={"x": "codes"}).schema["x"].level == "codes"


def test_what_awkward_cannot_read():
    with pytest.raises(TypeError, match=r"'x' has features \(0,\), but Awkward"):
        to_awkward(sr.Table({"x": torch.zeros(3, 0)}).block())


def nested(depth):
    entry = st.fixed_dictionaries({"x": st.integers(-9, 9), "w": st.one_of(st.none(), st.text(max_size=2))})
    for _ in range(depth):
        entry = st.fixed_dictionaries({f"l{_}": st.lists(entry, max_size=3), f"n{_}": st.floats(allow_nan=False)})
    return st.lists(entry, max_size=4)


@given(st.integers(0, 3).flatmap(nested))
def test_random_records(rows):
    array = ak.Array(rows)
    if "unknown" in str(array.type) or not ak.fields(array):  # nothing says what the entries would be
        return
    assert to_awkward(from_awkward(array)).tolist() == rows
