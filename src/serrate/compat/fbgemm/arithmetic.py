"""This module adds and multiplies packed and padded values, element by element, under FBGEMM's names.

Where a packed value has no place in the padded operand, that operand counts as 0: a sum is then the packed value, and
a product is 0. In Serrate such a sum is `x + sr.from_dense(y, like=x)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from serrate.compat.fbgemm.levels import Levels, levels_of, only, packed
from serrate.compat.fbgemm.padded_dense import sizes_in
from serrate.compat.fbgemm.padding import are_held, pad, unpad
from serrate.native import padded as library


def jagged_dense_elementwise_add(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> torch.Tensor:
    """Return a padded tensor of the shape of y: y plus the packed values, which are padded with 0 or cut to fit y.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_add(x, offsets, torch.full((2, 2, 1), 10.0)).squeeze(-1)
    tensor([[11., 10.],
            [12., 13.]])
    """
    made = library.padded_sum(x_values, only(x_offsets), y)
    if made is not None:
        return made
    levels, sizes = _read(x_values, x_offsets, y)
    return pad(x_values, levels, sizes) + y


def jagged_dense_elementwise_add_jagged_output(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the packed values plus the elements of y at the same places, and the offsets.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_add_jagged_output(x, offsets, torch.full((2, 1, 1), 10.0))[0].squeeze(-1)
    tensor([11., 12.,  3.])
    """
    made = library.packed_sum(x_values, only(x_offsets), y)
    if made is None:
        levels, _ = _read(x_values, x_offsets, y)
        made = x_values + unpad(y, levels, x_values.shape[0])
    return made, list(x_offsets)


def jagged_dense_dense_elementwise_add_jagged_output(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y_0: torch.Tensor, y_1: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the packed values plus the elements of y_0 and of y_1 at the same places, and the offsets.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> y = torch.full((2, 1, 1), 10.0)
    >>> fbgemm.jagged_dense_dense_elementwise_add_jagged_output(x, offsets, y, 2 * y)[0].squeeze(-1)
    tensor([31., 32.,  3.])
    """
    made = library.packed_sum(x_values, only(x_offsets), y_0, y_1)
    if made is None:
        made = x_values
        for y, name in ((y_0, "y_0"), (y_1, "y_1")):
            levels, _ = _read(x_values, x_offsets, y, name)
            made = made + unpad(y, levels, x_values.shape[0])
    return made, list(x_offsets)


def jagged_dense_elementwise_mul(
    x_values: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the packed values times the elements of y at the same places, and the offsets.

    The product is 0 where y has no such place.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), [torch.tensor([0, 1, 3])]
    >>> fbgemm.jagged_dense_elementwise_mul(x, offsets, torch.full((2, 1, 1), 10.0))[0].squeeze(-1)
    tensor([10., 20.,  0.])
    """
    made = library.packed_product(x_values, only(x_offsets), y)
    if made is None:
        levels, sizes = _read(x_values, x_offsets, y)
        held = are_held(levels, sizes, x_values.shape[0])
        product = x_values * unpad(y, levels, x_values.shape[0])
        made = torch.where(held.view(-1, *[1] * (product.ndim - 1)), product, torch.zeros_like(product))
    return made, list(x_offsets)


def _read(
    x: torch.Tensor, x_offsets: Sequence[torch.Tensor], y: torch.Tensor, name: str = "y"
) -> tuple[Levels, list[int]]:
    """Return the levels of packed x, and the padded sizes of y, whose features must broadcast with those of x."""
    x, y = packed(x, "x_values"), packed(y, name)
    levels = levels_of(x_offsets, x, x.shape[0], "x_offsets")
    depth = len(levels)
    if y.ndim != depth + x.ndim:
        raise ValueError(
            f"{name} must have {depth + x.ndim} axes, [B, *lengths] and the features of x_values, got shape "
            f"{list(y.shape)} for x_values of shape {list(x.shape)}"
        )
    sizes = sizes_in(y, levels, name)
    if y.device != x.device:
        raise ValueError(f"{name} lies on {y.device}, but x_values lie on {x.device}")
    for a, b in zip(x.shape[1:], y.shape[depth + 1 :], strict=True):
        if a != b and 1 not in (a, b):
            raise ValueError(
                f"the features of {name} must be those of x_values, got shapes {list(y.shape)} and {list(x.shape)}"
            )
    return levels, sizes
