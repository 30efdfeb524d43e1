"""This module converts from and to torch's PackedSequence.

A PackedSequence is sorted by length and stores the first entries of all sequences, then the second entries, and so on.
A Tensor stores one row after the other, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import PackedSequence

from serrate.errors import RaggednessError
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


@untraced
def from_packed_sequence(packed: PackedSequence) -> Tensor:
    """Return a PackedSequence as `[B, ragged, …]`, with the rows in the order before packing.

    >>> import torch, serrate as sr
    >>> from torch.nn.utils.rnn import pack_sequence
    >>> packed = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    >>> sr.from_packed_sequence(packed).tolist()
    [[1, 2], [3, 4, 5]]
    """
    from serrate.tensor.tensor import Tensor

    if not isinstance(packed, PackedSequence):
        raise TypeError(f"from_packed_sequence takes a PackedSequence, got {type(packed).__name__}")
    steps = Partition.from_lengths(packed.batch_sizes, packed.data.shape[0], name="batch_sizes")
    rows = int(packed.batch_sizes[0]) if packed.batch_sizes.numel() else 0
    # Sequence b of the sorted sequences has an entry in every step that has more than b entries.
    falling = packed.batch_sizes.flip(0).contiguous()
    sorted_lengths = falling.numel() - torch.searchsorted(falling, torch.arange(rows, device=CPU), right=True)
    device = packed.data.device
    place = torch.arange(rows, device=CPU) if packed.unsorted_indices is None else packed.unsorted_indices.cpu()
    partition = Partition.from_lengths(sorted_lengths[place])
    time = steps.offsets_on(device)[:-1][partition.positions_on(device)]
    source = time + place.to(device)[partition.row_ids_on(device)]
    return Tensor(packed.data.index_select(0, source), Structure((rows, Ragged(partition))))


def to_packed_sequence(x: Tensor) -> PackedSequence:
    """Return a tensor `[B, ragged, …]` as a PackedSequence, which cannot hold empty sequences."""
    if len(x.structure.axes) != 2 or x.order != tuple(range(x.ndim)):
        raise RaggednessError(f"a PackedSequence holds [B, ragged, …], got shape {x.shape}")
    (partition,) = x.partitions
    lengths = torch.diff(partition.host_offsets("packing sequences by length"))
    if lengths.numel() == 0 or int(lengths.min()) == 0:
        which = f"row {int(lengths.argmin())} is empty" if lengths.numel() else "there are no rows"
        raise ValueError(f"a PackedSequence cannot hold empty sequences, but {which}")
    ordered, indices = lengths.to(torch.int64).sort(descending=True, stable=True)
    batch_sizes = lengths.numel() - torch.searchsorted(
        ordered.flip(0).contiguous(), torch.arange(int(ordered[0]), device=CPU), right=True
    )
    steps = Partition.from_lengths(batch_sizes)
    indices = indices.to(x.device)
    starts = partition.offsets_on(x.device)[:-1].to(torch.int64)[indices]
    source = starts[steps.positions_on(x.device)] + steps.row_ids_on(x.device)
    return PackedSequence(x.values.index_select(0, source), batch_sizes, indices, torch.argsort(indices))
