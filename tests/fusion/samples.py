"""Ragged inputs, the tensors of them, and comparisons: what the tests of fusions share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, symbol
from serrate.fusion.binding import TORCH

LENGTHS = [3, 0, 4, 1]
EVERY_LENGTHS = {"ragged": LENGTHS, "one row": [5], "empty rows": [0, 0], "no rows": []}
FLOATS = ["float64", "float32", "float16", "bfloat16"]
WHOLE = ["int64", "int32"]
each_length = pytest.mark.parametrize("lengths", EVERY_LENGTHS.values(), ids=EVERY_LENGTHS.keys())
each_dtype = pytest.mark.parametrize("dtype", FLOATS + WHOLE)


def offsets_of(lengths: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)])


OFFSETS = offsets_of(LENGTHS)


def some(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Numbers from -2 to 2."""
    drawn = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    if dtype == "bool":
        return drawn > 0
    return (drawn if dtype in FLOATS else (drawn * 4).round()).to(TORCH[dtype])


def nested(
    fusion: Fusion,
    *features: int | str,
    name: str = "x",
    dtype: str = "float32",
    offsets: str = "offsets",
    exact: bool = True,
) -> TensorView:
    """An input [n, *features] as [k, r, *features]."""
    data = fusion.input(name, ["n", *features], dtype)
    known = [tensor for tensor in fusion.inputs if tensor.name == offsets]
    starts = known[0] if known else fusion.input(offsets, [symbol("k") + 1], "int64")
    return fusion.view_as_nested(data, starts, exact=exact)


def two_levels(fusion: Fusion) -> TensorView:
    """[k, r, s], s depending on r."""
    outer = fusion.input("outer", [symbol("k") + 1], "int64")
    inner = fusion.input("inner", [symbol("n") + 1], "int64")
    components = IterDomain("k", name="c")
    rows = RaggedIterDomain.from_offsets(outer, size="n", component=components, name="r")
    items = RaggedIterDomain.from_offsets(inner, size="m", component=IterDomain.combine(components, rows), name="s")
    return fusion.input("x", [components, rows, items])


def everything() -> Fusion:
    """A fusion with an operation of each kind."""
    fusion = Fusion()
    x = nested(fusion, 4)
    w = fusion.broadcast(fusion.input("w", ["k", 4]), [False, True, False])
    product = x * w
    total = fusion.reduce("sum", product, [1])
    fusion.output(fusion.pad(product, 1, 1, 0, value=2.0), "padded")
    fusion.output(fusion.gather(fusion.input("table", [3, 2]), fusion.input("ids", [5], "int64")), "rows")
    fusion.output(fusion.where(fusion.binary("less", x, 0.5), x, 0.0), "chosen")
    fusion.output(fusion.cast(total, "float16"), "half")
    fusion.output(x.select(0, 1), "row")
    return fusion


def by_rows(
    values: torch.Tensor, lengths: Sequence[int], function: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """What a function makes of each row, one after another."""
    rows = [function(row) for row in values.split(list(lengths))] if lengths else [function(values[:0])]
    return torch.cat(rows)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, equal_nan=True)
