"""Padded and packed batches in plain Python: nested lists filled up, and where the entries of each row lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.table.oracle import Plain, flat, nested, trail


@dataclass(frozen=True)
class Axis:
    """How long the padded lists of a level are, on which side padding goes, and after how many entries they are cut."""

    size: int
    side: str = "right"
    cut: int | None = None


def padded(lists: Any, axes: Sequence[Axis], fill: Any, leaf: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
    """Nested lists with every list brought to the size of its axis."""
    if not axes:
        return leaf(lists)
    axis, inner = axes[0], axes[1:]
    kept = [padded(one, inner, fill, leaf) for one in lists[: axis.cut]]
    blank = [filled([each.size for each in inner], fill) for _ in range(axis.size - len(kept))]
    return kept + blank if axis.side == "right" else blank + kept


def filled(sizes: Sequence[int], value: Any) -> Any:
    return [filled(sizes[1:], value) for _ in range(sizes[0])] if sizes else value


def mask(table: Plain, level: str, axes: Sequence[Axis]) -> Any:
    """Where the padded lists of a level hold an entry."""
    return padded(nested(table.top, trail(table, level), lambda _: True), axes, False)


def segments(table: Plain, level: str) -> tuple[list[int], list[int], list[int]]:
    """For the entries of a level: where each row's begin and end, each entry's row, and its place in the row."""
    counts = [len(flat(nested(row, trail(table, level)[1:], lambda e: e), depth(table, level))) for row in table.rows]
    ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
    row_of = [i for i, count in enumerate(counts) for _ in range(count)]
    return ends, row_of, [j for count in counts for j in range(count)]


def depth(table: Plain, level: str) -> int:
    """How many lists stand between a row and the entries of a level."""
    return len(trail(table, level)) - 1
