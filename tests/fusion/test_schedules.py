"""Every scheduling method: the same values before and after, in the checking interpreter and compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.kernel.harness import as_numpy, check, valid_positions

import serrate as sr
from serrate.errors import ScheduleError
from serrate.fusion import (
    Fusion,
    IterDomain,
    Memory,
    ParallelType,
    RaggedIterDomain,
    TensorView,
    const,
    inject_offsets,
    symbol,
)
from serrate.fusion.evaluate import bind
from serrate.fusion.raggedness import Listed
from serrate.fusion.scalar import evaluate
from serrate.kernel import Lowered, cpp, lower
from serrate.kernel.check import Violation, run
from serrate.kernel.ir import For, If, walk
from serrate.runtime.compiler import Library, compile

P = ParallelType
LENGTHS = [3, 0, 4, 1]
OFFSETS = torch.tensor([0, *itertools.accumulate(LENGTHS)])


def some(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def nested(fusion: Fusion, *features: int, exact: bool = True) -> TensorView:
    """An input [n, *features] as [k, r, *features]."""
    data = fusion.input("x", ["n", *features])
    return fusion.view_as_nested(data, fusion.input("offsets", [symbol("k") + 1], "int64"), exact=exact)


# Programs, with what they mean in plain torch

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


# Schedules: (program, what is done to its output, target)

Schedule = Callable[[TensorView], TensorView | None]
SCHEDULES: dict[str, tuple[Callable[[], Program], Schedule, str]] = {}


def on(program: Callable[[], Program], target: str = "cpp", **schedules: Schedule) -> None:
    for name, schedule in schedules.items():
        key = f"{program.__name__}: {name} ({target})"
        assert key not in SCHEDULES
        SCHEDULES[key] = (program, schedule, target)


def blocks(y: TensorView, *types: ParallelType) -> TensorView:
    """The first loops run so."""
    for at, parallel_type in enumerate(types):
        y.parallelize(at, parallel_type)
    return y


def keep_exponentials(y: TensorView, memory: Memory) -> TensorView:
    next(t for t in y.fusion.tensors if str(t.definition).startswith("exp")).set_memory_type(memory)
    return y


def keep_in_output(y: TensorView) -> TensorView:
    next(t for t in y.fusion.tensors if str(t.definition).startswith("exp")).keep_in(y)
    return y


def cached(y: TensorView, name: str, method: str, memory: Memory = Memory.REGISTER) -> TensorView:
    """cache_before or cache_after of the first tensor that a named operation computes."""
    tensor = next(t for t in y.fusion.tensors if t.definition is not None and t.definition.name == name)
    getattr(tensor, method)(memory)
    return y


on(
    flat,
    as_it_is=lambda y: y,
    split=lambda y: y.split(0, 4),
    indivisible_split=lambda y: y.split(0, 7),
    outer_split=lambda y: y.split(0, 4, inner_split=False),
    indivisible_outer_split=lambda y: y.split(0, 7, inner_split=False),
    split_by_more_than_there_is=lambda y: y.split(0, 100),
    split_of_both_parts=lambda y: y.split(0, 7).split(0, 3).split(2, 4),
    split_of_both_parts_outer=lambda y: y.split(0, 7, False).split(0, 3, False).split(2, 4, False),
    split_and_merge=lambda y: y.split(0, 7).merge(0),
    split_and_merge_swapped=lambda y: y.split(0, 7).merge(1, 0),
    swapped=lambda y: y.split(0, 5).reorder([1, 0]),
    mapped=lambda y: y.split(0, 5).split(0, 2).reorder({0: 2}),
    mapped_from_the_end=lambda y: y.split(0, 5).split(0, 2).reorder({-1: 0}),
    unroll=lambda y: y.unroll(0, 5),
    threads=lambda y: y.split(0, 5).parallelize(0, P.Thread),
    lanes=lambda y: y.split(0, 5).parallelize(1, P.Simd),
    threads_and_lanes=lambda y: y.vectorize(0, 8, P.Simd).parallelize(0, P.Thread),
    partition=lambda y: y.partition(0, Listed((const(9), const(0), const(15)))),
    partition_and_split=lambda y: y.partition(0, Listed((const(9), const(0), const(15)))).split(1, 4),
    partition_and_combine=lambda y: y.partition(0, Listed((const(9), const(15)))).combine(0),
    partition_by_tile=lambda y: y.partition(0, Listed((const(9), const(15)))).split(1, 4).combine(0),
    cache_before=lambda y: (y.cache_before(), y)[1],
    cache_after=lambda y: cached(y, "mul", "cache_after"),
    cache_of_an_input=lambda y: (y.fusion.inputs[0].cache_after(), y)[1],
)
on(
    flat,
    "cuda",
    vectorize=lambda y: y.vectorize(0, 4),
    vectorize_outer=lambda y: y.split(0, 4, False).parallelize(0, P.Vectorize),
    blocks_and_threads=lambda y: blocks(y.split(0, 7), P.BIDx, P.TIDx),
    blocks_of_vectors=lambda y: blocks(y.vectorize(0, 2).split(0, 5), P.BIDx, P.TIDx),
    grid_of_three=lambda y: blocks(y.split(0, 2).split(0, 3), P.BIDz, P.BIDy, P.TIDz),
    shared=lambda y: blocks((y.cache_before(Memory.SHARED), y)[1].split(0, 8), P.BIDx, P.TIDx),
)
on(
    symbolic,
    split=lambda y: y.split(0, 4).split(2, 4),
    symbolic_factor=lambda y: y.split(1, symbol("n")),
    merge=lambda y: y.merge(0).split(0, 4),
    merge_swapped=lambda y: y.merge(1, 0).split(0, 4),
    transposed_loops=lambda y: y.reorder([1, 0]),
    shift=lambda y: y.swizzle(0, 1, "shift"),
    shift_of_rows=lambda y: y.swizzle(1, 0, "shift").reorder([1, 0]),
)
on(
    symbolic,
    "cuda",
    tiles=lambda y: blocks(y.split(0, 4).split(2, 4).reorder([0, 2, 1, 3]), P.BIDx, P.BIDy, P.TIDy, P.TIDx),
    vectorize=lambda y: y.vectorize(1, 2),
    vectorize_of_all=lambda y: y.merge(0).vectorize(0, 2),
)
on(
    square,
    swizzle=lambda y: y.swizzle(0, 1),
    swizzle_by_columns=lambda y: y.swizzle(1, 0),
    shift=lambda y: y.swizzle(0, 1, "shift"),
    shift_of_unequal_parts=lambda y: y.split(0, 3).swizzle(1, 2, "shift"),
    swizzle_of_tiles=lambda y: y.split(0, 4).split(2, 4).swizzle(1, 3),
    swizzle_and_merge=lambda y: y.swizzle(0, 1).merge(0).split(0, 5),
)
on(
    square,
    "cuda",
    swizzled_threads=lambda y: blocks(y.swizzle(0, 1), P.TIDy, P.TIDx),
)
on(
    rows,
    by_component=lambda y: y,
    threads_by_component=lambda y: y.parallelize(0, P.Thread).parallelize(2, P.Simd),
    by_tile=lambda y: y.split(1, 2).combine(0),
    by_long_tile=lambda y: y.split(1, 3).combine(0).parallelize(0, P.Thread),
    by_outer_split=lambda y: y.split(1, 2, inner_split=False),
    flat=lambda y: y.combine(0),
    flat_values=lambda y: y.combine(0).merge(0),
    flat_tiles=lambda y: y.combine(0).merge(0).split(0, 5),
    merge_combines=lambda y: y.merge(0),
    rows_of_values=lambda y: y.merge(1),
    tiles_of_values=lambda y: y.merge(1).split(1, 4).combine(0),
    partition_of_flat=lambda y: y.combine(0).partition(0, y.fusion.named("offsets")),
    rows_outside=lambda y: y.reorder([1, 0, 2]),
    features_outside=lambda y: y.reorder([2, 0, 1]),
    components_by_two=lambda y: y.split(0, 2),
    unrolled_rows=lambda y: y.unroll(1, 2),
)
on(
    rows,
    "cuda",
    by_component=lambda y: blocks(y, P.BIDx, P.TIDy, P.TIDx),
    by_component_in_steps=lambda y: y.split(1, 2).parallelize(0, P.BIDx).parallelize(2, P.TIDy).parallelize(3, P.TIDx),
    by_tile=lambda y: blocks(y.split(1, 2).combine(0), P.BIDx, P.TIDy, P.TIDx),
    flat=lambda y: blocks(y.combine(0).merge(0).split(0, 5), P.BIDx, P.TIDx),
    flat_vectors=lambda y: blocks(y.combine(0).vectorize(1, 2).split(0, 3), P.BIDx, P.TIDy, P.TIDx),
)
on(
    sums,
    as_it_is=lambda y: y,
    split=lambda y: y.split(1, 5),
    lanes=lambda y: y.split(1, 4).parallelize(2, P.Simd),
    indivisible_lanes=lambda y: y.split(1, 5).parallelize(2, P.Simd),
    unroll=lambda y: y.unroll(1, 4),
    reduced_outside=lambda y: y.reorder([1, 0]),
    threads=lambda y: y.parallelize(0, P.Thread),
    rfactor=lambda y: y.split(1, 4).rfactor(2),
    rfactor_outer=lambda y: y.split(1, 4).rfactor(1),
    rfactor_indivisible=lambda y: y.split(1, 5).rfactor(2),
    cache_before=lambda y: y.cache_before(),
)
on(
    sums,
    "cuda",
    threads=lambda y: blocks(y, P.BIDx, P.TIDx),
    threads_in_steps=lambda y: y.split(1, 5).parallelize(0, P.BIDx).parallelize(2, P.TIDx),
    grid=lambda y: y.split(1, 5).parallelize(0, P.BIDy).parallelize(1, P.BIDx).parallelize(2, P.TIDx),
    vectors=lambda y: y.vectorize(1, 4).parallelize(1, P.TIDx),
)
on(
    row_sums,
    by_component=lambda y: y,
    features_outside=lambda y: y.reorder([0, 2, 1]),
    threads=lambda y: y.parallelize(0, P.Thread).parallelize(2, P.Simd),
    split=lambda y: y.split(1, 2),
    lanes=lambda y: y.split(1, 2).parallelize(2, P.Simd),
    cache_before=lambda y: y.cache_before(),
)
on(
    row_sums,
    "cuda",
    threads=lambda y: y.split(1, 2).parallelize(0, P.BIDx).parallelize(2, P.TIDy).parallelize(3, P.TIDx),
)
on(
    all_sums,
    by_component=lambda y: y,
    flat=lambda y: y.combine(0).split(0, 3),
    lanes=lambda y: y.combine(0).split(0, 4).parallelize(1, P.Simd),
    rfactor_of_rows=lambda y: y.combine(0).split(0, 4).rfactor(1),
)
on(
    all_sums,
    "cuda",
    grid=lambda y: y.combine(0).split(0, 3).parallelize(0, P.BIDx).parallelize(2, P.TIDx),
)
on(
    softmax,
    by_component=lambda y: y.reorder([0, 2, 1]),
    all_features_at_once=lambda y: y.parallelize(0, P.Thread),
    kept=lambda y: keep_exponentials(y, Memory.REGISTER),
    kept_in_the_output=keep_in_output,
    cache_after=lambda y: cached(y, "exp", "cache_after"),
    cache_before=lambda y: cached(y, "exp", "cache_before"),
    prefetch=lambda y: (y.fusion.inputs[0].prefetch(), y)[1],
)
on(
    feature_softmax,
    as_it_is=lambda y: y,
    kept=lambda y: keep_exponentials(y, Memory.REGISTER),
    kept_in_shared=lambda y: keep_exponentials(y, Memory.SHARED),
    kept_in_the_output=keep_in_output,
    split=lambda y: y.split(1, 5),
    kept_and_split=lambda y: keep_exponentials(y, Memory.REGISTER).split(1, 5),
    cache_of_a_reduction=lambda y: cached(y, "max", "cache_before"),
    cache_after_a_reduction=lambda y: cached(y, "sum", "cache_after"),
    cache_of_the_output=lambda y: (y.cache_before(), y)[1],
)
on(
    feature_softmax,
    "cuda",
    threads=lambda y: y.split(1, 5).parallelize(0, P.BIDx).parallelize(2, P.TIDx),
    kept_in_registers=lambda y: blocks(keep_exponentials(y, Memory.REGISTER), P.BIDx, P.TIDx),
    kept_in_shared=lambda y: (
        keep_exponentials(y, Memory.SHARED).split(1, 5).parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    ),
)


def prepared(name: str, kernel: str = "kernel", index: str = "int64") -> tuple[Lowered, Program]:
    """A program under a schedule, lowered."""
    program, schedule, target = SCHEDULES[name]
    y, inputs, want = program()
    reference = schedule(y) or y
    return lower(y.fusion, reference, name=kernel, target=target, index=index), (y, inputs, want)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", SCHEDULES)
def test_evaluate_does_not_depend_on_the_schedule(name: str) -> None:
    program, schedule, _ = SCHEDULES[name]
    y, inputs, want = program()
    same(y.fusion.evaluate(*inputs)[0], want)
    schedule(y)
    same(y.fusion.evaluate(*inputs)[0], want)


@pytest.mark.parametrize("name", SCHEDULES)
def test_in_the_interpreter(name: str) -> None:
    """No violation, and the values of `evaluate`, which are those of torch."""
    lowered, (_, inputs, _) = prepared(name)
    for seed in range(2):
        check(lowered, inputs, seed)


COMPILED = [name for name, (_, _, target) in SCHEDULES.items() if target == "cpp"]


@cache
def library(index: str) -> Library:
    """One library for all kernels."""
    return compile(cpp.source([prepared(name, f"kernel{at}", index)[0].kernel for at, name in enumerate(COMPILED)]))


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str, index: str) -> None:
    lowered, (_, inputs, want) = prepared(name, f"kernel{COMPILED.index(name)}", index)
    check(lowered, inputs)  # first: what writes out of bounds would end the process
    vars(lowered)["function"] = library(index).function(lowered.kernel)
    same(lowered(*inputs)[0], want)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [9, 0, 1]], ids=str)
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name.startswith(("rows:", "softmax:", "row_sums:"))])
def test_other_lengths(name: str, lengths: list[int]) -> None:
    lowered, (_, inputs, _) = prepared(name)
    offsets = torch.tensor([0, *itertools.accumulate(lengths)])
    check(lowered, [some(sum(lengths), 6), offsets, *([some(len(lengths), 6)] if len(inputs) > 2 else [])])


# What the loops are


def loops(lowered: Lowered) -> list[For]:
    return [statement for statement in walk(lowered.kernel.body) if isinstance(statement, For)]


def conditions(lowered: Lowered) -> int:
    return sum(isinstance(statement, If) for statement in walk(lowered.kernel.body))


@pytest.mark.parametrize(
    ("name", "extents"),
    [
        ("flat: split (cpp)", [6, 4]),
        ("flat: indivisible_split (cpp)", [4, 7]),
        ("flat: outer_split (cpp)", [4, 6]),
        ("flat: indivisible_outer_split (cpp)", [7, 4]),
        ("flat: swapped (cpp)", [5, 5]),
        ("flat: mapped (cpp)", [2, 5, 3]),
        ("flat: mapped_from_the_end (cpp)", [5, 3, 2]),
        ("flat: unroll (cpp)", [5, 5]),
        ("flat: split_and_merge (cpp)", [28]),
        ("square: swizzle (cpp)", [8, 8]),
        ("square: swizzle_of_tiles (cpp)", [2, 4, 2, 4]),
        ("symbolic: merge (cpp)", ["(n * 6 + 3) / 4", 4]),
        ("symbolic: transposed_loops (cpp)", [6, "n"]),
        ("rows: flat_values (cpp)", ["n * 6"]),
    ],
)
def test_the_loops_are_those_of_the_schedule(name: str, extents: list[Any]) -> None:
    found = [loop.extent.value if loop.extent.is_const else str(loop.extent) for loop in loops(prepared(name)[0])]
    assert found == extents


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("flat: split (cpp)", 0),
        ("flat: outer_split (cpp)", 0),
        ("flat: indivisible_split (cpp)", 1),
        ("flat: split_of_both_parts (cpp)", 2),
        ("rows: by_component (cpp)", 0),
        ("rows: flat_values (cpp)", 0),
        ("square: swizzle (cpp)", 0),
    ],
)
def test_no_more_is_tested_than_needed(name: str, count: int) -> None:
    assert conditions(prepared(name)[0]) == count


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("flat: threads (cpp)", [P.Thread, P.Serial]),
        ("flat: lanes (cpp)", [P.Serial, P.Simd]),
        ("flat: unroll (cpp)", [P.Serial, P.Unroll]),
        ("flat: vectorize (cuda)", [P.Serial, P.Vectorize]),
        ("flat: blocks_and_threads (cuda)", [P.BIDx, P.TIDx]),
        ("flat: grid_of_three (cuda)", [P.BIDz, P.BIDy, P.TIDz]),
    ],
)
def test_loops_are_run_as_the_schedule_says(name: str, parallel: list[ParallelType]) -> None:
    assert [loop.parallel for loop in loops(prepared(name)[0])] == parallel


def test_three_ways_to_walk_rows_give_the_same() -> None:
    """Bit for bit: each element is computed in the same way."""
    results = []
    for way in ("by_component", "by_tile", "flat"):
        lowered, (_, inputs, _) = prepared(f"rows: {way} (cpp)", way)
        results.append(lowered(*inputs)[0])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(("extent", "factor"), [(6, 4), (15, 4), (5, 8), (24, 7)])
def test_an_indivisible_split_is_a_divisible_one_of_a_resized_axis(extent: int, factor: int) -> None:
    """As kernels: a copy with holes, laid out by either, has the same memory."""
    results = []
    for resized in (False, True):
        fusion = Fusion()
        y = fusion.output(-fusion.input("x", [extent]), "y")
        axis = y.domain.logical[0]
        wide = IterDomain.resize(axis, 0, -extent % factor) if resized else axis
        parts = IterDomain.split(wide, factor)
        assert wide.extent.value % factor == 0 or not resized
        y.set_allocation_domain(parts, fill=9.0)
        y.domain.loop = parts
        lowered = lower(fusion, y)
        x = some(extent)
        check(lowered, [x])
        results.append(lowered(x)[0])
        assert conditions(lowered) == 2  # the elements, and the holes
    assert torch.equal(*results)
    assert torch.equal(results[0].flatten(), F.pad(-some(extent), [0, -extent % factor], value=9.0))


# Holes


LAYOUTS: dict[str, Callable[[TensorView], Sequence[IterDomain]]] = {
    "transposed": lambda y: (y.domain.logical[1], y.domain.logical[0]),
    "rows of four": lambda y: (y.domain.logical[0], *IterDomain.split(y.domain.logical[1], 4)),
    "tiles": lambda y: tuple(
        part for pair in zip(*(IterDomain.split(axis, 4) for axis in y.domain.logical), strict=True) for part in pair
    ),
    "resized": lambda y: (IterDomain.resize(y.domain.logical[0], 1, 2), y.domain.logical[1]),
    "merged": lambda y: IterDomain.split(IterDomain.merge(*y.domain.logical), 4),
}


def by_layout(name: str, x: torch.Tensor, fill: float) -> torch.Tensor:
    """[6, 6] as it lies in memory."""
    match name:
        case "transposed":
            return x.T
        case "rows of four":
            return F.pad(x, [0, 2], value=fill).reshape(6, 2, 4)
        case "tiles":
            return F.pad(x, [0, 2, 0, 2], value=fill).reshape(2, 4, 2, 4).transpose(1, 2)
        case "resized":
            return F.pad(x, [0, 0, 1, 2], value=fill)
    return x.reshape(9, 4)


@pytest.mark.parametrize("fill", [0.0, -1.5, math.nan, -math.inf])
@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_hold_the_fill(name: str, fill: float) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6, 6]), "y")
    y.set_allocation_domain(LAYOUTS[name](y), fill)
    x = some(6, 6)
    lowered = lower(fusion, y)
    check(lowered, [x])
    want = by_layout(name, -x, fill)
    torch.testing.assert_close(fusion.evaluate(x)[0], want, equal_nan=True)
    torch.testing.assert_close(lowered(x)[0], want, equal_nan=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_are_left_alone_without_a_fill(name: str) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6, 6]), "y")
    y.set_allocation_domain(LAYOUTS[name](y))
    lowered = lower(fusion, y)
    x = some(6, 6)
    check(lowered, [x])
    out = torch.full_like(fusion.evaluate(x)[0], 77.0)
    lowered(x, out=[out])
    assert torch.equal(out, by_layout(name, -x, 77.0))


@pytest.mark.parametrize("name", LAYOUTS)
def test_holes_of_an_input_are_not_read(name: str) -> None:
    """They hold NaN, and no result has one."""
    fusion = Fusion()
    x = fusion.input("x", [6, 6])
    x.set_allocation_domain(LAYOUTS[name](x))
    y = fusion.output(x * 2.0, "y")
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    a = some(6, 6)
    given = by_layout(name, a, math.nan).contiguous()
    lowered = lower(fusion, y.split(1, 4))
    check(lowered, [given])
    doubled, total = lowered(given)
    same(doubled, a * 2)
    same(total, a.sum(1))


def test_the_checker_sees_a_store_to_a_hole() -> None:
    """What proves that holes are left alone can fail."""
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6]), "y")
    y.set_allocation_domain(IterDomain.split(y.domain.logical[0], 4), fill=1.0)
    lowered = lower(fusion, y)
    x = some(6)
    arrays = {"x": as_numpy(x)}
    valid = valid_positions(lowered, [x])
    assert valid["y"].tolist() == [True] * 6 + [False] * 2
    run(lowered.kernel, arrays, {}, valid=valid, fill={"y": 1.0})
    with pytest.raises(Violation):
        run(lowered.kernel, arrays, {}, valid=valid)
    with pytest.raises(Violation):
        run(lowered.kernel, arrays, {}, valid=valid, fill={"y": 2.0})


NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NEUTRAL)
def test_a_reduction_may_read_holes_that_hold_its_neutral_element(name: str, dtype: str) -> None:
    fusion = Fusion()
    x = fusion.input("x", [3, 6], dtype)
    row, column = x.domain.logical
    x.set_allocation_domain([row, *IterDomain.split(column, 4)], fill=NEUTRAL[name])
    y = fusion.output(fusion.reduce(name, x, [1]), "y").split(1, 4).read_holes()
    lowered = lower(fusion, y)
    assert conditions(lowered) == 0
    a = some(3, 6).to(getattr(torch, dtype))
    given = F.pad(a, [0, 2], value=NEUTRAL[name]).reshape(3, 2, 4)
    check(lowered, [given])
    same(lowered(given)[0], getattr(a, {"max": "amax", "min": "amin"}.get(name, name))(1))
    given[:, 1, 2:] = -5.0 if name == "min" else 5.0  # that holes are read is seen by what they hold
    assert not (lowered(given)[0] == fusion.evaluate(given)[0]).any()


# What is checked when the kernel runs


@pytest.mark.parametrize("size", [0, 4, 12])
def test_lanes_that_divide_are_accepted_when_it_runs(size: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y").vectorize(0, 4)
    lowered = lower(fusion, y, target="cuda")
    assert conditions(lowered) <= 1
    check(lowered, [some(size)])


@pytest.mark.parametrize("size", [1, 5, 15])
def test_lanes_that_do_not_divide_are_refused_when_it_runs(size: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y").vectorize(0, 4)
    with pytest.raises(ScheduleError, match=r"iV_i_inner\{4\} cannot be vectorized: 4 does not divide iS_i\{n\}"):
        lower(fusion, y, target="cuda").buffers([some(size)])


def test_lanes_of_packed_rows_need_only_their_features() -> None:
    """Rows follow each other in memory, so all values may be vectorized, whatever the lengths."""
    y, inputs, _ = rows()
    lowered = lower(y.fusion, y.combine(0).merge(0).vectorize(0, 2), target="cuda")
    check(lowered, inputs)


@pytest.mark.parametrize("factor", [1, 3, 8, 50])
def test_a_factor_that_is_known_when_it_runs(factor: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y")
    fusion.input("w", ["f"])
    lowered = lower(fusion, y.split(0, symbol("f")))
    outer, inner = (evaluate(loop.extent, {"n": 8, "f": factor}) for loop in loops(lowered))
    assert (outer, inner) == (-(-8 // factor), factor)
    x = some(8)
    check(lowered, [x, some(factor)])
    same(lowered(x, some(factor))[0], -x)


# Rows that do not fill their data


WAYS: dict[str, Schedule] = {
    "by component": lambda y: y,
    "by tile": lambda y: y.split(1, 2).combine(0),
    "flat": lambda y: y.combine(0),
    "flat values": lambda y: y.combine(0).merge(0).split(0, 5),
    "features outside": lambda y: y.reorder([2, 0, 1]),
}


@pytest.mark.parametrize("room", [0, 3])
@pytest.mark.parametrize("name", WAYS)
def test_over_allocated_rows(name: str, room: int) -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion, 6, exact=False) * 2.0, "y")
    lowered = lower(fusion, WAYS[name](y) or y)
    x = some(8 + room, 6)
    x[8:] = math.nan
    check(lowered, [x, OFFSETS])
    same(lowered(x, OFFSETS)[0], x[:8] * 2)


@pytest.mark.parametrize("axes", [[1], [0, 1], [0]], ids=str)
def test_reductions_of_over_allocated_rows(axes: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 6, exact=False), axes), "y")
    lowered = lower(fusion, y)
    x = some(11, 6)
    x[8:] = math.nan
    check(lowered, [x, OFFSETS])
    assert not lowered(x, OFFSETS)[0].isnan().any()


# Tensors in between


@pytest.mark.parametrize("factor", [4, 5])
@pytest.mark.parametrize("name", NEUTRAL)
def test_rfactor_of_each_reduction(name: str, factor: int) -> None:
    y, inputs, want = sums(name)
    partial = y.split(1, factor).rfactor(2)
    assert partial.ndim == 2
    assert [axis.is_reduction for axis in partial.loop] == [False, True, False]
    same(y.fusion.evaluate(*inputs)[0], want)
    lowered = lower(y.fusion, partial)
    check(lowered, inputs)
    same(lowered(*inputs)[0], want)


def test_rfactor_of_what_others_read() -> None:
    fusion = Fusion()
    total = fusion.reduce("sum", fusion.input("x", [3, 4]), [1])
    fusion.output(total * 2.0, "y")
    total.split(1, 2).rfactor(1)
    x = some(3, 4)
    same(fusion.evaluate(x)[0], x.sum(1) * 2)


def test_a_cache_leaves_the_layout_to_the_output() -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", [6]), "y")
    y.set_allocation_domain(IterDomain.split(y.domain.logical[0], 4), fill=2.0)
    x = some(6)
    want = F.pad(-x, [0, 2], value=2.0).reshape(2, 4)
    y.cache_before()
    assert torch.equal(fusion.evaluate(x)[0], want)
    lowered = lower(fusion, y)
    check(lowered, [x])
    assert torch.equal(lowered(x)[0], want)


@pytest.mark.parametrize("axes", [[2], [1, 2], [0, 1, 2]], ids=str)
def test_rows_of_rows(axes: list[int]) -> None:
    fusion = Fusion()
    parts = fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("inner", [symbol("m") + 1], "int64"))
    whole = fusion.view_as_nested(parts, fusion.input("outer", [symbol("k") + 1], "int64"))
    lowered = lower(fusion, fusion.output(fusion.reduce("sum", whole, axes), "y"))
    x, inner, outer = torch.arange(6.0), torch.tensor([0, 2, 2, 5, 6]), torch.tensor([0, 1, 1, 4])
    check(lowered, [x, inner, outer])
    want = {1: [1.0, 0.0, 9.0, 5.0], 2: [1.0, 0.0, 14.0], 3: 15.0}[len(axes)]
    assert lowered(x, inner, outer)[0].tolist() == want


# Offsets as results


def test_injected_offsets_come_with_the_outputs_of_a_kernel() -> None:
    fusion = Fusion()
    fusion.output(fusion.pad(nested(fusion, 6), 1, 1, 2), "y")
    injected = inject_offsets(fusion)
    lowered = lower(injected, injected.outputs[0])
    x = some(8, 6)
    with sr.testing.forbid_sync():
        values, offsets = lowered(x, OFFSETS)
    assert offsets.tolist() == [0, 6, 9, 16, 20]
    assert torch.equal(values, torch.cat([F.pad(row, [0, 0, 1, 2]) for row in x.split(LENGTHS)]))


def test_rows_by_their_extents() -> None:
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    rows_ = RaggedIterDomain.from_extents(extents, size="n")
    x = fusion.view_as_nested(data, fusion.named(rows_.raggedness.base_arrays[0]))
    lowered = lower(fusion, fusion.output(fusion.reduce("sum", x, [1]), "y"))
    a = some(8)
    same(lowered(a, torch.tensor(LENGTHS))[0], torch.stack([row.sum() for row in a.split(LENGTHS)]))


def test_rows_by_extents_that_are_computed() -> None:
    """Offsets are needed before the kernel that would compute the extents."""
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    x = fusion.view_as_nested(data, fusion.offsets_of_extents(extents * 2))
    y = fusion.output(fusion.reduce("sum", x, [1]), "y")
    assert fusion.evaluate(torch.ones(8), torch.tensor([1, 0, 3]))[0].tolist() == [2, 0, 6]
    with pytest.raises(ScheduleError, match="before the kernel runs; make it an input"):
        lower(fusion, y)


def test_nothing_but_offsets() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.offsets_of_extents(fusion.input("extents", ["k"], "int64")), "y")
    assert fusion.evaluate(torch.tensor([1, 2]))[0].tolist() == [0, 1, 3]
    with pytest.raises(ScheduleError, match="no output that a kernel could store"):
        lower(fusion, y)


def test_offsets_are_written_to_what_is_given() -> None:
    fusion = Fusion()
    fusion.output(nested(fusion, 6) * 2.0, "y")
    injected = inject_offsets(fusion)
    out = [torch.zeros(8, 6), torch.zeros(5, dtype=torch.int64)]
    lower(injected, injected.outputs[0])(some(8, 6), OFFSETS, out=out)
    assert torch.equal(out[1], OFFSETS)


# Selected components


@pytest.mark.parametrize("component", range(4))
def test_a_selected_component_is_walked_as_a_regular_axis(component: int) -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion, 6).select(0, component) * 2.0, "y").split(0, 2).merge(1)
    lowered = lower(fusion, y)
    x = some(8, 6)
    check(lowered, [x, OFFSETS])
    same(lowered(x, OFFSETS)[0], x.split(LENGTHS)[component] * 2)


def test_a_selected_component_of_known_extents() -> None:
    fusion = Fusion()
    ragged = RaggedIterDomain([IterDomain(3), IterDomain(5)], name="r")
    y = fusion.output(fusion.input("x", [IterDomain(2, name="c"), ragged]).select(0, 1) + 1.0, "y")
    lowered = lower(fusion, y.split(0, 2))
    x = some(8)
    check(lowered, [x])
    same(lowered(x)[0], x[3:] + 1)


# Index width


@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_indices_of_32_bits(target: str) -> None:
    y, inputs, _ = rows()
    wide, narrow = (lower(y.fusion, y, index=index, target=target) for index in ("int64", "int32"))
    assert (wide.kernel.index, narrow.kernel.index) == ("int64", "int32")
    assert "for (int64_t c" in wide.source
    assert "for (int64_t" not in narrow.source
    check(narrow, inputs)


# Order of calls, and what a schedule leaves alone


def test_methods_return_the_tensor() -> None:
    y, _, _ = square()
    steps: list[Callable[[], TensorView]] = [
        lambda: y.swizzle(0, 1),
        lambda: y.split(0, 4),
        lambda: y.merge(0),
        lambda: y.reorder([1, 0]),
        lambda: y.reorder({0: 1}),
        lambda: y.partition(0, Listed((const(3), const(5)))),
        lambda: y.combine(0),
        lambda: y.unroll(0, 2),
        lambda: y.vectorize(0, 2, P.Simd),
        lambda: y.parallelize(0, P.Thread),
        lambda: y.set_memory_type(Memory.GLOBAL),
        lambda: y.set_allocation_domain(y.domain.logical, fill=0.0),
    ]
    assert all(step() is y for step in steps)


def test_a_schedule_does_not_change_logical_or_memory_axes() -> None:
    y, _, _ = rows()
    before = (y.domain.root, y.domain.logical, y.domain.allocation, y.ndim, y.dtype)
    y.split(1, 2).combine(0).reorder([1, 0, 2]).parallelize(0, P.Thread)
    assert (y.domain.root, y.domain.logical, y.domain.allocation, y.ndim, y.dtype) == before


def test_bound_sizes() -> None:
    """What the harness compares with is bound by the shapes of inputs."""
    y, inputs, _ = rows()
    assert bind(y.fusion, inputs).sizes == {"n": 8, "k": 4}
    assert np.array_equal(bind(y.fusion, inputs).lengths(y.domain.logical[1]), LENGTHS)
