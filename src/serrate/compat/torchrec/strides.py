"""How many rows each key of a KeyedJaggedTensor has, and the axes `[keys, batch, ragged]` that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class Strides:
    """Rows of each key: one number for all, or for each key the rows that came from each rank."""

    count: int
    """How many keys there are."""
    stride: int
    """Rows of every key; where keys differ, the size of the batch they stand for."""
    ranks: tuple[tuple[int, ...], ...] | None = None
    """For each key its rows rank by rank; None where all keys have `stride` rows."""

    @property
    def per_key(self) -> list[int]:
        """Rows of each key."""
        return [self.stride] * self.count if self.ranks is None else [sum(rank) for rank in self.ranks]

    @property
    def offsets(self) -> list[int]:
        """The first row of each key, and one past the last."""
        return [0, *itertools.accumulate(self.per_key)]

    def arrange(self, flat: Tensor) -> Tensor:
        """`[rows, ragged, …]` as `[keys, batch, ragged, …]`, the batch ragged where keys differ; nothing is copied."""
        batch: Axis = self.stride if self.ranks is None else Ragged(Partition.from_lengths(self.per_key))
        (partition,) = flat.partitions
        return Tensor(flat.values, Structure((self.count, batch, Ragged(partition, (0, 1)))))

    def pick(self, keys: Sequence[int]) -> Strides:
        """The strides of these keys."""
        ranks = None if self.ranks is None else tuple(self.ranks[i] for i in keys)
        return Strides(len(keys), self.stride, ranks)

    def varied(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each key rank by rank, also where all are the same."""
        return ((self.stride,),) * self.count if self.ranks is None else self.ranks


def read(keys: Sequence[str], rows: int, stride: int | None, per_key: Any, ranks: Any, batch: int | None) -> Strides:
    """The strides that a constructor was told, or that `rows` lengths imply; `batch` is that of inverse indices."""
    known = _ranks(keys, per_key, ranks)
    if known is None:
        if stride is None:
            stride = rows // len(keys) if keys else 0
        if stride < 0 or stride * len(keys) != rows:
            raise RaggednessError(
                f"there must be one length per key and example, {len(keys)} keys times a stride of {stride}, "
                f"got {rows} lengths"
            )
        return Strides(len(keys), stride)
    sizes = [sum(rank) for rank in known]
    if sum(sizes) != rows:
        raise RaggednessError(f"strides {sizes} of the keys must sum to the number of lengths, {rows}")
    if stride is None:
        stride = max(sizes, default=0) if batch is None else batch
    return Strides(len(keys), stride, known)


def _ranks(keys: Sequence[str], per_key: Any, ranks: Any) -> tuple[tuple[int, ...], ...] | None:
    """Rows of each key rank by rank, as given; None if all keys have as many and nothing else was said."""
    if ranks is not None:
        known = tuple(tuple(map(int, rank)) for rank in (ranks.tolist() if isinstance(ranks, torch.Tensor) else ranks))
    elif per_key is not None and len(set(per_key)) > 1:
        known = tuple((int(size),) for size in per_key)
    else:
        return None
    if len(known) != len(keys) or any(size < 0 for rank in known for size in rank):
        raise RaggednessError(f"there must be strides of 0 or more for each of the {len(keys)} keys, got {ranks}")
    return known
