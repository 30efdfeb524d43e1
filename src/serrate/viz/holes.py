"""The cells of axes and of the steps between them, where extents are known and small: valid ones, holes, those cut."""

from __future__ import annotations

from collections.abc import Callable

from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.expressions import AxisExpression, Combine, Cover, Merge, Partition, Resize, Split
from serrate.fusion.scalar import const
from serrate.viz.items import CellKind, Cells

MOST_CELLS = 36  # in a row
MOST_ROWS = 16

_Line = tuple[CellKind, ...]
_LinesOf = Callable[[int], list[_Line]]


def known_extents(axis: IterDomain) -> tuple[int, ...] | None:
    """The extent of an axis, of each component of a ragged one; None where they are not constants."""
    if not axis.is_ragged:
        return (axis.extent.value,) if axis.extent.is_const else None
    raggedness = ragged(axis).raggedness
    if not raggedness.count.is_const or raggedness.count.value > MOST_CELLS:
        return None
    extents = [raggedness.extent_at(const(component)) for component in range(raggedness.count.value)]
    return tuple(extent.value for extent in extents) if all(extent.is_const for extent in extents) else None


def cells_of_axis(axis: IterDomain) -> Cells | None:
    """A bar of cells, those of different components apart."""
    extents = known_extents(axis)
    if extents is None or not 0 < sum(extents) <= MOST_CELLS:
        return None
    return Cells((tuple(_valid(extent) for extent in extents),))


def cells_of_step(step: AxisExpression) -> Cells | None:
    """How the step arranges indices: a row for each index of the outer axis, for each component one after another."""
    match step:
        case Split():
            return _shown(_split(step))
        case Resize():
            return _shown(_each(step.inputs[0], lambda extent: [_resized(step, extent)]))
        case Cover():
            return _shown(_covered(step))
        case Merge(inputs=(outer, inner)) if not outer.is_ragged and not inner.is_ragged:
            return _shown(_merged(outer, inner))
        case Partition():
            return _shown(_rows(step.outputs[1]))
        case Combine():
            return _shown(_rows(step.inputs[1]))
    return None


def holes_of_step(step: AxisExpression) -> int | None:
    """How many holes a step makes; None where that is known only when the kernel runs."""
    extents = known_extents(step.inputs[0])
    if not step.makes_holes:
        return 0
    if extents is None:
        return None
    match step:
        case Split() if step.factor.is_const:
            factor: int = step.factor.value
            return sum(-extent % factor for extent in extents)
        case Resize():
            return (max(step.left, 0) + max(step.right, 0)) * len(extents)
        case Cover() if step.outputs[0].extent.is_const:
            longest: int = step.outputs[0].extent.value
            return sum(longest - extent for extent in extents)
    return None


def _valid(count: int) -> _Line:
    valid: _Line = ("valid",)
    return valid * count


def _shown(components: list[list[_Line]] | None) -> Cells | None:
    """The cells, unless there are none or too many to look at."""
    if components is None or not any(line for component in components for line in component):
        return None
    rows: list[tuple[_Line, ...]] = []
    for lines in components:
        rows += [()] if rows else []
        rows += [(line,) for line in lines]
    if len(rows) > 2 * MOST_ROWS or max(len(line) for row in rows for line in row) > MOST_CELLS:
        return None
    return Cells(tuple(rows))


def _each(axis: IterDomain, lines: _LinesOf) -> list[list[_Line]] | None:
    extents = known_extents(axis)
    return None if extents is None else [lines(extent) for extent in extents]


def _split(step: Split) -> list[list[_Line]] | None:
    if not step.factor.is_const:
        return None
    factor = step.factor.value

    def lines(extent: int) -> list[_Line]:
        pieces = -(-extent // factor)
        outer, inner = (pieces, factor) if step.inner_split else (factor, pieces)
        if max(outer, inner) > MOST_CELLS:
            return [_valid(MOST_CELLS + 1)]  # too many to be shown
        return [tuple("valid" if o * inner + j < extent else "hole" for j in range(inner)) for o in range(outer)]

    return _each(step.inputs[0], lines)


def _resized(step: Resize, extent: int) -> _Line:
    if extent + abs(step.left) + abs(step.right) > MOST_CELLS:
        return _valid(MOST_CELLS + 1)  # too many to be shown

    def kind(index: int) -> CellKind:
        if not -step.left <= index < extent + step.right:
            return "cut"
        return "valid" if 0 <= index < extent else "hole"

    return tuple(kind(index) for index in range(-max(step.left, 0), extent + max(step.right, 0)))


def _covered(step: Cover) -> list[list[_Line]] | None:
    extents, longest = known_extents(step.inputs[0]), step.outputs[0].extent
    if extents is None or not longest.is_const or longest.value > MOST_CELLS:
        return None
    return [[_valid(extent) + ("hole",) * (longest.value - extent) for extent in extents]]


def _merged(outer: IterDomain, inner: IterDomain) -> list[list[_Line]] | None:
    rows, columns = known_extents(outer), known_extents(inner)
    if rows is None or columns is None or rows[0] > MOST_ROWS or columns[0] > MOST_CELLS:
        return None
    return [[_valid(columns[0])] * rows[0]]


def _rows(axis: IterDomain) -> list[list[_Line]] | None:
    extents = known_extents(axis)
    if extents is None or max(extents, default=0) > MOST_CELLS:
        return None
    return [[_valid(extent)] for extent in extents]
