"""Comparing: whether two tables are equal, however they are stored; and the size of a padded table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.schema import Column, Schema, parent_of, path_to

if TYPE_CHECKING:
    from serrate.table.table import Table


def same(a: Table, b: Table, equal_nan: bool) -> bool:
    """Return whether both tables have the same columns, levels, dtypes, lists and entries."""
    if a is b and equal_nan:
        return True
    if set(a.levels) != set(b.levels) or set(a.keys()) != set(b.keys()):
        return False
    if any(_kind(a.schema[name]) != _kind(b.schema[name]) for name in a.schema):
        return False
    first, second = a.block(), b.block()
    if any(first.counts[level] != second.counts[level] for level in a.levels):
        return False
    return all(_same_offsets(first, second, level) for level in first.offsets) and all(
        same_column(first, second, name, equal_nan) for name in a.schema
    )


def _kind(column: Column) -> tuple[object, ...]:
    """Return what must be equal in two columns: not the stored dtype, and not whether entries could be missing."""
    return column.level, column.dtype, column.features, column.unit, column.text


def _same_offsets(a: Block, b: Block, level: str) -> bool:
    have, given = a.offsets[level], b.offsets[level]
    return have is given or torch.equal(have.to(torch.int64), given.to(torch.int64))


def same_column(a: Block, b: Block, name: str, equal_nan: bool) -> bool:
    """Return whether a column has the same entries in both blocks, with the same entries missing."""
    have, given = a.values[name], b.values[name]
    here, there = a.valid.get(name), b.valid.get(name)
    if here is not None or there is not None:
        everywhere = torch.ones(have.shape[: int(a.schema[name].level is not None)], dtype=torch.bool)
        here, there = (everywhere if mask is None else mask for mask in (here, there))
        if not torch.equal(here, there):
            return False
        have, given = have[here], given[here]
    if a.schema[name].text and a.vocabularies[name] != b.vocabularies[name]:
        given = _recoded(given, b.vocabularies[name], a.vocabularies[name])
    return _equal(have, given, equal_nan)


def _recoded(codes: torch.Tensor, old: tuple[str, ...], new: tuple[str, ...]) -> torch.Tensor:
    places = {word: place for place, word in enumerate(new)}
    return torch.tensor([places.get(word, -1) for word in old] or [-1])[codes.to(torch.int64)]


def _equal(a: torch.Tensor, b: torch.Tensor, equal_nan: bool) -> bool:
    if a.dtype == b.dtype and a.dtype in (torch.float16, torch.bfloat16):
        a, b = a.to(torch.float32), b.to(torch.float32)
    return bool(np.array_equal(a.numpy(), b.numpy(), equal_nan=equal_nan and (a.is_floating_point() or a.is_complex())))


def dense_nbytes(schema: Schema, blocks: Sequence[Block]) -> int:
    """Return the bytes of the columns, padded to the longest list of each level, and of one mask per level."""
    rows = sum(block.rows for block in blocks)
    longest = {
        level: max((block.partition(level).max_length for block in blocks), default=0)
        for level in schema.levels
        if parent_of(level) in schema.levels
    }
    cells = {
        level: rows * math.prod(longest[above] for above in path_to(level) if above in longest)
        for level in schema.levels
    }
    masks = sum(cells[level] for level in longest)
    held = sum(
        cells[column.level] * math.prod(column.features) * column.dtype.itemsize
        for column in schema.values()
        if column.level is not None
    )
    return masks + held
