"""Schedules of the programs by name, and the kernels that they are lowered to."""

from __future__ import annotations

from collections.abc import Callable

from tests.fusion.programs import (
    Program,
    all_sums,
    feature_softmax,
    flat,
    row_sums,
    rows,
    softmax,
    square,
    sums,
    symbolic,
)

from serrate.fusion import Memory, TensorView, const, symbol
from serrate.fusion import ParallelType as P
from serrate.fusion.raggedness import Listed
from serrate.kernel import Lowered, lower
from serrate.kernel.ir import For, If, walk

Schedule = Callable[[TensorView], TensorView | None]
SCHEDULES: dict[str, tuple[Callable[[], Program], Schedule, str]] = {}


def on(program: Callable[[], Program], target: str = "cpp", **schedules: Schedule) -> None:
    for name, schedule in schedules.items():
        key = f"{program.__name__}: {name} ({target})"
        assert key not in SCHEDULES
        SCHEDULES[key] = (program, schedule, target)


def blocks(y: TensorView, *types: P) -> TensorView:
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
    cache_after=lambda y: cached(y, "multiply", "cache_after"),
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


def loops(lowered: Lowered) -> list[For]:
    return [statement for statement in walk(lowered.kernel.body) if isinstance(statement, For)]


def conditions(lowered: Lowered) -> int:
    return sum(isinstance(statement, If) for statement in walk(lowered.kernel.body))
