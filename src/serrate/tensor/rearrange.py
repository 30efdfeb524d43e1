"""Rearranging entries along one axis: flip, roll, repeat, tile, split, and axes of size 1."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.errors import AxisError, RaggednessError
from serrate.tensor import abstract, host, indexing, plan, select
from serrate.tensor.combine import exact, zeroed
from serrate.tensor.layout import assemble
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.storage import stored_as_seen
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.tracing import untraced


def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """The same storage with its axes in another order.

    >>> import torch, serrate as sr
    >>> x = sr.from_lengths(torch.zeros(3, 4), [1, 2])
    >>> sr.permute_dims(x, (0, 2, 1)).shape
    (2, 4, Ragged([1, 2]))
    """
    tensor = as_tensor(x)
    chosen = tuple(tensor._axis(a) for a in axes)
    if sorted(chosen) != list(range(tensor.ndim)):
        raise AxisError(f"axes must name each of the {tensor.ndim} axes once, got {tuple(axes)}")
    if not tensor.is_ragged:
        return tensor._with(tensor.values.permute(chosen))
    return Tensor(tensor.values, tensor.structure, tuple(tensor.order[a] for a in chosen), tensor.team)


def expand_dims(x: Any, /, axis: int = 0) -> Tensor:
    """A new axis of size 1 at `axis`; a view.

    >>> import serrate as sr
    >>> sr.expand_dims(sr.ragged([[1, 2], [3]]), axis=1).shape
    (2, 1, Ragged([2, 1]))
    """
    tensor = as_tensor(x)
    if not -tensor.ndim - 1 <= axis <= tensor.ndim:
        raise AxisError(f"axis {axis} is out of range for a new axis of a tensor with {tensor.ndim} axes")
    return indexing.expand_dims(tensor, axis % (tensor.ndim + 1))


def squeeze(x: Any, /, axis: int | Sequence[int]) -> Tensor:
    """Axes of size 1 removed.

    >>> import serrate as sr
    >>> sr.squeeze(sr.ragged([[1, 2, 3]]), axis=0).shape
    (3,)
    """
    tensor = as_tensor(x)
    chosen = {tensor._axis(a) for a in (axis if isinstance(axis, Sequence) else [axis])}
    for a in chosen:
        if tensor.shape[a] != 1:
            raise ValueError(f"axis {a} of shape {tensor.shape} has not size 1")
    return tensor[tuple(0 if a in chosen else slice(None) for a in range(tensor.ndim))]


def flip(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Entries along `axis` (all axes by default) in reverse, each row on its own.

    >>> import serrate as sr
    >>> sr.flip(sr.ragged([[1, 2], [], [3, 4, 5]]), axis=1).tolist()
    [[2, 1], [], [5, 4, 3]]
    """
    tensor = as_tensor(x)
    chosen = (
        range(tensor.ndim)
        if axis is None
        else {tensor._axis(a) for a in (axis if isinstance(axis, Sequence) else [axis])}
    )
    if not chosen:
        return tensor.clone()
    return tensor[tuple(slice(None, None, -1) if a in chosen else slice(None) for a in range(tensor.ndim))]


def roll(x: Any, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Entries moved along `axis` by `shift` places, and what leaves a row at its end comes in again at its start.

    Without `axis` the packed values roll as one vector and the raggedness stays.

    >>> import serrate as sr
    >>> sr.roll(sr.ragged([[1, 2], [], [3, 4, 5]]), 1, axis=1).tolist()
    [[2, 1], [], [5, 3, 4]]
    """
    tensor = as_tensor(x)
    if axis is None:
        tensor = exact(tensor)
        return tensor._with(tensor.values.roll(shift))
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    shifts = [int(s) for s in shift] if isinstance(shift, Sequence) else [operator.index(shift)] * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll needs one shift per axis, got {len(shifts)} for {len(axes)} axes")
    for a, by in zip(axes, shifts, strict=True):
        tensor = _roll_one(tensor, by, tensor._axis(a))
    return tensor


def _roll_one(x: Tensor, shift: int, axis: int) -> Tensor:
    size = x.shape[axis]
    if isinstance(size, Ragged):
        return _remap(x, axis, size.partition, lambda r, have: (r - shift) % have.clamp(min=1))
    return _pick(x, axis, torch.arange(size, device=CPU).roll(shift))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each entry along `axis` repeated: an int, one count per entry of a uniform axis, or a ragged tensor of counts.

    >>> import serrate as sr
    >>> sr.repeat(sr.ragged([[1, 2], [3]]), 2, axis=1).tolist()
    [[1, 1, 2, 2], [3, 3]]
    >>> sr.repeat(sr.ragged([[1, 2], [3]]), [2, 0], axis=0).tolist()
    [[1, 2], [1, 2]]
    """
    tensor = as_tensor(x)
    if axis is None:
        flat = tensor.flat()
        return repeat(Tensor(flat.values.reshape(-1)), repeats, axis=0)
    number = tensor._axis(axis)
    size = tensor.shape[number]
    if isinstance(repeats, Tensor) and repeats.is_ragged:
        return _repeat_ragged(tensor, repeats, number)
    if isinstance(repeats, int) and not isinstance(repeats, bool):
        return _repeat_alike(tensor, repeats, number)
    counts = repeats.values if isinstance(repeats, Tensor) else _counts(repeats)
    if counts.is_floating_point() or counts.dtype == torch.bool or counts.ndim > 1:
        raise TypeError(
            f"repeats must be an int, a 1-D sequence of ints or a ragged tensor of ints, got {repeats!r:.80}"
        )
    counts = host.read(counts, "repeating by counts that lie on a device") if counts.is_cuda else counts
    counts = counts.to(torch.int64)
    if counts.numel() == 1:
        return _repeat_alike(tensor, abstract.number(counts, "repeats"), number)
    host.defer(
        (counts < 0).any().to(torch.int64), lambda _: ValueError(f"repeats must be 0 or more, got {repeats!r:.80}")
    )
    if isinstance(size, Ragged):
        raise RaggednessError(
            f"axis {axis} is ragged: repeats must be an int or a ragged tensor of ints, got {repeats!r:.80}"
        )
    if abstract.differ(counts.numel(), size):
        raise ValueError(f"repeats must have one count per entry of axis {axis}, {size}, got {counts.numel()}")
    total = abstract.number(counts.sum(), "repeats")
    picks = torch.repeat_interleave(torch.arange(size, device=CPU), counts, output_size=total)
    return _pick(tensor, number, picks, abstract.number(counts.max(), "most repeats") if counts.numel() else 1)


def _repeat_alike(x: Tensor, times: int, axis: int) -> Tensor:
    """Each entry along an axis repeated the same number of times."""
    if times < 0:
        raise ValueError(f"repeats must be 0 or more, got {times}")
    size = x.shape[axis]
    if isinstance(size, Ragged):
        return _remap(x, axis, size.partition.scaled(times), lambda r, _: r // max(times, 1), times)
    picks = torch.arange(size, device=CPU).repeat_interleave(times)
    return _pick(x, axis, picks, times if size else 1)


def _counts(repeats: Any) -> torch.Tensor:
    if isinstance(repeats, torch.Tensor):
        return repeats
    counts = torch.as_tensor(repeats, device=CPU)
    return counts if counts.numel() else counts.to(torch.int64)  # An empty list has no type of its own.


def _repeat_ragged(x: Tensor, repeats: Tensor, axis: int) -> Tensor:
    """x[b, i] repeated repeats[b, i] times: a gather within rows, whose index names each entry that many times."""
    if repeats.ndim != axis + 1 or repeats.is_floating_point() or repeats.dtype == torch.bool:
        raise TypeError(
            f"ragged repeats must hold integers and end at axis {axis}, got {repeats.dtype} of shape {repeats.shape}"
        )
    for i in range(axis + 1):
        mine, theirs = x.shape[i], repeats.shape[i]
        if type(mine) is not type(theirs) or mine != theirs:
            raise RaggednessError(f"axis {i} of repeats must be {mine}, as in the tensor repeated, got {theirs}")
    if not isinstance(x.shape[axis], Ragged):
        raise RaggednessError(
            f"axis {axis} of shape {x.shape} is uniform: repeats must be an int or one count per entry"
        )
    repeats = stored_as_seen(repeats, repeats.ndim)
    structure = repeats.structure
    level = structure.level(structure.whole)
    assert isinstance(level, Partition)
    counts = zeroed(repeats.values.to(torch.int64), structure)

    def error(i: int) -> ValueError:
        return ValueError(f"repeats must be 0 or more, but entry {i} of their values is {int(counts[i])}")

    host.defer(host.first_fault(counts < 0), error)
    counts = counts.clamp(min=0)
    before = torch.zeros(counts.numel() + 1, dtype=torch.int64, device=x.device)
    torch.cumsum(counts, 0, out=before[1:])
    lengths = torch.diff(before[level.offsets_on(x.device).to(torch.int64)])
    lengths = lengths if lengths.device == level.home else host.read(lengths, "repeating by counts on a device")
    repeated = level.with_lengths(lengths)
    index = torch.repeat_interleave(level.positions_on(x.device), counts, output_size=repeated.num_values)
    return x[Tensor(index, Structure((*structure.axes[:-1], Ragged(repeated, range(axis))), index.numel()))]


def tile(x: Any, repetitions: Sequence[int], /) -> Tensor:
    """Each axis as a whole repeated, and each row on its own. The last of `repetitions` is for the last axis.

    >>> import serrate as sr
    >>> sr.tile(sr.ragged([[1, 2], [3]]), (1, 2)).tolist()
    [[1, 2, 1, 2], [3, 3]]
    """
    tensor = as_tensor(x)
    for _ in range(len(repetitions) - tensor.ndim):
        tensor = indexing.expand_dims(tensor, 0)
    counts = (*[1] * (tensor.ndim - len(repetitions)), *repetitions)
    if all(times == 1 for times in counts):
        return tensor.clone()
    for axis, times in enumerate(counts):
        if times < 0:
            raise ValueError(f"repetitions must be 0 or more, got {tuple(repetitions)}")
        size = tensor.shape[axis]
        if times == 1:
            continue
        if isinstance(size, Ragged):
            tensor = _remap(tensor, axis, size.partition.scaled(times), lambda r, have: r % have.clamp(min=1), times)
        else:
            tensor = _pick(tensor, axis, torch.arange(size, device=CPU).repeat(times), times)
    return tensor


def split(x: Any, sizes: int | Sequence[int], /, *, axis: int = 0) -> list[Tensor]:
    """Pieces along `axis`: of one size (the last may be smaller), or of the given sizes, which must cover the axis.

    On a ragged axis each row gives each piece what it has there.

    >>> import serrate as sr
    >>> [piece.tolist() for piece in sr.split(sr.ragged([[1, 2, 3], [4]]), 2, axis=1)]
    [[[1, 2], [4]], [[3], []]]
    """
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    extent = tensor.shape[number]
    if isinstance(extent, Ragged) and isinstance(sizes, Sequence) and not extent.partition.is_host_born:
        longest = min(sum(sizes), extent.partition.max_length_bound)
        _defer_cover(extent.partition, sum(sizes))
    else:
        longest = extent.partition.max_length if isinstance(extent, Ragged) else extent
    if hasattr(sizes, "__index__"):
        sizes = operator.index(sizes)
        if sizes <= 0:
            raise ValueError(f"the size of the pieces must be positive, got {sizes}")
        starts = abstract.entries(longest, "split")[::sizes]
        sizes = [min(sizes, longest - start) for start in starts] or [0]
    covered = sum(sizes)
    lacks = abstract.differ(covered, longest) if isinstance(extent, int) else covered < longest
    if min(sizes, default=0) < 0 or (lacks and abstract.is_known(covered) and abstract.is_known(longest)):
        raise ValueError(f"sizes must be 0 or more and cover axis {axis} of length {longest}, got {list(sizes)}")
    made, start = [], 0
    for size in sizes:
        made.append(tensor[_along(number, slice(start, start + size))])
        start += size
    return made


def _defer_cover(partition: Partition, covered: int) -> None:
    lengths = partition.lengths

    def error(i: int) -> ValueError:
        return ValueError(
            f"sizes must cover every row, but add up to {covered} and row {i} has {int(lengths[i])} entries"
        )

    host.defer(host.first_fault(lengths > covered), error)


@untraced
def positions(x: Any, axis: int = 1) -> Tensor:
    """For each entry its position along `axis`, a packed axis of `x`; int64, with x's structure and no features.

    >>> import serrate as sr
    >>> sr.positions(sr.ragged([[7., 8.], [], [9.]]), axis=1).tolist()
    [[0, 1], [], [0]]
    """
    x = as_tensor(x)
    packed = len(x.structure.axes)
    c = x.order[x._axis(axis)]
    if c >= packed:
        raise AxisError(f"axis {axis} of shape {x.shape} is neither ragged nor a parent of a ragged axis")
    numbers = x.structure.positions(x.structure.whole, c, x.device)
    return Tensor(numbers.clone(), x.structure, tuple(o for o in x.order if o < packed), x.team)


def _along(axis: int, entry: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, entry)


def _pick(x: Tensor, axis: int, positions: torch.Tensor, copies: int = 1) -> Tensor:
    """Positions of a uniform axis, each taken at most `copies` times."""
    c = x.order[axis]
    if c >= len(x.structure.axes):
        return x[_along(axis, positions)]
    choice = select.Pick(host.send(positions, x.structure.home), copies=copies)
    walk = plan.Plan(x.structure, {c: choice})
    return assemble(x, walk.read(x.values), walk.result(), x.order)


def _remap(
    x: Tensor,
    axis: int,
    partition: Partition,
    rule: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    copies: int = 1,
) -> Tensor:
    c = x.order[axis]
    walk = plan.Plan(x.structure, {c: select.Remap(partition, rule, copies)})
    return assemble(x, walk.read(x.values), walk.result(), x.order)
