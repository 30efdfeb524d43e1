"""Scans of runs of rows, differentiable twice: running sums, products and extremes.

Compiled code goes over the rows once (`serrate.native.row_scans`). torch's operations scan all rows at once in
log2(longest row) steps, in each of which an entry takes up what stands 1, 2, 4, … entries before it in its own row. So
a NaN stays in its row, and sums lose nothing to what stands before the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from serrate.eager.runs import MOST_TAGS, Runs, tagged
from serrate.native import row_scans as library
from serrate.tensor.differentiable import Differentiable, beyond_gradients


def running_sum(values: torch.Tensor, runs: Runs, compiled: bool = False) -> torch.Tensor:
    """The sum of each row and all before it in its run.

    With `compiled`, which is for rows in run order that compiled code may read, it is that code which scans them.
    """
    return _Sum.call(values, runs, False, compiled)


def running_product(values: torch.Tensor, runs: Runs, compiled: bool = False) -> torch.Tensor:
    """The product of each row and all before it in its run."""
    return _Product.call(values, runs, compiled)


def running_extreme(values: torch.Tensor, runs: Runs, largest: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The greatest (least) of each row and all before it in its run, and the last position it stands at.

    Rows lie in run order, and compiled code may read them; None if it does not take them. There is no gradient.
    """
    return library.extremes(values, _ends(runs), largest)


def _ends(runs: Runs) -> torch.Tensor:
    return runs.level.offsets_on(runs.device)


def _windows(runs: Runs, values: torch.Tensor, reverse: bool) -> Iterator[tuple[torch.Tensor, slice, slice]]:
    """The steps of a scan: for each, which rows have one in their run `d` before (behind), those rows, and those."""
    reach = runs.rest if reverse else runs.place
    d = 1
    while d < runs.longest:
        low, high = slice(None, -d), slice(d, None)
        to, source = (low, high) if reverse else (high, low)
        yield (reach[to] >= d).view(-1, *[1] * (values.ndim - 1)), to, source
        d *= 2


def _scan(runs: Runs, values: torch.Tensor, step: Callable[..., Any], neutral: int, reverse: bool) -> torch.Tensor:
    """Rows in run order combined by `step`, in place, with all before (behind) them in their run."""
    made = values.resolve_conj().clone(memory_format=torch.contiguous_format)
    taken, nothing = torch.empty_like(made), made.new_full((), neutral)
    for reaches, to, source in _windows(runs, made, reverse):
        torch.where(reaches, made[source], nothing, out=taken[to])
        step(made[to], taken[to])
    return made


def _composed_scan(
    runs: Runs, values: torch.Tensor, step: Callable[..., torch.Tensor], neutral: int, reverse: bool
) -> torch.Tensor:
    """The same without a write in place, `step` giving what a row becomes."""
    made = values
    for reaches, to, source in _windows(runs, made, reverse):
        made = _placed(made, step(made[to], torch.where(reaches, made[source], neutral)), reverse)
    return made


def _placed(made: torch.Tensor, rows: torch.Tensor, reverse: bool) -> torch.Tensor:
    """`made` with other last (first) rows."""
    count = made.shape[0] - rows.shape[0]
    return torch.cat([rows, made[rows.shape[0] :]] if reverse else [made[:count], rows])


def _neighbour(runs: Runs, values: torch.Tensor, behind: bool, missing: int) -> torch.Tensor:
    """For each row in run order the one before (behind) it in its run, `missing` if there is none."""
    reaches = ((runs.rest if behind else runs.place) >= 1).view(-1, *[1] * (values.ndim - 1))
    return torch.where(reaches, values.roll(-1 if behind else 1, 0), missing)


class _Sum(Differentiable):
    """Running sums in runs; the gradient runs the other way."""

    @staticmethod
    def forward(values: torch.Tensor, runs: Runs, reverse: bool, compiled: bool) -> torch.Tensor:
        made = library.sums(values, _ends(runs), reverse) if compiled else None
        return _scan(runs, values, torch.Tensor.add_, 0, reverse) if made is None else made

    @staticmethod
    def composed(values: torch.Tensor, runs: Runs, reverse: bool, compiled: bool) -> torch.Tensor:
        return _composed_scan(runs, values, torch.add, 0, reverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.runs, ctx.reverse, ctx.compiled = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Sum.call(gradient, ctx.runs, not ctx.reverse, ctx.compiled), None, None, None


class _Recurrence(Differentiable):
    """out = b + a · (out before it) in runs; backward it is again one, the other way."""

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor, runs: Runs, reverse: bool, compiled: bool) -> torch.Tensor:
        found = library.recurrence(a, b, _ends(runs), reverse) if compiled else None
        if found is not None:
            return found
        factor, made = a.resolve_conj().clone(), b.resolve_conj().clone()
        for reaches, to, source in _windows(runs, made, reverse):
            made[to] += torch.where(reaches, factor[to] * made[source], 0)
            factor[to] *= torch.where(reaches, factor[source], 1)
        return made

    @staticmethod
    def composed(a: torch.Tensor, b: torch.Tensor, runs: Runs, reverse: bool, compiled: bool) -> torch.Tensor:
        factor, made = a, b
        for reaches, to, source in _windows(runs, made, reverse):
            made = _placed(made, made[to] + torch.where(reaches, factor[to] * made[source], 0), reverse)
            factor = _placed(factor, factor[to] * torch.where(reaches, factor[source], 1), reverse)
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, _, ctx.runs, ctx.reverse, ctx.compiled = inputs
        ctx.save_for_backward(a, output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        a, out = ctx.saved_tensors
        runs, reverse = ctx.runs, ctx.reverse
        factor = _neighbour(runs, a, not reverse, 0).conj()
        reached = _Recurrence.call(factor, gradient, runs, not reverse, ctx.compiled)
        return reached * _neighbour(runs, out, reverse, 0).conj(), reached, None, None, None


class _Product(Differentiable):
    """Running products in runs. The gradient divides by nothing, so elements may be 0."""

    @staticmethod
    def forward(values: torch.Tensor, runs: Runs, compiled: bool) -> torch.Tensor:
        made = library.products(values, _ends(runs)) if compiled else None
        return _scan(runs, values, torch.Tensor.mul_, 1, reverse=False) if made is None else made

    @staticmethod
    def composed(values: torch.Tensor, runs: Runs, compiled: bool) -> torch.Tensor:
        return _composed_scan(runs, values, torch.mul, 1, reverse=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.runs, ctx.compiled = inputs
        ctx.save_for_backward(values, output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        values, out = ctx.saved_tensors
        factor = _neighbour(ctx.runs, values, True, 0).conj()
        reached = _Recurrence.call(factor, gradient, ctx.runs, True, ctx.compiled)
        return reached * _neighbour(ctx.runs, out, False, 1).conj(), None, None


def extreme_rows(runs: Runs, keys: torch.Tensor, narrow: bool) -> torch.Tensor:
    """For each row the last of the greatest `keys` in its run up to it."""
    keys = runs.gathered(keys)
    if narrow and runs.count <= MOST_TAGS:  # under the number of its run, no key reaches into the next one
        found = tagged(keys, runs.gathered(runs.group)).cummax(0).indices
    else:
        least = torch.iinfo(torch.int64).min
        if beyond_gradients():
            greatest = _composed_scan(runs, keys, torch.maximum, least, False)
        else:
            greatest = _scan(runs, keys, lambda made, taken: torch.maximum(made, taken, out=made), least, False)
        rows = torch.arange(runs.rows, device=keys.device).view(-1, *[1] * (keys.ndim - 1))
        start = rows - runs.place.view(rows.shape)
        found = torch.where(keys == greatest, rows, start).cummax(0).values
    return runs.returned(found if runs.order is None else runs.order[found])
