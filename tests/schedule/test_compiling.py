"""When plans are compiled: all kernels before the first call, at the same time, and once for all processes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.schedule import required

from serrate.fusion import Fusion
from serrate.runtime import compiler
from serrate.runtime.toolchain import compiler as found_compiler
from serrate.schedule import plan

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import torch
from tests.schedule.required import inputs_of, masked_softmax
from serrate.schedule import plan
fusion = masked_softmax(7)
given = inputs_of(fusion, [3, 0, 2], [])
(y,) = plan(fusion, name="softmax_of_this_test").prepared()(*given)
assert torch.allclose(y, fusion.evaluate(*given)[0].float(), atol=1e-5)
"""


def run(folder: Path, program: str = PROGRAM) -> list[str]:
    """A program in a process of its own; returns the runs of the compiler that it asked for, by what they wrote."""
    wrapper, log = folder / "compiler", folder / "log"
    real = " ".join(found_compiler())
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) echo "$@" >> {log};; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    log.write_text("")
    environment = os.environ | {
        "SERRATE_CACHE_DIR": str(folder / "cache"),
        "SERRATE_CXX": str(wrapper),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    (folder / "cache").mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    (step,) = plan(required.masked_softmax(7)).steps
    assert len(step.kernels) > 1
    assert len(run(tmp_path)) == 1, "the kernels of a step are compiled together"
    assert run(tmp_path) == []


def test_a_cached_file_that_is_broken_is_compiled_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    for path in (tmp_path / "cache").rglob("*.so"):
        path.write_bytes(path.read_bytes()[:1000])
    assert len(run(tmp_path)) == len(first)
    assert run(tmp_path) == []


def test_no_call_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = required.softmax_gradient(3)
    call = plan(fusion).prepared()
    monkeypatch.setattr(compiler, "run_compiler", lambda *_, **__: pytest.fail("a call compiles"))
    for lengths in ([3, 0, 5], [200_000, 3], [1] * 50):
        call(*required.inputs_of(fusion, lengths, []))


def test_plans_can_be_called_by_several_threads() -> None:
    fusion = required.masked_softmax(3)
    call, given = plan(fusion).prepared(), required.inputs_of(fusion, [30, 2, 5], [])
    (wanted,) = call(*given)

    def right(_: int) -> bool:
        return all(torch.equal(call(*given)[0], wanted) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(4)))


def test_a_plan_that_is_prepared_twice_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = Fusion()
    fusion.output(fusion.input("x", ["n"]) * 1.375, "y")
    planned = plan(fusion)
    planned.prepared()
    monkeypatch.setattr(compiler, "run_compiler", lambda *_, **__: pytest.fail("it is compiled again"))
    assert planned.prepared()(torch.ones(2))[0].tolist() == [1.375, 1.375]
