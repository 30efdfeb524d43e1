"""The dialect against the list of operations in the PTensor proposal: its names, operands and attributes."""

from __future__ import annotations

import re

import pytest

import serrate as sr
from serrate.dialects import dist
from serrate.dialects.ptensor import CLASSES, kinds_of, record_of
from serrate.ops.record import TABLE

PROPOSED = """
arange(start, stop, step, dtype, device, team)
create(shape, value, dtype, device, team)
create_like(rsh, value, dtype, device, team)
eye(n_rows, n_cols, k, dtype, device, team)
linspace(start, stop, n, dtype, device, team)
meshgrid(arrays)
extract_triangle{side}(rhs, k)
delete(tensor)
from_dlpack(obj)
from_ranked(ranked)
shape(rhs)
rank(rhs)
size(rhs)
cast(rhs, dtype, do_copy)
broadcast(rhs, shape)
result_type(inpts)
extract_slice(rhs, slice)
extract_mask(rhs, mask)
combine{cop}(tensors, axis)
expand_dims(rhs, axis)
flip(rhs, axis)
permute_dims(rhs, axis)
reshape(rhs, shape, copy)
roll(rhs, shift, axis)
squeeze(rhs, axis)
elementwise_unary_op{euop}(rhs)
elementwise_unary_test{euop}(rhs)
elementwise_binary_op{ebop}(lhs, rhs)
elementwise_binary_test{ebop}(lhs, rhs)
matmul(rhs, lhs)
matrix_transpose(rhs)
vecdot(rhs, lhs, axis)
tensor_dot(rhs, lhs, axis)
find_index{fop}(rhs, axis, keepdims)
nonzero(rhs)
where(cond, rhs, lhs)
unique_all(rhs)
unique_counts(rhs)
unique_inverse(rhs)
unique_values(rhs)
sort(rhs, descending, stable)
argsort(rhs, descending, stable)
reduce{rop}(rhs, axis, correction)
test{top}(rhs, axis)
"""
KINDS = {
    "extract_triangle": ["lower", "upper"],
    "combine": ["concat", "stack"],
    "find_index": ["argmax", "argmin"],
    "reduce": ["max", "min", "mean", "prod", "sum", "var", "std"],
    "test": ["any", "all"],
}
NAMED = {
    "elementwise_unary_op": ["abs", "acos", "acosh", "asin", "bitwise_invert"],
    "elementwise_unary_test": ["isnan", "isinf", "logical_not"],
    "elementwise_binary_op": ["add", "subtract", "bitwise_left_shift"],  # the array API's name for the proposal's sub
    "elementwise_binary_test": ["greater", "less", "equal", "logical_and"],
    "create": ["empty", "ones", "zeros", "full"],
    "create_like": ["empty_like", "ones_like", "zeros_like", "full_like"],
}


@pytest.mark.parametrize("line", PROPOSED.split("\n")[1:-1])
def test_a_proposed_operation_has_its_name_operands_and_attributes(line: str) -> None:
    found = re.fullmatch(r"(\w+)(?:\{(\w+)\})?\((.*)\)", line)
    assert found is not None
    name, kind, parameters = found.groups()
    each = CLASSES[name]
    names = [*each.operands, *each.attributes]
    assert names[: len(parameters.split(", "))] == parameters.split(", ")
    assert not kind or each.kind == kind
    assert each.is_creation is ("team" in parameters)


@pytest.mark.parametrize("name", KINDS)
def test_the_operations_of_a_class_are_those_proposed(name: str) -> None:
    assert sorted(kinds_of(name)) == sorted(KINDS[name])


@pytest.mark.parametrize("name", NAMED)
def test_operations_that_the_proposal_names_are_there(name: str) -> None:
    assert set(NAMED[name]) <= set(kinds_of(name))


PROPOSED_OF_TEAMS = """
init_dtensor(team, shape) -> dtensor_id
fini_dtensor(team, dtensor_id)
init_view(team, dtensor_id, slice) -> dtensor_id
local_shape(team, dtensor_id) -> shape
local_slice(team, dtensor_id) -> slice
copy(team, from_id, to_id, from_ltensor, to_ltensor)
finalize_reduce(team, dtensor_id, ltensor)
"""


@pytest.mark.parametrize("line", PROPOSED_OF_TEAMS.split("\n")[1:-1])
def test_a_proposed_operation_of_teams_has_its_name_operands_and_results(line: str) -> None:
    found = re.fullmatch(r"(\w+)\((.*)\)(?: -> (\w+))?", line)
    assert found is not None
    name, operands, results = found.groups()
    each = dist.CLASSES[name]
    assert [part.removeprefix("*") for part in each.operands] == operands.split(", ")
    assert [part.removeprefix("*") for part in each.results] == ([results] if results else [])


def test_the_team_is_always_the_first_operand() -> None:
    assert all(each.operands[0] == "team" for each in dist.CLASSES.values())
    assert set(dist.CLASSES) - set(re.findall(r"^(\w+)\(", PROPOSED_OF_TEAMS, re.MULTILINE)) == {"exchange"}


def test_greater_is_a_test_alone() -> None:
    assert "greater" in kinds_of("elementwise_binary_test")
    assert "greater" not in kinds_of("elementwise_binary_op")


def test_a_test_of_elements_gives_truths_and_no_other_operation_does() -> None:
    x = sr.ragged([[1.0, 2.0], []])
    for op in TABLE.values():
        if op.dialect is not None and op.dialect.of.startswith("elementwise") and "float" in op.kinds:
            made = op.function(*[x] * len(op.operands or "x"))
            assert (made.dtype is sr.bool) is op.dialect.of.endswith("_test"), op.name


def test_every_record_that_names_a_class_is_found_by_it() -> None:
    for op in TABLE.values():
        if op.dialect is not None:
            assert record_of(op.dialect.of, op.dialect.kind) is op
            each = CLASSES[op.dialect.of]
            assert bool(each.kind) is bool(op.dialect.kind)
            assert set(op.dialect.names) <= set(op.signature.parameters) | {"x", "x1", "x2"}
            shown = [op.dialect.names.get(name, name) for name in op.signature.parameters]
            assert len(set(shown)) == len(shown), "two parameters have one name"
            operands = {op.dialect.names.get(name, name) for name in op.operands}
            assert set(each.operands) <= operands, f"{op.name}: an operand of the class is no operand of the record"
