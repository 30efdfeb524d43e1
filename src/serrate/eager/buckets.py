"""Indices of sparse features sorted into buckets, one for each part of a table.

On the CPU this is compiled (`serrate.native.buckets`). Elsewhere, and without a compiler, torch computes the bucket of
each index, and sorts by it; no step waits for a device.
"""

from __future__ import annotations

import torch

from serrate.native import buckets as library
from serrate.native.buckets import Features, Sorted
from serrate.tensor.offsets import offsets_from_lengths
from serrate.tensor.partition import Partition


def bucketized(
    indices: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    features: Features,
    order: bool,
    positions: bool,
    where: bool,
) -> Sorted:
    """The indices sorted by bucket, with what is asked for; `lengths` cut them into bags, whose `offsets` are int64.

    An index i of a feature whose buckets have w rows falls into bucket i // w and becomes i % w. An index outside of
    all buckets is read as an unsigned number, which is folded into the blocks of the feature.
    """
    indices = indices.contiguous()
    made = library.bucketize(indices, lengths, offsets, features, order, positions, where)
    return _by_torch(indices, lengths, offsets, features, positions, where) if made is None else made


def _by_torch(
    indices: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    features: Features,
    positions: bool,
    where: bool,
) -> Sorted:
    bags = _partition(offsets, indices.numel())
    feature = _partition(offsets.index_select(0, features.ends), indices.numel()).row_ids
    bucket, place = (_even if features.bounds is None else _uneven)(indices, feature, features)
    moved = torch.where(features.keep.index_select(0, feature), indices, place).to(indices.dtype)
    small = torch.uint8 if features.buckets <= 2**8 else torch.int16 if features.buckets <= 2**15 else torch.int64
    order = torch.sort(bucket.to(small), stable=True).indices  # Keys of few bits are sorted faster.
    cells = bucket.to(torch.int64) * lengths.numel() + bags.row_ids
    counts = torch.zeros(features.buckets * lengths.numel(), dtype=torch.int64, device=cells.device)
    here = torch.arange(moved.numel(), dtype=moved.dtype, device=moved.device)
    return Sorted(
        counts.index_add_(0, cells, torch.ones_like(cells)).to(lengths.dtype),
        moved.index_select(0, order),
        order,
        bags.positions_on(offsets.device).index_select(0, order).to(moved.dtype) if positions else None,
        torch.empty_like(moved).scatter_(0, order, here) if where else None,
    )


def _partition(offsets: torch.Tensor, rows: int) -> Partition:
    on_host = offsets.device.type == "cpu"
    return Partition._of(offsets, rows, device_born=not on_host, exact=on_host)


def _even(indices: torch.Tensor, feature: torch.Tensor, features: Features) -> tuple[torch.Tensor, torch.Tensor]:
    """The bucket of each index and its place in it, where all buckets of a feature have one size."""
    joined = features.joined.index_select(0, feature)
    width = (features.sizes * features.joined).index_select(0, feature)
    bucket = indices.div(width.clamp(min=1), rounding_mode="floor")
    place = indices - bucket * width
    outside = (bucket < 0) | (bucket >= features.buckets) | (width == 0)
    far, near = _unsigned_divmod(indices, joined * features.buckets)
    bucket = torch.where(outside, near.div(joined, rounding_mode="floor"), bucket)
    return bucket.clamp(0, features.buckets - 1), torch.where(outside, far, place)


def _uneven(indices: torch.Tensor, feature: torch.Tensor, features: Features) -> tuple[torch.Tensor, torch.Tensor]:
    """The same where each feature has bounds of its own; one search finds the buckets in the bounds of all features."""
    bounds, starts, buckets = features.bounds, features.starts, features.buckets
    assert bounds is not None
    assert starts is not None
    last = bounds.index_select(0, starts[1:] - 1)
    blocks = (features.joined * buckets).index_select(0, feature)
    far, near = _unsigned_divmod(indices, blocks)
    top = last.index_select(0, feature)
    folds = (features.sizes == 0).index_select(0, feature)
    seen = torch.where(folds, (near * top).div(blocks, rounding_mode="floor"), indices)
    seen = torch.where(seen < 0, top, torch.minimum(seen, top))
    base = offsets_from_lengths(last + 1, None)
    shifted = bounds + torch.repeat_interleave(base[:-1], starts.diff(), output_size=bounds.numel())
    found = torch.searchsorted(shifted, seen + base.index_select(0, feature), right=True) - 1
    bucket = found - starts.index_select(0, feature)
    inside = (bucket >= 0) & (bucket < buckets)
    over, left = _unsigned_divmod(indices, torch.tensor(buckets, device=indices.device))
    place = torch.where(inside, indices - bounds.index_select(0, found.clamp(min=0)), over)
    return torch.where(inside, bucket, left), torch.where(folds, far, place)


def _unsigned_divmod(indices: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quotient and remainder of indices that are read as unsigned integers; both are int64, wrapped around."""
    if indices.dtype == torch.int32:
        wide = indices.to(torch.int64) & 0xFFFFFFFF
        quotient = wide.div(by, rounding_mode="floor")
        return quotient, wide - quotient * by
    quotient = indices.div(by, rounding_mode="floor")
    rest = indices - quotient * by
    # A negative index i stands for i + 2⁶⁴, and 2⁶⁴ = 2 · (2⁶³ − 1) + 2: quotient and remainder of 2⁶⁴ are added.
    most = torch.full_like(by, 2**63 - 1)
    half = most.div(by, rounding_mode="floor")
    left = (most - half * by) * 2 + 2
    whole = left.div(by, rounding_mode="floor")
    wrapped = rest + left - whole * by
    carry = (wrapped >= by).to(torch.int64)
    negative = indices < 0
    return (
        torch.where(negative, quotient + half * 2 + whole + carry, quotient),
        torch.where(negative, wrapped - carry * by, rest),
    )
