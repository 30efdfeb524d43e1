"""This module has tools for tests of code that uses Serrate.

They prove that nothing waits for a device, and let tensors on the CPU behave as if they came from a device.
"""

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
    """Return a context in which every wait of the host for a device is a `sr.errors.SyncError`, also waits by CUDA.

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
    """Return `x` as if a device had computed its lengths: the host knows none of them, and `spare` rows are undefined.

    >>> import serrate as sr
    >>> x = sr.testing.device_born(sr.ragged([[1., 2.], [3.]]), spare=1)
    >>> x.values.shape, x.partitions[0].is_host_born
    (torch.Size([4]), False)
    """
    if x.structure.cells(x.structure.whole[:-1]) == 0:
        spare = 0  # If there are no rows, the host knows that there are no values.
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
    """Wait for all deferred checks, of offsets or raggedness on a device, and raise the error of the first failure."""
    host.raise_deferred(wait=True)
