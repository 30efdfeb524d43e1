"""Schedules of a GPU: what each kernel computes in the checking interpreter, and that its source compiles."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernel.harness import NVCC
from tests.schedule.required import REQUIRED, inputs_of
from tests.schedule.running import check_steps

from serrate.kernel import cuda
from serrate.schedule import grid, plan

WIDTHS = (5, 8)
"""Features: of 8 a thread takes four at once, of 5 one."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few threads and blocks, which the interpreter runs one after another."""
    monkeypatch.setattr(grid, "THREADS", 16)
    monkeypatch.setattr(grid, "WARP", 4)
    monkeypatch.setattr(grid, "PARTS", 3)
    monkeypatch.setattr(grid, "SMALL", 4)


CASES = [(name, features) for name in REQUIRED for features in WIDTHS if features == 8 or "gradient" not in name]


@pytest.mark.parametrize(("name", "features"), CASES)
def test_kernels_of_a_gpu_compute_what_they_should(name: str, features: int, small: None) -> None:
    made = plan(REQUIRED[name].make(features), "cuda", name)
    for batch in (([3, 0, 9, 1], [2, 0, 1, 1]), ([], [])):
        check_steps(made, inputs_of(made.fusion, *batch))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_their_sources_compile(tmp_path: Path) -> None:
    plans = [plan(REQUIRED[name].make(8), "cuda", name) for name in REQUIRED]
    kernels = [each for planned in plans for step in planned.steps for each in step.kernels]
    named = [replace(each.kernel, name=f"kernel{number}") for number, each in enumerate(kernels)]
    (tmp_path / "kernels.cu").write_text(cuda.source(*named))
    command = [*NVCC, "-Werror=all-warnings", "kernels.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
