"""This module cuts a packed axis into segments and sums, numbers or pads the values of each, as FBGEMM does."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from serrate.compat.fbgemm.padding import pad
from serrate.compat.fbgemm.picked_rows import check_rows, cut
from serrate.eager.picking import is_on_host
from serrate.eager.precision import widened
from serrate.errors import RaggednessError
from serrate.native import rows as library
from serrate.tensor import host
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.offsets import INT32_MAX, as_count, as_index_vector
from serrate.tensor.partition import Partition


def asynchronous_complete_cumsum(t_in: torch.Tensor) -> torch.Tensor:
    """Return the running sum of `t_in` with a 0 before it, in the same dtype: for lengths, these are the offsets.

    Each row of a matrix is summed on its own: [R, C] gives [R, C + 1]. Half types are summed in float32. On the CPU a
    sum that does not fit int32 is an OverflowError (FBGEMM's wraps around); on a device this is not checked.

    >>> asynchronous_complete_cumsum(torch.tensor([7, 8, 2]))
    tensor([ 0,  7, 15, 17])
    >>> asynchronous_complete_cumsum(torch.tensor([[1, 2], [3, 4]]))
    tensor([[0, 1, 3],
            [0, 3, 7]])
    """
    made = library.complete(t_in) if 1 <= t_in.ndim <= 2 else None
    if made is not None:
        return made
    if t_in.ndim not in (1, 2):
        raise ValueError(f"t_in must have one or two axes, got shape {list(t_in.shape)}")
    if t_in.dtype == torch.bool:
        raise TypeError("t_in must be numbers, got torch.bool; pass t_in.to(torch.int64) to count")
    if t_in.is_floating_point() or t_in.is_complex():
        return F.pad(torch.cumsum(widened(t_in), -1), (1, 0)).to(t_in.dtype)
    made = t_in.new_zeros((*t_in.shape[:-1], t_in.shape[-1] + 1))
    torch.cumsum(t_in, -1, dtype=t_in.dtype, out=made[..., 1:])
    if is_on_host(t_in) and t_in.dtype != torch.int64:
        _check_fits(t_in, made[..., 1:])
    return made


def _check_fits(given: torch.Tensor, sums: torch.Tensor) -> None:
    """Raise an OverflowError unless sums of a narrow dtype equal those in int64."""
    exact = torch.cumsum(given, -1, dtype=torch.int64)
    wrong = exact != sums
    if bool(wrong.any()):
        kind = str(given.dtype).removeprefix("torch.")
        raise OverflowError(
            f"t_in sums to {int(exact[wrong][0])}, which {kind} does not hold; pass t_in.to(torch.int64)"
        )


def offsets_range(offsets: torch.Tensor, range_size: int) -> torch.Tensor:
    """Return for each of `range_size` values its position in its row.

    `offsets` say where the rows start, the first at 0; the end of the last row may follow. The result has their dtype.
    If offsets on a device are wrong, a later call raises the error.

    >>> offsets_range(torch.tensor([0, 3, 3, 5]), 6)
    tensor([0, 1, 2, 0, 1, 0])
    """
    starts = as_index_vector(offsets, "offsets")
    size = as_count(range_size, "range_size")
    if starts.dtype == torch.int32 and size > INT32_MAX:
        raise RaggednessError(f"range_size {size} does not fit int32 offsets")
    made = library.ranges(starts, size)
    if made is not None:
        return made
    _check_starts(starts, size)
    if not is_on_host(starts):
        starts = starts.clamp(0, size)
    steps = torch.ones(size + 1, dtype=starts.dtype, device=starts.device)
    steps[0] = 0
    if starts.numel() > 1:
        # At the start of a row the running sum goes back to 0, by the length of the row before.
        steps.index_add_(0, starts[1:], starts[:-1] - starts[1:])
    return steps.cumsum_(0)[:size]


def _check_starts(starts: torch.Tensor, size: int) -> None:
    """Raise a RaggednessError unless starts begin with 0, never decrease and stay within `size`."""
    if not starts.numel():
        if size:
            raise RaggednessError(f"offsets must start with 0, but they are empty, and there are {size} values")
        return

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"offsets must start with 0, never decrease and not exceed range_size, {size}, "
            f"but position {i} holds {int(starts[i])}"
        )

    bad = starts > size
    bad[0] |= starts[0] != 0
    bad[1:] |= starts[1:] < starts[:-1]
    host.defer(host.first_fault(bad), error)


def segment_sum_csr(batch_size: int, csr_seg: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the sum of each segment; segment i has the values csr_seg[i] · batch_size to csr_seg[i + 1] · batch_size.

    `values` are read as one flat vector; values past the last segment are left out. The result has their dtype. Half
    types are summed in float32, and on the CPU an integer sum that does not fit the dtype is an OverflowError. If
    segments on a device are wrong, a later call raises the error.

    FBGEMM's function has no gradient, takes fewer dtypes and does not check the segments. This function can be
    differentiated (twice too), takes every dtype of numbers and checks the segments.

    >>> segment_sum_csr(2, torch.tensor([0, 1, 3]), torch.tensor([1.0, 2, 3, 4, 5, 6]))
    tensor([ 3., 18.])
    """
    if type(batch_size) is int and not values.requires_grad:
        made = library.sums(values, csr_seg, batch_size)
        if made is not None:
            return made
    batch_size = as_count(batch_size, "batch_size")
    ends = as_index_vector(csr_seg, "csr_seg")
    if values.ndim:
        check_rows(values, ends)
    if values.dtype == torch.bool:
        raise TypeError("values must be numbers, got torch.bool; pass values.to(torch.int64) to count")
    flat = values.reshape(-1)
    if not is_on_host(ends):
        ends = _checked_segments(ends, batch_size, flat.numel())
    return _Sum.call(flat, ends, batch_size)


def _checked_segments(ends: torch.Tensor, batch_size: int, count: int) -> torch.Tensor:
    if not ends.numel():
        raise RaggednessError("csr_seg must have one entry more than there are segments, so at least 1; got none")
    rows = count // batch_size if batch_size else INT32_MAX

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"csr_seg must never decrease and stay within 0 .. {rows}, the number of rows of {batch_size} values, "
            f"but position {i} holds {int(ends[i])}"
        )

    bad = (ends < 0) | (ends > rows)
    bad[1:] |= ends[1:] < ends[:-1]
    host.defer(host.first_fault(bad), error)
    return ends.clamp(0, rows).cummax(0).values


class _Sum(Differentiable):
    """The sums of runs of values; run i has the values ends[i] · batch up to ends[i + 1] · batch.

    Each value of a run has the gradient of its sum.
    """

    @staticmethod
    def forward(values: torch.Tensor, ends: torch.Tensor, batch: int) -> torch.Tensor:
        wide = widened(values)
        made = library.sums(wide, ends, batch)
        if made is None:
            if is_on_host(ends):
                ends = _checked_segments(ends, batch, values.numel())
            made = sums_by_index(wide, ends.to(torch.int64) * batch)
        return made.to(values.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.ends, ctx.batch = inputs
        ctx.count = values.numel()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Spread.call(gradient, ctx.ends, ctx.batch, ctx.count), None, None


class _Spread(Differentiable):
    """The gradient of `_Sum`: each entry is repeated over its run, and values outside all runs are 0."""

    @staticmethod
    def forward(each: torch.Tensor, ends: torch.Tensor, batch: int, count: int) -> torch.Tensor:
        ends = ends.to(torch.int64) * batch
        if not is_on_host(each):
            return F.pad(each, (0, 1)).index_select(0, _run_of(ends, count))
        first, last = int(ends[0]), int(ends[-1])
        spread = each.index_select(0, torch.repeat_interleave(ends.diff(), output_size=last - first))
        return spread if last - first == count else F.pad(spread, (first, count - last))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.ends, ctx.batch, _ = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Sum.call(gradient, ctx.ends, ctx.batch), None, None, None


def _run_of(ends: torch.Tensor, count: int) -> torch.Tensor:
    """Return for each of `count` values the number of its run, or one past the last run if it lies in none."""
    runs = ends.numel() - 1
    found = torch.searchsorted(ends, torch.arange(count, dtype=ends.dtype, device=ends.device), right=True) - 1
    return torch.where(found < 0, runs, found)


def sums_by_index(values: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the sums on any device, without a wait; on the CPU an integer sum that does not fit is an error."""
    checked = is_on_host(values) and not (values.is_floating_point() or values.is_complex())
    base = values.new_zeros(ends.numel(), dtype=torch.int64 if checked else values.dtype)
    made = base.index_add_(0, _run_of(ends, values.numel()), values.to(base.dtype))[:-1]
    narrow = made.to(values.dtype)
    if checked and not torch.equal(narrow.to(torch.int64), made):
        raise OverflowError(f"a sum of values does not fit {values.dtype}; pass values.to(torch.int64)")
    return narrow


def pack_segments(t_in: torch.Tensor, lengths: torch.Tensor, max_length: int) -> torch.Tensor:
    """Return a padded tensor [rows, max_length, ...] of the rows that `lengths` cut from `t_in` [N, ...].

    Short rows are filled with 0, and long rows are cut. Lengths must add up to N; on a device a later call checks this.
    Values that are cut off have gradient 0 (FBGEMM gives them gradients of other rows). Every dtype is allowed, and
    `max_length` may be 0.

    >>> pack_segments(torch.tensor([1.0, 2, 3, 4]), torch.tensor([1, 0, 3]), 2)
    tensor([[1., 0.],
            [0., 0.],
            [2., 3.]])
    """
    lengths = as_index_vector(lengths, "lengths")
    check_rows(t_in, lengths, "t_in")
    size = as_count(max_length, "max_length")
    offsets = cut(lengths, t_in.shape[0])
    level = Partition._of(offsets, t_in.shape[0], device_born=not is_on_host(lengths), exact=is_on_host(lengths))
    return pad(t_in, (level,), [size])
