"""Nothing drawn overlaps: boxes, text and arrows of every drawing, and graphs of all shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from tests.viz.drawn import each_drawing
from tests.viz.reading import (
    BOXES,
    SVG,
    Element,
    Rectangle,
    border,
    groups,
    is_box,
    overlap,
    parse,
    paths,
    points,
    rectangle,
    runs_through,
    shapes,
    view,
    within,
)

from serrate.viz import Drawing
from serrate.viz.arrange import arrange, separated_centres


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

        found = separated_centres(wanted, widths, 2.0)
        assert fits(found)
        for _ in range(50):  # a convex problem: nothing near is better, so nothing is
            other = [at + generator.choice([-0.01, 0, 0.01]) for at in found]
            assert not fits(other) or cost(other) >= cost(found) - 1e-9
