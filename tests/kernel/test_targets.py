"""Targets: one table of records, of which lowering and calling read the fields."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import serrate.kernel
from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, TensorView, symbol
from serrate.fusion import ParallelType as P
from serrate.kernel import Kernel, lower
from serrate.kernel.targets import CPP, CUDA, TARGETS, Target
from serrate.runtime.signature import Compiled

OFFSETS = torch.tensor([0, 3, 3, 7])


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A third target: the C++ one under another name."""
    made = replace(CPP, name="third")
    monkeypatch.setitem(TARGETS, made.name, made)
    return made


def softmax() -> tuple[Fusion, TensorView]:
    """Softmax over the rows of each component. Its exponentials are kept, as many as a row has."""
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n", 4]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    exponentials.set_memory_type(Memory.REGISTER)
    return fusion, y.parallelize(0, P.Thread).parallelize(2, P.Simd)


def test_a_third_target_is_lowered_and_run(third: Target) -> None:
    fusion, y = softmax()
    lowered = lower(fusion, y, target="third")
    assert lowered.target is third
    assert lowered.kernel == lower(fusion, y, target="cpp").kernel
    assert lowered.source == lower(fusion, y, target="cpp").source
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    (got,) = lowered(x, OFFSETS)
    want = torch.cat([x[start:end].softmax(0) for start, end in pairwise(OFFSETS.tolist())])
    assert torch.allclose(got, want)


def test_the_fields_of_a_target_decide(third: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion, y = softmax()
    monkeypatch.setitem(TARGETS, "third", replace(third, scratch=False))
    with pytest.raises(ScheduleError, match="needs a value for each index of loop"):
        lower(fusion, y, target="third")
    monkeypatch.setitem(TARGETS, "third", replace(third, parallel_types=third.parallel_types - {P.Simd}))
    with pytest.raises(ScheduleError, match="Simd is not for the target 'third'"):
        lower(fusion, y, target="third")


def test_a_target_compiles_its_own_variants(third: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    indices: list[str] = []

    def compile_together(kernels: Sequence[Kernel]) -> tuple[Compiled, ...]:
        indices.extend(kernel.index for kernel in kernels)
        return CPP.compile_together(kernels)

    monkeypatch.setitem(TARGETS, "third", replace(third, narrow_indices=True, compile_together=compile_together))
    fusion = Fusion()
    y = fusion.output(fusion.unary("negative", fusion.input("x", ["n"])), "y")
    (got,) = lower(fusion, y, target="third")(torch.arange(3.0))
    assert got.tolist() == [0.0, -1.0, -2.0]
    assert indices == ["int32"]


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_every_target_can_run_its_own_lanes(target: Target) -> None:
    assert {target.lanes, target.state_loops, P.Serial} <= target.parallel_types
    assert target.lanes.is_lanes


def test_lanes_of_another_target_are_named() -> None:
    for target, lanes in ((CPP, P.Vectorize), (CUDA, P.Simd)):
        fusion = Fusion()
        y = fusion.output(fusion.copy(fusion.input("x", [8])), "y").vectorize(0, 4, lanes)
        with pytest.raises(ScheduleError, match=f"{lanes.name} is not for .*; its lanes are {target.lanes.name}"):
            lower(fusion, y, target=target.name)


def test_an_unknown_target_is_refused() -> None:
    fusion, y = softmax()
    with pytest.raises(ScheduleError, match="the target must be 'cpp' or 'cuda', got 'hip'"):
        lower(fusion, y, target="hip")


def compared_texts(source: str) -> set[object]:
    """The constants that something is compared with, those in tuples too."""
    comparisons = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    parts = [part for node in comparisons for part in ast.walk(node)]
    return {part.value for part in parts if isinstance(part, ast.Constant)}


def test_nothing_is_compared_with_the_name_of_a_target() -> None:
    assert compared_texts("if x.target in ('cpp', 'other'): pass") >= {"cpp", "other"}
    folder = Path(serrate.kernel.__file__).parent
    found = [path.name for path in folder.rglob("*.py") if compared_texts(path.read_text()) & TARGETS.keys()]
    assert not found
