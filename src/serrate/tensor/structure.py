"""Structure: the packed axes of a ragged tensor, and the arithmetic of their cells.

A structure is a loop nest. Its axes, outermost first, are uniform (an int) or ragged (a partition and its parents: the
outer axes whose cells number the partition's components). The packed axis of a tensor's values walks the cells of the
whole nest in order. Axes after the last ragged one are not part of it: they are ordinary trailing axes of the values.

    [B, r]           axes (B, Ragged(p, (0,)))                           cell of (b, i)    = p.off[b] + i
    [B, r1, r2]      axes (B, Ragged(p, (0,)), Ragged(q, (0, 1)))        cell of (b, i, j) = q.off[p.off[b] + i] + j
    [B, q, k]        axes (B, Ragged(p, (0,)), Ragged(q, (0,)))          per b a p[b] × q[b] block

A *nest* is a tuple of axis numbers, closed under parents, in order; `(0, 1)` is the nest of the first two axes. Every
nest has its own cells. The level of a nest is what its last axis adds to the nest without it: an int, or a partition
with one component per outer cell: the axis's own if its parents are exactly the axes before it, else that one expanded
over them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import torch

from serrate.errors import DeviceMismatchError, RaggednessError
from serrate.tensor import abstract, host
from serrate.tensor.partition import CPU, Partition

Nest = tuple[int, ...]
T = TypeVar("T")


class Ragged:
    """A ragged axis as a shape shows it: its partition, and which axes of that shape are its parents.

    It is no number, so code that would pad by accident fails instead.

    >>> import serrate as sr
    >>> sr.ragged([[1., 2.], [], [3.]]).shape
    (3, Ragged([2, 0, 1]))
    >>> sr.Ragged([2, 0, 1]) == sr.ragged([[1., 2.], [], [3.]]).shape[1]
    True
    """

    __slots__ = ("parents", "partition")

    partition: Partition
    parents: tuple[int, ...]

    def __init__(self, partition: Partition | Any, parents: Iterable[int] = (0,)) -> None:
        self.partition = partition if isinstance(partition, Partition) else Partition.from_lengths(partition)
        self.parents = tuple(parents)

    @property
    def lengths(self) -> torch.Tensor:
        """The length of each component."""
        return self.partition.lengths

    def __reduce__(self) -> tuple[Any, ...]:
        from serrate.tensor.persist import rebuild

        return rebuild, ("ragged", self.partition, self.parents)

    def __repr__(self) -> str:
        text = self.partition.preview()
        return f"Ragged({text})" if self.parents == (0,) else f"Ragged({text}, parents={self.parents})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return self.parents == other.parents and self.partition.same_as(other.partition)

    def __hash__(self) -> int:
        return hash((self.parents, self.partition.num_components))


Axis = int | Ragged


def _named(axis: Axis) -> tuple[Any, ...]:
    """An axis as it stands in the name of a partition."""
    return (axis.partition, axis.parents) if isinstance(axis, Ragged) else (axis,)


def parents_of(axis: Axis) -> tuple[int, ...]:
    """The axes that an axis depends on; a uniform one depends on none."""
    return axis.parents if isinstance(axis, Ragged) else ()


class Structure:
    """The packed axes of a tensor. They never change; tensors computed from it share them; what they derive is kept."""

    __slots__ = ("_derived", "_levels", "_projections", "_rows", "axes")

    axes: tuple[Axis, ...]

    def __init__(self, axes: Iterable[Axis] = (), capacity: int | None = None) -> None:
        self.axes = tuple(axes)
        self._rows = capacity
        self._levels: dict[Nest, int | Partition] = {}
        self._projections: dict[tuple[Nest, Nest, torch.device], torch.Tensor] = {}
        self._derived: dict[Hashable, Any] = {}

    def check(self) -> Structure:
        """Itself, or a RaggednessError that says which level does not fit the ones outside it."""
        level = 0
        for i, axis in enumerate(self.axes):
            if isinstance(axis, int):
                continue
            parents = axis.parents
            if not parents or list(parents) != sorted(set(parents)) or parents[-1] >= i:
                raise RaggednessError(f"level {level}: parents must be outer axes in order, got {parents} for axis {i}")
            for p in parents:
                outer = self.axes[p]
                if isinstance(outer, Ragged) and not set(outer.parents) <= set(parents):
                    raise RaggednessError(
                        f"level {level}: parents {parents} leave out some of {outer.parents}, the parents of one"
                    )
            cells, have = self.cells(parents), axis.partition.num_components
            if cells != have:
                raise RaggednessError(
                    f"level {level} has lengths for {have} components, but the axes outside it have {cells} cells"
                )
            level += 1
        homes = {p.home for p in self.partitions if not p.is_host_born}
        if len(homes) > 1:
            raise DeviceMismatchError(f"the offsets of one tensor lie on several devices: {sorted(map(str, homes))}")
        return self

    def derived(self, key: Hashable, make: Callable[[Structure], T]) -> T:
        """What `make` gives for these axes, made once for this structure and kept with it under `key`.

        `make` is given another structure of the same axes, which what it makes may hold: if that held this structure,
        the two would hold each other, and their memory would come back late. In an abstract run nothing is kept, since
        the partitions that it makes have no elements, and must not outlive it.
        """
        found: T | None = self._derived.get(key)
        if found is None:
            if abstract.current() is not None:
                return make(self)
            other = object.__new__(Structure)
            other.axes, other._rows, other._derived = self.axes, self._rows, {}
            other._levels, other._projections = self._levels, self._projections
            found = self._derived[key] = make(other)
        return found

    # --------------------------------------------------------------------------------------------- what it holds

    @property
    def whole(self) -> Nest:
        """The nest of all axes."""
        return tuple(range(len(self.axes)))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of the ragged axes, outermost first."""
        return tuple(axis.partition for axis in self.axes if isinstance(axis, Ragged))

    def partition_of(self, number: int) -> Partition:
        """The partition of axis `number`, which must be ragged."""
        axis = self.axes[number]
        assert isinstance(axis, Ragged)
        return axis.partition

    @property
    def home(self) -> torch.device:
        """Where work on offsets is done: on the host if it has all of them, else on the device they were born on."""
        for partition in self.partitions:
            if not partition.is_host_born:
                return partition.home
        return CPU

    @property
    def is_host_born(self) -> bool:
        """Whether the host knows every length."""
        return all(p.is_host_born for p in self.partitions)

    @property
    def is_exact(self) -> bool:
        """Whether every cell, derived ones included, is known to be defined."""
        return self.is_host_born or all(
            axis.partition.is_exact and self._times(self.whole[: number + 1]) is not None
            for number, axis in enumerate(self.axes)
            if isinstance(axis, Ragged)
        )

    @property
    def capacity(self) -> int | None:
        """How many rows the packed axis has; None where only adding up device-born lengths would tell."""
        return self.cells(self.whole) if self.is_host_born else self.room(self.whole)

    @property
    def is_chain(self) -> bool:
        """Whether each ragged axis depends on all axes outside it, so that storage needs no derived offsets."""
        return all(isinstance(axis, int) or axis.parents == tuple(range(i)) for i, axis in enumerate(self.axes))

    def same_as(self, other: Structure) -> bool:
        """Whether both have the same axes, partitions compared by `Partition.same_as`."""
        if self is other:
            return True
        if len(self.axes) != len(other.axes):
            return False
        return all(type(a) is type(b) and a == b for a, b in zip(self.axes, other.axes, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.same_as(other)

    def __hash__(self) -> int:
        return hash(self.axes)

    def __repr__(self) -> str:
        return f"Structure{self.axes}"

    # -------------------------------------------------------------------------------------------- cells of nests

    def room(self, nest: Nest) -> int | None:
        """How many cells a nest has room for, defined ones and others; None where only adding up lengths would tell.

        This is the one rule for how many rows there are. The host knows them without adding up lengths where the last
        axis is uniform or has a length for each cell outside it, where the axes outside it that it does not depend on
        are uniform (they repeat its entries), where another axis has a length for each cell of the nest, and where the
        maker of the structure said how many rows there are.
        """
        if not nest:
            return 1
        axis = self.axes[nest[-1]]
        if isinstance(axis, int):
            outer = self.room(nest[:-1])
            return None if outer is None else outer * axis
        times = self._times(nest)
        if times is not None:
            return times * axis.partition.num_values
        found = self._levels.get(nest)
        if isinstance(found, Partition):
            return found.num_values
        if self.room(nest[:-1]) == 0:
            return 0
        for inner in self.axes[nest[-1] + 1 :]:
            if isinstance(inner, Ragged) and inner.parents == nest:
                return inner.partition.num_components
        return self._rows if nest == self.whole else None

    def _times(self, nest: Nest) -> int | None:
        """How often a nest repeats each entry of its last axis, which is ragged; None where that depends on the row."""
        axis = self.axes[nest[-1]]
        assert isinstance(axis, Ragged)
        times = 1
        for number in nest[:-1]:
            if number not in axis.parents:
                size = self.axes[number]
                if isinstance(size, Ragged):
                    return None
                times *= size
        return times

    def cells(self, nest: Nest) -> int:
        """How many cells a nest has room for; where only adding up lengths tells, they are added up."""
        room = self.room(nest)
        if room is not None:
            return room
        level = self.level(nest)
        return level.num_values if isinstance(level, Partition) else level * self.cells(nest[:-1])

    def defined_cells(self, nest: Nest) -> int | torch.Tensor:
        """How many of a nest's cells are defined; a 0-d tensor where only the device knows."""
        if not nest:
            return 1
        level = self.level(nest)
        if isinstance(level, int):
            return level * self.defined_cells(nest[:-1])
        return level.num_values if level.is_exact else level.offsets_on(self.home)[-1]

    def defined_rows(self, like: torch.Tensor) -> torch.Tensor:
        """Which rows of the packed values `like` are defined, shaped to meet them."""
        rows = torch.arange(like.shape[0], device=like.device) < self.defined_cells(self.whole)
        return rows.view(-1, *[1] * (like.ndim - 1))

    def level(self, nest: Nest) -> int | Partition:
        """What the last axis of `nest` adds: a size, or a partition with one component per cell of the nest before."""
        axis = self.axes[nest[-1]]
        if isinstance(axis, int):
            return axis
        if axis.parents == nest[:-1]:
            return axis.partition
        if self._times(nest) == 1:  # All other axes have one position each.
            return axis.partition
        found = self._levels.get(nest)
        if found is None:
            found = self._levels[nest] = self._derived_level(nest, axis)
        return found

    def _derived_level(self, nest: Nest, axis: Ragged) -> Partition:
        with host.lasting():
            component = self.project(nest[:-1], axis.parents, self.home)
            if not self.is_host_born:  # Outer cells past the last offset are undefined, and have no entries.
                cells = torch.arange(component.numel(), device=component.device)
                component = torch.where(cells < self.defined_cells(nest[:-1]), component, -1)
            exact = axis.partition.is_exact and self._times(nest) is not None
            outer = (part for n in nest[:-1] for part in _named(self.axes[n]))
            return axis.partition.take(component, capacity=self.room(nest), exact=exact, name=("over", *outer, nest))

    def rows_and_positions(self, nest: Nest, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """For each cell of `nest`: the outer cell it lies in, and its position there."""
        level = self.level(nest)
        if isinstance(level, Partition):
            return level.row_ids_on(device), level.positions_on(device)
        cells = torch.arange(self.cells(nest), device=device)
        size = max(level, 1)
        return cells // size, cells % size

    def positions(self, nest: Nest, axis: int, device: torch.device) -> torch.Tensor:
        """For each cell of `nest` its position along `axis`."""
        if axis == nest[0] != nest[-1] and isinstance(self.axes[axis], int):
            return self.project(nest, (axis,), device)
        rows, last = self.rows_and_positions(nest, device)
        return last if nest[-1] == axis else self.positions(nest[:-1], axis, device)[rows]

    def project(self, nest: Nest, onto: Nest, device: torch.device) -> torch.Tensor:
        """For each cell of `nest` the cell of the smaller nest `onto` that it lies over."""
        key = (nest, onto, device)
        found = self._projections.get(key)
        if found is None:
            with host.lasting():
                found = self._projections[key] = self._project(nest, onto, device)
        return found

    def _project(self, nest: Nest, onto: Nest, device: torch.device) -> torch.Tensor:
        if nest == onto:
            return torch.arange(self.cells(nest), device=device)
        if not onto:
            return torch.zeros(self.cells(nest), dtype=torch.int64, device=device)
        rows, positions = self.rows_and_positions(nest, device)
        if nest[-1] != onto[-1]:
            return rows if nest[:-1] == onto else self.project(nest[:-1], onto, device)[rows]
        outer = rows if nest[:-1] == onto[:-1] else self.project(nest[:-1], onto[:-1], device)[rows]
        return step_into(self.level(onto), outer, positions)

    def rank(self, nest: Nest, positions: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The cell of `nest` at the given position along each of its axes."""
        cell = torch.zeros_like(positions[nest[0]])
        for depth, axis in enumerate(nest):
            cell = step_into(self.level(nest[: depth + 1]), cell, positions[axis])
        return cell


def step_into(level: int | Partition, outer: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The inner cells at `positions` of the `outer` cells.

    An undefined cell may have a position that no cell has; it is then brought into range.
    """
    if isinstance(level, int):
        return outer * level + positions
    starts = level.offsets_on(outer.device)[:-1].to(torch.int64)
    if starts.numel() == 0:
        return outer * 0 + positions
    inner = starts[outer] + positions
    return inner if level.is_host_born else inner.clamp(0, max(level.num_values - 1, 0))


DENSE = Structure()
