"""This module sorts the indices of sparse features into buckets, one for each part of a table, as FBGEMM does."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from serrate.compat.fbgemm.picked_rows import check_rows, check_weights, cut
from serrate.eager.buckets import bucketized
from serrate.eager.picking import Rows, is_on_host, take
from serrate.errors import RaggednessError
from serrate.native.buckets import Features
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
    buckets = as_count(my_size, "my_size")
    if not buckets:
        raise ValueError("my_size must be 1 or more, got 0")
    offsets = cut(lengths, ids.numel())
    sizes = as_index_vector(block_sizes.flatten(), "block_sizes").to(torch.int64)
    if is_on_host(sizes) and sizes.numel() and int(sizes.min()) < 0:
        raise ValueError(f"block_sizes must be 0 or more, got {sizes.tolist()!s:.80}")
    ends = _ends(batch_size_per_feature, sizes.numel(), lengths)
    joined, keep = _joined(total_num_blocks, sizes, buckets), _kept(keep_orig_idx, keep_orig_idx_per_feature, sizes)
    bounds = _bounds(block_bucketize_pos, sizes.numel(), buckets) if block_bucketize_pos else (None, None)
    features = Features(ends, sizes, joined, keep, buckets, *bounds)
    made = bucketized(ids, lengths, offsets, features, weights is not None, bucketize_pos, sequence)
    carried = None if weights is None or made.order is None else take(weights, Rows(made.order))
    return made.counts, made.moved, carried, made.positions, made.where


def _ends(batches: torch.Tensor | None, features: int, lengths: torch.Tensor) -> torch.Tensor:
    """Return the offsets of the features among the bags; each has as many bags unless `batches` say how many."""
    count = lengths.numel()
    if batches is not None:
        batches = _per_feature(batches, features, "batch_size_per_feature")
        if is_on_host(batches):
            cut_by_lengths(batches, count, True, "batch_size_per_feature")
        return offsets_from_lengths(batches, None).clamp(0, count)
    if count % features if features else count:
        raise RaggednessError(
            f"lengths must have the same number of bags for each of {features} features, got {count} bags"
        )
    return torch.arange(features + 1, device=lengths.device) * (count // max(features, 1))


def _joined(total: torch.Tensor | None, sizes: torch.Tensor, buckets: int) -> torch.Tensor:
    """Return for each feature of how many blocks a bucket consists."""
    if total is None:
        return torch.ones_like(sizes)
    total = _per_feature(total, sizes.numel(), "total_num_blocks")
    if is_on_host(total) and bool(((total < buckets) | (total % buckets != 0)).any()):
        raise ValueError(f"total_num_blocks must be multiples of my_size, {buckets}, got {total.tolist()!s:.80}")
    return total.div(buckets, rounding_mode="floor").clamp(min=1)


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


def _bounds(given: Sequence[torch.Tensor], features: int, buckets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bounds of all features as one vector, and where those of each feature start."""
    if len(given) != features:
        raise ValueError(f"block_bucketize_pos must have a tensor for each of {features} features, got {len(given)}")
    made = [as_index_vector(bounds, f"block_bucketize_pos[{t}]").to(torch.int64) for t, bounds in enumerate(given)]
    for t, bounds in enumerate(made):
        if not 1 <= bounds.numel() <= buckets + 1:
            raise ValueError(
                f"block_bucketize_pos[{t}] must have at most my_size + 1 entries, {buckets + 1}, and at least 1, got "
                f"{bounds.numel()}"
            )
        if is_on_host(bounds) and (int(bounds[0]) != 0 or not bool((bounds.diff() >= 0).all())):
            raise ValueError(
                f"block_bucketize_pos[{t}] must start with 0 and never decrease, got {bounds.tolist()!s:.80}"
            )
    flat = torch.cat(made)
    starts = torch.tensor([0, *(bounds.numel() for bounds in made)], dtype=torch.int64).cumsum(0).to(flat.device)
    return flat, starts


def _per_feature(given: torch.Tensor, features: int, name: str) -> torch.Tensor:
    vector = as_index_vector(given.flatten(), name).to(torch.int64)
    if vector.numel() != features:
        raise ValueError(f"{name} must have an entry for each of the {features} features, got {vector.numel()}")
    return vector
