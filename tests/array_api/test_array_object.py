"""x[key] and x[key] = value on dense tensors against numpy, with keys of every kind."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.array_api.strict import ALL, COMPLEX, FLOAT, INTEGER, SHAPES, UNSIGNED, array, ours

import serrate as sr

Key = Any


def same(made: sr.Tensor, wanted: Any) -> None:
    expected = np.asarray(wanted)
    assert isinstance(made, sr.Tensor)
    assert made.shape == expected.shape
    assert made.dtype == getattr(torch, expected.dtype.name)
    np.testing.assert_array_equal(made.values.numpy(), expected)


def in_ours(key: Key) -> Key:
    """The key with arrays as Serrate's tensors."""
    if isinstance(key, tuple):
        return tuple(in_ours(entry) for entry in key)
    return ours(key) if isinstance(key, np.ndarray) else key


def basic_key(random: Random, shape: tuple[int, ...]) -> Key:
    """Integers, slices far out of bounds and of any step, at most one ..., and None."""
    taken = random.randint(0, len(shape))
    at = random.randint(0, taken)  # where ... stands, if it does
    sizes = [*shape[:at], *shape[len(shape) - (taken - at) :]] if random.random() < 0.5 else None
    entries = [_basic_entry(random, size) for size in (shape[:taken] if sizes is None else sizes)]
    if sizes is not None:
        entries.insert(at, Ellipsis)
    for _ in range(random.randint(0, 2)):
        entries.insert(random.randint(0, len(entries)), None)
    return entries[0] if len(entries) == 1 and random.random() < 0.5 else tuple(entries)


def _basic_entry(random: Random, size: int) -> Any:
    if size and random.random() < 0.4:
        return random.randrange(-size, size)
    near = [None, *range(-size - 2, size + 3)]
    far = [-(2**63), 2**63 - 1, 2**70, None, 0]
    start, stop = (random.choice(near if random.random() < 0.8 else far) for _ in range(2))
    return slice(start, stop, random.choice([None, None, 1, -1, 2, -2, 3, -5, 2**40, -(2**62)]))


def mask_key(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Masks on the first axes, zero-size where the tensor is not too."""
    sizes = [random.choice([n, n, n, 0]) for n in shape[: random.randint(0, len(shape))]]
    return np.array([random.random() < 0.5 for _ in range(math.prod(sizes))], dtype=bool).reshape(sizes)


def array_key(random: Random, shape: tuple[int, ...]) -> Key:
    """Integers and integer arrays that broadcast, of any integer dtype, on the first axes."""
    common = [random.randint(0, 3) for _ in range(random.randint(0, 2))]
    entries = [_array_entry(random, size, common) for size in shape[: random.randint(1, len(shape))]]
    return entries[0] if len(entries) == 1 and random.random() < 0.5 else tuple(entries)


def _array_entry(random: Random, size: int, common: list[int]) -> Any:
    if random.random() < 0.3:
        return random.randrange(-size, size)
    dtype = random.choice(INTEGER)
    sizes = [random.choice([n, n, 1]) for n in common[random.randint(0, len(common)) :]]
    least = 0 if dtype in UNSIGNED else -size
    return np.array([random.randrange(least, size) for _ in range(math.prod(sizes))], dtype=dtype).reshape(sizes)


def selection(random: Random) -> tuple[np.ndarray, Key]:
    """A tensor of any dtype, and a key of any kind that fits it."""
    shape = tuple(random.choice([0, 1, 2, 3, 3, 4]) for _ in range(random.randint(0, 4)))
    kinds = [basic_key, basic_key, mask_key, *([array_key] if shape and 0 not in shape else [])]
    return array(random.choice(ALL), shape, random.randint(0, 9)), random.choice(kinds)(random, shape)


selections = st.randoms(use_true_random=True).map(lambda random: [selection(random) for _ in range(20)])


@given(selections)
@settings(max_examples=150)
def test_getitem(chosen: list[tuple[np.ndarray, Key]]) -> None:
    for x, key in chosen:
        same(ours(x)[in_ours(key)], x[key])


@given(selections, st.randoms(use_true_random=True))
@settings(max_examples=100)
def test_setitem(chosen: list[tuple[np.ndarray, Key]], random: Random) -> None:
    for x, key in chosen:
        sizes = x[key].shape
        shape = tuple(random.choice([n, n, 1]) for n in sizes[random.randint(0, len(sizes)) :])
        places = np.arange(x.size).reshape(x.shape)[key]
        if len(np.unique(places)) < places.size:  # which of several values is kept is not defined
            shape = ()
        value = array(x.dtype.name, shape, seed=11)
        mine, wanted = ours(x), x.copy()
        wanted[key] = value
        mine[in_ours(key)] = ours(value)
        same(mine, wanted)
        if value.size:
            wanted[key] = number = value.reshape(-1)[0].item()
            mine[in_ours(key)] = number
            same(mine, wanted)


@given(selections)
@settings(max_examples=50)
def test_setitem_of_transposed(chosen: list[tuple[np.ndarray, Key]]) -> None:
    for x, key in chosen:
        base = x.T.copy()
        mine = ours(base)
        view = sr.permute_dims(mine, tuple(range(x.ndim))[::-1])
        value = array(x.dtype.name, (), seed=12)
        base.T[key] = value
        view[in_ours(key)] = ours(value)
        same(mine, base)


@pytest.mark.parametrize("dtype", ALL)
def test_everything_stays_a_tensor(dtype: str) -> None:
    x = array(dtype, (2, 3))
    for key in ((0, 1), (), (-1, -1), ..., (0, ..., 2), (np.array(1), 2), (np.array(0), np.array(1))):
        same(ours(x)[in_ours(key)], x[key])
    number = ours(array(dtype, ()))
    for key in ((), ..., None, np.array(True), np.array(False)):
        same(number[in_ours(key)], array(dtype, ())[key])


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("keeps", [True, False])
def test_assignment_by_a_0d_mask(dtype: str, keeps: bool) -> None:
    for shape in SHAPES:
        x, value = array(dtype, shape), array(dtype, (), seed=5)
        mine = ours(x)
        mine[ours(np.array(keeps))] = ours(value)
        x[np.array(keeps)] = value
        same(mine, x)


def test_a_0d_mask_of_a_ragged_tensor() -> None:
    x = sr.ragged([[1, 2], [], [3]])
    assert x[torch.tensor(True)].tolist() == [[[1, 2], [], [3]]]
    assert x[torch.tensor(False)].shape[0] == 0
    x[torch.tensor(False)] = 7
    assert x.tolist() == [[1, 2], [], [3]]
    x[torch.tensor(True)] = 7
    assert x.tolist() == [[7, 7], [], [7]]
    with pytest.raises(IndexError, match="stands alone"):
        x[torch.tensor(True), 0]


def test_a_mask_of_no_size_holds_nowhere() -> None:
    x = sr.ragged([[1, 2], [], [3]])
    assert x[torch.zeros(0, dtype=torch.bool)].tolist() == []
    with pytest.raises(IndexError, match="a mask of shape"):
        x[torch.zeros(3, 0, dtype=torch.bool)]


@pytest.mark.parametrize("dtype", FLOAT + COMPLEX)
def test_numbers_are_written_in_the_precision_of_the_tensor(dtype: str) -> None:
    for number in (0.1, 1 / 3, 1e-300, float("nan"), float("-inf"), -0.0, 2**70, *([0.1j] if dtype in COMPLEX else [])):
        x, mine = np.zeros(3, dtype), ours(np.zeros(3, dtype))
        for key in (1, slice(None, None, -2), np.array([True, False, False]), np.array([2, 2])):
            x[key] = number
            mine[in_ours(key)] = number
            same(mine, x)
        rows = sr.from_lengths(torch.zeros(3, dtype=mine.dtype), [1, 2])
        rows[:, 0] = number
        np.testing.assert_array_equal(rows.values.numpy()[0], np.asarray(number).astype(dtype))


@pytest.mark.parametrize("dtype", INTEGER)
def test_numbers_that_do_not_fit_are_refused(dtype: str) -> None:
    limits = np.iinfo(dtype)
    mine = ours(np.zeros(3, dtype))
    mine[0], mine[1] = limits.min, limits.max
    assert mine.tolist() == [limits.min, limits.max, 0]
    for number in (limits.min - 1, limits.max + 1):
        with pytest.raises(ValueError, match="does not fit"):
            mine[2] = int(number)


@pytest.mark.parametrize("ragged", [False, True])
def test_wrong_keys(ragged: bool) -> None:
    x = sr.ragged([[1, 2], [3, 4]]) if ragged else sr.ones((2, 2), dtype=torch.int64)
    wrong = {
        "too many indices": (0, 0, 0),
        "only one ...": (..., ...),
        "does not fit": ours(np.array([True, False, True])),
        "an index is an int": 0.5,
        "must hold integers": ours(np.array([0.5])),
        "out of range|out of bounds": 2,
        "step cannot be 0": slice(None, None, 0),
        "slice bounds must be": slice(0.5, None),
        "single bool": True,
    }
    for message, key in wrong.items():
        with pytest.raises(IndexError, match=message):
            x[key]
        with pytest.raises(IndexError, match=message):
            x[key] = 1
    with pytest.raises(IndexError, match=r"too many indices|does not fit"):
        x[ours(np.ones((2, 2, 2), dtype=bool))]
    for key in (ours(np.array([0, 2])), ours(np.array([-3])), -3, (0, 2), (slice(None), -3)):
        with pytest.raises(IndexError, match=r"out of range|out of bounds|row 0|has \d"):
            x[key]


def test_values_that_do_not_broadcast() -> None:
    x = sr.ones((2, 3))
    for key, shape in ((0, (2,)), (slice(None), (3, 3)), (slice(0, 0), (2, 3)), (ours(np.array([1, 0])), (3, 3))):
        with pytest.raises(ValueError, match="broadcast"):
            x[key] = sr.ones(shape)
    with pytest.raises(TypeError, match="expected a number"):
        x[0] = "a"


def test_gradients_of_every_kind_of_key() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for key in (1, slice(None, None, -2), np.array([True, False, True]), np.array([2, 0, 2]), (np.array([0, 1]), 2)):
        assert torch.autograd.gradcheck(lambda v, key=key: sr.Tensor(v)[in_ours(key)].values, x)
        assert torch.autograd.gradgradcheck(lambda v, key=key: (sr.Tensor(v)[in_ours(key)].values) ** 2, x)
