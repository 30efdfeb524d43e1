"""Joining: several blocks as one, one after the other, and the schema that fits all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import torch

from serrate.errors import RaggednessError
from serrate.table.block import Block
from serrate.table.schema import Column, Schema, dtype_name, is_integer, least_dtype
from serrate.tensor.offsets import INT32_MAX


def join_schemas(first: Schema, second: Schema, one: str = "the table", other: str = "the other") -> Schema:
    """Return the schema for the rows of both. Each column is stored in a dtype that holds the values of either.

    >>> import torch
    >>> from serrate.table.schema import Column, Schema
    >>> narrow, signed = (
    ...     Schema(["rows"], {"x": Column("rows", torch.int64, stored)}) for stored in (torch.uint8, torch.int8)
    ... )
    >>> join_schemas(narrow, signed)["x"].stored
    torch.int16
    """
    if first == second:
        return first
    if set(first.levels) != set(second.levels):
        raise RaggednessError(f"{one} has the levels {first.levels}, but {other} has {second.levels}")
    if set(first) != set(second):
        lacks = [name for name in first if name not in second]
        has = [name for name in second if name not in first]
        raise KeyError(
            f"{one} and {other} need the same columns, but {other} "
            + " and ".join([f"lacks {lacks}"] * bool(lacks) + [f"also has {has}"] * bool(has))
        )
    return Schema(
        first.levels, {name: _join_columns(name, column, second[name], one, other) for name, column in first.items()}
    )


def _join_columns(name: str, first: Column, second: Column, one: str, other: str) -> Column:
    for field in ("level", "dtype", "features", "unit", "text"):
        have, given = getattr(first, field), getattr(second, field)
        if have != given:
            kind = RaggednessError if field == "level" else ValueError if field == "features" else TypeError
            raise kind(f"column {name!r} has {field} {have!r} in {one}, but {given!r} in {other}")
    stored = common_dtype(first.stored, second.stored)
    return replace(first, stored=stored, nullable=first.nullable or second.nullable)


def common_dtype(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """Return the smallest integer dtype that holds the values of two dtypes. Other dtypes must be equal."""
    if first == second:
        return first
    if not is_integer(first) or not is_integer(second):
        raise TypeError(f"{dtype_name(first)} and {dtype_name(second)} have no common dtype")
    ranges = [torch.iinfo(dtype) for dtype in (first, second)]
    return least_dtype(min(int(each.min) for each in ranges), max(int(each.max) for each in ranges))


def join_blocks(blocks: Sequence[Block], schema: Schema) -> Block:
    """Return the rows of all blocks, one block after the other; `schema` is the result of `join_schemas` for them."""
    if len(blocks) == 1:
        return as_stored(blocks[0], schema)
    places = {name: _union(blocks, name) for name, column in schema.items() if column.text}
    vocabularies = {name: tuple(words) for name, words in places.items()}
    schema = _holding(schema, vocabularies)
    made = _after_each_other([as_stored(_recoded(block, places), schema) for block in blocks])
    return replace(made, vocabularies=vocabularies)


def _after_each_other(blocks: Sequence[Block]) -> Block:
    """Join blocks of one schema and one vocabulary; the columns without a level are those of the first block."""
    first = blocks[0]
    counts = {level: sum(block.counts[level] for block in blocks) for level in first.schema.levels}
    loose = first.schema.columns_at(None)

    def tensors(kind: str) -> dict[str, torch.Tensor]:
        held = [getattr(block, kind) for block in blocks]
        return {name: held[0][name] if name in loose else torch.cat([h[name] for h in held]) for name in held[0]}

    return Block(
        first.schema,
        counts,
        {level: _join_offsets([b.offsets[level] for b in blocks], counts[level]) for level in first.offsets},
        tensors("values"),
        tensors("valid"),
        first.vocabularies,
        all(block.trusted for block in blocks),
    )


def as_stored(block: Block, schema: Schema) -> Block:
    """Return the block with the columns, the order and the stored dtypes of a schema; nullable columns get a mask."""
    values = {name: block.values[name].to(column.stored) for name, column in schema.items()}
    valid = {
        name: block.valid[name] if name in block.valid else torch.ones(_entries(block, column), dtype=torch.bool)
        for name, column in schema.items()
        if column.nullable
    }
    return Block(
        schema,
        {level: block.counts[level] for level in schema.levels},
        {level: block.offsets[level] for level in schema.levels if level in block.offsets},
        values,
        valid,
        {name: block.vocabularies[name] for name, column in schema.items() if column.text},
        block.trusted,
    )


def _entries(block: Block, column: Column) -> int:
    assert column.level is not None
    return block.counts[column.level]


def _join_offsets(parts: Sequence[torch.Tensor], total: int) -> torch.Tensor:
    narrow = total <= INT32_MAX and all(part.dtype == torch.int32 for part in parts)
    dtype = torch.int32 if narrow else torch.int64
    made = torch.zeros(1 + sum(part.numel() - 1 for part in parts), dtype=dtype)
    place, base = 1, 0
    for part in parts:
        torch.add(part[1:].to(dtype), base, out=made[place : place + part.numel() - 1])
        place += part.numel() - 1
        base += int(part[-1])
    return made


# ---------------------------------------------------------------------------------------------------- vocabularies


def _union(blocks: Sequence[Block], name: str) -> dict[str, int]:
    """Return a code for each word that a column has in any of the blocks, in the order of first occurrence."""
    held = {id(words): words for words in (block.vocabularies[name] for block in blocks)}
    return {word: place for place, word in enumerate(dict.fromkeys(chain.from_iterable(held.values())))}


def _holding(schema: Schema, vocabularies: Mapping[str, tuple[str, ...]]) -> Schema:
    """Return the schema with columns of strings stored wide enough for every code of their vocabularies."""
    needed = {name: least_dtype(0, max(len(words) - 1, 0)) for name, words in vocabularies.items()}
    return schema.with_columns(
        {name: replace(schema[name], stored=common_dtype(schema[name].stored, dtype)) for name, dtype in needed.items()}
    )


def _recoded(block: Block, places: Mapping[str, Mapping[str, int]]) -> Block:
    """Return the block with its strings as these codes, which exist for all of its words."""
    values, columns = dict(block.values), {}
    for name, new in places.items():
        table = torch.tensor([new[word] for word in block.vocabularies[name]], dtype=torch.int64)
        if not torch.equal(table, torch.arange(table.numel())):
            values[name] = _mapped(values[name], table, block.valid.get(name))
            columns[name] = replace(block.schema[name], stored=torch.int64, dtype=torch.int64)
    return replace(block, schema=block.schema.with_columns(columns), values=values)


def _mapped(codes: torch.Tensor, places: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the new codes; missing entries stay 0."""
    made = places[codes.to(torch.int64)]
    return made if valid is None else made * valid


def compacted(block: Block) -> Block:
    """Return the block with no more words in a vocabulary than there are entries in its column.

    Otherwise a large vocabulary that many shards share would be written as a whole into each of them.
    """
    values, vocabularies = dict(block.values), dict(block.vocabularies)
    for name, words in block.vocabularies.items():
        if len(words) <= values[name].numel():
            continue
        used, codes = torch.unique(values[name].to(torch.int64), return_inverse=True)
        vocabularies[name] = tuple(words[place] for place in used.tolist())
        values[name] = codes.to(values[name].dtype)  # The code of missing entries stays 0, because the order is kept.
    return replace(block, values=values, vocabularies=vocabularies)
