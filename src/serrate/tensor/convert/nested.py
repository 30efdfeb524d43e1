"""This module converts from and to torch.nested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import RaggednessError
from serrate.tensor.combine import exact
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


@untraced
def from_nested(nt: torch.Tensor) -> Tensor:
    """Return a `torch.nested` tensor as a Tensor; the jagged layout is not copied, and gradients flow.

    >>> import torch, serrate as sr
    >>> nt = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 2, 5]))
    >>> sr.from_nested(nt).tolist()
    [[0.0, 1.0], [], [2.0, 3.0, 4.0]]
    """
    from serrate.tensor.construct import from_rows
    from serrate.tensor.tensor import Tensor

    if not isinstance(nt, torch.Tensor) or not nt.is_nested:
        raise TypeError(f"from_nested takes a torch.nested tensor, got {type(nt).__name__}")
    if nt.layout != torch.jagged:
        return from_rows(list(nt.unbind()))
    jagged: Any = nt
    ragged_dim: int = jagged._ragged_idx
    values = jagged.values().movedim(ragged_dim - 1, 0)
    offsets = jagged.offsets()
    lengths = jagged.lengths()
    if lengths is None:
        partition = Partition.from_offsets(offsets, values.shape[0])
    else:  # There are gaps between the rows, so they are packed.
        partition = Partition.from_lengths(lengths)
        device = values.device
        starts = offsets[:-1].to(torch.int64)[partition.row_ids_on(device)]
        values = values.index_select(0, starts + partition.positions_on(device))
    order = (0, *range(2, ragged_dim + 1), 1, *range(ragged_dim + 1, values.ndim + 1))
    return Tensor(values, Structure((partition.num_components, Ragged(partition))), order)


def to_nested(x: Tensor) -> torch.Tensor:
    """Return the tensor as a `torch.nested` tensor in the jagged layout, without a copy; gradients flow."""
    if len(x.structure.axes) != 2 or x.order[0] != 0:
        raise RaggednessError(
            f"torch.nested holds one ragged axis, on the batch axis in front; got shape {x.shape}; "
            f"combine or pad other levels"
        )
    x = exact(x)
    (partition,) = x.partitions
    values = x.values.permute([0 if c == 1 else c - 1 for c in x.order[1:]])
    known: dict[str, Any] = {}
    if partition.is_host_born and partition.num_components:
        known = {"max_seqlen": partition.max_length, "min_seqlen": int(partition.lengths.min())}
    offsets = partition.offsets_on(x.device)
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=x.order.index(1), **known)
