"""What a KeyedJaggedTensor tells of itself: keys, values, lengths, strides, and what follows from them."""

from __future__ import annotations

import itertools
from typing import Self

import torch

from serrate.compat.torchrec.packed import Packed
from serrate.compat.torchrec.strides import Strides
from serrate.tensor.partition import Partition

Inverse = tuple[list[str], torch.Tensor]


class Description(Packed):
    """The data of a KeyedJaggedTensor, and the methods that only read it."""

    _keys: list[str]
    _strides: Strides
    _inverse: Inverse | None

    def keys(self) -> list[str]:
        """The keys, in order."""
        return list(self._keys)

    def stride(self) -> int:
        """Examples in the batch."""
        return self._strides.stride

    def stride_per_key(self) -> list[int]:
        """Rows of each key."""
        return list(self._strides.per_key)

    def stride_per_key_per_rank(self) -> list[list[int]]:
        """Rows of each key from each rank, [] unless strides vary."""
        return [list(rank) for rank in self._strides.ranks or ()]

    def variable_stride_per_key(self) -> bool:
        """Whether keys have numbers of rows of their own."""
        return self._strides.ranks is not None

    def lengths_offset_per_key(self) -> list[int]:
        """The first row of each key, and one past the last."""
        return list(self._strides.offsets)

    def length_per_key(self) -> list[int]:
        """Values of each key."""
        if "length_per_key" not in self._memo:
            offsets = self.offset_per_key()
            self._memo["length_per_key"] = [stop - start for start, stop in itertools.pairwise(offsets)]
        return list(self._memo["length_per_key"])

    def length_per_key_or_none(self) -> list[int] | None:
        """Values of each key, None if the host would have to wait to know."""
        return self.length_per_key() if self._partition.is_host_born else None

    def offset_per_key(self) -> list[int]:
        """The first value of each key, and one past the last."""
        if "offset_per_key" not in self._memo:
            offsets = self.sync()._partition.host_offsets()
            self._memo["offset_per_key"] = offsets[self._strides.places].tolist()
        return list(self._memo["offset_per_key"])

    def offset_per_key_or_none(self) -> list[int] | None:
        """The first value of each key, and one past the last; None if the host would have to wait to know."""
        return self.offset_per_key() if self._partition.is_host_born else None

    def index_per_key(self) -> dict[str, int]:
        """The place of each key."""
        return {key: index for index, key in enumerate(self._keys)}

    def inverse_indices(self) -> Inverse:
        """For each key and example of the batch the row that stands for it."""
        if self._inverse is None:
            raise ValueError("this KeyedJaggedTensor has no inverse indices; inverse_indices_or_none() gives None")
        return self._inverse

    def inverse_indices_or_none(self) -> Inverse | None:
        """For each key and example of the batch the row that stands for it, None if there are none."""
        return self._inverse

    def sync(self) -> Self:
        """Let the host know the offsets: nothing to do unless they came from a device; then one wait for good."""
        if not self._partition.is_host_born:
            offsets = self._partition.host_offsets("KeyedJaggedTensor.sync()")
            partition = Partition.from_offsets(offsets, self.values().shape[0])
            self._tensor = self._strides.arrange(self.values(), partition)
        return self

    def unsync(self) -> Self:
        """Itself: what the host knows it keeps."""
        return self
