"""The tests of the loop layer can fail: each mistake that is put into it is found, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.kernel.mutants import MUTANTS, ROOT

each_mutant = pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[mutant.mistake for mutant in MUTANTS])


@each_mutant
def test_there_is_something_to_change(number: int) -> None:
    compile(MUTANTS[number].source(), MUTANTS[number].file, "exec")


@pytest.mark.slow
@each_mutant
def test_a_mistake_is_found(number: int) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.kernel.mutants", str(number)]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
