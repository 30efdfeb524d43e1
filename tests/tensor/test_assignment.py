"""x[key] = value: writes exactly where x[key] reads, broadcasts the value, and never changes raggedness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle import (
    WHOLE,
    Sample,
    build,
    chain,
    check,
    flatten,
    index,
    keys,
    levels,
    many,
    operations,
    samples,
)

import serrate as sr
from serrate.errors import RaggednessError
from serrate.tensor.structure import Ragged

ROWS = [[3, 4, 2, 5]]
FORMS: list[Any] = [
    1,
    -1,
    slice(None, None, -1),
    slice(1, 3),
    slice(None),
    ...,
    None,
    [2, 0],
    [True, False, True, True],
    (WHOLE, slice(1, -1)),
    (WHOLE, slice(None, None, -2)),
    (WHOLE, 1),
    (WHOLE, -2),
    (WHOLE, [0, 1]),
    ([0, 3], [2, -1]),
    (2, 1),
    (..., 1),
    (..., [1, 0]),
    (..., slice(None, None, -1)),
    (None, [1, 3], slice(None, 2), 0),
    sr.ragged([[0, -1], [], [1], [4]]),
    sr.ragged([[True, False, True], [False] * 4, [True, True], [True] * 5]),
]


def written(s: Sample, ids: list[int], values: Any) -> list[Any]:
    """The flat elements of a sample after a write: its elements are their own numbers."""
    flat = flatten(s.x.values.tolist())
    for i, value in zip(ids, values, strict=True):
        flat[i] = value
    return flat


def fresh(s: Sample, dtype: torch.dtype = torch.int64) -> sr.Tensor:
    return sr.Tensor(s.x.values.to(dtype, copy=True), s.x.structure)


def unchanged(x: sr.Tensor, s: Sample) -> None:
    check(x)
    assert x.structure is s.x.structure
    assert x.values.shape == s.x.values.shape


# ------------------------------------------------------------------------------------------------------ against lists


@many
@given(st.data(), samples())
def test_a_scalar_goes_where_the_key_reads(data: Any, s: Sample) -> None:
    key = data.draw(keys(s))
    x = fresh(s)
    x[key] = -7
    ids = flatten(index(s.nested, key))
    assert flatten(x.values.tolist()) == written(s, ids, [-7] * len(ids))
    unchanged(x, s)


@many
@given(st.data(), samples())
def test_a_tensor_of_the_same_raggedness(data: Any, s: Sample) -> None:
    key = data.draw(keys(s))
    x = fresh(s)
    value = x[key].clone()
    value.values.neg_().sub_(1)
    x[key] = value
    ids = flatten(index(s.nested, key))
    assert flatten(x.values.tolist()) == written(s, ids, [-i - 1 for i in ids])
    unchanged(x, s)


@many
@given(st.data(), samples())
def test_through_permuted_views(data: Any, s: Sample) -> None:
    perm = data.draw(st.permutations(range(s.x.ndim)))
    key = list(data.draw(keys(s, new_axes=False)))
    key += [WHOLE] * (s.x.ndim - len(key))
    x = fresh(s)
    x.permute_dims(perm)[tuple(key[p] for p in perm)] = -7
    ids = flatten(index(s.nested, key))
    assert flatten(x.values.tolist()) == written(s, ids, [-7] * len(ids))


@given(st.data(), levels(1, 3))
def test_ragged_masks_and_indices(data: Any, lengths: list[list[int]]) -> None:
    s = chain(lengths, data.draw(st.sampled_from([(), (2,)])))
    pattern = data.draw(st.lists(st.booleans(), min_size=1, max_size=5))
    flags = [pattern[i % len(pattern)] for i in range(s.x.values.shape[0])]
    mask = sr.Tensor(torch.tensor(flags, dtype=torch.bool), s.x.structure)
    x = fresh(s)
    x[mask] = -1
    want = torch.where(torch.tensor(flags, dtype=torch.bool).view(-1, *[1] * (x.values.ndim - 1)), -1, s.x.values)
    assert torch.equal(x.values, want)
    firsts = [min(n, 1) for n in lengths[-1]]
    at = sr.Tensor(torch.zeros(sum(firsts), dtype=torch.int64), chain([*lengths[:-1], firsts]).x.structure)
    x = fresh(s)
    x[at] = -2
    starts = [sum(lengths[-1][:i]) for i, n in enumerate(lengths[-1]) if n]
    want = s.x.values.clone()
    want[starts] = -2
    assert torch.equal(x.values, want)


@given(st.data(), levels(1, 3))
def test_dense_values_broadcast(data: Any, lengths: list[list[int]]) -> None:
    s = chain(lengths, (3,))
    rows = len(lengths[0])
    inner = [1] * len(lengths)
    feature = torch.tensor([-1, -2, -3])
    per_row = -torch.arange(rows) - 1
    x = fresh(s)
    x[...] = feature
    assert torch.equal(x.values, feature.expand_as(x.values))
    x[...] = per_row.view(rows, *inner, 1)
    wanted = [-b - 1 for b, row in enumerate(s.nested) for _ in flatten(row)]
    assert flatten(x.values.tolist()) == wanted
    cut = fresh(s)
    key = (*[WHOLE] * len(lengths), slice(1, None, 2))
    cut[key] = per_row.view(rows, *inner, 1) * feature
    ids = flatten(index(s.nested, key))
    owner = {i: b for b, row in enumerate(s.nested) for i in flatten(row)}
    assert flatten(cut.values.tolist()) == written(s, ids, [-(owner[i] + 1) * int(feature[i % 3]) for i in ids])
    unchanged(cut, s)


def test_rows_and_columns_take_dense_tensors_lists_and_arrays() -> None:
    s = chain(ROWS)
    for given_row in ([-1, -2], (-1, -2), np.array([-1, -2]), torch.tensor([-1, -2]), sr.asarray([-1, -2])):
        x = fresh(s)
        x[2] = given_row
        assert x.tolist()[2] == [-1, -2]
        x[:, 1] = torch.tensor([10, 20, 30, 40])
        assert x.tolist() == [[0, 10, 2], [3, 20, 5, 6], [-1, 30], [9, 40, 11, 12, 13]]
        x[:, [0, -1]] = torch.tensor([[1, 2]])
        assert x.tolist() == [[1, 10, 2], [1, 20, 5, 2], [1, 2], [1, 40, 11, 12, 2]]
    x = fresh(s)
    x[[0, 2]] = sr.ragged([[-1, -2, -3], [-4, -5]])
    x[[True, False, False, True], :1] = torch.tensor([[7], [8]])
    assert x.tolist() == [[7, -2, -3], [3, 4, 5, 6], [-4, -5], [8, 10, 11, 12, 13]]
    x[[0, 3], [2, -1]] = torch.tensor([100, 200])
    assert (x.tolist()[0][2], x.tolist()[3][4]) == (100, 200)


def test_uniform_axes_between_and_products() -> None:
    s = build([2, Ragged([2, 1]), 2, Ragged([1, 0, 2, 1, 3, 0], (0, 1, 2))])
    x = fresh(s)
    x[:, :, 1] = torch.tensor([-1, -2]).view(2, 1, 1)
    assert x.tolist() == [[[[0], []], [[1, 2], [-1]]], [[[4, 5, 6], []]]]
    p, q = sr.Partition.from_lengths([2, 1]), sr.Partition.from_lengths([3, 2])
    x = sr.from_product(torch.arange(8), p, q)
    x[:, ::2, -1] = -9
    assert x.tolist() == [[[0, 1, -9], [3, 4, 5]], [[6, -9]]]
    x[0] = torch.tensor([[1], [2]])
    assert x.tolist() == [[[1, 1, 1], [2, 2, 2]], [[6, -9]]]


# ---------------------------------------------------------------------------------------------------- what does not fit


def test_wrong_shapes_and_raggedness() -> None:
    s = chain(ROWS)
    x = fresh(s)
    with pytest.raises(RaggednessError, match=r"axis 1 .*raggedness.*\[3, 4, 2, 5\].*\[3, 4, 1, 6\]|\[3, 4, 1, 6\]"):
        x[...] = sr.from_lengths(torch.arange(14), [3, 4, 1, 6])
    with pytest.raises(RaggednessError, match="axis 1"):
        x[:, :2] = x
    with pytest.raises(RaggednessError, match="axis 1 is ragged in one operand and uniform in the other"):
        x[...] = torch.zeros(4, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match="size"):
        x[:, 0] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="axis 0 has size"):
        x[2] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="broadcast"):
        x[2] = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="broadcast"):
        x[0, 0] = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RaggednessError):
        x[1] = sr.ragged([[1], [2, 3], [], [4]])
    with pytest.raises(RaggednessError):
        x[:, 9:] = sr.ragged([[1], [], [], []])
    with pytest.raises(IndexError, match="row 2"):
        x[:, 2] = 0
    with pytest.raises(IndexError, match="size 4"):
        x[4] = 0
    assert x.tolist() == s.nested


def test_a_uniform_axis_never_matches_a_ragged_one_even_if_the_lengths_agree() -> None:
    x = sr.from_lengths(torch.arange(6), [3, 3])
    with pytest.raises(RaggednessError, match="ragged in one operand"):
        x[...] = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(RaggednessError, match="ragged in one operand"):
        x[...] = torch.zeros(3, dtype=torch.int64)
    x[0] = torch.zeros(3, dtype=torch.int64)
    assert x.tolist() == [[0, 0, 0], [3, 4, 5]]


def test_writing_a_part_of_itself() -> None:
    x = sr.from_lengths(torch.arange(6), [3, 3])
    x[...] = x[:, ::-1]
    assert x.tolist() == [[2, 1, 0], [5, 4, 3]]
    x[:, :2] = x[:, 1:]
    assert x.tolist() == [[1, 0, 0], [4, 3, 3]]
    x[0] = x[1]
    assert x.tolist() == [[4, 3, 3], [4, 3, 3]]


def test_nothing_selected_writes_nothing() -> None:
    s = chain([[0, 0], []])
    x = fresh(s)
    x[:, :2] = 1
    x[...] = sr.Tensor(torch.zeros(0, dtype=torch.int64), s.x.structure)
    assert x.tolist() == [[], []]


# ------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int8", "uint8", "uint16", "bool", "complex64"])
@pytest.mark.parametrize("strided", [False, True])
def test_dtypes_and_strides(name: str, strided: bool) -> None:
    s = chain(ROWS, (2,))
    dtype = getattr(torch, name)
    for key in FORMS:
        values = torch.zeros(s.x.values.shape, dtype=dtype)
        if strided:
            values = torch.zeros(*s.x.values.shape[::-1], dtype=dtype).T
        x = sr.Tensor(values, s.x.structure)
        x[key] = 1
        ids = set(flatten(s.x[key].tolist()))
        assert x.values is values
        assert flatten(values.to(torch.complex64).real.tolist()) == [float(i in ids) for i in range(28)]


@pytest.mark.parametrize("key", FORMS, ids=str)
def test_gradients_flow_to_what_was_kept_and_to_what_was_written(key: Any) -> None:
    s = chain(ROWS, (2,))
    size = s.x[key].values.shape
    values = torch.randn(s.x.values.shape, dtype=torch.float64).requires_grad_()
    new = torch.randn(size, dtype=torch.float64).requires_grad_()

    def write(values: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        x = sr.Tensor(values * 2, s.x.structure)
        target = x[key]
        x[key] = target._with(new)
        return x.values

    assert torch.autograd.gradcheck(write, (values, new))


def test_a_leaf_that_needs_gradients_refuses_as_in_torch() -> None:
    x = sr.ragged([[1.0, 2.0], [3.0]]).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        x[:, :1] = 0
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 0


@given(st.lists(st.booleans(), min_size=6, max_size=6), st.data())
def test_bool_masks_of_several_uniform_axes(flags: list[bool], data: Any) -> None:
    parents = data.draw(st.sampled_from([(0, 1), (0,), (1,)]))
    inner = [Ragged([2, 0, 1, 3, 1, 2][: {(0, 1): 6, (0,): 3, (1,): 2}[parents]], parents)]
    if parents != (0, 1):  # every uniform axis needs a ragged axis that depends on it
        first = build([3, 2, *inner])
        inner.append(Ragged([i % 3 for i in range(first.x.values.shape[0])], (0, 1, 2)))
    s = build([3, 2, *inner])
    mask = torch.tensor(flags).view(3, 2)
    chosen = [s.nested[i][j] for i, j in mask.nonzero().tolist()]
    assert check(s.x[mask]).tolist() == chosen
    x = fresh(s)
    x[mask] = -7
    ids = flatten(chosen)
    assert flatten(x.values.tolist()) == written(s, ids, [-7] * len(ids))


@pytest.mark.parametrize("key", [k for k in FORMS if not isinstance(k, sr.Tensor) and k != FORMS[8]], ids=str)
def test_as_many_operations_for_many_rows_as_for_few(key: Any) -> None:
    assert operations(lambda x: x.__setitem__(key, 7), 1000) <= operations(lambda x: x.__setitem__(key, 7), 12)


@pytest.mark.parametrize("spare", [None, 0, 2])
def test_masks_over_features_write_where_they_read(spare):
    rows = [[[1.0, -2.0], [3.0, 4.0]], [], [[-5.0, 6.0]]]
    x = sr.from_lengths(torch.tensor([f for row in rows for f in row]), [2, 0, 1])
    x = x if spare is None else sr.testing.device_born(x, spare)
    x[x > 2] = 0.0
    assert x.tolist() == [[[0.0 if v > 2 else v for v in features] for features in row] for row in rows]
    x[x < 0] = sr.abs(x[x < 0])
    assert x.tolist() == [[[1.0, 2.0], [0.0, 0.0]], [], [[5.0, 0.0]]]


def test_a_ragged_value_goes_into_no_uniform_axis():
    for target, value in (
        (torch.zeros(1, 1), sr.ragged([[1.0]])),
        (torch.zeros(1, 1, 0), sr.zeros((1, Ragged([0]), 1))),
    ):
        with pytest.raises(ValueError, match="does not broadcast"):
            sr.Tensor(target)[...] = value


def test_leading_axes_of_size_1_are_dropped_by_assignment_alone():
    number, row = sr.Tensor(torch.tensor(1.0)), sr.ragged([[1.0, 2.0], [3.0]])
    number[...] = torch.full((1,), 4.0)
    row[1] = torch.full((1, 1), 4.0)
    assert (number.item(), row.tolist()) == (4.0, [[1.0, 2.0], [4.0]])
    with pytest.raises(ValueError, match="does not broadcast"):
        number *= torch.ones(1)
    with pytest.raises(ValueError, match="does not broadcast"):
        number.copy_(torch.ones(1))


@pytest.mark.parametrize("born", [False, True])
def test_operators_in_place_have_gradients(born):
    y = sr.ragged([[1.0, 2.0], [3.0]])
    y = sr.testing.device_born(y, 1) if born else y
    v = torch.tensor(2.0, requires_grad=True)
    y *= v
    y /= v * v
    sr.sum(y).backward()
    assert y.tolist() == [[0.5, 1.0], [1.5]]
    assert v.grad == -6 / 4  # of 6 / v


def test_in_place_powers_have_gradients():
    x = sr.ragged([[1.0, 2.0], [], [3.0]]).requires_grad_()
    y = x * 1
    y **= 3
    sr.sum(y).backward()
    assert x.grad.tolist() == [[3.0, 12.0], [], [27.0]]


def test_in_inference_mode_copies_are_copies_and_overlapping_rows_are_read_first():
    with torch.inference_mode():
        x = sr.ragged([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        y = sr.take(x, 0, axis=0)
        y += 100
        assert x.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        x[1:] = x[:-1]
        assert x.tolist() == [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]
        wide = sr.zeros((1, sr.Ragged([1]), 1), dtype=torch.uint16)
        sr.take(wide, 0, axis=2).values.fill_(7)
        assert wide.tolist() == [[[0]]]
