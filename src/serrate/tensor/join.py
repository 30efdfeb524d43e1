"""Joining tensors: concat along any axis, row by row where that axis is ragged, and stack."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor import bits, broadcast, plan, select
from serrate.tensor.broadcast import capacities
from serrate.tensor.combine import merge_outermost
from serrate.tensor.indexing import expand_dims
from serrate.tensor.partition import Partition
from serrate.tensor.promotion import promote
from serrate.tensor.storage import restored
from serrate.tensor.structure import Axis, Nest, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along `axis`. On a ragged axis row by row, lengths adding; a dense tensor joins with equal rows.

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
    c = template.order[number]
    parts = [_like(p, template, c, i) for i, p in enumerate(parts)]
    _require_joinable(parts, template, c)
    packed = len(template.structure.axes)
    if c >= packed:
        values = torch.cat(_of_one_dtype(parts), c - packed + 1)
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
        same = [a == axis or m == n for a, (m, n) in enumerate(zip(shape, part.shape, strict=False))]
        if part.ndim != len(shape) or not all(same):
            raise ValueError(
                f"tensors must have one shape but for axis {axis}, got {shape} and, tensor {i}, {part.shape}"
            )
    return Tensor(torch.cat(_of_one_dtype(parts), axis), team=parts[0].team)


def _of_one_dtype(parts: list[Tensor]) -> list[torch.Tensor]:
    dtype = functools.reduce(promote, [p.dtype for p in parts])
    return [p.values.to(dtype) for p in parts]


def nest(rows: Sequence[Tensor]) -> Tensor:
    """Rows that are ragged themselves, one level deeper: row i becomes component i of a new ragged axis."""
    joined = concat(rows, axis=0)
    lengths = Partition.from_lengths([len(row) for row in rows])
    return replace_first(joined, (len(rows), Ragged(lengths)))


def replace_first(x: Tensor, outer: tuple[Axis, ...]) -> Tensor:
    """x with its first axis, the outermost packed one, unfolded into `outer`, whose cells it numbers; a view."""
    extra = len(outer) - 1
    inner: list[Axis] = []
    for axis in x.structure.axes[1:]:
        if isinstance(axis, Ragged):
            own = tuple(range(len(outer))) if 0 in axis.parents else ()
            axis = Ragged(axis.partition, (*own, *(p + extra for p in axis.parents if p)))
        inner.append(axis)
    order = (*range(len(outer)), *(c + extra for c in x.order[1:]))
    return Tensor(x.values, Structure((*outer, *inner), x.values.shape[0]), order, x.team)


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
    return Tensor(x.values, Structure(axes, x.values.shape[0]), tuple(order), x.team)


def _like(part: Tensor, template: Tensor, c: int, i: int) -> Tensor:
    """A dense part that joins along a ragged axis, seen as rows of equal length."""
    if part.ndim != template.ndim:
        raise ValueError(f"tensors must have as many axes, got shapes {template.shape} and {part.shape} (tensor {i})")
    if part.is_ragged:
        return _stored_like(part, template, i)
    axes: list[Axis] = []
    for own, axis in enumerate(template.structure.axes):
        size = part.values.shape[template.order.index(own)]
        if isinstance(axis, Ragged):
            if own != c or any(isinstance(template.structure.axes[p], Ragged) for p in axis.parents):
                raise RaggednessError(
                    f"tensor {i} is dense, shape {tuple(part.shape)}, "
                    f"but axis {template.order.index(own)} of the others is {axis}"
                )
            count = 1
            for p in axis.parents:
                count *= part.values.shape[template.order.index(p)]
            axes.append(Ragged(Partition.uniform(count, size), axis.parents))
        else:
            axes.append(size)
    structure = Structure(axes)
    packed = len(axes)
    values = part.values.permute([template.order.index(own) for own in range(template.ndim)])
    values = values.reshape(structure.cells(structure.whole), *values.shape[packed:])
    return Tensor(values, structure, template.order, part.team)


def _stored_like(part: Tensor, template: Tensor, i: int) -> Tensor:
    """A ragged part that is seen with the same axes, stored in the template's order."""
    if part.order == template.order:
        return part
    seen = [template.order.index(own) for own in range(template.ndim)]
    packed = seen[: len(template.structure.axes)]
    for a in range(part.ndim):
        mine, theirs = template.shape[a], part.shape[a]
        if isinstance(theirs, Ragged) and a not in packed:
            raise RaggednessError(f"tensor {i}, shape {part.shape}, is ragged on other axes than {template.shape}")
        if isinstance(mine, Ragged) and isinstance(theirs, Ragged) and mine.parents != theirs.parents:
            raise RaggednessError(f"tensor {i}, shape {part.shape}, numbers its rows otherwise than {template.shape}")
    return restored(part, packed, seen[len(packed) :])


def _require_joinable(parts: list[Tensor], template: Tensor, c: int) -> None:
    """Equal axes everywhere but along the joined one."""
    packed = len(template.structure.axes)
    for i, part in enumerate(parts):
        if part.order != template.order or len(part.structure.axes) != packed:
            raise RaggednessError(
                f"tensors must be ragged on the same axes: shape {template.shape} and, tensor {i}, {part.shape}"
            )
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
            elif own != c and a != b:
                raise ValueError(
                    f"axis {seen} must have one size to join along another, got {a} and, in tensor {i}, {b}"
                )


def _join_packed(parts: list[Tensor], template: Tensor, c: int) -> Tensor:
    """Join along packed axis c: every cell of its nest moves to its place in the joined one, its rows with it."""
    structures = [p.structure for p in parts]
    first = structures[0]
    nest = tuple(range(c + 1))
    # As many cells as the parts have together, undefined ones included: those find their place at the end.
    joined = Structure(
        (*first.axes[:c], _added([s.axes[c] for s in structures])), sum(s.cells(nest) for s in structures)
    )
    axes: list[Axis] = [*joined.axes]
    values = [p.values for p in parts]
    if c == 0:
        rows = _after_each_other(parts)
        axes += [_appended(structures, number) for number in range(1, len(first.axes))]
    elif c == len(first.axes) - 1:
        rows = _scatter(values, _places([_cut(s, nest) for s in structures], _cut(joined, nest), values[0].device))
    else:
        # Seen with all axes up to c as one, the parts join along their first axis; then bring its entries into order.
        merged = [_outer_as_one(s, c) for s in structures]
        end_to_end = Structure(_appended(merged, number) for number in range(len(merged[0].axes)))
        places = _places([_cut(s, nest) for s in structures], _cut(joined, nest), first.home)
        order = _scatter(_numbered(places), places, _undefined([_cut(s, nest) for s in structures], first.home))
        walk = plan.Plan(end_to_end, {0: select.Pick(order, copies=1)})
        rows = walk.read(_after_each_other(parts))
        inner = [axis for _, axis in walk.result()]
        for number in range(c + 1, len(first.axes)):
            axis = first.axes[number]
            moved = inner[number - c]
            if isinstance(axis, Ragged) and isinstance(moved, Ragged) and c in axis.parents:
                axis = Ragged(moved.partition, range(number))
            axes.append(axis)
    return Tensor(rows, Structure(axes, rows.shape[0]), template.order, template.team)


def _after_each_other(parts: list[Tensor]) -> torch.Tensor:
    """The rows of all parts, undefined ones last."""
    if all(p.structure.is_host_born for p in parts):
        return torch.cat([p.values for p in parts])
    return _scatter([p.values for p in parts], _compacted([p.structure for p in parts], parts[0].structure.whole))


def _compacted(structures: list[Structure], nest: Nest) -> list[torch.Tensor]:
    """For each part and each cell of its `nest` its place after the defined cells of the parts before.

    Undefined cells go to the last place, which is undefined too if there are any.
    """
    home = next((s.home for s in structures if not s.is_host_born), structures[0].home)
    count = sum(s.cells(nest) for s in structures)
    start, places = torch.zeros((), dtype=torch.int64, device=home), []
    for structure in structures:
        cells, defined = torch.arange(structure.cells(nest), device=home), structure.defined_cells(nest)
        places.append(torch.where(cells < defined, start + cells, count - 1))
        start = start + defined
    return places


def _outer_as_one(structure: Structure, c: int) -> Structure:
    """Packed axes 0 … c as one uniform axis; a ragged axis behind depends on it and all between."""
    for _ in range(c):
        structure = merge_outermost(structure)
    axes: list[Axis] = []
    for number, axis in enumerate(structure.axes):
        if isinstance(axis, Ragged) and axis.parents != tuple(range(number)):
            level = structure.level(tuple(range(number + 1)))
            assert isinstance(level, Partition)
            axis = Ragged(level, range(number))
        axes.append(axis)
    return Structure(axes)


def _appended(structures: list[Structure], number: int) -> Axis:
    """Axis `number` after structures were joined along their first axis."""
    axis = structures[0].axes[number]
    if isinstance(axis, int):
        return axis if number else sum(s.cells((0,)) for s in structures)
    if 0 not in axis.parents:
        return axis
    partitions = [s.partition_of(number) for s in structures]
    base = next((p for p in partitions if not p.is_host_born), partitions[0])
    parts = [p.lengths_on(base.home).to(torch.int64) for p in partitions]
    if all(s.is_host_born for s in structures):
        lengths = torch.cat(parts)
    else:
        lengths = _scatter(parts, _compacted(structures, axis.parents), 0)
    return Ragged(base.with_lengths(lengths, capacity=sum(p.num_values for p in partitions)), axis.parents)


def _added(axes: list[Axis]) -> Axis:
    """The joined axis itself: sizes add, or lengths, component by component."""
    partitions = [axis.partition for axis in axes if isinstance(axis, Ragged)]
    if not partitions:
        return sum(axis for axis in axes if isinstance(axis, int))
    base = next((p for p in partitions if not p.is_host_born), partitions[0])
    lengths = torch.stack([p.lengths_on(base.home).to(torch.int64) for p in partitions]).sum(0)
    first = axes[0]
    assert isinstance(first, Ragged)
    return Ragged(base.with_lengths(lengths, capacity=sum(p.num_values for p in partitions)), first.parents)


def _cut(structure: Structure, nest: Nest) -> Partition:
    """The level of `nest` as a partition, also where it is uniform."""
    level = structure.level(nest)
    return level if isinstance(level, Partition) else Partition.uniform(structure.cells(nest[:-1]), level)


def _places(parts: list[Partition], joined: Partition, device: torch.device) -> list[torch.Tensor]:
    """For each part and each of its cells the cell of the result it becomes: in an outer cell, part after part."""
    start = joined.offsets_on(device)[:-1].to(torch.int64)
    places = []
    for part in parts:
        cells = torch.arange(part.num_values, device=device)
        place = part.spread(start - part.offsets_on(device)[:-1].to(torch.int64)) + cells
        if not part.is_host_born:  # undefined cells exist only if the last cell of the result is undefined too
            place = torch.where(cells < part.offsets_on(device)[-1], place, joined.num_values - 1)
        places.append(place)
        start = start + part.lengths_on(device).to(torch.int64)
    return places


def _undefined(parts: list[Partition], device: torch.device) -> int | torch.Tensor:
    """An undefined cell of the parts laid end to end, if there is one, else 0."""
    found: int | torch.Tensor = 0
    before = 0
    for part in parts:
        if not part.is_exact:
            last = part.offsets_on(device)[-1]
            found = torch.where(last < part.num_values, before + last, found)
        before += part.num_values
    return found


def _numbered(places: list[torch.Tensor]) -> list[torch.Tensor]:
    """The cells of all parts, numbered end to end."""
    total = sum(place.numel() for place in places)
    numbers = torch.arange(total, device=places[0].device)
    return list(numbers.split_with_sizes([place.numel() for place in places]))


def _scatter(
    values: list[torch.Tensor], places: list[torch.Tensor], fill: int | torch.Tensor | None = None
) -> torch.Tensor:
    """Rows of all parts written to their places, one write per row; `fill` where none is written."""
    dtype = functools.reduce(promote, [v.dtype for v in values])
    rows = values[0].new_empty((sum(v.shape[0] for v in values), *values[0].shape[1:]), dtype=dtype)
    if fill is not None:
        rows[...] = fill
    for value, place in zip(values, places, strict=True):
        bits.put(rows, (place,), value.to(dtype))
    return rows
