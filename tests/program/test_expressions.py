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
from serrate.program.sizes import Size
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


def dense(*features: Size, dtype: torch.dtype = torch.float32) -> TensorType:
    return TensorType(dtype, torch.device("cpu"), (), None, features, tuple(range(len(features))))


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


def test_weights_of_groups_are_a_part_of_their_type_as_they_were_given(inputs: Inputs) -> None:
    tokens, keys, each = (inputs.type_of(torch.zeros(3, *rest)) for rest in ((4,), (2,), ()))  # n0, n1, n2
    keys, double = dataclasses.replace(keys, dtype=torch.int64), dataclasses.replace(each, dtype=torch.float64)
    made = typed("group_by", tokens, keys, 5, weights=double)
    assert [str(guard) for guard in made.guards] == ["n1 == n0", "n2 == n1"]
    rows = double.features
    tokens, keys = (dataclasses.replace(kind, features=(*rows, *kind.features[1:])) for kind in (tokens, keys))
    groups = result("group_by", tokens, keys, 5, weights=double)
    assert groups.origin.weights == double
    entries = result("multiply", groups, 2.0)
    assert result("Grouped.ungroup", groups, entries, double) == dataclasses.replace(tokens, dtype=torch.float64)
    assert result("Grouped.ungroup", groups, entries) == tokens


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


def test_matrices_of_unknown_sizes_have_decompositions_where_they_are_square(inputs: Inputs) -> None:
    (n,) = inputs.type_of(torch.zeros(3)).features
    square, oblong = dense(n, n), dense(n, 4)
    assert [str(part) for part in typed("linalg.svd", square).result] == [
        "float32[n0, n0] on cpu",
        "float32[n0] on cpu",
        "float32[n0, n0] on cpu",
    ]
    assert str(result("linalg.diagonal", square, offset=2).features[0]) == "most(n0 + -2, 0)"
    assert guards("linalg.inv", oblong) == ["n0 == 4"]
    assert guards("linalg.solve", oblong, inputs.type_of(torch.zeros(3))) == ["n0 == 4", "n1 == 4"]
    assert result("linalg.trace", oblong).features == result("linalg.matrix_rank", oblong).features == ()
    for name in ("svdvals", "qr", "diagonal", "svd"):
        with pytest.raises(TypeError, match=r"needs square matrices.* it does not say n0 of shape \(n0, 4\)"):
            typed(f"linalg.{name}", oblong)


@pytest.mark.parametrize("mask_axes", [1, 2])
def test_dense_masks(inputs: Inputs, mask_axes: int) -> None:
    d = inputs.type_of(torch.zeros(3, 4))
    flags = Value(dense(*d.features[:mask_axes], dtype=torch.bool), "m")
    one, again = (result("Tensor.getitem", d, flags) for _ in range(2))
    other = result("Tensor.getitem", d, Value(flags.type, "n"))
    assert one == again != other
    assert one.features[1:] == d.features[mask_axes:]
    assert len(guards("add", one, other)) == 1
    foreign = inputs.type_of(torch.zeros(3) > 0)
    assert guards("Tensor.getitem", d, foreign) == ["n1 == n0"]
    x = inputs.type_of(ragged(4))
    rows = typed("Tensor.getitem", x, foreign)
    assert [str(guard) for guard in rows.guards] == ["n1 == n2"]
    assert rows.result.axes[0] == rows.result.partitions[0].components
    with pytest.raises(IndexError, match="does not fit"):
        typed("Tensor.getitem", d, (slice(None), dense(5, dtype=torch.bool)))


def test_masks_beside_other_entries_of_a_key(inputs: Inputs) -> None:
    d = inputs.type_of(torch.zeros(3, 4, 5))
    flags = dense(4, dtype=torch.bool)
    kept = result("Tensor.getitem", d, (slice(None), flags, slice(1, 3)))
    assert (kept.features[0], kept.features[2]) == (d.features[0], 2)
    assert str(kept.features[1]).startswith("count(")
    met = typed("Tensor.getitem", d, (slice(None), flags, torch.tensor([0, 1])))  # a mask is index arrays, which meet
    assert len(met.guards) == 1
    assert len(met.result.features) == 2
    whole = result("Tensor.getitem", d, dense(dtype=torch.bool))
    assert (whole.features[1:], len(whole.features)) == (d.features, 4)


def test_counts_of_repeats(inputs: Inputs) -> None:
    d, x = inputs.type_of(torch.zeros(3, 4)), inputs.type_of(ragged(4))  # n0 and n1
    counts = dense(inputs.type_of(torch.zeros(3)).features[0], dtype=torch.int64)  # n2
    assert guards("repeat", d, counts, axis=0) == ["n2 == n0"]
    assert guards("repeat", x, counts, axis=0) == ["n2 == n1"]
    one, again, other = (typed("repeat", d, Value(counts, name), axis=0).result for name in "aab")
    assert one == again != other
    times = result("repeat", x, dense(dtype=torch.int64), axis=1)
    assert str(times.partitions[0]).startswith("scaled(p0, count(")
    with pytest.raises(RaggednessError, match="axis 1 is ragged"):
        typed("repeat", x, counts, axis=1)


def test_sizes_that_torch_compares_itself_are_guards(inputs: Inputs) -> None:
    n, m, k, j = (inputs.type_of(torch.zeros(3)).features[0] for _ in range(4))
    x = inputs.type_of(ragged(4))
    assert guards("linear", x, dense(m, 4), dense(k)) == ["n2 == n1"]
    assert guards("linear", x, dense(m, k), dense(m)) == ["4 == n2"]
    assert guards("einsum", "ij,jk->ik", dense(n, m), dense(k, j)) == ["n1 == n2"]
    assert guards("einsum", "ii->i", dense(n, m)) == ["n0 == n1"]
    assert guards("einsum", "...i,...i->...", dense(n, m), dense(1, m)) == []
    assert guards("cross_entropy", dense(n, 4, m), dense(k, j, dtype=torch.int64)) == ["n3 == n1", "n2 == n0"]
    labels = dense(n, dtype=torch.int64)
    assert guards("cross_entropy", dense(n, m), labels, weight=dense(k)) == ["n2 == n1"]
    with pytest.raises(ValueError, match="has size 4 and 5"):
        typed("add", dense(n, 4), dense(n, 5))


def test_transforms_without_the_half_that_mirrors_the_other(inputs: Inputs) -> None:
    n, m = (inputs.type_of(torch.zeros(3)).features[0] for _ in range(2))
    assert str(result("fft.rfft", dense(2, n)).features[1]) == "sliced(n0 + 1, ::2)"
    assert str(result("fft.rfft", dense(2, 8), n=m).features[1]) == "sliced(n1 + 1, ::2)"
    assert str(result("fft.rfftn", dense(m, n)).features[1]) == "sliced(n0 + 1, ::2)"
    assert result("fft.rfft", dense(n, 8)).features == (n, 5)
    for size in range(1, 9):
        assert torch.fft.rfft(torch.zeros(size)).shape[0] == len(range(size + 1)[::2])


def test_pieces_of_unknown_sizes(inputs: Inputs) -> None:
    n, m, k = (inputs.type_of(torch.zeros(3)).features[0] for _ in range(3))
    made = typed("split", dense(n, 4), [m, k], axis=0)
    assert [str(guard) for guard in made.guards] == ["n2 + n1 == n0"]
    pieces = typed("split", inputs.type_of(ragged(4)), [2, 3], axis=1)  # that no row is longer is for eager code to say
    assert [str(piece.partitions[0]) for piece in pieces.result] == ["at_most(p0, 2)", "cut(p0, 2:5:1)"]
    with pytest.raises(ValueError, match="cover axis 0"):
        typed("split", dense(5, 4), [2, 2], axis=0)


def test_slices_whose_bounds_are_symbols(inputs: Inputs) -> None:
    d, x = inputs.type_of(torch.zeros(3, 4)), inputs.type_of(ragged(4))
    (m,) = inputs.type_of(torch.zeros(3)).features
    assert str(result("Tensor.getitem", d, slice(None, m))) == "float32[sliced(n0, :n2:), 4] on cpu"
    assert str(result("Tensor.getitem", d, slice(m + 1, None))) == "float32[sliced(n0, n2 + 1::), 4] on cpu"
    assert str(result("Tensor.getitem", d, (slice(None), slice(-1 * m, None)))) == (
        "float32[n0, sliced(4, -1·n2::)] on cpu"
    )
    assert result("Tensor.getitem", d, slice(0, d.features[0])) == d
    cut = result("Tensor.getitem", x, (slice(None), slice(None, m)))
    assert str(cut) == "float32[n1, at_most(p0, n2), 4] on cpu"
    assert cut == result("Tensor.getitem", x, (slice(None), slice(-1 * m, None)))
    assert cut != result("Tensor.getitem", x, (slice(None), slice(None, m + 1)))
    odd = result("Tensor.getitem", x, (slice(None), slice(1, m, 2)))
    assert str(odd.partitions[0]) == "cut(p0, 1:n2:2)"
    rows = result("Tensor.getitem", x, slice(None, m))
    assert str(rows.axes[0]) == "sliced(n1, :n2:)"


def test_products_of_known_sizes_are_known(inputs: Inputs) -> None:
    (n,) = inputs.type_of(torch.zeros(3)).features
    assert result("reshape", dense(4096, 4096, n), (-1, n)).features == (2**24, n)
    assert result("reshape", dense(8192, 8192), (-1,)).features == (2**26,)
    assert str(result("reshape", dense(n, 4096, 4096), (-1,)).features[0]) == "16777216·n0"
    assert result("concat", [dense(2**20, 3), dense(2**20 + 1, 3)], axis=0).features == (2**21 + 1, 3)
    assert result("Tensor.getitem", dense(3_000_017, n), slice(5, None)).features == (3_000_012, n)
    assert result("arange", 10_000_001).features == (10_000_001,)


def test_padded_axes_are_joined_and_cut(inputs: Inputs) -> None:
    padded = [result("Tensor.to_dense", inputs.type_of(ragged(4))) for _ in range(2)]
    first = padded[0].features[0]
    joined = typed("concat", [padded[0], dense(first, 1, 4)], axis=1).result
    assert str(joined.features[1]) == "longest(p0) + 1"
    assert str(typed("concat", padded, axis=1).result.features[1]) == "longest(p1) + longest(p0)"
    assert str(result("diff", padded[0], axis=1).features[1]) == "most(longest(p0) + -1, 0)"


def test_many_unknown_sizes(inputs: Inputs) -> None:
    sizes = [inputs.type_of(torch.zeros(3)).features[0] for _ in range(8)]
    kind = dense(*sizes[:4])
    assert result("permute_dims", kind, (3, 2, 1, 0)).features == tuple(reversed(sizes[:4]))
    joined = typed("concat", [dense(*sizes[:3]), dense(sizes[0], *sizes[3:5])], axis=1)
    assert str(joined.result.features[1]) == "n3 + n1"
    with pytest.raises(TypeError, match="exp makes a tensor of so many unknown sizes that torch cannot count it"):
        typed("exp", dense(*sizes))


def test_types_of_two_programs_do_not_mix(inputs: Inputs) -> None:
    x, y = inputs.type_of(ragged(4)), Inputs().type_of(ragged(4))
    assert x == y  # the next batch of the same program
    with pytest.raises(TypeError, match="add was given types that come from 2 Inputs"):
        typed("add", x, y)
    with pytest.raises(TypeError, match="2 Inputs"):
        typed("concat", [result("exp", x), Value(result("exp", y), "y")], axis=0)
    assert typed("add", x, result("exp", x)).guards == ()


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
    with pytest.raises(TypeError, match=r"does not say n0 of shape \(n0, 4\)"):
        typed("linalg.svd", inputs.type_of(torch.zeros(3, 4)))
    with pytest.raises(ValueError, match=r"axis 2 has size 4 and 5; shapes \(n1, Ragged\(p0\), 4\)"):
        typed("add", inputs.type_of(ragged(4)), inputs.type_of(torch.zeros(1, 1, 5)))
