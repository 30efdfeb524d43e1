"""Transfer: batches go from the host to a device while the device works on the batches before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from serrate.table.gathering.batch import Dense, Packed

Finish = Callable[[Packed], Packed | Dense]
"""What is done to a batch on the device: nothing, or padding."""


@dataclass(frozen=True, eq=False)
class SentBatch:
    """A batch that is being copied, and the event that marks its arrival; None if it has arrived."""

    batch: Packed | Dense
    arrived: Any


class Transfer:
    """Sends packed batches to a device; for CUDA from page-locked memory and on a separate stream."""

    def __init__(self, device: torch.device, finish: Finish) -> None:
        self._device, self._finish = device, finish
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def pins(self) -> bool:
        """Whether batches should be in page-locked memory, because a copy from other memory waits."""
        return self._stream is not None

    def send(self, batch: Packed) -> SentBatch:
        """Start the copy. The thread that made the batch calls this."""
        if self._stream is None:
            return SentBatch(self._finish(batch.to(self._device)), None)
        with torch.cuda.stream(self._stream):
            made = self._finish(batch.to(self._device, non_blocking=True))
            return SentBatch(made, self._stream.record_event())

    def receive(self, sent: SentBatch) -> Packed | Dense:
        """Return the batch. All work that the caller starts on the device from now on may use it."""
        if sent.arrived is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.arrived)
            _record(sent.batch, current)
        return sent.batch


def _record(batch: Packed | Dense, stream: Any) -> None:
    """Tell the allocator that this stream uses the batch, whose memory belongs to another stream."""
    if isinstance(batch, Packed):
        tensors = [batch.flat(name) for name in batch][:1]  # All tensors share one piece of memory.
    else:
        tensors = [*batch.values(), *batch.masks.values(), *batch.valid.values()]
    for tensor in tensors:
        tensor.record_stream(stream)
