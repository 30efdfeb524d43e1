"""Drawings of kernels show loops, guards, loads and stores, nested as the statements are."""

from __future__ import annotations

from tests.viz.drawn import kernel
from tests.viz.reading import SVG, Element, groups, parse, texts

from serrate.fusion import Memory, const, symbol
from serrate.fusion.scalar import less
from serrate.kernel.ir import Allocate, Buffer, BulkCopy, Fault, For, Kernel, Prefetch, walk
from serrate.viz import draw_loops


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


def test_boxes_hints_and_reports_are_drawn() -> None:
    """Every kind of statement can be drawn: a box that is copied, a prefetch, a fault."""
    i = symbol("i")
    body = (
        Allocate(Buffer("box", "float32", const(4), Memory.SHARED)),
        BulkCopy("box", "x", (i * 4,), (4,), (symbol("n"),)),
        Prefetch("x", i + 8),
        Fault(less(symbol("n"), i), "faults", 1),
    )
    buffers = (Buffer("x", "float32", symbol("n")), Buffer("faults", "int64", const(1), written=True))
    root = parse(draw_loops(Kernel("k", buffers, (symbol("n"),), (For(i, symbol("n"), body, "i"),))))
    (copy,) = groups(root, "copy")
    assert texts(copy)[0] == "box = box 4 of x[n] at (i * 4), 0 outside"
    assert [texts(hint)[0] for hint in groups(root, "hint")] == ["prefetch x[i + 8]", "fault 1 if n < i: faults"]
