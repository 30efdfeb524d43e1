"""Rows grouped by key, and the way back: `group_by`, and the Tensor it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from serrate.eager.addresses import beside
from serrate.eager.arguments import count_of, integers
from serrate.eager.routes import (
    Route,
    as_before,
    features_as_seen,
    fetch,
    fitting_weights,
    over_copies,
    row_axes,
    rows_beside,
    send,
    sorted_by_group,
    weight_of_copies,
)
from serrate.errors import RaggednessError
from serrate.ops.record import operation, ops, record, written
from serrate.ops.rules import conjugate, parents_of, reduced_to
from serrate.tensor import broadcast, trees
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

if TYPE_CHECKING:
    from serrate.program.abstract import AbstractRun
    from serrate.program.partitions import Expression
    from serrate.program.sizes import Size
    from serrate.program.types import TensorType, TypeAxis


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

    @classmethod
    def of(cls, route: Route, run: AbstractRun) -> RouteType:
        """What a type says of a route."""
        return cls(
            run.axes_of(route.structure),
            route.order,
            tuple(run.size(size) for size in route.lead),
            None if route.copies is None else run.size(route.copies),
            run.expression_of(route.groups),
            run.type_of(route.places),
            None if route.weights is None else run.type_of(route.weights),
        )

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

    def origin_in(self, run: AbstractRun) -> RouteType:
        """What a type says of where rows came from."""
        return RouteType.of(self._route, run)

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
    copies = fetch(features_as_seen(tensor), route)
    if not (copies.is_floating_point() or copies.is_complex()):
        copies = copies.to(torch.int64)  # as sums are, also where there is one copy of each row
    if weights is not None:
        factors = weight_of_copies(route, weights)
        if route.partial:
            factors = torch.where(route.entries >= 0, factors, 0)
        copies = copies * beside(factors, copies)
    return as_before(route, over_copies(copies, route), g.team)


# ------------------------------------------------------------------------------------------------------------- group_by


@operation
def _group_by(values: Any, keys: Any, num_groups: int, /, *, weights: Any = None) -> Grouped:
    x, by, count = as_tensor(values), integers(keys, "keys"), count_of(num_groups, "num_groups")
    if x.ndim == 0:
        raise ValueError("group_by needs rows, got a 0-d tensor")
    if x.is_ragged or by.is_ragged:
        by = rows_beside(x, by, "keys")
    lead = row_axes(x, by)
    rows = features_as_seen(x).flatten(0, len(lead) - 1)
    wanted = by.values.to(torch.int64).flatten(0, len(lead) - 1)
    copies = wanted.shape[1] if wanted.ndim == 2 else None
    places, groups = sorted_by_group(x, wanted, count)
    route = Route(x.structure, x.order, lead, copies, groups, places, weights)
    if weights is not None:
        fitting_weights(route, weights, x)
    structure = Structure((count, Ragged(groups, (0,))), places.numel())
    return Grouped(send(rows, route), structure, (), x.team, route=route)


def _numbered_weights(g: Grouped, weights: Any) -> tuple[Tensor, Tensor]:
    """For each entry the number of its weight, and a tensor that has the shape of weights, stored as they are numbered.

    The elements of that tensor mean nothing.
    """
    route = g._route
    each_row = weights.ndim == route.like_rows.ndim
    numbers, like = (route.source, route.like_rows) if each_row else (route.places, route.like_copies)
    return Tensor(numbers, g.structure, (), g.team), like


# ---------------------------------------------------------------------------------------------------------- derivatives


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
    dialect=written("group_by"),
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
    dialect=written("ungroup"),
)
