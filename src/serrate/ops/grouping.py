"""Rows grouped by key, and the way back: `group_by`, and the Tensor it gives.

Keys are sorted once, stably. Where keys lie on a device, so do the lengths of the groups, and nobody waits for them.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from serrate.eager.addresses import beside
from serrate.errors import RaggednessError
from serrate.ops.creation import parents_of
from serrate.ops.derivatives import conjugate, reduced_to
from serrate.ops.record import operation, ops, record
from serrate.tensor import abstract, bits, broadcast, host, trees
from serrate.tensor.broadcast import lay_out
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.layout import shape_of
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

if TYPE_CHECKING:
    from serrate.program.abstract import AbstractRun
    from serrate.program.partitions import Expression
    from serrate.program.sizes import Size
    from serrate.program.types import TensorType, TypeAxis

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

    def type_in(self, run: AbstractRun) -> RouteType:
        """What a type says of it."""
        return RouteType(
            run.axes_of(self.structure),
            self.order,
            tuple(run.size(size) for size in self.lead),
            None if self.copies is None else run.size(self.copies),
            run.expression_of(self.groups),
            run.type_of(self.places),
            None if self.weights is None else run.type_of(self.weights),
        )

    def seen(self, copies: int | None = None) -> Tensor:
        """A tensor of the axes that rows stand on, seen as before grouping, and one of copies after them if any.

        Its elements mean nothing.
        """
        values = self.places.new_empty(self.lead if copies is None else (*self.lead, copies))
        if self.structure is DENSE:
            return Tensor(values)
        packed = len(self.structure.axes)
        order = tuple(c for c in self.order if c < packed)
        return Tensor(values, self.structure, order if copies is None else (*order, packed))

    def defined(self, entries: torch.Tensor) -> torch.Tensor:
        """Entries that belong to a group, shaped to meet `entries`."""
        numbers = torch.arange(self.places.numel(), device=entries.device)
        return beside(numbers < self.groups.offsets_on(entries.device)[-1], entries)


@dataclass(frozen=True)
class RouteType:
    """What the type of a Grouped says of its route."""

    axes: tuple[TypeAxis, ...]
    order: tuple[int, ...]
    lead: tuple[Size, ...]
    copies: Size | None
    groups: Expression
    places: TensorType
    weights: TensorType | None

    def restored(self, run: AbstractRun, plain: Tensor) -> Grouped:
        """A tensor of groups with such a route."""
        lead = tuple(run.number(size) for size in self.lead)
        route = Route(
            run.structure(self.axes, lead[0]) if self.axes else DENSE,
            self.order,
            lead,
            None if self.copies is None else run.number(self.copies),
            run.partition(self.groups),
            run.tensor(self.places).values,
            None if self.weights is None else run.tensor(self.weights),
        )
        return Grouped(plain.values, plain.structure, plain.order, plain.team, route=route)


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
        return _over_copies(_fetch(gradient, ctx.route), ctx.route), None


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


def _send(rows: torch.Tensor, route: Route) -> torch.Tensor:
    return _Send.call(rows, route)


def _fetch(entries: torch.Tensor, route: Route) -> torch.Tensor:
    return _Fetch.call(entries, route)


def _over_copies(copies: torch.Tensor, route: Route) -> torch.Tensor:
    """The sum over the copies of each row."""
    return copies if route.copies is None else copies.view(route.rows, route.copies, *copies.shape[1:]).sum(1)


@dataclass(eq=False, repr=False)
class Grouped(Tensor):
    """What `sr.group_by` gives: a Tensor [groups, ragged, *features] that knows where its rows came from.

    Every operation on it, and a copy, a pickle or a move to a device, gives a plain Tensor; torch's tree functions keep
    it, with `values` as the one leaf.

    >>> import torch, serrate as sr
    >>> g = sr.group_by(torch.tensor([5., 6., 7.]), torch.tensor([1, 0, 1]), 2)
    >>> g.tolist(), g.source.tolist()
    ([[6.0], [5.0, 7.0]], [[1], [0, 2]])
    >>> g.ungroup(g * 10).tolist()
    [50.0, 60.0, 70.0]
    """

    route: Route | None = field(default=None, kw_only=True)
    """How rows come back."""

    def __new__(cls, *parts: Any, route: Route | None = None, **named: Any) -> Any:
        """With a route a Grouped; without, as when an operation calls the class of its operand, a plain Tensor."""
        return Tensor(*parts, **named) if route is None else object.__new__(cls)

    def ungroup(self, y: Any, /) -> Tensor:
        """The entries of `y`, which has this tensor's raggedness and any features, in the rows they came from.

        Where rows went to several groups, their entries are added, times the weights if there are any; integers come
        back in int64, added or not. Rows that were dropped come back as 0.

        >>> import torch, serrate as sr
        >>> keys, weights = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0.5, 0.5], [1.0, 0.0]])
        >>> g = sr.group_by(torch.tensor([[1.], [2.]]), keys, 2, weights=weights)
        >>> g.ungroup(g * 10).tolist()
        [[10.0], [20.0]]
        """
        return _ungroup(self, y, self._route.weights)

    @property
    def weights(self) -> Tensor | None:
        """The weight of each entry, [groups, ragged]; None if none were given."""
        given = self._route.weights
        return None if given is None else ops.distribute(given, *_numbered_weights(self, given))

    @property
    def source(self) -> Tensor:
        """The row each entry came from, int64, [groups, ragged]; rows on several axes are counted as stored."""
        return Tensor(self._route.source, self.structure, (), self.team)

    @property
    def _route(self) -> Route:
        assert self.route is not None
        return self.route


trees.register(Grouped, "route")


@operation
def _ungroup(g: Grouped, y: Any, weights: Any = None, /) -> Tensor:
    tensor, route = as_tensor(y), g._route
    if not tensor.is_ragged or not tensor.structure.same_as(g.structure):
        raise RaggednessError(f"ungroup takes a tensor with the raggedness of {g.shape}, got shape {tensor.shape}")
    broadcast.require_one_device(g, tensor)
    copies = _fetch(_features_as_seen(tensor), route)
    if not (copies.is_floating_point() or copies.is_complex()):
        copies = copies.to(torch.int64)  # as sums are, also where there is one copy of each row
    if weights is not None:
        factors = _weight_of_copies(route, weights)
        if route.partial:
            factors = torch.where(route.entries >= 0, factors, 0)
        copies = copies * beside(factors, copies)
    return _as_before(route, _over_copies(copies, route), g.team)


def _features_as_seen(x: Tensor) -> torch.Tensor:
    packed = len(x.structure.axes)
    return x.values.permute(0, *[c - packed + 1 for c in x.order if c >= packed]) if x.is_ragged else x.values


def _as_before(route: Route, rows: torch.Tensor, team: None) -> Tensor:
    """Rows as the tensor that was grouped was seen; with another number of features, those come last."""
    if route.structure is DENSE:
        return Tensor(rows.view(*route.lead, *rows.shape[1:]), team=team)
    packed, features = len(route.structure.axes), iter(range(rows.ndim - 1))
    if len(route.order) == packed + rows.ndim - 1:
        order = tuple(c if c < packed else packed + next(features) for c in route.order)
    else:
        order = (*(c for c in route.order if c < packed), *(packed + i for i in features))
    return Tensor(rows, route.structure, order, team)


# ------------------------------------------------------------------------------------------------ group_by


@operation
def _group_by(values: Any, keys: Any, num_groups: int, /, *, weights: Any = None) -> Grouped:
    x, by, count = as_tensor(values), integers(keys, "keys"), count_of(num_groups, "num_groups")
    if x.ndim == 0:
        raise ValueError("group_by needs rows, got a 0-d tensor")
    if x.is_ragged or by.is_ragged:
        by = _beside(x, by, "keys")
    lead = _row_axes(x, by)
    rows = _features_as_seen(x).flatten(0, len(lead) - 1)
    wanted = by.values.to(torch.int64).flatten(0, len(lead) - 1)
    copies = wanted.shape[1] if wanted.ndim == 2 else None
    places, groups = _sorted_by_group(x, wanted, count)
    route = Route(x.structure, x.order, lead, copies, groups, places, weights)
    if weights is not None:
        _fitting(route, weights, x)
    structure = Structure((count, Ragged(groups, (0,))), places.numel())
    return Grouped(_send(rows, route), structure, (), x.team, route=route)


def _row_axes(x: Tensor, by: Tensor) -> tuple[int, ...]:
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


def _sorted_by_group(x: Tensor, wanted: torch.Tensor, count: int) -> tuple[torch.Tensor, Partition]:
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


def _beside(x: Tensor, other: Tensor, name: str) -> Tensor:
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


def _fitting(route: Route, weights: Any, x: Tensor) -> torch.Tensor:
    """The values of weights, in the order of the rows of x, or an error unless there is one for each copy or row."""
    given = as_tensor(weights)
    if x.is_ragged or given.is_ragged:
        given = _beside(x, given, "weights")
    else:
        broadcast.require_one_device(x, given)
    keys = route.seen(route.copies)
    each_row = route.copies is not None and given.values.ndim == len(route.lead)
    if abstract.unlike(given.values.shape, route.lead if each_row else keys.values.shape):
        raise ValueError(f"weights must have the shape of keys, {keys.shape}, or of rows, got {given.shape}")
    return given.values


def _weight_of_copies(route: Route, weights: Any) -> torch.Tensor:
    """A weight for each copy of each row."""
    values = _fitting(route, weights, route.seen())
    if route.copies is not None and values.ndim == len(route.lead):
        values = values.unsqueeze(-1).expand(*route.lead, route.copies)
    return values.reshape(-1)


def _numbered_weights(g: Grouped, weights: Any) -> tuple[Tensor, Tensor]:
    """For each entry the number of its weight, and a tensor that has the shape of weights, stored as they are numbered.

    The elements of that tensor mean nothing.
    """
    route = g._route
    each_row = weights.ndim == route.seen().ndim
    numbers = route.source if each_row else route.places
    return Tensor(numbers, g.structure, (), g.team), route.seen(None if each_row else route.copies)


def integers(given: Any, name: str) -> Tensor:
    """`given` as a Tensor of integers, or a TypeError."""
    tensor = as_tensor(given)
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    return tensor


def count_of(given: Any, name: str) -> int:
    """`given` as an int of 0 or more."""
    try:
        count = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {given!r:.40}") from None
    if count < 0:
        raise ValueError(f"{name} must be 0 or more, got {count}")
    return count


# ------------------------------------------------------------------------------------------- derivatives


def _group_by_vjp(g: Any, out: Any, values: Any, keys: Any, weights: Any, *, num_groups: int) -> tuple[Any, ...]:
    """Rows get the gradients of their entries. Weights count when entries come back, and not before."""
    return ops.collect(g, ops.group_by(ops.numbered(values), keys, num_groups), values), None, None


def _ungroup_vjp(gradient: Any, out: Any, g: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """Each entry gets the gradient of the row it came from, times its weight; each weight that gradient, times entries.

    Weights of dropped copies get 0, since no entry has their number.
    """
    groups = parents_of(y)
    features = [axis for axis, size in enumerate(y.shape) if axis not in groups and not isinstance(size, Ragged)]
    width = math.prod(y.shape[axis] for axis in features)
    # Rows are stored one after the other, and so are the features of each.
    sizes = [y.shape[axis] if axis in features else 1 for axis in range(y.ndim)]
    within = ops.reshape(ops.arange(width, device=y.device), sizes)
    at = ops.expand_like(g.source, y, axis=features) * width + within
    made = ops.distribute(gradient, at, out)
    if weights is None:
        return None, reduced_to(made, y), None
    numbers, like = _numbered_weights(g, weights)
    of_entries = made * conjugate(y)
    of_weights = ops.collect(ops.sum(of_entries, axis=tuple(features)) if features else of_entries, numbers, like)
    factors = ops.expand_like(ops.distribute(weights, numbers, like), y, axis=features)
    return None, reduced_to(made * conjugate(factors), y), reduced_to(of_weights, weights)


record(
    "grouping",
    "group_by",
    _group_by,
    None,
    summary="The rows of `values` by their keys, [num_groups, ragged, *features], in their order; key -1 drops a row.",
    example=(
        "sr.group_by(torch.tensor([5., 6., 7.]), torch.tensor([1, 0, 1]), 2).tolist()",
        "[[6.0], [5.0, 7.0]]",
    ),
    operands=("values", "keys", "weights"),
    primitive="movement",
    vjp=_group_by_vjp,
    kinds=("float", "complex", "int", "bool"),
    decides=("keys",),
    samples=(
        "x, sr.positions(x, 0) % 2, 2",
        "x.values, torch.arange(x.values.shape[0]) % 4 - 1, 3",
        "x.values[None, ..., None], torch.arange(x.values.numel()).view(1, *x.values.shape) % 3, 3",
    ),
    errors=(
        ("x, torch.zeros(6, dtype=torch.int64), 2", RaggednessError, "keys must be as ragged as values"),
        ("x, sr.positions(x, 1), 2", IndexError, r"key 2 of row 2 is out of range for 2 groups"),
        ("x, x[..., 0], 2", TypeError, "keys must be integers"),
        ("x, sr.positions(x, 0), -1", ValueError, "num_groups must be 0 or more"),
    ),
)

_G = "sr.group_by(x, sr.positions(x, 0) % 2, 2)"
_KEYS = "torch.arange(2 * len(x.values)).view(-1, 2) % 3 - 1"
_TWICE = f"sr.group_by(x.values, {_KEYS}, 2)"
_RAGGED_TWICE = "sr.group_by(x, sr.positions(x, 0)[..., None] % torch.tensor([3, 2]) - 1, 2)"
record(
    "grouping",
    "Grouped.ungroup",
    _ungroup,
    None,
    summary="The entries of `y`, which is ragged as the groups are, in the rows they came from; copies are added.",
    example=(
        "(lambda g: g.ungroup(g * 10).tolist())(sr.group_by(torch.tensor([5., 6., 7.]), torch.tensor([1, 0, 1]), 2))",
        "[50.0, 60.0, 70.0]",
    ),
    primitive="movement",
    vjp=_ungroup_vjp,
    kinds=("float", "complex", "int", "bool"),
    samples=(
        f"*[{_G}] * 2",
        f"*(lambda g: (g, g[..., None]))({_G})",
        f"*[{_TWICE}] * 2, torch.ones(len(x.values), 2)",
        f"*[{_RAGGED_TWICE}] * 2, sr.positions(x, 0) + 0.5",
    ),
    errors=(
        (f"{_G}, x", RaggednessError, "ungroup takes a tensor with the raggedness"),
        (f"{_G}, torch.ones(2)", RaggednessError, "got shape"),
    ),
)
