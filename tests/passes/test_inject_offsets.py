"""inject-offsets: rows that a kernel makes leave it with their offsets, which nobody sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import serrate as sr

MAKERS: dict[str, Callable[[Any], Any]] = {
    "a slice of each row": lambda x: x[:, 1:3] * 2,
    "a slice of a slice": lambda x: sr.exp(x)[:, 1:][:, :-1] + 1,
    "rows behind rows": lambda x: sr.concat([x, sr.exp(x)], axis=1) * 2,
    "two results of the same rows": lambda x: (x[:, :2] + 1, x[:, :2] * 3),
    "two results of different rows": lambda x: (x[:, :2] + 1, x[:, 1:] * 3, x * 4),
    "a sum of new rows": lambda x: sr.sum(x[:, 1:] * 2, axis=1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_results_have_the_rows_that_eager_code_gives_them(name):
    function = MAKERS[name]
    made = sr.jit(function)
    for lengths in ([3, 0, 2, 5], [], [0, 0], [1], [7, 2]):
        x = sr.from_lengths(torch.rand(sum(lengths), 2), lengths)
        got, want = made(x), function(x)
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for one, other in pairs:
            assert one.shape == other.shape
            torch.testing.assert_close(one.values, other.values)
    assert made.stats.traces == 1
    assert made.stats.eager_calls == 0


def test_results_of_the_same_new_rows_share_their_partition():
    x = sr.from_lengths(torch.rand(5, 2), [3, 0, 2])
    one, two = sr.jit(MAKERS["two results of the same rows"])(x)
    assert one.partitions[0] is two.partitions[0]
    assert (one + two).shape == one.shape


def test_device_born_rows_stay_on_their_device():
    x = sr.testing.device_born(sr.from_lengths(torch.rand(5, 2), [3, 0, 2]))
    made = sr.jit(MAKERS["a slice of each row"])
    made(x)
    with sr.testing.forbid_sync():
        got = made(x)
    assert got.tolist() == MAKERS["a slice of each row"](x).tolist()
