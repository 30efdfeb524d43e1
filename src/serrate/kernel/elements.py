"""The values of elements: what a tensor holds at the indices of a loop nest, as a scalar expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.expressions import component_of
from serrate.fusion.indexing import Indices, route
from serrate.fusion.mapping import MOVED
from serrate.fusion.operations import BINARY, UNARY, accumulator
from serrate.fusion.scalar import BOOL, INDEX, Scalar, both, cast, const, le, load, lt, select
from serrate.fusion.view import Operation, TensorView

if TYPE_CHECKING:
    from serrate.kernel.lower import Lowering

_SAME = ("nest", "broadcast")  # kinds of operations that only name the axes anew
_TWICE = ("relu", "silu", "gelu", "square")  # functions that read their operand more than once


def axes_read(tensor: TensorView, is_held: Callable[[TensorView], bool]) -> list[IterDomain]:
    """The axes whose indices are needed to compute a tensor from what is in memory, or held by the kernel."""
    found: dict[IterDomain, None] = {}
    stack = [tensor]
    while stack:
        x = stack.pop()
        operation = x.definition
        if x is not tensor and is_held(x):
            found.update(dict.fromkeys(x.kept_in.domain.allocation if x.kept_in is not None else ()))
            continue
        if operation is None or operation.kind == "offsets":
            found.update(dict.fromkeys(x.domain.allocation))
        elif operation.kind in MOVED:
            found.update(dict.fromkeys(axis for axis in x.domain.kept if not axis.is_broadcast))
            stack.extend(operation.inputs[1:])  # the indices of a gather
        elif operation.kind == "nest":
            stack.append(operation.inputs[0])
        else:
            stack.extend(operation.inputs)
    return list(found)


class Elements:
    """Values at known indices."""

    def __init__(self, lowering: Lowering, indices: Indices, inline: bool = False) -> None:
        self.lowering, self.indices, self.inline = lowering, indices, inline
        self._made: dict[TensorView, Scalar] = {}

    @property
    def loaded(self) -> list[TensorView]:
        """The inputs that were read so far."""
        return [tensor for tensor in self._made if tensor.definition is None]

    def operand(self, tensor: TensorView) -> Scalar:
        """What a reduction takes in."""
        operation = tensor.definition
        assert operation is not None
        x = operation.inputs[0]
        return self.value(x) if operation.name in ("sum", "prod", "max", "min", "mean") else self.named(x)

    def named(self, tensor: TensorView) -> Scalar:
        """The element by a name, to be read more than once."""
        self._made[tensor] = self._bound(tensor, self.value(tensor))
        return self._made[tensor]

    def value(self, tensor: TensorView) -> Scalar:
        """The element of a tensor here, in the dtype that is computed in."""
        if tensor not in self._made:
            value = self._value(tensor)
            operation = tensor.definition
            shared = operation is not None and operation.kind not in _SAME and self.lowering.plan.users(tensor) > 1
            self._made[tensor] = self._bound(tensor, value) if shared or operation is None else value
        return self._made[tensor]

    def _bound(self, tensor: TensorView, value: Scalar) -> Scalar:
        return value if self.inline else self.lowering.builder.let(f"{tensor.name}_at", value)

    def _value(self, tensor: TensorView) -> Scalar:
        held = self.lowering.held(tensor, self)
        if held is not None and self.inline:
            raise _held_elsewhere(tensor)
        if held is not None:
            return held
        operation = tensor.definition
        if operation is None or operation.kind == "offsets":
            raw = load(tensor.name, self.address(tensor), tensor.dtype)
            return cast(raw, accumulator(tensor.dtype))
        match operation.kind:
            case "pointwise":
                return self._pointwise(tensor, operation)
            case "broadcast" | "nest":
                return self.value(operation.inputs[0])
            case "resize":
                return self._resized(tensor, operation)
            case "gather":
                return self._gathered(tensor, operation)
            case "select":
                at, index = operation.options
                places = [self.indices.of(axis) for axis in tensor.domain.kept]
                return self._moved(operation.inputs[0], [*places[:at], const(index), *places[at:]])
        raise AssertionError(operation.kind)

    def address(self, tensor: TensorView) -> Scalar:
        """Where the element lies in its buffer."""
        place = const(0)
        for axis in tensor.domain.allocation:
            place = place * axis.extent + self.indices.of(axis)
        return place if self.inline else self.lowering.builder.by_names(place)

    def _pointwise(self, tensor: TensorView, operation: Operation) -> Scalar:
        given = iter(operation.inputs)
        arguments: list[Scalar | float] = []
        for constant in operation.options or [None] * len(operation.inputs):
            if constant is not None:
                arguments.append(constant)
                continue
            x = next(given)
            value = self.value(x)
            arguments.append(self._bound(x, value) if operation.name in _TWICE else value)
        dtype = next((a.dtype for a in reversed(arguments) if isinstance(a, Scalar)), "float32")
        operands = [a if isinstance(a, Scalar) else const(a, dtype) for a in arguments]
        match operation.name:
            case "where":
                return select(operands[0], operands[1], operands[2])
            case "cast":
                return cast(cast(operands[0], tensor.dtype), accumulator(tensor.dtype))  # half types round here
            case "copy":
                return operands[0]
            case "full":
                return const(operands[1].value, tensor.dtype)
        if len(operands) == 1:
            return UNARY[operation.name][0](*operands)
        return BINARY[operation.name][0](*operands)

    # Operands that are read at other indices

    def _moved(self, operand: TensorView, places: list[Scalar]) -> Scalar:
        """The element of an operand at these indices of its logical axes."""
        if self.lowering.nests.is_held(operand):
            raise _held_elsewhere(operand)
        indices = Indices(self.lowering.plan.graph)
        axes = operand.domain.kept
        for axis, place in zip(axes, places, strict=True):
            indices.set(axis, place)
        elsewhere = Elements(self.lowering, indices, inline=True)
        steps = route(self.lowering.plan.graph, axes, self.lowering.nests.axes_read(operand))
        indices.advance(steps, lambda condition: None, lambda _, index: index)
        return elsewhere.value(operand)

    def _resized(self, tensor: TensorView, operation: Operation) -> Scalar:
        x = operation.inputs[0]
        at, left, _, *rest = operation.options
        places = [self.indices.of(axis) for axis in tensor.domain.kept]
        places[at] = places[at] - left
        value = self._moved(x, places)
        if not rest:
            return value  # a slice is inside by its extent
        indices = Indices(self.lowering.plan.graph)
        for axis, place in zip(x.domain.kept, places, strict=True):
            indices.set(axis, place)
        axis = x.domain.kept[at]
        if axis.is_ragged:
            steps = route(self.lowering.plan.graph, x.domain.kept, [component_of(axis)])
            indices.advance(steps, lambda condition: None, lambda _, index: index)
        return select(indices.predicate(axis), value, const(rest[0], value.dtype))

    def _gathered(self, tensor: TensorView, operation: Operation) -> Scalar:
        """x[index]; 0 where the index is out of range, which is never read."""
        x, chosen = operation.inputs
        row = cast(self.value(chosen), INDEX)
        row = row if self.inline else self.lowering.builder.let(f"{chosen.name}_at", row)
        count = operation.options[0]
        rest = [self.indices.of(axis) for axis in tensor.domain.kept[count:]]
        value = self._moved(x, [row, *rest])
        inside = both(le(const(0), row), lt(row, x.domain.kept[0].extent))
        return select(inside, value, const(False if value.dtype == BOOL else 0, value.dtype))


def _held_elsewhere(tensor: TensorView) -> ScheduleError:
    return ScheduleError(
        f"{tensor} is held by the kernel for the indices of its loops, and read at others; give it a kernel of its own"
    )
