"""From padded to packed: from_dense by lengths, offsets, masks or another tensor's structure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from serrate.errors import OffsetsDeviceError, RaggednessError
from serrate.tensor import abstract, bits
from serrate.tensor import dense as padded
from serrate.tensor.construct import as_torch, is_levels
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import untraced

Gather = Callable[[torch.Tensor, Structure, tuple[int, ...], Any], torch.Tensor]
"""A function that reads packed values for a structure and an order of axes out of a padded tensor. Where a row is
longer than the padded tensor, it gives padding."""


@untraced
def from_dense(
    dense: Any,
    *,
    lengths: Any = None,
    offsets: Any = None,
    mask: Any = None,
    like: Tensor | None = None,
    padding_value: Any = 0,
) -> Tensor:
    """A padded tensor packed: exactly one of `lengths`, `offsets`, `mask`, `like` says which entries are real.

    Rows longer than the padded extent read `padding_value` beyond it. A mask keeps its True entries in order; a tuple
    of masks cuts one level each, outermost first.

    >>> import torch, serrate as sr
    >>> d = torch.tensor([[1, 2, 0], [3, 0, 0]])
    >>> sr.from_dense(d, lengths=[2, 1]).tolist()
    [[1, 2], [3]]
    >>> sr.from_dense(d, mask=d != 2).tolist()
    [[1, 0], [3, 0, 0]]
    """
    return packed_by(padded.gather_from, dense, lengths, offsets, mask, like, padding_value)


def packed_by(
    gather: Gather, dense: Any, lengths: Any, offsets: Any, mask: Any, like: Tensor | None, padding_value: Any
) -> Tensor:
    """What `from_dense` gives, with rows read by `gather`."""
    given = [
        name
        for name, g in (("lengths", lengths), ("offsets", offsets), ("mask", mask), ("like", like))
        if g is not None
    ]
    if len(given) != 1:
        raise TypeError(
            f"from_dense needs exactly one of lengths, offsets, mask, like; got {' and '.join(given) or 'none'}"
        )
    full = _read(dense)
    if like is not None:
        if not isinstance(like, Tensor) or not like.is_ragged:
            raise TypeError(f"like must be a ragged sr.Tensor, got {type(like).__name__}")
        featureless = like.ndim == len(like.structure.axes)
        if full.ndim != like.ndim and not (featureless and full.ndim > like.ndim):
            raise RaggednessError(f"dense must have the {like.ndim} axes of like, got shape {list(full.shape)}")
        order = (*like.order, *range(like.ndim, full.ndim))
        return Tensor(gather(full, like.structure, order, padding_value), like.structure, order)
    if mask is not None:
        return _from_masks(full, mask)
    what, levels = ("lengths", lengths) if offsets is None else ("offsets", offsets)
    levels = list(levels) if is_levels(levels) and len(levels) else [levels]
    make = Partition.from_lengths if offsets is None else Partition.from_offsets
    partitions = []
    for depth, level in enumerate(map(as_torch, levels)):
        name = f"{what} of level {depth}"
        if isinstance(level, torch.Tensor) and level.device != full.device:
            raise OffsetsDeviceError(f"{name} lie on {level.device}, dense on {full.device}")
        partitions.append(level if isinstance(level, Partition) else make(level, name=name))
    axes: list[Axis] = [partitions[0].num_components]
    axes += [Ragged(p, range(i + 1)) for i, p in enumerate(partitions)]
    structure = Structure(axes).check()
    if full.ndim < len(axes):
        raise RaggednessError(
            f"dense must have at least {len(axes)} axes for {len(partitions)} levels, got {list(full.shape)}"
        )
    return Tensor(gather(full, structure, tuple(range(full.ndim)), padding_value), structure)


def _read(given: Any) -> torch.Tensor:
    """Numbers as a torch tensor; a tensor stays where it is, whatever torch's default device."""
    given = as_torch(given)
    return given if isinstance(given, torch.Tensor) else torch.as_tensor(given)


def _from_masks(full: torch.Tensor, mask: Any) -> Tensor:
    """A tensor with one ragged axis per mask. Each mask is read at the places that the masks before it keep."""
    given = mask if isinstance(mask, tuple) else (mask,)
    masks = [_read(m) for m in given]
    if not masks:
        raise TypeError("mask must be a boolean tensor or a tuple of at least one, got ()")
    covered = 1
    for m in masks:
        if m.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, got {m.dtype}")
        if m.device != full.device:
            raise OffsetsDeviceError(f"mask lies on {m.device}, dense on {full.device}")
        if m.ndim <= covered or abstract.unlike(m.shape, full.shape[: m.ndim]):
            raise RaggednessError(
                f"mask must have at least {covered + 1} axes (each of several one more than the one before), "
                f"those of dense, {list(full.shape)}, got {list(m.shape)}"
            )
        covered = m.ndim
    cells = torch.arange(1, device=full.device)  # These are the places of the padded tensor that are kept so far.
    axes: list[Axis] = []
    for m in masks:
        outer, size = m.ndim - 1, m.shape[-1]
        between = full.shape[len(axes) : outer]
        cells = _inside(cells, math.prod(between))
        held = m.reshape(math.prod(m.shape[:-1]), size)[cells]
        partition = Partition.from_lengths(held.sum(1), name="mask")
        axes += [*between, Ragged(partition, range(outer))]
        cells = _inside(cells, size)[abstract.places(held.flatten(), partition.num_values)]
    values = full.reshape(math.prod(full.shape[: len(axes)]), *full.shape[len(axes) :])
    return Tensor(bits.take(values, cells), Structure(axes).check())


def _inside(cells: torch.Tensor, size: int) -> torch.Tensor:
    """The places that lie in `cells` once each cell is divided into `size` places."""
    return (cells[:, None] * size + torch.arange(size, device=cells.device)).flatten()
