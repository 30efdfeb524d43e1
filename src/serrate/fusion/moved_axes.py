"""The axes of what operations read elsewhere: rows that are sliced, joined and gathered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.derived_raggedness import Composed, Joined, Sliced, Stacked, interleaved
from serrate.fusion.domain import history
from serrate.fusion.expressions import Combine, component_of
from serrate.fusion.raggedness import Raggedness, Resized
from serrate.fusion.shapes import Pairs, check_same_extent, clones, depends_on, translate_components
from serrate.fusion.view import TensorView


def sliced(rows: Raggedness, start: int | None, stop: int | None) -> Raggedness:
    """The rows of a slice of each row. Slices that cut as many from the two ends together have the same lengths."""
    begin = start or 0
    if begin >= 0 and (stop is None or stop < 0):
        cut = begin - (stop or 0)
        return Resized(rows, -cut) if cut else rows
    return Sliced(rows, start, stop)


def concat_axes(tensors: Sequence[TensorView], at: int) -> list[IterDomain]:
    """The axes of tensors that are put behind each other along one."""
    first = tensors[0].domain.kept
    shapes = " and ".join(map(repr, tensors))
    if any(x.ndim != len(first) for x in tensors):
        raise AxisError(f"concat needs tensors of as many axes, got {shapes}")
    along = [x.domain.kept[at] for x in tensors]
    if len({axis.is_ragged for axis in along}) != 1 or any(axis.is_broadcast for axis in along):
        raise RaggednessError(f"concat along axis {at} needs axes that are all ragged, or all regular, got {shapes}")
    made: dict[IterDomain, IterDomain] = {}
    for number, axis in enumerate(first):
        here = [x.domain.kept[number] for x in tensors]
        if number == at:
            made[axis] = _behind(here)
        elif axis.is_ragged and depends_on(axis, first[at]):
            rows = _below(tensors, number, at, shapes)
            new = made[axis] = RaggedIterDomain.of(rows, name=axis.name)
            new.component = ragged(axis).component  # until it is that of the new axes
        else:
            for other in here[1:]:
                check_same_extent("concat", axis, other, shapes)
            made[axis] = axis.clone()
    translate_components(made)
    return [made[axis] for axis in first]


def _behind(axes: Sequence[IterDomain]) -> IterDomain:
    """Axes behind each other."""
    if axes[0].is_ragged:
        rows: Raggedness = reduce(Joined, [ragged(axis).raggedness for axis in axes])
        return RaggedIterDomain.of(rows, component=ragged(axes[0]).component, name=axes[0].name)
    extent, bound = axes[0].extent, axes[0].bound
    for axis in axes[1:]:
        extent, bound = extent + axis.extent, bound + axis.bound
    return IterDomain(extent, name=axes[0].name).bounded_by(bound)


def _below(tensors: Sequence[TensorView], number: int, at: int, shapes: str) -> Raggedness:
    """The rows of an axis that depends on the one that tensors are put behind each other along."""
    here = [x.domain.kept[number] for x in tensors]
    for axis in here:
        if not axis.is_ragged or component_of(axis).extent != ragged(axis).raggedness.count:
            raise RaggednessError(
                f"concat of {shapes}: {axis} does not have a row for each index of its component axis"
            )
    if not tensors[0].domain.kept[at].is_ragged:
        return reduce(Stacked, [ragged(axis).raggedness for axis in here])
    nested = [
        Composed(_rows_above(axis, x.domain.kept[at]), ragged(axis).raggedness)
        for x, axis in zip(tensors, here, strict=True)
    ]
    return reduce(interleaved, nested).right


def _rows_above(axis: IterDomain, top: IterDomain) -> Raggedness:
    """The rows that a ragged axis has rows for, of each component of an axis further up."""
    step = component_of(axis).definition
    if not isinstance(step, Combine):
        raise RaggednessError(f"{axis} is not a level below {top}: its component axis is made otherwise")
    level = step.inputs[1]
    rows = ragged(level).raggedness
    return rows if level is top else Composed(_rows_above(level, top), rows)


def gather_axes(x: TensorView, indices: TensorView, at: int, batch: int | None) -> tuple[list[IterDomain], Pairs, int]:
    """The axes of what indices choose along an axis, which of them are axes of the indices, and how many both share."""
    axes, places = x.domain.kept, indices.domain.kept
    chosen = axes[at]
    if any(axis.is_ragged and depends_on(axis, chosen) for axis in axes):
        raise RaggednessError(f"gather along {chosen} of {x}: a ragged axis depends on it")
    shared = (at if chosen.is_ragged else 0) if batch is None else batch
    if not 0 <= shared <= min(at, indices.ndim):
        raise AxisError(f"gather along axis {at} of {x} by {indices} cannot share {shared} axes")
    for axis, place in zip(axes[:shared], places[:shared], strict=True):
        check_same_extent("gather", axis, place, f"{x} by {indices}")
    before = axes[shared:at]
    for axis in axes if chosen.is_ragged else ():
        if depends_on(chosen, axis) and axis in before:
            raise RaggednessError(f"gather along {chosen} of {x} shares the axes before it, got {shared} shared axes")
    root, pairs = clones(places)
    made = dict(zip(axes[:shared], root[:shared], strict=True))
    rest = [axis for number, axis in enumerate(axes) if number >= shared and number != at]
    made.update((axis, axis.clone()) for axis in rest)
    made.update((axis, axis) for step in history(root) for axis in step.outputs)  # what rows depend on already
    translate_components(made)
    fresh = [made[axis] for axis in rest]
    # The axes before the one that is chosen along, those of the indices, and the others.
    middle = len(before)
    return [*root[:shared], *fresh[:middle], *root[shared:], *fresh[middle:]], pairs, shared
