"""view_as_nested: packed data seen as ragged, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from serrate.errors import AxisError, OffsetsDeviceError, RaggednessError
from serrate.tensor import abstract, host
from serrate.tensor.construct import as_torch, level_partition
from serrate.tensor.offsets import as_index_vector, check_offsets
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import untraced


@untraced
def view_as_nested(data: Any, offsets: Any, ragged_dim: int = 0, *, validate: bool = True, copy: bool = True) -> Tensor:
    """A view of `data` in which axis `ragged_dim` is cut: component axis at `ragged_dim`, ragged axis right behind it.

    1-D offsets cut alike for every outer index. Offsets `[outer…, K+1]` give each outer index a cut of its own.

    >>> import torch, serrate as sr
    >>> x = sr.view_as_nested(torch.zeros(325, 512), [0, 127, 127, 325])
    >>> x.shape
    (3, Ragged([127, 0, 198]), 512)
    >>> x.flat().values.shape
    torch.Size([325, 512])
    """
    source, offsets = as_torch(data), as_torch(offsets)
    if not isinstance(source, torch.Tensor):
        raise TypeError(f"data must be a tensor, got {type(data).__name__}")
    if not -source.ndim <= ragged_dim < source.ndim:
        raise AxisError(f"ragged_dim {ragged_dim} is out of range for data of shape {list(source.shape)}")
    k = ragged_dim % source.ndim
    size = source.shape[k]
    if isinstance(offsets, torch.Tensor) and offsets.ndim > 1 and offsets.device != source.device:
        raise OffsetsDeviceError(f"offsets lie on {offsets.device}, data on {source.device}")
    if isinstance(offsets, (list, tuple)) and offsets and isinstance(offsets[0], (list, tuple)):
        offsets = _table(offsets)
    if isinstance(offsets, np.ndarray) and offsets.ndim > 1:
        offsets = _table(offsets)
    if isinstance(offsets, torch.Tensor) and offsets.ndim > 1:
        return _own_cut_each(source, offsets, k, validate)
    partition = level_partition(offsets, size, "offsets of level 0", source, validate, copy)
    structure = Structure((partition.num_components, Ragged(partition)))
    return Tensor(source.movedim(k, 0), structure, (*range(2, k + 2), 0, 1, *range(k + 2, source.ndim + 1)))


def _table(offsets: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(offsets))  # This lies on the host, whatever torch's default device is.
    except (TypeError, ValueError):
        raise RaggednessError(f"offsets must be 1-D or [outer…, K+1] integers, got {offsets!r:.80}") from None


def _own_cut_each(source: torch.Tensor, offsets: torch.Tensor, k: int, validate: bool) -> Tensor:
    """[outer…, N, …] with offsets [outer…, K+1]: shape [outer…, K, ragged, …], ragged on all axes before it."""
    outer, size = source.shape[:k], source.shape[k]
    if k == 0 or abstract.unlike(offsets.shape[:-1], outer) or offsets.shape[-1] == 0:
        own = f" or [{', '.join(map(str, outer))}, K+1]" if k else ""
        raise RaggednessError(
            f"offsets must be 1-D{own} to cut axis {k} of data of shape {list(source.shape)}, got {list(offsets.shape)}"
        )
    components = offsets.shape[-1] - 1
    flat = as_index_vector(offsets.reshape(-1), "offsets of level 0").view(-1, components + 1)
    if validate:
        _check_cuts(flat, size)
    lengths = torch.diff(flat, dim=1).reshape(-1)
    partition = Partition.from_lengths(lengths, flat.shape[0] * size, validate=False)
    partition.declare_groups(components, size)
    try:
        values = source.view(flat.shape[0] * size, *source.shape[k + 1 :]) if k else source
    except RuntimeError:
        raise ValueError(
            f"axes 0 … {k} of data, shape {list(source.shape)}, strides {source.stride()}, are not one contiguous run, "
            f"so no view with a cut for each outer index exists; pass data.contiguous()"
        ) from None
    return Tensor(values, Structure((*outer, components, Ragged(partition, range(k + 1)))))


def _check_cuts(flat: torch.Tensor, size: int) -> None:
    """A RaggednessError, now or deferred, unless every row of `flat` holds offsets that cut `size` values."""
    bad = torch.zeros_like(flat, dtype=torch.bool)
    bad[:, 0] = flat[:, 0] != 0
    bad[:, 1:] = flat[:, 1:] < flat[:, :-1]
    bad[:, -1] |= flat[:, -1] != size

    def error(place: int) -> RaggednessError:
        i = place // flat.shape[1]
        try:
            check_offsets(flat[i].cpu(), size, f"offsets of level 0, outer index {i},", "values")
        except RaggednessError as found:
            return found
        return RaggednessError(f"offsets of level 0, outer index {i}, do not cut {size} values")

    host.defer(host.first_fault(bad.flatten()), error)
