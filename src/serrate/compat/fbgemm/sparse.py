"""This module permutes sparse features, each of which is a batch of bags, and finds distinct indices as FBGEMM does."""

from __future__ import annotations

import torch

from serrate.compat.fbgemm.picked_rows import check_rows, check_weights, cut, within
from serrate.compat.fbgemm.selecting import selected
from serrate.eager.picking import Runs, complete, is_on_host, take
from serrate.errors import RaggednessError
from serrate.native import rows as library
from serrate.tensor import host
from serrate.tensor.offsets import as_count, as_index_vector, check_offsets, cut_by_offsets
from serrate.tensor.partition import Partition


def permute_2D_sparse_data(
    permute: torch.Tensor,
    lengths: torch.Tensor,
    values: torch.Tensor,
    weights: torch.Tensor | None = None,
    permuted_lengths_sum: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return (lengths, values, weights) of the features at `permute`, which may leave out or repeat features.

    `lengths` [T, B] cut `values` [N, ...] and `weights` [N, ...], feature by feature. `permuted_lengths_sum`, if given,
    must be the number of permuted values; on a device it saves a wait. If lengths or features on a device are wrong, a
    later call raises the error.

    Unlike in FBGEMM, `permute` may be int64, values and weights may have any dtype and any number of axes, and
    gradients are also right if a feature is repeated or left out.

    >>> lengths = torch.tensor([[1, 2], [0, 3]])
    >>> permute_2D_sparse_data(torch.tensor([1, 0]), lengths, torch.arange(6))
    (tensor([[0, 3],
            [1, 2]]), tensor([3, 4, 5, 0, 1, 2]), None)
    """
    if lengths.ndim != 2:
        raise RaggednessError(f"lengths must be 2-D, features × samples, got shape {list(lengths.shape)}")
    check_rows(values, lengths)
    check_weights(weights, values)
    order = as_index_vector(permute, "permute")
    bounds = cut(as_index_vector(lengths.flatten(), "lengths"), values.shape[0])
    features, samples = lengths.shape
    bounds = bounds[::samples].contiguous() if samples else bounds.new_zeros(features + 1)  # [T + 1]
    trained = values.requires_grad or (weights is not None and weights.requires_grad)
    once = trained and is_on_host(order) and len(set(order.tolist())) == order.numel()
    names = ("permute", "features", "permuted_lengths_sum")
    runs = selected(bounds.diff(), bounds, order, permuted_lengths_sum, names, once)
    moved = None if weights is None else take(weights, runs)
    order = order if is_on_host(order) else order.clamp(0, max(features - 1, 0))
    return lengths.index_select(0, order), take(values, runs), moved


def expand_into_jagged_permute(
    permute: torch.Tensor, input_offset: torch.Tensor, output_offset: torch.Tensor, output_size: int
) -> torch.Tensor:
    """Return the permutation of bags that a permutation of features stands for.

    Bag output_offset[i] + b of the result comes from bag input_offset[permute[i]] + b. `input_offset` and
    `output_offset` are the offsets of features among bags, before and after the permutation; both must agree with
    `permute`, and `output_size` must be the last of `output_offset`. The result has the dtype of `input_offset`. If
    offsets or features on a device are wrong, a later call raises the error, and the result is undefined.

    >>> expand_into_jagged_permute(torch.tensor([1, 0]), torch.tensor([0, 2, 5]), torch.tensor([0, 3, 5]), 5)
    tensor([2, 3, 4, 0, 1])
    """
    made = library.expand(permute, input_offset, output_offset, output_size)
    if made is not None:
        return made
    size = as_count(output_size, "output_size")
    source = as_index_vector(input_offset, "input_offset")
    places = as_index_vector(output_offset, "output_offset")
    order = as_index_vector(permute, "permute")
    if not source.numel():
        raise RaggednessError("input_offset must have one entry more than there are features, so at least 1; got none")
    order = within(order, source.numel() - 1, "permute", "features")
    if places.numel() != order.numel() + 1:
        raise RaggednessError(
            f"output_offset must have one entry more than permute, {order.numel() + 1}, got {places.numel()}"
        )
    picked = source.diff().index_select(0, order)
    if is_on_host(source) and is_on_host(places) and is_on_host(order):
        _check_places(source, picked, places, size)
    return Runs(source.index_select(0, order).to(torch.int64), picked, size).index.to(source.dtype)


def _check_places(source: torch.Tensor, picked: torch.Tensor, places: torch.Tensor, size: int) -> None:
    """Raise an error unless `places` are the offsets of the features with `picked` bags, and `size` is the last."""
    check_offsets(source, None, "input_offset", "bags")
    ends, last = complete(picked).tolist(), places.tolist()
    if last != ends:
        raise RaggednessError(
            f"output_offset must be the offsets of the permuted features, {ends!s:.80}, got {last!s:.80}"
        )
    if size != ends[-1]:
        raise ValueError(f"output_size must be the last of output_offset, {ends[-1]}, got {size}")


def jagged_unique_indices(
    hash_size_cumsum: torch.Tensor, hash_size_offsets: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (lengths, offsets, unique indices, inverse) of the distinct indices of each table, in order.

    `offsets` [T · B + 1] cut `indices` [N] into B bags for each of T features; `hash_size_cumsum` [T + 1] says where
    the rows of a feature's table begin among all tables. `hash_size_offsets` [G + 1] cut the features into groups that
    share a table. The distinct indices of a group are counted together and dealt out evenly to its bags; the first bags
    take one more if the number is not divisible. So the lengths and offsets have one entry for each bag as before, in
    the dtype of `offsets`. `unique[inverse]` is `indices`, and the inverse is int64.

    FBGEMM has no CPU kernel for this function; Serrate has one. On a device this function waits for the number of
    distinct indices, as FBGEMM's does; if arguments on a device are wrong, a later call raises the error.

    >>> table = torch.tensor([0, 10, 20])
    >>> bags, indices = torch.tensor([0, 2, 3, 5, 5]), torch.tensor([7, 3, 7, 3, 3])
    >>> jagged_unique_indices(table, torch.tensor([0, 1, 2]), bags, indices)
    (tensor([1, 1, 1, 0]), tensor([0, 1, 2, 3, 3]), tensor([3, 7, 3]), tensor([1, 0, 1, 2, 2]))
    """
    indices = as_index_vector(indices, "indices")
    cumsum = as_index_vector(hash_size_cumsum, "hash_size_cumsum").to(torch.int64)
    groups = as_index_vector(hash_size_offsets, "hash_size_offsets").to(torch.int64)
    bags = as_index_vector(offsets, "offsets")
    features = cumsum.numel() - 1
    if features < 0:
        raise RaggednessError(
            "hash_size_cumsum must have one entry more than there are features, so at least 1; got none"
        )
    if bags.numel() < 1 or (bags.numel() - 1) % max(features, 1) or (not features and bags.numel() > 1):
        raise RaggednessError(
            f"offsets must have one entry more than there are bags, and the same number of bags for each of {features} "
            f"features, got {bags.numel()} entries"
        )
    batch = (bags.numel() - 1) // max(features, 1)
    ends = _tables(cumsum, groups, features)
    starts = cut_by_offsets(bags, indices.numel(), False, True, "offsets", "indices")[0].to(torch.int64)
    feature = _cut(starts[:: max(batch, 1)].contiguous(), indices.numel()).row_ids
    linear = _linear(indices, feature, cumsum, ends)
    distinct, inverse = torch.unique(linear, sorted=True, return_inverse=True)
    table = torch.searchsorted(cumsum, distinct, right=True) - 1
    unique = (distinct - cumsum.index_select(0, table)).to(indices.dtype)
    shares = _shares(distinct, cumsum, groups, batch)
    return shares.to(bags.dtype), complete(shares).to(bags.dtype), unique, inverse


def _tables(cumsum: torch.Tensor, groups: torch.Tensor, features: int) -> torch.Tensor:
    """Return for each feature where the table of its group ends.

    Tables and groups on the CPU are checked; those on a device are clamped.
    """
    if not groups.numel():
        raise RaggednessError(
            "hash_size_offsets must have one entry more than there are groups, so at least 1; got none"
        )
    if is_on_host(cumsum):
        check_offsets(groups, features, "hash_size_offsets", "features")
        if not bool((cumsum.diff() >= 0).all()) or int(cumsum[0]) < 0:
            raise RaggednessError(f"hash_size_cumsum must start with 0 and never decrease, got {cumsum.tolist()!s:.80}")
    group = _cut(groups, features).row_ids
    ends = groups.index_select(0, (group + 1).clamp(max=groups.numel() - 1)).clamp(0, features)
    return cumsum.index_select(0, ends)


def _cut(offsets: torch.Tensor, rows: int) -> Partition:
    """Return the partition of offsets that were checked if they lie on the CPU."""
    known = is_on_host(offsets)
    return Partition._of(offsets, rows, device_born=not known, exact=known)


def _linear(indices: torch.Tensor, feature: torch.Tensor, cumsum: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return indices as rows of all tables, laid end to end; each index must lie in its own table."""
    if not indices.numel() or not ends.numel():
        return indices.to(torch.int64)
    linear = indices + cumsum.index_select(0, feature)

    def error(i: int) -> IndexError:
        rows = int(ends[feature[i]] - cumsum[feature[i]])
        return IndexError(
            f"indices of feature {int(feature[i])} must lie in 0 .. {rows - 1}, the rows of its table, "
            f"but position {i} holds {int(indices[i])}"
        )

    host.defer(host.first_fault((indices < 0) | (linear >= ends.index_select(0, feature))), error)
    return linear


def _shares(distinct: torch.Tensor, cumsum: torch.Tensor, groups: torch.Tensor, batch: int) -> torch.Tensor:
    """Return for each bag how many of the distinct indices of its group it takes."""
    bounds = torch.searchsorted(distinct, cumsum).index_select(0, groups.clamp(0, cumsum.numel() - 1))
    bags = _cut(groups * batch, (cumsum.numel() - 1) * batch)
    here, size = bounds.diff(), bags.lengths.clamp(min=1)
    return bags.spread(here.div(size, rounding_mode="floor")) + (
        bags.positions_on(here.device) < bags.spread(here % size)
    )
