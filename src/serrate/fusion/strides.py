"""Inputs that need not lie contiguously in memory: how far apart the elements along each axis are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from serrate.fusion.domain import TensorDomain
from serrate.fusion.scalar import Scalar, const, symbol
from serrate.fusion.view import TensorView


def strides_of(name: str, domain: TensorDomain, given: Sequence[int | None]) -> tuple[Scalar, ...]:
    """The strides of an input: numbers, or sizes of the kernel, which are named after it."""
    axes, tensor = domain.allocation, f"{name}{domain}"
    if len(given) != len(axes):
        raise ValueError(f"{tensor} lies in memory by {len(axes)} axes, got {len(given)} strides")
    made: list[Scalar] = []
    for at, stride in enumerate(given):
        if stride is not None and (isinstance(stride, bool) or not isinstance(stride, int)):
            raise TypeError(f"a stride of {tensor} is a number of elements or None, got {stride!r}")
        if stride is not None and stride < 0:
            raise ValueError(f"a stride of {tensor} is 0 or more, got {stride}")
        made.append(symbol(f"{name}_stride{at}") if stride is None else const(stride))
    return tuple(made)


def span_of(tensor: TensorView) -> Scalar:
    """The size of a kernel that says how many elements lie from the first of an input to its last."""
    return symbol(f"{tensor.name}_span")


def span(given: torch.Tensor) -> int:
    """How many elements of memory lie from the first element of a tensor to its last."""
    if not given.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True))


def check_strides(tensor: TensorView, given: torch.Tensor) -> None:
    """Refuse memory that does not have the strides that an input was said to have. Those of axes with one index do not
    matter."""
    for at, stride in enumerate(tensor.strides or ()):
        if stride.is_const and given.shape[at] > 1 and given.stride(at) != stride.value:
            raise ValueError(f"axis {at} of {tensor} has the stride {stride}, got {given.stride(at)}")
