"""What elementwise operations of uint16, uint32 and uint64 mean, by numpy, since torch lacks arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

WIDE = (torch.uint16, torch.uint32, torch.uint64)
"""The dtypes that torch computes little with."""


def compute(
    name: str, function: Callable[..., torch.Tensor], operands: list[torch.Tensor], **options: Any
) -> torch.Tensor:
    """The operation of operands, the last of which is of a wide unsigned dtype; those that are not here, torch has."""
    if name not in _MEANINGS:
        return function(*operands, **options)
    if name in ("floor_divide", "remainder") and bool((operands[1] == 0).any()):
        raise RuntimeError(f"{name} by 0 of whole numbers")
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(_MEANINGS[name](*(x.numpy() for x in operands), **options)))


def _clip(x: np.ndarray, min: int | None = None, max: int | None = None) -> np.ndarray:
    for bound, nearer in ((min, np.maximum), (max, np.minimum)):
        if bound is not None:
            x = np.asarray(nearer(x, x.dtype.type(sorted((0, int(bound), np.iinfo(x.dtype).max))[1])))
    return x


def _same(x: np.ndarray, **_: Any) -> np.ndarray:
    return x.copy()


def _moved(up: bool) -> Callable[..., np.ndarray]:
    """Bits moved one place after another, so that no more of them are moved at once than there are."""

    def shifted(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        for _ in range(8 * x.dtype.itemsize):
            x, by = np.where(by > 0, x + x if up else x // x.dtype.type(2), x), by - (by > 0).astype(by.dtype)
        return np.where(by > 0, x.dtype.type(0), x)

    return shifted


def _power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    size = 2 ** (8 * x.dtype.itemsize)
    pairs = zip(x.tolist(), exponent.tolist(), strict=True)
    return np.array([pow(base, power, size) for base, power in pairs], dtype=x.dtype)


_MEANINGS: dict[str, Callable[..., np.ndarray]] = {
    **{
        name: getattr(np, name)
        for name in (
            "add", "subtract", "multiply", "negative", "sign", "square", "floor_divide", "remainder", "maximum",
            "where",
            "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "bitwise_and",
            "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "logical_not",
        )
    },
    **dict.fromkeys(("abs", "positive", "relu", "nan_to_num", "floor", "ceil", "trunc", "round"), _same),
    "signbit": lambda x: np.zeros(x.shape, bool),
    "bitwise_invert": np.invert,
    "bitwise_left_shift": _moved(True),
    "bitwise_right_shift": _moved(False),
    "pow": _power,
    "clip": _clip,
    "relu6": lambda x: np.minimum(x, x.dtype.type(6)),
}  # fmt: skip
