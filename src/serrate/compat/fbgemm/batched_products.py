"""This module computes products and softmax of packed rows, component by component, under FBGEMM's names.

In Serrate these are `sr.matmul` and `sr.softmax`. Only the first max_L rows of each component count. Rows of the result
are 0 past the first max_L rows of a component, and past the last offset.
"""

from __future__ import annotations

import torch

from serrate.compat.fbgemm.levels import level_of, packed
from serrate.compat.fbgemm.padding import first_rows, put_back, unpad
from serrate.eager.precision import ACCUMULATE, for_products, widened
from serrate.errors import RaggednessError
from serrate.native import row_products as library
from serrate.ops.record import TABLE
from serrate.tensor.offsets import as_count
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


def jagged_softmax(values: torch.Tensor, x_offsets: torch.Tensor, max_L: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the softmax over the first max_L rows of each component, for each feature, and the offsets.

    All other rows are 0.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> values, offsets = fbgemm.jagged_softmax(torch.zeros(5, 1), torch.tensor([0, 2, 5]), 2)
    >>> values.squeeze(-1)
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.0000])
    """
    values = packed(values, "values")
    if not values.is_floating_point():
        raise TypeError(f"values must be floating-point, got {values.dtype}")
    level, most = _level(values, x_offsets, max_L)
    made = TABLE["softmax"].function(first_rows(values, level, most), axis=1)
    return put_back(made, level, values.shape[0]), x_offsets


def jagged_dense_bmm(
    x_values: torch.Tensor, x_offsets: torch.Tensor, y: torch.Tensor, max_L: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return packed rows [total, N] and the offsets: the rows [L, K] of each component times its matrix y[b] [K, N].

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x, offsets = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 3])
    >>> fbgemm.jagged_dense_bmm(x, offsets, torch.tensor([[[10.0]], [[100.0]]]), 2)[0].squeeze(-1)
    tensor([ 10., 200., 300.])
    """
    x_values, y = packed(x_values, "x_values", 2), packed(y, "y", 3)
    level, most = _level(x_values, x_offsets, max_L)
    if y.shape[:2] != (level.num_components, x_values.shape[1]):
        raise RaggednessError(
            f"y must be [B, K, N] with B = {level.num_components} and K = {x_values.shape[1]}, as the offsets and "
            f"x_values say, got shape {list(y.shape)}"
        )
    operands = _operands(x_values, y)
    if level.is_host_born and library.serves(*operands):
        made = library.times_matrices(*operands, level.offsets, most)
        return made.to(torch.promote_types(x_values.dtype, y.dtype)), x_offsets
    product: Tensor = TABLE["matmul"].function(first_rows(x_values, level, most), Tensor(y))
    return put_back(product, level, x_values.shape[0]), x_offsets


def jagged_jagged_bmm(
    x_values: torch.Tensor, y_values: torch.Tensor, x_offsets: torch.Tensor, max_L: int
) -> torch.Tensor:
    """Return [B, M, N]: for each component the transpose of its rows of x [L, M] times its rows of y [L, N].

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> fbgemm.jagged_jagged_bmm(x, x, torch.tensor([0, 1, 3]), 2).flatten()
    tensor([ 1., 13.])
    """
    x_values, y_values = packed(x_values, "x_values", 2), packed(y_values, "y_values", 2)
    if x_values.shape[0] != y_values.shape[0]:
        raise RaggednessError(
            f"y_values must have as many rows as x_values, got shapes {list(y_values.shape)} and {list(x_values.shape)}"
        )
    level, most = _level(x_values, x_offsets, max_L)
    operands = _operands(x_values, y_values)
    if level.is_host_born and library.serves(*operands):
        made = library.summed_outer(*operands, level.offsets, most)
        return made.to(torch.promote_types(x_values.dtype, y_values.dtype))
    x = first_rows(x_values, level, most)
    y = Tensor(first_rows(y_values, level, most).values, x.structure)
    product: Tensor = TABLE["matmul"].function(x.mT, y)
    return product.values


def batched_dense_vec_jagged_2d_mul(v: torch.Tensor, a_values: torch.Tensor, a_offsets: torch.Tensor) -> torch.Tensor:
    """Return [B·H, D]: for each component and each of H heads the sum of its rows, weighted by `v` [B·H, L].

    A row has H·D features, D for each head. Rows past the first L of a component do not count.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> a = torch.tensor([[1.0], [2.0], [3.0]])
    >>> fbgemm.batched_dense_vec_jagged_2d_mul(torch.tensor([[10.0, 0.0], [1.0, 2.0]]), a, torch.tensor([0, 1, 3]))
    tensor([[10.],
            [ 8.]])
    """
    v, a_values = packed(v, "v", 2), packed(a_values, "a_values", 2)
    level = level_of(a_offsets, a_values, a_values.shape[0], "a_offsets")
    batch, width = level.num_components, a_values.shape[1]
    heads = v.shape[0] // batch if batch else 1
    if v.shape[0] != batch * heads or not heads or width % heads:
        raise RaggednessError(
            f"v must be [B·H, L] with B = {batch}, as the offsets say, and an H that divides {width}, the features of "
            f"a_values, got shape {list(v.shape)}"
        )
    operands = _operands(v, a_values)
    if level.is_host_born and library.serves(*operands):
        made = library.weighted_sums(*operands, level.offsets, heads)
        return made.to(torch.promote_types(v.dtype, a_values.dtype))
    weights, rows = v.reshape(batch, heads, v.shape[1]), a_values.reshape(a_values.shape[0], heads, width // heads)
    a = first_rows(rows, level, v.shape[1])
    (cut,) = a.partitions
    w = Tensor(unpad(weights.transpose(1, 2), (cut,), cut.num_values), a.structure)
    summed: Tensor = TABLE["einsum"].function("brh,brhd->bhd", w, a)
    return summed.values.reshape(batch * heads, width // heads)


def _level(values: torch.Tensor, offsets: torch.Tensor, most: int) -> tuple[Partition, int]:
    """Return the partition of the rows, and how many rows of each component count."""
    return level_of(offsets, values, values.shape[0], "x_offsets"), as_count(most, "max_L")


def _operands(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both operands in the dtype in which their products are summed."""
    left, right = for_products(left, right)
    if left.dtype is right.dtype and left.dtype not in ACCUMULATE:
        return left, right
    dtype = torch.promote_types(left.dtype, right.dtype)
    return widened(left.to(dtype)), widened(right.to(dtype))
