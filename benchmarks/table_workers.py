"""Batches that a worker process of torch's DataLoader sends: numbers, and strings of small and of large vocabularies.

`python -m benchmarks.table_workers` measures 256 random rows of 20,000 patients, packed; another number of patients may
be given. Candidates take turns; ratios are to the numbers, which are what the strings are sent as.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from torch.utils.data import DataLoader

import serrate as sr
from benchmarks import table_peers
from benchmarks.timing import interleaved

BATCH, TAKEN = 256, 20
"""Rows of a batch, and batches that are taken in a row, so that none of them has been waiting for long."""
BATCHES = 2**12


def main() -> None:
    """Print what a batch takes, from the moment it is asked for until all of it can be used."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 20_000
    given = table_peers.arrays(rows, "skewed")
    made: dict[str, Callable[[], None]] = {}
    for count in (0, 1_000, 1_000_000):
        name = f"strings of {count:,} words" if count else "numbers"
        made[name] = partial(_take, _batches(given, count), "code" if count else None)
    times = interleaved(made, 30, 60)
    base = times["numbers"]
    print(f"{BATCH} random rows, packed, of a worker process")
    print(f"  {'':28} {'minimum':>12} {'median':>12} {'ratio of minima':>16} {'of medians':>11}")
    for name, (least, middle) in times.items():
        ratios = f"{least / base[0]:>16.2f} {middle / base[1]:>11.2f}"
        print(f"  {name:28} {least / TAKEN * 1e3:>9.3f} ms {middle / TAKEN * 1e3:>9.3f} ms {ratios}")


def _batches(given: table_peers.Arrays, count: int) -> Iterator[sr.table.Packed]:
    """Batches of the codes of patients, as numbers or as strings of so many words; the first one has come."""
    import pyarrow as pa

    codes = pa.array(given["code"].astype(np.int64))
    if count:
        places = pa.array((given["code"] % count).astype(np.int32))
        codes = pa.DictionaryArray.from_arrays(places, [f"word {i}" for i in range(count)])
    ends = pa.array(given["codes"][given["visits"]].astype(np.int64))
    rows = sr.Table({"code": pa.LargeListArray.from_arrays(ends, codes)}).dataset()
    chosen = np.random.default_rng(1).integers(0, len(rows), (BATCHES, BATCH)).tolist()
    made = iter(DataLoader(rows, batch_sampler=chosen, collate_fn=rows.collate, num_workers=1))
    next(made)
    return made


def _take(batches: Iterator[sr.table.Packed], text: str | None) -> None:
    for _ in range(TAKEN):
        batch = next(batches)
        if text is not None:
            batch.vocabulary(text)


if __name__ == "__main__":
    main()
