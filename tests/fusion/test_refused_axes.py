"""Axes, steps of axes and scalars that cannot be: the exception, and its words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fusion.refusals import Refusals, copied, copied_rows, ragged_of, summed, summed_rows

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, IterDomain, IterType, RaggedIterDomain, TensorDomain, const
from serrate.fusion import ParallelType as P
from serrate.fusion.analysis import evaluate
from serrate.fusion.expressions import component_of
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.indices import Indices
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.raggedness import Listed, listed
from serrate.fusion.scalar import add, call, load, symbol

refused = Refusals()


# Axes


@refused(ValueError, "an extent must be 0 or more, got -1")
def extent_below_zero() -> Any:
    return IterDomain(-1)


@refused(ValueError, "an extent must be 0 or more, got -4")
def extent_below_zero_of_an_input() -> Any:
    return Fusion().input("x", [3, -4])


@refused(ValueError, "offsets must have one axis, got offsets[iS_i{3}, iS_d{4}] int64")
def offsets_of_two_axes() -> Any:
    return RaggedIterDomain.from_offsets(Fusion().input("offsets", [3, 4], "int64"))


@refused(ValueError, "the number of components must be given for offsets that are only named")
def offsets_of_unknown_number() -> Any:
    return RaggedIterDomain.from_offsets("offsets")


@refused(ValueError, "the components of iS_r{[offsets]} are known only when it runs")
def components_that_the_host_does_not_know() -> Any:
    return RaggedIterDomain.from_offsets("offsets", count="k", name="r").nested_domains


@refused(ValueError, "iS_r{[offsets]} has k components, a number known only when it runs")
def offsets_that_the_host_does_not_know() -> Any:
    return RaggedIterDomain.from_offsets("offsets", count="k", name="r").offsets


@refused(TypeError, "offsets must be int32 or int64, got offsets[iS_i{3}] float32")
def offsets_that_are_no_whole_numbers() -> Any:
    return RaggedIterDomain.from_offsets(Fusion().input("offsets", [3]))


@refused(TypeError, "extents must be int32 or int64, got extents[iS_i{3}] float32")
def extents_that_are_no_whole_numbers() -> Any:
    return RaggedIterDomain.from_extents(Fusion().input("extents", [3]))


@refused(RaggednessError, "3 components have 4 offsets, got offsets[iS_i{5}] int64", of_an_axis=False)
def offsets_of_another_number() -> Any:
    return RaggedIterDomain.from_offsets(Fusion().input("offsets", [5], "int64"), count=3)


@refused(RaggednessError, "iS_r{[offsets]} has 4 components, but its component axis iS_c{3} has 3 indices")
def offsets_of_more_rows_than_components() -> Any:
    offsets = Fusion().input("offsets", [5], "int64")
    return RaggedIterDomain.from_offsets(offsets, size="n", component=IterDomain(3, name="c"), name="r")


@refused(RaggednessError, "iS_r{[1, 2]} has 2 components, but its component axis iS_c{3} has 3 indices")
def fewer_extents_than_components() -> Any:
    return RaggedIterDomain([IterDomain(1), IterDomain(2)], component=IterDomain(3, name="c"), name="r")


@refused(
    RaggednessError,
    "iS_r{[1, 2]} cannot be the component axis of iS_s{[3, 4, 5]}: it is ragged; combine it with its own component "
    "axis",
)
def component_axis_that_is_ragged() -> Any:
    return RaggedIterDomain([IterDomain(length) for length in (3, 4, 5)], component=ragged_of(1, 2), name="s")


@refused(RaggednessError, "extents must be 0 or more, but that of component 1 is -2", of_an_axis=False)
def listed_extent_below_zero() -> Any:
    return RaggedIterDomain.of(listed((1, -2, 3)))


@refused(
    ScheduleError,
    "iS{5} is one component of iS_r{[3, 5]}, whose components are all run alike: parallelize that axis",
)
def one_component_run_otherwise() -> Any:
    return ragged_of(3, 5).nested_domains[1].parallelize(P.TIDx)


@refused(ValueError, "iS_a{3} stands twice in [iS_a{3}, iS_a{3}]; the axes of a tensor are each another, so clone it")
def axis_that_stands_twice() -> Any:
    return TensorDomain([IterDomain(3, name="a")] * 2)


@refused(IndexError, "component 2 of 2")
def component_out_of_range() -> Any:
    return ragged_of(3, 5).extent_for_component(2)


@refused(IndexError, "component -1 of 2")
def component_below_zero() -> Any:
    return ragged_of(3, 5).offset_for_component(-1)


@refused(ValueError, "a ragged axis needs at least one component")
def ragged_axis_of_nothing() -> Any:
    return RaggedIterDomain([])


@refused(ValueError, "the components of a ragged axis must be regular axes; nest by its component axis instead")
def ragged_axis_of_ragged_axes() -> Any:
    return RaggedIterDomain([ragged_of(1, 2)])


def unlike(**options: Any) -> Any:
    return RaggedIterDomain([IterDomain(3, name="a"), IterDomain(5, name="b", **options)])


@refused(ValueError, "component 1 (ithreadIdx.x_b{5}) of a ragged axis has parallel type TIDx, others Serial")
def components_run_differently() -> Any:
    return unlike(parallel_type=P.TIDx)


@refused(ValueError, "component 1 (rS_b{5}) of a ragged axis has iter type Reduction, others Iteration")
def components_of_different_types() -> Any:
    return unlike(iter_type=IterType.Reduction)


@refused(ValueError, "iS_i{6} starts at 2: the axes of a tensor start at 0; slice it instead")
def axis_that_starts_later() -> Any:
    return Fusion().input("x", [IterDomain(6, start=2, name="i")])


@refused(ValueError, "iS_i{6} of x starts at 2: the axes of a tensor start at 0; slice it")
def axes_made_of_one_that_starts_later() -> Any:
    return Fusion().input("x", [*IterDomain.split(IterDomain(6, start=2, name="i"), 3)])


@refused(ValueError, "component 1 (iS_b{5}) of a ragged axis starts at 1, not at 0")
def component_that_starts_later() -> Any:
    return unlike(start=1)


@refused(ValueError, "component 1 (iS_b{5}) of a ragged axis is an rfactor axis, unlike others")
def component_that_is_an_rfactor_axis() -> Any:
    return unlike(is_rfactor_domain=True)


@refused(
    ValueError, "component 1 (iS_b{5}) of a ragged axis is padded (is_padded_dimension), which a ragged axis cannot be"
)
def component_that_is_padded() -> Any:
    return unlike(is_padded_dimension=True)


@refused(
    ValueError,
    "component 1 (iS_b{5}) of a ragged axis is clustered (is_clustered_dimension), which a ragged axis cannot be",
)
def component_that_is_clustered() -> Any:
    return unlike(is_clustered_dimension=True)


@refused(
    ValueError, "component 1 (iS_b{5}) of a ragged axis is padded to size 8 (padded_to_size), which is not allowed"
)
def component_that_is_padded_to_a_size() -> Any:
    return unlike(padded_to_size=8)


@refused(RaggednessError, "iS_r{[1, 2]} has 2 components, but no axis before it in [iS_i{3}, iS_r{[1, 2]}] has as many")
def no_component_axis_before() -> Any:
    return TensorDomain([IterDomain(3, name="i"), ragged_of(1, 2)])


@refused(RaggednessError, "iS_r{[1, 2]} cannot lie in memory after []: its component axis iS_c{2} is not there")
def no_component_axis_in_memory() -> Any:
    rows = RaggedIterDomain.of(ragged_of(1, 2).raggedness, component=IterDomain(2, name="c"), name="r")
    return TensorDomain([rows]).allocation


@refused(RaggednessError, "iS_r{[1, 2]} has no component axis; put it into a TensorDomain, or name its `component`")
def no_component_axis_at_all() -> Any:
    return component_of(ragged_of(1, 2))


# Steps of axes


@refused(ScheduleError, "iS_i{8} cannot be split by 0: a factor must be positive")
def split_by_nothing() -> Any:
    return copied(8).split(0, 0)


@refused(ScheduleError, "bS{1} cannot be split: it is a broadcast axis")
def split_of_a_broadcast_axis() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.broadcast(fusion.input("x", [4]), [True, False]), "y").split(0, 2)


@refused(ScheduleError, "iS_i{3} and rS_d{4} cannot be one axis: one is reduced, the other is not")
def merge_of_reduced_and_kept() -> Any:
    return summed(3, 4).merge(0)


@refused(ScheduleError, "iS_c{k} and rS_r{[offsets]} cannot be one axis: one is reduced, the other is not")
def combine_of_reduced_and_kept() -> Any:
    return summed_rows().combine(0)


@refused(RaggednessError, "iS_r{[1, 2]} and iS_r{[3, 4]} cannot be merged: their component axes differ")
def merge_of_ragged_axes_of_different_components() -> Any:
    return IterDomain.merge(ragged_of(1, 2), ragged_of(3, 4))


@refused(ScheduleError, "bS{1} cannot be resized: it is a Broadcast axis")
def resize_of_a_broadcast_axis() -> Any:
    fusion = Fusion()
    return fusion.pad(fusion.broadcast(fusion.input("x", [4]), [True, False]), 0, 1, 1)


@refused(ScheduleError, "rS_i{3} cannot be resized: it is a Reduction axis")
def resize_of_a_reduced_axis() -> Any:
    return IterDomain.resize(IterDomain(3, iter_type=IterType.Reduction, name="i"), 0, 1)


@refused(ScheduleError, "iS_i{3} cannot be resized by (-2, -2): -1 would be left")
def resize_by_more_than_there_is() -> Any:
    return IterDomain.resize(IterDomain(3, name="i"), -2, -2)


@refused(ScheduleError, "iS_i{4} and iS_d{4} cannot be swizzled by 'spiral': there are 'xor' and 'shift'")
def swizzle_of_unknown_kind() -> Any:
    return copied(4, 4).swizzle(0, 1, "spiral")


@refused(ScheduleError, "iS_c{k} and iS_r{[offsets]} cannot be swizzled: only regular axes can")
def swizzle_of_a_ragged_axis() -> Any:
    return copied_rows().swizzle(0, 1)


@refused(ScheduleError, "iS_i{4} and iS_d{8} cannot be swizzled by xor: both need one extent, a power of two")
def swizzle_of_different_extents() -> Any:
    return copied(4, 8).swizzle(0, 1)


@refused(ScheduleError, "iS_i{6} and iS_d{6} cannot be swizzled by xor: both need one extent, a power of two")
def swizzle_of_no_power_of_two() -> Any:
    return copied(6, 6).swizzle(0, 1)


@refused(ScheduleError, "iS_i{n} and iS_d{n} cannot be swizzled by xor: both need one extent, a power of two")
def swizzle_of_symbolic_extents() -> Any:
    return copied("n", "n").swizzle(0, 1)


@refused(RaggednessError, "iS_r{[offsets]} is ragged already; combine it with its component axis first")
def partition_of_a_ragged_axis() -> Any:
    return copied_rows().partition(1, Listed((const(1),)))


@refused(RaggednessError, "iS_i{4} cannot be partitioned: the extents add up to 5")
def partition_into_more_than_there_is() -> Any:
    return copied(4).partition(0, Listed((const(3), const(2))))


@refused(ScheduleError, "bS{1} cannot be partitioned: it is a broadcast axis")
def partition_of_a_broadcast_axis() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.broadcast(fusion.input("x", [4]), [True, False]), "y").partition(0, listed((1,)))


@refused(RaggednessError, "iS_d{4} cannot be combined: it is not ragged")
def combine_of_regular_axes() -> Any:
    return copied(3, 4).combine(0)


@refused(RaggednessError, "iS_r{[offsets]} cannot be combined with iS_d{4}, which is not its component axis")
def combine_with_another_axis() -> Any:
    return copied_rows().reorder([2, 1, 0]).combine(0)


# Scalars and indices


@refused(TypeError, "operands must have one dtype, got index (1) and float64 (1.5)")
def scalars_of_two_dtypes() -> Any:
    return add(const(1), const(1.5))


@refused(ValueError, f"no scalar function 'sinus'; there are {', '.join(FUNCTIONS)}")
def scalar_function_that_is_unknown() -> Any:
    return call("sinus", const(1.5))


@refused(TypeError, "atan2 takes 2 operands, got 1")
def scalar_function_of_too_few_operands() -> Any:
    return call("atan2", const(1.5))


@refused(TypeError, "exp takes float and complex and int, got bool; cast it")
def scalar_function_of_truths() -> Any:
    return call("exp", const(True))


@refused(TypeError, "operands must have one dtype, got float32 (x) and float64 (1.0)")
def hypotenuse_of_two_dtypes() -> Any:
    return call("hypot", symbol("x", "float32"), const(1.0, "float64"))


@refused(IndexError, "offsets[4] of 3")
def load_out_of_bounds() -> Any:
    return evaluate(load("offsets", 4), {}, {"offsets": [0, 1, 2]})


@refused(ScheduleError, "the index of iS_i{3} is not known here")
def index_that_is_not_known() -> Any:
    return Indices(AxisGraph([])).of(IterDomain(3, name="i"))


# The table


@pytest.mark.parametrize("name", refused.cases)
def test_message(name: str) -> None:
    refused.check(name)


@pytest.mark.parametrize("name", refused.of_axes)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert refused.names_an_axis(name)
