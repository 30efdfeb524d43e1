"""The values of elements: what a tensor holds at the indices of a loop nest, as a scalar expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import elementwise
from serrate.fusion.analysis import common, may_fail
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import room
from serrate.fusion.dtypes import accumulator
from serrate.fusion.fusion import Fusion
from serrate.fusion.indices import Indices, route
from serrate.fusion.mapping import MOVED, read_here
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.scalar import TRUE, Scalar, both, cast, const, load, logical_not, where
from serrate.fusion.view import Operation, TensorView
from serrate.kernel.ir import DEEPEST
from serrate.kernel.jobs import is_gathered
from serrate.kernel.moved import Here, reads_elsewhere
from serrate.kernel.teams import memory_axes

if TYPE_CHECKING:
    from serrate.kernel.lower import Lowering

_SAME = ("nest", "broadcast")  # kinds of operations that only name the axes anew

Asking = Generator[tuple["Elements", TensorView], Scalar, Scalar]
"""Code that makes a value. Where it needs the value of another tensor, it yields whose indices that is wanted at and
which tensor it is, and is sent the value. What waits so does not wait on Python's stack, and chains of operations may
have any length."""


def reads_of(operation: Operation) -> tuple[int, ...]:
    """How often a pointwise operation reads each of its operands; more than once counts as 2."""
    if not elementwise.is_known(operation.name):
        return (1,) * len(operation.operands)
    given = [x.dtype if isinstance(x, TensorView) else x for x in operation.operands]
    return elementwise.named(operation.name).reads(given, dict(operation.settings))


def index_axis(tensor: TensorView, operation: Operation) -> IterDomain | None:
    """The axis whose index a pointwise operation computes with, if it does."""
    match operation.name:
        case "positions":
            axis: IterDomain = tensor.domain.kept[operation.options[0]]
            return axis
        case "row_lengths":
            return operation.axes[-1][1]
    return None


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
            found.update(dict.fromkeys(x.kept_in.domain.allocation if x.kept_in is not None else x.box_axes))
            continue
        if operation is None or operation.kind == "offsets":
            found.update(dict.fromkeys(x.domain.allocation))
            continue
        if operation.kind in MOVED:
            found.update(dict.fromkeys(axis for axis in x.domain.kept if not axis.is_broadcast))
        if operation.name == "packed_positions":
            found.update(dict.fromkeys(x.domain.allocation))
        axis = index_axis(x, operation)
        if axis is not None and not axis.is_broadcast:
            found[axis] = None
        stack.extend(read_here(operation))
    return list(found)


def gathers(fusion: Fusion) -> list[TensorView]:
    """The tensors that are gathered; the faults of the first have the number 1."""
    return [t for t in fusion.tensors if t.definition is not None and t.definition.name == "gather"]


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
        waiting = [self._asking(tensor)]  # each waits for the one after it
        answer: Scalar | None = None
        while waiting:
            try:
                elements, wanted = next(waiting[-1]) if answer is None else waiting[-1].send(answer)
            except StopIteration as finished:
                waiting.pop()
                answer = finished.value
                continue
            answer = elements._made.get(wanted)
            if answer is None:
                waiting.append(elements._asking(wanted))
        assert answer is not None
        return answer

    def _asking(self, tensor: TensorView) -> Asking:
        if tensor not in self._made:
            value = yield from self._value(tensor)
            named = self._needs_name(tensor) or value.depth > DEEPEST
            self._made[tensor] = self._bound(tensor, value) if named else value
        return self._made[tensor]

    def _needs_name(self, tensor: TensorView) -> bool:
        operation = tensor.definition
        return operation is None or (operation.kind not in _SAME and self.lowering.phased.users[tensor] > 1)

    def _bound(self, tensor: TensorView, value: Scalar) -> Scalar:
        return self.lowering.builder.let(f"{tensor.name}_at", value)

    def _held(self, tensor: TensorView) -> Scalar | None:
        return self.lowering.held(tensor, self)

    def _value(self, tensor: TensorView) -> Asking:
        held = self._held(tensor)
        if held is not None:
            return held
        operation = tensor.definition
        if operation is None or operation.kind == "offsets":
            raw = load(tensor.name, self.address(tensor), tensor.dtype)
            return cast(raw, accumulator(tensor.dtype))
        match operation.kind:
            case "pointwise":
                return (yield from self._pointwise(tensor, operation))
            case "broadcast" | "nest":
                return (yield self, operation.inputs[0])
        return (yield from self._elsewhere(tensor, operation))

    def address(self, tensor: TensorView) -> Scalar:
        """Where the element lies in its buffer."""
        place = const(0)
        if tensor.strides is not None:
            for axis, stride in zip(tensor.domain.allocation, tensor.strides, strict=True):
                place = place + self.indices.of(axis) * stride
            return self.lowering.builder.by_names(place)
        for axis in memory_axes(self.lowering.team, tensor):
            known = room(axis)  # which rows whose lengths are data need not fill
            unknown = known is None and self.lowering.target.device != "cpu" and _is_data(axis.extent)
            if place != const(0) and unknown:
                raise RaggednessError(
                    f"{tensor} cannot lie in memory by {axis}, whose extent only the device knows; give it an extent "
                    f"that the host knows (to_dense takes a length), or put the axis first"
                )
            place = place * (axis.extent if known is None else known) + self.indices.of(axis)
        return self.lowering.builder.by_names(place)

    def _pointwise(self, tensor: TensorView, operation: Operation) -> Asking:
        match operation.name:
            case "cast":  # half types round here
                value = cast((yield self, operation.inputs[0]), tensor.dtype)
                return cast(value, accumulator(tensor.dtype))
            case "copy":
                return (yield self, operation.inputs[0])
            case "packed_positions":
                return cast(self.address(tensor), tensor.dtype)
            case "full":
                return const(operation.options[0], accumulator(tensor.dtype))
        axis = index_axis(tensor, operation)
        if axis is not None:
            index = self.indices.of(axis)
            number = index if operation.name == "positions" else operation.options[0].extent_at(index)
            return cast(self.lowering.builder.by_names(number), tensor.dtype)
        row = elementwise.named(operation.name)
        operands: list[Scalar | float] = []
        for x, many in zip(operation.operands, reads_of(operation), strict=True):
            if isinstance(x, TensorView):
                value = yield self, x
                value = self._bound(x, value) if many > 1 else value
                operands.append(cast(value, x.dtype) if row.in_own_dtype else value)
            else:
                operands.append(x)
        made = row(*operands, **dict(operation.settings))
        while operation.name in elementwise.COMPOSED and (repeated := common([made])):
            made = made.substitute({repeated[0]: self._bound(tensor, repeated[0])})
        return cast(made, accumulator(made.dtype))

    # Operands that are read at other indices

    def _moved(self, operand: TensorView, places: list[Scalar], inside: Scalar = TRUE) -> Asking:
        """The element of an operand at these indices of its logical axes, to be read only where `inside` holds."""
        if is_gathered(operand):
            raise _held_elsewhere(operand)
        indices = self._indices_at(operand, places, axes_read(operand, is_gathered))
        outer = self.lowering.builder.let("inside", self.inside)
        return (yield Elsewhere(self.lowering, indices, operand, both(outer, inside)), operand)

    def _indices_at(self, x: TensorView, places: list[Scalar], wanted: list[IterDomain]) -> Indices:
        """What follows from these indices of the logical axes of a tensor."""
        indices = Indices(self.lowering.phased.graph)
        axes = x.domain.kept
        for axis, place in zip(axes, places, strict=True):
            indices.set(axis, place)
        if all(indices.has(axis) for axis in wanted):
            return indices
        steps = route(self.lowering.phased.graph, axes, wanted)
        indices.advance(steps, lambda condition: None, lambda _, index: index)
        return indices

    def _elsewhere(self, tensor: TensorView, operation: Operation) -> Asking:
        """The element of an operation that reads operands at other indices; what it reads here are indices."""
        chosen: list[Scalar] = []
        for x in read_here(operation):
            index = cast((yield self, x), "int64")
            chosen.append(self._bound(x, index))
        here = Here(self.indices, self._indices_at, partial(self._bound, tensor), chosen)
        found = reads_elsewhere(tensor, operation, here)
        if operation.name == "gather":  # an index out of range is not read but reported
            number = 1 + gathers(self.lowering.phased.fusion).index(tensor)
            self.lowering.builder.report(both(self.inside, logical_not(found.reads[0].inside)), number)
        values: list[Scalar] = []
        for read in found.reads:
            value = yield from self._moved(read.operand, read.places, read.inside)
            values.append(value)
        made = values.pop() if found.otherwise is None else const(found.otherwise, values[-1].dtype)
        for read, value in reversed(list(zip(found.reads, values, strict=False))):
            test = read.inside if read.test is None else read.test
            made = where(self.lowering.builder.by_names(test), value, made)
        return made


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
        if any(map(may_fail, value.walk())):
            value = where(self.lowering.builder.let("inside", self.inside), value, const(0, value.dtype))
        return super()._bound(tensor, value)

    def _held(self, tensor: TensorView) -> Scalar | None:
        if is_gathered(tensor):
            raise _held_elsewhere(tensor)
        return None  # a kept value is computed again


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
    return [(x, 1) for x in read_here(operation)]


def _held_elsewhere(tensor: TensorView) -> ScheduleError:
    text = "is held by the kernel for the indices of its loops, and read at others; give it a kernel of its own"
    return ScheduleError(f"{tensor} {text}", tensor=tensor)
