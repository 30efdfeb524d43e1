"""Writing to stores elsewhere: whole or not at all, by one writer at a time, or refused where a store cannot."""

from __future__ import annotations

import errno
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
from tests.table.stores import STORES, Chunks, Cloud, Plain, Steps, Watched
from tests.table.test_killed import rows

import serrate as sr
from serrate.errors import ConflictError
from serrate.table.storage import stores
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.writer import TableWriter

Action = Callable[[str, int], None]
CAN_APPEND = ("steps", "cloud")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The protocol of an empty store."""
    STORES[request.param].reset()
    yield request.param
    STORES[request.param].reset()


@pytest.fixture(params=CAN_APPEND)
def shared(request: pytest.FixtureRequest) -> Iterator[str]:
    """That of one that several may write to."""
    STORES[request.param].reset()
    yield request.param
    STORES[request.param].reset()


def overwrite(url: str, version: int) -> None:
    sr.Table(rows(version)).save(url, overwrite=True)


def append(url: str, version: int) -> None:
    with TableWriter(url, append=True) as writer:
        writer.write(sr.Table(rows(version)))


def parts(url: str, version: int) -> None:
    whole = sr.Table(rows(version))
    for order, part in enumerate((whole[:2], whole[2:])):
        with TableWriter.part(url, order=order) as writer:
            writer.write(part)
    commit(url, append=True, parts=2)


def one_file(url: str, version: int) -> None:
    sr.Table(rows(version)).save(f"{url}/one.safetensors", overwrite=True)


def joined(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] + two[name] for name in one}


def after(action: Action, old: dict[str, Any], version: int) -> dict[str, Any]:
    return rows(version) if action in (overwrite, one_file) else joined(old, rows(version))


def content(action: Action, url: str) -> Any:
    """What is there, checked."""
    url = f"{url}/one.safetensors" if action is one_file else url
    verify(url)
    return sr.open(url).tolist()


def names(store: str) -> set[str]:
    return {path.rpartition("/")[2] for path in STORES[store].files()}


def failing_at(step: int, error: BaseException) -> tuple[Callable[[str, str], None], list[int]]:
    """A hook that raises an error at one request, and how many requests there were."""
    seen, lock = [0], threading.Lock()

    def hook(what: str, path: str) -> None:
        with lock:
            seen[0] += 1
            if seen[0] == step:
                raise error

    return hook, seen


# ----------------------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("action", [overwrite, append, parts, one_file])
def test_each_request_fails_once(store: str, action: Action, kind: type[BaseException]) -> None:
    """The first request, the second, … until all go through: what was there is still there, or all of the new."""
    if store not in CAN_APPEND and action in (append, parts):
        return  # refused, see below
    if store == "cloud" and kind is KeyboardInterrupt:
        return  # requests are made by another thread, which no signal interrupts; see below
    if store == "plain":
        return  # nothing is replaced there, see below
    url, used, old, new = f"{store}://a", STORES[store], rows(0), after(action, rows(0), 1)
    for step in range(1, 200):
        used.reset()
        (one_file if action is one_file else overwrite)(url, 0)
        used.hook, seen = failing_at(step, kind(errno.EIO, "the network is gone"))
        try:
            action(url, 1)
            raised = False
        except kind:
            raised = True
        used.hook = None
        found = content(action, url)
        assert found in (old, new), step
        if kind is OSError:
            assert raised == (found == old), step
        repair(f"{url}/one.safetensors" if action is one_file else url, parts=True, alone=True)
        assert content(action, url) == found
        named = {"one.safetensors"}
        if action is not one_file:
            named = {"manifest.json", *(source.path.rpartition("/")[2] for source in sr.open(url).sources)}
        assert names(store) == named, step
        if seen[0] < step:
            assert not raised
            break
    else:
        raise AssertionError("never came to an end")
    assert step > 1


def test_half_a_stream_reaches_no_file(store: str) -> None:
    """What fails on this side, while a file is being made, sends nothing."""
    url = f"{store}://a"
    sr.Table(rows(0)).save(f"{url}/one.safetensors")
    before = STORES[store].files()
    folder = sr.table.storage.folders.folder_at(url)
    for name in ("one.safetensors", "two.safetensors"):
        stream = folder.writing(name)
        stream.__enter__().write(b"half" * 1000)
        assert not stream.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # which goes on
    assert STORES[store].files() == before


def test_nothing_is_replaced_where_nothing_can_be_moved() -> None:
    Plain.reset()
    sr.Table(rows(0)).save("plain://a")
    before = Plain.files()
    for action in (overwrite, one_file, one_file):
        if action is overwrite or "/a/one.safetensors" in before:
            with pytest.raises(io.UnsupportedOperation, match="neither move nor copy"):
                action("plain://a", 1)
        else:
            action("plain://a", 1)
            before = Plain.files()
        assert Plain.files() == before
    assert sr.open("plain://a").tolist() == rows(0)
    hook, _ = failing_at(3, OSError(errno.EIO, "the network is gone"))
    Plain.hook = hook
    with pytest.raises(OSError, match=r"two\.safetensors could not be written"):
        sr.Table(rows(1)).save("plain://b/two.safetensors")
    Plain.hook = None
    assert Plain.files() == before
    Plain.reset()


def test_files_that_do_not_arrive_whole_are_not_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    Chunks.reset()
    sr.Table(rows(0)).save("chunks://a")
    one_file("chunks://a", 0)
    before = Chunks.files()
    monkeypatch.setattr(Chunks, "short", 1)
    for action in (overwrite, one_file):
        with pytest.raises(OSError, match=r"only .* arrived"):
            action("chunks://a", 1)
        assert {name: held for name, held in Chunks.files().items() if not name.endswith(".lock")} == before
    Chunks.reset()


@pytest.mark.parametrize("action", [overwrite, append])
def test_an_interrupt_while_a_request_is_on_its_way(action: Action) -> None:
    """The store does what it was asked to, whether or not somebody still waits for its answer."""
    Cloud.reset()
    overwrite("cloud://a", 0)
    waiting = threading.Event()
    Cloud.slow = {"manifest.json": 0.5}

    def hook(what: str, path: str) -> None:
        if what == "put" and path.endswith("manifest.json"):
            waiting.set()

    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    threading.Thread(target=lambda: waiting.wait(20) and signal.setitimer(signal.ITIMER_REAL, 0.1)).start()
    Cloud.hook = hook
    try:
        with pytest.raises(KeyboardInterrupt):
            action("cloud://a", 1)
    finally:
        signal.signal(signal.SIGALRM, before)
        Cloud.hook = None
    time.sleep(0.7)
    assert content(action, "cloud://a") == after(action, rows(0), 1)
    repair("cloud://a", alone=True)
    assert content(action, "cloud://a") == after(action, rows(0), 1)
    Cloud.reset()


def test_answers_that_are_lost() -> None:
    """What the store has done counts, also if it could not say so; rows are not there twice."""
    Cloud.reset()
    overwrite("cloud://a", 0)
    Cloud.lost = {"manifest.json", stores.LOCK}
    append("cloud://a", 1)
    assert not Cloud.lost
    assert content(append, "cloud://a") == joined(rows(0), rows(1))
    assert names("cloud") == {"manifest.json", *(s.path.rpartition("/")[2] for s in sr.open("cloud://a").sources)}
    Cloud.reset()


# --------------------------------------------------------------------------------------------------- several writers


def test_appends_at_once_all_count(shared: str) -> None:
    url, failures = f"{shared}://a", []
    overwrite(url, 0)

    def work(first: int) -> None:
        try:
            for number in range(4):
                append(url, first + number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(10 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    found = content(append, url)["id"]
    assert sorted(found) == sorted(
        rows(0)["id"] + [x for n in range(1, 5) for k in range(4) for x in rows(10 * n + k)["id"]]
    )
    assert repair(url) == []
    assert content(append, url)["id"] == found


@pytest.mark.parametrize("store", ["chunks", "plain"])
def test_appending_is_refused_where_nothing_keeps_writers_apart(store: str) -> None:
    STORES[store].reset()
    url = f"{store}://a"
    sr.Table(rows(0)).save(url)  # a new dataset takes nothing from anybody
    before = STORES[store].files()
    with pytest.raises(io.UnsupportedOperation, match=r"only if it does not exist.*folder of this machine"):
        TableWriter(url, append=True)
    with TableWriter.part(url) as writer:
        writer.write(rows(1))
    with pytest.raises(io.UnsupportedOperation, match="only if it does not exist"):
        commit(url, append=True)
    assert sr.open(url).tolist() == rows(0)
    repair(url, parts=True)
    assert STORES[store].files() == before
    STORES[store].reset()


def test_a_repair_leaves_writers_at_work_alone(shared: str) -> None:
    url = f"{shared}://a"
    overwrite(url, 0)
    writer = TableWriter(url, append=True, rows_per_shard=1)
    writer.write(rows(1))
    part = TableWriter.part(url)
    part.write(rows(2))
    assert repair(url) == []
    assert repair(url, parts=True) == []
    writer.close()
    part.close()
    assert repair(url) == []
    commit(url, append=True)
    assert content(append, url) == joined(joined(rows(0), rows(1)), rows(2))
    assert repair(url) == []


def test_who_is_taken_for_dead_does_not_name_what_is_gone(shared: str) -> None:
    url = f"{shared}://a"
    overwrite(url, 0)
    writer = TableWriter(url, append=True, rows_per_shard=1)
    writer.write(rows(1))
    left = repair(url, alone=True, dry_run=True)
    assert len(left) == 6
    assert repair(url, alone=True) == left
    with pytest.raises(ConflictError, match=r"5 of 5 shards .* are not there any more.* write the rows again"):
        writer.close()
    assert content(append, url) == rows(0)
    append(url, 2)
    assert content(append, url) == joined(rows(0), rows(2))


def test_a_writer_that_died(shared: str) -> None:
    """Nothing is known of it but its claim, which stays until somebody says that nobody is at work."""
    url = f"{shared}://a"
    overwrite(url, 0)
    before = STORES[shared].files()
    writer = TableWriter(url, append=True, rows_per_shard=1)
    writer.write(rows(1))
    writer._watched.detach()
    del writer
    assert repair(url) == []
    assert len(repair(url, alone=True)) == 6
    assert STORES[shared].files() == before


def test_a_lock_that_was_left(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PATIENCE", 0.1)
    url = f"{shared}://a"
    overwrite(url, 0)
    files, path = fsspec.core.url_to_fs(f"{url}/{stores.LOCK}")
    files.pipe_file(path, b'{"host": "gone", "process": 7}')
    before = STORES[shared].files()
    for action in (append, overwrite, parts):
        with pytest.raises(ConflictError, match=r"gone.*repair\('.*', alone=True\)"):
            action(url, 1)
    with pytest.raises(ConflictError, match="gone"):
        repair(url)
    assert content(append, url) == rows(0)
    left = repair(url, alone=True, parts=True)
    assert all(name.startswith("part-") or name.endswith(".safetensors") for name in left)
    assert STORES[shared].files().keys() == before.keys() - {path}
    append(url, 2)
    assert content(append, url) == joined(rows(0), rows(2))


def test_a_lock_that_cannot_be_read_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may say that a file exists, and that there is none, for as long as its answers are old."""
    monkeypatch.setattr(stores, "PATIENCE", 0.1)
    monkeypatch.setattr(stores, "_PAUSE", (0.001, 0.002))
    folder = stores.RemoteFolder(Steps(), "a", "steps://a")
    monkeypatch.setattr(folder, "_holder", lambda: None)

    def exists(name: str, content: bytes) -> None:
        raise FileExistsError(name)

    monkeypatch.setattr(folder, "_create", exists)
    with pytest.raises(ConflictError, match="it is not known who, because the lock cannot be read"):
        folder._wait_for_lock(b"me")


def test_a_lock_that_is_let_go_is_waited_for(shared: str) -> None:
    url = f"{shared}://a"
    overwrite(url, 0)
    folder = sr.table.storage.folders.folder_at(url)
    with folder.locked():
        thread = threading.Thread(target=append, args=(url, 1))
        thread.start()
        time.sleep(0.3)
        assert sr.open(url).tolist() == rows(0)
    thread.join(30)
    assert content(append, url) == joined(rows(0), rows(1))


def test_who_lost_the_lock_leaves_that_of_another(shared: str) -> None:
    url = f"{shared}://a"
    overwrite(url, 0)
    one, two = (sr.table.storage.folders.folder_at(url) for _ in range(2))
    first, second = one.locked(), two.locked(alone=True)
    first.__enter__()
    second.__enter__()  # somebody has taken the first one for dead
    held = STORES[shared].files()
    assert stores.LOCK in names(shared)
    first.__exit__(None, None, None)
    assert STORES[shared].files() == held
    second.__exit__(None, None, None)
    assert stores.LOCK not in names(shared)


# ------------------------------------------------------------------------------------------------------------- refused


def test_places_that_can_only_be_read() -> None:
    with pytest.raises(io.UnsupportedOperation, match="by HTTP"):
        sr.Table(rows(0)).save("http://127.0.0.1:9/a.safetensors")
    Steps.reset()
    overwrite("steps://a", 0)
    with pytest.raises(io.UnsupportedOperation, match="through a cache"):
        TableWriter("simplecache::steps://a", append=True)
    assert sr.open("simplecache::steps://a").tolist() == rows(0)
    Steps.reset()


def test_hooks_are_asked() -> None:
    """The tests above test something: each store tells of its requests."""
    for name, each in STORES.items():
        each.reset()
        each.hook, seen = failing_at(10**9, OSError())
        sr.Table(rows(0)).save(f"{name}://a")
        each.hook = None
        assert seen[0] > 5
        assert isinstance(each, type(Watched))
        each.reset()
