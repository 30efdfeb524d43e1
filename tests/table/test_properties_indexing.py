"""Random forests, random index expressions: in memory, on disk and in plain Python they give the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.table import oracle
from tests.table.comparing import check, everywhere, saved
from tests.table.oracle import ROWS
from tests.table.strategies import (
    INT64,
    Sample,
    chains,
    deep_keys,
    row_keys,
    row_lists,
    samples,
    slices,
)

import serrate as sr
from serrate.table.schema import Column

shard_sizes = st.integers(1, 3)


@given(samples(max_depth=4), shard_sizes)
def test_a_table_is_what_it_was_made_from(sample: Sample, size: int) -> None:
    everywhere(sample, lambda t: t, sample.plain, size)


@given(samples(), shard_sizes, st.data())
def test_rows(sample: Sample, size: int, data: Any) -> None:
    key = data.draw(row_keys(len(sample.plain.rows)))
    everywhere(sample, lambda t: t[key], oracle.index(sample.plain, key), size)


@given(chains(), shard_sizes, st.data())
def test_tuples_that_go_down_levels(sample: Sample, size: int, data: Any) -> None:
    key = data.draw(deep_keys(sample.plain))
    everywhere(sample, lambda t: t[key], oracle.index(sample.plain, key), size)


def test_every_slice_of_short_lists(tmp_path: Path) -> None:
    """All starts, stops and steps that differ on lists of up to 4 entries: of the rows, of lists, of lists in lists."""
    lists = [list(range(10 * n, 11 * n)) for n in range(5)]
    table = sr.Table({"x": lists, "y": [[[i] * i for i in each] for each in lists], "z": list(range(5))})
    table.save(tmp_path / "t", rows_per_shard=2)
    ends = (None, *range(-6, 7))
    keys = [slice(a, b, step) for a in ends for b in ends for step in (None, 2, 3, -1, -2)]
    for key in keys:
        inner = table[:, key]
        assert inner["x"].tolist() == [each[key] for each in lists]
        assert inner["y"].tolist() == [[[i] * i for i in each[key]] for each in lists]
        assert table[:, :, key]["y"].tolist() == [[([i] * i)[key] for i in each] for each in lists]
        assert table[key]["x"].tolist() == lists[key]
        if key.step is None:
            assert table.windows(start=key.start, stop=key.stop) == inner
    read = sr.open(tmp_path / "t")
    for key in keys[::7]:
        assert read[key] == table[key]
        assert read[:, key] == table[:, key]
        assert read[key, key, key] == table[key, key, key]


@given(samples(kinds=(INT64,)), shard_sizes, st.data())
def test_one_index_after_another(sample: Sample, size: int, data: Any) -> None:
    first = data.draw(slices() | row_lists(len(sample.plain.rows)))
    between = oracle.index(sample.plain, first)
    second = data.draw(row_keys(len(between.rows)))
    everywhere(sample, lambda t: t[first][second], oracle.index(between, second), size)


@given(chains(kinds=(INT64,)), st.data())
def test_a_tuple_of_integers_is_one_integer_after_another(sample: Sample, data: Any) -> None:
    plain, table, keys = sample.plain, sample.table(), []
    while len(plain.shape.children) == 1 and plain.rows:
        keys.append(data.draw(st.integers(-len(plain.rows), len(plain.rows) - 1)))
        plain, table = oracle.index(plain, keys[-1]), table[keys[-1]]
        check(table, plain, sample.kinds)
        assert table == sample.table()[tuple(keys)]


@given(samples(kinds=(INT64,)), st.data())
def test_keys_of_every_type(sample: Sample, data: Any) -> None:
    count = len(sample.plain.rows)
    assume(count)
    table = sample.table()
    rows = data.draw(row_lists(count))
    wanted = table[rows]
    signed = [np.int8, np.int16, np.int32, np.int64]
    for dtype in signed:
        assert table[np.array(rows, dtype)] == wanted
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        assert table[torch.tensor(rows, dtype=dtype)] == wanted
    positive = [i % count for i in rows]
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        assert table[np.array(positive, dtype)] == wanted
    mask = [i in positive for i in range(count)]
    once = sorted(set(positive))
    for given_mask in (mask, np.array(mask), torch.tensor(mask)):
        assert table[given_mask] == table[once]
    for i in rows[:1]:
        for one in (np.int64(i), np.int8(i), torch.tensor(i), np.array(i)):
            assert table[one] == table[i]
    assert table[range(count)] == table
    assert table[()] == table


@given(samples(kinds=(INT64,)))
def test_arrays_in_any_memory_layout(sample: Sample) -> None:
    count = len(sample.plain.rows)
    table = sample.table()
    assert table[np.arange(2 * count)[::2] // 2] == table
    assert table[np.arange(count)[::-1]] == table[::-1]
    assert table[torch.arange(2 * count).reshape(-1, 2)[:, 0] // 2] == table
    assert table[np.arange(count, dtype=">i4")] == table


@given(samples(), st.data())
def test_selections_are_tables_of_their_own(sample: Sample, data: Any) -> None:
    """A selection saves, pickles and selects like any table."""
    key = data.draw(slices() | row_lists(len(sample.plain.rows)))
    plain, table = oracle.index(sample.plain, key), sample.table()[key]
    with saved(table) as read:
        check(read, plain, sample.kinds)
    check(pickle.loads(pickle.dumps(table)), plain, sample.kinds)
    assert table == sample.table()[key]


@given(samples(), shard_sizes)
def test_what_is_read_can_be_pickled(sample: Sample, size: int) -> None:
    with saved(sample.table(), rows_per_shard=size) as read:
        check(pickle.loads(pickle.dumps(read)), sample.plain, sample.kinds)


@given(samples(), shard_sizes, st.data())
def test_iterating_and_lengths(sample: Sample, size: int, data: Any) -> None:
    with saved(sample.table(), rows_per_shard=size) as read:
        assert len(read) == len(sample.plain.rows)
        for i in range(len(read)):
            check(read[i], oracle.index(sample.plain, i), sample.kinds)


@given(samples(kinds=(INT64,)), st.integers(0, 3))
def test_rows_that_are_not_there(sample: Sample, beyond: int) -> None:
    count = len(sample.plain.rows)
    table = sample.table()
    for row in (count + beyond, -count - 1 - beyond):
        for key in (row, [row], np.array([row]), torch.tensor([row]), (row,)):
            with pytest.raises(IndexError, match=str(row)):
                table[key]
    with pytest.raises(IndexError, match=str(count)):
        table[[True] * (count + 1 + beyond)]


@given(chains(kinds=(INT64,)), st.data())
def test_places_that_some_rows_lack(sample: Sample, data: Any) -> None:
    shape = sample.plain.shape.children[ROWS]
    assume(shape.children)
    (name,) = shape.children
    shortest = min((len(row.lists[name]) for row in sample.plain.rows), default=0)
    assume(sample.plain.rows)
    place = data.draw(st.sampled_from([shortest, -shortest - 1]))
    with pytest.raises(IndexError, match=str(place)):
        sample.table()[:, place]


@given(samples(kinds=(INT64,)), st.data(), shard_sizes)
def test_windows(sample: Sample, data: Any, size_of_shards: int) -> None:
    shape = sample.plain.shape.children[ROWS]
    assume(shape.children)
    level = data.draw(st.sampled_from(sorted(shape.children)))
    rows = data.draw(row_lists(len(sample.plain.rows)))
    ends = st.none() | st.integers(-5, 5)
    one = data.draw(st.booleans())
    start = (
        [data.draw(ends)] * len(rows)
        if one
        else data.draw(st.lists(st.integers(-5, 5), min_size=len(rows), max_size=len(rows)))
    )
    stop = (
        [data.draw(ends)] * len(rows)
        if one
        else data.draw(st.lists(st.integers(-5, 5), min_size=len(rows), max_size=len(rows)))
    )
    limit = data.draw(st.none() | st.integers(0, 4))
    keep = data.draw(st.sampled_from(["head", "tail"]))
    expected = oracle.windows(sample.plain, rows, start, stop, limit, keep, level)
    given_start = (start[0] if rows else None) if one else start
    given_stop = (stop[0] if rows else None) if one else stop
    everywhere(
        sample,
        lambda t: t.windows(rows, given_start, given_stop, size=limit, keep=keep, level=level),
        expected,
        size_of_shards,
    )


@given(chains(kinds=(INT64,)), st.data(), st.integers(0, 4), st.integers(0, 2**31))
def test_random_windows_are_runs(sample: Sample, data: Any, size: int, seed: int) -> None:
    shape = sample.plain.shape.children[ROWS]
    assume(shape.children)
    (name,) = shape.children
    table = sample.table()
    cut = table.windows(size=size, keep="random", seed=seed)
    assert cut == table.windows(size=size, keep="random", seed=seed)
    for i, row in enumerate(sample.plain.rows):
        count = len(row.lists[name])
        runs = [table[i, first : first + size] for first in range(max(count - size, 0) + 1)]
        assert cut[i] in runs


def test_random_windows_start_everywhere() -> None:
    table = sr.Table({"x": [list(range(5))] * 300})
    starts = {row[0] for row in table.windows(size=3, keep="random", seed=0)["x"].tolist()}
    assert starts == {0, 1, 2}


@given(samples(max_depth=2), st.data(), shard_sizes)
def test_rows_by_key(sample: Sample, data: Any, size: int) -> None:
    """A column of keys finds its rows again, in memory and on disk."""
    count = len(sample.plain.rows)
    first = data.draw(st.sampled_from([100, 2**63 - 2, 2**64 - 10]))
    keys = data.draw(st.permutations(range(first, first + count)))
    dtype = torch.uint64 if first > 100 else data.draw(st.sampled_from([torch.uint8, torch.int16, torch.int64]))
    table = sample.table().with_column("key", keys, Column(ROWS, dtype))
    wanted = data.draw(st.lists(st.sampled_from(keys), max_size=6)) if keys else []
    places = [keys.index(key) for key in wanted]
    assert table.rows_of("key", wanted).tolist() == places
    with saved(table, rows_per_shard=size) as read:
        assert read.rows_of("key", wanted).tolist() == places
        check(read[read.rows_of("key", wanted)].drop(["key"]), oracle.index(sample.plain, places), sample.kinds)
    for missing in (99, -1, 2**70, -(2**70)):
        with pytest.raises(KeyError, match=str(missing)):
            table.rows_of("key", [missing])


def test_rows_by_strings_times_and_bools(tmp_path: Path) -> None:
    days = np.array(["2020-01-03", "2020-01-01", "2020-01-02"], "datetime64[D]")
    table = sr.Table({"name": ["b", "a", "c"], "day": days, "flag": [True, False, True]})
    table.save(tmp_path / "t", rows_per_shard=1)
    for each in (table, sr.open(tmp_path / "t")):
        assert each.rows_of("name", ["c", "b", "c"]).tolist() == [2, 0, 2]
        assert each.rows_of("day", days[[2, 0]]).tolist() == [2, 0]
        assert each.rows_of("day", days[[2, 0]].astype("datetime64[s]")).tolist() == [2, 0]
        assert each.rows_of("day", days[[2, 0]].astype(np.int64)).tolist() == [2, 0]
        with pytest.raises(KeyError, match="2020-01-01T00:00:01"):
            each.rows_of("day", np.array(["2020-01-01T00:00:01"], "datetime64[s]"))
        with pytest.raises(TypeError, match="'day'"):
            each.rows_of("day", np.array([1], "timedelta64[D]"))
        assert each[:2].rows_of("flag", [False]).tolist() == [1]
        assert each.rows_of("name", []).tolist() == []


@given(samples(), st.data())
def test_a_row_is_a_table_that_saves_and_grows(sample: Sample, data: Any) -> None:
    assume(sample.plain.rows)
    row = data.draw(st.integers(0, len(sample.plain.rows) - 1))
    plain, table = oracle.index(sample.plain, row), sample.table()[row]
    with saved(table) as read:
        check(read, plain, sample.kinds)
        assert read == table
    check(pickle.loads(pickle.dumps(table)), plain, sample.kinds)
    for name, kind in sample.kinds.items():
        level = oracle.columns(plain)[name]
        if level is not None:
            column = kind.column(level)
            check(table.with_column(name, oracle.column(plain, name), column), plain, sample.kinds)
