"""What kernels may stand on: not on the reference that they are compared with."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import serrate

PACKAGE = Path(serrate.__file__).parent
REFERENCE = "serrate.fusion.reference"
PARTS = {REFERENCE, "serrate.fusion.reference_moves", "serrate.fusion.element_lists"}
KERNEL = sorted((PACKAGE / "kernel").rglob("*.py"))


def modules_imported(source: str) -> set[str]:
    """The names of all modules that a source may import, lazily too: of `from a import b` both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


@pytest.mark.parametrize("path", KERNEL, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_of_the_kernel_layer_imports_the_reference(path: Path) -> None:
    assert not PARTS & modules_imported(path.read_text())


def test_every_form_of_an_import_is_seen() -> None:
    for line in (f"import {REFERENCE}", f"from {REFERENCE} import results_of", "from serrate.fusion import reference"):
        assert REFERENCE in modules_imported(f"def f():\n    {line}\n")


def test_a_kernel_is_lowered_and_bound_without_the_reference() -> None:
    program = (
        "import sys, torch\n"
        "from serrate.fusion import Fusion\n"
        "from serrate.kernel import lower\n"
        "fusion = Fusion()\n"
        "y = fusion.output(fusion.unary('exp', fusion.input('x', ['n'])), 'y')\n"
        "lower(fusion, y).buffers([torch.ones(3)])\n"
        f"print(bool({PARTS!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
