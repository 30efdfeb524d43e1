"""Steps of the axis table, taken: the axes that come out of splitting, merging, resizing, cutting and combining.

What a step makes has the properties of what it is made of, whether that is regular or ragged: the iter type, the
rfactor flag, a name if those have names, and the bound that the host knows. It is run serially: how a loop is run is
said of the axes that come out last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.expressions import Combine, Cover, Merge, Partition, Resize, Split, Swizzle
from serrate.fusion.raggedness import Listed, Pieces, Product, Raggedness, Resized, Scaled, Stored
from serrate.fusion.scalar import Scalar, ceildiv, const, scalar
from serrate.fusion.types import IterType


def _name(axis: IterDomain, suffix: str) -> str | None:
    return axis.name + suffix if axis.name else None


@dataclass(frozen=True)
class _Uniform:
    """The properties of all axes that come out of one step."""

    iter_type: IterType
    is_rfactor_domain: bool

    @classmethod
    def of(cls, *axes: IterDomain, iter_type: IterType | None = None) -> _Uniform:
        """Those of what is made of one axis, or of two."""
        return cls(iter_type or _iter_type(axes[0], axes[-1]), any(axis.is_rfactor_domain for axis in axes))

    def regular(self, extent: Scalar, name: str | None) -> IterDomain:
        return IterDomain(extent, iter_type=self.iter_type, name=name, is_rfactor_domain=self.is_rfactor_domain)

    def ragged(self, raggedness: Raggedness, component: IterDomain | None, name: str | None) -> RaggedIterDomain:
        return RaggedIterDomain.of(
            raggedness,
            component=component,
            iter_type=self.iter_type,
            name=name,
            is_rfactor_domain=self.is_rfactor_domain,
        )


def _iter_type(first: IterDomain, second: IterDomain) -> IterType:
    if first.is_reduction != second.is_reduction:
        raise ScheduleError(f"{first} and {second} cannot be one axis: one is reduced, the other is not")
    return IterType.Iteration if first.is_broadcast and not second.is_broadcast else first.iter_type


def split(axis: IterDomain, factor: Scalar | int, inner_split: bool = True) -> tuple[IterDomain, IterDomain]:
    """(outer, inner) of a Split."""
    factor = scalar(factor)
    if factor.is_const and factor.value <= 0:
        raise ScheduleError(f"{axis} cannot be split by {factor}: a factor must be positive")
    if axis.is_broadcast:
        raise ScheduleError(f"{axis} cannot be split: it is a broadcast axis")
    uniform = _Uniform.of(axis)
    fixed = uniform.regular(factor, _name(axis, "_inner" if inner_split else "_outer"))
    name = _name(axis, "_outer" if inner_split else "_inner")
    other: IterDomain
    if axis.is_ragged:
        old = ragged(axis)
        other = uniform.ragged(_pieces(old.raggedness, factor), old.component, name)
    else:
        other = uniform.regular(ceildiv(axis.extent, factor), name).bounded_by(ceildiv(axis.bound, factor))
    outputs = (other, fixed) if inner_split else (fixed, other)
    Split((axis,), outputs, factor, inner_split)
    return outputs


def _pieces(raggedness: Raggedness, factor: Scalar) -> Raggedness:
    if isinstance(raggedness, Listed):
        return Listed(tuple(ceildiv(extent, factor) for extent in raggedness.extents))
    if isinstance(raggedness, Scaled) and raggedness.by == factor:  # e[c] · f in pieces of f
        return raggedness.base
    return Pieces(raggedness, factor)


def merge(outer: IterDomain, inner: IterDomain, iter_type: IterType | None = None) -> IterDomain:
    """The axis of a Merge; of a Combine, if `inner` is ragged and `outer` its component."""
    if inner.is_ragged and ragged(inner).component is outer:
        return combine(outer, inner, iter_type)
    uniform = _Uniform.of(outer, inner, iter_type=iter_type)
    name = f"{outer.name}{inner.name}" if outer.name and inner.name else None
    made: IterDomain
    if outer.is_ragged and inner.is_ragged:
        left, right = ragged(outer), ragged(inner)
        if left.component is None or left.component is not right.component:
            raise RaggednessError(f"{outer} and {inner} cannot be merged: their component axes differ")
        made = uniform.ragged(Product(left.raggedness, right.raggedness), left.component, name)
    elif outer.is_ragged or inner.is_ragged:
        rows, other = (ragged(outer), inner) if outer.is_ragged else (ragged(inner), outer)
        made = uniform.ragged(_scaled(rows.raggedness, other), rows.component, name)
    else:
        made = uniform.regular(outer.extent * inner.extent, name).bounded_by(outer.bound * inner.bound)
    Merge((outer, inner), (made,))
    return made


def _scaled(raggedness: Raggedness, axis: IterDomain) -> Raggedness:
    by = axis.extent
    if isinstance(raggedness, Listed) and axis.bound == by:
        return Listed(tuple(extent * by for extent in raggedness.extents))
    return Scaled(raggedness, by, axis.bound)


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
    uniform = _Uniform.of(axis)
    made: IterDomain
    if axis.is_ragged:
        old = ragged(axis)
        made = uniform.ragged(_resized(old.raggedness, left + right), old.component, axis.name)
    else:
        extent = axis.extent + (left + right)
        if extent.is_const and extent.value < 0:
            raise ScheduleError(f"{axis} cannot be resized by ({left}, {right}): {extent} would be left")
        made = uniform.regular(extent, axis.name).bounded_by(axis.bound + (left + right))
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
    if axis.is_broadcast:
        raise ScheduleError(f"{axis} cannot be partitioned: it is a broadcast axis")
    if isinstance(raggedness, Stored) and raggedness.size == axis.extent != axis.bound:
        raggedness = replace(raggedness, most=axis.bound)
    total = raggedness.total_bound
    if total.is_const and axis.extent.is_const and total.value > axis.extent.value:
        raise RaggednessError(f"{axis} cannot be partitioned: the extents add up to {total}")
    uniform = _Uniform.of(axis)
    component = uniform.regular(raggedness.count, _name(axis, "c"))
    rows = uniform.ragged(raggedness, component, _name(axis, "r"))
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
    made = _Uniform.of(component, rows, iter_type=iter_type).regular(raggedness.total, name)
    Combine((component, rows), (made,))
    return made.bounded_by(raggedness.total_bound)


def cover(rows: IterDomain) -> IterDomain:
    """The axis of a Cover."""
    made = _Uniform.of(rows).regular(ragged(rows).raggedness.longest_bound, rows.name)
    Cover((rows,), (made,))
    return made
