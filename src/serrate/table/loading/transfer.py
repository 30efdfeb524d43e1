"""Transfer: batches from the host to a device, while it works on those before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from serrate.table.gathering.batch import Dense, Packed

Finish = Callable[[Packed], Packed | Dense]
"""What is done with a batch on the device: nothing, or padding."""


@dataclass(frozen=True, eq=False)
class Sent:
    """A batch on its way, and what says that it has arrived; None: it has."""

    batch: Packed | Dense
    arrived: Any


class Transfer:
    """Sends packed batches to a device, to CUDA from pinned memory and on a stream of its own."""

    def __init__(self, device: torch.device, finish: Finish) -> None:
        self._device, self._finish = device, finish
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def pins(self) -> bool:
        """Whether batches should lie in page-locked memory: a copy of other memory waits."""
        return self._stream is not None

    def send(self, batch: Packed) -> Sent:
        """Start the copy; called by the threads that made the batch."""
        if self._stream is None:
            return Sent(self._finish(batch.to(self._device)), None)
        with torch.cuda.stream(self._stream):
            made = self._finish(batch.to(self._device, non_blocking=True))
            return Sent(made, self._stream.record_event())

    def receive(self, sent: Sent) -> Packed | Dense:
        """The batch, which what the caller starts next on the device may use."""
        if sent.arrived is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.arrived)
            _record(sent.batch, current)
        return sent.batch


def _record(batch: Packed | Dense, stream: Any) -> None:
    """Tell the allocator that a stream uses the batch: its memory came from another stream's."""
    if isinstance(batch, Packed):
        tensors = [batch.flat(name) for name in batch][:1]  # all of it is one piece of memory
    else:
        tensors = [*batch.values(), *batch.masks.values(), *batch.valid.values()]
    for tensor in tensors:
        tensor.record_stream(stream)
