"""Gradients of programs over operations by the rules, side by side with those of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import serrate as sr
from serrate.ops.derivatives import pullback

LENGTHS = [3, 0, 1, 4]


def ragged(*features: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = low + (high - low) * torch.rand(sum(LENGTHS), *features, generator=generator, dtype=torch.float64)
    return sr.from_lengths(values, LENGTHS)


def like(out: sr.Tensor, seed: int = 9) -> sr.Tensor:
    """A gradient for a result."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if out.is_complex() else torch.float64
    return out._with(torch.randn(out.values.shape, generator=generator, dtype=dtype))


def pulled(function: Callable[..., Any], *operands: sr.Tensor) -> tuple[sr.Tensor, sr.Tensor, tuple[Any, ...]]:
    """What a program gives, a gradient of it, and those of the operands by the rules."""
    out, back = pullback(function, *operands)
    g = like(out)
    return out, g, back(g)


def agree_with_autograd(function: Callable[..., Any], *operands: sr.Tensor) -> None:
    """The rules against autograd through the same program, to the second derivative."""
    leaves = [x._with(x.values.clone().requires_grad_()) for x in operands]
    values = [x.values for x in leaves]
    out = function(*leaves)
    g = like(out)
    first = torch.autograd.grad(out.values, values, g.values, create_graph=True, materialize_grads=True)

    def gradients(*given: sr.Tensor) -> tuple[Any, ...]:
        return pullback(function, *given)[1](g)

    with torch.no_grad():
        made, back = pullback(gradients, *operands)
        directions = [like(x, seed=4) for x in operands]
        second = back(tuple(None if m is None else d for m, d in zip(made, directions, strict=True)))
    for x, mine, theirs in zip(operands, made, first, strict=True):
        same_gradient(x, mine, theirs)
    asked = [(f, d.values) for f, d in zip(first, directions, strict=True) if f.requires_grad]
    if not asked:
        return
    want = torch.autograd.grad(
        [f for f, _ in asked], values, [d for _, d in asked], allow_unused=True, materialize_grads=True
    )
    for x, mine, theirs in zip(operands, second, want, strict=True):
        same_gradient(x, mine, theirs)


def same_gradient(x: sr.Tensor, mine: Any, theirs: torch.Tensor) -> None:
    """A gradient by the rules, whose axes may be stored in another order than those of x, and one of its values."""
    made = sr.zeros_like(x) if mine is None else sr.zeros_like(x) + mine
    torch.testing.assert_close(made.contiguous().values, x._with(theirs).contiguous().values)


def row_by_row(
    function: Callable[..., torch.Tensor], g: sr.Tensor, x: sr.Tensor, *shared: sr.Tensor
) -> list[torch.Tensor]:
    """Autograd through torch's function on each row: the gradients of x and of what all rows share."""
    rows = [row.torch().clone().requires_grad_() for row in x]
    others = [each.values.clone().requires_grad_() for each in shared]
    for row, direction in zip(rows, g, strict=True):
        function(row, *others).backward(direction.torch())
    return [torch.cat([torch.zeros_like(r) if r.grad is None else r.grad for r in rows]), *(o.grad for o in others)]
