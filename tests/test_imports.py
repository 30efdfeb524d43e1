"""The order of imports: what a folder of the package may import, lazily too, as CONTRIBUTING.md writes it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "serrate"


def written_order() -> dict[str, set[str]]:
    """For each folder, or file of the package's own, what it may import: the rows of the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## What imports what") :]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", table, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", allowed)) for name, allowed in rows}


def imported(source: str) -> set[str]:
    """The folders and files of the package that a source imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            parts = (node.module or "").split(".")
            if parts[0] == "serrate":
                found |= {parts[1]} if len(parts) > 1 else {each.name for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name.split(".")[1] for each in node.names if each.name.startswith("serrate.")}
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            found |= {str(text.value).split(".")[1] for text in ast.walk(node) if _names_a_module(text)}
    return found


def _names_a_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("serrate.")


def folder_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    own = folder_of(path)
    beyond = imported(path.read_text()) - {own} - written_order()[own]
    assert not beyond, f"{own}/ may not import {', '.join(sorted(beyond))}"


def test_every_folder_has_its_row_and_there_is_an_order() -> None:
    order = written_order()
    assert set(order) == {folder_of(path) for path in SOURCES}
    done: set[str] = set()
    while done != set(order):
        ready = {name for name, allowed in order.items() if name not in done and allowed <= done}
        assert ready, f"{set(order) - done} import each other"
        done |= ready


def test_the_reader_of_imports_sees_lazy_ones() -> None:
    source = "def f():\n    from serrate.ops import table\n    import serrate.viz\n    from serrate import errors\n"
    assert imported(source) == {"ops", "viz", "errors"}
    assert imported("import importlib\nimportlib.import_module('serrate.table.table')") == {"table"}


def test_building_a_library_imports_no_loop_layer() -> None:
    """Only the scalar functions, which bodies of elementwise operations are entered with."""
    program = (
        "import sys, serrate.runtime.compiler\n"
        "print(*sorted(name for name in sys.modules if name.startswith(('serrate.fusion', 'serrate.kernel'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    scalars = {
        f"serrate.fusion.{name}"
        for name in ("analysis", "dtypes", "elementwise", "forms", "functions", "nodes", "philox", "scalar")
    }
    assert set(done.stdout.split()) <= {"serrate.fusion", *scalars}


LOADED = """
import sys, torch, numpy
before = set(sys.modules)
import serrate
print(*sorted(set(sys.modules) - before))
"""
LATER = ("table", "compat", "kernel", "viz", "cli", "runtime.compiler", "runtime.cuda_compiler")


def test_importing_serrate_loads_only_what_every_program_needs() -> None:
    """Beside torch and numpy only the standard library; tables, compilers and other libraries' names when used."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "serrate.tensor.tensor" in loaded
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names | {"serrate"}}
    assert not foreign
    early = [name for name in loaded if name.startswith(tuple(f"serrate.{each}" for each in LATER))]
    assert not early


def test_names_of_tables_are_there_when_they_are_asked_for() -> None:
    program = (
        "import serrate as sr\n"
        "assert {'Table', 'TableWriter', 'open'} <= set(dir(sr))\n"
        "assert sr.open is sr.table.open_table\n"
        "assert sr.Table is sr.table.Table and sr.TableWriter is sr.table.TableWriter\n"
        "from serrate import *\n"
        "assert open is sr.open\n"
        "try:\n    sr.no_such_name\nexcept AttributeError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "module 'serrate' has no attribute 'no_such_name'"
