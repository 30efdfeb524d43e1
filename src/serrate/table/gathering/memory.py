"""One piece of memory for all tensors of a batch, so that it moves, is pinned and is shared in one step."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import NamedTuple

import torch

from serrate.table.block import Block
from serrate.table.gathering.pool import POOL, Lease

ALIGNMENT = 64
_POOLED = 2**20  # bytes from which on memory comes from the pool; smaller pieces malloc keeps by itself


class Part(NamedTuple):
    """Where a tensor lies in the memory of a batch."""

    kind: str
    """"offsets", "values" or "valid"."""
    name: str
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class Arena:
    """Memory that is handed out piece by piece, each at a multiple of 64 bytes."""

    def __init__(self, size: int, *, pin: bool = False) -> None:
        self._used = 0
        if size > sys.maxsize:
            raise MemoryError(f"a batch of {size} bytes is more than any memory has")
        if pin or size < _POOLED:
            self.buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
            self._memory: Lease = self.buffer.numpy()
        else:
            self._memory = POOL.lease(size)
            self.buffer = torch.frombuffer(self._memory, dtype=torch.uint8, count=size)

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The next piece, as a tensor."""
        start, count = self._used, math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        self._used += -(-count * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        made = torch.frombuffer(self._memory, dtype=dtype, count=count, offset=start)
        return made if len(shape) == 1 else made.view(shape)


def room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """The bytes that a tensor takes, up to where the next one begins."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def view(buffer: torch.Tensor, part: Part) -> torch.Tensor:
    """A part of the memory as the tensor it holds."""
    stop = part.start + math.prod(part.shape) * part.dtype.itemsize
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
    arena = Arena(sum(room(tuple(each.shape), each.dtype) for held in kinds for each in held.values()))
    offsets, values, valid = [
        {name: arena(tuple(each.shape), each.dtype).copy_(each) for name, each in held.items()} for held in kinds
    ]
    return Block(block.schema, block.counts, offsets, values, valid, block.vocabularies), arena.buffer
