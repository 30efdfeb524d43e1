"""Selections of jagged rows are compared with FBGEMM's where these are right, and with lists of rows."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from serrate.compat.fbgemm.selecting import (
    jagged_index_select,
    jagged_slice,
    keyed_jagged_index_select_dim1,
    masked_select_jagged_1d,
)
from serrate.eager.picking import Runs
from serrate.errors import RaggednessError

pytestmark = pytest.mark.usefixtures("way")

t = torch.tensor
INTS = [torch.int32, torch.int64]
DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
ROWS = {"some": [2, 0, 3, 1, 0], "one": [4], "equal": [2, 2, 2], "empty": [0, 0], "none": []}


def drawn(lengths, *features, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-100, 100, (sum(lengths), *features), generator=generator)
    return values.to(dtype)


def rows_of(values, lengths):
    return list(values.split([int(n) for n in lengths])) if len(lengths) else []


def joined(rows, like):
    return torch.cat([like[:0], *rows])


def same(made, expected):
    torch.testing.assert_close(made, expected, rtol=0, atol=0)


def spread(rows, seed=1):
    """Draw lengths, some of them 0, and values for so many rows."""
    return torch.randint(0, 6, (rows,), generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------- jagged_index_select


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", [(), (3,), (2, 0), (2, 3)])
def test_index_select_takes_rows(kind, dtype, features):
    lengths = t(ROWS[kind], dtype=torch.int64)
    values = drawn(ROWS[kind], *features, dtype=dtype)
    count = len(lengths)
    picks = [[], list(range(count)), list(reversed(range(count))), [count - 1] * 3 if count else []]
    for pick in picks:
        made, left = jagged_index_select(values, lengths, t(pick, dtype=torch.int64))
        rows = rows_of(values, lengths)
        same(made, joined([rows[i] for i in pick], values))
        assert left.tolist() == [ROWS[kind][i] for i in pick]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("ints", INTS)
def test_index_select_is_fbgemms(fbgemm, dtype, ints):
    lengths = spread(40).to(ints)
    values = drawn(lengths.tolist(), 3, dtype=dtype)
    indices = torch.randint(0, 40, (60,)).to(ints)
    expected = fbgemm.jagged_index_select(values, lengths, indices)
    made = jagged_index_select(values, lengths, indices)
    assert isinstance(made, list)
    for mine, theirs in zip(made, expected, strict=True):
        same(mine, theirs)
    size = expected[0].shape[0]
    same(jagged_index_select(values, lengths, indices, size)[0], expected[0])
    with pytest.raises(ValueError, match=f"num_dense_output_rows must be .* {size}, got {size + 1}"):
        jagged_index_select(values, lengths, indices, size + 1)


def test_index_select_gradients_are_fbgemms(fbgemm):
    lengths = spread(30)
    indices = torch.randint(0, 30, (50,))
    ours = drawn(lengths.tolist(), 3).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    made = jagged_index_select(ours, lengths, indices)[0]
    weight = torch.randint(-5, 5, made.shape).float()
    made.backward(weight)
    fbgemm.jagged_index_select(theirs, lengths, indices)[0].backward(weight)
    same(ours.grad, theirs.grad)


def test_a_row_taken_often_sums_its_gradients_wide():
    values = torch.ones(1, dtype=torch.float16, requires_grad=True)
    made, _ = jagged_index_select(values, t([1]), torch.zeros(5000, dtype=torch.int64))
    made.sum(dtype=torch.float32).backward()
    assert values.grad.item() == 5000  # A sum in half would be 2048.


def test_indices_and_lengths_not_contiguous():
    lengths = t([[2, 9], [1, 9], [3, 9]])[:, 0]
    values = drawn([2, 1, 3], 4).T.contiguous().T
    made, left = jagged_index_select(values, lengths, t([2, 9, 0, 9])[::2])
    same(made, torch.cat([values[3:], values[:2]]))
    assert left.tolist() == [3, 2]


# -------------------------------------------------------------------------------------------------- jagged_slice


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ints", INTS)
def test_slice_of_each_row(kind, dtype, ints):
    lengths = t(ROWS[kind], dtype=ints)
    for features in [(), (2,)]:
        values = drawn(ROWS[kind], *features, dtype=dtype)
        for start in (torch.zeros_like(lengths), lengths, lengths // 2):
            for most in (0, 1, 2, 100):
                made, left = jagged_slice(values, lengths, start, most)
                rows = [r[int(s) : int(s) + most] for r, s in zip(rows_of(values, lengths), start, strict=True)]
                same(made, joined(rows, values))
                assert left.dtype == ints
                assert left.tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_slice_is_fbgemms(fbgemm, dtype):
    lengths = spread(50)
    start = (torch.rand(50) * (lengths + 1)).long()
    values = drawn(lengths.tolist(), dtype=dtype)
    made, expected = (f(values, lengths, start, 3) for f in (jagged_slice, fbgemm.jagged_slice))
    for mine, theirs in zip(made, expected, strict=True):
        same(mine, theirs)


# ---------------------------------------------------------------------------------------- masked_select_jagged_1d


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ints", INTS)
def test_masked_select_of_each_row(kind, dtype, ints):
    lengths = t(ROWS[kind], dtype=ints)
    for features in [(), (2,)]:
        values = drawn(ROWS[kind], *features, dtype=dtype)
        for share in (0.0, 0.5, 2.0):
            mask = torch.rand(values.shape[0]) < share
            made, left = masked_select_jagged_1d(values, lengths, mask, True)
            pairs = zip(rows_of(values, lengths), rows_of(mask, lengths), strict=True)
            rows = [row[m] for row, m in pairs]
            same(made, joined(rows, values))
            assert left.dtype == ints
            assert left.tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("ints", INTS)
def test_masked_select_is_fbgemms(fbgemm, dtype, ints):
    lengths = spread(50).to(ints)
    values = drawn(lengths.tolist(), dtype=dtype)
    mask = torch.rand(values.numel()) < 0.4
    made, expected = (f(values, lengths, mask) for f in (masked_select_jagged_1d, fbgemm.masked_select_jagged_1d))
    for mine, theirs in zip(made, expected, strict=True):
        same(mine, theirs)


# --------------------------------------------------------------------------------- keyed_jagged_index_select_dim1


@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("features", [(), (2,)])
@pytest.mark.parametrize(
    ("keys", "batch", "picks"), [(3, 4, [3, 3, 1]), (2, 1, [0]), (3, 2, []), (0, 2, [1]), (1, 0, [])]
)
def test_keyed_select(ints, features, keys, batch, picks):
    lengths = spread(keys * batch).to(ints)
    values = drawn(lengths.tolist(), *features)
    weights = drawn(lengths.tolist(), seed=5)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(ints)
    given = (values, lengths, offsets, t(picks, dtype=ints), batch)
    chosen = [k * batch + i for k in range(keys) for i in picks]
    expected = [joined([rows_of(v, lengths)[i] for i in chosen], v) for v in (values, weights)]
    made = keyed_jagged_index_select_dim1(*given)
    assert len(made) == 2
    same(made[0], expected[0])
    assert made[1].dtype == ints
    assert made[1].tolist() == [int(lengths[i]) for i in chosen]
    made = keyed_jagged_index_select_dim1(*given, weights, expected[0].shape[0])
    same(made[0], expected[0])
    same(made[2], expected[1])
    with pytest.raises(ValueError, match="selected_lengths_sum must be"):
        keyed_jagged_index_select_dim1(*given, weights, expected[0].shape[0] + 1)


def test_keyed_select_as_documented():
    lengths = t([8, 5, 1, 4, 2, 7, 5, 9])
    offsets = t([0, 8, 13, 14, 18, 20, 27, 32, 41])
    made = keyed_jagged_index_select_dim1(torch.arange(41.0), lengths, offsets, t([3, 3, 1]), 4)
    expected = [*range(14, 18), *range(14, 18), *range(8, 13), *range(32, 41), *range(32, 41), *range(20, 27)]
    assert made[0].tolist() == expected
    assert made[1].tolist() == [4, 4, 5, 9, 9, 7]


# ------------------------------------------------------------------------------------------------------ gradients

LENGTHS = t([2, 0, 3, 1])
SELECTIONS = {
    "index": lambda v: jagged_index_select(v, LENGTHS, t([2, 0, 2, 1]))[0],
    "slice": lambda v: jagged_slice(v, LENGTHS, t([1, 0, 1, 0]), 1)[0],
    "mask": lambda v: masked_select_jagged_1d(v, LENGTHS, t([1, 0, 0, 1, 1, 0]).bool())[0],
    "keyed": lambda v: keyed_jagged_index_select_dim1(v, LENGTHS, t([0, 2, 2, 5, 6]), t([0, 1, 0]), 2, v * v)[2],
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("features", [(), (2,)])
def test_gradients(name, features):
    values = torch.randn(6, *features, dtype=torch.float64, requires_grad=True)
    squared = lambda v: SELECTIONS[name](v * v * v)  # noqa: E731
    assert gradcheck(squared, values)
    assert gradgradcheck(squared, values)


def test_other_rows_keep_their_gradients_clean():
    values = t([1.0, float("nan"), float("inf"), 2.0], requires_grad=True)
    made, _ = jagged_slice(values, t([1, 2, 1]), t([0, 2, 0]), 5)
    assert made.tolist() == [1.0, 2.0]
    made.sum().backward()
    assert values.grad.tolist() == [1.0, 0.0, 0.0, 1.0]


# ----------------------------------------------------------------------------------------------------- bad input

V, L = torch.arange(6.0), t([2, 1, 3])
WRONG = {
    "short lengths": (
        lambda: jagged_index_select(V, t([2, 1]), t([0])),
        RaggednessError,
        "add up to .* 6, but add up to 3",
    ),
    "long lengths": (lambda: jagged_slice(V, t([2, 9]), t([0, 0]), 1), RaggednessError, "x_lengths must add up to"),
    "negative length": (lambda: masked_select_jagged_1d(V, t([7, -1]), V > 1), RaggednessError, "position 1 holds -1"),
    "lengths past int64": (lambda: jagged_index_select(V, t([2**62] * 4 + [6]), t([0])), RaggednessError, "int64"),
    "float lengths": (
        lambda: jagged_index_select(V, t([6.0]), t([0])),
        RaggednessError,
        "lengths must be int32 or int64",
    ),
    "matrix of lengths": (lambda: jagged_index_select(V, t([[6]]), t([0])), RaggednessError, "lengths must be 1-D"),
    "0-d values": (lambda: jagged_index_select(t(1.0), t([1]), t([0])), ValueError, "at least one axis"),
    "high index": (lambda: jagged_index_select(V, L, t([0, 3])), IndexError, r"0 \.\. 2, .* position 1 holds 3"),
    "negative index": (lambda: jagged_index_select(V, L, t([-1])), IndexError, "position 0 holds -1"),
    "index of no rows": (lambda: jagged_index_select(V[:0], L[:0], t([0])), IndexError, "must be empty"),
    "negative start": (lambda: jagged_slice(V, L, t([0, -1, 0]), 1), IndexError, r"0 \.\. 1, .* row 1, but holds -1"),
    "start past the end": (lambda: jagged_slice(V, L, t([0, 1, 4]), 1), IndexError, r"0 \.\. 3, .* row 2, but holds 4"),
    "starts for other rows": (lambda: jagged_slice(V, L, t([0]), 1), ValueError, "each of the 3 rows, got 1"),
    "negative slice": (lambda: jagged_slice(V, L, t([0, 0, 0]), -2), ValueError, "slice_length must be 0 or more"),
    "mask of ints": (lambda: masked_select_jagged_1d(V, L, V.long()), ValueError, "mask must be bool"),
    "mask of other size": (lambda: masked_select_jagged_1d(V, L, V[1:] > 0), ValueError, r"each of the 6 values"),
    "offsets of others": (
        lambda: keyed_jagged_index_select_dim1(V, t([2, 4]), t([0, 3, 6]), t([0]), 1),
        RaggednessError,
        "complete cumulative sum of lengths, 2 at position 1, but hold 3",
    ),
    "few offsets": (
        lambda: keyed_jagged_index_select_dim1(V, t([2, 4]), t([0, 2]), t([0]), 1),
        RaggednessError,
        "offsets must have 3 entries",
    ),
    "sample past the batch": (
        lambda: keyed_jagged_index_select_dim1(V, t([2, 4]), t([0, 2, 6]), t([1]), 1),
        IndexError,
        "indices must lie in 0",
    ),
    "batch that does not divide": (
        lambda: keyed_jagged_index_select_dim1(V, L, t([0, 2, 3, 6]), t([1]), 2),
        ValueError,
        "batch_size entries per key, 2, but there are 3",
    ),
    "few weights": (
        lambda: keyed_jagged_index_select_dim1(V, t([2, 4]), t([0, 2, 6]), t([0]), 1, V[:3]),
        ValueError,
        "weights must have a row for each of the 6 values, got 3",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    call, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        call()


# ------------------------------------------------------------------------------------------------ as on a device


@pytest.mark.parametrize("kind", ROWS)
def test_the_index_of_runs(kind):
    lengths = t(ROWS[kind], dtype=torch.int64)
    starts = torch.randint(0, 50, (len(lengths),))
    expected = [int(s) + i for s, n in zip(starts, lengths, strict=True) for i in range(int(n))]
    assert Runs(starts, lengths, len(expected)).index.tolist() == expected
