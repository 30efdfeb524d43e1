"""Joining tensors: concat along any axis, row by row where that axis is ragged, and stack."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor import broadcast, host, select
from serrate.tensor.combine import merge_axes
from serrate.tensor.indexing import expand_dims, merge_uniform
from serrate.tensor.offsets import offsets_from_lengths
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor


def concat(tensors: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along `axis`. On a ragged axis row by row, lengths adding; a dense tensor joins with equal rows.

    >>> import torch, serrate as sr
    >>> a = sr.from_lengths(torch.arange(10), [3, 5, 2])
    >>> b = sr.from_lengths(torch.arange(5), [1, 0, 4])
    >>> sr.concat([a, b], axis=1).lengths
    (tensor([4, 5, 6]),)
    >>> sr.concat([torch.zeros(3, 1, dtype=torch.int64), a], axis=1).tolist()
    [[0, 0, 1, 2], [0, 3, 4, 5, 6, 7], [0, 8, 9]]
    """
    parts = [as_tensor(t) for t in tensors]
    if not parts:
        raise ValueError("concat needs at least one tensor")
    broadcast.require_one_device(*parts)
    if axis is None:
        return concat([p.flat().values.reshape(-1) for p in parts], axis=0)
    if not any(p.is_ragged for p in parts):
        return Tensor(torch.cat([p.values for p in parts], axis), team=parts[0].team)
    template = next(p for p in parts if p.is_ragged)
    number = template._axis(axis)
    c = template.order[number]
    parts = [_like(p, template, c, i) for i, p in enumerate(parts)]
    _require_joinable(parts, template, c)
    packed = len(template.structure.axes)
    if c >= packed:
        values = torch.cat([p.values for p in parts], c - packed + 1)
        return Tensor(values, template.structure, template.order, template.team)
    return _join_packed(parts, template, c)


def stack(tensors: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """Tensors joined along a new axis. Ragged axes before it must agree; those after it depend on the new axis too.

    >>> import serrate as sr
    >>> sr.stack([sr.ragged([[1, 2], []]), sr.ragged([[3], [4]])]).tolist()
    [[[1, 2], []], [[3], [4]]]
    >>> sr.stack([sr.ragged([[1, 2], []]), sr.ragged([[3, 4], []])], axis=-1).tolist()
    [[[1, 3], [2, 4]], []]
    """
    parts = [as_tensor(t) for t in tensors]
    if not parts:
        raise ValueError("stack needs at least one tensor")
    ndim = parts[0].ndim
    if not -ndim - 1 <= axis <= ndim:
        raise IndexError(f"axis {axis} is out of range for stacking tensors of {ndim} axes")
    number = axis % (ndim + 1)
    if not any(p.is_ragged for p in parts):
        return Tensor(torch.stack([p.values for p in parts], number), team=parts[0].team)
    return concat([_with_packed_axis(p, number) for p in parts], axis=number)


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
    return Tensor(x.values, Structure((*outer, *inner)), order, x.team)


def _with_packed_axis(x: Tensor, position: int) -> Tensor:
    """A new axis of size 1 that the ragged axes seen behind it depend on; a feature if there are none."""
    behind = [c for c in x.order[position:] if c < len(x.structure.axes) and isinstance(x.structure.axes[c], Ragged)]
    if not behind:
        return expand_dims(x, position)
    at = min(behind) if position else 0
    axes: list[Axis] = []
    for c, axis in enumerate(x.structure.axes):
        if isinstance(axis, Ragged):
            parents = {p + (p >= at) for p in axis.parents} | ({at} if c in behind else set())
            axis = Ragged(axis.partition, sorted(parents))
        axes.append(axis)
    axes.insert(at, 1)
    order = [c + (c >= at) for c in x.order]
    order.insert(position, at)
    return Tensor(x.values, Structure(axes), tuple(order), x.team)


def _like(part: Tensor, template: Tensor, c: int, i: int) -> Tensor:
    """A dense part that joins along a ragged axis, seen as rows of equal length."""
    if part.ndim != template.ndim:
        raise ValueError(f"tensors must have as many axes, got shapes {template.shape} and {part.shape} (tensor {i})")
    if part.is_ragged:
        return part
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
                    raise RaggednessError(f"axis {seen} has different raggedness: {a} and, in tensor {i}, {b}")
            elif own != c and a != b:
                raise ValueError(
                    f"axis {seen} must have one size to join along another, got {a} and, in tensor {i}, {b}"
                )


def _join_packed(parts: list[Tensor], template: Tensor, c: int) -> Tensor:
    """Join along packed axis c: lay the cells of its nest end to end, then bring them into order.

    Seen with all axes up to c as one, the parts join along their first axis. The cells of part t in outer cell q then
    move to new_offset[q] + (what parts before t have in q) + position.
    """
    structures = [p.structure for p in parts]
    first = structures[0]
    values = torch.cat([p.values for p in parts])
    inner: Structure | None = None
    nest = tuple(range(c + 1))
    levels, outer = [s.level(nest) for s in structures], first.cells(nest[:-1])
    if c == len(first.axes) - 1:
        values = values.index_select(0, _places(levels, outer, values.device))
    elif c:
        end_to_end = _append([_outer_as_one(s, c) for s in structures])
        plan = select.Plan(end_to_end, {0: select.Pick(_places(levels, outer, first.home))})
        values = select.rows(values, plan.source(end_to_end.whole, values.device))
        inner = Structure(axis for _, axis in plan.result())
    axes: list[Axis] = [*first.axes[:c], _added([s.axes[c] for s in structures])]
    for number in range(c + 1, len(first.axes)):
        axis = first.axes[number]
        if isinstance(axis, Ragged) and c in axis.parents:
            if inner is None:
                axis = Ragged(append_partitions([s.partition_of(number) for s in structures]), axis.parents)
            else:
                axis = Ragged(inner.partition_of(number - c), range(number))
        axes.append(axis)
    return Tensor(values, Structure(axes), template.order, template.team)


def _outer_as_one(structure: Structure, c: int) -> Structure:
    """Packed axes 0 … c as one uniform axis; a ragged axis behind depends on it and all between."""
    for _ in range(c):
        structure = Structure(
            merge_axes(structure, 1) if isinstance(structure.axes[1], Ragged) else merge_uniform(structure)
        )
    axes: list[Axis] = []
    for number, axis in enumerate(structure.axes):
        if isinstance(axis, Ragged) and axis.parents != tuple(range(number)):
            level = structure.level(tuple(range(number + 1)))
            assert isinstance(level, Partition)
            axis = Ragged(level, range(number))
        axes.append(axis)
    return Structure(axes)


def _append(structures: list[Structure]) -> Structure:
    """Chains joined along their first axis."""
    axes: list[Axis] = []
    for number, first in enumerate(structures[0].axes):
        if isinstance(first, Ragged):
            axes.append(Ragged(append_partitions([s.partition_of(number) for s in structures]), first.parents))
        elif number == 0:
            axes.append(sum(a for s in structures if isinstance(a := s.axes[0], int)))
        else:
            axes.append(first)
    return Structure(axes)


def append_partitions(partitions: list[Partition]) -> Partition:
    """The components of all partitions, one after the other."""
    base = next((p for p in partitions if not p.is_host_born), partitions[0])
    lengths = torch.cat([p.lengths_on(base.home).to(torch.int64) for p in partitions])
    return base.with_lengths(lengths, capacity=sum(p.num_values for p in partitions))


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


def _places(levels: list[int | Partition], outer: int, device: torch.device) -> torch.Tensor:
    """For each cell of the result its place among the cells of all parts laid end to end."""
    partitions = [level if isinstance(level, Partition) else Partition.uniform(outer, level) for level in levels]
    lengths = torch.stack([p.lengths_on(device).to(torch.int64) for p in partitions])  # [parts, outer]
    starts = torch.stack([p.offsets_on(device)[:-1].to(torch.int64) for p in partitions])
    sizes = [p.num_values for p in partitions]
    total = sum(sizes)
    before = torch.tensor([0, *accumulate(sizes[:-1])])
    first = (starts + host.send(before, device)[:, None]).T.reshape(-1)
    if first.numel() == 0:
        return first
    # Outer cell by outer cell, within it part by part: runs of cells that move as one.
    unknown = not all(p.is_host_born for p in partitions)
    runs = Partition._of(offsets_from_lengths(lengths.T.reshape(-1), None), total, device_born=unknown)
    return (first[runs.row_ids_on(device)] + runs.positions_on(device)).clamp(0, max(total - 1, 0))
