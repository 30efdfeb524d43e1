"""Inputs and sizes that a fusion or a kernel refuses when it is called, and compilers that fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fusion.refusals import Refusals, copied, lowered, stray_rows
from tests.fusion.samples import nested

from serrate.errors import CompileError, RaggednessError, ScheduleError
from serrate.fusion import Fusion, symbol
from serrate.kernel import lower
from serrate.runtime.compiler import compile as compile_source

refused = Refusals()


# Inputs of a call


@refused(TypeError, "the fusion has 1 inputs (x), got 0")
def too_few_inputs() -> Any:
    return copied(3).fusion.evaluate()


@refused(ValueError, "x[iS_i{3}] float32 lies in memory by 1 axes, got shape [3, 1]")
def input_of_another_number_of_axes() -> Any:
    return copied(3).fusion.evaluate(torch.ones(3, 1))


@refused(TypeError, "x[iS_i{3}] float32 was given torch.float64")
def input_of_another_dtype() -> Any:
    return copied(3).fusion.evaluate(torch.ones(3, dtype=torch.float64))


@refused(ValueError, "x[iS_i{3}] float32 has an axis of extent 3, got 4")
def input_of_another_size() -> Any:
    return copied(3).fusion.evaluate(torch.ones(4))


@refused(ValueError, "z[iS_i{n}] float32 has an axis of extent n = 3, got 4")
def inputs_of_two_sizes_by_one_name() -> Any:
    fusion = Fusion()
    fusion.output(fusion.input("x", ["n"]) + fusion.input("z", ["n"]))
    return fusion.evaluate(torch.ones(3), torch.ones(4))


@refused(ValueError, "x[iS_i{5}] float32 has an axis of extent 5, got 4")
def input_of_a_kernel_of_another_size() -> Any:
    return lowered(copied(5))(torch.ones(4))


@refused(IndexError, "t2[iS_i{1}] float32 = gather(table, ids, 0, 0): an index is outside of iS_i{3}, of 3")
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


# Sizes that are known when it runs


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
    "y[iS_r{offsets[3] - offsets[2]}, iS_d{4}] float32 = select(t2, 0, 2) of iS_c{k}, where {'n': 3, 'k': 2}",
)
def select_of_a_component_that_is_not_there() -> Any:
    fusion = Fusion()
    y = fusion.output(fusion.select(nested(fusion, 4), 0, 2), "y")
    return lowered(y).buffers([torch.ones(3, 4), torch.tensor([0, 1, 3])])


@refused(ScheduleError, "kernel has indices of 32 bits, which do not reach 2147483648", of_an_axis=False)
def more_elements_than_indices_of_32_bits() -> Any:
    y = copied("n")
    kernel = lower(y.fusion, y, index="int32")
    return kernel.buffers([torch.empty(2**31, device="meta")])


@refused(ScheduleError, "iS_i{n} cannot be split by f, where {'n': 3, 'f': 0}")
def symbolic_factor_of_zero() -> Any:
    y = copied("n")
    y.fusion.input("w", ["f"])
    return lowered(y.split(0, symbol("f")))(torch.ones(3), torch.ones(0))


# The table


@pytest.mark.parametrize("name", refused.cases)
def test_message(name: str) -> None:
    refused.check(name)


@pytest.mark.parametrize("name", refused.of_axes)
def test_a_refusal_names_an_axis(name: str) -> None:
    assert refused.names_an_axis(name)


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
