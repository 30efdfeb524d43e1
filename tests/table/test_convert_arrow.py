"""Arrow, both ways, compared with what Arrow itself gives as Python lists."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import serrate as sr
from serrate.errors import RaggednessError
from serrate.table.convert.from_arrow import LEVELS, from_arrow, names_in, read_array
from serrate.table.convert.to_arrow import to_arrow
from serrate.table.schema import Column, Schema
from serrate.table.table import Table

VISITS = [
    [{"time": 3, "codes": [{"code": "a", "dose": 1.5}, {"code": "b", "dose": None}]}, {"time": 9, "codes": []}],
    [],
    [{"time": 1, "codes": [{"code": "a", "dose": 2.5}]}],
]


def patients() -> pa.Table:
    codes = pa.list_(pa.struct([("code", pa.string()), ("dose", pa.float64())]))
    visits = pa.list_(pa.struct([("time", pa.int64()), ("codes", codes)]))
    return pa.table({"age": [41, 63, 5], "visits": pa.array(VISITS, visits)})


def lists(data, **options):
    return Table._from_block(from_arrow(data, **options).check()).tolist()


def test_lists_of_structs_are_levels():
    block = from_arrow(patients()).check()
    assert block.schema.levels == ("rows", "visits", "visits.codes")
    assert {name: column.level for name, column in block.schema.items()} == {
        "age": "rows", "time": "visits", "code": "visits.codes", "dose": "visits.codes"
    }  # fmt: skip
    assert Table._from_block(block).tolist() == {
        "age": [41, 63, 5],
        "time": [[v["time"] for v in row] for row in VISITS],
        "code": [[[c["code"] for c in v["codes"]] for v in row] for row in VISITS],
        "dose": [[[c["dose"] for c in v["codes"]] for v in row] for row in VISITS],
    }
    assert block.schema["dose"].nullable
    assert not block.schema["code"].nullable


@pytest.mark.parametrize("bounds", [(0, 3), (1, 3), (0, 1), (1, 2), (2, 3), (1, 1), (3, 3)])
def test_slices_and_the_way_back(bounds):
    part = patients().slice(bounds[0], bounds[1] - bounds[0])
    block = from_arrow(part).check()
    assert to_arrow(block).to_pylist() == part.to_pylist()
    assert from_arrow(to_arrow(block)).schema == block.schema
    flat = to_arrow(block, flat=True)
    assert flat.column_names == ["age", "time", "code", "dose"]
    assert Table._from_block(from_arrow(flat)) == Table._from_block(block)
    assert Table._from_block(from_arrow(to_arrow(block, stable=True))) == Table._from_block(block)


def test_slices_of_every_array_inside():
    inner = patients()["visits"].chunk(0)
    assert lists(pa.table({"visits": inner[1:]}))["time"] == [[], [1]]
    entries = inner.values[1:]  # structs that begin with the second
    assert lists(entries)["time"] == [9, 1]
    assert lists(entries)["dose"] == [[], [2.5]]


def test_chunks_are_joined():
    one = patients()
    both = pa.concat_tables([one, one.slice(1), one.slice(0, 0)])
    assert both["visits"].num_chunks > 1
    assert to_arrow(from_arrow(both)).to_pylist() == both.to_pylist()
    words = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()])
    assert lists(pa.table({"word": words})) == {"word": ["a", "b", "c", "a"]}
    assert lists(pa.table({"word": pa.chunked_array([], pa.string())})) == {"word": []}


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to_batches()[0],
        lambda t: t.to_reader(),
        lambda t: t.to_struct_array(),
        lambda t: t.to_struct_array().chunk(0),
        lambda t: dict(zip(t.column_names, t.columns, strict=True)),
    ],
)
def test_what_counts_as_arrow(make):
    assert lists(make(patients())) == lists(patients())


def test_what_does_not_count_as_arrow():
    with pytest.raises(TypeError, match=r"from_arrow takes an Arrow table.* got list"):
        from_arrow([1, 2])
    with pytest.raises(TypeError, match="no name for a column"):
        from_arrow(pa.array([1, 2]))


def test_memory_is_shared():
    table = pa.table({"visits": pa.array([[{"x": 1.0}, {"x": 2.0}], [{"x": 3.0}]])})
    column = table["visits"].chunk(0)
    block = from_arrow(table)
    assert block.values["x"].data_ptr() == column.values.field(0).buffers()[1].address
    assert block.offsets["visits"].data_ptr() == column.buffers()[1].address
    back = to_arrow(block)["visits"].chunk(0)
    assert back.values.field(0).buffers()[1].address == block.values["x"].data_ptr()
    assert back.buffers()[1].address == block.offsets["visits"].data_ptr()


# ------------------------------------------------------------------------------------------------- names of levels


def test_lists_of_values():
    table = pa.table({"a": [[1, 2], []], "b": [["x", "y"], []], "c": [[[1], [2, 3]], []], "n": [1, 2]})
    block = from_arrow(table)
    assert {name: column.level for name, column in block.schema.items()} == {
        "a": "level1", "b": "level1", "c": "level1.level2", "n": "rows"
    }  # fmt: skip
    assert Table._from_block(block).tolist() == table.to_pydict()


def test_lists_of_values_that_do_not_fit_each_other():
    table = pa.table({"a": [[1, 2], []], "b": [[1], []]})
    with pytest.raises(RaggednessError, match=r"'a' and 'b' share level 'level1'.*levels=\{'b': 'another'\}"):
        from_arrow(table)
    block = from_arrow(table, levels={"b": "other"})
    assert block.schema["b"].level == "other"
    assert Table._from_block(block).tolist() == table.to_pydict()


def test_lists_of_values_inside_records_are_levels_of_their_own():
    rows = [[{"time": 1, "codes": [1, 2], "labs": [0.5]}], [{"time": 2, "codes": [], "labs": []}]]
    table = pa.table({"visits": rows})
    block = from_arrow(table)
    assert block.schema.levels == ("rows", "visits", "visits.codes", "visits.labs")
    assert to_arrow(block).to_pylist() == table.to_pylist()
    shared = [[{"code": [1, 2], "value": [0.5, 1.5]}], [{"code": [], "value": []}]]
    block = from_arrow(pa.table({"visits": shared}), levels={"code": "visits.codes", "visits.value": "visits.codes"})
    assert block.schema.levels == ("rows", "visits", "visits.codes")
    assert block.schema.columns_at("visits.codes") == ("code", "value")


def test_lists_inside_lists_have_no_name():
    rows = [[[{"x": 1}], []], []]
    block = from_arrow(pa.table({"visits": rows}))
    assert block.schema.levels == ("rows", "visits", "visits.level2")
    assert Table._from_block(block).tolist() == {"x": [[[1], []], []]}
    deep = from_arrow(pa.table({"visits": [[{"grid": [[1, 2], []]}]]}))
    assert deep.schema.levels == ("rows", "visits", "visits.grid", "visits.grid.level3")
    assert Table._from_block(deep).tolist() == {"grid": [[[[1, 2], []]]]}
    top = from_arrow(pa.array([[{"x": 1, "y": [2]}], []]))
    assert top.schema.levels == ("rows", "level1", "level1.y")


def test_names_that_are_there_more_than_once_are_paths():
    rows = {"time": [1, 2], "visits": [[{"time": 3}], []], "stays": [[], [{"time": 4}]], "age": [5, 6]}
    table = pa.table(rows)
    block = from_arrow(table)
    assert list(block.schema) == ["time", "visits.time", "stays.time", "age"]
    assert list(names_in(table.schema).values()) == list(block.schema)
    assert to_arrow(block).to_pylist() == table.to_pylist()
    again = from_arrow(to_arrow(Table._from_block(block).drop("stays.time").block()))
    assert list(again.schema) == ["time", "age", "visits.time"]  # one column fewer, the same names


def test_a_column_that_only_looks_like_a_path_keeps_its_name():
    t = sr.Table(
        {"visits.time": [[1], []], "a/b": [1, 2], "ünï": [[3], []]}, schema={"visits.time": "visits", "ünï": "visits"}
    )
    assert Table._from_block(from_arrow(to_arrow(t.block()))).tolist() == t.tolist()


@pytest.mark.parametrize(
    ("table", "options", "error", "words"),
    [
        ({"a.b": [[{"x": 1}]]}, {}, ValueError, r"'a.b' is a list, but its.*levels=\{'a.b': 'entries'\}"),
        ({"rows": [[{"x": 1}]]}, {}, ValueError, r"'rows' is a list, but its name"),
        ({"": [[{"x": 1}]]}, {}, ValueError, "cannot be that of a level"),
        (
            {"a": [[1]]}, {"levels": {"b": "x"}}, KeyError,
            r"'b' names no field that is a list; the fields that are lists are \['a'\]",
        ),
        ({"a": [[1]]}, {"levels": {"a": "x.y"}}, ValueError, "'a' has 1 lists around its entries"),
        ({"a": [[1]]}, {"levels": {"a": "rows"}}, ValueError, "'a' has 1 lists around its entries"),
        ({"v": [[{"a": [1]}]]}, {"levels": {"a": "x.y"}}, ValueError, "'v.a' lies within level 'v'"),
        ({"v": [[{"a": [1]}]], "w": [[{"a": [1]}]]}, {"levels": {"a": "x.y"}}, KeyError, "'a' names several"),
        ({"v": [{"w": [{"a": 1}]}], "u": [{"w": [{"b": 1}]}]}, {}, ValueError, "would both become level 'w'"),
        ({"x": [[{"a.b": 1, "a": {"b": 2}}]], "a": [{"b": 2}]}, {}, ValueError, "would become column"),
        ({"a": [1]}, {"nulls": "drop"}, ValueError, "nulls must be"),
    ],
)  # fmt: skip
def test_names_that_cannot_be(table, options, error, words):
    with pytest.raises(error, match=words):
        from_arrow(pa.table(table), **options)


def test_a_level_can_be_named_where_its_field_cannot():
    assert from_arrow(pa.table({"a.b": [[{"x": 1}]]}), levels={"a.b": "visits"}).schema.levels == ("rows", "visits")
    assert from_arrow(pa.table({"rows": [[{"x": 1}]]}), levels={"rows": "r"}).schema.levels == ("rows", "r")


def test_fields_that_are_there_twice():
    with pytest.raises(ValueError, match=r"named \['x'\] occur more than once"):
        from_arrow(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]))
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(ValueError, match="of 's' named"):
        from_arrow(pa.table({"s": twice}))


def test_structs_outside_lists_are_taken_apart():
    rows = [{"who": {"age": 3, "name": "a"}}, {"who": None}, {"who": {"age": 5, "name": None}}]
    assert lists(pa.Table.from_pylist(rows)) == {"age": [3, None, 5], "name": ["a", None, None]}


def test_levels_of_flat_tables_are_remembered():
    t = sr.Table({"a": [[1], []], "b": [[2], []], "c": [[], [1]]}, schema={"a": "v", "b": "v", "c": "w"})
    flat = to_arrow(t.block(), flat=True)
    assert Table._from_block(from_arrow(flat)) == t
    assert from_arrow(flat.select(["c"])).schema["c"].level == "w"
    other = flat.rename_columns(["x", "y", "c"]).replace_schema_metadata(flat.schema.metadata)
    assert from_arrow(other).schema["x"].level == "level1"
    for hostile in (b"{", b"[1]", b'{"a": 3}', b'{"a": "."}', b'{"a": "x.y"}', b'{"a": "rows"}'):
        assert from_arrow(flat.select(["a"]).replace_schema_metadata({LEVELS: hostile})).schema["a"].level == "level1"


# --------------------------------------------------------------------------------------------------------- nulls


def test_missing_lists():
    table = pa.table({"v": pa.array([[1, 2], None, [], [3]])})
    with pytest.raises(ValueError, match=r"field 'v', row 1: the list is missing; nulls=\"empty\""):
        from_arrow(table)
    assert lists(table, nulls="empty") == {"v": [[1, 2], [], [], [3]]}
    deep = pa.table({"v": [[{"w": [1]}], [{"w": [2]}, {"w": None}], [None]]})
    with pytest.raises(ValueError, match=r"field 'v.w', row 1: the list is missing"):
        from_arrow(deep)
    assert lists(deep, nulls="empty") == {"w": [[[1]], [[2], []], [[]]]}


def test_missing_lists_that_have_entries_in_memory():
    offsets, values = pa.array([0, 2, 4, 5], pa.int32()), pa.array([1, 2, 3, 4, 5])
    array = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    assert lists(pa.table({"v": array}), nulls="empty") == {"v": [[1, 2], [], [5]]}
    assert lists(pa.table({"v": array.slice(1)}), nulls="empty") == {"v": [[], [5]]}


def test_missing_structs_are_missing_in_each_column():
    table = pa.table({"v": [[{"x": 1, "y": "a"}, None], [{"x": None, "y": "b"}]]})
    assert lists(table) == {"x": [[1, None], [None]], "y": [["a", None], ["b"]]}
    block = from_arrow(table)
    assert block.values["x"].tolist() == [1, 0, 0]
    assert block.values["y"].tolist() == [0, 0, 1]


def test_what_lies_under_nulls_becomes_zeros():
    bits = pa.array([True, False, True, False]).buffers()[1]
    numbers = pa.Array.from_buffers(pa.int16(), 4, [bits, pa.py_buffer(np.array([1, 77, 3, 77], np.int16))])
    bools = pa.Array.from_buffers(pa.bool_(), 4, [bits, pa.array([True, True, False, True]).buffers()[1]])
    inner = pa.array(np.arange(1, 9))
    fixed = pa.Array.from_buffers(pa.list_(pa.int64(), 2), 4, [bits], children=[inner])
    places = pa.Array.from_buffers(pa.int32(), 4, [bits, pa.py_buffer(np.array([1, 77, 0, -5], np.int32))])
    words = pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]), safe=False)
    table = pa.table({"n": numbers, "b": bools, "f": fixed, "w": words})
    block = from_arrow(table)
    assert block.values["n"].tolist() == [1, 0, 3, 0]
    assert block.values["b"].tolist() == [True, False, False, False]
    assert block.values["f"].tolist() == [[1, 2], [0, 0], [5, 6], [0, 0]]
    assert block.values["w"].tolist() == [1, 0, 0, 0]
    assert inner.to_pylist() == list(range(1, 9))  # Arrow's own memory is as it was
    assert from_arrow(table.slice(1)).values["n"].tolist() == [0, 3, 0]


def test_nan_is_no_null():
    block = from_arrow(pa.table({"x": [float("nan"), None, 1.0]}))
    assert block.valid["x"].tolist() == [True, False, True]
    assert torch.isnan(block.values["x"]).tolist() == [True, False, False]
    back = to_arrow(block)["x"]
    assert back.null_count == 1
    assert np.isnan(back[0].as_py())


# --------------------------------------------------------------------------------------------------------- types

NUMBERS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.timestamp("s"), pa.timestamp("ns"), pa.date32(),
    pa.duration("ms"), pa.duration("us"),
]  # fmt: skip


def entries(kind: pa.DataType, count: int) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array([i % 3 == 0 for i in range(count)])
    if pa.types.is_temporal(kind):
        return pa.array(np.arange(count), pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
    return pa.array(np.arange(count).astype(kind.to_pandas_dtype()))


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("missing", [False, True])
def test_types_there_and_back(kind, missing):
    values = entries(kind, 7)
    if missing:
        values = pa.array([None if i in (1, 4) else v for i, v in enumerate(values.to_pylist())], kind)
    lists_ = pa.LargeListArray.from_arrays([0, 2, 2, 5], values[1:6])
    fixed = pa.FixedSizeListArray.from_arrays(entries(kind, 12), 2)
    table = pa.table({"row": values[2:5], "inner": lists_, "fixed": fixed[1:4]})
    block = from_arrow(table).check()
    assert to_arrow(block).column("row").to_pylist() == table["row"].to_pylist()
    assert to_arrow(block, flat=True).to_pylist() == table.to_pylist()
    assert block.schema["row"].nullable == missing
    assert block.schema["fixed"].features == (2,)
    if not pa.types.is_temporal(kind):
        assert block.values["row"].dtype == block.schema["row"].dtype
        assert str(block.schema["row"].dtype).removeprefix("torch.") == np.dtype(kind.to_pandas_dtype()).name
    assert to_arrow(block, flat=True).schema.field(0).type == kind


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_types_without_rows(kind):
    table = pa.table({"a": pa.array([], kind), "b": pa.array([], pa.list_(kind)), "c": pa.array([], pa.list_(kind, 3))})
    block = from_arrow(table).check()
    assert block.rows == 0
    back = to_arrow(block, flat=True)
    assert back.to_pydict() == {"a": [], "b": [], "c": []}
    assert back["b"].type.value_type == kind


STRINGS = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_string()), pa.dictionary(pa.int64(), pa.string_view()),
]  # fmt: skip


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_strings(kind):
    words = ["b", None, "a", "b", "", "ü/.x"]
    plain = pa.array(words)
    array = plain.cast(kind) if not pa.types.is_dictionary(kind) else plain.dictionary_encode().cast(kind)
    table = pa.table({"w": array})
    block = from_arrow(table).check()
    assert block.schema["w"] == Column("rows", torch.int64, torch.int32, text=True, nullable=True)
    assert Table._from_block(block).tolist() == {"w": words}
    assert to_arrow(block)["w"].to_pylist() == words
    assert lists(table.slice(2)) == {"w": words[2:]}


def test_dictionaries_that_are_no_vocabularies():
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", "b", "a"]))
    assert from_arrow(pa.table({"w": twice})).vocabularies["w"] == ("a", "b")
    assert lists(pa.table({"w": twice})) == {"w": ["a", "b", "a", None]}
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", None, "b"]))
    assert lists(pa.table({"w": null})) == {"w": ["a", None, "b"]}
    unused = pa.DictionaryArray.from_arrays(pa.array([2, 2]), pa.array(["a", "c", "b"]))
    assert from_arrow(pa.table({"w": unused})).vocabularies["w"] == ("a", "c", "b")
    nothing = pa.array([None, None], pa.string())
    assert lists(pa.table({"w": nothing})) == {"w": [None, None]}
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    with pytest.raises(ValueError, match="dictionary of 1 strings has indices from 0 to 7"):
        from_arrow(pa.table({"w": wrong}))


def test_encodings_that_mean_nothing():
    numbers = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array([1.5, 2.5]))
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([7, 8]))
    assert lists(pa.table({"x": numbers, "y": runs})) == {"x": [2.5, 1.5, None], "y": [7, 7, 8]}
    views = pa.ListViewArray.from_arrays([2, 0, 0], [1, 2, 0], pa.array([1, 2, 3]))
    assert lists(pa.table({"x": views})) == {"x": [[3], [1, 2], []]}
    pairs = pa.array([[("a", 1), ("b", 2)], [], [("c", None)]], pa.map_(pa.string(), pa.int64()))
    assert lists(pa.table({"m": pairs[1:]})) == {"key": [[], ["c"]], "value": [[], [None]]}
    assert from_arrow(pa.table({"m": pairs})).schema.levels == ("rows", "m")
    assert names_in(pa.table({"m": pairs}).schema) == {("m", "key"): "key", ("m", "value"): "value"}


def test_features():
    inner = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 3)
    grid = pa.FixedSizeListArray.from_arrays(inner, 2)
    block = from_arrow(pa.table({"g": grid}))
    assert block.schema["g"].features == (2, 3)
    assert block.values["g"].tolist() == grid.to_pylist()
    assert to_arrow(block)["g"].to_pylist() == grid.to_pylist()
    sliced = pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int16(), 2))[1:]
    assert lists(pa.table({"g": sliced})) == {"g": [None, [3, 4], [5, 6]]}
    assert to_arrow(from_arrow(pa.table({"g": sliced})))["g"].to_pylist() == sliced.to_pylist()
    with pytest.raises(ValueError, match="field 'g', row 1: part of a fixed-size list is missing"):
        from_arrow(pa.table({"g": pa.array([None, [3, None]], pa.list_(pa.int16(), 2))}))
    lists_of = pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64(), 2)))
    assert lists(pa.table({"g": lists_of})) == {"g": [[[1, 2]], [[3, 4], [5, 6]]]}
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(2, 2, 3))
    assert lists(pa.table({"g": tensors})) == {"g": np.arange(12).reshape(2, 2, 3).tolist()}


def test_features_of_size_zero():
    t = sr.Table({"x": torch.zeros(3, 0), "y": torch.zeros(3, 2, 0, 4)})
    back = Table._from_block(from_arrow(to_arrow(t.block())))
    assert back.schema["x"].features == (0,)
    assert back.schema["y"].features == (2, 0, 4)
    assert len(back) == 3


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (
            pa.array([1, 2], pa.int8()).cast(pa.decimal128(5, 0)),
            r"'x' is of Arrow's type decimal128\(5, 0\); columns cannot hold dec",
        ),
        (pa.array([b"a"]), "'x' is of Arrow's type binary"),
        (pa.array([datetime.time(3)]), "'x' is of Arrow's type time64"),
        (pa.array([1], pa.timestamp("s", "Europe/Berlin")), "columns count time in UTC"),
        (pa.array([None, None]), "this type does not say what its entries are"),
        (pa.array([["a", "b"]], pa.list_(pa.string(), 2)), "fixed-size lists of string"),
        (pa.array([[[1], []]], pa.list_(pa.list_(pa.int8()), 2)), "fixed-size lists of list<item: int8>"),
        (pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]), "dense_union"),
    ],
    ids=lambda given: "" if isinstance(given, str) else str(given.type),
)
def test_types_that_columns_do_not_have(array, words):
    with pytest.raises(TypeError, match=words):
        from_arrow(pa.table({"x": array}))


def test_times():
    table = pa.table({
        "utc": pa.array([1, None], pa.timestamp("us", "UTC")), "day": pa.array([1, 2], pa.date32()),
        "ms": pa.array([datetime.date(1970, 1, 2)] * 2, pa.date64()), "d": pa.array([3, 4], pa.duration("s")),
    })  # fmt: skip
    block = from_arrow(table)
    assert {name: column.unit for name, column in block.schema.items()} == {
        "utc": "datetime64[us]", "day": "datetime64[D]", "ms": "datetime64[ms]", "d": "timedelta64[s]"
    }  # fmt: skip
    assert block.values["ms"].tolist() == [86_400_000] * 2
    assert block.values["day"].dtype == torch.int64


def test_no_time_is_a_null():
    times = np.array(["2020-01-01", "NaT"], "datetime64[s]")
    t = sr.Table({"t": times, "d": times.astype("datetime64[D]"), "f": np.stack([times, times], 1)})
    made = to_arrow(t.block())
    assert made["t"].to_pylist() == [datetime.datetime(2020, 1, 1), None]
    assert made["d"].to_pylist() == [datetime.date(2020, 1, 1), None]
    assert made["f"].to_pylist() == [[datetime.datetime(2020, 1, 1)] * 2, None]
    with pytest.raises(ValueError, match="'f' has entries that contain times and NaT"):
        to_arrow(sr.Table({"f": times[None]}).block())


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        (torch.zeros(2, dtype=torch.bfloat16), TypeError, "'x' is of torch.bfloat16, which Arrow does not have"),
        (torch.zeros(2, dtype=torch.complex64), TypeError, "'x' is of torch.complex64"),
        (np.zeros(2, "datetime64[h]"), TypeError, r"'x' counts in datetime64\[h\]"),
        (np.zeros(2, "timedelta64[D]"), TypeError, r"'x' counts in timedelta64\[D\]"),
        (np.array([2**40], "datetime64[D]"), OverflowError, "'x' has dates that do not fit"),
    ],
)
def test_columns_that_arrow_does_not_have(column, error, words):
    with pytest.raises(error, match=words):
        to_arrow(sr.Table({"x": column}).block())


# ------------------------------------------------------------------------------------------------------ leaving


def test_one_row_of_a_table_is_no_table():
    t = sr.Table({"x": [[1, 2], [3]], "n": [1, 2]})
    with pytest.raises(ValueError, match=r"use t\[3:4\] instead of t\[3\]"):
        to_arrow(t[0].block())
    assert to_arrow(t[0:1].block()).num_rows == 1


def test_a_column_and_a_level_of_one_name():
    t = sr.Table({"visits": [1, 2], "x": [[1], []]}, schema={"x": "visits"})
    with pytest.raises(ValueError, match="several fields 'visits' in Arrow"):
        to_arrow(t.block())
    assert to_arrow(t.block(), flat=True).to_pydict() == {"visits": [1, 2], "x": [[1], []]}


def test_narrow_columns_leave_as_what_readers_get():
    t = sr.Table({"x": [[1, 2], [3]]}, narrow=True)
    assert t.block().values["x"].dtype == torch.uint8
    assert to_arrow(t.block(), flat=True)["x"].type.value_type == pa.int64()


def test_levels_and_rows_without_columns():
    block = from_arrow(patients())
    bare = to_arrow(Table._of(Schema(block.schema.levels, {}), (block,)).sources[0].select(()))
    assert bare.num_rows == 3
    made = from_arrow(pa.table({"v": pa.array([[{}, {}], []], pa.list_(pa.struct([])))})).check()
    assert made.counts == {"rows": 2, "v": 2}
    assert to_arrow(made).to_pylist() == [{"v": [{}, {}]}, {"v": []}]


def test_one_array_as_a_column():
    t = sr.Table({"x": pa.array([[1, 2], []]), "w": pa.chunked_array([["a"], [None]])})
    assert t.tolist() == {"x": [[1, 2], []], "w": ["a", None]}
    with pytest.raises(
        TypeError, match=r"column 'x' is an Arrow array of list<item: struct<a: int64>>; Table.from_arrow"
    ):
        read_array(pa.array([[{"a": 1}]]), "x")
    with pytest.raises(ValueError, match="field 'x', row 0: the list is missing"):
        read_array(pa.array([None, [1]]), "x")


# ------------------------------------------------------------------------------------------- random nested records

FIELDS = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.float32(), pa.bool_(), pa.list_(pa.int16(), 2)]),
    lambda inner: st.one_of(
        st.builds(pa.list_, inner.filter(lambda kind: not pa.types.is_struct(kind))),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.list_(pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)]))
        ),
    ),
    max_leaves=6,
)


def value(draw, kind: pa.DataType):
    if pa.types.is_list(kind):
        return [value(draw, kind.value_type) for _ in range(draw(st.integers(0, 3)))]
    if pa.types.is_struct(kind):
        return {field.name: value(draw, field.type) for field in kind}
    if draw(st.integers(0, 4)) == 0:
        return None
    if pa.types.is_fixed_size_list(kind):
        return [draw(st.integers(-5, 5)), draw(st.integers(-5, 5))]
    return draw(
        st.text(max_size=3)
        if pa.types.is_string(kind)
        else st.booleans()
        if pa.types.is_boolean(kind)
        else st.integers(0, 9)
    )


@st.composite
def tables(draw) -> pa.Table:
    kinds = draw(st.lists(FIELDS, min_size=1, max_size=3))
    rows = draw(st.integers(0, 4))
    # Lists of plain values at the top share a level by depth, so each lies in a record of its own.
    kinds = [pa.list_(pa.struct([(f"c{i}", kind)])) if pa.types.is_list(kind) else kind for i, kind in enumerate(kinds)]
    columns = [pa.array([value(draw, kind) for _ in range(rows)], kind) for kind in kinds]
    return pa.Table.from_arrays(columns, [f"t{i}" for i in range(len(kinds))])


@given(tables(), st.data())
def test_random_records_there_and_back(table, data):
    start = data.draw(st.integers(0, table.num_rows))
    part = table.slice(start, data.draw(st.integers(0, table.num_rows - start)))
    block = from_arrow(part).check()
    assert list(names_in(part.schema).values()) == list(block.schema)
    back = to_arrow(block)
    assert back.to_pylist() == part.to_pylist()
    assert Table._from_block(from_arrow(back)) == Table._from_block(block)
    assert Table._from_block(from_arrow(to_arrow(block, flat=True))) == Table._from_block(block)
