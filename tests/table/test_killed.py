"""Processes that are killed while they write: afterwards the dataset is the version before or the version after, whole.

Children are forked from a process that has everything loaded, so that a hundred of them take seconds.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import serrate as sr
from serrate.errors import ConflictError
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.folders import TEMPORARY, LocalFolder
from serrate.table.storage.manifest import open_table, read_local_manifest
from serrate.table.storage.writer import TableWriter
from serrate.table.storage.writing import save

Rows = dict[str, Any]


def rows(version: int) -> Rows:
    """Rows that are different in each version, in every column."""
    count = 5
    return {
        "id": [version * 100 + n for n in range(count)],
        "word": [f"version {version}"] * count,
        "time": [[version] * (n % 3) for n in range(count)],
    }


def overwrite(path: Path, version: int) -> None:
    save(sr.Table(rows(version)), path, rows_per_shard=2, overwrite=True)


def append(path: Path, version: int) -> None:
    with TableWriter(path, append=True, rows_per_shard=2) as writer:
        writer.write(sr.Table(rows(version)))


def parts(path: Path, version: int) -> None:
    whole = sr.Table(rows(version))
    for order, part in enumerate((whole[:2], whole[2:])):
        with TableWriter.part(path, order=order) as writer:
            writer.write(part)
    commit(path, append=True, parts=2)


def one_file(path: Path, version: int) -> None:
    save(sr.Table(rows(version)), path, overwrite=True)


def repairing(path: Path, version: int) -> None:
    """Leftovers of all kinds, and their removal."""
    writer = TableWriter(path, append=True, rows_per_shard=1)
    writer.write(sr.Table(rows(version)))
    writer._end_now()  # as if its process had ended
    (path / ".serrate-0123456789abcdef.tmp").write_bytes(b"half")
    repair(path)


def after(action: Callable[..., None], old: Rows, version: int) -> Rows:
    if action in (overwrite, one_file):
        return rows(version)
    if action is repairing:
        return old
    return {name: old[name] + more for name, more in rows(version).items()}


def fork(work: Callable[[], None]) -> int:
    """The number of a process that does some work and ends; how it ended is its exit status."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def check(path: Path, allowed: list[Rows]) -> int:
    """Which of the versions that are allowed the dataset is."""
    verify(path)
    return allowed.index(open_table(path).tolist())


def check_clean(path: Path) -> None:
    """Nothing is left but what the manifest names."""
    if path.is_dir():
        named = {shard.file for shard in read_local_manifest(path).shards}
        assert set(os.listdir(path)) == {"manifest.json", *named}
    else:
        assert [name for name in os.listdir(path.parent) if name.startswith(".serrate")] == []


@pytest.mark.parametrize(("action", "kills"), [(overwrite, 20), (append, 10), (parts, 10), (one_file, 10)])
def test_killed_at_random_moments(tmp_path: Path, action: Callable[..., None], kills: int) -> None:
    """A hundred in all."""
    random.seed(kills)
    path = tmp_path / ("a.safetensors" if action is one_file else "a")
    (overwrite if path.suffix == "" else one_file)(path, 0)
    current, found, version = rows(0), Counter[str](), 0
    typical = 0.02
    while found["killed"] < kills:
        version += 1
        new = after(action, current, version)
        start = time.perf_counter()
        child = fork(lambda version=version: action(path, version))  # type: ignore[misc]
        if version > 1:  # the first one is only timed
            time.sleep(random.uniform(0, typical))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        which = check(path, [current, new])
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert which == 1
            typical = max(0.001, 0.8 * typical if version > 1 else time.perf_counter() - start)
        else:
            typical *= 1.1
        left = repair(path, parts=True)
        found.update(["killed" if os.WIFSIGNALED(status) else "ended", "new" if which else "old"])
        found["left over"] += bool(left)
        assert check(path, [current, new]) == which
        check_clean(path)
        current = (current, new)[which]
    assert found["old"] >= kills // 8, found  # kills did come before the end, and in the midst of writing
    assert found["left over"] >= kills // 8, found


@pytest.mark.parametrize(
    ("action", "repaired"),
    [
        *((overwrite, True), (append, True), (repairing, True)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((parts, True), (one_file, True), (overwrite, False))
        ),
    ],
)
def test_killed_at_every_step(tmp_path: Path, action: Callable[..., None], repaired: bool) -> None:
    """Before each call by which a file system is changed, one process after the other."""
    path = tmp_path / ("a.safetensors" if action is one_file else "a")
    (overwrite if path.suffix == "" else one_file)(path, 0)
    current = rows(0)
    seen = []
    for step in range(1, 200):
        new = after(action, current, step)
        child = fork(lambda step=step: _killed_at(step, action, path))  # type: ignore[misc]
        _, status = os.waitpid(child, 0)
        which = check(path, [current, new])
        current = (current, new)[which]
        seen.append(which)
        if repaired:
            repair(path, parts=True)
            check_clean(path)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
    else:
        raise AssertionError("never came to an end")
    assert len(seen) > 5
    assert seen == sorted(seen) or action is repairing  # once the step of the manifest is reached, always the new one
    assert which == 1 or action is repairing
    repair(path, parts=True)
    check_clean(path)
    assert check(path, [current]) == 0


def _killed_at(step: int, action: Callable[..., None], path: Path, version: int | None = None) -> None:
    """Do something, and end like a machine that loses power before the given change of the file system."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return wrapped

    for module, name in ((os, "fsync"), (os, "replace"), (os, "unlink"), (os, "open"), (fcntl, "flock")):
        setattr(module, name, counted(getattr(module, name)))
    action(path, step if version is None else version)


def part(path: Path, version: int) -> None:
    with TableWriter.part(path) as writer:
        writer.write(sr.Table(rows(version)))


def commit_parts(path: Path, version: int) -> None:
    with suppress(FileNotFoundError):  # there are none
        commit(path, append=True)


def replace_by_parts(path: Path, version: int) -> None:
    with suppress(FileNotFoundError, ConflictError):  # there are none, or some that began before the last change
        commit(path, overwrite=True)


def test_a_commit_that_is_killed_and_a_dataset_that_is_replaced_afterwards(tmp_path: Path) -> None:
    """A part that was joined is never joined again, also when its shards are gone."""
    path, kinds = tmp_path / "a", set()
    for step in range(1, 200):
        overwrite(path, 0)
        part(path, 1)
        child = fork(lambda step=step: _killed_at(step, commit_parts, path))  # type: ignore[misc]
        status = os.waitpid(child, 0)[1]
        joined = check(path, [rows(0), after(append, rows(0), 1)])
        overwrite(path, 2)
        part(path, 3)
        waiting = rows(2) if joined else after(append, rows(2), 1)
        commit(path, append=True, parts=1 if joined else 2)
        assert check(path, [after(append, waiting, 3)]) == 0
        kinds.add((joined, os.WIFSIGNALED(status)))
        repair(path)
        check_clean(path)
        if os.WIFEXITED(status):
            break
    assert kinds == {(0, True), (1, True), (1, False)}


class Model:
    """What a dataset has after changes of which some were killed, as far as that can be known."""

    def __init__(self) -> None:
        self.rows: Rows = {name: [] for name in rows(0)}
        self.waiting: dict[str, tuple[Rows, int]] = {}
        """For each part that was not joined its rows, and how often the dataset had been changed before."""
        self.changes = 0
        self.seen: set[str] = set()

    def wanted(self, change: Callable[..., None], version: int) -> Rows:
        """What is there once a change is done."""
        parts = [each for each, _ in self.waiting.values()]
        fresh = all(began == self.changes for _, began in self.waiting.values())
        if change is overwrite or change is append:
            return after(change, self.rows, version)
        if not parts or change not in (commit_parts, replace_by_parts) or (change is replace_by_parts and not fresh):
            return self.rows
        held = [self.rows, *parts] if change is commit_parts else parts
        return {name: [entry for each in held for entry in each[name]] for name in self.rows}

    def see(self, path: Path, change: Callable[..., None], version: int) -> None:
        """Look which of what is allowed came of a change."""
        new = self.wanted(change, version)
        done = check(path, [self.rows, new]) if new != self.rows else check(path, [new])
        self.changes += done
        if done and change in (commit_parts, replace_by_parts):
            self.waiting.clear()
        self.rows = new if done else self.rows
        there = {name for name in os.listdir(path) if name.startswith("part-")}
        assert self.waiting.keys() <= there
        if change is part and len(there - self.seen) == 1:
            self.waiting[(there - self.seen).pop()] = rows(version), self.changes
        self.seen |= there


def killed_again_and_again(path: Path, seed: int, count: int) -> Counter[str]:
    """Some changes in a row, most of them killed at some step."""
    draw, model, found = random.Random(seed), Model(), Counter[str]()
    overwrite(path, 0)
    model.rows, model.changes = rows(0), 1
    kinds = (append, overwrite, part, part, commit_parts, commit_parts, replace_by_parts, repair_only)
    for version in range(1, count):
        change, step = draw.choice(kinds), draw.choice((*(draw.randrange(1, 35) for _ in range(3)), 10**6))
        child = fork(lambda change=change, step=step, version=version: _killed_at(step, change, path, version))  # type: ignore[misc]
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, change
        model.see(path, change, version)
        found.update([change.__name__, "killed" if os.WIFSIGNALED(status) else "ended"])
    repair(path, parts=True)
    check_clean(path)
    assert check(path, [model.rows]) == 0
    return found


def repair_only(path: Path, version: int) -> None:
    repair(path)


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    found = killed_again_and_again(tmp_path / "a", seed, 25)
    assert found["killed"] > 3
    assert found["ended"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_killed_many_more_times(tmp_path: Path, seed: int) -> None:
    killed_again_and_again(tmp_path / "a", seed, 100)


def test_a_first_save_that_is_killed_leaves_no_dataset(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for step in (2, 4, 6, 9):
        child = fork(lambda step=step: _killed_at(step, overwrite, path))  # type: ignore[misc]
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        with pytest.raises(FileNotFoundError):
            open_table(path)
    assert len(os.listdir(path)) > 3
    save(sr.Table(rows(1)), path)  # what is left over does not stand in the way
    assert check(path, [rows(1)]) == 0
    assert repair(path)
    check_clean(path)


def test_a_writer_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    overwrite(path, 0)

    def work() -> None:
        with TableWriter(path, overwrite=True, rows_per_shard=1) as writer:
            for version in range(1, 10_000):
                writer.write(sr.Table(rows(version)))

    child = fork(work)
    for count in (20, 40, 60):
        while len(os.listdir(path)) < count:
            time.sleep(0.001)
        # It is at work. Only a file that it has just made and does not hold yet may go; it then makes another one.
        found = repair(path)
        assert len(found) <= 1
        assert all(TEMPORARY.fullmatch(each) for each in found)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert check(path, [rows(0)]) == 0
    assert len(repair(path)) > 10
    assert check(path, [rows(0)]) == 0
    check_clean(path)


def test_a_file_that_a_writer_holds_by_now_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer makes a file, repair sees that nobody holds it, and then the writer takes its lock."""
    path, held = tmp_path / "a", LocalFolder.held
    overwrite(path, 0)
    files = [path / name for name in (".serrate-0123456789abcdef.tmp", ".serrate-0123456789abcdef.lock")]
    for file in files:
        file.write_bytes(b"")
    streams = []

    def held_and_then_taken(self: LocalFolder, name: str, *, alone: bool = False) -> bool:
        found = held(self, name, alone=alone)
        streams.append((path / name).open("rb"))
        fcntl.flock(streams[-1], fcntl.LOCK_EX)
        return found

    monkeypatch.setattr(LocalFolder, "held", held_and_then_taken)
    assert repair(path) == []
    assert len(streams) == len(files)
    assert all(file.exists() for file in files)
    for stream in streams:
        stream.close()
    monkeypatch.undo()
    assert sorted(repair(path)) == sorted(file.name for file in files)
    check_clean(path)
