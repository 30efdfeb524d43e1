"""How much work a kernel takes threads for: that of all its buffers and loops, and never less than it has."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from tests.kernel.golden_kernels import GOLDENS

from serrate.fusion import Fusion, ParallelType, symbol
from serrate.kernel import Lowered, cpp, lower


def rows_summed() -> Lowered:
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.reduce("sum", fusion.view_as_nested(x, offsets), [1]), "y")
    y.parallelize(0, ParallelType.Thread)
    return lower(fusion, y)


def pairs_summed() -> Lowered:
    """For each x the sum of its products with all z: few elements, and many products."""
    fusion = Fusion()
    x, z = fusion.input("x", ["n"]), fusion.input("z", ["m"])
    pairs = fusion.broadcast(x, [False, True]) * fusion.broadcast(z, [True, False])
    y = fusion.output(fusion.reduce("sum", pairs, [1]), "y")
    y.parallelize(0, ParallelType.Thread)
    return lower(fusion, y)


def condition(lowered: Lowered) -> str:
    found = re.search(r"#pragma omp parallel for .* if \((.*)\)", lowered.source)
    assert found is not None
    return found[1]


def test_one_long_row_counts_as_its_elements() -> None:
    assert condition(rows_summed()) == f"n_ + (k_ + 1) + k_ > {cpp.LEAST_WORK}"


def test_loops_count_where_they_have_more_indices_than_buffers_have_elements() -> None:
    assert condition(pairs_summed()) == f"n_ * ((m_ + 63) / 64) * 64 > {cpp.LEAST_WORK}"


@pytest.mark.parametrize("name", [name for name in GOLDENS if GOLDENS[name]().target.name == "cpp"])
def test_every_parallel_loop_says_from_how_much_work_on(name: str) -> None:
    loops = [line for line in GOLDENS[name]().source.splitlines() if "omp parallel" in line]
    assert all(f"> {cpp.LEAST_WORK})" in line for line in loops)


@pytest.mark.parametrize("least", [0, 1 << 40])
def test_results_are_the_same_with_threads_and_without(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "LEAST_WORK", least)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    x, offsets = torch.randn(50_000), torch.tensor([0, 3, 3, 40_000, 50_000])
    (got,) = rows_summed()(x, offsets)
    torch.set_num_threads(before)
    expected = torch.stack([x[a:b].double().sum() for a, b in itertools.pairwise(offsets.tolist())])
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-3)
