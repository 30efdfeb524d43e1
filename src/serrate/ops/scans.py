"""Scans along any axis: running sums, products and extremes, and differences, each row on its own."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.compiled import reads
from serrate.eager.precision import widened
from serrate.eager.runs import Along, Indexed, Runs, along, ordered, pick, settled
from serrate.eager.scans import extreme_rows, running_extreme, running_product, running_sum
from serrate.eager.unsigned import summed, summed_by_torch
from serrate.errors import AxisError
from serrate.native import row_scans as library
from serrate.ops.answers import refuse_out
from serrate.ops.derivatives import conjugate, in_dtype
from serrate.ops.record import BAD_AXIS, NO_TENSOR, Error, Implementation, Kind, operation, ops, record, torch_names
from serrate.ops.reductions import accumulating
from serrate.tensor import abstract, host
from serrate.tensor.combine import exact
from serrate.tensor.join import concat
from serrate.tensor.promotion import WIDE
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

_HALF = (torch.float16, torch.bfloat16)


# ------------------------------------------------------------------------------------------------ what is computed


def _summable(x: Any, axis: int | None, dtype: torch.dtype | None, name: str) -> tuple[Along, torch.dtype]:
    """The call on elements wide enough to accumulate in, and the dtype to come back to."""
    tensor = as_tensor(x)
    if axis is None:
        if tensor.ndim != 1:
            raise AxisError(f"{name} needs an axis unless there is only one, got shape {tensor.shape}")
        axis = 0
    given = dtype if dtype is not None else summed(tensor.dtype)
    return along(tensor.to(_accumulated(given)), axis), given


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
    return (_with_initial(call, made, 0) if include_initial else call.x._with(made)).to(dtype)


@operation
def _cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
) -> Tensor:
    call, dtype = _summable(x, axis, dtype, "cumulative_prod")
    made = call.by_torch(call.x.values, torch.cumprod)
    if made is None:
        runs = call.runs
        made = runs.returned(running_product(runs.gathered(call.x.values), runs))
    return (_with_initial(call, made, 1) if include_initial else call.x._with(made)).to(dtype)


def _with_initial(call: Along, values: torch.Tensor, initial: int) -> Tensor:
    """`values`, a scan, with what it starts from before the first entry of each group."""
    x = call.x
    if call.dim is not None:
        shape = [1 if d == call.dim else n for d, n in enumerate(values.shape)]
        return x._with(torch.cat([values.new_full(shape, initial), values], call.dim))
    if call.depended_on:
        trimmed = exact(x._with(values))
        call = along(trimmed, call.axis)
        groups = call.regrouped(lambda counts: counts + 1)
        rows = groups.first + groups.place - 1
        return groups.tensor(_after_initials(call.runs, trimmed.values, rows, groups.place == 0, initial))
    longer = Structure(_lengthened(x.structure, call.label), values.shape[0] + call.segments.cells)
    return settled(Tensor(_initials_before(call.runs, longer, values, initial), longer, x.order, x.team))


def _initials_before(runs: Runs, longer: Structure, values: torch.Tensor, initial: int) -> torch.Tensor:
    """The rows of a structure whose runs are one longer: `initial` first in each, then what the run has in `values`."""
    new = Runs(longer, runs.axis, runs.device)
    begins = new.place == 0
    rows = torch.arange(new.rows, device=runs.device) - begins.cumsum(0)
    return new.returned(_after_initials(runs, values, rows, begins, initial))


def _after_initials(
    runs: Runs, values: torch.Tensor, rows: torch.Tensor, begins: torch.Tensor, initial: int
) -> torch.Tensor:
    """The `rows` of `values` in run order, and `initial` where a run begins, which may have nothing else."""
    if values.shape[0] == 0:
        return values.new_full((rows.numel(), *values.shape[1:]), initial)
    found = runs.gathered(values).index_select(0, rows.clamp(0, values.shape[0] - 1))
    return torch.where(begins.view(-1, *[1] * (values.ndim - 1)), initial, found)


def _lengthened(structure: Structure, number: int) -> list[Axis]:
    """The axes with a ragged one whose defined components have one entry more."""
    axis = structure.axes[number]
    assert isinstance(axis, Ragged)
    own, count = axis.partition, axis.partition.num_components
    defined = torch.arange(count, device=own.home) < structure.defined_cells(axis.parents)
    lengths = own.lengths.to(torch.int64) + defined
    bound = None if own.is_host_born else own.max_length_bound + 1
    longer = own.with_lengths(lengths, capacity=own.num_values + count, bound=bound)
    axes = list(structure.axes)
    axes[number] = Ragged(longer, axis.parents)
    return axes


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


def _compiled_sum(
    x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
) -> Tensor:
    call, dtype = _summable(x, axis, dtype, "cumulative_sum")
    return call.x._with(running_sum(call.x.values, call.runs, compiled=True)).to(dtype)


def _compiled_product(
    x: Any, /, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
) -> Tensor:
    call, dtype = _summable(x, axis, dtype, "cumulative_prod")
    return call.x._with(running_product(call.x.values, call.runs, compiled=True)).to(dtype)


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


@operation
def _diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    times = operator.index(n)
    if times < 0:
        raise ValueError(f"diff is taken 0 or more times, got n={times}")
    if times == 0:  # as numpy has it: nothing is put before or behind either
        return tensor
    parts = [as_tensor(part) for part in (prepend, tensor, append) if part is not None]
    made = concat(parts, axis=number) if len(parts) > 1 else tensor
    for _ in range(times):
        made = _diff_once(along(made, number))
    return made


def _diff_once(call: Along) -> Tensor:
    """Each entry's successor less the entry."""
    x, dtype = call.x, call.x.dtype
    if dtype in WIDE:
        return _diff_once(along(x.to(torch.int64), call.axis)).to(dtype)
    less = torch.logical_xor if dtype == torch.bool else torch.sub
    if call.dim is not None:
        size = x.values.shape[call.dim]
        upper, lower = (x.values.narrow(call.dim, start, max(size - 1, 0)) for start in (min(size, 1), 0))
        if not abstract.is_known(size):
            upper = lower = abstract.resized(lower, call.dim, abstract.most(size - 1, 0))
        return x._with(less(upper, lower))
    if call.depended_on:
        call = along(exact(x), call.axis)
        groups = call.regrouped(lambda counts: (counts - 1).clamp(min=0))
        values, at = call.runs.gathered(call.x.values), groups.first + groups.place
        return groups.tensor(less(values.index_select(0, at + 1), values.index_select(0, at)))
    key = [slice(None)] * call.axis
    behind = x[(*key, slice(1, None))]
    return settled(behind._with(less(behind.values, x[(*key, slice(None, -1))].values)))


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _carries_others(x: Any, axis: int) -> bool:
    """Whether ragged axes depend on this one, so that rows lack some of the positions that others have."""
    return any(axis in size.parents for size in x.shape if isinstance(size, Ragged))


def _slice(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return ops["Tensor.getitem"](x, (*[slice(None)] * axis, slice(start, stop)))


def _without_gaps(x: Any, axis: int) -> Any:
    """Along an axis that others depend on: the positions of what there is, in order, without those that lack it."""
    numbers = ops.positions(x, axis=axis)
    for each, size in enumerate(x.shape):
        if isinstance(size, int) and not _carries_others(x, each):
            numbers = ops.expand_dims(numbers, axis=each)
    numbers = numbers + ops.zeros_like(x, dtype=torch.int64)
    return ops.topk(numbers, sys.maxsize, axis=axis, largest=False).values


def _scanned(g: Any, x: Any, axis: int, include_initial: bool) -> Any:
    """The gradient of a scan, in the dtype it is summed in, without that of what the scan starts from."""
    g = accumulating(g)
    if not include_initial:
        return g
    entries = _slice(g, axis, 1, None)
    if _carries_others(x, axis):
        return ops.scatter(ops.zeros_like(x, dtype=g.dtype), _without_gaps(x, axis), entries, axis=axis)
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
    one other as itself (its value is 0, its derivative is not), and more make the product vanish.
    """
    if not (x.is_floating_point() or x.is_complex()):
        return None
    along = (axis or 0) % x.ndim
    g = _scanned(g, x, along, include_initial)
    wide = conjugate(in_dtype(x, g.dtype))
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
    return in_dtype(ops.where(zero, of_zero, of_others), x.dtype)


def named_vjp(g: Any, out: Any, x: Any, *, axis: int, **_: Any) -> Any:
    """The rule of what gives elements of x and their positions along the axis: gradients go back to those."""
    if g[0] is None:
        return None
    return ops.scatter(ops.zeros_like(x), out[1], g[0], axis=axis, reduce="sum")


def _diff_body(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    along = axis % x.ndim
    parts = [part for part in (prepend, x, append) if part is not None]
    made = ops.concat(parts, axis=along) if n and len(parts) > 1 else x
    for _ in range(n):
        made = _differences(made, along)
    return made


def _differences(x: Any, axis: int) -> Any:
    """Each entry's successor less the entry; a row that lacks a position is stepped over there."""
    if _carries_others(x, axis):
        x = ops.take_along_axis(x, _without_gaps(x, axis), axis=axis)
    upper, lower = _slice(x, axis, 1, None), _slice(x, axis, None, -1)
    return ops.logical_xor(upper, lower) if x.dtype == torch.bool else upper - lower


# ------------------------------------------------------------------------------------------------ records


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


def _answer_diff(
    input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None, *, out: Any = None, **options: Any
) -> Tensor:
    refuse_out("diff", out)
    return _diff(input, axis=options.pop("axis", dim), n=n, prepend=prepend, append=append, **options)


def _record(
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
_ALL: tuple[Kind, ...] = ("float", "complex", "int", "bool")
_ORDERED: tuple[Kind, ...] = ("float", "int", "bool")
# fmt: off
_record("cumulative_sum", _cumulative_sum, "cumsum",
        "The sum of each entry and all before it along `axis`, integers in 64 bits. `include_initial`: 0 first.",
        ("sr.cumulative_sum(sr.ragged([[1, 2, 3], [], [4, 5]]), axis=1).tolist()", "[[1, 3, 6], [], [4, 9]]"),
        _ALL, ("x", AxisError, "cumulative_sum needs an axis"), sums=True, more=_INITIAL,
        primitive="scan", vjp=_cumulative_sum_vjp,
        native=(Implementation("native", _compiled_sum, _takes(_SUMMED)),))
_record("cumulative_prod", _cumulative_prod, "cumprod",
        "The product of each entry and all before it along `axis`, integers in 64 bits. `include_initial`: 1 first.",
        ("sr.cumulative_prod(sr.ragged([[1, 2, 3], [], [4, 5]]), axis=1).tolist()", "[[1, 2, 6], [], [4, 20]]"),
        _ALL, ("x", AxisError, "cumulative_prod needs an axis"), sums=True, more=_INITIAL,
        primitive="scan", vjp=_cumulative_prod_vjp,
        native=(Implementation("native", _compiled_product, _takes(_MULTIPLIED)),))
_record("cummax", _cummax, "cummax",
        "The greatest of each entry and all before it along `axis`, and the last position it stands at; NaN stays.",
        ("sr.cummax(sr.ragged([[1, 3, 2], [], [4, 5]]), axis=1).values.tolist()", "[[1, 3, 3], [], [4, 5]]"),
        _ORDERED, ("x.to(torch.complex64), axis=1", TypeError, "cummax needs ordered elements"),
        primitive="scan", vjp=named_vjp,
        native=(Implementation("native", _compiled_extreme(largest=True), _compares),))
_record("cummin", _cummin, "cummin",
        "The least of each entry and all before it along `axis`, and the last position it stands at; NaN stays.",
        ("sr.cummin(sr.ragged([[2, 3, 1], [], [4, 5]]), axis=1).values.tolist()", "[[2, 2, 1], [], [4, 4]]"),
        _ORDERED, ("x.to(torch.complex64), axis=1", TypeError, "cummin needs ordered elements"),
        primitive="scan", vjp=named_vjp,
        native=(Implementation("native", _compiled_extreme(largest=False), _compares),))
_record("diff", _diff, "diff",
        "Each entry's successor along `axis` less the entry, `n` times: rows get `n` shorter, down to nothing.",
        ("sr.diff(sr.ragged([[1, 4, 9], [], [5]]), axis=1).tolist()", "[[3, 5], [], []]"),
        _ALL, ("x, n=-1", ValueError, "diff is taken 0 or more times"),
        more=("x, n=2, axis=1", "x, n=0, axis=0"), answer=_answer_diff,
        operands=("x", "prepend", "append"), body=_diff_body)
# fmt: on
