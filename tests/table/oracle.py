"""Tables in plain Python, and what every operation of a table does to them, by loops over rows.

A table is its top: an Entry whose lists hold the rows. `t[3]` is then the row itself, with the values of the table that
it was taken from; `t[:, 0]` replaces each row by its first visit, with the values of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROWS = "rows"


@dataclass
class Shape:
    """Which columns an entry has values of, and which lists of other entries."""

    columns: list[str] = field(default_factory=list)
    children: dict[str, Shape] = field(default_factory=dict)


@dataclass
class Entry:
    """The values of an entry by column, and the lists below it by name."""

    values: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, list[Entry]] = field(default_factory=dict)


@dataclass
class Plain:
    """A table: what its top has, the top, and the level that the top is an entry of (after `t[3]`: the rows)."""

    shape: Shape
    top: Entry
    base: str | None = None

    @property
    def rows(self) -> list[Entry]:
        (root,) = self.shape.children
        return self.top.lists[root]


# ------------------------------------------------------------------------------------------------ looking at a table


def join(level: str | None, name: str) -> str:
    """The path of a list below a level."""
    return name if level in (None, ROWS) else f"{level}.{name}"


def walk(shape: Shape, base: str | None = None) -> Iterator[tuple[str | None, Shape]]:
    """The top as None, and all levels below it, parents first: their paths and shapes."""
    yield None, shape
    for name, child in shape.children.items():
        path = join(base, name)
        yield from ((path if level is None else level, each) for level, each in walk(child, path))


def levels(table: Plain) -> tuple[str, ...]:
    return tuple(level for level, _ in walk(table.shape, table.base) if level is not None)


def columns(table: Plain) -> dict[str, str | None]:
    """The level of each column."""
    return {name: level for level, shape in walk(table.shape, table.base) for name in shape.columns}


def trail(table: Plain, level: str | None) -> tuple[str, ...]:
    """The names of the lists from the top down to a level."""

    def search(shape: Shape, at: str | None, names: tuple[str, ...]) -> tuple[str, ...] | None:
        if at == level:
            return names
        found = (search(child, join(at, name), (*names, name)) for name, child in shape.children.items())
        return next((names for names in found if names is not None), None)

    names = () if level is None else search(table.shape, table.base, ())
    assert names is not None, level
    return names


def nested(entry: Entry, names: Sequence[str], of: Callable[[Entry], Any]) -> Any:
    """What `of` says of the entries at the end of a trail, in lists as deep as the trail is long."""
    if not names:
        return of(entry)
    return [nested(child, names[1:], of) for child in entry.lists[names[0]]]


def column(table: Plain, name: str) -> Any:
    """A column as nested lists."""
    return nested(table.top, trail(table, columns(table)[name]), lambda entry: entry.values[name])


def flat_column(table: Plain, name: str) -> list[Any]:
    """The values of a column, one after another."""
    return flat(column(table, name), len(trail(table, columns(table)[name])))


def lists_of(table: Plain) -> dict[str, Any]:
    """All columns as nested lists."""
    return {name: column(table, name) for name in columns(table)}


def lengths(table: Plain, level: str) -> list[int]:
    """For each entry of the parent how many entries of a level it has, in order."""
    *above, name = trail(table, level)
    return flat(nested(table.top, above, lambda entry: len(entry.lists[name])), len(above))


def flat(lists: Any, depth: int) -> list[Any]:
    """The leaves of lists of a depth."""
    if depth == 0:
        return [lists]
    return [leaf for one in lists for leaf in flat(one, depth - 1)]


def parents(table: Plain, level: str) -> list[Entry]:
    """The entries that have a list of a level, in order."""
    *above, _ = trail(table, level)
    return flat(nested(table.top, above, lambda entry: entry), len(above))


def table_of(lists: Mapping[str, Any], at: Mapping[str, str | None], paths: Sequence[str]) -> Plain:
    """The table whose columns are these nested lists, at these levels; `paths` has all levels, parents first."""
    shape = Shape()
    for path in paths:
        below(shape, path).children.setdefault(path.split(".")[-1], Shape())
    for name, level in at.items():
        (shape if level is None else below(shape, level).children[level.split(".")[-1]]).columns.append(name)
    return Plain(shape, _entry(shape, lists))


def below(shape: Shape, path: str) -> Shape:
    """The shape that has the list of a path."""
    words = path.split(".")
    if ROWS in shape.children and path != ROWS:
        words = [ROWS, *words]
    for word in words[:-1]:
        shape = shape.children[word]
    return shape


def _entry(shape: Shape, lists: Mapping[str, Any]) -> Entry:
    made = Entry({name: lists[name] for name in shape.columns})
    for name, child in shape.children.items():
        held = [column for _, one in walk(child) for column in one.columns]
        counts = {len(lists[column]) for column in held}
        assert len(counts) == 1, (name, counts)
        made.lists[name] = [_entry(child, {c: lists[c][i] for c in held}) for i in range(counts.pop())]
    return made


# ---------------------------------------------------------------------------------------------------------- indexing


def picked(entries: list[Entry], key: Any) -> list[Entry]:
    """The entries that a slice, a list of numbers or a mask takes."""
    if isinstance(key, slice):
        return entries[key]
    key = list(key)
    if key and isinstance(key[0], bool):
        if len(key) != len(entries):
            raise IndexError(f"a mask of {len(key)} for {len(entries)} entries")
        return [entry for entry, kept in zip(entries, key, strict=True) if kept]
    return [entries[i] for i in key]


def index(table: Plain, key: Any) -> Plain:
    """`t[key]`."""
    keys = key if isinstance(key, tuple) else (key,)
    return Plain(_shape_after(table.shape, keys), _entry_after(table.shape, table.top, keys), _base_after(table, keys))


def _base_after(table: Plain, keys: tuple[Any, ...]) -> str | None:
    base, shape = table.base, table.shape
    for key in keys:
        if not isinstance(key, int):
            break
        ((name, shape),) = shape.children.items()
        base = join(base, name)
    return base


def _shape_after(shape: Shape, keys: tuple[Any, ...]) -> Shape:
    if not keys:
        return shape
    (name,) = shape.children
    child = shape.children[name]
    if isinstance(keys[0], int):
        return _shape_after(Shape(shape.columns + child.columns, child.children), keys[1:])
    return Shape(shape.columns, {name: _shape_after(child, keys[1:])})


def _entry_after(shape: Shape, entry: Entry, keys: tuple[Any, ...]) -> Entry:
    if not keys:
        return entry
    (name,) = shape.children
    child = shape.children[name]
    if isinstance(keys[0], int):
        one = entry.lists[name][keys[0]]
        merged = Shape(shape.columns + child.columns, child.children)
        return _entry_after(merged, Entry({**entry.values, **one.values}, one.lists), keys[1:])
    chosen = picked(entry.lists[name], keys[0])
    return Entry(entry.values, {name: [_entry_after(child, one, keys[1:]) for one in chosen]})


def windows(
    table: Plain, rows: Sequence[int], start: Sequence[int | None], stop: Sequence[int | None], size: int | None,
    keep: str, level: str,
) -> Plain:  # fmt: skip
    """For each of these rows a Python slice of its list of a level, then its first or last `size` entries."""
    (root,) = table.shape.children
    made = []
    for i, first, last in zip(rows, start, stop, strict=True):
        row = table.rows[i]
        kept = row.lists[level][first:last]
        if size is not None:
            kept = kept[:size] if keep == "head" else kept[max(len(kept) - size, 0) :]
        made.append(Entry(row.values, {**row.lists, level: kept}))
    return Plain(table.shape, Entry(table.top.values, {root: made}), table.base)


# --------------------------------------------------------------------------------------------------------- reshaping


def changed(table: Plain, level: str | None, shape: Callable[[Shape], Shape], entry: Callable[[Entry], Entry]) -> Plain:
    """The table with every entry of a level, and its shape, replaced."""

    def shape_at(one: Shape, names: tuple[str, ...]) -> Shape:
        if not names:
            return shape(one)
        below = {
            name: shape_at(child, names[1:]) if name == names[0] else child for name, child in one.children.items()
        }
        return Shape(one.columns, below)

    def entry_at(one: Entry, names: tuple[str, ...]) -> Entry:
        if not names:
            return entry(one)
        below = {
            name: [entry_at(child, names[1:]) for child in children] if name == names[0] else children
            for name, children in one.lists.items()
        }
        return Entry(one.values, below)

    names = trail(table, level)
    return Plain(shape_at(table.shape, names), entry_at(table.top, names), table.base)


def select(table: Plain, names: Sequence[str]) -> Plain:
    """Some columns, and the levels that they need; the outermost stay."""

    def shape_of(one: Shape, outermost: bool) -> Shape:
        children = {name: shape_of(child, False) for name, child in one.children.items()}
        used = {name: child for name, child in children.items() if outermost or child.columns or child.children}
        return Shape([name for name in one.columns if name in names], used)

    def entry_of(one: Entry, like: Shape) -> Entry:
        lists = {name: [entry_of(child, like.children[name]) for child in one.lists[name]] for name in like.children}
        return Entry({name: one.values[name] for name in like.columns}, lists)

    shape = shape_of(table.shape, True)
    return Plain(shape, entry_of(table.top, shape), table.base)


def flatten_level(table: Plain, level: str, how: str, fill: Mapping[str, Any]) -> Plain:
    """A level merged into its parent; `fill` has the value of each column that stands where there is none."""
    *above, name = trail(table, level)
    *outer, list_name = above
    shape = below_trail(table.shape, above)
    child = shape.children[name]
    assert len(shape.children) == 1, "other children of the parent"
    merged = Shape(shape.columns + child.columns, child.children)

    def spread(one: Entry) -> list[Entry]:
        children = one.lists[name]
        if not children and how == "fill":
            blank = {column: fill[column] for column in child.columns}
            return [Entry({**one.values, **blank}, {below: [] for below in child.children})]
        rest = one.values if how == "repeat" else {column: fill[column] for column in one.values}
        return [Entry({**(rest if i else one.values), **e.values}, e.lists) for i, e in enumerate(children)]

    return changed(
        table,
        trail_path(table, outer),
        lambda s: Shape(s.columns, {n: merged if n == list_name else c for n, c in s.children.items()}),
        lambda e: Entry(e.values, {**e.lists, list_name: [x for one in e.lists[list_name] for x in spread(one)]}),
    )


def trail_path(table: Plain, names: Sequence[str]) -> str | None:
    """The path at the end of a trail; None for the top."""
    path = table.base
    for name in names:
        path = join(path, name)
    return path if names else None


def below_trail(shape: Shape, names: Sequence[str]) -> Shape:
    for name in names:
        shape = shape.children[name]
    return shape


def filtered(table: Plain, level: str, kept: Sequence[bool]) -> Plain:
    """The entries of a level that a mask, in the order of the entries, keeps."""
    *above, name = trail(table, level)
    flags = iter(kept)
    return changed(
        table,
        trail_path(table, above),
        lambda shape: shape,
        lambda entry: Entry(entry.values, {**entry.lists, name: [one for one in entry.lists[name] if next(flags)]}),
    )


def sort_by(table: Plain, name: str, key: Callable[[Any], Any], descending: bool) -> Plain:
    """Entries of the column's level in its order, each list on its own; equal ones stay in their order."""
    *above, own = trail(table, columns(table)[name])

    def ordered(entry: Entry) -> Entry:
        entries = sorted(entry.lists[own], key=lambda one: key(one.values[name]), reverse=descending)
        return Entry(entry.values, {**entry.lists, own: entries})

    return changed(table, trail_path(table, above), lambda shape: shape, ordered)


def concat(tables: Sequence[Plain]) -> Plain:
    """The rows of all of them, one after another."""
    (root,) = tables[0].shape.children
    return Plain(tables[0].shape, Entry(tables[0].top.values, {root: [row for one in tables for row in one.rows]}))


def stack(tables: Sequence[Plain]) -> Plain:
    """A table whose rows are what these tables are."""
    return Plain(Shape([], {ROWS: tables[0].shape}), Entry({}, {ROWS: [one.top for one in tables]}))
