"""The loop layer with one mistake in it, by which tests show that they would find it.

`python -m tests.kernel.mutants NUMBER` changes one place of Serrate while it is imported, and runs what has to find it:
random fusions under random schedules, or the tests of a file. It ends with 0 if the mistake is found.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from types import CodeType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 150
"""How long random cases are searched for a mistake."""


@dataclass(frozen=True)
class Mutant:
    """`wrong` in the place of `right`, which stands once in a file of Serrate."""

    mistake: str
    file: str
    right: str
    wrong: str
    found_by: str = "random"  # or a file of tests

    @property
    def path(self) -> Path:
        return ROOT / "src" / "serrate" / self.file

    def source(self) -> str:
        """The text of the file, with the mistake."""
        text = self.path.read_text()
        assert text.count(self.right) == 1, f"{self.right!r} stands {text.count(self.right)} times in {self.file}"
        return text.replace(self.right, self.wrong)


MUTANTS = [
    Mutant(
        "a phase reads what it computes itself", "kernel/phases.py",
        "numbers[other] + (other in ends and not together)", "numbers[other]",
    ),
    Mutant(
        "what is kept for a later phase is computed again there", "kernel/phases.py",
        "return both_ways or any(numbers[reader] != numbers[job] for reader in readers)", "return both_ways",
        "tests/kernel/test_phases.py",
    ),
    Mutant(
        "jobs along a loop are done beside it", "kernel/lower.py",
        "aside = [job for job in phase.jobs if job not in along]",
        "aside, along = along, [job for job in phase.jobs if job not in along]",
    ),
    Mutant(
        "a kept value is read after its place was stored", "kernel/lower.py",
        "            self.nests.known.discard(tensor)\n            self.phased.forget(tensor)\n", "            pass\n",
    ),
    Mutant(
        "a value is kept where all threads store", "kernel/keeping.py",
        "elif (loop := loop_not_walked(self.phased, store)) is not None:",
        "elif (loop := loop_not_walked(self.phased, store)) is not None and False:",
        "tests/kernel/test_phases.py",
    ),
    Mutant(
        "the last partial result is the result", "kernel/states.py",
        "self.store(whole, at, whole.monoid.combine(whole.at(at), tuple(made)))",
        "self.store(whole, at, tuple(made))",
    ),
    Mutant(
        "sums of blocks are added up in float32", "kernel/states.py",
        "state = replace(state, element=WIDER[element])", "state = replace(state, element=element)",
        "tests/kernel/test_phases.py",
    ),
    Mutant(
        "only the first of several partial states begins with the neutral value", "kernel/states.py",
        'at = self._each(state.place.size, "states")', 'at = self._each(state.kept.size, "states")',
    ),
    Mutant(
        "of an odd number of partial results one is left out", "kernel/states.py",
        "half = (width + 1) // 2", "half = width // 2",
    ),
    Mutant(
        "what was read of a state is used after the state has changed", "kernel/states.py",
        "        self.builder.forget(state.buffers)\n", "", "tests/kernel/test_phases.py",
    ),
    Mutant(
        "inclusive scans are exclusive, and the other way round", "kernel/scans.py",
        "exclusive = _operation(tensor).options[1]", "exclusive = not _operation(tensor).options[1]",
    ),
    Mutant(
        "scans go in the other direction", "kernel/jobs.py",
        "return bool(job.tensor.definition.options[2])", "return not job.tensor.definition.options[2]",
    ),
    Mutant(
        "blocks of a loop from the end go forward", "kernel/nests.py",
        "extent - 1 - index if backward else index", "index",
    ),
    Mutant(
        "a scan across rows has a state for each index of loops that depend on the row", "kernel/scans.py",
        "if moved is not None:", "if moved is not None and False:", "tests/kernel/test_scans.py",
    ),
    Mutant(
        "a scan is read where its loop is walked again", "kernel/scans.py",
        "if self.nests.walks[loop] != number:", "if self.nests.walks[loop] < number:", "tests/kernel/test_scans.py",
    ),
    Mutant(
        "the offsets of a slice from the end are not clamped", "fusion/derived_raggedness.py",
        "(lengths + bound).clamp(min=0)", "lengths + bound", "tests/fusion/test_slices_of_rows.py",
    ),
    Mutant(
        "a slice of rows begins with the row", "kernel/moved.py",
        "places[at] = places[at] + slice_bounds(start, stop, here.extent(x, places, at))[0]", "",
    ),
    Mutant(
        "a piece of a concat has one element more", "kernel/moved.py",
        "reads.append(Read(x, within, inside, less(index, end)))",
        "reads.append(Read(x, within, both(less_equal(start, index), less_equal(index, end)), less_equal(index, end)))",
    ),
    Mutant(
        "a gather reads where its index is out of range", "kernel/moved.py",
        "return Reads((Read(x, places, inside),))\n\n\ndef _selected",
        "return Reads((Read(x, places),))\n\n\ndef _selected",
    ),
    Mutant(
        "a guard is left out", "kernel/builder.py",
        "            self._enter(If(condition, ()))\n", "            pass\n",
    ),
    Mutant(
        "of several guards that threads differ in the last one counts", "kernel/builder.py",
        "both(*self._noted, condition)", "condition",
    ),
    Mutant(
        "a loop to the longest row needs no guard", "kernel/nests.py",
        "            self._check_order(loop)\n            return loop.bound, False\n",
        "            self._check_order(loop)\n            return loop.bound, True\n",
    ),
    Mutant(
        "more threads than a loop has indices need no guard", "kernel/nests.py",
        "exact = exact and extent == self.launch.size(parallel)", "pass",
    ),
    Mutant(
        "indices below 0 have a place", "fusion/placing.py",
        "(indices >= 0) & (indices < limit)", "indices < limit", "tests/fusion/test_scattering.py",
    ),
    Mutant(
        "the places of an index begin one after those of the one before", "fusion/placing.py",
        "counts[:total].cumsum(0), (1, 0)", "counts[1:].cumsum(0), (1, 0)", "tests/fusion/test_scattering.py",
    ),
    Mutant(
        "indices are those of the first cell", "fusion/placing.py",
        "torch.where((indices >= 0) & (indices < limit), first + indices, total)",
        "torch.where((indices >= 0) & (indices < limit), indices, total)", "tests/fusion/test_scattering.py",
    ),
    Mutant(
        "both outcomes of a choice that lanes share are the first", "kernel/choices.py",
        "(FALSE, logical_not(outside))", "(TRUE, logical_not(outside))", "tests/kernel/test_choices.py",
    ),
    Mutant(
        "what lanes store is looked at before them", "kernel/choices.py",
        "differing.isdisjoint(expression.symbols) and stored.isdisjoint(read)",
        "differing.isdisjoint(expression.symbols)", "tests/kernel/test_choices.py",
    ),
    Mutant(
        "all threads store one element of shared memory", "kernel/keeping.py",
        "loop.parallel_type.is_thread and loop.parallel_type not in kinds", "False",
        "tests/fusion/test_refused_lowering.py",
    ),
]  # fmt: skip


def install(mutant: Mutant) -> None:
    """From now on the mistake is imported; nothing of Serrate may have been."""
    assert not any(name.partition(".")[0] == "serrate" for name in sys.modules)
    source, right = mutant.source(), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
        if Path(self.path) == mutant.path:
            return compile(source, self.path, "exec")
        return right(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def search() -> str | None:
    """What random cases find wrong; None if nothing is found in time."""
    from tests.kernel.harness import check
    from tests.kernel.random_schedules import draw, schedule

    from serrate.errors import RaggednessError, ScheduleError
    from serrate.kernel import states

    states.BLOCK = 3  # so short that small tensors have several
    start, seed = time.monotonic(), 0
    while time.monotonic() - start < SECONDS:
        random = Random(seed)
        case = draw(random, ["cpp", "cuda"][seed % 2])
        seed += 1
        try:
            schedule(case, random)
            check(case.lower(), case.program.inputs, seed=seed)
        except (ScheduleError, RaggednessError):
            continue
        except Exception as error:
            return f"case {seed}: {type(error).__name__}: {' '.join(str(error).split())}"
    return None


def main(number: int) -> None:
    """Make one mistake, and say what finds it."""
    mutant = MUTANTS[number]
    install(mutant)
    if mutant.found_by == "random":
        found = search()
    else:
        failed = pytest.main(["-q", "-x", "-n=0", "-p", "no:cacheprovider", str(ROOT / mutant.found_by)])
        found = mutant.found_by if failed == pytest.ExitCode.TESTS_FAILED else None
    print(f"{mutant.mistake}: {'not found' if found is None else found[:200]}")
    sys.exit(found is None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
