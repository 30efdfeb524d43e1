"""Memory pool: it keeps the memory of batches that are gone for the next ones, since new pages are slow to get.

A lease is a numpy array over a piece of memory. Tensors over the lease keep it alive; when the last of them is gone,
the memory goes back to the pool.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np
import torch

Lease = np.ndarray[Any, np.dtype[np.uint8]]


class MemoryPool:
    """Pieces of memory that are not in use, up to a number of pieces and a number of bytes."""

    def __init__(self, most_pieces: int = 4, most_bytes: int = 2**28) -> None:
        self._most_pieces, self._most_bytes = most_pieces, most_bytes
        self._free: list[torch.Tensor] = []
        self._leased: dict[int, tuple[weakref.ref[Lease], torch.Tensor]] = {}
        self._lock = threading.Lock()

    def lease(self, size: int) -> Lease:
        """Return memory of at least `size` bytes with any content."""
        piece = self._fitting(size)
        if piece is None:
            piece = torch.empty(_rounded(size), dtype=torch.uint8)
        made = piece.numpy()
        end = weakref.ref(made, self._give_back)
        self._leased[id(end)] = end, piece
        return made

    def _fitting(self, size: int) -> torch.Tensor | None:
        """Take the smallest piece that is large enough, but at most twice as large; return None if there is none."""
        with self._lock:
            fitting = [(piece.numel(), i) for i, piece in enumerate(self._free) if size <= piece.numel() <= 2 * size]
            if fitting:
                return self._free.pop(min(fitting)[1])
            if len(self._free) >= self._most_pieces:
                self._free.pop(0)  # The sizes of batches have changed.
            return None

    def _give_back(self, end: weakref.ref[Lease]) -> None:
        """Take back the memory of a lease. This may run at any moment, so it takes no lock and only appends."""
        _, piece = self._leased.pop(id(end), (None, None))
        if piece is None:  # An interrupt came before the lease was recorded.
            return
        held = sum(each.numel() for each in self._free)
        if len(self._free) < self._most_pieces and held + piece.numel() <= self._most_bytes:
            self._free.append(piece)


def _rounded(size: int) -> int:
    """Round a size up by at most an eighth, so that batches of similar size can use the same memory."""
    step = max(1 << (max(size, 1).bit_length() - 4), 64)
    return -(-size // step) * step


POOL = MemoryPool()
"""The memory pool of all batches."""


def _after_fork() -> None:
    """Make a new lock in a forked child: another thread may have held the old one during the fork."""
    POOL._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
