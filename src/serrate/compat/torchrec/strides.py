"""How many rows each key of a KeyedJaggedTensor has, and the axes `[keys, batch, ragged]` that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.compat.torchrec import checks
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

    @cached_property
    def per_key(self) -> list[int]:
        """Rows of each key."""
        return [self.stride] * self.count if self.ranks is None else [sum(rank) for rank in self.ranks]

    @cached_property
    def offsets(self) -> list[int]:
        """The first row of each key, and one past the last."""
        return [0, *itertools.accumulate(self.per_key)]

    @cached_property
    def places(self) -> slice | torch.Tensor:
        """`offsets` as an index of a host vector with an entry for each row and one more."""
        return slice(None, None, self.stride) if self.ranks is None and self.stride else torch.tensor(self.offsets)

    def arrange(self, values: torch.Tensor, rows: Partition) -> Tensor:
        """Values cut into the rows of all keys as `[keys, batch, ragged, …]`, the batch ragged where keys differ."""
        batch: Axis = self.stride if self.ranks is None else Ragged(Partition.from_lengths(self.per_key))
        return Tensor(values, Structure((self.count, batch, Ragged(rows, (0, 1)))))

    def pick(self, keys: Sequence[int]) -> Strides:
        """The strides of these keys."""
        ranks = None if self.ranks is None else tuple(self.ranks[i] for i in keys)
        return Strides(len(keys), self.stride, ranks)

    def varied(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each key rank by rank, also where all are the same."""
        return ((self.stride,),) * self.count if self.ranks is None else self.ranks


def read(keys: Sequence[str], rows: int, stride: Any, per_key: Any, ranks: Any, batch: int | None) -> Strides:
    """The strides that a constructor was told, or that `rows` lengths imply; `batch` is that of inverse indices."""
    stride = None if stride is None else checks.as_int(stride, "stride")
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
    if stride < 0:
        raise RaggednessError(f"stride must be 0 or more, got {stride}")
    return Strides(len(keys), stride, known)


def _ranks(keys: Sequence[str], per_key: Any, ranks: Any) -> tuple[tuple[int, ...], ...] | None:
    """Rows of each key rank by rank, as given; None if all keys have as many and nothing else was said."""
    if ranks is not None:
        name, given = "stride_per_key_per_rank", ranks.tolist() if isinstance(ranks, torch.Tensor) else ranks
        known = tuple(tuple(checks.as_int(size, name) for size in rank) for rank in given)
    elif per_key is not None and len(set(per_key)) > 1:
        name, given = "stride_per_key", per_key
        known = tuple((checks.as_int(size, name),) for size in given)
    else:
        return None
    if len(known) != len(keys) or any(size < 0 for rank in known for size in rank):
        raise RaggednessError(f"{name} must have strides of 0 or more for each of the {len(keys)} keys, got {given}")
    return known
