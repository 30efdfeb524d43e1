"""Drawings of layouts show offsets, rows and features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.viz.drawn import nested
from tests.viz.reading import Element, groups, parse, paths, points, rectangle, shapes, texts

import serrate as sr
from serrate.fusion import const
from serrate.fusion.raggedness import Pieces, listed
from serrate.viz import draw_layout


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
