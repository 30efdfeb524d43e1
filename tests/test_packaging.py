"""Source distribution and wheel, built where there is no torch, and the first calls of a fresh installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from tests.native.test_building import EVERYTHING

from serrate.native import building

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{0}(sys.argv[1]))"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has pip and setuptools, and no torch."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "setuptools>=77"], check=True)
    assert subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False).returncode != 0
    return python


@pytest.fixture(scope="module")
def sdist(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, of a copy of the tree without anything that was built."""
    tree, made = tmp_path_factory.mktemp("tree") / "serrate", tmp_path_factory.mktemp("sdist")
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([str(clean), "-c", BUILD.format("sdist"), str(made)], cwd=tree, check=True)
    return next(made.glob("*.tar.gz"))


def _wheel(clean: Path, sdist: Path, folder: Path, **environment: str) -> tuple[Path, str]:
    """The wheel that pip makes of a source distribution, and what it says meanwhile."""
    command = [
        str(clean),
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(sdist),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl")), done.stdout + done.stderr


def _installed(clean: Path, wheel: Path, folder: Path) -> dict[str, str]:
    """Variables of an environment with the wheel, with the torch of this environment, and without compilers."""
    target = folder / "installed"
    command = [str(clean), "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)
    path = os.pathsep.join([str(target), str(Path(torch.__file__).parents[1])])
    kept = {name: value for name, value in os.environ.items() if name not in ("SERRATE_CXX", "PYTHONPATH")}
    return {**kept, "PATH": str(folder), "PYTHONPATH": path, "SERRATE_CACHE_DIR": str(folder / "cache")}


def test_the_source_distribution_has_every_source_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {Path(name).relative_to("serrate-0.1.0").as_posix() for name in archive.getnames()}
    native = {f"src/serrate/native/{path.name}" for path in building.FOLDER.iterdir() if path.suffix in (".cpp", ".h")}
    assert native | {"setup.py", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith((".so", ".o"))]


def test_the_first_call_after_an_installation_compiles_nothing(clean: Path, sdist: Path, tmp_path: Path) -> None:
    wheel, _ = _wheel(clean, sdist, tmp_path)
    assert wheel.name.startswith("serrate-0.1.0-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        built = {name for name in archive.namelist() if name.endswith(".so")}
    assert built == {f"serrate/native/built/{building.library_of(level).name}" for level in building.levels()}
    environment = _installed(clean, wheel, tmp_path)
    program = EVERYTHING + f"\nassert sr.__file__.startswith({str(tmp_path)!r}), sr.__file__"
    subprocess.run([str(clean), "-c", program], check=True, env=environment, cwd=tmp_path)
    assert not (tmp_path / "cache").exists()


WITHOUT = """
import warnings
import serrate as sr
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    assert sr.sum(x, axis=1).tolist() == [3.0, 0.0, 3.0]
    assert sr.softmax(x, axis=1).to_dense().sum(1).tolist() == [1.0, 0.0, 1.0]
    assert sr.Table({"a": [[1, 2], [3]]}, schema={"a": "v"}).to_dense()["a"].tolist() == [[1, 2], [3, 0]]
print(len([each for each in caught if "runs without its native code" in str(each.message)]))
"""


def test_an_installation_without_a_compiler_works(clean: Path, sdist: Path, tmp_path: Path) -> None:
    wheel, said = _wheel(clean, sdist, tmp_path, SERRATE_CXX="no-such-compiler")
    assert said.count("installed without its native code") == 1
    environment = _installed(clean, wheel, tmp_path)
    command = [str(clean), "-c", WITHOUT]
    done = subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "1"
    later = {**environment, "PATH": os.environ["PATH"]}
    done = subprocess.run(command, check=True, env=later, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "0"
    assert list((tmp_path / "cache").glob("*.so"))
