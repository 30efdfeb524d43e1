"""Rules of derivatives, and pieces of rules and bodies, that several records share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.ops.record import ops
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor


def reduced_to(gradient: Any, x: Any) -> Any:
    """A gradient, summed over the axes that an operand was stretched along, in the dtype of the operand.

    None for an operand that has no gradient: a number, or a tensor of integers or bools.
    """
    if gradient is None or not isinstance(x, (Tensor, torch.Tensor)):
        return None
    if not (x.is_floating_point() or x.is_complex()):
        return None
    missing = gradient.ndim - x.ndim
    stretched = [
        axis for axis in range(gradient.ndim)
        if axis < missing or (x.shape[axis - missing] == 1 and gradient.shape[axis] != 1)
    ]  # fmt: skip
    if stretched:
        gradient = ops.sum(gradient, axis=tuple(stretched), keepdims=True)
        gradient = ops.squeeze(gradient, axis=tuple(range(missing))) if missing else gradient
        gradient = ragged_as(gradient, x)
    return in_dtype(gradient, x.dtype)


def ragged_as(gradient: Any, x: Any) -> Any:
    """A gradient of the shape of an operand, in which sums over one row that was stretched to many left uniform axes.

    Rows that are stretched are equally long, so such a sum has an entry for each of the operand's.
    """
    if isinstance(x, torch.Tensor) or not x.is_ragged or gradient.shape == x.shape:
        return gradient
    return ops.from_dense(ops["Tensor.to_dense"](gradient) if gradient.is_ragged else gradient, like=x)


def in_dtype(x: Any, dtype: torch.dtype) -> Any:
    """x in a dtype; of complex numbers that become real ones, the real part."""
    if x.dtype == dtype:
        return x
    return ops.astype(ops.real(x) if x.is_complex() and not dtype.is_complex else x, dtype)


def conjugate(x: Any) -> Any:
    """The complex conjugate of a tensor or a number; real ones as they are."""
    if isinstance(x, (Tensor, torch.Tensor)):
        return ops.conj(x) if x.is_complex() else x
    return x.conjugate() if isinstance(x, complex) else x


def by_numbers(name: str, **filled: Any) -> Callable[..., Any]:
    """The rule of an operation that moves elements of its first operand: each gets the gradients of where it came.

    Numbers of the elements are moved alike, and say so. `filled` are the attributes that say what stands where no
    element came, as numbers have them: -1.
    """

    def vjp(g: Any, out: Any, x: Any, *others: Any, **attributes: Any) -> Any:
        moved = ops[name](ops.numbered(x), *others, **attributes | filled)
        made = ops.collect(g, moved, x)
        return (made, *[None] * len(others)) if others else made

    return vjp


def parents_of(x: Any) -> set[int]:
    """The axes of x that ragged ones depend on."""
    return {parent for size in x.shape if isinstance(size, Ragged) for parent in size.parents}


def named_vjp(g: Any, out: Any, x: Any, *, axis: int, **_: Any) -> Any:
    """The rule of what gives elements of x and their positions along the axis: gradients go back to those."""
    if g[0] is None:
        return None
    return ops.scatter(ops.zeros_like(x), out[1], g[0], axis=axis, reduce="sum")


def total_beside(x: Any, axis: int | Sequence[int]) -> Any:
    """The sum along the axis beside each element that is in it."""
    return ops.expand_like(ops.sum(x, axis=axis), x, axis=axis)


def slope_of_size(x: Any) -> Any:
    """The derivative of the absolute value, which is 0 at 0 and at NaN, as in torch."""
    return ops.sign(x) if x.is_complex() else ops.where(ops.isnan(x), 0, ops.sign(x))
