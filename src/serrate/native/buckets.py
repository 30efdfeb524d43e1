"""This module sorts the indices of sparse features into buckets on the CPU, by buckets.cpp.

torch has no call that does so: by its calls buckets are computed, sorted and counted in about twenty passes.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import torch

from serrate.native.loading import Routines, are_vectors, empty, load

_INTEGERS = {torch.int32: "int32", torch.int64: "int64"}
_MOST = 2**31  # buckets


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    kinds = product(_INTEGERS.values(), repeat=2)
    return load("buckets.cpp", [f"bucketize_{index}_{length}" for index, length in kinds])


class Features(NamedTuple):
    """What says how the indices of each feature fall into buckets; all tensors but `keep` are int64.

    Feature t has the bags ends[t] to ends[t + 1], and buckets of joined[t] blocks with sizes[t] rows each. If there are
    bounds, its buckets have the bounds starts[t] to starts[t + 1] among all bounds. `keep` says which features keep
    their indices as they are.
    """

    ends: torch.Tensor
    sizes: torch.Tensor
    joined: torch.Tensor
    keep: torch.Tensor
    buckets: int
    bounds: torch.Tensor | None = None
    starts: torch.Tensor | None = None


class Sorted(NamedTuple):
    """The indices of sparse features, bucket by bucket, and in each bucket as they came."""

    counts: torch.Tensor
    """How many indices of each bag fell into each bucket, buckets first, as one vector."""
    moved: torch.Tensor
    """The places of the indices in their buckets."""
    order: torch.Tensor | None
    """For each of these the number of its index, int64."""
    positions: torch.Tensor | None
    """For each of these the position of its index in its bag."""
    where: torch.Tensor | None
    """For each index, where it went."""


def bucketize(
    indices: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    features: Features,
    order: bool,
    positions: bool,
    where: bool,
) -> Sorted | None:
    """Return the indices sorted by bucket, with what is asked for; None where there is no compiled code for them.

    `lengths` cut the indices into bags, and `offsets`, int64, are their offsets. Everything was checked before.
    """
    library, (ends, sizes, joined, keep, buckets, bounds, starts) = _library(), features
    given = (indices, lengths, offsets, ends, sizes, joined, keep)
    if library is None or buckets >= _MOST or not are_vectors(*given):
        return None
    if bounds is not None and not are_vectors(bounds, starts):
        return None
    counts, moved = empty((buckets * lengths.numel(),), lengths.dtype), empty(indices.shape, indices.dtype)
    made = Sorted(
        counts,
        moved,
        empty(indices.shape, torch.int64) if order else None,
        torch.empty_like(moved) if positions else None,
        torch.empty_like(moved) if where else None,
    )
    failed = library[f"bucketize_{_INTEGERS[indices.dtype]}_{_INTEGERS[lengths.dtype]}"](
        indices.data_ptr(), offsets.data_ptr(), lengths.numel(), ends.data_ptr(), sizes.numel(), sizes.data_ptr(),
        joined.data_ptr(), keep.data_ptr(), *(0 if each is None else each.data_ptr() for each in (bounds, starts)),
        buckets, *(0 if each is None else each.data_ptr() for each in made),
    )  # fmt: skip
    return None if failed else made
