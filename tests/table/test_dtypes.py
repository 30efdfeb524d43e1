"""Every kind of column: made, read, saved, reopened, gathered, padded; and how what is given becomes one of them."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.table import oracle
from tests.table.comparing import check, column_lists
from tests.table.oracle import ROWS, Plain, Shape
from tests.table.strategies import KINDS, Kind, Sample

import serrate as sr
from serrate.table.schema import DTYPES, UNITS, Column

LENGTHS = ([3, 0, 1], [2, 0, 4, 1])


def sample_of(kind: Kind, lengths: tuple[list[int], ...] = LENGTHS) -> Sample:
    """Three rows of visits of codes, each with a column of the kind."""
    numbers = iter(range(1000))
    visit_sizes = iter(lengths[1])
    rows = []
    for count in lengths[0]:
        visits = []
        for _ in range(count):
            codes = [oracle.Entry({"code": kind.value(next(numbers))}) for _ in range(next(visit_sizes))]
            visits.append(oracle.Entry({"time": kind.value(next(numbers))}, {"codes": codes}))
        rows.append(oracle.Entry({"age": kind.value(next(numbers))}, {"visits": visits}))
    shape = Shape([], {ROWS: Shape(["age"], {"visits": Shape(["time"], {"codes": Shape(["code"])})})})
    return Sample(Plain(shape, oracle.Entry({}, {ROWS: rows})), dict.fromkeys(("age", "time", "code"), kind))


@pytest.fixture(params=KINDS, ids=lambda kind: repr(kind.column("rows"))[22:-1].replace("torch.", ""))
def sample(request: pytest.FixtureRequest) -> Sample:
    return sample_of(request.param)


def test_in_memory_and_on_disk(sample: Sample, tmp_path: Path) -> None:
    table = sample.table()
    check(table, sample.plain, sample.kinds)
    for name, size in (("one", None), ("several", 1)):
        table.save(tmp_path / name, rows_per_shard=size)
        check(sr.open(tmp_path / name), sample.plain, sample.kinds)
        check(sr.open(tmp_path / name)[[2, 0]], oracle.index(sample.plain, [2, 0]), sample.kinds)
    table.save(tmp_path / "t.safetensors")
    check(sr.open(tmp_path / "t.safetensors"), sample.plain, sample.kinds)


def test_no_rows_and_empty_rows(sample: Sample, tmp_path: Path) -> None:
    kind = sample.kinds["age"]
    for name, lengths in (("none", ([], [])), ("empty", ([0, 0], [])), ("inner", ([2, 1], [0, 0, 0]))):
        small = sample_of(kind, lengths)
        check(small.table(), small.plain, small.kinds)
        small.table().save(tmp_path / name)
        check(sr.open(tmp_path / name), small.plain, small.kinds)


def test_gathered_and_padded(sample: Sample) -> None:
    kind, table = sample.kinds["age"], sample.table()
    dense, packed = table[[2, 0, 0]].to_dense(), table[[2, 0, 0]].to_packed()
    assert dense["code"].dtype == packed.flat("code").dtype == kind.dtype
    assert dense["code"].shape == (3, 3, 4, *kind.features)
    assert torch.equal(dense["code"][1], dense["code"][2])
    words = table.vocabulary("code") if kind.text else ()
    shown = [
        kind.zero if value is None else words.index(value) if kind.text else value
        for value in oracle.flat_column(oracle.index(sample.plain, [2, 0, 0]), "code")
    ]
    assert packed.flat("code").tolist() == shown


def test_tolist_gives_what_was_given(sample: Sample) -> None:
    kind, lists = sample.kinds["age"], sample.table().tolist()
    expected = oracle.lists_of(sample.plain)
    if kind.unit is None:
        assert lists == expected
    else:
        flat = [x for row in lists["code"] for visit in row for x in visit]
        given = oracle.flat_column(sample.plain, "code")
        assert [None if x is None else int(x.astype(np.int64)) for x in flat] == given
        assert {str(x.dtype) for x in flat if x is not None} == {kind.unit}


# --------------------------------------------------------------------------------------- what is given becomes what


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_keep_their_dtype(name: str) -> None:
    dtype = DTYPES[name]
    values = torch.tensor([0, 1, 1, 0, 1, 1]).to(dtype)
    assert sr.Table({"x": values})["x"].dtype == dtype
    assert sr.Table({"x": values})["x"].values.data_ptr() == values.data_ptr()
    ragged = sr.Tensor(values, sr.ragged([[0] * 4, [], [0] * 2]).structure)
    made = sr.Table({"x": ragged})["x"]
    assert made.dtype == dtype
    assert made.values.data_ptr() == values.data_ptr()
    if dtype != torch.bfloat16:
        assert sr.Table({"x": values.numpy()})["x"].dtype == dtype


def test_python_numbers_become_what_numpy_makes_of_them() -> None:
    made = sr.Table({"b": [True], "i": [1], "f": [1.5], "c": [1j], "mixed": [1.5], "s": ["a"]})
    assert [made[name].dtype for name in made.keys()] == [  # noqa: SIM118
        torch.bool, torch.int64, torch.float64, torch.complex128, torch.float64, torch.int64,
    ]  # fmt: skip


@pytest.mark.parametrize(("dtype", "numbers"), [
    (torch.float64, [0.1, 1e300, -1e-300, 2**53 + 1.0]),
    (torch.complex128, [0.1 + 1e300j, -0.2j]),
    (torch.uint64, [2**64 - 1, 2**63, 0]),
    (torch.int64, [-(2**63), 2**63 - 1, 2**53 + 1]),
    (torch.uint32, [2**32 - 1]),
    (torch.float16, [65504.0, 6e-8]),
])  # fmt: skip
def test_declared_dtypes_lose_nothing(dtype: torch.dtype, numbers: list[Any]) -> None:
    expected = torch.tensor(numbers, dtype=dtype)
    for given in (numbers, [numbers], [[numbers], []]):
        depth = 0
        held: Any = given
        while isinstance(held[0], list):
            held, depth = held[0], depth + 1
        level = ".".join(f"level{i + 1}" for i in range(depth)) or ROWS
        made = sr.Table({"x": given}, {"x": Column(level, dtype)})
        assert torch.equal(made["x"].values, expected)
        assert torch.equal(sr.Table({"x": given}, {"x": dtype})["x"].values, expected)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_numpy_times_keep_their_unit(kind: str, unit: str, tmp_path: Path) -> None:
    given = np.array([3, -5, 0, "NaT"], dtype=f"{kind}[{unit}]")
    table = sr.Table({"x": given, "y": [list(given[:2]), [], [given[2]], [given[3]]]})
    for name in ("x", "y"):
        assert table.schema[name].unit == f"{kind}[{unit}]"
        assert table[name].values.tolist() == [3, -5, 0, -(2**63)]
    table.save(tmp_path / "t")
    read = sr.open(tmp_path / "t")
    assert read == table
    assert str(read.tolist()["x"]) == str(list(given))


def test_python_times() -> None:
    day, moment = datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 12, 30, 1, 5)
    table = sr.Table({"day": [[day, None], []], "moment": [moment, moment], "gap": [datetime.timedelta(1), None]})
    assert {name: table.schema[name].unit for name in table.keys()} == {  # noqa: SIM118
        "day": "datetime64[D]", "moment": "datetime64[us]", "gap": "timedelta64[us]",
    }  # fmt: skip
    lists = table.tolist()
    assert lists["day"] == [[np.datetime64("2020-02-29"), None], []]
    assert lists["moment"][0] == np.datetime64("2020-02-29T12:30:01.000005")
    assert lists["gap"] == [np.timedelta64(1, "D"), None]


def test_a_missing_time_keeps_the_unit_of_the_others() -> None:
    table = sr.Table({"x": [np.datetime64("2020-01-01"), None], "y": [None, np.timedelta64(3, "h")]})
    assert table.schema["x"].unit == "datetime64[D]"
    assert table.schema["y"].unit == "timedelta64[h]"
    assert table["y"].values.tolist() == [0, 3]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.nullable])
def test_all_missing(kind: Kind, tmp_path: Path) -> None:
    table = sr.Table({"x": [[None, None], [], [None]]}, {"x": kind.column("visits")})
    assert column_lists(table, "x") == [[None, None], [], [None]]
    table.save(tmp_path / "t")
    assert sr.open(tmp_path / "t") == table
    assert table.to_dense()["x"].shape == (3, 2, *kind.features)
    assert not table.to_dense().valid["x"].any()


def test_missing_without_a_schema() -> None:
    table = sr.Table({"a": [1, None], "b": ["x", None], "c": [[None, 2.5], []], "d": [None, True], "e": [None, None]})
    assert table.tolist() == {"a": [1, None], "b": ["x", None], "c": [[None, 2.5], []], "d": [None, True],
                              "e": [None, None]}  # fmt: skip
    assert [table.schema[name].nullable for name in "abcde"] == [True] * 5
    assert [table[name].dtype for name in "acd"] == [torch.int64, torch.float64, torch.bool]


def test_nan_is_a_value_and_not_missing(tmp_path: Path) -> None:
    table = sr.Table({"x": [[math.nan, 1.0], [None]]})
    assert table.valid("x").tolist() == [[True, True], [False]]
    table.save(tmp_path / "t")
    read = sr.open(tmp_path / "t")
    assert read != table
    assert read.equals(table, equal_nan=True)
    assert math.isnan(read["x"].tolist()[0][0])


def test_signed_zeros_infinities_and_nan_payloads(tmp_path: Path) -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800000, -0x80000000, -0x00800000, 1], dtype=torch.int32)
    table = sr.Table({"x": bits.view(torch.float32), "y": [[0], [], [0], [0], []]})
    table.save(tmp_path / "t")
    rows = torch.tensor([4, 0, 2, 1, 3])
    for made in (sr.open(tmp_path / "t")[rows], table[rows]):
        assert torch.equal(made["x"].values.view(torch.int32), bits[rows])
        assert torch.equal(made.to_dense()["x"].view(torch.int32), bits[rows])
        assert torch.equal(made.to_packed().flat("x").view(torch.int32), bits[rows])


def test_strings_keep_their_bytes(tmp_path: Path) -> None:
    words = ["", " ", "a\x00b", "ä", "a\u0308", "\U0001f600", "x" * 100_000, "line\nbreak", "a", "a"]
    table = sr.Table({"w": words, "deep": [[word] * i for i, word in enumerate(words)]})
    table.save(tmp_path / "t", rows_per_shard=3)
    read = sr.open(tmp_path / "t")
    assert read.tolist()["w"] == words
    assert read == table
    assert len(table.vocabulary("w")) == 9


def test_strings_that_are_no_text_are_refused_or_kept(tmp_path: Path) -> None:
    """A lone surrogate has no UTF-8 form."""
    table = sr.Table({"w": ["\ud800"]})
    with pytest.raises(ValueError, match="'w'"):
        table.save(tmp_path / "t")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_shards_with_different_vocabularies_read_as_one(tmp_path: Path) -> None:
    table = sr.Table({"w": [["b", "a"], ["c"], ["a", "d", None]], "v": ["x", "y", "x"]})
    table.save(tmp_path / "t", rows_per_shard=1)
    read = sr.open(tmp_path / "t")
    assert read == table
    assert set(read.vocabulary("w")) == {"a", "b", "c", "d"}
    assert read[[2, 0]].tolist() == {"w": [["a", "d", None], ["b", "a"]], "v": ["x", "x"]}
    packed = read[[2, 0]].to_packed()
    words, codes, valid = packed.vocabulary("w"), packed.flat("w").tolist(), packed.valid["w"].tolist()
    assert [words[code] for code, there in zip(codes, valid, strict=True) if there] == ["a", "d", "b", "a"]


@pytest.mark.parametrize("features", [(0,), (1,), (2, 0), (2, 3), (1, 1, 1)])
def test_feature_axes(features: tuple[int, ...], tmp_path: Path) -> None:
    rows = torch.arange(5 * math.prod(features), dtype=torch.float64).reshape(5, *features)
    ragged = sr.Tensor(rows, sr.ragged([[0] * 4, [], [0]]).structure)
    table = sr.Table({"x": ragged, "y": rows[:3]})
    assert table.schema["x"].features == table.schema["y"].features == features
    table.save(tmp_path / "t")
    assert sr.open(tmp_path / "t") == table
    assert table.to_dense()["x"].shape == (3, 4, *features)
    assert table[[2, 0]]["x"].shape[2:] == features
    assert torch.equal(table[[2, 0]]["x"].values, rows[[4, 0, 1, 2, 3]])


def test_arrays_in_any_layout(tmp_path: Path) -> None:
    big_endian = np.array([1, 2, 3], dtype=">i4")
    read_only = np.arange(3)
    read_only.flags.writeable = False
    fortran = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    transposed = torch.arange(6).reshape(2, 3).T
    conjugate = torch.tensor([1j, 2j, 3j]).conj()
    table = sr.Table({"a": big_endian, "b": read_only, "c": fortran, "d": transposed, "e": conjugate,
                      "f": torch.arange(6)[::2], "g": np.arange(3)[::-1]})  # fmt: skip
    expected = {
        "a": [1, 2, 3], "b": [0, 1, 2], "c": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "d": [[0, 3], [1, 4], [2, 5]],
        "e": [-1j, -2j, -3j], "f": [0, 2, 4], "g": [2, 1, 0],
    }  # fmt: skip
    assert table.tolist() == expected
    table.save(tmp_path / "t")
    assert sr.open(tmp_path / "t").tolist() == expected


def test_masked_arrays_are_missing_where_they_are_masked() -> None:
    given = np.ma.array([1, 2, 3], mask=[True, False, False])
    assert sr.Table({"a": given}).tolist() == {"a": [None, 2, 3]}
    assert sr.Table({"a": given})["a"].tolist() == [0, 2, 3]
    assert sr.Table({"a": np.ma.array([1.5, 2.5])}).tolist() == {"a": [1.5, 2.5]}
    with pytest.raises(TypeError, match=r"'a'.*2 axes"):
        sr.Table({"a": np.ma.array([[1, 2]], mask=[[True, False]])})


def test_rows_one_by_one() -> None:
    rows = [{"id": 7, "word": ["a", "b"]}, {"id": 9, "word": []}]
    expected = {"id": [7, 9], "word": [["a", "b"], []]}
    for schema in (None, {"word": "words"}, {"word": "words", "id": torch.int32}):
        assert sr.Table.from_rows(rows, schema).tolist() == expected
    assert sr.Table.from_rows(iter(rows), {"word": "words"}).levels == ("rows", "words")
    assert sr.Table.from_rows([], {"word": Column("words", torch.int64, text=True)}).tolist() == {"word": []}


def test_anything_that_can_be_iterated_over() -> None:
    table = sr.Table({"a": iter([1, 2]), "b": range(2), "c": (x for x in [[1], []]), "d": (3, 4)})
    assert table.tolist() == {"a": [1, 2], "b": [0, 1], "c": [[1], []], "d": [3, 4]}
    assert table.with_column("e", (x / 2 for x in range(2))).tolist()["e"] == [0.0, 0.5]


def test_scalars_and_arrays_of_numpy_inside_lists() -> None:
    table = sr.Table({
        "word": [np.str_("x"), "y"], "real": [np.float32(0.5), None], "whole": [np.int8(3), np.int8(-4)],
        "lists": [np.arange(2), np.arange(0)], "tensors": [torch.arange(1), torch.arange(3)],
    }, {"lists": "lists", "tensors": "tensors"})  # fmt: skip
    assert table.tolist() == {"word": ["x", "y"], "real": [0.5, None], "whole": [3, -4], "lists": [[0, 1], []],
                              "tensors": [[0], [0, 1, 2]]}  # fmt: skip
    assert [type(word) for word in table.vocabulary("word")] == [str, str]
    assert table["real"].dtype == torch.float32
    assert table["whole"].dtype == torch.int8


def test_offsets_of_both_widths(tmp_path: Path) -> None:
    for dtype in (torch.int32, torch.int64):
        offsets = torch.tensor([0, 2, 2, 5], dtype=dtype)
        table = sr.Table({"x": sr.from_offsets(torch.arange(5), offsets)})
        assert table["x"].tolist() == [[0, 1], [], [2, 3, 4]]
        assert table[[2, 1, 0]]["x"].tolist() == [[2, 3, 4], [], [0, 1]]
        table.save(tmp_path / str(dtype))
        assert sr.open(tmp_path / str(dtype)) == table


# -------------------------------------------------------------------------------------------------------- narrowing


@pytest.mark.parametrize(("low", "high", "stored"), [
    (0, 255, torch.uint8), (0, 256, torch.uint16), (-1, 127, torch.int8), (-1, 128, torch.int16),
    (0, 65536, torch.uint32), (-(2**31), 0, torch.int32), (-(2**31) - 1, 0, torch.int64), (0, 2**32, torch.int64),
])  # fmt: skip
def test_narrow_stores_the_least_type_that_fits(low: int, high: int, stored: torch.dtype, tmp_path: Path) -> None:
    table = sr.Table({"x": [[low], [], [high]]}, narrow=True)
    assert table.schema["x"].stored == stored
    assert table["x"].dtype == torch.int64
    assert table["x"].tolist() == [[low], [], [high]]
    table.save(tmp_path / "t", rows_per_shard=1)
    read = sr.open(tmp_path / "t")
    assert read.schema["x"].stored == stored
    assert read[[2, 0]].to_packed().flat("x").tolist() == [high, low]
    assert read.to_dense()["x"].dtype == torch.int64


def test_narrow_leaves_other_kinds_alone() -> None:
    table = sr.Table({"f": [1.0], "b": [True], "t": np.array([1], "datetime64[s]"), "c": [1j]}, narrow=True)
    assert [table.schema[name].stored for name in "fbtc"] == [torch.float64, torch.bool, torch.int64, torch.complex128]


def test_padding_is_of_the_type_that_is_read() -> None:
    table = sr.Table({"x": [[1], [2, 3]]}, narrow=True)
    assert table.to_dense(padding=-100)["x"].tolist() == [[1, -100], [2, 3]]
    assert table.to_dense(padding={"x": 1000})["x"].tolist() == [[1, 1000], [2, 3]]


# ------------------------------------------------------------------------------------------------------ times of pandas


def test_times_of_pandas_keep_their_unit_and_their_nanoseconds() -> None:
    import pandas as pd

    stamp, gap = pd.Timestamp("2020-02-29 12:30:01.000000005"), pd.Timedelta(5, "ns")
    table = sr.Table({"x": [[stamp, pd.NaT], [None]], "y": [[gap, pd.NaT], [None]]})
    assert (table.schema["x"].unit, table.schema["y"].unit) == ("datetime64[ns]", "timedelta64[ns]")
    assert table["x"].tolist() == [[stamp.value, -(2**63)], [0]]
    assert table["y"].tolist() == [[5, -(2**63)], [0]]
    assert table.valid("x").tolist() == [[True, True], [False]]


@pytest.mark.parametrize("moment", [datetime.datetime(2020, 2, 29), np.datetime64("2020-02-29", "s")])
def test_nat_of_pandas_has_no_unit_of_its_own(moment: Any) -> None:
    import pandas as pd

    alone = sr.Table({"x": [moment]}).schema["x"]
    table = sr.Table({"x": [pd.NaT, moment]})
    assert table.schema["x"] == alone
    assert table["x"].tolist()[0] == -(2**63)


@pytest.mark.parametrize("nothing", ["pandas", np.datetime64("NaT"), np.timedelta64("NaT"), np.timedelta64(5)])
def test_times_without_a_unit_need_a_schema(nothing: Any) -> None:
    import pandas as pd

    nothing = pd.NaT if isinstance(nothing, str) else nothing
    with pytest.raises(TypeError, match="column 'x' has times without a unit"):
        sr.Table({"x": [nothing]})
    unit = "timedelta64[s]" if isinstance(nothing, np.timedelta64) else "datetime64[s]"
    schema = {"x": Column("rows", torch.int64, unit=unit)}
    if nothing == np.timedelta64(5):
        with pytest.raises(TypeError, match="column 'x' has times without a unit"):
            sr.Table({"x": [nothing]}, schema)
    else:
        assert sr.Table({"x": [nothing]}, schema)["x"].tolist() == [-(2**63)]


def test_times_with_a_zone_are_refused() -> None:
    import pandas as pd

    zones = (pd.Timestamp("2020-01-01", tz="UTC"), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    for moment in zones:
        with pytest.raises(TypeError, match="column 'x' has times with a time zone"):
            sr.Table({"x": [moment]})


@pytest.mark.parametrize("kind", [np.datetime64, np.timedelta64])
def test_a_time_that_does_not_fit_the_finest_unit_is_refused(kind: Any) -> None:
    fits = sr.Table({"x": [[kind(3, "s")], [kind(-1, "ns"), kind("NaT"), None]]})
    assert fits["x"].tolist() == [[3 * 10**9], [-1, -(2**63), 0]]
    with pytest.raises(OverflowError, match=r"column 'x': entry \[1\]\[1\].*does not fit (datetime|timedelta)64\[ns\]"):
        sr.Table({"x": [[kind(3, "s")], [kind(-1, "ns"), kind(2**62, "s")]]})


def test_isin_knows_times_that_do_not_fit_the_unit_of_the_column() -> None:
    table = sr.Table({"x": np.array([0, 3 * 10**9], "datetime64[ns]")})
    assert table.isin("x", [np.datetime64(3, "s")]).tolist() == [False, True]
    assert table.isin("x", [np.datetime64(2**62, "s")]).tolist() == [False, False]  # 2**62 * 10**9 is 0 in 64 bits


@pytest.mark.parametrize("unit", ["datetime64", "datetime64[25s]", "timedelta64[ps]"])
def test_units_that_a_table_does_not_have(unit: str) -> None:
    with pytest.raises(ValueError, match="column 'x': a unit must be"):
        sr.Table({"x": np.array(["NaT"], unit)})
