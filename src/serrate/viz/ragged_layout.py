"""Drawings of ragged layouts: packed values with their offsets, and the same values row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from serrate.fusion.axes import RaggedIterDomain
from serrate.fusion.raggedness import Raggedness
from serrate.tensor.partition import Partition
from serrate.viz.arrange import separated_centres
from serrate.viz.svg import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    Drawing,
    Element,
    drawing,
    element,
    group,
    label,
    line,
    number,
    rectangle,
    text_width,
)

MOST_VALUES = 48
MOST_COMPONENTS = 24
MOST_FEATURES = 8

_WIDTH, _HEIGHT, _SMALL = 24.0, 18.0, 9.0  # of a cell; how high it is as one of several features
_FILLS = (BLUE, ORANGE, GREEN, PURPLE)
_TEXT = 10.0
_EXPECTED = "draw_layout takes a Partition, a Raggedness, a ragged axis or offsets (a list, an array or a tensor)"


def draw_layout(layout: Partition | Raggedness | RaggedIterDomain | Any, features: int | None = None) -> Drawing:
    """Values as they lie in memory, cut at their offsets, and below them the rows. With `features`, each value is a
    column of so many.

    Of large layouts the beginning is drawn, and the last offset.

    >>> import serrate as sr
    >>> from serrate.viz import draw_layout
    >>> drawing = draw_layout(sr.Partition.from_lengths([3, 5, 2]))
    >>> [offset in drawing.svg for offset in (">0<", ">3<", ">8<", ">10<")]
    [True, True, True, True]
    """
    offsets = _offsets(layout)
    shown = _shown(offsets, _features(features))
    packed, right, bottom = _packed(shown)
    rows, rows_right, rows_bottom = _rows(shown, bottom + 14)
    return drawing([packed, rows], max(right, rows_right), rows_bottom, "ragged layout")


def _features(features: int | None) -> int:
    if features is None:
        return 1
    if isinstance(features, bool) or not isinstance(features, int):
        raise TypeError(f"features must be an int or None, got {type(features).__name__}")
    if features < 1:
        raise ValueError(f"features must be 1 or more, got {features}")
    return features


def _offsets(layout: Any) -> list[int]:
    if isinstance(layout, RaggedIterDomain):
        layout = layout.raggedness
    if isinstance(layout, Raggedness):
        return _known_offsets(layout)
    if isinstance(layout, (Sequence, np.ndarray, torch.Tensor)) and not isinstance(layout, (str, bytes)):
        layout = Partition.from_offsets(layout)
    if not isinstance(layout, Partition):
        raise TypeError(f"{_EXPECTED}, got {type(layout).__name__}")
    return [int(offset) for offset in layout.host_offsets("drawing a layout").tolist()]


def _known_offsets(raggedness: Raggedness) -> list[int]:
    if not raggedness.base_arrays:
        try:
            return [int(offset) for offset in raggedness.offsets({}, {}).tolist()]
        except KeyError:  # an extent that is a symbol
            pass
    raise ValueError(f"the extents of {raggedness} are known only when it runs; give their offsets instead")


@dataclass(frozen=True)
class _Shown:
    """What is drawn of a layout: for each component its offset and how many of its values."""

    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    lengths: tuple[int, ...]
    last: int | None  # the last offset, if something before it is left out
    left_out: str
    features: int

    @property
    def bands(self) -> int:
        """Cells in a column."""
        return min(self.features, MOST_FEATURES)

    @property
    def column(self) -> float:
        """The height of a column."""
        return _HEIGHT if self.bands == 1 else _SMALL * self.bands


def _shown(offsets: list[int], features: int) -> _Shown:
    room = MOST_VALUES
    lengths = [end - start for start, end in pairwise(offsets)]
    counts: list[int] = []
    for length in lengths[:MOST_COMPONENTS]:
        if room == 0 and length > 0:
            break
        counts.append(min(length, room))
        room -= counts[-1]
    complete = counts == lengths
    starts = offsets[: len(counts)] + ([offsets[-1]] if complete else [])
    hidden = len(lengths) - len(counts)
    values = offsets[-1] - sum(counts)
    left_out = "" if complete else f"… {values} more values" + (f", {hidden} more components" if hidden else "")
    last = None if complete else offsets[-1]
    return _Shown(tuple(starts), tuple(counts), tuple(lengths[: len(counts)]), last, left_out, features)


def _packed(shown: _Shown) -> tuple[Element, float, float]:
    """The values one after another with the offsets under them: the elements, their right end and their bottom."""
    texts = [*map(str, shown.offsets), *([] if shown.last is None else [str(shown.last)])]
    borders = [count * _WIDTH for count in accumulate(shown.counts, initial=0)]
    borders[-1] += _WIDTH if shown.last is not None else 0.0  # what is left out
    widths = [text_width(text, _TEXT) for text in texts]
    centres = separated_centres(borders, widths, 6.0)
    left = min(0.0, centres[0] - widths[0] / 2)
    borders, centres = [x - left for x in borders], [x - left for x in centres]
    made: list[Element] = []
    value = 0
    for component, (count, start) in enumerate(zip(shown.counts, borders[: len(shown.counts)], strict=True)):
        for position in range(count):
            made += _column("packed", shown, component, value, start + position * _WIDTH, 0.0)
            value += 1
    if shown.last is not None:
        made.append(label("…", borders[-1] - _WIDTH / 2, shown.column / 2 + 4, anchor="middle"))
    made += [_border(x, shown.column) for x in borders]
    made.append(_offset_marks(texts, borders, centres, shown.column + 4))
    return group("memory", *made), max(borders[-1], centres[-1] + widths[-1] / 2), shown.column + 36


def _border(x: float, column: float) -> Element:
    ends = f"M{number(x)} -4 L{number(x)} {number(column + 4)}"
    return element("path", data_kind="border", d=ends, stroke=INK, stroke_width=2.0)


def _offset_marks(texts: list[str], borders: list[float], centres: list[float], y: float) -> Element:
    """Offsets under their borders, side by side where borders are close or the same."""
    made: list[Element] = []
    for text, border, centre in zip(texts, borders, centres, strict=True):
        made.append(line([(border, y), (centre, y + 14)], opacity=0.5))
        made.append(group("offset", label(text, centre, y + 26, size=_TEXT, anchor="middle")))
    return group("offsets", *made)


def _rows(shown: _Shown, top: float) -> tuple[Element, float, float]:
    """The components below each other: the elements, their right end and their bottom."""
    made: list[Element] = []
    names = [f"{component}: {length}" for component, length in enumerate(shown.lengths)]
    start = max((text_width(name, _TEXT) for name in names), default=0.0) + 8
    right, y = start, top
    for component, (name, count) in enumerate(zip(names, shown.counts, strict=True)):
        made.append(label(name, 0.0, y + shown.column / 2 + 4, size=_TEXT))
        for position in range(count):
            x = start + position * _WIDTH
            made += _column("row", shown, component, shown.offsets[component] + position, x, y)
        end = start + count * _WIDTH
        if count < shown.lengths[component]:
            made.append(label("…", end + 6, y + shown.column / 2 + 4))
            end += _WIDTH
        right, y = max(right, end), y + shown.column + 5
    for note in filter(None, (shown.left_out, _hidden_features(shown))):
        made.append(group("note", label(note, 0.0, y + 10, size=_TEXT)))
        right, y = max(right, text_width(note, _TEXT)), y + 16
    return group("rows", *made), right, y


def _hidden_features(shown: _Shown) -> str:
    return f"{shown.bands} of {shown.features} features" if shown.bands < shown.features else ""


def _column(kind: str, shown: _Shown, component: int, value: int, x: float, y: float) -> list[Element]:
    """A value: a cell with its number in it, or a column of cells."""
    filled = sum(
        length > 0 for length in shown.lengths[:component]
    )  # neighbours differ, empty rows between them or not
    fill = _FILLS[filled % len(_FILLS)]
    height = shown.column / shown.bands
    made = [
        rectangle(kind, x + 1, y + band * height + 0.5, _WIDTH - 2, height - 1, fill=fill, opacity=0.3, radius=1)
        for band in range(shown.bands)
    ]
    if shown.bands == 1:
        made.append(label(str(value), x + _WIDTH / 2, y + height / 2 + 3.5, size=_TEXT, anchor="middle"))
    return made
