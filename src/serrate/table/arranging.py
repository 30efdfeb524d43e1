"""Arranging: filter, sort and join rows and entries; compute and add columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.table import reshaping
from serrate.table.block import Block
from serrate.table.build import build
from serrate.table.casting import as_numpy
from serrate.table.columns import read_column
from serrate.table.comparing import same_column
from serrate.table.gathering import gather
from serrate.table.gathering.uncompiled import repeat_each
from serrate.table.indexing import take_rows
from serrate.table.joining import join_schemas
from serrate.table.schema import ROWS, Column, Schema, child_of, depth_of, path_to
from serrate.tensor.offsets import preview_lengths
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.table.table import Table


# -------------------------------------------------------------------------------------------------------- columns


def with_column(block: Block, name: str, values: Any, declared: str | Column | None) -> Block:
    """Return the block with one more column, on an existing level and with the lists of that level."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a column must be a string, got {name!r:.60}")
    level = declared.level if isinstance(declared, Column) else declared
    if level is not None and level not in block.counts:
        raise KeyError(f"there is no level {level!r:.60}; the levels are {', '.join(block.schema.levels)}")
    part = build({name: values}, _as_rows(block, name, declared), False)
    column = part.schema[name]
    assert column.level is not None
    lists = [part.offsets[other] for other in path_to(column.level)]
    if level is None:
        level = _level_of_depth(block.schema, len(lists), name)
    ends = {other: block.offsets[other] for other in path_to(level) if other in block.offsets}
    for (other, offsets), given in zip(ends.items(), lists, strict=True):
        if not torch.equal(offsets.to(torch.int64), given.to(torch.int64)):
            raise RaggednessError(
                f"column {name!r} must have the lists of level {other!r}, of lengths {preview_lengths(offsets)}, got "
                f"{preview_lengths(given)}"
            )
    count = part.counts[column.level]
    if count != block.counts[level]:
        raise RaggednessError(
            f"column {name!r} must have {block.counts[level]} entries, one for each of {level!r}, got {count}"
        )
    return reshaping.put_column(block, name, replace(column, level=level), part)


def _as_rows(block: Block, name: str, declared: str | Column | None) -> dict[str, Any] | None:
    """Return the declaration of a column for `build`, with only those levels whose lists are in the block."""
    if declared is None:
        return None
    level = declared.level if isinstance(declared, Column) else declared
    if level is None:
        raise ValueError(
            f"column {name!r} is declared without a level; the levels are {', '.join(block.schema.levels)}"
        )
    alone = ROWS
    for other in path_to(level):
        if other in block.offsets:
            alone = child_of(alone, other.rpartition(".")[2])
    return {name: replace(declared, level=alone) if isinstance(declared, Column) else alone}


def _level_of_depth(schema: Schema, depth: int, name: str) -> str:
    outermost = min((depth_of(root) for root in schema.roots), default=0)
    found = [level for level in schema.levels if depth_of(level) - outermost == depth]
    if len(found) != 1:
        have = ", ".join(found) or "none"
        raise ValueError(
            f"column {name!r} has {depth} lists around its entries, and the levels of this depth are: {have}; name one"
        )
    return found[0]


def mapped(table: Table, function: Callable[[dict[str, Tensor]], Mapping[str, Any]], level: str | None) -> Block:
    """Return the block with the columns that a function computes from the columns of a level."""
    level = table.row_level if level is None else table._known_level(level)
    block = table.block()
    columns = {name: Tensor(block.values[name].to(block.schema[name].dtype)) for name in block.schema.columns_at(level)}
    made = function(columns)
    if not isinstance(made, Mapping):
        raise TypeError(f"the function must return a mapping of columns, got {type(made).__name__}")
    for name, values in made.items():
        part = build({name: values}, None, False)
        column = part.schema[name]
        if part.offsets or part.counts["rows"] != block.counts[level]:
            raise RaggednessError(
                f"column {name!r} must have {block.counts[level]} entries, one for each of {level!r}, without lists; "
                f"got shape {part.tensor(name).shape}"
            )
        block = reshaping.put_column(block, name, replace(column, level=level), part)
    return block


# -------------------------------------------------------------------------------------------------- rows and entries


def filtered(table: Table, given: Any, level: str | None) -> Block:
    """Return the entries of a level for which a mask is True, with all that is below them."""
    level = table.row_level if level is None else table._known_level(level)
    mask, lists = _mask(given(table) if callable(given) else given, level)
    if level == table.row_level:
        if lists:
            raise RaggednessError(
                f"a mask for {level!r} must have one bool per entry, got lists; name the level of the mask with level="
            )
        if mask.numel() != len(table):
            raise IndexError(f"a mask for {level!r} needs {len(table)} entries, got {mask.numel()}")
        return take_rows(table, mask, level)
    block = table.block()
    if lists:
        _require_lists(block, level, lists)
    if mask.numel() != block.counts[level]:
        raise IndexError(f"a mask for {level!r} needs {block.counts[level]} entries, got {mask.numel()}")
    before = torch.zeros(mask.numel() + 1, dtype=torch.int64)
    torch.cumsum(mask, 0, out=before[1:])
    offsets = before[block.partition(level).offsets.to(torch.int64)]
    return gather.take_entries(block, level, mask.nonzero().flatten(), offsets)


def _mask(given: Any, level: str) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return the flat bools of a mask, and the offsets of the lists around them."""
    if isinstance(given, bool):  # Python returns a bool for t["name"] == "a".
        raise TypeError(
            f"a mask for {level!r} must have one bool per entry, got {given}; a column of strings holds codes, "
            f'so compare it with t.isin("name", "a")'
        )
    read = read_column(given.cpu() if isinstance(given, (Tensor, torch.Tensor)) else given, "mask")
    mask = read.values if read.values.numel() else read.values.to(torch.bool)
    if mask.dtype != torch.bool or mask.ndim != 1 or read.valid is not None:
        raise TypeError(
            f"a mask for {level!r} must have one bool per entry, got {mask.dtype} of shape {list(mask.shape)}"
        )
    return mask, read.levels


def _require_lists(block: Block, level: str, lists: tuple[torch.Tensor, ...]) -> None:
    """Raise a RaggednessError unless a mask has the same lists as the level."""
    have = [block.offsets[other] for other in path_to(level) if other in block.offsets]
    if len(have) != len(lists) or not all(
        torch.equal(a.to(torch.int64), b.to(torch.int64)) for a, b in zip(have, lists, strict=True)
    ):
        raise RaggednessError(
            f"a mask for {level!r} must be flat or have the lists of the level, "
            f"{' and '.join(map(preview_lengths, have))}, got {' and '.join(map(preview_lengths, lists))}"
        )


def sorted_by(table: Table, column: str, descending: bool) -> Block:
    """Return the rows sorted by a column of theirs, or the entries of each list sorted by a deeper column."""
    level = table._column(column).level
    if level is None:
        raise ValueError(f"column {column!r} has one entry for the whole table, so it cannot order the rows")
    narrow = table.select([column]).block()
    keys = _sort_keys(narrow, column, descending)
    if level == table.row_level:
        return take_rows(table, torch.from_numpy(np.lexsort(keys)), level)
    order = torch.from_numpy(np.lexsort([*keys, narrow.partition(level).row_ids.numpy()]))
    block = table.block()
    return gather.take_entries(block, level, order, block.offsets[level])


def _sort_keys(block: Block, column: str, descending: bool) -> list[Any]:
    """Return keys for `np.lexsort`, the most important last: the values, which are NaN, and which are missing."""
    described = block.schema[column]
    if described.features or described.dtype.is_complex:
        raise TypeError(f"column {column!r}, {described}, has no order: entries are neither numbers nor strings")
    values: Any = block.values[column]
    if described.text:
        words = block.vocabularies[column]
        rank = np.zeros(len(words) + 1, np.int64)  # The last rank is for missing entries, whose code is -1.
        rank[np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)] = np.arange(len(words))
        values = rank[block.codes(column).numpy()]
    else:
        values = as_numpy(values)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if described.unit is not None:
        missing = values == np.iinfo(np.int64).min  # This number is NaT in numpy.
    values = np.where(missing, np.zeros((), values.dtype), values)
    if descending:
        values = ~values if values.dtype.kind in "iub" else -values
    keys = [values, missing]
    if column in block.valid:
        keys.append(~block.valid[column].numpy())
    return keys


def concat(tables: list[Table]) -> Block:
    """Return the rows of several tables, one table after the other."""
    if not tables:
        raise ValueError("concat needs at least one table")
    first = tables[0]
    schema = getattr(first, "schema", Schema((), {}))
    for place, table in enumerate(tables):
        if not isinstance(table, type(first)) or not hasattr(table, "row_level"):
            raise TypeError(f"concat takes tables, got {type(table).__name__} at position {place}")
        table.row_level  # noqa: B018 It raises an error if the table has no rows.
        schema = join_schemas(schema, table.schema, "table 0", f"table {place}")
    sources = [source for table in tables for source in table.sources]
    counts = torch.tensor([source.rows for source in sources])
    number = repeat_each(torch.arange(len(sources)), counts, int(counts.sum()))
    begins = torch.cumsum(counts, 0) - counts
    taken = gather.take(sources, schema, gather.Pieces(number, torch.arange(len(number)) - begins[number]))
    return _with_single_entries(taken, tables)


def _with_single_entries(block: Block, tables: list[Table]) -> Block:
    """Return the block with the columns that have one entry for a whole table, which must be equal in all tables."""
    names = block.schema.columns_at(None)
    if not names:
        return block
    first = tables[0].block()
    values, valid, vocabularies = dict(block.values), dict(block.valid), dict(block.vocabularies)
    for name in names:
        for place, table in enumerate(tables):
            if not same_column(first, table.block(), name, equal_nan=True):
                raise ValueError(
                    f"column {name!r} has one entry for a whole table, and not the same one in table 0 and in table "
                    f"{place}; drop the column, or use Table.stack, which gives each table a row of its own"
                )
        values[name] = first.values[name].to(block.schema[name].stored)
        if name in valid:
            valid[name] = first.valid.get(name, torch.ones((), dtype=torch.bool))
        if name in vocabularies:
            vocabularies[name] = first.vocabularies[name]
    return replace(block, values=values, valid=valid, vocabularies=vocabularies)
