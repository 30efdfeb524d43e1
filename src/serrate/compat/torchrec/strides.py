"""This module has the number of rows of each key of a KeyedJaggedTensor, and makes the axes `[keys, batch, ragged]`."""

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
    """The number of rows of each key: one number for all keys, or for each key the rows from each rank."""

    count: int
    """The number of keys."""
    stride: int
    """The number of rows of every key, or the size of the batch if keys have different numbers of rows."""
    ranks: tuple[tuple[int, ...], ...] | None = None
    """The number of rows of each key from each rank, or None if all keys have `stride` rows."""

    @cached_property
    def per_key(self) -> list[int]:
        """The number of rows of each key."""
        return [self.stride] * self.count if self.ranks is None else [sum(rank) for rank in self.ranks]

    @cached_property
    def offsets(self) -> list[int]:
        """The first row of each key, and the number of rows of all keys."""
        return [0, *itertools.accumulate(self.per_key)]

    @cached_property
    def places(self) -> slice | torch.Tensor:
        """`offsets` as an index into a vector on the host that has one entry more than there are rows."""
        return slice(None, None, self.stride) if self.ranks is None and self.stride else torch.tensor(self.offsets)

    def arrange(self, values: torch.Tensor, rows: Partition) -> Tensor:
        """Return values, cut into the rows of all keys, as a tensor `[keys, batch, ragged, …]`.

        The batch axis is ragged if keys may have different numbers of rows.
        """
        batch: Axis = self.stride if self.ranks is None else Ragged(Partition.from_lengths(self.per_key))
        return Tensor(values, Structure((self.count, batch, Ragged(rows, (0, 1)))))

    def pick(self, keys: Sequence[int]) -> Strides:
        """Return the strides of these keys."""
        ranks = None if self.ranks is None else tuple(self.ranks[i] for i in keys)
        return Strides(len(keys), self.stride, ranks)

    def varied(self) -> tuple[tuple[int, ...], ...]:
        """Return the number of rows of each key from each rank, even if it is the same for all keys."""
        return ((self.stride,),) * self.count if self.ranks is None else self.ranks


def read(keys: Sequence[str], rows: int, stride: Any, per_key: Any, ranks: Any, batch: int | None) -> Strides:
    """Return the strides that a constructor was given, or that follow from the number of rows.

    `batch` is the number of columns of the inverse indices, or None.
    """
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
    """Return the number of rows of each key from each rank, as given, or None if no different numbers were given."""
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
