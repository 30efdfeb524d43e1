"""Scheduling methods that refuse: the exception, its words, and that nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.fusion.refusals import Refusals, copied, copied_rows, summed, summed_rows
from tests.fusion.samples import two_levels

from serrate.errors import AxisError, RaggednessError, ScheduleError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorDomain, TensorView, const
from serrate.fusion import ParallelType as P
from serrate.fusion.raggedness import Listed, listed

refused = Refusals()


# Loops of a tensor


@refused(AxisError, "y has 2 loop axes, got axis 2")
def loop_axis_out_of_range() -> Any:
    return copied(3, 4).split(2, 2)


@refused(AxisError, "y has 3 loop axes, got axis 3")
def merge_of_the_last_axis() -> Any:
    return copied(2, 3, 4).merge(2)


@refused(ScheduleError, "iT_i{8} of y is parallelized already; transform it before")
def split_of_a_parallel_axis() -> Any:
    return copied(8).parallelize(0, P.Thread).split(0, 2)


@refused(ScheduleError, "iL_d{4} of y is parallelized already; transform it before")
def merge_of_a_parallel_axis() -> Any:
    return copied(8, 4).parallelize(1, P.Simd).merge(0)


@refused(ScheduleError, "iT_c{k} of y is parallelized already; transform it before")
def combine_of_a_parallel_axis() -> Any:
    return copied_rows().parallelize(0, P.Thread).combine(0)


@refused(ScheduleError, "ithreadIdx.x_d{4} of y is parallelized already; transform it before")
def swizzle_of_a_parallel_axis() -> Any:
    return copied(4, 4).parallelize(1, P.TIDx).swizzle(0, 1)


@refused(ScheduleError, "iU_i{4} of y is parallelized already; transform it before")
def partition_of_a_parallel_axis() -> Any:
    return copied(4).parallelize(0, P.Unroll).partition(0, Listed((const(1), const(3))))


@refused(AxisError, "axis 0 of y cannot be merged with itself")
def merge_with_itself() -> Any:
    return copied(2, 3, 5).merge(0, 0)


@refused(AxisError, "axis 0 of y cannot be swizzled by itself")
def swizzle_with_itself() -> Any:
    return copied(4, 4).swizzle(0, 0)


@refused(
    ScheduleError,
    "iS_c_inner{2} and iS_r{[offsets]} cannot be merged: iS_r{[offsets]} can only be with all of its component axis "
    "iS_c{k}, before it, or with an axis that is no part of that",
)
def merge_of_part_of_a_component_axis_and_rows() -> Any:
    return copied_rows().split(0, 2).merge(1)


@refused(
    ScheduleError,
    "iS_r{[offsets]} and iS_c{k} cannot be merged: iS_r{[offsets]} can only be with all of its component axis "
    "iS_c{k}, before it, or with an axis that is no part of that",
)
def merge_of_rows_and_the_component_axis_after_them() -> Any:
    return copied_rows().reorder({0: 1}).merge(0)


@refused(
    ScheduleError,
    "iS_c{k} and iS_s{[inner]} cannot be merged: iS_s{[inner]} can only be with all of its component axis iS_cr{n}, "
    "before it, or with an axis that is no part of that",
)
def merge_of_a_component_axis_and_rows_of_rows() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.copy(two_levels(fusion)), "y").merge(0, 2)


@refused(AxisError, "axis 1 of y is the last one, there is none to combine it with")
def combine_of_the_last_axis() -> Any:
    return copied(3, 4).combine(1)


@refused(AxisError, "two axes of y would come to one place: {0: 1, 1: 1}")
def reorder_to_one_place() -> Any:
    return copied(3, 4).reorder({0: 1, 1: 1})


@refused(AxisError, "an order of y must name each of 2 loop axes once, got [0, 0]")
def reorder_without_an_axis() -> Any:
    return copied(3, 4).reorder([0, 0])


@refused(ScheduleError, "iS_r{[offsets]} of y cannot be Simd: the number of lanes is a constant")
def lanes_of_a_ragged_axis() -> Any:
    return copied_rows().parallelize(1, P.Simd)


@refused(ScheduleError, "iS_i{n} of y cannot be Vectorize: the number of lanes is a constant")
def lanes_of_a_symbolic_axis() -> Any:
    return copied("n").parallelize(0, P.Vectorize)


@refused(
    ScheduleError,
    "iS_i_inner{4} of y cannot be vectorized: 4 does not divide iS_i{15}, and the lanes of an indivisible"
    " split cannot be predicated one by one",
)
def lanes_of_an_indivisible_split() -> Any:
    return copied(15).vectorize(0, 4)


@refused(
    ScheduleError,
    "iS_i_outer{4} of y cannot be vectorized: 4 does not divide iS_i{15}, and the lanes of an indivisible"
    " split cannot be predicated one by one",
)
def lanes_of_the_outer_part_of_an_indivisible_split() -> Any:
    return copied(15).split(0, 4).parallelize(0, P.Vectorize)


@refused(
    ScheduleError,
    "iS_r_inner{4} of y cannot be vectorized: 4 does not divide iS_r{[offsets]}, and the lanes of an "
    "indivisible split cannot be predicated one by one",
)
def lanes_of_an_indivisible_split_of_rows() -> Any:
    return copied_rows().vectorize(1, 4)


@refused(
    ScheduleError,
    "iS_id_inner{4} of y cannot be vectorized: 4 does not divide iS_d{6}, the inner axis of a merge of "
    "axes that do not follow each other in memory (Theorem 5)",
)
def lanes_across_a_merge_of_axes_that_do_not_follow_each_other() -> Any:
    """Theorem 5: 4 divides 6 · 6, but not the inner 6."""
    y = copied(6, 6)
    row, column = y.domain.logical
    return y.set_allocation_domain([column, row]).merge(0).vectorize(0, 4)


@refused(ScheduleError, "iS_d{4} of y is missing in the allocation [iS_i{3}]")
def allocation_without_an_axis() -> Any:
    y = copied(3, 4)
    return y.set_allocation_domain(y.domain.logical[:1])


@refused(ScheduleError, "iS_i_inner{4} of y is missing in the allocation [iS_i_outer{2}]")
def allocation_of_half_a_split() -> Any:
    y = copied(8)
    return y.set_allocation_domain(IterDomain.split(y.domain.logical[0], 4)[:1])


@refused(
    ScheduleError,
    "iS_i{7} of y cannot be part of the allocation [iS_i{7}]: Resize(-1, 0): iS_i{8} → iS_i{7} cuts elements off",
)
def allocation_that_cuts_elements_off() -> Any:
    y = copied(8)
    return y.set_allocation_domain([IterDomain.resize(y.domain.logical[0], -1, 0)])


@refused(
    ScheduleError,
    "iS_ic{2} of y cannot be part of the allocation [iS_icir{5}]: Partition: iS_i{8} → iS_ic{2}, iS_ir{[2, 3]} cuts "
    "elements off",
)
def allocation_of_rows_that_do_not_fill_an_axis() -> Any:
    y = copied(8)
    return y.set_allocation_domain([IterDomain.combine(*IterDomain.partition(y.domain.logical[0], listed((2, 3))))])


@refused(ScheduleError, "iS_i{8} of y is twice in the allocation [iS_i{8}, iS_i{8}]")
def allocation_with_an_axis_twice() -> Any:
    y = copied(8)
    return y.set_allocation_domain(y.domain.logical * 2)


@refused(
    ScheduleError,
    "iS_i{8} of y is twice in the allocation [iS_i{8}, iS_i_outer{2}, iS_i_inner{4}], as it is and by Split(4): "
    "iS_i{8} → iS_i_outer{2}, iS_i_inner{4}",
)
def allocation_with_an_axis_and_its_parts() -> Any:
    y = copied(8)
    return y.set_allocation_domain([y.domain.logical[0], *IterDomain.split(y.domain.logical[0], 4)])


@refused(
    ScheduleError,
    "iS_i_outer{4} of y cannot be part of the allocation [iS_i_outer{2}, iS_i_outer{4}]: iS_i{8} is used by Split(4): "
    "iS_i{8} → iS_i_outer{2}, iS_i_inner{4} already",
)
def allocation_of_halves_of_two_splits() -> Any:
    y = copied(8)
    axis = y.domain.logical[0]
    return y.set_allocation_domain([IterDomain.split(axis, 4)[0], IterDomain.split(axis, 2)[0]])


@refused(ScheduleError, "iS_a{8} of y cannot be part of the allocation [iS_a{8}]: it is not made of [iS_i{8}]")
def allocation_by_the_axis_of_another_tensor() -> Any:
    return copied(8).set_allocation_domain([IterDomain(8, name="a")])


@refused(ScheduleError, "iS_i_outer{2} is missing in the allocation [iS_i_inner{4}]")
def allocation_of_half_a_split_in_a_tensor_domain() -> Any:
    axis = IterDomain(8, name="i")
    return TensorDomain([axis], allocation=IterDomain.split(axis, 4)[1:])


@refused(
    RaggednessError,
    "[iS_c{k}, iS_r{[offsets]}, iS_d{4}] of y: a ragged axis lies in memory combined with its component",
)
def allocation_by_a_ragged_axis() -> Any:
    y = copied_rows()
    return y.set_allocation_domain(y.domain.logical)


@refused(ScheduleError, "y[iS_i{8}] float32 is not a reduction")
def holes_read_by_what_does_not_reduce() -> Any:
    return copied(8).read_holes()


@refused(ScheduleError, "x[iS_i{3}] float32 is an input; nothing computes it")
def cache_before_an_input() -> Any:
    return Fusion().input("x", [3]).cache_before()


@refused(ScheduleError, "rfactor needs a sum, prod, max, min, any or all, got y[iS_i{8}] float32")
def rfactor_of_what_does_not_reduce() -> Any:
    return copied(8).rfactor(0)


@refused(ScheduleError, "rfactor needs a sum, prod, max, min, any or all, got y[iS_i{3}, rS_d{4}] float32")
def rfactor_of_a_mean() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.reduce("mean", fusion.input("x", [3, 4]), [1]), "y").rfactor(1)


@refused(ScheduleError, "iS_i{3} of y cannot be factored out: it is not reduced")
def rfactor_of_a_kept_axis() -> Any:
    return summed(3, 4).rfactor(0)


@refused(
    ScheduleError,
    "y[iS_i{3}, rS_d{4}] float32 keeps the axes it reduces as broadcast axes; rfactor a reduction that does not",
)
def rfactor_of_what_keeps_its_axes() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.reduce("sum", fusion.input("x", [3, 4]), [1], keepdims=True), "y").rfactor(0)


@refused(ScheduleError, "y[iS_i{8}] float32 cannot be prefetched: it is not an input")
def prefetch_of_what_is_computed() -> Any:
    return copied(8).prefetch()


# The table


@pytest.mark.parametrize("name", refused.cases)
def test_message(name: str) -> None:
    refused.check(name)


@pytest.mark.parametrize("name", refused.of_axes)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert refused.names_an_axis(name)


# What a refused step leaves


STEPS: dict[str, Callable[[TensorView], Any]] = {
    "split": lambda y: y.split(1, 0),
    "merge": lambda y: y.merge(2, 1),
    "combine": lambda y: y.combine(1),
    "reorder": lambda y: y.reorder([0, 0, 1]),
    "vectorize": lambda y: y.vectorize(2, 3),
    "unroll": lambda y: y.unroll(2, 0),
    "swizzle": lambda y: y.swizzle(0, 1),
    "parallelize": lambda y: y.parallelize(1, P.Vectorize),
    "rfactor": lambda y: y.rfactor(0),
    "set_allocation_domain": lambda y: y.set_allocation_domain([]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_refused_step_changes_nothing(name: str) -> None:
    y = summed_rows()
    before, key = str(y.fusion), y.fusion.key()
    with pytest.raises((ScheduleError, RaggednessError, AxisError)):
        STEPS[name](y)
    assert (str(y.fusion), y.fusion.key()) == (before, key)


def test_a_refused_merge_of_ragged_axes_changes_nothing() -> None:
    fusion = Fusion()
    first, second = IterDomain(2, name="a"), IterDomain(2, name="b")
    rows = RaggedIterDomain([IterDomain(1), IterDomain(2)], component=first, name="r")
    items = RaggedIterDomain([IterDomain(1), IterDomain(2)], component=second, name="s")
    y = fusion.output(fusion.copy(fusion.input("x", [first, rows, second, items])), "y")
    before = repr(y)
    with pytest.raises(RaggednessError, match="component axes differ"):
        y.merge(1, 3)
    assert repr(y) == before
