"""How the costs of a table on disk grow with its rows: open, a batch, an epoch, memory; and what follows for 10⁹ rows.

    python -m benchmarks.table_slopes [folder] [most rows]

Rows have an id, an age, 0 … 5 visits with a time, and 0 … 10 codes of each visit: 100 bytes. Datasets are kept in the
folder, and made only where they are missing. What needs no disk is measured in time of the processor, the least of
several runs, so that other work on the machine does not count; what does is measured by the clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import serrate as sr
from serrate.table.loading.batching import Cursor

BATCH = 256
PER_SHARD = 10**6
BATCHES = 400
"""Batches that are timed together."""


def made(folder: Path, rows: int, per_shard: int = PER_SHARD) -> Path:
    """A dataset of so many rows."""
    path = folder / f"{rows}_{per_shard}"
    if path.exists():
        return path
    random = torch.Generator().manual_seed(rows)
    with sr.TableWriter(path, {"time": "visits", "code": "visits.codes"}, rows_per_shard=per_shard) as writer:
        for first in range(0, rows, 10**6):
            count = min(10**6, rows - first)
            visits = torch.randint(0, 6, (count,), generator=random)
            codes = torch.randint(0, 11, (int(visits.sum()),), generator=random)
            values = torch.randint(0, 20_000, (int(codes.sum()),), generator=random, dtype=torch.int32)
            writer.write(
                {
                    "id": torch.arange(first, first + count),
                    "age": torch.rand(count, generator=random),
                    "time": sr.from_lengths(torch.arange(len(codes)), visits),
                    "code": sr.from_lengths(values, [visits, codes]),
                }
            )
    return path


def least(call: Callable[[], Any], times: int = 5) -> float:
    """Seconds of this thread on the processor, in the fastest of several calls."""
    taken = []
    for _ in range(times):
        begin = time.thread_time()
        call()
        taken.append(time.thread_time() - begin)
    return min(taken)


def run(loader: Any, batches: int) -> int:
    """Take so many batches; how many rows they had."""
    rows = 0
    for number, batch in enumerate(loader, 1):
        rows += batch.rows
        if number == batches:
            break
    return rows


def per_row(loader: Any, batches: int = BATCHES) -> float:
    """Nanoseconds a row takes, in batches that are read one after the other."""
    rows = run(loader, batches)
    return least(lambda: run(loader, batches), 3) / rows * 1e9


def planning(loader: Any, rows: int) -> float:
    """Nanoseconds it takes to find out the rows of batches, per row."""

    def plan() -> None:
        seen = 0
        for batch in loader._plan.batches(Cursor()):
            seen += len(batch.rows)
            if seen >= rows:
                return

    return least(plan, 3) / rows * 1e9


def warm(path: Path) -> None:
    """Read the files of a dataset, so that the page cache has them."""
    for file in path.iterdir():
        with open(file, "rb") as stream:
            while stream.read(2**24):
                pass


def forget(path: Path) -> None:
    """Drop the files of a dataset from the page cache."""
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cold(path: str, shuffle: Any, batches: int) -> tuple[float, float]:
    """Milliseconds and MB that a batch takes whose rows lie on the disk alone."""
    forget(Path(path))
    loader = sr.open(path).loader(BATCH, shuffle=shuffle)
    before, begin = _read_bytes(), time.perf_counter()
    taken = run(loader, batches) / BATCH
    return (time.perf_counter() - begin) / taken * 1e3, (_read_bytes() - before) / taken / 1e6


def _read_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def own_memory() -> float:
    """MB of memory that the process has for itself; mapped files are not counted."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def elsewhere(call: str, path: Path, *given: Any) -> Any:
    """What a function of this file gives for a path in a process of its own."""
    code = f"import json; from benchmarks import table_slopes as t; print(json.dumps(t.{call}{(str(path), *given)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def added(path: str) -> float:
    """MB that opening a dataset and reading batches of it adds to a process."""
    small = sr.Table({"time": [[1], []], "code": [[[1]], []]})
    run(small.loader(1, shuffle=True, num_workers=2), 2)  # what has to be loaded for any table
    before = own_memory()
    loader = sr.open(path).loader(BATCH, shuffle=True, num_workers=2, bucket_by="visits")
    most = 0.0
    for number, _ in enumerate(loader, 1):
        most = max(most, own_memory()) if number % 10 == 0 else most
        if number == BATCHES:
            break
    return max(most, own_memory()) - before


def measured(folder: Path, rows: int) -> dict[str, float]:
    """All that is measured of a dataset of so many rows."""
    path = made(folder, rows)
    warm(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    found: dict[str, float] = {"bytes/row": size / rows}
    found["open ms"] = least(lambda: sr.open(path), 20) * 1e3
    table = sr.open(path)
    found["first batch ms"] = least(lambda: run(sr.open(path).loader(BATCH, shuffle=True), 1)) * 1e3
    for name, options in {
        "in order": {},
        "shuffled": {"shuffle": True},
        "blocks": {"shuffle": "blocks"},
        "dense": {"shuffle": True, "to": "dense"},
        "tokens": {"shuffle": True, "max_tokens": 4000},
        "buckets": {"shuffle": True, "bucket_by": "visits"},
    }.items():
        found[f"{name} ns/row"] = per_row(table.loader(BATCH, **options))
    some = min(rows, 10**5)
    found["plan ns/row"] = planning(table.loader(BATCH, shuffle=True), some)
    found["plan by tokens ns/row"] = planning(table.loader(BATCH, shuffle=True, max_tokens=4000), some)
    del table  # mapped pages stay in the cache
    found["cold ms/batch"], found["cold MB/batch"] = elsewhere("cold", path, True, 20)
    found["cold blocks ms/batch"], found["cold blocks MB/batch"] = elsewhere("cold", path, "blocks", 256)
    found["memory MB"] = elsewhere("added", path)
    return found


def by_shards(folder: Path) -> None:
    """What opening and reading cost by the number of shards."""
    print("\n10⁵ rows, by the number of their shards: open, and a shuffled batch")
    for per_shard in (10**5, 10**4, 10**3, 10**2):
        path = made(folder, 10**5, per_shard)
        seconds = least(lambda path=path: sr.open(path), 5)  # type: ignore[misc]
        batch = per_row(sr.open(path).loader(BATCH, shuffle=True)) * BATCH / 1e6
        print(f"{10**5 // per_shard:8} {seconds * 1e3:10.2f} ms {batch:10.2f} ms", flush=True)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/table_slopes")
    most = int(float(sys.argv[2])) if len(sys.argv) > 2 else 10**7
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [rows for rows in (10**4, 10**5, 10**6, 10**7, 10**8) if rows <= most]
    columns = {}
    for rows in sizes:
        columns[rows] = measured(folder, rows)
        print(f"{rows} rows measured", flush=True)
    print(f"\n{'rows':24}" + "".join(f"{rows:>12,}" for rows in sizes))
    for name in columns[sizes[0]]:
        print(f"{name:24}" + "".join(f"{columns[rows][name]:12.3g}" for rows in sizes))
    by_shards(folder)


if __name__ == "__main__":
    main()
