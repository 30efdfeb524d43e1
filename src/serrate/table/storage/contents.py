"""Contents: whether the offsets, masks, strings and bools of a block are as the format requires."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block

_CHUNK = 2**23
"""The number of entries that are checked at once."""


def faults_of_block(block: Block, where: str) -> Iterator[str]:
    """Yield the faults of offsets, masks, strings and bools, at most one for each level and each column."""
    for level in block.offsets:
        try:
            block.partition(level)
        except TableFormatError as error:
            yield f"{where}: {error}"
    for name in block.schema:
        try:
            fault = _fault_of_column(block, name)
        except TableFormatError as error:
            fault = None
            yield str(error)
        if fault is not None:
            yield f"{where}: column {name!r}: {fault}"


def _fault_of_column(block: Block, name: str) -> str | None:
    """Return what is wrong with the values of a column; None if nothing is. Numbers may have any value."""
    column, values, valid = block.schema[name], block.values[name], block.valid.get(name)
    single = column.level is None
    values, valid = (values[None] if single else values), (valid[None] if single and valid is not None else valid)
    words = len(block.vocabularies[name]) if column.text else 0
    for start in range(0, values.shape[0], _CHUNK):
        some = values[start : start + _CHUNK]
        if column.dtype == torch.bool and bool((some.view(torch.uint8) > 1).any()):
            return "bools must be stored as 0 or 1, but there are other bytes"
        there = None if valid is None else valid[start : start + _CHUNK]
        if there is not None:
            if bool((there.view(torch.uint8) > 1).any()):
                return "the mask must be stored as 0 or 1, but there are other bytes"
            if _any(_pick(some, ~there)):
                return "missing entries must be stored as 0, but some are not 0"
        if column.text:
            fault = _fault_of_codes(some if there is None else _pick(some, there), words)
            if fault is not None:
                return fault
    return None


def _pick(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the entries for which a mask is True. torch and numpy each lack some dtypes for this."""
    return values[mask] if values.dtype == torch.bfloat16 else torch.from_numpy(values.numpy()[mask.numpy()])


def _any(values: torch.Tensor) -> bool:
    """Return whether any value is not 0."""
    return bool(values.any() if values.dtype == torch.bfloat16 else values.numpy().any())


def _fault_of_codes(codes: torch.Tensor, words: int) -> str | None:
    if not codes.numel():
        return None
    low, high = int(codes.numpy().min()), int(codes.numpy().max())
    if low < 0 or high >= words:
        return f"codes must be positions 0 to {words - 1} in the vocabulary, but they are from {low} to {high}"
    return None
