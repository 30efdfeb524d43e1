"""Sampling: shuffled orders of any number of rows that need no memory, and random numbers for rows.

All results are functions of a key, so that every worker and every rank finds the same results on its own.

A shuffled order is a Feistel network over the smallest power of two that is at least the number of rows. The bits of a
position form a left and a right half. Each round changes one half by a hash of the other, left ^= hash(right); the same
step undoes it, so every round, and therefore the whole network, is a bijection. A position that lands beyond the last
row goes through the network again until it lands on a row (cycle walking), so the result is still a bijection. Less
than half of the positions need that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from serrate.native import shuffling

UInt64s = npt.NDArray[np.uint64]

_ROUNDS = 8
_SMALL = 2**12
"""Up to this many rows are sorted by their hashes, because a network of few bits does not reach all orders."""
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _SHIFT = np.uint64(32), np.uint64(29)


def random_key(*words: int | str) -> UInt64s:
    """Return eight words of 64 bits that depend on every bit of the given integers and strings.

    >>> int(random_key(0, 1, "rows")[0]) == int(random_key(0, 1, "rows")[0])
    True
    >>> int(random_key(0, 1, "rows")[0]) == int(random_key(1, 0, "rows")[0])
    False
    """
    text = "\0".join(f"{type(word).__name__}:{word}" for word in words)
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=64).digest(), dtype="<u8").astype(np.uint64)


def hashed(numbers: UInt64s, key: np.uint64) -> UInt64s:
    """Return a hash of 64 bits for each number; the high bits are the best ones."""
    made = numbers + key
    made ^= made >> _HALF
    made *= _FIRST
    made ^= made >> _SHIFT
    made *= _SECOND
    made ^= made >> _HALF
    return made


def draw(rows: torch.Tensor, bounds: torch.Tensor, key: UInt64s) -> torch.Tensor:
    """Draw for each row a number from 0 up to, but not including, its bound, which is at least 1.

    The number of a row does not depend on the other rows.

    >>> rows = torch.tensor([7, 8, 7])
    >>> drawn = draw(rows, torch.tensor([1, 100, 1]), random_key(0))
    >>> drawn[0] == drawn[2] == 0, 0 <= drawn[1] < 100
    (tensor(True), tensor(True))
    """
    words = hashed(hashed(_words(rows), key[0]), key[1])
    return torch.from_numpy((words % _words(bounds)).view(np.int64))


def shuffled(count: int, key: UInt64s) -> torch.Tensor:
    """Return all of 0 … count - 1 in an order that depends on a key; this takes memory for all of them.

    >>> sorted(shuffled(5, random_key("a")).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.from_numpy(
        np.argsort(hashed(hashed(np.arange(count, dtype=np.uint64), key[0]), key[1]), kind="stable")
    )


def _words(numbers: torch.Tensor) -> UInt64s:
    made: Any = numbers.to(torch.int64).numpy()
    return made.view(np.uint64)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which an epoch visits rows; it finds the rows at any positions with memory for those alone.

    >>> order = Order.shuffled(10**12, random_key("any"))
    >>> rows = order(torch.tensor([0, 1, 999_999_999_999]))
    >>> rows.unique().numel(), bool((rows < 10**12).all())
    (3, True)
    >>> sorted(Order.shuffled(10, random_key("any"))(torch.arange(10)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> Order(10)(torch.arange(3, 6))
    tensor([3, 4, 5])
    """

    rows: int
    key: UInt64s | None = None
    """The key of the shuffle; None if the rows stay in their order."""
    _all: torch.Tensor | None = field(default=None, repr=False)

    @classmethod
    def shuffled(cls, rows: int, key: UInt64s) -> Order:
        """Return a shuffled order of `rows` rows."""
        return cls(rows, key, shuffled(rows, key) if rows <= _SMALL else None)

    def __call__(self, places: torch.Tensor) -> torch.Tensor:
        """Return the rows at these positions, as int64; both are from 0 up to the number of rows."""
        if self.key is None:
            return places
        if self._all is not None:
            return self._all[places]
        found = _words(places).copy()
        if shuffling.walk(found, self.rows, self.key):
            return torch.from_numpy(found.view(np.int64))
        found = self._through(found)
        beyond = np.flatnonzero(found >= self.rows)
        while beyond.size:
            again = self._through(found[beyond])
            found[beyond] = again
            beyond = beyond[again >= self.rows]
        return torch.from_numpy(found.view(np.int64))

    def _through(self, places: UInt64s) -> UInt64s:
        """Send positions through the network once."""
        assert self.key is not None
        bits = (self.rows - 1).bit_length()
        low = bits // 2
        width = np.uint64(low)
        shifts = np.uint64(64 - (bits - low)), np.uint64(64 - low)
        # The left half has as many bits as the right half, or one more.
        halves = [places >> width, places & np.uint64((1 << low) - 1)]
        for turn in range(_ROUNDS):
            side = turn % 2
            halves[side] ^= hashed(halves[1 - side], self.key[turn]) >> shifts[side]
        return (halves[0] << width) | halves[1]


@dataclass(frozen=True, eq=False)
class BlockwiseOrder:
    """An order for rows on a disk: it shuffles blocks of neighbouring rows, then the rows of a pool of several blocks.

    A batch has rows from many blocks, but each block of a pool is read only once; a full shuffle would read one page
    for each row. The first row of the first block is different in each order.

    >>> order = BlockwiseOrder(10**12, random_key("any"), block=256, pool=2**14)
    >>> order(torch.arange(2**14)).unique().numel()
    16384
    >>> sorted(BlockwiseOrder(10, random_key("any"), block=2, pool=4)(torch.arange(10)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    rows: int
    key: UInt64s
    block: int
    pool: int

    def __call__(self, places: torch.Tensor) -> torch.Tensor:
        """Return the rows at these positions, as int64; both are from 0 up to the number of rows."""
        mixed = places.numpy().copy()
        pools = mixed // self.pool
        for pool in np.unique(pools).tolist():
            first = pool * self.pool
            here = np.flatnonzero(pools == pool)
            order = Order.shuffled(min(self.pool, self.rows - first), random_key(*self.key.tolist(), pool))
            mixed[here] = first + order(torch.from_numpy(mixed[here] - first)).numpy()
        # The rows after the last whole block stay where they are.
        inside = np.flatnonzero(mixed < self._whole.rows * self.block)
        blocks, place = np.divmod(mixed[inside], self.block)
        mixed[inside] = self._whole(torch.from_numpy(blocks)).numpy() * self.block + place
        first_row = int(self.key[0]) % max(self.rows, 1)
        return torch.from_numpy((mixed + first_row) % max(self.rows, 1))

    @cached_property
    def _whole(self) -> Order:
        """The order of the whole blocks."""
        return Order.shuffled(self.rows // self.block, self.key)
