"""How loaders read: threads that end, errors in their place, bounded memory, devices."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.table.loading import Failing, ids, make, over, threads, threads_end

from serrate.table.block import Block
from serrate.table.schema import Column, Schema
from serrate.table.table import Table


@pytest.fixture(scope="module")
def table() -> Table:
    return make(83)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads_end()


# ----------------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_an_error_is_raised_at_its_batch(table: Table, num_workers: int) -> None:
    loader = over(Failing(table.block(), bad=30)).loader(8, num_workers=num_workers)
    seen = []
    batches = iter(loader)
    with pytest.raises(OSError, match="row 30 cannot be read"):
        seen += [batch["id"].tolist() for batch in batches]
    for _ in range(2):
        assert next(batches, None) is None
    assert threads_end()
    assert loader.state_dict()["position"] == 24
    again = table.loader(8)
    again.load_state_dict(loader.state_dict())
    assert ids(again)[0] == list(range(24, 32))


def test_an_error_of_planning_is_raised_at_its_batch(table: Table) -> None:
    source = Failing(table.block(), bad=60)
    loader = over(source).loader(max_tokens=20, tokens_at="visits", num_workers=2, pool=16)
    seen = []
    with pytest.raises(OSError, match="row 60"):
        seen += [batch["id"].tolist() for batch in loader]  # the list is lost, the state is not
    assert loader.state_dict()["position"] > 30
    assert threads_end()


def test_reading_ahead_is_bounded(table: Table) -> None:
    source = Failing(table.block())
    batches = iter(over(source).loader(4, num_workers=2, prefetch=3))
    for given_batches in range(1, 5):
        next(batches)
        deadline = time.monotonic() + 10
        while source.read < given_batches + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert source.read == given_batches + 3
    batches.close()


@pytest.mark.parametrize("how", ["close", "drop", "with", "exhaust", "break"])
def test_threads_end(table: Table, how: str) -> None:
    loader = table.loader(4, num_workers=3)
    if how == "break":
        for _ in loader:
            assert len(threads()) == 3
            break
    else:
        batches = iter(loader)
        next(batches)
        assert len(threads()) == 3
        if how == "close":
            batches.close()
            assert threads() == []
            assert next(batches, None) is None
            assert loader.state_dict()["position"] == 4
        elif how == "drop":
            del batches
        elif how == "with":
            with batches:
                next(batches)
            assert threads() == []
        else:
            assert sum(1 for _ in batches) == 20
            assert threads() == []
    assert threads_end()


def test_an_iterator_that_is_dropped_while_threads_read(table: Table) -> None:
    wait = threading.Event()
    batches = iter(over(Failing(table.block(), wait=wait)).loader(4, num_workers=2))
    del batches
    assert len(threads()) == 2
    wait.set()
    assert threads_end()


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """SIGINT as Python has it: programs that a shell starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_leaves_the_state_and_no_threads(table: Table) -> None:
    source = Failing(table.block(), wait=threading.Event(), first=8)
    loader = over(source).loader(4, num_workers=2)
    batches = iter(loader)
    assert [next(batches)["id"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    timers = [threading.Timer(0.2, _thread.interrupt_main), threading.Timer(0.4, source.wait.set)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    for timer in timers:
        timer.join()
    assert threads_end()
    later = table.loader(4)
    later.load_state_dict(loader.state_dict())
    assert ids(later) == ids(table.loader(4))[2:]


def test_a_program_ends_while_batches_are_being_read() -> None:
    program = (
        "import torch, serrate as sr\n"
        "t = sr.Table({'x': torch.arange(100_000)})\n"
        "batches = iter(t.loader(10, num_workers=3))\n"
        "print(next(batches)['x'].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n", "")


def test_many_threads_many_times(table: Table) -> None:
    wanted = ids(table.loader(2, shuffle=True))
    for _ in range(20):
        assert ids(table.loader(2, shuffle=True, num_workers=6, prefetch=1)) == wanted


# ------------------------------------------------------------------------------------------------------------ memory


class Endless:
    """A source of any number of rows, which are made when they are read: row i has i % 4 entries, each i."""

    def __init__(self, rows: int) -> None:
        self.rows, self.counts = rows, {"rows": rows, "xs": 6 * rows // 4}
        self.schema = Schema(("rows", "xs"), {"id": Column("rows", torch.int64), "x": Column("xs", torch.int64)})

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        lengths = rows % 4
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        values = {"id": rows, "x": torch.repeat_interleave(rows, lengths)}
        counts = {"rows": len(rows), "xs": int(offsets[-1])}
        return Block(self.schema, counts, {"xs": offsets}, values), torch.arange(len(rows))


@pytest.mark.parametrize(
    "way", [{"batch_size": 256}, {"max_tokens": 500}, {"batch_size": 256, "bucket_by": "x", "num_workers": 2}]
)
def test_memory_does_not_depend_on_the_number_of_rows(way: dict[str, Any]) -> None:
    peaks = []
    for rows in (10**6, 10**14):
        loader = over(Endless(rows)).loader(**way, shuffle=True)
        tracemalloc.start()
        seen: list[int] = []
        for number, batch in enumerate(loader):
            seen += batch["id"].tolist()
            assert (batch["id"].values % 4).tolist() == [len(each) for each in batch["x"].tolist()]
            if number == 70:
                break
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(set(seen)) == len(seen)
    assert peaks[1] < 2 * peaks[0] + 2**20


# ----------------------------------------------------------------------------------------------------------- devices


@pytest.mark.parametrize("to", ["packed", "dense"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_on_a_device(table: Table, device: str, to: str, num_workers: int) -> None:
    loader = table.loader(8, shuffle=True, to=to, device=device, num_workers=num_workers)
    wanted = list(table.loader(8, shuffle=True, to=to))
    held = []
    for batch, other in zip(loader, wanted, strict=True):
        assert batch.device.type == device
        for name in batch:
            one, two = batch[name], other[name]
            if to == "packed":
                assert one.tolist() == two.tolist()
            else:
                assert torch.equal(one.cpu(), two)
        held.append((batch, [batch[name].sum() for name in ("id", "time")], other))
    for _, sums, other in held:  # memory of one batch is not given to another while it is used
        assert [int(each) for each in sums] == [int(other[name].sum()) for name in ("id", "time")]


def test_a_device_that_is_neither(table: Table) -> None:
    for batch, other in zip(table.loader(8, device="meta"), table.loader(8), strict=True):
        assert batch.device.type == "meta"
        assert batch["code"].values.shape == other["code"].values.shape
