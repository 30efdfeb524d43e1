"""Exact mapping: axes that have the same index, and those that only look alike."""

from __future__ import annotations

import pytest

from serrate.fusion import Fusion, IterDomain, TensorView, symbol
from serrate.fusion.indices import Step, route
from serrate.fusion.mapping import AxisGraph


def nested(fusion: Fusion, offsets: str = "offsets") -> TensorView:
    data = fusion.input(f"x_{offsets}", ["n", 4])
    return fusion.view_as_nested(data, fusion.input(offsets, [symbol("k") + 1], "int64"))


def test_pointwise_axes_are_the_same_by_position():
    fusion = Fusion()
    x, y = fusion.input("x", [3, 5]), fusion.input("y", [3, 5])
    z = x + y
    graph = AxisGraph(fusion.tensors)
    for a, b, c in zip(x.domain.logical, y.domain.logical, z.domain.logical, strict=True):
        assert graph.same(a, b)
        assert graph.same(b, c)
    assert not graph.same(*x.domain.logical)


def test_a_broadcast_axis_is_no_other():
    fusion = Fusion()
    x = fusion.input("x", [3, 5])
    row = fusion.broadcast(fusion.input("w", [5]), [True, False])
    fusion.output(x * row, "z")
    graph = AxisGraph(fusion.tensors)
    assert not graph.same(row.domain.logical[0], x.domain.logical[0])
    assert graph.same(row.domain.logical[1], x.domain.logical[1])


def test_all_rows_of_a_nested_view_are_the_axis_it_was_made_of():
    """Combine is the inverse of Partition: where memory is flat, no component is searched for."""
    fusion = Fusion()
    x = nested(fusion)
    y = fusion.output(fusion.unary("exp", x), "y")
    graph = AxisGraph(fusion.tensors)
    data = fusion.inputs[0]
    assert graph.same(y.domain.allocation[0], data.domain.logical[0])
    y.combine(0)
    graph = AxisGraph(fusion.tensors)
    assert route(graph, y.loop, data.domain.logical) == []


def test_the_same_splits_are_the_same_and_others_are_not():
    fusion = Fusion()
    x = fusion.input("x", [15])
    y, z = fusion.unary("exp", x).split(0, 6), fusion.unary("negative", x).split(0, 6)
    w = fusion.unary("abs", x).split(0, 5)
    graph = AxisGraph(fusion.tensors)
    assert [graph.same(a, b) for a, b in zip(y.loop, z.loop, strict=True)] == [True, True]
    assert [graph.same(a, b) for a, b in zip(y.loop, w.loop, strict=True)] == [False, False]


@pytest.mark.parametrize(("extents", "same"), [((15, 15), True), ((15, 16), False)])
def test_axes_that_are_split_alike_need_one_extent(extents, same):
    """15 and 16 both become 3 × 6; mapped parts make them the same only if they are as long."""
    fusion = Fusion()
    views = [fusion.copy(fusion.input(f"x{n}", [extent])).split(0, 6) for n, extent in enumerate(extents)]
    graph = AxisGraph(fusion.tensors)
    for a, b in zip(views[0].loop, views[1].loop, strict=True):
        graph._unite(a, b)
    graph._close()
    assert graph.same(views[0].domain.logical[0], views[1].domain.logical[0]) == same


def test_rows_that_do_not_fill_an_axis_are_not_the_axis():
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, exact=False)
    y = fusion.output(fusion.unary("exp", x), "y")
    assert not AxisGraph(fusion.tensors).same(y.domain.allocation[0], data.domain.logical[0])


def test_operands_that_are_read_elsewhere_are_not_mapped():
    fusion = Fusion()
    x = fusion.input("x", [6])
    y = fusion.pad(x, 0, 1, 1)
    z = fusion.slice(x, 0, 1, None) - fusion.slice(x, 0, 0, -1)
    graph = AxisGraph(fusion.tensors)
    assert not graph.same(x.domain.logical[0], y.domain.logical[0])
    assert not graph.same(x.domain.logical[0], z.domain.logical[0])


def test_the_cheapest_way_is_taken():
    """From all rows to a component a search is needed; from the component and the row, none is."""
    fusion = Fusion()
    x = nested(fusion)
    component, rows, _ = x.domain.logical
    graph = AxisGraph(fusion.tensors)
    flat = fusion.inputs[0].domain.logical[0]
    assert [step.cost for step in route(graph, [flat], [component])] == [64.0]
    (step,) = route(graph, [component, rows], [flat])
    assert step.cost == 1.0
    assert isinstance(step, Step)


def test_different_raggedness_is_not_the_same():
    fusion = Fusion()
    first, second = nested(fusion), nested(fusion, "others")
    graph = AxisGraph(fusion.tensors)
    assert not graph.same(first.domain.logical[1], second.domain.logical[1])
    assert not graph.same(IterDomain(3), IterDomain(3))


def test_no_component_is_searched_for_that_a_product_gives() -> None:
    """The component of rows follows from the index of all rows by a search, or from its two halves by a product."""
    fusion = Fusion()
    y = fusion.output(fusion.unary("exp", nested(fusion)), "y")
    component = y.domain.logical[0]
    outer, inner = IterDomain.split(component, 4)
    graph = AxisGraph(fusion.tensors, [outer, inner])
    flat = y.domain.allocation[0]
    for known in ([flat, outer, inner], [outer, inner, flat], [inner, flat, outer]):
        (step,) = route(graph, known, [component])
        assert (type(step.expression).__name__, step.forward) == ("Split", False)
    assert [step.cost for step in route(graph, [flat], [component])] == [64.0]
