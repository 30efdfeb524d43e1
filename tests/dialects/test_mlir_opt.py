"""The texts of the dialects are MLIR: LLVM's own tool reads them, where it is installed (`mlir-22-tools` of Debian)."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests.dialects.groups import GOLDENS

MLIR_OPT = shutil.which("mlir-opt-22") or shutil.which("mlir-opt")
FILES = sorted(GOLDENS.glob("*.mlir"))


@pytest.mark.skipif(MLIR_OPT is None, reason="mlir-opt is not installed")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_mlir_reads_the_generic_form(file: object) -> None:
    done = subprocess.run(
        [str(MLIR_OPT), "--allow-unregistered-dialect", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
