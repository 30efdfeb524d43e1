"""To Arrow: each level becomes a list of structs with its columns and the levels below, over the same memory."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.build import default_level
from serrate.table.convert.from_arrow import LEVELS
from serrate.table.convert.paths import Paths
from serrate.table.schema import ROWS, Column, Schema, depth_of, path_to

SECONDS = {"datetime64[s]": "datetime64[ms]", "timedelta64[s]": "timedelta64[ms]"}
"""The units that some formats do not have, and the units that replace them there."""
_STEPS = ("s", "ms", "us", "ns")
_KINDS = {"datetime64": "timestamp", "timedelta64": "duration"}
_NAT = -(2**63)
_MOST_SECONDS = (2**63 - 1) // 1000


def to_arrow(block: Block, *, flat: bool = False, plain: bool = False, stable: bool = False) -> Any:
    """Return the rows as an Arrow table with lists of structs; with `flat` each column has nested lists instead.

    A list of structs is `visits: list<struct<time, codes: list<struct<code>>>>`. Strings become dictionaries, or with
    `plain` strings. Datetimes become timestamps, or dates if their unit is days. Features become fixed-size lists.
    Missing entries and NaT become null. With `stable` all tables of one schema have the same Arrow schema: lists have
    64-bit offsets, and times may be null.

    >>> import serrate as sr
    >>> t = sr.Table({"age": [41, 63], "time": [[3, 9], []]}, schema={"time": "visits"})
    >>> to_arrow(t.block()).to_pylist()
    [{'age': 41, 'visits': [{'time': 3}, {'time': 9}]}, {'age': 63, 'visits': []}]
    >>> to_arrow(t.block(), flat=True).to_pylist()
    [{'age': 41, 'time': [3, 9]}, {'age': 63, 'time': []}]
    """
    import pyarrow as pa

    if block.schema.roots != (ROWS,) or block.schema.columns_at(None):
        raise ValueError("an Arrow table has rows, but this table is one row of another; use t[3:4] instead of t[3]")
    export = _Export(block, plain, stable)
    fields, arrays = export.flat() if flat else export.struct(ROWS)
    levels = {name: column.level for name, column in block.schema.items()}
    metadata = {LEVELS: json.dumps(levels)} if flat and not _is_default(block.schema) else None
    made = pa.Table.from_struct_array(_structs(fields, arrays, block.counts[ROWS]))
    return made.replace_schema_metadata(metadata) if metadata else made


def in_milliseconds(block: Block) -> Block:
    """Return the block with times in seconds converted to milliseconds."""
    found = [name for name, column in block.schema.items() if column.unit in SECONDS]
    columns = {
        name: replace(block.schema[name], stored=torch.int64, unit=SECONDS[str(block.schema[name].unit)])
        for name in found
    }
    values = {name: milliseconds(block.values[name], name) for name in found}
    return replace(block, schema=block.schema.with_columns(columns), values={**block.values, **values})


def milliseconds(counts: torch.Tensor, name: str) -> torch.Tensor:
    """Convert counts of seconds to milliseconds; raise an OverflowError that names the column if one does not fit."""
    seconds = counts.to(torch.int64)
    wrong = ((seconds > _MOST_SECONDS) | (seconds < -_MOST_SECONDS)) & (seconds != _NAT)
    if bool(wrong.any()):
        far = int(seconds[wrong][0])
        raise OverflowError(
            f"column {name!r} has the time {far}, in seconds, which does not fit 64 bits in milliseconds"
        )
    return torch.where(seconds == _NAT, seconds, seconds * 1000)


def _is_default(schema: Schema) -> bool:
    """Return whether all levels have the default names."""
    return all(level == default_level(depth_of(level)) for level in schema.levels)


class _Export:
    def __init__(self, block: Block, plain: bool, stable: bool) -> None:
        self.block, self.plain, self.stable = block, plain, stable
        self.paths = Paths(block.schema)

    def struct(self, level: str) -> tuple[list[Any], list[Any]]:
        """Return the fields and arrays for the columns of a level and for the levels right below it."""
        import pyarrow as pa

        schema = self.block.schema
        fields, arrays = [], []
        for name in schema.columns_at(level):
            array = self.column(name)
            fields.append(pa.field(self.paths.names[name], array.type, self.may_miss(name, array)))
            arrays.append(array)
        for below in schema.children(level):
            array = self.lists(below, *self.entries(below))
            fields.append(pa.field(below.rpartition(".")[2], array.type, False))
            arrays.append(array)
        taken = [name for name, times in Counter(field.name for field in fields).items() if times > 1]
        if taken:
            raise ValueError(
                f"level {level!r} would have several fields {taken[0]!r} in Arrow, for a column and a level below it; "
                f"rename the column"
            )
        return fields, arrays

    def entries(self, level: str) -> tuple[Any, bool]:
        """Return the entries of a level as structs, values or lists (see `Paths`), and whether some may be missing."""
        inner = self.paths.only_lists(level)
        if inner is not None:
            return self.lists(inner, *self.entries(inner)), False
        name = self.paths.only_values(level)
        if name is not None:
            array = self.column(name)
            return array, self.may_miss(name, array)
        return _structs(*self.struct(level), self.block.counts[level]), False

    def flat(self) -> tuple[list[Any], list[Any]]:
        """Return the fields and arrays for columns of nested lists."""
        import pyarrow as pa

        fields, arrays = [], []
        for name, column in self.block.schema.items():
            array = self.column(name)
            missing = self.may_miss(name, array)
            assert column.level is not None
            for level in reversed(path_to(column.level)):
                array, missing = self.lists(level, array, missing), False
            fields.append(pa.field(name, array.type, missing))
            arrays.append(array)
        return fields, arrays

    def lists(self, level: str, entries: Any, missing: bool) -> Any:
        """Return lists of the entries of a level."""
        import pyarrow as pa

        offsets = self.block.partition(level).offsets
        offsets = offsets.to(torch.int64) if self.stable else offsets
        item = pa.field("item", entries.type, missing)
        if offsets.dtype == torch.int32:
            return pa.ListArray.from_arrays(pa.array(offsets.numpy()), entries, pa.list_(item))
        return pa.LargeListArray.from_arrays(pa.array(offsets.numpy()), entries, pa.large_list(item))

    def may_miss(self, name: str, array: Any) -> bool:
        """Return whether a column may have nulls."""
        column = self.block.schema[name]
        return column.nullable or array.null_count > 0 or (self.stable and column.unit is not None)

    def column(self, name: str) -> Any:
        """Return the entries of a column."""
        column, values = self.block.schema[name], self.block.values[name]
        valid = self.block.valid[name].numpy() if column.nullable else None
        if column.text:
            coded = _text(values, valid, self.block.vocabularies[name])
            return coded.dictionary_decode() if self.plain else coded
        if column.dtype == torch.bfloat16 or column.dtype.is_complex:
            raise TypeError(f"column {name!r} is of {column.dtype}, which Arrow does not have; convert it first")
        held = values.to(column.dtype).contiguous().numpy()
        if column.unit is not None:
            return _times(held, valid, column, name)
        return _features(held, valid)


# ----------------------------------------------------------------------------------------------------------- arrays


def _structs(fields: list[Any], arrays: list[Any], count: int) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.struct(fields), count, [None], children=arrays)


def _bitmap(valid: Any) -> Any:
    """Return the buffer of bits that says which entries are present."""
    import pyarrow as pa

    return None if valid is None else pa.array(valid).buffers()[1]


def _text(values: torch.Tensor, valid: Any, words: tuple[str, ...]) -> Any:
    import pyarrow as pa

    places = values.to(torch.int32 if len(words) < 2**31 else torch.int64).contiguous().numpy()
    indices = pa.array(places, mask=None if valid is None else ~valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _times(held: Any, valid: Any, column: Column, name: str) -> Any:
    """Return datetimes or timedeltas; NaT becomes a null."""
    assert column.unit is not None
    kind, _, step = column.unit[:-1].partition("[")
    there, features = held != _NAT, tuple(range(1, held.ndim))
    whole = there.all(features)
    if (there.any(features) & ~whole).any():
        raise ValueError(
            f"column {name!r} has entries that contain times and NaT; in Arrow only a whole entry can be null"
        )
    if valid is not None:
        whole = whole & valid
    if kind == "datetime64" and step == "D":
        return _features(_days(held, whole, name), None if whole.all() else whole, "date32")
    if step not in _STEPS:
        raise TypeError(
            f"column {name!r} counts in {column.unit}, but Arrow has only dates in days and times in {_STEPS}"
        )
    return _features(held, None if whole.all() else whole, f"{_KINDS[kind]}[{step}]")


def _days(held: Any, there: Any, name: str) -> Any:
    days = held.copy()
    days[~there] = 0
    if days.size and (days.min() < -(2**31) or days.max() >= 2**31):
        raise OverflowError(f"column {name!r} has dates that do not fit the 32 bits of Arrow's days")
    return days.astype(np.int32)


def _features(held: Any, valid: Any, kind: str | None = None) -> Any:
    """Return numbers, or times of a kind, within fixed-size lists if entries have axes."""
    import pyarrow as pa

    array = pa.array(held.reshape(-1))
    meaning = array.type if kind is None else pa.type_for_alias(kind)
    outer = _bitmap(valid)
    bits = outer if held.ndim == 1 else None
    array = pa.Array.from_buffers(meaning, len(array), [bits, array.buffers()[1]])
    for axis in reversed(range(1, held.ndim)):
        lists = pa.list_(pa.field("item", array.type, False), held.shape[axis])
        count = int(np.prod(held.shape[:axis]))
        array = pa.Array.from_buffers(lists, count, [outer if axis == 1 else None], children=[array])
    return array
