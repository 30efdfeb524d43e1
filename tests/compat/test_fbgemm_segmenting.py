"""Sums, ranges and padding by segments are compared with FBGEMM's where these are right, and with lists."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from serrate.compat.fbgemm.segmenting import (
    asynchronous_complete_cumsum,
    offsets_range,
    pack_segments,
    segment_sum_csr,
)
from serrate.errors import RaggednessError

pytestmark = pytest.mark.usefixtures("way")

t = torch.tensor
INTS = [torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ROWS = {"some": [2, 0, 3, 1, 0], "first empty": [0, 0, 4], "one": [4], "equal": [2, 2], "empty": [0, 0], "none": []}


def same(made, expected):
    torch.testing.assert_close(made, expected, rtol=0, atol=0)


def small(*shape, dtype=torch.float32):
    """Draw numbers whose sums every dtype holds exactly."""
    return torch.randint(0, 4, shape).to(dtype)


def complete(lengths, dtype=torch.int64):
    return torch.nn.functional.pad(t(lengths, dtype=torch.int64).cumsum(0), (1, 0)).to(dtype)


# ---------------------------------------------------------------------------------- asynchronous_complete_cumsum


@pytest.mark.parametrize("dtype", [*INTS, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(0,), (1,), (9,), (2, 3), (2, 0), (0, 2)])
def test_cumsum_is_fbgemms(fbgemm, dtype, shape):
    given = small(*shape, dtype=dtype)
    same(asynchronous_complete_cumsum(given), fbgemm.asynchronous_complete_cumsum(given))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.float64, torch.complex64])
def test_cumsum_of_other_dtypes(dtype):
    made = asynchronous_complete_cumsum(t([1, 2, 3]).to(dtype))
    assert made.dtype == dtype
    same(made, t([0, 1, 3, 6]).to(dtype))


def test_cumsum_that_does_not_fit():
    with pytest.raises(OverflowError, match=f"t_in sums to {2**31 + 4}, which int32 does not hold"):
        asynchronous_complete_cumsum(t([2**31 - 1, 5], dtype=torch.int32))
    with pytest.raises(OverflowError):
        asynchronous_complete_cumsum(t([[1, 2], [-(2**31), -1]], dtype=torch.int32))
    same(asynchronous_complete_cumsum(t([2**31 - 6, 5], dtype=torch.int32))[-1], t(2**31 - 1, dtype=torch.int32))
    same(asynchronous_complete_cumsum(t([2**31 - 1, 5]))[-1], t(2**31 + 4))


def test_cumsum_of_half_is_wide():
    assert asynchronous_complete_cumsum(torch.ones(4096, dtype=torch.float16))[-1] == 4096


def test_cumsum_of_what_is_not_contiguous():
    same(asynchronous_complete_cumsum(t([[1, 9], [2, 9]])[:, 0]), t([0, 1, 3]))


# -------------------------------------------------------------------------------------------------- offsets_range


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("kind", [k for k in ROWS if ROWS[k]])
@pytest.mark.parametrize("whole", [False, True])
def test_ranges_are_fbgemms(fbgemm, dtype, kind, whole):
    offsets = complete(ROWS[kind], dtype)
    size = int(offsets[-1])
    made = offsets_range(offsets if whole else offsets[:-1], size)
    expected = fbgemm.offsets_range(offsets if whole else offsets[:-1], size)
    same(made, expected)
    assert made.tolist() == [i for n in ROWS[kind] for i in range(n)]


def test_range_past_the_last_offset_and_of_nothing():
    same(offsets_range(t([0, 2, 2]), 5), t([0, 1, 0, 1, 2]))
    same(offsets_range(t([], dtype=torch.int32), 0), t([], dtype=torch.int32))
    same(offsets_range(t([0]), 3), t([0, 1, 2]))
    same(offsets_range(t([0]), 0), t([], dtype=torch.int64))


# ------------------------------------------------------------------------------------------------ segment_sum_csr


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.uint8, torch.int16, torch.complex64])
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("batch", [1, 3])
def test_sums_of_segments(dtype, ints, kind, batch):
    ends = complete(ROWS[kind], ints)
    values = small(int(ends[-1]) * batch, dtype=dtype)
    made = segment_sum_csr(batch, ends, values)
    parts = values.to(torch.complex128).split([n * batch for n in ROWS[kind]]) if ROWS[kind] else []
    expected = torch.stack([p.sum() for p in parts]) if parts else torch.zeros(0, dtype=torch.complex128)
    assert made.dtype == dtype
    same(made.to(torch.complex128), expected)
    longer = torch.cat([values, values.new_ones(2)])  # Values past the last segment are left out.
    same(segment_sum_csr(batch, ends, longer), made)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, *INTS])
@pytest.mark.parametrize("ints", INTS)
def test_sums_are_fbgemms(fbgemm, dtype, ints):
    ends = complete([3, 0, 5, 1, 9], ints)
    values = small(36, dtype=dtype)
    same(segment_sum_csr(2, ends, values), fbgemm.segment_sum_csr(2, ends, values))
    same(segment_sum_csr(2, ends, values.view(18, 2)), fbgemm.segment_sum_csr(2, ends, values.view(18, 2)))
    same(segment_sum_csr(2, ends[2:], values), fbgemm.segment_sum_csr(2, ends[2:], values))


def test_sums_keep_apart_and_stay_wide():
    values = t([1.0, float("nan"), 2.0, float("inf"), 3.0, -float("inf"), 4.0])
    made = segment_sum_csr(1, t([0, 1, 2, 3, 4, 5, 6, 7]), values)
    torch.testing.assert_close(made, values, equal_nan=True, rtol=0, atol=0)
    half = torch.ones(5000, dtype=torch.float16)
    assert segment_sum_csr(1, t([0, 5000]), half).item() == 5000  # A sum in half would be 2048.
    assert segment_sum_csr(1, t([0, 5000]), half.bfloat16()).item() == t(5000.0).bfloat16().item()


def test_sums_of_integers_fit_or_say_so():
    big = t([2**31 - 1, 1, -5], dtype=torch.int32)
    assert segment_sum_csr(1, t([0, 3]), big).item() == 2**31 - 5
    with pytest.raises(OverflowError, match=r"does not fit torch\.int32"):
        segment_sum_csr(1, t([0, 2, 3]), big)
    assert segment_sum_csr(1, t([0, 2]), big.long()).item() == 2**31
    assert segment_sum_csr(1, t([0, 2]), t([2**53, 1])).item() == 2**53 + 1


@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_of_sums(batch):
    ends = t([1, 3, 3, 4])  # The first value and the last are in no segment.
    values = torch.randn(5 * batch, dtype=torch.float64, requires_grad=True)
    cubed = lambda v: segment_sum_csr(batch, ends, v**3)  # noqa: E731
    assert gradcheck(cubed, values)
    assert gradgradcheck(cubed, values)
    (gradient,) = torch.autograd.grad(segment_sum_csr(batch, ends, values), values, t([1.0, 2, 3]).double())
    assert gradient.view(5, batch)[:, 0].tolist() == [0, 1, 1, 3, 0]


# -------------------------------------------------------------------------------------------------- pack_segments


def padded(values, lengths, size):
    made = values.new_zeros((len(lengths), size, *values.shape[1:]))
    for i, row in enumerate(values.split(lengths) if lengths else []):
        made[i, : len(row)] = row[:size]
    return made


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool, torch.complex64])
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
def test_packed_rows(kind, dtype, ints, size):
    for features in [(), (2,), (2, 3)]:
        values = small(sum(ROWS[kind]), *features, dtype=dtype)
        made = pack_segments(values, t(ROWS[kind], dtype=ints), size)
        same(made, padded(values, ROWS[kind], size))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("size", [1, 3, 9])
def test_packing_is_fbgemms(fbgemm, dtype, ints, size):
    lengths = torch.randint(0, 6, (20,), dtype=ints)
    for features in [(), (3,), (2, 2)]:
        values = small(int(lengths.sum()), *features, dtype=dtype)
        same(pack_segments(values, lengths, size), fbgemm.pack_segments(values, lengths, size))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("features", [(), (2,)])
def test_gradients_of_packing(size, features):
    lengths = [2, 0, 5, 1]
    values = torch.randn(8, *features, dtype=torch.float64, requires_grad=True)
    cubed = lambda v: pack_segments(v**3, t(lengths), size)  # noqa: E731
    assert gradcheck(cubed, values)
    assert gradgradcheck(cubed, values)
    weight = torch.randn(4, size, *features, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(pack_segments(values, t(lengths), size), values, weight)
    expected = torch.zeros_like(values)
    for i, row in enumerate(expected.split(lengths)):
        row[:size] = weight[i, : len(row)]
    same(gradient, expected)


def test_packing_keeps_signs_of_zero_and_other_rows_clean():
    values = t([-0.0, 1.0, float("nan"), float("inf")], requires_grad=True)
    made = pack_segments(values, t([1, 3]), 1)
    assert made.tolist() == [[0.0], [1.0]]
    assert torch.signbit(made).tolist() == [[True], [False]]
    made.sum().backward()
    assert values.grad.tolist() == [1.0, 1.0, 0.0, 0.0]


# ------------------------------------------------------------------------------------------------------ bad input

V = torch.arange(6.0)
WRONG = {
    "3-d cumsum": (lambda: asynchronous_complete_cumsum(torch.zeros(1, 1, 1)), ValueError, "one or two axes"),
    "0-d cumsum": (lambda: asynchronous_complete_cumsum(t(1)), ValueError, "one or two axes"),
    "bool cumsum": (lambda: asynchronous_complete_cumsum(V > 1), TypeError, "t_in must be numbers"),
    "first offset": (lambda: offsets_range(t([1, 2]), 3), RaggednessError, "start with 0, .* position 0 holds 1"),
    "falling offsets": (lambda: offsets_range(t([0, 2, 1]), 3), RaggednessError, "position 2 holds 1"),
    "offsets past the size": (lambda: offsets_range(t([0, 2, 4]), 3), RaggednessError, "position 2 holds 4"),
    "negative offset": (lambda: offsets_range(t([0, -2, 1]), 3), RaggednessError, "position 1 holds -2"),
    "no offsets": (
        lambda: offsets_range(t([], dtype=torch.int64), 3),
        RaggednessError,
        "they are empty, and there are 3 values",
    ),
    "negative size": (lambda: offsets_range(t([0]), -1), RaggednessError, "range_size must be 0 or more"),
    "segments past the end": (lambda: segment_sum_csr(1, t([0, 7]), V), RaggednessError, "position 1 holds 7"),
    "batches past the end": (lambda: segment_sum_csr(4, t([0, 2]), V), RaggednessError, r"0 \.\. 1, .* rows of 4"),
    "falling segments": (lambda: segment_sum_csr(1, t([0, 3, 2]), V), RaggednessError, "position 2 holds 2"),
    "negative segment": (lambda: segment_sum_csr(1, t([-1, 3]), V), RaggednessError, "position 0 holds -1"),
    "no segments": (lambda: segment_sum_csr(1, t([], dtype=torch.int64), V), RaggednessError, "at least 1; got none"),
    "negative batch": (lambda: segment_sum_csr(-1, t([0, 3]), V), RaggednessError, "batch_size must be 0 or more"),
    "sum of bools": (lambda: segment_sum_csr(1, t([0, 3]), V > 1), TypeError, "values must be numbers"),
    "lengths of others": (lambda: pack_segments(V, t([2, 3]), 3), RaggednessError, "add up to the number of values, 6"),
    "negative length": (lambda: pack_segments(V, t([7, -1]), 3), RaggednessError, "position 1 holds -1"),
    "negative max_length": (lambda: pack_segments(V, t([6]), -3), RaggednessError, "max_length must be 0 or more"),
    "0-d values": (lambda: pack_segments(t(1.0), t([1]), 1), ValueError, "t_in must have at least one axis"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    call, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        call()
