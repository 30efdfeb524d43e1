"""Joining tensors: concat along any axis, row by row where that axis is ragged, and stack."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor import abstract, bits, broadcast
from serrate.tensor.broadcast import capacities
from serrate.tensor.combine import fitted
from serrate.tensor.indexing import expand_dims
from serrate.tensor.partition import Partition
from serrate.tensor.promotion import promote
from serrate.tensor.storage import as_rows, restored
from serrate.tensor.structure import Axis, Nest, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along `axis`. On a ragged axis each row is joined on its own; a dense tensor has equal rows there.

    >>> import torch, serrate as sr
    >>> a = sr.from_lengths(torch.arange(10), [3, 5, 2])
    >>> b = sr.from_lengths(torch.arange(5), [1, 0, 4])
    >>> sr.concat([a, b], axis=1).lengths
    (tensor([4, 5, 6]),)
    >>> sr.concat([torch.zeros(3, 1, dtype=torch.int64), a], axis=1).tolist()
    [[0, 0, 1, 2], [0, 3, 4, 5, 6, 7], [0, 8, 9]]
    """
    parts = [as_tensor(t) for t in arrays]
    if not parts:
        raise ValueError("concat needs at least one tensor")
    broadcast.require_one_device(*parts)
    if axis is None:
        return concat([p.flat().values.reshape(-1) for p in parts], axis=0)
    if not any(p.is_ragged for p in parts):
        return _concat_dense(parts, parts[0]._axis(axis))
    template = next(p for p in parts if p.is_ragged)
    number = template._axis(axis)
    template = next((p for p in parts if p.ndim == template.ndim and isinstance(p.shape[number], Ragged)), template)
    c = template.order[number]
    if not all(_is_stored_alike(p, template) for p in parts):
        parts = [_like(p, template, c, i) for i, p in enumerate(parts)]
        _require_joinable(parts, template, c)
    packed = len(template.structure.axes)
    if c >= packed:
        values = torch.cat(_of_one_dtype([fitted(p.values, template.structure) for p in parts]), c - packed + 1)
        return Tensor(values, template.structure, template.order, template.team)
    return _join_packed(parts, template, c)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """Tensors joined along a new axis. Ragged axes before it must agree; those after it depend on the new axis too.

    >>> import serrate as sr
    >>> sr.stack([sr.ragged([[1, 2], []]), sr.ragged([[3], [4]])]).tolist()
    [[[1, 2], []], [[3], [4]]]
    >>> sr.stack([sr.ragged([[1, 2], []]), sr.ragged([[3, 4], []])], axis=-1).tolist()
    [[[1, 3], [2, 4]], []]
    """
    parts = [as_tensor(t) for t in arrays]
    if not parts:
        raise ValueError("stack needs at least one tensor")
    ndim = parts[0].ndim
    if not -ndim - 1 <= axis <= ndim:
        raise IndexError(f"axis {axis} is out of range for stacking tensors of {ndim} axes")
    number = axis % (ndim + 1)
    if not any(p.is_ragged for p in parts):
        return _concat_dense([expand_dims(p, number) for p in parts], number)
    template = next(p for p in parts if p.is_ragged)
    alike = [_stored_like(p, template, i) if p.is_ragged and p.ndim == ndim else p for i, p in enumerate(parts)]
    return concat([_with_packed_axis(p, number) for p in alike], axis=number)


def _concat_dense(parts: list[Tensor], axis: int) -> Tensor:
    shape = parts[0].shape
    for i, part in enumerate(parts):
        pairs = enumerate(zip(shape, part.shape, strict=False))
        if part.ndim != len(shape) or any(a != axis and abstract.differ(m, n) for a, (m, n) in pairs):
            raise ValueError(
                f"tensors must have one shape but for axis {axis}, got {shape} and, tensor {i}, {part.shape}"
            )
    return Tensor(torch.cat(_of_one_dtype([p.values for p in parts]), axis), team=parts[0].team)


def _of_one_dtype(each: list[torch.Tensor]) -> list[torch.Tensor]:
    if all(values.dtype is each[0].dtype for values in each):
        return each
    dtype = functools.reduce(promote, [values.dtype for values in each])
    return [values.to(dtype) for values in each]


def nest(rows: Sequence[Tensor]) -> Tensor:
    """Rows that are ragged themselves, one level deeper: row i becomes component i of a new ragged axis."""
    joined = concat(rows, axis=0)
    lengths = Partition.from_lengths([len(row) for row in rows])
    return replace_first(joined, (len(rows), Ragged(lengths)))


def replace_first(x: Tensor, outer: tuple[Axis, ...]) -> Tensor:
    """x with the axes of `outer` in the place of its first axis, which numbers their cells; a view."""
    extra = len(outer) - 1
    inner: list[Axis] = []
    for axis in x.structure.axes[1:]:
        if isinstance(axis, Ragged):
            own = tuple(range(len(outer))) if 0 in axis.parents else ()
            axis = Ragged(axis.partition, (*own, *(p + extra for p in axis.parents if p)))
        inner.append(axis)
    order = (*range(len(outer)), *(c + extra for c in x.order[1:]))
    return Tensor(x.values, Structure((*outer, *inner), x.structure.capacity), order, x.team)


def _with_packed_axis(x: Tensor, position: int) -> Tensor:
    """A new axis of size 1 that the ragged axes seen behind it depend on; a feature if there are none."""
    behind = [c for c in x.order[position:] if c < len(x.structure.axes) and isinstance(x.structure.axes[c], Ragged)]
    if not behind:
        return expand_dims(x, position)
    at = min(behind) if position else 0
    axes: list[Axis] = []
    for c, axis in enumerate(x.structure.axes):
        if isinstance(axis, Ragged) and c not in behind and set(axis.parents) & set(behind):
            raise RaggednessError(
                f"stacking at axis {position} of shape {x.shape} would put the new axis behind axis {x.order.index(c)} "
                f"and before an axis that one depends on; permute the axes first"
            )
        if isinstance(axis, Ragged):
            parents = {p + (p >= at) for p in axis.parents} | ({at} if c in behind else set())
            axis = Ragged(axis.partition, sorted(parents))
        axes.append(axis)
    axes.insert(at, 1)
    order = [c + (c >= at) for c in x.order]
    order.insert(position, at)
    return Tensor(x.values, Structure(axes, x.structure.capacity), tuple(order), x.team)


def _is_stored_alike(part: Tensor, template: Tensor) -> bool:
    """Whether a part has the very structure of the template, and its features: then nothing is to be compared."""
    return part is template or (
        part.structure is template.structure
        and part.order == template.order
        and part.values.shape[1:] == template.values.shape[1:]
    )


def _like(part: Tensor, template: Tensor, c: int, i: int) -> Tensor:
    """A part stored as the template is. If it is uniform along the joined axis, it adds as many entries to each row."""
    if part.ndim != template.ndim:
        raise ValueError(f"tensors must have as many axes, got shapes {template.shape} and {part.shape} (tensor {i})")
    part = _stored_like(part, template, i)
    if c >= len(template.structure.axes):
        return part
    mine, theirs = template.structure.axes[c], part.structure.axes[c]
    return as_rows(part, c, mine.parents) if isinstance(mine, Ragged) and isinstance(theirs, int) else part


def _stored_like(part: Tensor, template: Tensor, i: int) -> Tensor:
    """A part that is seen with the same axes, stored in the template's order."""
    seen = [template.order.index(own) for own in range(template.ndim)]
    packed = seen[: len(template.structure.axes)]
    if part.order == template.order and len(part.structure.axes) == len(packed):
        return part
    for a in range(part.ndim):
        mine, theirs = template.shape[a], part.shape[a]
        if isinstance(theirs, Ragged) and a not in packed:
            raise RaggednessError(f"tensor {i}, shape {part.shape}, is ragged on other axes than {template.shape}")
        if isinstance(mine, Ragged) and isinstance(theirs, Ragged) and mine.parents != theirs.parents:
            raise RaggednessError(f"tensor {i}, shape {part.shape}, numbers its rows otherwise than {template.shape}")
    return restored(part, packed, seen[len(packed) :])


def _require_joinable(parts: list[Tensor], template: Tensor, c: int) -> None:
    """An error unless all axes but the joined one are equal in all parts."""
    for i, part in enumerate(parts):
        mine, theirs = (
            [*template.structure.axes, *template.values.shape[1:]],
            [*part.structure.axes, *part.values.shape[1:]],
        )
        for own, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            seen = template.order.index(own)
            if isinstance(a, Ragged) and isinstance(b, Ragged):
                free = own == c or c in a.parents
                if a.parents != b.parents or (not free and not a.partition.same_as(b.partition)):
                    raise RaggednessError(
                        f"axis {seen} has different raggedness: {a} and, in tensor {i}, {b}{capacities(a, b)}"
                    )
            elif isinstance(a, Ragged) or isinstance(b, Ragged):
                raise RaggednessError(
                    f"axis {seen} is ragged in one tensor and uniform in another: {a} and, in tensor {i}, {b}"
                )
            elif own != c and abstract.differ(a, b):
                raise ValueError(
                    f"axis {seen} must have one size to join along another, got {a} and, in tensor {i}, {b}"
                )


def _join_packed(parts: list[Tensor], template: Tensor, c: int) -> Tensor:
    """Join along packed axis c: every cell moves to its place in the joined nest, its rows with it."""
    structures = [p.structure for p in parts]
    joined = _Joined(structures, c)
    values = joined.moved([p.values for p in parts], joined.whole.whole, parts[0].device)
    return Tensor(values, joined.whole, template.order, template.team)


class _Joined:
    """The structure that structures joined along their packed axis `c` have, and where their cells are in it.

    An axis that depends on `c` has a component in the joined structure for each one it has in a part; every other axis
    is the same in all parts, and stays the same.
    """

    def __init__(self, parts: list[Structure], c: int) -> None:
        self.parts, self.c = parts, c
        self.host_born = all(part.is_host_born for part in parts)
        self.home = next((part.home for part in parts if not part.is_host_born), parts[0].home)
        self._starts: dict[tuple[Nest, torch.device], list[torch.Tensor]] = {}
        self.whole = Structure(parts[0].axes[:c])
        for number in range(c, len(parts[0].axes)):
            axis = self._inner_axis(number) if number > c else _added([part.axes[c] for part in parts])
            # There is room for all cells that the parts have room for: undefined cells have a place at the end.
            room = sum(part.cells(part.whole[: number + 1]) for part in parts)
            self.whole = Structure((*self.whole.axes, axis), room)

    def _inner_axis(self, number: int) -> Axis:
        """An axis behind the joined one, which has the components of all parts, each in its new place."""
        axis = self.parts[0].axes[number]
        if isinstance(axis, int) or self.c not in axis.parents:
            return axis
        partitions = [part.partition_of(number) for part in self.parts]
        base = next((p for p in partitions if not p.is_host_born), partitions[0])
        lengths = [p.lengths_on(self.home).to(torch.int64) for p in partitions]
        made = self.moved(lengths, axis.parents, self.home, fill=0)
        exact = all(p.is_exact for p in partitions)
        room = sum(p.num_values for p in partitions)
        return Ragged(base.with_lengths(made, capacity=room, exact=exact), axis.parents)

    def moved(
        self, each: list[torch.Tensor], nest: Nest, device: torch.device, fill: int | None = None
    ) -> torch.Tensor:
        """The rows for the cells of the joined nest, from those that each part has for its own cells of `nest`."""
        each = _of_one_dtype(each)
        if nest[0] == self.c and self.host_born:
            return torch.cat(each)
        shape = (sum(values.shape[0] for values in each), *each[0].shape[1:])
        made = each[0].new_empty(shape) if fill is None else each[0].new_full(shape, fill)
        for i, values in enumerate(each):
            bits.put(made, (self._places(i, nest, device),), values)
        return made

    def _places(self, i: int, nest: Nest, device: torch.device) -> torch.Tensor:
        """For each cell that part `i` has of `nest`, the cell of the joined structure it becomes."""
        part = self.parts[i]
        if self.c not in nest:
            return torch.arange(part.cells(nest), device=device)
        old, new = (_cut(structure, nest) for structure in (part, self.whole))
        if nest[-1] == self.c:
            start = self._part_after_part(nest, device)[i]
        else:
            start = new.offsets_on(device)[:-1].to(torch.int64)
            start = start[self._places(i, nest[:-1], device)] if start.numel() else start
        cells = torch.arange(old.num_values, device=device)
        place = old.spread(start - old.offsets_on(device)[:-1].to(torch.int64)) + cells
        if self.host_born:
            return place
        # If a part has undefined cells, the last cell of the result is undefined, too.
        return torch.where(cells < part.defined_cells(nest), place, new.num_values - 1)

    def _part_after_part(self, nest: Nest, device: torch.device) -> list[torch.Tensor]:
        """For each part, where its entries begin in each outer cell; the joined axis is the last one of `nest`."""
        if (nest, device) not in self._starts:
            first = _cut(self.whole, nest).offsets_on(device)[:-1].to(torch.int64)
            lengths = [_cut(part, nest).lengths_on(device) for part in self.parts[:-1]]
            self._starts[nest, device] = list(itertools.accumulate(lengths, initial=first))
        return self._starts[nest, device]


def _added(axes: list[Axis]) -> Axis:
    """The joined axis itself: its size, or the length of each component, is the sum of those of the parts."""
    partitions = [axis.partition for axis in axes if isinstance(axis, Ragged)]
    if not partitions:
        return sum(axis for axis in axes if isinstance(axis, int))
    base = next((p for p in partitions if not p.is_host_born), partitions[0])
    lengths = torch.stack([p.lengths_on(base.home).to(torch.int64) for p in partitions]).sum(0)
    first = axes[0]
    assert isinstance(first, Ragged)
    exact = all(p.is_exact for p in partitions)
    room = sum(p.num_values for p in partitions)
    return Ragged(base.with_lengths(lengths, capacity=room, exact=exact), first.parents)


def _cut(structure: Structure, nest: Nest) -> Partition:
    """The level of `nest` as a partition, even if it is a size."""
    level = structure.level(nest)
    return level if isinstance(level, Partition) else Partition.uniform(structure.cells(nest[:-1]), level)
