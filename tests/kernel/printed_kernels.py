"""Kernels written by hand, for the printers: on ragged rows, and of blocks of threads."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch

from serrate.fusion.scalar import Scalar, call, cast, ceildiv, const, equal, less, load, maximum, symbol, where
from serrate.fusion.types import Memory
from serrate.fusion.types import ParallelType as P
from serrate.kernel import cpp
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
    Launch,
    Let,
    Store,
)
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import compile

K, N, D = symbol("K"), symbol("N"), symbol("D")
c, r, d, i, t, b = map(symbol, "crditb")


def buffer(name: str, size: Scalar | int, dtype: str = "float32", written: bool = False) -> Buffer:
    return Buffer(name, dtype, const(size) if isinstance(size, int) else size, written=written)


def local(name: str, size: int, dtype: str = "float32", memory: Memory = Memory.REGISTER) -> Allocate:
    return Allocate(Buffer(name, dtype, const(size), memory))


def f32(name: str, index: Scalar | int) -> Scalar:
    return load(name, index, "float32")


def run(kernel: Kernel, *arguments: object) -> None:
    compile(cpp.source([kernel])).function(signature(kernel))(*arguments)


def body_of(text: str) -> str:
    return text[text.index('extern "C" void ') :] if 'extern "C" void ' in text else text[text.index("__global__") :]


def ragged(lengths: list[int], offsets_dtype: torch.dtype) -> tuple[torch.Tensor, list[slice]]:
    ends = np.cumsum([0, *lengths])
    return torch.tensor(ends, dtype=offsets_dtype), [slice(a, e) for a, e in pairwise(ends)]


LENGTHS = [3, 0, 17, 1, 0, 0, 64, 5, 0]
start, end = load("offsets", c), load("offsets", c + 1)


# Of the CPU


def row_sum(index: str, offsets: str, width: int = 16) -> Kernel:
    """out[c, d] = sum over r of x[c, r, d]: threads over rows, lanes over features."""
    return Kernel(
        "row_sum",
        (
            buffer("offsets", K + 1, offsets),
            buffer("x", N * width),
            buffer("out", K * width, written=True),
        ),
        (K, N),
        (
            For(c, K, (
                local("total", width),
                For(d, const(width), (Store("total", d, const(0.0, "float32")),), "feature", P.Simd),
                Let(symbol("start"), start),
                For(r, end - symbol("start"), (
                    For(d, const(width), (
                        Store("total", d, f32("total", d) + f32("x", (symbol("start") + r) * width + d)),
                    ), "feature", P.Simd),
                ), "row of component"),
                For(d, const(width), (Store("out", c * width + d, f32("total", d)),), "feature", P.Simd),
            ), "component", P.Thread),
        ),
        index=index,
    )  # fmt: skip


def softmax() -> Kernel:
    """Three phases: the maximum, the sum of exponentials, the result."""
    position, largest, total = start + r, f32("maximum", 0), f32("total", 0)
    shifted = call("exp", f32("x", position) - largest)

    def over_rows(*body: Store, parallel: P = P.Serial) -> For:
        return For(r, end - start, body, "row", parallel)

    return Kernel(
        "softmax",
        (buffer("offsets", K + 1, "int64"), buffer("x", N), buffer("y", N, written=True)),
        (K, N),
        (
            For(c, K, (
                local("maximum", 1),
                local("total", 1),
                Store("maximum", const(0), const(-math.inf, "float32")),
                over_rows(Store("maximum", const(0), maximum(largest, f32("x", position)))),
                Store("total", const(0), const(0.0, "float32")),
                over_rows(Store("total", const(0), total + shifted)),
                over_rows(Store("y", position, shifted / total), parallel=P.Simd),
            ), "component", P.Thread),
        ),
    )  # fmt: skip


# Of a CUDA device


def block_sum(over: tuple[P, ...], block: tuple[int | Scalar, ...], size: int = 1) -> Kernel:
    """out[block, thread, e]: the sum, and the last value, of threads that differ in `over`. Not commutative."""
    threads = [const(n) if isinstance(n, int) else n for n in block]
    x, y, z = symbol("tx"), symbol("ty"), symbol("tz")
    thread = (z * threads[1] + y) * threads[0] + x
    total = threads[0] * threads[1] * threads[2]
    e = symbol("e")
    place = (b * total + thread) * size + e
    names, dtypes = ("sum", "last"), ("float32", "int64")
    left = tuple(symbol(f"left_{name}", dtype) for name, dtype in zip(names, dtypes, strict=True))
    right = tuple(symbol(f"right_{name}", dtype) for name, dtype in zip(names, dtypes, strict=True))
    values = (left[0] + right[0], where(less(right[1], 0), left[1], right[1]))
    inner = (
        local("sum", size),
        local("last", size, "int64"),
        For(e, const(size), (
            Store("sum", e, f32("x", place)), Store("last", e, load("z", place, "int64")),
        ), "e", P.Unroll),
        BlockReduce(names, size, over, CombineRule(left, right, values)),
        For(e, const(size), (
            Store("sums", place, f32("sum", e)), Store("lasts", place, load("last", e, "int64")),
        ), "e", P.Unroll),
    )  # fmt: skip
    body = For(b, K, (For(z, threads[2], (For(y, threads[1], (For(x, threads[0], inner, "x", P.TIDx),), "y", P.TIDy),),
                          "z", P.TIDz),), "block", P.BIDx)  # fmt: skip
    count = K * total * size
    return Kernel(
        "block_sum",
        (
            buffer("x", count), buffer("z", count, "int64"),
            buffer("sums", count, written=True), buffer("lasts", count, "int64", written=True),
        ),
        (K, *(n for n in block if isinstance(n, Scalar))),
        (body,),
        Launch((K, const(1), const(1)), (threads[0], threads[1], threads[2])),
    )  # fmt: skip


def grid_sum(size: int = 1) -> Kernel:
    """out[by, e, t] = sum over blocks bx of x[by, bx, e, t], by 64 threads."""
    e, by = symbol("e"), symbol("by")
    left, right = symbol("left", "float32"), symbol("right", "float32")
    inner = (
        local("total", size),
        For(e, const(size), (Store("total", e, f32("x", ((by * K + b) * size + e) * 64 + t)),), "e"),
        GridReduce(
            ("total",), size, (P.BIDx,), CombineRule((left,), (right,), (left + right,)), ("space",), "counter",
            (For(e, const(size), (Store("out", (by * size + e) * 64 + t, f32("total", e)),), "e"),),
        ),
    )  # fmt: skip
    body = For(by, D, (For(b, K, (For(t, const(64), inner, "thread", P.TIDx),), "chunk", P.BIDx),), "row", P.BIDy)
    return Kernel(
        "grid_sum",
        (
            buffer("x", K * D * 64 * size), buffer("space", K * D * 64 * size, written=True),
            buffer("counter", D, "int32", written=True), buffer("out", D * 64 * size, written=True),
        ),
        (K, D),
        (body,),
        Launch((K, D, const(1)), (const(64), const(1), const(1))),
    )  # fmt: skip


def softmax_by_blocks(dtype: str, index: str) -> Kernel:
    """A block per component; the threads walk its rows in steps of 128 and combine the online softmax."""
    big, total, step = f32("big", 0), f32("total", 0), symbol("step")
    row = step * 128 + t
    value = cast(load("x", start + row, dtype), "float32")
    names = [symbol(name, "float32") for name in ("m0", "s0", "m1", "s1")]
    m = maximum(names[0], names[2])
    rescaled = [
        s * where(equal(v, m), const(1.0, "float32"), call("exp", v - m))
        for v, s in ((names[0], names[1]), (names[2], names[3]))
    ]
    rule = CombineRule((names[0], names[1]), (names[2], names[3]), (m, rescaled[0] + rescaled[1]))
    larger = symbol("larger", "float32")

    def rows(*body: Let | Store) -> For:
        return For(step, ceildiv(end - start, 128), (If(less(row, end - start), body),), "step of rows")

    inner = (
        local("big", 1),
        local("total", 1),
        Store("big", const(0), const(-math.inf, "float32")),
        Store("total", const(0), const(0.0, "float32")),
        rows(
            Let(larger, maximum(big, value)),
            Store("total", const(0), where(equal(larger, big), total, total * call("exp", big - larger))
                  + call("exp", value - larger)),
            Store("big", const(0), larger),
        ),
        BlockReduce(("big", "total"), 1, (P.TIDx,), rule),
        rows(Store("y", start + row, cast(call("exp", value - big) / total, dtype))),
    )  # fmt: skip
    return Kernel(
        "softmax",
        (buffer("offsets", K + 1, "int64"), buffer("x", N, dtype), buffer("y", N, dtype, written=True)),
        (K, N),
        (For(c, K, (For(t, const(128), inner, "row", P.TIDx),), "component", P.BIDx),),
        Launch((K, const(1), const(1)), (const(128), const(1), const(1))),
        index,
    )


def reversed_in_shared_memory() -> Kernel:
    """y = x with every 64 elements reversed, through shared memory; two loops over threads, one after the other."""
    body = (
        local("tile", 64, memory=Memory.SHARED),
        For(t, const(64), (Store("tile", t, f32("x", b * 64 + t)),), "thread", P.TIDx),
        Barrier(),
        For(t, const(64), (Store("y", b * 64 + t, f32("tile", 63 - t)),), "thread", P.TIDx),
    )
    return Kernel(
        "flip",
        (buffer("x", K * 64), buffer("y", K * 64, written=True)),
        (K,),
        (For(b, K, body, "tile", P.BIDx),),
        Launch((K, const(1), const(1)), (const(64), const(1), const(1))),
    )


CUDA_KERNELS = {
    "shuffles": block_sum((P.TIDx,), (128, 2, 1)),
    "shuffles of part of a warp": block_sum((P.TIDx,), (8, 8, 1), size=3),
    "shuffles of two dimensions": block_sum((P.TIDx, P.TIDy), (8, 16, 2)),
    "shared memory": block_sum((P.TIDy,), (32, 5, 1), size=2),
    "any block": block_sum((P.TIDx, P.TIDz), (symbol("bx"), symbol("by"), symbol("bz"))),
    "grid": grid_sum(),
    "grid, several elements": grid_sum(3),
    "softmax": softmax_by_blocks("float32", "int64"),
    "softmax in half": softmax_by_blocks("float16", "int32"),
    "softmax in bfloat16": softmax_by_blocks("bfloat16", "int64"),
    "flip": reversed_in_shared_memory(),
}
