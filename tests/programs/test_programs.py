"""Random programs: structures, indexing, assignment and every operation, host-born and device-born, against an oracle.

A failure prints the smallest program found that fails in the same way, as a script. `python -m tests.programs.search`
searches further seeds and shows every kind of failure once.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.programs.program import Step, draw_program
from tests.programs.search import search

import serrate as sr
from serrate.ops.record import TABLE

QUICK = 400
SLOW = 20_000
CHUNK = 500


def check(first: int, count: int) -> Counter[str]:
    """Fail with the first program of these seeds that fails."""
    counts: Counter[str] = Counter()
    for found in search(range(first, first + count), counts):
        pytest.fail(found.report(), pytrace=False)
    return counts


@pytest.mark.parametrize("first", range(0, QUICK, 100))
def test_programs(first: int) -> None:
    counts = check(first, 100)
    assert counts["host-born done"] > 90
    assert counts["device-born done"] > 75
    assert counts["decided"] > 5 * counts["undecided"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + SLOW, CHUNK))
def test_more_programs(first: int) -> None:
    counts = check(first, CHUNK)
    assert counts["device-born ended"] < CHUNK // 5


# Operations that no program draws: they draw elements themselves (tests/ops/test_random.py), change memory, dtype or
# device alone, or need what no step keeps, the groups of an earlier step (tests/ops/test_grouping.py).
ELSEWHERE = {
    *("random.uniform", "random.normal", "random.exponential", "random.randint", "random.bernoulli", "random.shuffle"),
    *("contiguous", "copy_", "detach", "to", "mask", "Grouped.ungroup"),
}


@pytest.mark.slow
def test_every_operation_of_the_table_is_drawn() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(6_000):
        drawn.update(s.operation for s in draw_program(seed).statements if isinstance(s, Step))
    assert {name.removeprefix("Tensor.") for name in TABLE} - set(drawn) == ELSEWHERE
    assert {"getitem", "setitem", "iadd", "isubtract", "imultiply", "flat", "combine", "to_dense"} <= set(drawn)


def test_the_program_of_a_seed_is_always_the_same() -> None:
    one, other = draw_program(17), draw_program(17)
    assert [s.text() for s in one.statements] == [s.text() for s in other.statements]


def test_a_failure_is_a_small_script_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sr.flip
    monkeypatch.setattr(sr, "flip", lambda x, **options: whole(x, **options) * 1 if x.ndim > 3 else x)
    found = next(f for f in search(range(2_000)) if "flip" in f.kind)
    text = found.report()
    steps = [line for line in text.splitlines() if line.startswith("v")]
    assert len(steps) <= 3
    assert "sr.flip" in steps[-1]
    assert f"# seed {found.program.seed}" in text
    names: dict[str, object] = {}
    exec(text, names)
    assert isinstance(names[steps[-1].split(" = ")[0]], sr.Tensor)
