"""What is drawn in the tests of drawings: axes, tensors, fusions, layouts and a kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import serrate as sr
from serrate.fusion import Fusion, IterDomain, Memory, ParallelType, RaggedIterDomain, TensorDomain, const, symbol
from serrate.fusion.raggedness import Stored, listed
from serrate.fusion.scalar import less, load, search
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
)
from serrate.viz import Drawing, draw_axes, draw_fusion, draw_layout, draw_loops, draw_tensor


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


def nested_rows() -> RaggedIterDomain:
    return RaggedIterDomain.of(Stored("offsets", symbol("k"), symbol("n")))


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
        total = fusion.binary("multiply", total, made[number]) + 1.5
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
        For(r, load("offsets", c + 1) - s, (If(less(s + r, n), (add,)),), "row", ParallelType.TIDx),
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
