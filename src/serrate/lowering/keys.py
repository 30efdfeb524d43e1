"""Keys: what random numbers of a program are made of, as values, so that they can be computed again."""

from __future__ import annotations

from typing import NamedTuple

import torch

from serrate.eager.philox import Key, next_key
from serrate.program.types import Value

DRAW = "draw a key"
"""The instruction that draws one."""


class Drawn(NamedTuple):
    """A key of a program: the seed and the number of the call, 0-d tensors of int64."""

    seed: Value
    call: Value


def draw() -> tuple[torch.Tensor, torch.Tensor]:
    """The next key, as tensors."""
    key = next_key(None)
    return torch.tensor(_wrapped(key.seed)), torch.tensor(_wrapped(key.call))


def key_of(seed: torch.Tensor, call: torch.Tensor) -> Key:
    """A key as eager operations take it."""
    return Key(int(seed), int(call))


def _wrapped(number: int) -> int:
    """A number of 64 bits as int64 has it."""
    return number - 2**64 if number >= 2**63 else number
