"""Drawings say what is so: their SVG is read back and compared with what was drawn."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import serrate as sr
from serrate.fusion import Fusion, IterDomain, Memory, ParallelType, RaggedIterDomain, TensorDomain, const, symbol
from serrate.fusion.raggedness import Listed, Pieces, Stored, listed
from serrate.fusion.scalar import load, lt, search
from serrate.fusion.transforms import cover
from serrate.kernel.ir import (
    Allocate,
    Barrier,
    BlockReduce,
    Buffer,
    CombineRule,
    For,
    GridReduce,
    If,
    Kernel,
    Let,
    Store,
    walk,
)
from serrate.viz import Drawing, draw_axes, draw_fusion, draw_layout, draw_loops, draw_tensor
from serrate.viz.arrange import arrange, spread

Element = ElementTree.Element
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom

SVG = "{http://www.w3.org/2000/svg}"
BOXES = ("axis", "joint", "tensor", "operation")


# ------------------------------------------------------------------------------------------ reading a drawing


def parse(drawing: Drawing) -> Element:
    return ElementTree.fromstring(drawing.svg)


def groups(root: Element, *kinds: str) -> list[Element]:
    return [g for g in root.iter(f"{SVG}g") if g.get("data-kind") in kinds]


def shapes(root: Element, *kinds: str) -> list[Element]:
    return [r for r in root.iter(f"{SVG}rect") if r.get("data-kind") in kinds]


def texts(root: Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def rectangle(rect: Element) -> Rectangle:
    x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def border(box: Element) -> Rectangle:
    return rectangle(next(box.iter(f"{SVG}rect")))


def named(root: Element, kind: str, text: str) -> Element:
    (found,) = [g for g in groups(root, kind) if text in texts(g)]
    return found


def grid(box: Element) -> list[str]:
    """The cells of a box, a string for each row: v(alid), h(ole), c(ut)."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for rect in shapes(box, "valid", "hole", "cut"):
        rows.setdefault(float(rect.attrib["y"]), []).append((float(rect.attrib["x"]), rect.attrib["data-kind"][0]))
    return ["".join(kind for _, kind in sorted(row)) for _, row in sorted(rows.items())]


def joint(*axes: IterDomain) -> Element:
    (found,) = groups(parse(draw_axes(axes)), "joint")
    return found


# ------------------------------------------------------------------------------------------ what is drawn in them


def figure_2() -> tuple[list[IterDomain], list[IterDomain]]:
    """The three indivisible splits: all axes, and the ones to predicate."""
    i0 = IterDomain(15, name="i0")
    i1, i2 = IterDomain.split(i0, 6)
    i3, i4 = IterDomain.split(i1, 2)
    i5, i6 = IterDomain.split(i2, 4)
    return [i3, i4, i5, i6], [i0, i2]


def nested() -> tuple[IterDomain, RaggedIterDomain, IterDomain]:
    rows = RaggedIterDomain([IterDomain(3), IterDomain(5), IterDomain(2)], name="row")
    return IterDomain(3, name="batch"), rows, IterDomain(4, name="feature")


def scheduled_domain() -> TensorDomain:
    batch, rows, feature = nested()
    domain = TensorDomain([batch, rows, feature])
    outer, inner = IterDomain.split(rows, 2)
    domain.loop = (batch, outer, feature, inner)
    return domain


def softmax() -> Fusion:
    fusion = Fusion()
    data, offsets = fusion.input("data", ["n", 8]), fusion.input("offsets", ["k"], "int64")
    x = fusion.view_as_nested(data, offsets)
    powers = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(powers / fusion.reduce("sum", powers, [1], keepdims=True), "y")
    y.split(1, 4).split(-1, 3).parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDx)
    return fusion


def wide() -> Fusion:
    """Many operands that are used far below where they are made."""
    fusion = Fusion()
    inputs = [fusion.input(f"x{number}", ["n", number + 2]) for number in range(4)]
    made = [fusion.reduce("sum", x, [1]) for x in inputs]
    total = made[0]
    for number in (2, 1, 3, 0, 2):
        total = fusion.binary("mul", total, made[number]) + 1.5
    fusion.output(total, "total")
    return fusion


def kernel() -> Kernel:
    c, r, s, k, n = map(symbol, ("c", "r", "s", "k", "n"))
    rule = CombineRule((symbol("a", "float32"),), (symbol("b", "float32"),), (symbol("a", "float32"),))
    acc = load("acc", 0, "float32")
    add = Store("acc", const(0), acc + load("x", s + r, "float32"))
    body = (
        Let(s, load("offsets", c)),
        Allocate(Buffer("acc", "float32", const(1), Memory.REGISTER)),
        Store("acc", const(0), const(0.0, "float32")),
        For(r, load("offsets", c + 1) - s, (If(lt(s + r, n), (add,)),), "row", ParallelType.TIDx),
        BlockReduce(("acc",), 1, (ParallelType.TIDx,), rule),
        Barrier(),
        GridReduce(("acc",), 1, (ParallelType.BIDy,), rule, ("w",), "counter", (Store("y", c, acc),)),
        For(symbol("v"), const(4), (Store("z", search("offsets", k, c), acc),), "feature", ParallelType.Vectorize),
    )
    buffers = (Buffer("x", "float32", n), Buffer("offsets", "int64", k + 1), Buffer("y", "float32", k, written=True))
    return Kernel("row_sum", buffers, (n, k), (For(c, k, body, "batch", ParallelType.BIDx),))


def steps_of_all_kinds() -> list[IterDomain]:
    batch, rows, _ = nested()
    TensorDomain([batch, rows])
    component, parts = IterDomain.partition(IterDomain(7, name="all"), listed((2, 0, 5)))
    return [
        *IterDomain.split(IterDomain("n"), 4, inner_split=False),
        IterDomain.merge(IterDomain(3), IterDomain(2)),
        IterDomain.resize(IterDomain(5), -1, 2),
        *IterDomain.swizzle(IterDomain(4), IterDomain(4)),
        component,
        parts,
        IterDomain.combine(batch, rows),
        cover(rows),
    ]


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "figure 2": lambda: draw_axes(*figure_2()),
    "domain": lambda: draw_axes(scheduled_domain()),
    "steps": lambda: draw_axes(steps_of_all_kinds()),
    "tensor": lambda: draw_tensor(softmax().outputs[0]),
    "reduction": lambda: draw_tensor(softmax().named("t3")),
    "softmax": lambda: draw_fusion(softmax()),
    "wide": lambda: draw_fusion(wide()),
    "layout": lambda: draw_layout([0, 3, 8, 10]),
    "empty rows": lambda: draw_layout([0, 0, 0, 0, 0, 1, 1, 1, 300, 300], features=3),
    "many rows": lambda: draw_layout(sr.Partition.uniform(1000, 1)),
    "loops": lambda: draw_loops(kernel()),
}
each_drawing = pytest.mark.parametrize("make", DRAWINGS.values(), ids=DRAWINGS)


# ------------------------------------------------------------------------------------------ axes and holes


def test_figure_1_has_six_valid_cells_and_two_holes() -> None:
    axis = IterDomain(6)
    root = parse(draw_axes(IterDomain.split(axis, 4)))
    (split,) = groups(root, "joint")
    assert grid(split) == ["vvvv", "vvhh"]
    assert "Split(4)" in texts(split)
    assert "indivisible, 2 holes" in texts(split)
    assert [grid(box) for box in groups(root, "axis")] == [["vv"], ["vvvv"], ["vvvvvv"]]
    assert not groups(root, "predicated")


def test_figure_2_marks_the_axes_that_are_predicated() -> None:
    root = parse(draw_axes(*figure_2()))
    found = {texts(box)[0]: grid(box) for box in groups(root, "joint")}
    assert found == {
        "Split(6)": ["v" * 6, "v" * 6, "vvvhhh"],
        "Split(2)": ["vv", "vh"],
        "Split(4)": ["vvvv", "vvhh"],
    }
    marked = [texts(box)[0] for box in groups(root, "axis") if groups(box, "predicated")]
    assert sorted(marked) == ["i0_inner{6}", "i0{15}"]
    sizes = sorted(int(size) for text in texts(root) for size in re.findall(r"^\w+\{(\d+)\}$", text))
    assert sizes == [2, 2, 2, 3, 4, 6, 15]


@pytest.mark.parametrize("inner_split", [True, False])
@pytest.mark.parametrize(("extent", "factor"), [(1, 1), (5, 2), (6, 3), (7, 4), (3, 8), (12, 5), (16, 16)])
def test_a_split_shows_the_indices_it_makes(extent: int, factor: int, inner_split: bool) -> None:
    box = joint(*IterDomain.split(IterDomain(extent), factor, inner_split))
    pieces = math.ceil(extent / factor)
    shape = (pieces, factor) if inner_split else (factor, pieces)
    indices = torch.arange(pieces * factor).reshape(shape)
    assert grid(box) == ["".join("v" if i < extent else "h" for i in row) for row in indices.tolist()]
    holes = pieces * factor - extent
    said = [int(count) for text in texts(box) for count in re.findall(r"indivisible, (\d+) holes?$", text)]
    assert said == ([holes] if holes else [])


def test_other_steps_show_their_cells() -> None:
    batch, rows, _ = nested()
    TensorDomain([batch, rows])
    assert grid(joint(*IterDomain.split(rows, 2))) == ["vv", "vh", "vv", "vv", "vh", "vv"]
    assert grid(joint(cover(rows))) == ["vvvhh", "vvvvv", "vvhhh"]
    assert "5 holes" in texts(joint(cover(rows)))
    assert grid(joint(IterDomain.combine(batch, rows))) == ["vvv", "vvvvv", "vv"]
    assert grid(joint(IterDomain.resize(IterDomain(5), 1, 2))) == ["hvvvvvhh"]
    assert grid(joint(IterDomain.resize(IterDomain(5), -2, 1))) == ["ccvvvh"]
    assert grid(joint(IterDomain.merge(IterDomain(2), IterDomain(3)))) == ["vvv", "vvv"]
    assert "1 hole, cuts 2" in texts(joint(IterDomain.resize(IterDomain(5), -2, 1)))


@pytest.mark.parametrize(
    ("axes", "note"),
    [
        (lambda: IterDomain.split(IterDomain("n"), 4), "holes unless 4 divides n"),
        (lambda: IterDomain.split(IterDomain(symbol("n") * 4), 4), None),
        (lambda: IterDomain.split(IterDomain(10**9), 7), "indivisible, 1 hole"),  # 7 · 142857143 − 10⁹
        (lambda: [IterDomain.resize(IterDomain("n"), 3, 0)], "3 holes"),
        (lambda: [cover(nested_rows())], "holes after shorter rows"),
        (lambda: IterDomain.split(nested_rows(), 4), "holes unless 4 divides every extent"),
        (lambda: IterDomain.swizzle(IterDomain(4), IterDomain(4)), None),
    ],
)
def test_steps_that_make_holes_say_so(axes: Callable[[], list[IterDomain]], note: str | None) -> None:
    box = joint(*axes())
    assert [texts(g) for g in groups(box, "holes")] == ([[note]] if note else [])
    assert not grid(box)


def nested_rows() -> RaggedIterDomain:
    return RaggedIterDomain.of(Stored("offsets", symbol("k"), symbol("n")))


def test_axes_say_how_they_are_run() -> None:
    axis = IterDomain("n", name="rows", parallel_type=ParallelType.TIDy)
    (box,) = groups(parse(draw_axes(axis)), "axis")
    assert texts(box) == ["rows{n}", "TIDy"]


def test_a_step_is_joined_to_its_axes() -> None:
    """Outer axes stand left of inner ones, and each arrow starts and ends at a border."""
    root = parse(draw_axes(*figure_2()))
    borders = [border(box) for box in groups(root, *BOXES)]
    arrows = [points(path) for path in paths(root, "line")]
    assert len(arrows) == 3 * 3
    for arrow in arrows:
        (x, y), (to_x, to_y) = arrow[0], arrow[-1]
        assert any(left < x < right and abs(bottom - y) < 0.02 for left, _, right, bottom in borders)
        assert any(left < to_x < right and abs(top - to_y) < 0.02 for left, top, right, _ in borders)
    lefts = {texts(box)[0]: border(box)[0] for box in groups(root, "axis")}
    assert (
        lefts["i0_outer_outer{2}"]
        < lefts["i0_outer_inner{2}"]
        < lefts["i0_inner_outer{2}"]
        < lefts["i0_inner_inner{4}"]
    )


def test_a_tensor_shows_root_logical_allocation_and_loop() -> None:
    fusion = Fusion()
    batch, rows, feature = nested()
    x = fusion.input("x", TensorDomain([batch, rows, feature]))
    x.split(1, 2).reorder({0: 1})
    root = parse(draw_tensor(x))
    assert "x float32, global" in texts(root)
    roles = {texts(box)[0]: texts(role)[0] for box in groups(root, "axis") for role in groups(box, "role")}
    assert roles == {
        "batch{3}": "root, logical 0 · loop 1",
        "row{[3, 5, 2]}": "root, logical 1",
        "feature{4}": "root, logical 2 · allocation 1 · loop 3",
        "row_outer{[2, 3, 1]}": "loop 0",
        "row_inner{2}": "loop 2",
        "batchrow{10}": "allocation 0",
    }
    assert x.draw().svg == draw_tensor(x).svg


def test_a_fusion_shows_tensors_axes_and_operations() -> None:
    fusion = softmax()
    root = parse(draw_fusion(fusion))
    boxes = groups(root, "tensor")
    assert [texts(box)[0] for box in boxes] == [tensor.name for tensor in fusion.tensors]
    operations = [tensor.definition for tensor in fusion.tensors if tensor.definition is not None]
    assert [texts(box)[0] for box in groups(root, "operation")] == [operation.name for operation in operations]
    assert len(paths(root, "line")) == sum(len(operation.inputs) + 1 for operation in operations)
    roles = {role: [texts(box)[0] for box in boxes if role in texts(box)] for role in ("input", "output")}
    assert roles == {"input": ["data", "offsets"], "output": ["y"]}
    assert [text[text.index("{") :] for text in texts(boxes[-1]) if "{" in text] == [
        "{k - 1} BIDx", "{[offsets]}", "{8}", "{k - 1} BIDx", "{[offsets_by_4]}", "{4} TIDx", "{3}", "{3}",
    ]  # fmt: skip
    assert fusion.draw().svg == draw_fusion(fusion).svg


# ------------------------------------------------------------------------------------------ layouts


def drawn_offsets(root: Element) -> list[str]:
    return [text for g in groups(root, "offset") for text in texts(g)]


def row_sizes(root: Element, kind: str) -> list[int]:
    rows: dict[float, int] = {}
    for rect in shapes(root, kind):
        rows[float(rect.attrib["y"])] = rows.get(float(rect.attrib["y"]), 0) + 1
    return [count for _, count in sorted(rows.items())]


@pytest.mark.parametrize(
    "layout",
    [
        [0, 3, 8, 10],
        np.array([0, 3, 8, 10]),
        torch.tensor([0, 3, 8, 10], dtype=torch.int32),
        sr.Partition.from_lengths([3, 5, 2]),
        listed((3, 5, 2)),
        Pieces(listed((6, 9, 4)), const(2)),
        nested()[1],
    ],
    ids=lambda layout: type(layout).__name__,
)
def test_a_layout_shows_offsets_and_rows(layout: object) -> None:
    root = parse(draw_layout(layout))
    assert drawn_offsets(root) == ["0", "3", "8", "10"]
    assert row_sizes(root, "packed") == [10]
    assert row_sizes(root, "row") == [3, 5, 2]
    (rows,) = groups(root, "rows")
    assert texts(rows) == ["0: 3", *"012", "1: 5", *"34567", "2: 2", *"89"]


def test_borders_stand_between_components() -> None:
    root = parse(draw_layout([0, 3, 3, 8, 10]))
    ends = sorted(rectangle(rect)[0] for rect in shapes(root, "packed"))
    before = [sum(left < points(path)[0][0] for left in ends) for path in paths(root, "border")]
    assert before == [0, 3, 3, 8, 10]
    fills = [rect.attrib["fill"] for rect in shapes(root, "packed")]
    assert [fills[value] != fills[value + 1] for value in range(9)] == [value in (2, 7) for value in range(9)]


def test_features_are_drawn_as_columns() -> None:
    root = parse(draw_layout([0, 3, 8, 10], features=4))
    assert row_sizes(root, "packed") == [10] * 4
    assert row_sizes(root, "row") == [3] * 4 + [5] * 4 + [2] * 4
    assert "8 of 512 features" in texts(parse(draw_layout([0, 1], features=512)))


def test_of_large_layouts_the_beginning_is_drawn() -> None:
    root = parse(draw_layout([0, 40, 1000, 5000]))
    assert drawn_offsets(root) == ["0", "40", "5000"]
    assert len(shapes(root, "packed")) == len(shapes(root, "row")) == 48
    assert "… 4952 more values, 1 more components" in texts(root)


def test_a_layout_of_no_components() -> None:
    root = parse(draw_layout([0]))
    assert drawn_offsets(root) == ["0"]
    assert not shapes(root, "packed", "row")


# ------------------------------------------------------------------------------------------ loops


def test_every_loop_shows_its_axis_extent_and_parallel_type() -> None:
    drawn = kernel()
    boxes = groups(parse(draw_loops(drawn)), "loop")
    loops = [statement for statement in walk(drawn.body) if isinstance(statement, For)]
    assert len(boxes) == len(loops) == 3
    for box, loop in zip(boxes, loops, strict=True):
        assert texts(box)[:3] == [f"for {loop.var} in {loop.extent}", loop.axis, loop.parallel.name]


def test_boxes_are_nested_as_the_statements_are() -> None:
    def shape(box: Element) -> object:
        kinds = ("loop", "guard", "store", "let", "allocate", "barrier", "reduce")
        return [(g.get("data-kind"), shape(g)) for g in box.findall(f"{SVG}g") if g.get("data-kind") in kinds]

    (whole,) = groups(parse(draw_loops(kernel())), "kernel")
    store: tuple[str, list[object]] = ("store", [])
    inside = [("let", []), ("allocate", []), store, ("loop", [("guard", [store])]), ("reduce", []), ("barrier", [])]
    assert shape(whole) == [("loop", [*inside, ("reduce", [store]), ("loop", [store])])]


def test_guards_loads_and_stores_are_written() -> None:
    root = parse(draw_loops(kernel()))
    (guard,) = groups(root, "guard")
    assert texts(guard) == ["if s + r < n", "acc[0] = acc[0] + x[s + r]", "loads acc[0], x[s + r]"]
    assert "loads search(offsets, k, c), acc[0]" in texts(root)
    assert "writes float32 y[k]" in texts(root)
    assert "reads int64 offsets[k + 1]" in texts(root)


# ------------------------------------------------------------------------------------------ every drawing


def paths(root: Element, kind: str) -> list[Element]:
    return [path for path in root.iter(f"{SVG}path") if path.get("data-kind") == kind]


def points(path: Element) -> list[tuple[float, float]]:
    """The points of a line; its arrow head is left out."""
    first = path.attrib["d"].split(" M")[0]
    numbers = [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", first)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.05 and min(a[3], b[3]) - max(a[1], b[1]) > 0.05


def within(inner: Rectangle, outer: Rectangle) -> bool:
    return all(inner[i] >= outer[i] - 0.05 for i in (0, 1)) and all(inner[i] <= outer[i] + 0.05 for i in (2, 3))


def families(parent: Element, around: Rectangle) -> Iterator[tuple[Rectangle, list[Rectangle]]]:
    """Each border with the rectangles directly inside it."""
    inside: list[Rectangle] = []

    def visit(element: Element, own: Element | None) -> Iterator[tuple[Rectangle, list[Rectangle]]]:
        for child in element:
            if child.tag == f"{SVG}rect" and child is not own:
                inside.append(rectangle(child))
            elif child.tag == f"{SVG}g" and any(e.tag == f"{SVG}rect" for e in child) and is_box(child):
                inside.append(border(child))
                yield from families(child, border(child))
            elif child.tag == f"{SVG}g":
                yield from visit(child, None)

    own = next((e for e in parent if e.tag == f"{SVG}rect"), None) if is_box(parent) else None
    yield from visit(parent, own)
    yield around, inside


def is_box(group: Element) -> bool:
    first = next((e for e in group if e.tag == f"{SVG}rect"), None)
    return first is not None and first.get("data-kind") == group.get("data-kind")


def view(root: Element) -> Rectangle:
    x, y, width, height = map(float, root.attrib["viewBox"].split())
    return x, y, x + width, y + height


@each_drawing
def test_siblings_do_not_overlap_and_lie_within_their_box(make: Callable[[], Drawing]) -> None:
    root = parse(make())
    found = list(families(root, view(root)))
    assert sum(len(inside) for _, inside in found) == len(
        shapes(root, *{r.get("data-kind") for r in root.iter()} - {None})
    )
    for around, inside in found:
        assert all(within(one, around) for one in inside)
        assert not [(a, b) for at, a in enumerate(inside) for b in inside[:at] if overlap(a, b)]


def text_rectangle(text: Element) -> Rectangle:
    """Where text stands in a font whose letters are 0.6 as wide as high, as most monospaced ones are."""
    size, x, y = (float(text.attrib[name]) for name in ("font-size", "x", "y"))
    width = 0.6 * size * len(text.text or "")
    left = x - width / 2 if text.get("text-anchor") == "middle" else x
    return left, y - 0.75 * size, left + width, y + 0.2 * size


@each_drawing
def test_text_stands_within_its_box_and_apart(make: Callable[[], Drawing]) -> None:
    root = parse(make())

    def check(element: Element, around: Rectangle) -> None:
        around = border(element) if element.tag == f"{SVG}g" and is_box(element) else around
        for child in element:
            if child.tag == f"{SVG}text":
                assert within(text_rectangle(child), around), child.text
            check(child, around)

    check(root, view(root))
    places = [text_rectangle(text) for text in root.iter(f"{SVG}text")]
    assert not [(a, b) for at, a in enumerate(places) for b in places[:at] if overlap(a, b)]


@each_drawing
def test_arrows_do_not_run_through_boxes(make: Callable[[], Drawing]) -> None:
    root = parse(make())
    boxes = [border(box) for box in groups(root, *BOXES) if is_box(box)]
    assert not any(runs_through(points(path), boxes) for path in paths(root, "line"))


def runs_through(route: Sequence[tuple[float, float]], boxes: list[Rectangle]) -> bool:
    for (x, y), (to_x, to_y) in pairwise(route):
        for part in range(51):
            at, down = x + (to_x - x) * part / 50, y + (to_y - y) * part / 50
            if any(a + 0.05 < at < c - 0.05 and b + 0.05 < down < d - 0.05 for a, b, c, d in boxes):
                return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_graphs_of_all_shapes_are_arranged(seed: int) -> None:
    generator = random.Random(seed)
    layers = sorted(generator.randrange(6) for _ in range(14))
    sizes = [(generator.uniform(10, 120), generator.uniform(10, 90)) for _ in layers]
    pairs = [(a, b) for a in range(14) for b in range(14) if layers[a] < layers[b]]
    edges = [generator.choice(pairs) for _ in range(18)]
    placed = arrange(sizes, edges, layers)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(placed.corners, sizes, strict=True)]
    assert all(within(box, (0, 0, placed.width, placed.height)) for box in boxes)
    assert not [(a, b) for at, a in enumerate(boxes) for b in boxes[:at] if overlap(a, b)]
    for (start, end), route in zip(edges, placed.routes, strict=True):
        assert boxes[start][0] < route[0][0] < boxes[start][2]
        assert boxes[end][0] < route[-1][0] < boxes[end][2]
        assert not runs_through(route, boxes)


@each_drawing
def test_drawings_take_the_colours_of_the_page(make: Callable[[], Drawing]) -> None:
    """No background, text and lines in the colour of the page or readable on white and on black; nothing leaks out."""
    root = parse(make())
    used = {e.attrib[name] for e in root.iter() for name in ("fill", "stroke") if name in e.attrib}
    used |= set(re.findall("#[0-9a-f]+", next(root.iter(f"{SVG}style")).text or ""))
    for color in used - {"none", "currentColor"}:
        assert contrast(color, "#fff") > 3
        assert contrast(color, "#111") > 3
    assert all(float(e.attrib["fill-opacity"]) <= 0.5 for e in root.iter(f"{SVG}rect") if e.attrib["fill"] != "none")
    assert not [e for e in root.iter() if {"id", "class", "transform"} & set(e.attrib)]


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, by the accessibility guidelines of the W3C."""

    def luminance(color: str) -> float:
        digits = "".join(d * 2 for d in color[1:]) if len(color) == 4 else color[1:]
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@each_drawing
def test_the_same_is_drawn_again(make: Callable[[], Drawing]) -> None:
    assert make().svg == make().svg
    assert not re.search(r"\d\.\d{3}|nan|inf\b|[ \"]-0[ \"]", re.sub(r">[^<]*<", "><", make().svg))


def test_drawings_do_not_depend_on_hashes() -> None:
    code = (
        "from serrate.fusion import IterDomain; from serrate.viz import draw_axes;"
        "i = IterDomain(15, name='i'); o, j = IterDomain.split(i, 6);"
        "print(draw_axes([*IterDomain.split(o, 2), *IterDomain.split(j, 4)], predicated={i, j}).svg)"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] != b""


def test_names_are_escaped() -> None:
    name = 'a<b>&"c"\x00'
    for drawing in (
        draw_axes(IterDomain(3, name=name)),
        draw_fusion(with_input(name)),
        draw_tensor(with_input(name).inputs[0]),
        draw_loops(Kernel(name, (), (), (For(symbol(name), const(3), (), name),))),
    ):
        assert any('a<b>&"c"\ufffd' in text for text in texts(parse(drawing)))
        assert "a<b" not in drawing.svg


def with_input(name: str) -> Fusion:
    fusion = Fusion()
    fusion.input(name, [3])
    return fusion


def test_long_text_is_clipped_and_kept_as_a_tooltip() -> None:
    value = load("x", symbol("i"), "float32")
    for _ in range(60):
        value = value + load("x", symbol("i"), "float32")
    root = parse(draw_loops(Kernel("long", (), (), (Store("y", const(0), value),))))
    assert f"y[0] = {value}" in [title.text for title in root.iter(f"{SVG}title")]
    assert max(map(len, texts(root))) <= 100


def test_an_empty_fusion_and_a_tensor_of_no_axes() -> None:
    assert texts(parse(draw_fusion(Fusion()))) == ["a fusion without tensors"]
    fusion = Fusion()
    assert "no axes" in texts(parse(draw_tensor(fusion.input("x", TensorDomain([])))))
    assert "x" in texts(parse(draw_fusion(fusion)))


def test_notebooks_and_files_get_the_text(tmp_path: Path) -> None:
    drawing = draw_layout([0, 3, 8, 10])
    drawing.save(tmp_path / "layout.svg")
    assert (tmp_path / "layout.svg").read_text(encoding="utf-8") == drawing._repr_svg_() == drawing.svg
    assert len(repr(drawing)) < 60
    root = parse(drawing)
    assert (float(root.attrib["width"]), float(root.attrib["height"])) == (drawing.width, drawing.height)


def test_spread_is_the_nearest_arrangement_without_overlap() -> None:
    generator = random.Random(3)
    for _ in range(200):
        count = generator.randint(1, 6)
        wanted = [generator.uniform(0, 50) for _ in range(count)]
        widths = [generator.uniform(1, 20) for _ in range(count)]

        def fits(centres: list[float], widths: list[float] = widths) -> bool:
            pairs = zip(centres, centres[1:], widths, widths[1:], strict=False)
            return all(right - left >= (a + b) / 2 + 2 - 1e-9 for left, right, a, b in pairs)

        def cost(centres: list[float], wanted: list[float] = wanted) -> float:
            return sum((at - want) ** 2 for at, want in zip(centres, wanted, strict=True))

        found = spread(wanted, widths, 2.0)
        assert fits(found)
        for _ in range(50):  # a convex problem: nothing near is better, so nothing is
            other = [at + generator.choice([-0.01, 0, 0.01]) for at in found]
            assert not fits(other) or cost(other) >= cost(found) - 1e-9


# ------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_axes(3), "an axis, a TensorDomain or a sequence of axes, got int"),  # type: ignore[arg-type]
        (lambda: draw_axes([IterDomain(3), "x"]), "a sequence of axes, got str among them"),  # type: ignore[list-item]
        (lambda: draw_axes(IterDomain(3), predicated=[3]), "a collection of axes, got int among them"),  # type: ignore[list-item]
        (lambda: draw_tensor(IterDomain(3)), "takes a TensorView, got IterDomain"),  # type: ignore[arg-type]
        (lambda: draw_fusion(None), "takes a Fusion, got NoneType"),  # type: ignore[arg-type]
        (lambda: draw_loops([]), "takes a Kernel, got list"),  # type: ignore[arg-type]
        (lambda: draw_loops(Kernel("k", (), (), (3,))), "the statements of the kernel IR, got int"),  # type: ignore[arg-type]
        (lambda: draw_layout("0123"), "or offsets .*, got str"),
        (lambda: draw_layout(3), "a Partition, a Raggedness, .* got int"),
        (lambda: draw_layout([0, 1], features=2.0), "features must be an int or None, got float"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_say_what_was_expected(call: Callable[[], Drawing], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_axes([]), "got no axes"),
        (lambda: draw_axes(IterDomain(3), predicated=[IterDomain(3)]), "not one of the axes drawn"),
        (lambda: draw_layout([0, 3, 2]), "offsets must never decrease"),
        (lambda: draw_layout([0, 1], features=0), "features must be 1 or more, got 0"),
        (lambda: draw_layout(Stored("offsets", symbol("k"), symbol("n"))), "known only when it runs"),
        (lambda: draw_layout(Listed((const(3), symbol("n")))), "known only when it runs"),
    ],
)
def test_wrong_values_are_refused(call: Callable[[], Drawing], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
