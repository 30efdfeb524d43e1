"""Drawings of kernels: loops as boxes in each other, guards, what is loaded and stored."""

from __future__ import annotations

from serrate.fusion.scalar import Scalar
from serrate.fusion.types import ParallelType
from serrate.kernel import ir
from serrate.kernel.ir import (
    Allocate,
    Barrier,
    BlockReduce,
    BulkCopy,
    Fault,
    For,
    GridReduce,
    If,
    Kernel,
    Let,
    Prefetch,
    Statement,
    Store,
    children,
    expressions,
)
from serrate.viz.axis_graph import parallel_fill
from serrate.viz.items import Box, Item, Row, Text, chip
from serrate.viz.svg import GREEN, INK, ORANGE, PURPLE, Drawing, drawing


def draw_loops(kernel: Kernel) -> Drawing:
    """A kernel: each loop with its axis, extent and how it is run, guards, and what is loaded and stored.

    >>> from serrate.fusion import ParallelType, symbol
    >>> from serrate.fusion.scalar import load
    >>> from serrate.kernel.ir import Buffer, For, Kernel, Store
    >>> from serrate.viz import draw_loops
    >>> i, n = symbol("i"), symbol("n")
    >>> loop = For(i, n, (Store("y", i, load("x", i, "float32")),), "row", ParallelType.Thread)
    >>> buffers = (Buffer("x", "float32", n), Buffer("y", "float32", n, written=True))
    >>> "for i in n" in draw_loops(Kernel("copy", buffers, (n,), (loop,))).svg
    True
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"draw_loops takes a Kernel, got {type(kernel).__name__}")
    box = _kernel_box(kernel)
    return drawing([box.draw(0.0, 0.0)], box.width, box.height, f"loops of {kernel.name}")


def _kernel_box(kernel: Kernel) -> Box:
    grid, block = ("×".join(map(str, sizes)) for sizes in (kernel.launch.grid, kernel.launch.block))
    items: list[Item] = [
        Text(f"kernel {kernel.name}", bold=True),
        Text(f"{grid} blocks of {block} threads, indices {kernel.index}", font_size=10),
    ]
    for buffer in kernel.buffers:
        use = "writes" if buffer.written else "reads"
        items.append(Text(f"{use} {buffer.dtype} {buffer.name}[{buffer.size}]", font_size=10, kind="buffer"))
    if kernel.sizes:
        items.append(Text(f"sizes {', '.join(map(str, kernel.sizes))}", font_size=10))
    return Box("kernel", (*items, *map(_box, kernel.body)))


def _box(statement: Statement) -> Box:
    match statement:
        case For(var, extent, _, axis, parallel):
            head = Row((Text(f"for {var} in {extent}", bold=True), *_loop_chips(axis, parallel)))
            return _boxed("loop", head, statement, fill=parallel_fill(parallel))
        case If(condition, _):
            return _boxed("guard", Text(f"if {condition}", bold=True), statement, stroke=ORANGE, dashed=True)
        case Let(var, value):
            return _boxed("let", Text(f"{var} = {value}"), statement, border=0.0)
        case Allocate(buffer):
            text = f"allocate {buffer.memory.value} {buffer.dtype} {buffer.name}[{buffer.size}]"
            return _boxed("allocate", Text(text), statement, border=0.0)
        case Store(name, index, value):
            return _boxed("store", Text(f"{name}[{index}] = {value}"), statement, fill=GREEN)
        case BulkCopy():
            return _boxed("copy", Text(ir.head(statement)), statement, fill=GREEN)
        case Prefetch() | Fault():
            return _boxed("hint", Text(ir.head(statement)), statement, border=0.0)
        case Barrier():
            return _boxed("barrier", Text("barrier"), statement, fill=ORANGE)
        case BlockReduce(state, size, over, _):
            return _boxed("reduce", Text(_reduction(state, size, over)), statement, fill=PURPLE)
        case GridReduce(state, size, over, _):
            text = f"{_reduction(state, size, over)}; the last block:"
            return _boxed("reduce", Text(text), statement, fill=PURPLE)
    raise TypeError(f"draw_loops knows the statements of the kernel IR, got {type(statement).__name__}")


def _boxed(
    kind: str,
    head: Item,
    statement: Statement,
    *,
    fill: str = "none",
    stroke: str = INK,
    dashed: bool = False,
    border: float = 1.0,
) -> Box:
    """A statement: its text, what it loads itself, and the statements inside."""
    items: list[Item] = [head]
    loads = _loads(statement)
    if loads:
        items.append(Text(f"loads {', '.join(loads)}", font_size=10, kind="loads", limit=120))
    inside = tuple(map(_box, children(statement)))
    return Box(kind, (*items, *inside), fill=fill, stroke=stroke, dashed=dashed, thickness=border)


def _loop_chips(axis: str, parallel: ParallelType) -> tuple[Box, Box]:
    return chip(axis, kind="loop axis"), chip(parallel.name, parallel_fill(parallel), kind="parallel type")


def _loads(statement: Statement) -> list[str]:
    """What the statement's own expressions read, each once."""
    found: dict[Scalar, str] = {}
    for expression in expressions(statement):
        for node in expression.walk():
            if node.op in ("load", "search"):
                found[node] = str(node)
    return list(found.values())


def _reduction(state: tuple[str, ...], size: int, over: tuple[ParallelType, ...]) -> str:
    return f"reduce {', '.join(state)} ({size}) over {', '.join(parallel.name for parallel in over)}"
