"""SVG text: elements, shapes in the colours of the page, and the Drawing that notebooks show.

Only presentation attributes are used, no classes and no ids: a drawing inside a page changes nothing else there. What a
shape stands for is its `data-kind`.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Point = tuple[float, float]

INK = "currentColor"
BLUE, GREEN, PURPLE, ORANGE = "#4f8fd9", "#4fa36c", "#9a76c9", "#c8691c"  # middle tones, for light and dark pages
FONT_SIZE = 12.0
MARGIN = 10.0

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A drawing that is not part of a page (a file, an image) has no colour to inherit: one that is readable on both.
_STYLE = "svg:root { color: #777 }"


@dataclass(frozen=True)
class Drawing:
    """A picture. Notebooks show it; elsewhere `save` it, or take its `svg` text.

    >>> from serrate.fusion import IterDomain
    >>> from serrate.viz import draw_axes
    >>> drawing = draw_axes(IterDomain.split(IterDomain(6), 4))
    >>> drawing.svg.startswith("<svg")
    True
    """

    svg: str = field(repr=False)
    width: float
    height: float

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Element:
    """An SVG element."""

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    children: tuple[Element, ...] = ()
    text: str = ""

    def lines(self, indent: str = "") -> Iterator[str]:
        """The text of the element, line by line."""
        attributes = "".join(f' {name}="{escaped(value)}"' for name, value in self.attributes)
        if not self.children:
            end = f">{escaped(self.text)}</{self.tag}>" if self.text else "/>"
            yield f"{indent}<{self.tag}{attributes}{end}"
            return
        yield f"{indent}<{self.tag}{attributes}>"
        for child in self.children:
            yield from child.lines(indent + " ")
        yield f"{indent}</{self.tag}>"


def escaped(text: str) -> str:
    """`text` as it may stand in XML; characters that XML does not have are replaced."""
    text = _ILLEGAL.sub("\ufffd", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def number(value: float) -> str:
    """A coordinate, to a hundredth."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def element(tag: str, *children: Element, text: str = "", **attributes: str | float | None) -> Element:
    """An element; `data_kind` is the attribute data-kind, numbers are rounded, None is left out."""
    made = tuple(
        (name.replace("_", "-"), value if isinstance(value, str) else number(value))
        for name, value in attributes.items()
        if value is not None
    )
    return Element(tag, made, children, text)


def group(kind: str, *children: Element, tooltip: str = "") -> Element:
    """Elements that belong together; pages show the tooltip."""
    title = (element("title", text=tooltip),) if tooltip else ()
    return element("g", *title, *children, data_kind=kind)


def rectangle(
    kind: str,
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = "none",
    opacity: float = 0.2,
    stroke: str = INK,
    thickness: float = 1.0,
    dashed: bool = False,
    radius: float = 4.0,
) -> Element:
    """A box, filled so that text on it stays readable."""
    return element(
        "rect",
        data_kind=kind,
        x=x,
        y=y,
        width=width,
        height=height,
        rx=radius or None,
        fill=fill,
        fill_opacity=None if fill == "none" else opacity,
        stroke=stroke,
        stroke_width=thickness,
        stroke_dasharray="3 2" if dashed else None,
    )


def label(
    text: str,
    x: float,
    baseline: float,
    *,
    size: float = FONT_SIZE,
    anchor: str = "start",
    bold: bool = False,
    color: str = INK,
) -> Element:
    """Text at a place."""
    return element(
        "text",
        text=text,
        x=x,
        y=baseline,
        font_size=size,
        text_anchor=None if anchor == "start" else anchor,
        font_weight="bold" if bold else None,
        fill=color,
    )


def line(points: Sequence[Point], *, opacity: float = 0.7, arrow: bool = False) -> Element:
    """A line through points, with a head at its end if it is an `arrow`, whose last part goes down."""
    along = [f"{'L' if number_of else 'M'}{number(x)} {number(y)}" for number_of, (x, y) in enumerate(points)]
    if arrow:
        x, y = points[-1]
        along += [f"M{number(x - 3)} {number(y - 5)}", f"L{number(x)} {number(y)}", f"L{number(x + 3)} {number(y - 5)}"]
    return element("path", data_kind="line", d=" ".join(along), fill="none", stroke=INK, stroke_opacity=opacity)


def text_width(text: str, size: float = FONT_SIZE, bold: bool = False) -> float:
    """How wide text is in a monospaced font, a little generously."""
    columns = sum(_columns(character) for character in text)
    return columns * size * (0.64 if bold else 0.62)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clipped(text: str, limit: int) -> str:
    """`text`, of which the middle is left out if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[len(text) - tail :]}"


def drawing(elements: Sequence[Element], width: float, height: float, what: str) -> Drawing:
    """The picture of elements that lie between (0, 0) and (width, height); `what` is for those who cannot see it."""
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    root = element(
        "svg",
        element("style", text=_STYLE),
        *elements,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=" ".join(map(number, (-MARGIN, -MARGIN, width, height))),
        font_family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
        role="img",
        aria_label=what,
    )
    return Drawing("\n".join(root.lines()) + "\n", round(width, 2), round(height, 2))
