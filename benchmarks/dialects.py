"""What `serrate-opt` takes for a module of 1,000 operations: reading, writing, and each pass.

`python -m benchmarks.dialects` prints least and median times. The limit is 3 s for each pass, reading included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import serrate as sr
from serrate.dialects.pipeline import PASSES, check
from serrate.dialects.texts import parse

OPERATIONS = 1000
LIMIT = 3.0
ROUNDS = 5
LOWERED = ("coalesce-regions", "region-to-runtime", "dist-to-runtime")
"""Passes on what lower-ptensor makes."""


def function(x: Any, y: Any) -> Any:
    """Operations of several kinds, most of which kernels compute."""
    for number in range(OPERATIONS // 10):
        z = sr.softmax(x * 0.5, axis=1) + y
        x = sr.exp(sr.sin(z) - 1.0) * sr.tanh(y)
        x = sr.sort(x, axis=1) + x if number % 50 == 49 else sr.sqrt(x * x + 1.0)
    return x


def main() -> None:
    """Print the times."""
    x, y = (sr.from_lengths(torch.randn(6), [3, 0, 2, 1]) for _ in range(2))
    text = sr.jit(function).lower(x, y).mlir()
    lowered = str(PASSES["lower-ptensor"].run(parse(text)))
    count = text.count('= "ptensor.')
    print(f"{count} operations, {len(text) // 1024} KiB; lowered {len(lowered) // 1024} KiB")
    worst = 0.0
    for name in ("read and print", *PASSES):
        source = lowered if name in LOWERED else text
        times = [_seconds(source, PASSES[name].run if name in PASSES else lambda module: module) for _ in range(ROUNDS)]
        worst = max(worst, min(times))
        print(f"{name:30} {min(times):6.2f} s  median {statistics.median(times):6.2f} s")
    print(f"the slowest takes {worst:.2f} s, {'within' if worst <= LIMIT else 'above'} the limit of {LIMIT} s")


def _seconds(text: str, run: Callable[[Any], Any]) -> float:
    begin = time.perf_counter()
    module = parse(text)
    check(module)
    str(run(module))
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
