"""flip, roll, repeat, tile, split, expand_dims, squeeze, positions: each equals the same on nested lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.oracle import (
    Sample,
    at_depth,
    build,
    chain,
    check,
    flatten,
    levels,
    lists_of,
    many,
    nodes,
    operations,
    samples,
    shares_storage,
    unpack,
)

import serrate as sr
from serrate.errors import RaggednessError
from serrate.tensor.structure import Ragged

RAGGED = [[3, 0, 2], [2, 1, 0, 4, 1]]  # [3, r, r]


def rolled(row: list[Any], by: int) -> list[Any]:
    by %= max(len(row), 1)
    return row[-by:] + row[:-by] if by else row


def axis_of(data: Any, s: Sample) -> tuple[int, int]:
    """An axis, and the same axis as a caller may name it."""
    axis = data.draw(st.integers(0, s.x.ndim - 1))
    return axis, data.draw(st.sampled_from([axis, axis - s.x.ndim]))


# ------------------------------------------------------------------------------------------------------ flip and roll


@many
@given(st.data(), samples())
def test_flip_one_axis(data: Any, s: Sample) -> None:
    axis, named = axis_of(data, s)
    assert lists_of(sr.flip(s.x, axis=named)) == at_depth(s.nested, axis, lambda row: row[::-1])


@given(st.data(), samples())
def test_flip_several_axes_or_all(data: Any, s: Sample) -> None:
    chosen = data.draw(st.sets(st.integers(0, s.x.ndim - 1)))
    for axes, given_axes in ((chosen, tuple(chosen)), (range(s.x.ndim), None)):
        want = s.nested
        for axis in sorted(axes, reverse=True):
            want = at_depth(want, axis, lambda row: row[::-1])
        assert lists_of(sr.flip(s.x, axis=given_axes)) == want


@many
@given(st.data(), samples(), st.integers(-7, 7))
def test_roll_one_axis(data: Any, s: Sample, by: int) -> None:
    axis, named = axis_of(data, s)
    assert lists_of(sr.roll(s.x, by, axis=named)) == at_depth(s.nested, axis, lambda row: rolled(row, by))


@given(samples(), st.integers(-7, 7))
def test_roll_everything_or_several_axes(s: Sample, by: int) -> None:
    y = sr.roll(s.x, by)
    assert flatten(y.values.tolist()) == rolled(flatten(s.x.values.tolist()), by)
    assert y.structure is s.x.structure
    want = at_depth(at_depth(s.nested, 1, lambda row: rolled(row, 2)), 0, lambda row: rolled(row, by))
    assert lists_of(sr.roll(s.x, (2, by), axis=(1, 0))) == want
    with pytest.raises(ValueError, match="one shift per axis"):
        sr.roll(s.x, (1, 2, 3), axis=(0, 1))


# ------------------------------------------------------------------------------------------------------ repeat and tile


@many
@given(st.data(), samples(), st.integers(0, 3))
def test_repeat_one_axis(data: Any, s: Sample, times: int) -> None:
    axis, named = axis_of(data, s)
    want = at_depth(s.nested, axis, lambda row: [e for e in row for _ in range(times)])
    assert lists_of(sr.repeat(s.x, times, axis=named)) == want
    if isinstance(s.x.shape[axis], int):
        counts = data.draw(st.lists(st.integers(0, 2), min_size=s.x.shape[axis], max_size=s.x.shape[axis]))
        want = at_depth(s.nested, axis, lambda row: [e for e, n in zip(row, counts, strict=True) for _ in range(n)])
        for form in (counts, torch.tensor(counts, dtype=torch.int64)):
            assert counts == [] or lists_of(sr.repeat(s.x, form, axis=named)) == want


@given(levels(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_repeat_by_a_ragged_tensor_of_counts(lengths: list[list[int]], pattern: list[int]) -> None:
    for depth in range(1, len(lengths) + 1):
        s, c = chain(lengths, (2,)), chain(lengths[:depth])
        counts = [pattern[i % len(pattern)] for i in range(sum(lengths[depth - 1]))]
        given_counts = sr.Tensor(torch.tensor(counts, dtype=torch.int64), c.x.structure)
        each = iter(counts)
        want = at_depth(s.nested, depth, lambda row: [e for e in row for _ in range(next(each))])  # noqa: B023
        assert lists_of(sr.repeat(s.x, given_counts, axis=depth)) == want


def test_repeat_without_axis_and_what_cannot_be_repeated() -> None:
    x = chain([[2, 0, 1]], (2,)).x
    assert sr.repeat(x, 2).tolist() == [i for i in range(6) for _ in range(2)]
    with pytest.raises(ValueError, match="0 or more"):
        sr.repeat(x, -1, axis=1)
    with pytest.raises(RaggednessError, match="axis 1 is ragged"):
        sr.repeat(x, [1, 2, 3], axis=1)
    with pytest.raises(ValueError, match="one count per entry"):
        sr.repeat(x, [1, 2], axis=0)
    with pytest.raises(TypeError, match="int"):
        sr.repeat(x, 1.5, axis=0)
    for lengths in ([1, 0, 1], [2, 1, 0], [3, 0, 1]):
        counts = sr.from_lengths(torch.ones(sum(lengths), dtype=torch.int64), lengths)
        with pytest.raises(RaggednessError, match="axis 1"):
            sr.repeat(x, counts, axis=1)
    with pytest.raises(ValueError, match="0 or more"):
        sr.repeat(x, sr.ragged([[1, -1], [], [1]]), axis=1)
    with pytest.raises(IndexError, match="axis 3"):
        sr.repeat(x, 2, axis=3)


@many
@given(st.data(), samples())
def test_tile(data: Any, s: Sample) -> None:
    counts = data.draw(st.lists(st.integers(0, 2), max_size=s.x.ndim + 1))
    assume(math.prod(counts) * s.x.values.numel() < 3000)
    want = s.nested
    ndim = s.x.ndim
    if len(counts) > ndim:
        want, ndim = [want], ndim + 1
    for axis, times in enumerate(counts, start=ndim - len(counts)):
        want = at_depth(want, axis, lambda row, times=times: row * times)
    assert lists_of(sr.tile(s.x, counts)) == want
    with pytest.raises(ValueError, match="0 or more"):
        sr.tile(s.x, (-1,))


# ------------------------------------------------------------------------------------------------------ split


@many
@given(st.data(), samples(), st.integers(1, 3))
def test_split_by_one_size(data: Any, s: Sample, size: int) -> None:
    axis, named = axis_of(data, s)
    extent = s.x.shape[axis]
    longest = extent.partition.max_length if isinstance(extent, Ragged) else extent
    pieces = sr.split(s.x, size, axis=named)
    assert len(pieces) == max(math.ceil(longest / size), 1)
    for i, piece in enumerate(pieces):
        want = at_depth(s.nested, axis, lambda row, i=i: row[i * size : (i + 1) * size])
        assert lists_of(piece) == want


@given(st.data(), levels(1, 3))
def test_split_by_sizes_is_undone_by_concat(data: Any, lengths: list[list[int]]) -> None:
    s = chain(lengths)
    axis = data.draw(st.integers(0, s.x.ndim - 1))
    extent = s.x.shape[axis]
    longest = extent.partition.max_length if isinstance(extent, Ragged) else extent
    cut = data.draw(st.integers(0, longest))
    pieces = sr.split(s.x, [cut, 0, longest - cut], axis=axis)
    starts = [0, cut, cut]
    for start, size, piece in zip(starts, [cut, 0, longest - cut], pieces, strict=True):
        want = at_depth(s.nested, axis, lambda row, start=start, size=size: row[start : start + size])
        assert lists_of(piece) == want
    assert lists_of(sr.concat(pieces, axis=axis)) == s.nested


def test_split_on_rows_gives_views_and_refuses_sizes_that_do_not_cover() -> None:
    x = chain([[3, 0, 2, 4]]).x
    assert all(shares_storage(x, piece) for piece in sr.split(x, 2))
    for sizes in ([1, 2], [1, 2, 2], [5, -1]):
        with pytest.raises(ValueError, match="cover axis 0"):
            sr.split(x, sizes)
    with pytest.raises(ValueError, match="cover axis 1"):
        sr.split(x, [1, 2], axis=1)
    for size in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            sr.split(x, size)


# ------------------------------------------------------------------------------------------------------ axes of size 1


@many
@given(st.data(), samples())
def test_expand_dims_is_a_view_that_squeeze_undoes(data: Any, s: Sample) -> None:
    axis = data.draw(st.integers(0, s.x.ndim))
    y = sr.expand_dims(s.x, axis=data.draw(st.sampled_from([axis, axis - s.x.ndim - 1])))
    assert lists_of(y) == at_depth(s.nested, axis, lambda entry: [entry])
    assert y.shape[axis] == 1
    assert shares_storage(s.x, y)
    assert all(a is b for a, b in zip(y.partitions, s.x.partitions, strict=True))
    back = sr.squeeze(y, axis=axis)
    assert lists_of(back) == s.nested
    assert all(a is b for a, b in zip(back.partitions, s.x.partitions, strict=True))


def test_squeeze() -> None:
    one = build([1, Ragged([2]), Ragged([1, 3], (0, 1))], (1, 2))
    assert lists_of(sr.squeeze(one.x, axis=0)) == one.nested[0]
    assert lists_of(sr.squeeze(one.x, axis=(0, -2))) == at_depth(one.nested[0], 2, lambda entry: entry[0])
    assert shares_storage(one.x, sr.squeeze(one.x, axis=(0, 3)))
    with pytest.raises(ValueError, match=r"axis 4 .*size 1"):
        sr.squeeze(one.x, axis=4)
    ragged = sr.from_lengths(torch.arange(2), [1, 1])
    with pytest.raises(ValueError, match="axis 1"):
        sr.squeeze(ragged, axis=1)  # ragged, although every row has one entry
    with pytest.raises(IndexError, match="axis 5"):
        sr.squeeze(one.x, axis=5)
    for axis in (6, -7):
        with pytest.raises(IndexError, match=f"axis {axis}"):
            sr.expand_dims(one.x, axis=axis)


# ------------------------------------------------------------------------------------------------------ positions


@many
@given(st.data(), samples())
def test_positions(data: Any, s: Sample) -> None:
    axis = data.draw(st.integers(0, len(s.axes) - 1))
    ndim = len(s.axes)
    numbered = at_depth(
        s.nested, axis, lambda row: [at_depth(e, ndim - axis - 1, lambda _, i=i: i) for i, e in enumerate(row)]
    )
    y = check(sr.positions(s.x, axis=axis))
    assert y.tolist() == numbered
    assert y.dtype == torch.int64
    assert all(a is b for a, b in zip(y.partitions, s.x.partitions, strict=True))
    if s.features:
        with pytest.raises(sr.errors.AxisError, match="neither ragged nor a parent"):
            sr.positions(s.x, axis=-1)


# ---------------------------------------------------------------------------------------------------- permuted, numbers

FORMS: dict[str, Callable[[sr.Tensor], Any]] = {
    "flip 1": lambda x: sr.flip(x, axis=1),
    "flip all": sr.flip,
    "roll 2": lambda x: sr.roll(x, 1, axis=2),
    "roll 0": lambda x: sr.roll(x, -1, axis=0),
    "repeat 1": lambda x: sr.repeat(x, 2, axis=1),
    "repeat 2": lambda x: sr.repeat(x, 2, axis=2),
    "tile": lambda x: sr.tile(x, (2, 1, 2, 1)),
    "split": lambda x: sr.split(x, 2, axis=2)[0],
    "expand": lambda x: sr.expand_dims(x, axis=1),
}


@pytest.mark.parametrize("name", FORMS)
def test_gradients(name: str) -> None:
    s = chain(RAGGED, (2,))
    values = torch.randn(s.x.values.shape, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: FORMS[name](sr.Tensor(v, s.x.structure)).values, values)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "uint16", "bool", "complex64"])
def test_dtypes_and_strides(name: str, dtype: str) -> None:
    s = chain(RAGGED, (2,))
    values = (s.x.values % 2).T.contiguous().T.to(getattr(torch, dtype))
    y = FORMS[name](sr.Tensor(values, s.x.structure))
    assert y.dtype == values.dtype
    assert torch.equal(y.values.to(torch.complex64), (FORMS[name](s.x).values % 2).to(torch.complex64))


@pytest.mark.parametrize("name", FORMS)
def test_as_many_operations_for_many_rows_as_for_few(name: str) -> None:
    assert operations(FORMS[name], 1000) <= operations(FORMS[name], 12)


@pytest.mark.parametrize("name", FORMS)
def test_int32_offsets_stay_int32(name: str) -> None:
    y = FORMS[name](chain(RAGGED, (2,), dtype=torch.int32).x)
    assert {o.dtype for o in y.offsets} == {torch.int32}


def test_on_permuted_views() -> None:
    s = chain([[3, 0, 2]], (2,))
    turned = [list(map(list, zip(*row, strict=True))) or [[], []] for row in s.nested]
    for form, want in (
        (lambda x: sr.flip(x, axis=2), at_depth(turned, 2, lambda row: row[::-1])),
        (lambda x: sr.roll(x, 1, axis=2), at_depth(turned, 2, lambda row: rolled(row, 1))),
        (lambda x: sr.roll(x, 1, axis=1), at_depth(turned, 1, lambda row: rolled(row, 1))),
        (lambda x: sr.repeat(x, 2, axis=2), at_depth(turned, 2, lambda row: [e for e in row for _ in range(2)])),
        (lambda x: sr.tile(x, (2, 2)), at_depth(at_depth(turned, 1, lambda row: row * 2), 2, lambda row: row * 2)),
        (lambda x: sr.expand_dims(x, axis=1), at_depth(turned, 1, lambda entry: [entry])),
        (lambda x: sr.split(x, 2, axis=2)[1], at_depth(turned, 2, lambda row: row[2:])),
    ):
        assert lists_of(form(s.x.mT)) == want
    assert len(nodes(turned, 2)) == 6
    assert lists_of(sr.positions(s.x.mT, axis=2)) == unpack([0, 1, 2, 0, 1], [[0, 3, 3, 5]])


def test_nothing_rearranged_is_a_copy_all_the_same() -> None:
    x = sr.ragged([[1, 2], [3]])
    for made in (sr.tile(x, (1,)), sr.tile(x, (1, 1)), sr.flip(x, axis=()), sr.take(x, 1, axis=0)):
        made[...] = 0
        assert x.tolist() == [[1, 2], [3]]
    number = sr.asarray(5)
    sr.flip(number)[...] = 0
    assert number.item() == 5
