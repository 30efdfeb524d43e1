from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from tests.runtime.harness import SOURCE, add_one, check_add_one, forget, run_program

from serrate.errors import CompileError
from serrate.kernel import cpp
from serrate.runtime import cache, compiler
from serrate.runtime.compiler import compile


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls of the compiler that follow."""
    calls: list[object] = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: (calls.append(a), real(*a, **k))[1])
    return calls


def moved(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The compiled kernel in another cache: a library that is loaded already is not read again by its path."""
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(directory))
    compile(SOURCE)
    other = shutil.copytree(directory, directory.with_name("other"))
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(other))
    forget()
    (path,) = other.iterdir()
    return path


def test_cache_on_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile(SOURCE)
    assert compile(SOURCE) is library
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in directory.iterdir()] == [".so"]
    path = moved(directory, monkeypatch)
    calls = counted(monkeypatch)
    loaded = compile(SOURCE)
    check_add_one(loaded)
    assert loaded.path == path
    assert not calls
    compile(SOURCE, flags=("-DOTHER",))
    assert len(calls) == 1
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize("keep", [0, 10, 5000, -1])
def test_truncated_file_is_rebuilt(directory: Path, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    path = moved(directory, monkeypatch)
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    check_add_one(compile(SOURCE))
    assert len(path.read_bytes()) == len(whole)


def of_another_machine(folder: Path, content: bytes) -> bytes:
    return content[:18] + b"\xff\xff" + content[20:]  # e_machine of ELF


def of_another_c_library(folder: Path, content: bytes) -> bytes:
    """It needs a function that there is not here."""
    code, library = folder / "other.cpp", folder / "other.so"
    code.write_text('extern "C" int not_here(); extern "C" int add_one() { return not_here(); }')
    subprocess.run([*compiler.compiler(), "-shared", "-fPIC", code, "-o", library], check=True)
    return library.read_bytes()


@pytest.mark.parametrize("change", [lambda folder, content: b"no library", of_another_machine, of_another_c_library])
def test_library_of_another_system_is_rebuilt(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, bytes], bytes]
) -> None:
    path = moved(directory, monkeypatch)
    content = cache.read_cached(path)
    assert content is not None
    other = change(tmp_path, content)
    path.unlink()
    assert cache.keep(path.name, other) == path
    assert cache.read_cached(path) == other
    calls = counted(monkeypatch)
    check_add_one(compile(SOURCE))
    assert len(calls) == 1
    assert cache.read_cached(path) == content


def test_a_library_of_another_source_is_not_taken_for_this_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole file, but under the name of what something else was compiled to."""
    other = cpp.source([replace(add_one(), body=())])  # the same function, which does nothing
    compile(other)
    (wrong,) = directory.iterdir()
    path = moved(directory.with_name("mine"), monkeypatch)
    path.write_bytes(wrong.read_bytes())
    calls = counted(monkeypatch)
    check_add_one(compile(SOURCE))
    assert len(calls) == 1
    assert cache.read_cached(path) is not None


def test_directory_is_made_anew(directory: Path) -> None:
    compile(SOURCE)
    shutil.rmtree(directory)
    forget()
    check_add_one(compile(SOURCE))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in directory.iterdir()] == [".so"]


def test_directory_that_goes_while_the_compiler_runs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.version(compiler.compiler())
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: (shutil.rmtree(directory), real(*a, **k))[1])
    check_add_one(compile(SOURCE))
    assert [path.suffix for path in directory.iterdir()] == [".so"]


def refuse(directory: Path, reason: str) -> None:
    """The directory is not used, as a warning says; kernels run all the same."""
    before = set(directory.iterdir()) if directory.is_dir() else set()
    with pytest.warns(UserWarning, match=f"are not kept: .*cannot be used .*{reason}"):
        library = compile(SOURCE)
    check_add_one(library)
    assert directory not in library.path.parents
    assert library.path.parent.stat().st_mode & 0o777 == 0o700
    assert (set(directory.iterdir()) if directory.is_dir() else set()) == before


def test_directory_others_can_write_to(directory: Path) -> None:
    for mode in (0o777, 0o770, 0o702):
        forget()
        cache._temporaries.clear()
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)
        refuse(directory, "others can write to it")


def test_directory_of_someone_else(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(mode=0o700)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.warns(UserWarning, match=r"cannot be used \(it is not yours\)"):
        assert cache.cache_directory() != directory


def test_directory_that_cannot_be_written_to(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    directory.chmod(0o500)
    if os.getuid() == 0:  # who can write anywhere
        real = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != directory and real(path, mode))
    refuse(directory, "it cannot be written to")


def test_directory_that_cannot_be_made(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write_text("a file")
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(directory / "below"))
    refuse(directory / "below", "Not a directory")


def test_disk_that_is_full(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replace(source: str, target: Path) -> None:
        if target.parent == directory:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    refuse(directory, "No space left on device")
    compile(SOURCE, flags=("-DOTHER",))  # no second warning
    assert not list(directory.iterdir())


def test_temporary_directory_is_made_anew(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.warns(UserWarning, match="cannot be used"):
        first = compile(SOURCE).path.parent
    assert cache.cache_directory() == first
    shutil.rmtree(first)
    first.write_text("of someone else")
    forget()
    with pytest.warns(UserWarning, match="cannot be used"):
        second = cache.cache_directory()
    assert second != first
    library = compile(SOURCE)
    check_add_one(library)
    assert library.path.parent == second
    first.unlink()


def test_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERRATE_CACHE_DIR", ".")
    library = compile(SOURCE)
    check_add_one(library)
    assert library.path.parent == tmp_path


def test_no_home(tmp_path: Path) -> None:
    program = """
        import pathlib
        from tests.runtime.harness import SOURCE, check_add_one
        from serrate.runtime.compiler import compile

        def home():
            raise RuntimeError("Could not determine home directory.")

        pathlib.Path.home = home
        library = compile(SOURCE)
        check_add_one(library)
        assert library.path.is_relative_to(pathlib.Path("TEMPORARY"))
        """.replace("TEMPORARY", str(tmp_path))
    words = run_program(program, HOME=None, SERRATE_CACHE_DIR=None, TMPDIR=str(tmp_path))
    assert words.count("compiled kernels are not kept: Could not determine home directory.") == 1
    assert not list(tmp_path.iterdir())  # it went with the process


def test_different_sources_are_compiled_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of the compiler waits until the other has begun; one source is compiled once, whoever asks."""
    compiler.version(compiler.compiler())
    together, begun = Barrier(2, timeout=60), []
    real = compiler.run_compiler

    def run(command: Sequence[str], source: str) -> None:
        begun.append(source)
        together.wait()
        real(command, source)

    monkeypatch.setattr(compiler, "run_compiler", run)
    sources = [f'extern "C" int answer() {{ return {number}; }}' for number in (1, 2)]
    with ThreadPoolExecutor(6) as threads:
        libraries = list(threads.map(compile, sources * 3))
    assert sorted(begun) == sources
    assert len(set(map(id, libraries))) == 2
    assert [ctypes.CDLL(str(library.path)).answer() for library in libraries[:2]] == [1, 2]


def test_a_source_that_does_not_compile_stops_nobody_else() -> None:
    for _ in range(2):
        with pytest.raises(CompileError):
            compile("int f() { return not_declared; }")
    check_add_one(compile(SOURCE))


def test_processes_at_once(directory: Path) -> None:
    program = (
        "import ctypes\n"
        "from serrate.runtime.compiler import compile\n"
        "library = compile('extern \"C\" int answer() { return 42; }')\n"
        "assert ctypes.CDLL(str(library.path)).answer() == 42\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        words = process.communicate(timeout=120)[1]
        assert process.returncode == 0, words.decode()
    assert [path.suffix for path in directory.iterdir()] == [".so"]
