"""Sets along any axis, each row on its own: distinct elements with how often and where they stand, and what is not 0.

How many entries a result has is data, so these wait for a device. With an axis, that axis of the result is ragged and
depends on all the others, features included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from serrate.eager.runs import Along, along, ordered, sort_rows
from serrate.errors import AxisError
from serrate.ops.answers import refuse_out
from serrate.ops.record import BAD_AXIS, BY_TORCH, NO_TENSOR, Kind, operation, record, torch_names, written
from serrate.tensor import abstract, bits, host
from serrate.tensor.combine import exact
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged
from serrate.tensor.tensor import Tensor, as_tensor


class UniqueAll(NamedTuple):
    """Distinct elements, where each stands first, for each element of the input its place among them, how often."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements and for each element of the input its place among them."""

    values: Tensor
    inverse_indices: Tensor


# ------------------------------------------------------------------------------------------------ groups of elements


@dataclass(eq=False)
class _Elements:
    """All elements in a flat, the group of each, its position there, and the axes whose cells the groups are."""

    x: Tensor
    values: torch.Tensor
    group: torch.Tensor
    position: torch.Tensor
    groups: int
    outer: list[tuple[int, Axis]]
    label: int
    restore: Callable[[torch.Tensor], torch.Tensor]

    def room(self, lengths: torch.Tensor, why: str) -> tuple[int, Callable[[torch.Tensor], Tensor]]:
        """How many results there are, `lengths` in each group, and what puts them into a tensor; waits for a device."""
        if not self.outer:
            count = abstract.number(host.read_if_device(lengths.sum(), why), why)
            return count, lambda values: Tensor(values, team=self.x.team)
        made = _partition(self.x, lengths, why)
        axes = [*self.outer, (self.label, Ragged(made, range(len(self.outer))))]
        template = assemble(self.x, torch.empty(made.num_values, device="meta"), axes, self.x.order, ())
        return made.num_values, template._with


def _partition(x: Tensor, lengths: torch.Tensor, why: str) -> Partition:
    """Lengths that were computed from elements, born where the tensor's own were."""
    if not x.partitions:
        return Partition.from_lengths(host.read_if_device(lengths, why))
    if x.structure.is_host_born:
        lengths = host.read_if_device(lengths, why)
    return next((p for p in x.partitions if not p.is_host_born), x.partitions[0]).with_lengths(lengths)


def _elements(x: Tensor, axis: int | None) -> _Elements:
    """The elements of `x`, which has no undefined ones, grouped by all axes but `axis`, or as one group."""
    values = x.values
    if axis is not None:
        call = along(x, axis)
        return _in_rows(call) if call.dim is None else _in_lines(call, call.dim)
    numbers = torch.arange(values.numel(), device=x.device)
    one = torch.zeros_like(numbers)
    return _Elements(x, values.reshape(-1), one, numbers, 1, [], 0, lambda made: made.view(values.shape))


def _in_lines(call: Along, dim: int) -> _Elements:
    """Groups along a dimension of the values."""
    x, moved = call.x, call.x.values.movedim(dim, -1)
    size = max(moved.shape[-1], 1)
    numbers = torch.arange(moved.numel(), device=x.device)
    outer: list[tuple[int, Axis]] = [*enumerate(x.structure.axes), *_features(x)]
    return _Elements(
        x,
        moved.reshape(-1),
        numbers // size,
        numbers % size,
        moved.shape[:-1].numel(),
        [(label, axis) for label, axis in outer if label != call.label],
        call.label,
        lambda made: made.view(moved.shape).movedim(-1, dim),
    )


def _in_rows(call: Along) -> _Elements:
    """Groups along a packed axis, each feature on its own."""
    x, segments, width = call.x, call.segments, call.x.values.shape[1:].numel()
    group = segments.index(x.device)[:, None] * width + torch.arange(width, device=x.device)
    return _Elements(
        x,
        x.values.reshape(-1),
        group.reshape(-1),
        call.positions[:, None].expand_as(group).reshape(-1),
        segments.cells * width,
        [*zip(segments.kept, segments.axes, strict=True), *_features(x)],
        call.label,
        lambda made: made.view(x.values.shape),
    )


def _features(x: Tensor) -> list[tuple[int, int]]:
    """The canonical axes that are not packed, with their sizes."""
    return list(enumerate(x.values.shape[1:] if x.is_ragged else x.values.shape, len(x.structure.axes)))


def _chosen(mask: torch.Tensor, count: int) -> torch.Tensor:
    """The positions of True, of which there are `count`; without asking the device."""
    place = torch.where(mask, mask.cumsum(0) - 1, count)
    numbers = torch.arange(mask.numel(), device=mask.device)
    return torch.empty(count + 1, dtype=torch.int64, device=mask.device).scatter_(0, place, numbers)[:count]


def _per_group(elements: _Elements, group: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """How many are True in each group."""
    zeros = torch.zeros(elements.groups, dtype=torch.int64, device=mask.device)
    return zeros.index_add(0, group, mask.to(torch.int64))


# ------------------------------------------------------------------------------------------------ unique


def _sorted(elements: _Elements) -> torch.Tensor:
    """The elements by group, then in order, equal ones as they stand; complex ones by real, then imaginary part."""
    values, group = elements.values, elements.group
    if not values.is_complex():
        return sort_rows(*ordered(values), group, elements.groups)
    by_imaginary = torch.sort(ordered(values.imag)[0], stable=True).indices
    keys, narrow = ordered(values.real)
    return by_imaginary[sort_rows(keys[by_imaginary], narrow, group[by_imaginary], elements.groups)]


class _Distinct:
    """Distinct elements of each group in order, NaN from each other too. Each result is made when asked for."""

    def __init__(self, x: Any, axis: int | None, name: str) -> None:
        self.elements = elements = _elements(exact(as_tensor(x)), axis)
        self.order = order = _sorted(elements)
        self.sorted, self.group = bits.take(elements.values, order), elements.group[order]
        self.new = torch.ones_like(order, dtype=torch.bool)
        self.new[1:] = (self.group[1:] != self.group[:-1]) | (self.sorted[1:] != self.sorted[:-1])
        self.lengths = _per_group(elements, self.group, self.new)
        count, self.put = elements.room(self.lengths, name)
        self.first = _chosen(self.new, count)

    def values(self) -> Tensor:
        return self.put(bits.take(self.sorted, self.first))

    def indices(self) -> Tensor:
        return self.put(self.elements.position[self.order[self.first]])

    def inverse(self) -> Tensor:
        rank = self.new.cumsum(0) - 1 - (self.lengths.cumsum(0) - self.lengths)[self.group]
        back = torch.empty_like(rank).scatter_(0, self.order, rank)
        return self.elements.x._with(self.elements.restore(back))

    def counts(self) -> Tensor:
        end = self.order.new_full((1,), self.order.numel())
        return self.put(torch.diff(torch.cat([self.first, end])))


@operation
def _unique_values(x: Any, /, *, axis: int | None = None) -> Tensor:
    return _Distinct(x, axis, "unique_values").values()


@operation
def _unique_counts(x: Any, /, *, axis: int | None = None) -> UniqueCounts:
    made = _Distinct(x, axis, "unique_counts")
    return UniqueCounts(made.values(), made.counts())


@operation
def _unique_inverse(x: Any, /, *, axis: int | None = None) -> UniqueInverse:
    made = _Distinct(x, axis, "unique_inverse")
    return UniqueInverse(made.values(), made.inverse())


@operation
def _unique_all(x: Any, /, *, axis: int | None = None) -> UniqueAll:
    made = _Distinct(x, axis, "unique_all")
    return UniqueAll(made.values(), made.indices(), made.inverse(), made.counts())


# ------------------------------------------------------------------------------------------------ nonzero


@operation
def _nonzero(x: Any, /, *, axis: int | None = None) -> Any:
    tensor = exact(as_tensor(x))
    if axis is not None:
        return _nonzero_along(tensor, axis)
    if tensor.ndim == 0:
        raise AxisError("nonzero gives positions along axes, and a 0-d tensor has none")
    values, packed = tensor.values, len(tensor.structure.axes)
    mask = (values != 0).reshape(-1)
    found = _chosen(mask, abstract.number(host.read_if_device(mask.sum(), "nonzero"), "nonzero"))
    places = list(torch.unravel_index(found, values.shape))
    if tensor.is_ragged:
        row, whole = places.pop(0), tensor.structure.whole
        places = [tensor.structure.positions(whole, c, values.device)[row] for c in range(packed)] + places
    return tuple(Tensor(place, team=tensor.team) for place in _row_major([places[c] for c in tensor.order], tensor))


def _row_major(places: list[torch.Tensor], x: Tensor) -> list[torch.Tensor]:
    """Positions along each axis of x, found in storage order, in the order of the axes as they are seen."""
    if x.order == tuple(range(x.ndim)):
        return places
    order = torch.arange(places[0].numel(), device=x.device)
    for place in reversed(places):
        order = order[torch.sort(place[order], stable=True).indices]
    return [place[order] for place in places]


def _nonzero_along(x: Tensor, axis: int) -> Tensor:
    """For each group the positions that are not 0."""
    elements = _elements(x, axis)
    order = torch.sort(elements.group, stable=True).indices
    mask = (elements.values != 0)[order]
    lengths = _per_group(elements, elements.group[order], mask)
    count, put = elements.room(lengths, "nonzero")
    return put(elements.position[order[_chosen(mask, count)]])


# ------------------------------------------------------------------------------------------------ records


def _answer_unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is not None:
        raise TypeError(
            "torch.unique(dim=…) compares slices, which is not defined for sr.Tensor; "
            "for the distinct elements of each row use sr.unique_values(x, axis=…)"
        )
    made = _Distinct(input, None, "unique")
    more = [result() for result, asked in ((made.inverse, return_inverse), (made.counts, return_counts)) if asked]
    return (made.values(), *more) if more else made.values()


def _answer_nonzero(input: Any, *, as_tuple: bool = False, out: Any = None) -> Any:
    refuse_out("nonzero", out)
    found = _nonzero(input)
    return found if as_tuple else Tensor(torch.stack([place.values for place in found], 1))


_ALL: tuple[Kind, ...] = ("float", "complex", "int", "bool")


def _record(name: str, eager: Callable[..., Any], summary: str, call: str, gives: str, **fields: Any) -> None:
    usual = {"answer": None, "torch": ()} | ({} if "flat" in fields else {"vjp": BY_TORCH})
    fields = usual | fields
    record(
        "sets",
        name,
        eager,
        fields.pop("answer"),
        summary=summary,
        example=(call, gives),
        primitive="library",
        kinds=_ALL,
        samples=("x", "x, axis=1", "x, axis=0", "x, axis=-1"),
        errors=(BAD_AXIS, NO_TENSOR),
        decides=("x",),
        **fields,
    )


# fmt: off
_record("unique_values", _unique_values,
        "The distinct elements in order; with `axis`, of each row. Each NaN is distinct.",
        "sr.unique_values(sr.ragged([[3, 1, 3], [], [2, 2]]), axis=1).tolist()", "[[1, 3], [], [2]]",
        torch=torch_names("unique"), answer=_answer_unique, dialect=written("unique_values", x="rhs"))
_record("unique_counts", _unique_counts,
        "The distinct elements in order and how often each occurs; with `axis`, in each row.",
        "sr.unique_counts(sr.ragged([[3, 1, 3], [], [2, 2]]), axis=1).counts.tolist()", "[[1, 2], [], [2]]",
        dialect=written("unique_counts", x="rhs"))
_record("unique_inverse", _unique_inverse,
        "The distinct elements in order, and the place of each element among them; with `axis`, in each row.",
        "sr.unique_inverse(sr.ragged([[3, 1, 3], [], [2, 2]]), axis=1).inverse_indices.tolist()",
        "[[1, 0, 1], [], [0, 0]]", dialect=written("unique_inverse", x="rhs"))
_record("unique_all", _unique_all,
        "The distinct elements in order, where each stands first, the place of each element among them, and counts.",
        "sr.unique_all(sr.ragged([[3, 1, 3], [], [2, 2]]), axis=1).indices.tolist()", "[[1, 0], [], [0]]",
        dialect=written("unique_all", x="rhs"))
_record("nonzero", _nonzero,
        "The positions of elements that are not 0, one tensor for each axis; with `axis`, those of each row.",
        "sr.nonzero(sr.ragged([[0, 1, 5], [], [0, 2]]), axis=1).tolist()", "[[1, 2], [], [1]]",
        torch=torch_names("nonzero"), answer=_answer_nonzero, flat="the results are positions",
        dialect=written("nonzero", x="rhs"))
# fmt: on
