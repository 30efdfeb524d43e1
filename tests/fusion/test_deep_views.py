"""Rows of rows of rows, made by nested views of any depth: pointwise and reduced over every axis, also as kernels.

What comes out is compared with nested Python lists.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
import torch
from tests.fusion.samples import offsets_of
from tests.kernel.harness import check

from serrate.fusion import Fusion, RaggedIterDomain, TensorView, symbol
from serrate.kernel import lower

Nested = Any  # a number, or a list of such
DEPTHS = range(1, 6)


def random_levels(depth: int, seed: int) -> list[list[int]]:
    """The lengths of the rows of each level, outermost first; some are empty."""
    random, count, levels = Random(seed), Random(seed).choice([1, 2, 3]), []
    for _ in range(depth):
        levels.append([random.choice([0, 1, 2, 2, 3]) for _ in range(count)])
        count = sum(levels[-1])
    return levels


def as_lists(levels: list[list[int]], values: list[float]) -> Nested:
    """The values as lists in lists."""
    made: list[Nested] = list(values)
    for lengths in reversed(levels):
        rest = iter(made)
        made = [list(itertools.islice(rest, length)) for length in lengths]
    return made


def flat(nested: Nested) -> list[float]:
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]


def summed(nested: Nested, axis: int) -> Nested:
    """The sum over the last axis of all, which is this one."""
    return [summed(part, axis - 1) for part in nested] if axis > 0 else float(sum(nested))


def elements(nested: Nested, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The numbers by their indices."""
    if not isinstance(nested, list):
        return {path: nested}
    return {where: x for at, part in enumerate(nested) for where, x in elements(part, (*path, at)).items()}


def nested_views(fusion: Fusion, depth: int, longest: int | None = None) -> TensorView:
    """A vector nested `depth` times, the innermost level first. Its offsets are the inputs o1 (the outermost), o2, …"""
    x = fusion.input("x", [f"n{depth}"])
    for level in range(depth, 0, -1):
        offsets = fusion.input(f"o{level}", [symbol(f"n{level - 1}") + 1], "int64")
        rows = RaggedIterDomain.from_offsets(offsets, size=f"n{level}", longest=longest)
        x = fusion.view_as_nested(x, offsets if longest is None else rows.raggedness)
    return x


def inputs_of(levels: list[list[int]], seed: int) -> list[torch.Tensor]:
    values = torch.tensor([float(Random(seed + 1).randint(-9, 9)) + at % 3 for at in range(sum(levels[-1]))])
    return [values, *(offsets_of(lengths) for lengths in reversed(levels))]


@pytest.mark.parametrize("depth", DEPTHS)
def test_axes(depth: int) -> None:
    y = nested_views(Fusion(), depth) * 2.0
    assert [axis.is_ragged for axis in y.domain.logical] == [False] + [True] * depth
    assert [str(axis.extent) for axis in y.domain.allocation] == [f"n{depth}"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depth", DEPTHS)
def test_pointwise(depth: int, seed: int) -> None:
    fusion, levels = Fusion(), random_levels(depth, seed)
    x = nested_views(fusion, depth)
    y = fusion.output(x * 2.0 + x, "y")
    inputs = inputs_of(levels, seed)
    want = inputs[0] * 3
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    lowered = lower(fusion, y)
    check(lowered, inputs)
    assert torch.equal(lowered(*inputs)[0], want)


@pytest.mark.parametrize(("depth", "axis"), [(depth, axis) for depth in DEPTHS for axis in range(1, depth + 1)])
def test_sums_of_rows(depth: int, axis: int) -> None:
    """Everything from an axis on is summed."""
    fusion, levels = Fusion(), random_levels(depth, depth + axis)
    y = fusion.output(fusion.reduce("sum", nested_views(fusion, depth) + 1.0, range(axis, depth + 1)), "y")
    inputs = inputs_of(levels, depth)
    nested = as_lists(levels, (inputs[0] + 1).tolist())
    for number in range(depth, axis - 1, -1):
        nested = summed(nested, number)
    assert fusion.evaluate(*inputs)[0].tolist() == flat(nested)
    lowered = lower(fusion, y)
    check(lowered, inputs)
    assert lowered(*inputs)[0].tolist() == flat(nested)


@pytest.mark.parametrize(("depth", "axis"), [(depth, axis) for depth in DEPTHS for axis in range(depth)])
def test_sum_over_an_axis_that_rows_depend_on(depth: int, axis: int) -> None:
    """The rows inside of it are summed by position, and lie in memory with room for the longest."""
    fusion, levels = Fusion(), random_levels(depth, depth * axis)
    y = fusion.output(fusion.reduce("sum", nested_views(fusion, depth, longest=3), [axis]), "y")
    inputs = inputs_of(levels, depth)
    rows = [1, len(levels[0]), *map(sum, levels)][axis]  # of the axes before it, all one after another
    want = torch.zeros(*([rows] if axis else []), *[3] * (depth - axis))
    numbers = {path: at for at, path in enumerate(_paths(levels, axis))}
    for path, x in elements(as_lists(levels, inputs[0].tolist())).items():
        before, after = path[:axis], path[axis + 1 :]
        want[(*([numbers[before]] if axis else []), *after)] += x
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    lowered = lower(fusion, y)
    check(lowered, inputs)
    assert torch.equal(lowered(*inputs)[0], want)


def _paths(levels: list[list[int]], axes: int) -> list[tuple[int, ...]]:
    """The indices of the first axes, in their order."""
    paths: list[tuple[int, ...]] = [(at,) for at in range(len(levels[0]))] if axes else [()]
    for lengths in levels[: max(axes - 1, 0)]:
        paths = [(*path, at) for path, length in zip(paths, lengths, strict=True) for at in range(length)]
    return paths


@pytest.mark.parametrize("depth", DEPTHS)
def test_scaled_by_something_of_each_outermost_component(depth: int) -> None:
    fusion, levels = Fusion(), random_levels(depth, 7)
    x = nested_views(fusion, depth)
    w = fusion.broadcast(fusion.input("w", ["n0"]), [False] + [True] * depth)
    y = fusion.output(x * w, "y")
    inputs = [*inputs_of(levels, 2), torch.arange(1.0, len(levels[0]) + 1)]
    parts = as_lists(levels, inputs[0].tolist())
    want = [x * (at + 1) for at, part in enumerate(parts) for x in flat(part)]
    assert fusion.evaluate(*inputs)[0].tolist() == want
    lowered = lower(fusion, y)
    check(lowered, inputs)
    assert lowered(*inputs)[0].tolist() == want


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_a_view_can_be_nested_again_after_an_operation(depth: int) -> None:
    fusion, levels = Fusion(), random_levels(depth, 3)
    x = fusion.input("x", [f"n{depth}"])
    for level in range(depth, 0, -1):
        offsets = fusion.input(f"o{level}", [symbol(f"n{level - 1}") + 1], "int64")
        x = fusion.unary("negative", fusion.view_as_nested(x, offsets))
    y = fusion.output(x, "y")
    inputs = inputs_of(levels, 1)
    want = inputs[0] * (-1) ** depth
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    lowered = lower(fusion, y)
    check(lowered, inputs)
    assert torch.equal(lowered(*inputs)[0], want)
