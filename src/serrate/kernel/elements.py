"""The values of elements: what a tensor holds at the indices of a loop nest, as a scalar expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from serrate.errors import ScheduleError
from serrate.fusion import elementwise
from serrate.fusion.analysis import common
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import room
from serrate.fusion.dtypes import FLOATS, INDEX, accumulator
from serrate.fusion.expressions import component_of
from serrate.fusion.fusion import Fusion
from serrate.fusion.indices import Indices, route
from serrate.fusion.mapping import MOVED
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.scalar import TRUE, Scalar, both, cast, const, less, less_equal, load, logical_not, where
from serrate.fusion.view import Operation, TensorView

if TYPE_CHECKING:
    from serrate.kernel.lower import Lowering

_SAME = ("nest", "broadcast")  # kinds of operations that only name the axes anew


def reads_of(operation: Operation) -> tuple[int, ...]:
    """How often a pointwise operation reads each of its operands; more than once counts as 2."""
    if not elementwise.is_known(operation.name):
        return (1,) * len(operation.operands)
    given = [x.dtype if isinstance(x, TensorView) else x for x in operation.operands]
    return elementwise.named(operation.name).reads(given, dict(operation.settings))


def axes_read(tensor: TensorView, is_held: Callable[[TensorView], bool]) -> list[IterDomain]:
    """The axes whose indices are needed to compute a tensor from what is in memory, or held by the kernel."""
    found: dict[IterDomain, None] = {}
    seen: set[TensorView] = set()
    stack = [tensor]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
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


def gathers(fusion: Fusion) -> list[TensorView]:
    """The tensors that are gathered; the faults of the first have the number 1."""
    return [t for t in fusion.tensors if t.definition is not None and t.definition.kind == "gather"]


class Elements:
    """Values at known indices."""

    inside = TRUE  # where the values are needed, and may be computed

    def __init__(self, lowering: Lowering, indices: Indices) -> None:
        self.lowering, self.indices = lowering, indices
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
        return self.value(x) if MONOIDS[operation.name].reads_once(x.dtype) else self.named(x)

    def named(self, tensor: TensorView) -> Scalar:
        """The element by a name, to be read more than once."""
        self._made[tensor] = self._bound(tensor, self.value(tensor))
        return self._made[tensor]

    def value(self, tensor: TensorView) -> Scalar:
        """The element of a tensor here, in the dtype that is computed in."""
        if tensor not in self._made:
            value = self._value(tensor)
            self._made[tensor] = self._bound(tensor, value) if self._needs_name(tensor) else value
        return self._made[tensor]

    def _needs_name(self, tensor: TensorView) -> bool:
        operation = tensor.definition
        return operation is None or (operation.kind not in _SAME and self.lowering.phased.users(tensor) > 1)

    def _bound(self, tensor: TensorView, value: Scalar) -> Scalar:
        return self.lowering.builder.let(f"{tensor.name}_at", value)

    def _held(self, tensor: TensorView) -> Scalar | None:
        return self.lowering.held(tensor, self)

    def _value(self, tensor: TensorView) -> Scalar:
        held = self._held(tensor)
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
                return self._selected(tensor, operation)
        raise AssertionError(operation.kind)

    def address(self, tensor: TensorView) -> Scalar:
        """Where the element lies in its buffer."""
        place = const(0)
        for axis in tensor.domain.allocation:
            known = room(axis)  # which rows whose lengths are data need not fill
            place = place * (axis.extent if known is None else known) + self.indices.of(axis)
        return self.lowering.builder.by_names(place)

    def _pointwise(self, tensor: TensorView, operation: Operation) -> Scalar:
        match operation.name:
            case "cast":  # half types round here
                value = cast(self.value(operation.inputs[0]), tensor.dtype)
                return cast(value, accumulator(tensor.dtype))
            case "copy":
                return self.value(operation.inputs[0])
            case "full":
                return const(operation.options[1], tensor.dtype)
        row = elementwise.named(operation.name)
        operands: list[Scalar | float] = []
        for x, many in zip(operation.operands, reads_of(operation), strict=True):
            if isinstance(x, TensorView):
                value = self._bound(x, self.value(x)) if many > 1 else self.value(x)
                operands.append(cast(value, x.dtype) if row.in_own_dtype else value)
            else:
                operands.append(x)
        made = row(*operands, **dict(operation.settings))
        while operation.name in elementwise.COMPOSED and (repeated := common([made])):
            made = made.substitute({repeated[0]: self._bound(tensor, repeated[0])})
        return cast(made, accumulator(made.dtype))

    # Operands that are read at other indices

    def _moved(self, operand: TensorView, places: list[Scalar], inside: Scalar = TRUE) -> Scalar:
        """The element of an operand at these indices of its logical axes, to be read only where `inside` holds."""
        if self.lowering.nests.is_held(operand):
            raise _held_elsewhere(operand)
        indices = self._indices_at(operand, places, self.lowering.nests.axes_read(operand))
        outer = self.lowering.builder.let("inside", self.inside)
        return Elsewhere(self.lowering, indices, operand, both(outer, inside)).value(operand)

    def _indices_at(self, x: TensorView, places: list[Scalar], wanted: list[IterDomain]) -> Indices:
        """What follows from these indices of the logical axes of a tensor."""
        indices = Indices(self.lowering.phased.graph)
        axes = x.domain.kept
        for axis, place in zip(axes, places, strict=True):
            indices.set(axis, place)
        steps = route(self.lowering.phased.graph, axes, wanted)
        indices.advance(steps, lambda condition: None, lambda _, index: index)
        return indices

    def _resized(self, tensor: TensorView, operation: Operation) -> Scalar:
        x = operation.inputs[0]
        at, left, _, *rest = operation.options
        places = [self.indices.of(axis) for axis in tensor.domain.kept]
        places[at] = places[at] - left
        if not rest:
            return self._moved(x, places)  # a slice is inside by its extent
        axis = x.domain.kept[at]
        inside = self._indices_at(x, places, [component_of(axis)] if axis.is_ragged else []).predicate(axis)
        value = self._moved(x, places, inside)
        return self._chosen(inside, value, rest[0])

    def _gathered(self, tensor: TensorView, operation: Operation) -> Scalar:
        """x[index]; 0 where the index is out of range, which is not read but reported."""
        x, chosen = operation.inputs
        row = self._bound(chosen, cast(self.value(chosen), "int64"))  # before it is cut to the bits of an index
        count = operation.options[0]
        rest = [self.indices.of(axis) for axis in tensor.domain.kept[count:]]
        extent = cast(x.domain.kept[0].extent, "int64")
        inside = both(less_equal(const(0, "int64"), row), less(row, extent))
        number = 1 + gathers(self.lowering.phased.fusion).index(tensor)
        self.lowering.builder.report(both(self.inside, logical_not(inside)), number)
        return self._chosen(inside, self._moved(x, [cast(row, INDEX), *rest], inside))

    def _selected(self, tensor: TensorView, operation: Operation) -> Scalar:
        """x at one index; 0 where a row whose length is data, and not seen by the host, does not have it."""
        x = operation.inputs[0]
        at, index = operation.options
        places = [self.indices.of(axis) for axis in tensor.domain.kept]
        extent = x.domain.kept[at].extent
        inside = less(const(index), extent) if _is_data(extent) else TRUE
        return self._chosen(inside, self._moved(x, [*places[:at], const(index), *places[at:]], inside))

    def _chosen(self, inside: Scalar, value: Scalar, other: float = 0) -> Scalar:
        """The value where it is inside, by the name of the condition if it has one."""
        return where(self.lowering.builder.by_names(inside), value, const(other, value.dtype))


class Elsewhere(Elements):
    """Values at other indices than those of the loops, which are in bounds only where `inside` holds.

    A name stands outside of the choice that its value is read in, so that whatever could fault is chosen again.
    """

    def __init__(self, lowering: Lowering, indices: Indices, operand: TensorView, inside: Scalar) -> None:
        super().__init__(lowering, indices)
        self.inside = inside
        self._reads = _reads(operand)

    def _needs_name(self, tensor: TensorView) -> bool:
        return self._reads[tensor] > 1

    def _bound(self, tensor: TensorView, value: Scalar) -> Scalar:
        if any(map(_is_risky, value.walk())):
            value = self._chosen(self.lowering.builder.let("inside", self.inside), value)
        return super()._bound(tensor, value)

    def _held(self, tensor: TensorView) -> Scalar | None:
        if super()._held(tensor) is not None:
            raise _held_elsewhere(tensor)
        return None


def _is_risky(node: Scalar) -> bool:
    """Whether a node may fault, or mean nothing, where its guard does not hold."""
    whole = node.op == "cast" and node.args[0].dtype in FLOATS and node.dtype not in FLOATS  # of infinity
    return whole or node.op in ("load", "search", "index_divide", "index_remainder")


def _is_data(extent: Scalar) -> bool:
    return any(node.op == "load" for node in extent.walk())


def _reads(tensor: TensorView) -> Counter[TensorView]:
    """How often each tensor is read, to compute an element of this one, at the same indices as it."""
    found: Counter[TensorView] = Counter()
    stack = [tensor]
    while stack:
        operation = stack.pop().definition
        if operation is None or operation.kind in ("offsets", "reduce"):
            continue
        for x, many in _operands_read(operation):
            while x.definition is not None and x.definition.kind in _SAME:
                x = x.definition.inputs[0]
            if x not in found:
                stack.append(x)
            found[x] += many
    return found


def _operands_read(operation: Operation) -> list[tuple[TensorView, int]]:
    """The operands that are read at the same indices, and how often."""
    if operation.kind == "pointwise":
        reads = zip(operation.operands, reads_of(operation), strict=True)
        return [(x, many) for x, many in reads if isinstance(x, TensorView)]
    inputs = {"nest": operation.inputs[:1], "gather": operation.inputs[1:], "resize": (), "select": ()}
    return [(x, 1) for x in inputs.get(operation.kind, operation.inputs)]


def _held_elsewhere(tensor: TensorView) -> ScheduleError:
    return ScheduleError(
        f"{tensor} is held by the kernel for the indices of its loops, and read at others; give it a kernel of its own"
    )
