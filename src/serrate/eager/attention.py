"""One call of attention: its operands, read and checked, which keys a query sees, and how scores are scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from serrate.errors import AxisError, RaggednessError
from serrate.tensor import abstract
from serrate.tensor.broadcast import require_one_device
from serrate.tensor.rearrange import repeat
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor

Causal = bool | Literal["upper_left", "lower_right"]
Reach = tuple[int | None, int | None]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention: which keys a query sees, and how scores are scaled."""

    scale: float
    causal: Causal
    window: tuple[int, int] | None
    """How many keys before and after its own position a query sees; -1 for all."""
    biases: tuple[Any, ...]
    """What is added to scores [..., q, k]: -inf hides a key."""
    mask: Any
    """Which keys a query may see."""
    dropout: float

    @property
    def dense_mask(self) -> torch.Tensor | None:
        """The one mask or bias [q, k] of all rows, if nothing else is given and nobody asks for its gradient."""
        given = [x for x in (*self.biases, self.mask) if x is not None]
        if len(given) != 1:
            return None
        one = given[0].values if isinstance(given[0], Tensor) and not given[0].is_ragged else given[0]
        plain = isinstance(one, torch.Tensor) and one.ndim == 2 and not one.requires_grad
        return one if plain else None

    @property
    def fuses(self) -> bool:
        """Whether torch's kernels can compute this call."""
        return not self.dropout and ((not self.biases and self.mask is None) or self.dense_mask is not None)

    @property
    def reach(self) -> Reach:
        """How many keys before and behind its own position a query sees; None for all."""
        before, after = (None if side < 0 else side for side in self.window or (-1, -1))
        return before, 0 if self.causal else after


def within(queries: torch.Tensor, keys: torch.Tensor, reach: Reach) -> torch.Tensor | None:
    """Whether the keys at some positions are in reach of the queries at others; None where all keys are."""
    before, after = reach
    seen = None if before is None else keys >= queries - before
    if after is None:
        return seen
    return keys <= queries + after if seen is None else seen & (keys <= queries + after)


def prepare(*given: Any) -> tuple[Tensor, Tensor, Tensor, Call]:
    """What `read` gives, keys and values with as many heads as queries."""
    q, k, v, call = read(*given)
    k, v = (
        x if (times := copies(q, x, name)) == 1 else repeat(x, times, axis=x.ndim - 3)
        for x, name in ((k, "key"), (v, "value"))
    )
    return q, k, v, call


def read(
    query: Any,
    key: Any,
    value: Any,
    causal: Any,
    window: Any,
    biases: tuple[Any, ...],
    mask: Any,
    scale: Any,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Call]:
    """Checked operands, and what is asked for."""
    q, k, v = (as_tensor(x) for x in (query, key, value))
    require_one_device(q, k, v)
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not x.is_floating_point():
            raise TypeError(f"attention needs floating-point elements, got {x.dtype} in {name}")
        if x.ndim < 3 or x.ndim != q.ndim:
            raise ValueError(f"{name} must be [batch, (heads,) sequence, features] as the query, got shape {x.shape}")
        if isinstance(x.shape[-1], Ragged):
            raise AxisError(
                f"the last axis of {name} must be its features, [batch, (heads,) sequence, features], "
                f"got shape {x.shape}"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"query, key and value must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if abstract.unlike(q.shape[-1:], k.shape[-1:]):
        raise ValueError(f"query and key must have as many features, got {q.shape[-1]} and {k.shape[-1]}")
    if abstract.unlike(k.shape[-2:-1], v.shape[-2:-1]):
        raise RaggednessError(f"key and value must have the same rows, got {k.shape[-2]} and {v.shape[-2]}")
    if causal not in (False, True, "upper_left", "lower_right"):
        raise ValueError(f"causal must be a bool, 'upper_left' or 'lower_right', got {causal!r}")
    biases, mask = tuple(as_tensor(bias) for bias in biases), None if mask is None else as_tensor(mask)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, True where a key may be seen, got {mask.dtype}; bias is added to scores")
    for bias in biases:
        if not bias.is_floating_point():
            raise TypeError(f"bias must be floating-point, got {bias.dtype}; a bool mask is given as mask")
        _check_mask("bias", bias, q, k)
    _check_mask("mask", mask, q, k)
    sides = None if window is None else (window, window) if isinstance(window, int) else tuple(window)
    if sides is not None and (len(sides) != 2 or min(sides) < -1):
        raise ValueError(f"window must be how many keys are seen before and after, -1 for all, got {window}")
    features = q.shape[-1]
    assert isinstance(features, int)
    factor = 1 / math.sqrt(max(features, 1)) if scale is None else scale
    call = Call(factor, True if causal == "upper_left" else causal, sides, biases, mask, dropout)
    return q, k, v, call


def _check_mask(name: str, x: Tensor | None, q: Tensor, k: Tensor) -> None:
    """A ValueError unless a dense mask is as large as the longest row."""
    if x is None or x.is_ragged:
        return
    if x.ndim < 2:
        raise ValueError(f"{name} must have axes for queries and keys, got shape {x.shape}")
    for axis, rows in ((-2, q.shape[-2]), (-1, k.shape[-2])):
        if isinstance(rows, Ragged):
            check_reach(x.values.shape[axis], rows, x, name)


def copies(q: Tensor, x: Tensor, name: str) -> int:
    """How many heads of the query each head of the keys or values serves."""
    if q.ndim < 4:
        return 1
    have, wanted = x.shape[-3], q.shape[-3]
    if have == wanted or isinstance(have, Ragged) or isinstance(wanted, Ragged):
        return 1
    if not (abstract.is_known(have) and abstract.is_known(wanted)):
        abstract.differ(wanted, have)  # A type takes both numbers for equal.
    if have == 0 or wanted % have:
        raise ValueError(f"the heads of the query, {wanted}, must be a multiple of those of the {name}, {have}")
    return wanted // have


def check_reach(have: int, rows: Ragged, x: Tensor, name: str) -> None:
    """A ValueError unless an axis of a dense mask of this size covers the longest row."""
    if 1 != have < rows.partition.max_length_bound and have < rows.partition.max_length:
        longest = rows.partition.max_length
        raise ValueError(f"{name} of shape {x.shape} is smaller than the longest row, {longest}")
