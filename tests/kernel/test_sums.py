"""Sums of floats: blocks that are summed one by one, so that long sums stay exact."""

from __future__ import annotations

import math

import pytest
import torch
from tests.kernel.harness import check

from serrate.fusion import Fusion, ParallelType, symbol
from serrate.kernel import Lowered, lower, states

EPS = torch.finfo(torch.float32).eps


def flat(reduction: str) -> Lowered:
    fusion = Fusion()
    return lower(fusion, fusion.output(fusion.reduce(reduction, fusion.input("x", ["n"]), [0]), "y"))


def by_row(reduction: str, features: int, order: tuple[int, ...] = (0, 1, 2), target: str = "cpp") -> Lowered:
    fusion = Fusion()
    x = fusion.input("x", ["n", features])
    nested = fusion.view_as_nested(x, fusion.input("offsets", [symbol("k") + 1], "int64"))
    y = fusion.output(fusion.reduce(reduction, nested, [1]), "y").reorder(order)
    return lower(fusion, y, target=target)


@pytest.mark.parametrize(("reduction", "want"), [("sum", 2.0**25), ("mean", 1.0)])
def test_more_ones_than_a_float_counts(reduction: str, want: float) -> None:
    assert flat(reduction)(torch.ones(2**25))[0].item() == want


def test_logsumexp_of_many() -> None:
    (got,) = flat("logsumexp")(torch.zeros(2**25))
    assert got.item() == pytest.approx(math.log(2**25), rel=4 * EPS)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 100_003])
def test_error_is_that_of_blocks(length: int, order: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(length)
    lengths = torch.tensor([length, 5, 0, length])
    x = torch.rand(int(lengths.sum()), 3, generator=generator)
    (got,) = by_row("sum", 3, order)(x, torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
    want = torch.stack([rows.double().sum(0) for rows in x.split(lengths.tolist())])
    # 64 additions within a block, one for each block: the worst there can be, which one running sum would exceed
    bound = (states.BLOCK + length / states.BLOCK) * EPS / 2 * want
    assert ((got - want).abs() <= bound + 1e-30).all()


def test_one_running_sum_would_be_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "BLOCK", 2**40)
    assert flat("sum")(torch.ones(2**25))[0].item() == 2.0**24


@pytest.mark.parametrize("values", [[math.inf, 1.0], [math.inf, -math.inf], [math.nan, 1.0], [-0.0, -0.0]])
def test_special_values_pass_blocks(values: list[float]) -> None:
    x = torch.zeros(200)
    x[70], x[150] = values
    (got,) = flat("sum")(x)
    torch.testing.assert_close(got, x.sum(), equal_nan=True)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("reduction", ["sum", "mean", "logsumexp"])
@pytest.mark.parametrize("block", [1, 2, 64])
def test_blocks_break_no_rule(
    reduction: str, order: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "BLOCK", block)
    offsets = torch.tensor([0, 3, 3, 8, 9])
    check(by_row(reduction, 2, order), [torch.randn(9, 2), offsets])


def test_lanes_and_threads_sum_by_blocks_too() -> None:
    """Each lane, and each thread, may have millions of elements."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n"]), [0]), "y").split(0, 8)
    y.parallelize(1, ParallelType.Simd)
    assert "_block" in str(lower(fusion, y).kernel)
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n"]), [0]), "y").split(0, 32)
    y.parallelize(1, ParallelType.TIDx)
    assert "_block" in str(lower(fusion, y, target="cuda").kernel)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_other_accumulators_need_none(dtype: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n"], dtype), [0]), "y")
    assert "_block" not in str(lower(fusion, y).kernel)


def test_short_loops_need_none() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", 4, 16]), [1, 2]), "y")
    assert "_block" not in str(lower(fusion, y).kernel)
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", 4, 17]), [1, 2]), "y")
    assert "_block" in str(lower(fusion, y).kernel)
