"""Precision: where autocast is on, what it asks for in products, and the dtypes in which half types are added up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from serrate.tensor.tensor import Tensor

ACCUMULATE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""Half types, and the type that sums of them are kept in."""

WAITING = {**ACCUMULATE, torch.float32: torch.float64, torch.complex64: torch.complex128}
"""The type for sums to which rows are added one by one: float32 would lose digits if there are many rows."""


def autocast_state() -> dict[str, torch.dtype]:
    """The devices for which autocast is on, with the dtypes that it casts to."""
    return {device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)}


@contextlib.contextmanager
def casting(casts: Mapping[str, torch.dtype]) -> Iterator[None]:
    """Have autocast on for these devices, with these dtypes, and off for others."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            dtype = casts.get(device)
            if dtype is not None or torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, dtype, enabled=dtype is not None))
        yield


def for_products(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The operands of a product as autocast, where it is on, wants them."""
    device = values[0].device.type
    if not torch.is_autocast_enabled(device):
        return values
    dtype = torch.get_autocast_dtype(device)
    return tuple(v.to(dtype) if v.is_floating_point() and v.dtype != torch.float64 else v for v in values)


def widened(values: torch.Tensor) -> torch.Tensor:
    """Half types as the type they accumulate in; others as they are."""
    dtype = ACCUMULATE.get(values.dtype)
    return values if dtype is None else values.to(dtype)


def wide_floats(x: Tensor, name: str) -> Tensor:
    """A tensor of floats in the type that they accumulate in; a TypeError for other elements."""
    if not x.is_floating_point():
        raise TypeError(f"{name} needs floating-point elements, got {x.dtype}")
    return x._with(widened(x.values))
