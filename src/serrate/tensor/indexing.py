"""x[key]: each entry of a key becomes a selection on a packed axis, or a torch index on a feature.

A key has one entry per axis; `...` and `None` mean what they mean in numpy. Integers, slices and one index array
select on their own axis, so any mixture of them is one walk over the structure (`serrate.tensor.plan`) and one read of
the values. Several arrays meet point by point, as in numpy; they stand on the first axes, or all of them on features. A
ragged mask filters within each row, and a ragged integer index gathers within each row. Where axes have to be stored in
the order in which they are seen, a permuted tensor is stored anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor import abstract, bits, broadcast, host, keys, plan, select
from serrate.tensor.keys import axes_taken, fitting_mask, host_nonzero, is_mask, is_ragged, require_room, within_reach
from serrate.tensor.layout import assemble, unfolded
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.points import Entry, select_points
from serrate.tensor.storage import as_rows, stored_as_seen
from serrate.tensor.structure import Axis, Ragged

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def getitem(x: Tensor, key: Any, /) -> Tensor:
    """x[key].

    >>> import serrate as sr
    >>> sr.ragged([[1, 2], [], [3, 4, 5]])[:, -2:].tolist()
    [[1, 2], [], [4, 5]]
    """
    row = _row(x, key) if type(key) is int else None
    return get(x, key) if row is None else row


def _row(x: Tensor, number: int) -> Tensor | None:
    """One row of [B, r, …] as a view, without the walk over all axes; None for other tensors and for a wrong number."""
    if len(x.structure.axes) != 2 or x.order[0] != 0 or abstract.current() is not None:
        return None
    level = x.structure.partition_of(1)
    count = level.num_components
    if not level.is_host_born or not -count <= number < count:
        return None
    start, stop = level.span(number % count, number % count + 1)
    row, order = x.values[start:stop], tuple(c - 1 for c in x.order[1:])
    return type(x)(row if order == tuple(range(len(order))) else row.permute(order), team=x.team)


def get(x: Tensor, key: Any, reader: plan.Reader = plan.read) -> Tensor:
    """x[key]. Another `reader` puts something else in the place of the selected rows, say their numbers."""
    entries = key if isinstance(key, tuple) else (key,)
    if any(is_ragged(e) for e in entries):
        return _within_rows(x, entries, reader)
    entries = tuple(keys.read(e) for e in entries)
    if not x.is_ragged:
        return type(x)(_index_dense(x.values, entries), team=x.team)
    if any(is_mask(e) and e.ndim == 0 for e in entries):
        return _by_0d_mask(x, entries)
    per_axis, inserted = spread(x, entries)
    result = _select(x, per_axis, reader)
    return _insert(result, inserted, per_axis)


def rows(x: Tensor, /) -> list[Tensor]:
    """The entries of the first axis, each a view.

    >>> import serrate as sr
    >>> [len(row) for row in sr.ragged([[1., 2.], [], [3.]]).rows()]
    [2, 0, 1]
    """
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    if isinstance(x.shape[0], Ragged):
        raise TypeError(f"the first axis of shape {x.shape} is ragged; permute another to the front to iterate")
    numbers = abstract.entries(len(x), "rows")
    if not x.is_ragged:
        return [type(x)(row, team=x.team) for row in x.values.unbind(0)]
    if abstract.current() is not None:
        return [x[i] for i in numbers]
    if x.order == tuple(range(x.ndim)) and len(x.structure.axes) == 2:
        lengths = torch.diff(x.partitions[0].host_offsets("iterating over rows")).tolist()
        total = sum(lengths)
        return [type(x)(row, team=x.team) for row in torch.split_with_sizes(x.values[:total], lengths)]
    if x.order[0] == 0 and x.structure.is_chain and x.structure.is_host_born:
        return _rows_of_chain(x)
    return [x[i] for i in numbers]


def _rows_of_chain(x: Tensor) -> list[Tensor]:
    """Rows of nested levels: where each row begins at each level is worked out once for all of them."""
    begins = [torch.arange(len(x) + 1, device=CPU)]
    for axis in x.structure.axes[1:]:
        begins.append(
            begins[-1] * axis if isinstance(axis, int) else axis.partition.offsets[begins[-1]].to(torch.int64)
        )
    ends = [level.tolist() for level in begins]
    made = []
    for i in range(len(x)):
        axes: list[tuple[int, Axis]] = []
        for number, axis in enumerate(x.structure.axes[1:], start=1):
            if isinstance(axis, Ragged):
                own = axis.partition.slice(ends[number - 1][i], ends[number - 1][i + 1])
                axis = Ragged(own, range(number - 1)) if number > 1 else own.num_values
            axes.append((number, axis))
        made.append(assemble(x, x.values[ends[-1][i] : ends[-1][i + 1]], axes, x.order[1:]))
    return made


# ----------------------------------------------------------------------------------------------- reading the key


def spread(x: Tensor, entries: tuple[Any, ...]) -> tuple[dict[int, Any], list[int]]:
    """The entry for each axis, a mask being turned into positions; and the places where `None` asks for new axes.

    The place of a new axis is the number of old axes before it.
    """
    consumed = axes_taken(entries)
    require_room(entries, consumed, x.shape)
    if not any(e is Ellipsis for e in entries):
        entries = (*entries, Ellipsis)
    per_axis: dict[int, Any] = {}
    inserted: list[int] = []
    axis = 0
    for entry in entries:
        if entry is None:
            inserted.append(axis)
        elif entry is Ellipsis:
            axis += x.ndim - consumed
        elif is_mask(entry):
            for found in host_nonzero(fitting_mask(entry, x.shape, axis)):
                per_axis[axis] = found
                axis += 1
        else:
            per_axis[axis] = entry
            axis += 1
    return per_axis, inserted


# ----------------------------------------------------------------------------------------------------- selecting


def _select(x: Tensor, per_axis: dict[int, Entry], reader: plan.Reader) -> Tensor:
    arrays = [a for a, e in per_axis.items() if isinstance(e, torch.Tensor)]
    packed, x_order = len(x.structure.axes), x.order
    if len(arrays) > 1 and not all(x.order[a] >= packed for a in arrays):
        result, rest = select_points(x, per_axis, arrays, reader)
        if rest and not result.is_ragged:
            key = (rest.get(a, slice(None)) for a in range(result.ndim))
            return type(x)(_index_dense(result.values, tuple(key)), team=x.team)
        return _select(result, rest, plan.read) if rest else result
    selections = {x.order[a]: _selection(x, a, e) for a, e in per_axis.items() if x.order[a] < packed}
    selections = {c: s for c, s in selections.items() if s is not select.WHOLE}
    features = {a: e for a, e in per_axis.items() if x.order[a] >= packed}
    if features:
        gone = {a for a, e in per_axis.items() if isinstance(e, int)}
        x = _select_features(x, features, gone)
        if not selections:
            return x
    if not selections:
        return type(x)(x.values, x.structure, x.order, x.team)
    # Some features may be gone now. The stored axes of the structure have the numbers that they had.
    walk = plan.Plan(x.structure, selections)
    axes, seen = walk.result(), [c for c in x.order if c not in selections or not selections[c].drop]
    for a in arrays:
        sizes = per_axis[a].shape  # type: ignore[union-attr]
        if x_order[a] < packed and len(sizes) > 1:
            axes, fresh = unfolded(axes, x_order[a], sizes)
            place = seen.index(x_order[a])
            seen[place : place + 1] = fresh
    return assemble(x, reader(walk, x.values), axes, seen)


def _selection(x: Tensor, axis: int, entry: Entry) -> select.Selection:
    size = x.shape[axis]
    if isinstance(entry, torch.Tensor):
        return select.Pick(plan.host_index(entry.reshape(-1), x.structure), drop=entry.ndim == 0)
    if isinstance(entry, int):
        if isinstance(size, Ragged):
            if entry >= 0:
                return select.Span(entry, entry + 1, drop=True)
            return select.Pick(host.send(torch.tensor([entry], device=CPU), x.structure.home), drop=True, copies=1)
        if not -size <= entry < size:
            if abstract.is_known(entry) and abstract.is_known(size):
                raise IndexError(f"index {entry} is out of range for axis {axis} with size {size}")
            entry = 0
        return select.Span(entry % size, entry % size + 1, drop=True)
    if isinstance(size, Ragged):
        return select.WHOLE if entry in (slice(None), slice(0, None), slice(None, None, 1)) else select.Cut(entry)
    start, stop, step = abstract.sliced(entry, size)
    if step == 1:
        return select.WHOLE if (start, stop) == (0, size) else select.Span(start, stop)
    positions = torch.arange(start, stop, step, device=CPU)
    return select.Pick(host.send(positions, x.structure.home), copies=1)


# -------------------------------------------------------------------------------------------- features, new axes


def _select_features(x: Tensor, features: dict[int, Entry], gone: set[int]) -> Tensor:
    """Index the features as torch does, by integers and slices first, then by arrays. The packed axis stays in front.

    Integers of the same key take away the packed axes in `gone`.
    """
    packed = len(x.structure.axes)
    # These are the features, in the order in which the user sees them.
    seen = [a for a in range(x.ndim) if x.order[a] >= packed]
    key = [e if isinstance(e := features.get(a, slice(None)), (int, slice)) else slice(None) for a in seen]
    values = _index_dense(x.values.permute(0, *[x.order[a] - packed + 1 for a in seen]), (slice(None), *key))
    kept = [a for a in range(x.ndim) if not isinstance(features.get(a), int)]
    own = [a for a in kept if a in seen]
    order = tuple(packed + own.index(a) if a in own else x.order[a] for a in kept)
    arrays = {kept.index(a): e for a, e in features.items() if isinstance(e, torch.Tensor)}
    x = type(x)(values, x.structure, order, x.team)
    return _select_arrays(x, arrays, {kept.index(a) for a in gone if a in kept}) if arrays else x


def _select_arrays(x: Tensor, arrays: dict[int, torch.Tensor], gone: set[int]) -> Tensor:
    """Index features by arrays, which meet point by point.

    If the arrays stand on neighbouring axes, the axes of the result stand in their place, else in front. Axes in `gone`
    do not count as standing between two neighbours.
    """
    packed = len(x.structure.axes)
    arrays = {
        axis: within_reach(index, x.values.shape[x.order[axis] - packed + 1], axis, x.values)
        for axis, index in arrays.items()
    }
    if len(arrays) == 1 and next(iter(arrays.values())).ndim == 1:
        ((axis, index),) = arrays.items()
        key = (*[slice(None)] * (x.order[axis] - packed + 1), index)
        return type(x)(bits.index(x.values, key), x.structure, x.order, x.team)
    others = [a for a in range(x.ndim) if x.order[a] >= packed and a not in arrays]
    dims = {a: x.order[a] - packed + 1 for a in [*arrays, *others]}
    values = x.values.permute(*[dims[a] for a in arrays], 0, *[dims[a] for a in others])
    taken = bits.index(values, tuple(arrays.values()))
    extra = taken.ndim - 1 - len(others)
    taken = taken.movedim(tuple(range(extra)), tuple(range(1, extra + 1)))
    where = {a: packed + extra + i for i, a in enumerate(others)}
    rest = [(a, where.get(a, x.order[a])) for a in range(x.ndim) if a not in arrays]
    first = min(arrays)
    place = first if all(a in arrays or a in gone for a in range(first, max(arrays))) else 0
    before, after = [c for a, c in rest if a < place], [c for a, c in rest if a >= place]
    return type(x)(taken, x.structure, (*before, *range(packed, packed + extra), *after), x.team)


def _index_dense(values: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    """values[key] by torch. torch lacks negative steps of slices, so an axis with such a slice is flipped first."""
    taken = axes_taken(key)
    require_room(key, taken, tuple(values.shape))
    if abstract.current() is not None:
        return _index_abstract(values, key, taken)
    fixed: list[Any] = []
    flips: list[int] = []
    axis = 0
    for entry in key:
        if entry is Ellipsis:
            axis += values.ndim - taken
        elif is_mask(entry):
            entry = host.send(fitting_mask(entry, tuple(values.shape), axis), values.device)
        elif isinstance(entry, torch.Tensor):
            entry = within_reach(entry, values.shape[axis], axis, values)
        elif isinstance(entry, slice) and axis < values.ndim and (entry.step or 1) < 0:
            entry = _from_behind(entry, values.shape[axis])
            flips.append(axis)
        axis += axes_taken((entry,))
        fixed.append(entry)
    return bits.index(values, tuple(fixed), flips)


def _index_abstract(values: torch.Tensor, key: tuple[Any, ...], taken: int) -> torch.Tensor:
    """values[key] of values without elements: an axis that is sliced has another size, a mask is index arrays."""
    fixed: list[Any] = []
    axis, skipped = 0, values.ndim - taken
    for entry in key:
        if entry is Ellipsis:
            axis += skipped
            fixed.append(entry)
        elif is_mask(entry) and entry.ndim == 0:  # What it keeps lies along a new axis.
            fixed.append(torch.empty(abstract.number(entry, "mask"), dtype=torch.int64, device=values.device))
            values = values.unsqueeze(axis)
            axis += 1
        elif is_mask(entry):
            fixed += abstract.positions(fitting_mask(entry, tuple(values.shape), axis), "mask")
            axis += entry.ndim
        elif isinstance(entry, slice):
            start, stop, step = abstract.sliced(entry, values.shape[axis])
            values = abstract.resized(values, axis, (stop - start) // step)
            fixed.append(slice(None))
            axis += 1
        else:
            unknown = isinstance(entry, int) and not abstract.is_known(entry)
            fixed.append(0 if unknown else entry)
            axis += entry is not None
    abstract.meet(*[entry.shape for entry in fixed if isinstance(entry, torch.Tensor)])
    return bits.index(values, tuple(fixed))


def _from_behind(entry: slice, size: int) -> slice:
    """A slice with a negative step, as a slice of the reversed axis."""
    chosen = range(size)[entry]
    first = size - 1 - chosen.start
    last = first - (len(chosen) - 1) * chosen.step
    return slice(first, last + 1, -chosen.step) if chosen else slice(0, 0)


def _insert(x: Tensor, inserted: list[int], per_axis: dict[int, Any]) -> Tensor:
    """x with new axes of size 1. Before each stand those axes of the result that come from the old axes before it."""
    if not inserted:
        return x
    if sum(isinstance(e, torch.Tensor) for e in per_axis.values()) > 1:
        raise IndexError("None together with several index arrays is ambiguous; add the axis in a step of its own")
    for count, before in enumerate(inserted):
        left = sum(_axes_left(per_axis.get(a)) for a in range(before))
        x = expand_dims(x, left + count)
    return x


def _axes_left(entry: Entry | None) -> int:
    """How many axes of the result come from the one axis that an entry of a key stands on."""
    if isinstance(entry, torch.Tensor):
        return entry.ndim
    return 0 if isinstance(entry, int) else 1


def _by_0d_mask(x: Tensor, entries: tuple[Any, ...]) -> Tensor:
    """A 0-d mask keeps all of x, or nothing of it, along a new first axis."""
    if len(entries) > 1:
        raise IndexError("a 0-d mask of a ragged tensor stands alone: x[mask]")
    return get(expand_dims(x, 0), entries[0].reshape(1))


def expand_dims(x: Tensor, position: int) -> Tensor:
    """A new axis of size 1 at `position`; a view."""
    if not x.is_ragged:
        return type(x)(x.values.unsqueeze(position), team=x.team)
    packed = len(x.structure.axes)
    order = [c + (c >= packed) for c in x.order]
    order.insert(position, packed)
    return type(x)(x.values.unsqueeze(1), x.structure, tuple(order), x.team)


# --------------------------------------------------------------------------------------------------- ragged keys


def _within_rows(x: Tensor, entries: tuple[Any, ...], reader: plan.Reader) -> Tensor:
    """x[mask] or x[index] with a ragged key: its outer axes are x's, its last axis selects within each row."""
    if len(entries) != 1:
        raise IndexError("a ragged mask or index stands alone: x[mask], x[index]")
    (key,) = entries
    depth, filters = key.ndim, key.dtype == torch.bool
    if not x.is_ragged or depth > x.ndim:
        raise IndexError(f"a ragged key of shape {key.shape} does not fit the outer axes of shape {x.shape}")
    if key.is_floating_point() or key.is_complex():
        raise IndexError(f"a ragged index must hold integers or bools, got {key.dtype}")
    broadcast.require_one_device(x, key)
    x, key = stored_as_seen(x, depth), stored_as_seen(key, depth)
    for i in range(depth if filters else depth - 1):
        mine, theirs = x.structure.axes[i], key.structure.axes[i]
        if type(mine) is not type(theirs) or (
            mine != theirs if isinstance(mine, Ragged) else abstract.differ(mine, theirs)
        ):
            room = broadcast.capacities(mine, theirs)
            raise RaggednessError(
                f"axis {i} of the key must be {mine}, as in the tensor it indexes, got {theirs}{room}"
            )
    if filters and isinstance(x.structure.axes[depth - 1], int):
        x, key = (as_rows(each, depth - 1, each.structure.whole[: depth - 1]) for each in (x, key))
    if not isinstance(x.structure.axes[depth - 1], Ragged):
        raise IndexError(f"axis {depth - 1} of shape {x.shape} is uniform; a ragged index selects on a ragged axis")
    choice: select.Selection = select.Keep(key.values) if filters else _gathered(key)
    walk = plan.Plan(x.structure, {depth - 1: choice})
    return assemble(x, reader(walk, x.values), walk.result(), x.order)


def _gathered(index: Tensor) -> select.Gather:
    level = index.structure.level(index.structure.whole)
    if isinstance(level, int):
        level = Partition.uniform(index.structure.cells(index.structure.whole[:-1]), level)
    return select.Gather(level, index.values.to(torch.int64))
