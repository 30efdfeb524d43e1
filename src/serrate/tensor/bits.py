"""Moving rows of any dtype. Some dtypes have no kernels in torch; their rows move as integers of the same bits."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Any

import torch

from serrate.tensor import abstract

_CARRIERS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def as_carrier(values: torch.Tensor) -> torch.Tensor:
    """The bits of `values` in a dtype that all copying kernels of torch know. Only dtypes without gradients change."""
    carrier = torch.uint8 if values.dtype.itemsize == 1 and values.is_floating_point() else _CARRIERS.get(values.dtype)
    return values if carrier is None else values.view(carrier)


def _back(moved: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # view(dtype) loses gradients, even if the dtype is the same.
    return moved if moved.dtype == dtype else moved.view(dtype)


def take(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rows of `values` at `rows`."""
    return _back(as_carrier(values).index_select(0, rows), values.dtype)


def index(values: torch.Tensor, key: tuple[Any, ...], flips: Sequence[int] = ()) -> torch.Tensor:
    """values[key], the axes `flips` reversed first."""
    carried = as_carrier(values)
    return _back((carried.flip(tuple(flips)) if flips else carried)[key], values.dtype)


def put(base: torch.Tensor, where: tuple[torch.Tensor, ...], values: torch.Tensor) -> torch.Tensor:
    """`base` with `values`, of its dtype, written to `where` in place."""
    as_carrier(base).index_put_(where, as_carrier(values))
    return base


def placed(base: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A copy of `base` in which the rows that `rows` numbers are `values`."""
    return _back(as_carrier(base).index_copy(0, rows, as_carrier(values)), values.dtype)


def padded(count: int, rows: torch.Tensor, values: torch.Tensor, padding: Any) -> torch.Tensor:
    """`count` rows that hold `padding`, but for those that `rows` numbers, which are `values`."""
    filling = constant(padding, values.dtype, values.device)
    carried, shape = as_carrier(values), (count, *values.shape[1:])
    # -0.0 equals 0, but has other bits.
    plain = not isinstance(padding, complex) and padding == 0 and math.copysign(1, padding) > 0
    base = carried.new_zeros(shape) if plain else carried.new_empty(shape).copy_(as_carrier(filling))
    if torch.is_grad_enabled() and carried.requires_grad:
        return base.index_copy_(0, rows, carried)  # Its gradient is index_select, which is faster.
    return _back(base.index_put_((rows,), carried), values.dtype)  # Where no gradient is asked for, this writes faster.


def where(condition: torch.Tensor, values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`values` where the condition holds, else `other` of the same dtype."""
    return _back(torch.where(condition, as_carrier(values), as_carrier(other)), values.dtype)


def constant(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`value` as a 0-d tensor, or a ValueError if the dtype cannot hold it."""
    if abstract.current() is not None:  # A type does not say whether a number fits.
        return torch.empty((), dtype=dtype, device=device)
    try:
        made = torch.full((), value, dtype=dtype, device="cpu")
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ValueError(f"{value!r} does not fit {dtype}: {error}") from None
    if cmath.isinf(made.item()) and not cmath.isinf(value):
        raise ValueError(f"{value!r} does not fit {dtype}, which would make {made.item()} of it")
    whole = not made.is_floating_point() and not made.is_complex() and dtype != torch.bool
    if whole and made.item() != value:
        raise ValueError(f"{value!r} does not fit {dtype}, which would make {made.item()} of it")
    return made.to(device, non_blocking=True)
