"""What must hold of the sizes and offsets of a call for a fusion to mean anything, where it is known only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.binding import Run
from serrate.fusion.domain import history
from serrate.fusion.expressions import AxisExpression, Partition, Resize
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Listed, Stored
from serrate.fusion.scalar import Scalar, const, equal, less_equal


@dataclass(frozen=True)
class Requirement:
    """A condition on sizes, known when a fusion or a kernel is called."""

    condition: Scalar
    error: type[Exception]
    message: str

    def holds(self, run: Run) -> bool:
        """Whether it does; what depends on data that is not there yet, or on a device, is not waited for."""
        read = {node.value for node in self.condition.walk() if node.op in ("load", "search")}
        arrays = [run.arrays.get(name) for name in read]
        if any(array is None or array.device.type != "cpu" for array in arrays):
            return True
        return bool(run.number(self.condition))

    def check(self, run: Run) -> None:
        """Raise the error if it does not hold."""
        if not self.holds(run):
            raise self.error(f"{self.message}, where {run.sizes}")


def requirements_of(fusion: Fusion) -> tuple[Requirement, ...]:
    """What the axes of a fusion's tensors require of a call."""
    domains = [tensor.domain for tensor in fusion.tensors]
    return requirements_of_axes(
        axis for d in domains for axis in (*d.root, *d.logical, *(d.own_allocation or ()), *d.loop)
    )


def requirements_of_axes(axes: Iterable[IterDomain]) -> tuple[Requirement, ...]:
    """What axes, and those that they are made of, require: ragged axes have an extent for each index of their component
    axis, rows have room in the axis that is cut into them, and no extent is below 0."""
    axes = list(axes)
    steps = history(axes)
    found = [
        *(made for axis in _all_of(axes, steps) if axis.is_ragged for made in _of_rows(ragged(axis))),
        *(made for step in steps for made in _of_step(step)),
    ]
    return tuple(dict.fromkeys(made for made in found if not _is_certain(made.condition)))


def _all_of(axes: Iterable[IterDomain], steps: Iterable[AxisExpression]) -> dict[IterDomain, None]:
    """The axes and those that they are made of, each once."""
    parts = (axis for step in steps for axis in (*step.inputs, *step.outputs))
    return dict.fromkeys((*axes, *parts))


def _is_certain(condition: Scalar) -> bool:
    return condition.is_const and bool(condition.value)


def _of_rows(rows: RaggedIterDomain) -> Iterator[Requirement]:
    component, count = rows.component, rows.raggedness.count
    if component is not None and component.extent != count:
        why = f"{rows} has {count} components, but its component axis {component} has another number of indices"
        if component.bound == component.extent:
            yield Requirement(equal(component.extent, count), RaggednessError, why)
        else:  # how many indices it has is data, which may be on a device; how many it has at most is not
            yield Requirement(less_equal(component.bound, count), RaggednessError, why)
    if isinstance(rows.raggedness, Listed):
        for number, extent in enumerate(rows.raggedness.extents):
            why = f"the extent {extent} of component {number} of {rows} is below 0"
            yield Requirement(less_equal(const(0), extent), RaggednessError, why)


def _of_step(step: AxisExpression) -> Iterator[Requirement]:
    match step:
        case Partition() if not step.covers:
            axis, rows = step.inputs[0], ragged(step.outputs[1]).raggedness
            total = rows.size if isinstance(rows, Stored) else rows.total_bound
            if total != axis.extent:
                why = f"{axis} cannot be cut into rows of {total} indices together"
                yield Requirement(less_equal(total, axis.extent), RaggednessError, why)
        case Resize() if step.cuts and not step.inputs[0].is_ragged:
            axis = step.inputs[0]
            why = f"{axis} cannot be resized by ({step.left}, {step.right}): less than nothing would be left"
            yield Requirement(less_equal(const(0), step.outputs[0].extent), ScheduleError, why)
