"""Products whose partners are empty: a row of a ragged axis has a length there even if the product has no cell for it.

`[B, q, k]` has two ragged axes on one parent. What an operation along k makes of a row of k cannot depend on how many
entries q has beside it, so lengths are compared with those of the same call beside a q without an empty row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.enumeration import seen
from tests.ops.samples import elements

import serrate as sr

# Operations along an axis of a product that leave that axis on its own parents.
ALONG: dict[str, Callable[[sr.Tensor, int], sr.Tensor]] = {
    "topk, 0": lambda x, a: sr.topk(x, 0, axis=a).values,
    "topk, 1": lambda x, a: sr.topk(x, 1, axis=a).values,
    "topk, 2": lambda x, a: sr.topk(x, 2, axis=a, largest=False).indices,
    "topk, 9": lambda x, a: sr.topk(x, 9, axis=a).values,
    "sort": lambda x, a: sr.sort(x, axis=a),
    "diff": lambda x, a: sr.diff(x, axis=a),
    "diff, twice": lambda x, a: sr.diff(x, axis=a, n=2),
    "diff, after": lambda x, a: sr.diff(x, axis=a, prepend=x, append=x),
    "initial sum": lambda x, a: sr.cumulative_sum(x, axis=a, include_initial=True),
    "initial product": lambda x, a: sr.cumulative_prod(x, axis=a, include_initial=True),
    "cummax": lambda x, a: sr.cummax(x, axis=a).indices,
    "repeat": lambda x, a: sr.repeat(x, 2, axis=a),
    "repeat, never": lambda x, a: sr.repeat(x, 0, axis=a),
    "tile": lambda x, a: sr.tile(x, [2 if i == a else 1 for i in range(x.ndim)]),
    "roll": lambda x, a: sr.roll(x, 1, axis=a),
    "flip": lambda x, a: sr.flip(x, axis=a),
    "concat": lambda x, a: sr.concat([x, x], axis=a),
    "slice": lambda x, a: x[(*[slice(None)] * a, slice(1, 3))],
    "slice back": lambda x, a: x[(*[slice(None)] * a, slice(-2, None, -1))],
    "split": lambda x, a: sr.split(x, [2, 7], axis=a)[0],
    "take": lambda x, a: sr.take(x, [0, -3], axis=a, fill=0),
    "unique_inverse": lambda x, a: sr.unique_inverse(x, axis=a).inverse_indices,
    "softmax": lambda x, a: sr.softmax(x, axis=a),
    "take_along_axis": lambda x, a: sr.take_along_axis(x, sr.argsort(x, axis=a), axis=a),
}
LENGTHS = [([0, 1], [5, 1]), ([3, 0, 1], [0, 4, 0]), ([0, 0], [2, 1]), ([2, 1], [1, 3]), ([0], [0])]


def product(*lengths: list[int], features: tuple[int, ...] = ()) -> sr.Tensor:
    made = sr.zeros((len(lengths[0]), *map(sr.Ragged, lengths), *features), dtype=torch.float64)
    return made._with(elements(made.values.shape[0], features, torch.float64))


def births(x: sr.Tensor) -> list[sr.Tensor]:
    return [x, sr.testing.device_born(x, spare=2 if x.values.shape[0] else 0)]


@pytest.mark.parametrize("name", ALONG)
def test_lengths_do_not_depend_on_partners(name):
    run = ALONG[name]
    third = [[1, 0, 2]]
    for (q, k), axis, features in itertools.product(LENGTHS, (1, 2), ((), (2,))):
        for more in ([], *([lengths[: len(q)]] for lengths in third)):
            x = product(q, k, *more, features=features)
            full = [
                [max(n, 1) for n in lengths] if a != axis else lengths for a, lengths in enumerate((q, k, *more), 1)
            ]
            want: Any = run(product(*full, features=features), axis).shape[axis]
            elements_there = seen(run(x, axis))
            for given in births(x):
                got = run(given, axis)
                size = got.shape[axis]
                where = (name, q, k, more, axis, features)
                if isinstance(want, int):
                    assert size == want, where
                else:
                    assert size.parents == want.parents, where
                    assert size.lengths.tolist() == want.lengths.tolist(), where
                assert seen(got) == pytest.approx(elements_there), where


def test_the_first_few_of_a_row_without_cells():
    x = sr.zeros((2, sr.Ragged([0, 1]), sr.Ragged([5, 1])))
    for part in sr.topk(x, 1, axis=2):
        assert part.shape == (2, sr.Ragged([0, 1]), sr.Ragged([1, 1]))


def test_positions_that_no_row_reaches_have_an_initial_entry():
    """The longest rows of q and of k need not meet: then a group of the first axis has no entries at all."""
    x = sr.zeros((3, sr.Ragged([1, 1, 0]), sr.Ragged([0, 0, 1])), dtype=torch.float64)
    for given in (x, sr.testing.device_born(x)):
        made = sr.cumulative_sum(given, axis=0, include_initial=True)
        assert made.shape == (sr.Ragged([1], (1, 2)), 1, 1)
        assert sr.cumulative_prod(given, axis=0, include_initial=True).values.tolist() == [1.0]
        assert sr.topk(given, 2, axis=0).values.shape == (sr.Ragged([0], (1, 2)), 1, 1)
    y = product([2, 0], [0, 3])._with(torch.zeros(0, dtype=torch.float64).requires_grad_())
    made = sr.cumulative_sum(y, axis=0, include_initial=True)
    assert made.shape == (sr.Ragged([1] * 6, (1, 2)), 2, 3)
