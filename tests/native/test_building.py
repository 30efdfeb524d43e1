"""The libraries that are built with the package: what they are built from, whom they fit, and when they are used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from serrate.errors import CompileError
from serrate.native import building, loading, padded, row_products, row_sums
from serrate.runtime import toolchain

ROOT = Path(__file__).parents[2]
LEVELS = list(building.levels())
needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have one level")


def test_the_library_is_built_from_the_sources_as_they_are() -> None:
    present = {path.name: building.digest_of(path.name) for path in building.sources()}
    path, digests = loading._built()
    assert digests == present, "run `make test`, or `pip install -e .`, which builds it"
    assert {loading.library_with(name) for name in present} == {path}


EVERYTHING = """
import os, sys, warnings
warnings.simplefilter("error")
import torch
import serrate as sr
from serrate.native import buckets, gather, nesting, padded, row_extremes, row_products, row_sums, rows, shuffling
from serrate.table.storage import reading
modules = (buckets, nesting, padded, reading, row_extremes, row_products, row_sums, rows, shuffling)
assert all(module._library() is not None for module in modules)
assert gather.routines() is not None and gather.padding_routines() is not None
x = sr.ragged([[1.0, 2.0], [], [3.0]])
assert sr.sum(x, axis=1).tolist() == [3.0, 0.0, 3.0]
assert sr.Table({"a": [[1, 2], [3]]}, schema={"a": "v"}).to_dense()["a"].tolist() == [[1, 2], [3, 0]]
assert "serrate.runtime.compiler" not in sys.modules, "something was compiled"
"""


def test_first_calls_start_no_compiler(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {**os.environ, "PATH": str(tmp_path), "SERRATE_CACHE_DIR": str(cache)}
    environment.pop("SERRATE_CXX", None)
    subprocess.run([sys.executable, "-c", EVERYTHING], env=environment, check=True, timeout=120)
    assert not cache.exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, in place of the sources themselves; nothing is kept from other tests."""
    for name in ("runtime", "native"):  # some headers are for printed kernels too
        source, other = building.FOLDER.parent / name, shutil.ignore_patterns("*.so", "*.py*")
        copied = Path(shutil.copytree(source, tmp_path / name, ignore=other))
    monkeypatch.setattr(building, "FOLDER", copied)
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loading, "_reasons", [])
    return copied


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_a_source_that_has_changed_is_compiled(folder: Path) -> None:
    built, _ = loading._built()
    _append(folder / "shuffling.cpp", "int64_t answer() { return 42; }\nSERRATE_EXPORT(answer, answer)\n")
    assert loading.library_with("padded.cpp") == built
    assert loading.library_with("shuffling.cpp") != built
    routines = loading.load("shuffling.cpp", ["walk", "answer"])
    assert routines is not None
    assert routines["answer"]() == 42


def test_a_header_that_has_changed_makes_those_new_that_include_it(folder: Path) -> None:
    (folder.parent / "outside.h").write_text("// one\n")
    _append(folder / "gather.h", '#include "../outside.h"\n')

    def digests() -> dict[str, str]:
        return {path.name: building.digest_of(path.name) for path in building.sources()}

    def changed(path: Path) -> set[str]:
        before = digests()
        _append(path, "// something else\n")
        return {name for name, digest in digests().items() if digest != before[name]}

    assert changed(folder / "trees.h") == {"row_sums.cpp"}
    assert changed(folder.parent / "outside.h") == {"gather.cpp", "rectangles.cpp"}
    assert changed(folder / "common.h") == set(digests()) - {"nesting.cpp", "call_keys.cpp"}


def test_options_that_have_changed_make_every_source_new(monkeypatch: pytest.MonkeyPatch) -> None:
    before = building.digest_of("padded.cpp")
    with monkeypatch.context() as patched:
        patched.setattr(building, "FLAGS", ("-O1",))
        assert building.digest_of("padded.cpp") != before
    monkeypatch.setattr(building, "_architecture", lambda level: ("-mtune=something",))
    assert building.digest_of("padded.cpp") != before


def test_a_changed_source_without_a_compiler_is_not_replaced_by_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERRATE_CXX", "no-such-compiler")
    _append(folder / "shuffling.cpp", "\n")
    _append(folder / "padded.cpp", "\n")
    with pytest.warns(RuntimeWarning, match="runs without its native code.*no-such-compiler"):
        assert loading.load("shuffling.cpp", ["walk"]) is None
    assert loading.load("padded.cpp", ["pad"]) is None  # a second warning would be an error


def test_an_installation_without_a_compiler_that_gets_one_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_built", loading._built.__wrapped__)
    monkeypatch.setattr(building, "library_of", lambda level, folder=folder: folder / level)
    monkeypatch.setenv("SERRATE_CXX", "no-such-compiler")
    with pytest.warns(RuntimeWarning, match="cannot be compiled now: found none of these on PATH"):
        assert loading.load("shuffling.cpp", ["walk"]) is None
    monkeypatch.delenv("SERRATE_CXX")
    assert loading.load("shuffling.cpp", ["walk"]) is not None


def test_a_library_of_another_system_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(b"no library")
    monkeypatch.setattr(building, "library_of", lambda level: path)
    assert loading._built.__wrapped__() == (path, {})


# ------------------------------------------------------------------------------------------------- building


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small source, in place of the sources."""
    (tmp_path / "small.cpp").write_text('extern "C" int serrate_small() { return 1; }\n')
    monkeypatch.setattr(building, "FOLDER", tmp_path)
    return tmp_path


def test_building_leaves_what_is_built_and_replaces_what_is_stale(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = building.build(small / "built")
    assert sorted(path.name for path in (small / "built").iterdir()) == sorted(path.name for path in built)
    assert len(built) == len(building.levels())
    times = [path.stat().st_mtime_ns for path in built]
    building.build(small / "built")
    assert [path.stat().st_mtime_ns for path in built] == times
    _append(small / "small.cpp", "// changed\n")
    monkeypatch.setenv("SERRATE_CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler"):
        building.build(small / "built")
    monkeypatch.delenv("SERRATE_CXX")
    building.build(small / "built")
    assert all(path.stat().st_mtime_ns > time for path, time in zip(built, times, strict=True))


def test_a_source_that_does_not_compile_leaves_nothing_half_built(small: Path) -> None:
    (small / "wrong.cpp").write_text("int f() { return not_declared; }\n")
    with pytest.raises(CompileError, match="not_declared"):
        building.build(small / "built")
    assert not (small / "built").exists()


def test_sources_are_compiled_side_by_side(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two compilations that wait for each other end only if they run at the same time."""
    (small / "other.cpp").write_text('extern "C" int serrate_other() { return 2; }\n')
    waiting = small / "waiting"
    waiting.mkdir()
    script = small / "compiler"
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *.cpp*) : > {waiting}/$$; while [ $(ls {waiting} | wc -l) -lt 2 ]; do sleep 0.01; done;; esac\n'
        f'exec {toolchain.compiler()[0]} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("SERRATE_CXX", str(script))
    monkeypatch.setattr(building, "_processors", lambda: 2)
    monkeypatch.setattr(
        building, "run_compiler", lambda command, source: subprocess.run(command, check=True, timeout=60)
    )
    assert building.build(small / "built")


# ------------------------------------------------------------------------------------------------- whom it fits


@needs_x86
def test_the_best_level_that_the_processor_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, expected in (
        (building._AVX512 | {"more"}, "x86-64-v4"),
        (building._AVX512 - {"avx512bw"}, "x86-64-v3"),
        (building._AVX2 - {"fma"}, "x86-64"),
        (frozenset(), "x86-64"),
    ):
        monkeypatch.setattr(building, "features", lambda found=found: frozenset(found))
        assert building.level() == expected


def test_machines_whose_levels_nobody_named_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "platform", types.SimpleNamespace(machine=lambda: "riscv64"))
    assert list(building.levels()) == ["riscv64"]
    assert building.level() == "riscv64"


@needs_x86
@pytest.mark.parametrize(("level", "missing"), [("x86-64", "%[yz]mm"), ("x86-64-v3", "%zmm|%k[1-7]")])
def test_a_level_uses_no_instruction_above_it(level: str, missing: str) -> None:
    command = ["objdump", "-d", str(building.library_of(level))]
    assert not re.search(missing, subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_computes_the_same(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not building.levels()[level] <= toolchain.features():
        pytest.skip(f"this processor does not reach {level}")
    _, digests = loading._built()
    monkeypatch.setattr(loading, "_built", lambda: (building.library_of(level), digests))
    for module in (padded, row_products, row_sums):
        monkeypatch.setattr(module, "_library", module._library.__wrapped__)
    values, offsets = torch.randn(50, 24, dtype=torch.float64), torch.tensor([0, 7, 7, 50])
    rows = [values[:7], values[7:7], values[7:]]
    made = padded.pad(values, (offsets,), (43,))
    assert made is not None
    assert torch.equal(made, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))
    torch.testing.assert_close(row_sums.sums(values, offsets), torch.stack([row.sum(0) for row in rows]))
    matrices = torch.randn(3, 24, 5, dtype=torch.float64)
    expected = torch.cat([row @ matrix for row, matrix in zip(rows, matrices, strict=True)])
    torch.testing.assert_close(row_products.times_matrices(values, matrices, offsets, 43), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_the_interface_is_plain_c(level: str) -> None:
    """Of torch nothing is used, of Python only what is stable between its versions."""
    command = ["nm", "-D", "--undefined-only", str(building.library_of(level))]
    names = set(re.findall(r" U ([\w.]+)", subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert not [name for name in names if re.search("torch|c10|aten", name)]
    stable = {"PyList_GetItem", "PyList_Size", "PyTuple_GetItem", "PyTuple_Size", "PyFloat_AsDouble"}
    stable |= {"PyLong_AsLongLongAndOverflow", "PyList_Type", "PyTuple_Type", "PyFloat_Type", "PyLong_Type"}
    stable |= {"_Py_TrueStruct", "_Py_FalseStruct", "_Py_NoneStruct", "Py_NewRef", "Py_DecRef", "Py_IncRef"}
    stable |= {"PyObject_GetAttr", "PyObject_CallFunctionObjArgs", "PyList_New", "PyList_Append", "PyTuple_New"}
    stable |= {"PyTuple_SetItem", "PyDict_Next", "PyDict_Type", "PyBytes_FromStringAndSize", "PyCMethod_New"}
    stable |= {"PyErr_Clear", "PyErr_SetString", "PyExc_TypeError", "PyCapsule_New", "PyCapsule_GetPointer"}
    stable |= {"PyUnicode_InternFromString"}
    assert {name for name in names if name.startswith(("Py", "_Py"))} <= stable


OPENMP = """
import torch
from serrate.native import row_sums
torch.set_num_threads(2)
values = torch.ones(2**22)
assert values.exp().sum() > 0
assert row_sums.sums(values, torch.arange(0, 2**22 + 1, 2**10)) is not None
with open("/proc/self/maps") as maps:
    print({line.split()[-1] for line in maps if "omp" in line.rsplit("/", 1)[-1]})
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_threads_come_from_the_runtime_that_torch_has_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", OPENMP], capture_output=True, text=True, check=True, timeout=120)
    assert len(eval(done.stdout)) == 1, done.stdout
