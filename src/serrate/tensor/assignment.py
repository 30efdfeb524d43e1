"""x[key] = value: write where x[key] reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.tensor import abstract, bits, broadcast, host, indexing, keys, plan, promotion

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def setitem(x: Tensor, key: Any, value: Any, /) -> None:
    """x[key] = value: write where x[key] reads. Raggedness never changes; the value broadcasts to what is there.

    Python's numbers, lists of them and numpy arrays must fit an integer dtype; integers of a tensor of another dtype
    may wrap around, as in torch. Complex numbers go into complex tensors only.

    >>> import serrate as sr
    >>> x = sr.ragged([[1, 2], [], [3]])
    >>> x[:, :1] = 0
    >>> x.tolist()
    [[0, 2], [], [0]]
    """
    target = indexing.get(x, key)
    new = _as_values(value, target)
    if target.values.numel() == 0 or x.values.numel() == 0:  # If x has no elements, the target is undefined.
        return
    if abstract.current() is not None:  # A write changes elements, and tensors of an abstract run have none.
        return
    if shares_memory(target.values, x.values):
        write(target.values, new)
        return
    if shares_memory(new, x.values):  # The value may share memory with x: `x[:, ::-1] = x` reads what it overwrites.
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
    if target.structure.is_exact:
        bits.put(x.values if x.values.ndim else x.values.unsqueeze(0), where, new)
    else:
        _put_defined(x.values, target, where, new)


def _put_defined(values: torch.Tensor, target: Tensor, where: tuple[torch.Tensor, ...], new: torch.Tensor) -> None:
    """Write the defined rows alone: others repeat the first row's write or, without a defined row, what is there."""
    total = target.structure.defined_cells(target.structure.whole)
    total = torch.full((), total, device=values.device) if isinstance(total, int) else total
    undefined = torch.arange(new.shape[0], device=values.device) >= total
    rows = torch.where(undefined, 0, torch.arange(new.shape[0], device=values.device))
    where = tuple(index[rows] for index in where)
    written = bits.where(total > 0, bits.take(new, rows), bits.index(values, where))
    written = bits.where(undefined.view(-1, *[1] * (new.ndim - 1)), written.detach(), written)
    before = values.clone() if torch.is_grad_enabled() and (values.requires_grad or new.requires_grad) else None
    bits.put(values, where, written)
    if before is not None:  # Without a defined row x stays as it was, and so does its gradient.
        values.copy_(torch.where(total > 0, values, before))


def _keeps_features(x: Tensor, key: Any) -> bool:
    """Whether x is stored as it is seen and the key selects on packed axes only, so that whole rows are written."""
    packed = len(x.structure.axes)
    if not x.is_ragged or x.order != tuple(range(x.ndim)):
        return False
    entries = key if isinstance(key, tuple) else (key,)
    if any(e is None or (getattr(e, "ndim", 1) == 0 and getattr(e, "dtype", None) == torch.bool) for e in entries):
        return False
    if any(keys.is_ragged(e) for e in entries):
        return all(e.ndim <= packed for e in entries)
    per_axis, _ = indexing.spread(x, tuple(keys.read(e) for e in entries))
    return all(axis < packed for axis in per_axis)


def _value(value: Any, x: Tensor) -> Any:
    if not isinstance(value, (list, tuple, np.ndarray)):
        return value
    given = np.asarray(value)
    if given.dtype.kind == "f" and x.dtype == torch.uint64 and not isinstance(value, np.ndarray):
        # numpy makes floats of a list that holds both negative integers and integers above the greatest int64.
        exact = np.asarray(value, dtype=object)
        given = exact if all(isinstance(number, int) for number in exact.flat) else given
    return torch.as_tensor(_held(given, x.dtype), device=x.device)


def _held(given: np.ndarray[Any, Any], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    """Numbers of the host, or a ValueError if an integer dtype does not hold one; fractions are cut off."""
    if dtype in promotion.INTEGERS and given.dtype.kind in "fiuO":
        limits, whole = torch.iinfo(dtype), np.trunc(given) if given.dtype.kind == "f" else given
        # The greatest number plus 1: a float cannot hold the greatest int64, and rounds it up to this.
        bad = ~((whole >= limits.min) & (whole < limits.max + 1)).astype(bool)
        if bad.any():
            raise ValueError(f"{given[bad].flat[0]!s} does not fit {dtype}")
        # numpy has two types of the name uint64, and torch knows one of them.
        if given.dtype == object or given.dtype.char == "Q":
            return given.astype(np.uint64 if dtype == torch.uint64 else np.int64)
    elif given.dtype == object and all(isinstance(number, (int, float)) for number in given.flat):
        return given.astype(np.float64)
    return given


def _as_values(value: Any, target: Tensor) -> torch.Tensor:
    given, dtype = _value(value, target), target.dtype
    while getattr(given, "ndim", 0) > target.ndim and given.shape[0] == 1:  # as in numpy and torch
        given = given[0]
    aligned = broadcast.align(given, target)
    if isinstance(aligned, torch.Tensor):
        promotion.require_whole(aligned.dtype, dtype)
        return aligned
    if isinstance(aligned, complex):
        promotion.require_whole("a complex number", dtype)
    if isinstance(aligned, float) and dtype in promotion.INTEGERS:
        if not math.isfinite(aligned):
            raise ValueError(f"{aligned} does not fit {dtype}")
        aligned = int(aligned)
    elif dtype == torch.bool:
        aligned = bool(aligned)
    return bits.constant(promotion.as_number(aligned, dtype), dtype, target.device)


def write(place: torch.Tensor, new: Any, non_blocking: bool = False) -> None:
    """Overwrite `place`, reading all of `new` first where both may be the same memory."""
    if isinstance(new, torch.Tensor) and shares_memory(new, place):
        new = new.clone()
    place.copy_(torch.as_tensor(new, dtype=place.dtype, device=place.device), non_blocking=non_blocking)


def shares_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share memory. Where transforms hide the memory, what they are views of tells."""
    if not (host.stands_in(tensor) or host.stands_in(other)):
        return bool(tensor.untyped_storage()._cdata == other.untyped_storage()._cdata)
    base, other_base = tensor._base, other._base
    return (tensor if base is None else base) is (other if other_base is None else other_base)
