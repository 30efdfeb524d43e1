"""Boxes in the checking interpreter: what the copy engine does, as one more thread of a block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from serrate.kernel.check.accesses import SharedMemory, Strand, Violation, outside
from serrate.kernel.ir import BulkCopy

Asked = tuple[SharedMemory, int, Sequence[Any], tuple[int, ...], tuple[int, ...]]
"""What a thread says of a box: its memory, the entry of that, the elements of the tensor, the start, the shape."""


def copy_box(copy: BulkCopy, asked: Sequence[Asked], engine: Strand) -> None:
    """Copy a box, for which all threads of a block have arrived."""
    memory, entry, elements, start, shape = asked[0]
    for other in asked[1:]:
        if other[3:] != (start, shape):
            raise Violation(f"threads of a block ask for boxes of {copy.source} at {start} and at {other[3]}")
    if min(start) < 0:
        raise Violation(f"out of bounds: a box of {copy.source} at {start}")
    zero = type(elements[0])(copy.fill or 0) if elements else copy.fill
    for place, offset in enumerate(product(*(range(extent) for extent in copy.box))):
        indices = [first + further for first, further in zip(start, offset, strict=True)]
        if any(index >= extent for index, extent in zip(indices, shape, strict=True)):
            if copy.fill is not None:
                memory.store(place, zero, engine, entry)
            continue
        index = 0
        for position, extent in zip(indices, shape, strict=True):
            index = index * extent + position
        if index >= len(elements):
            outside(copy.source, index, len(elements))
        memory.store(place, elements[index], engine, entry)
