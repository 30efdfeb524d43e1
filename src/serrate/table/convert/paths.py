"""Paths: where the columns of a table lie among the records of another format, so that `fields` finds them there again.

A level is a list of records, with a field for each column and for each level below. Two kinds of levels are plainer:

- one without columns, with a single level below that is called "level" and its depth, is a list of lists;
- one inside another, with a single column of its own name and nothing below, is a list of that column's values.
"""

from __future__ import annotations

from serrate.table.schema import ROWS, Column, Schema, depth_of, parent_of


class Paths:
    """The fields of the columns of a table.

    >>> import torch
    >>> columns = {"time": Column("rows", torch.int64), "visits.time": Column("visits", torch.int64)}
    >>> Paths(Schema(["rows", "visits"], columns)).names
    {'time': 'time', 'visits.time': 'time'}
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = self._names()
        """For each column what its field is called: its name, or the last word of it where the rest is its path."""

    def only_lists(self, level: str) -> str | None:
        """The level whose lists are the entries of this one, if they have nothing else."""
        below = self.schema.children(level)
        if level == ROWS or self.schema.columns_at(level) or len(below) != 1:
            return None
        return below[0] if below[0].rpartition(".")[2] == f"level{depth_of(below[0])}" else None

    def only_values(self, level: str) -> str | None:
        """The column whose values are the entries of a level, if they have nothing else."""
        name = self._alone(level)
        return name if name is not None and self.names[name] == self._path(level)[-1] else None

    def _alone(self, level: str) -> str | None:
        """The only column of a level inside another, if it has the name of the level, or its path."""
        columns, path = self.schema.columns_at(level), self._path(level)
        if len(path) < 2 or self.schema.children(level) or len(columns) != 1:
            return None
        return columns[0] if columns[0] in (path[-1], ".".join(path)) else None

    def _path(self, level: str) -> tuple[str, ...]:
        """The fields that lead to a level, those right inside another not named."""
        above = parent_of(level)
        if above is None:
            return ()
        outer = self._path(above)
        return outer if self.only_lists(above) == level else (*outer, level.rpartition(".")[2])

    def _names(self) -> dict[str, str]:
        """Where `fields.column_names` makes the same names of the paths again, last words; otherwise names."""
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
        """The last word of a column's name, if the rest is its path, and whether it is."""
        assert column.level is not None
        path = self._path(column.level)
        if self._alone(column.level) == name:
            return path[-1], name == ".".join(path)
        prefix = "".join(f"{word}." for word in path)
        last = name.removeprefix(prefix)
        return (last, True) if name.startswith(prefix) and "." not in last else (name, False)
