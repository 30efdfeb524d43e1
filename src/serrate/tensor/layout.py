"""Canonical storage: the one way in which the axes of a shape are packed, and how other packings are brought into it.

Storage order is: axes that are ragged, or parents of a ragged one, as a structure; then everything else as trailing
axes of the values, its features. `order` maps the axes a user sees to those canonical axes, so a permutation is a view.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor import abstract, bits, host
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure, parents_of

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def settle(
    values: torch.Tensor, axes: Sequence[tuple[int, Axis]], features: Sequence[int]
) -> tuple[torch.Tensor, Structure, list[int]]:
    """Canonical form of `values` [cells of axes, *features]: values, structure, and the labels of the canonical axes.

    `axes` are labelled packed axes left over by a selection. Uniform ones after the last ragged axis become features (a
    view); uniform ones before it that no ragged axis depends on move behind it (a copy: the storage order changes).
    """
    last = max((i for i, (_, axis) in enumerate(axes) if isinstance(axis, Ragged)), default=-1)
    tail = [(label, axis) for label, axis in axes[last + 1 :] if isinstance(axis, int)]
    if tail or last < 0:
        sizes = [size for _, size in tail]
        outer = [values.shape[0] // max(math.prod(sizes), 1)] if last >= 0 else []
        if last >= 0 and math.prod(sizes) == 0:
            rows = Structure(axis for _, axis in axes[: last + 1])
            outer = [rows.cells(rows.whole)]
        shape = (*outer, *sizes, *values.shape[1:])
        values = values if values.shape == shape else values.reshape(shape)
    labels = [label for label, _ in axes[: last + 1]]
    behind = [label for label, _ in tail]
    kept = [axis for _, axis in axes[: last + 1]]
    needed = {p for axis in kept if isinstance(axis, Ragged) for p in axis.parents}
    stray = [i for i, axis in enumerate(kept) if isinstance(axis, int) and i not in needed]
    if stray:
        values, kept = _move_behind(values, Structure(kept), stray)
        behind = [labels[i] for i in stray] + behind
        labels = [label for i, label in enumerate(labels) if i not in stray]
    return values, Structure(kept, values.shape[0]) if kept else DENSE, [*labels, *behind, *features]


def unfolded(
    axes: Sequence[tuple[int, Axis]], label: int, sizes: Sequence[int]
) -> tuple[list[tuple[int, Axis]], list[int]]:
    """Labelled axes with the uniform axis `label` unfolded into axes of these sizes, and the labels of those."""
    fresh = [-1 - i for i in range(len(sizes))]
    place = [name for name, _ in axes].index(label)
    made: list[tuple[int, Axis]] = []
    for name, axis in axes:
        if name == label:
            made.extend(zip(fresh, sizes, strict=True))
        elif isinstance(axis, Ragged):
            numbers = [
                range(place, place + len(sizes)) if p == place else [p + (len(sizes) - 1) * (p > place)]
                for p in axis.parents
            ]
            made.append((name, Ragged(axis.partition, [p for each in numbers for p in each])))
        else:
            made.append((name, axis))
    return made, fresh


def assemble(
    x: Tensor,
    values: torch.Tensor,
    axes: Sequence[tuple[int, Axis]],
    seen: Sequence[int],
    features: Sequence[int] | None = None,
) -> Tensor:
    """The tensor with labelled packed `axes`, whose axes the user sees in the order of the labels `seen`.

    Labels are canonical axis numbers of `x`; `features` are those of the trailing axes of `values` (default: x's own).
    """
    packed = len(x.structure.axes)
    features = range(packed, packed + x.values.ndim - 1) if features is None else features
    values, structure, labels = settle(values, axes, list(features))
    order = tuple(labels.index(label) for label in seen)
    if structure is DENSE:
        return type(x)(values.permute(order), team=x.team)
    return type(x)(values, x.structure if identical(structure, x.structure) else structure, order, x.team)


def identical(one: Structure, other: Structure) -> bool:
    """Whether two structures have the same partitions, as objects, on the same axes, and room for as many rows."""
    if len(one.axes) != len(other.axes) or one.capacity != other.capacity:
        return False
    return all(
        a.partition is b.partition and a.parents == b.parents
        if isinstance(a, Ragged) and isinstance(b, Ragged)
        else type(a) is type(b) and a == b
        for a, b in zip(one.axes, other.axes, strict=True)
    )


def _move_behind(values: torch.Tensor, old: Structure, stray: list[int]) -> tuple[torch.Tensor, list[Axis]]:
    """Make the uniform axes `stray` of a structure the first features: [cells, …] → [fewer cells, *stray, …]."""
    stay = [i for i in old.whole if i not in stray]
    axes: list[Axis] = []
    for i in stay:
        axis = old.axes[i]
        axes.append(Ragged(axis.partition, map(stay.index, axis.parents)) if isinstance(axis, Ragged) else axis)
    new = Structure(axes)
    sizes = [size for i in stray if isinstance(size := old.axes[i], int)]
    grid = torch.cartesian_prod(*[torch.arange(n, device=values.device) for n in sizes]).view(-1, len(sizes))
    positions = {i: new.positions(new.whole, k, values.device)[:, None] for k, i in enumerate(stay)}
    positions |= {i: grid[None, :, k] for k, i in enumerate(stray)}
    cells = old.rank(old.whole, {i: p.expand(-1, grid.shape[0]) if i in stay else p for i, p in positions.items()})
    return bits.index(values, (cells,)).view(cells.shape[0], *sizes, *values.shape[1:]), axes


def read_shape(shape: Any) -> tuple[Axis, ...]:
    """`shape`, an int or a sequence of ints and ragged axes, as a tuple; a TypeError says which entry is neither."""
    if isinstance(shape, (Ragged, str)) or not (isinstance(shape, Sequence) or hasattr(shape, "__index__")):
        raise TypeError(f"a shape is an int or a tuple of ints and sr.Ragged axes, got {shape!r:.60}")
    given = shape if isinstance(shape, Sequence) else (shape,)
    return tuple(entry if isinstance(entry, Ragged) else _size(entry, shape) for entry in given)


def _size(entry: Any, shape: Any) -> int:
    try:
        return operator.index(entry)
    except TypeError:
        raise TypeError(f"a shape has ints and sr.Ragged axes, got {entry!r:.40} in {shape!r:.60}") from None


def canonical(shape: Sequence[Axis]) -> tuple[Structure, tuple[int, ...], tuple[int, ...]]:
    """Structure, sizes of features and order for a shape, whose ragged axes name their parents by position."""
    ragged = [i for i, axis in enumerate(shape) if isinstance(axis, Ragged)]
    if not ragged:
        return DENSE, tuple(a for a in shape if isinstance(a, int)), tuple(range(len(shape)))
    needed = {p for i in ragged if isinstance(axis := shape[i], Ragged) for p in axis.parents} | set(ragged)
    packed: list[int] = []
    # An axis is stored after its parents, and parents in the order in which their cells number components.
    before: dict[int, set[int]] = {i: set() for i in range(len(shape))}
    for i in ragged:
        parents = parents_of(shape[i])
        before[i] |= set(parents)
        for k, parent in enumerate(parents):
            before[parent] |= set(parents[:k])
    waiting = [i for i in range(len(shape)) if i in needed]
    while waiting:
        ready = next((i for i in waiting if before[i] <= set(packed)), None)
        if ready is None:
            raise RaggednessError(f"the ragged axes of {tuple(shape)} depend on each other in a circle")
        packed.append(ready)
        waiting.remove(ready)
    last = max(i for i, a in enumerate(packed) if isinstance(shape[a], Ragged))
    packed = packed[: last + 1]
    axes: list[Axis] = []
    for i in packed:
        axis = shape[i]
        axes.append(Ragged(axis.partition, map(packed.index, axis.parents)) if isinstance(axis, Ragged) else axis)
    behind = [i for i in range(len(shape)) if i not in packed]
    where = {label: k for k, label in enumerate([*packed, *behind])}
    sizes = tuple(size for i in behind if isinstance(size := shape[i], int))
    return Structure(axes).check(), sizes, tuple(where[i] for i in range(len(shape)))


def shape_of(values: torch.Tensor, structure: Structure, order: Sequence[int]) -> tuple[Axis, ...]:
    """The shape a user sees: canonical axes in `order`, parents renumbered to match."""
    if structure is DENSE:
        return tuple(values.shape)
    canonical_axes = (*structure.axes, *values.shape[1:])
    if tuple(order) == tuple(range(len(order))):
        return canonical_axes
    seen: list[Axis] = []
    for c in order:
        axis = canonical_axes[c]
        if isinstance(axis, Ragged):
            axis = Ragged(axis.partition, (order.index(p) for p in axis.parents))
        seen.append(axis)
    return tuple(seen)


def check_rows(values: torch.Tensor, axes: Sequence[Axis], *, spare: bool = False) -> Structure:
    """The structure of these axes, or a RaggednessError unless `values` has one row per cell (`spare`: or more)."""
    if values.ndim == 0:
        raise RaggednessError("values must have a packed axis, got a 0-d tensor")
    structure = Structure(axes, values.shape[0]).check()
    last = structure.level(structure.whole)
    assert isinstance(last, Partition)
    rows = values.shape[0]

    def error(found: int) -> RaggednessError:
        where = f"level {len(structure.partitions) - 1} cuts {found} values"
        return RaggednessError(f"{where}, but values has {rows} rows (shape {list(values.shape)})")

    if not last.is_host_born:
        total = last.offsets[-1]
        wrong = total > rows if spare else total != rows
        host.defer(wrong.to(torch.int64), lambda _: error(int(total)))
    elif abstract.differ(last.num_values, rows):
        raise error(last.num_values)
    return structure
