"""Operands that are read at other indices than those of the loops: where each is read, and under which condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serrate.fusion.axes import IterDomain
from serrate.fusion.expressions import component_of
from serrate.fusion.indices import Indices
from serrate.fusion.scalar import TRUE, Scalar, both, const, less, less_equal
from serrate.fusion.view import Operation, TensorView


@dataclass(frozen=True)
class Here:
    """What is known where an element is computed: the indices of its axes, what follows from indices of an operand (for
    axes that are wanted), and the values of the operands that are read here."""

    indices: Indices
    at: Callable[[TensorView, list[Scalar], list[IterDomain]], Indices]
    values: Sequence[Scalar] = ()

    def places(self, tensor: TensorView) -> list[Scalar]:
        """The indices of the logical axes of a tensor."""
        return [self.indices.of(axis) for axis in tensor.domain.kept]

    def is_inside(self, x: TensorView, places: list[Scalar], number: int) -> Scalar:
        """Whether a place is in bounds along one axis of an operand."""
        axis = x.domain.kept[number]
        return self.at(x, places, [component_of(axis)] if axis.is_ragged else []).predicate(axis)


@dataclass(frozen=True)
class Read:
    """An element of an operand at these indices of its logical axes, to be read only where `inside` holds."""

    operand: TensorView
    places: list[Scalar]
    inside: Scalar = TRUE


@dataclass(frozen=True)
class Reads:
    """An element: that of the first read whose condition holds; where none does, `otherwise`."""

    reads: tuple[Read, ...]
    otherwise: float = 0


def reads_elsewhere(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """Where an operation reads its operands."""
    return _KINDS[operation.kind](tensor, operation, here)


def _resized(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    x = operation.inputs[0]
    at, left, _, *rest = operation.options
    places = here.places(tensor)
    places[at] = places[at] - left
    if not rest:
        return Reads((Read(x, places),))  # a slice is inside by its extent
    return Reads((Read(x, places, here.is_inside(x, places, at)),), rest[0])


def _gathered(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """x[index]; 0 where the index is out of range, which is never read."""
    x, row = operation.inputs[0], here.values[0]
    rest = here.places(tensor)[operation.options[0] :]
    inside = both(less_equal(const(0), row), less(row, x.domain.kept[0].extent))
    return Reads((Read(x, [row, *rest], inside),))


def _selected(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """x at one index; 0 where a row whose length is data, and not seen by the host, does not have it."""
    x = operation.inputs[0]
    at, index = operation.options
    places = here.places(tensor)
    extent = x.domain.kept[at].extent
    is_data = any(node.op == "load" for node in extent.walk())
    inside = less(const(index), extent) if is_data else TRUE
    return Reads((Read(x, [*places[:at], const(index), *places[at:]], inside),))


_KINDS: dict[str, Callable[[TensorView, Operation, Here], Reads]] = {
    "resize": _resized, "gather": _gathered, "select": _selected,
}  # fmt: skip
