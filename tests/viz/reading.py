"""Reading a drawing back: the boxes, cells, text and lines of its SVG, and how they lie."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from itertools import pairwise

from serrate.fusion import IterDomain
from serrate.viz import Drawing, draw_axes

Element = ElementTree.Element
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom
SVG = "{http://www.w3.org/2000/svg}"
BOXES = ("axis", "joint", "tensor", "operation")


def parse(drawing: Drawing) -> Element:
    return ElementTree.fromstring(drawing.svg)


def groups(root: Element, *kinds: str) -> list[Element]:
    return [g for g in root.iter(f"{SVG}g") if g.get("data-kind") in kinds]


def shapes(root: Element, *kinds: str) -> list[Element]:
    return [r for r in root.iter(f"{SVG}rect") if r.get("data-kind") in kinds]


def texts(root: Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def paths(root: Element, kind: str) -> list[Element]:
    return [path for path in root.iter(f"{SVG}path") if path.get("data-kind") == kind]


def grid(box: Element) -> list[str]:
    """The cells of a box, a string for each row: v(alid), h(ole), c(ut)."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for rect in shapes(box, "valid", "hole", "cut"):
        rows.setdefault(float(rect.attrib["y"]), []).append((float(rect.attrib["x"]), rect.attrib["data-kind"][0]))
    return ["".join(kind for _, kind in sorted(row)) for _, row in sorted(rows.items())]


def joint(*axes: IterDomain) -> Element:
    (found,) = groups(parse(draw_axes(axes)), "joint")
    return found


# Where things lie


def rectangle(rect: Element) -> Rectangle:
    x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def border(box: Element) -> Rectangle:
    return rectangle(next(box.iter(f"{SVG}rect")))


def view(root: Element) -> Rectangle:
    x, y, width, height = map(float, root.attrib["viewBox"].split())
    return x, y, x + width, y + height


def is_box(group: Element) -> bool:
    first = next((e for e in group if e.tag == f"{SVG}rect"), None)
    return first is not None and first.get("data-kind") == group.get("data-kind")


def points(path: Element) -> list[tuple[float, float]]:
    """The points of a line; its arrow head is left out."""
    first = path.attrib["d"].split(" M")[0]
    numbers = [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", first)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.05 and min(a[3], b[3]) - max(a[1], b[1]) > 0.05


def within(inner: Rectangle, outer: Rectangle) -> bool:
    return all(inner[i] >= outer[i] - 0.05 for i in (0, 1)) and all(inner[i] <= outer[i] + 0.05 for i in (2, 3))


def runs_through(route: Sequence[tuple[float, float]], boxes: list[Rectangle]) -> bool:
    for (x, y), (to_x, to_y) in pairwise(route):
        for part in range(51):
            at, down = x + (to_x - x) * part / 50, y + (to_y - y) * part / 50
            if any(a + 0.05 < at < c - 0.05 and b + 0.05 < down < d - 0.05 for a, b, c, d in boxes):
                return True
    return False
