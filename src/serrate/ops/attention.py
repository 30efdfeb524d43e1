"""Attention on packed sequences: each row attends to itself alone, whatever its neighbours are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.attention import Causal, prepare
from serrate.eager.attention_kernels import by_kernel
from serrate.errors import AxisError, RaggednessError
from serrate.ops.multihead import multi_head_attention
from serrate.ops.record import operation, record
from serrate.ops.scores import by_scores, gradients
from serrate.tensor.layout import identical
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _attention(
    query: Any,
    key: Any,
    value: Any,
    /,
    *,
    causal: Causal = False,
    window: int | Sequence[int] | None = None,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    biases = () if bias is None else (bias,)
    q, k, v, call = prepare(query, key, value, causal, window, biases, mask, scale, dropout)
    made = by_kernel(q, k, v, call, gradients) if call.fuses else None
    return _laid_out_as(q, by_scores(q, k, v, call)[0]) if made is None else made


def _laid_out_as(q: Tensor, made: Tensor) -> Tensor:
    """The same tensor, its features stored in the order of the query's."""
    if made.order == q.order or not identical(made.structure, q.structure):
        return made
    packed = len(q.structure.axes)
    dims = {c: made.order[axis] - packed + 1 for axis, c in enumerate(q.order) if c >= packed}
    return q._with(made.values.permute(0, *(dims[c] for c in sorted(dims))))


def _answer_sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if not enable_gqa and as_tensor(query).ndim > 3 and as_tensor(query).shape[-3] != as_tensor(key).shape[-3]:
        raise ValueError("query and key have different numbers of heads; give enable_gqa=True for grouped queries")
    if attn_mask is not None and is_causal:
        raise ValueError("give either attn_mask or is_causal, not both")
    named = {} if attn_mask is None else {"mask" if attn_mask.dtype == torch.bool else "bias": attn_mask}
    return _attention(query, key, value, causal=is_causal, scale=scale, dropout=dropout_p, **named)


record(
    "attention",
    "attention",
    _attention,
    _answer_sdpa,
    summary="softmax(query @ keyᵀ * scale) @ value in each row; sequences stand at axis -2, heads before them.",
    example=(
        "sr.attention(*[sr.ragged([[[1., 0.]], [[0., 1.], [0., 1.]]], ragged_rank=1)] * 3).tolist()",
        "[[[1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]",
    ),
    torch=(F.scaled_dot_product_attention,),
    spellings={F.multi_head_attention_forward: multi_head_attention},
    operands=("query", "key", "value", "bias", "mask"),
    kinds=("float",),
    samples=(
        "x[..., None], x[..., None], x[..., None]",
        "x[..., None], x[..., None], x[..., None], causal=True, window=1",
    ),
    errors=(
        ("x.to(torch.int64), x, x", TypeError, "attention needs floating-point elements, got torch.int64 in query"),
        ("x, x[..., :1], x", ValueError, "query and key must have as many features, got 2 and 1"),
        (
            "x, x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])",
            RaggednessError,
            "key and value must have the same rows",
        ),
        ("x.mT, x.mT, x.mT", AxisError, "the last axis of query must be its features"),
        ("x[..., 0], x[..., 0], x[..., 0]", ValueError, r"must be \[batch, \(heads,\) sequence, features\]"),
        ("x, x, x, causal='left'", ValueError, "causal must be"),
        ("x, x, x, window=-3", ValueError, "window must be"),
        ("x, x, x, mask=torch.ones(3, 3)", TypeError, "mask must be bool"),
        ("x, x, x, bias=torch.ones(2, 2)", ValueError, "smaller than the longest row, 3"),
    ),
)
