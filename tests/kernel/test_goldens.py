"""Kernels that are kept as text: the text is what is generated now, and they compute what `evaluate` says."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.kernel.golden_kernels import FOLDER, GOLDENS, function, inputs, path, text
from tests.kernel.harness import NVCC, check, compare

from serrate.fusion.analysis import evaluate
from serrate.fusion.functions import COMPARISONS
from serrate.fusion.scalar import Scalar
from serrate.kernel import Lowered, cpp
from serrate.kernel.ir import For, If, Let, Statement, children, expressions, walk
from serrate.kernel.signatures import signature
from serrate.kernel.source import prelude
from serrate.runtime.compiler import Library, compile

LENGTHS = {
    "ragged": [3, 0, 4, 5, 0, 1],
    "one long row": [0, 8, 0],
    "empty rows": [0, 0],
    "no rows": [],
}
each_kernel = pytest.mark.parametrize("name", GOLDENS)
each_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())


@cache
def lowered(name: str) -> Lowered:
    return GOLDENS[name]()


@each_kernel
def test_source_is_the_golden_one(name: str) -> None:
    file = path(name)
    assert file.exists(), f"{file} is missing; `make goldens` writes it"
    assert text(name) == file.read_text(), f"{file} is not what is generated now; `make goldens` writes it anew"


def test_every_file_belongs_to_a_kernel() -> None:
    assert set(FOLDER.iterdir()) == {path(name) for name in GOLDENS}


@each_kernel
def test_functions_have_the_names_of_their_kernels(name: str) -> None:
    assert lowered(name).kernel.name == name


@each_length
@each_kernel
def test_in_the_interpreter(name: str, lengths: list[int]) -> None:
    check(lowered(name), inputs(lowered(name), lengths))


@cache
def library() -> Library:
    return compile(cpp.source([lowered(name).kernel for name in GOLDENS if lowered(name).target.name == "cpp"]))


@each_length
@pytest.mark.parametrize("name", [name for name in GOLDENS if lowered(name).target.name == "cpp"])
def test_compiled(name: str, lengths: list[int]) -> None:
    kernel = lowered(name)
    kernel._variants[False, False] = library().function(signature(kernel.kernel))  # one library for all
    given = inputs(kernel, lengths)
    check(kernel, given)  # first: what writes out of bounds would end the process
    outputs = kernel(*given)
    compare(kernel, given, {t.name: made for t, made in zip(kernel.fusion.outputs, outputs, strict=True)})
    for tensor, got, want in zip(kernel.fusion.outputs, outputs, kernel.fusion.evaluate(*given), strict=True):
        if tensor.fill is not None:
            torch.testing.assert_close(got, want)  # holes too


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_sources_compile(tmp_path: Path) -> None:
    functions = [function(lowered(name)) for name in GOLDENS if lowered(name).target.name == "cuda"]
    source = tmp_path / "kernels.cu"
    source.write_text("\n".join([prelude("prelude.cuh"), *functions]))
    command = [*NVCC, "-Werror=all-warnings", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def unread(body: tuple[Statement, ...]) -> list[str]:
    """Names that nothing after them in their scope reads."""
    found: list[str] = []
    for position, statement in enumerate(body):
        if isinstance(statement, Let):
            after = walk(body[position + 1 :])
            if not any(statement.var in e.symbols for later in after for e in expressions(later)):
                found.append(str(statement.var))
        found += unread(children(statement))
    return found


@pytest.mark.parametrize("name", GOLDENS)
def test_every_name_is_read(name: str) -> None:
    assert unread(lowered(name).kernel.body) == []


# Figure 2 of the theory of splits: of i0 < 15, i1 < 3 and i2 < 6 the second is not needed.


def conditions(kernel: Lowered) -> list[Scalar]:
    """Every comparison that guards something, in terms of loop variables."""
    values: dict[Scalar, Scalar] = {}
    found: list[Scalar] = []
    for statement in walk(kernel.kernel.body):
        if isinstance(statement, Let):
            values[statement.var] = statement.value.substitute(values)
        if isinstance(statement, If):
            nodes = statement.condition.substitute(values).walk()
            found += [node for node in nodes if node.op in COMPARISONS]
    return found


def test_figure_2_has_two_conditions() -> None:
    kernel = lowered("figure_2")
    loops = [statement for statement in walk(kernel.kernel.body) if isinstance(statement, For)]
    assert [loop.extent.value for loop in loops] == [2, 2, 2, 4]
    found = conditions(kernel)
    assert [condition.op for condition in found] == ["less", "less"]
    by_limit = {condition.args[1].value: condition.args[0] for condition in found}
    assert by_limit.keys() == {15, 6}
    for indices in itertools.product(range(2), range(2), range(2), range(4)):
        i3, i4, i5, i6 = indices
        values = {str(loop.var): index for loop, index in zip(loops, indices, strict=True)}
        assert evaluate(by_limit[6], values) == i5 * 4 + i6
        assert evaluate(by_limit[15], values) == (i3 * 2 + i4) * 6 + i5 * 4 + i6
