"""Two who write at once: one stops before each of its steps, the other does all of its work, then the first goes on.

Whatever the order, every row that somebody was told is written is there once, and who lost is told so.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from tests.table.stores import Steps
from tests.table.test_killed import check_clean, fork

import serrate as sr
from serrate.errors import ConflictError, TableFormatError
from serrate.table.storage import stores
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.writer import TableWriter

Rows = list[int]
Place = Path | str
CONFLICT = 3
"""The exit status of a process that lost."""
LOST = (ConflictError, TableFormatError)
"""What it is told: that somebody else changed the dataset, or, while it reads, that the table is to be opened again."""


def numbers(version: int) -> dict[str, Rows]:
    return {"x": [10 * version, 10 * version + 1]}


# For each kind of change what it does, and what it makes of the rows.


def append(path: Place, version: int) -> None:
    with TableWriter(path, append=True) as writer:
        writer.write(numbers(version))


def replace(path: Place, version: int) -> None:
    sr.Table(numbers(version)).save(path, overwrite=True)


def rewrite(path: Place, version: int) -> None:
    sr.open(path).save(path, overwrite=True, rows_per_shard=100)


def rewrite_by_writer(path: Place, version: int) -> None:
    table = sr.open(path).rename({"x": "y"}).rename({"y": "x"})
    with TableWriter(path, overwrite=True) as writer:
        writer.write(table)


def rewrite_by_parts(path: Place, version: int) -> None:
    with TableWriter.part(path) as writer:
        writer.write(sr.open(path)[:])
    commit(path, overwrite=True, parts=1)


def add_parts(path: Place, version: int) -> None:
    with TableWriter.part(path) as writer:
        writer.write(numbers(version))
    commit(path, append=True, parts=1)


def tidy(path: Place, version: int) -> None:
    repair(path)


Change = Callable[[Place, int], None]


def applied(change: Change, rows: Rows, version: int) -> Rows:
    if change in (append, add_parts):
        return rows + numbers(version)["x"]
    return numbers(version)["x"] if change is replace else rows


def outcomes(done: list[tuple[Change, int]]) -> list[Rows]:
    """What may be there after some changes, in any order."""
    found = []
    for order in permutations(done):
        rows = numbers(0)["x"]
        for change, version in order:
            rows = applied(change, rows, version)
        found.append(rows)
    return found


PAIRS: list[tuple[Change, Change]] = [
    (rewrite, append), (rewrite_by_writer, append), (rewrite_by_parts, append), (replace, append), (append, rewrite),
    (add_parts, rewrite), (tidy, append), (append, tidy), (rewrite, rewrite),
]  # fmt: skip
MORE: list[tuple[Change, Change]] = [(append, append), (append, replace), (add_parts, tidy), (rewrite, tidy)]


def each_of(pairs: list[tuple[Change, Change]], quick: int | None = None) -> pytest.MarkDecorator:
    """One test for each pair, of which all but the first `quick` are slow."""
    few = len(pairs) if quick is None else quick
    later = [pytest.param(*pair, marks=pytest.mark.slow) for pair in pairs[few:]]
    return pytest.mark.parametrize(("one", "two"), [*pairs[:few], *later], ids=lambda change: change.__name__)


def check(path: Place, done: list[tuple[Change, int]], step: int) -> Rows:
    verify(path)
    rows: Rows = sr.open(path)["x"].tolist()
    assert rows in outcomes(done), (step, done)
    return rows


def check_all(one: Change, two: Change, lost: list[int], dropped: list[int], steps: int) -> None:
    """Over all steps: the first one loses where it must, and nowhere else; nothing is dropped by who knew of it."""
    assert steps > (2 if one is tidy else 8)
    if one in (append, add_parts, tidy):
        assert lost == []
    elif two is append:
        assert len(lost) > 3
    # Only who replaces a dataset, and begins after rows were added, may drop them.
    assert dropped == (list(range(1, 1 + len(dropped))) if one is replace else [])
    assert len(dropped) < 6


# ------------------------------------------------------------------------------------------------- on a file system


def _stopping(step: int, change: Change, path: Place, version: int, told: int, go: int) -> None:
    """Do something, and wait before the given change of the file system."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.write(told, b"x")
                os.read(go, 1)
            return function(*args, **options)

        return wrapped

    for module, name in ((os, "replace"), (os, "unlink"), (os, "open"), (fcntl, "flock")):
        setattr(module, name, counted(getattr(module, name)))
    _tell(lambda: change(path, version))


def _tell(work: Callable[[], None]) -> None:
    """Work, or end the process with the status of one that lost."""
    try:
        work()
    except LOST:
        os._exit(CONFLICT)


def _ended(child: int, seconds: float) -> int | None:
    """How a process ended, if it does within some time."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.WIFEXITED(status)
            return os.WEXITSTATUS(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


@each_of(PAIRS, quick=2)
def test_processes(tmp_path: Path, one: Change, two: Change) -> None:
    """The second one may have to wait for the lock of the first; then that goes on."""
    path = tmp_path / "a"
    lost: list[int] = []
    dropped: list[int] = []
    for step in range(1, 200):
        replace(path, 0)
        (told, tells), (waits, goes) = os.pipe(), os.pipe()
        first = fork(lambda step=step, tells=tells, waits=waits: _stopping(step, one, path, 1, tells, waits))  # type: ignore[misc]
        os.close(tells)
        stopped = os.read(told, 1) == b"x"
        statuses: list[int | None] = [None, None]
        if stopped:
            second = fork(lambda: _tell(lambda: two(path, 2)))
            statuses[1] = _ended(second, 0.3)
            os.write(goes, b"x")
            if statuses[1] is None:
                statuses[1] = _ended(second, 60)
        statuses[0] = _ended(first, 60)
        for handle in (told, waits, goes):
            os.close(handle)
        assert set(statuses) <= {0, CONFLICT} | (set() if stopped else {None}), statuses
        done = [
            (change, n) for n, (change, status) in enumerate(zip((one, two), statuses, strict=True), 1) if status == 0
        ]
        rows = check(path, done, step)
        lost += [step] if statuses[0] == CONFLICT else []
        if two is append and statuses[1] == 0 and not set(numbers(2)["x"]) <= set(rows):
            dropped.append(step)
        repair(path, parts=True)
        assert sr.open(path)["x"].tolist() == rows
        check_clean(path)
        if not stopped:
            break
    check_all(one, two, lost, dropped, step)


# ----------------------------------------------------------------------------------------------------- in a store


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(stores, "PATIENCE", 0.05)
    monkeypatch.setattr(stores, "_PAUSE", (0.001, 0.002))
    Steps.reset()
    yield "steps://a"
    Steps.reset()


@each_of(PAIRS + MORE, quick=7)
def test_threads_and_a_store(url: str, one: Change, two: Change) -> None:
    """The second one does not wait long for the lock of the first, and is told so."""
    lost: list[int] = []
    dropped: list[int] = []
    for step in range(1, 400):
        Steps.reset()
        replace(url, 0)
        stopped, go, outcome = threading.Event(), threading.Event(), {}

        def work(change: Change, version: int, outcome: dict[int, Any]) -> None:
            try:
                change(url, version)
                outcome[version] = "done"
            except BaseException as error:
                outcome[version] = error

        first = threading.Thread(target=work, args=(one, 1, outcome))
        count = 0

        def hook(
            what: str, name: str, first: Any = first, stopped: Any = stopped, go: Any = go, step: int = step
        ) -> None:
            nonlocal count
            if threading.current_thread() is first and what != "create":  # others wait meanwhile, as in a store
                count += 1
                if count == step:
                    stopped.set()
                    assert go.wait(60)

        Steps.hook = hook
        first.start()
        while first.is_alive() and not stopped.wait(0.01):
            pass
        if stopped.is_set():
            work(two, 2, outcome)
        go.set()
        first.join(60)
        Steps.hook = None
        assert all(each == "done" or isinstance(each, LOST) for each in outcome.values()), outcome
        done = [(change, n) for n, change in ((1, one), (2, two)) if outcome.get(n) == "done"]
        rows = check(url, done, step)
        lost += [] if outcome[1] == "done" else [step]
        if two is append and outcome.get(2) == "done" and not set(numbers(2)["x"]) <= set(rows):
            dropped.append(step)
        repair(url, parts=True, alone=True)
        assert sr.open(url)["x"].tolist() == rows
        left = {name.rpartition("/")[2] for name in Steps.files()}
        assert left == {"manifest.json", *(source.path.rpartition("/")[2] for source in sr.open(url).sources)}
        if not stopped.is_set():
            break
    check_all(one, two, lost, dropped, step)
