"""Products and softmax of packed rows, by FBGEMM's names: `sr.matmul` and `sr.softmax` on the first max_L rows of each.

What lies past the first max_L rows of a component, or past the last offset, is 0 in the result.
"""

from __future__ import annotations

import math

import torch

from serrate.compat.fbgemm.grid import Grid
from serrate.compat.fbgemm.moves import Move, first_rows, longest
from serrate.compat.fbgemm.structure import level_of, packed, tensor_of
from serrate.eager.precision import ACCUMULATE, for_products, widened
from serrate.errors import RaggednessError
from serrate.native import products as library
from serrate.ops.table import TABLE
from serrate.tensor.offsets import as_count
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor

_FEW = 2**18  # elements, padding too, that torch's softmax of padded rows takes less time for than Serrate's of packed


def jagged_softmax(values: torch.Tensor, x_offsets: torch.Tensor, max_L: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The softmax along each component, feature by feature, over its first max_L rows; others are 0.

    >>> import torch
    >>> from serrate.compat import fbgemm
    >>> values, offsets = fbgemm.jagged_softmax(torch.zeros(5, 1), torch.tensor([0, 2, 5]), 2)
    >>> values.squeeze(-1)
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.0000])
    """
    values = packed(values, "values")
    if not values.is_floating_point():
        raise TypeError(f"values must be floating-point, got {values.dtype}")
    level, move = first_rows(*_level(values, x_offsets, max_L), values.shape[0])
    x = _cut(values, level, move)
    if level.is_host_born and level.num_components * longest(level) * math.prod(values.shape[1:]) <= _FEW:
        made = _padded_softmax(x.values, level)
    else:
        made = TABLE["softmax"].eager(x, axis=1).values
    return _put_back(made, move), x_offsets


def _padded_softmax(values: torch.Tensor, level: Partition) -> torch.Tensor:
    """Of few elements: one call, where Serrate's makes several. Padding of -inf counts for nothing."""
    grid = Grid((level,), [longest(level)], level.num_values)
    return grid.unpad(torch.softmax(grid.pad(widened(values), -float("inf")), 1)).to(values.dtype)


def jagged_dense_bmm(
    x_values: torch.Tensor, x_offsets: torch.Tensor, y: torch.Tensor, max_L: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each component's rows [L, K] times its matrix `y[b]`, [K, N]: packed rows [total, N], and the offsets.

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
    level, move = first_rows(level, most, x_values.shape[0])
    made = TABLE["matmul"].eager(_cut(x_values, level, move), Tensor(y)).values
    return _put_back(made, move), x_offsets


def jagged_jagged_bmm(
    x_values: torch.Tensor, y_values: torch.Tensor, x_offsets: torch.Tensor, max_L: int
) -> torch.Tensor:
    """For each component the product of its rows of x, transposed, and its rows of y: [B, M, N].

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
    level, move = first_rows(level, most, x_values.shape[0])
    product: Tensor = TABLE["matmul"].eager(_cut(x_values, level, move).mT, _cut(y_values, level, move))
    return product.values


def batched_dense_vec_jagged_2d_mul(v: torch.Tensor, a_values: torch.Tensor, a_offsets: torch.Tensor) -> torch.Tensor:
    """Weighted sums of rows: `v` [B·H, L] times each component's rows, whose H·D features are H heads: [B·H, D].

    Rows past the first L of a component do not count.

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
    level, move = first_rows(level, v.shape[1], a_values.shape[0])
    grid = Grid((level,), [v.shape[1]], level.num_values)
    w = grid.unpad(weights.transpose(1, 2))
    summed: Tensor = TABLE["einsum"].eager("brh,brhd->bhd", tensor_of(w, level), _cut(rows, level, move))
    return summed.values.reshape(batch * heads, width // heads)


def _level(values: torch.Tensor, offsets: torch.Tensor, most: int) -> tuple[Partition, int]:
    """The components, and how many rows of each count."""
    return level_of(offsets, values, values.shape[0], "x_offsets"), as_count(most, "max_L")


def _operands(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in the dtype that their products are summed in."""
    left, right = for_products(left, right)
    if left.dtype is right.dtype and left.dtype not in ACCUMULATE:
        return left, right
    dtype = torch.promote_types(left.dtype, right.dtype)
    return widened(left.to(dtype)), widened(right.to(dtype))


def _cut(values: torch.Tensor, level: Partition, move: Move) -> Tensor:
    whole = move.is_onto and move.read is None
    return tensor_of(values if whole else move(values), level)


def _put_back(values: torch.Tensor, move: Move) -> torch.Tensor:
    whole = move.given == move.entries and move.read is None and move.valid is None
    return values if whole else move.back(values)
