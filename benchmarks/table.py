"""Tables on disk and in memory to padded batches, beside others and a C loop, in one run.

`python -m benchmarks.table` measures 20,000 patients (397 k visits, 2 M codes), `python -m benchmarks.table 200000` so
many; further words choose parts: batch, epoch, cold, build, memory. Lengths are log-normal, so that a padded batch is
mostly padding; with the word poisson they are nearly even. Candidates take turns; ratios are to the C loop.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import serrate as sr
from benchmarks import table_limit, table_peers
from benchmarks.timing import interleaved
from serrate.table.build import build

BATCH = 256
LIMIT = "limit (C loop, mapped)"
SLOW = ("nested_ragged_tensors, disk", "nested_ragged_tensors, memory", "awkward, memory", "Lance")
SLOW_BATCHES = 4
"""Of an epoch the slow ones make only so many batches; their times are scaled."""


def main(words: list[str] | None = None) -> None:
    """Print all that is measured."""
    words = sys.argv[1:] if words is None else words
    rows = next((int(word) for word in words if word.isdigit()), 20_000)
    parts = {"batch": _batch, "epoch": _epoch, "cold": _cold, "build": _build, "memory": _memory}
    chosen = [name for name in parts if name in words] or list(parts)
    before = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="serrate-table-") as folder:
        shape = "poisson" if "poisson" in words else "skewed"
        given = table_peers.arrays(rows, shape)
        print(f"{rows} patients, {given['time'].size} visits, {given['code'].size} codes, lengths {shape}")
        table_peers.write_all(given, Path(folder, "files"))
        for name in chosen:
            parts[name](given, Path(folder, "files"))
            gc.collect()  # files that are still mapped would stay in memory when the next part drops them
    torch.set_num_threads(before)


def _random_rows(given: table_peers.Arrays, count: int, seed: int = 1) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(0, given["age"].size, BATCH)) for _ in range(count)]


def _report(title: str, times: dict[str, tuple[float, float]], base: str = LIMIT) -> None:
    print(f"\n{title}\n  {'':32} {'minimum':>12} {'median':>12} {'ratio of minima':>16} {'of medians':>11}")
    for name, (least, middle) in sorted(times.items(), key=lambda item: item[1][1]):
        ratios = f"{least / times[base][0]:>16.2f} {middle / times[base][1]:>11.2f}"
        print(f"  {name:32} {least * 1e3:>9.3f} ms {middle * 1e3:>9.3f} ms {ratios}", flush=True)


# ------------------------------------------------------------------------------------------------------- warm


def _batch(given: table_peers.Arrays, folder: Path) -> None:
    """256 random rows, padded; every call takes other rows, each candidate the same ones."""
    made = table_peers.batches(given, folder)
    chosen = _random_rows(given, 64)
    table_peers.check(made, chosen[0])
    moved = _moved(given, chosen, made[LIMIT])
    memory = torch.zeros(max(moved), dtype=torch.uint8)
    made["copy of as many bytes"] = _copies(memory, moved)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times = interleaved({name: _next(batch, chosen) for name, batch in made.items()}, 128, 60)
        speed = statistics.median(moved) / times["serrate, disk"][1] / 1e9
        reached = times["copy of as many bytes"][1] / times["serrate, disk"][1]
        _report(f"{BATCH} random rows, padded ({threads} thread{'s' * (threads > 1)})", times)
        print(f"  {statistics.median(moved) / 1e6:.1f} MB move: {speed:.1f} GB/s, {reached:.2f} of a copy")


def _next(batch: table_peers.Batch, chosen: list[torch.Tensor]) -> Callable[[], object]:
    turn = iter(range(1 << 60))
    return lambda: batch(chosen[next(turn) % len(chosen)])


def _moved(given: table_peers.Arrays, chosen: list[torch.Tensor], limit: table_peers.Batch) -> list[int]:
    """The bytes of each batch that are read (entries and offsets) and written (cells and masks)."""
    made = []
    for rows in chosen:
        written = sum(each.nbytes for each in limit(rows).values())
        first, last = given["visits"][rows], given["visits"][rows + 1]
        visits, codes = int((last - first).sum()), int((given["codes"][last] - given["codes"][first]).sum())
        made.append(written + BATCH * 16 + visits * 8 + codes * 12)
    return made


def _copies(memory: torch.Tensor, moved: list[int]) -> table_peers.Batch:
    turn = iter(range(1 << 60))
    return lambda _: {"": memory[: moved[next(turn) % len(moved)] // 2].clone()}


def _epoch(given: table_peers.Arrays, folder: Path) -> None:
    """All rows once, shuffled, in batches of 256, padded."""
    made = table_peers.batches(given, folder)
    order = torch.from_numpy(np.random.default_rng(2).permutation(given["age"].size))
    chosen = list(torch.split(order, BATCH))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        calls: dict[str, Callable[[], object]] = {}
        for name, batch in made.items():
            calls[name] = partial(_each, batch, chosen[:SLOW_BATCHES] if name in SLOW else chosen)
        for workers in (0, 2):
            loader = sr.open(folder / "serrate").loader(BATCH, shuffle=True, to="dense", num_workers=workers)
            calls[f"serrate, loader{f', {workers} workers' * bool(workers)}"] = partial(_run_through, loader)
        times = interleaved(calls, 7, 90)
        scale = len(chosen) / SLOW_BATCHES
        times = {n: (a * scale, b * scale) if n in SLOW else (a, b) for n, (a, b) in times.items()}
        _report(f"one epoch, {len(chosen)} batches ({threads} thread{'s' * (threads > 1)})", times)


def _each(batch: table_peers.Batch, chosen: list[torch.Tensor]) -> None:
    for rows in chosen:
        batch(rows)


def _run_through(loader: sr.table.Loader) -> None:
    for _ in loader:
        pass


# ------------------------------------------------------------------------------------------------------- cold


def _cold(given: table_peers.Arrays, folder: Path) -> None:
    """256 random rows whose bytes are on disk only: what was opened is closed, and the kernel drops what it holds."""
    import lance

    def dropping(path: Path, opened: Callable[[], table_peers.Batch], rows: torch.Tensor) -> float:
        batch = opened()
        _drop(path)
        start = time.perf_counter()
        batch(rows)
        return time.perf_counter() - start

    candidates: dict[str, tuple[Path, Callable[[], table_peers.Batch]]] = {
        "page faults (C loop, mapped)": (folder / "limit", lambda: table_limit.Limit(folder / "limit")),
        "serrate": (folder / "serrate", lambda: sr.open(folder / "serrate").dataset(to="dense").__getitems__),  # type: ignore[dict-item,return-value]
        "Lance": (folder / "lance", lambda: _lance(lance.dataset(str(folder / "lance")))),
    }
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for rows in _random_rows(given, 12, seed=3):
        for name, (path, opened) in candidates.items():
            taken[name].append(dropping(path, opened, rows))
    times = {name: (min(each), statistics.median(each)) for name, each in taken.items()}
    _report(f"{BATCH} random rows, padded, cold", times, "page faults (C loop, mapped)")


def _lance(stored: object) -> table_peers.Batch:
    return lambda rows: table_peers.pad_arrow(stored.take(rows.tolist()))  # type: ignore[attr-defined]


def _drop(folder: Path) -> None:
    """Let the kernel forget the files' pages, all of which are on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


# ------------------------------------------------------------------------------------------------- build, memory


def _build(given: table_peers.Arrays, folder: Path) -> None:
    """Tables from nested Python lists."""
    import awkward
    import pyarrow
    from nested_ragged_tensors.ragged_numpy import JointNestedRaggedTensorDict

    listed = table_peers.lists(given)
    base = "nested_ragged_tensors"
    times = interleaved(
        {
            base: lambda: JointNestedRaggedTensorDict(listed),
            "serrate": lambda: build(listed, table_peers.SCHEMA, False),
            "awkward": lambda: [awkward.from_iter(column) for column in listed.values()],
            "pyarrow": lambda: [pyarrow.array(column) for column in listed.values()],
        },
        5,
        60,
    )
    _report("from Python lists", times, base)


_EPOCH = """
import sys, serrate as sr
def status(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
loader = sr.open(sys.argv[1]).loader(256, shuffle=True, to=sys.argv[2], num_workers=2)
next(iter(loader))
most = 0
for batch in loader:
    most = max(most, status("RssAnon"))
print(most, status("VmHWM"), sum(source.whole().nbytes for source in sr.open(sys.argv[1]).sources))
"""


def _memory(given: table_peers.Arrays, folder: Path) -> None:
    """The peak of a loader in a process of its own, for a tenth of the rows and for all."""
    small = folder / "tenth"
    table_peers.table(given)[: given["age"].size // 10].save(small)
    print("\npeak memory of an epoch, and of that what is not mapped from files")
    for path in (small, folder / "serrate"):
        for to in ("packed", "dense"):
            command = [sys.executable, "-c", _EPOCH, str(path), to]
            own, peak, size = map(
                int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            )
            print(f"  {size / 1e6:8.1f} MB on disk, {to:6}: {peak / 1e3:8.1f} MB, own {own / 1e3:8.1f} MB", flush=True)


if __name__ == "__main__":
    main()
