"""Functions of sparse features are compared with FBGEMM's where these are right, and with lists of bags."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from serrate.compat.fbgemm.bucketizing import block_bucketize_sparse_features
from serrate.compat.fbgemm.sparse import expand_into_jagged_permute, jagged_unique_indices, permute_2D_sparse_data
from serrate.errors import RaggednessError

pytestmark = pytest.mark.usefixtures("way")

t = torch.tensor
INTS = [torch.int32, torch.int64]


def same(made, expected):
    if expected is None:
        assert made is None
    else:
        torch.testing.assert_close(made, expected, rtol=0, atol=0)


def all_same(made, expected):
    assert isinstance(made, tuple)
    for mine, theirs in zip(made, expected, strict=True):
        same(mine, theirs)


def joined(parts, like):
    return torch.cat([like[:0], *parts])


# ----------------------------------------------------------------------------------------- permute_2D_sparse_data

ORDERS = {"turned": [2, 0, 1], "same": [0, 1, 2], "less": [1], "more": [2, 2, 0, 2], "none": []}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batch", [0, 1, 3, 900])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("ints", INTS)
def test_permuted_features(order, batch, dtype, ints):
    lengths = torch.randint(0, 4, (3, batch), dtype=ints)
    count = int(lengths.sum())
    permute = t(ORDERS[order], dtype=ints)
    for features in [(), (2,)]:
        values, weights = torch.randint(0, 9, (count, *features)).to(dtype), torch.rand(count)
        made = permute_2D_sparse_data(permute, lengths, values, weights)
        sizes = lengths.sum(1).tolist()
        expected = [joined([v.split(sizes)[i] for i in ORDERS[order]], v) for v in (values, weights)]
        all_same(made, (lengths[permute.long()], *expected))
        assert permute_2D_sparse_data(permute, lengths, values, None, expected[0].shape[0])[2] is None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float16, torch.float32])
@pytest.mark.parametrize("batch", [5, 900])
def test_permutation_is_fbgemms(fbgemm, order, dtype, batch):
    lengths = torch.randint(0, 4, (3, batch))
    count = int(lengths.sum())
    given = (t(ORDERS[order], dtype=torch.int32), lengths, torch.randint(0, 9, (count,)).to(dtype), torch.rand(count))
    all_same(permute_2D_sparse_data(*given), fbgemm.permute_2D_sparse_data(*given))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batch", [2, 300])
def test_gradients_of_permutation(order, batch):
    lengths = torch.ones(3, batch, dtype=torch.int64)
    lengths[1, 0] = 0
    permute = t(ORDERS[order], dtype=torch.int64)
    values = torch.randn(int(lengths.sum()), dtype=torch.float64, requires_grad=True)
    cubed = lambda v: permute_2D_sparse_data(permute, lengths, v**3, v**2)[1:]  # noqa: E731
    fast = {"fast_mode": True} if batch > 2 else {}
    assert gradcheck(cubed, values, **fast)
    assert gradgradcheck(cubed, values, **fast)


def test_half_gradients_of_a_feature_named_often_are_wide():
    values = torch.ones(4096, dtype=torch.float16, requires_grad=True)
    made = permute_2D_sparse_data(torch.zeros(8, dtype=torch.int64), t([[4096]]), values)[1]
    weight = t([2048.0, 1, 1, 1, 1, 1, 1, 2048]).half().repeat_interleave(4096)
    made.backward(weight)
    assert values.grad.unique().item() == t(4102.0).half().item()  # A sum in half would be 4096.


# ------------------------------------------------------------------------------------ expand_into_jagged_permute


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("sizes", [[2, 3, 1], [0, 4, 0], [0, 0, 0]])
def test_expanded_permutation(fbgemm, order, ints, sizes):
    source = t([0, *accumulate(sizes)], dtype=ints)
    places = t([0, *accumulate(sizes[i] for i in ORDERS[order])], dtype=ints)
    size = int(places[-1])
    given = (t(ORDERS[order], dtype=ints), source, places, size)
    made = expand_into_jagged_permute(*given)
    assert made.tolist() == [int(source[i]) + b for i in ORDERS[order] for b in range(sizes[i])]
    assert made.dtype == ints
    if len(ORDERS[order]) == 3:  # FBGEMM takes only whole permutations.
        same(made, fbgemm.expand_into_jagged_permute(*given))


# -------------------------------------------------------------------------------------- jagged_unique_indices


def unique_by_hand(tables, groups, bags, indices):
    """Compute the documented result with lists; `tables` are cumulative sizes, `groups` cumulative features."""
    features = len(tables) - 1
    batch = (len(bags) - 1) // features
    ends = [bags[feature * batch] for feature in range(features + 1)]
    linear = [i + tables[f] for f in range(features) for i in indices[ends[f] : ends[f + 1]]]
    distinct = sorted(set(linear))
    lengths = [0] * (len(bags) - 1)
    for begin, end in pairwise(groups):
        found = [v for v in distinct if begin < end and tables[begin] <= v < tables[end]]
        for k in range(len(found)):
            lengths[begin * batch + k % ((end - begin) * batch)] += 1
    inverse = [distinct.index(v) for v in linear]
    unique = [0] * len(distinct)
    for i, place in zip(indices, inverse, strict=True):
        unique[place] = i
    return lengths, [0, *accumulate(lengths)], unique, inverse


@pytest.mark.parametrize("seed", range(12))
def test_unique_indices(seed):
    draw = random.Random(seed)
    ints = draw.choice(INTS)
    features, batch = draw.randint(1, 4), draw.randint(1, 4)
    shared = draw.random() < 0.5  # Then only the last feature of a group has rows of its own.
    sizes = [0 if shared and draw.random() < 0.5 else draw.randint(3, 6) for _ in range(features - 1)] + [5]
    tables = [0, *accumulate(sizes)]
    groups = [0, *(t for t in range(1, features + 1) if sizes[t - 1])]
    ends = {f: next(g for g in groups if g > f) for f in range(features)}
    lengths = [draw.randint(0, 5) for _ in range(features * batch)]
    indices = [
        draw.randrange(tables[ends[b // batch]] - tables[b // batch]) for b, n in enumerate(lengths) for _ in range(n)
    ]
    bags = [0, *accumulate(lengths)]
    made = jagged_unique_indices(*(t(given, dtype=ints) for given in (tables, groups, bags, indices)))
    expected = unique_by_hand(tables, groups, bags, indices)
    for mine, theirs, dtype in zip(made, expected, [ints, ints, ints, torch.int64], strict=True):
        same(mine, t(theirs, dtype=dtype))


def test_unique_indices_of_nothing():
    none = t([], dtype=torch.int64)
    made = jagged_unique_indices(t([0, 10, 20]), t([0, 1, 2]), t([0, 0, 0, 0, 0]), none)
    all_same(made, (t([0] * 4), t([0] * 5), none, none))
    all_same(jagged_unique_indices(t([0]), t([0]), t([0]), none), (none, t([0]), none, none))


# ----------------------------------------------------------------------------- block_bucketize_sparse_features


def drawn_features(draw):
    """Draw arguments of every kind that FBGEMM takes."""
    features, size = draw.randint(1, 5), draw.choice([1, 2, 3, 8])
    ids, ints = draw.choice(INTS), draw.choice(INTS)
    varied = draw.random() < 0.3
    batches = [draw.randint(0, 4) for _ in range(features)] if varied else [draw.randint(0, 4)] * features
    lengths = t([draw.randint(0, 5) for _ in range(sum(batches))], dtype=ints)
    count = int(lengths.sum())
    low, high = (0, 8 * size) if draw.random() < 0.4 else draw.choice([(-60, 60), (-(2**31), 2**31 - 1)])
    if ids == torch.int64 and draw.random() < 0.2:
        low, high = -(2**63), 2**63 - 1
    indices = t([draw.randint(low, high) for _ in range(count)], dtype=ids)
    blocks = t([draw.randint(1 if draw.random() < 0.8 else 0, 9) for _ in range(features)], dtype=ids)
    bounds = total = None
    if draw.random() < 0.4:
        bounds = [t([0, *accumulate(draw.randint(0, 9) for _ in range(size))], dtype=ids) for _ in range(features)]
    if draw.random() < 0.3:
        total = t([size * draw.randint(1, 3) for _ in range(features)], dtype=ids)
    return {
        "lengths": lengths,
        "indices": indices,
        "bucketize_pos": draw.random() < 0.5,
        "sequence": draw.random() < 0.5,
        "block_sizes": blocks,
        "my_size": size,
        "weights": draw.choice([None, torch.rand(count), torch.rand(count, dtype=torch.float64)]),
        "batch_size_per_feature": t(batches, dtype=ints) if varied else None,
        "max_B": max(batches) if varied else -1,
        "block_bucketize_pos": bounds,
        "keep_orig_idx": draw.random() < 0.3,
        "total_num_blocks": total,
        "keep_orig_idx_per_feature": draw.choice([None, t([draw.random() < 0.5 for _ in range(features)])]),
    }


@pytest.mark.parametrize("seed", range(60))
def test_buckets_are_fbgemms(fbgemm, seed):
    draw = random.Random(seed)
    for _ in range(8):
        given = drawn_features(draw)
        all_same(block_bucketize_sparse_features(**given), fbgemm.block_bucketize_sparse_features(**given))


@pytest.mark.parametrize("size", [257, 40_000])
def test_many_buckets(fbgemm, size):
    given = (t([3, 2]), t([700, 0, 5, size - 1, 3]), True, True, t([2, 1]), size)
    all_same(block_bucketize_sparse_features(*given), fbgemm.block_bucketize_sparse_features(*given))


def test_buckets_as_documented():
    lengths = t([0, 2, 1, 3, 2, 3, 3, 1], dtype=torch.int32)
    indices = t([3, 4, 15, 11, 28, 29, 1, 10, 11, 12, 13, 11, 22, 20, 20], dtype=torch.int32)
    made = block_bucketize_sparse_features(lengths, indices, True, True, t([5, 15, 10, 20]), 2, keep_orig_idx=True)
    assert made[0].tolist() == [0, 2, 0, 1, 1, 0, 1, 0, 0, 0, 1, 2, 1, 3, 2, 1]
    assert made[1].tolist() == [3, 4, 11, 1, 11, 15, 28, 29, 10, 11, 12, 13, 22, 20, 20]
    assert made[3].tolist() == [0, 1, 0, 0, 0, 0, 1, 2, 1, 0, 1, 2, 1, 2, 0]
    assert made[4].tolist() == [0, 1, 5, 2, 6, 7, 3, 8, 9, 10, 11, 4, 12, 13, 14]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_weights_of_any_dtype_and_shape(dtype):
    weights = torch.arange(10).view(5, 2).to(dtype)
    made = block_bucketize_sparse_features(t([5]), t([1, 2, 7, 3, 4]), False, False, t([4]), 2, weights)
    same(made[2], weights[[0, 1, 3, 2, 4]])


def test_gradients_of_weights():
    weights = torch.randn(5, dtype=torch.float64, requires_grad=True)
    call = lambda w: block_bucketize_sparse_features(t([5]), t([1, 2, 7, 3, 4]), False, False, t([4]), 2, w**3)[2]  # noqa: E731
    assert gradcheck(call, weights)
    assert gradgradcheck(call, weights)


# ------------------------------------------------------------------------------------------------------ bad input

V, L = torch.arange(6), t([[2, 1], [0, 3]])
BAGS, IDS = t([2, 1, 0, 3]), t([1, 2, 3, 4, 5, 6])


def bucketize(lengths=BAGS, indices=IDS, blocks=(4, 4), size=2, **options):
    return block_bucketize_sparse_features(lengths, indices, False, False, t(blocks), size, **options)


def unique(tables=(0, 10), groups=(0, 1), bags=(0, 2, 3), indices=(1, 2, 9)):
    return jagged_unique_indices(*(t(given, dtype=torch.int64) for given in (tables, groups, bags, indices)))


def expand(order=(1, 0), source=(0, 2, 5), places=(0, 3, 5), size=5):
    return expand_into_jagged_permute(*(t(given, dtype=torch.int64) for given in (order, source, places)), size)


WRONG = {
    "no such feature": (lambda: permute_2D_sparse_data(t([2]), L, V), IndexError, "0 .. 1, .* 2 features, .* holds 2"),
    "negative feature": (lambda: permute_2D_sparse_data(t([0, -1]), L, V), IndexError, "position 1 holds -1"),
    "vector of lengths": (lambda: permute_2D_sparse_data(t([0]), BAGS, V), RaggednessError, "lengths must be 2-D"),
    "lengths of others": (lambda: permute_2D_sparse_data(t([0]), L, V[1:]), RaggednessError, "5, but add up to 6"),
    "negative length": (
        lambda: permute_2D_sparse_data(t([0]), t([[7, -1]]), V),
        RaggednessError,
        "position 1 holds -1",
    ),
    "float lengths": (lambda: permute_2D_sparse_data(t([0]), L.float(), V), RaggednessError, "int32 or int64"),
    "few weights": (lambda: permute_2D_sparse_data(t([0]), L, V, V[1:]), ValueError, "each of the 6 values, got 5"),
    "sum": (
        lambda: permute_2D_sparse_data(t([0]), L, V, None, 4),
        ValueError,
        "permuted_lengths_sum must be .* 3, got 4",
    ),
    "expand: feature": (lambda: expand(order=[2, 0]), IndexError, "permute must lie in"),
    "expand: falling": (lambda: expand(source=[0, 6, 5]), RaggednessError, "input_offset must never decrease"),
    "expand: start": (lambda: expand(source=[1, 2, 5]), RaggednessError, "input_offset must start with 0"),
    "expand: none": (lambda: expand(source=[]), RaggednessError, "input_offset must have one entry more"),
    "expand: places": (lambda: expand(places=[0, 2, 5]), RaggednessError, r"permuted features, \[0, 3, 5\]"),
    "expand: few places": (lambda: expand(places=[0, 5]), RaggednessError, "one entry more than permute, 3, got 2"),
    "expand: size": (lambda: expand(size=6), ValueError, "output_size must be the last of output_offset, 5, got 6"),
    "unique: high": (lambda: unique(indices=[1, 10, 9]), IndexError, r"feature 0 must lie in 0 \.\. 9, .* 1 holds 10"),
    "unique: negative": (lambda: unique(indices=[1, 2, -1]), IndexError, "position 2 holds -1"),
    "unique: bags": (lambda: unique(bags=[0, 2, 4]), RaggednessError, "offsets must end with the number of indices"),
    "unique: falling": (lambda: unique(bags=[0, 4, 3]), RaggednessError, "offsets must never decrease"),
    "unique: groups": (lambda: unique(groups=[0, 2]), RaggednessError, "hash_size_offsets must end with"),
    "unique: no groups": (lambda: unique(groups=[]), RaggednessError, "hash_size_offsets must have one entry more"),
    "unique: tables": (lambda: unique(tables=[0, -10]), RaggednessError, "hash_size_cumsum must start with 0"),
    "unique: no tables": (lambda: unique(tables=[]), RaggednessError, "hash_size_cumsum must have one entry more"),
    "unique: batch": (lambda: unique(tables=[0, 5, 10, 20]), RaggednessError, "number of bags for each of 3 features"),
    "bucket: lengths": (lambda: bucketize(indices=IDS[1:]), RaggednessError, "add up to the number of values, 5"),
    "bucket: features": (
        lambda: bucketize(blocks=[4] * 3),
        RaggednessError,
        "the same number of bags for each of 3 features, got 4",
    ),
    "bucket: blocks": (lambda: bucketize(blocks=[4, -1]), ValueError, "block_sizes must be 0 or more"),
    "bucket: size": (lambda: bucketize(size=0), ValueError, "my_size must be 1 or more"),
    "bucket: weights": (lambda: bucketize(weights=torch.rand(3)), ValueError, "weights must have a row"),
    "bucket: float indices": (
        lambda: bucketize(indices=IDS.float()),
        RaggednessError,
        "indices must be int32 or int64",
    ),
    "bucket: batches": (
        lambda: bucketize(batch_size_per_feature=t([1, 2])),
        RaggednessError,
        "batch_size_per_feature must add up to the number of values, 4",
    ),
    "bucket: few batches": (
        lambda: bucketize(batch_size_per_feature=t([4])),
        ValueError,
        "batch_size_per_feature must have an entry for each of the 2 features, got 1",
    ),
    "bucket: total": (lambda: bucketize(total_num_blocks=t([2, 3])), ValueError, "multiples of my_size, 2"),
    "bucket: few bounds": (
        lambda: bucketize(block_bucketize_pos=[t([0, 2, 4])]),
        ValueError,
        "a tensor for each of 2 features, got 1",
    ),
    "bucket: many bounds": (
        lambda: bucketize(block_bucketize_pos=[t([0, 2, 4]), t([0, 1, 2, 3])]),
        ValueError,
        r"block_bucketize_pos\[1\] must have at most my_size \+ 1 entries, 3",
    ),
    "bucket: falling bounds": (
        lambda: bucketize(block_bucketize_pos=[t([0, 2, 1]), t([0, 1, 2])]),
        ValueError,
        r"block_bucketize_pos\[0\] must start with 0 and never decrease",
    ),
    "bucket: keep": (
        lambda: bucketize(keep_orig_idx_per_feature=t([1, 0])),
        ValueError,
        "keep_orig_idx_per_feature must be bool",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    call, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        call()
