"""to_dense, from_dense and mask against a plain Python walk over the cells, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tensor.structures import DTYPES, numbers, samples
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr

SMALL_UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


def padded(sample, sizes, padding):
    """The dense tensor in storage order: every cell inside `sizes` written to its place."""
    features = sample.x.values.shape[1:]
    out = torch.full((*sizes, *features), padding, dtype=sample.x.dtype)
    for cell, row in zip(sample.cells, sample.x.values, strict=True):
        if all(i < size for i, size in zip(cell, sizes, strict=True)):
            out[cell] = row
    return out


def padded_lists(sample, sizes, padding):
    """Nested lists where only the axes in `sizes` are padded: an axis inside what is not there has length 0."""
    features = sample.x.values.shape[1:]
    nothing = torch.full(tuple(features), padding, dtype=sample.x.dtype).tolist()
    rows = dict(zip(sample.cells, sample.x.values.tolist(), strict=True))

    def build(cell):
        number = len(cell)
        if number == sample.packed:
            return rows.get(cell, nothing)
        axis = sample.x.structure.axes[number]
        if number in sizes:
            size = sizes[number]
        elif isinstance(axis, int):
            size = axis
        else:
            size = sample.lengths[number].get(tuple(cell[p] for p in axis.parents), 0)
        return [build((*cell, i)) for i in range(size)]

    return build(())


def ragged_axes(sample):
    return [i for i, axis in enumerate(sample.x.structure.axes) if isinstance(axis, sr.Ragged)]


@given(st.data(), samples(dtypes=DTYPES))
def test_to_dense_of_any_structure(data, sample):
    padding = data.draw(st.sampled_from([0, 1, 7] if sample.x.dtype != torch.bool else [False, True]))
    axes = data.draw(st.permutations(range(sample.x.ndim)))
    dense = sample.x.permute_dims(axes).to_dense(padding)
    want = padded(sample, sample.grid, padding).permute(tuple(axes))
    assert dense.shape == tuple(want.shape)
    assert not dense.is_ragged
    assert torch.equal(dense.torch(), want)


@given(st.data(), samples())
def test_max_lengths_cut_and_extend(data, sample):
    sizes = sample.grid
    given_sizes = []
    for number in ragged_axes(sample):
        given_sizes.append(data.draw(st.none() | st.integers(0, 5)))
        sizes[number] = sizes[number] if given_sizes[-1] is None else given_sizes[-1]
    dense = sample.x.to_dense(-1, max_lengths=given_sizes)
    assert torch.equal(dense.torch(), padded(sample, sizes, -1))


@given(samples(), st.integers(0, 4))
def test_one_max_length_for_all_axes(sample, size):
    sizes = [size if i in ragged_axes(sample) else n for i, n in enumerate(sample.grid)]
    assert torch.equal(sample.x.to_dense(max_lengths=size).torch(), padded(sample, sizes, 0))


@given(st.data(), samples())
def test_any_set_of_levels(data, sample):
    chosen = data.draw(st.lists(st.sampled_from(ragged_axes(sample)), unique=True, min_size=1).map(sorted))
    limits = [data.draw(st.none() | st.integers(0, 4)) for _ in chosen]
    sizes = {c: sample.grid[c] if size is None else size for c, size in zip(chosen, limits, strict=True)}
    made = sample.x.to_dense(-1, max_lengths=limits, axis=chosen)
    assert made.tolist() == padded_lists(sample, sizes, -1)
    for c in chosen:
        assert made.shape[c] == sizes[c]


def test_padding_where_no_row_has_an_entry():
    p, q = sr.Partition.from_lengths([0, 0, 0]), sr.Partition.from_lengths([0, 0, 1])
    x = sr.from_product(torch.zeros(0), p, q)
    assert x.to_dense(-1, max_lengths=1, axis=1).tolist() == [[[]], [[]], [[-1.0]]]
    assert x.to_dense(-1, max_lengths=[1, 2]).tolist() == [[[-1.0, -1.0]]] * 3


@given(st.data(), samples())
def test_levels_one_by_one_equal_all_at_once(data, sample):
    axes = data.draw(st.permutations(range(sample.x.ndim)))
    x = made = sample.x.permute_dims(axes)
    for number in data.draw(st.permutations(ragged_axes(sample))):
        made = made.to_dense(-2, axis=axes.index(number))
    assert torch.equal(made.torch(), x.to_dense(-2).torch())


@given(st.data(), samples())
def test_mask_is_true_at_the_cells(data, sample):
    packed_axes = data.draw(st.permutations(range(sample.packed)))
    features = range(sample.packed, sample.x.ndim)
    want = torch.zeros(sample.grid, dtype=torch.bool)
    for cell in sample.cells:
        want[cell] = True
    made = sample.x.permute_dims((*packed_axes, *features)).mask()
    assert made.dtype == torch.bool
    assert torch.equal(made.torch(), want.permute(tuple(packed_axes)))


def test_mask_takes_max_lengths():
    x = sr.ragged([[1.0, 2.0], [], [3.0]])
    assert x.mask(max_lengths=1).tolist() == [[True], [False], [True]]
    assert x.mask(max_lengths=3).tolist() == [[True, True, False], [False] * 3, [True, False, False]]


@given(st.data(), samples(dtypes=DTYPES))
def test_from_dense_like_reads_each_cell_or_padding(data, sample):
    axes = data.draw(st.permutations(range(sample.x.ndim)))
    like = sample.x.permute_dims(axes)
    sizes = [data.draw(st.integers(0, 4)) if i in ragged_axes(sample) else n for i, n in enumerate(sample.grid)]
    features = sample.x.values.shape[1:]
    dense = numbers(*sizes, *features, dtype=sample.x.dtype)
    made = sr.from_dense(dense.permute(tuple(axes)), like=like, padding_value=1)
    assert made.shape == like.shape
    assert all(mine is theirs for mine, theirs in zip(made.partitions, like.partitions, strict=True))
    for cell, row in zip(sample.cells, made.values, strict=True):
        inside = all(i < size for i, size in zip(cell, sizes, strict=True))
        assert torch.equal(row, dense[cell] if inside else torch.ones(features, dtype=dense.dtype))


@given(samples(dtypes=DTYPES))
def test_from_dense_undoes_to_dense(sample):
    back = sr.from_dense(sample.x.to_dense(), like=sample.x)
    assert torch.equal(back.values, sample.x.values)


@pytest.mark.parametrize("features", [(), (2,), (2, 3), (2, 0, 3), (1, 2, 2)])
@pytest.mark.parametrize("dtype", DTYPES + SMALL_UNSIGNED)
def test_every_dtype_and_number_of_features(dtype, features):
    values = numbers(4, *features, dtype=dtype)
    x = sr.from_lengths(values, [3, 0, 1])
    want = torch.zeros(3, 2, *features, dtype=dtype)
    want[0], want[2, 0] = values[:2], values[3]
    dense = x.to_dense(max_lengths=2)
    assert dense.dtype == dtype
    assert torch.equal(dense.torch(), want)
    back = sr.from_dense(dense, lengths=[3, 0, 1], padding_value=1)
    assert back.dtype == dtype
    assert torch.equal(back.values[[0, 1, 3]], values[[0, 1, 3]])
    assert torch.equal(back.values[2], torch.ones(features, dtype=dtype))


@pytest.mark.parametrize("padding", [math.inf, -math.inf, math.nan, -0.0, 1e300])
def test_special_padding_values(padding):
    x = sr.ragged([[1.0, 2.0], [3.0]], dtype=torch.float64)
    want = torch.tensor([[1.0, 2.0], [3.0, padding]], dtype=torch.float64)
    torch.testing.assert_close(x.to_dense(padding).torch(), want, rtol=0, atol=0, equal_nan=True)
    back = sr.from_dense(torch.ones(2, 1, dtype=torch.float64), like=x, padding_value=padding)
    want = torch.tensor([1, padding, 1], dtype=torch.float64)
    torch.testing.assert_close(back.values, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("padding", "dtype"),
    [
        (70000, torch.float16),
        (1e39, torch.float32),
        (1e39, torch.bfloat16),
        (1e39j, torch.complex64),
        (300, torch.int8),
    ],
)
def test_padding_that_the_dtype_cannot_hold(padding, dtype):
    x = sr.ragged([[1, 2], [3]]).to(dtype)
    with pytest.raises(ValueError, match=f"does not fit {dtype}"):
        x.to_dense(padding)
    assert sr.ragged([[1.0, 2.0], [3.0]], dtype=torch.float16).to_dense(-math.inf).tolist() == [
        [1.0, 2.0],
        [3.0, -math.inf],
    ]


@pytest.mark.parametrize("padding", [0, -0.0, math.nan, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_rows_move_bit_by_bit(dtype, padding):
    """Long rows take another path than short ones."""
    lengths = [0, 40_000, 3, 17_000]
    values = torch.randn(sum(lengths), 4, dtype=dtype)[:, 1:]
    values[:3] = torch.tensor([[-0.0], [math.nan], [math.inf]])
    x = sr.from_lengths(values, torch.tensor(lengths, dtype=torch.int32))
    expected = torch.full((4, 40_000, 3), padding, dtype=dtype)
    for row, piece in zip(expected, values.split(lengths), strict=True):
        row[: len(piece)] = piece
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    assert torch.equal(x.to_dense(padding).torch().view(bits), expected.view(bits))
    with pytest.raises(ValueError, match="does not fit"):
        x.to_dense("none")


def test_nan_in_what_is_cut_off_does_not_leak():
    x = sr.ragged([[1.0, math.nan], [math.inf, 2.0]])
    assert x.to_dense(max_lengths=1).tolist() == [[1.0], [math.inf]]


def test_lengths_and_offsets_on_the_same_dense():
    dense = numbers(2, 3)
    assert sr.from_dense(dense, lengths=[2, 0]).tolist() == [[1, 2], []]
    assert sr.from_dense(dense, offsets=[0, 2, 2]).tolist() == [[1, 2], []]
    assert sr.from_dense(dense, lengths=[4, 0], padding_value=9).tolist() == [[1, 2, 3, 9], []]
    assert sr.from_dense(sr.asarray(dense), lengths=torch.tensor([0, 1])).tolist() == [[], [4]]
    assert sr.from_dense(torch.zeros(0, 3), lengths=[]).shape == (0, sr.Ragged([]))


def test_dense_and_masks_stay_where_they_are_whatever_the_default_device():
    dense, mask = numbers(2, 2), torch.tensor([[True, False], [True, True]])
    with torch.device("meta"):
        by_mask, by_lengths = sr.from_dense(dense, mask=mask), sr.from_dense(dense, lengths=[1, 2])
    assert by_mask.tolist() == by_lengths.tolist() == [[1], [3, 4]]


@given(st.data())
def test_from_dense_with_a_mask(data):
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=3))
    features = data.draw(st.lists(st.integers(0, 2), max_size=1))
    flags = data.draw(st.lists(st.booleans(), min_size=math.prod(sizes), max_size=math.prod(sizes)))
    mask = torch.tensor(flags, dtype=torch.bool).view(sizes)
    dense = numbers(*sizes, *features)
    x = sr.from_dense(dense, mask=mask)

    def keep(entries, flags, depth):
        if depth == 1:
            return entries[flags].tolist()
        return [keep(e, f, depth - 1) for e, f in zip(entries, flags, strict=True)]

    assert x.tolist() == keep(dense, mask, len(sizes))
    assert x.shape[:-1] == (*sizes[:-1], x.shape[len(sizes) - 1], *features)[: x.ndim - 1]
    assert isinstance(x.shape[len(sizes) - 1], sr.Ragged)


@given(st.data())
def test_from_dense_with_a_mask_per_level(data):
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    flags = data.draw(st.lists(st.booleans(), min_size=math.prod(sizes), max_size=math.prod(sizes)))
    inner = torch.tensor(flags, dtype=torch.bool).view(sizes)
    flags = data.draw(st.lists(st.booleans(), min_size=math.prod(sizes[:2]), max_size=math.prod(sizes[:2])))
    outer = torch.tensor(flags, dtype=torch.bool).view(sizes[:2])
    dense = numbers(*sizes, 2)
    x = sr.from_dense(dense, mask=(outer, inner))
    want = [
        [dense[b, t][inner[b, t]].tolist() for t in range(sizes[1]) if outer[b, t]] for b in range(sizes[0])
    ]  # fmt: skip
    assert x.tolist() == want
    assert [axis.parents for axis in x.shape if isinstance(axis, sr.Ragged)] == [(0,), (0, 1)]


def test_a_mask_per_level_need_not_keep_a_prefix():
    dense = numbers(2, 3, 2, dtype=torch.int64)
    outer = torch.tensor([[True, False, True], [False, True, False]])
    assert sr.from_dense(dense, mask=(outer, dense % 5 != 0)).tolist() == [[[1, 2], [6]], [[9]]]


@given(samples(max_axes=3))
def test_a_tensors_own_mask_packs_its_dense_form_again(sample):
    if len(ragged_axes(sample)) == 1:
        packed = sr.from_dense(sample.x.to_dense(), mask=sample.x.mask())
        assert torch.equal(packed.values, sample.x.values)


def leaf(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


NESTED = sr.from_lengths(torch.zeros(5), [[2, 0, 1], [2, 1, 2]])
PRODUCT = sr.from_product(torch.zeros(7), sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([2, 1, 3]))
GRADIENT_SAMPLES = [
    (sr.from_lengths(torch.zeros(4), [3, 0, 1]), (4,)),
    (sr.from_lengths(torch.zeros(4, 2), [3, 0, 1]).mT, (4, 2)),
    (NESTED, (5,)),
    (PRODUCT, (7,)),
    (PRODUCT.mT, (7,)),
]


@pytest.mark.parametrize(("x", "shape"), GRADIENT_SAMPLES)
@pytest.mark.parametrize("max_lengths", [None, 1, 4])
@pytest.mark.parametrize("axis", [None, "last"])
def test_gradients_of_to_dense(x, shape, max_lengths, axis):
    ragged = [i for i, a in enumerate(x.shape) if isinstance(a, sr.Ragged)]

    def dense(values):
        return x._with(values).to_dense(0.5, max_lengths, None if axis is None else ragged[-1]).values

    assert gradcheck(dense, leaf(*shape))
    assert gradgradcheck(lambda values: dense(values).pow(3), leaf(*shape))


@pytest.mark.parametrize(("x", "shape"), GRADIENT_SAMPLES)
@pytest.mark.parametrize("max_lengths", [None, 1, 4])
def test_gradients_of_from_dense(x, shape, max_lengths):
    dense = x._with(torch.zeros(shape)).to_dense(max_lengths=max_lengths)

    def packed(given_):
        return sr.from_dense(given_, like=x._with(torch.zeros(shape)), padding_value=0.5).values

    assert gradcheck(packed, leaf(*dense.shape))
    assert gradgradcheck(lambda given_: packed(given_).pow(3), leaf(*dense.shape))


def test_gradient_of_what_was_cut_off_is_zero():
    x = sr.ragged([[1.0, 2.0, 3.0], [], [4.0]]).requires_grad_()
    x.to_dense(max_lengths=2).values.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0, 0.0], [], [1.0]]
    dense = torch.ones(3, 2, requires_grad=True)
    sr.from_dense(dense, lengths=[1, 0, 4]).values.sum().backward()
    assert dense.grad.tolist() == [[1, 0], [0, 0], [1, 1]]


def test_gradient_through_a_mask():
    dense = torch.ones(2, 3, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, False, True]])
    sr.from_dense(dense, mask=mask).values.mul(2).sum().backward()
    assert torch.equal(dense.grad, mask * 2.0)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("max_lengths", [-1, 1.5, "a", [1, 2], [], [-1], ["a"], [1.5], torch.tensor(2.5)])
def test_bad_max_lengths(max_lengths):
    with pytest.raises((ValueError, TypeError), match="max_lengths"):
        sr.ragged([[1.0, 2.0], [3.0]]).to_dense(max_lengths=max_lengths)


def test_max_lengths_may_be_any_integer():
    x = sr.ragged([[1.0, 2.0], [3.0]])
    for size in (1, np.int64(1), (1,), [np.int32(1)]):
        assert x.to_dense(max_lengths=size).tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize(
    ("axis", "match"), [(0, "axis 0 .*not ragged"), (5, "axis 5 .*range"), ([1, -1], "twice|once")]
)
def test_bad_axes(axis, match):
    with pytest.raises(sr.errors.AxisError, match=match):
        sr.ragged([[1.0, 2.0], [3.0]]).to_dense(axis=axis)


D = torch.zeros(4, 6)
X = sr.ragged([[1.0, 2.0], [], [3.0]])


@pytest.mark.parametrize(
    ("options", "exception", "match"),
    [
        ({}, TypeError, "exactly one of lengths, offsets, mask, like; got none"),
        ({"lengths": [1] * 4, "mask": D > 2}, TypeError, "exactly one .*lengths and mask"),
        ({"lengths": [1] * 4, "offsets": [0]}, TypeError, "exactly one .*lengths and offsets"),
        ({"like": X, "mask": D > 2}, TypeError, "exactly one .*mask and like"),
        ({"lengths": [1] * 3}, ValueError, r"axis 0 .*size 3.*\[4, 6\]"),
        ({"lengths": [1, -1, 0, 0]}, ValueError, "lengths of level 0 .*position 1 holds -1"),
        ({"lengths": [1, math.nan, 0, 0]}, ValueError, "lengths of level 0 .*position 1 holds nan"),
        ({"lengths": [[1] * 4, [1] * 4]}, ValueError, r"at least 3 axes.*\[4, 6\]"),
        ({"offsets": [0, 1, 0, 2, 3]}, ValueError, "offsets of level 0 .*position 2 holds 0 after 1"),
        ({"mask": D.long()}, TypeError, "mask must be boolean, got torch.int64"),
        ({"mask": D.T > 3}, ValueError, r"mask .*\[4, 6\], got \[6, 4\]"),
        ({"mask": D[:, 0] > 3}, ValueError, r"mask .*\[4, 6\], got \[4\]"),
        ({"mask": ()}, (TypeError, ValueError), "mask"),
        ({"like": X}, ValueError, r"axis 0 .*size 3.*\[4, 6\]"),
        ({"like": D}, TypeError, "like"),
        ({"like": sr.asarray(D)}, (TypeError, ValueError), "like"),
    ],
)
def test_bad_structure_for_dense(options, exception, match):
    with pytest.raises(exception, match=match):
        sr.from_dense(D, **options)


@pytest.mark.parametrize("shape", [(3,), (3, 2, 5)])
def test_dense_with_other_axes_than_like(shape):
    if len(shape) > X.ndim:  # further axes are features
        assert sr.from_dense(torch.zeros(shape), like=X).shape == (3, sr.Ragged([2, 0, 1]), 5)
        return
    with pytest.raises(sr.errors.RaggednessError, match=r"dense must have .*2 axes"):
        sr.from_dense(torch.zeros(shape), like=X)
