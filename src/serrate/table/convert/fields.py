"""Fields: records within lists, as Arrow and its relatives have them, become the levels and columns of a block.

- A list of records is a level with the name of its field, below the level of the list around it: `visits: list<struct<
  time, codes: list<struct<code>>>>` makes levels "visits" and "visits.codes".
- A list of plain values inside a record of a list is a level of its own, with its name: `codes: list<int>` in `visits`
  makes level "visits.codes" with column "codes".
- A list of plain values of the rows goes to "level1", one within it to "level1.level2", as `sr.Table` has it: all such
  lists of one depth share a level.
- A list right inside a list has no name: it is called "level" and its depth, as in "visits.level2".
- A column has the name of its field; where several fields have one name, each has its path: "visits.time".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from serrate.errors import RaggednessError
from serrate.table.block import Block
from serrate.table.nested import Nested
from serrate.table.schema import ROWS, Column, Schema, check_level, child_of, depth_of, parent_of, path_to
from serrate.tensor.offsets import preview_lengths

Path = tuple[str, ...]
"""The names of fields from the row down."""


@dataclass(frozen=True, eq=False)
class Lists:
    """The lists of one field: where each ends, and the lists that they lie in."""

    path: Path
    offsets: torch.Tensor
    count: int
    outer: Lists | None
    records: bool
    """Whether the entries, or those of lists right inside, are records."""

    @property
    def depth(self) -> int:
        """How many lists stand around an entry."""
        return 1 + (self.outer.depth if self.outer else 0)

    @property
    def has_name(self) -> bool:
        """Whether a field is this list, and not one right inside it."""
        return bool(self.path) and (self.outer is None or self.outer.path != self.path)


@dataclass(frozen=True, eq=False)
class Leaf:
    """The entries of one field that has no fields or lists itself."""

    path: Path
    lists: Lists | None
    entries: Nested
    """Without levels: those are `lists`."""


def row_of(lists: Lists | None, place: int) -> int:
    """The row that has entry `place` of some lists."""
    while lists is not None:
        place = int(torch.searchsorted(lists.offsets, place, right=True)) - 1
        lists = lists.outer
    return place


def place_of(path: Path, lists: Lists | None, place: int, first: int = 0) -> str:
    """What to call entry `place` of a field in an error, where rows are counted from `first`."""
    return f"field {'.'.join(path)!r}, row {first + row_of(lists, place)}"


def column_names(paths: Sequence[Path]) -> dict[Path, str]:
    """The columns that fields become: by their names, or by their paths where a name is there more than once.

    >>> column_names([("age",), ("visits", "time"), ("stays", "time")])
    {('age',): 'age', ('visits', 'time'): 'visits.time', ('stays', 'time'): 'stays.time'}
    """
    if () in paths:
        raise TypeError('values without a field have no name for a column; give a mapping such as {"code": values}')
    often = Counter(path[-1] for path in paths)
    names = {path: path[-1] if often[path[-1]] == 1 else ".".join(path) for path in paths}
    for name, times in Counter(names[path] for path in paths).items():
        if times > 1:
            raise ValueError(f"{times} fields would be column {name!r:.60}; rename all but one of them")
    return names


def assemble(
    rows: int,
    lists: Iterable[Lists],
    leaves: Sequence[Leaf],
    *,
    levels: Mapping[str, str] | None = None,
    names: Mapping[Path, str] | None = None,
) -> Block:
    """The block of these fields.

    `levels` says for some fields that are lists at which level their entries lie; `names` which columns fields become.
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


def _column(level: str, entries: Nested, nullable: bool) -> Column:
    values, text = entries.values, entries.vocabulary is not None
    dtype = torch.int64 if text else values.dtype
    return Column(level, dtype, values.dtype, tuple(values.shape[1:]), entries.unit, text, nullable)


class _Named:
    """Levels for lists: their offsets, checked where several lists share one."""

    def __init__(self, lists: Sequence[Lists], given: Mapping[str, str]) -> None:
        self.counts: dict[str, int] = {}
        self.offsets: dict[str, torch.Tensor] = {}
        self._first: dict[str, Lists] = {}
        self._given = _by_path(lists, given)
        self._levels: dict[Lists, str] = {}
        for each in lists:  # outer ones come first
            level = self._levels[each] = self._name(each)
            self._take(level, each)

    def level(self, lists: Lists | None) -> str:
        """The level of the entries of some lists."""
        return ROWS if lists is None else self._levels[lists]

    def _name(self, lists: Lists) -> str:
        above = self.level(lists.outer)
        if lists.path in self._given:
            return self._as_given(lists, above)
        if not lists.has_name or (not lists.records and lists.outer is None):
            return child_of(above, f"level{lists.depth}")
        try:
            return check_level(child_of(above, _word(lists.path[-1])))
        except ValueError:
            raise ValueError(
                f"field {'.'.join(lists.path)!r:.60} is a list, but its name cannot be that of a level; give one: "
                f"levels={{{'.'.join(lists.path)!r}: {child_of(above, 'entries')!r}}}"
            ) from None

    def _as_given(self, lists: Lists, above: str) -> str:
        wanted = self._given[lists.path]
        level = path_to(wanted)[lists.depth - 1]
        if parent_of(level) != above:
            raise ValueError(
                f"field {'.'.join(lists.path)!r} lies within level {above!r}, so its level cannot be {wanted!r}"
            )
        return level

    def _take(self, level: str, lists: Lists) -> None:
        first = self._first.setdefault(level, lists)
        if first is lists:
            self.counts[level], self.offsets[level] = lists.count, lists.offsets
            return
        both = f"fields {'.'.join(first.path)!r} and {'.'.join(lists.path)!r}"
        if lists.records and lists.path not in self._given:
            raise ValueError(f"{both} would both be level {level!r}; give one of them another: levels={{…}}")
        if not _same(first.offsets, lists.offsets):
            raise RaggednessError(
                f"{both} share level {level!r}, but have lists of lengths {preview_lengths(first.offsets)} and "
                f"{preview_lengths(lists.offsets)}; give one of them another: "
                f"levels={{{'.'.join(lists.path)!r}: {child_of(parent_of(level) or ROWS, 'another')!r}}}"
            )


def _word(name: str) -> str:
    """A field's name as one word of a level's name."""
    if "." in name or name == ROWS:
        raise ValueError(name)
    return name


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    return one.numel() == other.numel() and torch.equal(one.to(torch.int64), other.to(torch.int64))


def _by_path(lists: Sequence[Lists], given: Mapping[str, str]) -> dict[Path, str]:
    """Levels that were given by the names or paths of fields, by path."""
    depths: dict[Path, int] = {each.path: each.depth for each in lists}  # the innermost list of a field counts
    found: dict[Path, str] = {}
    for key, level in given.items():
        matching = [path for path in depths if ".".join(path) == key] or [
            path for path in depths if path[-1:] == (key,)
        ]
        if len(matching) != 1:
            several = "several fields" if matching else "no field that is a list"
            raise KeyError(f"{key!r:.60} names {several}; lists are {['.'.join(path) for path in depths]}")
        if depth_of(check_level(level)) != depths[matching[0]]:
            raise ValueError(
                f"field {key!r:.60} has {depths[matching[0]]} lists around its entries, so its level has as many "
                f"words, got {level!r:.60}"
            )
        found[matching[0]] = level
    return found
