"""Small programs to be scheduled, each with inputs and with what it means in plain torch."""

from __future__ import annotations

import torch
from tests.fusion.samples import LENGTHS, OFFSETS, nested, some

from serrate.fusion import Fusion, TensorView

Program = tuple[TensorView, list[torch.Tensor], torch.Tensor]  # (output, inputs, what is expected)


def flat() -> Program:
    """2·x + 1 of [24]."""
    fusion = Fusion()
    x = some(24)
    return fusion.output(fusion.input("x", [24]) * 2.0 + 1.0, "y"), [x], x * 2 + 1


def symbolic() -> Program:
    """-x of [n, 6]."""
    fusion = Fusion()
    x = some(7, 6)
    return fusion.output(-fusion.input("x", ["n", 6]), "y"), [x], -x


def square() -> Program:
    """x·w of [8, 8] and [8]."""
    fusion = Fusion()
    x, w = some(8, 8), some(8, seed=1)
    return fusion.output(fusion.input("x", [8, 8]) * fusion.input("w", [8]), "y"), [x, w], x * w


def rows() -> Program:
    """x·w of [k, r, 6] and [k, 1, 6]."""
    fusion = Fusion()
    x = nested(fusion, 6)
    weights = fusion.broadcast(fusion.input("w", ["k", 6]), [False, True, False])
    a, w = some(8, 6), some(4, 6, seed=1)
    want = torch.cat([row * w[c] for c, row in enumerate(a.split(LENGTHS))])
    return fusion.output(x * weights, "y"), [a, OFFSETS, w], want


def sums(name: str = "sum") -> Program:
    """The sum (or another reduction) over features of [4, 12]."""
    fusion = Fusion()
    x = some(4, 12)
    want = getattr(x, {"max": "amax", "min": "amin"}.get(name, name))(1)
    return fusion.output(fusion.reduce(name, fusion.input("x", [4, 12]), [1]), "y"), [x], want


def row_sums() -> Program:
    """The sum over r of [k, r, 6]."""
    fusion = Fusion()
    a = some(8, 6)
    y = fusion.output(fusion.reduce("sum", nested(fusion, 6), [1]), "y")
    return y, [a, OFFSETS], torch.stack([row.sum(0) for row in a.split(LENGTHS)])


def all_sums() -> Program:
    """The sum over c and r of [k, r, 6]."""
    fusion = Fusion()
    a = some(8, 6)
    return fusion.output(fusion.reduce("sum", nested(fusion, 6), [0, 1]), "y"), [a, OFFSETS], a.sum(0)


def softmax() -> Program:
    """Softmax over r of [k, r, 6]; t4 are the exponentials."""
    fusion = Fusion()
    x = nested(fusion, 6)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    a = some(8, 6)
    return y, [a, OFFSETS], torch.cat([row.softmax(0) for row in a.split(LENGTHS)])


def feature_softmax() -> Program:
    """Softmax over features of [4, 12]; t2 are the differences from the maximum, t3 the exponentials."""
    fusion = Fusion()
    x = fusion.input("x", [4, 12])
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    a = some(4, 12)
    return (
        fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y"),
        [a],
        a.softmax(1),
    )
