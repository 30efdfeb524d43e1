"""Whose memory a table, its columns, its selections and its batches have; and tables too large for int32."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import serrate as sr
from serrate.native import gather

HALF = 2**31


def patients() -> sr.Table:
    return sr.Table({"age": [41, 63, 7], "time": [[0, 3, 9], [], [2]]}, {"time": "visits"})


def test_a_table_lies_over_what_it_was_made_from() -> None:
    """Arrays and tensors are not copied, so what is written to them later is seen; lists are."""
    array, values, lists = np.arange(3), torch.arange(4), [1, 2, 3]
    offsets = torch.tensor([0, 1, 1, 4])
    table = sr.Table({"a": array, "b": sr.from_offsets(values, offsets), "c": lists})
    array[0] = values[0] = lists[0] = 50
    offsets[1] = 3
    assert table.tolist() == {"a": [50, 1, 2], "b": [[50], [], [1, 2, 3]], "c": [1, 2, 3]}


def test_columns_are_views_and_write_through() -> None:
    table = patients()
    table["time"].values[0] = 100
    table.select(["age"])["age"].values[0] = 1
    assert table.tolist() == {"age": [1, 63, 7], "time": [[100, 3, 9], [], [2]]}


def test_a_narrowed_column_is_read_as_a_copy() -> None:
    table = sr.Table({"age": [41, 63]}, narrow=True)
    table["age"].values[0] = 1
    assert table["age"].tolist() == [41, 63]


def test_runs_of_rows_are_views_and_other_selections_copies() -> None:
    table = patients()
    table[1:]["time"].values[0] = 5
    assert table["time"].tolist() == [[0, 3, 9], [], [5]]
    for copy in (
        table[[0, 1, 2]],
        table[::2],
        table[::-1],
        table[:, :2],
        table.windows(size=3),
        table.filter([True] * 3),
    ):
        copy["time"].values.fill_(77)
    assert table["time"].tolist() == [[0, 3, 9], [], [5]]


def test_batches_have_memory_of_their_own() -> None:
    table = patients()
    packed, dense = table.to_packed(), table.to_dense()
    packed.flat("time").fill_(7)
    packed.offsets["visits"].fill_(2**40)
    dense["time"].fill_(8)
    dense["age"].fill_(9)
    assert table == patients()
    assert table.to_dense()["time"].tolist() == [[0, 3, 9], [0, 0, 0], [2, 0, 0]]


def test_what_is_written_to_a_table_from_a_file_stays_out_of_the_file(tmp_path: Path) -> None:
    patients().save(tmp_path / "t")
    before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
    table = sr.open(tmp_path / "t")
    table["time"].values.fill_(7)
    table[:1]["age"].values.fill_(7)
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before
    assert sr.open(tmp_path / "t") == patients()


def test_offsets_that_were_overwritten_are_noticed() -> None:
    table = patients()
    table["time"].partitions[0].offsets[1] = 10**12
    with pytest.raises(ValueError, match="1000000000000"):
        table[[0, 1]]
    with pytest.raises(ValueError, match="1000000000000"):
        table.to_dense()


# -------------------------------------------------------------------------------------------------------- pickling


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bfloat16, torch.bool])
def test_every_dtype_can_be_pickled(dtype: torch.dtype) -> None:
    table = sr.Table({"a": torch.arange(3).to(dtype), "b": [[1], [], [2, 300]]}, narrow=True)
    again = pickle.loads(pickle.dumps(table))
    assert again == table
    assert again.schema["a"].stored == table.schema["a"].stored
    assert again.schema["b"].stored == torch.uint16


def test_a_selection_is_pickled_without_what_it_was_taken_from() -> None:
    table = sr.Table({"a": torch.zeros(1_000_000), "b": torch.zeros(1_000_000, dtype=torch.uint16)})
    assert len(pickle.dumps(table[10:20])) < 10_000
    assert len(pickle.dumps(table[3])) < 10_000
    assert pickle.loads(pickle.dumps(table[10:20])) == table[10:20]
    wide = sr.Table({"a": [1], "b": torch.zeros(1, 1_000_000)})
    assert len(pickle.dumps(wide.select(["a"]))) < 10_000


def _rows(table: sr.Table) -> list[int]:
    return table["age"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tables_go_to_other_processes(method: str, tmp_path: Path) -> None:
    table = sr.Table({"age": [41, 63, 700], "time": [[0, 3, 9], [], [2]]}, narrow=True)
    table.save(tmp_path / "t", rows_per_shard=1)
    with multiprocessing.get_context(method).Pool(1) as pool:
        for given in (table, sr.open(tmp_path / "t"), table[1:]):
            assert pool.apply(_rows, (given,)) == given["age"].tolist()


# ------------------------------------------------------------------------------------------------- more than int32


# Without gather.cpp a number is written down for each entry, which takes more memory than there is.
needs_compiler = pytest.mark.skipif(gather.routines() is None, reason="needs a C++ compiler")


def giant(*lengths: int, dtype: torch.dtype = torch.int64) -> sr.Table:
    """Rows of these lengths, whose entries have no features, and so no memory."""
    offsets = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=dtype)
    return sr.Table({"x": sr.from_offsets(torch.zeros(sum(lengths), 0), offsets)}, {"x": "visits"})


@needs_compiler
def test_more_entries_than_int32_counts() -> None:
    table = giant(HALF - 5, 15)
    assert table.count("visits") == HALF + 10
    assert table[[1, 0, 1]].to_packed().offsets["visits"].tolist() == [0, 15, HALF + 10, HALF + 25]
    assert table.windows(start=-3).to_packed().lengths["visits"].tolist() == [3, 3]
    assert table[:, -2:].to_packed().offsets["visits"].tolist() == [0, 2, 4]
    assert table.to_packed().max_seqlen("visits") == HALF - 5
    assert table.dense_nbytes == 2 * (HALF - 5)
    with pytest.raises(OverflowError, match=str(HALF + 10)):
        table.to_packed().cu_seqlens("visits")


@needs_compiler
def test_int32_offsets_widen_where_a_sum_needs_it() -> None:
    table = giant(HALF - 1, dtype=torch.int32)
    ends = [0, HALF - 1, 2 * (HALF - 1)]
    for made in (table[[0, 0]], sr.Table.concat([table, table])):
        assert made.to_packed().offsets["visits"].tolist() == ends
    stacked = sr.Table.stack([table, table], "all").to_packed()
    assert stacked.offsets["all.visits"].tolist() == ends
    assert stacked.offsets["all"].tolist() == [0, 1, 2]
