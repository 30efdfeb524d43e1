"""Operations on the features of each entry: linear maps and embeddings. Rows play no part, so any structure goes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.dense_products import linear
from serrate.errors import AxisError
from serrate.ops.record import operation, ops, record
from serrate.ops.rules import conjugate, in_dtype, reduced_to
from serrate.tensor import abstract, host
from serrate.tensor.combine import zeroed
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _linear(x: Any, weight: Any, bias: Any = None, /) -> Tensor:
    tensor = as_tensor(x)
    if tensor.ndim == 0 or tensor.order[-1] < len(tensor.structure.axes):
        raise AxisError(
            f"linear contracts the last axis, which must be uniform and no parent, got shape {tensor.shape}"
        )
    table = as_tensor(weight).torch()
    if table.ndim not in (1, 2) or abstract.differ(tensor.shape[-1], table.shape[-1]):
        raise ValueError(f"weight must be [out, {tensor.shape[-1]}] for shape {tensor.shape}, got {list(table.shape)}")
    dim = tensor.order[-1] - len(tensor.structure.axes) + 1 if tensor.is_ragged else -1
    offset = None if bias is None else as_tensor(bias).torch()
    if offset is not None:
        abstract.meet(offset.shape, table.shape[:-1])
    made = linear(zeroed(tensor.values, tensor.structure).movedim(dim, -1), table, offset)
    made = zeroed(made, tensor.structure)
    if table.ndim == 1:
        gone = tensor.order[-1]
        order = tuple(c - (c > gone) for c in tensor.order[:-1])
        return (
            Tensor(made, tensor.structure, order, tensor.team) if tensor.is_ragged else Tensor(made, team=tensor.team)
        )
    return tensor._with(made.movedim(-1, dim))


@operation
def _embedding(
    x: Any,
    weight: Any,
    /,
    *,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    tensor = as_tensor(x)
    options: dict[str, Any] = {
        "max_norm": max_norm,
        "norm_type": norm_type,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    if tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"embedding looks up int32 or int64 indices, got {tensor.dtype}")
    table = as_tensor(weight).torch()
    if not tensor.structure.is_exact and (max_norm is not None or scale_grad_by_freq):
        raise TypeError("max_norm and scale_grad_by_freq look at every index; those past the last offset are undefined")
    rows, values = table.shape[0], zeroed(tensor.values, tensor.structure)
    if values.is_cuda:
        given, values = values, values.clamp(0, max(rows - 1, 0))
        host.defer((given != values).any().to(torch.int64), lambda _: _out_of_table(given, rows))
    try:
        if (values.numel() and table.shape[-1]) or sparse:
            made = F.embedding(values, table, padding_idx, **options)
        else:  # torch has no derivative of an embedding without elements, and checks no index of a table without width
            width = table.shape[-1]
            looked_up = F.embedding(
                values,
                table.detach() if width else table.new_zeros((rows, 1)),
                padding_idx,
                **options,
            )
            made = looked_up[..., :width] + 0 * table[:0].sum()
        made = zeroed(made, tensor.structure)
    except IndexError:  # torch has looked at every index; which one it was, it does not say
        raise _out_of_table(values, rows) from None
    if not tensor.is_ragged:
        return Tensor(made, team=tensor.team)
    return Tensor(made, tensor.structure, (*tensor.order, tensor.ndim), tensor.team)


def _out_of_table(indices: torch.Tensor, rows: int) -> IndexError:
    """The error for the first index that is in no row."""
    flat = indices.flatten()
    i = int(((flat < 0) | (flat >= rows)).to(torch.uint8).argmax())
    return IndexError(f"index {int(flat[i])}, packed element {i}, is out of range for a table of {rows} rows")


def _answer_embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    options: dict[str, Any] = {
        "max_norm": max_norm,
        "norm_type": norm_type,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    return _embedding(input, weight, padding_idx=padding_idx, **options)


def _answer_linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    return _linear(input, weight, bias)


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _linear_body(x: Any, weight: Any, bias: Any = None, /) -> Any:
    made = ops.matmul(x, weight if weight.ndim == 1 else ops.matrix_transpose(weight))
    return made if bias is None else made + bias


def _linear_vjp(g: Any, out: Any, x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """The gradient of x goes back through the weight, that of the weight is a product over all entries."""
    letters = "abcdefghijklm"[: x.ndim - 1]
    if weight.ndim == 1:
        to_x = ops.expand_dims(g, axis=-1) * conjugate(weight)
        to_weight = reduced_to(ops.expand_dims(g, axis=-1) * conjugate(x), weight)
    else:
        to_x = ops.matmul(g, conjugate(weight))
        to_weight = in_dtype(ops.einsum(f"{letters}y,{letters}z->yz", g, conjugate(x)), weight.dtype)
    return in_dtype(to_x, x.dtype), to_weight, reduced_to(g, bias)


def _packed(x: Any) -> Any:
    """The entries of a ragged tensor as a dense one; a dense one as it is."""
    return ops["Tensor.flat"](x) if isinstance(x, Tensor) and x.is_ragged else x


def _embedding_vjp(
    g: Any, out: Any, x: Any, weight: Any, *, padding_idx: int | None, scale_grad_by_freq: bool, **_: Any
) -> tuple[None, Any]:
    """For each row of the table the sum of the gradients of those that look it up, or their mean if scaled."""
    rows, width = weight.shape
    indices = ops.reshape(_packed(x), (-1,))
    each = ops.reshape(_packed(g), (indices.shape[0], width))
    if padding_idx is not None:
        each = ops.where(ops.expand_dims(ops.equal(indices, padding_idx % rows), axis=1), 0, each)
    made = ops.segment_sum(each, indices, rows)
    if scale_grad_by_freq:
        often = ops.segment_sum(ops.ones_like(indices, dtype=torch.int64), indices, rows)
        made = made / ops.astype(ops.expand_dims(ops.maximum(often, 1), axis=1), made.dtype)
    return None, in_dtype(made, weight.dtype)


record(
    "features",
    "linear",
    _linear,
    _answer_linear,
    summary="Each entry times the transposed weight, plus bias, along the last axis.",
    example=(
        "sr.linear(sr.ragged([[[1., 2.]], []], ragged_rank=1), torch.tensor([[1., 1.]])).tolist()",
        "[[[3.0]], []]",
    ),
    body=_linear_body,
    vjp=_linear_vjp,
    kinds=("float", "complex"),
    traced=True,
    samples=(
        "x[..., None], torch.ones(3, 1, dtype=x.dtype)",
        "x[..., None], torch.ones(3, 1, dtype=x.dtype), torch.ones(3, dtype=x.dtype)",
        "x[..., None], torch.ones(1, dtype=x.dtype)",
    ),
    errors=(
        ("x, torch.ones(3, 5)", ValueError, r"weight must be \[out, 2\]"),
        ("x[..., 0], torch.ones(3, 1)", AxisError, "linear contracts the last axis"),
    ),
)
record(
    "features",
    "embedding",
    _embedding,
    _answer_embedding,
    summary="The row of a table for each index, as a new last axis.",
    example=(
        "sr.embedding(sr.ragged([[1, 0], []]), torch.tensor([[1., 2.], [3., 4.]])).tolist()",
        "[[[3.0, 4.0], [1.0, 2.0]], []]",
    ),
    primitive="movement",
    vjp=_embedding_vjp,
    kinds=("int",),
    traced=True,
    samples=("x.to(torch.int64), torch.ones(6, 2)",),
    errors=(
        ("x, torch.ones(4, 2)", TypeError, "int32 or int64"),
        ("x.to(torch.int64) + 9, torch.ones(4, 2)", IndexError, "out of range for a table of 4 rows"),
    ),
)
