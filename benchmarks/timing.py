"""Interleaved timing: candidates take turns in one run, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class Case:
    """A call that several libraries offer under one name."""

    title: str
    """The size of the work."""
    function: str
    arguments: tuple[Any, ...]
    forward: bool = True
    """Whether it is timed alone."""
    gradients: bool = False
    """Whether it is timed with the gradients of all its floating-point tensors."""


def _settle() -> None:
    """Wait for what was started on a device, so that it counts for nobody else."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def interleaved(
    candidates: Mapping[str, Callable[[], object]], rounds: int = 15, seconds: float = float("inf")
) -> dict[str, tuple[float, float]]:
    """Seconds a call of each candidate takes, (minimum, median) over `rounds` rounds after one to warm up.

    Of `seconds` all rounds together take little more, unless three of them do.
    """
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    begin = time.perf_counter()
    for round_ in range(rounds + 1):
        if round_ > 3 and time.perf_counter() - begin > seconds:
            break
        turn = list(candidates.items())[:: -1 if round_ % 2 else 1]
        first = round_ // 2 % len(turn)
        turn = turn[first:] + turn[:first]  # nobody always finds what the same other left in the cache
        for name, candidate in turn:
            _settle()
            start = time.perf_counter()
            candidate()
            _settle()
            if round_:
                taken[name].append(time.perf_counter() - start)
    return {name: (min(times), statistics.median(times)) for name, times in taken.items()}


def report(title: str, candidates: Mapping[str, Callable[[], object]], base: str, rounds: int = 15) -> None:
    """Print each candidate's times, with one thread and with two, and their ratio to `base`."""
    print(f"\n{title}")
    print(f"  {'':34} {'minimum':>12} {'median':>12} {'ratio of minima':>16} {'of medians':>11}")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times = interleaved(candidates, rounds)
        for name, (least, middle) in times.items():
            label = f"{name} ({threads} thread{'s' * (threads > 1)})"
            ratios = f"{least / times[base][0]:>16.2f} {middle / times[base][1]:>11.2f}"
            print(f"  {label:34} {least * 1e6:>9.1f} µs {middle * 1e6:>9.1f} µs {ratios}")
