"""The program that runs many kernels, on the CPU: it draws, counts, and says what is wrong."""

from __future__ import annotations

import pytest
from tests.gpu import many_kernels


def test_right_kernels_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert many_kernels.main(["--target", "cpp", "--count", "2", "--workers", "1"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert "2 ran, 2 right, 0 wrong, 0 hung" in last
    assert "refused because:" in lines


def test_a_failure_is_reported_with_all_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(lowered: object, inputs: object) -> None:
        raise AssertionError("y: 1 of 3 elements are wrong: 2.0 instead of 1.0 at 0")

    monkeypatch.setattr(many_kernels, "run", wrong)
    outcomes = (many_kernels.attempt(seed, "cpp") for seed in range(100))
    found = next(outcome for outcome in outcomes if outcome.what == "wrong")
    for part in ("outputs: ", "x", "reference ", "kernel kernel", "__restrict", "2.0 instead of 1.0 at 0"):
        assert part in found.detail
    assert f"1 ran, 0 right, 1 wrong, 0 hung, 0 refused, 0 refused when called; 1 s; failed seeds: [{found.seed}]" in (
        many_kernels.summary([found], 1.0)
    )


def test_a_process_that_ends_is_a_failure() -> None:
    worker = many_kernels.Worker("cpp")
    worker.start(3)
    worker.process.kill()
    outcome = worker.outcome()
    worker.end()
    assert (outcome.seed, outcome.what, outcome.device_failed) == (3, "wrong", True)
