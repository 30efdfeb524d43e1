"""Random fusions under random schedules, compiled and run on a GPU by several processes, against `evaluate`.

    python -m tests.gpu.many_kernels --count 600 --report failures.txt

Each seed is a fusion with a schedule. What is refused is counted by its reason. A failure is reported with its seed,
fusion, inputs, schedule, kernel and the first wrong values; `--first SEED --count 1` runs it again. A process whose
device has failed, or that takes too long for one kernel, is replaced. `--target cpp` does the same on the CPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from itertools import count as counted
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import TextIO

import torch
from tests.gpu.running import run
from tests.kernel.random_cases import AXIS
from tests.kernel.random_schedules import Case, draw, schedule

from serrate.errors import RaggednessError, ScheduleError
from serrate.kernel import states

BLOCK = states.BLOCK
PATIENCE = 90.0  # seconds for one kernel, before its process is ended


@dataclass(frozen=True)
class Outcome:
    """What became of a seed."""

    seed: int
    what: str  # "right", "refused", "refused when called", "wrong" or "hung"
    detail: str = ""  # why it was refused, or the report of a failure
    shown: tuple[str, ...] = ()  # what the kernel is an example of
    device_failed: bool = False

    @property
    def is_failure(self) -> bool:
        return self.what in ("wrong", "hung")

    @property
    def ran(self) -> bool:
        return self.what in ("right", "wrong", "hung")


def attempt(seed: int, target: str) -> Outcome:
    """Draw, schedule, compile, run and compare."""
    random = Random(seed)
    states.BLOCK = 3 if seed % 2 else BLOCK  # so short that small tensors have several
    case, lowered = draw(random, target), None
    try:
        schedule(case, random)
        lowered = case.lower(f"kernel{seed}")
    except (ScheduleError, RaggednessError) as error:
        return Outcome(seed, "refused", reason(error))
    except Exception:
        return Outcome(seed, "wrong", f"{case}\n{traceback.format_exc()}")
    try:
        run(lowered, case.program.inputs)
    except ScheduleError as error:  # what is divisible is known only now
        return Outcome(seed, "refused when called", reason(error))
    except Exception:
        report = f"{case}\n\n{lowered.kernel}\n\n{lowered.source}\n\n{traceback.format_exc()}"
        return Outcome(seed, "wrong", report, examples(case), has_failed(target))
    return Outcome(seed, "right", "", examples(case))


def reason(error: Exception) -> str:
    """The words of a refusal, without the axes and numbers in them."""
    words = AXIS.sub("AXIS{", str(error).splitlines()[0].split(": ", 1)[-1])
    return re.sub(r"\{[^}]*\}|\d+|\[[^]]*\]|\bt\d+\w*", "…", words)[:110]


def examples(case: Case) -> tuple[str, ...]:
    """The operations of a fusion, and what else it has that kernels may get wrong."""
    fusion = case.program.fusion
    shown = {f"{t.definition.kind} {t.definition.name}" for t in fusion.tensors if t.definition is not None}
    depth = max((len(axis.parents) for axis in case.program.axes), default=0)
    shown |= {f"{depth} ragged levels", f"dtype {case.program.dtype}"}
    shown |= {"several outputs"} if len(fusion.outputs) > 1 else set()
    shown |= {step.split("(")[0].split(".")[-1].split(":")[0] for step in case.steps}
    return tuple(sorted(shown))


def has_failed(target: str) -> bool:
    """Whether the device answers no more, as after an address that there is not."""
    try:
        if target == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def serve(connection: Connection, target: str) -> None:
    """The work of a process: outcomes for seeds, until there are no more."""
    torch.set_num_threads(1)
    while (seed := connection.recv()) is not None:
        connection.send(attempt(seed, target))


class Worker:
    """A process with a seed that it is at work on."""

    def __init__(self, target: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, target), daemon=True)
        self.process.start()
        other.close()
        self.seed, self.begun = -1, 0.0

    def start(self, seed: int) -> None:
        self.seed, self.begun = seed, time.monotonic()
        self.connection.send(seed)

    def outcome(self) -> Outcome:
        """What became of the seed, once the process has said it or is gone."""
        try:
            found: Outcome = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return Outcome(self.seed, "wrong", f"the process ended with {self.process.exitcode}", (), True)
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def search(first: int, count: int, target: str, workers: int, seconds: float, to: TextIO) -> list[Outcome]:
    """Outcomes of seeds from `first` on, until so many kernels ran or time is over. Failures are written at once."""
    seeds, outcomes, ran = counted(first), list[Outcome](), 0
    started = time.monotonic()
    crew = [Worker(target) for _ in range(workers)]
    for worker in crew:
        worker.start(next(seeds))
    while crew:
        ready = wait([worker.connection for worker in crew], timeout=1.0)
        for worker in list(crew):
            hung = time.monotonic() - worker.begun > PATIENCE
            if worker.connection not in ready and not hung:
                continue
            done = Outcome(worker.seed, "hung", f"no answer in {PATIENCE} s", (), True)
            done = worker.outcome() if worker.connection in ready else done
            outcomes.append(done)
            ran += done.ran
            if done.is_failure:
                print(f"{'=' * 100}\nseed {done.seed}: {done.what}\n{done.detail}\n", file=to, flush=True)
            over = ran >= count or time.monotonic() - started > seconds
            if done.device_failed or over:
                worker.end()
                crew.remove(worker)
            if done.device_failed and not over:
                worker = Worker(target)
                crew.append(worker)
            if not over:
                worker.start(next(seeds))
    return outcomes


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """What was tried, the reasons of refusals, and at the end how much ran."""
    shown = Counter(example for outcome in outcomes if outcome.what == "right" for example in outcome.shown)
    refused = Counter(o.detail for o in outcomes if o.what.startswith("refused"))
    counts = Counter(outcome.what for outcome in outcomes)
    failed = [outcome.seed for outcome in outcomes if outcome.is_failure]
    lines = ["right kernels with:", ", ".join(f"{name} {number}" for name, number in sorted(shown.items()))]
    lines += ["refused because:", *(f"  {number:5} {why}" for why, number in refused.most_common())]
    ran = sum(outcome.ran for outcome in outcomes)
    lines.append(
        f"{len(outcomes)} drawn, {ran} ran, {counts['right']} right, {counts['wrong']} wrong, {counts['hung']} hung, "
        f"{counts['refused']} refused, {counts['refused when called']} refused when called; {seconds:.0f} s; "
        f"failed seeds: {failed}"
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """0 if all that ran is right."""
    parser = argparse.ArgumentParser(prog="tests.gpu.many_kernels")
    parser.add_argument("--count", type=int, default=600, help="how many kernels run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=14, help="processes")
    parser.add_argument("--seconds", type=float, default=270, help="after which no other kernel begins")
    parser.add_argument("--target", choices=["cuda", "cpp"], default="cuda")
    parser.add_argument("--report", type=Path, help="a file for failures, instead of the output")
    options = parser.parse_args(arguments)
    if options.target == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU; --target cpp runs on the CPU")
    started = time.monotonic()
    to = options.report.open("w") if options.report else sys.stdout
    outcomes = search(options.first, options.count, options.target, options.workers, options.seconds, to)
    print(summary(outcomes, time.monotonic() - started))
    return int(any(outcome.is_failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
