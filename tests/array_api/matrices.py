"""Matrices to test with, and how results on them are compared with array_api_strict."""

from __future__ import annotations

import array_api_strict as xp
import numpy as np
import torch
from tests.array_api.strict import INTEGER, ours, theirs

import serrate as sr

FLOATS = ("float32", "float64", "complex64", "complex128")
STACKS = ((), (1,), (4,), (2, 3), (0,), (2, 0))
SQUARES = [(*stack, n, n) for stack in STACKS for n in (0, 1, 2, 5)]
OBLONGS = [(*stack, m, n) for stack in STACKS for m, n in ((3, 3), (2, 4), (4, 2), (0, 3), (3, 0), (0, 0), (1, 5))]
EMPTY_FOR_NUMPY = ValueError  # numpy has no greatest of nothing


def noise(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng([seed, *shape])
    if dtype in INTEGER:
        return generator.integers(0, 9, shape).astype(dtype)
    made = np.asarray(generator.standard_normal(shape))
    made = made + 1j * generator.standard_normal(shape) if "complex" in dtype else made
    return np.asarray(made, dtype=dtype)


def definite(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Hermitian matrices with eigenvalues of 1 and more."""
    made = noise(dtype, shape, seed)
    return (made @ made.conj().swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)


def regular(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Matrices far from singular."""
    return (noise(dtype, shape, seed) + 4 * np.eye(shape[-2], shape[-1])).astype(dtype)


def same(made: sr.Tensor, wanted) -> None:
    wanted = np.asarray(wanted)
    assert isinstance(made, sr.Tensor)
    assert made.shape == wanted.shape
    assert made.dtype == getattr(torch, wanted.dtype.name)
    fine = 2e-4 if wanted.dtype.name in ("float32", "complex64") else 1e-9
    np.testing.assert_allclose(made.values.numpy(), wanted, rtol=fine, atol=fine)


def check(name: str, *args, **options) -> None:
    wanted = getattr(xp.linalg, name)(*theirs(args), **{k: theirs(v) for k, v in options.items()})
    made = getattr(sr.linalg, name)(*ours(args), **{k: ours(v) for k, v in options.items()})
    if isinstance(wanted, tuple):
        assert made._fields == wanted._fields
        for one, other in zip(made, wanted, strict=True):
            same(one, other)
    else:
        same(made, wanted)
