"""Random blocks for tests of gathers, and in plain Python what rows of them are, packed and padded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.schema import DTYPES, Column, Schema, is_integer, parent_of

FOREST = ("rows", "visits", "visits.codes", "visits.codes.parts", "visits.labs", "meds")


def column_kinds() -> dict[str, Column]:
    """A column of each kind, spread over the levels."""
    made = {f"{name}/{i}": Column(FOREST[i % 6], dtype) for i, (name, dtype) in enumerate(DTYPES.items())}
    made |= {f"wide {name}": Column(FOREST[(i + 3) % 6], dtype) for i, (name, dtype) in enumerate(DTYPES.items())}
    for i, narrow in enumerate((torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32)):
        made[f"narrow {narrow}"] = Column(FOREST[(i + 2) % 6], torch.int64, narrow)
    made["narrow 16 of 8"] = Column("visits.codes", torch.int16, torch.uint8)
    made["narrow 32 of 16"] = Column("visits.codes", torch.int32, torch.int16, features=(2,))
    made["features"] = Column("visits.codes", torch.float32, features=(3, 2))
    made["nothing"] = Column("visits.labs", torch.float64, features=(2, 0))
    made["missing"] = Column("visits", torch.float32, nullable=True)
    made["missing row"] = Column("rows", torch.int64, torch.uint8, nullable=True)
    made["word"] = Column("visits.codes", torch.int64, torch.int32, text=True)
    made["missing wörd"] = Column("visits.codes.parts", torch.int64, torch.uint8, text=True, nullable=True)
    return made


def block(
    rng: np.random.Generator, rows: int, columns: dict[str, Column] | None = None, *, longest: int = 4,
    offsets: torch.dtype = torch.int64, empty: float = 0.3, words: tuple[str, ...] = ("a", "b", "c"),
) -> Block:  # fmt: skip
    """Rows of random lengths and values."""
    columns = column_kinds() if columns is None else columns
    schema = Schema([level for level in FOREST if _is_used(level, columns)], columns)
    counts: dict[str, int] = {"rows": rows}
    ends = {}
    for level in schema.levels[1:]:
        lengths = rng.integers(0, longest + 1, counts[str(parent_of(level))])
        lengths[rng.random(lengths.size) < empty] = 0
        ends[level] = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])).to(offsets)
        counts[level] = int(lengths.sum())
    values, valid, vocabularies = {}, {}, {}
    for name, column in columns.items():
        shape = (counts[str(column.level)], *column.features)
        values[name] = random_values(rng, shape, column.stored)
        if column.text:
            vocabularies[name] = words
            values[name] = torch.from_numpy(rng.integers(0, len(words), shape)).to(column.stored)
        if column.nullable:
            valid[name] = torch.from_numpy(rng.random(shape[0]) < 0.6)
            values[name] = torch.where(valid[name], values[name], torch.zeros((), dtype=column.stored))
    return Block(schema, counts, ends, values, valid, vocabularies)


def _is_used(level: str, columns: dict[str, Column]) -> bool:
    return level == "rows" or any(f"{column.level}.".startswith(f"{level}.") for column in columns.values())


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any bits that the dtype has; no NaN, which equals nothing."""
    if dtype == torch.bool:
        return torch.from_numpy(rng.random(shape) < 0.5)
    if is_integer(dtype):
        info = torch.iinfo(dtype)
        return torch.from_numpy(rng.integers(info.min, info.max, shape, dtype=str(dtype)[6:], endpoint=True))
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


# ------------------------------------------------------------------------------------------------- plain Python


def entry(given: Block, name: str, number: int) -> Any:
    """A value as Python has it: words decoded, None for what is missing."""
    if name in given.valid and not given.valid[name][number]:
        return None
    value = given.values[name][number].tolist()
    return given.vocabularies[name][value] if given.schema[name].text else value


def path(given: Block, name: str) -> list[str]:
    """The levels that a column's lists are of, the outermost first."""
    level, made = given.schema[name].level, []
    while level in given.offsets:
        assert level is not None
        made.append(level)
        level = parent_of(level)
    return made[::-1]


def row(given: Block, name: str, number: int, cut: tuple[str, int, int] | None = None) -> Any:
    """A row of a column as nested lists."""

    def below(levels: list[str], of: int) -> Any:
        if not levels:
            return entry(given, name, of)
        first, last = given.offsets[levels[0]][of : of + 2].tolist()
        if cut is not None and levels[0] == cut[0]:
            first, last = first + cut[1], first + cut[2]
        return [below(levels[1:], inner) for inner in range(first, last)]

    return below(path(given, name), number)


def padded(lists: Any, sizes: list[int], keep: list[int], left: list[bool], filling: Any, missing: Any) -> Any:
    """Nested lists cut to `keep` entries and padded to `sizes`; `missing` stands for None."""
    if not sizes:
        return missing if lists is None else lists
    inner = [padded(each, sizes[1:], keep[1:], left[1:], filling, missing) for each in lists[: keep[0]]]
    rest = [_full(sizes[1:], filling) for _ in range(sizes[0] - len(inner))]
    return rest + inner if left[0] else inner + rest


def _full(sizes: list[int], filling: Any) -> Any:
    return filling if not sizes else [_full(sizes[1:], filling) for _ in range(sizes[0])]


def filled(features: tuple[int, ...], value: Any) -> Any:
    """An entry all of whose elements are one value."""
    return _full(list(features), value)


def longest(lists: list[Any], depth: int) -> int:
    """The longest list so many levels below these."""
    if depth == 0:
        return max((len(each) for each in lists), default=0)
    return longest([inner for each in lists for inner in each], depth - 1)
