from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from serrate.errors import CompileError
from serrate.fusion.scalar import call, ceildiv, const, load, maximum, minimum, symbol
from serrate.fusion.types import ParallelType
from serrate.kernel import cpp
from serrate.kernel.ir import Allocate, Buffer, For, Kernel, Memory, Store
from serrate.runtime import compiler
from serrate.runtime.compiler import compile

n, i, d, r = map(symbol, ("n", "i", "d", "r"))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on disk and in memory."""
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_libraries", {})
    return tmp_path / "cache"


def add_one(index: str = "int64") -> Kernel:
    body = Store("y", i, load("x", i, "float32") + const(1.0, "float32"))
    x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    return Kernel("add_one", (x, y), (n,), (For(i, n, (body,), "position"),), index=index)


def check_add_one(library: compiler.Library, kernel: Kernel) -> None:
    x, y = torch.arange(5.0), torch.zeros(6)
    library.function(kernel)(x, y, 5)
    assert y.tolist() == [1, 2, 3, 4, 5, 0]


def forget() -> None:
    compiler._libraries.clear()


def test_call() -> None:
    for index in ("int32", "int64"):
        kernel = add_one(index)
        check_add_one(compile(cpp.source([kernel])), kernel)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.zeros(4), torch.zeros(4)), "takes 2 tensors and 1 sizes, got 2"),
        (([0.0] * 4, torch.zeros(4), 4), "x must be .* got a list"),
        ((torch.zeros(4), torch.zeros(4).double(), 4), "y must be a contiguous torch.float32 .* got torch.float64"),
        ((torch.zeros(3), torch.zeros(4), 4), "x must .* at least 4 elements, got .* with 3 elements"),
        ((torch.zeros(8)[::2], torch.zeros(4), 4), "x must .* not contiguous"),
        ((torch.zeros(4), torch.zeros(4, device="meta"), 4), "y must .* on cpu .* on meta"),
    ],
)
def test_wrong_arguments(arguments: tuple[object, ...], words: str) -> None:
    kernel = add_one()
    with pytest.raises(TypeError, match=words):
        compile(cpp.source([kernel])).function(kernel)(*arguments)


def test_sizes_are_evaluated() -> None:
    m = symbol("m")
    kernel = Kernel("k", (), (n, m), ())
    wanted = [ceildiv(n, 4) * m, maximum(n, m) - minimum(n, m), n % 3 + 1, const(7)]
    assert compiler.sizes(kernel, wanted)(10, 3) == (9, 7, 2, 7)
    with pytest.raises(ValueError, match="not known before the kernel runs"):
        compiler.sizes(kernel, [load("offsets", n)])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls of the compiler that follow."""
    calls: list[object] = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: (calls.append(a), real(*a, **k))[1])
    return calls


def test_cache_on_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cpp.source([add_one()])
    library = compile(source)
    assert compile(source) is library
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in directory.iterdir()] == [".so"]
    forget()
    calls = counted(monkeypatch)
    check_add_one(compile(source), add_one())
    assert not calls
    compile(source, flags=("-DOTHER",))
    assert len(calls) == 1
    assert len(list(directory.iterdir())) == 2


@pytest.mark.parametrize("keep", [0, 10, 5000, -1])
def test_truncated_file_is_rebuilt(directory: Path, keep: int) -> None:
    source = cpp.source([add_one()])
    compile(source)
    (path,) = directory.iterdir()
    whole = path.read_bytes()
    path.unlink()  # so that what is loaded keeps its file
    path.write_bytes(whole[:keep])
    forget()
    check_add_one(compile(source), add_one())
    assert len(path.read_bytes()) == len(whole)


def test_file_that_cannot_be_loaded_is_rebuilt(directory: Path) -> None:
    source = cpp.source([add_one()])
    compile(source)
    (path,) = directory.iterdir()
    path.unlink()
    compiler.write_cached(path, b"of another system")
    forget()
    check_add_one(compile(source), add_one())


def test_directory_of_others_is_refused(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.warns(UserWarning, match="cannot be used"):
        library = compile(cpp.source([add_one()]))
    check_add_one(library, add_one())
    assert not list(directory.iterdir())
    assert library.path.parent.stat().st_mode & 0o777 == 0o700


def test_directory_that_cannot_be_made(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write_text("a file")
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(directory / "below"))
    with pytest.warns(UserWarning, match="cannot be used"):
        check_add_one(compile(cpp.source([add_one()])), add_one())


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


def test_failing_compiler(directory: Path) -> None:
    with pytest.raises(CompileError, match="not_declared") as caught:
        compile("int f() { return not_declared; }")
    assert caught.value.source == "int f() { return not_declared; }"
    assert "-O3" in caught.value.command
    assert "   1 int f()" in str(caught.value)
    assert not list(directory.iterdir())


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRATE_CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler"):
        compile("")


def test_debug_prints_the_source(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    source = cpp.source([add_one()])
    compile(source)
    assert capfd.readouterr().err == ""
    forget()
    monkeypatch.setenv("SERRATE_DEBUG", "source")
    compile(source)
    assert capfd.readouterr().err == source + "\n"


def disassembled(source: str) -> str:
    path = compile(source).path
    return subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout


needs_x86 = pytest.mark.skipif(
    os.uname().machine != "x86_64" or "avx2" not in compiler.processor(), reason="needs AVX2"
)


@needs_x86
def test_vector_functions_are_called() -> None:
    value = call("log", load("x", i, "float32"))
    x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    loop = For(i, n, (Store("y", i, value),), "position", ParallelType.Simd)
    path = compile(cpp.source([Kernel("k", (x, y), (n,), (loop,))])).path
    names = subprocess.run(["nm", "-D", str(path)], capture_output=True, text=True, check=True).stdout
    assert "_logf" in names
    assert "_ZGV" in names


@needs_x86
@pytest.mark.parametrize("combine", ["add", "max"])
def test_accumulators_are_vectors(combine: str) -> None:
    total, x = load("total", d, "float32"), load("x", r * 128 + d, "float32")
    value = total + x if combine == "add" else maximum(total, x)

    def features(buffer: str, index: object, value: object) -> For:
        return For(d, const(128), (Store(buffer, index, value),), "feature", ParallelType.Simd)

    kernel = Kernel(
        "accumulate",
        (Buffer("x", "float32", n * 128), Buffer("out", "float32", const(128), written=True)),
        (n,),
        (
            Allocate(Buffer("total", "float32", const(128), Memory.REGISTER)),
            features("total", d, const(0.0, "float32")),
            For(r, n, (features("total", d, value),), "row"),
            features("out", d, total),
        ),
    )
    rows = torch.randn(50, 128)
    rows[7, 5] = torch.nan
    out = torch.empty(128)
    compile(cpp.source([kernel])).function(kernel)(rows, out, 50)
    expected = rows.sum(0) if combine == "add" else torch.cat([rows, torch.zeros(1, 128)]).amax(0)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
    text = disassembled(cpp.source([kernel]))
    scalar, vector = f"v{combine}ss", f"v{combine}ps"
    assert vector in text
    assert scalar not in text
