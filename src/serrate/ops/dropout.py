"""Dropout: each element is 0 with some probability, by the numbers of `sr.random`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager import philox
from serrate.eager.philox import Key, next_key
from serrate.ops.record import operation, ops, record
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _dropout(x: Any, /, p: float = 0.5, *, training: bool = True, key: Key | None = None) -> Tensor:
    tensor = as_tensor(x)
    values = _dropped(tensor, p, training, key, torch.mul)
    return tensor if values is None else tensor._with(values)


def _dropped(x: Tensor, p: float, training: bool, key: Key | None, scale: Callable[..., Any]) -> torch.Tensor | None:
    """The values scaled by `scale`, which may work in place, and some zeroed; None if they stay as they are."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout needs a probability between 0 and 1, got {p}")
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"dropout needs floating-point or complex elements, got {x.dtype}")
    if not training or p == 0:
        return None
    limit = round(p * 2**32)  # of the 2³² words so many drop an element
    if limit == 2**32:
        return scale(x.values, 0.0)  # type: ignore[no-any-return]
    drawn = next_key(key)  # also where there is no element, as compiled functions do
    if x.values.numel() == 0:
        return None
    kept = philox.words(drawn, 0, x.values.numel(), x.device) >= limit - 2**31
    return scale(x.values, 1 / (1 - p)).mul_(kept.view(x.values.shape))  # type: ignore[no-any-return]


def _answer_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not inplace:
        return _dropout(input, p, training=training)
    _dropped(input, p, training, None, torch.Tensor.mul_)
    return as_tensor(input)


def _dropout_body(x: Any, /, p: float = 0.5, *, training: bool = True, key: Key | None = None) -> Any:
    if not training or p == 0:
        return x
    limit = round(p * 2**32)
    if limit == 2**32:
        return x * 0.0
    # The implementation compares words that have a sign: the greatest bit counts the other way round.
    kept = ops.bitwise_xor(ops["random.bits"](x, key=key), 2**31) >= limit
    return x * (1 / (1 - p)) * ops.astype(kept, x.dtype)


record(
    "random",
    "dropout",
    _dropout,
    _answer_dropout,
    operands=("x",),
    torch=(F.dropout, torch.dropout),
    summary="x with each element 0 with probability p and else divided by 1 - p; outside training x itself.",
    example=("sr.dropout(sr.ragged([[1., 2.], []]), 0.5, training=False).tolist()", "[[1.0, 2.0], []]"),
    body=_dropout_body,
    kinds=("float", "complex"),
    samples=("x, 0.5, key=sr.random.Key(1)", "x, 0.1, training=False", "x, 0.0", "x, 1.0"),
    errors=(
        ("x, 1.5", ValueError, "a probability between 0 and 1, got 1.5"),
        ("x.to(torch.int64)", TypeError, "dropout needs floating-point"),
        ("x, key=3", TypeError, "key must be an sr.random.Key"),
    ),
)
