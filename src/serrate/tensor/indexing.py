"""x[key] and x[key] = value: a key, entry by entry, becomes a selection on packed axes and a torch index on features.

One entry per axis; `...` and `None` as in numpy. Integers, slices and one index array select on their own axis, so any
mixture of them is one walk over the structure (`serrate.tensor.select`) and one read of the values. Several arrays meet
point by point, as in numpy, where they stand on the outermost axes or all on features. A ragged mask filters and a
ragged integer index gathers, within each row.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.tensor import broadcast, combine, host, select
from serrate.tensor.layout import assemble
from serrate.tensor.structure import Axis, Nest, Ragged, Structure, step_into

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor

Entry = int | slice | torch.Tensor  # what a key entry for one axis becomes; a tensor holds integers


def get(x: Tensor, key: Any) -> Tensor:
    """x[key]."""
    entries = key if isinstance(key, tuple) else (key,)
    if any(_is_ragged(e) for e in entries):
        return _within_rows(x, entries)
    entries = tuple(_entry(e) for e in entries)
    if not x.is_ragged:
        return type(x)(_index_dense(x.values, entries), team=x.team)
    per_axis, inserted = _spread(x, entries)
    result = _select(x, per_axis)
    return _insert(result, inserted, per_axis)


def rows(x: Tensor) -> list[Tensor]:
    """The entries of the first axis."""
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    if not x.is_ragged:
        return [type(x)(row, team=x.team) for row in x.values.unbind(0)]
    if isinstance(x.shape[0], Ragged):
        raise TypeError(f"the first axis of shape {x.shape} is ragged; permute another to the front to iterate")
    if x.order == tuple(range(x.ndim)) and len(x.structure.axes) == 2:
        lengths = torch.diff(x.partitions[0].host_offsets("iterating over rows")).tolist()
        total = sum(lengths)
        return [type(x)(row, team=x.team) for row in torch.split_with_sizes(x.values[:total], lengths)]
    return [x[i] for i in range(len(x))]


# ----------------------------------------------------------------------------------------------- reading the key


def _is_ragged(entry: Any) -> bool:
    return hasattr(entry, "structure") and entry.is_ragged


def _entry(given: Any) -> Any:
    """A key entry in one of few forms: int, slice, None, Ellipsis, or a tensor (bool or int64)."""
    if given is None or given is Ellipsis or isinstance(given, slice):
        return given
    if isinstance(given, (bool, np.bool_)):
        raise IndexError("a single bool is no index; use a mask with one entry per row")
    if hasattr(given, "structure"):
        given = given.values
    if not isinstance(given, (torch.Tensor, list, tuple, np.ndarray, range)):
        try:
            return operator.index(given)
        except TypeError:
            raise IndexError(
                f"an index is an int, slice, ..., None, or a list, array or tensor of ints or bools; got {given!r:.80}"
            ) from None
    tensor = given if isinstance(given, torch.Tensor) else _tensor_from(given)
    if tensor.is_floating_point() or tensor.is_complex():
        raise IndexError(f"an index array must hold integers or bools, got {tensor.dtype}")
    if tensor.dtype == torch.bool:
        return tensor
    return int(tensor) if tensor.ndim == 0 and tensor.device.type == "cpu" else tensor.to(torch.int64)


def _tensor_from(given: Any) -> torch.Tensor:
    array = np.asarray(given)
    if array.size == 0 and not isinstance(given, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(f"an index array must hold integers or bools, got {array.dtype} in {given!r:.80}")
    return torch.from_numpy(array.copy() if array.dtype == np.bool_ else array.astype(np.int64))


def _spread(x: Tensor, entries: tuple[Any, ...]) -> tuple[dict[int, Any], list[int]]:
    """Entries by the axis they stand on, masks turned into positions; and where `None` asks for new axes.

    New axes are given as the number of old axes before them.
    """
    consumed = _axes_taken(entries)
    if sum(e is Ellipsis for e in entries) > 1:
        raise IndexError("a key can hold only one ...")
    if consumed > x.ndim:
        raise IndexError(f"too many indices: {consumed} for a tensor of {x.ndim} axes, shape {x.shape}")
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
        elif isinstance(entry, torch.Tensor) and entry.dtype == torch.bool:
            sizes = x.shape[axis : axis + entry.ndim]
            if tuple(entry.shape) != sizes:
                raise IndexError(f"a mask of shape {tuple(entry.shape)} does not fit axes {axis}… of shape {x.shape}")
            for found in host_nonzero(entry):
                per_axis[axis] = found
                axis += 1
        else:
            per_axis[axis] = entry
            axis += 1
    return per_axis, inserted


def host_nonzero(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Positions of True, one tensor per axis; how many there are is data, so a device makes the host wait."""
    if mask.is_cuda:
        mask = host.read(mask, "indexing by a mask")
    return mask.nonzero(as_tuple=True)


# ----------------------------------------------------------------------------------------------------- selecting


def _select(x: Tensor, per_axis: dict[int, Entry]) -> Tensor:
    arrays = [a for a, e in per_axis.items() if isinstance(e, torch.Tensor)]
    packed = len(x.structure.axes)
    if len(arrays) > 1 or (arrays and per_axis[arrays[0]].ndim != 1):  # type: ignore[union-attr]
        if all(x.order[a] < packed for a in arrays):
            return _select_points(x, per_axis, arrays)
        if not all(x.order[a] >= packed for a in arrays):
            raise IndexError(
                f"index arrays on axes {arrays} mix packed axes with features of shape {x.shape}; "
                f"index them one after the other"
            )
    selections = {x.order[a]: _selection(x, a, e) for a, e in per_axis.items() if x.order[a] < packed}
    selections = {c: s for c, s in selections.items() if s is not select.WHOLE}
    features = {a: e for a, e in per_axis.items() if x.order[a] >= packed}
    if features:
        x = _select_features(x, features)
        if not selections:
            return x
    if not selections:
        return type(x)(x.values, x.structure, x.order, x.team)
    # Feature axes may have gone: find the packed ones, whose canonical numbers are unchanged.
    plan = select.Plan(x.structure, selections)
    remaining = plan.result()
    cells = plan.source(x.structure.whole, x.device)
    gone = {c for c, s in selections.items() if s.drop}
    return assemble(x, select.rows(x.values, cells), remaining, [c for c in x.order if c not in gone])


def _selection(x: Tensor, axis: int, entry: Entry) -> select.Selection:
    size = x.shape[axis]
    if isinstance(entry, torch.Tensor):
        return select.Pick(select.host_index(entry, x.structure))
    if isinstance(entry, int):
        if isinstance(size, Ragged):
            return (
                select.Span(entry, entry + 1, drop=True)
                if entry >= 0
                else select.Pick(torch.tensor([entry], device=x.structure.home), drop=True)
            )
        if not -size <= entry < size:
            raise IndexError(f"index {entry} is out of range for axis {axis} with size {size}")
        return select.Span(entry % size, entry % size + 1, drop=True)
    _check_slice(entry)
    if isinstance(size, Ragged):
        return select.WHOLE if entry in (slice(None), slice(0, None), slice(None, None, 1)) else select.Cut(entry)
    start, stop, step = entry.indices(size)
    if step == 1:
        stop = max(start, stop)
        return select.WHOLE if (start, stop) == (0, size) else select.Span(start, stop)
    return select.Pick(torch.tensor(range(start, stop, step), dtype=torch.int64, device=x.structure.home))


def _check_slice(entry: slice) -> None:
    for bound in (entry.start, entry.stop, entry.step):
        if bound is not None:
            try:
                operator.index(bound)
            except TypeError:
                raise IndexError(f"slice bounds must be integers or None, got {entry}") from None
    if entry.step == 0:
        raise IndexError("slice step cannot be 0")


def _select_points(x: Tensor, per_axis: dict[int, Entry], arrays: list[int]) -> Tensor:
    """Several index arrays (or one of several axes) on the outermost packed axes: one point, or subtree, per entry."""
    depth = max(arrays) + 1
    outermost = [x.order[a] for a in range(depth)] == list(range(depth))
    entries = [per_axis.get(a) for a in range(depth)]
    if not outermost or any(isinstance(e, slice) or e is None for e in entries):
        raise IndexError(
            f"index arrays on axes {arrays} of shape {x.shape} must stand on the outermost axes, "
            f"without slices between them"
        )
    home = x.structure.home
    given = [
        select.host_index(e, x.structure) if isinstance(e, torch.Tensor) else torch.tensor(e, device=home)
        for e in entries
    ]
    common = torch.broadcast_shapes(*[g.shape for g in given])  # type: ignore[no-untyped-call]
    points = [g.expand(common) for g in given]
    nest: Nest = tuple(range(depth))
    cells = _rank_points(x.structure, nest, [p.flatten() for p in points])
    merged: Structure = x.structure
    for _ in range(depth - 1):
        first = merged.axes[1]
        merged = Structure(combine.merge_axes(merged, 1) if isinstance(first, Ragged) else merge_uniform(merged))
    labels = [0, *range(depth, len(x.structure.axes))]
    plan = select.Plan(merged, {0: select.Pick(cells)})
    taken = select.rows(x.values, plan.source(merged.whole, x.device))
    axes: list[tuple[int, Axis]] = []
    extra = len(common)
    fresh = [-1 - i for i in range(extra)]  # labels for the axes the points bring
    for label, (number, axis) in zip(labels, plan.result(), strict=True):
        if number == 0:
            axes.extend(zip(fresh, common, strict=True))
        elif isinstance(axis, Ragged):
            parents = [q for p in axis.parents for q in (range(extra) if p == 0 else (p + extra - 1,))]
            axes.append((label, Ragged(axis.partition, parents)))
        else:
            axes.append((label, axis))
    result = assemble(x, taken, axes, [*fresh, *x.order[depth:]])
    rest = {a - depth + extra: e for a, e in per_axis.items() if a >= depth}
    return _select(result, rest) if rest else result


def merge_uniform(structure: Structure) -> list[Axis]:
    """Packed axes 0 and 1, both uniform, as one."""
    a, b, *inner = structure.axes
    assert isinstance(a, int)
    assert isinstance(b, int)
    merged: list[Axis] = [a * b]
    for number, axis in enumerate(inner, start=2):
        if isinstance(axis, Ragged):
            parents = axis.parents if (0 in axis.parents) == (1 in axis.parents) else tuple(range(number))
            level = structure.level((*parents, number))
            axis = Ragged(level, sorted({max(p - 1, 0) for p in parents}))
        merged.append(axis)
    return merged


def _rank_points(structure: Structure, nest: Nest, points: list[torch.Tensor]) -> torch.Tensor:
    """The cells of `nest` at the given points, every position checked against its own row."""
    cells = torch.zeros_like(points[0])
    for depth, index in enumerate(points):
        level = structure.level(nest[: depth + 1])
        if isinstance(level, int):
            have = torch.full_like(index, level)
        else:
            lengths = level.lengths_on(index.device).to(torch.int64)
            have = lengths[cells] if lengths.numel() else torch.zeros_like(index)
        wrapped = torch.where(index < 0, index + have, index)

        def error(i: int, index: torch.Tensor = index, have: torch.Tensor = have, axis: int = depth) -> IndexError:
            return IndexError(
                f"index {int(index[i])} at point {i} is out of range on axis {axis}, which has {int(have[i])} entries"
            )

        host.defer(host.first_fault((wrapped < 0) | (wrapped >= have)), error)
        cells = step_into(level, cells, torch.minimum(wrapped.clamp(min=0), (have - 1).clamp(min=0)))
        cells = cells.clamp(0, max(structure.cells(nest[: depth + 1]) - 1, 0))
    return cells


# -------------------------------------------------------------------------------------------- features, new axes


def _select_features(x: Tensor, features: dict[int, Entry]) -> Tensor:
    """Index feature axes with torch's rules, the packed axis staying in front."""
    packed = len(x.structure.axes)
    seen = [a for a in range(x.ndim) if x.order[a] >= packed]  # feature axes as the user sees them
    values = x.values.permute(0, *[x.order[a] - packed + 1 for a in seen])
    arrays = [a for a, e in features.items() if isinstance(e, torch.Tensor)]
    key = [slice(None), *[features.get(a, slice(None)) for a in seen]]
    if not arrays or (len(arrays) == 1 and features[arrays[0]].ndim == 1):  # type: ignore[union-attr]
        taken = _index_dense(values, tuple(key))
        kept = [a for a in seen if not isinstance(features.get(a), int)]
        where = {a: packed + i for i, a in enumerate(kept)}
        order = [where[a] if a in where else x.order[a] for a in range(x.ndim) if a in where or x.order[a] < packed]
        return type(x)(taken, x.structure, tuple(order), x.team)
    # Several arrays meet: numpy puts their common axes in place of the first if they stand side by side, else in front.
    joint = [a for a, e in features.items() if isinstance(e, (int, torch.Tensor))]
    others = [a for a in seen if a not in joint]
    dims = {a: seen.index(a) + 1 for a in seen}
    values = values.permute(*[dims[a] for a in joint], 0, *[dims[a] for a in others])
    taken = values[tuple(e.to(values.device) if isinstance(e := features[a], torch.Tensor) else e for a in joint)]
    extra = taken.ndim - 1 - len(others)
    taken = taken.movedim(tuple(range(extra)), tuple(range(1, extra + 1)))
    taken = _index_dense(taken, (slice(None), *[slice(None)] * extra, *[features.get(a, slice(None)) for a in others]))
    adjacent = joint == list(range(joint[0], joint[0] + len(joint)))
    fresh = list(range(packed, packed + extra))
    where = {a: packed + extra + i for i, a in enumerate(others)}
    rest = [(a, where.get(a, x.order[a])) for a in range(x.ndim) if a not in joint]
    before = [c for a, c in rest if a < joint[0]] if adjacent else []
    after = [c for a, c in rest if not adjacent or a > joint[0]]
    return type(x)(taken, x.structure, (*before, *fresh, *after), x.team)


def _index_dense(values: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    """values[key] with torch, which lacks negative slice steps: such an axis is flipped first."""
    taken = _axes_taken(key)
    fixed: list[Any] = []
    flips: list[int] = []
    axis = 0
    for entry in key:
        if entry is Ellipsis:
            axis += values.ndim - taken
        elif isinstance(entry, slice):
            _check_slice(entry)
            if entry.step is not None and entry.step < 0 and axis < values.ndim:
                size = values.shape[axis]
                chosen = range(size)[entry]
                first = size - 1 - chosen.start
                entry = (
                    slice(first, first - (len(chosen) - 1) * chosen.step + 1, -chosen.step) if chosen else slice(0, 0)
                )
                flips.append(axis)
        axis += _axes_taken((entry,))
        fixed.append(entry.to(values.device) if isinstance(entry, torch.Tensor) else entry)
    return (values.flip(flips) if flips else values)[tuple(fixed)]


def _axes_taken(key: tuple[Any, ...]) -> int:
    """How many axes the entries of a key stand on: a mask on as many as it has, None and ... on none."""
    masks = (
        e.ndim if isinstance(e, torch.Tensor) and e.dtype == torch.bool else 1
        for e in key
        if e is not None and e is not Ellipsis
    )
    return sum(masks)


def _insert(x: Tensor, inserted: list[int], per_axis: dict[int, Any]) -> Tensor:
    """New axes of size 1, each after as many of the remaining axes as were left before it."""
    if not inserted:
        return x
    if sum(isinstance(e, torch.Tensor) for e in per_axis.values()) > 1:
        raise IndexError("None together with several index arrays is ambiguous; add the axis in a step of its own")
    for count, before in enumerate(inserted):
        left = sum(1 for a in range(before) if not isinstance(per_axis.get(a), int))
        x = expand_dims(x, left + count)
    return x


def expand_dims(x: Tensor, position: int) -> Tensor:
    """A new axis of size 1 at `position`; a view."""
    if not x.is_ragged:
        return type(x)(x.values.unsqueeze(position), team=x.team)
    packed = len(x.structure.axes)
    order = [c + (c >= packed) for c in x.order]
    order.insert(position, packed)
    return type(x)(x.values.unsqueeze(1), x.structure, tuple(order), x.team)


# --------------------------------------------------------------------------------------------------- ragged keys


def _within_rows(x: Tensor, entries: tuple[Any, ...]) -> Tensor:
    """x[mask] or x[index] with a ragged key: its outer axes are x's, its last axis selects within each row."""
    if len(entries) != 1:
        raise IndexError("a ragged mask or index stands alone: x[mask], x[index]")
    (key,) = entries
    depth = key.ndim
    if not x.is_ragged or depth > len(x.structure.axes) or list(x.order[:depth]) != list(range(depth)):
        raise IndexError(f"a ragged key of shape {key.shape} does not fit the outer axes of shape {x.shape}")
    if key.order != tuple(range(depth)) or key.values.ndim != 1:
        raise IndexError(f"a ragged key must end with its innermost ragged axis, got shape {key.shape}")
    broadcast.require_one_device(x, key)
    axis = depth - 1
    outer = 0 if key.dtype == torch.bool else 1
    for i in range(depth - outer):
        mine, theirs = x.structure.axes[i], key.structure.axes[i]
        if type(mine) is not type(theirs) or mine != theirs:
            raise RaggednessError(f"axis {i} of the key must be {mine}, as in the tensor it indexes, got {theirs}")
    if not isinstance(x.structure.axes[axis], Ragged):
        raise IndexError(f"axis {axis} of shape {x.shape} is uniform; a ragged key selects on a ragged axis")
    if key.dtype == torch.bool:
        choice: select.Selection = select.Keep(key.values)
    elif key.is_floating_point() or key.is_complex():
        raise IndexError(f"a ragged index must hold integers or bools, got {key.dtype}")
    else:
        level = key.structure.level(key.structure.whole)
        assert not isinstance(level, int)
        choice = select.Gather(level, key.values.to(torch.int64))
    plan = select.Plan(x.structure, {axis: choice})
    cells = plan.source(x.structure.whole, x.device)
    return assemble(x, select.rows(x.values, cells), plan.result(), x.order)


# ---------------------------------------------------------------------------------------------------- assignment


def put(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value: write where x[key] reads. Raggedness never changes; the value broadcasts to what is there."""
    target = get(x, key)
    new = _as_values(value, target)
    if target.values.numel() == 0:
        return
    if _shares_storage(target.values, x.values):
        target.values.copy_(new)
        return
    # Index the numbers of the places instead of what they hold: the same key finds them, whatever its form.
    features = x.values.ndim - 1
    if _keeps_features(x, key):
        numbers = torch.arange(x.values.shape[0], device=x.device).view(-1, *[1] * features)
        places = get(type(x)(numbers, x.structure, x.order, x.team), key).values
        where: tuple[torch.Tensor, ...] = (places.reshape(target.values.shape[: target.values.ndim - features]),)
    else:
        numbers = torch.arange(x.values.numel(), device=x.device).view(x.values.shape)
        places = get(type(x)(numbers, x.structure, x.order, x.team), key).values
        where = torch.unravel_index(places, x.values.shape)
    x.values.index_put_(where, new.to(x.dtype).expand(target.values.shape))


def _keeps_features(x: Tensor, key: Any) -> bool:
    """Whether the key selects on packed axes only and the features come last, so that whole rows are written."""
    packed = len(x.structure.axes)
    if not x.is_ragged or list(x.order[packed:]) != list(range(packed, x.ndim)):
        return False
    entries = key if isinstance(key, tuple) else (key,)
    if any(e is None for e in entries):
        return False
    if any(_is_ragged(e) for e in entries):
        return True
    per_axis, _ = _spread(x, tuple(_entry(e) for e in entries))
    return all(axis < packed for axis in per_axis)


def _value(value: Any, x: Tensor) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        return torch.as_tensor(np.asarray(value), device=x.device)
    return value


def _as_values(value: Any, target: Tensor) -> torch.Tensor:
    aligned = broadcast.align(_value(value, target), target)
    if isinstance(aligned, torch.Tensor):
        return aligned
    return torch.as_tensor(aligned, device=target.device)


def _shares_storage(view: torch.Tensor, base: torch.Tensor) -> bool:
    return view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
