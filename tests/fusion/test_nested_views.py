"""Nested views, views of views, selected rows and rows that do not fill their data, evaluated and as kernels."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.fusion.samples import LENGTHS, OFFSETS, each_length, nested, offsets_of, same, some, two_levels
from tests.fusion.schedules import Schedule
from tests.kernel.harness import check

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, symbol
from serrate.kernel import lower


@each_length
def test_view_with_the_ragged_axis_inside(lengths: list[int]) -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", [3, "n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, ragged_dim=1)
    assert [axis.is_ragged for axis in x.domain.logical] == [False, False, True, False]
    fusion.output(fusion.unary("negative", x))
    fusion.output(fusion.reduce("sum", x, [2]))
    a = some(3, sum(lengths), 2)
    doubled, sums = fusion.evaluate(a, offsets_of(lengths))
    assert torch.equal(doubled, -a)
    parts = a.split(lengths, 1) if lengths else ()
    same(sums, torch.stack([part.sum(1) for part in parts], 1) if parts else torch.empty(3, 0, 2))


def test_rows_need_not_fill_the_data() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, exact=False)
    for tensor in (fusion.unary("exp", x), fusion.reduce("sum", x, [1]), fusion.reduce("sum", x, [0, 1])):
        fusion.output(tensor)
    a, lengths = some(9, 2), [2, 0, 3]
    a[5:] = math.nan  # what comes after the rows is not part of them
    values, by_component, total = fusion.evaluate(a, offsets_of(lengths))
    assert values.shape == (9, 2)  # as much room as the data has
    same(values[:5], a[:5].exp())
    same(by_component, torch.stack([row.sum(0) for row in a[:5].split(lengths)]))
    same(total, a[:5].sum(0))


@each_length
def test_two_levels(lengths: list[int]) -> None:
    fusion = Fusion()
    x = two_levels(fusion)
    for tensor in (fusion.unary("negative", x), fusion.reduce("sum", x, [2]), fusion.reduce("sum", x, [1, 2])):
        fusion.output(tensor)
    inner = [(row + 1) % 3 for row in range(sum(lengths))]
    a = some(sum(inner))
    negative, by_row, by_component = fusion.evaluate(offsets_of(lengths), offsets_of(inner), a)
    assert torch.equal(negative, -a)
    rows = torch.tensor([row.sum() for row in a.split(inner)]) if inner else torch.empty(0)
    same(by_row, rows)
    same(by_component, torch.tensor([part.sum() for part in rows.split(lengths)]) if lengths else torch.empty(0))


def test_a_view_of_a_view() -> None:
    fusion = Fusion()
    rows = fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("inner", [symbol("m") + 1], "int64"))
    whole = fusion.view_as_nested(rows, fusion.input("outer", [symbol("k") + 1], "int64"))
    fusion.output(fusion.reduce("sum", whole, [1, 2]))
    got = fusion.evaluate(torch.arange(6.0), offsets_of([2, 0, 3, 1]), offsets_of([1, 0, 3]))[0]
    assert got.tolist() == [1, 0, 14]


@pytest.mark.parametrize("split", [False, True])
def test_inputs_are_read_as_they_lie(split: bool) -> None:
    fusion = Fusion()
    x = fusion.input("x", [2, 6])
    row, column = x.domain.logical
    x.set_allocation_domain([row, *IterDomain.split(column, 4)] if split else [column, row])
    fusion.output(fusion.copy(x))
    a = some(2, 6)
    given = F.pad(a, [0, 2]).reshape(2, 2, 4) if split else a.T.contiguous()
    assert torch.equal(fusion.evaluate(given)[0], a)


@pytest.mark.parametrize("axes", [[2], [1, 2], [0, 1, 2]], ids=str)
def test_rows_of_rows(axes: list[int]) -> None:
    fusion = Fusion()
    parts = fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("inner", [symbol("m") + 1], "int64"))
    whole = fusion.view_as_nested(parts, fusion.input("outer", [symbol("k") + 1], "int64"))
    lowered = lower(fusion, fusion.output(fusion.reduce("sum", whole, axes), "y"))
    x, inner, outer = torch.arange(6.0), torch.tensor([0, 2, 2, 5, 6]), torch.tensor([0, 1, 1, 4])
    check(lowered, [x, inner, outer])
    want = {1: [1.0, 0.0, 9.0, 5.0], 2: [1.0, 0.0, 14.0], 3: 15.0}[len(axes)]
    assert lowered(x, inner, outer)[0].tolist() == want


# Rows that do not fill their data, as kernels


WAYS: dict[str, Schedule] = {
    "by component": lambda y: y,
    "by tile": lambda y: y.split(1, 2).combine(0),
    "flat": lambda y: y.combine(0),
    "flat values": lambda y: y.combine(0).merge(0).split(0, 5),
    "features outside": lambda y: y.reorder([2, 0, 1]),
}


@pytest.mark.parametrize("room", [0, 3])
@pytest.mark.parametrize("name", WAYS)
def test_over_allocated_rows(name: str, room: int) -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion, 6, exact=False) * 2.0, "y")
    lowered = lower(fusion, WAYS[name](y) or y)
    x = some(8 + room, 6)
    x[8:] = math.nan
    check(lowered, [x, OFFSETS])
    (got,) = lowered(x, OFFSETS)
    assert got.shape == x.shape
    same(got[:8], x[:8] * 2)


@pytest.mark.parametrize("axes", [[1], [0, 1], [0]], ids=str)
def test_reductions_of_over_allocated_rows(axes: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 6, exact=False), axes), "y")
    lowered = lower(fusion, y)
    x = some(11, 6)
    x[8:] = math.nan
    check(lowered, [x, OFFSETS])
    assert not lowered(x, OFFSETS)[0].isnan().any()


# Selected components as kernels


@pytest.mark.parametrize("component", range(4))
def test_a_selected_component_is_walked_as_a_regular_axis(component: int) -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion, 6).select(0, component) * 2.0, "y").split(0, 2).merge(1)
    lowered = lower(fusion, y)
    x = some(8, 6)
    check(lowered, [x, OFFSETS])
    same(lowered(x, OFFSETS)[0], x.split(LENGTHS)[component] * 2)


def test_a_selected_component_of_known_extents() -> None:
    fusion = Fusion()
    ragged = RaggedIterDomain([IterDomain(3), IterDomain(5)], name="r")
    y = fusion.output(fusion.input("x", [IterDomain(2, name="c"), ragged]).select(0, 1) + 1.0, "y")
    lowered = lower(fusion, y.split(0, 2))
    x = some(8)
    check(lowered, [x])
    same(lowered(x)[0], x[3:] + 1)
