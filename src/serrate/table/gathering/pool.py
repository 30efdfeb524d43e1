"""Pool: the memory of batches that are gone, kept for the next ones: to be given new pages takes long.

A lease is a numpy array over some memory. Tensors over it hold on to it; when the last of them is gone, the memory goes
back into the pool.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np
import torch

Lease = np.ndarray[Any, np.dtype[np.uint8]]


class Pool:
    """At most so many pieces, and so many bytes together, that nobody uses at the moment."""

    def __init__(self, most_pieces: int = 4, most_bytes: int = 2**28) -> None:
        self._most_pieces, self._most_bytes = most_pieces, most_bytes
        self._free: list[torch.Tensor] = []
        self._leased: dict[int, tuple[weakref.ref[Lease], torch.Tensor]] = {}
        self._lock = threading.Lock()

    def lease(self, size: int) -> Lease:
        """Memory of at least `size` bytes, with anything in it."""
        piece = self._fitting(size)
        if piece is None:
            piece = torch.empty(_rounded(size), dtype=torch.uint8)
        made = piece.numpy()
        end = weakref.ref(made, self._give_back)
        self._leased[id(end)] = end, piece
        return made

    def _fitting(self, size: int) -> torch.Tensor | None:
        """The smallest piece that is large enough, but not wastefully large."""
        with self._lock:
            fitting = [(piece.numel(), i) for i, piece in enumerate(self._free) if size <= piece.numel() <= 2 * size]
            if fitting:
                return self._free.pop(min(fitting)[1])
            if len(self._free) >= self._most_pieces:
                self._free.pop(0)  # sizes have changed
            return None

    def _give_back(self, end: weakref.ref[Lease]) -> None:
        """Runs wherever the last tensor goes, in the midst of anything: it takes no lock, and only appends."""
        _, piece = self._leased.pop(id(end), (None, None))
        if piece is None:  # an interrupt came before it was noted
            return
        held = sum(each.numel() for each in self._free)
        if len(self._free) < self._most_pieces and held + piece.numel() <= self._most_bytes:
            self._free.append(piece)


def _rounded(size: int) -> int:
    """A size up by at most an eighth, so that batches of about one size can take each other's place."""
    step = max(1 << (max(size, 1).bit_length() - 4), 64)
    return -(-size // step) * step


POOL = Pool()
"""That of all batches."""


def _after_fork() -> None:
    """Another thread may have held the lock, which nobody gives back here."""
    POOL._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
