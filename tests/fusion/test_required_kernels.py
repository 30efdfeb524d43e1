"""Kernels that the documents behind the loop layer ask for, each against a loop in plain Python."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from tests.kernel.harness import check

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorDomain, TensorView
from serrate.fusion import ParallelType as P
from serrate.kernel import lower


def padded(rows: int, columns: int, room: int) -> tuple[Fusion, TensorView]:
    """A copy of [rows, columns]; both tensors have `room` between the starts of rows."""
    fusion = Fusion()
    x = fusion.input("x", [rows, columns])
    y = fusion.output(fusion.unary("negative", x), "y")
    for tensor in (x, y) if room > columns else ():
        row, column = tensor.domain.logical
        tensor.set_allocation_domain([row, IterDomain.resize(column, 0, room - columns)])
    return fusion, y


@pytest.mark.parametrize(("columns", "lanes"), [*itertools.product([2, 4, 6, 8], [2, 4])])
@pytest.mark.parametrize("apart", [0, 4])
def test_lanes_of_merged_axes(columns: int, lanes: int, apart: int) -> None:
    """Of axes with room between them exactly if the lanes divide the inner one, else if they divide all elements."""
    fusion, y = padded(4, columns, columns + apart)
    allowed = columns % lanes == 0 or (apart == 0 and 4 * columns % lanes == 0)
    if not allowed:
        with pytest.raises(ScheduleError, match=r"cannot be vectorized: .* does not divide iS_d\{"):
            lower(fusion, y.merge(0).vectorize(0, lanes), target="cuda")
        return
    x = torch.zeros(4, columns + apart)
    x[:, :columns] = torch.arange(1.0, 4 * columns + 1).reshape(4, columns)
    check(lower(fusion, y.merge(0).vectorize(0, lanes), target="cuda"), [x])
    fusion, y = padded(4, columns, columns + apart)
    got = lower(fusion, y.merge(0).vectorize(0, lanes, P.Simd))(x)[0]
    assert torch.equal(got[:, :columns], -x[:, :columns])


@pytest.mark.parametrize("factor", [1, 3, 4])
def test_an_index_below_zero_is_divided_nowhere(factor: int) -> None:
    """Padding reads before the first element; where elements lie in parts, the index of one is a quotient."""
    fusion = Fusion()
    x = fusion.input("x", [5])
    x.set_allocation_domain(IterDomain.split(x.domain.logical[0], factor))
    y = fusion.output(fusion.pad(x, 0, 3, 2, value=9.0), "y")
    kernel = lower(fusion, y)
    room = math.ceil(5 / factor) * factor
    data = torch.full((room,), torch.nan)
    data[:5] = torch.arange(5.0)
    given = [data.reshape(-1, factor)]
    assert kernel(*given)[0].tolist() == [9, 9, 9, 0, 1, 2, 3, 4, 9, 9]
    check(kernel, given)


@pytest.mark.parametrize("target", ["cpp", "cuda"])
@pytest.mark.parametrize("lengths", [[3, 5, 2], [127, 0, 198], [0, 0], [1]])
def test_threads_step_through_each_component(lengths: list[int], target: str) -> None:
    """For each component, its threads from 0 to its extent in steps of the block: offset + index, each once."""
    fusion = Fusion()
    component = IterDomain(len(lengths))
    rows = RaggedIterDomain([IterDomain(length) for length in lengths], component=component)
    x = fusion.input("x", TensorDomain([component, rows]))
    y = fusion.output(fusion.binary("add", x, fusion.cast(fusion.positions(x, 1), "float32")), "y")
    y.split(1, 32)
    if target == "cuda":
        y.parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    kernel = lower(fusion, y, target=target)
    data = torch.arange(float(sum(lengths)))
    check(kernel, [data])
    want = [start + index + index for start, length in starts(lengths) for index in range(length)]
    assert fusion.evaluate(data)[0].tolist() == want
    if target == "cpp":
        assert kernel(data)[0].tolist() == want


@pytest.mark.parametrize("extent", [0, 1, 5, 40, 100])
@pytest.mark.parametrize("lanes", [3, 4])
def test_parts_that_begin_behind_the_end_have_no_lanes(extent: int, lanes: int) -> None:
    """An axis in more parts than it fills, each walked by lanes."""
    fusion = Fusion()
    y = fusion.output(fusion.unary("negative", fusion.input("x", ["n"])), "y")
    y.split(0, 16, inner_split=False).split(1, lanes).parallelize(0, P.Thread).parallelize(2, P.Simd)
    kernel, x = lower(fusion, y), torch.arange(float(extent))
    check(kernel, [x])
    assert torch.equal(kernel(x)[0], -x)


def starts(lengths: list[int]) -> list[tuple[int, int]]:
    """(offset, extent) of each component."""
    return [(sum(lengths[:c]), length) for c, length in enumerate(lengths)]


def test_a_ragged_axis_prints_its_extents_or_the_name_of_its_offsets() -> None:
    listed = RaggedIterDomain([IterDomain(3), IterDomain(5), IterDomain(2)], name="r")
    assert repr(listed) == "iS_r{[3, 5, 2]}"
    fusion = Fusion()
    given = RaggedIterDomain.from_offsets(fusion.input("limits", [4], "int64"), size="n", name="r")
    assert repr(given) == "iS_r{[limits]}"


def test_regular_and_ragged_axes_are_transformed_by_the_same_calls() -> None:
    """What takes a regular axis takes a ragged one; what comes out of a regular one is regular."""
    regular = IterDomain(6)
    for axis in (regular, RaggedIterDomain([IterDomain(3), IterDomain(5)])):
        outer, inner = IterDomain.split(axis, 2)
        merged = IterDomain.merge(axis, IterDomain(4))
        wide = IterDomain.resize(axis, 1, 1)
        assert [made.is_ragged for made in (outer, merged, wide)] == [axis.is_ragged] * 3
        assert not inner.is_ragged
