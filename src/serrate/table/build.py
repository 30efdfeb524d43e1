"""Building: separate columns become one block, in which they share their levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.table.block import Block
from serrate.table.casting import cast
from serrate.table.columns import NestedColumn, read_column
from serrate.table.entries import Wanted
from serrate.table.schema import (
    ROWS,
    Column,
    Schema,
    check_level,
    child_of,
    depth_of,
    is_integer,
    least_dtype,
    parent_of,
    path_to,
)
from serrate.tensor.offsets import preview_lengths

Declared = Schema | Mapping[str, Any] | None


def build(columns: Mapping[str, Any], declared: Declared, narrow: bool) -> Block:
    """Return the block of some columns. `declared` gives levels and types that the columns themselves do not show."""
    if not isinstance(columns, Mapping):
        raise TypeError(
            f"a table is made from a mapping of columns, got {type(columns).__name__}; Table.from_rows takes rows, "
            f"Table.from_pandas and Table.from_polars take data frames"
        )
    if not columns:
        raise ValueError("a table needs at least one column")
    _check_declared(columns, declared)
    read: dict[str, tuple[NestedColumn, Column]] = {}
    for name, given in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a column must be a string, got {name!r:.60}")
        read[name] = _described(name, given, None if declared is None else declared.get(name))
    levels, counts, offsets = _joined(read)
    if isinstance(declared, Schema):
        for level in declared.levels:
            if level not in counts:
                raise ValueError(f"the schema has level {level!r}, but no column lies at this level or below it")
    block = Block(
        Schema(levels, {name: column for name, (_, column) in read.items()}),
        counts,
        offsets,
        {name: nested.values for name, (nested, _) in read.items()},
        {name: _mask(nested) for name, (nested, column) in read.items() if column.nullable},
        {name: nested.vocabulary or () for name, (nested, column) in read.items() if column.text},
    )
    return narrowed(block) if narrow else block


def _check_declared(columns: Mapping[str, Any], declared: Declared) -> None:
    if declared is None:
        return
    if not isinstance(declared, Mapping):
        raise TypeError(
            f'a schema must be a Schema, or a mapping such as {{"code": "visits.codes"}}, got {type(declared).__name__}'
        )
    unknown = sorted(str(name) for name in declared if name not in columns)
    if unknown:
        raise KeyError(f"the schema describes columns {unknown}, but only {sorted(map(str, columns))} are given")


def _mask(nested: NestedColumn) -> torch.Tensor:
    return torch.ones(nested.values.shape[0], dtype=torch.bool) if nested.valid is None else nested.valid


# ----------------------------------------------------------------------------------------------------- one column


def _described(name: str, given: Any, declared: Any) -> tuple[NestedColumn, Column]:
    """Read a column and describe it, as far as possible as `declared` says, otherwise by its own nesting and types."""
    level: str | None = None
    if isinstance(declared, str):
        level = declared if declared == ROWS else check_level(declared)
    elif isinstance(declared, Column):
        level = declared.level
        if level is None:
            raise ValueError(f"column {name!r} is declared without a level, but each column of a new table needs one")
    elif declared is not None and not isinstance(declared, torch.dtype):
        raise TypeError(
            f'column {name!r} must be declared by a level such as "visits.codes", a dtype or a Column, '
            f"got {declared!r:.60}"
        )
    wanted = declared if isinstance(declared, Column) else None
    dtype = wanted.dtype if wanted else declared if isinstance(declared, torch.dtype) else None
    like = Wanted(wanted.stored, wanted.features, wanted.text, wanted.unit) if wanted else Wanted(dtype)
    nested = read_column(given, name, None if level is None else depth_of(level), like)
    if level is None:
        level = default_level(len(nested.levels))
    nested = _converted(nested, dtype, wanted, name)
    features = tuple(nested.values.shape[1:])
    if wanted is not None and wanted.features != features:
        raise ValueError(f"column {name!r} is declared to have features {wanted.features}, got {features}")
    text = nested.vocabulary is not None
    column = Column(
        level,
        dtype or (torch.int64 if text else nested.values.dtype),
        nested.values.dtype,
        features,
        nested.unit,
        text,
        nested.valid is not None or (wanted is not None and wanted.nullable),
    )
    return nested, column


def default_level(depth: int) -> str:
    """Return the name of a level of this depth if nobody has named it."""
    level = ROWS
    for d in range(depth):
        level = child_of(level, f"level{d + 1}")
    return level


def _converted(nested: NestedColumn, dtype: torch.dtype | None, wanted: Column | None, name: str) -> NestedColumn:
    """Return the column with the declared dtype and unit; raise an error if it does not hold what is declared."""
    if nested.values.shape[0] == 0 and wanted is not None:  # An empty list does not show what it would hold.
        values = torch.zeros((0, *wanted.features), dtype=wanted.stored)
        return NestedColumn(nested.levels, values, nested.valid, () if wanted.text else None, wanted.unit)
    if wanted is not None and wanted.text != (nested.vocabulary is not None):
        kinds = ("strings", "numbers")
        raise TypeError(f"column {name!r} is declared to hold {kinds[not wanted.text]}, got {kinds[wanted.text]}")
    if wanted is not None and wanted.unit != nested.unit:
        if nested.unit is not None or nested.values.dtype != torch.int64:
            raise TypeError(f"column {name!r} is declared to count in {wanted.unit}, got {nested.unit or 'numbers'}")
        nested = replace(nested, unit=wanted.unit)
    target = wanted.stored if wanted is not None else dtype
    if target is None or target == nested.values.dtype or nested.vocabulary is not None:
        return nested
    return replace(nested, values=cast(nested.values, target, name, nested.levels))


def bounds(values: torch.Tensor) -> tuple[int, int]:
    """Return the least and the greatest of at least one integer."""
    held = values.numpy()
    return int(held.min()), int(held.max())


def narrowed(block: Block) -> Block:
    """Return the block with each integer column stored in the smallest dtype that holds its values.

    Columns of strings are narrowed too; columns of times are not.
    """
    values = dict(block.values)
    columns = {}
    for name, column in block.schema.items():
        if not is_integer(column.dtype) or column.unit is not None:
            continue
        least = least_dtype(*(bounds(values[name]) if values[name].numel() else (0, 0)))
        if least.itemsize < column.stored.itemsize:
            columns[name] = replace(column, stored=least)
            values[name] = values[name].to(least)
    return replace(block, schema=block.schema.with_columns(columns), values=values)


# --------------------------------------------------------------------------------------------------------- joining


def _joined(
    read: Mapping[str, tuple[NestedColumn, Column]],
) -> tuple[list[str], dict[str, int], dict[str, torch.Tensor]]:
    """Return the levels of all columns, with their counts and offsets. Columns of one level must agree on them."""
    counts: dict[str, int] = {}
    offsets: dict[str, torch.Tensor] = {}
    first: dict[str, str] = {}
    for name, (nested, column) in read.items():
        assert column.level is not None
        _agree(counts, first, ROWS, nested.rows, name)
        for level, given in zip(path_to(column.level), nested.levels, strict=True):
            if level in offsets:
                _same_lists(level, offsets[level], given, first[level], name)
                continue
            offsets[level], first[level] = given, name
            counts[level] = int(given[-1])
    order = sorted(counts, key=lambda level: (depth_of(level), list(counts).index(level)))
    return order, counts, offsets


def _agree(counts: dict[str, int], first: dict[str, str], level: str, count: int, name: str) -> None:
    if counts.setdefault(level, count) != count:
        raise RaggednessError(
            f"the columns of a table must have the same number of rows, but column {first[level]!r} has "
            f"{counts[level]} and column {name!r} has {count}"
        )
    first.setdefault(level, name)


def _same_lists(level: str, have: torch.Tensor, given: torch.Tensor, first: str, name: str) -> None:
    if have is given:
        return
    if have.numel() == given.numel() and torch.equal(have.to(torch.int64), given.to(torch.int64)):
        return
    raise RaggednessError(
        f"columns {first!r} and {name!r} share level {level!r}, but have lists of lengths {preview_lengths(have)} and "
        f"{preview_lengths(given)}; a schema can give them different levels: "
        f"schema={{{name!r}: {child_of(parent_of(level) or ROWS, 'another')!r}, …}}"
    )
