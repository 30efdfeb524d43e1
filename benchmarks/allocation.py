"""Large results on the CPU with the caching allocator and without it, with huge pages and without them.

`python -m benchmarks.allocation` runs one process after the other, with one thread and with two, without and with the
switch of torch for transparent huge pages (`THP_MEM_ALLOC_ENABLE=1`). It prints for each call and size the time without
the allocator, the time with it, and their ratios at minima and at medians; a copy into existing memory stands beside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.timing import interleaved
from serrate.compat import fbgemm
from serrate.native import allocation, row_sums

MEGABYTES = (4, 8, 16, 48, 128)
ROUNDS, SECONDS = 200, 1.5
FEATURES, LENGTH = 64, 64
Call = Callable[[], object]


def main() -> None:
    """Run each setting in a process of its own."""
    for threads in (1, 2):
        for pages in (0, 1):
            enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
            print(f"\nthreads: {threads}, THP_MEM_ALLOC_ENABLE={pages}, transparent huge pages: {enabled}", flush=True)
            print(f"{'':44}{'without':>11} {'with':>11}   ratio of minima, of medians   {'copy':>11}")
            variables = {**os.environ, "THP_MEM_ALLOC_ENABLE": str(pages)}
            subprocess.run([sys.executable, "-m", "benchmarks.allocation", str(threads)], env=variables, check=True)


def measure(threads: int) -> None:
    """Print the times of this process."""
    torch.set_num_threads(threads)
    for megabytes in MEGABYTES:
        rows = megabytes * 2**20 // 4 // FEATURES // LENGTH * LENGTH
        values, there = torch.randn(rows, FEATURES), torch.zeros(rows, FEATURES)
        for name, call in _calls(values).items():
            candidates = {"without": _without(call), "with": call, "copy": lambda v=values, t=there: t.copy_(v)}
            times = interleaved(candidates, ROUNDS, SECONDS)
            (before, middle), (after, later), (copy, _) = (times[each] for each in candidates)
            line = f"{name + f' ({megabytes} MB)':44}{before * 1e6:8.0f} µs {after * 1e6:8.0f} µs"
            print(f"{line}   {before / after:14.2f} {middle / later:11.2f}   {copy * 1e6:8.0f} µs", flush=True)


def _calls(values: torch.Tensor) -> dict[str, Call]:
    """Calls whose results have the size of the values."""
    rows = len(values)
    offsets = torch.arange(0, rows + 1, LENGTH)
    dense = values.view(-1, LENGTH, FEATURES)
    return {
        "to padded": lambda: fbgemm.jagged_to_padded_dense(values, [offsets], [LENGTH]),
        "to packed": lambda: fbgemm.dense_to_jagged(dense, [offsets], rows),
        "packed + padded": lambda: fbgemm.jagged_dense_elementwise_add_jagged_output(values, [offsets], dense),
        "centred": lambda: row_sums.centred(values, offsets),
    }


def _without(call: Call) -> Call:
    """The call, with memory from torch."""

    def called() -> object:
        before, allocation.take = allocation.take, _nothing
        try:
            return call()
        finally:
            allocation.take = before

    return called


def _nothing(*arguments: object) -> None:
    """What the allocator gives when it is switched off."""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
    else:
        main()
