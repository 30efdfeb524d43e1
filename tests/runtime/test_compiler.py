from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.runtime.harness import add_one, check_add_one, forget, run_program

from serrate.errors import CompileError
from serrate.fusion.scalar import call, ceildiv, const, load, maximum, minimum, symbol
from serrate.fusion.types import ParallelType
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import Allocate, Buffer, For, Kernel, Memory, Store
from serrate.kernel.signatures import of_sizes, signature
from serrate.runtime import compiler
from serrate.runtime.compiler import compile

n, i, d, r = map(symbol, ("n", "i", "d", "r"))


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
        compile(cpp.source([kernel])).function(signature(kernel))(*arguments)


def test_kernels_of_one_source() -> None:
    """One run of the compiler, one library, a function for each kernel."""
    kernels = [replace(add_one(), name=f"add_one_{number}") for number in range(3)]
    library = compile(cpp.source(kernels))
    for kernel in kernels:
        check_add_one(library, kernel)
    with pytest.raises(ValueError, match="'add_one' and 'add_one' cannot stand in one source"):
        cpp.source([add_one(), add_one()])
    with pytest.raises(ValueError, match="cannot stand in one source"):
        cuda.source(add_one(), add_one())


def test_a_launcher_takes_addresses() -> None:
    launch = compile(cpp.source([add_one()])).function(signature(add_one())).launcher(torch.device("cpu"))
    x, y = torch.arange(5.0), torch.zeros(6)
    launch(x.data_ptr(), y.data_ptr(), 5)
    assert y.tolist() == [1, 2, 3, 4, 5, 0]


def test_sizes_are_evaluated() -> None:
    m = symbol("m")
    kernel = Kernel("k", (), (n, m), ())
    wanted = [ceildiv(n, 4) * m, maximum(n, m) - minimum(n, m), n % 3 + 1, const(7)]
    assert of_sizes(kernel, wanted)(10, 3) == (9, 7, 2, 7)
    with pytest.raises(ValueError, match="not known before the kernel runs"):
        of_sizes(kernel, [load("offsets", n)])


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


def test_compiler_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "int f() { return ANSWER; }"
    monkeypatch.setenv("SERRATE_CXX", "g++ -DANSWER=42 '-DOTHER=a b'")
    assert compiler.compiler() == (shutil.which("g++"), "-DANSWER=42", "-DOTHER=a b")
    compile(source)
    monkeypatch.setenv("SERRATE_CXX", "g++")
    with pytest.raises(CompileError, match="ANSWER"):
        compile(source)


@pytest.mark.parametrize("quote", ["", "'"])
def test_compiler_in_a_folder_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quote: str) -> None:
    path = tmp_path / "my compilers" / "c++"
    path.parent.mkdir()
    path.symlink_to(compiler.compiler()[0])
    monkeypatch.setenv("SERRATE_CXX", f"{quote}{path}{quote}")
    check_add_one(compile(cpp.source([add_one()])), add_one())
    assert compiler.compiler() == (str(path),)


def test_compiler_that_is_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRATE_CXX", "g++ '-O1")
    with pytest.raises(CompileError, match="SERRATE_CXX is not a command: No closing quotation"):
        compile("")
    path = tmp_path / "compiler"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o700)
    monkeypatch.setenv("SERRATE_CXX", str(path))
    with pytest.raises(CompileError, match="Exec format error"):
        compile("")


def test_source_is_utf_8() -> None:
    """Names of axes stand in comments."""
    program = """
        from serrate.runtime.compiler import compile
        compile("// \\u00e9\\u2192")
        """
    run_program(program, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


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
    compile(cpp.source([kernel])).function(signature(kernel))(rows, out, 50)
    expected = rows.sum(0) if combine == "add" else torch.cat([rows, torch.zeros(1, 128)]).amax(0)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
    text = disassembled(cpp.source([kernel]))
    scalar, vector = f"v{combine}ss", f"v{combine}ps"
    assert vector in text
    assert scalar not in text
