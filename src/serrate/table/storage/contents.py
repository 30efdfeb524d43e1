"""Contents: whether offsets, masks, strings and bools of a block are such as the format allows."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from serrate.errors import TableFormatError
from serrate.table.block import Block

_CHUNK = 2**23
"""Entries that are looked at together."""


def faults_of_block(block: Block, where: str) -> Iterator[str]:
    """What is wrong with offsets, masks, strings and bools; one fault for each level and column at most."""
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
    """What is wrong with the values of a column, if something is; those of numbers can be anything."""
    column, values, valid = block.schema[name], block.values[name], block.valid.get(name)
    single = column.level is None
    values, valid = (values[None] if single else values), (valid[None] if single and valid is not None else valid)
    words = len(block.vocabularies[name]) if column.text else 0
    for start in range(0, values.shape[0], _CHUNK):
        some = values[start : start + _CHUNK]
        if column.dtype == torch.bool and bool((some.view(torch.uint8) > 1).any()):
            return "bools are stored as 0 or 1, but there are other bytes"
        there = None if valid is None else valid[start : start + _CHUNK]
        if there is not None:
            if bool((there.view(torch.uint8) > 1).any()):
                return "the mask is stored as 0 or 1, but there are other bytes"
            if _any(_pick(some, ~there)):
                return "entries that are missing are stored as 0, but there are others"
        if column.text:
            fault = _fault_of_codes(some if there is None else _pick(some, there), words)
            if fault is not None:
                return fault
    return None


def _pick(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The entries where a mask holds; torch has no kernel for some dtypes, and numpy for another."""
    return values[mask] if values.dtype == torch.bfloat16 else torch.from_numpy(values.numpy()[mask.numpy()])


def _any(values: torch.Tensor) -> bool:
    """Whether one is not 0."""
    return bool(values.any() if values.dtype == torch.bfloat16 else values.numpy().any())


def _fault_of_codes(codes: torch.Tensor, words: int) -> str | None:
    if not codes.numel():
        return None
    low, high = int(codes.numpy().min()), int(codes.numpy().max())
    if low < 0 or high >= words:
        return f"strings are places 0 to {words - 1} of the vocabulary, but there are some from {low} to {high}"
    return None
