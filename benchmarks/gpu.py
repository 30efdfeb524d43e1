"""What compiled functions and eager operations reach on a GPU, of the time of a copy of the same bytes.

`python -m benchmarks.gpu [NAME …]` measures what is named, else all: for each operation the bytes that have to move, by
the time that they take, against `copy_` in the same run. Times are those of CUDA events; candidates take turns; inputs
are larger than the cache, and results are compared with eager ones.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import serrate as sr

ROUNDS = 15
CALLS = 8
"""Calls that follow each other, so that the device need not wait for the host."""
SHAPES = {"B=4096, mean 256, D=128": (4096, 256, 128), "B=65536, mean 16, D=64": (65536, 16, 64)}
"""Rows, their mean length, and features."""


@dataclass(frozen=True)
class Work:
    """A function, and the bytes that it cannot do without: of values read and written, in multiples of those of x."""

    function: Callable[..., Any]
    copies: float
    """Bytes by those that a copy of x reads and writes."""


WORKS: dict[str, Work] = {
    "softmax": Work(lambda x, w: sr.softmax(x, axis=1), 1.0),
    "sum": Work(lambda x, w: sr.sum(x, axis=1), 0.5),
    "layer_norm": Work(lambda x, w: sr.layer_norm(x), 1.0),
    "gelu(x) * x + 1": Work(lambda x, w: sr.gelu(x) * x + 1, 1.0),
    "x + [B, 1, D]": Work(lambda x, w: x + w, 1.0),
    "pad": Work(lambda x, w: x.to_dense(), 0.0),
    "cumsum": Work(lambda x, w: sr.cumulative_sum(x, axis=1), 1.0),
}


def lengths_of(rows: int, mean: int) -> torch.Tensor:
    """Lengths between none and twice the mean."""
    generator = torch.Generator().manual_seed(rows + mean)
    return torch.randint(0, 2 * mean + 1, (rows,), generator=generator)


def milliseconds(candidates: Mapping[str, Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    """Least and median times of functions that take turns."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        for _ in range(3):
            call()
    for _ in range(ROUNDS):
        for name, call in candidates.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(CALLS):
                call()
            end.record()
            end.synchronize()
            taken[name].append(begin.elapsed_time(end) / CALLS)
    return {name: (min(times), statistics.median(times)) for name, times in taken.items()}


def measure(shape: tuple[int, int, int], dtype: torch.dtype, names: list[str]) -> None:
    """Print the part of a copy's speed that each candidate reaches."""
    rows, mean, width = shape
    lengths = lengths_of(rows, mean)
    values = torch.randn(int(lengths.sum()), width, device="cuda").to(dtype)
    x = sr.from_lengths(values, lengths.tolist())
    w = torch.randn(rows, 1, width, device="cuda").to(dtype)
    place = torch.empty_like(values)
    for name, work in WORKS.items():
        if names and name not in names:
            continue
        compiled = sr.jit(work.function)
        try:
            wanted, found = work.function(x, w), compiled(x, w)
        except Exception as error:  # the others are measured all the same
            print(f"  {name:18} {type(error).__name__}: {str(error)[:300]}")
            continue
        for one, other in zip(_parts(wanted), _parts(found), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2 if dtype != torch.float32 else 1e-4, atol=1e-2)
        copies = work.copies or (wanted.values.nbytes + values.nbytes) / (2 * values.nbytes)
        times = milliseconds(
            {
                "copy": lambda: place.copy_(values),
                "compiled": lambda compiled=compiled: compiled(x, w),
                "eager": lambda work=work: work.function(x, w),
            }
        )
        copy = times["copy"]
        shown = "  ".join(
            f"{who} {copies * copy[0] / times[who][0]:5.2f} | {copies * copy[1] / times[who][1]:5.2f}"
            for who in ("compiled", "eager")
        )
        kernels, calls = compiled.stats.kernels, compiled.stats.library_calls
        print(f"  {name:18} {shown}   ({kernels} kernels, {calls} library calls, {times['compiled'][0]:.3f} ms)")


def _parts(made: Any) -> list[torch.Tensor]:
    found = made if isinstance(made, tuple) else (made,)
    return [each.values.float() for each in found]


def main(names: list[str] | None = None) -> None:
    """Print the part of a copy's speed that each candidate reaches: by least times, and by medians."""
    for title, shape in SHAPES.items():
        for dtype in (torch.float32, torch.bfloat16):
            print(f"{title}, {dtype}: of the speed of a copy")
            measure(shape, dtype, names or [])


if __name__ == "__main__":
    main(sys.argv[1:])
