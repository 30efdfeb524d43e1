"""Operands that are read at other indices than those of the loops: where each is read, and under which condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serrate.fusion.axes import IterDomain
from serrate.fusion.derived_raggedness import slice_bounds
from serrate.fusion.dtypes import INDEX
from serrate.fusion.expressions import component_of
from serrate.fusion.indices import Indices
from serrate.fusion.scalar import TRUE, Scalar, both, cast, const, less, less_equal
from serrate.fusion.view import Operation, TensorView


@dataclass(frozen=True)
class Here:
    """What is known where an element is computed: the indices of its axes, what follows from indices of an operand (for
    axes that are wanted), how to give a name to a number, and the values of the operands that are read here."""

    indices: Indices
    at: Callable[[TensorView, list[Scalar], list[IterDomain]], Indices]
    named: Callable[[Scalar], Scalar]
    values: Sequence[Scalar] = ()

    def places(self, tensor: TensorView) -> list[Scalar]:
        """The indices of the logical axes of a tensor."""
        return [self.indices.of(axis) for axis in tensor.domain.kept]

    def is_inside(self, x: TensorView, places: list[Scalar], number: int) -> Scalar:
        """Whether a place is in bounds along one axis of an operand."""
        return self._along(x, places, number).predicate(x.domain.kept[number])

    def extent(self, x: TensorView, places: list[Scalar], number: int) -> Scalar:
        """The extent of one axis of an operand at a place."""
        return self._along(x, places, number).extent(x.domain.kept[number])

    def _along(self, x: TensorView, places: list[Scalar], number: int) -> Indices:
        axis = x.domain.kept[number]
        return self.at(x, places, [component_of(axis)] if axis.is_ragged else [])


@dataclass(frozen=True)
class Read:
    """An element of an operand at these indices of its logical axes, to be read only where `inside` holds. Where that
    is known of it or of a read after it, `test` tells which."""

    operand: TensorView
    places: list[Scalar]
    inside: Scalar = TRUE
    test: Scalar | None = None


@dataclass(frozen=True)
class Reads:
    """An element: that of the first read whose condition holds; where none does, `otherwise`, if that can be."""

    reads: tuple[Read, ...]
    otherwise: float | None = 0


def reads_elsewhere(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """Where an operation reads its operands."""
    return _KINDS[operation.kind](tensor, operation, here)


def _resized(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    x, places = operation.inputs[0], here.places(tensor)
    if operation.name == "slice":  # inside by its extent
        at, start, stop = operation.options
        places[at] = places[at] + slice_bounds(start, stop, here.extent(x, places, at))[0]
        return Reads((Read(x, places),))
    at, left, _, value = operation.options
    places[at] = places[at] - left
    return Reads((Read(x, places, here.is_inside(x, places, at)),), value)


def _joined(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """The piece that the index along the axis lies in."""
    at = operation.options[0]
    places = here.places(tensor)
    index, start = places[at], const(0)
    reads: list[Read] = []
    for x in operation.inputs:
        within = [*places[:at], index - start, *places[at + 1 :]]
        end = here.named(start + here.extent(x, within, at))
        inside = both(*([less_equal(start, index)] if reads else []), less(index, end))
        reads.append(Read(x, within, inside, less(index, end)))
        start = end
    return Reads(tuple(reads), None)


def _padded(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    x, places = operation.inputs[0], here.places(tensor)
    at, value = operation.options[:2]
    return Reads((Read(x, places, here.is_inside(x, places, at)),), value)


def _unpadded(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    x, places = operation.inputs[0], here.places(tensor)
    read, value = operation.options
    return Reads((Read(x, places, both(*(here.is_inside(x, places, at) for at in read))),), value)


def _gathered(tensor: TensorView, operation: Operation, here: Here) -> Reads:
    """x[index]; 0 where the index is out of range, which is never read. What is picked is known to be in range."""
    x, row = operation.inputs[0], here.values[0]  # of int64, before it is cut to the bits of an index
    at, shared = operation.options
    own, count = here.places(tensor), operation.inputs[1].ndim - shared
    places = [*own[:at], cast(row, INDEX), *own[at + count :]]
    if operation.name == "pick":
        return Reads((Read(x, places),), None)
    extent = cast(here.extent(x, places, at), "int64")
    inside = both(less_equal(const(0, "int64"), row), less(row, extent))
    return Reads((Read(x, places, inside),))


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
    "resize": _resized, "concat": _joined, "pad_rows": _padded, "unpad_rows": _unpadded, "gather": _gathered,
    "select": _selected,
}  # fmt: skip
