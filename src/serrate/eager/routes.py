"""Where rows go that are grouped by key, and how they come back.

Keys are sorted once, stably. Where keys lie on a device, so do the lengths of the groups, and nobody waits for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.eager.addresses import beside
from serrate.errors import RaggednessError
from serrate.tensor import abstract, bits, broadcast, host
from serrate.tensor.broadcast import lay_out
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.layout import shape_of
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Structure
from serrate.tensor.tensor import Tensor, as_tensor

_NARROW = ((torch.uint8, 2**8), (torch.int16, 2**15), (torch.int32, 2**31))


@dataclass(eq=False)
class Route:
    """Where the rows of one call of `group_by` went, and how they come back."""

    structure: Structure
    """The packed axes of the rows before grouping; none if they were dense."""
    order: tuple[int, ...]
    """How the axes before grouping were seen."""
    lead: tuple[int, ...]
    """The axes that rows stood on: the first ones of a dense tensor, the packed one of a ragged tensor."""
    copies: int | None
    """How many groups each row went to; None if keys had no axis for it."""
    groups: Partition
    places: torch.Tensor
    """For each entry, in the order of groups, which copy of which row it is: row · copies + copy."""
    weights: Tensor | torch.Tensor | None
    """As they were given: one for each copy of each row, or one for each row."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.lead)

    @property
    def total(self) -> int:
        """How many copies there are, dropped ones included."""
        return self.rows * (1 if self.copies is None else self.copies)

    @property
    def partial(self) -> bool:
        """Whether some copies may have been dropped."""
        return not self.groups.is_host_born or self.places.numel() < self.total

    @cached_property
    def source(self) -> torch.Tensor:
        """The row each entry came from."""
        return self.places if self.copies is None else self.places // max(self.copies, 1)

    @cached_property
    def entries(self) -> torch.Tensor:
        """For each copy of each row its entry; -1 if it was dropped."""
        numbers = torch.arange(self.places.numel(), device=self.places.device)
        found = torch.full((self.total,), -1, device=numbers.device).scatter_(0, self.places, numbers)
        if self.groups.is_host_born:
            return found
        return torch.where(found < self.groups.offsets_on(found.device)[-1], found, -1)

    @cached_property
    def like_rows(self) -> Tensor:
        """A tensor of the axes that rows stand on, seen as before grouping; its elements mean nothing."""
        return self._like(self.lead)

    @cached_property
    def like_copies(self) -> Tensor:
        """The same with an axis of copies after them, if there are any."""
        return self.like_rows if self.copies is None else self._like((*self.lead, self.copies))

    def _like(self, sizes: tuple[int, ...]) -> Tensor:
        values = self.places.new_empty(()).expand(sizes)
        if self.structure is DENSE:
            return Tensor(values)
        packed = len(self.structure.axes)
        more = range(packed, packed + len(sizes) - 1)
        return Tensor(values, self.structure, (*(c for c in self.order if c < packed), *more))

    def defined(self, entries: torch.Tensor) -> torch.Tensor:
        """Entries that belong to a group, shaped to meet `entries`."""
        numbers = torch.arange(self.places.numel(), device=entries.device)
        return beside(numbers < self.groups.offsets_on(entries.device)[-1], entries)


class _Send(Differentiable):
    """Rows to entries. The gradient comes back by the known inverse: no two writes meet."""

    @staticmethod
    def forward(rows: torch.Tensor, route: Route) -> torch.Tensor:
        return bits.take(rows, route.source)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.route = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return over_copies(fetch(gradient, ctx.route), ctx.route), None


class _Fetch(Differentiable):
    """Entries to copies of rows, 0 for those that were dropped; entries past the last group get the gradient 0."""

    @staticmethod
    def forward(entries: torch.Tensor, route: Route) -> torch.Tensor:
        if entries.shape[0] == 0:
            return entries.new_zeros((route.total, *entries.shape[1:]))
        if not route.partial:
            return bits.take(entries, route.entries)
        made = bits.take(entries, route.entries.clamp(min=0))
        return bits.where(beside(route.entries >= 0, made), made, made.new_zeros(()))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.route = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        route: Route = ctx.route
        made = gradient.index_select(0, route.places)
        return (made if route.groups.is_exact else torch.where(route.defined(made), made, 0)), None


def send(rows: torch.Tensor, route: Route) -> torch.Tensor:
    """The entries of groups, given rows."""
    return _Send.call(rows, route)


def fetch(entries: torch.Tensor, route: Route) -> torch.Tensor:
    """The copies of rows, given the entries of groups."""
    return _Fetch.call(entries, route)


def over_copies(copies: torch.Tensor, route: Route) -> torch.Tensor:
    """The sum over the copies of each row."""
    return copies if route.copies is None else copies.view(route.rows, route.copies, *copies.shape[1:]).sum(1)


def features_as_seen(x: Tensor) -> torch.Tensor:
    """The values of x with features in the order in which a user sees them."""
    packed = len(x.structure.axes)
    return x.values.permute(0, *[c - packed + 1 for c in x.order if c >= packed]) if x.is_ragged else x.values


def as_before(route: Route, rows: torch.Tensor, team: int | None) -> Tensor:
    """Rows as the tensor that was grouped was seen; with another number of features, those come last."""
    if route.structure is DENSE:
        return Tensor(rows.view(*route.lead, *rows.shape[1:]), team=team)
    packed, features = len(route.structure.axes), iter(range(rows.ndim - 1))
    if len(route.order) == packed + rows.ndim - 1:
        order = tuple(c if c < packed else packed + next(features) for c in route.order)
    else:
        order = (*(c for c in route.order if c < packed), *(packed + i for i in features))
    return Tensor(rows, route.structure, order, team)


def row_axes(x: Tensor, by: Tensor) -> tuple[int, ...]:
    """The sizes of the axes of values that rows stand on, for keys with an entry, or an axis of them, for each row.

    Of a dense tensor, keys with fewer axes than it has an entry for each row, [B, T] for [B, T, D] and [N] for [N];
    with as many axes or more, their last one is that of several groups, [N, k] for [N, D] and [B, T, k] for [B, T, D].
    """
    if x.is_ragged:
        count = 1
    else:
        broadcast.require_one_device(x, by)
        count = by.ndim if by.ndim < max(x.ndim, 2) else by.ndim - 1
    lead = tuple(x.values.shape[:count])
    fits = by.values.ndim in (count, count + 1) and count > 0
    if not fits or any(abstract.differ(n, m) for n, m in zip(by.values.shape[:count], lead, strict=True)):
        raise ValueError(
            f"keys must have one entry for each row of shape {x.shape}, or one axis of them, got shape {by.shape}"
        )
    return lead


def sorted_by_group(x: Tensor, wanted: torch.Tensor, count: int) -> tuple[torch.Tensor, Partition]:
    """The copies of rows in the order of their groups, and how groups cut them."""
    if not x.structure.is_exact:
        wanted = torch.where(x.structure.defined_rows(wanted), wanted, -1)
    keys = wanted.reshape(-1)
    wrong = (keys < -1) | (keys >= count)
    dropped = (keys < 0) | wrong

    def error(i: int) -> IndexError:
        row = i * wanted.shape[0] // keys.numel()
        return IndexError(f"key {int(keys[i])} of row {row} is out of range for {count} groups (-1 drops a row)")

    host.defer(host.first_fault(wrong), error)
    narrow = next((dtype for dtype, limit in _NARROW if count < limit), torch.int64)
    ordered, places = torch.where(dropped, count, keys).to(narrow).sort(stable=True)
    bounds = torch.arange(count + 1, device=keys.device, dtype=torch.int64).to(narrow)
    offsets = torch.searchsorted(ordered, bounds)
    if keys.device.type == "cpu" and x.structure.is_host_born:
        total = abstract.number(offsets[-1], "group_by")
        return abstract.first(places, total), Partition._of(offsets, total)
    return places, Partition._of(offsets, keys.numel(), device_born=True, exact=False)


def rows_beside(x: Tensor, other: Tensor, name: str) -> Tensor:
    """`other` with its rows stored in the order of those of x, or an error unless both are ragged alike."""
    broadcast.require_one_device(x, other)
    packed = len(x.structure.axes)
    if x.is_ragged != other.is_ragged:
        raise RaggednessError(f"{name} must be as ragged as values of shape {x.shape}, got shape {other.shape}")
    seen = tuple(c for c in x.order if c < packed)
    if x.structure.same_as(other.structure) and other.order[:packed] == seen:
        return other
    wanted = shape_of(x.values.new_empty(x.values.shape[0]), x.structure, seen)
    if abstract.unlike(other.shape[:packed], wanted):
        pairs = zip(x.shape, other.shape, strict=False)
        room = next((room for mine, theirs in pairs if (room := broadcast.capacities(mine, theirs))), "")
        raise RaggednessError(f"{name} must be ragged as values of shape {x.shape} are, got shape {other.shape}{room}")
    order = (*seen, *range(packed, other.ndim))
    return Tensor(lay_out(other, x.structure, order), x.structure, order, other.team)


def fitting_weights(route: Route, weights: Any, x: Tensor) -> torch.Tensor:
    """The values of weights, in the order of the rows of x, or an error unless there is one for each copy or row."""
    given = as_tensor(weights)
    if x.is_ragged or given.is_ragged:
        given = rows_beside(x, given, "weights")
    else:
        broadcast.require_one_device(x, given)
    like = route.like_rows if given.values.ndim == len(route.lead) else route.like_copies
    if abstract.unlike(given.values.shape, like.values.shape):
        raise ValueError(
            f"weights must have the shape of keys, {route.like_copies.shape}, or of rows, got {given.shape}"
        )
    return given.values


def weight_of_copies(route: Route, weights: Any) -> torch.Tensor:
    """A weight for each copy of each row."""
    values = fitting_weights(route, weights, route.like_rows)
    if route.copies is not None and values.ndim == len(route.lead):
        values = values.unsqueeze(-1).expand(*route.lead, route.copies)
    return values.reshape(-1)
