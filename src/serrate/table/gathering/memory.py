"""One piece of memory for all tensors of a batch, so that it moves, is pinned and is shared in one step."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.gathering.pool import POOL, Lease

ALIGNMENT = 64
_NUMPY = {
    dtype: torch.empty(0, dtype=dtype).numpy().dtype
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
}
_MOST_AXES = 32  # that all versions of numpy know
_POOLED = 2**20  # bytes from which on memory comes from the pool; smaller pieces malloc keeps by itself


class Part(NamedTuple):
    """Where a tensor lies in the memory of a batch."""

    kind: str
    """"offsets", "values" or "valid"."""
    name: str
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


Wanted = Sequence[tuple[tuple[int, ...], torch.dtype]]
"""The shapes and dtypes of some tensors."""


def allocated(wanted: Wanted, *, pin: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One piece of memory and tensors in it, each at a multiple of 64 bytes; page-locked if asked."""
    memory, made = _allocated(wanted, pin)
    return torch.from_numpy(memory), made


def together(wanted: Wanted) -> list[torch.Tensor]:
    """Tensors in one piece of memory, each at a multiple of 64 bytes."""
    return _allocated(wanted, False)[1]


def _allocated(wanted: Wanted, pin: bool) -> tuple[Lease, list[torch.Tensor]]:
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
        elif known is not None and len(shape) <= _MOST_AXES:  # by numpy in less than half the time
            made.append(torch.from_numpy(np.ndarray(shape, known, memory, start)))
        else:
            made.append(torch.frombuffer(memory, dtype=dtype, count=count, offset=start).view(shape))
    return memory, made


def apart(wanted: Wanted) -> tuple[None, list[torch.Tensor]]:
    """Tensors in memory of their own each."""
    return None, [torch.empty(shape, dtype=dtype) for shape, dtype in wanted]


def view(buffer: torch.Tensor, part: Part) -> torch.Tensor:
    """A part of the memory as the tensor it holds."""
    count = math.prod(part.shape)
    if count == 0:
        return torch.empty(part.shape, dtype=part.dtype, device=buffer.device)
    stop = part.start + count * part.dtype.itemsize
    made = buffer[part.start : stop].view(part.dtype).data  # which counts changes by itself, as columns do
    return made if len(part.shape) == 1 else made.view(part.shape)


def parts_of(buffer: torch.Tensor, offsets: Mapping[str, torch.Tensor], block: Block) -> list[Part]:
    """Where the tensors of a block lie in the memory they were made in."""
    kinds = {"offsets": offsets, "values": block.values, "valid": block.valid}
    return [
        Part(kind, name, each.data_ptr() - buffer.data_ptr() if each.numel() else 0, tuple(each.shape), each.dtype)
        for kind, held in kinds.items()
        for name, each in held.items()
    ]


def lies_within(buffer: torch.Tensor, offsets: Mapping[str, torch.Tensor], block: Block) -> bool:
    """Whether the tensors of a block still lie in the memory they were made in."""
    start, stop = buffer.data_ptr(), buffer.data_ptr() + buffer.nbytes
    held = (each for kind in (offsets, block.values, block.valid) for each in kind.values() if each.numel())
    return all(start <= each.data_ptr() < stop for each in held)


def laid_out(block: Block) -> tuple[Block, torch.Tensor]:
    """A copy of a block in one piece of memory, and that."""
    kinds = (block.offsets, block.values, block.valid)
    buffer, made = allocated([(tuple(each.shape), each.dtype) for held in kinds for each in held.values()])
    free = iter(made)
    offsets, values, valid = [{name: next(free).copy_(each) for name, each in held.items()} for held in kinds]
    return Block(block.schema, block.counts, offsets, values, valid, block.vocabularies), buffer
