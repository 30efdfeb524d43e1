"""Operations of a Fusion that are called wrongly: the exception, and its words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fusion.refusals import Refusals, copied, stray_rows
from tests.fusion.samples import nested

from serrate.errors import AxisError, RaggednessError
from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorDomain, elementwise

refused = Refusals()


# Tensors and their names


@refused(ValueError, "there is a tensor named 'x' already")
def name_that_is_taken() -> Any:
    fusion = Fusion()
    fusion.input("x", [3])
    return fusion.input("x", [4])


@refused(ValueError, "there is a tensor named 'w' already")
def name_of_an_output_that_is_taken() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("w", [3])), "w")


@refused(ValueError, "'n' is the name of a size already; a tensor needs another")
def name_of_a_size() -> Any:
    fusion = Fusion()
    return fusion.output(fusion.copy(fusion.input("x", ["n"])), "n")


@refused(ValueError, "n is the name of a tensor; a size of n[iS_i{n}] float32 needs another")
def size_with_the_name_of_a_tensor() -> Any:
    return Fusion().input("n", ["n"])


@refused(
    ValueError,
    "no dtype 'floaty'; there are bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
    "float16, bfloat16, float32, float64, complex64, complex128",
)
def unknown_dtype() -> Any:
    return Fusion().input("x", [3], "floaty")


@refused(
    ValueError,
    "no dtype 'float8'; there are bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
    "float16, bfloat16, float32, float64, complex64, complex128",
)
def cast_to_an_unknown_dtype() -> Any:
    fusion = Fusion()
    return fusion.cast(fusion.input("x", [3]), "float8")


@refused(KeyError, "no tensor is named 'z'; there are x, y")
def name_that_is_not_there() -> Any:
    return copied(3).fusion.named("z")


# Nested views and offsets


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


# Pointwise


@refused(ValueError, f"no operation 'sinus'; there are {', '.join(elementwise.names(1))}")
def unknown_function() -> Any:
    fusion = Fusion()
    return fusion.unary("sinus", fusion.input("x", [3]))


@refused(ValueError, f"no operation 'exp'; there are {', '.join(elementwise.names(2))}")
def function_of_too_many_operands() -> Any:
    fusion = Fusion()
    x = fusion.input("x", [3])
    return fusion.binary("exp", x, x)


@refused(TypeError, "relu of x[iS_i{3}] float32: relu has no option slope; its options: none")
def unknown_option() -> Any:
    fusion = Fusion()
    return fusion.unary("relu", fusion.input("x", [3]), slope=2.0)


@refused(
    ValueError,
    "no operation 'median'; there are sum, prod, max, min, any, all, count_nonzero, mean, var, logsumexp, "
    "relative_exp_sum, argmax, argmin",
)
def unknown_reduction() -> Any:
    fusion = Fusion()
    return fusion.reduce("median", fusion.input("x", [3]), [0])


@refused(TypeError, "exp of x[iS_i{3}] bool: exp takes float and complex and int, got bool; cast it")
def exponential_of_truths() -> Any:
    fusion = Fusion()
    return fusion.unary("exp", fusion.input("x", [3], "bool"))


@refused(TypeError, "add needs at least one tensor, got 1 and 2")
def binary_of_numbers() -> Any:
    return Fusion().binary("add", 1, 2)


@refused(TypeError, "add of int64 and uint64, which have no dtype in common; cast one of them")
def binary_of_dtypes_that_none_holds() -> Any:
    fusion = Fusion()
    return fusion.input("x", [3], "int64") + fusion.input("z", [3], "uint64")


@refused(OverflowError, "multiply of uint8 and 256, which that dtype does not hold; cast to a wider one")
def number_that_the_dtype_does_not_hold() -> Any:
    return Fusion().input("x", [3], "uint8") * 256


@refused(TypeError, "bitwise_and of x[iS_i{3}] float32, 2: bitwise_and takes int and bool, got float32; cast it")
def bits_of_floats() -> Any:
    fusion = Fusion()
    return fusion.binary("bitwise_and", fusion.input("x", [3]), 2)


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


# Broadcasts and reductions


@refused(AxisError, "x[iS_i{3}] float32 has 1 axes, but [False, True, False] leaves place for 2")
def broadcast_of_another_number_of_axes() -> Any:
    fusion = Fusion()
    return fusion.broadcast(fusion.input("x", [3]), [False, True, False])


@refused(AxisError, "axis 3 of t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32, which has 3 axes")
def axis_out_of_range() -> Any:
    fusion = Fusion()
    return fusion.reduce("sum", nested(fusion, 4), [3])


@refused(TypeError, "mean takes float and complex, got x[iS_i{3}] int32; cast it")
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


# Resizing, gathering, selecting


@refused(AxisError, "axis 0 of t1[bS{1}, iS_i{8}] float32 cannot be sliced: it is a broadcast axis")
def slice_of_a_broadcast_axis() -> Any:
    fusion = Fusion()
    return fusion.slice(fusion.broadcast(fusion.input("x", [8]), [True, False]), 0, None, 1)


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
    "concat along axis 1 needs axes that are all ragged, or all regular, got t2[iS_c{k}, iS_r{[offsets]}] float32 and "
    "z[iS_i{k}, iS_d{3}] float32",
)
def concat_of_rows_and_a_regular_axis() -> Any:
    fusion = Fusion()
    return fusion.concat([nested(fusion), fusion.input("z", ["k", 3])], 1)


@refused(
    ValueError,
    "concat of x[iS_i{n}, iS_d{2}] float32 and z[iS_i{m}, iS_d{2}] float32: the extents n and m differ",
)
def concat_of_axes_that_differ_elsewhere() -> Any:
    fusion = Fusion()
    return fusion.concat([fusion.input("x", ["n", 2]), fusion.input("z", ["m", 2])], 1)


@refused(TypeError, "concat of uint64 and int8, which have no dtype in common; cast one of them")
def concat_of_dtypes_that_none_holds() -> Any:
    fusion = Fusion()
    return fusion.concat([fusion.input("x", [3], "uint64"), fusion.input("z", [3], "int8")], 0)


@refused(ValueError, "concat needs at least one tensor")
def concat_of_nothing() -> Any:
    return Fusion().concat([], 0)


@refused(AxisError, "concat needs tensors of as many axes, got x[iS_i{3}, iS_d{4}] float32 and z[iS_i{3}] float32")
def concat_of_different_numbers_of_axes() -> Any:
    fusion = Fusion()
    return fusion.concat([fusion.input("x", [3, 4]), fusion.input("z", [3])], 1)


@refused(TypeError, "gather needs indices of int32 or int64, got z[iS_i{3}] float32")
def gather_by_numbers_that_are_not_whole() -> Any:
    fusion = Fusion()
    return fusion.gather(fusion.input("x", [3]), fusion.input("z", [3]))


@refused(
    RaggednessError,
    "gather along iS_c{k} of t2[iS_c{k}, iS_r{[offsets]}] float32: a ragged axis depends on it",
)
def gather_of_components() -> Any:
    fusion = Fusion()
    return fusion.gather(nested(fusion), fusion.input("z", [3], "int64"))


@refused(
    RaggednessError,
    "gather along iS_r{[offsets]} of t2[iS_c{k}, iS_r{[offsets]}] float32 shares the axes before it, got 0 shared axes",
)
def gather_along_rows_of_other_components() -> Any:
    fusion = Fusion()
    return fusion.gather(nested(fusion), fusion.input("z", ["k", 3], "int64"), 1, batch=0)


@refused(
    AxisError,
    "gather along axis 0 of x[iS_i{3}] float32 by z[iS_i{3}] int64 cannot share 1 axes",
)
def gather_that_shares_what_it_chooses_along() -> Any:
    fusion = Fusion()
    return fusion.gather(fusion.input("x", [3]), fusion.input("z", [3], "int64"), 0, batch=1)


@refused(RaggednessError, "axis 0 of x[iS_i{3}] float32 is regular already")
def dense_of_a_regular_axis() -> Any:
    fusion = Fusion()
    return fusion.to_dense(fusion.input("x", [3]), 0)


@refused(
    AxisError,
    "from_dense reads tensors of as many axes, got z[iS_i{3}] float32 for the axes [iS_c{k}, iS_r{[offsets]}]",
)
def dense_of_other_axes() -> Any:
    fusion = Fusion()
    rows = nested(fusion)
    return fusion.from_dense(fusion.input("z", [3]), rows)


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


# Copies of ragged axes that lack their component axis


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
    domain = TensorDomain([x, y, rows])
    domain.allocation = (IterDomain(32),)
    return fusion.copy(fusion.input("x", domain))


# The table


@pytest.mark.parametrize("name", refused.cases)
def test_message(name: str) -> None:
    refused.check(name)


@pytest.mark.parametrize("name", refused.of_axes)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert refused.names_an_axis(name)
