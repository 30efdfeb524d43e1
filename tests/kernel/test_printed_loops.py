"""Kernels as C++, compiled and run: loops over ragged rows, searches, guards."""

from __future__ import annotations

import math

import pytest
import torch
from tests.kernel.printed_kernels import LENGTHS, K, N, buffer, i, ragged, row_sum, run, softmax

from serrate.fusion.scalar import call, cast, ceildiv, const, less, load, search, symbol
from serrate.fusion.types import ParallelType as P
from serrate.kernel.ir import For, If, Kernel, Store


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("offsets_dtype", ["int32", "int64"])
def test_ragged_row_sum(index: str, offsets_dtype: str) -> None:
    offsets, rows = ragged(LENGTHS, getattr(torch, offsets_dtype))
    x = torch.randn(sum(LENGTHS), 16)
    out = torch.empty(len(LENGTHS), 16)
    run(row_sum(index, offsets_dtype), offsets, x, out, len(LENGTHS), len(x))
    expected = torch.stack([x[row].double().sum(0) for row in rows])
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)


def test_softmax_by_component() -> None:
    offsets, rows = ragged(LENGTHS, torch.int64)
    x = torch.randn(sum(LENGTHS)) * 5
    x[30] = math.nan
    y = torch.empty_like(x)
    run(softmax(), offsets, x, y, len(LENGTHS), len(x))
    expected = torch.cat([torch.softmax(x[row].double(), 0) for row in rows])
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("lengths", [LENGTHS, [1], [0, 0, 4], [5, 0, 0], [1] * 33])
def test_search(index: str, lengths: list[int]) -> None:
    offsets, rows = ragged(lengths, torch.int64)
    n = sum(lengths)
    kernel = Kernel(
        "find",
        (buffer("offsets", K + 1, "int64"), buffer("out", N, "int32", written=True)),
        (K, N),
        (For(i, N, (Store("out", i, cast(search("offsets", K, i), "int32")),), "position"),),
        index=index,
    )
    out = torch.empty(n, dtype=torch.int32)
    run(kernel, offsets, out, len(lengths), n)
    assert out.tolist() == [row for row, piece in enumerate(rows) for _ in range(piece.start, piece.stop)]


def test_nested_loops_unrolled_and_guarded() -> None:
    # A tile of 4 positions, the last one cut.
    tile = symbol("tile")
    position = tile * 4 + i
    kernel = Kernel(
        "tiles",
        (buffer("y", N, "int64", written=True),),
        (N,),
        (
            For(tile, ceildiv(N, 4), (
                For(i, const(4), (
                    If(less(position, N), (Store("y", position, cast(position * position % 7, "int64")),)),
                ), "inner", P.Unroll),
            ), "tile", P.BIDx),
        ),
    )  # fmt: skip
    y = torch.full((12,), -1)
    run(kernel, y, 10)
    assert y.tolist() == [k * k % 7 for k in range(10)] + [-1, -1]


def test_names_that_are_words_of_c() -> None:
    value = call("exp", load("float", i, "float64")) + load("exp", i, "float64")
    kernel = Kernel(
        "double",
        (buffer("float", N, "float64"), buffer("exp", N, "float64"), buffer("x.1", N, "float64", written=True)),
        (N,),
        (For(i, N, (Store("x.1", i, value),), "position */ \\\n int"),),
    )
    x, y = torch.randn(5).double(), torch.empty(5).double()
    run(kernel, x, x, y, 5)
    torch.testing.assert_close(y, x.exp() + x)
