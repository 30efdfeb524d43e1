"""Measuring: which entries of a row a batch takes, how many they are, and the values that sort rows."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.gathering import gather
from serrate.table.gathering.sources import Pieces, Sources
from serrate.table.loading.batching import CellCount, Measure, Numbers
from serrate.table.loading.sampling import draw, random_key
from serrate.table.schema import ROWS, Schema, path_to
from serrate.table.windowing import check_keep, windowed_level

if TYPE_CHECKING:
    from serrate.table.table import Table

_MOST = 2**62 - 1


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads rows of a table, of each at most `window` entries of one level: the first, the last, or a random run.

    The start of a random run depends only on the seed, the epoch and the row.

    >>> import serrate as sr
    >>> reader = Reader.of(sr.Table({"time": [[0, 3, 9, 12], [2]]}), window=2, keep="tail")
    >>> reader.pieces(torch.tensor([1, 0]), epoch=0).start
    tensor([0, 2])
    """

    table: Table
    sources: Sources = field(repr=False)
    window: int | None = None
    keep: str = "head"
    level: str | None = None
    seed: int = 0

    @classmethod
    def of(
        cls, table: Table, window: int | None = None, keep: str = "head", level: str | None = None, seed: int = 0
    ) -> Reader:
        """Return a reader with these options after checking them."""
        check_keep(keep)
        if window is None:
            if keep != "head" or level is not None:
                raise ValueError("keep and level say which entries a window keeps: give window=… too")
        else:
            window = checked_count("window", window, 0)
            level = windowed_level(table, level)
        return cls(table, Sources(table.sources), window, keep, level, seed)

    def pieces(self, rows: torch.Tensor, epoch: int) -> Pieces:
        """Return what a batch of these rows is made of."""
        pieces = self.table.pieces(rows)
        if self.window is None or self.level is None:
            return pieces
        lengths = gather.row_lengths(self.sources, self.table.schema, pieces, self.level)
        excess = torch.clamp(lengths - self.window, min=0)
        start = torch.zeros_like(lengths)
        if self.keep == "tail":
            start = excess
        elif self.keep == "random":
            start = draw(rows, excess + 1, random_key(self.seed, epoch, "windows"))
        return Pieces(pieces.source, pieces.row, self.level, start, torch.minimum(lengths, start + self.window))

    def lengths(self, level: str) -> Measure:
        """Return a measure: the number of entries of a level that each row has."""

        def measure(rows: torch.Tensor, epoch: int) -> torch.Tensor:
            return gather.row_lengths(self.sources, self.table.schema, self.pieces(rows, epoch), level)

        return measure

    def widths(self, level: str) -> Measure:
        """Return a measure: for each level down to this one the length of the longest list of each row: [n, levels]."""
        path = below_rows(self.table, level)
        schema = Schema([self.table.row_level, *path], {})

        def measure(rows: torch.Tensor, epoch: int) -> torch.Tensor:
            offsets = gather.take(self.sources, schema, self.pieces(rows, epoch)).offsets
            widths = np.zeros((len(rows), len(path)), dtype=np.int64)
            ends = np.arange(len(rows) + 1)  # These are the bounds of the lists of each row.
            for width, below in zip(widths.T, path, strict=True):
                starts: Numbers = offsets[below].numpy()
                some = ends[:-1] < ends[1:]
                if some.any():
                    width[some] = np.maximum.reduceat(np.diff(starts), ends[:-1][some])
                ends = starts[ends]
            return torch.from_numpy(widths)

        return measure

    def values(self, column: str) -> Measure:
        """Return a measure: the values of the rows in a column of theirs."""
        schema = self.table.schema.select([column])

        def measure(rows: torch.Tensor, epoch: int) -> torch.Tensor:
            return gather.take(self.sources, schema, self.table.pieces(rows)).values[column]

        return measure


def bucket_level(table: Table, bucket_by: str) -> str | None:
    """Return the level whose lengths sort the rows; None if the values of a column of the rows sort them."""
    schema = table.schema
    column = schema.get(bucket_by) if isinstance(bucket_by, str) else None
    if column is None:
        if bucket_by in schema.levels and bucket_by != table.row_level:
            return bucket_by
        have = ", ".join(map(repr, (*schema.levels[1:], *schema)))
        raise KeyError(f"bucket_by must name a level below the rows or a column, one of {have}, got {bucket_by!r:.60}")
    if bucket_by in schema.levels and column.level != bucket_by:
        raise ValueError(f"bucket_by={bucket_by!r} names a level, and a column of another level; rename the column")
    if column.level != table.row_level:
        return column.level
    if column.features or column.dtype.is_complex:
        raise TypeError(f"bucket_by sorts rows by a column of single numbers, but {bucket_by!r} is {column}")
    return None


def token_level(table: Table, given: str | None, bucketed: str | None) -> str:
    """Return the level whose entries are counted: the given one, the one that sorts rows, or the only deepest one."""
    schema = table.schema
    if given is not None:
        if given not in schema.levels:
            raise KeyError(f"tokens_at must name a level, one of {', '.join(schema.levels)}, got {given!r:.60}")
        return given
    deepest = [level for level in schema.levels if not schema.children(level)]
    if bucketed is None and len(deepest) != 1:
        raise ValueError(
            f"max_tokens counts the entries of one level: name one of {', '.join(deepest)} with tokens_at="
        )
    return deepest[0] if bucketed is None else bucketed


def padded_cells(table: Table, level: str, dense: Mapping[str, Any]) -> CellCount:
    """Return how to count the cells of a level that `to_dense` pads with these options, which are checked already."""
    sizes, multiples = dense.get("max_lengths"), dense.get("multiple_of", 1)
    path = below_rows(table, level)
    fixed = [sizes.get(above) if isinstance(sizes, Mapping) else sizes for above in path]
    steps = [multiples.get(above, 1) if isinstance(multiples, Mapping) else multiples for above in path]
    return CellCount(True, tuple(None if size is None else int(size) for size in fixed), tuple(map(int, steps)))


def below_rows(table: Table, level: str) -> tuple[str, ...]:
    """Return the levels from right below the rows down to this one."""
    root = table.row_level
    return tuple(above for above in path_to(level) if above != root and root in (ROWS, *path_to(above)))


def checked_count(name: str, given: Any, least: int) -> int:
    """Return an integer that is at least `least`. Very large numbers become the greatest one allowed."""
    if isinstance(given, (bool, np.bool_)) or not hasattr(given, "__index__") or operator.index(given) < least:
        raise ValueError(f"{name} must be an int of {least} or more, got {given!r:.40}")
    return min(operator.index(given), _MOST)
