"""Blocks: texts, rows of cells and boxes, which know their size and can be drawn at a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from serrate.viz.svg import FONT_SIZE, INK, Element, clipped, group, label, rectangle, text_width

CellKind = Literal["valid", "hole", "cut"]

CELL = 11.0  # width and height of a cell
SPACE = 4.0  # between components, and between items of a box
PADDING = 8.0


class Item:
    """Something with a size."""

    @cached_property
    def size(self) -> tuple[float, float]:
        """(width, height)."""
        return self._measured()

    @property
    def width(self) -> float:
        """How wide it is."""
        return self.size[0]

    @property
    def height(self) -> float:
        """How high it is."""
        return self.size[1]

    def draw(self, x: float, y: float, width: float | None = None) -> Element:
        """It, with (x, y) as its upper left corner; one that can grow is `width` wide."""
        return self._drawn(x, y, self.width if width is None else width)

    def _measured(self) -> tuple[float, float]:
        raise NotImplementedError

    def _drawn(self, x: float, y: float, width: float) -> Element:
        raise NotImplementedError


@dataclass(frozen=True)
class Text(Item):
    """A line of text, its middle left out where it is longer than `limit`."""

    text: str
    bold: bool = False
    color: str = INK
    font_size: float = FONT_SIZE
    limit: int = 100
    kind: str = "text"

    def _measured(self) -> tuple[float, float]:
        width = text_width(clipped(self.text, self.limit), self.font_size, self.bold)
        height = self.font_size * 1.3
        return width, height

    def _drawn(self, x: float, y: float, width: float) -> Element:
        shown = clipped(self.text, self.limit)
        drawn = label(shown, x, y + self.font_size, size=self.font_size, bold=self.bold, color=self.color)
        return group(self.kind, drawn, tooltip="" if shown == self.text else self.text)


@dataclass(frozen=True)
class Cells(Item):
    """Rows of cells. Each entry of `rows` is a row of components, each a sequence of cells; an empty row is a space."""

    rows: tuple[tuple[tuple[CellKind, ...], ...], ...]

    def _measured(self) -> tuple[float, float]:
        width = max(sum(map(len, row)) * CELL + max(len(row) - 1, 0) * SPACE for row in self.rows)
        height = sum(CELL if row else SPACE for row in self.rows)
        return width, height

    def _drawn(self, x: float, y: float, width: float) -> Element:
        made: list[Element] = []
        for row in self.rows:
            at = x
            for component in row:
                for cell in component:
                    made.append(_cell(cell, at, y))
                    at += CELL
                at += SPACE
            y += CELL if row else SPACE
        return group("cells", *made)


def _cell(kind: CellKind, x: float, y: float) -> Element:
    side = CELL - 1
    if kind == "hole":
        return rectangle(kind, x, y, side, side, fill=INK, opacity=0.45, radius=1)
    return rectangle(kind, x, y, side, side, radius=1, dashed=kind == "cut")


@dataclass(frozen=True)
class Row(Item):
    """Blocks side by side."""

    items: tuple[Item, ...]

    def _measured(self) -> tuple[float, float]:
        width = sum(item.width for item in self.items) + PADDING * (len(self.items) - 1)
        height = max(item.height for item in self.items)
        return width, height

    def _drawn(self, x: float, y: float, width: float) -> Element:
        made: list[Element] = []
        for item in self.items:
            made.append(item.draw(x, y + (self.height - item.height) / 2))
            x += item.width + PADDING
        return group("row", *made)


@dataclass(frozen=True)
class Box(Item):
    """Blocks above each other with a border around them; boxes among them are as wide as it allows."""

    kind: str
    items: tuple[Item, ...]
    fill: str = "none"
    stroke: str = INK
    thickness: float = 1.0
    dashed: bool = False
    centred: bool = False
    padding: float = PADDING / 2
    tooltip: str = ""

    def _measured(self) -> tuple[float, float]:
        width = max((item.width for item in self.items), default=0.0) + 2 * PADDING
        inside = sum(item.height for item in self.items) + SPACE * max(len(self.items) - 1, 0)
        height = inside + 2 * self.padding
        return width, height

    def _drawn(self, x: float, y: float, width: float) -> Element:
        border = rectangle(
            self.kind,
            x,
            y,
            width,
            self.height,
            fill=self.fill,
            opacity=0.15,
            stroke=self.stroke,
            thickness=self.thickness,
            dashed=self.dashed,
        )
        made, below = [border], y + self.padding
        room = width - 2 * PADDING
        for item in self.items:
            wide = room if isinstance(item, Box) else item.width
            made.append(item.draw(x + PADDING + ((room - wide) / 2 if self.centred else 0.0), below, wide))
            below += item.height + SPACE
        return group(self.kind, *made, tooltip=self.tooltip)


def chip(text: str, fill: str = "none", kind: str = "chip") -> Box:
    """A word in a small box of its own."""
    return Box(kind, (Text(text, font_size=FONT_SIZE - 1, limit=40),), fill=fill, padding=1.0)


def stacked(items: Sequence[Item], y: float = 0.0) -> tuple[list[Element], float, float]:
    """Blocks below each other from `y` on: the elements, how wide they are, and where the next would begin."""
    made: list[Element] = []
    for item in items:
        made.append(item.draw(0.0, y))
        y += item.height + SPACE
    return made, max((item.width for item in items), default=0.0), y
