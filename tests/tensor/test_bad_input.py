"""Bad input: what is refused, with which exception, and that the message names level, position and value."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.tensor.structures import numbers

import serrate as sr
from serrate.errors import RaggednessError

P = sr.Partition
VALUES = numbers(10)
U64 = torch.tensor([0, 10], dtype=torch.uint64)


def meta(*shape, dtype=torch.int64):
    return torch.zeros(*shape, dtype=dtype, device="meta")


def refuses(exception, match, call, *args, **kwargs):
    with pytest.raises(exception, match=match) as caught:
        call(*args, **kwargs)
    assert len(str(caught.value)) < 400
    return caught.value


def test_raggedness_error_is_a_value_error():
    assert issubclass(RaggednessError, ValueError)


# ---------------------------------------------------------------------------------------------------- offsets

BAD_OFFSETS = {
    "decreasing": ([0, 5, 3, 10], r"never decrease.*position 2 holds 3 after 5"),
    "decreasing at two places": ([0, 5, 3, 8, 2, 10], r"position 2 holds 3 after 5"),
    "negative": ([0, -2, 10], r"never decrease.*position 1 holds -2 after 0"),
    "not from 0": ([1, 5, 10], r"start with 0.*position 0 holds 1"),
    "from below 0": ([-1, 5, 10], r"start with 0.*position 0 holds -1"),
    "too large": ([0, 5, 12], r"end with.*10.*position 2, holds 12"),
    "too large inside": ([0, 12, 10], r"position 2 holds 10 after 12"),
    "too small": ([0, 5, 8], r"end with.*10.*position 2, holds 8"),
    "far too large": ([0, 2**63 - 1], r"position 1, holds 9223372036854775807"),
    "past int64": ([0, 2**70], r"int64"),
    "only a 0": ([0], r"end with.*10.*position 0, holds 0"),
    "float": (torch.tensor([0.0, 10.0]), r"int32 or int64.*float32"),
    "float list": ([0.0, 10.0], r"int.*float64"),
    "half a value": ([0, 1.5, 10], r"integers.*position 1 holds 1\.5"),
    "nan": ([0, math.nan, 10], r"integers.*position 1 holds nan"),
    "inf": ([0, math.inf], r"integers.*position 1 holds inf"),
    "bool": (torch.tensor([False, True]), r"int32 or int64.*bool"),
    "bool list": ([False, True], r"integers.*bool"),
    "complex": (torch.tensor([0j, 10]), r"int32 or int64.*complex64"),
    "uint64": (U64, r"int64.*uint64"),
    "numpy uint64": (U64.numpy(), r"int64.*uint64"),
    "2-D": (torch.zeros(2, 2, dtype=torch.int64), r"1-D.*\[2, 2\]"),
    "0-d": (torch.tensor(10), r"1-D.*\[\]"),
    "a number": (10, r"1-D"),
    "empty": (torch.zeros(0, dtype=torch.int64), r"at least 1; got none"),
    "empty list": ([], r"at least"),
    "strings": (["0", "10"], r"integers.*\['0', '10'\]"),
    "a string": ("abc", r"integers.*'abc'"),
    "None": (None, r"integers.*None"),
    "None inside": ([0, None], r"integers.*None"),
    "uneven": ([0, [1]], r"flat sequence.*\[0, \[1\]\]"),
}


@pytest.mark.parametrize(("offsets", "match"), BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_bad_offsets(offsets, match):
    message = str(refuses(RaggednessError, match, sr.from_offsets, VALUES, offsets))
    if not (isinstance(offsets, list) and not offsets):  # an empty list could be a list of no levels
        assert "offsets of level 0" in message


@pytest.mark.parametrize("name", [n for n in BAD_OFFSETS if n not in ("empty list", "2-D")])
def test_bad_offsets_for_a_view(name):
    offsets, match = BAD_OFFSETS[name]
    refuses(RaggednessError, match, sr.view_as_nested, VALUES, offsets)


@pytest.mark.parametrize("name", ["decreasing", "negative", "not from 0", "nan", "bool", "uint64", "2-D", "empty"])
def test_bad_offsets_without_a_tensor(name):
    offsets, match = BAD_OFFSETS[name]
    refuses(RaggednessError, match, P.from_offsets, offsets)


def test_offsets_on_another_device():
    # The issue: all offsets on one device, and every such failure is a RaggednessError that names the level.
    refuses(RaggednessError, r"offsets of level 0.*meta.*cpu", sr.from_offsets, VALUES, meta(2))
    refuses(RaggednessError, r"offsets of level 1.*meta.*cpu", sr.from_offsets, VALUES, [torch.tensor([0, 1]), meta(2)])
    refuses(RaggednessError, r"lengths of level 0.*meta.*cpu", sr.from_lengths, VALUES, meta(1))
    refuses(RaggednessError, r"row_ids.*meta.*cpu", sr.from_row_ids, VALUES, meta(10), 1)
    refuses(RaggednessError, r"offsets.*meta.*cpu", sr.view_as_nested, VALUES, meta(2))
    refuses(RaggednessError, r"offsets.*meta.*cpu", sr.view_as_nested, VALUES.view(2, 5), meta(2, 2), 1)


def test_structure_for_dense_on_another_device():
    dense = VALUES.view(2, 5)
    refuses(ValueError, r"lengths.*meta.*cpu", sr.from_dense, dense, lengths=meta(2))
    refuses(ValueError, r"mask.*meta.*cpu", sr.from_dense, dense, mask=meta(2, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ([[0, 2, 5], [0, 3, 10]], r"level 0 .* 2, .*position 2, holds 5"),
        ([[0, 1], [0, 3, 10]], r"level 0 .* 2, .*position 1, holds 1"),
        ([[0, 2], [0, 3, 9]], r"level 1 .* 10, .*position 2, holds 9"),
        ([[0, 3, 2], [0, 3, 10]], r"level 0 .*position 2 holds 2 after 3"),
        ([[0, 1, 2], [0, 11, 10]], r"level 1 .*position 2 holds 10 after 11"),
        ([[0, 1], [0, 1, 2], [0, 11, 10]], r"level 2 .*position 2 holds 10 after 11"),
        ([[0, 1], [0, 4, 2], [0, 3, 10]], r"level 1 .*position 2 holds 2 after 4"),
        ([[0, 1], 10], r"level 1"),
        ([P.from_lengths([3]), P.from_lengths([10])], r"level 0 .* 1 .* 3"),
        ([P.from_lengths([3])], r"level 0 .* 10 .* 3"),
        ([P.from_lengths([1]), [0, 9]], r"level 1 .* 10, .*position 1, holds 9"),
        ((), "at least one level"),
    ],
)
def test_levels_that_do_not_fit(levels, match):
    refuses(RaggednessError, match, sr.from_offsets, VALUES, levels)


# ---------------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize(
    ("lengths", "match"),
    [
        ([3, 4], r"add up to .*10.*add up to 7"),
        ([30], r"add up to .*10.*add up to 30"),
        ([], r"add up to .*10.*add up to 0"),
        ([-1, 11], r"0 or more.*position 0 holds -1"),
        ([12, -2], r"0 or more.*position 1 holds -2"),
        ([5, math.nan], r"integers.*position 1 holds nan"),
        ([5, math.inf], r"integers.*position 1 holds inf"),
        ([5, -math.inf], r"integers.*position 1 holds -inf"),
        ([1.5, 8.5], r"integers.*position 0 holds 1\.5"),
        ([5.0, 5.0], r"int.*float64"),
        (torch.tensor([5.0, math.nan]), r"integers.*position 1 holds nan"),
        (np.array([math.nan, 5.0]), r"integers.*position 0 holds nan"),
        ([True, False], r"integers.*bool"),
        (U64, r"int64.*uint64"),
        (torch.tensor([[5, 5]]), r"1-D.*\[1, 2\]"),
        (torch.tensor(10), r"1-D.*\[\]"),
        (None, r"integers.*None"),
        (["5", "5"], r"integers.*\['5', '5'\]"),
        ([2**62, 2**62], r"more than an int64"),
        ([2**63 - 1, 2**63 - 1, 12], r"more than an int64"),
    ],
)
def test_bad_lengths(lengths, match):
    message = str(refuses(RaggednessError, match, sr.from_lengths, VALUES, lengths))
    assert "lengths of level 0" in message


def test_lengths_of_levels_that_do_not_fit():
    refuses(RaggednessError, r"level 0 .* 2, .* 3", sr.from_lengths, VALUES, [[2, 1], [3, 7]])
    refuses(RaggednessError, r"level 1 .* 10, .* 9", sr.from_lengths, VALUES, [[2], [3, 6]])
    refuses(RaggednessError, r"level 1 .*position 1 holds -3", sr.from_lengths, VALUES, [[2], [13, -3]])


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_int32_lengths_past_int32_give_int64_offsets(make):
    int32 = torch.int32 if make is torch.tensor else np.int32
    p = P.from_lengths(make([2**30 + 5, 2**30 + 7, 2**31 - 1], dtype=int32))
    assert p.dtype == torch.int64
    assert p.offsets.tolist() == [0, 2**30 + 5, 2**31 + 12, 2**32 + 11]
    assert p.max_length == 2**31 - 1
    assert p.slice(1, 3).offsets.tolist() == [0, 2**30 + 7, 3 * 2**30 + 6]
    exact = P.from_lengths(make([2**30, 2**30 - 1], dtype=int32))
    assert exact.dtype == torch.int32
    assert exact.offsets.tolist() == [0, 2**30, 2**31 - 1]


def test_int32_blocks_past_int32():
    p = P.from_lengths(torch.tensor([2**16, 3], dtype=torch.int32))
    refuses(RaggednessError, str(2**32 + 9), sr.from_product, torch.zeros(1), p, p)


# ---------------------------------------------------------------------------------------------------- nested lists


@pytest.mark.parametrize(
    ("nested", "match"),
    [
        ([[1], [[2]]], r"one depth.*\[0\]\[0\] is 1|one depth.*\[1\]\[0\] is a list"),
        ([[[1]], [2]], r"one depth.*\[1\]\[0\] is 2"),
        ([1, [2]], r"entry \[0\] is 1"),
        ([[1], 2], r"entry \[1\] is 2"),
        ([[[1], []], [[], 2]], r"one depth.*\[1\]\[1\] is 2"),
        ([[1, [2]]], r"one depth.*\[0\]\[0\] is 1|one depth.*\[0\]\[1\] is a list"),
        ([[[]], [1]], r"one depth.*\[1\]\[0\] is 1"),
        ([[], [[3], 4]], r"one depth.*\[1\]\[1\] is 4"),
        ([[[[1, 2]], []], [[[3], 4]]], r"one depth.*\[1\]\[0\]\[1\] is 4"),
        ([[1], None], r"entry \[1\] is None"),
        ([[[1], None]], r"\[0\]\[1\] is None"),
        ([1, 2], r"lists"),
        ([[1, 2], "ab"], r"entry \[1\] is 'ab'"),
    ],
)
def test_lists_of_unequal_depth(nested, match):
    message = str(refuses(RaggednessError, match, sr.ragged, nested))
    assert "ragged_rank" not in message  # nobody gave one


@pytest.mark.parametrize(
    ("nested", "match"),
    [
        ([["a"]], r"entry \[0\]\[0\].*'a'"),
        ([[1], [2, "b"]], r"entry \[1\]\[1\].*'b'"),
        ([[1, None]], r"entry \[0\]\[1\].*None"),
        ([[[1], [2, None]]], r"entry \[0\]\[1\]\[1\].*None"),
        ([[b"a"]], r"entry \[0\]\[0\].*b'a'"),
        ([[1], [True]], r"entry \[0\]\[0\] is 1.*entry \[1\]\[0\] is True"),
        ([[True, 1]], r"entry \[0\]\[0\] is True.*entry \[0\]\[1\] is 1"),
        ([[1.5], [True]], r"entry \[0\]\[0\] is 1\.5.*entry \[1\]\[0\] is True"),
        ({}, "nested lists, got dict"),
        (3, "nested lists, got int"),
        ("abc", "nested lists, got str"),
        (None, "nested lists, got NoneType"),
    ],
)
def test_what_is_no_number_or_mixes_kinds(nested, match):
    refuses(TypeError, match, sr.ragged, nested)


@pytest.mark.parametrize("rank", [{"ragged_rank": 1}, {"feature_size": 1}])
def test_dense_levels_are_read_as_strictly(rank):
    wrap = (lambda v: [[[v]]]) if "ragged_rank" in rank else (lambda v: [[v]])
    refuses(TypeError, r"\[0\]\[0\].*'a'", sr.ragged, wrap("a"), **rank)
    refuses(TypeError, r"\[0\]\[0\].*None", sr.ragged, wrap(None), **rank)
    mixed = [[[1], [True]]] if "ragged_rank" in rank else [[1, True]]
    refuses(TypeError, r"mixed", sr.ragged, mixed, **rank)


def test_numbers_that_fit_no_dtype():
    error = refuses((ValueError, OverflowError), r"\[0\]\[1\].*1180591620717411303424", sr.ragged, [[1, 2**70]])
    assert "rectangular" not in str(error)


def test_bad_ranks_and_feature_sizes():
    refuses(RaggednessError, r"ragged_rank.*0", sr.ragged, [[1]], ragged_rank=0)
    refuses(RaggednessError, r"\[0\]\[0\] is 1", sr.ragged, [[1]], ragged_rank=2)
    refuses(RaggednessError, r"rectangular", sr.ragged, [[[1], [2, 3]]], ragged_rank=1)
    for size in (0, -1, "x", 1.5):
        refuses(ValueError, f"feature_size.*{size}", sr.ragged, [[1, 2]], feature_size=size)
    refuses(RaggednessError, r"row 1 .*3 .*feature_size 2", sr.ragged, [[1, 2], [3, 4, 5]], feature_size=2)


@pytest.mark.parametrize(
    ("rows", "exception", "match"),
    [
        ([], ValueError, "at least one row"),
        ([torch.ones(2), torch.ones(2, 1)], RaggednessError, r"row 0 .*\[2\].*row 1 \[2, 1\]"),
        ([torch.ones(2), torch.ones(2).long()], TypeError, r"row 0 .*float32.*row 1 .*int64"),
        ([torch.tensor(1)], RaggednessError, "row 0.*0-d"),
        (["ab"], TypeError, "row 0.*'ab'"),
        ([[1, 2], None], TypeError, "row 1.*None"),
        ([np.array(["a"])], TypeError, "row 0"),
        ([torch.ones(2), meta(2, dtype=torch.float32)], RuntimeError, "row 0 .*cpu.*row 1 .*meta"),
    ],
)
def test_bad_rows(rows, exception, match):
    refuses(exception, match, sr.from_rows, rows)


# ---------------------------------------------------------------------------------------------------- other makers


@pytest.mark.parametrize(
    ("row_ids", "num_rows", "match"),
    [
        ([0, 2, 1], 3, r"never decrease.*position 2 holds 1 after 2"),
        ([-1, 2, 2], 3, r"0 \.\. 2.*position 0 holds -1"),
        ([0, 2, 3], 3, r"0 \.\. 2.*position 2 holds 3"),
        ([0, 2], 3, r"one entry per value, 3, got 2"),
        ([0, 0, 0], 0, r"position 0 holds 0"),
        ([0, 0, 0], -3, r"0 or more, got -3"),
        ([0, 1.5, 2], 3, r"integers.*position 1 holds 1\.5"),
        ([0, math.nan, 2], 3, r"integers.*position 1 holds nan"),
        (torch.tensor([[0, 1, 2]]), 3, r"1-D"),
    ],
)
def test_bad_row_ids(row_ids, num_rows, match):
    refuses(RaggednessError, match, sr.from_row_ids, VALUES[:3], row_ids, num_rows)


def test_bad_numbers_of_rows():
    refuses(RaggednessError, "number of rows must be an integer, got 3.5", sr.from_row_ids, VALUES[:3], [0, 1, 2], 3.5)
    refuses(RaggednessError, "number of rows must be an integer", sr.from_row_ids, VALUES[:3], [0, 1, 2], None)


def test_bad_uniform_partitions():
    refuses(RaggednessError, "components must be 0 or more, got -1", P.uniform, -1, 2)
    refuses(RaggednessError, "length must be 0 or more, got -1", P.uniform, 2, -1)
    refuses((TypeError, ValueError), r"1\.5", P.uniform, 2, 1.5)
    refuses((TypeError, ValueError), "float32", P.uniform, 2, 2, dtype=torch.float32)


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (-1, 2), (2, 1), (3, 3)])
def test_slices_out_of_range(start, stop):
    refuses((IndexError, ValueError), ".", P.from_lengths([1, 2]).slice, start, stop)


def test_bad_products():
    p, q = P.from_lengths([2, 1]), P.from_lengths([3, 0])
    refuses(RaggednessError, r"6 values.*7 rows", sr.from_product, torch.arange(7), p, q)
    refuses(RaggednessError, r"6 values.*5 rows", sr.from_product, torch.arange(5), p, q)
    refuses(RaggednessError, r"2 and 1", sr.from_product, torch.arange(6), p, P.from_lengths([3]))
    refuses(RaggednessError, r"0-d", sr.from_product, torch.tensor(6), p, q)
    refuses(TypeError, r"p must be a Partition, got list", sr.from_product, torch.arange(6), [2, 1], q)
