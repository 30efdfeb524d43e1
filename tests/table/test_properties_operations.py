"""Random forests through every operation: in memory, on disk and in plain Python they give the same."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.table import oracle
from tests.table.comparing import check, everywhere, saved
from tests.table.oracle import ROWS, Entry, Plain, Shape
from tests.table.strategies import INT64, KINDS, Kind, Sample, chains, samples, slices

import serrate as sr
from serrate.table.schema import Column

shard_sizes = st.integers(1, 3)


# ----------------------------------------------------------------------------------------------------------- columns


@given(samples(), shard_sizes, st.data())
def test_select_and_drop(sample: Sample, size: int, data: Any) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(sample.kinds)), min_size=1, unique=True))
    expected = oracle.select(sample.plain, names)
    kinds = {name: sample.kinds[name] for name in names}
    part = Sample(expected, kinds)
    gone = [name for name in sample.kinds if name not in names]
    table = sample.table()
    for made in (table.select(names), table.drop(gone)):
        check(made, expected, kinds)
    assert list(table.select(names).keys()) == names
    with saved(table, rows_per_shard=size) as read:
        check(read.select(names), expected, kinds)
        check(read.drop(gone)[::-1], oracle.index(part.plain, slice(None, None, -1)), kinds)


@given(samples(), shard_sizes)
def test_rename(sample: Sample, size: int) -> None:
    names = {name: f"new {name}" for name in list(sample.kinds)[::2]}
    table = sample.table()
    renamed = table.rename(names)
    assert list(renamed.keys()) == [names.get(name, name) for name in table.keys()]  # noqa: SIM118
    check(renamed.rename({new: old for old, new in names.items()}), sample.plain, sample.kinds)
    with saved(table, rows_per_shard=size) as read:
        assert read.rename(names) == renamed
        assert read.rename(names)[::-1] == renamed[::-1]


def test_rename_again_and_again(tmp_path: Path) -> None:
    table = sr.Table({"a": [[1, 2], []], "b": ["x", None]})
    table.save(tmp_path / "t", rows_per_shard=1)
    for each in (table, sr.open(tmp_path / "t")):
        made = each
        for _ in range(2001):
            made = made.rename({"a": "b", "b": "a"})
        assert made.tolist() == {"b": [[1, 2], []], "a": ["x", None]}
        assert pickle.loads(pickle.dumps(made))[[1, 0]].tolist() == {"b": [[], [1, 2]], "a": [None, "x"]}
        block, _ = made.sources[0].block_with(torch.tensor([0]), ("a",))
        assert made.sources[0].block_with(torch.tensor([0]), ("b",))[0] is block  # so that it is looked at once


def test_rename_onto_a_column_that_was_left_out(tmp_path: Path) -> None:
    table = sr.Table({"a": [1, 5], "b": [2, 6], "c": [[], [7]]})
    table.save(tmp_path / "t", rows_per_shard=1)
    for each in (table, sr.open(tmp_path / "t")):
        assert each.select(["a"]).rename({"a": "b"})[[1, 0]].tolist() == {"b": [5, 1]}
        swapped = each.rename({"a": "b", "b": "a"})
        assert swapped[::-1].tolist() == {"b": [5, 1], "a": [6, 2], "c": [[7], []]}
        assert swapped.rename({"a": "b", "b": "a"}) == table
        assert each.rename({"a": "x"}).rename({"b": "a"}).select(["a"]).tolist() == {"a": [2, 6]}
        assert pickle.loads(pickle.dumps(swapped)) == swapped


@given(samples(), shard_sizes, st.data())
def test_with_column_puts_a_column_where_it_was(sample: Sample, size: int, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(sample.kinds)))
    column = sample.schema[name]
    lists = oracle.column(sample.plain, name)
    everywhere(sample, lambda t: t.with_column(name, lists, column), sample.plain, size)
    if not column.text and not column.nullable and column.stored == column.dtype and column.unit is None:
        table = sample.table()
        check(table.with_column(name, table[name], column.level), sample.plain, sample.kinds)


@given(samples(), st.data(), shard_sizes)
def test_map_adds_what_the_function_gives(sample: Sample, data: Any, size: int) -> None:
    level = data.draw(st.sampled_from(oracle.levels(sample.plain)))
    table = sample.table()

    def numbered(columns: dict[str, sr.Tensor]) -> dict[str, torch.Tensor]:
        assert {x.shape[0] for x in columns.values()} <= {table.count(level)}
        assert set(columns) == set(table.keys_at(level))
        return {"number": torch.arange(table.count(level))}

    assume(table.keys_at(level))
    numbers = iter(range(10_000))

    def add(entry: Entry) -> Entry:
        return Entry({**entry.values, "number": next(numbers)}, entry.lists)

    expected = oracle.changed(sample.plain, level, lambda s: Shape([*s.columns, "number"], s.children), add)
    check(table.map(numbered, level), expected, {**sample.kinds, "number": INT64})
    with saved(table, rows_per_shard=size) as read:
        check(read.map(numbered, level), expected, {**sample.kinds, "number": INT64})


# ------------------------------------------------------------------------------------------------------------ levels


@given(chains(), shard_sizes, st.data(), st.sampled_from(["first", "repeat", "fill"]))
def test_flatten_level(sample: Sample, size: int, data: Any, how: str) -> None:
    inner = [level for level in oracle.levels(sample.plain) if level != ROWS]
    assume(inner)
    level = data.draw(st.sampled_from(inner))
    fill = {name: None if kind.text or kind.unit else kind.zero for name, kind in sample.kinds.items()}
    expected = oracle.flatten_level(sample.plain, level, how, fill)
    everywhere(sample, lambda t: t.flatten_level(level, how), expected, size)
    if level == inner[-1]:
        check(sample.table().flatten_level(how=how), expected, sample.kinds)


@given(
    chains(kinds=(INT64, Kind(torch.int64, stored=torch.uint8))), st.integers(-5, 5), st.sampled_from(["first", "fill"])
)
def test_flatten_level_with_a_number(sample: Sample, number: int, how: str) -> None:
    level = oracle.levels(sample.plain)[-1]
    assume(level != ROWS)
    expected = oracle.flatten_level(sample.plain, level, how, dict.fromkeys(sample.kinds, number))
    check(sample.table().flatten_level(level, how, number), expected, sample.kinds)


@given(samples(), shard_sizes, st.data())
def test_concat(sample: Sample, size: int, data: Any) -> None:
    keys = data.draw(st.lists(slices(), min_size=1, max_size=4))
    expected = oracle.concat([oracle.index(sample.plain, key) for key in keys])
    everywhere(sample, lambda t: sr.Table.concat([t[key] for key in keys]), expected, size)


@given(samples(), shard_sizes)
def test_stack_undoes_taking_rows(sample: Sample, size: int) -> None:
    assume(sample.plain.rows)
    count = len(sample.plain.rows)
    everywhere(sample, lambda t: sr.Table.stack([t[i] for i in range(count)]), sample.plain, size)


@given(samples(), st.data())
def test_stacked_tables(sample: Sample, data: Any) -> None:
    """Rows become a level of their own."""
    keys = data.draw(st.lists(slices(), min_size=1, max_size=3))
    parts = [oracle.index(sample.plain, key) for key in keys]
    inner = sample.plain.shape.children[ROWS]
    expected = Plain(
        Shape([], {ROWS: Shape([], {"patients": inner})}),
        Entry({}, {ROWS: [Entry({}, {"patients": part.rows}) for part in parts]}),
    )
    table = sample.table()
    stacked = sr.Table.stack([table[key] for key in keys], "patients")
    check(stacked, expected, sample.kinds)
    for i, key in enumerate(keys):
        for name in sample.kinds:
            assert stacked[i][name].tolist() == table[key][name].tolist()


@given(samples(), shard_sizes, st.data())
def test_squeeze_and_unsqueeze(sample: Sample, size: int, data: Any) -> None:
    assume(sample.plain.rows)
    row = data.draw(st.integers(0, len(sample.plain.rows) - 1))
    one = slice(row, row + 1)
    everywhere(sample, lambda t: t[one].squeeze(), oracle.index(sample.plain, row), size)
    everywhere(sample, lambda t: t[row].unsqueeze(), oracle.index(sample.plain, one), size)
    table = sample.table()
    assert table.unsqueeze("all").squeeze()[row].select(list(sample.kinds)).schema.keys() == table.keys()


# ----------------------------------------------------------------------------------------------------------- entries


@given(samples(), shard_sizes, st.data())
def test_filter(sample: Sample, size: int, data: Any) -> None:
    level = data.draw(st.sampled_from(oracle.levels(sample.plain)))
    count = sum(oracle.lengths(sample.plain, level))
    kept = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    expected = oracle.filtered(sample.plain, level, kept)
    everywhere(sample, lambda t: t.filter(torch.tensor(kept, dtype=torch.bool), level), expected, size)
    everywhere(sample, lambda t: t.filter(lambda _: torch.tensor(kept, dtype=torch.bool), level), expected, size)
    if level == ROWS:
        check(sample.table().filter(kept), expected, sample.kinds)


@given(samples(kinds=(INT64,)), st.data(), st.integers(-60, 60))
def test_filter_by_what_a_column_says(sample: Sample, data: Any, least: int) -> None:
    name = data.draw(st.sampled_from(sorted(sample.kinds)))
    level = oracle.columns(sample.plain)[name]
    assert level is not None
    flags = [value >= least for value in oracle.flat_column(sample.plain, name)]
    expected = oracle.filtered(sample.plain, level, flags)
    check(sample.table().filter(lambda t: t[name] >= least, level), expected, sample.kinds)


@given(samples(), shard_sizes, st.data(), st.booleans())
def test_sort_by(sample: Sample, size: int, data: Any, descending: bool) -> None:
    names = [name for name, kind in sample.kinds.items() if not kind.features and not kind.dtype.is_complex]
    assume(names)
    name = data.draw(st.sampled_from(sorted(names)))
    nat = None if sample.kinds[name].unit is None else -(2**63)
    expected = oracle.sort_by(sample.plain, name, lambda value: order_of(value, nat, descending), descending)
    everywhere(sample, lambda t: t.sort_by(name, descending), expected, size)


def order_of(value: Any, nat: int | None, descending: bool) -> tuple[int, Any]:
    """What is missing comes last either way, and what is no time before it."""
    rank = 2 if value is None else 1 if value == nat else 0
    return -rank if descending else rank, 0 if rank else value


def test_sort_by_puts_nan_last_and_missing_after_it() -> None:
    nan = math.nan
    table = sr.Table({"x": [[nan, None, 2.0, -1.0, nan, None, 0.0]], "place": [list(range(7))]})
    assert table.sort_by("x")["place"].tolist() == [[3, 6, 2, 0, 4, 1, 5]]
    assert table.sort_by("x", descending=True)["place"].tolist() == [[2, 6, 3, 0, 4, 1, 5]]


# ---------------------------------------------------------------------------------------------------------- equality


@given(samples(), shard_sizes)
def test_equal_tables(sample: Sample, size: int) -> None:
    table, again = sample.table(), sample.table()
    assert table == again
    assert table.equals(again)
    assert table == table.select(list(sample.kinds)[::-1])
    with saved(table, rows_per_shard=size) as read:
        assert read == table
        assert table == read
    assert table != 3
    assert not table.equals(None)


@given(samples(kinds=(INT64,)), st.data())
def test_tables_that_differ_in_one_entry(sample: Sample, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(sample.kinds)))
    table = sample.table()
    assume(table[name].numel())
    place = data.draw(st.integers(0, table[name].numel() - 1))
    values = table[name].values.clone()
    values[place] += 1
    level = sample.schema[name].level
    other = table.map(lambda _: {name: values}, level)
    assert table != other
    assert table == sample.table()


def test_tables_that_differ_in_what_they_are() -> None:
    table = sr.Table({"x": [[1, 2], []]}, {"x": "visits"})
    for other in (
        sr.Table({"x": [[1], [2]]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2]]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2], [], []]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2], []]}, {"x": "labs"}),
        sr.Table({"y": [[1, 2], []]}, {"y": "visits"}),
        sr.Table({"x": [[1.0, 2.0], []]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2], []]}, {"x": Column("visits", torch.int32)}),
        sr.Table({"x": [[1, None], []]}, {"x": "visits"}),
        sr.Table({"x": [["1", "2"], []]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2], []], "y": [1, 2]}, {"x": "visits"}),
        sr.Table({"x": [[1, 2], []]}, {"x": Column("visits", torch.int64, unit="datetime64[s]")}),
        sr.Table({"x": [[[1], [2]], []]}, {"x": Column("visits", torch.int64, features=(1,))}),
    ):
        assert table != other
        assert not table.equals(other, equal_nan=True)


def test_strings_are_equal_whatever_their_codes() -> None:
    table = sr.Table({"x": ["b", "a", "b"]})
    other = sr.Table.concat([sr.Table({"x": ["a"]}), table])[1:]
    assert table.vocabulary("x") != other.vocabulary("x")
    assert table == other


def test_entries_under_nothing_do_not_count() -> None:
    """Whatever lies under a missing entry, two tables that miss it are equal."""
    given = [[1.0, None], [None]]
    assert sr.Table({"x": given}) == sr.Table({"x": given})
    assert sr.Table({"x": given}) != sr.Table({"x": [[1.0, None], [0.0]]})
    assert sr.Table({"x": given}) != sr.Table({"x": [[1.0, 0.0], [None]]})


@given(samples(kinds=tuple(kind for kind in KINDS if kind.stored is None)), shard_sizes)
def test_narrow_changes_nothing_that_is_read(sample: Sample, size: int) -> None:
    table = sr.Table(oracle.lists_of(sample.plain), sample.schema, narrow=True)
    check(table, sample.plain, sample.kinds)
    assert table == sample.table()
    assert table.nbytes <= sample.table().nbytes
    with saved(table, rows_per_shard=size) as read:
        check(read, sample.plain, sample.kinds)
        assert read[::-1] == sample.table()[::-1]


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        sr.Table({"a": [1]}).drop(["a"])


def test_concat_keeps_what_stands_for_a_whole_table() -> None:
    a = sr.Table({"name": ["p", "q"], "dose": [1.0, float("nan")], "time": [[3], []]})
    b = sr.Table({"name": ["q", "z"], "dose": [float("nan"), None], "time": [[5, 6], [7]]}, narrow=True)
    for tables, times in (([a[1], b[0]], [5, 6]), ([b[0], a[1], b[0]], [5, 6, 5, 6])):
        made = sr.Table.concat(tables)
        assert made.tolist()["name"] == "q"
        assert math.isnan(made.tolist()["dose"])
        assert made["time"].tolist() == times
    for one, other, column in ((a[0], a[1], "name"), (b[0].drop("name"), b[1].drop("name"), "dose")):
        with pytest.raises(
            ValueError, match=f"column '{column}' has one entry for a whole table.*table 0 and in table 1"
        ):
            sr.Table.concat([one, other])


def test_a_row_of_a_forest_with_the_columns_of_one_tree_has_rows(tmp_path: Path) -> None:
    table = sr.Table({"a": [[1], [2, 3]], "b": [[4, 5], []], "c": ["p", "q"]}, schema={"a": "v", "b": "m"})
    table[1].save(tmp_path / "row")
    for row in (table[1], sr.open(tmp_path / "row")):
        for names in (["a", "c"], ["a"], ["b"], ["c"]):
            assert row.select(names) == table.select(names)[1]
        assert len(row.select(["c", "a"])) == 2
        assert row.select(["c", "a"])[::-1].tolist() == {"c": "q", "a": [3, 2]}
        assert row.drop("b").to_packed().flat("a").tolist() == [2, 3]
        assert pickle.loads(pickle.dumps(row.drop("b"))) == table.drop("b")[1]
