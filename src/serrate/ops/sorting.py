"""Sorting along any axis, each row on its own: sort, argsort, the first few, and searching sorted rows.

Elements of every dtype are compared by integers in the same order, NaN the greatest. Where these fit 33 bits, the
number of the row goes above them, and one sort of all rows does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.reducing import Reduction
from serrate.eager.runs import Along, Indexed, along, ordered, pick, settled
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import BAD_AXIS, NO_TENSOR, Kind, operation, ops, record, written
from serrate.ops.rules import named_vjp
from serrate.tensor import abstract, broadcast, host, plan, select
from serrate.tensor.combine import exact
from serrate.tensor.layout import assemble
from serrate.tensor.promotion import as_number, beside, fits, promote
from serrate.tensor.tensor import Tensor, as_tensor

# ------------------------------------------------------------------------------------------------ sort


def _ordered(call: Along, descending: bool, name: str) -> tuple[torch.Tensor, bool]:
    """Keys to sort the elements by."""
    if call.x.is_complex():
        raise TypeError(f"{name} needs ordered elements, got {call.x.dtype}")
    keys, narrow = ordered(call.x.values)
    return ~keys if descending else keys, narrow


def _sorted(x: Any, axis: int, descending: bool, name: str = "sort") -> Indexed:
    """Elements in order, and the positions they come from."""
    call = along(x, axis)
    keys, narrow = _ordered(call, descending, name)
    if call.dim is None:
        return call.along_rows(call.x.values, call.runs.returned(call.sorted_rows(keys, narrow)))
    found = torch.sort(keys, dim=call.dim, stable=True).indices
    return Indexed(call.x._with(pick(call.x.values, found, call.dim)), call.x._with(found))


@operation
def _sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return _sorted(x, axis, descending).values


@operation
def _argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return _sorted(as_tensor(x).detach(), axis, descending, "argsort").indices


@operation
def _topk(x: Any, k: int, /, *, axis: int = -1, largest: bool = True, sorted: bool = True) -> Indexed:
    call, count = along(x, axis), operator.index(k)
    if count < 0:
        raise ValueError(f"topk takes 0 or more entries, got k={count}")
    if call.dim is None and call.depended_on:
        call = along(exact(call.x), axis)
    keys, narrow = _ordered(call, largest, "topk")
    if call.dim is not None:
        return _top_of_features(call, keys, count)
    rows = call.sorted_rows(keys, narrow)
    if call.depended_on:
        groups = call.regrouped(lambda counts: counts.clamp(max=count))
        rows, tensor = rows.index_select(0, groups.first + groups.place), groups.tensor
    else:
        walk = plan.Plan(call.x.structure, {call.label: select.Cut(slice(None, count))})
        rows, axes = walk.read(call.runs.returned(rows)), walk.result()

        def tensor(values: torch.Tensor) -> Tensor:
            return settled(assemble(call.x, values, axes, call.x.order))

    return Indexed(tensor(pick(call.x.values, rows, 0)), tensor(call.positions[rows]))


def _top_of_features(call: Along, keys: torch.Tensor, count: int) -> Indexed:
    values, dim = call.x.values, call.dim
    assert dim is not None
    if count > values.shape[dim]:
        raise ValueError(f"topk takes {count} entries of axis {call.axis}, which has {values.shape[dim]}")
    found = torch.sort(keys, dim=dim, stable=True).indices.narrow(dim, 0, count)
    return Indexed(call.x._with(pick(values, found, dim)), call.x._with(found))


# ------------------------------------------------------------------------------------------------ searchsorted


@operation
def _searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None, axis: int = -1) -> Tensor:
    if side not in ("left", "right"):
        raise ValueError(f'side must be "left" or "right", got {side!r:.40}')
    sequence = as_tensor(x1)
    number = broadcast.plain_number(x2)
    if isinstance(number, broadcast.SCALARS):
        number, side = _beside(sequence, number, side)
    wanted = as_tensor(number)
    broadcast.require_one_device(sequence, wanted)
    dtype = promote(sequence.dtype, wanted.dtype)
    if dtype.is_complex:
        raise TypeError(f"searchsorted needs ordered elements, got {sequence.dtype} and {wanted.dtype}")
    call = along(sequence, axis)
    if call.depended_on:
        raise AxisError(f"searchsorted goes along an axis that no other depends on, got {axis} of {sequence.shape}")
    values = call.x.values if sorter is None else _rearranged(call, as_tensor(sorter))
    keys, _ = ordered(values.to(dtype))
    looked_for = wanted._with(ordered(wanted.values.to(dtype))[0])
    if call.x.ndim == 1:
        found = torch.searchsorted(keys.contiguous(), looked_for.values.contiguous(), right=side == "right")
        return wanted._with(found)
    return _search(call, keys, looked_for, torch.le if side == "right" else torch.lt)


def _beside(sequence: Tensor, number: Any, side: str) -> tuple[torch.Tensor, str]:
    """The number as a tensor, and the side; what the dtype does not hold stands before the least or after the greatest
    that it holds.
    """
    dtype = beside(sequence.dtype, number)
    if not fits(number, dtype):
        limits = torch.iinfo(dtype)
        number, side = (limits.max, "right") if number > 0 else (limits.min, "left")
    return torch.full((), as_number(number, dtype), dtype=dtype, device=sequence.device), side


def _search(call: Along, keys: torch.Tensor, wanted: Tensor, before: Callable[..., torch.Tensor]) -> Tensor:
    """How many entries of each element's group stand before it: bisection of all groups at once."""
    flat = keys.reshape(-1) if call.dim is not None else call.runs.gathered(keys).reshape(-1)
    first, count, step = _lines(call, keys)

    def bisect(values: torch.Tensor, first: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        low = torch.zeros_like(values + count)
        high = low + count
        for _ in range(call.longest.bit_length() if flat.numel() else 0):
            middle = (low + high) >> 1
            found = flat[(first + middle * step).clamp(0, flat.numel() - 1)]
            right = before(found, values) & (low < high)
            low, high = torch.where(right, middle + 1, low), torch.where(right, high, middle)
        return low

    return broadcast.elementwise(bisect, (wanted, first, count))


def _lines(call: Along, keys: torch.Tensor) -> tuple[Tensor, Tensor, int]:
    """For each group where it begins in the flat keys, and its length, as tensors with size 1 along the axis; and how
    far its entries lie apart.
    """
    call_shape = Reduction(call.x, (call.axis,))
    if call.dim is not None:
        size, step = keys.shape[call.dim], keys.shape[call.dim + 1 :].numel()
        outer, inner = keys.shape[: call.dim], keys.shape[call.dim + 1 :]
        blocks = torch.arange(outer.numel(), device=keys.device)[:, None] * (size * step)
        begins = (blocks + torch.arange(step, device=keys.device)).view(*outer, *inner)
        counts = torch.full_like(begins, size)
    else:
        step = keys.shape[1:].numel()
        shape = (-1, *[1] * (keys.ndim - 1))
        lengths = call.segments.counts(keys.device)
        begins = (lengths.cumsum(0) - lengths).view(shape) * step
        begins = begins + torch.arange(step, device=keys.device).view(1, *keys.shape[1:])
        counts = lengths.view(shape).expand_as(begins)
    return call_shape.finish(begins, keepdims=True), call_shape.finish(counts, keepdims=True), step


def _rearranged(call: Along, sorter: Tensor) -> torch.Tensor:
    """The values, each group in the order that `sorter` gives by positions."""
    x = call.x
    if sorter.is_floating_point() or sorter.is_complex() or sorter.dtype == torch.bool:
        raise TypeError(f"sorter must hold integers, got {sorter.dtype}")
    if abstract.unlike(sorter.shape, x.shape):
        raise ValueError(f"sorter must have shape {x.shape}, as the sequence it sorts, got {sorter.shape}")
    index = broadcast.align(sorter, x).to(torch.int64)
    if call.dim is not None:
        have: torch.Tensor | int = x.values.shape[call.dim]
        _check_positions(index, have)
        return pick(x.values, index.clamp(0, max(have - 1, 0)), call.dim)
    runs, shape = call.runs, (-1, *[1] * (index.ndim - 1))
    index, have = runs.gathered(index), (runs.place + runs.rest + 1).view(shape)
    if x.structure.is_exact:
        _check_positions(index, have)
    starts = (torch.arange(runs.rows, device=x.device) - runs.place).view(shape)
    rows = starts + torch.minimum(index, have - 1).clamp(min=0)
    return runs.returned(pick(runs.gathered(x.values), rows, 0))


def _check_positions(index: torch.Tensor, have: torch.Tensor | int) -> None:
    """An IndexError, perhaps later, if a position lies outside its group."""
    bad = ((index < 0) | (index >= have)).reshape(-1)
    flat, lengths = index.reshape(-1), (have + torch.zeros_like(index)).reshape(-1)

    def error(i: int) -> IndexError:
        return IndexError(f"sorter holds {int(flat[i])}, which is no position of a row with {int(lengths[i])} entries")

    host.defer(host.first_fault(bad), error)


# ------------------------------------------------------------------------------------------------ records


def _answer_sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False, **options: Any) -> Indexed:
    _no_out("sort", options)
    return _sorted(input, options.pop("axis", dim), descending, **options)


def _answer_argsort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = False, **options: Any
) -> Tensor:
    _no_out("argsort", options)
    return _argsort(input, axis=options.pop("axis", dim), descending=descending, **options)


def _answer_topk(
    input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, **options: Any
) -> Indexed:
    _no_out("topk", options)
    return _topk(input, k, axis=options.pop("axis", dim), largest=largest, sorted=sorted, **options)


def _answer_searchsorted(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
    **options: Any,
) -> Tensor:
    _no_out("searchsorted", options)
    if side == "left" and right:
        raise ValueError('searchsorted was asked for side="left" and right=True')
    wanted = input if isinstance(input, (Tensor, torch.Tensor)) else torch.as_tensor(input)
    found = _searchsorted(
        sorted_sequence, wanted, side=side or ("right" if right else "left"), sorter=sorter, **options
    )
    return found.to(torch.int32) if out_int32 else found


def _no_out(name: str, options: dict[str, Any]) -> None:
    if options.pop("out", None) is not None:
        raise TypeError(f"{name}(out=…) is not defined for sr.Tensor")


def _sort_body(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return ops.take_along_axis(x, ops.argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)


_ORDERED: tuple[Kind, ...] = ("float", "int", "bool")
_PLACE = "the result is a position"

record(
    "sorting",
    "sort",
    _sort,
    _answer_sort,
    summary="The entries along `axis` in order, those that compare equal as they stood; NaN are the greatest.",
    example=("sr.sort(sr.ragged([[3, 1, 2], [], [5, 4]]), axis=1).tolist()", "[[1, 2, 3], [], [4, 5]]"),
    body=_sort_body,
    kinds=_ORDERED,
    samples=("x, axis=1", "x, axis=0", "x, axis=-1, descending=True"),
    errors=(BAD_AXIS, NO_TENSOR, ("x.to(torch.complex64), axis=1", TypeError, "sort needs ordered elements")),
    dialect=written("sort", x="rhs"),
)
record(
    "sorting",
    "argsort",
    _argsort,
    _answer_argsort,
    summary="The positions along `axis` of the entries in order, those that compare equal as they stood.",
    example=("sr.argsort(sr.ragged([[3, 1, 2], [], [5, 4]]), axis=1).tolist()", "[[1, 2, 0], [], [1, 0]]"),
    primitive="library",
    flat=_PLACE,
    kinds=_ORDERED,
    samples=("x, axis=1", "x, axis=0", "x, axis=-1, descending=True"),
    errors=(BAD_AXIS, NO_TENSOR, ("x.to(torch.complex64), axis=1", TypeError, "argsort needs ordered elements")),
    dialect=written("argsort", x="rhs"),
)
record(
    "sorting",
    "topk",
    _topk,
    _answer_topk,
    summary="The `k` greatest (or least) entries along `axis` in order, and their positions; shorter rows give all.",
    example=("sr.topk(sr.ragged([[3, 1, 2], [], [5]]), 2, axis=1).values.tolist()", "[[3, 2], [], [5]]"),
    operands=("x",),
    primitive="library",
    vjp=lambda g, out, x, *, k, axis, **_: named_vjp(g, out, x, axis=axis),
    kinds=_ORDERED,
    samples=("x, 1, axis=1", "x, 2, axis=1, largest=False", "x, 2, axis=0"),
    errors=(
        ("x, 1, axis=5", AxisError, "axis 5 is out of range"),
        ("x, -1, axis=1", ValueError, "topk takes 0 or more entries, got k=-1"),
        ("x, 3, axis=2", ValueError, "topk takes 3 entries of axis 2, which has 2"),
        ("x.to(torch.complex64), 1, axis=1", TypeError, "topk needs ordered elements"),
    ),
)
record(
    "sorting",
    "searchsorted",
    _searchsorted,
    _answer_searchsorted,
    summary='How many entries of a sorted row stand before each element: those less than it ("right": or equal).',
    example=(
        "sr.searchsorted(sr.ragged([[1, 3, 5], [2]]), sr.ragged([[0, 3, 9], [2]])).tolist()",
        "[[0, 1, 3], [0]]",
    ),
    primitive="library",
    flat=_PLACE,
    kinds=_ORDERED,
    samples=(
        "sr.sort(x, axis=-1), x",
        'sr.sort(x, axis=-1), x, side="right"',
        "x, x, sorter=sr.argsort(x, axis=-1)",
        "torch.arange(5), x",
    ),
    errors=(
        ("x, x, axis=5", AxisError, "axis 5 is out of range"),
        ("x, x, axis=0", AxisError, "searchsorted goes along an axis that no other depends on"),
        ('x, x, side="middle"', ValueError, 'side must be "left" or "right"'),
        ("x.to(torch.complex64), x", TypeError, "searchsorted needs ordered elements"),
        ("x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", RaggednessError, "different raggedness"),
    ),
)
