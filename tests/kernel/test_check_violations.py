"""The checking interpreter on kernels that break a rule: it names the rule and the place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernel.check_kernels import (
    OFFSETS,
    ONE,
    ROWS_OF_FOUR,
    SIZES,
    SUM,
    D,
    F,
    P,
    acc,
    b,
    block_sum,
    c,
    copy,
    filled,
    grid_sum,
    guarded_copy,
    i,
    j,
    kernel,
    launch,
    left,
    n,
    numbers,
    one_value,
    outputs,
    register,
    row_sums,
    t,
    tiles,
    transpose,
    violation,
    x_of,
)

from serrate.fusion.scalar import Scalar, cast, const, equal, less, less_equal, load, search
from serrate.fusion.types import Memory
from serrate.kernel.check import Violation, run
from serrate.kernel.ir import Barrier, BlockReduce, For, If, Kernel, Let, Statement, Store


def test_message_says_where():
    message = violation(guarded_copy(const(True)), "out of bounds", x=numbers(10))
    assert "x[10] of 10" in message
    assert "y[i] = x[i]" in message
    assert "block (2, 0, 0), thread (2, 0, 0)" in message
    assert "b = 2, t = 2, i = 10" in message


def test_bounds():
    x = numbers(10)
    violation(copy(n + 1), r"out of bounds: x\[10\] of 10", x=x)
    violation(copy(store=i + 1), r"out of bounds: y\[10\]", x=x)
    violation(copy(value=x_of(i - 1)), r"out of bounds: x\[-1\]", x=x)
    violation(row_sums(component=c + 1), r"out of bounds: offsets\[7\] of 7", x=x, offsets=OFFSETS * 0)
    violation(kernel(register(), Store("acc", n, const(0.0, F)), y=0), r"out of bounds: acc\[10\] of 1")
    violation(kernel(register(), Store("y", const(0), acc(n)), y=1), r"out of bounds: acc\[10\] of 1")


def test_row_end_is_not_protected_by_the_total():
    arrays = {"x": numbers(16), "offsets": OFFSETS}
    with pytest.raises(Violation, match=r"out of bounds: x\[16\]"):
        run(row_sums(extra=1), arrays, SIZES | {"n": 16})


def test_stored_twice_or_never():
    x = numbers(10)
    twice = kernel(For(i, n, (Store("y", i, x_of(i)), Store("y", i, x_of(i))), "i"), x=n, y=n)
    violation(twice, r"y\[0\] is stored twice", x=x)
    violation(copy(n - 1), r"y\[9\] is an element that was never stored", x=x)
    violation(copy(store=i // 2), r"y\[0\] is stored twice", x=x)
    violation(guarded_copy(less(i, n - 1)), r"y\[9\] is an element that was never stored", x=x)


def test_load_of_never_stored():
    violation(row_sums(init=False), r"load of acc\[0\], which was never stored", x=numbers(10), offsets=OFFSETS)
    violation(copy(value=load("y", i, F)), r"load of y\[0\], which was never stored", x=numbers(10))
    violation(transpose(False), r"load of tile\[\d+\], which was never stored", x=numbers(16))
    reduction = BlockReduce(("acc",), 1, (P.TIDx,), SUM)
    violation(kernel(register(), reduction, y=0), r"load of acc\[0\], which was never stored")


def test_allocation_forgets():
    body = (
        register(),
        If(equal(i, 0), (Store("acc", const(0), const(1.0, F)),)),
        Store("y", i, acc()),
    )
    shared = (register(memory=Memory.SHARED), *body[1:])
    for statements in (body, shared):
        violation(kernel(For(i, const(2), statements, "i"), y=2), "never stored")


def test_missing_barrier():
    violation(transpose(False, again=True), r"race between two threads of a block on tile\[", x=numbers(16))


def test_missing_barrier_between_iterations():
    def made(*end: Statement) -> Kernel:
        body = (
            register("tile", 4, memory=Memory.SHARED),
            Store("tile", t, x_of(i * 4 + t)),
            Barrier(),
            Store("y", i * 4 + t, load("tile", const(3) - t, F)),
            *end,
        )
        loop = For(t, const(4), (For(i, const(2), body, "i"),), "t", P.TIDx)
        return kernel(loop, launch=launch(1, 4), x=8, y=8)

    x = numbers(8)
    np.testing.assert_equal(outputs(made(Barrier()), x=x)["y"], x.reshape(2, 4)[:, ::-1].ravel())
    violation(made(), r"race between two threads of a block on tile\[", x=x)


def test_block_reduce_is_no_barrier():
    broken = transpose(False, again=True)
    loop = broken.body[0]
    inner = loop.body[0]
    reduction = (register(), Store("acc", const(0), const(0.0, F)), BlockReduce(("acc",), 1, (P.TIDx,), SUM))
    body = (*inner.body[:4], *reduction, *inner.body[4:])
    broken = replace(broken, body=(replace(loop, body=(replace(inner, body=body),)),))
    violation(broken, "race between two threads", x=numbers(16))


def test_barrier_not_reached_by_all():
    some = block_sum((If(less(t, 7), (Barrier(),)),))
    message = violation(some, r"a barrier not reached by all threads: thread \(7, 0, 0\)", x=numbers(24))
    assert "at: barrier" in message
    either_way = block_sum((If(less(t, 7), (Barrier(),)), If(less_equal(const(7), t), (Barrier(),))))
    violation(either_way, "a barrier not reached by all threads", x=numbers(24))
    reduction = BlockReduce(("acc",), 1, (P.TIDx,), SUM)
    violation(block_sum((If(less(j, 2), (reduction,)),)), "a barrier not reached by all threads", x=numbers(24))
    violation(kernel(For(i, n, (Barrier(),), "i", P.Thread), y=0), "a barrier or a reduction inside a loop")


def test_races_between_blocks():
    def made(value: Scalar) -> Kernel:
        loop = For(b, n, (Store("y", b, value),), "b", P.BIDx)
        return kernel(loop, launch=launch(n), y=n)

    # Whichever of two blocks comes first: the buffer holds something before.
    for seed in range(4):
        with pytest.raises(Violation, match=r"race between two blocks on y\["):
            run(made(load("y", n - b - 1, F)), {"y": numbers(10)}, SIZES, seed=seed)
    np.testing.assert_equal(outputs(made(load("y", b, F) + load("y", b, F)), y=numbers(10))["y"], numbers(10) * 2)
    everywhere = kernel(For(b, n, (Store("y", const(0), x_of(b)),), "b", P.BIDx), launch=launch(n), x=n, y=1)
    violation(everywhere, r"race between two blocks on y\[0\]", x=numbers(10))


def test_races_between_threads_on_global_memory():
    body = For(t, const(4), (Store("y", t, load("y", const(3) - t, F)),), "t", P.TIDx)
    violation(kernel(body, launch=launch(1, 4), y=4), r"race between two threads of a block on y\[", y=numbers(4))


def test_race_with_an_early_reader():
    """A store by a second strand, after both have loaded."""
    store = If(equal(t, 1), (Store("y", const(0), const(0.0, F)),))
    body = For(t, const(2), (Let(left, load("y", const(0), F)), store), "t", P.TIDx)
    violation(kernel(body, launch=launch(1, 2), y=1), r"race .* on y\[0\]: 0 loads and 1 stores", y=numbers(1))


@pytest.mark.parametrize("parallel", [P.Thread, P.Simd, P.Vectorize])
def test_races_between_iterations(parallel):
    message = r"race between two iterations of a parallel loop on"
    x = numbers(10)
    violation(copy(store=const(0), parallel=parallel), message + r" y\[0\]", x=x)
    step = For(i, n, (Store("acc", const(0), acc() + x_of(i)),), "i", parallel)
    body = (register(), Store("acc", const(0), const(0.0, F)), step, Store("y", const(0), acc()))
    violation(kernel(*body, x=n, y=1), message + r" acc\[0\]", x=x)
    # Inside another loop over lanes, the iterations of the outer one still race.
    step = For(i, n, (For(j, const(1), (Store("acc", j, x_of(i)),), "j", P.Simd),), "i", parallel)
    violation(kernel(register(), step, x=n, y=0), message + r" acc\[0\]", x=x)


def test_iterations_of_serial_loops_do_not_race():
    inside = (For(j, const(2), (Store("acc", j, x_of(i)),), "j", P.Simd),)
    body = (register("acc", 2), For(i, n, inside, "i"), Store("y", const(0), acc(1)))
    assert outputs(kernel(*body, x=n, y=1), x=numbers(10))["y"] == numbers(10)[-1]


def test_holes():
    arrays, valid = {"x": numbers(6)}, {"y": ROWS_OF_FOUR}
    with pytest.raises(Violation, match=r"store to the hole y\[3\], for which no fill was asked"):
        run(filled(True), arrays, SIZES, valid=valid)
    with pytest.raises(Violation, match=r"fill missing: the hole y\[3\] holds None, not -1.0"):
        run(filled(False), arrays, SIZES, valid=valid, fill={"y": -1.0})
    with pytest.raises(Violation, match=r"fill missing: the hole y\[3\] holds -1.0, not 0.0"):
        run(filled(True), arrays, SIZES, valid=valid, fill={"y": 0.0})
    with pytest.raises(Violation, match=r"y\[3\] is an element that was never stored"):
        run(filled(False), arrays, SIZES)


def test_division_by_zero():
    for divide in (i // (n - 10), i % (n - 10)):
        violation(copy(value=x_of(divide)), "division by zero", x=numbers(10))


def test_search_out_of_range():
    arrays = {"x": numbers(17), "offsets": OFFSETS}
    with pytest.raises(Violation, match="search out of range: position 16 in offsets of 6 components"):
        run(tiles(past_the_end=1), arrays, SIZES | {"n": 17})
    with pytest.raises(Violation, match=r"out of bounds: offsets\[6\] of 6"):
        one_value(search("offsets", const(6), const(3)), offsets=OFFSETS[:6])
    with pytest.raises(Violation, match="search out of range: position -1"):
        one_value(search("offsets", const(6), const(-1)), offsets=OFFSETS)


def test_index_overflow():
    value = x_of((i * D * 2**29) // D // 2**29)
    wide = copy(value=value)
    np.testing.assert_equal(outputs(wide, x=numbers(10))["y"], numbers(10))
    violation(replace(wide, index="int32"), "overflow: 2147483648 does not fit", x=numbers(10))
    with pytest.raises(Violation, match="overflow: the size K"):
        run(replace(copy(), index="int32"), {"x": numbers(10)}, SIZES | {"K": 2**31})
    # An offset that was loaded.
    loaded = replace(kernel(Store("y", const(0), cast(load("offsets", 0), F)), offsets=1, y=1), index="int32")
    violation(loaded, "overflow", offsets=np.array([2**31]))


def test_loop_larger_than_the_launch():
    violation(replace(guarded_copy(), launch=launch(2, 4)), "extent 3, the launch only 2", x=numbers(10))
    violation(replace(guarded_copy(), launch=launch(3, 3)), "extent 4, the launch only 3", x=numbers(10))


def test_grid_reduction_rules():
    x, zeros = numbers(30), np.zeros(2, np.int32)
    violation(grid_sum(less(b, 4)), "a grid reduction not reached by all blocks", x=x, count=zeros)
    violation(grid_sum(less(t, 2)), "a barrier not reached by all threads", x=x, count=zeros)
    violation(grid_sum(workspace=29), r"out of bounds: w\[29\] of 29", x=x, count=zeros)
    violation(grid_sum(), r"the counter count\[\d\] holds 1 after 0", x=x, count=zeros + np.int32(1))
    violation(grid_sum(), r"the counter count\[\d\] holds None", x=x)


def test_names():
    violation(copy(value=x_of(j)), "nothing binds index j", x=numbers(10))
    violation(kernel(Store("x", const(0), const(0.0, F)), x=1, y=0), "store to x", x=numbers(1))
    violation(kernel(Store("z", const(0), const(0.0, F)), y=0), "no buffer z")
    leaves = kernel(If(less(i, 0), (Let(j, i),)), y=0)
    violation(replace(leaves, body=(For(i, ONE, (*leaves.body, Store("y", j, const(0.0, F))), "i"),)), "nothing binds")
