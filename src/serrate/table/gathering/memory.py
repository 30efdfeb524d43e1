"""One piece of memory for all tensors of a batch, so that one step moves, pins or shares it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.gathering.memory_pool import POOL, Lease

ALIGNMENT = 64
_NUMPY = {
    dtype: torch.empty(0, dtype=dtype).numpy().dtype
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
}
_MOST_AXES = 32  # All versions of numpy support this number.
_POOLED = 2**20  # Pieces of at least this many bytes come from the memory pool; malloc keeps smaller pieces by itself.


class Region(NamedTuple):
    """Where a tensor lies in the memory of a batch."""

    kind: str
    """One of "offsets", "values" and "valid"."""
    name: str
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


TensorSpecs = Sequence[tuple[tuple[int, ...], torch.dtype]]
"""The shapes and dtypes of some tensors."""


def allocated(wanted: TensorSpecs, *, pin: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return one piece of memory, page-locked if `pin`, and tensors in it, each at a multiple of 64 bytes."""
    memory, made = _allocated(wanted, pin)
    return torch.from_numpy(memory), made


def allocated_together(wanted: TensorSpecs) -> list[torch.Tensor]:
    """Return tensors in one piece of memory, each at a multiple of 64 bytes."""
    return _allocated(wanted, False)[1]


def _allocated(wanted: TensorSpecs, pin: bool) -> tuple[Lease, list[torch.Tensor]]:
    places, size = [], 0
    for shape, dtype in wanted:
        count = math.prod(shape)
        places.append((shape, dtype, size, count))
        size += -(-count * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    if size > sys.maxsize:
        raise MemoryError(f"a batch of {size} bytes is more than any memory has")
    if pin or size < _POOLED:
        memory: Lease = torch.empty(size, dtype=torch.uint8, pin_memory=pin).numpy()
    else:
        memory = POOL.lease(size)[:size]
    made = []
    for shape, dtype, start, count in places:
        known = _NUMPY.get(dtype)
        if count == 0:
            made.append(torch.empty(shape, dtype=dtype))
        elif known is not None and len(shape) <= _MOST_AXES:  # numpy takes less than half the time of torch.
            made.append(torch.from_numpy(np.ndarray(shape, known, memory, start)))
        else:
            made.append(torch.frombuffer(memory, dtype=dtype, count=count, offset=start).view(shape))
    return memory, made


def apart(wanted: TensorSpecs) -> tuple[None, list[torch.Tensor]]:
    """Return tensors that each have memory of their own."""
    return None, [torch.empty(shape, dtype=dtype) for shape, dtype in wanted]


def view(buffer: torch.Tensor, region: Region) -> torch.Tensor:
    """Return a region of the memory as the tensor that it holds."""
    count = math.prod(region.shape)
    if count == 0:
        return torch.empty(region.shape, dtype=region.dtype, device=buffer.device)
    stop = region.start + count * region.dtype.itemsize
    made = buffer[region.start : stop].view(region.dtype).data  # `.data` has its own version counter, as columns have.
    return made if len(region.shape) == 1 else made.view(region.shape)


def regions_of(buffer: torch.Tensor, offsets: Mapping[str, torch.Tensor], block: Block) -> list[Region]:
    """Return where the tensors of a block lie in the memory that they were made in."""
    kinds = {"offsets": offsets, "values": block.values, "valid": block.valid}
    return [
        Region(kind, name, each.data_ptr() - buffer.data_ptr() if each.numel() else 0, tuple(each.shape), each.dtype)
        for kind, held in kinds.items()
        for name, each in held.items()
    ]


def lies_within(buffer: torch.Tensor, offsets: Mapping[str, torch.Tensor], block: Block) -> bool:
    """Return whether the tensors of a block still lie in the memory that they were made in."""
    start, stop = buffer.data_ptr(), buffer.data_ptr() + buffer.nbytes
    held = (each for kind in (offsets, block.values, block.valid) for each in kind.values() if each.numel())
    return all(start <= each.data_ptr() < stop for each in held)


def laid_out(block: Block) -> tuple[Block, torch.Tensor]:
    """Return a copy of a block in one piece of memory, and that memory."""
    kinds = (block.offsets, block.values, block.valid)
    buffer, made = allocated([(tuple(each.shape), each.dtype) for held in kinds for each in held.values()])
    free = iter(made)
    offsets, values, valid = [{name: next(free).copy_(each) for name, each in held.items()} for held in kinds]
    return Block(block.schema, block.counts, offsets, values, valid, block.vocabularies), buffer
