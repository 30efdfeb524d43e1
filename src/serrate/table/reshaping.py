"""Reshaping: drop, add and merge levels. The values of columns stay in place in memory where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from serrate.table.block import Block
from serrate.table.gathering.padding import checked_constant
from serrate.table.gathering.uncompiled import repeat_each
from serrate.table.schema import ROWS, Column, Schema, check_level, child_of, depth_of, parent_of
from serrate.tensor import bits
from serrate.tensor.offsets import offsets_from_lengths


def renamed(block: Block, names: Mapping[str, str]) -> Block:
    """Return the block with other names for some levels; the names of all levels below change with them."""

    def new(level: str) -> str:
        for old, name in names.items():
            if level == old:
                return name
        for old, name in names.items():
            if old == ROWS or level.startswith(f"{old}."):
                inner = level if old == ROWS else level[len(old) + 1 :]
                return child_of(name, inner)
        return level

    columns = {
        name: column if column.level is None else replace(column, level=new(column.level))
        for name, column in block.schema.items()
    }
    return replace(
        block,
        schema=Schema(map(new, block.schema.levels), columns),
        counts={new(level): count for level, count in block.counts.items()},
        offsets={new(level): offsets for level, offsets in block.offsets.items()},
    )


def drop_level(block: Block, level: str) -> Block:
    """Return the block without a level whose lists all have exactly one entry; the levels below move up."""
    schema = block.schema
    if level not in schema.roots:
        return _merged_up(block, level)
    assert block.counts[level] == 1
    columns = {
        name: replace(column, level=None) if column.level == level else column for name, column in schema.items()
    }
    gone = schema.columns_at(level)
    levels = [other for other in schema.levels if other != level]
    roots = schema.children(level)
    return replace(
        block,
        schema=Schema(levels, columns),
        counts={other: block.counts[other] for other in levels},
        offsets={other: offsets for other, offsets in block.offsets.items() if other not in roots},
        values={name: values[0] if name in gone else values for name, values in block.values.items()},
        valid={name: mask[0] if name in gone else mask for name, mask in block.valid.items()},
    )


def _merged_up(block: Block, level: str) -> Block:
    """Return the block with a level in the place of its parent; both have the same number of entries."""
    above = parent_of(level)
    assert above is not None
    assert block.counts[above] == block.counts[level]
    moved = {other: _raised(other, level, above) for other in block.schema.below(level)}
    columns = {
        name: column if column.level is None else replace(column, level=moved.get(column.level, column.level))
        for name, column in block.schema.items()
    }
    kept = [other for other in block.schema.levels if other != level]
    return replace(
        block,
        schema=Schema([moved.get(other, other) for other in kept], columns),
        counts={moved.get(other, other): block.counts[other] for other in kept},
        offsets={moved.get(other, other): block.offsets[other] for other in kept if other in block.offsets},
    )


def _raised(other: str, level: str, above: str) -> str:
    """Return the new name of `other`, which is `level` or lies below it, when `level` takes the place of `above`."""
    return above if other == level else child_of(above, other[len(level) + 1 :])


def add_root(block: Block, name: str) -> Block:
    """Return the block as the only row of a new block; columns without a level become columns of that row.

    If the block has rows, they become the level `name`.
    """
    schema = block.schema
    if ROWS in schema.levels:
        check_level(name)
        block = renamed(block, {ROWS: name})
        schema = block.schema
    above = {parent_of(root) for root in schema.roots} or {ROWS}
    (root,) = above  # All roots have the same parent.
    assert root is not None
    columns = {
        label: replace(column, level=root) if column.level is None else column for label, column in schema.items()
    }
    lifted = schema.columns_at(None)
    return replace(
        block,
        schema=Schema([root, *schema.levels], columns),
        counts={root: 1, **block.counts},
        offsets={**block.offsets, **{level: torch.tensor([0, block.counts[level]]) for level in schema.roots}},
        values={label: values[None] if label in lifted else values for label, values in block.values.items()},
        valid={label: mask[None] if label in lifted else mask for label, mask in block.valid.items()},
    )


# -------------------------------------------------------------------------------------------------------- flattening


def flatten_level(block: Block, level: str | None, how: str, fill: Any) -> Block:
    """Return the block with a level merged into its parent.

    The columns of the parent get one value for each entry of the level.
    """
    if how not in ("first", "repeat", "fill"):
        raise ValueError(f'how must be "first", "repeat" or "fill", got {how!r:.40}')
    level = _to_flatten(block.schema, level)
    above = parent_of(level)
    assert above is not None
    others = [other for other in block.schema.children(above) if other != level]
    if others:
        raise ValueError(
            f"{level!r} cannot be merged into {above!r}, which has other levels below it: {', '.join(others)}; "
            f"drop their columns first"
        )
    if how == "fill":
        block = _without_empty(block, level, fill)
    partition = block.partition(level)
    if how == "repeat":
        block = _replaced(block, above, lambda held: bits.take(held, partition.row_ids), None)
    else:
        there = (partition.lengths > 0).nonzero().flatten()
        starts = partition.offsets[:-1].to(torch.int64)[there]
        block = _replaced(block, above, lambda held: bits.take(held, there), (partition.num_values, starts, fill))
    offsets = dict(block.offsets)
    del offsets[level]
    if above in offsets:
        offsets[above] = block.offsets[level][block.offsets[above].to(torch.int64)]
    counts = {**block.counts, above: block.counts[level]}
    return _merged_up(replace(block, counts=counts, offsets=offsets), level)


def _to_flatten(schema: Schema, level: str | None) -> str:
    """Return the level to merge; if none is named, it is the only deepest level."""
    if level is None:
        deepest = max((depth_of(other) for other in schema.levels), default=0)
        found = [other for other in schema.levels if depth_of(other) == deepest]
        if len(found) > 1:
            raise ValueError(f"levels {', '.join(found)} are equally deep; name the one to merge into its parent")
        level = found[0] if found else ROWS
    if level not in schema.levels:
        raise KeyError(f"there is no level {level!r:.60}; the levels are {', '.join(schema.levels)}")
    if level in schema.roots:
        raise ValueError(f"{level!r} has no level above it that it could be merged into")
    return level


def _replaced(
    block: Block,
    level: str,
    taken: Callable[[torch.Tensor], torch.Tensor],
    filling: tuple[int, torch.Tensor, Any] | None,
) -> Block:
    """Return the block with other entries in the columns of a level, those that `taken` returns.

    `filling` adds more entries: it is the new number of entries, the positions of those taken, and the value of all
    others. Strings and times have no such value: there the others are missing.
    """
    columns: dict[str, Column] = {}
    values, valid = dict(block.values), dict(block.valid)
    for name in block.schema.columns_at(level):
        column, held = block.schema[name], taken(values[name])
        mask = taken(valid[name]) if name in valid else None
        if filling is not None:
            count, where, fill = filling
            gaps = column.text or column.unit is not None
            if not gaps:
                checked_constant(fill, column.dtype, f"fill of column {name!r:.60}")
                if column.stored != column.dtype and not _holds(column.stored, fill):
                    held, columns[name] = held.to(column.dtype), replace(column, stored=column.dtype)
            held = bits.padded(count, where, held, 0 if gaps else fill)
            if gaps or mask is not None:
                mask = torch.ones(where.numel(), dtype=torch.bool) if mask is None else mask
                mask = bits.padded(count, where, mask, not gaps)
                columns[name] = replace(columns.get(name, column), nullable=True)
        values[name] = held
        if mask is not None:
            valid[name] = mask
    return replace(block, schema=block.schema.with_columns(columns), values=values, valid=valid)


def _holds(dtype: torch.dtype, number: int) -> bool:
    return bool(torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max)


def _without_empty(block: Block, level: str, fill: Any) -> Block:
    """Return the block with one entry added to each empty list of a level: `fill` in the columns, no lists below."""
    partition = block.partition(level)
    lengths = partition.lengths.to(torch.int64)
    if bool((lengths > 0).all()):
        return block
    grown = offsets_from_lengths(torch.clamp(lengths, min=1), None)
    total = int(grown[-1])
    shift = partition.offsets[:-1].to(torch.int64) - grown[:-1]
    where = torch.arange(partition.num_values) - repeat_each(shift, lengths, partition.num_values)
    offsets, counts = {**block.offsets, level: grown}, {**block.counts, level: total}
    for below in block.schema.children(level):
        inner = torch.zeros(total, dtype=torch.int64)
        inner[where] = torch.diff(block.offsets[below].to(torch.int64))
        offsets[below] = offsets_from_lengths(inner, None)
    block = _replaced(block, level, lambda held: held, (total, where, fill))
    return replace(block, counts=counts, offsets=offsets)


def put_column(block: Block, name: str, column: Column, part: Block) -> Block:
    """Return the block with a column added or replaced; `part` is a block of the same levels that has the column."""

    def taken(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
        kept = {label: held for label, held in mine.items() if label != name or label in other}
        return {**kept, name: other[name]} if name in other else kept

    return replace(
        block,
        schema=block.schema.with_columns({name: column}),
        values=taken(block.values, part.values),
        valid=taken(block.valid, part.valid),
        vocabularies=taken(block.vocabularies, part.vocabularies),
    )
