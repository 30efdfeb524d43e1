"""Times through every format: the same instants come back, in the unit that they had, or in the documented one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import serrate as sr
from serrate.table.convert import parquet_to_folder
from serrate.table.schema import Column

NAT = -(2**63)
COUNTS = [1_700_000_001, -5, 0, 86_399, -86_401]
UNITS = [f"{kind}[{step}]" for kind in ("datetime64", "timedelta64") for step in ("s", "ms", "us", "ns")]


def by_parquet(table: sr.Table, folder: Path, **options: Any) -> sr.Table:
    table.to_parquet(folder / "t.parquet", **options)
    return sr.Table.from_parquet(folder / "t.parquet")


def by_folder(table: sr.Table, folder: Path) -> sr.Table:
    table.to_parquet(folder / "t.parquet", rows_per_group=2)
    parquet_to_folder(folder / "t.parquet", folder / "t", overwrite=True)
    return sr.open(folder / "t")


FORMATS: dict[str, Callable[[sr.Table, Path], sr.Table]] = {
    "arrow": lambda t, _: sr.Table.from_arrow(t.to_arrow()),
    "flat arrow": lambda t, _: sr.Table.from_arrow(t.to_arrow(flat=True)),
    "Parquet": by_parquet,
    "Parquet in groups": lambda t, folder: by_parquet(t, folder, rows_per_group=2),
    "flat Parquet": lambda t, folder: by_parquet(t, folder, flat=True),
    "Parquet to a folder": by_folder,
    "pandas": lambda t, _: sr.Table.from_pandas(t.to_pandas()),
    "polars": lambda t, _: sr.Table.from_polars(t.to_polars()),
    "awkward": lambda t, _: sr.Table.from_awkward(t.to_awkward()),
    "Hugging Face": lambda t, _: sr.Table.from_datasets(t.to_datasets()),
}


def times(unit: str, missing: bool) -> sr.Table:
    """Times of the rows, in lists, in lists of lists, and with features; some missing and one NaT, if asked for."""
    moments = np.array(COUNTS, unit)
    row = np.ma.array(moments, mask=[False, missing, False, False, missing])
    lists = [list(moments[:2]), [], [None if missing else moments[2]], [moments[3]], []]
    deep = [[[each, None if missing else each] for each in some] for some in lists]
    deep = [[[each for each in inner if missing or each is not None] for inner in some] for some in deep]
    if missing:
        row[2] = np.array("NaT", unit)
    columns = {"row": row, "time": lists, "deep": deep, "pair": np.stack([moments, moments[::-1]], 1)}
    levels = {"row": "rows", "time": "visits", "deep": "visits.codes"}
    schema = {name: Column(level, torch.int64, unit=unit, nullable=missing) for name, level in levels.items()}
    return sr.Table(columns, schema)


def instants(table: sr.Table, name: str) -> list[Any]:
    """What a column holds, entry by entry, in the finest unit: None where something is missing, or NaT."""
    column, block = table.schema[name], table.block()
    kind = str(column.unit).split("[")[0]
    held = block.values[name].numpy().view(column.unit).astype(f"{kind}[ns]")
    valid = block.valid[name].tolist() if name in block.valid else [True] * len(held)
    flat = [
        None if not there or np.isnat(each).any() else each.tolist() for each, there in zip(held, valid, strict=True)
    ]
    return [block.offsets[level].tolist() for level in block.offsets] + flat


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("missing", [False, True])
def test_the_same_instants_in_the_same_unit(how: str, unit: str, missing: bool, tmp_path: Path) -> None:
    table = times(unit, missing)
    made = FORMATS[how](table, tmp_path)
    documented = unit.replace("[s]", "[ms]") if how == "polars" else unit
    for name in table.keys():  # noqa: SIM118
        assert made.schema[name].unit == documented, name
        assert instants(made, name) == instants(table, name), name


@pytest.mark.parametrize("how", FORMATS)
def test_days_stay_days(how: str, tmp_path: Path) -> None:
    table = sr.Table({"day": np.array(["2020-02-29", "NaT", "1969-12-31"], "datetime64[D]")})
    made = FORMATS[how](table, tmp_path)
    assert made.schema["day"].unit == "datetime64[D]"
    assert made.tolist() == {"day": [np.datetime64("2020-02-29"), None, np.datetime64("1969-12-31")]}


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_seconds_that_a_format_does_not_hold_are_refused(how: str, kind: str, tmp_path: Path) -> None:
    """None becomes another time: those that keep seconds keep them, the others say which column has them."""
    for count in (2**63 - 1, 2**60, -(2**60)):
        table = sr.Table({"x": [0, 1], "far": np.array([3, count], f"{kind}[s]")})
        if how == "polars" or ("Parquet" in how and kind == "datetime64"):
            with pytest.raises(OverflowError, match=f"column 'far' has the time {count}, in seconds"):
                FORMATS[how](table, tmp_path)
            assert not [path for path in tmp_path.iterdir() if path.is_file()]
        else:
            assert FORMATS[how](table, tmp_path)["far"].tolist() == [3, count]
    most = (2**63 - 1) // 1000
    assert (
        FORMATS[how](sr.Table({"far": np.array([most, -most], f"{kind}[s]")}), tmp_path).schema["far"].unit is not None
    )


# ---------------------------------------------------------------------------------------------------- Parquet's files


def test_seconds_that_pyarrow_wrote(tmp_path: Path) -> None:
    """Its files say which times were seconds, at any depth; columns are read alone, too."""
    stamp = pa.timestamp("s")
    visit = pa.struct([("time", stamp), ("other", pa.timestamp("ms")), ("pair", pa.list_(stamp, 2))])
    schema = pa.schema([("born", pa.timestamp("s", "UTC")), ("visits", pa.list_(visit)), ("times", pa.list_(stamp))])
    rows = [
        {"born": 5, "times": [],
         "visits": [{"time": 7, "other": 8, "pair": [1, 2]}, {"time": None, "other": 9, "pair": [3, 4]}]},
        {"born": -5, "visits": [], "times": [9, None]},
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "t.parquet")
    made = sr.Table.from_parquet(tmp_path / "t.parquet")
    units = {name: made.schema[name].unit for name in ("born", "time", "other", "pair", "times")}
    assert units == {name: f"datetime64[{'ms' if name == 'other' else 's'}]" for name in units}
    assert made["born"].tolist() == [5, -5]
    assert made["time"].tolist() == [[7, 0], []]
    assert made["pair"].tolist() == [[[1, 2], [3, 4]], []]
    assert made["times"].tolist() == [[], [9, 0]]
    for name in units:
        alone = sr.Table.from_parquet(tmp_path / "t.parquet", columns=[name])
        assert alone.schema[name] == made.schema[name]
        assert alone[name].tolist() == made[name].tolist()


def test_files_that_do_not_say_what_their_times_were(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([5, None], pa.timestamp("s"))})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=False)
    made = sr.Table.from_parquet(tmp_path / "t.parquet")
    assert made.schema["x"].unit == "datetime64[ms]"
    assert made["x"].tolist() == [5000, 0]


def test_files_that_lie_about_their_times(tmp_path: Path) -> None:
    """Fractions of seconds are not dropped, and what is no schema makes it no Parquet file."""
    said = base64.b64encode(pa.schema([("x", pa.timestamp("s"))]).serialize().to_pybytes()).decode()
    held = pa.table({"x": pa.array([1500], pa.timestamp("ms"))})
    for text, fault in ((said, r"t\.parquet: column 'x' has fractions of seconds"), ("?", "is not a Parquet file")):
        with pq.ParquetWriter(tmp_path / "t.parquet", held.schema, store_schema=False) as writer:
            writer.write_table(held)
            writer.add_key_value_metadata({"ARROW:schema": text})
        with pytest.raises(ValueError, match=fault):
            sr.Table.from_parquet(tmp_path / "t.parquet")


# ----------------------------------------------------------------------------------------------------------- zones


@pytest.mark.parametrize("step", ["s", "ms", "us", "ns"])
def test_times_in_utc_lose_their_zone_alone(step: str, tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    array = pa.array([1_700_000_001, None, -5], pa.timestamp(step, "UTC"))
    pq.write_table(pa.table({"x": array}), tmp_path / "t.parquet")
    made = {
        "arrow": sr.Table.from_arrow(pa.table({"x": array})),
        "Parquet": sr.Table.from_parquet(tmp_path / "t.parquet"),
        "pandas": sr.Table.from_pandas(pd.DataFrame({"x": pd.Series(array.to_pandas())})),
        "Arrow of pandas": sr.Table.from_pandas(pd.DataFrame({"x": pd.Series(array, dtype=pd.ArrowDtype(array.type))})),
        "polars": sr.Table.from_polars(pl.DataFrame({"x": pl.from_arrow(array)})),
    }
    for how, table in made.items():
        unit = str(table.schema["x"].unit)
        assert unit == ("datetime64[ms]" if (how, step) == ("polars", "s") else f"datetime64[{step}]"), how
        lists = table.tolist()["x"]
        assert [each for each in lists if each is not None and not np.isnat(each)] == [
            np.datetime64(1_700_000_001, step), np.datetime64(-5, step),
        ], how  # fmt: skip


def test_times_in_another_zone_are_refused() -> None:
    import polars as pl

    array = pa.array([5], pa.timestamp("s", "Europe/Zurich"))
    with pytest.raises(TypeError, match=r"field 'x' is of Arrow's type .*; columns count time in UTC: cast it"):
        sr.Table.from_arrow(pa.table({"x": array}))
    with pytest.raises(TypeError, match="columns count time in UTC"):
        sr.Table.from_polars(pl.DataFrame({"x": pl.from_arrow(array)}))
