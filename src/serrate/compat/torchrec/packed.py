"""What jagged and keyed jagged tensors have in common: packed values, weights, and the rows they are cut into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.tensor import host
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


class Packed:
    """Values and weights with their rows; what `lengths` and `offsets` hand out is a copy, the same one each time.

    The library itself reads the partition, so that writing to what was handed out changes no rows.
    """

    _tensor: Tensor
    _weights: torch.Tensor | None
    _memo: dict[str, Any]

    @property
    def tensor(self) -> Tensor:
        """The values as an `sr.Tensor`: of a JaggedTensor `[rows, ragged, …]`, else `[keys, batch, ragged, …]`."""
        return self._tensor

    @property
    def weight_tensor(self) -> Tensor | None:
        """The weights as an `sr.Tensor` with the same partitions, None if there are none."""
        return None if self._weights is None else Tensor(self._weights, self._tensor.structure)

    @property
    def _partition(self) -> Partition:
        return self._tensor.partitions[-1]

    @property
    def _has_gradients(self) -> bool:
        """Whether views of values or weights depend on the grad mode they are made in, and so are not to be kept."""
        weights = self._weights
        return self._tensor.values.requires_grad or (weights is not None and weights.requires_grad)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._memo:
            with host.lasting():
                self._memo[name] = make()
        return self._memo[name]

    def values(self) -> torch.Tensor:
        """The packed values."""
        return self._tensor.values

    def weights(self) -> torch.Tensor:
        """The packed weights."""
        if self._weights is None:
            raise ValueError(f"this {type(self).__name__} has no weights; weights_or_none() gives None")
        return self._weights

    def weights_or_none(self) -> torch.Tensor | None:
        """The packed weights, None if there are none."""
        return self._weights

    def lengths(self) -> torch.Tensor:
        """The length of each row, key by key if there are keys; made once for whoever asks."""
        return self._once("lengths", lambda: torch.diff(self._partition.offsets_on(self.device())))  # type: ignore[no-any-return]

    def lengths_or_none(self) -> torch.Tensor | None:
        """The length of each row; always there."""
        return self.lengths()

    def offsets(self) -> torch.Tensor:
        """Where each row starts in the values, and where the last ends; a copy, made once."""
        return self._once("offsets", lambda: self._partition.offsets_on(self.device()).clone())  # type: ignore[no-any-return]

    def offsets_or_none(self) -> torch.Tensor | None:
        """Where each row starts in the values, and where the last ends; always there."""
        return self.offsets()

    def device(self) -> torch.device:
        """Where the values live."""
        return self._tensor.device

    def size_in_bytes(self) -> int:
        """Bytes of values, weights and offsets."""
        weights = 0 if self._weights is None else self._weights.nbytes
        return self.values().nbytes + self._partition.offsets.nbytes + weights

    def record_stream(self, stream: Any) -> None:
        """Tell the allocator that `stream` uses values, weights, offsets and what was handed out of them."""
        self._tensor.record_stream(stream)
        for held in (self._weights, self._memo.get("lengths"), self._memo.get("offsets")):
            if held is not None:
                held.record_stream(stream)
