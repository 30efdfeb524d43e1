"""The stubs that type checkers read are what the table makes, and let a checker see operations and methods."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serrate.ops import stubs


@pytest.mark.parametrize("path", stubs.files(), ids=lambda path: path.name)
def test_stubs_are_up_to_date(path):
    assert path.read_text() == stubs.files()[path], "run: python -m serrate.ops.stubs"


def test_a_type_checker_sees_functions_operators_and_methods(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import serrate as sr\n"
        "x = sr.exp(sr.ragged([[1.0], []]))\n"
        "y: sr.Tensor = sr.softmax(x * 2 + 1, axis=1) @ sr.ones((1, 1))\n"
        "y.sum(1).relu()\n"
        "sr.no_such_operation(x)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "no_such_operation" in found.stdout
    assert "Found 1 error in 1 file" in found.stdout, found.stdout
