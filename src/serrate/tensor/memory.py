"""The memory of a tensor: to, clone, copy_, contiguous and detach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serrate.tensor import assignment, broadcast
from serrate.tensor.structure import Ragged, Structure

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def to(x: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
    """Like torch's `to`. Offsets that the host knows stay there; a device gets a copy when it first needs one.

    >>> import torch, serrate as sr
    >>> sr.ragged([[1, 2], []]).to(torch.float64).tolist()
    [[1.0, 2.0], []]
    """
    values = x.values.to(*args, **kwargs)
    structure = x.structure
    if values.device != x.device and not all(p.is_host_born for p in structure.partitions):
        axes = (
            Ragged(a.partition.moved(values.device), a.parents) if isinstance(a, Ragged) else a for a in structure.axes
        )
        structure = Structure(axes, structure.capacity)
    if values is x.values and structure is x.structure:
        return x
    return type(x)(values, structure, x.order, x.team)


def contiguous(x: Tensor, /) -> Tensor:
    """The same tensor with contiguous values, features stored in the order in which they are seen.

    >>> import torch, serrate as sr
    >>> sr.from_lengths(torch.zeros(4, 3).T, [1, 2]).contiguous().values.is_contiguous()
    True
    """
    packed = len(x.structure.axes)
    seen = [c for c in x.order if c >= packed] if x.is_ragged else []
    values = x.values.permute(0, *[c - packed + 1 for c in seen]) if seen else x.values
    if values.is_contiguous() and seen == sorted(seen):
        return x
    order = tuple(packed + seen.index(c) if c >= packed else c for c in x.order) if seen else x.order
    return type(x)(values.contiguous(), x.structure, order, x.team)


def clone(x: Tensor, /) -> Tensor:
    """A copy of the values; the partitions, which never change, are shared.

    >>> import serrate as sr
    >>> x = sr.ragged([[1, 2], []])
    >>> y = x.clone()
    >>> y.partitions[0] is x.partitions[0], y.values is x.values
    (True, False)
    """
    return x._with(x.values.clone())


def detach(x: Tensor, /) -> Tensor:
    """The same values without their history.

    >>> import serrate as sr
    >>> sr.ragged([[1.0, 2.0], []]).requires_grad_().detach().requires_grad
    False
    """
    return x._with(x.values.detach())


def copy_(x: Tensor, /, other: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite the values with those of `other`, which must broadcast to this shape.

    >>> import serrate as sr
    >>> sr.ragged([[1, 2], []]).copy_(7).tolist()
    [[7, 7], []]
    """
    assignment.write(x.values, broadcast.align(other, x), non_blocking)
    return x
