"""Loaders that stop and go on: states of every batch, loaded by others; and options that are refused."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from tests.table.loading import WAYS, Failing, ids, make, over, threads_end
from tests.table.strategies import Sample, samples

import serrate as sr
from serrate.table.loading import fingerprints
from serrate.table.loading.fingerprints import fingerprint
from serrate.table.table import Table


@pytest.fixture(scope="module")
def table() -> Table:
    return make(83)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads_end()


# ------------------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 3)])
def test_going_on_from_every_batch(table: Table, way: str, before: int, after: int) -> None:
    loader = table.loader(**WAYS[way], num_workers=before)
    states, batches = [loader.state_dict()], []
    for _ in range(2):
        for batch in loader:
            batches.append(batch["id"].tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    wanted = batches + ids(loader)
    for number, state in list(enumerate(states))[::5]:
        later = table.loader(**WAYS[way], num_workers=after)
        later.load_state_dict(state)
        rest: list[list[int]] = []
        while later.epoch < 3:
            rest += ids(later)
        assert rest == wanted[number:]


def test_state_after_the_last_batch_and_after_the_end(table: Table) -> None:
    loader = table.loader(40, shuffle=True)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    full = loader.state_dict()
    assert (full["epoch"], full["position"]) == (0, 83)
    assert next(batches, None) is None
    over_ = loader.state_dict()
    assert (over_["epoch"], over_["position"]) == (1, 0)
    loader.load_state_dict(full)
    assert ids(loader) == []
    assert loader.epoch == 1


def test_a_loop_over_epochs_goes_on_in_the_midst_of_one(table: Table) -> None:
    def train(loader: Any, first: int, stop: int) -> list[list[int]]:
        seen = []
        for epoch in range(first, 3):
            loader.set_epoch(epoch)
            for batch in loader:
                seen.append(batch["id"].tolist())
                if len(seen) == stop:
                    return seen
        return seen

    whole = train(table.loader(8, shuffle=True), 0, 100)
    loader = table.loader(8, shuffle=True)
    done = train(loader, 0, 15)
    state = loader.state_dict()
    later = table.loader(8, shuffle=True, num_workers=2)
    later.load_state_dict(state)
    assert done + train(later, later.epoch, 100) == whole


def test_set_epoch_after_leaving_begins_that_epoch_anew(table: Table) -> None:
    loader = table.loader(8, shuffle=True)
    first = ids(loader)
    loader.set_epoch(0)
    next(iter(loader))
    loader.set_epoch(0)
    assert ids(loader) == first


def test_the_state_is_that_of_the_newest_iteration(table: Table) -> None:
    loader = table.loader(8, shuffle=True)
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 8)
    next(old)
    assert loader.state_dict() == state
    for _ in old:
        pass
    assert loader.state_dict() == state


def test_other_ranks_go_on(table: Table) -> None:
    ranks = [table.loader(4, shuffle=True, rank=rank, world_size=4) for rank in range(4)]
    done = []
    for loader in ranks:
        batches = iter(loader)
        done += [row for _ in range(3) for row in next(batches)["id"].tolist()]
    (state,) = [loader.state_dict() for loader in ranks[:1]]
    assert all(loader.state_dict() == state for loader in ranks)
    for rank in range(3):
        later = table.loader(4, shuffle=True, rank=rank, world_size=3)
        later.load_state_dict(state)
        done += [row for batch in ids(later) for row in batch]
    assert sorted(done) == list(range(83))


@pytest.mark.parametrize(
    "other", [{"batch_size": 9}, {"seed": 1}, {"shuffle": False}, {"drop_last": True}, {"bucket_by": "visits"},
              {"window": 2, "level": "visits"}]
)  # fmt: skip
def test_a_state_of_other_batches_is_refused(table: Table, other: dict[str, Any]) -> None:
    state = table.loader(8, shuffle=True).state_dict()
    with pytest.raises(ValueError, match=rf"state is from a loader with .*{next(iter(other))}"):
        table.loader(**({"batch_size": 8, "shuffle": True} | other)).load_state_dict(state)


def test_a_state_of_another_table_is_refused(table: Table) -> None:
    with pytest.raises(ValueError, match=r"rows=10 \(here 83\)"):
        table.loader(8).load_state_dict(make(10).loader(8).state_dict())


def test_a_state_of_another_dataset_of_that_size_is_refused(table: Table, tmp_path: Path) -> None:
    """As many rows, the same columns and options: what they hold tells, and both are named."""
    table.save(tmp_path / "one", rows_per_shard=30)
    other = table.sort_by("time", descending=True)
    other.save(tmp_path / "two", rows_per_shard=30)
    assert other.count("visits.codes") == table.count("visits.codes")
    one, two = sr.open(tmp_path / "one"), sr.open(tmp_path / "two")
    for options in ({"batch_size": 8}, {"batch_size": 8, "shuffle": True}, {"max_tokens": 40, "tokens_at": "visits"}):
        loader = one.loader(**options, oversize="alone") if "max_tokens" in options else one.loader(**options)
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
        later = two.loader(**options, oversize="alone") if "max_tokens" in options else two.loader(**options)
        with pytest.raises(
            ValueError, match=rf"another dataset.*{tmp_path}/one, 83 rows.*this loader reads.*{tmp_path}/two"
        ):
            later.load_state_dict(state)
        assert later.epoch == 0
        assert next(iter(later))["id"].tolist() != []
    rows = one.dataset().batches(8)
    with pytest.raises(ValueError, match=r"another dataset.*in memory, 83 rows of id, weight"):
        rows.load_state_dict(
            other[:].dataset().batches(8).state_dict() | {"dataset": "the table in memory, 83 rows of id, weight"}
        )
    with pytest.raises(ValueError, match=r"another dataset.*the table in memory"):
        make(83, seed=1).loader(8).load_state_dict(table.loader(8).state_dict())


def test_the_same_rows_are_the_same_dataset_wherever_they_lie(table: Table, tmp_path: Path) -> None:
    """In memory, on disk, in other shards, stored narrowly, elsewhere; columns and words in another order."""
    state = table.loader(8, shuffle=True).state_dict()
    table.save(tmp_path / "a", rows_per_shard=7, narrow=True)
    table.save(tmp_path / "a.safetensors", composed=False)
    table.save("memory://test_loader_state/a", rows_per_shard=20, overwrite=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    others = [sr.open(place) for place in (tmp_path / "a", tmp_path / "a.safetensors", tmp_path / "b")]
    others += [sr.open("memory://test_loader_state/a"), table.select(list(table.keys())[::-1])]
    others += [sr.Table.concat([table[60:], table])[23:], pickle.loads(pickle.dumps(table))]
    for other in others:
        loader = other.loader(8, shuffle=True)
        loader.load_state_dict(state)
        assert loader.state_dict()["fingerprint"] == state["fingerprint"]


@given(samples(), samples())
def test_fingerprints_tell_tables_apart(one: Sample, two: Sample) -> None:
    tables = one.table(), two.table()
    first, second = (fingerprint(each) for each in tables)
    assert fingerprint(sr.Table._from_block(tables[0].block())) == first
    if not tables[0].equals(tables[1], equal_nan=True):
        assert first != second


def test_fingerprints_of_large_tables() -> None:
    """Any change of a column's type or of the number of entries, and of a row that is looked at, makes another."""
    count = 5000
    columns = {"x": torch.arange(count), "y": sr.from_lengths(torch.arange(3 * count), torch.full((count,), 3))}
    table = sr.Table(columns)
    found = {fingerprint(table), fingerprint(table.rename({"x": "z"})), fingerprint(table[:-1])}
    found |= {fingerprint(sr.Table({**columns, "x": torch.arange(count, dtype=torch.int32)}))}
    found |= {fingerprint(sr.Table({**columns, "x": torch.arange(count) + 1}))}
    for row in (0, 7, count - 1, count - 8):
        changed = torch.arange(count)
        changed[row] = -1
        found.add(fingerprint(sr.Table({**columns, "x": changed})))
    assert len(found) == 9
    assert len({tuple(run) for run in fingerprints._runs(table, {"rows": count, "level1": 3 * count})}) == 8
    wide = sr.Table({"x": torch.zeros(1000, 2**17)})
    assert [stop - start for start, stop in fingerprints._runs(wide, {"rows": 1000})] == [1] * 8


def test_rows_that_cannot_be_read_leave_a_state_that_tells_nothing_of_them(table: Table) -> None:
    failing = Failing(table.block(), bad=0)
    loader = over(failing).loader(8, shuffle=True)
    state = loader.state_dict()
    assert state["fingerprint"] is None
    table.loader(8, shuffle=True).load_state_dict(state)
    loader.load_state_dict(table.loader(8, shuffle=True).state_dict())


@pytest.mark.parametrize(
    "change", [{"position": 84}, {"position": -1}, {"epoch": 1.5}, {"epoch": True}, {"taken": None}, {"version": 1},
               {"more": 1}]
)  # fmt: skip
def test_a_broken_state_is_refused(table: Table, change: dict[str, Any]) -> None:
    loader = table.loader(8)
    with pytest.raises(ValueError, match="state"):
        loader.load_state_dict(loader.state_dict() | change)
    with pytest.raises(ValueError, match="state_dict"):
        loader.load_state_dict([])  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "give batch_size, max_tokens or both"),
        ({"batch_size": 0}, ValueError, "batch_size must be an int of 1 or more, got 0"),
        ({"batch_size": 2.0}, ValueError, "batch_size must be an int"),
        ({"batch_size": True}, ValueError, "batch_size must be an int"),
        ({"max_tokens": 0, "tokens_at": "visits"}, ValueError, "max_tokens must be an int of 1 or more"),
        ({"max_tokens": 10}, ValueError, "name one of drugs, visits.codes with tokens_at="),
        ({"max_tokens": 10, "tokens_at": "visit"}, KeyError, "tokens_at must name a level, one of rows, visits"),
        ({"batch_size": 2, "tokens_at": "visits"}, ValueError, "give max_tokens"),
        ({"batch_size": 2, "oversize": "drop"}, ValueError, "give max_tokens"),
        ({"max_tokens": 2, "oversize": "cut"}, ValueError, 'oversize must be "error", "alone" or "drop"'),
        ({"batch_size": 2, "bucket_by": "age"}, KeyError, "bucket_by must name a level below the rows or a column"),
        ({"batch_size": 2, "bucket_by": "weight"}, TypeError, "a column of single numbers"),
        ({"batch_size": 2, "bucket_by": 3}, KeyError, "bucket_by must name"),
        ({"batch_size": 2, "pool": 0}, ValueError, "pool must be an int of 1 or more"),
        ({"batch_size": 2, "shuffle": "rows"}, ValueError, 'shuffle must be True, False or "blocks"'),
        ({"batch_size": 2, "seed": None}, TypeError, "seed must be an int"),
        ({"batch_size": 2, "to": "padded"}, ValueError, 'to must be "packed" or "dense"'),
        ({"batch_size": 2, "padding": 1}, TypeError, 'give to="dense" too'),
        ({"batch_size": 2, "to": "dense", "fill": 1}, TypeError, "there is no option 'fill'"),
        ({"batch_size": 2, "to": "dense", "side": "up"}, ValueError, "side"),
        ({"batch_size": 2, "to": "dense", "max_lengths": {"visit": 2}}, ValueError, "max_lengths"),
        ({"batch_size": 2, "to": "dense", "padding": {"code": "x"}}, (TypeError, ValueError), "padding"),
        ({"batch_size": 2, "rank": 1}, ValueError, "both rank and world_size"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, ValueError, "rank must be less than world_size=2"),
        ({"batch_size": 2, "rank": -1, "world_size": 2}, ValueError, "rank must be an int of 0"),
        ({"batch_size": 2, "num_workers": -1}, ValueError, "num_workers must be an int of 0"),
        ({"batch_size": 2, "prefetch": 2}, ValueError, "give num_workers"),
        ({"batch_size": 2, "num_workers": 1, "prefetch": 0}, ValueError, "prefetch must be an int of 1"),
        ({"batch_size": 2, "window": -1, "level": "visits"}, ValueError, "window must be an int of 0"),
        (
            {"batch_size": 2, "window": 2},
            ValueError,
            "below the rows, but there are visits, drugs",
        ),
        ({"batch_size": 2, "window": 2, "level": "visits.codes"}, ValueError, "a level right below the rows"),
        ({"batch_size": 2, "keep": "tail"}, ValueError, "give window"),
        ({"batch_size": 2, "window": 2, "level": "visits", "keep": "both"}, ValueError, "keep must be"),
        ({"batch_size": 2, "columns": ["age"]}, KeyError, "age"),
        ({"batch_size": 2, "workers": 2}, TypeError, "there is no option 'workers'"),
    ],
)
def test_wrong_options(table: Table, options: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message.replace("(", r"\(")):
        table.loader(**options)


def test_wrong_epochs(table: Table) -> None:
    for epoch in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match="epoch must be an int of 0 or more"):
            table.loader(2).set_epoch(epoch)  # type: ignore[arg-type]


def test_a_name_of_a_level_and_of_a_column_elsewhere() -> None:
    both = sr.Table({"visits": [1, 2], "time": [[1], []]}, schema={"visits": "rows", "time": "visits"})
    with pytest.raises(ValueError, match="names a level, and a column of another level"):
        both.loader(2, bucket_by="visits")


def test_a_loader_shows_its_options(table: Table) -> None:
    assert repr(table.loader(8, shuffle=True)) == (
        "Loader(rows=83, batch_size=8, shuffle=True, seed=0, pool=16384, oversize='error', keep='head')"
    )
    assert table.loader(8).table is table


def test_a_table_with_half_a_character_has_a_state():
    one, other = (sr.Table({"a": [word, "b"]}).loader(batch_size=1) for word in ("\ud800", "\ud801"))
    state = one.state_dict()
    one.load_state_dict(state)
    with pytest.raises(ValueError, match="another"):
        other.load_state_dict(state)
