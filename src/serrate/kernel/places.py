"""Memory of a kernel that has an element for each index of some loops: how large it is, and where an element lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH
from serrate.fusion.scalar import Scalar, const
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView
from serrate.kernel.ir import Buffer
from serrate.kernel.targets import Target


@dataclass(frozen=True)
class Place:
    """An element for each index of some loops, of which the last changes fastest; each loop has its extent with it."""

    loops: tuple[tuple[IterDomain, Scalar], ...] = ()

    @cached_property
    def size(self) -> Scalar:
        """The number of elements; a loop that is known to have no index counts as one, since memory of no elements is
        not memory."""
        size = const(1)
        for _, extent in self.loops:
            size = size if extent == const(0) else size * extent
        return size

    @property
    def axes(self) -> tuple[IterDomain, ...]:
        return tuple(loop for loop, _ in self.loops)

    def at(self, variables: Mapping[IterDomain, Scalar]) -> Scalar:
        """Where the element of the loops that are open lies."""
        place = const(0)
        for loop, extent in self.loops:
            place = place * extent + variables[loop]
        return place

    def inside(self, loops: Iterable[IterDomain]) -> Place:
        """The part of the place that belongs to some of its loops."""
        chosen = set(loops)
        return Place(tuple((loop, extent) for loop, extent in self.loops if loop in chosen))

    def __add__(self, other: Place) -> Place:
        return Place(self.loops + other.loops)


def buffer_for(
    name: str, dtype: str, place: Place, tensor: TensorView, target: Target, opened: Iterable[IterDomain]
) -> Buffer:
    """Registers of a thread for values of a tensor, inside the loops that are open; scratch memory where they are too
    many, or as many as is known only when the kernel runs. Refused where the target has none."""
    size = place.size
    itemsize, most = TORCH[dtype].itemsize, target.limits.kept_bytes
    if size.is_const and size.value * itemsize <= most:
        return Buffer(name, dtype, size, Memory.REGISTER)
    loops = ", ".join(repr(loop) for loop in place.axes)
    if not target.scratch and size.is_const:
        raise ScheduleError(
            f"{tensor} needs {size.value * itemsize} bytes of each thread for the indices of {loops}; the target "
            f"{target.name!r} gives a value at most {most}: split a loop by a constant and put its outer "
            f"part outside of what is reduced, or store {tensor.name}",
            tensor=tensor,
        )
    if not target.scratch:
        check_constant(tensor, place)
    for loop in opened:
        if loop.parallel_type.is_lanes:
            raise ScheduleError(
                f"{tensor} is kept inside loop {loop}, whose lanes would share its scratch memory of {size} elements; "
                f"put that loop inside of those that {tensor.name} is kept for, or do not run it as "
                f"{loop.parallel_type.name}",
                tensor=tensor,
            )
    return Buffer(name, dtype, size, Memory.SCRATCH)


def check_constant(tensor: TensorView, place: Place) -> None:
    """Refuse memory of a size that is known only when the kernel runs."""
    for loop, extent in place.loops:
        if not extent.is_const:
            raise ScheduleError(
                f"{tensor} needs a value for each index of loop {loop}, whose extent is not a constant: put the loop "
                f"outside of what is reduced, or split it by a constant and put the outer part outside",
                tensor=tensor,
            )
