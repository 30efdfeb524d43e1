"""Histograms, and reductions of rows by ids in any order: what `group_by` needs no grouping for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from serrate.eager.addresses import beside
from serrate.eager.arguments import count_of, integers
from serrate.eager.precision import widened
from serrate.eager.reducing import Reduction
from serrate.eager.segments import Segments
from serrate.eager.unsigned import comparable, restored
from serrate.errors import RaggednessError
from serrate.ops.record import ALL, NUMERIC, REAL, Kind, operation, ops, record
from serrate.ops.reductions import accumulating, product_of_others
from serrate.ops.rules import conjugate, in_dtype, reduced_to
from serrate.tensor import abstract, bits, broadcast, host
from serrate.tensor.structure import DENSE
from serrate.tensor.tensor import Tensor, as_tensor

# ------------------------------------------------------------------------------------------------ bincount


@operation
def _bincount(x: Any, /, *, weights: Any = None, minlength: int = 0, axis: int | None = None) -> Tensor:
    tensor, least = integers(x, "the elements bincount counts"), count_of(minlength, "minlength")
    axes = tuple(range(tensor.ndim)) if axis is None else (tensor._axis(axis),)
    values = tensor.values.to(torch.int64)
    defined = None if tensor.structure.is_exact else tensor.structure.defined_rows(values)
    values = values if defined is None else torch.where(defined, values, 0)
    bins = _bins(tensor, values, least, axis is not None)
    wrong = _wrong(values, bins)
    out = wrong if defined is None else wrong | ~defined
    order = (*tensor.order, tensor.ndim) if tensor.is_ragged else ()
    call = Reduction(Tensor(values.unsqueeze(-1).expand(*values.shape, bins), tensor.structure, order), axes)
    slots, shape = _slots(call, values)
    count = shape.numel() * bins
    cells = torch.where(out, count, slots * bins + values).reshape(-1)
    if weights is None and host.is_at_hand(values):
        counted = torch.bincount(cells, minlength=count + 1)
    else:
        covers = defined is None and not values.is_cuda
        counted = Ids(cells, count, covers=covers).sum(_amounts(tensor, weights).reshape(-1))
    return call.finish(counted[:count].view(*shape, bins), keepdims=False)


def _bins(x: Tensor, values: torch.Tensor, least: int, along_axis: bool) -> int:
    """How many bins there are: up to the greatest element, which for data born on a device is a wait, or `least`."""
    known = x.structure.is_host_born and not values.is_cuda
    if along_axis and not known:
        if not least:
            raise ValueError("bincount along an axis needs minlength, the number of bins, for data born on a device")
        return least
    if values.numel() == 0:
        return least
    top = values.max()
    why = "counting up to the greatest element"
    return abstract.most(abstract.number(top if known else host.read(top, why), why) + 1, least)


def _wrong(values: torch.Tensor, bins: int) -> torch.Tensor:
    """Elements that no bin counts; reported."""

    def error(i: int) -> ValueError:
        return ValueError(f"bincount has bins for 0 .. {bins - 1}, but packed element {i} is {int(flat[i])}")

    flat = values.reshape(-1)
    wrong = (values < 0) | (values >= bins)
    host.defer(host.first_fault(wrong.reshape(-1)), error)
    return wrong


def _slots(call: Reduction, values: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
    """For each element the number of its result, shaped to meet it; and the shape of all results."""
    first = 1 if call.x.is_ragged else 0
    sizes = [1 if d in call.dims else n for d, n in enumerate(values.shape)][first:]
    kept = [n for d, n in enumerate(values.shape) if d >= first and d not in call.dims]
    features = torch.Size(sizes).numel()
    slots = torch.arange(features, device=values.device).view([1] * first + sizes)
    if not first:
        return slots, torch.Size(kept)
    segments = call.segments
    if segments is None:
        rows, count = torch.arange(values.shape[0], device=values.device), values.shape[0]
    else:
        rows, count = segments.index(values.device), segments.cells
    return slots + beside(rows, values) * features, torch.Size([count, *kept])


def _amounts(x: Tensor, weights: Any) -> torch.Tensor:
    """What each element counts for: 1, or its weight in the dtype torch has for it, float32 or float64."""
    if weights is None:
        return torch.ones_like(x.values, dtype=torch.int64)
    given = as_tensor(weights)
    aligned = broadcast.align(given if given.dtype == torch.float32 else given.to(torch.float64), x)
    return aligned.expand(x.values.shape)  # type: ignore[no-any-return]


def _answer_bincount(input: Any, weights: Any = None, minlength: int = 0, axis: int | None = None) -> Tensor:
    return _bincount(input, weights=weights, minlength=minlength, axis=axis)


# ------------------------------------------------------------------------------------------------ segments


class Ids(Segments):
    """Rows grouped by an id each, in any order."""

    def __init__(self, ids: torch.Tensor, count: int, *, covers: bool = True) -> None:
        super().__init__(DENSE, ())
        self.ids = host.settled(ids)
        self.count = count
        self._covers = covers

    @property
    def covers(self) -> bool:
        """Whether no id is out of range."""
        return self._covers

    @cached_property
    def cells(self) -> int:
        """How many groups there are."""
        return self.count

    @cached_property
    def runs(self) -> None:
        """Rows of one id need not be neighbours."""
        return None

    @cached_property
    def length(self) -> None:
        """Nobody knows how many rows an id has."""
        return None

    def index(self, device: torch.device) -> torch.Tensor:
        """For each row its id; one past the last for ids out of range."""
        return self.ids


def _stretched(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows of values at an index; the gradient sums over those that stand for the same."""
    if not (torch.is_grad_enabled() and values.requires_grad):
        return bits.take(values, index)
    return Ids(index, values.shape[0]).spread(values)


broadcast.stretched = _stretched


def _rows(values: Any, row_ids: Any, num_rows: Any) -> tuple[torch.Tensor, Ids]:
    """Values to reduce by ids, checked."""
    x, ids, count = as_tensor(values), integers(row_ids, "row_ids"), count_of(num_rows, "num_rows")
    if x.is_ragged or ids.is_ragged:
        raise RaggednessError(
            f"rows reduced by ids are dense, got shapes {x.shape} and {ids.shape}; sr.sum and its like take an axis"
        )
    broadcast.require_one_device(x, ids)
    if ids.ndim != 1 or x.ndim == 0 or abstract.differ(ids.values.shape[0], x.values.shape[0]):
        raise ValueError(f"row_ids must have one id for each row of shape {x.shape}, got shape {ids.shape}")
    wanted = ids.values.to(torch.int64)

    def error(i: int) -> IndexError:
        return IndexError(f"row id {int(wanted[i])} at position {i} is out of range for {count} rows")

    if count == 0 and wanted.numel():
        raise IndexError(f"every row id is out of range for 0 rows, got {wanted.numel()} of them")
    wrong = (wanted < 0) | (wanted >= count)
    host.defer(host.first_fault(wrong), error)
    if wanted.is_cuda:  # what is wrong is reported late
        return x.values, Ids(torch.where(wrong, count, wanted), count, covers=False)
    return x.values, Ids(wanted, count)


@operation
def _segment_sum(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    x, by = _rows(values, row_ids, num_rows)
    return Tensor(by.sum(x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)))


@operation
def _segment_mean(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    x, by = _rows(values, row_ids, num_rows)
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"segment_mean needs floating-point elements, got {x.dtype}")
    return Tensor(by.sum(x) / beside(by.counts(x.device), x))


@operation
def _segment_max(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    return _extreme(values, row_ids, num_rows, largest=True)


@operation
def _segment_min(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    return _extreme(values, row_ids, num_rows, largest=False)


def _extreme(values: Any, row_ids: Any, num_rows: int, largest: bool) -> Tensor:
    x, by = _rows(values, row_ids, num_rows)
    if x.is_complex():
        raise TypeError(f"segment_{'max' if largest else 'min'} needs ordered elements, got {x.dtype}")
    return Tensor(restored(by.extreme(comparable(x), largest), x.dtype))


@operation
def _segment_prod(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    x, by = _rows(values, row_ids, num_rows)
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    return Tensor(by.product(wide))


@operation
def _segment_softmax(values: Any, row_ids: Any, num_rows: int, /) -> Tensor:
    x, by = _rows(values, row_ids, num_rows)
    if not x.is_floating_point():
        raise TypeError(f"segment_softmax needs floating-point elements, got {x.dtype}")
    wide = widened(x)
    top = by.extreme(wide.detach(), largest=True)
    raised = (wide - by.spread(torch.where(top.isfinite(), top, 0))).exp()
    return Tensor((raised / by.spread(by.sum(raised))).to(x.dtype))


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _of_row(each: Any, row_ids: Any) -> Any:
    """What the rows of each id gave together, beside each of them."""
    return ops.take(each, row_ids, axis=0)


def _segment_sum_vjp(g: Any, out: Any, values: Any, row_ids: Any, *, num_rows: int) -> tuple[Any, ...]:
    return in_dtype(_of_row(g, row_ids), values.dtype), None


def _segment_mean_body(values: Any, row_ids: Any, num_rows: int, /) -> Any:
    many = ops.reshape(ops.bincount(row_ids, minlength=num_rows), (-1, *[1] * (values.ndim - 1)))
    return ops.segment_sum(values, row_ids, num_rows) / many


def _segment_extreme_vjp(g: Any, out: Any, values: Any, row_ids: Any, *, num_rows: int) -> tuple[Any, ...]:
    """Elements that are equal to the result share its gradient."""
    made = _of_row(out, row_ids)
    has = ops.logical_or(ops.equal(values, made), ops.logical_and(ops.isnan(values), ops.isnan(made)))
    shares = ops.astype(has, values.dtype)
    count = ops.segment_sum(shares, row_ids, num_rows)
    return shares * _of_row(g / ops.maximum(count, 1), row_ids), None


def _segment_prod_vjp(g: Any, out: Any, values: Any, row_ids: Any, *, num_rows: int) -> tuple[Any, ...]:
    zero = ops.equal(values, 0)
    zeros = ops.segment_sum(zero, row_ids, num_rows)
    rest = ops.segment_prod(ops.where(zero, 1, values), row_ids, num_rows)
    vanishing = ops.segment_sum(ops.where(zero, values, 0), row_ids, num_rows)
    others = product_of_others(values, *(_of_row(each, row_ids) for each in (zeros, rest, vanishing)))
    return in_dtype(_of_row(g, row_ids) * conjugate(others), values.dtype), None


def _segment_softmax_body(values: Any, row_ids: Any, num_rows: int, /) -> Any:
    wide = accumulating(values)
    top = ops.segment_max(ops["Tensor.detach"](wide), row_ids, num_rows)
    raised = ops.exp(wide - _of_row(ops.where(ops.isfinite(top), top, 0), row_ids))
    return ops.astype(raised / _of_row(ops.segment_sum(raised, row_ids, num_rows), row_ids), values.dtype)


def _segment_softmax_vjp(g: Any, out: Any, values: Any, row_ids: Any, *, num_rows: int) -> tuple[Any, ...]:
    given, made = accumulating(g), accumulating(out)
    met = _of_row(ops.segment_sum(given * made, row_ids, num_rows), row_ids)
    return in_dtype(made * (given - met), values.dtype), None


def _bincount_vjp(g: Any, out: Any, x: Any, weights: Any, *, minlength: int, axis: int | None) -> tuple[Any, ...]:
    """A weight gets the gradient of the bin it was added to."""
    if weights is None:
        return None, None
    first = ops["Tensor.getitem"](ops.numbered(out), (Ellipsis, 0))  # bins are the last axis: the others follow
    at = ops.expand_like(first, x, axis=axis) + ops.astype(x, torch.int64)
    return None, reduced_to(ops.distribute(g, at, out), weights)


def _record(
    name: str,
    eager: Callable[..., Tensor],
    summary: str,
    gives: str,
    kinds: tuple[Kind, ...],
    **fields: Any,
) -> None:
    given = "torch.tensor([7., 2., 7.]), torch.tensor([2, 0, 2]), 3"
    record(
        "grouping",
        name,
        eager,
        None,
        summary=summary,
        operands=("values", "row_ids"),
        example=(f"sr.{name}({given}).tolist()", gives),
        kinds=kinds,
        samples=("x.values, torch.arange(x.values.shape[0]) % 3, 3", "x.values, torch.zeros(len(x.values)).int(), 4"),
        errors=(
            ("x, torch.arange(6), 6", RaggednessError, "rows reduced by ids are dense"),
            ("x.values, torch.arange(6), 5", IndexError, "row id 5 at position 5 is out of range for 5 rows"),
            ("x.values, torch.arange(5), 5", ValueError, "row_ids must have one id for each row"),
            ("x.values, torch.ones(6), 5", TypeError, "row_ids must be integers"),
        ),
        **fields,
    )


record(
    "grouping",
    "bincount",
    _bincount,
    _answer_bincount,
    summary="How often 0, 1, … occur, or the sum of their weights; with `axis` for each row, bins as a new last axis.",
    example=("sr.bincount(sr.ragged([[0, 2, 2], [], [1]]), axis=1).tolist()", "[[1, 0, 2], [0, 0, 0], [0, 1, 0]]"),
    operands=("x", "weights"),
    primitive="monoid",
    vjp=_bincount_vjp,
    kinds=("int",),
    decides=("x",),
    samples=(
        "x",
        "x, axis=1",
        "x, axis=-1, minlength=9",
        "x, weights=x.to(torch.float64), minlength=2",
        "x, weights=x.to(torch.float64), axis=1",
    ),
    errors=(
        ("x", TypeError, "must be integers"),
        ("x.to(torch.int64) - 7", ValueError, "packed element 0 is -"),
        ("x.to(torch.int64), minlength=-1", ValueError, "minlength must be 0 or more"),
    ),
)
# fmt: off
_record("segment_sum", _segment_sum, "The sum of the rows of each id, in any order; 0 of nothing.",
        "[2.0, 0.0, 14.0]", ALL, primitive="monoid", vjp=_segment_sum_vjp)
_record("segment_mean", _segment_mean, "The mean of the rows of each id, in any order; NaN of nothing.",
        "[2.0, nan, 7.0]", ("float", "complex"), body=_segment_mean_body)
_record("segment_max", _segment_max, "The greatest of the rows of each id; of nothing -inf or the least integer.",
        "[2.0, -inf, 7.0]", REAL, primitive="monoid", vjp=_segment_extreme_vjp)
_record("segment_min", _segment_min, "The least of the rows of each id; of nothing +inf or the greatest integer.",
        "[2.0, inf, 7.0]", REAL, primitive="monoid", vjp=_segment_extreme_vjp)
_record("segment_prod", _segment_prod, "The product of the rows of each id, in any order; 1 of nothing.",
        "[2.0, 1.0, 49.0]", NUMERIC, primitive="monoid", vjp=_segment_prod_vjp)
_record("segment_softmax", _segment_softmax, "exp(values) divided by its sum over the rows of the same id.",
        "[0.5, 1.0, 0.5]", ("float",), body=_segment_softmax_body, vjp=_segment_softmax_vjp)
# fmt: on
