"""Fields: records within lists, as Arrow and similar libraries have them, become levels and columns of a block.

- A list of records becomes a level with the name of its field, below the level of the list around it:
  `visits: list<struct<time, codes: list<struct<code>>>>` becomes the levels "visits" and "visits.codes".
- A list of plain values inside a record of a list becomes a level with the name of its field: `codes: list<int>` in
  `visits` becomes the level "visits.codes" with the column "codes".
- A list of plain values in a row has the level "level1", and a list within it has "level1.level2", as in `sr.Table`.
  All such lists of the same depth share a level.
- A list right inside a list has no name of its own. It is called "level" and its depth, as in "visits.level2".
- A column has the name of its field. If several fields have the same name, each column has its path: "visits.time".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from serrate.errors import RaggednessError
from serrate.table.block import Block
from serrate.table.columns import NestedColumn
from serrate.table.schema import ROWS, Column, Schema, check_level, child_of, depth_of, parent_of, path_to
from serrate.tensor.offsets import preview_lengths

Path = tuple[str, ...]
"""The names of the fields that lead to a field, from the row downwards."""


@dataclass(frozen=True, eq=False)
class FieldLists:
    """The lists of one field: their offsets, and the lists that they are in."""

    path: Path
    offsets: torch.Tensor
    count: int
    outer: FieldLists | None
    records: bool
    """Whether the entries, or the entries of lists right inside them, are records."""

    @property
    def depth(self) -> int:
        """How many lists are around an entry."""
        return 1 + (self.outer.depth if self.outer else 0)

    @property
    def has_name(self) -> bool:
        """Whether this is the list of a field itself, and not a list right inside a list."""
        return bool(self.path) and (self.outer is None or self.outer.path != self.path)


@dataclass(frozen=True, eq=False)
class Leaf:
    """The entries of one field that has neither fields nor lists."""

    path: Path
    lists: FieldLists | None
    entries: NestedColumn
    """The entries, without levels: those are in `lists`."""


def row_of(lists: FieldLists | None, place: int) -> int:
    """Return the row that has entry `place` of some lists."""
    while lists is not None:
        place = int(torch.searchsorted(lists.offsets, place, right=True)) - 1
        lists = lists.outer
    return place


def describe_place(path: Path, lists: FieldLists | None, place: int, first: int = 0) -> str:
    """Return the name of entry `place` of a field for error messages; rows are counted from `first`."""
    return f"field {'.'.join(path)!r}, row {first + row_of(lists, place)}"


def column_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the column of each field: the name of the field, or its path if several fields have the same name.

    >>> column_names([("age",), ("visits", "time"), ("stays", "time")])
    {('age',): 'age', ('visits', 'time'): 'visits.time', ('stays', 'time'): 'stays.time'}
    """
    if () in paths:
        raise TypeError('values without a field have no name for a column; give a mapping such as {"code": values}')
    often = Counter(path[-1] for path in paths)
    names = {path: path[-1] if often[path[-1]] == 1 else ".".join(path) for path in paths}
    for name, times in Counter(names[path] for path in paths).items():
        if times > 1:
            raise ValueError(f"{times} fields would become column {name!r:.60}; rename all but one of them")
    return names


def assemble_block(
    rows: int,
    lists: Iterable[FieldLists],
    leaves: Sequence[Leaf],
    *,
    levels: Mapping[str, str] | None = None,
    names: Mapping[Path, str] | None = None,
) -> Block:
    """Return the block of these fields.

    `levels` gives the levels of the entries of some fields that are lists, and `names` the names of the columns.
    """
    named = _Named(tuple(lists), levels or {})
    names = names or column_names([leaf.path for leaf in leaves])
    columns, values, valid, vocabularies = {}, {}, {}, {}
    for leaf in leaves:
        name, entries = names[leaf.path], leaf.entries
        if entries.valid is not None:
            valid[name] = entries.valid
        if entries.vocabulary is not None:
            vocabularies[name] = entries.vocabulary
        values[name] = entries.values
        columns[name] = _column(named.level(leaf.lists), entries, name in valid)
    order = sorted(named.counts, key=depth_of)
    counts = {ROWS: rows, **named.counts}
    return Block(Schema([ROWS, *order], columns), counts, named.offsets, values, valid, vocabularies)


def _column(level: str, entries: NestedColumn, nullable: bool) -> Column:
    values, text = entries.values, entries.vocabulary is not None
    dtype = torch.int64 if text else values.dtype
    return Column(level, dtype, values.dtype, tuple(values.shape[1:]), entries.unit, text, nullable)


class _Named:
    """The levels of lists, and their offsets, which must be equal if several lists share a level."""

    def __init__(self, lists: Sequence[FieldLists], given: Mapping[str, str]) -> None:
        self.counts: dict[str, int] = {}
        self.offsets: dict[str, torch.Tensor] = {}
        self._first: dict[str, FieldLists] = {}
        self._given = _by_path(lists, given)
        self._levels: dict[FieldLists, str] = {}
        for each in lists:  # Outer lists come first.
            level = self._levels[each] = self._name(each)
            self._take(level, each)

    def level(self, lists: FieldLists | None) -> str:
        """Return the level of the entries of some lists."""
        return ROWS if lists is None else self._levels[lists]

    def _name(self, lists: FieldLists) -> str:
        above = self.level(lists.outer)
        if lists.path in self._given:
            return self._as_given(lists, above)
        if not lists.has_name or (not lists.records and lists.outer is None):
            return child_of(above, f"level{lists.depth}")
        try:
            return check_level(child_of(above, _word(lists.path[-1])))
        except ValueError:
            raise ValueError(
                f"field {'.'.join(lists.path)!r:.60} is a list, but its name cannot be that of a level; give another "
                f"name: levels={{{'.'.join(lists.path)!r}: {child_of(above, 'entries')!r}}}"
            ) from None

    def _as_given(self, lists: FieldLists, above: str) -> str:
        wanted = self._given[lists.path]
        level = path_to(wanted)[lists.depth - 1]
        if parent_of(level) != above:
            raise ValueError(
                f"field {'.'.join(lists.path)!r} lies within level {above!r}, so its level cannot be {wanted!r}"
            )
        return level

    def _take(self, level: str, lists: FieldLists) -> None:
        first = self._first.setdefault(level, lists)
        if first is lists:
            self.counts[level], self.offsets[level] = lists.count, lists.offsets
            return
        both = f"fields {'.'.join(first.path)!r} and {'.'.join(lists.path)!r}"
        if lists.records and lists.path not in self._given:
            raise ValueError(f"{both} would both become level {level!r}; give one of them another level: levels={{…}}")
        if not _same(first.offsets, lists.offsets):
            raise RaggednessError(
                f"{both} share level {level!r}, but have lists of lengths {preview_lengths(first.offsets)} and "
                f"{preview_lengths(lists.offsets)}; give one of them another level: "
                f"levels={{{'.'.join(lists.path)!r}: {child_of(parent_of(level) or ROWS, 'another')!r}}}"
            )


def _word(name: str) -> str:
    """Return the name of a field if it can be one word in the name of a level; raise a ValueError otherwise."""
    if "." in name or name == ROWS:
        raise ValueError(name)
    return name


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    return one.numel() == other.numel() and torch.equal(one.to(torch.int64), other.to(torch.int64))


def _by_path(lists: Sequence[FieldLists], given: Mapping[str, str]) -> dict[Path, str]:
    """Return the levels that were given for the names or paths of fields, by path."""
    depths: dict[Path, int] = {each.path: each.depth for each in lists}  # The innermost list of a field counts.
    found: dict[Path, str] = {}
    for key, level in given.items():
        matching = [path for path in depths if ".".join(path) == key] or [
            path for path in depths if path[-1:] == (key,)
        ]
        if len(matching) != 1:
            several = "several fields" if matching else "no field that is a list"
            raise KeyError(
                f"{key!r:.60} names {several}; the fields that are lists are {['.'.join(path) for path in depths]}"
            )
        if depth_of(check_level(level)) != depths[matching[0]]:
            raise ValueError(
                f"field {key!r:.60} has {depths[matching[0]]} lists around its entries, so the name of its level must "
                f"have as many words, got {level!r:.60}"
            )
        found[matching[0]] = level
    return found
