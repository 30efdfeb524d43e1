"""Scans along any axis: running sums, products and extremes, each row on its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.initials import with_initial
from serrate.eager.precision import widened
from serrate.eager.runs import Along, Indexed, Runs, along, ordered, pick
from serrate.eager.scans import extreme_rows, running_extreme, running_product, running_sum
from serrate.eager.unsigned import summed, summed_by_torch
from serrate.errors import AxisError
from serrate.native import row_scans as library
from serrate.native.loading import reads
from serrate.ops.answers import refuse_out
from serrate.ops.record import (
    ALL,
    BAD_AXIS,
    NO_TENSOR,
    ORDERED,
    Error,
    Implementation,
    Kind,
    operation,
    ops,
    record,
    torch_names,
    written,
)
from serrate.ops.reductions import accumulating
from serrate.ops.rules import conjugate, in_dtype, named_vjp, parents_of, total_beside
from serrate.tensor import host
from serrate.tensor.promotion import WIDE
from serrate.tensor.tensor import Tensor, as_tensor

_HALF = (torch.float16, torch.bfloat16)


# ----------------------------------------------------------------------------------------------------- what is computed


def _summable(x: Any, axis: int | None, dtype: torch.dtype | None, name: str) -> tuple[Along, torch.dtype]:
    """The call on elements wide enough to accumulate in, and the dtype to come back to."""
    tensor = as_tensor(x)
    if axis is None:
        if tensor.ndim != 1:
            raise AxisError(f"{name} needs an axis unless there is only one, got shape {tensor.shape}")
        axis = 0
    given = dtype if dtype is not None else summed(tensor.dtype)
    return along(_as(tensor, _accumulated(given)), axis), given


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in a dtype; if it has that, it does not go through the door."""
    return x if x.values.dtype is dtype else x.to(dtype)


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    """The dtype that is wide enough to accumulate in for results of this one."""
    return torch.float32 if dtype in _HALF else torch.int64 if dtype in (torch.bool, *WIDE) else dtype


@operation
def _cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
) -> Tensor:
    call, dtype = _summable(x, axis, dtype, "cumulative_sum")
    made = call.by_torch(call.x.values, torch.cumsum)
    if made is None:
        runs = call.runs
        made = runs.returned(running_sum(runs.gathered(call.x.values), runs))
    return (with_initial(call, made, 0) if include_initial else call.x._with(made)).to(dtype)


@operation
def _cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
) -> Tensor:
    call, dtype = _summable(x, axis, dtype, "cumulative_prod")
    made = call.by_torch(call.x.values, torch.cumprod)
    if made is None:
        runs = call.runs
        made = runs.returned(running_product(runs.gathered(call.x.values), runs))
    return (with_initial(call, made, 1) if include_initial else call.x._with(made)).to(dtype)


def _scans(x: Any, axis: Any) -> bool:
    """Whether compiled code scans this tensor along this axis: its innermost packed one, whose runs are neighbours."""
    if not (isinstance(axis, int) and isinstance(x, Tensor) and x.is_ragged):
        return False
    return x.order[x._axis(axis)] == len(x.structure.axes) - 1 and reads(x.values) and library.is_there()


_SUMMED = (torch.float32, torch.float64, torch.int64, torch.complex64, torch.complex128)
_MULTIPLIED = (torch.float32, torch.float64, torch.int64)


def _takes(dtypes: tuple[torch.dtype, ...]) -> Callable[..., bool]:
    """Whether compiled code scans a tensor in one of these dtypes."""

    def applies(
        x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
    ) -> bool:
        return not include_initial and _scans(x, axis) and _accumulated(dtype or summed(x.dtype)) in dtypes

    return applies


def _compiled(scan: Callable[..., torch.Tensor]) -> Callable[..., Tensor]:
    """A scan by compiled code, for tensors that `_takes` accepts."""

    def compute(
        x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
    ) -> Tensor:
        dtype = summed(x.dtype) if dtype is None else dtype
        wide = _as(x, _accumulated(dtype))
        runs = Runs(wide.structure, len(wide.structure.axes) - 1, wide.device)
        return _as(wide._with(scan(wide.values, runs, compiled=True)), dtype)

    return compute


def _compiled_extreme(largest: bool) -> Callable[..., Indexed]:
    def compute(x: Any, /, *, axis: int) -> Indexed:
        call = along(x, axis)
        values = call.x.values
        wide = widened(values) if values.is_floating_point() else values.to(torch.int64)
        found = running_extreme(wide.detach(), call.runs, largest)
        if found is None:
            return _cumulative_extreme(x, axis, largest)
        made, places = found
        if made.dtype is values.dtype and host.is_constant(values):
            return Indexed(call.x._with(made), call.x._with(places))
        starts = torch.arange(values.shape[0], device=values.device) - call.positions
        rows = (places + starts.view(-1, *[1] * (values.ndim - 1))).clamp(max=max(values.shape[0] - 1, 0))
        return Indexed(call.x._with(pick(values, rows, 0)), call.x._with(places))

    return compute


def _compares(x: Any, /, *, axis: int) -> bool:
    """Whether compiled code finds the extremes of this tensor along this axis."""
    return _scans(x, axis) and x.dtype not in WIDE and not x.is_complex()


@operation
def _cummax(x: Any, /, *, axis: int) -> Indexed:
    return _cumulative_extreme(x, axis, largest=True)


@operation
def _cummin(x: Any, /, *, axis: int) -> Indexed:
    return _cumulative_extreme(x, axis, largest=False)


def _cumulative_extreme(x: Any, axis: int, largest: bool) -> Indexed:
    call = along(x, axis)
    values = call.x.values
    if values.is_complex():
        raise TypeError(f"{'cummax' if largest else 'cummin'} needs ordered elements, got {values.dtype}")
    keys, narrow = ordered(values)
    if not largest:
        keys = ~keys
        if values.is_floating_point():  # NaN stays the greatest, so that it stays
            keys = torch.where(values.isnan(), 2**31 if narrow else torch.iinfo(torch.int64).max, keys)
    found = call.by_torch(keys, lambda k, dim: torch.cummax(k, dim).indices)
    if call.dim is not None and found is not None:
        return Indexed(call.x._with(pick(values, found, call.dim)), call.x._with(found))
    if found is not None:
        starts = torch.arange(values.shape[0], device=values.device) - call.positions
        return call.along_rows(values, found + starts.view(-1, *[1] * (values.ndim - 1)))
    return call.along_rows(values, extreme_rows(call.runs, keys, narrow))


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def slice_along(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """The entries from start to stop of an axis."""
    return ops["Tensor.getitem"](x, (*[slice(None)] * axis, slice(start, stop)))


def without_gaps(x: Any, axis: int) -> Any:
    """Along an axis that others depend on: the positions of what there is, in order, without those that lack it."""
    numbers = ops.positions(x, axis=axis)
    for each, size in enumerate(x.shape):
        if isinstance(size, int) and each not in parents_of(x):
            numbers = ops.expand_dims(numbers, axis=each)
    numbers = numbers + ops.zeros_like(x, dtype=torch.int64)
    return ops.topk(numbers, sys.maxsize, axis=axis, largest=False).values


def _scanned(g: Any, x: Any, axis: int, include_initial: bool) -> Any:
    """The gradient of a scan, in the dtype it is summed in, without that of what the scan starts from."""
    g = accumulating(g)
    if not include_initial:
        return g
    entries = slice_along(g, axis, 1, None)
    if axis in parents_of(x):
        return ops.scatter(ops.zeros_like(x, dtype=g.dtype), without_gaps(x, axis), entries, axis=axis)
    return entries


def _from_behind(x: Any, axis: int) -> Any:
    """The sum of each entry and all behind it."""
    return ops.flip(ops.cumulative_sum(ops.flip(x, axis=axis), axis=axis), axis=axis)


def _cumulative_sum_vjp(g: Any, out: Any, x: Any, *, axis: int | None, include_initial: bool, **_: Any) -> Any:
    if not (x.is_floating_point() or x.is_complex()):
        return None
    along = (axis or 0) % x.ndim
    return in_dtype(_from_behind(_scanned(g, x, along, include_initial), along), x.dtype)


def _cumulative_prod_vjp(g: Any, out: Any, x: Any, *, axis: int | None, include_initial: bool, **_: Any) -> Any:
    """For each entry the products, from it on, of all others; written so that its derivative is right at 0 too.

    Products of the entries that are not 0 are divided by the entry. Of those that are 0, the entry itself counts as 1,
    one other as itself (its value is 0, its derivative is not), and more make the product vanish. An entry that is no
    finite number counts as 1 among the others, unless one of these is no finite number either.
    """
    if not (x.is_floating_point() or x.is_complex()):
        return None
    along = (axis or 0) % x.ndim
    g = _scanned(g, x, along, include_initial)
    given = conjugate(in_dtype(x, g.dtype))
    odd = ops.astype(ops.logical_not(ops.isfinite(given)), torch.int64)
    has_others = ops.greater(total_beside(odd, along), odd)
    wide = ops.where(ops.equal(odd, 1), 1, given)
    zero = ops.equal(wide, 0)
    some, zeros = ops.where(zero, 1, wide), ops.cumulative_sum(zero, axis=along)
    terms = g * ops.cumulative_prod(some, axis=along)
    vanishing = ops.cumulative_sum(ops.where(zero, wide, 0), axis=along)

    def those(count: int) -> Any:
        """The terms of products in which so many entries are 0."""
        return ops.where(ops.equal(zeros, count), terms, 0)

    one, two = those(1), those(2)
    of_others = _from_behind(those(0) + one * vanishing, along) / some
    of_zero = _from_behind(one + two * vanishing, along) - _from_behind(two, along) * wide
    found = ops.where(zero, of_zero, of_others)
    beside_others = _from_behind(g * ops.cumulative_prod(given, axis=along), along) / ops.where(zero, 1, given)
    return in_dtype(ops.where(has_others, beside_others, found), x.dtype)


# -------------------------------------------------------------------------------------------------------------- records


def _answer_cumulative(eager: Callable[..., Any], sums: bool) -> Callable[..., Any]:
    """torch's spelling: dim or axis, no other options but dtype."""

    def handler(input: Any, dim: Any = None, *, out: Any = None, **options: Any) -> Any:
        refuse_out(eager.__name__, out)
        axis = options.pop("axis", dim)
        if axis is None:
            raise TypeError(f"{eager.__name__} of an sr.Tensor needs dim")
        if sums and options.get("dtype") is None:
            options["dtype"] = summed_by_torch(input)
        return eager(input, axis=axis, **options)

    return handler


def record_scan(
    name: str,
    eager: Callable[..., Any],
    torch_name: str,
    summary: str,
    example: tuple[str, str],
    kinds: tuple[Kind, ...],
    wrong: Error,
    sums: bool = False,
    more: tuple[str, ...] = (),
    answer: Callable[..., Any] | None = None,
    **fields: Any,
) -> None:
    """Define an operation along one axis; torch's function of the name `torch_name` is one too."""
    record(
        "scans",
        name,
        eager,
        _answer_cumulative(eager, sums) if answer is None else answer,
        torch=torch_names(torch_name),
        summary=summary,
        example=example,
        kinds=kinds,
        samples=("x, axis=1", "x, axis=0", "x, axis=-1", *more),
        errors=(BAD_AXIS, NO_TENSOR, wrong),
        **fields,
    )


_INITIAL = ("x, axis=1, include_initial=True", "x, axis=0, include_initial=True")


# fmt: off
record_scan("cumulative_sum", _cumulative_sum, "cumsum",
        "The sum of each entry and all before it along `axis`, integers in 64 bits. `include_initial`: 0 first.",
        ("sr.cumulative_sum(sr.ragged([[1, 2, 3], [], [4, 5]]), axis=1).tolist()", "[[1, 3, 6], [], [4, 9]]"),
        ALL, ("x", AxisError, "cumulative_sum needs an axis"), sums=True, more=_INITIAL,
        primitive="scan", vjp=_cumulative_sum_vjp,
        native=(Implementation("native", _compiled(running_sum), _takes(_SUMMED)),),
        dialect=written("scan", "cumulative_sum", x="rhs"))
record_scan("cumulative_prod", _cumulative_prod, "cumprod",
        "The product of each entry and all before it along `axis`, integers in 64 bits. `include_initial`: 1 first.",
        ("sr.cumulative_prod(sr.ragged([[1, 2, 3], [], [4, 5]]), axis=1).tolist()", "[[1, 2, 6], [], [4, 20]]"),
        ALL, ("x", AxisError, "cumulative_prod needs an axis"), sums=True, more=_INITIAL,
        primitive="scan", vjp=_cumulative_prod_vjp,
        native=(Implementation("native", _compiled(running_product), _takes(_MULTIPLIED)),),
        dialect=written("scan", "cumulative_prod", x="rhs"))
record_scan("cummax", _cummax, "cummax",
        "The greatest of each entry and all before it along `axis`, and the last position it stands at; NaN stays.",
        ("sr.cummax(sr.ragged([[1, 3, 2], [], [4, 5]]), axis=1).values.tolist()", "[[1, 3, 3], [], [4, 5]]"),
        ORDERED, ("x.to(torch.complex64), axis=1", TypeError, "cummax needs ordered elements"),
        primitive="scan", vjp=named_vjp,
        native=(Implementation("native", _compiled_extreme(largest=True), _compares),),
        dialect=written("scan", "cummax", x="rhs"))
record_scan("cummin", _cummin, "cummin",
        "The least of each entry and all before it along `axis`, and the last position it stands at; NaN stays.",
        ("sr.cummin(sr.ragged([[2, 3, 1], [], [4, 5]]), axis=1).values.tolist()", "[[2, 2, 1], [], [4, 4]]"),
        ORDERED, ("x.to(torch.complex64), axis=1", TypeError, "cummin needs ordered elements"),
        primitive="scan", vjp=named_vjp,
        native=(Implementation("native", _compiled_extreme(largest=False), _compares),),
        dialect=written("scan", "cummin", x="rhs"))
# fmt: on
