"""Padded tensors of rows, and rows of padded tensors, by `evaluate` and by kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fusion.nested_rows import EVERY_ROWS, Rows, every_rows, packed, paths
from tests.fusion.samples import some
from tests.fusion.test_values_of_indices import EVERY_DTYPE, each_target, on
from tests.kernel.harness import agree

from serrate.errors import RaggednessError
from serrate.fusion import Fusion
from serrate.kernel import lower


def padded(tree: Any, shape: list[int], value: float, leaf: torch.Tensor) -> torch.Tensor:
    """Nested lists in a box of this shape, filled up with a value."""
    if not shape:
        return leaf if isinstance(tree, list) else tree
    inner = [padded(row, shape[1:], value, leaf) for row in tree[: shape[0]]]
    missing = torch.full((shape[0] - len(inner), *shape[1:], *leaf.shape), value, dtype=leaf.dtype)
    return torch.cat([torch.stack(inner), missing]) if inner else missing


def longest(rows: Rows) -> list[int]:
    return [max(lengths, default=0) for lengths in rows.levels]


@every_rows
@pytest.mark.parametrize("value", [0, -1.5])
def test_pad_to_the_longest(value: float, rows: Rows) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.to_dense(rows.input(fusion, 2), value=value), "y")
    assert not any(axis.is_ragged for axis in y.domain.kept)
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    want = padded(rows.tree(values), [len(rows.levels[0]), *longest(rows)], value, torch.zeros(2))
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


@every_rows
def test_rows_that_are_padded_to_the_longest_are_one_axis_again(rows: Rows) -> None:
    """How long the axis is depends on offsets, on those of the longest row too."""
    fusion = Fusion()
    x = fusion.to_dense(rows.input(fusion, 2), rows.depth)
    if rows.depth == 2:
        with pytest.raises(RaggednessError, match="the extent of the regular one is data"):
            fusion.flatten(x, 1, 2)
        return
    y = fusion.output(fusion.flatten(fusion.flatten(x, 1, rows.depth), 0, 1), "y")
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    tree, deepest = rows.tree(values), max(rows.levels[-1], default=0)
    for _ in range(rows.depth - 1):
        tree = [row for rows_within in tree for row in rows_within]
    want = padded(tree, [len(tree), deepest], 0, torch.zeros(2)).reshape(-1, 2)
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


@every_rows
@each_target
@pytest.mark.parametrize("length", [0, 1, 3, 6])
def test_pad_to_a_length(length: int, target: str, rows: Rows) -> None:
    """What is longer is cut."""
    fusion = Fusion()
    x = rows.input(fusion, 2)
    for axis in range(rows.depth, 0, -1):
        x = fusion.to_dense(x, axis, length, 7)
    y = fusion.output(x, "y")
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    want = padded(rows.tree(values), [len(rows.levels[0]), *[length] * rows.depth], 7, torch.zeros(2))
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(on(target, fusion, y), *inputs)


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
@each_target
def test_every_dtype_there_and_back(target: str, dtype: str) -> None:
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion, 2, dtype=dtype)
    dense = fusion.output(fusion.to_dense(x, 1, 5, 1), "dense")
    again = fusion.output(fusion.from_dense(fusion.to_dense(x, 1, 5, 1), x), "again")
    values = rows.values(2, dtype=dtype)
    inputs = rows.given(fusion, x=values)
    got = fusion.evaluate(*inputs)
    assert got[0].shape == (4, 5, 2)
    assert torch.equal(got[1], values)
    only = Fusion()
    x = rows.input(only, 2, dtype=dtype)
    only.output(only.from_dense(only.to_dense(x, 1, 5, 1), x), "again")
    agree(on(target, only, only.outputs[0]), *inputs)
    assert dense is not again


@every_rows
@each_target
def test_dense_tensors_at_positions_of_rows(target: str, rows: Rows) -> None:
    """Of a dense axis that is shorter than some rows: those end with a value."""
    fusion = Fusion()
    x = rows.input(fusion, 2)
    sizes = [2, 3, 1, 2][: rows.depth]
    z = fusion.input("z", ["n0", *sizes, 2])
    y = fusion.output(x + fusion.from_dense(z, x, -3), "y")
    values, dense = rows.values(2), some(len(rows.levels[0]), *sizes, 2, seed=1)
    inputs = rows.given(fusion, x=values, z=dense)
    outside = torch.full((2,), -3.0)
    want = [
        leaf + (dense[path] if all(p < s for p, s in zip(path[1:], sizes, strict=True)) else outside)
        for path, leaf in paths(rows.tree(values), rows.depth + 1)
    ]
    assert torch.equal(fusion.evaluate(*inputs)[0], packed(want, values))
    agree(on(target, fusion, y), *inputs)


def test_dense_positions_that_all_components_share() -> None:
    """[1, m, d]: an axis of extent 1 is read at 0."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion, 2)
    table = fusion.broadcast(fusion.input("table", ["m", 2]), [True, False, False])
    y = fusion.output(x + fusion.from_dense(table, x), "y")
    values, dense = rows.values(2), some(6, 2, seed=1)
    inputs = rows.given(fusion, x=values, table=dense)
    want = torch.cat([row + dense[: len(row)] for row in values.split(list(rows.levels[0]))])
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


def test_sum_of_padded_rows() -> None:
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    y = fusion.output(fusion.reduce("max", fusion.to_dense(rows.input(fusion, 2), 1, None, -9), [1]), "y")
    agree(lower(fusion, y), *rows.given(fusion, x=rows.values(2)))


def test_sum_of_padded_and_dense() -> None:
    """Two tensors that are padded to the longest of the same rows have the same axes."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion, 2)
    y = fusion.output(fusion.to_dense(x) + fusion.to_dense(x * 2, value=1), "y")
    agree(lower(fusion, y), *rows.given(fusion, x=rows.values(2)))


def test_padded_parts_of_rows() -> None:
    """The last two of each row, in a box: a formula of lengths, padded."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    y = fusion.output(fusion.to_dense(fusion.slice(rows.input(fusion), 1, -2, None), 1, 2, -1), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    want = padded([row[-2:] for row in rows.tree(values)], [4, 2], -1, torch.tensor(0.0))
    assert torch.equal(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


def test_lengths_that_only_a_device_knows_are_not_strides() -> None:
    """The host allocates what may be there, and cannot lay it out by what is."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    y = fusion.output(fusion.to_dense(rows.input(fusion, 2)), "y")
    agree(lower(fusion, y), *rows.given(fusion, x=rows.values(2)))
    with pytest.raises(RaggednessError, match="whose extent only the device knows"):
        lower(fusion, y, target="cuda")
