"""This module has the methods by which a KeyedJaggedTensor tells its keys, lengths, strides and what follows."""

from __future__ import annotations

import itertools
from typing import Self

import torch

from serrate.compat.torchrec.packed import Packed
from serrate.compat.torchrec.strides import Strides
from serrate.tensor.partition import Partition

Inverse = tuple[list[str], torch.Tensor]


class Description(Packed):
    """The data of a KeyedJaggedTensor, and the methods that only read these data."""

    _keys: list[str]
    _strides: Strides
    _inverse: Inverse | None

    def keys(self) -> list[str]:
        """Return the keys, in order."""
        return list(self._keys)

    def stride(self) -> int:
        """Return the number of examples in the batch."""
        return self._strides.stride

    def stride_per_key(self) -> list[int]:
        """Return the number of rows of each key."""
        return list(self._strides.per_key)

    def stride_per_key_per_rank(self) -> list[list[int]]:
        """Return the number of rows of each key from each rank, or [] if all keys have the same stride."""
        return [list(rank) for rank in self._strides.ranks or ()]

    def variable_stride_per_key(self) -> bool:
        """Return whether keys may have different numbers of rows."""
        return self._strides.ranks is not None

    def lengths_offset_per_key(self) -> list[int]:
        """Return the first row of each key, and the number of rows of all keys."""
        return list(self._strides.offsets)

    def length_per_key(self) -> list[int]:
        """Return the number of values of each key."""
        if "length_per_key" not in self._memo:
            offsets = self.offset_per_key()
            self._memo["length_per_key"] = [stop - start for start, stop in itertools.pairwise(offsets)]
        return list(self._memo["length_per_key"])

    def length_per_key_or_none(self) -> list[int] | None:
        """Return the number of values of each key, or None if the host would have to wait for it."""
        return self.length_per_key() if self._partition.is_host_born else None

    def offset_per_key(self) -> list[int]:
        """Return the position of the first value of each key, and the number of values of all keys."""
        if "offset_per_key" not in self._memo:
            offsets = self.sync()._partition.host_offsets()
            self._memo["offset_per_key"] = offsets[self._strides.places].tolist()
        return list(self._memo["offset_per_key"])

    def offset_per_key_or_none(self) -> list[int] | None:
        """Return the same as `offset_per_key`, or None if the host would have to wait for it."""
        return self.offset_per_key() if self._partition.is_host_born else None

    def index_per_key(self) -> dict[str, int]:
        """Return the position of each key."""
        return {key: index for index, key in enumerate(self._keys)}

    def inverse_indices(self) -> Inverse:
        """Return the keys, and for each key and each example of the batch the number of the example's row."""
        if self._inverse is None:
            raise ValueError("this KeyedJaggedTensor has no inverse indices; inverse_indices_or_none() returns None")
        return self._inverse

    def inverse_indices_or_none(self) -> Inverse | None:
        """Return the same as `inverse_indices`, or None if there are no inverse indices."""
        return self._inverse

    def sync(self) -> Self:
        """Let the host read the offsets, and return the object; offsets from a device are waited for, only once."""
        if not self._partition.is_host_born:
            offsets = self._partition.host_offsets("KeyedJaggedTensor.sync()")
            partition = Partition.from_offsets(offsets, self.values().shape[0])
            self._tensor = self._strides.arrange(self.values(), partition)
        return self

    def unsync(self) -> Self:
        """Return the object as it is: the host keeps the offsets that it has read."""
        return self
