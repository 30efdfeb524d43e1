"""Memory of calls: the most that torch has allocated on the host at any moment of a call, beyond what was there before.

torch's profiler reports every piece of memory that torch takes on the host and gives back, the kernels' own included;
their sum, as it goes up and down during a call, is the same on every machine. `python -m benchmarks.memory` measures
what windows cost attention and what convolution takes, with their times beside an attention that sees all, and beside
a loop over rows.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import serrate as sr
from benchmarks.timing import report

Call = Callable[[], object]


def peak(call: Call) -> int:
    """The most bytes that torch has allocated on the host at any moment of `call`, beyond what was there before.

    Nothing from before is collected meanwhile, or what that gives back would hide as much of what the call takes.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with _silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
            result = call()
    finally:
        if collects:
            gc.enable()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU
    ]
    del result
    now = most = 0
    for _, bytes_ in sorted(changes, key=lambda change: change[0]):
        now += bytes_
        most = max(most, now)
    return most


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """The profiler writes a line to the standard error stream of the process when it starts and when it stops."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def rows(lengths: list[int], heads: int = 4, features: int = 16, grad: bool = False) -> sr.Tensor:
    """[B, heads, r, features]."""
    values = torch.randn(sum(lengths), heads, features).requires_grad_(grad)
    return sr.from_lengths(values, lengths).permute_dims((0, 2, 1, 3))


def trained(call: Callable[[], sr.Tensor], *leaves: sr.Tensor) -> Call:
    """A call with the gradients of its leaves."""
    return lambda: torch.autograd.grad(call().values.sum(), [x.values for x in leaves])


def windows() -> None:
    """Attention with windows and without."""
    torch.manual_seed(0)
    skewed = [4000, 700, 650, 130, 120, 110, 90, 40, 9, 1, 0]
    for title, lengths in {"one row of 16,000": [16000], "rows of 0 to 4,000": skewed}.items():
        for grad in (False, True):
            x = rows(lengths, grad=grad)
            calls: dict[str, Call] = {}
            for name, options in {
                "all keys": {},
                "window=(16, 0)": {"window": (16, 0)},
                "window=(16, 16)": {"window": (16, 16)},
                "causal": {"causal": True},
                "causal, window=(16, 0)": {"causal": True, "window": (16, 0)},
            }.items():
                forward = functools.partial(sr.attention, x, x, x, **options)
                calls[name] = trained(forward, x) if grad else forward
            print(f"\nattention, {title}{', with gradients' if grad else ''}: memory")
            base = peak(calls["all keys"])
            for name, call in calls.items():
                most = peak(call)
                print(f"  {name:34} {most / 1e6:>9.1f} MB   {most / base:>6.2f} of all keys'")
            report(f"attention, {title}{', with gradients' if grad else ''}: time", calls, "all keys", rounds=3)


def convolutions() -> None:
    """Convolution beside its input, and beside torch's on each row."""
    torch.manual_seed(0)
    batches = {
        "10^8 entries, rows of 1,000": ([1000] * 100_000, 1),
        "10^7 entries × 8 channels, rows of 0 to 200": (torch.randint(0, 201, (100_000,)).tolist(), 8),
    }
    for title, (lengths, channels) in batches.items():
        x = sr.from_lengths(torch.randn(sum(lengths), channels), lengths).mT
        weight = torch.randn(channels, channels, 3)
        few = sr.from_lengths(x.values[: sum(lengths[:1000])], lengths[:1000]).mT
        each = [row.torch()[None] for row in few.rows() if row.shape[-1]]
        with torch.no_grad():
            most = peak(functools.partial(sr.conv1d, x, weight, padding=1))
            print(f"\nconv1d, {title}: memory {most / x.values.nbytes:.2f} × the input")
            calls: dict[str, Call] = {
                "serrate": functools.partial(sr.conv1d, few, weight, padding=1),
                "torch, row by row": functools.partial(by_rows, each, weight),
            }
            report(f"conv1d, {title}, the first 1,000 rows: time", calls, "serrate", rounds=9)


def by_rows(each: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    """torch's convolution of one row after the other."""
    return [F.conv1d(row, weight, padding=1) for row in each]


def main() -> None:
    windows()
    convolutions()


if __name__ == "__main__":
    main()
