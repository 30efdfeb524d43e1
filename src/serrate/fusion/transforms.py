"""Steps of the axis table, taken: the axes that come out of splitting, merging, resizing, cutting and combining."""

from __future__ import annotations

from collections.abc import Sequence

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.expressions import Combine, Cover, Merge, Partition, Resize, Split, Swizzle
from serrate.fusion.raggedness import Listed, Pieces, Product, Raggedness, Resized, Scaled
from serrate.fusion.scalar import Scalar, ceildiv, const, scalar
from serrate.fusion.types import IterType


def _name(axis: IterDomain, suffix: str) -> str | None:
    return axis.name + suffix if axis.name else None


def split(axis: IterDomain, factor: Scalar | int, inner_split: bool = True) -> tuple[IterDomain, IterDomain]:
    """(outer, inner) of a Split."""
    factor = scalar(factor)
    if factor.is_const and factor.value <= 0:
        raise ScheduleError(f"{axis} cannot be split by {factor}: a factor must be positive")
    if axis.is_broadcast:
        raise ScheduleError(f"{axis} cannot be split: it is a broadcast axis")
    fixed = IterDomain(factor, iter_type=axis.iter_type, name=_name(axis, "_inner" if inner_split else "_outer"))
    other_name = _name(axis, "_outer" if inner_split else "_inner")
    other: IterDomain
    if axis.is_ragged:
        old = ragged(axis)
        pieces = _pieces(old.raggedness, factor)
        other = RaggedIterDomain.of(pieces, component=old.component, iter_type=axis.iter_type, name=other_name)
    else:
        other = IterDomain(ceildiv(axis.extent, factor), iter_type=axis.iter_type, name=other_name)
        other.bounded_by(ceildiv(axis.bound, factor))
    outputs = (other, fixed) if inner_split else (fixed, other)
    Split((axis,), outputs, factor, inner_split)
    return outputs


def _pieces(raggedness: Raggedness, factor: Scalar) -> Raggedness:
    if isinstance(raggedness, Listed):
        return Listed(tuple(ceildiv(extent, factor) for extent in raggedness.extents))
    if isinstance(raggedness, Scaled) and raggedness.by == factor:  # e[c] · f in pieces of f
        return raggedness.base
    return Pieces(raggedness, factor)


def _iter_type(first: IterDomain, second: IterDomain) -> IterType:
    if first.is_reduction != second.is_reduction:
        raise ScheduleError(f"{first} and {second} cannot be one axis: one is reduced, the other is not")
    return IterType.Iteration if first.is_broadcast and not second.is_broadcast else first.iter_type


def merge(outer: IterDomain, inner: IterDomain, iter_type: IterType | None = None) -> IterDomain:
    """The axis of a Merge; of a Combine, if `inner` is ragged and `outer` its component."""
    if inner.is_ragged and ragged(inner).component is outer:
        return combine(outer, inner, iter_type)
    iter_type = iter_type or _iter_type(outer, inner)
    name = f"{outer.name}{inner.name}" if outer.name and inner.name else None
    made: IterDomain
    if outer.is_ragged and inner.is_ragged:
        left, right = ragged(outer), ragged(inner)
        if left.component is None or left.component is not right.component:
            raise RaggednessError(f"{outer} and {inner} cannot be merged: their component axes differ")
        product = Product(left.raggedness, right.raggedness)
        made = RaggedIterDomain.of(product, component=left.component, iter_type=iter_type, name=name)
    elif outer.is_ragged or inner.is_ragged:
        old, by = (ragged(outer), inner.extent) if outer.is_ragged else (ragged(inner), outer.extent)
        if isinstance(old.raggedness, Listed):
            scaled: Raggedness = Listed(tuple(extent * by for extent in old.raggedness.extents))
        else:
            scaled = Scaled(old.raggedness, by)
        made = RaggedIterDomain.of(scaled, component=old.component, iter_type=iter_type, name=name)
    else:
        made = IterDomain(outer.extent * inner.extent, iter_type=iter_type, name=name)
        made.bounded_by(outer.bound * inner.bound)
    Merge((outer, inner), (made,))
    return made


def check_merge(outer: IterDomain, inner: IterDomain, logical: Sequence[IterDomain]) -> None:
    """Refuse to merge a ragged axis of a tensor with what is only part of its component axis, or comes after it."""
    if inner.is_ragged and ragged(inner).component is outer:
        return
    for rows, other in ((inner, outer), (outer, inner)):
        component = ragged(rows).component if rows.is_ragged and not other.is_ragged else None
        if component is not None and _origins(component, logical) & _origins(other, logical):
            raise ScheduleError(
                f"{outer} and {inner} cannot be merged: {rows} can only be with all of its component axis {component}, "
                f"before it, or with an axis that is no part of that"
            )


def _origins(axis: IterDomain, logical: Sequence[IterDomain]) -> set[IterDomain]:
    """The logical axes that an axis is made of."""
    if axis in logical:
        return {axis}
    before = () if axis.definition is None else axis.definition.inputs
    return {origin for part in before for origin in _origins(part, logical)}


def resize(axis: IterDomain, left: int, right: int) -> IterDomain:
    """The axis of a Resize."""
    if axis.is_broadcast or axis.is_reduction:
        raise ScheduleError(f"{axis} cannot be resized: it is a {axis.iter_type.name} axis")
    made: IterDomain
    if axis.is_ragged:
        old = ragged(axis)
        made = RaggedIterDomain.of(_resized(old.raggedness, left + right), component=old.component, name=axis.name)
    else:
        extent = axis.extent + (left + right)
        if extent.is_const and extent.value < 0:
            raise ScheduleError(f"{axis} cannot be resized by ({left}, {right}): {extent} would be left")
        made = IterDomain(extent, name=axis.name).bounded_by(axis.bound + max(left + right, 0))
    Resize((axis,), (made,), left, right)
    return made


def _resized(raggedness: Raggedness, by: int) -> Raggedness:
    if isinstance(raggedness, Listed) and all(extent.is_const for extent in raggedness.extents):
        return Listed(tuple(const(max(extent.value + by, 0)) for extent in raggedness.extents))
    return Resized(raggedness, by)


def swizzle(x: IterDomain, y: IterDomain, kind: str = "xor") -> tuple[IterDomain, IterDomain]:
    """(x, y′) of a Swizzle."""
    if kind not in ("xor", "shift"):
        raise ScheduleError(f"{x} and {y} cannot be swizzled by {kind!r}: there are 'xor' and 'shift'")
    if x.is_ragged or y.is_ragged:
        raise ScheduleError(f"{x} and {y} cannot be swizzled: only regular axes can")
    if kind == "xor":
        size = y.extent.value if y.extent.is_const else 0
        if x.extent != y.extent or size < 1 or size & (size - 1):
            raise ScheduleError(f"{x} and {y} cannot be swizzled by xor: both need one extent, a power of two")
    outputs = (x.clone(), y.clone())
    Swizzle((x, y), outputs, kind)
    return outputs


def partition(axis: IterDomain, raggedness: Raggedness) -> tuple[IterDomain, RaggedIterDomain]:
    """(component, ragged) of a Partition."""
    if axis.is_ragged:
        raise RaggednessError(f"{axis} is ragged already; combine it with its component axis first")
    total = raggedness.total_bound
    if total.is_const and axis.extent.is_const and total.value > axis.extent.value:
        raise RaggednessError(f"{axis} cannot be partitioned: the extents add up to {total}")
    component = IterDomain(raggedness.count, iter_type=axis.iter_type, name=_name(axis, "c"))
    rows = RaggedIterDomain.of(raggedness, component=component, iter_type=axis.iter_type, name=_name(axis, "r"))
    Partition((axis,), (component, rows))
    return component, rows


def combine(component: IterDomain, rows: IterDomain, iter_type: IterType | None = None) -> IterDomain:
    """The axis of a Combine."""
    if not rows.is_ragged:
        raise RaggednessError(f"{rows} cannot be combined: it is not ragged")
    if ragged(rows).component is not component:
        raise RaggednessError(f"{rows} cannot be combined with {component}, which is not its component axis")
    raggedness = ragged(rows).raggedness
    name = f"{component.name}{rows.name}" if component.name and rows.name else None
    made = IterDomain(raggedness.total, iter_type=iter_type or _iter_type(component, rows), name=name)
    Combine((component, rows), (made,))
    return made.bounded_by(raggedness.total_bound)


def cover(rows: IterDomain) -> IterDomain:
    """The axis of a Cover."""
    longest = ragged(rows).raggedness.longest_bound
    made = IterDomain(longest, iter_type=rows.iter_type, name=rows.name)
    Cover((rows,), (made,))
    return made
