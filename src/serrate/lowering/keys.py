"""Keys: what random numbers of a program are made of, as values, so that they can be computed again.

Functions of torch that draw from its generator have no keys: they are called where the program calls them, each once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from serrate.eager.philox import Key, next_key
from serrate.program.types import Value

DRAW = "draw a key"
"""The instruction that draws one."""


_ALWAYS = [
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "binomial",
    "gumbel_softmax",
    "uniform_",
    "normal_",
    "bernoulli_",
    "random_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
]
_SOMETIMES = [
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "dropout_",
    "alpha_dropout_",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
]
OF_TORCH = frozenset(f"torch.{name}" for name in (*_ALWAYS, *_SOMETIMES))
"""The instructions that call functions of torch which draw from its generator."""


def draws_from_torch(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a call of a function of torch draws from its generator."""
    name = getattr(function, "__name__", "")
    if name in _ALWAYS:
        return True
    if name not in _SOMETIMES:
        return False
    try:
        bound = inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return True
    except ValueError:  # a function of C has no signature
        given = named.get("dropout_p", arguments[4] if len(arguments) > 4 else 0.0)
        return name != "scaled_dot_product_attention" or given != 0.0
    bound.apply_defaults()
    found = bound.arguments
    return bool(found.get("training", True)) and found.get("p", found.get("dropout_p", 1)) != 0


class Drawn(NamedTuple):
    """A key of a program: the seed and the number of the call, 0-d tensors of int64."""

    seed: Value
    call: Value


def draw() -> tuple[torch.Tensor, torch.Tensor]:
    """The next key, as tensors."""
    key = next_key(None)
    return torch.tensor(_wrapped(key.seed), device="cpu"), torch.tensor(_wrapped(key.call), device="cpu")


def key_of(seed: torch.Tensor, call: torch.Tensor) -> Key:
    """A key as eager operations take it."""
    return Key(int(seed), int(call))


def _wrapped(number: int) -> int:
    """A number of 64 bits as int64 has it."""
    return number - 2**64 if number >= 2**63 else number
