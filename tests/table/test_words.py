"""Vocabularies between processes: sent whole once, one object where they arrive, complete wherever they are kept."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset

import serrate as sr
from serrate.table import words
from serrate.table.gathering.batch import Dense, Packed

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
MANY = [f"word {i:05}" for i in range(5000)]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process that has neither sent nor received any words."""
    monkeypatch.setattr(words, "_outbox", words._Outbox())
    monkeypatch.setattr(words, "_inbox", words._Recent())


def table(first: int = 0) -> sr.Table:
    """Eight rows with two columns of strings, one of many words; which, depends on `first`."""
    return sr.Table(
        {
            "id": list(range(8)),
            "word": [MANY[first + i :: 8] for i in range(8)],
            "kind": [["a", None], ["b"], [], ["c"], [], ["a"], ["b"], []],
        },
        schema={"word": "words", "kind": "kinds"},
    )


def opened(folder: Path, first: int = 0, shards: int = 1) -> sr.Table:
    table(first).save(folder / f"{first}", rows_per_shard=-(-8 // shards))
    return sr.open(folder / f"{first}")


def strings(batch: Any, name: str) -> Any:
    """A column of a packed batch as the strings that it stands for."""
    return sr.Table._from_block(batch._block).tolist()[name]


# ------------------------------------------------------------------------------------------------------- how often


def test_words_are_sent_once_and_then_by_name() -> None:
    batches = [table_.dataset().__getitems__([i]) for table_ in (table(),) for i in range(3)]
    first, *others = (bytes(ForkingPickler.dumps(batch)) for batch in batches)
    assert len(first) > 5000 * 10
    assert all(len(each) < 2000 for each in others)
    made = [pickle.loads(each) for each in (first, *others)]
    for batch, given in zip(made, batches, strict=True):
        assert strings(batch, "word") == strings(given, "word")
        assert batch.vocabulary("word") is made[0].vocabulary("word")
        assert batch.vocabulary("kind") is made[0].vocabulary("kind")


def test_equal_words_have_one_name_and_others_another() -> None:
    batches = [made.dataset().__getitems__([0]) for made in (table(), table(), table(8), table())]
    sizes = [len(bytes(ForkingPickler.dumps(batch))) for batch in batches]
    assert sizes[0] > 50_000 < sizes[2]
    assert sizes[1] < 2000 > sizes[3]


@pytest.mark.parametrize(
    ("to", "context", "persistent"),
    [(to, "fork", persistent) for to in ("packed", "dense") for persistent in (False, True)]
    + [("packed", "spawn", True)],
)
def test_batches_of_workers_share_their_words(to: str, context: str, persistent: bool, tmp_path: Path) -> None:
    for source in (table(), opened(tmp_path), opened(tmp_path, 8, shards=3)) if context == "fork" else (table(),):
        rows = source.dataset(to=to)
        loader = DataLoader(
            rows, batch_size=1, collate_fn=rows.collate, num_workers=2, multiprocessing_context=context,
            persistent_workers=persistent,
        )  # fmt: skip
        made = [batch for _ in range(2) for batch in loader]
        assert len(made) == 16
        for number, batch in enumerate(made):
            given = rows.__getitems__([number % 8])
            assert isinstance(batch, Packed if to == "packed" else Dense)
            for name in ("word", "kind"):
                assert batch.vocabulary(name) == source.vocabulary(name)
                assert batch.vocabulary(name) is made[0].vocabulary(name)
                assert batch[name].tolist() == given[name].tolist()


def test_datasets_with_other_words_are_told_apart(tmp_path: Path) -> None:
    parts = [table(), opened(tmp_path, 8), opened(tmp_path, 16, shards=2)]
    rows = ConcatDataset([part.dataset() for part in parts])
    whole = parts[0].dataset()
    loader = DataLoader(rows, batch_size=3, collate_fn=whole.collate, num_workers=2, multiprocessing_context="fork")
    made = [each for batch in loader for each in strings(batch, "word")]
    assert made == [each for part in parts for each in part.tolist()["word"]]


class Wrapped(Dataset[Any]):
    """A dataset of somebody else, which makes batches, or takes rows, of a table."""

    def __init__(self, held: sr.Table, as_rows: bool) -> None:
        self.held, self.as_rows = held, as_rows

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, row: int) -> Any:
        return self.held[row : row + 1] if self.as_rows else {"batch": self.held[[row]].to_packed()}


def as_it_is(batch: Any) -> Any:
    return batch


class Streamed(IterableDataset[Any]):
    """A dataset that opens its table in the worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        for batch in sr.open(self.path).loader(batch_size=1):
            yield {"batch": batch}


@pytest.mark.parametrize("kind", ["batches", "rows", "streamed"])
def test_words_of_other_datasets(kind: str, tmp_path: Path) -> None:
    source = opened(tmp_path)
    rows = Streamed(tmp_path / "0") if kind == "streamed" else Wrapped(source, kind == "rows")
    loader = DataLoader(rows, batch_size=None, collate_fn=as_it_is, num_workers=1, multiprocessing_context="fork")
    made = list(loader)
    found = [each if kind == "rows" else each["batch"] for each in made]
    assert len(found) == 8
    assert all(each.vocabulary("word") is found[0].vocabulary("word") for each in found)
    lists = [each.tolist()["word"][0] if kind == "rows" else strings(each, "word")[0] for each in found]
    assert lists == source.tolist()["word"]


# -------------------------------------------------------------------------------------------- who did not get them


def receive(receiving: Any, answers: Any) -> None:
    """Read batches, whose bytes come by a pipe, and say which words their columns have."""
    made = [pickle.loads(receiving.recv_bytes()) for _ in range(2)]
    one = made[0].vocabulary("word") is made[1].vocabulary("word")
    answers.send((strings(made[0], "word"), strings(made[1], "kind"), one))


def test_a_process_that_missed_the_first_batch_asks_for_the_words() -> None:
    held = table()
    batches = [held.dataset().__getitems__([i]) for i in range(3)]
    bytes(ForkingPickler.dumps(batches[0]))  # for somebody else
    known = multiprocessing.get_context("fork")
    receiving, sending = known.Pipe(duplex=False)
    answers, answering = known.Pipe(duplex=False)
    child = known.Process(target=receive, args=(receiving, answering))
    child.start()
    for batch in batches[1:]:
        sending.send(batch)
    assert answers.poll(60)
    assert answers.recv() == (held.tolist()["word"][1:2], held.tolist()["kind"][2:3], True)
    child.join(60)
    assert child.exitcode == 0


def send(connection: Any, held: sr.Table) -> None:
    """Send two batches, and wait until they have come: torch takes their memory back with the process."""
    for i in range(2):
        connection.send(held.dataset().__getitems__([i]))
    connection.recv()


def test_a_forked_child_sends_its_own() -> None:
    """What its parent has sent, and to whom, is not what it has sent itself."""
    held = table()
    bytes(ForkingPickler.dumps(held.dataset().__getitems__([0])))
    bytes(ForkingPickler.dumps(held.dataset().__getitems__([0])))  # now there is a listener
    known = multiprocessing.get_context("fork")
    here, there = known.Pipe()
    child = known.Process(target=send, args=(there, held))
    child.start()
    first, second = here.recv_bytes(), here.recv_bytes()
    assert len(first) > 50_000
    assert len(second) < 2000
    made = [pickle.loads(first), pickle.loads(second)]
    here.send("done")
    child.join(60)
    assert child.exitcode == 0
    assert [strings(batch, "word")[0] for batch in made] == held.tolist()["word"][:2]
    assert made[0].vocabulary("word") is made[1].vocabulary("word")


def test_a_sender_that_is_gone_is_named() -> None:
    held = words.Vocabularies(word=tuple(MANY))
    first = bytes(ForkingPickler.dumps(held))
    second = bytes(ForkingPickler.dumps(held))
    words._outbox.close()
    with pytest.raises(ConnectionError, match="the process that sent them does not answer"):
        pickle.loads(second)
    assert pickle.loads(first) == held
    assert pickle.loads(second)["word"] is pickle.loads(first)["word"]  # now it is known


def test_little_is_remembered_and_all_of_it_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 5)
    each = [words.Vocabularies(word=tuple(f"{i} {j}" for j in range(2))) for i in range(4)]
    whole = [bytes(ForkingPickler.dumps(one)) for one in each]
    named = bytes(ForkingPickler.dumps(each[3]))
    assert len(named) < len(whole[3]) + 100  # its address comes instead of the words
    again = bytes(ForkingPickler.dumps(each[0]))
    for text, one in zip((*whole, named, again), (*each, each[3], each[0]), strict=True):
        assert pickle.loads(text) == one
    assert len(words._inbox._held) == 2
    huge = words.Vocabularies(word=tuple(MANY))  # more than is remembered by itself
    for _ in range(3):
        assert pickle.loads(bytes(ForkingPickler.dumps(huge))) == huge
    assert len(words._inbox._held) == 1
    monkeypatch.setattr(words, "MOST_VOCABULARIES", 1)
    stale = bytes(ForkingPickler.dumps(huge))
    monkeypatch.setattr(words, "_inbox", words._Recent())
    bytes(ForkingPickler.dumps(each[1]))
    with pytest.raises(ConnectionError, match="has sent too many other vocabularies since"):
        pickle.loads(stale)


def test_strangers_get_no_words() -> None:
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    held = words.Vocabularies(word=tuple(MANY))
    bytes(ForkingPickler.dumps(held))
    text = bytes(ForkingPickler.dumps(held))
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        Client(words._outbox.address(), authkey=b"another")
    Client(words._outbox.address(), authkey=multiprocessing.current_process().authkey).close()  # and one that hangs up
    assert pickle.loads(text) == held


# ---------------------------------------------------------------------------------------------------------- kept


@pytest.mark.parametrize("to", ["packed", "dense", "table"])
def test_what_is_kept_has_all_of_its_words(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it later, when the process is gone that had sent the words before."""
    held = table()
    batch = held[:2] if to == "table" else held.dataset(to=to).__getitems__([0, 1])
    bytes(ForkingPickler.dumps(batch))
    stream = io.BytesIO()
    torch.save(batch, stream)
    kept = pickle.dumps(batch)
    words._outbox.close()
    monkeypatch.setattr(words, "_inbox", words._Recent())
    for made in (pickle.loads(kept), torch.load(io.BytesIO(stream.getvalue()), weights_only=False)):
        assert made.vocabulary("word") == held.vocabulary("word")
        assert made.vocabulary("kind") == held.vocabulary("kind")


@pytest.mark.parametrize("to", ["packed", "dense"])
def test_copies_share_their_words(to: str) -> None:
    batch = table().dataset(to=to).__getitems__([0, 3])
    for made in (copy.copy(batch), copy.deepcopy(batch), batch.to("cpu")):
        assert made.vocabulary("word") is batch.vocabulary("word")
        assert made["kind"].tolist() == batch["kind"].tolist()
    deep = copy.deepcopy(table())
    assert deep == table()
    assert deep.vocabulary("kind") == ("a", "b", "c")
