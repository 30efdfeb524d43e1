"""What a call of a compiled function costs beside its kernels, and what its first call costs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import serrate as sr
from benchmarks.eager import Call
from benchmarks.kernels import repeated
from benchmarks.timing import interleaved

ROWS, FEATURES = 100, 8
Function = Callable[..., Any]

# ---------------------------------------------------------------------------------------------------- later calls


def scaled(x: Any) -> Any:
    return x * 2 + 1


def summed(x: Any, *others: Any) -> Any:
    for other in others:
        x = x + other
    return x


def measure_overhead(is_small: bool) -> None:
    """Print what calls on 100 rows take: kernels of a microsecond, so that the rest is what is seen."""
    torch.set_num_threads(1)
    lengths = torch.arange(ROWS) % 3
    x = sr.from_lengths(torch.randn(int(lengths.sum()), FEATURES), lengths)
    leaf = x.values.detach().requires_grad_()
    y, seed = x._with(leaf), torch.randn_like(x.values)
    given = {count: [torch.randn(FEATURES) for _ in range(count)] for count in (0, 2, 20)}
    double, add = sr.jit(scaled), sr.jit(summed)
    torch.testing.assert_close(double(x).values, scaled(x).values)
    torch.testing.assert_close(add(x, *given[20]).values, summed(x, *given[20]).values)

    def both() -> Any:
        return torch.autograd.grad(double(y).values, leaf, seed)

    calls: dict[str, tuple[Call, str]] = {
        "without gradients": (lambda: double(x), "at most 20"),
        "gradients recorded": (lambda: double(y), "at most 40"),
        "forward and backward": (both, "at most 75"),
        "eager, without gradients": (lambda: scaled(x), ""),
        "eager, forward and backward": (lambda: torch.autograd.grad(scaled(y).values, leaf, seed), ""),
        "made of fresh lengths": (_fresh(x, lambda made: made), ""),
        "made of fresh lengths, and called": (_fresh(x, double), ""),
    }
    for count, others in given.items():
        calls[f"sum with {count} dense arguments"] = (partial(add, x, *others), "")
    batch = 20 if is_small else 200
    rounds = {name: repeated(call, batch) for name, (call, _) in calls.items()}
    times = interleaved(rounds, rounds=25, seconds=2 if is_small else 20)
    print(f"\na call on {ROWS} rows, {x.values.numel()} values, µs, one thread: minimum | median")
    least = {name: each[0] / batch * 1e6 for name, each in times.items()}
    for name, (_, middle) in times.items():
        goal = calls[name][1]
        print(f"  {name:36} {least[name]:8.1f} | {middle / batch * 1e6:8.1f}{f'   (goal: {goal})' if goal else ''}")
    more = (least["sum with 20 dense arguments"] - least["sum with 2 dense arguments"]) / 18
    fresh = least["made of fresh lengths, and called"] - least["made of fresh lengths"]
    print(f"  {'each further dense argument':36} {more:8.2f}   (goal: at most 0.2)")
    print(f"  {'a call with fresh lengths':36} {fresh:8.1f}   (goal: at most 20)")


def _fresh(x: sr.Tensor, function: Function) -> Call:
    """A call with a tensor that is made anew, of other lengths than the one before."""
    lengths = [x.lengths[0].roll(shift).clone() for shift in range(3)]
    turn = iter(range(10**9))

    def call() -> Any:
        return function(sr.from_lengths(x.values, lengths[next(turn) % len(lengths)]))

    return call


# ---------------------------------------------------------------------------------------------------- first calls


def pointwise(x: Any, count: int = 30) -> Any:
    """So many operations on elements, one after another."""
    for number in range(count):
        x = (torch.tanh, torch.sigmoid, lambda each: each * 0.5, lambda each: each + 1.0, torch.exp)[number % 5](x)
    return x


def norm_within(x: Any) -> Any:
    """A layer norm with nine operations before it and nine behind it."""
    return pointwise(torch.nn.functional.layer_norm(pointwise(x, 9), (x.shape[-1],)), 9)


FIRST: dict[str, Function] = {"30 pointwise operations": pointwise, "layer norm within 18 operations": norm_within}
GOALS = {False: 60, True: 150}
"""How many milliseconds trace, passes and lowering take at most, without gradients and with them."""


def measure_first(is_small: bool) -> None:
    """Print what first calls take in fresh processes, the first of which finds no kernels on disk, the second all."""
    print("\nfirst calls, ms")
    for name in list(FIRST)[: 1 if is_small else None]:
        for gradients in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                cold, warm = (_in_process(name, gradients, folder) for _ in range(2))
            print(f"  {name}, {'with' if gradients else 'without'} gradients")
            compiled = f"{cold['compiler_wall']:8.0f} wall, {cold['compiler']:6.0f} CPU, {cold['compiles']} runs"
            goal = f"(goal: at most {GOALS[gradients]})"
            print(f"    {'trace, passes and lowering':34} {warm['again']:8.1f} CPU {goal}")
            print(f"    {'compiler':34} {compiled} (goal: at most 1000)")
            print(
                f"    {'first call with kernels on disk':34} {warm['wall']:8.1f} wall, {warm['cpu']:6.1f} CPU", end=""
            )
            print(" (goal: at most 100, after import)", flush=True)


def _in_process(name: str, gradients: bool, folder: str) -> dict[str, float]:
    """What a first call takes in a process of its own that keeps kernels in a folder."""
    command = [sys.executable, "-m", "benchmarks.jit_calls", name, str(int(gradients))]
    variables = {**os.environ, "SERRATE_CACHE_DIR": folder, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # a process that imports modules anew reads their bytecode
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def first_call(name: str, gradients: bool) -> dict[str, float]:
    """Milliseconds of the first call of this process: on the clock, of this process, and of compilers that it started.

    `again` is the time that this process takes for the same function, compiled anew: then all modules are imported and
    all kernels loaded, and what is left are trace, passes and lowering.
    """
    values = torch.randn(100, 128)
    leaf = values.clone().requires_grad_(gradients)
    function, lengths = FIRST[name], [30, 0, 70]

    def call() -> Any:
        made = sr.jit(function)
        result = made(sr.from_lengths(leaf, lengths)).values
        if gradients:
            torch.autograd.grad(result, leaf, values)
        return made, result

    _settled(function, leaf, lengths, values)
    begin = time.perf_counter(), time.process_time(), _children()
    made, result = call()
    end = time.perf_counter(), time.process_time(), _children()
    torch.testing.assert_close(result, function(leaf), rtol=1e-4, atol=1e-4)
    again = []
    for _ in range(7):
        start = time.process_time()
        call()
        again.append(time.process_time() - start)
    wall, cpu, compiler = ((late - early) * 1e3 for early, late in zip(begin, end, strict=True))
    outside = max(wall - cpu, 0.0) if made.stats.compiles else 0.0
    return {
        "wall": wall, "cpu": cpu, "compiler": compiler, "compiler_wall": outside,
        "compiles": made.stats.compiles, "again": min(again) * 1e3,
    }  # fmt: skip


def _settled(function: Function, leaf: torch.Tensor, lengths: list[int], seed: torch.Tensor) -> None:
    """Run the function eagerly, so that what torch and Serrate import and load for it does not count."""
    result = function(sr.from_lengths(leaf, lengths)).values
    if result.requires_grad:
        torch.autograd.grad(result, leaf, seed)


def _children() -> float:
    """The seconds of processors that processes took which this one started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(first_call(sys.argv[1], sys.argv[2] == "1")))
