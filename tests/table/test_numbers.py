"""Numbers of Python: float64 and int64 by every way into a table; a dtype that does not hold them is refused."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import serrate as sr
from serrate.native import nesting
from serrate.table.schema import DTYPES, Column, is_integer

DIGITS = [1700000001.5, 1e39, -1e300, 0.1, 2.0**53 + 2, math.inf, -math.inf]
"""Floats that no smaller dtype holds."""


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are read by compiled code, and without it."""
    if request.param == "interpreted":
        monkeypatch.setattr(nesting, "_library", lambda: None)


# ------------------------------------------------------------------------------------------------------ every way in


def written(folder: Path, batches: list[Any], **options: Any) -> sr.Table:
    with sr.TableWriter(folder / "t", **options) as writer:
        for batch in batches:
            writer.write_rows(batch) if isinstance(batch, list) else writer.write(batch)
    return sr.open(folder / "t")


def by_parquet(folder: Path) -> sr.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": DIGITS}), folder / "x.parquet")
    return sr.Table.from_parquet(folder / "x.parquet")


def from_elsewhere(name: str) -> sr.Table:
    """The floats as a list in each library's own container."""
    if name == "arrow":
        import pyarrow as pa

        return sr.Table.from_arrow(pa.table({"x": DIGITS}))
    if name == "pandas":
        import pandas as pd

        return sr.Table.from_pandas(pd.DataFrame({"x": DIGITS}))
    if name == "objects of pandas":
        import pandas as pd

        return sr.Table.from_pandas(pd.DataFrame({"x": pd.Series(DIGITS, dtype=object)}))
    if name == "polars":
        import polars as pl

        return sr.Table.from_polars(pl.DataFrame({"x": DIGITS}))
    if name == "awkward":
        import awkward as ak

        return sr.Table.from_awkward(ak.Array([{"x": each} for each in DIGITS]))
    import datasets

    return sr.Table.from_datasets(datasets.Dataset.from_dict({"x": DIGITS}))


def appended(folder: Path) -> sr.Table:
    sr.Table({"x": DIGITS[:1]}).save(folder / "t")
    return written(folder, [{"x": DIGITS[1:]}], append=True)


ROWS = [{"x": each} for each in DIGITS]
WAYS: dict[str, Callable[[Path], sr.Table]] = {
    "a list": lambda _: sr.Table({"x": DIGITS}),
    "a tuple": lambda _: sr.Table({"x": tuple(DIGITS)}),
    "a generator": lambda _: sr.Table({"x": (each for each in DIGITS)}),
    "numbers of numpy": lambda _: sr.Table({"x": [np.float64(each) for each in DIGITS]}),
    "a level that is named": lambda _: sr.Table({"x": DIGITS}, {"x": "rows"}),
    "rows": lambda _: sr.Table.from_rows(ROWS),
    "save and open": lambda folder: (sr.Table({"x": DIGITS}).save(folder / "t"), sr.open(folder / "t"))[1],
    "a writer": lambda folder: written(folder, [{"x": DIGITS[:2]}, {"x": DIGITS[2:]}]),
    "a writer, ints after floats": lambda folder: written(folder, [{"x": DIGITS}, {"x": [3]}])[: len(DIGITS)],
    "a writer of rows": lambda folder: written(folder, [ROWS]),
    "a writer whose first batch is empty": lambda folder: written(folder, [{"x": []}, {"x": DIGITS}]),
    "append": appended,
    "with_column": lambda _: sr.Table({"y": DIGITS}).with_column("x", DIGITS).select(["x"]),
    "map": lambda _: sr.Table({"y": DIGITS}).map(lambda row: {"x": row["y"].tolist()}).select(["x"]),
    "map of tensors": lambda _: sr.Table({"y": DIGITS}).map(lambda row: {"x": row["y"] * 1}).select(["x"]),
    "concat": lambda _: sr.Table.concat([sr.Table({"x": DIGITS[:3]}), sr.Table({"x": DIGITS[3:]})]),
    "stack": lambda _: sr.Table.stack([sr.Table({"x": DIGITS})])[0],
    "Parquet": by_parquet,
    **{
        name: lambda _, name=name: from_elsewhere(name)  # type: ignore[misc]
        for name in ("arrow", "pandas", "objects of pandas", "polars", "awkward", "Hugging Face")
    },
}


@pytest.mark.parametrize("how", WAYS)
def test_floats_keep_every_digit(how: str, way: None, tmp_path: Path) -> None:
    made = WAYS[how](tmp_path)
    assert made.schema["x"].dtype == torch.float64
    assert made["x"].tolist() == DIGITS
    assert made.tolist()["x"] == DIGITS
    assert made.to_dense()["x"].dtype == made.to_packed().flat("x").dtype == torch.float64
    assert made[[1, 0]]["x"].tolist() == [DIGITS[1], DIGITS[0]]


def test_the_default_dtype_of_torch_is_that_of_tensors(way: None) -> None:
    before = torch.get_default_dtype()
    try:
        for default in (torch.float16, torch.float32, torch.float64):
            torch.set_default_dtype(default)
            assert sr.ragged([[0.1], []]).dtype == default
            table = sr.Table({"x": [[0.1], []], "y": [[], []], "z": [None, None], "c": [1j, 2j]}, {"y": "empty"})
            assert [table.schema[name].dtype for name in "xyzc"] == [torch.float64] * 3 + [torch.complex128]
            tensors = sr.Table({"x": sr.ragged([[0.5], []]), "y": torch.ones(2)})
            assert [tensors.schema[name].dtype for name in "xy"] == [default] * 2
    finally:
        torch.set_default_dtype(before)


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.floats(), st.floats(width=16), st.sampled_from(DIGITS)
)


@given(st.lists(st.lists(scalars, max_size=4), max_size=4))
def test_the_dtype_is_that_of_the_types(lists: list[list[Any]]) -> None:
    """As numpy has it for one number of each type: floats among ints make all of them floats."""
    flat = [each for some in lists for each in some]
    kinds = {type(each) for each in flat}
    expected = np.result_type(*(kind(0) for kind in kinds)) if kinds else np.dtype(float)
    for values in (lists, [tuple(some) for some in lists]):
        table = sr.Table({"x": values}, {"x": "level1"})
        assert table["x"].values.numpy().dtype == expected
        np.testing.assert_array_equal(table["x"].values.numpy(), np.array(flat, expected))


@given(st.lists(st.lists(scalars, min_size=2, max_size=2), min_size=1, max_size=4))
def test_the_dtype_of_features_is_that_of_the_types(lists: list[list[Any]]) -> None:
    kinds = {type(each) for some in lists for each in some}
    expected = np.array(lists, np.result_type(*(kind(0) for kind in kinds)))
    table = sr.Table({"x": lists}, {"x": "rows"})
    assert table["x"].values.numpy().dtype == expected.dtype
    np.testing.assert_array_equal(table["x"].values.numpy(), expected)


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("entries", "dtype", "expected"),
    [
        ([np.int8(1), 2], torch.int64, [1, 2]),
        ([np.float32(0.5), 0.1], torch.float64, [0.5, 0.1]),
        ([np.float32(0.5), None], torch.float32, [0.5, None]),
        ([Colour.RED, None], torch.int64, [3, None]),
        ([0.1, torch.tensor(0.5)], torch.float64, [0.1, 0.5]),
        ([np.array([1, 2]), [3, 4]], torch.int64, [[1, 2], [3, 4]]),
        ([[0.1, 2], None], torch.float64, [[0.1, 2.0], None]),
        ([[True], None], torch.bool, [[True], None]),
        ([None, np.str_("a")], torch.int64, [None, "a"]),
    ],
)
def test_numbers_of_several_libraries(entries: list[Any], dtype: torch.dtype, expected: list[Any]) -> None:
    table = sr.Table({"x": entries}, {"x": "rows"})
    assert table.schema["x"].dtype == dtype
    assert table.tolist()["x"] == expected
    if table.schema["x"].text:
        assert table.vocabulary("x") == ("a",)


# ------------------------------------------------------------------------------------------------- what does not fit


def is_whole(number: Any) -> bool:
    return math.isfinite(number) and number == int(number)


def converted(number: Any, name: str) -> Any:
    """A number as a dtype has it, by numpy's or torch's own conversion of this number alone; None if it has not."""
    if name == "bool":
        return bool(number) if number in (0, 1) else None
    if name == "bfloat16":
        made = torch.tensor(float(number), dtype=torch.bfloat16).item()
    elif np.dtype(name).kind in "iu":
        info = np.iinfo(name)
        return int(number) if is_whole(number) and info.min <= int(number) <= info.max else None
    else:
        with np.errstate(over="ignore"):
            made = np.array(number).astype(name).item()
    return None if math.isinf(made.real) and math.isfinite(number) else made


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, 127, 128, 255, 256, 32767, 32768, 65503, 65519, 65520, 65535, 65536, 2**31, 2**32, -1]),
    st.floats(allow_nan=False),
    st.sampled_from([2.0**63, 2.0**64, -(2.0**63), 3.3e38, 3.39e38, 3.4e38, 3.5e38, 65519.9, 65520.0, 1e39, 0.5]),
)


@given(st.lists(st.lists(numbers, max_size=3), max_size=3), st.sampled_from(sorted(DTYPES)), st.booleans())
def test_a_dtype_that_is_asked_for_has_the_numbers_or_the_first_is_refused(
    lists: list[list[Any]], name: str, as_arrays: bool
) -> None:
    if any(type(each) is float for some in lists for each in some):
        lists = [[float(each) for each in some] for some in lists]
    given: Any = [np.array(some) for some in lists] if as_arrays and all(lists) else lists
    schema = {"x": Column("level1", DTYPES[name])}
    places = [(i, j) for i, some in enumerate(lists) for j in range(len(some))]
    wrong = [(i, j) for i, j in places if converted(lists[i][j], name) is None]
    if not wrong:
        table = sr.Table({"x": given}, schema)
        assert table["x"].dtype == DTYPES[name]
        assert table.tolist()["x"] == [[converted(each, name) for each in some] for some in lists]
        return
    broken = [(i, j) for i, j in wrong if not is_whole(lists[i][j])] if is_integer(DTYPES[name]) else []
    i, j = (broken or wrong)[0]
    kind = ValueError if broken or name == "bool" else OverflowError
    with pytest.raises(kind) as caught:
        sr.Table({"x": given}, schema)
    assert str(caught.value).startswith(f"column 'x': entry [{i}][{j}], {lists[i][j]!r}, ")
    assert (f"torch.{name}" if name != "bool" else "bool") in str(caught.value)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if is_integer(dtype)])
def test_floats_at_the_ends_of_integers(dtype: torch.dtype) -> None:
    """The first that does not fit is a power of 2, which floats have; the last that does may be none of theirs."""
    info = torch.iinfo(dtype)
    last = np.nextafter(float(info.max + 1), 0) if info.bits == 64 else float(info.max)
    for good in (float(info.min), float(math.floor(last))):
        assert sr.Table({"x": [0.0, good]}, {"x": dtype}).tolist() == {"x": [0, int(good)]}
    below = np.nextafter(float(info.min), -math.inf) if info.bits == 64 and info.min else info.min - 1.0
    for bad in (float(info.max + 1), float(below)):
        with pytest.raises(OverflowError, match=r"column 'x': entry \[1\], .* does not fit"):
            sr.Table({"x": [0.0, bad]}, {"x": dtype})


HUGE = [[0.5], [1.5, 1e39]]
REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "a dtype": (lambda: sr.Table({"x": HUGE}, {"x": torch.float32}), "[1][1], 1e+39"),
    "a column": (lambda: sr.Table({"x": HUGE}, {"x": Column("level1", torch.bfloat16)}), "[1][1], 1e+39"),
    "features": (lambda: sr.Table({"x": [[0.5, 1e39]]}, {"x": Column("rows", torch.float16, features=(2,))}), "[0][1]"),
    "a tensor": (
        lambda: sr.Table({"x": torch.tensor([0.5, 1e39], dtype=torch.float64)}, {"x": torch.float32}), "[1], 1e+39",
    ),
    "an array": (lambda: sr.Table({"x": np.array([0.5, 1e39])}, {"x": torch.float32}), "[1], 1e+39"),
    "a ragged tensor": (
        lambda: sr.Table({"x": sr.ragged(HUGE, dtype=torch.float64)}, {"x": torch.float16}), "[1][1], 1e+39",
    ),
    "complex numbers": (lambda: sr.Table({"x": [0j, 1e39j]}, {"x": torch.complex64}), "[1], 1e+39j"),
    "ints": (lambda: sr.Table({"x": [[1], [2, 70000]]}, {"x": torch.float16}), "[1][1], 70000"),
    "rows": (lambda: sr.Table.from_rows([{"x": 0.5}, {"x": 1e39}], {"x": torch.float32}), "[1], 1e+39"),
    "with_column": (
        lambda: sr.Table({"a": [1, 2]}).with_column("x", [0.5, 1e39], Column("rows", torch.float32)), "[1], 1e+39",
    ),
    "an int that no dtype holds": (lambda: sr.Table({"x": [[1], [2**63]]}), "[1][0], 9223372036854775808"),
    "an int among floats": (lambda: sr.Table({"x": [math.nan, 1e300, 10**400]}), "[2], 1000"),
    "an int among numbers of numpy": (lambda: sr.Table({"x": [np.int8(1), 2**63]}), "[1], 9223372036854775808"),
    "an int in features": (lambda: sr.Table({"x": [[1, 2], [3, 2**63]]}, {"x": "rows"}), "[1][1], 9223372036854775808"),
}  # fmt: skip


@pytest.mark.parametrize("how", REFUSALS)
def test_refused_with_column_and_place(how: str, way: None) -> None:
    action, place = REFUSALS[how]
    with pytest.raises(OverflowError) as caught:
        action()
    assert str(caught.value).startswith(f"column 'x': entry {place}")


def test_a_writer_refuses_what_the_dataset_does_not_hold(tmp_path: Path) -> None:
    sr.Table({"x": [0.5]}, {"x": torch.float32}).save(tmp_path / "t")
    with (
        pytest.raises(OverflowError, match=r"column 'x': entry \[1\], 1e\+39, does not fit torch.float32"),
        sr.TableWriter(tmp_path / "t", append=True) as writer,
    ):
        writer.write({"x": [0.1, 1e39]})
    assert sr.open(tmp_path / "t").tolist() == {"x": [0.5]}
    made = written(tmp_path, [{"x": [0.1]}], append=True)
    assert made["x"].dtype == torch.float32
    assert made["x"].tolist() == [0.5, np.float32(0.1)]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(torch.float16, 70000), (torch.float16, -1e9), (torch.bfloat16, 3.4e38), (torch.float32, 1e39)],
)
def test_what_fills_has_to_fit(dtype: torch.dtype, number: float) -> None:
    table = sr.Table({"x": [[1.0], [2.0, 3.0]]}, {"x": Column("a", dtype)})
    with pytest.raises(ValueError, match=re.escape(f"padding of column 'x': {number!r} does not fit {dtype}")):
        table.to_dense(padding=number)
    assert math.isinf(table.to_dense(padding=math.inf)["x"][0, 1])
    deep = sr.Table({"x": [[], [1.0, 2.0]], "y": [1.0, 2.0]}, {"x": Column("a", dtype), "y": Column("rows", dtype)})
    for how, name in (("fill", "x"), ("first", "y")):
        fault = re.escape(f"fill of column {name!r}: {number!r} does not fit {dtype}")
        with pytest.raises(ValueError, match=fault):
            deep.flatten_level(how=how, fill=number)
    assert deep.flatten_level(how="fill", fill=-math.inf).tolist()["x"] == [-math.inf, 1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_isin_compares_in_the_dtype_of_the_column(dtype: torch.dtype) -> None:
    table = sr.Table({"x": [0.1, 0.5, math.inf, -0.1]}, {"x": dtype})
    assert table.isin("x", 0.1).tolist() == [True, False, False, False]
    assert table.isin("x", [0.5, 0.3, 1e308 if dtype != torch.float64 else 0.3]).tolist() == [False, True, False, False]
    assert table.isin("x", math.inf).tolist() == [False, False, True, False]
    assert table.isin("x", torch.tensor([-0.1], dtype=dtype)).tolist() == [False, False, False, True]
    assert table.isin("x", np.array([1])).tolist() == [False] * 4


def test_isin_of_complex_numbers() -> None:
    table = sr.Table({"x": [0.1j, 1.0 + 0j, 0.1 + 0j]}, {"x": torch.complex64})
    assert table.isin("x", [0.1j]).tolist() == [True, False, False]
    assert table.isin("x", [0.1]).tolist() == [False, False, True]
