"""Arguments of operations, read and checked: integers."""

from __future__ import annotations

import operator
from typing import Any

import torch

from serrate.tensor.tensor import Tensor, as_tensor


def integers(given: Any, name: str) -> Tensor:
    """`given` as a Tensor of integers, or a TypeError."""
    tensor = as_tensor(given)
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    return tensor


def count_of(given: Any, name: str) -> int:
    """`given` as an int of 0 or more."""
    try:
        count = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {given!r:.40}") from None
    if count < 0:
        raise ValueError(f"{name} must be 0 or more, got {count}")
    return count
