"""When two fusions are the same: a key made of their operations, axes and schedules, in which every tensor and axis is
a number by the order in which it is met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serrate.fusion.axes import IterDomain, ragged

if TYPE_CHECKING:
    from serrate.fusion.fusion import Fusion
    from serrate.fusion.view import TensorView


def key_of(fusion: Fusion) -> tuple[object, ...]:
    """The key of a fusion."""
    return _Numbering().fusion(fusion)


class _Numbering:
    def __init__(self) -> None:
        self._axes: dict[IterDomain, int] = {}
        self._tensors: dict[TensorView, int] = {}

    def fusion(self, fusion: Fusion) -> tuple[object, ...]:
        tensors = tuple(self.tensor(tensor) for tensor in fusion.tensors)
        ends = tuple(tuple(self._tensors[t] for t in side) for side in (fusion.inputs, fusion.outputs))
        return (tensors, *ends)

    def tensor(self, tensor: TensorView) -> tuple[object, ...]:
        domain, operation = tensor.domain, tensor.definition
        orders = (domain.root, domain.logical, domain.allocation, domain.loop)
        axes = tuple(tuple(self.axis(axis) for axis in order) for order in orders)
        self._tensors[tensor] = len(self._tensors)
        how: tuple[object, ...] = ()
        if operation is not None:
            pairs = tuple((self.axis(old), self.axis(new)) for old, new in operation.axes)
            inputs = tuple(self._tensors[x] for x in operation.inputs)
            options = tuple(
                repr(o) if isinstance(o, (bool, float, complex)) else o for o in operation.options
            )  # 0.0 is not -0.0
            settings = tuple((name, repr(value)) for name, value in operation.settings)
            how = (operation.kind, operation.name, inputs, pairs, options, settings)
        place = None if tensor.kept_in is None else tensor.kept_in.name
        where = (tensor.memory, tensor.is_cached, place, tensor.fill, tensor.reads_holes, tensor.is_prefetched)
        return (tensor.name, tensor.dtype, tensor.strides, where, axes, how)

    def axis(self, axis: IterDomain) -> object:
        """A number for an axis met before, else that number with all that is known of it."""
        if axis in self._axes:
            return self._axes[axis]
        step = axis.definition
        history: tuple[object, ...] = ()
        if step is not None:
            history = (type(step).__name__, step.key, tuple(self.axis(before) for before in step.inputs))
            history += (step.outputs.index(axis),)
        extent: object = axis.extent
        if axis.is_ragged:
            component = ragged(axis).component
            extent = (ragged(axis).raggedness, None if component is None else self.axis(component))
        self._axes[axis] = len(self._axes)
        return (self._axes[axis], extent, axis.iter_type, axis.parallel_type, axis.name, history)
