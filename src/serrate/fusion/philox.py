"""Philox 4x32-10: random words, each a function of a place, a seed and the number of a call, by numpy.

Word w of a call is lane w mod 4 of the block with counter (w / 4, call), encrypted under the seed, as `sr.random` draws
it. Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_BUMPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""How many random bits a number between 0 and 1 has."""


def words(places: np.ndarray, seed: np.ndarray, call: np.ndarray) -> np.ndarray:
    """The words at some places, each 32 bits, as int64; all operands are int64, seen as 64 bits."""
    places, seed, call = (np.asarray(x, np.int64).astype(np.uint64) for x in (places, seed, call))
    block = places >> np.uint64(2)
    lanes = [block & _LOW, block >> _HALF, call & _LOW, call >> _HALF]
    keys = [seed & _LOW, seed >> _HALF]
    with np.errstate(over="ignore"):
        for _ in range(10):
            left, right = lanes[0] * _MULTIPLIERS[0], lanes[2] * _MULTIPLIERS[1]
            lanes = [right >> _HALF ^ lanes[1] ^ keys[0], right & _LOW, left >> _HALF ^ lanes[3] ^ keys[1], left & _LOW]
            keys = [(key + bump) & _LOW for key, bump in zip(keys, _BUMPS, strict=True)]
    return np.choose((places & np.uint64(3)).astype(np.int64), np.broadcast_arrays(*lanes)).astype(np.int64)


def word(place: Any, seed: Any, call: Any) -> Any:
    """One of them."""
    return words(place, seed, call)[()]


def by_torch(places: torch.Tensor, seed: torch.Tensor, call: torch.Tensor) -> torch.Tensor:
    """The words as a tensor."""
    return torch.from_numpy(np.asarray(words(places.numpy(), seed.numpy(), call.numpy())))
