"""Rows of a table through torch's own DataLoader: batches, samplers and worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset, random_split

import serrate as sr
from serrate.table.gathering.batch import Dense, Packed
from serrate.table.loading.torch_data import TableDataset
from serrate.table.table import Table

CODES = [[[1], [2, 2]], [], [[], [3, 3, 3]], [[4]], [[5, 5], [6], []], [[]], [[7]]]


@pytest.fixture(scope="module")
def table() -> Table:
    return sr.Table(
        {
            "id": [0, 1, 2, 3, 4, 5, 6],
            "time": [[10 * i + j for j in range(len(each))] for i, each in enumerate(CODES)],
            "code": CODES,
            "word": [["a", None], ["b"], [], ["a"], [], ["c"], ["b"]],
        },
        schema={"time": "visits", "code": "visits.codes", "word": "words"},
    )


@pytest.fixture(scope="module")
def opened(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("rows") / "table"
    table.save(path, rows_per_shard=3)
    return sr.open(path)


def same(batch: Any, table: Table) -> bool:
    rows = batch["id"].tolist()
    wanted = table[rows].to_packed()
    assert isinstance(batch, Packed)
    assert all(batch[name].tolist() == wanted[name].tolist() for name in wanted)
    assert batch.vocabulary("word") == wanted.vocabulary("word")
    return torch.equal(batch.valid["word"], wanted.valid["word"])


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def test_rows(table: Table) -> None:
    rows = table.dataset()
    assert len(rows) == 7
    assert rows[4] == table[4]
    assert rows[-1] == table[6]
    assert rows[torch.tensor(2)] == table[2]
    with pytest.raises(IndexError):
        rows[7]


def test_batches(table: Table) -> None:
    rows = table.dataset()
    assert same(rows.__getitems__([4, 0, 4]), table)
    assert same(rows.__getitems__(torch.tensor([6, 1])), table)
    assert rows.__getitems__([-1])["id"].tolist() == [6]
    assert rows.__getitems__([])["id"].tolist() == []
    for bad in ([7], [0, -8]):
        with pytest.raises(IndexError, match="7 entries"):
            rows.__getitems__(bad)


def test_collate_joins_rows_that_were_read_alone(table: Table) -> None:
    rows = table.dataset()
    assert same(rows.collate([rows[i] for i in (4, 0, 1)]), table)
    batch = rows.__getitems__([1])
    assert rows.collate(batch) is batch
    dense = table.dataset(to="dense", padding=-1)
    joined, wanted = dense.collate([dense[i] for i in (4, 1)]), table[[4, 1]].to_dense(padding=-1)
    assert all(torch.equal(joined[name], wanted[name]) for name in wanted)


def test_columns_and_dense(table: Table) -> None:
    rows = table.dataset(columns=["id", "code"], to="dense", padding={"code": -1}, side="left", multiple_of=2)
    batch = rows.__getitems__([0, 2])
    assert isinstance(batch, Dense)
    assert list(batch) == ["id", "code"]
    assert batch["code"].tolist() == [[[-1, -1, -1, 1], [-1, -1, 2, 2]], [[-1, -1, -1, -1], [-1, 3, 3, 3]]]
    assert list(rows[0].keys()) == ["id", "code"]


@pytest.mark.parametrize("source", ["table", "opened"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_data_loaders(source: str, options: dict[str, Any], table: Table, request: pytest.FixtureRequest) -> None:
    rows = request.getfixturevalue(source).dataset()
    loader = DataLoader(rows, batch_size=3, collate_fn=rows.collate, **options)
    batches = list(loader)
    assert ids(batches) == [[0, 1, 2], [3, 4, 5], [6]]
    assert all(same(batch, table) for batch in batches)


def test_dense_batches_from_workers(opened: Table, table: Table) -> None:
    rows = opened.dataset(to="dense", padding=-1)
    for batch in DataLoader(rows, batch_size=4, shuffle=True, collate_fn=rows.collate, num_workers=1):
        wanted = table[batch["id"].tolist()].to_dense(padding=-1)
        assert all(torch.equal(batch[name], wanted[name]) for name in wanted)
        assert all(torch.equal(batch.masks[level], wanted.masks[level]) for level in wanted.masks)


def test_other_samplers_and_datasets(table: Table) -> None:
    rows = table.dataset()
    sampler = BatchSampler(RandomSampler(rows), 2, drop_last=False)
    batches = list(DataLoader(rows, batch_sampler=sampler, collate_fn=rows.collate))
    assert sorted(row for batch in ids(batches) for row in batch) == list(range(7))
    assert all(same(batch, table) for batch in batches)
    assert ids(DataLoader(Subset(rows, [5, 3, 1]), batch_size=2, collate_fn=rows.collate)) == [[5, 3], [1]]
    parts = random_split(rows, [3, 4])
    assert sorted(row for part in parts for row in ids(DataLoader(part, 9, collate_fn=rows.collate))[0]) == list(
        range(7)
    )
    twice = DataLoader(ConcatDataset([rows, rows]), batch_size=5, collate_fn=rows.collate)
    assert ids(twice) == [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2], [3, 4, 5, 6]]
    alone = DataLoader(rows, batch_size=None)
    assert [row["time"].tolist() for row in alone] == table["time"].tolist()


def test_rows_whose_memory_has_moved() -> None:
    """Pickling for a worker process moves tensors into shared memory under the feet of whoever has their address."""
    many = sr.Table({"x": torch.arange(100_000)})
    rows = many.dataset()
    rows.__getitems__([5])
    many.block().values["x"].share_memory_()
    held = [torch.full((100_000,), -1) for _ in range(4)]  # takes the memory that was freed
    assert rows.__getitems__([5, 99_999])["x"].tolist() == [5, 99_999]
    assert many[[7]]["x"].tolist() == [7]
    assert len(held) == 4


def test_pickled(opened: Table, table: Table) -> None:
    rows: TableDataset = pickle.loads(pickle.dumps(opened.dataset()))
    assert same(rows.__getitems__([6, 0]), table)


WAYS: list[dict[str, Any]] = [
    {"batch_size": 2},
    {"batch_size": 2, "shuffle": True, "seed": 3},
    {"max_tokens": 4, "tokens_at": "visits.codes", "shuffle": True, "oversize": "alone"},
    {"batch_size": 2, "bucket_by": "visits", "shuffle": True, "pool": 4},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world", [1, 2])
def test_the_sampler_has_the_batches_of_the_loader(table: Table, way: dict[str, Any], world: int) -> None:
    rows = table.dataset()
    for rank in range(world):
        sampler = rows.batches(**way, rank=rank, world_size=world)
        loader = table.loader(**way, rank=rank, world_size=world)
        batches = DataLoader(rows, batch_sampler=sampler, collate_fn=rows.collate)
        for _ in range(2):
            assert ids(batches) == ids(loader)
    if "max_tokens" not in way:
        assert len(batches) == len(loader)


def test_the_sampler_goes_on(table: Table) -> None:
    rows = table.dataset()
    sampler = rows.batches(2, shuffle=True)
    whole = list(sampler)
    sampler.set_epoch(0)
    some: Iterator[list[int]] = iter(sampler)
    assert [next(some), next(some)] == whole[:2]
    later = rows.batches(2, shuffle=True)
    later.load_state_dict(sampler.state_dict())
    assert list(later) == whole[2:]
    assert later.epoch == 1


def test_the_sampler_counts_padded_cells_of_dense_rows(table: Table) -> None:
    rows = table.dataset(to="dense")
    sampler = rows.batches(max_tokens=6, tokens_at="visits", bucket_by="visits")
    batches = list(DataLoader(rows, batch_sampler=sampler, collate_fn=rows.collate))
    assert all(batch["time"].numel() <= 6 for batch in batches)
    assert max(batch["time"].numel() for batch in batches) > 3


def test_wrong_options(table: Table) -> None:
    with pytest.raises(TypeError, match='give to="dense" too'):
        table.dataset(padding=1)
    with pytest.raises(ValueError, match="to must be"):
        table.dataset(to="list")
    with pytest.raises(KeyError, match="age"):
        table.dataset(columns=["age"])
    with pytest.raises(TypeError, match="window: a sampler chooses rows"):
        table.dataset().batches(2, window=3)
    with pytest.raises(TypeError, match="no rows"):
        table[0].dataset()


def test_a_dataset_from_one_file(table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "one.safetensors")
    rows = sr.open(tmp_path / "one.safetensors").dataset()
    assert same(rows.__getitems__([3, 0]), table)


@pytest.mark.parametrize("row", [1.5, True, [0], "0", slice(0, 1)])
def test_a_row_is_asked_for_by_its_number(row: Any) -> None:
    with pytest.raises(TypeError):
        Table({"a": [1, 2]}).dataset()[row]


@pytest.mark.parametrize("rows", [torch.tensor([[0, 1]]), torch.tensor(0)])
def test_rows_are_asked_for_by_a_vector(rows: torch.Tensor) -> None:
    with pytest.raises(IndexError, match="the numbers of rows must be a vector, got shape"):
        Table({"a": [1, 2]}).dataset().__getitems__(rows)
