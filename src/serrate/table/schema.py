"""Schema: which levels a table has, and for each column its level and the kind of its entries.

The name of a level is its path below the rows: "rows", "visits", "visits.codes". The parent of a level is the path
without the last word; the parent of "visits" is "rows". Two levels may have the same parent ("visits.codes" and
"visits.labs").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

ROWS = "rows"
"""The outermost level, which has one entry per row of the table."""

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        name: getattr(torch, name)
        for name in (
            "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
            "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
        )
    }
)  # fmt: skip
"""The dtypes that a column may have, by name."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns")


def parent_of(level: str) -> str | None:
    """Return the parent of a level: each entry of the parent has a list of entries of the level.

    >>> parent_of("visits.codes"), parent_of("visits"), parent_of("rows")
    ('visits', 'rows', None)
    """
    outer, dot, _ = level.rpartition(".")
    return outer if dot else (None if level == ROWS else ROWS)


def depth_of(level: str) -> int:
    """Return how many lists are around an entry of a level: 0 for "rows", 2 for "visits.codes"."""
    return 0 if level == ROWS else 1 + level.count(".")


def child_of(level: str, name: str) -> str:
    """Return the name of the level `name` below a level."""
    return name if level == ROWS else f"{level}.{name}"


def path_to(level: str) -> tuple[str, ...]:
    """Return the levels from the children of the rows down to this one: ("visits", "visits.codes")."""
    if level == ROWS:
        return ()
    words = level.split(".")
    return tuple(".".join(words[: i + 1]) for i in range(len(words)))


def check_level(level: Any) -> str:
    """Return the name of a level; raise an error if it cannot be one."""
    if not isinstance(level, str):
        raise TypeError(f'the name of a level must be a string such as "visits.codes", got {level!r:.60}')
    words = level.split(".")
    if not all(words) or (ROWS in words and level != ROWS):
        raise ValueError(
            f'the name of a level must be one or more words with dots between them, such as "visits" or '
            f'"visits.codes", and no word may be empty or "rows", got {level!r:.60}'
        )
    return level


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype; raise a TypeError if columns cannot have it."""
    if dtype not in _NAMES:
        raise TypeError(f"the dtype of a column must be one of {', '.join(DTYPES)}, got {dtype!r:.60}")
    return _NAMES[dtype]


@dataclass(frozen=True)
class Column:
    """What the entries of a column are, and at which level they lie.

    >>> import serrate as sr
    >>> sr.Table({"time": [[3, 7], []], "age": [41, 63]}).schema["time"]
    Column(level='level1', dtype=torch.int64)
    """

    level: str | None
    """The column has one value for each entry of this level. If None, it has one value for the table, as after `t[3]`.
    """
    dtype: torch.dtype
    """The dtype that readers get."""
    stored: torch.dtype = field(default=None, repr=False)  # type: ignore[assignment]
    """The dtype in memory and on disk: `dtype`, or a narrower integer type."""
    features: tuple[int, ...] = ()
    """The shape of each entry."""
    unit: str | None = None
    """What int64 entries count, such as "datetime64[s]" or "timedelta64[ns]"; None if they are plain numbers."""
    text: bool = False
    """Whether entries are strings, which are stored as codes: positions in a vocabulary."""
    nullable: bool = False
    """Whether entries may be missing. If so, a mask says which entries are present."""

    def __post_init__(self) -> None:
        if self.level is not None:
            check_level(self.level)
        dtype_name(self.dtype)
        if self.stored is None:
            object.__setattr__(self, "stored", self.dtype)
        dtype_name(self.stored)
        if self.stored != self.dtype and not fits_within(self.stored, self.dtype):
            raise TypeError(f"a column of {self.dtype} cannot be stored as {self.stored}")
        object.__setattr__(self, "features", tuple(int(size) for size in self.features))
        if any(size < 0 for size in self.features):
            raise ValueError(f"sizes of features must be 0 or more, got {self.features}")
        if self.unit is not None:
            check_unit(self.unit)
            if self.dtype != torch.int64:
                raise TypeError(f"a column of {self.unit} must have dtype torch.int64, got {self.dtype}")
        if self.text and (self.unit is not None or self.features or not is_integer(self.dtype)):
            raise TypeError(f"a column of strings must have an integer dtype, no features and no unit, got {self}")

    def __repr__(self) -> str:
        parts = [f"level={self.level!r}", f"dtype={self.dtype}"]
        if self.stored != self.dtype:
            parts.append(f"stored={self.stored}")
        parts += [f"features={self.features}"] if self.features else []
        parts += [f"unit={self.unit!r}"] if self.unit else []
        parts += [f"{name}=True" for name in ("text", "nullable") if getattr(self, name)]
        return f"Column({', '.join(parts)})"

    @property
    def depth(self) -> int:
        """How many lists are around an entry."""
        return depth_of(self.level) if self.level is not None else 0

    def to_json(self) -> dict[str, Any]:
        """Return the column as an object for JSON."""
        made: dict[str, Any] = {"level": self.level, "dtype": dtype_name(self.dtype), "stored": dtype_name(self.stored)}
        made |= {"features": list(self.features)} if self.features else {}
        made |= {"unit": self.unit} if self.unit else {}
        return made | {name: True for name in ("text", "nullable") if getattr(self, name)}

    @classmethod
    def from_json(cls, given: Any) -> Column:
        """Return the column that `to_json` wrote; raise a TypeError, ValueError or KeyError for anything else."""
        if not isinstance(given, dict):
            raise TypeError(f"a column must be an object, got {given!r:.60}")
        unknown = set(given) - {"level", "dtype", "stored", "features", "unit", "text", "nullable"}
        if unknown:
            raise ValueError(f"a column cannot have the fields {sorted(unknown)}")
        features = given.get("features", [])
        if not isinstance(features, list) or not all(type(size) is int for size in features):
            raise TypeError(f"features must be a list of sizes, got {features!r:.60}")
        flags = {name: given.get(name, False) for name in ("text", "nullable")}
        if not all(type(flag) is bool for flag in flags.values()):
            raise TypeError(f"text and nullable must be true or false, got {flags}")
        for name in ("dtype", "stored"):
            if not isinstance(given[name], str) or given[name] not in DTYPES:
                raise TypeError(f"{name} must be one of {', '.join(DTYPES)}, got {given[name]!r:.60}")
        dtype, stored = DTYPES[given["dtype"]], DTYPES[given["stored"]]
        return cls(given["level"], dtype, stored, tuple(features), given.get("unit"), **flags)


_INTEGERS = {
    dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for dtype in (
        torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64
    )
}  # fmt: skip


def is_integer(dtype: torch.dtype) -> bool:
    """Return whether a dtype is one of the integer dtypes; bool is not."""
    return dtype in _INTEGERS


def fits_within(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Return whether one dtype holds every integer of the other."""
    if narrow not in _INTEGERS or wide not in _INTEGERS:
        return narrow == wide
    (low, high), (least, greatest) = _INTEGERS[narrow], _INTEGERS[wide]
    return least <= low and high <= greatest


def least_dtype(low: int, high: int) -> torch.dtype:
    """Return the smallest integer dtype that holds all integers from low to high, an unsigned one if possible.

    >>> least_dtype(0, 300), least_dtype(-1, 200)
    (torch.uint16, torch.int16)
    """
    for dtype, (least, greatest) in _INTEGERS.items():
        if least <= low and high <= greatest:
            return dtype
    raise OverflowError(f"no integer dtype holds both {low} and {high}")


def check_unit(unit: Any) -> str:
    """Return a unit such as "datetime64[ns]"; raise a ValueError if it is not one."""
    if isinstance(unit, str) and unit.endswith("]"):
        kind, _, step = unit[:-1].partition("[")
        if kind in ("datetime64", "timedelta64") and step in UNITS:
            return unit
    raise ValueError(f'a unit must be "datetime64[s]", "timedelta64[ns]" or another step of {UNITS}, got {unit!r:.60}')


class Schema(Mapping[str, Column]):
    """The levels of a table, each parent before its children, and the columns by name.

    >>> import serrate as sr
    >>> schema = sr.Table({"time": [[3, 7], []], "code": [[[1], [2, 2]], []]}).schema
    >>> schema.levels
    ('rows', 'level1', 'level1.level2')
    >>> schema.columns_at("level1")
    ('time',)
    """

    __slots__ = ("_columns", "_known", "levels", "roots")

    levels: tuple[str, ...]
    roots: tuple[str, ...]
    """The levels whose parent the table does not have: "rows", or after `t[3]` the levels below it."""
    _columns: Mapping[str, Column]
    _known: frozenset[str]
    """The levels as a set, which stays fast if a malicious file has very many of them."""

    def __init__(self, levels: Iterable[str], columns: Mapping[str, Column]) -> None:
        self.levels = tuple(check_level(level) for level in levels)
        known = self._known = frozenset(self.levels)
        seen: set[str] = set()
        if len(known) != len(self.levels):
            raise ValueError(f"each level must be named once, got {self.levels}")
        for level in self.levels:
            above = parent_of(level)
            if above in known and above not in seen:
                raise ValueError(f"each level must come after its parent, but {level!r} comes before {above!r}")
            seen.add(level)
        for name, column in columns.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a column must be a string, got {name!r:.60}")
            if not isinstance(column, Column):
                raise TypeError(f"column {name!r:.60} must be described by a Column, got {column!r:.60}")
            if column.level is not None and column.level not in known:
                raise ValueError(f"column {name!r:.60} lies at {column.level!r}, but the levels are {self.levels}")
        self.roots = tuple(level for level in self.levels if parent_of(level) not in known)
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return set(self.levels) == set(other.levels) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash((frozenset(self.levels), frozenset(self._columns)))

    def __repr__(self) -> str:
        columns = "".join(f"\n  {name!r}: {column}," for name, column in self._columns.items())
        return f"Schema({self.levels}, {{{columns}\n}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.levels, dict(self._columns))

    # --------------------------------------------------------------------------------------------------- levels

    def children(self, level: str) -> tuple[str, ...]:
        """Return the children of a level."""
        return tuple(other for other in self.levels if parent_of(other) == level)

    def below(self, level: str) -> tuple[str, ...]:
        """Return a level and all levels below it, each parent before its children."""
        found = {level}
        for other in self.levels:
            if parent_of(other) in found:
                found.add(other)
        return tuple(other for other in self.levels if other in found)

    def has_level(self, level: Any) -> bool:
        """Return whether the schema has a level, without a search through all levels."""
        return level in self._known

    def columns_at(self, level: str | None) -> tuple[str, ...]:
        """Return the columns of a level, or with None the columns that have one value for the whole table."""
        return tuple(name for name, column in self._columns.items() if column.level == level)

    # ---------------------------------------------------------------------------------------------- new from old

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema of some columns and the levels that they need; the only root stays in any case."""
        columns = {name: self[name] for name in names}
        needed = set(self.roots) if len(self.roots) == 1 else set()
        for column in columns.values():
            level = column.level
            while level is not None and level in self._known:
                needed.add(level)
                level = parent_of(level)
        return Schema([level for level in self.levels if level in needed], columns)

    def changed(self, **columns: Any) -> Schema:
        """Return the schema with some fields of some columns changed: `changed(code=dict(stored=torch.uint16))`."""
        return self.with_columns({name: replace(self[name], **fields) for name, fields in columns.items()})

    def with_columns(self, columns: Mapping[str, Column]) -> Schema:
        """Return the schema with these columns added; a column replaces the one of the same name."""
        return Schema(self.levels, {**self._columns, **columns})

    def to_json(self) -> dict[str, Any]:
        """Return the schema as an object for JSON. The columns are a list of pairs, because their order matters."""
        return {
            "levels": list(self.levels),
            "columns": [[name, column.to_json()] for name, column in self._columns.items()],
        }

    @classmethod
    def from_json(cls, given: Any) -> Schema:
        """Return the schema that `to_json` wrote; raise a TypeError, ValueError or KeyError for anything else."""
        if not isinstance(given, dict) or set(given) != {"levels", "columns"}:
            raise TypeError(f"a schema must be an object with levels and columns, got {given!r:.60}")
        levels, columns = given["levels"], given["columns"]
        if not isinstance(levels, list) or not isinstance(columns, list):
            raise TypeError("levels and columns of a schema must be lists")
        made: dict[str, Column] = {}
        for pair in columns:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise TypeError(f"columns of a schema must be pairs of a name and an object, got {pair!r:.60}")
            if pair[0] in made:
                raise ValueError(f"column {pair[0]!r:.60} occurs twice")
            made[pair[0]] = Column.from_json(pair[1])
        return cls(levels, made)
