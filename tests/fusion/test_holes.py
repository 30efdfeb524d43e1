"""Holes of layouts: filled, left alone, not read, or read where they change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from tests.fusion.samples import same, some
from tests.fusion.schedules import conditions
from tests.kernel.harness import as_numpy, check, valid_positions

from serrate.fusion import Fusion, IterDomain, TensorView
from serrate.kernel import lower
from serrate.kernel.check import Violation, run

LAYOUTS: dict[str, Callable[[TensorView], Sequence[IterDomain]]] = {
    "transposed": lambda y: (y.domain.logical[1], y.domain.logical[0]),
    "rows of four": lambda y: (y.domain.logical[0], *IterDomain.split(y.domain.logical[1], 4)),
    "tiles": lambda y: tuple(
        part for pair in zip(*(IterDomain.split(axis, 4) for axis in y.domain.logical), strict=True) for part in pair
    ),
    "resized": lambda y: (IterDomain.resize(y.domain.logical[0], 1, 2), y.domain.logical[1]),
    "merged": lambda y: IterDomain.split(IterDomain.merge(*y.domain.logical), 4),
}


def by_layout(name: str, x: torch.Tensor, fill: float) -> torch.Tensor:
    """[6, 6] as it lies in memory."""
    match name:
        case "transposed":
            return x.T
        case "rows of four":
            return F.pad(x, [0, 2], value=fill).reshape(6, 2, 4)
        case "tiles":
            return F.pad(x, [0, 2, 0, 2], value=fill).reshape(2, 4, 2, 4).transpose(1, 2)
        case "resized":
            return F.pad(x, [0, 0, 1, 2], value=fill)
    return x.reshape(9, 4)


@pytest.mark.parametrize("fill", [0.0, -1.5, math.nan, -math.inf])
@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_hold_the_fill(name: str, fill: float) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6, 6]), "y")
    y.set_allocation_domain(LAYOUTS[name](y), fill)
    x = some(6, 6)
    lowered = lower(fusion, y)
    check(lowered, [x])
    want = by_layout(name, -x, fill)
    torch.testing.assert_close(fusion.evaluate(x)[0], want, equal_nan=True)
    torch.testing.assert_close(lowered(x)[0], want, equal_nan=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_are_left_alone_without_a_fill(name: str) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6, 6]), "y")
    y.set_allocation_domain(LAYOUTS[name](y))
    lowered = lower(fusion, y)
    x = some(6, 6)
    check(lowered, [x])
    out = torch.full_like(fusion.evaluate(x)[0], 77.0)
    lowered(x, out=[out])
    assert torch.equal(out, by_layout(name, -x, 77.0))


@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_of_an_input_are_not_read(name: str) -> None:
    """They hold NaN, and no result has one."""
    fusion = Fusion()
    x = fusion.input("x", [6, 6])
    x.set_allocation_domain(LAYOUTS[name](x))
    y = fusion.output(x * 2.0, "y")
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    a = some(6, 6)
    given = by_layout(name, a, math.nan).contiguous()
    lowered = lower(fusion, y.split(1, 4))
    check(lowered, [given])
    doubled, total = lowered(given)
    same(doubled, a * 2)
    same(total, a.sum(1))


def test_the_checker_sees_a_store_to_a_hole() -> None:
    """What proves that holes are left alone can fail."""
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6]), "y")
    y.set_allocation_domain(IterDomain.split(y.domain.logical[0], 4), fill=1.0)
    lowered = lower(fusion, y)
    x = some(6)
    arrays = {"x": as_numpy(x)}
    valid = valid_positions(lowered, [x])
    assert valid["y"].tolist() == [True] * 6 + [False] * 2
    run(lowered.kernel, arrays, {}, valid=valid, fill={"y": 1.0})
    with pytest.raises(Violation):
        run(lowered.kernel, arrays, {}, valid=valid)
    with pytest.raises(Violation):
        run(lowered.kernel, arrays, {}, valid=valid, fill={"y": 2.0})


NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NEUTRAL)
def test_a_reduction_may_read_holes_that_hold_its_neutral_element(name: str, dtype: str) -> None:
    fusion = Fusion()
    x = fusion.input("x", [3, 6], dtype)
    row, column = x.domain.logical
    x.set_allocation_domain([row, *IterDomain.split(column, 4)], fill=NEUTRAL[name])
    y = fusion.output(fusion.reduce(name, x, [1]), "y").split(1, 4).read_holes()
    lowered = lower(fusion, y)
    assert conditions(lowered) == 0
    a = some(3, 6).to(getattr(torch, dtype))
    given = F.pad(a, [0, 2], value=NEUTRAL[name]).reshape(3, 2, 4)
    check(lowered, [given])
    same(lowered(given)[0], getattr(a, {"max": "amax", "min": "amin"}.get(name, name))(1))
    given[:, 1, 2:] = -5.0 if name == "min" else 5.0  # that holes are read is seen by what they hold
    assert not (lowered(given)[0] == fusion.evaluate(given)[0]).any()


@pytest.mark.parametrize(("extent", "factor"), [(6, 4), (15, 4), (5, 8), (24, 7)])
def test_an_indivisible_split_is_a_divisible_one_of_a_resized_axis(extent: int, factor: int) -> None:
    """As kernels: a copy with holes, laid out by either, has the same memory."""
    results = []
    for resized in (False, True):
        fusion = Fusion()
        y = fusion.output(-fusion.input("x", [extent]), "y")
        axis = y.domain.logical[0]
        wide = IterDomain.resize(axis, 0, -extent % factor) if resized else axis
        parts = IterDomain.split(wide, factor)
        assert wide.extent.value % factor == 0 or not resized
        y.set_allocation_domain(parts, fill=9.0)
        y.domain.loop = parts
        lowered = lower(fusion, y)
        x = some(extent)
        check(lowered, [x])
        results.append(lowered(x)[0])
        assert conditions(lowered) == 2  # the elements, and the holes
    assert torch.equal(*results)
    assert torch.equal(results[0].flatten(), F.pad(-some(extent), [0, -extent % factor], value=9.0))
