"""The same positions of every row of an axis, which may lack some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager.addresses import lengths_of
from serrate.eager.arguments import integers
from serrate.tensor import bits, broadcast, host, indexing, plan, select
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


def same_positions(x: Tensor, indices: Any) -> tuple[torch.Tensor, bool]:
    """The same positions for every row as a vector, and whether they are one number, so that the axis goes."""
    if isinstance(indices, int):
        indices = host.send(torch.tensor(indices, device="cpu"), x.device)
    elif isinstance(indices, (list, tuple, range)):
        listed = torch.tensor([*indices], dtype=None if len(indices) else torch.int64, device="cpu")
        indices = host.send(listed, x.device)
    index = integers(indices, "indices").torch().to(torch.int64)
    broadcast.require_one_device(x, index)
    if index.ndim > 1:
        raise ValueError(f"the same positions of every row are a vector, got indices of shape {list(index.shape)}")
    return index.reshape(-1), index.ndim == 0


def beside_axis(x: Tensor, axis: int, index: torch.Tensor) -> Tensor:
    """Positions along an axis of x, shaped to meet it."""
    return Tensor(index.view([-1 if a == axis else 1 for a in range(x.ndim)]))


def key_along(axis: int, entry: Any) -> tuple[Any, ...]:
    """The key of an entry of an axis, whole along those before it."""
    return (*[slice(None)] * axis, entry)


def take_features(x: Tensor, axis: int, index: torch.Tensor, fill: Any) -> Tensor:
    """Positions along a dimension of the values."""
    dim = x.order[axis] - len(x.structure.axes) + (1 if x.is_ragged else 0)
    size = x.values.shape[dim]
    at = torch.where(index < 0, index + size, index)
    bad = (at < 0) | (at >= size)

    def error(i: int) -> IndexError:
        return IndexError(f"index {int(index[i])} is out of range for axis {axis} with size {size}")

    values = x.values
    if fill is None:
        if size == 0 and index.numel():
            raise IndexError(f"axis {axis} with size 0 has no entry to take")
        host.defer(host.first_fault(bad), error)
    elif size == 0:
        values = bits.constant(fill, x.dtype, x.device).expand(
            [1 if d == dim else n for d, n in enumerate(values.shape)]
        )
    made = bits.index(values, (*[slice(None)] * dim, at.clamp(0, max(size - 1, 0))))
    if fill is not None:
        where = bad.view([-1 if d == dim else 1 for d in range(made.ndim)])
        made = bits.where(where, bits.constant(fill, x.dtype, x.device), made)
    return x._with(made)


@dataclass(frozen=True)
class _Reach(select.Pad):
    """The same positions of every row, missing ones filled: the axis becomes uniform."""

    index: torch.Tensor
    copies = None

    def source(self, at: plan.Place, device: torch.device) -> select.Cells:
        """For each new cell the old one, -1 if there is none."""
        index = host.send(self.index, device)
        rows = at.outer_cells(device)
        if rows.numel() == 0 or (isinstance(at.old, Partition) and at.old.num_components == 0):
            return torch.full((rows.numel() * self.size,), -1, device=device)
        have = lengths_of(at.old, rows.clamp(min=0)[:, None])
        missing = (index < -have) | (index >= have)
        return torch.where(missing, -1, at.on_grid(index).view(rows.numel(), self.size)).flatten()


def take_rows(x: Tensor, axis: int, index: torch.Tensor, fill: Any) -> Tensor:
    """Positions of an axis that ragged ones depend on: where it is too short, those are empty."""
    if fill is None:
        return indexing.get(x, key_along(axis, index))
    positions = plan.host_index(index, x.structure)
    walk = plan.Plan(x.structure, {x.order[axis]: _Reach(positions.numel(), positions)})
    return assemble(x, walk.read(x.values, fill), walk.result(), x.order)
