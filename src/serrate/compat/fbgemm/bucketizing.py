"""This module sorts the indices of sparse features into buckets, one for each part of a table, as FBGEMM does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from serrate.compat.fbgemm.picked_rows import check_rows, check_weights, cut
from serrate.compat.fbgemm.segmenting import offsets_range
from serrate.eager.picking import Rows, is_on_host, take
from serrate.errors import RaggednessError
from serrate.tensor import host
from serrate.tensor.offsets import as_count, as_index_vector, cut_by_lengths, offsets_from_lengths


def block_bucketize_sparse_features(
    lengths: torch.Tensor,
    indices: torch.Tensor,
    bucketize_pos: bool,
    sequence: bool,
    block_sizes: torch.Tensor,
    my_size: int,
    weights: torch.Tensor | None = None,
    batch_size_per_feature: torch.Tensor | None = None,
    max_B: int = -1,
    block_bucketize_pos: Sequence[torch.Tensor] | None = None,
    keep_orig_idx: bool = False,
    total_num_blocks: torch.Tensor | None = None,
    keep_orig_idx_per_feature: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return (lengths, indices, weights, positions, permutation) of the features, bucket by bucket.

    `lengths` [T · B] cut `indices` [N] into B bags for each of T features, or into `batch_size_per_feature[t]` bags for
    feature t. An index i of feature t falls into bucket i // block_sizes[t] and becomes i % block_sizes[t]. An index
    that is negative or past all `my_size` buckets is read as an unsigned number: it falls into bucket i % my_size and
    becomes i // my_size.

    `total_num_blocks` [T] must be multiples of `my_size`; each bucket then consists of total_num_blocks[t] // my_size
    blocks. `block_bucketize_pos` are T vectors that begin with 0: bucket p of feature t then holds the indices from
    block_bucketize_pos[t][p] up to block_bucketize_pos[t][p + 1]; if the block size of the feature is 0, its indices
    are first folded into that range. `keep_orig_idx` leaves all indices as they are, and `keep_orig_idx_per_feature`
    [T] says the same for each feature.

    The lengths of bucket p are entries p · T · B up to (p + 1) · T · B of the result. `weights` [N, ...] move with
    their indices, and gradients flow back to them. The positions are those of the indices in their old bags; they are
    None unless `bucketize_pos` is true. The permutation says where each old index went; it is None unless `sequence` is
    true. `max_B` has no effect.

    If lengths on a device are wrong, a later call raises the error. The sizes of blocks and buckets are not checked on
    a device; an index for which they leave no bucket falls into the last bucket.

    >>> lengths, indices = torch.tensor([2, 1, 0, 3]), torch.tensor([3, 9, 12, 4, 5, 1])
    >>> made = block_bucketize_sparse_features(lengths, indices, False, True, torch.tensor([5, 3]), 2)
    >>> made[0], made[1]
    (tensor([1, 1, 0, 1, 1, 0, 0, 2]), tensor([3, 6, 1, 4, 1, 2]))
    >>> made[4]
    tensor([0, 3, 1, 4, 5, 2])
    """
    lengths = as_index_vector(lengths.flatten(), "lengths")
    ids = as_index_vector(indices, "indices")
    check_rows(ids, lengths, "indices")
    check_weights(weights, ids)
    size = as_count(my_size, "my_size")
    if not size:
        raise ValueError("my_size must be 1 or more, got 0")
    offsets = cut(lengths, ids.numel())
    blocks = _Blocks.read(block_sizes.flatten(), lengths, batch_size_per_feature, total_num_blocks, size)
    bounds = offsets.index_select(0, blocks.ends)
    keep = _kept(keep_orig_idx, keep_orig_idx_per_feature, blocks.sizes)
    made = None if block_bucketize_pos or not is_on_host(ids) else blocks.by_feature(ids, bounds, keep)
    bucket, moved = made or blocks.by_value(ids, _bag_of_values(bounds, ids.numel()), keep, block_bucketize_pos)
    return _sorted(lengths, offsets, bucket, moved, size, weights, bucketize_pos, sequence)


def _bag_of_values(offsets: torch.Tensor, count: int) -> torch.Tensor:
    """Return for each value the number of its bag."""
    if is_on_host(offsets):
        return torch.from_numpy(np.repeat(np.arange(offsets.numel() - 1), np.diff(host.array(offsets))))
    values = torch.arange(count, device=offsets.device)
    found = torch.searchsorted(offsets[1:].contiguous(), values, right=True)
    return found.clamp_(max=max(offsets.numel() - 2, 0))


def _kept(keep: bool, per_feature: torch.Tensor | None, sizes: torch.Tensor) -> torch.Tensor:
    """Return for each feature whether its indices stay as they are."""
    if per_feature is None:
        return torch.full_like(sizes, keep, dtype=torch.bool)
    if per_feature.dtype != torch.bool or per_feature.shape != sizes.shape:
        raise ValueError(
            f"keep_orig_idx_per_feature must be bool, one entry for each of the {sizes.numel()} features, "
            f"got {per_feature.dtype} of shape {list(per_feature.shape)}"
        )
    return per_feature.to(sizes.device)


@dataclass(frozen=True)
class _Blocks:
    """The tables of T features are cut into buckets; each bucket has `joined` blocks, each block `sizes` rows."""

    sizes: torch.Tensor  # [T]
    joined: torch.Tensor | None  # [T]; None means one block for each bucket
    ends: torch.Tensor  # [T + 1], the offsets of the features among the bags
    buckets: int

    @staticmethod
    def read(
        sizes: torch.Tensor,
        lengths: torch.Tensor,
        batches: torch.Tensor | None,
        total: torch.Tensor | None,
        buckets: int,
    ) -> _Blocks:
        sizes = as_index_vector(sizes, "block_sizes").to(torch.int64)
        features, count = sizes.numel(), lengths.numel()
        if is_on_host(sizes) and features and int(sizes.min()) < 0:
            raise ValueError(f"block_sizes must be 0 or more, got {sizes.tolist()!s:.80}")
        if batches is not None:
            batches = _per_feature(batches, features, "batch_size_per_feature")
            if is_on_host(batches):
                cut_by_lengths(batches, count, True, "batch_size_per_feature")
            ends = offsets_from_lengths(batches, None).clamp(0, count)
        else:
            if count % features if features else count:
                raise RaggednessError(
                    f"lengths must have the same number of bags for each of {features} features, got {count} bags"
                )
            ends = torch.arange(features + 1, device=sizes.device) * (count // max(features, 1))
        joined = None
        if total is not None:
            total = _per_feature(total, features, "total_num_blocks")
            if is_on_host(total) and bool(((total < buckets) | (total % buckets != 0)).any()):
                raise ValueError(
                    f"total_num_blocks must be multiples of my_size, {buckets}, got {total.tolist()!s:.80}"
                )
            joined = total.div(buckets, rounding_mode="floor").clamp(min=1)
        return _Blocks(sizes, joined, ends, buckets)

    @property
    def width(self) -> torch.Tensor:
        """The number of rows in a bucket of each feature."""
        return self.sizes if self.joined is None else self.sizes * self.joined

    def by_feature(
        self, ids: torch.Tensor, bounds: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the bucket of each index and its new value, on the CPU; None if an index lies outside all buckets.

        The loop goes feature by feature: the indices of one feature fit the cache and have a single divisor.
        """
        given = host.array(ids)
        ends, width, kept = bounds.tolist(), self.width.tolist(), keep.tolist()
        bucket = np.empty(given.size, dtype=np.uint8 if self.buckets <= 2**8 else np.int64)
        moved = given.copy() if all(kept) else np.empty_like(given)
        for t, size in enumerate(width):
            here = slice(ends[t], ends[t + 1])
            part = given[here]
            if not part.size:
                continue
            if part.min() < 0 or part.max() >= size * self.buckets:
                return None
            found = part // given.dtype.type(min(size, np.iinfo(given.dtype).max))
            bucket[here] = found
            if kept[t]:
                moved[here] = part
            else:
                found *= size
                np.subtract(part, found, out=moved[here])
        return torch.from_numpy(bucket), torch.from_numpy(moved)

    def by_value(
        self,
        ids: torch.Tensor,
        feature: torch.Tensor,
        keep: torch.Tensor,
        bounds: Sequence[torch.Tensor] | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same for any indices on any device, without a wait; `feature` is the feature of each index."""
        bucket, moved = self.uneven(ids, feature, bounds) if bounds else self.even(ids, feature)
        return bucket, torch.where(keep.index_select(0, feature), ids, moved).to(ids.dtype)

    def even(self, ids: torch.Tensor, feature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bucket of each index and its place in it, if all buckets of a feature have one size."""
        width = self.width
        widths = width.clamp(min=1).index_select(0, feature)
        bucket = ids.div(widths, rounding_mode="floor")
        place = ids - bucket * widths
        outside = (bucket < 0) | (bucket >= self.buckets)
        if not is_on_host(width) or bool((width == 0).any()):
            outside |= (width == 0).index_select(0, feature)
        far, near = self._folded(ids, feature)
        if self.joined is not None:
            near = near.div(self.joined.index_select(0, feature), rounding_mode="floor")
        bucket, place = torch.where(outside, near, bucket), torch.where(outside, far, place)
        return bucket.clamp(0, self.buckets - 1), place

    def uneven(
        self, ids: torch.Tensor, feature: torch.Tensor, bounds: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same if each feature has its own bounds; one search finds the buckets in all bounds, joined."""
        starts, last, flat = self._laid(bounds)
        far, near = self._folded(ids, feature)
        top = last.index_select(0, feature)
        folds = (self.sizes == 0).index_select(0, feature)
        blocks = self._blocks(feature)
        seen = torch.where(folds, (near * top).div(blocks, rounding_mode="floor"), ids)
        seen = torch.where(seen < 0, top, torch.minimum(seen, top))
        base = offsets_from_lengths(last + 1, None)
        shift = base.index_select(0, feature)
        shifted = flat + torch.repeat_interleave(base[:-1], starts.diff(), output_size=flat.numel())
        found = torch.searchsorted(shifted, seen + shift, right=True) - 1
        bucket = found - starts.index_select(0, feature)
        inside = (bucket >= 0) & (bucket < self.buckets)
        over, left = _unsigned_divmod(ids, torch.tensor(self.buckets, device=ids.device))
        place = torch.where(inside, ids - flat.index_select(0, found.clamp(min=0)), over)
        return torch.where(inside, bucket, left), torch.where(folds, far, place)

    def _blocks(self, feature: torch.Tensor) -> torch.Tensor:
        """Return for each value the number of blocks of its table."""
        if self.joined is None:
            return torch.tensor(self.buckets, device=feature.device)
        return (self.joined * self.buckets).index_select(0, feature)

    def _folded(self, ids: torch.Tensor, feature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the indices divided by the number of blocks, and the remainders."""
        return _unsigned_divmod(ids, self._blocks(feature))

    def _laid(self, bounds: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return where the bounds of each feature start among all bounds, the last of each feature, and all bounds."""
        if len(bounds) != self.sizes.numel():
            count = self.sizes.numel()
            raise ValueError(f"block_bucketize_pos must have a tensor for each of {count} features, got {len(bounds)}")
        made = [as_index_vector(b, f"block_bucketize_pos[{t}]").to(torch.int64) for t, b in enumerate(bounds)]
        for t, bound in enumerate(made):
            if not 1 <= bound.numel() <= self.buckets + 1:
                raise ValueError(
                    f"block_bucketize_pos[{t}] must have at most my_size + 1 entries, {self.buckets + 1}, and at least "
                    f"1, got {bound.numel()}"
                )
            if is_on_host(bound) and (int(bound[0]) != 0 or not bool((bound.diff() >= 0).all())):
                raise ValueError(
                    f"block_bucketize_pos[{t}] must start with 0 and never decrease, got {bound.tolist()!s:.80}"
                )
        flat = torch.cat(made)
        starts = torch.tensor([0, *(b.numel() for b in made)], dtype=torch.int64).cumsum(0).to(flat.device)
        return starts, flat.index_select(0, starts[1:] - 1), flat


def _per_feature(given: torch.Tensor, features: int, name: str) -> torch.Tensor:
    vector = as_index_vector(given.flatten(), name).to(torch.int64)
    if vector.numel() != features:
        raise ValueError(f"{name} must have an entry for each of the {features} features, got {vector.numel()}")
    return vector


def _unsigned_divmod(ids: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return quotient and remainder of indices that are read as unsigned integers; both are int64, wrapped around."""
    if ids.dtype == torch.int32:
        wide = ids.to(torch.int64) & 0xFFFFFFFF
        quotient = wide.div(by, rounding_mode="floor")
        return quotient, wide - quotient * by
    quotient = ids.div(by, rounding_mode="floor")
    rest = ids - quotient * by
    # A negative index i stands for i + 2⁶⁴, and 2⁶⁴ = 2 · (2⁶³ − 1) + 2: quotient and remainder of 2⁶⁴ are added.
    most = torch.full_like(by, 2**63 - 1)
    half = most.div(by, rounding_mode="floor")
    left = (most - half * by) * 2 + 2
    whole = left.div(by, rounding_mode="floor")
    wrapped = rest + left - whole * by
    carry = (wrapped >= by).to(torch.int64)
    negative = ids < 0
    return (
        torch.where(negative, quotient + half * 2 + whole + carry, quotient),
        torch.where(negative, wrapped - carry * by, rest),
    )


def _sorted(
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    bucket: torch.Tensor,
    moved: torch.Tensor,
    buckets: int,
    weights: torch.Tensor | None,
    bucketize_pos: bool,
    sequence: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Sort everything by bucket; bags are in order already, and stay in order within each bucket."""
    order = _order(bucket, buckets)
    cells = _bag_of_values(offsets, moved.numel()).add_(bucket.to(torch.int64).mul_(lengths.numel()))
    counts = _counts(cells, buckets * lengths.numel()).to(lengths.dtype)
    positions = where = None
    if bucketize_pos:
        positions = offsets_range(offsets, moved.numel()).index_select(0, order).to(moved.dtype)
    if sequence:
        here = torch.arange(moved.numel(), dtype=moved.dtype, device=moved.device)
        where = torch.empty_like(moved).scatter_(0, order, here)
    carried = None if weights is None else take(weights, Rows(order))
    return counts, moved.index_select(0, order), carried, positions, where


def _order(bucket: torch.Tensor, buckets: int) -> torch.Tensor:
    """Return the stable order that sorts values by bucket; keys of few bits are sorted by counting, which is fast."""
    small = torch.uint8 if buckets <= 2**8 else torch.int16 if buckets <= 2**15 else torch.int64
    keys = bucket.to(small)
    if is_on_host(keys):
        return torch.from_numpy(host.array(keys).argsort(kind="stable"))
    return torch.sort(keys, stable=True).indices


def _counts(cells: torch.Tensor, count: int) -> torch.Tensor:
    """Return how often each number below `count` occurs among the cells."""
    if is_on_host(cells):
        return torch.bincount(cells, minlength=count)
    return torch.zeros(count, dtype=torch.int64, device=cells.device).index_add_(0, cells, torch.ones_like(cells))
