"""Printing: a table as Python's nested lists, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serrate.table.block import Block
from serrate.table.schema import Column, dtype_name, path_to

if TYPE_CHECKING:
    from serrate.table.table import Table


def to_lists(block: Block) -> dict[str, Any]:
    """Return the columns of a block as nested lists."""
    return {name: _nested(block, name) for name in block.schema}


def _nested(block: Block, name: str) -> Any:
    column = block.schema[name]
    flat = _entries(block, name, column)
    if column.level is None:
        return flat[0]
    for level in reversed([level for level in path_to(column.level) if level in block.offsets]):
        ends = block.offsets[level].tolist()
        flat = [flat[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]
    return flat


def _entries(block: Block, name: str, column: Column) -> list[Any]:
    """Return the entries of a column as a flat list of Python's types."""
    values, mask = block.values[name], block.valid.get(name)
    if column.level is None:
        values, mask = values[None], None if mask is None else mask[None]
    made: list[Any]
    if column.text:
        words = np.array([*block.vocabularies[name], None], dtype=object)
        made = words[block.codes(name).reshape(-1).numpy()].tolist()
    elif column.unit is not None:
        made = list(values.numpy().view(column.unit))
    else:
        made = values.tolist()
    if mask is not None:
        made = [entry if there else None for entry, there in zip(made, mask.tolist(), strict=True)]
    return made


def describe(table: Table) -> str:
    """Return one line about the table, and one about each level with its number of entries and its columns."""
    rows = f"{_counted(len(table), 'row')}, " if len(table.schema.roots) == 1 else ""
    lines = [f"sr.Table({rows}{_counted(len(table.levels), 'level')})"]
    counts = {level: str(table.count(level)) for level in table.levels}
    width, digits = max(map(len, [*counts, ""])), max(map(len, [*counts.values(), ""]))
    held: dict[str | None, list[str]] = {}
    for name, column in table.schema.items():
        held.setdefault(column.level, []).append(_described(table, name))
    if None in held:
        lines.append(f"  {'':{width}} {'':>{digits}}  {', '.join(held[None])}")
    for level, count in counts.items():
        lines.append(f"  {level:{width}} {count:>{digits}}  {', '.join(held.get(level, ()))}".rstrip())
    return "\n".join(lines)


def _described(table: Table, name: str) -> str:
    column = table.schema[name]
    kind = "text" if column.text else column.unit or dtype_name(column.dtype)
    features = f"[{', '.join(map(str, column.features))}]" if column.features else ""
    return f"{name} {kind}{features}{'?' if column.nullable else ''}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
