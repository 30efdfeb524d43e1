"""Products of dense matrices. A large result is written to memory that earlier results left.

torch takes new memory from the system for each large result, and the first write to it costs more than the product of
narrow matrices does. Where autograd has to see the product, or where torch would change dtypes, torch does as it does.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from serrate.native.loading import empty, reads

LARGE = 2**20
"""The number of elements from which on a result goes to memory that is kept."""


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x · weightᵀ + bias over the last axis of x, as `torch.nn.functional.linear` gives it."""
    given = (x, weight) if bias is None else (x, weight, bias)
    count = math.prod(x.shape[:-1]) * weight.shape[0]
    if weight.ndim == 2 and x.is_contiguous() and 0 not in x.shape and _is_placed(count, *given):
        rows = x.view(-1, x.shape[-1])
        made = empty((rows.shape[0], weight.shape[0]), x.dtype)
        if bias is None:
            torch.mm(rows, weight.t(), out=made)
        else:
            torch.addmm(bias, rows, weight.t(), out=made)
        return made.view(*x.shape[:-1], weight.shape[0])
    return F.linear(x, weight, bias)


def contracted(equation: str, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product of two operands that an equation of einsum names; one of two matrices is no more than that."""
    names, out = equation.split("->")
    rows, columns = names.split(",")
    inner = set(rows) & set(columns)
    if len(rows) == len(columns) == len(out) == 2 and len(inner) == 1 and not inner & set(out):
        (summed,) = inner
        first = left if rows[1] == summed else left.t()
        second = right if columns[0] == summed else right.t()
        if out[0] in columns:
            first, second = second.t(), first.t()
        if _is_placed(first.shape[0] * second.shape[1], left, right):
            return torch.mm(first, second, out=empty((first.shape[0], second.shape[1]), left.dtype))
    return torch.einsum(equation, left, right)


def _is_placed(count: int, *given: torch.Tensor) -> bool:
    """Whether a product with so many elements is written to memory that is found for it here."""
    return (
        count >= LARGE
        and reads(*given)
        and not torch.is_autocast_enabled("cpu")
        and not (torch.is_grad_enabled() and any(each.requires_grad for each in given))
        and len({each.dtype for each in given}) == 1
        and given[0].dtype.is_floating_point
    )
