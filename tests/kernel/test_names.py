"""Names: tensors, sizes, axes and kernels may be called what C, its library and its macros are called too."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.kernel.harness import NVCC

from serrate.fusion import Fusion, IterDomain, ParallelType
from serrate.kernel import Lowered, cpp, cuda, lower
from serrate.kernel.ir import Kernel
from serrate.kernel.source import identifier, one_line
from serrate.runtime.toolchain import compiler

WORDS = [
    "HUGE_VAL", "M_E", "round", "pow", "exp", "float", "int", "NULL", "NAN", "sr", "main", "errno", "linux", "unix",
    "threadIdx", "State", "state", "combine", "left", "right", "element", "blocks", "block", "group", "place",
    "__FILE_", "__STDC_VERSION_", "_", "__", "z_", "2nd", "né", "y0", "free", "size_t", "assert", "DEVICE",
]  # fmt: skip


def summed(names: list[str], size: str, axis: str, kernel: str, target: str = "cpp") -> Lowered:
    """The sum of inputs of these names, over an axis of that name and size."""
    fusion = Fusion()
    values = [fusion.input(name, [IterDomain(size, name=axis)]) for name in names]
    total = values[0]
    for value in values[1:]:
        total = total + value
    y = fusion.output(total, "result")
    if target == "cuda":
        y.parallelize(0, ParallelType.BIDx)
    return lower(fusion, y, name=kernel, target=target)


def check_sum(names: list[str], size: str, axis: str, kernel: str) -> None:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randint(-9, 9, (5,), generator=generator).float() for _ in names]
    (got,) = summed(names, size, axis, kernel)(*given)
    assert torch.equal(got, torch.stack(given).sum(0))


def test_tensors() -> None:
    check_sum(WORDS, "n", "i", "kernel")


@pytest.mark.parametrize("word", ["HUGE_VAL", "M_E", "round", "int", "result_"])
def test_sizes_axes_and_kernels(word: str) -> None:
    check_sum(["x", "y"], word, "i", "kernel")
    check_sum(["x", "y"], "n", word, "kernel")
    check_sum(["x", "y"], "n", "i", word)


def preprocessed(source: str, tmp_path: Path, *command: str) -> str:
    """What a preprocessor prints for a source."""
    file = tmp_path / ("source.cu" if command[0] == "nvcc" else "source.cpp")
    file.write_text(source)
    return subprocess.run([*command, "-E", str(file)], capture_output=True, text=True, check=True).stdout


def macros(text: str) -> set[str]:
    return set(re.findall(r"#define (\w+)", text))


def like_ours(names: set[str]) -> set[str]:
    """The names that could be what `identifier` makes of one."""
    return {name for name in names if re.fullmatch(r"[A-Za-z]\w*_", name)}


def test_no_name_that_a_source_sees_is_like_ours(tmp_path: Path) -> None:
    source = cpp.source([Kernel("k", (), (), ())])
    text = preprocessed(source, tmp_path, *compiler(), "-std=c++17")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    seen = macros(preprocessed(source, tmp_path, *compiler(), "-std=c++17", "-dM"))
    seen |= set(re.findall(r"[A-Za-z_]\w*", re.sub(r'"(\\.|[^"\\])*"', "", code)))
    assert {"HUGE_VAL", "M_E", "pow", "round", "sr", "search"} <= seen
    assert like_ours(seen) == {"k_"}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nor_is_a_macro_of_cuda(tmp_path: Path) -> None:
    halves = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    source = halves + cuda.source(Kernel("k", (), (), ()))
    seen = macros(preprocessed(source, tmp_path, "nvcc", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-dM"))
    assert {"HUGE_VAL", "CUDART_VERSION"} <= seen
    assert like_ours(seen) == set()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda(tmp_path: Path) -> None:
    names = [summed(WORDS, "n", "i", "kernel", "cuda"), summed(["x", "y"], "HUGE_VAL", "M_E", "pow", "cuda")]
    for number, lowered in enumerate(names):
        (tmp_path / f"k{number}.cu").write_text(lowered.source)
    command = [*NVCC, "-Werror=all-warnings", "k0.cu", "k1.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_different_names_stay_different() -> None:
    spelled = ["x", "x_", "x__", "X", "_x", "x1", "x_1"]
    assert len({identifier(name) for name in spelled}) == len(spelled)
    with pytest.raises(ValueError, match=r"'a b' and 'a.b' would be one name in C\+\+, 'a_b'"):
        summed(["a b", "a.b"], "n", "i", "kernel")


@pytest.mark.parametrize("name", ["a\\", "a\\ \\", "a \\\t", "*/ int", "a\u2028b", "a\0b", "\u202ea", "a\nb", "\udc80"])
def test_comments_end_with_their_lines(name: str) -> None:
    assert one_line(name) == one_line(name).strip()
    assert one_line(name).isprintable()
    check_sum(["x", "y"], "n", name, "kernel")


def test_a_name_that_was_given_up_is_free() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"])
    y = fusion.output(x + x, "y")
    assert y.name == "y"
    assert fusion.input("t1", ["n"]).name == "t1"
    with pytest.raises(ValueError, match="there is a tensor named 'y' already"):
        fusion.input("y", ["n"])
    with pytest.raises(ValueError, match="'n' is the name of a size already"):
        fusion.output(x, "n")
    with pytest.raises(ValueError, match="x is the name of a tensor"):
        fusion.input("z", ["x"])
