"""Tools for tests of code that uses Serrate: prove that nothing waits for the device, and play a device on the CPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from serrate.tensor import host
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor

__all__ = ["device_born", "forbid_sync", "raise_deferred"]


def forbid_sync() -> AbstractContextManager[None]:
    """A context in which every wait of the host for a device is a `sr.errors.SyncError` (CUDA's own included).

    >>> import serrate as sr
    >>> x = sr.testing.device_born(sr.ragged([[1., 2.], [3.]]))
    >>> with sr.testing.forbid_sync():
    ...     x.max_lengths
    Traceback (most recent call last):
        ...
    serrate.errors.SyncError: asking for the longest of device-born lengths would make the host wait for cpu...
    """
    return host.forbidding_sync()


def device_born(x: Tensor, spare: int = 0) -> Tensor:
    """`x` as if its lengths had been computed on a device: the host knows none of them, and `spare` rows are undefined.

    >>> import serrate as sr
    >>> x = sr.testing.device_born(sr.ragged([[1., 2.], [3.]]), spare=1)
    >>> x.values.shape, x.partitions[0].is_host_born
    (torch.Size([4]), False)
    """
    if x.structure.cells(x.structure.whole[:-1]) == 0:
        spare = 0  # the host knows that no rows hold nothing
    rows = x.values.shape[0] + spare
    axes: list[Axis] = []
    for axis in x.structure.axes:
        if isinstance(axis, Ragged):
            p, whole = axis.partition, axis.parents == tuple(range(len(x.structure.axes) - 1))
            capacity = rows if whole else p.num_values
            made = Partition._of(p.offsets_on(x.device), capacity, device_born=True, exact=capacity == p.num_values)
            axis = Ragged(made, axis.parents)
        axes.append(axis)
    undefined = x.values.new_full((spare, *x.values.shape[1:]), 97)
    return type(x)(torch.cat([x.values, undefined]), Structure(axes, rows), x.order, x.team)


def raise_deferred() -> None:
    """Wait for every deferred check (bad offsets, unequal raggedness on a device) and raise the first that failed."""
    host.raise_deferred(wait=True)
