"""Drawings of axes, tensors and fusions show the axes, their steps and the holes of those."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from tests.viz.drawn import figure_2, nested, nested_rows, softmax
from tests.viz.reading import BOXES, border, grid, groups, joint, parse, paths, points, texts

from serrate.fusion import Fusion, IterDomain, ParallelType, TensorDomain, symbol
from serrate.fusion.transforms import cover
from serrate.viz import draw_axes, draw_fusion, draw_tensor


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


def test_drawing_without_serrate_viz_says_what_to_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serrate.fusion.drawing.DRAWN", {})
    fusion = Fusion()
    with pytest.raises(RuntimeError, match=r"drawing a tensor yet; import serrate\.viz first"):
        fusion.input("x", [3]).draw()
    with pytest.raises(RuntimeError, match=r"drawing a fusion yet; import serrate\.viz first"):
        fusion.draw()
