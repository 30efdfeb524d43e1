"""Partitions in types: the same expression where the structure is the same by construction, a guard where it is not."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.errors import RaggednessError
from serrate.ops.meta import Typed, meta
from serrate.ops.record import TABLE
from serrate.program.inputs import Inputs
from serrate.program.types import TensorType, Value


def typed(name: str, *arguments: Any, **named: Any) -> Typed:
    return meta(TABLE[name], arguments, named)


def result(name: str, *arguments: Any, **named: Any) -> TensorType:
    made = typed(name, *arguments, **named)
    assert made.guards == ()
    assert isinstance(made.result, TensorType)
    return made.result


def ragged(*features: int, lengths: tuple[int, ...] = (2, 0, 3), born: str = "host") -> sr.Tensor:
    x = sr.from_lengths(torch.zeros(sum(lengths), *features), list(lengths))
    return x if born == "host" else sr.testing.device_born(x)


@pytest.fixture
def inputs() -> Inputs:
    return Inputs()


@pytest.fixture(params=["host", "device"])
def pair(request, inputs: Inputs) -> tuple[TensorType, TensorType]:
    """The types of two tensors that share their partition and nothing else."""
    x = ragged(4, born=request.param)
    y = sr.Tensor(torch.zeros(5, 7), x.structure)
    return inputs.type_of(x), inputs.type_of(y)


def test_an_input_is_named_by_its_first_occurrence(inputs: Inputs) -> None:
    x, other = ragged(4), ragged(4)
    assert str(inputs.type_of(x)) == "float32[n0, p0, 4] on cpu"
    assert str(inputs.type_of(other)) == "float32[n1, p1, 4] on cpu"
    assert inputs.type_of(x + 1) == inputs.type_of(x)


def test_rows_that_are_cut_alike_have_one_partition(pair: tuple[TensorType, TensorType]) -> None:
    x, y = pair
    cut = (slice(None), slice(None, 2))
    a, b = result("Tensor.getitem", x, cut), result("Tensor.getitem", y, cut)
    assert a.partitions == b.partitions
    assert a.rows == b.rows
    narrow = (slice(None), slice(None), slice(0, 1))
    made = result("add", result("Tensor.getitem", a, narrow), result("Tensor.getitem", b, narrow))
    assert made.partitions == a.partitions


def test_slices_that_leave_as_many_entries_have_one_partition(pair: tuple[TensorType, TensorType]) -> None:
    x, _ = pair
    first, last = (result("Tensor.getitem", x, (slice(None), each)) for each in (slice(None, 2), slice(-2, None)))
    assert first.partitions == last.partitions
    first, last = (result("Tensor.getitem", x, (slice(None), each)) for each in (slice(1, None), slice(None, -1)))
    assert result("subtract", first, last).partitions == first.partitions


def test_rows_that_are_cut_otherwise_have_others(pair: tuple[TensorType, TensorType]) -> None:
    x, _ = pair
    cuts = [slice(None, 2), slice(None, 3), slice(1, None), slice(1, 2), slice(None, None, 2), slice(-3, -1)]
    made = [result("Tensor.getitem", x, (slice(None), cut)) for cut in cuts]
    assert len({each.partitions for each in made}) == len(cuts)


def test_a_mask_decides_by_its_elements(pair: tuple[TensorType, TensorType], inputs: Inputs) -> None:
    x, _ = pair
    flags = Value(TensorType(torch.bool, x.device, x.axes, x.rows, (), (0, 1)), "m")
    others = Value(flags.type, "n")
    a, b = result("Tensor.getitem", Value(x, "x"), flags), result("Tensor.getitem", Value(x, "y"), flags)
    assert a == b
    assert result("multiply", a, b).partitions == a.partitions
    c = result("Tensor.getitem", Value(x, "x"), others)
    assert c.partitions != a.partitions
    assert [str(guard) for guard in typed("multiply", a, c).guards] == [f"{a.partitions[0]} == {c.partitions[0]}"]


def test_a_mask_without_a_name_is_like_no_other(pair: tuple[TensorType, TensorType]) -> None:
    x, _ = pair
    flags = TensorType(torch.bool, x.device, x.axes, x.rows, (), (0, 1))
    assert result("Tensor.getitem", x, flags).partitions != result("Tensor.getitem", x, flags).partitions


def test_a_product_of_rows_has_the_partitions_of_its_operands(inputs: Inputs) -> None:
    x, y = ragged(4), ragged(4, lengths=(1, 2, 1))
    a = inputs.type_of(x)
    b = TensorType(a.dtype, a.device, (a.axes[0], inputs.type_of(y).axes[1]), inputs.type_of(y).rows, (4,), (0, 1, 2))
    first = typed("matmul", a, result("permute_dims", b, (0, 2, 1)))
    again = typed("matmul", a, result("permute_dims", b, (0, 2, 1)))
    assert first == again
    assert first.result.partitions == (*a.partitions, *b.partitions)
    assert result("add", first.result, again.result) == first.result


def test_tensors_joined_alike_have_one_partition(pair: tuple[TensorType, TensorType]) -> None:
    x, _ = pair
    assert result("concat", [x, x], axis=1) == result("concat", [x, x], axis=1)
    joined = result("concat", [x, x], axis=1)
    assert joined.partitions != x.partitions
    assert str(joined.rows) == "2·values(p0)"
    assert result("add", joined, joined) == joined


def test_groups_are_decided_by_the_elements_of_keys(inputs: Inputs) -> None:
    tokens, keys = inputs.type_of(torch.zeros(6, 4)), inputs.type_of(torch.zeros(6, dtype=torch.int64))
    tokens = TensorType(tokens.dtype, tokens.device, (), None, (*keys.features, 4), (0, 1))
    expert = Value(keys, "expert")
    once, again = (typed("group_by", Value(tokens, each), expert, 3).result for each in ("t", "u"))
    assert once == again
    assert once.partitions != typed("group_by", tokens, Value(keys, "other"), 3).result.partitions


def test_two_partitions_that_meet_are_a_guard(inputs: Inputs) -> None:
    x, y = inputs.type_of(ragged(4)), inputs.type_of(ragged(4))
    made = typed("add", x, y)
    assert [str(guard) for guard in made.guards] == ["n0 == n1", "p0 == p1"]
    assert made.result == x


def test_the_first_axis_of_a_dense_operand_that_meets_rows_is_a_guard(inputs: Inputs) -> None:
    x, d = inputs.type_of(ragged(4)), inputs.type_of(torch.zeros(3, 1, 4))
    made = typed("add", x, d)
    assert [str(guard) for guard in made.guards] == ["n0 == n1"]
    assert made.result == x


def test_sizes_that_are_known_to_differ_are_refused(inputs: Inputs) -> None:
    x = inputs.type_of(ragged(4))
    with pytest.raises(ValueError, match="do not broadcast"):
        typed("add", x, inputs.type_of(torch.zeros(1, 1, 5)))
    with pytest.raises(RaggednessError, match="uniform in the other"):
        typed("add", x, inputs.type_of(torch.zeros(3, 5, 4)))


def test_no_type_depends_on_lengths(inputs: Inputs) -> None:
    """One type for batches of other lengths: none, one, equal ones, none at all."""
    kinds = [Inputs().type_of(ragged(4, lengths=each)) for each in ((2, 0, 3), (), (7,), (2, 2), (0, 0))]
    assert len(set(kinds)) == 1


def test_types_tell_births_room_and_offsets_apart(inputs: Inputs) -> None:
    x = ragged(4)
    short = sr.from_offsets(x.values, x.offsets[0].to(torch.int32))
    tensors = [x, sr.testing.device_born(x), sr.testing.device_born(x, spare=1), short]
    assert len({Inputs().type_of(each) for each in tensors}) == len(tensors)


def test_an_axis_that_is_turned_round_keeps_its_size(inputs: Inputs) -> None:
    x, d = inputs.type_of(ragged(4)), inputs.type_of(torch.zeros(3, 4))
    assert result("flip", d, axis=0) == d
    assert result("Tensor.getitem", d, slice(None)) == d
    assert result("flip", x, axis=1) == x
    assert str(result("Tensor.getitem", d, slice(1, None)).features[0]) == "sliced(n1, 1::)"


def guards(name: str, *arguments: Any, **named: Any) -> list[str]:
    return [str(guard) for guard in typed(name, *arguments, **named).guards]


def test_sizes_that_operations_need_to_be_equal_are_guards(inputs: Inputs) -> None:
    x, y = inputs.type_of(ragged(4)), inputs.type_of(ragged(4))  # n0, p0 and n1, p1
    d, e, keys = (inputs.type_of(torch.zeros(3, *rest)) for rest in ((4,), (4,), ()))  # n2, n3, n4
    ids = dataclasses.replace(keys, dtype=torch.int64)
    assert guards("concat", [x, y], axis=1) == ["n0 == n1"]
    assert guards("stack", [x, y], axis=0) == ["n0 == n1"]
    assert guards("concat", [d, e], axis=1) == ["n2 == n3"]
    assert guards("matmul", x, d) == ["4 == n2"]
    assert guards("matmul", x, result("permute_dims", y, (0, 2, 1))) == ["n0 == n1"]
    assert guards("group_by", d, ids, 4) == ["n4 == n2"]
    assert guards("segment_sum", d, ids, 4) == ["n4 == n2"]
    flags = TensorType(torch.bool, y.device, y.axes, y.rows, (), (0, 1))
    assert guards("Tensor.getitem", x, flags) == ["n0 == n1", "p0 == p1"]


def test_known_sizes_are_never_read_as_multiples_of_others(inputs: Inputs) -> None:
    for features in ((128, 128), (64, 384), (300, 300), (16, 2048), (4096,)):
        x = inputs.type_of(ragged(*features))
        padded = result("Tensor.to_dense", x)
        flat = result("reshape", padded, (*padded.features[:2], -1))
        assert flat.features[2] == math.prod(features)


def test_a_part_of_a_padded_axis_is_smaller_than_it(inputs: Inputs) -> None:
    padded = result("Tensor.to_dense", inputs.type_of(ragged(4)))
    made = result("Tensor.getitem", padded, (slice(None), slice(None, 2)))
    assert str(made.features[1]) == "sliced(longest(p0), :2:)"


def test_sums_of_many_sizes(inputs: Inputs) -> None:
    dense = [inputs.type_of(torch.zeros(3, 4)) for _ in range(3)]
    assert str(result("concat", dense, axis=0).features[0]) == "n2 + n1 + n0"
    rows = [inputs.type_of(ragged(4)) for _ in range(3)]
    assert str(result("concat", rows, axis=0).axes[0]) == "n5 + n4 + n3"


def test_matrices_of_unknown_sizes_have_no_decompositions(inputs: Inputs) -> None:
    for name in ("svdvals", "qr", "diagonal", "svd"):
        with pytest.raises(TypeError, match="needs matrices of a size that the type of its operand says"):
            typed(f"linalg.{name}", inputs.type_of(torch.zeros(3, 4)))


def test_what_no_type_can_say_is_an_error(inputs: Inputs) -> None:
    d = inputs.type_of(torch.zeros(3, 4))
    with pytest.raises(TypeError, match="no type can say"):
        typed("add", d, result("concat", [d, d], axis=0))


def test_numbers_that_elements_tell_have_the_name_of_the_tensor(inputs: Inputs) -> None:
    x = TensorType(torch.int64, torch.device("cpu"), (), None, inputs.type_of(torch.zeros(5)).features, (0,))
    one, again, other = (result("bincount", Value(x, name), minlength=3) for name in ("a", "a", "b"))
    assert one == again != other
    assert len(guards("add", one, other)) == 1


def test_tensors_with_elements_among_types_are_like_no_other(inputs: Inputs) -> None:
    x = inputs.type_of(ragged(4))
    one, other = (result("Tensor.getitem", x, torch.tensor([0, 1])) for _ in range(2))
    assert one.partitions != other.partitions


def test_messages_show_the_sizes_of_types(inputs: Inputs) -> None:
    with pytest.raises(TypeError, match=r"got shape \(n0, 4\)"):
        typed("linalg.svd", inputs.type_of(torch.zeros(3, 4)))
    with pytest.raises(ValueError, match=r"axis 2 has size 4 and 5; shapes \(n1, Ragged\(p0\), 4\)"):
        typed("add", inputs.type_of(ragged(4)), inputs.type_of(torch.zeros(1, 1, 5)))
