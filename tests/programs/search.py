"""The search for a program that fails: `python -m tests.programs.search FIRST COUNT` prints what it finds.

Every module of steps is imported here, so whoever draws programs imports this one.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from tests.programs import (  # noqa: F401
    arrangement,
    assigning,
    construction,
    creation,
    elementwise,
    factors,
    gathering,
    grouping,
    indexing,
    joining,
    losses,
    manipulation,
    matrices,
    operators,
    products,
    reductions,
    scans,
    sequences,
    sorting,
)
from tests.programs.program import Program, Step, draw_program
from tests.programs.running import Failure, run
from tests.programs.shrinking import script, short, shrink


@dataclass(frozen=True)
class Found:
    """A program that fails, and how."""

    program: Program
    born: bool
    failure: Failure
    device: str = "cpu"

    @property
    def kind(self) -> str:
        """The operation and the message without its numbers, so that one fault has one kind."""
        statement = self.program.statements[self.failure.at]
        operation = statement.operation if isinstance(statement, Step) else "leaf"
        message = re.sub(r"v?-?\d[\d.e+-]*|nan|inf|\(.*|\[.*|'.*", "", self.failure.message)[:50]
        return f"{'device-born' if self.born else 'host-born'} {operation}: {message}"

    def report(self, *, whole: bool = True) -> str:
        """The smallest program found that fails so, as a script."""
        program, failure = shrink(self.program, self.born, self.device)
        return (script if whole else short)(program, failure, self.born)


def search(seeds: Iterable[int], counts: Counter[str] | None = None, device: str = "cpu") -> Iterator[Found]:
    """Every program of these seeds that fails: host-born, or device-born if it does not fail there."""
    counts = Counter() if counts is None else counts
    for seed in seeds:
        program = draw_program(seed)
        counts["programs"] += 1
        for statement, outcome in zip(program.statements, program.outcomes, strict=True):
            if isinstance(statement, Step):
                counts[f"operation {statement.operation}"] += 1
                counts["decided" if outcome.verdict.is_certain or outcome.verdict.errors else "undecided"] += 1
        for born in (False, True):
            try:
                counts[f"{'device-born' if born else 'host-born'} {run(program, born, device)}"] += 1
            except Failure as failure:
                counts["failed"] += 1
                yield Found(program, born, failure, device)
                break


def main() -> None:
    """Search from the command line, and print each kind of failure once, with its smallest program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--most", type=int, default=20, help="how many kinds of failures are shown as programs")
    parser.add_argument("--device", default="cpu", help="where tensors lie")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    kinds: dict[str, list[Found]] = {}
    for found in search(range(options.first, options.first + options.count), counts, options.device):
        kinds.setdefault(found.kind, []).append(found)
    for kind, members in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"===== {len(members)} × {kind}: seeds {[f.program.seed for f in members[:6]]}", flush=True)
        if options.most > 0:
            options.most -= 1
            print(members[0].report(whole=False), flush=True)
    print({k: n for k, n in sorted(counts.items()) if not k.startswith("operation")})


if __name__ == "__main__":
    main()
