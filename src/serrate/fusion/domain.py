"""TensorDomain: the axes of a tensor in four orders, each made from the one before.

root        as its operands have them
logical     as its users see them
allocation  as it lies in memory
loop        as its loops walk it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.expressions import AxisExpression, Combine, Merge, Partition, Resize
from serrate.fusion.transforms import combine, merge
from serrate.fusion.types import IterType


class TensorDomain:
    """The axes of a tensor.

    A ragged axis that names no component takes the nearest axis before it of as many indices as it has components.

    >>> from serrate.fusion import IterDomain, RaggedIterDomain, TensorDomain
    >>> batch, feature = IterDomain(3), IterDomain(4)
    >>> rows = RaggedIterDomain([IterDomain(3), IterDomain(5), IterDomain(2)])
    >>> domain = TensorDomain([batch, rows, feature])
    >>> domain.allocation
    (iS{10}, iS{4})
    """

    def __init__(
        self,
        root: Sequence[IterDomain],
        logical: Sequence[IterDomain] | None = None,
        allocation: Sequence[IterDomain] | None = None,
        loop: Sequence[IterDomain] | None = None,
    ) -> None:
        self.root = tuple(root)
        for axis in self.root:
            if axis.start != 0:
                raise ValueError(f"{axis} starts at {axis.start}: the axes of a tensor start at 0; slice it instead")
        _pair_components(self.root)
        self.logical = self.root if logical is None else tuple(logical)
        self.loop = self.logical if loop is None else tuple(loop)
        for axes in (self.root, self.logical, self.loop):
            check_once(axes)
        if allocation is not None:
            check_allocation(allocation, self.kept)
        self.own_allocation = None if allocation is None else tuple(allocation)  # if not as usual
        self._packed: tuple[IterDomain, ...] | None = None

    @property
    def kept(self) -> tuple[IterDomain, ...]:
        """The logical axes that the tensor has: all but the reduced ones."""
        return tuple(axis for axis in self.logical if not axis.is_reduction)

    @property
    def allocation(self) -> tuple[IterDomain, ...]:
        """The axes as they lie in memory: those that were set, else rows packed one after another."""
        if self.own_allocation is not None:
            return self.own_allocation
        if self._packed is None:
            self._packed = packed([axis for axis in self.kept if not axis.is_broadcast])
        return self._packed

    @allocation.setter
    def allocation(self, axes: Sequence[IterDomain]) -> None:
        self.own_allocation = tuple(axes)

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.loop))}]"


def _pair_components(axes: tuple[IterDomain, ...]) -> None:
    for position, axis in enumerate(axes):
        if not axis.is_ragged or ragged(axis).component is not None:
            continue
        count = ragged(axis).raggedness.count
        before = reversed(axes[:position])
        candidates = [other for other in before if not other.is_ragged and other.extent == count]
        if not candidates:
            raise RaggednessError(f"{axis} has {count} components, but no axis before it in {list(axes)} has as many")
        ragged(axis).component = candidates[0]


def check_once(axes: Sequence[IterDomain]) -> None:
    """Refuse an axis that stands twice among the axes of a tensor: it has only one index."""
    for position, axis in enumerate(axes):
        if axis in axes[:position]:
            raise ValueError(f"{axis} stands twice in {list(axes)}; the axes of a tensor are each another, so clone it")


def check_allocation(axes: Sequence[IterDomain], kept: Sequence[IterDomain], of: str = "") -> None:
    """Refuse an allocation in which elements of a tensor with the axes `kept` have no place, or more than one.

    Each step from the logical axes to those in memory uses up what it takes, and all that is left at the end must lie
    in memory: both parts of a split, and each axis once. Nothing may be cut off.
    """
    if any(axis.is_ragged for axis in axes):
        raise RaggednessError(f"{list(axes)}{of}: a ragged axis lies in memory combined with its component")
    taken: dict[IterDomain, AxisExpression] = {}  # the step that uses up an axis

    def take(axis: IterDomain) -> None:
        if axis in kept:
            return
        step, where = axis.definition, f"{axis}{of} cannot be part of the allocation {list(axes)}"
        if step is None:
            raise ScheduleError(f"{where}: it is not made of {list(kept)}")
        if (isinstance(step, Resize) and step.cuts) or (isinstance(step, Partition) and not step.covers):
            raise ScheduleError(f"{where}: {step} cuts elements off")
        for before in step.inputs:
            if taken.setdefault(before, step) is not step:
                raise ScheduleError(f"{where}: {before} is used by {taken[before]} already")
            take(before)

    for axis in axes:
        take(axis)
    for position, axis in enumerate(axes):
        if axis in axes[:position] or axis in taken:
            how = f", as it is and by {taken[axis]}" if axis in taken else ""
            raise ScheduleError(f"{axis}{of} is twice in the allocation {list(axes)}{how}")
    for axis in (*kept, *(made for step in taken.values() for made in step.outputs)):
        if axis not in taken and axis not in axes and not axis.is_broadcast:
            raise ScheduleError(f"{axis}{of} is missing in the allocation {list(axes)}")


def packed(axes: Sequence[IterDomain]) -> tuple[IterDomain, ...]:
    """How axes lie in memory: each ragged axis combined with its component axis, rows one after another."""
    placed: list[IterDomain] = []
    for axis in axes:
        if axis.is_ragged:
            _place(placed, axis, axes)
        else:
            placed.append(axis)
    return tuple(placed)


def _place(placed: list[IterDomain], axis: IterDomain, axes: Sequence[IterDomain]) -> None:
    component = ragged(axis).component
    assert component is not None
    if component in placed:
        at = placed.index(component)
        placed[at] = existing(Combine, (component, axis), axes) or combine(component, axis, IterType.Iteration)
        return
    made = component.definition
    if isinstance(made, (Merge, Combine)) and all(part in placed for part in made.inputs):  # [C, H, R]
        at = placed.index(made.inputs[0])
        for part in made.inputs:
            placed.remove(part)
        placed.insert(at, existing(Combine, (component, axis), axes) or combine(component, axis, IterType.Iteration))
        return
    for at, other in enumerate(placed):  # [C, Q, K]: Q is combined with C already
        step = other.definition
        if isinstance(step, Combine) and step.inputs[0] is component:
            product = existing(Merge, (step.inputs[1], axis), axes) or merge(step.inputs[1], axis, IterType.Iteration)
            placed[at] = existing(Combine, (component, product), axes) or combine(
                component, product, IterType.Iteration
            )
            return
    raise RaggednessError(f"{axis} cannot lie in memory after {placed}: its component axis {component} is not there")


def existing(
    kind: type[AxisExpression], inputs: tuple[IterDomain, ...], axes: Iterable[IterDomain]
) -> IterDomain | None:
    """The axis that some ragged axis already has as (part of) its component, made by just this step."""
    for axis in axes:
        if axis.is_ragged:
            for step in history([ragged(axis).component]):
                if isinstance(step, kind) and step.inputs == inputs:
                    return step.outputs[0]
    return None


def history(axes: Iterable[IterDomain | None]) -> list[AxisExpression]:
    """The steps that made these axes, and the component axes of ragged ones among them, first steps first."""
    found: dict[AxisExpression, None] = {}
    seen: set[IterDomain] = set()

    def visit(axis: IterDomain | None) -> None:
        if axis is None or axis in seen:
            return
        seen.add(axis)
        if axis.is_ragged:
            visit(ragged(axis).component)
        if axis.definition is not None:
            for before in axis.definition.inputs:
                visit(before)
            found.setdefault(axis.definition)

    for axis in axes:
        visit(axis)
    return list(found)
