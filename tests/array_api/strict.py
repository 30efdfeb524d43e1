"""Calls on dense tensors compared with array_api_strict: values, shapes and dtypes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import array_api_strict as xp
import numpy as np
import torch

import serrate as sr

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGER = SIGNED + UNSIGNED
FLOAT = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = INTEGER + FLOAT
NUMERIC = REAL + COMPLEX
ALL = BOOL + NUMERIC
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3,), (2, 0), (0, 3), (2, 3, 4))


def array(dtype: str, shape: tuple[int, ...], seed: int = 0, special: bool = False, large: bool = True) -> np.ndarray:
    """Elements with repetitions and the limits of their type; `special` adds NaN, infinities and -0.0."""
    generator = np.random.default_rng([seed, *shape, 7])
    small = generator.integers(0 if dtype in UNSIGNED else -3, 4, shape)
    if dtype == "bool":
        return np.asarray(small % 2 == 0)
    if dtype in INTEGER:
        made = small.astype(dtype)
        limits = np.iinfo(dtype)
        ends = np.array([limits.min, limits.max, limits.max - 1, limits.max // 2 + 1], dtype=dtype)
        chosen = generator.integers(0, 4, shape)
        return np.where(generator.random(shape) < 0.3, ends[chosen], made) if large else np.asarray(made)
    if dtype not in COMPLEX:
        return _part(generator, shape, special).astype(dtype)
    made = np.empty(shape, dtype)
    made.real, made.imag = _part(generator, shape, special), _part(generator, shape, special)
    return made


def _part(generator: np.random.Generator, shape: tuple[int, ...], special: bool) -> np.ndarray:
    made = np.asarray(generator.integers(-6, 7, shape) / 2)
    if special:
        ends = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
        made = np.where(generator.random(shape) < 0.5, ends[generator.integers(0, 5, shape)], made)
    return made


def ours(given: Any) -> Any:
    """Arrays among arguments as Serrate's; strict dtypes as torch's."""
    if isinstance(given, np.ndarray):
        return sr.Tensor(torch.from_numpy(given.copy()))
    if isinstance(given, (list, tuple)):
        return type(given)(ours(each) for each in given)
    return getattr(torch, given[6:]) if isinstance(given, str) and given.startswith("dtype:") else given


def theirs(given: Any) -> Any:
    """Arrays among arguments as strict ones."""
    if isinstance(given, np.ndarray):
        return xp.asarray(given.copy())
    if isinstance(given, (list, tuple)):
        return type(given)(theirs(each) for each in given)
    return getattr(xp, given[6:]) if isinstance(given, str) and given.startswith("dtype:") else given


def check(name: str, *args: Any, exact: bool = True, **options: Any) -> None:
    """`sr.name` and the strict function of that name agree."""
    with np.errstate(all="ignore"):
        wanted = getattr(xp, name)(*theirs(args), **{k: theirs(v) for k, v in options.items()})
    made = getattr(sr, name)(*ours(args), **{k: ours(v) for k, v in options.items()})
    agree(made, wanted, exact)


def agree(made: Any, wanted: Any, exact: bool = True) -> None:
    """Both results are the same, structure included."""
    if isinstance(wanted, (list, tuple)):
        assert isinstance(made, type(wanted) if type(wanted) in (list, tuple) else tuple)
        assert len(made) == len(wanted)
        assert getattr(made, "_fields", None) == getattr(wanted, "_fields", None)
        for one, other in zip(made, wanted, strict=True):
            agree(one, other, exact)
        return
    expected = np.asarray(wanted)
    assert isinstance(made, sr.Tensor)
    assert not made.is_ragged
    assert made.shape == expected.shape
    assert made.dtype == getattr(torch, expected.dtype.name)
    found = made.values.numpy()
    if exact:
        np.testing.assert_array_equal(found, expected)
        if expected.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    else:
        tolerance = 1e-5 if expected.dtype.name in ("float32", "complex64") else 1e-12
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def each_axis(ndim: int) -> list[int]:
    """Every way to name one axis."""
    return list(range(-ndim, ndim))


def axis_choices(ndim: int) -> Iterator[Any]:
    """None, each axis and each set of axes."""
    yield None
    yield from each_axis(ndim)
    for count in range(ndim + 1):
        yield from itertools.combinations(range(ndim), count)
