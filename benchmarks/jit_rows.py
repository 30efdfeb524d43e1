"""Compiled functions of rows against a copy and against other libraries; and how their time grows with the values."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

import serrate as sr
from benchmarks.eager import Call, log_normal
from benchmarks.jit_works import FEATURES, OURS, Rows, Work, padding, works
from benchmarks.kernels import repeated
from benchmarks.schedules import as_large
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved

SECONDS, SMALL_SECONDS = 1.5, 0.2
"""What all rounds of one piece of work take, unless four rounds take longer."""
SLOW = 15
"""A library that takes so many times as long as compiled code is timed in a few rounds behind the others."""
GRADIENTS = {"softmax", "layer_norm", "block"}


def batches(is_small: bool) -> dict[str, Rows]:
    """Rows of real lengths and of skewed ones; their values fill the last-level cache four times."""
    named = {"xnli": lengths_of("xnli", 1024), "log-normal": log_normal(1024)}
    if is_small:
        return {name: Rows(lengths[:32]) for name, lengths in named.items()}
    return {name: Rows(as_large(lengths, FEATURES)) for name, lengths in named.items()}


def measure_rows(is_small: bool) -> None:
    """Print what a call without gradients takes."""
    with torch.no_grad():
        for name, rows in batches(is_small).items():
            part = rows.padded_part()
            for work in works(rows):
                _measure(name, rows, work, is_small)
            for work in padding(part):
                _measure(name, part, work, is_small)


def measure_gradients(is_small: bool) -> None:
    """Print what a call takes together with the gradients of all its tensors."""
    for name, rows in batches(is_small).items():
        for work in works(rows):
            if work.name in GRADIENTS:
                _measure(name, rows, work, is_small, gradients=True)


def _measure(batch: str, rows: Rows, work: Work, is_small: bool, gradients: bool = False) -> None:
    """Print the times of all libraries for one piece of work, with one thread and with two."""
    shape = " × ".join(map(str, rows.values[0].shape))
    title = f"{work.name}{' and its gradients' * gradients}"
    goal = "at least 1.5 × as fast as eager" if gradients else work.goal
    print(f"\n{title}, {batch}: {len(rows.lengths)} rows, {shape} values{f' (goal: {goal})' if goal else ''}")
    seed = torch.randn_like(rows.values[0]) if gradients else None
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # what torch.compile makes is made for a number of threads
        calls, measures = _calls(rows, work, seed), work.measures(rows)
        limit = SLOW * calls["compiled"][1]
        slow = {name: call for name, (call, seconds) in calls.items() if name not in OURS and seconds > limit}
        swift = {name: call for name, (call, _) in calls.items() if name not in slow}
        times = interleaved(measures | swift, rounds=15, seconds=SMALL_SECONDS if is_small else SECONDS)
        times |= _without_kept_memory(slow | {"compiled, new memory": calls["compiled"][0]})
        heads = "".join(f"{f'÷ {each}':>24}" for each in measures)
        print(f"  {f'{threads} thread' + 's' * (threads > 1):24} {'minimum':>12} {'median':>12}{heads}")
        ours = times["compiled"]
        for name, (least, middle) in times.items():
            ratios = "".join(f"{least / times[each][0]:>16.2f} | {middle / times[each][1]:5.2f}" for each in measures)
            if name in calls and name != "compiled":  # results of compiled code are in memory that is used again
                ratios += f"   compiled is {least / ours[0]:.2f} | {middle / ours[1]:.2f} × as fast"
            print(f"    {name:22} {least * 1e3:9.3f} ms {middle * 1e3:9.3f} ms{ratios}", flush=True)


def _without_kept_memory(calls: dict[str, Call]) -> dict[str, tuple[float, float]]:
    """Times of a few rounds in which results are new memory, as those of torch are."""
    limit = sr.memory.stats().limit
    sr.memory.set_limit(0)
    times = interleaved(calls, rounds=2)
    sr.memory.set_limit(limit)
    return times


def _calls(rows: Rows, work: Work, seed: torch.Tensor | None) -> dict[str, tuple[Call, float]]:
    """What is timed, with the seconds of one call: libraries that do the work, and find what eager code does.

    A line says which library does not, as torch.nested for the gradient of a softmax along rows.
    """
    made: dict[str, tuple[Call, float]] = {}
    expected = torch.empty(0)
    for library, function in work.functions().items():
        if library == "padded torch" and not rows.fits:
            continue
        try:
            call = work.call(rows, library, function, seed)
            if library in OURS or library == "torch.compile, packed":
                call()  # compiles, and finds memory
            begin = time.perf_counter()
            result = call()
            seconds = time.perf_counter() - begin
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            if library in OURS:
                raise
            print(f"  {library} is not measured: {str(error).splitlines()[0]:.100}")
            continue
        found = rows.packed(result, work.is_packed)
        expected = found if library == "eager" else expected
        difference = float((found.view(expected.shape) - expected).abs().max())
        if difference <= 1e-3 * max(1.0, float(expected.abs().max())):
            made[library] = call, seconds
        elif library == "compiled":
            raise AssertionError(f"{work.name}: compiled and eager code differ by {difference:.2g}")
        else:
            print(f"  {library} is not measured: it differs from eager code by {difference:.2g}")
    return made


def measure_growth(is_small: bool) -> None:
    """Print what a value costs, for ever more values."""
    torch.set_num_threads(1)
    lengths = as_large(lengths_of("xnli", 1024), FEATURES)
    ends = lengths.cumsum(0)
    functions = {
        "softmax": partial(sr.softmax, axis=1),
        "sum": partial(sr.sum, axis=1),
        "gelu": torch.nn.functional.gelu,
    }
    compiled: dict[str, Any] = {name: sr.jit(function) for name, function in functions.items()}
    print("\nns for each value, minimum | median, one thread")
    with torch.no_grad():
        for values in (10**3, 10**4, 10**5, 10**6, 10**7)[: 3 if is_small else 5]:
            kept = int((ends <= values // FEATURES).sum())
            some = lengths[:kept]
            if kept < len(lengths):  # the last row is cut, so that there are as many values as asked for
                some = torch.cat([some, torch.tensor([values // FEATURES - int(some.sum())])])
            x = sr.from_lengths(torch.randn(int(some.sum()), FEATURES), some)
            times_each = max(10**6 // values, 1)
            calls = {"clone": repeated(x.values.clone, times_each)}
            for name, function in functions.items():
                calls[f"{name}, compiled"] = repeated(partial(compiled[name], x), times_each)
                calls[f"{name}, eager"] = repeated(partial(function, x), times_each)
            times = interleaved(calls, rounds=15, seconds=SMALL_SECONDS if is_small else 4)
            print(f"  {x.values.numel()} values, {len(some)} rows")
            for name, (least, middle) in times.items():
                each = times_each * x.values.numel()
                one = f"{least / times_each * 1e6:12.1f} µs"
                print(f"    {name:20} {least / each * 1e9:8.3f} | {middle / each * 1e9:8.3f} {one}", flush=True)
