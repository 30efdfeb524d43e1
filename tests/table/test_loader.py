"""Batches of loaders against plain indexing: the same rows in every way of reading them, once over all ranks."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.table.loading import WAYS, ids, lists, make, threads_end

import serrate as sr
from serrate.table.gathering.batch import Dense, Packed
from serrate.table.loading.sampling import draw, random_key
from serrate.table.schema import Column
from serrate.table.table import Table


@pytest.fixture(scope="module")
def table() -> Table:
    return make(83)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads_end()


# ------------------------------------------------------------------------------------------------- what batches have


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_are_the_rows_they_say(table: Table, way: str, num_workers: int) -> None:
    loader = table.loader(**WAYS[way], num_workers=num_workers)
    for epoch in range(2):
        seen: list[int] = []
        for batch in loader:
            rows = batch["id"].tolist()
            assert batch.rows == len(rows) > 0
            assert lists(batch) == lists(table[rows].to_packed())
            assert batch.vocabulary("drug") == table.vocabulary("drug")
            assert torch.equal(batch.valid["drug"], table[rows].to_packed().valid["drug"])
            seen += rows
        assert sorted(seen) == list(range(83))
        assert loader.epoch == epoch + 1


@pytest.mark.parametrize("way", WAYS)
def test_workers_change_nothing(table: Table, way: str) -> None:
    alone = table.loader(**WAYS[way])
    helped = table.loader(**WAYS[way], num_workers=3, prefetch=7)
    for _ in range(3):
        assert ids(alone) == ids(helped)


def test_epochs_are_shuffled_anew_and_again(table: Table) -> None:
    loader = table.loader(8, shuffle=True)
    epochs = [ids(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    loader.set_epoch(1)
    assert ids(loader) == epochs[1]
    assert ids(loader) == epochs[2]
    assert ids(table.loader(8, shuffle=True, seed=1)) != epochs[0]
    assert ids(table.loader(8)) == ids(table.loader(8, seed=9))


def test_an_iteration_that_is_left_is_over(table: Table) -> None:
    loader = table.loader(8, shuffle=True)
    next(iter(loader))
    assert loader.epoch == 0
    later = ids(loader)
    loader.set_epoch(1)
    assert ids(loader) == later


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_few_rows(rows: int, way: str) -> None:
    few = make(rows)
    assert ids(few.loader(**WAYS[way], num_workers=1)) == [[0]][:rows]
    assert ids(few.loader(**WAYS[way], drop_last=True)) == []


def test_rows_that_are_all_empty() -> None:
    empty = sr.Table({"id": [0, 1, 2], "x": [[], [], []]}, schema={"x": Column("xs", torch.float32)})
    assert ids(empty.loader(max_tokens=1, bucket_by="x")) == [[0, 1, 2]]
    assert [batch["x"].shape for batch in empty.loader(2, to="dense")] == [(2, 0), (1, 0)]


def test_one_giant_row() -> None:
    giant = sr.Table({"id": [0, 1, 2], "x": [[1], list(range(100_000)), [2]]})
    assert ids(giant.loader(max_tokens=10, oversize="alone")) == [[0], [1], [2]]
    assert ids(giant.loader(max_tokens=10, oversize="drop")) == [[0, 2]]
    with pytest.raises(ValueError, match="row 1 alone has 100000 tokens, more than max_tokens=10"):
        ids(giant.loader(max_tokens=10, num_workers=2))
    assert ids(giant.loader(max_tokens=10, window=9)) == [[0, 1], [2]]


def test_columns(table: Table) -> None:
    (batch,) = table.loader(100, columns=["id", "drug"], bucket_by="visits")
    assert list(batch) == ["id", "drug"]
    assert "visits" not in batch.schema.levels
    assert batch["id"].tolist() == sorted(range(83), key=lambda row: len(table["time"].tolist()[row]))


def test_batches_of_a_table_in_many_parts(table: Table) -> None:
    parts = Table._of(
        table.schema, [table[:10].block(), table[10:11].block(), table[11:11].block(), table[11:].block()]
    )
    for way in WAYS.values():
        wanted = [lists(batch) for batch in table.loader(**way)]
        assert [lists(batch) for batch in parts.loader(**way, num_workers=2)] == wanted


@pytest.mark.parametrize("where", ["folder", "file", "memory"])
def test_batches_of_a_table_on_disk_and_elsewhere(table: Table, where: str, tmp_path: Path) -> None:
    path = tmp_path / ("t.safetensors" if where == "file" else "t")
    table.save(path, **({} if where == "file" else {"rows_per_shard": 20}))
    opened = sr.open(path)
    if where == "memory":
        fsspec.filesystem("memory").put(str(path), "/loader_table", recursive=True)
        opened = sr.open("memory://loader_table")
    for way in WAYS.values():
        wanted = [lists(batch) for batch in table.loader(**way)]
        assert [lists(batch) for batch in opened.loader(**way, num_workers=2)] == wanted


def test_a_table_without_a_level_of_rows() -> None:
    visits = make(20).select(["time", "code"])[3]
    assert [batch["time"].tolist() for batch in visits.loader(2)] == [
        visits["time"].tolist()[i : i + 2] for i in range(0, len(visits), 2)
    ]
    with pytest.raises(TypeError, match="no rows"):
        make(20)[3].loader(2)


# ------------------------------------------------------------------------------------------------------------- dense


def test_dense_batches(table: Table) -> None:
    options: dict[str, Any] = {"padding": {"code": -1}, "side": {"visits": "left"}, "multiple_of": 4}
    for batch in table.loader(8, shuffle=True, to="dense", num_workers=2, **options):
        wanted = table[batch["id"].tolist()].to_dense(**options)
        assert isinstance(batch, Dense)
        for name in batch:
            assert torch.equal(batch[name], wanted[name])
        for level in ("visits", "visits.codes", "drugs"):
            assert torch.equal(batch.masks[level], wanted.masks[level])


@pytest.mark.parametrize("bucket_by", [None, "visits", "code"])
@pytest.mark.parametrize(
    "options",
    [{}, {"max_lengths": {"visits": 3}}, {"max_lengths": 2, "multiple_of": 3}, {"multiple_of": {"visits": 4}}],
)
@pytest.mark.parametrize(("level", "name"), [("visits", "time"), ("visits.codes", "code"), ("rows", "id")])
def test_no_padded_batch_has_more_cells(
    table: Table, bucket_by: str | None, options: dict[str, Any], level: str, name: str
) -> None:
    loader = table.loader(
        max_tokens=90, tokens_at=level, bucket_by=bucket_by, to="dense", oversize="alone", shuffle=True, **options
    )
    batches = list(loader)
    sizes = [batch[name].numel() for batch in batches]
    assert all(size <= 90 or batch.rows == 1 for size, batch in zip(sizes, batches, strict=True))
    assert max(sizes) > 45
    assert sorted(row for batch in batches for row in batch["id"].tolist()) == list(range(83))


def test_the_next_row_would_have_been_too_much(table: Table) -> None:
    batches = list(table.loader(max_tokens=120, tokens_at="visits.codes", to="dense", oversize="alone"))
    for one, other in itertools.pairwise(batches):
        together = table[[*one["id"].tolist(), other["id"].tolist()[0]]]
        assert together.to_dense()["code"].numel() > 120


@given(st.data())
def test_any_options(data: st.DataObject) -> None:
    few = make(data.draw(st.integers(0, 25)), data.draw(st.integers(0, 3)), longest=3)
    options: dict[str, Any] = {
        "shuffle": data.draw(st.booleans()), "batch_size": data.draw(st.integers(1, 9)),
        "bucket_by": data.draw(st.sampled_from([None, "visits", "visits.codes", "time", "drugs", "id"])),
        "pool": data.draw(st.integers(1, 30)), "to": data.draw(st.sampled_from(["packed", "dense"])),
    }  # fmt: skip
    if data.draw(st.booleans()):
        options |= {"max_tokens": data.draw(st.integers(1, 30)), "oversize": "alone", "tokens_at": "visits.codes"}
    if data.draw(st.booleans()):
        options |= {
            "window": data.draw(st.integers(0, 4)),
            "keep": data.draw(st.sampled_from(["head", "tail", "random"])),
        }
        options["level"] = "visits"
    workers = data.draw(st.integers(0, 2))
    world = data.draw(st.integers(1, 3))
    loaders = [few.loader(**options, num_workers=workers, rank=rank, world_size=world) for rank in range(world)]
    batches = [batch for loader in loaders for batch in loader]
    assert sorted(row for batch in batches for row in batch["id"].tolist()) == list(range(len(few)))
    if "max_tokens" in options:
        for batch in batches:
            cells = batch.counts["visits.codes"] if isinstance(batch, Packed) else batch["code"].numel()
            assert cells <= options["max_tokens"] or batch.rows == 1


# ----------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize("keep", ["head", "tail", "random"])
@pytest.mark.parametrize("window", [0, 1, 3, 100])
def test_windows(table: Table, keep: str, window: int) -> None:
    loader = table.loader(7, shuffle=True, seed=4, window=window, keep=keep, level="visits")
    times, codes = table["time"].tolist(), table["code"].tolist()
    starts = set()
    for epoch in range(2):
        for batch in loader:
            rows = batch["id"]
            lengths = torch.tensor([len(times[row]) for row in rows.tolist()])
            excess = (lengths - window).clamp(min=0)
            start = {"head": 0 * excess, "tail": excess}.get(
                keep, draw(rows.values, excess + 1, random_key(4, epoch, "windows"))
            )
            cuts = [slice(a, a + window) for a in start.tolist()]
            assert batch["time"].tolist() == [times[row][cut] for row, cut in zip(rows.tolist(), cuts, strict=True)]
            assert batch["code"].tolist() == [codes[row][cut] for row, cut in zip(rows.tolist(), cuts, strict=True)]
            starts |= {(row, a) for row, a in zip(rows.tolist(), start.tolist(), strict=True)}
    if keep == "random" and window == 3:
        assert len(starts) > 83  # some rows begin elsewhere in the second epoch


def test_windows_are_cut_before_tokens_are_counted(table: Table) -> None:
    loader = table.loader(max_tokens=30, tokens_at="visits", window=2, keep="random", level="visits")
    batches = list(loader)
    assert all(batch.counts["visits"] <= 30 for batch in batches)
    assert all(batch.counts["visits"] >= 29 for batch in batches[:-1])


# ------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_have_every_row_once(table: Table, way: str, world: int) -> None:
    whole = ids(table.loader(**WAYS[way]))
    ranks = [ids(table.loader(**WAYS[way], rank=rank, world_size=world, num_workers=2)) for rank in range(world)]
    counts = [len(batches) for batches in ranks]
    assert sum(len(batch) for batches in ranks for batch in batches[min(counts) :]) < world
    assert sorted(row for batches in ranks for batch in batches for row in batch) == list(range(83))
    for number in range(len(whole) // world * world):
        assert ranks[number % world][number // world] == whole[number]


def test_ranks_with_drop_last_have_equally_many_full_batches(table: Table) -> None:
    ranks = [table.loader(4, shuffle=True, drop_last=True, rank=rank, world_size=3) for rank in range(3)]
    made = [ids(loader) for loader in ranks]
    assert [len(batches) for batches in made] == [len(loader) for loader in ranks] == [6, 6, 6]
    assert all(len(batch) == 4 for batches in made for batch in batches)


def test_rank_of_torch_distributed(table: Table) -> None:
    program = (
        "import torch.distributed as d, serrate as sr, tempfile\n"
        "d.init_process_group('gloo', init_method='file://' + tempfile.mktemp(), rank=0, world_size=1)\n"
        "d.get_rank, d.get_world_size = (lambda: 1), (lambda: 2)\n"
        "print([b['id'].tolist() for b in sr.Table({'id': [0, 1, 2, 3, 4, 5]}).loader(2)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[[2, 3], [5]]", done.stderr


def test_the_number_of_batches(table: Table) -> None:
    assert len(table.loader(8)) == 11
    assert len(table.loader(8, drop_last=True)) == 10
    assert len(table.loader(8, bucket_by="visits", pool=30, rank=1, world_size=2)) == 6
    with pytest.raises(TypeError, match="max_tokens"):
        len(table.loader(max_tokens=100, tokens_at="visits"))


def test_counts_of_numpy_and_counts_past_all_rows() -> None:
    table = sr.Table({"id": [0, 1, 2], "code": [[1, 2, 3], [], [4]]}, schema={"code": "codes"})
    one = table.loader(
        np.int64(2), window=np.int32(2), num_workers=np.int8(1), rank=np.int64(0), world_size=np.int64(1)
    )
    assert [batch["code"].tolist() for batch in one] == [[[1, 2], []], [[4]]]
    assert json.loads(json.dumps(one.state_dict()))["window"] == 2
    for huge in (2**62, 2**64, 2**100):
        options = {"batch_size": huge, "window": huge, "pool": huge, "max_tokens": huge}
        for more in ({}, {"bucket_by": "code"}, {"shuffle": "blocks"}):
            (batch,) = table.loader(**options, **more)
            assert sorted(batch["id"].tolist()) == [0, 1, 2]
    with pytest.raises(ValueError, match="batch_size must be an int of 1 or more"):
        table.loader(np.True_)
