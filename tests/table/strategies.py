"""Random tables for hypothesis: forests of levels, columns of every kind, and the index expressions that fit them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from tests.table import oracle
from tests.table.oracle import ROWS, Entry, Plain, Shape
from tests.table.oracle_batches import filled

import serrate as sr
from serrate.table.schema import DTYPES, Column, Schema

LEVEL_NAMES = ("visits", "codes", "labs", "été", "a/b", "x y")
COLUMN_NAMES = ("time", "code", "a/b", "größe", "rows", "visits", "offsets/visits", "列", " ", "0", "x.y", "mask", "")
WORDS = ("", "a", "b", "äöü", "日本", "a\x00b", "a\nb")


@dataclass(frozen=True)
class Kind:
    """What a column's entries are, and what the n-th of them is."""

    dtype: torch.dtype
    features: tuple[int, ...] = ()
    unit: str | None = None
    text: bool = False
    nullable: bool = False
    stored: torch.dtype | None = None

    def column(self, level: str | None) -> Column:
        return Column(level, self.dtype, self.stored or self.dtype, self.features, self.unit, self.text, self.nullable)

    def value(self, n: int) -> Any:
        if self.nullable and n % 3 == 1:
            return None
        if self.text:
            return WORDS[n * n % len(WORDS)]
        return self.block(n * math.prod(self.features), self.features)

    def block(self, n: int, sizes: tuple[int, ...]) -> Any:
        if not sizes:
            return number(self.stored or self.dtype, n)
        inner = math.prod(sizes[1:])
        return [self.block(n + i * inner, sizes[1:]) for i in range(sizes[0])]

    @property
    def zero(self) -> Any:
        """What stands where nothing is."""
        return filled(self.features, number(self.dtype, 0) * 0 if self.dtype != torch.bool else False)


def number(dtype: torch.dtype, n: int) -> Any:
    """A number that the dtype holds exactly; small, negative and extreme ones, and no two neighbours alike."""
    if dtype == torch.bool:
        return n % 2 == 1
    if dtype.is_complex:
        return complex(n % 100 + 1, -n % 7)
    if dtype.is_floating_point:
        extreme = torch.finfo(dtype).max if n % 2 else 1 + torch.finfo(dtype).eps  # no narrower dtype has either
        return extreme if n % 5 == 4 else (n % 100) / 4 - 3
    info = torch.iinfo(dtype)
    if n % 5 == 4:
        return info.max if n % 2 else info.min
    return (n % 100) - (50 if info.min < 0 else 0)


INT64 = Kind(torch.int64)
PLAIN_KINDS = tuple(Kind(dtype) for dtype in DTYPES.values())
KINDS = (
    *PLAIN_KINDS,
    *(replace(kind, nullable=True) for kind in PLAIN_KINDS),
    Kind(torch.int64, text=True),
    Kind(torch.int64, text=True, nullable=True),
    *(Kind(torch.int64, unit=f"{kind}64[{step}]") for kind in ("datetime", "timedelta") for step in ("D", "s", "ns")),
    *(Kind(torch.int64, unit=f"{kind}64[ms]", nullable=True) for kind in ("datetime", "timedelta")),
    Kind(torch.int64, unit="datetime64[us]", nullable=True),
    *(Kind(torch.float32, features=sizes) for sizes in ((2,), (0,), (1,), (2, 3), (2, 0, 3))),
    Kind(torch.int32, features=(2,), nullable=True),
    Kind(torch.int64, stored=torch.uint16),
    Kind(torch.uint64, stored=torch.uint8, nullable=True),
    Kind(torch.int32, stored=torch.int8, features=(3,)),
)


@dataclass(frozen=True)
class Sample:
    """A table in plain Python, and what its columns are."""

    plain: Plain
    kinds: dict[str, Kind]

    @property
    def schema(self) -> Schema:
        return schema_of(self.plain, self.kinds)

    def table(self) -> sr.Table:
        return sr.Table(oracle.lists_of(self.plain), self.schema)


def schema_of(plain: Plain, kinds: dict[str, Kind]) -> Schema:
    """The schema of a plain table."""
    at = oracle.columns(plain)
    return Schema(oracle.levels(plain), {name: kinds[name].column(level) for name, level in at.items()})


# ----------------------------------------------------------------------------------------------------------- tables


@st.composite
def shapes(draw: Any, depth: int, branches: int, names: list[str]) -> Shape:
    """Levels below one, at most this deep; takes the names of columns from `names`. Every leaf has a column."""
    count = draw(st.integers(0, branches)) if depth else 0
    words = draw(st.lists(st.sampled_from(LEVEL_NAMES), min_size=count, max_size=count, unique=True))
    children = {word: draw(shapes(depth - 1, branches, names)) for word in words if names}
    own = min(draw(st.integers(0 if children else 1, 2)), len(names))
    held = {word: child for word, child in children.items() if child.columns or child.children}
    return Shape([names.pop(0) for _ in range(own)], held)


@st.composite
def entries(draw: Any, shape: Shape, kinds: dict[str, Kind], max_rows: int = 5) -> Entry:
    """A top with rows of a shape: lengths by short patterns, so that empty and equal lists are frequent."""
    patterns = {level: draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)) for level, _ in oracle.walk(shape)}
    used = dict.fromkeys([*patterns, *kinds], 0)

    def count(what: Any) -> int:
        used[what] += 1
        return used[what] - 1

    def made(one: Shape, level: str | None) -> Entry:
        values = {name: kinds[name].value(count(name)) for name in one.columns}
        lists = {}
        for name, child in one.children.items():
            path = oracle.join(level, name)
            length = patterns[path][count(path) % len(patterns[path])]
            lists[name] = [made(child, path) for _ in range(length)]
        return Entry(values, lists)

    rows = draw(st.integers(0, max_rows))
    return Entry({}, {ROWS: [made(shape, ROWS) for _ in range(rows)]})


@st.composite
def samples(
    draw: Any, max_depth: int = 3, branches: int = 2, kinds: tuple[Kind, ...] = KINDS, max_rows: int = 5
) -> Sample:
    """Tables of up to `max_depth` levels below the rows."""
    names = list(draw(st.permutations(COLUMN_NAMES)))[:8]
    inner = draw(shapes(max_depth, branches, names))
    held = [name for _, one in oracle.walk(inner) for name in one.columns]
    chosen = {name: draw(st.sampled_from(kinds)) for name in held}
    top = draw(entries(inner, chosen, max_rows))
    return Sample(Plain(Shape([], {ROWS: inner}), top), chosen)


def chains(max_depth: int = 3, kinds: tuple[Kind, ...] = KINDS) -> st.SearchStrategy[Sample]:
    """Tables whose levels lie one below another."""
    return samples(max_depth=max_depth, branches=1, kinds=kinds)


# ------------------------------------------------------------------------------------------------- index expressions


def slices(longest: int = 6) -> st.SearchStrategy[slice]:
    """Slices of any start, stop and step, past the ends and empty ones included."""
    huge = st.sampled_from([2**61, 2**63, -(2**63), 2**70, -(2**70)])
    ends = st.none() | st.integers(-longest - 2, longest + 2)
    steps = st.none() | st.integers(-3, 3).filter(bool)
    return st.builds(slice, ends, ends, steps) | st.builds(slice, ends | huge, ends | huge, steps | huge)


def row_lists(count: int) -> st.SearchStrategy[list[int]]:
    """Numbers of rows from either end, some more than once; none at all too."""
    return st.lists(st.integers(-count, count - 1), max_size=6) if count else st.just([])


@st.composite
def row_keys(draw: Any, count: int) -> Any:
    """What may index `count` rows; lists and masks as lists."""
    kinds = [slices(count), row_lists(count), st.lists(st.booleans(), min_size=count, max_size=count)]
    if count:
        kinds.append(st.integers(-count, count - 1))
    return draw(st.one_of(kinds))


@st.composite
def deep_keys(draw: Any, plain: Plain) -> tuple[Any, ...]:
    """A tuple that goes down the only children; integers only where every list has that place."""
    keys: list[Any] = [draw(row_keys(len(plain.rows)))]
    deep = draw(st.integers(0, 3))
    while len(keys) <= deep and not ambiguous(plain, len(keys)):
        lengths = lengths_after(plain, tuple(keys))
        shortest = min(lengths, default=0)
        kinds: list[Any] = [slices(4), row_lists(shortest)]
        if shortest:
            kinds.append(st.integers(-shortest, shortest - 1))
        keys.append(draw(st.one_of(kinds)))
    return tuple(keys)


def ambiguous(plain: Plain, depth: int) -> bool:
    """Whether the levels that deep below the top are not exactly one."""
    shape = plain.shape
    for _ in range(depth):
        (shape,) = shape.children.values()
        if len(shape.children) != 1:
            return True
    return False


def lengths_after(plain: Plain, keys: tuple[Any, ...]) -> list[int]:
    """The lengths of all lists that the next key of a tuple would index."""
    entries = [plain.top]
    shape = plain.shape
    for key in keys:
        (name,) = shape.children
        shape = shape.children[name]
        if isinstance(key, int):
            entries = [one.lists[name][key] for one in entries]
        else:
            entries = [child for one in entries for child in oracle.picked(one.lists[name], key)]
    (name,) = shape.children
    return [len(one.lists[name]) for one in entries]
