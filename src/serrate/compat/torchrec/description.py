"""What a KeyedJaggedTensor tells of itself: keys, values, lengths, strides, and what follows from them."""

from __future__ import annotations

import itertools
from typing import Self

import torch

from serrate.compat.torchrec.strides import Strides
from serrate.tensor.construct import from_offsets
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor

Inverse = tuple[list[str], torch.Tensor]


class Description:
    """The data of a KeyedJaggedTensor, and the methods that only read it."""

    _keys: list[str]
    _tensor: Tensor
    _weights: torch.Tensor | None
    _strides: Strides
    _inverse: Inverse | None

    @property
    def tensor(self) -> Tensor:
        """The values as an `sr.Tensor` of shape `[keys, batch, ragged, …]`, the batch ragged if strides vary."""
        return self._tensor

    @property
    def weight_tensor(self) -> Tensor | None:
        """The weights as an `sr.Tensor` with the same partitions, None if there are none."""
        return None if self._weights is None else Tensor(self._weights, self._tensor.structure)

    @property
    def _partition(self) -> Partition:
        return self._tensor.partitions[-1]

    def keys(self) -> list[str]:
        """The keys, in order."""
        return list(self._keys)

    def values(self) -> torch.Tensor:
        """The packed values of all keys."""
        return self._tensor.values

    def weights(self) -> torch.Tensor:
        """The packed weights of all keys."""
        if self._weights is None:
            raise ValueError("this KeyedJaggedTensor has no weights; weights_or_none() gives None")
        return self._weights

    def weights_or_none(self) -> torch.Tensor | None:
        """The packed weights of all keys, None if there are none."""
        return self._weights

    def lengths(self) -> torch.Tensor:
        """The length of each row, key by key."""
        return self._partition.lengths_on(self.device())

    def lengths_or_none(self) -> torch.Tensor | None:
        """The length of each row, key by key; always there."""
        return self.lengths()

    def offsets(self) -> torch.Tensor:
        """Where each row starts in the values, and where the last ends."""
        return self._partition.offsets_on(self.device())

    def offsets_or_none(self) -> torch.Tensor | None:
        """Where each row starts in the values, and where the last ends; always there."""
        return self.offsets()

    def stride(self) -> int:
        """Examples in the batch."""
        return self._strides.stride

    def stride_per_key(self) -> list[int]:
        """Rows of each key."""
        return self._strides.per_key

    def stride_per_key_per_rank(self) -> list[list[int]]:
        """Rows of each key from each rank, [] unless strides vary."""
        return [list(rank) for rank in self._strides.ranks or ()]

    def variable_stride_per_key(self) -> bool:
        """Whether keys have numbers of rows of their own."""
        return self._strides.ranks is not None

    def lengths_offset_per_key(self) -> list[int]:
        """The first row of each key, and one past the last."""
        return self._strides.offsets

    def length_per_key(self) -> list[int]:
        """Values of each key."""
        offsets = self.offset_per_key()
        return [stop - start for start, stop in itertools.pairwise(offsets)]

    def length_per_key_or_none(self) -> list[int] | None:
        """Values of each key, None if the host would have to wait to know."""
        return self.length_per_key() if self._partition.is_host_born else None

    def offset_per_key(self) -> list[int]:
        """The first value of each key, and one past the last."""
        offsets = self.sync()._partition.host_offsets()
        return [int(o) for o in offsets[torch.tensor(self._strides.offsets)].tolist()]

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

    def device(self) -> torch.device:
        """Where the values live."""
        return self._tensor.device

    def size_in_bytes(self) -> int:
        """Bytes of values, weights and offsets."""
        offsets = self.offsets()
        return self.values().nbytes + offsets.nbytes + (0 if self._weights is None else self._weights.nbytes)

    def sync(self) -> Self:
        """Let the host know the offsets: nothing to do unless they came from a device; then one wait for good."""
        if not self._partition.is_host_born:
            offsets = self._partition.host_offsets("KeyedJaggedTensor.sync()")
            flat = from_offsets(self.values(), Partition.from_offsets(offsets, self.values().shape[0]))
            self._tensor = self._strides.arrange(flat)
        return self

    def unsync(self) -> Self:
        """Itself: what the host knows it keeps."""
        return self
