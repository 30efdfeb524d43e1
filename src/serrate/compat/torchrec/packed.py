"""This module has what jagged and keyed jagged tensors share: packed values, weights and their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.tensor import host
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


class Packed:
    """Values and weights with their rows.

    `lengths` and `offsets` return a copy, which is the same one in each call. The library itself reads the partition,
    so that a caller who writes to such a copy changes no rows.
    """

    _tensor: Tensor
    _weights: torch.Tensor | None
    _memo: dict[str, Any]

    @property
    def tensor(self) -> Tensor:
        """The values as an `sr.Tensor`: `[rows, ragged, …]`, or with keys `[keys, batch, ragged, …]`."""
        return self._tensor

    @property
    def weight_tensor(self) -> Tensor | None:
        """The weights as an `sr.Tensor` with the same partitions, or None if there are no weights."""
        return None if self._weights is None else Tensor(self._weights, self._tensor.structure)

    @property
    def _partition(self) -> Partition:
        return self._tensor.partitions[-1]

    @property
    def _has_gradients(self) -> bool:
        """Whether values or weights require a gradient; their views then depend on the grad mode, and are not kept."""
        weights = self._weights
        return self._tensor.values.requires_grad or (weights is not None and weights.requires_grad)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._memo:
            with host.lasting():
                self._memo[name] = make()
        return self._memo[name]

    def values(self) -> torch.Tensor:
        """Return the packed values."""
        return self._tensor.values

    def weights(self) -> torch.Tensor:
        """Return the packed weights."""
        if self._weights is None:
            raise ValueError(f"this {type(self).__name__} has no weights; weights_or_none() returns None")
        return self._weights

    def weights_or_none(self) -> torch.Tensor | None:
        """Return the packed weights, or None if there are no weights."""
        return self._weights

    def lengths(self) -> torch.Tensor:
        """Return the length of each row, key by key if there are keys; the tensor is made once."""
        return self._once("lengths", lambda: torch.diff(self._partition.offsets_on(self.device())))  # type: ignore[no-any-return]

    def lengths_or_none(self) -> torch.Tensor | None:
        """Return the length of each row; the result is never None."""
        return self.lengths()

    def offsets(self) -> torch.Tensor:
        """Return where each row starts in the values, and where the last row ends; the copy is made once."""
        return self._once("offsets", lambda: self._partition.offsets_on(self.device()).clone())  # type: ignore[no-any-return]

    def offsets_or_none(self) -> torch.Tensor | None:
        """Return the same as `offsets`; the result is never None."""
        return self.offsets()

    def device(self) -> torch.device:
        """Return the device of the values."""
        return self._tensor.device

    def size_in_bytes(self) -> int:
        """Return the number of bytes of values, weights and offsets."""
        weights = 0 if self._weights is None else self._weights.nbytes
        return self.values().nbytes + self._partition.offsets.nbytes + weights

    def record_stream(self, stream: Any) -> None:
        """Tell the allocator that `stream` uses values, weights, offsets, and the copies that were returned."""
        self._tensor.record_stream(stream)
        for held in (self._weights, self._memo.get("lengths"), self._memo.get("offsets")):
            if held is not None:
                held.record_stream(stream)
