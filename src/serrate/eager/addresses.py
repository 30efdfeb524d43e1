"""Addresses: where the elements lie that indices name along one axis. Positions are counted within each row.

Every index becomes the number of a block of the values, to be read or written. Axes behind the indexed one that indices
do not tell apart stay together as blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.eager.arguments import integers
from serrate.errors import RaggednessError
from serrate.tensor import bits, broadcast, host, plan
from serrate.tensor.broadcast import lay_out
from serrate.tensor.layout import canonical
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure, step_into
from serrate.tensor.tensor import Tensor


@dataclass
class Address:
    """Where the elements lie that `indices` name along an axis of `x`, and the shape they have together.

    Axes of `x` that depend on the indexed axis have the sizes of the indices; their positions are checked too.
    """

    x: Tensor
    indices: Tensor
    axis: int
    shape: tuple[Axis, ...]
    wraps: bool  # Whether negative indices count from the end of a row.
    reports: bool = True  # Whether an index out of range is an error; if not, it is only marked.

    @cached_property
    def home(self) -> tuple[Structure, tuple[int, ...]]:
        """The structure and order of the result. If an operand has that structure, the result shares it."""
        if not any(isinstance(axis, Ragged) for axis in self.shape):
            return DENSE, tuple(range(len(self.shape)))
        for operand in (self.x, self.indices):
            if operand.is_ragged and _is_cut_by(operand.shape, self.shape):
                return operand.structure, operand.order
        structure, _, order = canonical(self.shape)
        return structure, order

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The shape of the values of the result."""
        structure, order = self.home
        packed = len(structure.axes)
        features = [self.shape[order.index(c)] for c in range(packed, len(order))]
        rows = [] if structure is DENSE else [self._rows]
        return (*rows, *(n for n in features if isinstance(n, int)))

    @property
    def _rows(self) -> int:
        structure = self.home[0]
        for operand in (self.x, self.indices):
            if operand.structure is structure:
                return operand.values.shape[0]
        return structure.cells(structure.whole)

    @cached_property
    def defined(self) -> torch.Tensor | None:
        """Which rows of the result are defined, shaped to broadcast against its values; None if all are."""
        structure = self.home[0]
        if structure is DENSE or structure.is_exact:
            return None
        return structure.defined_rows(self.x.values.new_zeros(()).expand(self.sizes))

    def _position(self, axis: int) -> torch.Tensor:
        """Positions along an axis of the result, shaped to broadcast against its values."""
        structure, order = self.home
        packed, c = len(structure.axes), order[axis]
        if c < packed:
            along, dim = structure.positions(structure.whole, c, self.x.device), 0
        else:
            dim = c - packed + (1 if packed else 0)
            along = torch.arange(self.sizes[dim], device=self.x.device)
        return along.view([-1 if d == dim else 1 for d in range(len(self.sizes))])

    @cached_property
    def _index(self) -> torch.Tensor:
        structure, order = self.home
        given = self.indices._with(self.indices.values.to(torch.int64))
        return given.values if structure is DENSE else lay_out(given, structure, order)

    @cached_property
    def places(self) -> tuple[list[torch.Tensor], torch.Tensor]:
        """An index for each dimension of x's values, brought into range; and which given indices were out of range."""
        x, wrong = self.x, torch.zeros((), dtype=torch.bool, device=self.x.device)
        packed = x.structure.whole
        cell = torch.zeros((), dtype=torch.int64, device=x.device)
        found: list[torch.Tensor] = []
        for c in range(x.ndim):
            level = x.structure.level(packed[: c + 1]) if c < len(packed) else None
            size = x.values.shape[c - len(packed) + (1 if packed else 0)] if level is None else level
            have = lengths_of(size, cell)
            at, bad = self._along(x.order.index(c), have, cell)
            wrong = wrong | bad
            if level is None:
                found.append(at)
            else:
                most = x.structure.cells(packed[: c + 1]) - 1 if c < len(packed) - 1 else x.values.shape[0] - 1
                cell = step_into(level, cell, at).clamp(0, max(most, 0))
        return ([cell, *found] if packed else found), wrong

    def _along(
        self, axis: int, have: torch.Tensor | int, row: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | bool]:
        """Positions along an axis of x, brought into range by the length of each row; and which were out of range."""
        chosen = axis == self.axis
        size = self.x.shape[axis]
        if not chosen and not depends_on(size, self.axis):
            stretched = size == 1 and self.shape[axis] != 1
            position = self._position(axis)
            return torch.zeros_like(position) if stretched else position, False
        at = self._index if chosen else self._position(axis)
        at = torch.where(at < 0, at + have, at) if chosen and self.wraps else at
        bad = (at < 0) | (at >= have)
        bad = bad if self.defined is None else bad & self.defined
        if self.reports:
            self._report(bad, axis, have, row)
        last = have - 1
        if isinstance(last, int):
            return at.clamp(0, max(last, 0)), bad
        return torch.minimum(at.clamp(min=0), last.clamp(min=0)), bad

    def _report(self, bad: torch.Tensor, axis: int, have: torch.Tensor | int, row: torch.Tensor) -> None:
        given = self._index if axis == self.axis else self._position(axis)

        def error(i: int) -> IndexError:
            value = int(given.expand(bad.shape).reshape(-1)[i])
            if isinstance(have, int):
                return IndexError(f"index {value} is out of range for axis {axis} with size {have}")
            number, length = (int(each.expand(bad.shape).reshape(-1)[i]) for each in (row, have))
            return IndexError(
                f"index {value} is out of range for row {number} of axis {axis}, which has {length} entries"
            )

        host.defer(host.first_fault(bad.reshape(-1)), error)

    @cached_property
    def blocks(self) -> tuple[torch.Tensor, int, int]:
        """For each block of the result its block in x; how many blocks x has; and how many axes a block has.

        A block takes in the last dimensions that the result has in common with x and along which no index varies.
        """
        places, _ = self.places
        values, sizes, kept = self.x.values, self.sizes, len(places)
        inner = 0
        while kept > 1 and self._is_whole(places, inner):
            inner, kept = inner + 1, kept - 1
        address = torch.zeros((), dtype=torch.int64, device=self.x.device)
        for place, size in zip(places[:kept], values.shape[:kept], strict=True):
            address = address * size + place
        outer = sizes[: len(sizes) - inner]
        address = address.reshape(address.shape[: address.ndim - inner] if inner else address.shape)
        return address.expand(outer), math.prod(values.shape[:kept]), inner

    def _is_whole(self, places: list[torch.Tensor], inner: int) -> bool:
        """Whether x and the result share the dimension before the last `inner` ones, and no index varies along it."""
        dim = len(self.sizes) - 1 - inner
        mine = self.x.values.ndim - 1 - inner
        structure, order = self.home
        first = len(structure.axes) - (1 if structure.axes else 0)
        own = len(self.x.structure.axes) - (1 if self.x.is_ragged else 0)
        if dim < (1 if structure.axes else 0) or order.index(dim + first) != self.x.order.index(mine + own):
            return False
        same = self.sizes[dim] == self.x.values.shape[mine] and order.index(dim + first) != self.axis
        others = places[: len(places) - 1 - inner]
        return same and all(p.ndim == 0 or p.shape[dim] == 1 for p in others)

    def put_together(self, values: torch.Tensor) -> Tensor:
        """The result around its values."""
        structure, order = self.home
        return Tensor(values, team=self.x.team) if structure is DENSE else Tensor(values, structure, order, self.x.team)

    def read(self, fill: Any = None) -> Tensor:
        """The elements that the indices name. If `fill` is given, it stands in the place of those out of range."""
        address, count, inner = self.blocks
        table = self.x.values.reshape(count, *self.x.values.shape[self.x.values.ndim - inner :])
        cells = address.reshape(-1)
        made = plan.take_or_fill(table, cells) if count == 0 else bits.take(table, cells)
        made = made.view(self.sizes)
        if fill is not None:
            made = bits.where(self.places[1], bits.constant(fill, made.dtype, made.device), made)
        if self.defined is not None:
            made = bits.where(self.defined, made, torch.zeros((), dtype=made.dtype, device=made.device))
        return self.put_together(made)

    def write(self, source: Any, reduce: str | None, include_self: bool) -> Tensor:
        """x with `source` written to the elements, or combined with what is there."""
        address, count, inner = self.blocks
        values = self.x.values
        block = values.shape[values.ndim - inner :]
        table = values.reshape(count, *block)
        like = self.put_together(values.new_zeros(()).expand(self.sizes))
        source = values_of(source, like, values.dtype).expand(self.sizes)
        source = source.reshape(address.numel(), *block)
        cells, wrong = address, self.places[1]
        dumps = self.defined is not None or (values.is_cuda and self.reports) or count == 0
        if dumps:
            bad = wrong if self.defined is None else wrong | ~self.defined
            bad = bad.view(bad.shape[: bad.ndim - inner]) if inner and bad.ndim else bad
            cells = torch.where(bad, count, cells)
            table = torch.cat([table, table.new_zeros((1, *block))])
        made = combined(table, cells.reshape(-1), source, reduce, include_self)
        return self.x._with((made[:count] if dumps else made).view(values.shape))


def _is_cut_by(shape: tuple[Axis, ...], wanted: tuple[Axis, ...]) -> bool:
    """Whether a tensor of `shape` has the same partitions as `wanted`, on the same axes, with the same parents."""
    for axis, other in zip(shape, wanted, strict=True):
        if not isinstance(axis, Ragged) or not isinstance(other, Ragged):
            if isinstance(axis, Ragged) or isinstance(other, Ragged):
                return False
            continue
        if axis.partition is not other.partition or axis.parents != other.parents:
            return False
        if any(isinstance(shape[p], int) and shape[p] != wanted[p] for p in axis.parents):
            return False
    return True


def depends_on(axis: Axis, on: int) -> bool:
    """Whether an axis of a shape is ragged with axis `on` among its parents."""
    return isinstance(axis, Ragged) and on in axis.parents


def lengths_of(level: int | Partition, rows: torch.Tensor) -> torch.Tensor | int:
    """How many positions each of `rows` has at this level."""
    if isinstance(level, int):
        return level
    lengths = level.lengths_on(rows.device).to(torch.int64)
    return lengths[rows] if lengths.numel() else torch.zeros_like(rows)


def combined(
    table: torch.Tensor, cells: torch.Tensor, source: torch.Tensor, reduce: str | None, include_self: bool
) -> torch.Tensor:
    """Blocks of `table` overwritten by those of `source`, or combined with them."""
    if reduce is None:
        return bits.placed(table, cells, source)
    dtype = table.dtype
    if dtype in (torch.float16, torch.bfloat16):
        return combined(table.float(), cells, source.float(), reduce, include_self).to(dtype)
    if reduce == "sum" and include_self:
        return table.index_add(0, cells, source)
    return table.scatter_reduce(
        0, beside(cells, source).expand(source.shape), source, reduce, include_self=include_self
    )


def values_of(source: Any, like: Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is written, laid out to broadcast against the values of `like`, in `dtype`, which must hold it."""
    aligned = broadcast.align(source, like)
    # A number would lose digits if it were a float32.
    exact = {float: torch.float64, complex: torch.complex128}.get(type(aligned))
    made = aligned if isinstance(aligned, torch.Tensor) else torch.as_tensor(aligned, dtype=exact, device="cpu")
    made = host.send(made, like.device)
    if not torch.can_cast(made.dtype, dtype):
        raise TypeError(f"elements of {made.dtype} do not go into a tensor of {dtype}")
    return made.to(dtype)


def beside(each: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A vector with one entry per row, shaped to broadcast against `rows`."""
    return each.view(-1, *[1] * (rows.ndim - 1))


def indices_beside(x: Tensor, given: Any) -> Tensor:
    """Indices of as many axes as x has, or an error."""
    indices = integers(given, "indices")
    broadcast.require_one_device(x, indices)
    if indices.ndim != x.ndim or x.ndim == 0:
        raise ValueError(f"indices must have as many axes as a tensor of shape {x.shape}, got shape {indices.shape}")
    return indices


def stretched(x: Tensor, indices: Tensor, axis: int, reports: bool = True) -> Address:
    """Other axes broadcast; negative indices count from the end."""
    free = [1 if i == axis or depends_on(size, axis) else size for i, size in enumerate(x.shape)]
    shape = broadcast.broadcast_shapes(tuple(free), indices.shape)
    return Address(x, indices, axis, shape, wraps=True, reports=reports)


def within(x: Tensor, indices: Tensor, axis: int) -> Address:
    """torch.gather's rule: other axes of indices are ragged as x's are, and no larger where uniform."""
    for i, (size, own) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i == axis or depends_on(size, axis):
            continue
        if isinstance(size, Ragged) or isinstance(own, Ragged):
            if not isinstance(size, Ragged) or not isinstance(own, Ragged) or size != own:
                raise RaggednessError(f"axis {i} of indices must be {size}, as in the tensor they index, got {own}")
        elif own > size:
            raise ValueError(f"axis {i} of indices must be no larger than {size}, as in the tensor, got {own}")
    return Address(x, indices, axis, indices.shape, wraps=False)
