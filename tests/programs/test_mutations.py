"""The random programs can fail: each fault that is put into Serrate is found, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.programs.mutations import MUTATIONS, find

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=[fault for fault, _, _ in MUTATIONS])
def test_there_is_something_to_break(number: int) -> None:
    find(MUTATIONS[number][1])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=[fault for fault, _, _ in MUTATIONS])
def test_a_fault_is_found(number: int) -> None:
    command = [sys.executable, "-m", "tests.programs.mutations", str(number)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
