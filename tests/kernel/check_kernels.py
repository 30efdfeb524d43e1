"""Kernels written by hand, each with the parameters that its mutants differ in."""

from __future__ import annotations

import numpy as np
import pytest

from serrate.fusion.scalar import Scalar, cast, ceildiv, const, equal, less, load, search, symbol, where
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel.check import Violation, run
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
    Statement,
    Store,
)

P = ParallelType
F = "float32"
ONE = const(1)
i, j, b, t, c, r, n, K, D = map(symbol, ("i", "j", "b", "t", "c", "r", "n", "K", "D"))
left, right = symbol("left", F), symbol("right", F)
SUM = CombineRule((left,), (right,), (left + right,))
LENGTHS = [3, 0, 5, 1, 0, 7]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64)


def x_of(index: Scalar) -> Scalar:
    return load("x", index, F)


def acc(index: Scalar | int = 0, name: str = "acc") -> Scalar:
    return load(name, index, F)


def numbers(count: int) -> np.ndarray:
    """Small integers, on which float32 sums are exact in any order."""
    return np.random.default_rng(count).integers(-9, 9, count).astype(np.float32)


def launch(grid: Scalar | int = 1, block: Scalar | int = 1, block_y: int = 1, grid_y: int = 1) -> Launch:
    grid, block = (const(d) if isinstance(d, int) else d for d in (grid, block))
    return Launch((grid, const(grid_y), ONE), (block, const(block_y), ONE))


def kernel(*body: Statement, launch: Launch = launch(), **sizes: Scalar | int) -> Kernel:  # noqa: B008
    """A kernel of a float32 input x and output y; those named offsets or count are integers, w is a workspace."""
    dtypes = {"offsets": "int64", "count": "int32"}
    buffers = tuple(
        Buffer(name, dtypes.get(name, F), const(size) if isinstance(size, int) else size, written=name in "ywcount")
        for name, size in sizes.items()
    )
    return Kernel("test", buffers, (n, K, D), body, launch)


def register(name: str = "acc", size: int = 1, dtype: str = F, memory: Memory = Memory.REGISTER) -> Allocate:
    return Allocate(Buffer(name, dtype, const(size), memory))


SIZES = {"n": 10, "K": len(LENGTHS), "D": 4}


def outputs(kernel: Kernel, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The results, which must be the same in several orders of the blocks."""
    results = [run(kernel, arrays, SIZES, seed=seed) for seed in range(4)]
    for result in results[1:]:
        np.testing.assert_equal(result, results[0])
    return results[0]


def violation(kernel: Kernel, message: str, **arrays: np.ndarray) -> str:
    with pytest.raises(Violation, match=message) as caught:
        run(kernel, arrays, SIZES)
    return str(caught.value)


def copy(bound: Scalar | int = n, store: Scalar = i, value: Scalar = x_of(i), parallel: P = P.Serial) -> Kernel:  # noqa: B008
    bound = const(bound) if isinstance(bound, int) else bound
    return kernel(For(i, bound, (Store("y", store, value),), "i", parallel), x=n, y=n)


def guarded_copy(condition: Scalar = less(b * 4 + t, n)) -> Kernel:  # noqa: B008
    """By blocks of 4, of which the last is not full."""
    body = (Let(i, b * 4 + t), If(condition, (Store("y", i, x_of(i)),)))
    threads = For(t, const(4), body, "t", P.TIDx)
    return kernel(For(b, ceildiv(n, 4), (threads,), "b", P.BIDx), launch=launch(ceildiv(n, 4), 4), x=n, y=n)


def row_sums(extra: int = 0, init: bool = True, component: Scalar = c) -> Kernel:
    """y[c] = the sum of row c, a block per component."""
    start = load("offsets", component)
    step = Store("acc", const(0), acc() + x_of(start + r))
    body = (
        register(),
        *([Store("acc", const(0), const(0.0, F))] if init else []),
        For(r, load("offsets", component + 1) - start + extra, (step,), "r"),
        Store("y", c, acc()),
    )
    return kernel(For(c, K, body, "c", P.BIDx), launch=launch(K), x=n, offsets=K + 1, y=K)


def tiles(past_the_end: int = 0) -> Kernel:
    """y = x times its component, by flat tiles of 4 that search for it."""
    body = (
        Let(i, b * 4 + t),
        If(
            less(i, load("offsets", K) + past_the_end),
            (Let(c, search("offsets", K, i)), Store("y", i, x_of(i) * cast(c, F))),
        ),
    )
    loops = For(b, ceildiv(n, 4), (For(t, const(4), body, "t"),), "b", P.BIDx)
    return kernel(loops, launch=launch(ceildiv(n, 4)), x=n, offsets=K + 1, y=n)


def block_sum(reduction: tuple[Statement, ...] = (BlockReduce(("acc",), 1, (P.TIDx,), SUM),)) -> Kernel:
    """y[j] = Σ_t x[j, t] over 8 threads, for 3 rows of threads; thread 0 of each row stores."""
    body = (
        register(),
        Store("acc", const(0), x_of(j * 8 + t)),
        *reduction,
        If(equal(t, 0), (Store("y", j, acc()),)),
    )
    inner = For(t, const(8), body, "t", P.TIDx)
    return kernel(For(j, const(3), (inner,), "j", P.TIDy), launch=launch(1, 8, 3), x=24, y=3)


def grid_sum(who: Scalar | None = None, workspace: int = 5 * 2 * 3) -> Kernel:
    """y[j, t] = Σ_b x[j, b, t] over 5 blocks along x, 2 groups along y, 3 threads."""
    reduction = GridReduce(("acc",), 1, (P.BIDx,), SUM, ("w",), "count", (Store("y", j * 3 + t, acc()),))
    body: tuple[Statement, ...] = (register(), Store("acc", const(0), x_of((j * 5 + b) * 3 + t)), reduction)
    if who is not None:
        body = (*body[:2], If(who, (reduction,)))
    loop: Statement = For(t, const(3), body, "t", P.TIDx)
    loop = For(j, const(2), (For(b, const(5), (loop,), "b", P.BIDx),), "j", P.BIDy)
    return kernel(loop, launch=launch(5, 3, 1, 2), x=30, w=workspace, count=2, y=6)


def transpose(synchronize: bool = True, again: bool = False) -> Kernel:
    """A 4 × 4 matrix through shared memory."""
    barrier = [Barrier()] if synchronize else []
    body = (
        register("tile", 16, memory=Memory.SHARED),
        *([Store("tile", j * 4 + t, const(0.0, F)), Barrier()] if again else []),
        Store("tile", j * 4 + t, x_of(j * 4 + t)),
        *barrier,
        Store("y", j * 4 + t, load("tile", t * 4 + j, F)),
    )
    loops = For(j, const(4), (For(t, const(4), body, "t", P.TIDx),), "j", P.TIDy)
    return kernel(loops, launch=launch(1, 4, 4), x=16, y=16)


def filled(holes: bool) -> Kernel:
    """Rows of 3 elements in space for 4, of which the last is filled with -1 or left alone."""
    store = Store("y", i * 4 + j, where(less(j, 3), x_of(i * 3 + j), const(-1.0, F)))
    return kernel(For(i, const(2), (For(j, const(4 if holes else 3), (store,), "j"),), "i"), x=6, y=8)


ROWS_OF_FOUR = np.array([True, True, True, False] * 2)


def one_value(value: Scalar, **arrays: np.ndarray) -> np.ndarray:
    buffers = tuple(Buffer(name, str(array.dtype), const(len(array))) for name, array in arrays.items())
    output = Buffer("y", value.dtype, ONE, written=True)
    made = Kernel("f", (*buffers, output), (n,), (Store("y", const(0), value),))
    return run(made, arrays, {"n": 10})["y"][0]
