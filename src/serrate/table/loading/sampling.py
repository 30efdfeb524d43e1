"""Sampling: orders of any number of rows that take no memory, and numbers drawn for rows, the same whoever asks.

Everything is a function of a key, so that every worker and every rank finds the same without asking another.

A shuffled order is a Feistel network over the least power of two that holds all places. A place has a left and a
right half; in every round one half is changed by a hash of the other, left ^= hash(right), which the same step undoes,
so that every round and with it the whole network is a bijection. A place that lands beyond the last row is sent
through the network again until it lands on one (cycle walking), which keeps it a bijection; less than every second
place needs that.
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

Words = npt.NDArray[np.uint64]

_ROUNDS = 8
_SMALL = 2**12
"""Up to so many rows the order is that of their hashes: a network of few bits does not reach all orders."""
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _SHIFT = np.uint64(32), np.uint64(29)


def key_of(*words: int | str) -> Words:
    """Eight words of 64 bits that depend on every bit of integers and strings given.

    >>> int(key_of(0, 1, "rows")[0]) == int(key_of(0, 1, "rows")[0])
    True
    >>> int(key_of(0, 1, "rows")[0]) == int(key_of(1, 0, "rows")[0])
    False
    """
    text = "\0".join(f"{type(word).__name__}:{word}" for word in words)
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=64).digest(), dtype="<u8").astype(np.uint64)


def hashed(numbers: Words, key: np.uint64) -> Words:
    """64 bits for each number; the high ones are the better ones."""
    made = numbers + key
    made ^= made >> _HALF
    made *= _FIRST
    made ^= made >> _SHIFT
    made *= _SECOND
    made ^= made >> _HALF
    return made


def draw(rows: torch.Tensor, bounds: torch.Tensor, key: Words) -> torch.Tensor:
    """For each row a number from 0 up to its bound, which it does not reach; bounds are 1 or more.

    A row draws the same whichever rows are drawn with it.

    >>> rows = torch.tensor([7, 8, 7])
    >>> drawn = draw(rows, torch.tensor([1, 100, 1]), key_of(0))
    >>> drawn[0] == drawn[2] == 0, 0 <= drawn[1] < 100
    (tensor(True), tensor(True))
    """
    words = hashed(hashed(_words(rows), key[0]), key[1])
    return torch.from_numpy((words % _words(bounds)).view(np.int64))


def shuffled(count: int, key: Words) -> torch.Tensor:
    """All of 0 … count - 1 in an order that depends on a key; takes memory for all of them.

    >>> sorted(shuffled(5, key_of("a")).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.from_numpy(
        np.argsort(hashed(hashed(np.arange(count, dtype=np.uint64), key[0]), key[1]), kind="stable")
    )


def _words(numbers: torch.Tensor) -> Words:
    made: Any = numbers.to(torch.int64).numpy()
    return made.view(np.uint64)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which an epoch visits rows: the row at each place, for any places, in memory for those alone.

    >>> order = Order.shuffled(10**12, key_of("any"))
    >>> rows = order(torch.tensor([0, 1, 999_999_999_999]))
    >>> rows.unique().numel(), bool((rows < 10**12).all())
    (3, True)
    >>> sorted(Order.shuffled(10, key_of("any"))(torch.arange(10)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> Order(10)(torch.arange(3, 6))
    tensor([3, 4, 5])
    """

    rows: int
    key: Words | None = None
    """None: rows stay in their order."""
    _all: torch.Tensor | None = field(default=None, repr=False)

    @classmethod
    def shuffled(cls, rows: int, key: Words) -> Order:
        """A shuffled order of so many rows."""
        return cls(rows, key, shuffled(rows, key) if rows <= _SMALL else None)

    def __call__(self, places: torch.Tensor) -> torch.Tensor:
        """The rows at these places, int64, each from 0 up to the number of rows."""
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

    def _through(self, places: Words) -> Words:
        """Once through the network."""
        assert self.key is not None
        bits = (self.rows - 1).bit_length()
        low = bits // 2
        width = np.uint64(low)
        shifts = np.uint64(64 - (bits - low)), np.uint64(64 - low)
        halves = [places >> width, places & np.uint64((1 << low) - 1)]  # the left has as many bits, or one more
        for turn in range(_ROUNDS):
            side = turn % 2
            halves[side] ^= hashed(halves[1 - side], self.key[turn]) >> shifts[side]
        return (halves[0] << width) | halves[1]


@dataclass(frozen=True, eq=False)
class Blocks:
    """An order for rows on a disk: blocks of neighbours are shuffled, then all rows of a pool of blocks.

    A batch has rows of many blocks, and the blocks of a pool are read once, where rows that may be anywhere are read a
    page at a time. Blocks begin at other rows in each order.

    >>> order = Blocks(10**12, key_of("any"), block=256, pool=2**14)
    >>> order(torch.arange(2**14)).unique().numel()
    16384
    >>> sorted(Blocks(10, key_of("any"), block=2, pool=4)(torch.arange(10)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    rows: int
    key: Words
    block: int
    pool: int

    def __call__(self, places: torch.Tensor) -> torch.Tensor:
        """The rows at these places, int64, each from 0 up to the number of rows."""
        mixed = places.numpy().copy()
        pools = mixed // self.pool
        for pool in np.unique(pools).tolist():
            first = pool * self.pool
            here = np.flatnonzero(pools == pool)
            order = Order.shuffled(min(self.pool, self.rows - first), key_of(*self.key.tolist(), pool))
            mixed[here] = first + order(torch.from_numpy(mixed[here] - first)).numpy()
        inside = np.flatnonzero(mixed < self._whole.rows * self.block)  # rows after the last whole block stay there
        blocks, place = np.divmod(mixed[inside], self.block)
        mixed[inside] = self._whole(torch.from_numpy(blocks)).numpy() * self.block + place
        first_row = int(self.key[0]) % max(self.rows, 1)
        return torch.from_numpy((mixed + first_row) % max(self.rows, 1))

    @cached_property
    def _whole(self) -> Order:
        """The order of the whole blocks."""
        return Order.shuffled(self.rows // self.block, self.key)
