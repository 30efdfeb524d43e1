"""x[key] = value: write where x[key] reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.tensor import bits, broadcast, indexing, keys, plan
from serrate.tensor.partition import Partition

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def put(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value: write where x[key] reads. Raggedness never changes; the value broadcasts to what is there."""
    target = indexing.get(x, key)
    new = _as_values(value, target)
    if target.values.numel() == 0:
        return
    if _is_view_of(target.values, x.values):
        write(target.values, new)
        return
    if _is_view_of(new, x.values):  # x[:, ::-1] = x reads what it overwrites
        new = new.clone()
    # Index the numbers of the places instead of what they hold: the same key finds them, whatever its form.
    features = x.values.ndim - 1
    if _keeps_features(x, key):
        narrow = type(x)(x.values[(slice(None), *[slice(0, 1)] * features)], x.structure, x.order, x.team)
        places = indexing.get(narrow, key, plan.number).values
        where: tuple[torch.Tensor, ...] = (places.reshape(target.values.shape[: target.values.ndim - features]),)
    else:
        numbers = torch.arange(x.values.numel(), device=x.device).view(x.values.shape)
        places = indexing.get(type(x)(numbers, x.structure, x.order, x.team), key).values
        where = torch.unravel_index(places, x.values.shape) if x.values.ndim else (places,)
    new = new.to(x.dtype).expand(target.values.shape)
    if not all(p.is_exact for p in target.partitions):
        where, new = _without_undefined(x, target, where, new)
    bits.put(x.values if x.values.ndim else x.values.unsqueeze(0), where, new)


def _without_undefined(
    x: Tensor, target: Tensor, where: tuple[torch.Tensor, ...], new: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Rows past a device-born last offset must write nothing: they repeat the first row's write, or what is there."""
    level = target.structure.level(target.structure.whole)
    assert isinstance(level, Partition)
    total = level.offsets_on(x.device)[-1]
    rows = torch.arange(new.shape[0], device=x.device)
    rows = torch.where(rows < total, rows, 0)
    where = tuple(index[rows] for index in where)
    return where, bits.where(total > 0, new[rows], bits.index(x.values, where))


def _keeps_features(x: Tensor, key: Any) -> bool:
    """Whether the key selects on packed axes only and the features come last, so that whole rows are written."""
    packed = len(x.structure.axes)
    if not x.is_ragged or list(x.order[packed:]) != list(range(packed, x.ndim)):
        return False
    entries = key if isinstance(key, tuple) else (key,)
    if any(e is None or (getattr(e, "ndim", 1) == 0 and getattr(e, "dtype", None) == torch.bool) for e in entries):
        return False
    if any(keys.is_ragged(e) for e in entries):
        return True
    per_axis, _ = indexing.spread(x, tuple(keys.read(e) for e in entries))
    return all(axis < packed for axis in per_axis)


def _value(value: Any, x: Tensor) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        return torch.as_tensor(np.asarray(value), device=x.device)
    return value


def _as_values(value: Any, target: Tensor) -> torch.Tensor:
    aligned = broadcast.align(_value(value, target), target)
    if isinstance(aligned, torch.Tensor):
        return aligned
    if target.dtype.is_complex or (target.dtype.is_floating_point and not isinstance(aligned, complex)):
        return bits.constant(
            complex(aligned) if target.dtype.is_complex else float(aligned), target.dtype, target.device
        )
    if isinstance(aligned, int):
        return bits.constant(aligned, target.dtype, target.device)
    return torch.as_tensor(aligned, device=target.device)


def write(place: torch.Tensor, new: Any, non_blocking: bool = False) -> None:
    """Overwrite `place`, reading all of `new` first where both may be the same memory."""
    if isinstance(new, torch.Tensor) and _is_view_of(new, place):
        new = new.clone()
    place.copy_(torch.as_tensor(new, dtype=place.dtype, device=place.device), non_blocking=non_blocking)


def _is_view_of(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both see one memory, by what torch remembers of views (function transforms hide storage itself)."""
    base, other_base = tensor._base, other._base
    return (tensor if base is None else base) is (other if other_base is None else other_base)
