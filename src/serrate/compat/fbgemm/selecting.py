"""This module selects rows of a jagged tensor by an index, by a slice of each row, or by a mask, as FBGEMM does."""

from __future__ import annotations

import torch

from serrate.compat.fbgemm.levels import tensor_of
from serrate.compat.fbgemm.picked_rows import check_rows, check_weights, counted, cut, within
from serrate.eager.picking import Rows, Runs, is_on_host, take
from serrate.errors import RaggednessError
from serrate.native import rows as library
from serrate.ops.record import TABLE
from serrate.tensor import host
from serrate.tensor.offsets import as_count, as_index_vector
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


def jagged_index_select(
    values: torch.Tensor, lengths: torch.Tensor, indices: torch.Tensor, num_dense_output_rows: int | None = None
) -> list[torch.Tensor]:
    """Return [values, lengths] of the jagged rows at `indices`, in that order; an index may occur several times.

    `lengths` cut `values` [N, ...], which may have any dtype, and must add up to N. `num_dense_output_rows`, if given,
    must be the number of selected values; on a device it saves a wait. If lengths or indices on a device are wrong, a
    later call raises the error.

    Unlike in FBGEMM, values may have any number of axes and may be float64, and indices are checked.

    >>> values = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    >>> rows, lengths = jagged_index_select(values, torch.tensor([1, 0, 3]), torch.tensor([2, 0, 2]))
    >>> rows.flatten(), lengths
    (tensor([2., 3., 4., 1., 2., 3., 4.]), tensor([3, 1, 3]))
    """
    lengths = as_index_vector(lengths, "lengths")
    check_rows(values, lengths)
    source = cut(lengths, values.shape[0])
    rows = as_index_vector(indices, "indices")
    runs = selected(lengths, source, rows, num_dense_output_rows, ("indices", "rows", "num_dense_output_rows"))
    return [take(values, runs), runs.lengths]


def keyed_jagged_index_select_dim1(
    values: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    indices: torch.Tensor,
    batch_size: int,
    weights: torch.Tensor | None = None,
    selected_lengths_sum: int | None = None,
) -> list[torch.Tensor]:
    """Return [values, lengths], and weights if given, of the samples at `indices`, which are the same for every key.

    `lengths` [num_keys · batch_size] cut `values` [N, ...] and `weights` [N, ...]; `offsets` must be the complete
    cumulative sum of the lengths. `selected_lengths_sum`, if given, must be the number of selected values; on a device
    it saves a wait. If lengths, offsets or indices on a device are wrong, a later call raises the error.

    FBGEMM has no CPU kernel for this function; Serrate has one.

    >>> lengths, values = torch.tensor([1, 2, 0, 3]), torch.arange(6)
    >>> offsets = torch.tensor([0, 1, 3, 3, 6])
    >>> keyed_jagged_index_select_dim1(values, lengths, offsets, torch.tensor([1, 1]), 2)
    [tensor([1, 2, 1, 2, 3, 4, 5, 3, 4, 5]), tensor([2, 2, 3, 3])]
    """
    lengths = as_index_vector(lengths, "lengths")
    check_rows(values, lengths)
    check_weights(weights, values)
    batch_size = as_count(batch_size, "batch_size")
    if lengths.numel() % batch_size if batch_size else lengths.numel():
        raise ValueError(f"lengths must have batch_size entries per key, {batch_size}, but there are {lengths.numel()}")
    source = cut(lengths, values.shape[0])
    _check_complete(as_index_vector(offsets, "offsets"), source)
    samples = within(indices, batch_size, "indices", "samples")
    keys = torch.arange(0, lengths.numel(), max(batch_size, 1), device=lengths.device)
    rows = (keys[:, None] + samples).flatten()
    runs = selected(lengths, source, rows, selected_lengths_sum, ("indices", "samples", "selected_lengths_sum"))
    made = [take(values, runs), runs.lengths]
    return made if weights is None else [*made, take(weights, runs)]


def _check_complete(offsets: torch.Tensor, expected: torch.Tensor) -> None:
    if offsets.shape != expected.shape:
        raise RaggednessError(
            f"offsets must have {expected.numel()} entries, one more than lengths, got {offsets.numel()}"
        )

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"offsets must be the complete cumulative sum of lengths, {int(expected[i])} at position {i}, "
            f"but hold {int(offsets[i])} there"
        )

    host.defer(host.first_fault(offsets != expected), error)


def selected(
    lengths: torch.Tensor,
    source: torch.Tensor,
    rows: torch.Tensor,
    total: int | None,
    names: tuple[str, str, str],
    once: bool = False,
) -> Runs:
    """Return the components at `rows` as runs; component i has `lengths[i]` rows from row `source[i]` on.

    `total`, if given, must be the number of selected rows. `names` are the names of the indices, of what they count,
    and of the total; error messages use them. `once` says that no component is selected twice.
    """
    found = library.select_runs(lengths, source, rows)
    if found is not None:
        return Runs(found[0], found[1], counted(found[2], total, names[2]), once)
    rows = within(rows, lengths.numel(), names[0], names[1])
    picked = host.settled(lengths.index_select(0, rows))
    return Runs(host.settled(source.index_select(0, rows)), picked, counted(picked.sum(), total, names[2]), once)


def jagged_slice(
    x_values: torch.Tensor, x_lengths: torch.Tensor, start: torch.Tensor, slice_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (values, lengths) of a slice of each row: at most `slice_length` values, from its `start` on.

    The start of a row must lie between 0 and its length. On a device this function waits for the number of values, as
    FBGEMM's does; if lengths or starts on a device are wrong, a later call raises the error.

    Unlike in FBGEMM, values may have any number of axes and may be float64, lengths may be int32, and a negative
    `slice_length` is an error (FBGEMM then returns undefined memory).

    >>> values, lengths = torch.arange(9.0), torch.tensor([2, 4, 3])
    >>> jagged_slice(values, lengths, torch.tensor([0, 2, 2]), 2)
    (tensor([0., 1., 4., 5., 8.]), tensor([2, 2, 1]))
    """
    lengths = as_index_vector(x_lengths, "x_lengths")
    check_rows(x_values, lengths, "x_values")
    if slice_length < 0:
        raise ValueError(f"slice_length must be 0 or more, got {slice_length}")
    runs = _sliced(lengths, as_index_vector(start, "start"), x_values.shape[0], slice_length)
    return take(x_values, runs), runs.lengths


def _sliced(lengths: torch.Tensor, start: torch.Tensor, rows: int, most: int) -> Runs:
    found = library.slice_runs(lengths, start, rows, most)
    if found is not None:
        return Runs(*found, once=True)
    source = cut(lengths, rows, "x_lengths")
    begin = _starts(start, lengths)
    picked = host.settled((lengths - begin).clamp_(max=most).to(lengths.dtype))
    return Runs(host.settled(source[:-1] + begin), picked, counted(picked.sum(), None, ""), once=True)


def _starts(start: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return `start`, which must lie between 0 and the length of each row."""
    if start.shape != lengths.shape:
        raise ValueError(f"start must have an entry for each of the {lengths.numel()} rows, got {start.numel()}")

    def error(i: int) -> IndexError:
        return IndexError(f"start must lie in 0 .. {int(lengths[i])}, the length of row {i}, but holds {int(start[i])}")

    host.defer(host.first_fault((start < 0) | (start > lengths)), error)
    return start if is_on_host(start) else torch.minimum(start.clamp(min=0), lengths.clamp(min=0))


def masked_select_jagged_1d(
    values: torch.Tensor, lengths: torch.Tensor, mask: torch.Tensor, check_length: bool | None = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (values, lengths) of the jagged tensor of the values for which `mask` is true.

    `mask` is bool and has one entry for each value. On a device this function waits for the number of values that are
    left, as FBGEMM's does. Lengths are always checked, so `check_length` has no effect; FBGEMM's signature has it.

    Unlike in FBGEMM, values may have any number of axes and any dtype, and gradients flow.

    >>> values, lengths = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 0, 3])
    >>> masked_select_jagged_1d(values, lengths, values % 2 == 0)
    (tensor([2, 4]), tensor([0, 0, 2]))
    """
    lengths = as_index_vector(lengths, "lengths")
    check_rows(values, lengths)
    if mask.dtype != torch.bool or mask.shape != values.shape[:1] or mask.device != values.device:
        raise ValueError(
            f"mask must be bool, one entry for each of the {values.shape[0]} values and on their device, "
            f"got {mask.dtype} of shape {list(mask.shape)} on {mask.device}"
        )
    found = library.keep(mask, lengths)
    if found is not None:
        return take(values, Rows(found[0])), found[1]
    source = cut(lengths, values.shape[0])
    known = is_on_host(source)
    level = Partition._of(source, values.shape[0], device_born=not known, exact=known)
    made: Tensor = TABLE["Tensor.getitem"].function(tensor_of(values, level), tensor_of(mask, level))
    return made.values, made.lengths[0].to(lengths.dtype)
