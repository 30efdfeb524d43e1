"""This module turns packed tensors into padded ones and back, under FBGEMM's names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from serrate.compat.fbgemm.levels import Levels, level_of, levels_of, only, packed, sizes_of
from serrate.compat.fbgemm.padding import pad, unpad
from serrate.errors import RaggednessError
from serrate.native import padded as library
from serrate.native import rows
from serrate.tensor.offsets import as_count


def jagged_to_padded_dense(
    values: torch.Tensor, offsets: Sequence[torch.Tensor], max_lengths: Sequence[int], padding_value: float = 0.0
) -> torch.Tensor:
    """Return packed values as [B, *max_lengths, …]: short components are padded, and long ones are cut.

    In Serrate this is `x.to_dense`.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> fbgemm.jagged_to_padded_dense(torch.arange(6).view(3, 2), [torch.tensor([0, 2, 3])], [2], -1)
    tensor([[[ 0,  1],
             [ 2,  3]],
    <BLANKLINE>
            [[ 4,  5],
             [-1, -1]]])
    """
    values = packed(values, "values")
    made = library.pad(values, (only(offsets),), (only(max_lengths),), padding_value)
    if made is not None:
        return made
    levels = levels_of(offsets, values, values.shape[0])
    return pad(values, levels, sizes_of(max_lengths, levels, "max_lengths"), padding_value)


def jagged_1d_to_dense(
    values: torch.Tensor, offsets: torch.Tensor, max_sequence_length: int, padding_value: int
) -> torch.Tensor:
    """Return packed numbers [N] as a padded tensor [B, max_sequence_length].

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> fbgemm.jagged_1d_to_dense(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 2, 3]), 2, 0)
    tensor([[1, 2],
            [0, 0],
            [3, 0]])
    """
    return _one_level(values, offsets, max_sequence_length, padding_value, 1)


def jagged_2d_to_dense(values: torch.Tensor, offsets: torch.Tensor, max_sequence_length: int) -> torch.Tensor:
    """Return packed rows [N, D] as a tensor [B, max_sequence_length, D], padded with 0.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> fbgemm.jagged_2d_to_dense(torch.ones(3, 4), torch.tensor([0, 2, 2, 3]), 5).shape
    torch.Size([3, 5, 4])
    """
    return _one_level(values, offsets, max_sequence_length, 0, 2)


def _one_level(values: torch.Tensor, offsets: torch.Tensor, most: int, padding: float, axes: int) -> torch.Tensor:
    values = packed(values, "values", axes)
    made = library.pad(values, (offsets,), (most,), padding)
    if made is None:
        level = level_of(offsets, values, values.shape[0], "offsets")
        made = pad(values, (level,), [as_count(most, "max_sequence_length")], padding)
    return made


def dense_to_jagged(
    dense: torch.Tensor, x_offsets: Sequence[torch.Tensor], total_L: int | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the packed rows that a padded tensor [B, *lengths, …] holds, and the offsets.

    Rows for which the padded tensor is too short are 0. `total_L` is the number of rows of the result, if the caller
    knows it; rows past the last offset are 0. In Serrate this is `sr.from_dense(dense, offsets=…)`.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> dense = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    >>> fbgemm.dense_to_jagged(dense, [torch.tensor([0, 1, 4])])
    (tensor([[1.],
            [3.],
            [4.],
            [0.]]), [tensor([0, 1, 4])])
    """
    dense = packed(dense, "dense")
    rows = None if total_L is None else as_count(total_L, "total_L")
    made = library.unpad(dense, (only(x_offsets),), rows)
    if made is not None:
        return made, list(x_offsets)
    levels = levels_of(x_offsets, dense, rows, "x_offsets")
    return unpadded(dense, levels, levels[-1].num_values if rows is None else rows, "dense"), list(x_offsets)


def unpadded(dense: torch.Tensor, levels: Levels, rows: int, name: str) -> torch.Tensor:
    """Return `rows` packed rows of a padded tensor; rows that it does not hold, or of no component, are 0."""
    sizes_in(dense, levels, name)
    return unpad(dense, levels, rows)


def sizes_in(dense: torch.Tensor, levels: Levels, name: str) -> list[int]:
    """Return the padded size of each level of a tensor [B, *sizes, …]."""
    depth = len(levels)
    if dense.ndim <= depth:
        raise ValueError(f"{name} must have at least {depth + 1} axes, [B, *lengths, …], got shape {list(dense.shape)}")
    if dense.shape[0] != levels[0].num_components:
        raise RaggednessError(
            f"{name} must have a row for each of the {levels[0].num_components} components of the offsets, got shape "
            f"{list(dense.shape)}"
        )
    return list(dense.shape[1 : depth + 1])


def stacked_jagged_1d_to_dense(
    values: torch.Tensor,
    lengths: torch.Tensor,
    offset_per_key: Sequence[int],
    max_lengths_per_key: Sequence[int],
    padding_value: int,
) -> list[torch.Tensor]:
    """Return for each key k a padded tensor [B, max_lengths_per_key[k]].

    The values of key k begin at `offset_per_key[k]`, and `lengths[k]` cut them.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> lengths = torch.tensor([[1, 2], [0, 1]])
    >>> fbgemm.stacked_jagged_1d_to_dense(torch.tensor([1, 2, 3, 4]), lengths, [0, 3, 4], [2, 1], 0)
    [tensor([[1, 0],
            [2, 3]]), tensor([[0],
            [4]])]
    """
    return _stacked(packed(values, "values", 1), lengths, offset_per_key, max_lengths_per_key, padding_value)


def stacked_jagged_2d_to_dense(
    values: torch.Tensor,
    lengths: torch.Tensor,
    offset_per_key: Sequence[int],
    max_lengths_per_key: Sequence[int],
    padding_value: int = 0,
) -> list[torch.Tensor]:
    """Return for each key k a padded tensor [B, max_lengths_per_key[k], D] of packed rows [N, D].

    The rows of key k begin at `offset_per_key[k]`, and `lengths[k]` cut them.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> lengths = torch.tensor([[1, 2], [0, 1]])
    >>> first, second = fbgemm.stacked_jagged_2d_to_dense(torch.ones(4, 5), lengths, [0, 3, 4], [2, 1])
    >>> first.shape, second.shape
    (torch.Size([2, 2, 5]), torch.Size([2, 1, 5]))
    """
    return _stacked(packed(values, "values", 2), lengths, offset_per_key, max_lengths_per_key, padding_value)


def _stacked(
    values: torch.Tensor, lengths: torch.Tensor, starts: Sequence[int], sizes: Sequence[int], padding: int
) -> list[torch.Tensor]:
    if not isinstance(lengths, torch.Tensor) or lengths.ndim != 2:
        got = f"shape {list(lengths.shape)}" if isinstance(lengths, torch.Tensor) else f"a {type(lengths).__name__}"
        raise ValueError(f"lengths must be a tensor [keys, B], got {got}")
    keys = lengths.shape[0]
    if len(starts) != keys + 1 or len(sizes) != keys:
        raise ValueError(
            f"offset_per_key must have {keys + 1} entries and max_lengths_per_key {keys}, as there are lengths of "
            f"{keys} keys; got {len(starts)} and {len(sizes)}"
        )
    ends = [as_count(start, "offset_per_key") for start in starts]
    if ends != sorted(ends) or ends[-1] > values.shape[0]:
        raise RaggednessError(
            f"offset_per_key must never decrease and end with at most {values.shape[0]}, the number of rows, got {ends}"
        )
    most = [as_count(size, "max_lengths_per_key") for size in sizes]
    offsets = None if values.requires_grad else rows.offsets(lengths)
    made = None if offsets is None else library.pad_keys(values, offsets, ends, most, padding)
    return _stacked_by_key(values, lengths, ends, most, padding) if made is None else made


def _stacked_by_key(
    values: torch.Tensor, lengths: torch.Tensor, ends: list[int], sizes: list[int], padding: int
) -> list[torch.Tensor]:
    offsets = torch.zeros(len(sizes), lengths.shape[1] + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 1, out=offsets[:, 1:])
    parts = values[ends[0] : ends[-1]].split_with_sizes([last - first for first, last in pairwise(ends)])
    made = []
    for key, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        level = level_of(offsets[key], part, part.shape[0], f"the running sum of lengths[{key}]")
        made.append(pad(part, (level,), [size], padding))
    return made
