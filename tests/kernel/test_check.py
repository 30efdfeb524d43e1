"""The checking interpreter on right kernels: it gives what numpy and torch give."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch
from tests.kernel.check_kernels import (
    LENGTHS,
    OFFSETS,
    ONE,
    ROWS_OF_FOUR,
    SIZES,
    F,
    P,
    acc,
    block_sum,
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
    right,
    row_sums,
    t,
    tiles,
    transpose,
    x_of,
)

from serrate.fusion.scalar import (
    add,
    both,
    call,
    cast,
    const,
    either,
    equal,
    less,
    less_equal,
    load,
    logical_not,
    make,
    maximum,
    multiply,
    symbol,
    where,
)
from serrate.kernel.check import Violation, run
from serrate.kernel.ir import BlockReduce, Buffer, CombineRule, For, If, Kernel, Let, Store


@pytest.mark.parametrize("parallel", [P.Serial, P.Unroll, P.Thread, P.Simd, P.Vectorize])
def test_copy(parallel):
    x = numbers(10)
    np.testing.assert_equal(outputs(copy(parallel=parallel), x=x)["y"], x)


def test_guarded_copy():
    x = numbers(10)
    np.testing.assert_equal(outputs(guarded_copy(), x=x)["y"], x)


def test_more_threads_than_an_extent():
    inner = For(i, const(3), (If(less(i, 3), (Store("y", i, x_of(i)),)),), "i", P.TIDx)
    other = For(j, const(5), (Store("w", j, x_of(j)),), "j", P.TIDx)
    result = outputs(kernel(inner, other, launch=launch(1, 5), x=5, y=3, w=5), x=numbers(5))
    np.testing.assert_equal(result, {"y": numbers(5)[:3], "w": numbers(5)})


def test_row_sums():
    x = numbers(16)
    expected = [x[a:z].sum() for a, z in itertools.pairwise(OFFSETS)]
    result = run(row_sums(), {"x": x, "offsets": OFFSETS}, SIZES | {"n": 16})
    np.testing.assert_equal(result["y"], np.array(expected, np.float32))


def test_tiles():
    x = numbers(16)
    expected = x * np.repeat(np.arange(6), LENGTHS).astype(np.float32)
    np.testing.assert_equal(run(tiles(), {"x": x, "offsets": OFFSETS}, SIZES | {"n": 16})["y"], expected)


def test_block_sum():
    x = numbers(24)
    np.testing.assert_equal(outputs(block_sum(), x=x)["y"], x.reshape(3, 8).sum(1))


def test_reductions_combine_in_the_order_of_indices():
    # The last of the threads that have a number: the order shows.
    last = CombineRule((left,), (right,), (where(call("isnan", right), left, right),))
    x = np.array([1, np.nan, 3, np.nan, 5, 6, np.nan, np.nan] + [7] + [np.nan] * 7 + [np.nan] * 7 + [8], np.float32)
    reduction = BlockReduce(("acc",), 1, (P.TIDx,), last)
    np.testing.assert_equal(outputs(block_sum((reduction,)), x=x)["y"], np.array([6, 7, 8], np.float32))


def test_states_of_several_components_and_elements():
    """Sum and maximum of two columns at once, over 2 × 4 threads."""
    other = (symbol("left_max", F), symbol("right_max", F))
    rule = CombineRule((left, other[0]), (right, other[1]), (left + right, maximum(*other)))
    position = (j * 4 + t) * 2
    stores = [Store(name, const(e), x_of(position + e)) for name in ("sums", "maxima") for e in range(2)]
    results = [
        Store("y", const(2 * k + e), acc(e, name)) for k, name in enumerate(("sums", "maxima")) for e in range(2)
    ]
    body = (
        register("sums", 2),
        register("maxima", 2),
        *stores,
        BlockReduce(("sums", "maxima"), 2, (P.TIDx, P.TIDy), rule),
        If(both(equal(t, 3), equal(j, 1)), tuple(results)),
    )
    loops = For(j, const(2), (For(t, const(4), body, "t", P.TIDx),), "j", P.TIDy)
    x = numbers(16)
    expected = np.concatenate([x.reshape(8, 2).sum(0), x.reshape(8, 2).max(0)])
    np.testing.assert_equal(outputs(kernel(loops, launch=launch(1, 4, 2), x=16, y=4), x=x)["y"], expected)


def test_grid_sum():
    x = numbers(30)
    result = outputs(grid_sum(), x=x, count=np.zeros(2, np.int32))
    np.testing.assert_equal(result["y"], x.reshape(2, 5, 3).sum(1).ravel())
    np.testing.assert_equal(result["count"], np.zeros(2, np.int32))


@pytest.mark.parametrize("again", [False, True])
def test_transpose(again):
    x = numbers(16)
    np.testing.assert_equal(outputs(transpose(again=again), x=x)["y"], x.reshape(4, 4).T.ravel())


def test_over_allocated_output():
    x = numbers(6)
    expected = np.full((2, 4), -1, np.float32)
    expected[:, :3] = x.reshape(2, 3)
    result = run(filled(True), {"x": x}, SIZES, valid={"y": ROWS_OF_FOUR}, fill={"y": -1.0})
    np.testing.assert_equal(result["y"], expected.ravel())
    result = run(filled(False), {"x": x}, SIZES, valid={"y": ROWS_OF_FOUR})
    np.testing.assert_equal(result["y"][ROWS_OF_FOUR], x)


def pointwise(dtype: str, function: str) -> Kernel:
    value = call(function, load("x", i, dtype))
    buffers = (Buffer("x", dtype, n), Buffer("y", dtype, n, written=True))
    return Kernel("f", buffers, (n,), (For(i, n, (Store("y", i, value),), "i"),))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("function", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil"])
def test_functions(function, dtype):
    numbers = torch.tensor([0.3, 2.7, 1e-3, 0.0, -1.5, torch.inf, torch.nan], dtype=getattr(torch, dtype))
    expected = getattr(torch, function)(numbers)
    array = (numbers.float() if dtype == "bfloat16" else numbers).numpy()
    result = torch.from_numpy(run(pointwise(dtype, function), {"x": array}, {"n": 7})["y"])
    tolerance = 2 * torch.finfo(expected.dtype).eps
    torch.testing.assert_close(result.to(expected.dtype), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_bfloat16_is_rounded_as_torch_does():
    bits = np.random.default_rng(0).integers(0, 2**32, 2000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF], np.uint32).view("f4")])
    buffers = (Buffer("x", F, n), Buffer("y", "bfloat16", n, written=True))
    made = Kernel("f", buffers, (n,), (For(i, n, (Store("y", i, x_of(i)),), "i"),))
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    np.testing.assert_equal(run(made, {"x": x}, {"n": len(x)})["y"], expected)


def test_integers_wrap():
    a = np.array([2**31 - 1, -7], np.int32)
    x, y = load("a", 0, "int32"), load("a", 1, "int32")
    assert one_value(x + x, a=a) == -2
    assert one_value(y // const(2, "int32"), a=a) == -4
    assert one_value(y % const(2, "int32"), a=a) == 1
    assert one_value(cast(x, "int8"), a=a) == -1
    assert one_value(cast(const(2.75) + const(0.0), "int32")) == 2


def test_euclidean_division():
    for a in range(-7, 8):
        for d in (3, 1, -3):
            given = np.array([a, d])
            quotient, rest = (make(op, (load("a", 0), load("a", 1))) for op in ("index_divide", "index_remainder"))
            if a < 0 and d < 0:
                with pytest.raises(Violation, match="negative"):
                    one_value(quotient, a=given)
            else:
                q, m = one_value(quotient, a=given), one_value(rest, a=given)
                assert (q * d + m, 0 <= m < abs(d)) == (a, True)


def test_maximum_propagates_nan():
    a = np.array([1, np.nan], np.float32)
    for first, second in [(0, 1), (1, 0)]:
        assert np.isnan(one_value(maximum(load("a", first, F), load("a", second, F)), a=a))


def test_only_what_is_needed_is_evaluated():
    a = np.array([5, 7])
    bad, good = load("a", n), load("a", ONE)
    assert one_value(where(less(n, 2), bad * bad + bad, good * good + good), a=a) == 56
    assert one_value(where(less(n, 2), good * good, const(0)) + good, a=a) == 7
    assert not one_value(both(less(n, 2), less(bad * bad, bad)), a=a)
    assert one_value(either(less_equal(ONE, n), less(bad * bad, bad)), a=a)
    with pytest.raises(Violation, match="out of bounds"):
        one_value(both(logical_not(less(n, 2)), less(bad * bad, bad)), a=a)


def test_deep_and_shared_expressions():
    value = load("a", 0, "float64")
    for _ in range(60):  # 2⁶⁰ terms, were it a tree
        value = add(value, multiply(value, value)) / add(value, const(1.0))  # = value
    assert one_value(value, a=np.array([0.5])) == pytest.approx(0.5)
    for _ in range(300):
        value = add(value, const(1.0))
    assert one_value(value, a=np.array([0.5])) == pytest.approx(300.5)


def test_inner_names_hide_outer_ones():
    body = (
        Let(j, i * 2),
        For(i, const(2), (Let(j, i + 100), If(less(j, 0), (Store("y", j, x_of(j)),))), "i"),
        Store("y", j, x_of(i)),
        Store("y", j + 1, x_of(i)),
    )
    np.testing.assert_equal(
        outputs(kernel(For(i, const(3), body, "i"), x=3, y=6), x=numbers(3))["y"], numbers(3).repeat(2)
    )


def test_registers_in_lanes():
    """Each lane has its own accumulator, and what is allocated in the loop is of one lane."""
    inside = (
        register("own"),
        Store("own", const(0), x_of(i * 4 + j)),
        Store("acc", j, acc(j) + acc(0, "own")),
    )
    zero = For(j, const(4), (Store("acc", j, const(0.0, F)),), "j", P.Simd)
    step = For(i, const(3), (For(j, const(4), inside, "j", P.Simd),), "i")
    last = For(j, const(4), (Store("y", j, acc(j)),), "j")
    result = outputs(kernel(register("acc", 4), zero, step, last, x=12, y=4), x=numbers(12))
    np.testing.assert_equal(result["y"], numbers(12).reshape(3, 4).sum(0))


def test_speed():
    """500 iterations with 4 loads, well below 10 ms."""
    value = x_of(i) + x_of(n - i - 1) * x_of(i // 2) + x_of(i % 7)
    x = numbers(500)
    run(copy(value=value), {"x": x}, SIZES | {"n": 500})
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run(copy(value=value), {"x": x}, SIZES | {"n": 500})
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01
