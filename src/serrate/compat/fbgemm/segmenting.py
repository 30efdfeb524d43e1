"""This module cuts a packed axis into segments and sums, numbers or pads the values of each, as FBGEMM does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from serrate.compat.fbgemm.levels import tensor_of
from serrate.compat.fbgemm.padding import pad
from serrate.compat.fbgemm.picked_rows import check_rows, cut
from serrate.eager.picking import is_on_host
from serrate.eager.precision import widened
from serrate.errors import RaggednessError
from serrate.native import rows as library
from serrate.ops.record import TABLE
from serrate.tensor import host
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
    level = Partition._of(F.pad(starts.clamp(0, size), (0, 1), value=size), size, device_born=not is_on_host(starts))
    return level.positions_on(starts.device).to(starts.dtype)


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
    ends = F.pad(_checked_segments(ends, batch_size, flat.numel()).to(torch.int64) * batch_size, (1, 0))
    # The first component has the values before the first segment.
    known = is_on_host(ends)
    level = Partition._of(ends, int(ends[-1]) if known else flat.numel(), device_born=not known, exact=known)
    counted = not (flat.is_floating_point() or flat.is_complex())
    dtype = torch.int64 if counted else None
    sums: torch.Tensor = TABLE["sum"].function(tensor_of(flat, level), axis=1, dtype=dtype).values[1:]
    made = sums.to(values.dtype)
    if counted and known and not torch.equal(made.to(torch.int64), sums):
        raise OverflowError(f"a sum of values does not fit {values.dtype}; pass values.to(torch.int64)")
    return made


def _checked_segments(ends: torch.Tensor, batch_size: int, count: int) -> torch.Tensor:
    """Return the ends of segments, which must never decrease and stay within the rows that `count` values have."""
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
    return ends if is_on_host(ends) else ends.clamp(0, rows).cummax(0).values


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
