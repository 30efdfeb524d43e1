"""Schedules that cannot be lowered to a kernel: the exception, and its words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fusion.refusals import Refusals, copied, copied_rows, lowered, summed
from tests.fusion.samples import nested

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, IterDomain, Memory, TensorView
from serrate.fusion import ParallelType as P
from serrate.kernel import lower

refused = Refusals()


# Axes that the loops do not fit


@refused(
    ScheduleError,
    "loop iS_id{12} of y walks axes of which z[iS_i{4}] float32 has only some; do not merge them, "
    "or give z a kernel of its own",
)
def loop_over_axes_of_which_a_tensor_has_some() -> Any:
    fusion = Fusion()
    z = fusion.output(fusion.copy(fusion.input("w", [4])), "z")
    return lowered(fusion.output(fusion.input("x", [3, 4]) + z, "y").merge(0))


@refused(
    ScheduleError,
    "loop iS_id{12} of y walks both reduced and kept axes of total[iS_i{3}, rS_d{4}] float32; do not merge them",
)
def loop_over_reduced_and_kept_axes() -> Any:
    fusion = Fusion()
    x = fusion.input("x", [3, 4])
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    return lower(fusion, fusion.output(x * 2.0, "y").merge(0))


@refused(
    ScheduleError,
    "rS_d{5} of other[iS_i{3}, rS_d{5}] float32 is reduced, but the reference y[iS_i{3}, rS_d{4}] float32"
    " does not walk it; choose a tensor that has it as the reference",
)
def reduced_axis_that_the_reference_lacks() -> Any:
    y = summed(3, 4)
    y.fusion.output(y.fusion.reduce("sum", y.fusion.input("z", [3, 5]), [1]), "other")
    return lowered(y)


@refused(
    ScheduleError,
    "other[iS_i{4}] float32 is not computed in the loops of y: the index of iS_i{4} does not follow from the loops; "
    "the schedule does not cover it",
)
def output_over_other_axes() -> Any:
    y = copied(3)
    y.fusion.output(y.fusion.copy(y.fusion.input("z", [4])), "other")
    return lowered(y)


@refused(
    ScheduleError,
    "loop rT_d{n} is reduced by y[iS_i{3}, rT_d{n}] float32 and run by threads, so that its number of indices must be "
    "a constant, each with a partial result: split it by a constant that is the extent of the outer part, and run that "
    "part as Thread",
)
def threads_that_reduce() -> Any:
    return lowered(summed(3, "n").parallelize(1, P.Thread))


@refused(
    ScheduleError,
    "loop iS_r_outer{[offsets_by_2]} of y stands outside the loop of its component axis iS_c{k}; only a "
    "ragged axis that is not transformed can, walked to the longest row",
)
def pieces_of_rows_outside_of_their_components() -> Any:
    return lowered(copied_rows().split(1, 2).reorder({1: 0}))


# Holes that are read


@refused(
    ScheduleError,
    "y[iS_i{3}, rS_d{6}] float32 reads holes of x[iS_i{3}, iS_d{6}] float32, which is not an input that "
    "holds a fill value in them",
)
def holes_without_a_fill() -> Any:
    return lowered(summed(3, 6).read_holes())


@refused(
    ScheduleError,
    "y[rS_i{6}] float32 reads holes of t1[iS_i{6}] float32, which is not an input that holds a fill value in them",
)
def holes_of_what_is_computed() -> Any:
    fusion = Fusion()
    x = fusion.unary("exp", fusion.input("x", [6]))
    return lowered(fusion.output(fusion.reduce("sum", x, [0]), "y").read_holes())


def reading_holes(name: str, fill: float) -> Any:
    fusion = Fusion()
    x = fusion.input("x", [6])
    x.set_allocation_domain(IterDomain.split(x.domain.logical[0], 4), fill)
    return lowered(fusion.output(fusion.reduce(name, x, [0]), "y").split(0, 4).read_holes())


@refused(
    ScheduleError,
    "y[rS_i_outer{2}, rS_i_inner{4}] float32 reads holes of x[iS_i{6}] float32, which hold 1.0; in a sum "
    "only 0 changes nothing",
)
def holes_of_ones_in_a_sum() -> Any:
    return reading_holes("sum", 1.0)


@refused(
    ScheduleError,
    "y[rS_i_outer{2}, rS_i_inner{4}] float32 reads holes of x[iS_i{6}] float32, which hold 0.0; in a prod"
    " only 1 changes nothing",
)
def holes_of_zeros_in_a_product() -> Any:
    return reading_holes("prod", 0.0)


@refused(
    ScheduleError,
    "y[rS_i_outer{2}, rS_i_inner{4}] float32 reads holes of x[iS_i{6}] float32, which hold 0.0; in a max "
    "only -inf changes nothing",
)
def holes_of_zeros_in_a_maximum() -> Any:
    return reading_holes("max", 0.0)


@refused(
    ScheduleError,
    "y[rS_i_outer{2}, rS_i_inner{4}] float32 reads holes of x[iS_i{6}] float32, which hold 0.0; in a min "
    "only inf changes nothing",
)
def holes_of_zeros_in_a_minimum() -> Any:
    return reading_holes("min", 0.0)


@refused(
    ScheduleError,
    "y[rS_i_outer{2}, rS_i_inner{4}] float32 reads holes of x[iS_i{6}] float32, which hold 0.0; in a mean"
    " no value changes nothing",
)
def holes_in_a_mean() -> Any:
    """No number leaves a mean as it is."""
    return reading_holes("mean", 0.0)


# Reductions across blocks and threads


@refused(
    ScheduleError,
    "y[iS_i{8}, rblockIdx.x_d_outer{4}, rS_d_inner{16}] float32 is reduced across blocks inside loop "
    "iS_i{8}, which each of them repeats",
)
def blocks_that_reduce_inside_a_loop() -> Any:
    return lowered(summed(8, 64).split(1, 16).parallelize(1, P.BIDx), "cuda")


@refused(
    ScheduleError,
    "t1[rS_i{64}] float32 is reduced across blocks (BIDx), which must be the last thing a kernel does; "
    "y[iblockIdx.x_i_outer{4}, iS_i_inner{16}] float32 is left: give it a kernel of its own",
)
def blocks_that_reduce_before_something_else() -> Any:
    fusion = Fusion()
    x = fusion.input("x", [64])
    y = fusion.output(x - fusion.reduce("mean", x, [0], keepdims=True), "y")
    return lowered(y.split(0, 16).parallelize(0, P.BIDx), "cuda")


@refused(
    ScheduleError,
    "y[ithreadIdx.y_c{k}, iS_r{[offsets]}, rthreadIdx.x_d{4}] float32 is reduced across threads inside "
    "loop iS_r{[offsets]}, whose bound they differ in",
)
def threads_that_reduce_inside_rows_of_each_thread() -> Any:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 4), [2]), "y")
    return lowered(y.parallelize(0, P.TIDy).parallelize(2, P.TIDx), "cuda")


# Values in between


@refused(
    ScheduleError,
    "y[rS_i{8}, iS_d{n}] float32 needs a value for each index of loop iS_d{n}, whose extent is not a "
    "constant: put the loop outside of what is reduced, or split it by a constant and put the outer part "
    "outside",
)
def state_for_each_index_of_a_symbolic_loop() -> Any:
    return lowered(summed(8, "n", axis=0), "cuda")


@refused(
    ScheduleError,
    "y[rS_d{4}, iS_c{k}, iS_r{[offsets]}] float32 needs a value for each index of loop iS_c{k}, whose "
    "extent is not a constant: put the loop outside of what is reduced, or split it by a constant and put"
    " the outer part outside",
)
def state_for_each_row() -> Any:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 4), [2]), "y")
    return lowered(y.reorder([2, 0, 1]), "cuda")


def softmax(dtype: str = "float32") -> tuple[TensorView, TensorView]:
    """(exponentials, output)."""
    fusion = Fusion()
    x = fusion.input("x", [3, 8], dtype)
    exponentials = fusion.unary("exp", x)
    return exponentials, fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")


@refused(
    ScheduleError,
    "t1[iS_i{4}, iS_d{n}] float32 is kept inside loop iL_i{4}, whose lanes would share its scratch memory of n "
    "elements; put that loop inside of those that t1 is kept for, or do not run it as Simd",
)
def scratch_memory_inside_lanes() -> Any:
    fusion = Fusion()
    kept = fusion.unary("exp", fusion.input("x", [4, "n"])).set_memory_type(Memory.REGISTER)
    total = fusion.broadcast(fusion.reduce("sum", kept, [1]), [False, True])
    return lowered(fusion.output(kept / total, "y").parallelize(0, P.Simd))


@refused(
    ScheduleError, "t1[iS_i{3}, iS_d{8}] float32 cannot be kept in t2[iS_i{3}, rS_d{8}] float32: it is not an output"
)
def kept_in_what_is_no_output() -> Any:
    exponentials, y = softmax()
    exponentials.keep_in(y.fusion.named("t2"))
    return lowered(y)


@refused(
    ScheduleError,
    "t1[iS_i{3}, iS_d{8}] float16 cannot be kept in y[iS_i{3}, iS_d{8}] float16: it holds float16, not float32",
)
def kept_in_another_dtype() -> Any:
    exponentials, y = softmax("float16")
    exponentials.keep_in(y)
    return lowered(y)


@refused(
    ScheduleError,
    "t1[iS_i{3}, iS_d{8}] float32 cannot be kept in total[iS_i{3}, rS_d{8}] float32: it is not computed "
    "over the same axes",
)
def kept_over_other_axes() -> Any:
    exponentials, y = softmax()
    total = y.fusion.output(y.fusion.reduce("max", y, [1]), "total")
    exponentials.keep_in(total)
    return lowered(y)


@refused(
    ScheduleError,
    "t1[iS_i{3}, iS_d{n}] float32 needs a value for each index of loop iS_d{n}, whose extent is not a "
    "constant: put the loop outside of what is reduced, or split it by a constant and put the outer part "
    "outside",
)
def shared_values_of_a_symbolic_loop() -> Any:
    fusion = Fusion()
    x = fusion.unary("exp", fusion.input("x", [3, "n"])).set_memory_type(Memory.SHARED)
    y = fusion.output(x / fusion.reduce("sum", x, [1], keepdims=True), "y")
    return lowered(y, "cuda")


@refused(
    ScheduleError,
    "t2[iS_i{3}] float32 cannot be kept in shared memory: all threads of loop rthreadIdx.x_d{4} would store the same "
    "elements of it at once; keep it in registers",
)
def shared_values_that_all_threads_would_store() -> Any:
    fusion = Fusion()
    x, w = fusion.input("x", [3, 4]), fusion.input("w", [3]).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce("sum", x * fusion.broadcast(w, [False, True]), [1]), "y")
    return lowered(y.parallelize(1, P.TIDx), "cuda")


# Targets


@refused(ScheduleError, "loop iblockIdx.x_i{8} of y: BIDx is not for the target 'cpp'")
def cuda_loop_on_the_cpu() -> Any:
    return lowered(copied(8).parallelize(0, P.BIDx))


@refused(ScheduleError, "loop iT_i{8} of y: Thread is not for the target 'cuda'")
def cpu_loop_on_cuda() -> Any:
    return lowered(copied(8).parallelize(0, P.Thread), "cuda")


@refused(ScheduleError, "loop iL_i{n} of y: the number of lanes must be a constant")
def lanes_of_a_symbolic_loop() -> Any:
    y = copied("n")
    y.loop[0].parallelize(P.Simd)
    return lowered(y)


@refused(
    ScheduleError,
    "loop iV_r_inner{4} of y cannot be vectorized: whether 4 divides iS_r{offsets[2] - offsets[1]} is data, which the "
    "host does not wait for",
)
def lanes_of_a_selected_row() -> Any:
    fusion = Fusion()
    return lowered(fusion.output(fusion.copy(nested(fusion).select(0, 1)), "y").vectorize(0, 4), "cuda")


@refused(ScheduleError, "loop ithreadIdx.x_i{8} of y: another loop is TIDx already")
def two_loops_of_one_kind() -> Any:
    return lowered(copied(8, 4).parallelize(0, P.TIDx).parallelize(1, P.TIDx), "cuda")


@refused(
    ScheduleError,
    "y[ithreadIdx.x_i{64}, ithreadIdx.y_d{32}] float32: a block has at most 1024 threads, the schedule asks for 2048",
)
def too_many_threads() -> Any:
    return lowered(copied(64, 32).parallelize(0, P.TIDx).parallelize(1, P.TIDy), "cuda")


# The table


@pytest.mark.parametrize("name", refused.cases)
def test_message(name: str) -> None:
    refused.check(name)


@pytest.mark.parametrize("name", refused.of_axes)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert refused.names_an_axis(name)
