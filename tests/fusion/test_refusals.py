"""Every refused schedule and every wrong call: the exception, and its words, which name the axis and the rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from serrate.errors import AxisError, CompileError, RaggednessError, ScheduleError
from serrate.fusion import (
    Fusion,
    IterDomain,
    IterType,
    Memory,
    ParallelType,
    RaggedIterDomain,
    TensorDomain,
    TensorView,
    const,
    symbol,
)
from serrate.fusion.expressions import component_of
from serrate.fusion.indexing import Indices
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.raggedness import Listed
from serrate.fusion.scalar import add, call, evaluate, load
from serrate.kernel import lower
from serrate.runtime.compiler import compile as compile_source

P = ParallelType
Case = tuple[Callable[[], Any], type[Exception], str]
CASES: dict[str, Case] = {}
AXIS = re.compile(r"[irb](S|[VUTL]|blockIdx\.[xyz]|threadIdx\.[xyz])\w*\{")  # as an axis is printed


def refused(error: type[Exception], text: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a call that must raise this into the table."""

    def enter(function: Callable[[], Any]) -> Callable[[], Any]:
        assert function.__name__ not in CASES
        CASES[function.__name__] = (function, error, text)
        return function

    return enter


# What the cases are made of


def nested(fusion: Fusion, *features: int, name: str = "x", offsets: str = "offsets") -> TensorView:
    """An input [n, *features] as [k, r, *features]."""
    known = [tensor for tensor in fusion.inputs if tensor.name == offsets]
    place = known[0] if known else fusion.input(offsets, [symbol("k") + 1], "int64")
    return fusion.view_as_nested(fusion.input(name, ["n", *features]), place)


def copied(*shape: int | str) -> TensorView:
    """A copy of an input of this shape, an output."""
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("x", list(shape))), "y")


def copied_rows() -> TensorView:
    """A copy of [k, r, 4], an output."""
    fusion = Fusion()
    return fusion.output(fusion.copy(nested(fusion, 4)), "y")


def summed(*shape: int | str, axis: int = 1) -> TensorView:
    """A sum over an axis of an input of this shape, an output."""
    fusion = Fusion()
    return fusion.output(fusion.reduce("sum", fusion.input("x", list(shape)), [axis]), "y")


def summed_rows() -> TensorView:
    """The sum over r of [k, r, 4], an output."""
    fusion = Fusion()
    return fusion.output(fusion.reduce("sum", nested(fusion, 4), [1]), "y")


def lowered(y: TensorView, target: str = "cpp") -> Any:
    return lower(y.fusion, y, target=target)


def ragged_of(*lengths: int) -> RaggedIterDomain:
    return RaggedIterDomain([IterDomain(length) for length in lengths], name="r")


def stray_rows() -> TensorView:
    """An input whose ragged axis depends on an axis that it does not have."""
    rows = RaggedIterDomain.of(ragged_of(1, 2).raggedness, component=IterDomain(2, name="c"), name="r")
    return Fusion().input("x", TensorDomain([rows], allocation=[IterDomain(3, name="i")]))


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
def slice_of_more_than_there_is() -> Any:
    fusion = Fusion()
    return fusion.slice(fusion.input("x", [3]), 0, 2, -2)


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


@refused(RaggednessError, "iS_d{4} cannot be combined: it is not ragged")
def combine_of_regular_axes() -> Any:
    return copied(3, 4).combine(0)


@refused(RaggednessError, "iS_r{[offsets]} cannot be combined with iS_d{4}, which is not its component axis")
def combine_with_another_axis() -> Any:
    return copied_rows().reorder([2, 1, 0]).combine(0)


# Loops of a tensor


@refused(AxisError, "y has 2 loop axes, got axis 2")
def loop_axis_out_of_range() -> Any:
    return copied(3, 4).split(2, 2)


@refused(AxisError, "y has 2 loop axes, got axis 2")
def merge_of_the_last_axis() -> Any:
    return copied(3, 4).merge(1)


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


@refused(ScheduleError, "iS_c_inner{2} of y is made of the component axis of iS_r{[offsets]}; they cannot be merged")
def merge_of_part_of_a_component_axis_and_rows() -> Any:
    return copied_rows().split(0, 2).merge(1)


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


@refused(ScheduleError, "rfactor needs a sum, prod, max or min, got y[iS_i{8}] float32")
def rfactor_of_what_does_not_reduce() -> Any:
    return copied(8).rfactor(0)


@refused(ScheduleError, "rfactor needs a sum, prod, max or min, got y[iS_i{3}, rS_d{4}] float32")
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


# Tensors and operations


@refused(ValueError, "there is a tensor named 'x' already")
def name_that_is_taken() -> Any:
    fusion = Fusion()
    fusion.input("x", [3])
    return fusion.input("x", [4])


@refused(ValueError, "there is a tensor named 'x' already")
def name_of_an_output_that_is_taken() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("x", [3])), "x")


@refused(ValueError, "'n' is the name of a size already; a tensor needs another")
def name_of_a_size() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("x", ["n"])), "n")


@refused(ValueError, "n is the name of a tensor; a size of n[iS_i{n}] float32 needs another")
def size_with_the_name_of_a_tensor() -> Any:
    return Fusion().input("n", ["n"])


@refused(
    ValueError,
    "no dtype 'floaty'; there are bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64",
)
def unknown_dtype() -> Any:
    return Fusion().input("x", [3], "floaty")


@refused(
    ValueError,
    "no dtype 'float8'; there are bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64",
)
def cast_to_an_unknown_dtype() -> Any:
    fusion = Fusion()
    return fusion.cast(fusion.input("x", [3]), "float8")


@refused(KeyError, "no tensor is named 'z'; there are x, y")
def name_that_is_not_there() -> Any:
    return copied(3).fusion.named("z")


@refused(RaggednessError, "axis 1 of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 is ragged already")
def view_of_a_ragged_axis() -> Any:
    fusion = Fusion()
    x = nested(fusion, 4)
    return fusion.view_as_nested(x, fusion.named("offsets"), 1)


@refused(TypeError, "offsets must be int32 or int64, got offsets[iS_i{k}] float32")
def offsets_that_are_not_whole() -> Any:
    fusion = Fusion()
    return fusion.view_as_nested(fusion.input("x", ["n"]), fusion.input("offsets", ["k"], "float32"))


@refused(RaggednessError, "extents must have one axis, got extents[iS_i{3}, iS_d{4}] int64")
def extents_of_two_axes() -> Any:
    fusion = Fusion()
    return fusion.offsets_of_extents(fusion.input("extents", [3, 4], "int64"))


@refused(
    ValueError,
    "no operation 'sinh'; there are neg, abs, exp, log, sqrt, rsqrt, reciprocal, tanh, erf, sin, cos, "
    "floor, ceil, relu, sigmoid, silu, gelu, square",
)
def unknown_function() -> Any:
    fusion = Fusion()
    return fusion.unary("sinh", fusion.input("x", [3]))


@refused(ValueError, "no operation 'median'; there are sum, prod, max, min, mean, var, logsumexp, argmax, argmin")
def unknown_reduction() -> Any:
    fusion = Fusion()
    return fusion.reduce("median", fusion.input("x", [3]), [0])


@refused(TypeError, "exp needs floating-point numbers, got x[iS_i{3}] int64")
def exponential_of_whole_numbers() -> Any:
    fusion = Fusion()
    return fusion.unary("exp", fusion.input("x", [3], "int64"))


@refused(TypeError, "add needs at least one tensor, got 1 and 2")
def binary_of_numbers() -> Any:
    return Fusion().binary("add", 1, 2)


@refused(TypeError, "add needs tensors of one dtype, got float32, float64; cast them")
def binary_of_two_dtypes() -> Any:
    fusion = Fusion()
    return fusion.input("x", [3]) + fusion.input("z", [3], "float64")


@refused(TypeError, "add of int32 needs whole numbers, got [1.5]; cast the tensor")
def fraction_added_to_whole_numbers() -> Any:
    return Fusion().input("x", [3], "int32") + 1.5


@refused(TypeError, "div needs floating-point numbers, got int32; cast them")
def division_of_whole_numbers() -> Any:
    return Fusion().input("x", [3], "int32") / 2


@refused(TypeError, "where needs tensors of one dtype, got numbers only; cast them")
def where_of_numbers() -> Any:
    fusion = Fusion()
    return fusion.where(fusion.input("x", [3], "bool"), 1.0, 2.0)


@refused(TypeError, "where needs a condition of bool, got x[iS_i{3}] float32")
def where_without_a_condition() -> Any:
    fusion = Fusion()
    x = fusion.input("x", [3])
    return fusion.where(x, x, x)


@refused(ValueError, "add of x[iS_i{3}, iS_d{4}] float32 and z[iS_i{3}, iS_d{5}] float32: the extents 4 and 5 differ")
def binary_of_different_extents() -> Any:
    fusion = Fusion()
    return fusion.input("x", [3, 4]) + fusion.input("z", [3, 5])


@refused(
    RaggednessError,
    "add of t2[iS_c{k}, iS_r{[offsets]}] float32 and t5[iS_c{k}, iS_r{[others]}] float32: iS_r{[offsets]}"
    " and iS_r{[others]} are not the same raggedness",
)
def binary_of_different_raggedness() -> Any:
    fusion = Fusion()
    return nested(fusion) + nested(fusion, name="z", offsets="others")


@refused(
    RaggednessError,
    "add of t2[iS_c{k}, iS_r{[offsets]}] float32 and z[iS_i{k}, iS_d{4}] float32: iS_r{[offsets]} and "
    "iS_d{4} are not the same raggedness",
)
def binary_of_ragged_and_regular() -> Any:
    fusion = Fusion()
    return nested(fusion) + fusion.input("z", ["k", 4])


@refused(AxisError, "x[iS_i{3}] float32 has 1 axes, but [False, True, False] leaves place for 2")
def broadcast_of_another_number_of_axes() -> Any:
    fusion = Fusion()
    return fusion.broadcast(fusion.input("x", [3]), [False, True, False])


@refused(AxisError, "axis 3 of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32, which has 3 axes")
def axis_out_of_range() -> Any:
    fusion = Fusion()
    return fusion.reduce("sum", nested(fusion, 4), [3])


@refused(TypeError, "mean needs floating-point numbers, got x[iS_i{3}] int32")
def mean_of_whole_numbers() -> Any:
    fusion = Fusion()
    return fusion.reduce("mean", fusion.input("x", [3], "int32"), [0])


@refused(AxisError, "sum of x[iS_i{3}] float32 needs at least one axis to reduce")
def reduction_of_no_axis() -> Any:
    fusion = Fusion()
    return fusion.reduce("sum", fusion.input("x", [3]), [])


@refused(AxisError, "argmax of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 reduces one axis, got [1, 2]")
def position_in_two_axes() -> Any:
    fusion = Fusion()
    return fusion.reduce("argmax", nested(fusion, 4), [1, 2])


@refused(AxisError, "sum of t1[bS{1}, iS_i{3}] float32 cannot reduce a broadcast axis")
def reduction_of_a_broadcast_axis() -> Any:
    fusion = Fusion()
    return fusion.reduce("sum", fusion.broadcast(fusion.input("x", [3]), [True, False]), [0])


@refused(ValueError, "slice takes start ≥ 0 and stop ≤ 0 (from the end), got -1 and 0")
def slice_from_the_wrong_end() -> Any:
    fusion = Fusion()
    return fusion.slice(fusion.input("x", [8]), 0, -1, 0)


@refused(ValueError, "slice takes start ≥ 0 and stop ≤ 0 (from the end), got 1 and 3")
def slice_to_a_position() -> Any:
    fusion = Fusion()
    return fusion.slice(fusion.input("x", [8]), 0, 1, 3)


@refused(ValueError, "pad takes numbers of 0 or more, got -1 and 0")
def pad_by_less_than_nothing() -> Any:
    fusion = Fusion()
    return fusion.pad(fusion.input("x", [8]), 0, -1, 0)


@refused(
    RaggednessError,
    "axis 0 of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 cannot be resized: a ragged axis depends on it",
)
def pad_of_a_component_axis() -> Any:
    fusion = Fusion()
    return fusion.pad(nested(fusion, 4), 0, 0, 1)


@refused(
    RaggednessError,
    "concat along axis 1 needs axes of known extents, got t2[iS_c{k}, iS_r{[offsets]}] float32 and "
    "t4[iS_c{k}, iS_r{[offsets]}] float32",
)
def concat_of_rows() -> Any:
    fusion = Fusion()
    return fusion.concat(nested(fusion), nested(fusion, name="z"), 1)


@refused(
    RaggednessError, "concat along axis 0 needs axes of known extents, got x[iS_i{n}] float32 and z[iS_i{m}] float32"
)
def concat_of_symbolic_axes() -> Any:
    fusion = Fusion()
    return fusion.concat(fusion.input("x", ["n"]), fusion.input("z", ["m"]), 0)


@refused(AxisError, "concat needs tensors of as many axes, got x[iS_i{3}, iS_d{4}] float32 and z[iS_i{3}] float32")
def concat_of_different_numbers_of_axes() -> Any:
    fusion = Fusion()
    return fusion.concat(fusion.input("x", [3, 4]), fusion.input("z", [3]), 1)


@refused(TypeError, "gather needs indices of int32 or int64, got z[iS_i{3}] float32")
def gather_by_numbers_that_are_not_whole() -> Any:
    fusion = Fusion()
    return fusion.gather(fusion.input("x", [3]), fusion.input("z", [3]))


@refused(RaggednessError, "gather takes from a tensor of regular axes, got t2[iS_c{k}, iS_r{[offsets]}] float32")
def gather_from_ragged_rows() -> Any:
    fusion = Fusion()
    return fusion.gather(nested(fusion), fusion.input("z", [3], "int64"))


@refused(IndexError, "index 3 of axis 0 of x[iS_i{3}] float32")
def select_out_of_range() -> Any:
    fusion = Fusion()
    return fusion.select(fusion.input("x", [3]), 0, 3)


@refused(IndexError, "index -1 of axis 0 of x[iS_i{n}] float32")
def select_below_zero() -> Any:
    fusion = Fusion()
    return fusion.select(fusion.input("x", ["n"]), 0, -1)


@refused(
    RaggednessError,
    "iS_r{[offsets]} of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 is ragged; select its component axis instead",
)
def select_of_a_ragged_axis() -> Any:
    fusion = Fusion()
    return fusion.select(nested(fusion, 4), 1, 0)


@refused(
    RaggednessError,
    "select on iS_c{2} of x[iS_c{2}, iS_r{[outer]}, iS_s{[inner]}] float32: iS_s{[inner]} depends on it "
    "through other axes",
)
def select_of_an_axis_that_others_depend_on_through_rows() -> Any:
    fusion = Fusion()
    components = IterDomain(2, name="c")
    rows = RaggedIterDomain.from_offsets("outer", count=2, size=3, component=components, name="r")
    items = RaggedIterDomain.from_offsets(
        "inner", count=3, size=5, component=IterDomain.combine(components, rows), name="s"
    )
    return fusion.select(fusion.input("x", [components, rows, items]), 0, 1)


@refused(RaggednessError, "a ragged axis depends on iS_c{2}, which is not there")
def copy_of_rows_without_components() -> Any:
    x = stray_rows()
    return x.fusion.copy(x)


@refused(RaggednessError, "Swizzle(xor): iS_x{4}, iS_y{4} → iS_x{4}, iS_y{4} cannot be done again")
def copy_of_rows_of_swizzled_components() -> Any:
    fusion = Fusion()
    x, y = IterDomain(4, name="x"), IterDomain(4, name="y")
    mixed = IterDomain.swizzle(x, y)[1]
    rows = RaggedIterDomain([IterDomain(2)] * 4, component=mixed, name="r")
    return fusion.copy(fusion.input("x", TensorDomain([x, y, rows], allocation=[IterDomain(32)])))


# Inputs of a call


@refused(TypeError, "the fusion has 1 inputs, got 0")
def too_few_inputs() -> Any:
    return copied(3).fusion.evaluate()


@refused(ValueError, "x[iS_i{3}] float32 lies in memory by 1 axes, got shape [3, 1]")
def input_of_another_number_of_axes() -> Any:
    return copied(3).fusion.evaluate(torch.ones(3, 1))


@refused(TypeError, "x[iS_i{3}] float32 was given torch.float64")
def input_of_another_dtype() -> Any:
    return copied(3).fusion.evaluate(torch.ones(3, dtype=torch.float64))


@refused(ValueError, "x[iS_i{3}] float32 has an axis of extent 3 = 3, got 4")
def input_of_another_size() -> Any:
    return copied(3).fusion.evaluate(torch.ones(4))


@refused(ValueError, "z[iS_i{n}] float32 has an axis of extent n = 3, got 4")
def inputs_of_two_sizes_by_one_name() -> Any:
    fusion = Fusion()
    fusion.output(fusion.input("x", ["n"]) + fusion.input("z", ["n"]))
    return fusion.evaluate(torch.ones(3), torch.ones(4))


@refused(ValueError, "x[iS_i{3}] float32 has an axis of extent 3 = 3, got 4")
def input_of_a_kernel_of_another_size() -> Any:
    return lowered(copied(3))(torch.ones(4))


@refused(IndexError, "t2[iS_i{1}] float32 = gather(table, ids, 1): an index is outside of iS_i{3}, of 3")
def index_that_the_table_does_not_have() -> Any:
    fusion = Fusion()
    fusion.output(fusion.gather(fusion.input("table", [3]), fusion.input("ids", [1], "int64")))
    return fusion.evaluate(torch.ones(3), torch.tensor([7]))


@refused(IndexError, "t1[] float32 = select(x, 0, 5) of iS_i{n}, of 3")
def evaluate_of_an_index_that_is_not_there() -> Any:
    fusion = Fusion()
    fusion.output(fusion.select(fusion.input("x", ["n"]), 0, 5))
    return fusion.evaluate(torch.ones(3))


@refused(RaggednessError, "the index of iS_c{2} does not follow from those of []")
def evaluate_of_rows_without_components() -> Any:
    return stray_rows().fusion.evaluate(torch.ones(3))


# Lowering


@refused(ScheduleError, "loop iS_id{12} of y walks axes of which z[iS_i{4}] float32 has only some; do not merge them")
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
    "z[iS_i{4}] float32 does not have the shared loop axis iS_i{n}, which may have no index at all; give "
    "it a kernel of its own",
)
def output_without_a_shared_loop_that_may_be_empty() -> Any:
    fusion = Fusion()
    x = fusion.input("x", ["n", 4])
    total = fusion.output(fusion.reduce("sum", x, [1]), "total")
    fusion.output(fusion.copy(fusion.input("w", [4])), "z")
    return lower(fusion, total)


@refused(ScheduleError, "the index of iS_i{4} does not follow from the loops; the schedule does not cover it")
def output_over_other_axes() -> Any:
    y = copied(3)
    y.fusion.output(y.fusion.copy(y.fusion.input("z", [4])), "other")
    return lowered(y)


@refused(ScheduleError, "loop rT_d{4} is reduced by y[iS_i{3}, rT_d{4}] float32: Thread loops cannot be; rfactor it")
def threads_that_reduce() -> Any:
    return lowered(summed(3, 4).parallelize(1, P.Thread))


@refused(
    ScheduleError,
    "loop iS_r_outer{[offsets_by_2]} of y stands outside the loop of its component axis iS_c{k}; only a "
    "ragged axis that is not transformed can, walked to the longest row",
)
def pieces_of_rows_outside_of_their_components() -> Any:
    return lowered(copied_rows().split(1, 2).reorder({1: 0}))


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


@refused(
    ScheduleError,
    "y[rS_i{8}, iS_d{n}] float32 needs a value for each index of loop iS_d{n}, whose extent is not a "
    "constant: put the loop outside of what is reduced, or split it by a constant and put the outer part "
    "outside",
)
def state_for_each_index_of_a_symbolic_loop() -> Any:
    return lowered(summed(8, "n", axis=0))


@refused(
    ScheduleError,
    "y[rS_d{4}, iS_c{k}, iS_r{[offsets]}] float32 needs a value for each index of loop iS_c{k}, whose "
    "extent is not a constant: put the loop outside of what is reduced, or split it by a constant and put"
    " the outer part outside",
)
def state_for_each_row() -> Any:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 4), [2]), "y")
    return lowered(y.reorder([2, 0, 1]))


def softmax(dtype: str = "float32") -> tuple[TensorView, TensorView]:
    """(exponentials, output)."""
    fusion = Fusion()
    x = fusion.input("x", [3, 8], dtype)
    exponentials = fusion.unary("exp", x)
    return exponentials, fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")


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


@refused(ScheduleError, "t1[iS_i{8}] float32 cannot be kept in y[iS_i{8}] float32: it is stored in the same phase")
def kept_in_what_is_stored_in_the_same_phase() -> Any:
    fusion = Fusion()
    x = fusion.unary("exp", fusion.input("x", [8]))
    y = fusion.output(x + 1.0, "y")
    x.keep_in(y)
    return lowered(y)


@refused(
    ScheduleError,
    "t1[iS_i{3}, iS_d{8}] float32 cannot be kept in y[iS_i{3}, iS_d{8}] float32: another tensor is kept there",
)
def kept_where_another_is_kept() -> Any:
    exponentials, y = softmax()
    other = y.fusion.unary("log", exponentials)
    total = y.fusion.reduce("sum", other, [1], keepdims=True)
    y.fusion.output(other / total, "z")
    exponentials.keep_in(y)
    other.keep_in(y)
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


@refused(ScheduleError, "loop ithreadIdx.x_i{8} of y: another loop is TIDx already")
def two_loops_of_one_kind() -> Any:
    return lowered(copied(8, 4).parallelize(0, P.TIDx).parallelize(1, P.TIDx), "cuda")


@refused(
    ScheduleError,
    "y[ithreadIdx.x_i{64}, ithreadIdx.y_d{32}] float32: a block has at most 1024 threads, the schedule asks for 2048",
)
def too_many_threads() -> Any:
    return lowered(copied(64, 32).parallelize(0, P.TIDx).parallelize(1, P.TIDy), "cuda")


@refused(
    ScheduleError, "t1[iS{3}] int64 = offsets_of(Listed(extents=(1, 2))) is not computed by kernels; make it an input"
)
def sum_of_offsets_in_a_kernel() -> Any:
    fusion = Fusion()
    rows = ragged_of(1, 2)
    x = fusion.input("x", [IterDomain(2, name="c"), rows])
    return lowered(fusion.output(fusion.offsets_of(x, rows) + 1, "y"))


# When it runs


@refused(ScheduleError, "iV_i_inner{4} cannot be vectorized: 4 does not divide iS_i{n}, where {'n': 15}")
def symbolic_extent_that_lanes_do_not_divide() -> Any:
    y = copied("n").vectorize(0, 4)
    return lowered(y, "cuda").buffers([torch.ones(15)])


@refused(IndexError, "y[iS_d{4}] float32 = select(x, 0, 5) of iS_i{n}, where {'n': 3}")
def select_of_what_a_symbolic_axis_does_not_have() -> Any:
    fusion = Fusion()
    return lowered(fusion.output(fusion.select(fusion.input("x", ["n", 4]), 0, 5), "y"))(torch.ones(3, 4))


@refused(
    IndexError,
    "y[iS_r{offsets[3] - offsets[2]}, iS_d{4}] float32 = select(t2, 0, 2) of iS_c{k}, where {'k': 2, 'n': 3}",
)
def select_of_a_component_that_is_not_there() -> Any:
    fusion = Fusion()
    y = fusion.output(fusion.select(nested(fusion, 4), 0, 2), "y")
    return lowered(y).buffers([torch.tensor([0, 1, 3]), torch.ones(3, 4)])


@refused(ScheduleError, "kernel has indices of 32 bits, and a buffer of 2147483648 elements")
def more_elements_than_indices_of_32_bits() -> Any:
    y = copied("n")
    kernel = lower(y.fusion, y, index="int32")
    return kernel.variant({"x": torch.empty(2**31, device="meta")})


@refused(ScheduleError, "iS_i{n} cannot be split by f, where {'n': 3, 'f': 0}")
def symbolic_factor_of_zero() -> Any:
    y = copied("n")
    y.fusion.input("w", ["f"])
    return lowered(y.split(0, symbol("f")))(torch.ones(3), torch.ones(0))


# Scalars


@refused(TypeError, "operands must have one dtype, got index (1) and float64 (1.5)")
def scalars_of_two_dtypes() -> Any:
    return add(const(1), const(1.5))


@refused(
    ValueError,
    "no function 'sinh'; there are min, max, neg, abs, exp, log, sqrt, rsqrt, tanh, erf, sin, cos, floor, ceil, isnan",
)
def scalar_function_that_is_unknown() -> Any:
    return call("sinh", const(1.5))


@refused(IndexError, "offsets[4] of 3")
def load_out_of_bounds() -> Any:
    return evaluate(load("offsets", 4), {}, {"offsets": [0, 1, 2]})


@refused(ScheduleError, "the index of iS_i{3} is not known here")
def index_that_is_not_known() -> Any:
    return Indices(AxisGraph([])).of(IterDomain(3, name="i"))


# The table


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    function, kind, text = CASES[name]
    with pytest.raises(kind) as caught:
        function()
    assert caught.value.args[0] == text
    assert type(caught.value) is kind


SCHEDULES = [name for name, (_, kind, _) in CASES.items() if kind in (ScheduleError, RaggednessError)]
SCHEDULES.remove("more_elements_than_indices_of_32_bits")  # of a kernel, not of an axis


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert AXIS.search(CASES[name][2])


def test_each_case_is_a_refusal_of_its_own() -> None:
    assert len({(kind, text) for _, kind, text in CASES.values()}) >= len(CASES) - 4


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


# Compilers


def test_a_compiler_that_fails_is_quoted() -> None:
    source = "int wrong(\n"
    with pytest.raises(CompileError) as caught:
        compile_source(source)
    error = caught.value
    assert error.source == source
    assert error.command in str(error)
    assert "error" in error.output
    assert error.output.strip() in str(error)
    assert "   1 int wrong(" in str(error)
