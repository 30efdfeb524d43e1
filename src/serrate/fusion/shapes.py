"""The axes of results: what operations make of the axes of their operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import history
from serrate.fusion.dtypes import DTYPES, INTEGERS, wrapped
from serrate.fusion.expressions import AxisExpression, Combine, Cover, Merge, Partition, Resize, Split, component_of
from serrate.fusion.scalar import Scalar
from serrate.fusion.transforms import combine, cover, merge, partition, resize, split
from serrate.fusion.view import TensorView


def check_fit(name: str, number: complex, dtype: str) -> None:
    """Refuse a whole number that a dtype of whole numbers does not hold."""
    if dtype in INTEGERS and int(number.real) != wrapped(int(number.real), dtype):
        raise OverflowError(f"{name} of {dtype} and {number}, which that dtype does not hold; cast to a wider one")


def axis_number(x: TensorView, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"axis {axis} of {x}, which has {x.ndim} axes")
    return axis % x.ndim


def check_known(name: str, table: Collection[str], what: str = "operation") -> None:
    if name not in table:
        raise ValueError(f"no {what} {name!r}; there are {', '.join(table)}")


def dtype_name(dtype: str | torch.dtype) -> str:
    """A dtype by its name, torch's too."""
    name = str(dtype).removeprefix("torch.")
    check_known(name, DTYPES, "dtype")
    return name


Pairs = tuple[tuple[IterDomain, IterDomain], ...]
Shape = TensorView | Sequence[int | str | Scalar | IterDomain]


def clones(axes: Sequence[IterDomain]) -> tuple[list[IterDomain], Pairs]:
    """Axes like these, ragged ones depending on the new axes, and which is which."""
    made: dict[IterDomain, IterDomain] = {axis: axis.clone() for axis in axes}
    translate_components(made)
    return [made[axis] for axis in axes], tuple((axis, made[axis]) for axis in axes)


def axes_like(shape: Shape) -> tuple[list[IterDomain], Pairs]:
    """New axes of a shape: those of a tensor, or a list of numbers, names of sizes, and axes of tensors, which the new
    ones then have the indices of. With a ragged axis come the axes that it depends on."""
    given = shape.domain.kept if isinstance(shape, TensorView) else tuple(shape)
    for axis in given:
        if isinstance(axis, IterDomain) and axis.is_reduction:
            raise AxisError(f"{axis} is reduced, and is no axis that a tensor could have")
    wanted = [axis if isinstance(axis, IterDomain) else IterDomain(axis) for axis in given]
    if len(set(wanted)) != len(wanted):
        raise AxisError(f"the axes of a tensor differ from each other, got {wanted}")
    root, pairs = clones(wanted)
    return root, tuple((old, new) for old, new in pairs if old in given)


def parents_of(axis: IterDomain, axes: Sequence[IterDomain]) -> list[IterDomain]:
    """Those of the axes that the extent of a ragged one depends on."""
    return [other for other in axes if other is not axis and depends_on(axis, other)]


def again(axes: Sequence[IterDomain] | None, pairs: Pairs) -> list[IterDomain] | None:
    """Axes made of new ones by the same steps as these of the old ones."""
    made = dict(pairs)
    return None if axes is None else [_translated(axis, made) for axis in axes]


def depend_on(axes: Sequence[IterDomain], replaced: Mapping[IterDomain, IterDomain]) -> None:
    """Let ragged axes that depend on a replaced axis, by any number of levels, depend on what stands for it now."""
    made = {axis: axis for axis in axes} | dict(replaced)
    for axis in axes:
        if axis.is_ragged:
            ragged(axis).component = _translated(component_of(axis), made)


def translate_components(made: dict[IterDomain, IterDomain]) -> None:
    """Let each new ragged axis depend on the new axes."""
    for new in list(made.values()):
        if new.is_ragged:
            component = ragged(new).component
            assert component is not None
            ragged(new).component = _translated(component, made)


def _translated(axis: IterDomain, made: dict[IterDomain, IterDomain]) -> IterDomain:
    """The new axis that stands for an old one: itself new, or made of new ones by the same step."""
    if axis in made:
        return made[axis]
    if axis in made.values():
        return axis
    step = axis.definition
    if step is None:
        raise RaggednessError(f"a ragged axis depends on {axis}, which is not there")
    inputs = [_translated(before, made) for before in step.inputs]
    for known in list(made.values()):  # another operand may have come this way already
        if (
            known.definition is not None
            and type(known.definition) is type(step)
            and list(known.definition.inputs) == inputs
        ):
            made[axis] = known
            return known
    outputs = _again(step, inputs)
    made.update(zip(step.outputs, outputs, strict=True))
    return made[axis]


def _again(step: AxisExpression, inputs: Sequence[IterDomain]) -> tuple[IterDomain, ...]:
    match step:
        case Split():
            return split(inputs[0], step.factor, step.inner_split)
        case Combine():
            return (combine(inputs[0], inputs[1]),)
        case Merge():
            return (merge(inputs[0], inputs[1]),)
        case Resize():
            return (resize(inputs[0], step.left, step.right),)
        case Partition():
            return partition(inputs[0], ragged(step.outputs[1]).raggedness)
        case Cover():
            return (cover(inputs[0]),)
    raise RaggednessError(f"{step} cannot be done again")


def broadcast_axes(name: str, tensors: Sequence[TensorView]) -> tuple[list[IterDomain], Pairs]:
    """The axes of a pointwise result. Missing leading axes and broadcast axes fit any."""
    ndim = max(x.ndim for x in tensors)
    made: dict[IterDomain, IterDomain] = {}
    root: list[IterDomain] = []
    for position in range(-ndim, 0):
        here = [x.domain.kept[position] for x in tensors if x.ndim >= -position]
        concrete = [axis for axis in here if not axis.is_broadcast]
        new = (concrete or here)[0].clone()
        for axis in concrete or here[:1]:
            if axis is not (concrete or here)[0]:
                check_same_extent(name, (concrete or here)[0], axis, " and ".join(map(repr, tensors)))
            made[axis] = new
        root.append(new)
    translate_components(made)
    pairs = tuple((old, new) for old, new in made.items() if new in root)
    return root, pairs


def check_same_extent(name: str, first: IterDomain, axis: IterDomain, shapes: str) -> None:
    """Refuse axes that do not have the same indices in an operation on these shapes."""
    if first.is_ragged != axis.is_ragged or (first.is_ragged and ragged(first).raggedness != ragged(axis).raggedness):
        raise RaggednessError(f"{name} of {shapes}: {first} and {axis} are not the same raggedness")
    if not first.is_ragged and first.extent != axis.extent:
        raise ValueError(f"{name} of {shapes}: the extents {first.extent} and {axis.extent} differ")


def depends_on(axis: IterDomain, other: IterDomain) -> bool:
    """Whether the extent of a ragged axis depends on the index of another axis."""
    component = ragged(axis).component
    return component is other or any(other in step.inputs for step in history([component]))


def covered(root: Sequence[IterDomain]) -> list[IterDomain]:
    """The logical axes of a reduction: ragged axes that stay, but depend on what is reduced, become regular."""
    gone = {axis for axis in root if axis.is_reduction}
    logical: list[IterDomain] = []
    for axis in root:
        lost = axis.is_ragged and axis not in gone and any(depends_on(axis, other) for other in gone)
        logical.append(cover(axis) if lost else axis)
    return logical


def loop_order(root: Sequence[IterDomain], logical: Sequence[IterDomain]) -> list[IterDomain]:
    """As the operand's axes; where some were covered, those reduced come after."""
    if any(isinstance(axis.definition, Cover) for axis in logical):
        kept = [axis for axis in logical if not axis.is_reduction and not axis.is_broadcast]
        return kept + [axis for axis in root if axis.is_reduction]
    return [axis for axis in root if not axis.is_broadcast]
