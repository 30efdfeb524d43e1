"""Slices as Python means them, of regular axes and of each row, by `evaluate` and by kernels."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.fusion.nested_rows import EVERY_ROWS, Rows, every_rows, packed, paths
from tests.fusion.samples import some
from tests.fusion.test_values_of_indices import EVERY_DTYPE, each_target, on
from tests.kernel.harness import agree

from serrate.errors import RaggednessError
from serrate.fusion import Fusion, inject_offsets
from serrate.kernel import lower

BOUNDS = [None, 0, 1, 2, 4, 7, -1, -2, -3, -7]
EVERY_SLICE = list(itertools.product(BOUNDS, BOUNDS))
SOME_SLICES = [(None, 2), (-3, None), (1, 3), (-3, -1), (-2, 2), (1, None), (None, -1), (3, 1), (1, -1), (None, 0)]


@every_rows
@pytest.mark.parametrize(("start", "stop"), EVERY_SLICE)
def test_every_slice_of_rows(start: int | None, stop: int | None, rows: Rows) -> None:
    fusion = Fusion()
    fusion.output(fusion.slice(rows.input(fusion, 2), rows.depth, start, stop), "y")
    values = rows.values(2)
    inputs = rows.given(fusion, x=values)
    kept = [row[start:stop] for _, row in paths(rows.tree(values), rows.depth)]
    got = inject_offsets(fusion).evaluate(*inputs)
    assert torch.equal(got[0], packed([leaf for row in kept for leaf in row], values))
    assert got[rows.depth].diff().tolist() == [len(row) for row in kept]


@each_target
@pytest.mark.parametrize(("start", "stop"), SOME_SLICES)
@pytest.mark.parametrize("name", ["one level", "two levels", "three levels", "empty rows", "no rows", "one row"])
def test_kernels_of_slices_of_rows(name: str, start: int | None, stop: int | None, target: str) -> None:
    rows, fusion = EVERY_ROWS[name], Fusion()
    y = fusion.output(fusion.slice(rows.input(fusion, 2), rows.depth, start, stop), "y")
    agree(on(target, fusion, y), *rows.given(fusion, x=rows.values(2)))


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_slices_of_every_dtype(dtype: str) -> None:
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    y = fusion.output(fusion.slice(rows.input(fusion, dtype=dtype), 1, -2, None), "y")
    agree(lower(fusion, y), *rows.given(fusion, x=rows.values(dtype=dtype)))


@pytest.mark.parametrize("size", [5, "n"])
@pytest.mark.parametrize("length", [0, 1, 3, 5, 8])
def test_every_slice_of_a_regular_axis(size: int | str, length: int) -> None:
    if size != "n" and length != size:
        return
    for start, stop in EVERY_SLICE:
        fusion = Fusion()
        fusion.output(fusion.slice(fusion.input("x", [size, 2]), 0, start, stop), "y")
        values = some(length, 2)
        assert torch.equal(fusion.evaluate(values)[0], values[start:stop])


@each_target
@pytest.mark.parametrize(("start", "stop"), SOME_SLICES)
def test_kernels_of_slices_of_a_symbolic_axis(start: int | None, stop: int | None, target: str) -> None:
    for length in (0, 1, 2, 6):
        fusion = Fusion()
        y = fusion.output(fusion.slice(fusion.input("x", [2, "n"]), 1, start, stop), "y")
        agree(on(target, fusion, y), some(2, length))


@pytest.mark.parametrize(("start", "stop"), SOME_SLICES)
def test_slices_in_flat_loops_and_tiles(start: int | None, stop: int | None) -> None:
    """The component is found by offsets that were made of those of the operand."""
    rows = EVERY_ROWS["one level"]
    for step in ("flat", "tiles", "outside"):
        fusion = Fusion()
        y = fusion.output(fusion.unary("exp", fusion.slice(rows.input(fusion), 1, start, stop)), "y")
        if step == "flat":
            y.combine(0)
        elif step == "tiles":
            y.split(1, 2).combine(0)
        else:
            y.reorder([1, 0])
        agree(lower(fusion, y), *rows.given(fusion, x=rows.values()))


def test_slices_of_slices_and_sums() -> None:
    """x[:, -3:][:, :2], reduced: lengths are formulas of lengths."""
    rows, fusion = Rows(((4, 0, 1, 2, 7),)), Fusion()
    cut = fusion.slice(fusion.slice(rows.input(fusion), 1, -3, None), 1, None, 2)
    y = fusion.output(fusion.reduce("sum", cut, [1]), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    want = torch.stack([row[-3:][:2].sum() for row in values.split(list(rows.levels[0]))])
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


def test_neighbours_in_rows() -> None:
    """x[:, 1:] - x[:, :-1]: slices that cut as many have the same rows."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    x = rows.input(fusion)
    y = fusion.output(fusion.slice(x, 1, 1, None) - fusion.slice(x, 1, None, -1), "y")
    values = rows.values()
    inputs = rows.given(fusion, x=values)
    want = torch.cat([row.diff() for row in values.split(list(rows.levels[0]))])
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], want)
    agree(lower(fusion, y), *inputs)


def test_bounds_of_slices_are_known_to_the_host() -> None:
    """A kernel over the first two of each row runs no loop to the longest row."""
    rows, fusion = EVERY_ROWS["one level"], Fusion()
    y = fusion.output(fusion.slice(rows.input(fusion), 1, None, 2), "y")
    assert str(y.domain.kept[1].bound) in ("minimum(n1, 2)", "min(n1, 2)")


def test_slices_of_what_rows_depend_on_are_refused() -> None:
    fusion = Fusion()
    with pytest.raises(RaggednessError, match="a ragged axis depends on it"):
        fusion.slice(EVERY_ROWS["two levels"].input(fusion), 1, None, 2)
