"""Paths: where the columns of a table are among the records of another format, so that `fields` finds them again.

A level becomes a list of records, with a field for each column and for each level below. Two kinds of levels are
simpler:

- A level without columns, with one level below that is called "level" and its depth, becomes a list of lists.
- A level within a level, with one column of the same name and nothing below, becomes a list of the column's values.
"""

from __future__ import annotations

from serrate.table.schema import ROWS, Column, Schema, depth_of, parent_of


class Paths:
    """The fields for the columns of a table.

    >>> import torch
    >>> columns = {"time": Column("rows", torch.int64), "visits.time": Column("visits", torch.int64)}
    >>> Paths(Schema(["rows", "visits"], columns)).names
    {'time': 'time', 'visits.time': 'time'}
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = self._names()
        """The name of the field of each column: its own name, or only the last word if the rest is its path."""

    def only_lists(self, level: str) -> str | None:
        """Return the level whose lists are all that the entries of this level have; None if they have more."""
        below = self.schema.children(level)
        if level == ROWS or self.schema.columns_at(level) or len(below) != 1:
            return None
        return below[0] if below[0].rpartition(".")[2] == f"level{depth_of(below[0])}" else None

    def only_values(self, level: str) -> str | None:
        """Return the column whose values are all that the entries of a level have; None if they have more."""
        name = self._alone(level)
        return name if name is not None and self.names[name] == self._path(level)[-1] else None

    def _alone(self, level: str) -> str | None:
        """Return the only column of a level within a level if it has the level's name or path; otherwise None."""
        columns, path = self.schema.columns_at(level), self._path(level)
        if len(path) < 2 or self.schema.children(level) or len(columns) != 1:
            return None
        return columns[0] if columns[0] in (path[-1], ".".join(path)) else None

    def _path(self, level: str) -> tuple[str, ...]:
        """Return the names of the fields that lead to a level; a list right inside a list adds no name."""
        above = parent_of(level)
        if above is None:
            return ()
        outer = self._path(above)
        return outer if self.only_lists(above) == level else (*outer, level.rpartition(".")[2])

    def _names(self) -> dict[str, str]:
        """Return the last word of a name if `fields.column_names` can restore the whole name; otherwise the name."""
        together: dict[str, list[tuple[str, bool]]] = {}
        for name, column in self.schema.items():
            last, is_path = self._last(name, column)
            together.setdefault(last, []).append((name, is_path))
        names: dict[str, str] = {}
        for last, group in together.items():
            shorten = len(group) > 1 and all(is_path for _, is_path in group)
            names |= {name: last if shorten else name for name, _ in group}
        return {name: names[name] for name in self.schema}

    def _last(self, name: str, column: Column) -> tuple[str, bool]:
        """Return the last word of the name of a column if the rest is its path, or else the name; and whether it is."""
        assert column.level is not None
        path = self._path(column.level)
        if self._alone(column.level) == name:
            return path[-1], name == ".".join(path)
        prefix = "".join(f"{word}." for word in path)
        last = name.removeprefix(prefix)
        return (last, True) if name.startswith(prefix) and "." not in last else (name, False)
