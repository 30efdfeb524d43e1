"""Attention on packed sequences: each row attends to itself alone, whatever its neighbours are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.attention import Call, Causal, copies, prepare, read
from serrate.eager.attention_kernels import by_kernel
from serrate.errors import AxisError, RaggednessError
from serrate.ops.multihead import multi_head_attention
from serrate.ops.record import operation, ops, record, written
from serrate.ops.reductions import accumulating, count
from serrate.ops.scores import by_scores, gradients, like
from serrate.tensor.layout import identical
from serrate.tensor.structure import Ragged
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


# ------------------------------------------------------------------------------------------------------------ body


def _attention_body(
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
) -> Any:
    biases = () if bias is None else (bias,)
    q, k, v, call = read(query, key, value, causal, window, biases, mask, scale, dropout)
    k, v = _with_heads(q, k, "key"), _with_heads(q, v, "value")
    scores = ops.matmul(q, ops.matrix_transpose(k)) * call.scale
    if bias is not None:
        scores = scores + like(bias, scores, "bias")
    if mask is not None:
        scores = ops.where(like(mask, scores, "mask"), scores, -float("inf"))
    for seen in _in_reach(scores, call):
        scores = ops.where(seen, scores, -float("inf"))
    weights = ops.astype(_weights(accumulating(scores)), v.dtype)
    return ops.matmul(ops.dropout(weights, dropout) if dropout else weights, v)


def _with_heads(q: Any, x: Any, name: str) -> Any:
    """Keys or values with each head repeated for the queries of its group."""
    times = copies(q, x, name)
    return x if times == 1 else ops.repeat(x, times, axis=x.ndim - 3)


def _weights(scores: Any) -> Any:
    """Softmax along the last axis; a query that sees no key has weights of 0."""
    top = ops["Tensor.detach"](ops.max(scores, axis=-1))
    top = ops.where(ops.isfinite(top), top, 0)
    made = ops.exp(scores - ops.expand_like(top, scores, axis=-1))
    total = ops.sum(made, axis=-1)
    return made / ops.expand_like(ops.where(ops.equal(total, 0), 1, total), scores, axis=-1)


def _in_reach(scores: Any, call: Call) -> Iterator[Any]:
    """Whether the key of each score is not too far before its query, and not too far behind it."""
    before, after = call.reach
    if call.reach == (None, None):
        return
    queries, keys = _positions(scores, scores.ndim - 2), _positions(scores, scores.ndim - 1)
    if call.causal == "lower_right":  # the last key stands beside the last query
        queries = queries + (_lengths(scores, scores.ndim - 1) - _lengths(scores, scores.ndim - 2))
    if before is not None:
        yield keys >= queries - before
    if after is not None:
        yield keys <= queries + after


def _positions(scores: Any, axis: int) -> Any:
    """The position of each score along an axis, in a shape that is stretched to that of the scores."""
    size = scores.shape[axis]
    if not isinstance(size, Ragged):
        return ops.reshape(ops.arange(size, device=scores.device), (size, *[1] * (scores.ndim - 1 - axis)))
    ragged = {number for number, each in enumerate(scores.shape) if isinstance(each, Ragged)}
    packed = ragged.union(*(scores.shape[number].parents for number in ragged))
    made = ops.positions(scores, axis)
    for number in range(scores.ndim):
        made = made if number in packed else ops.expand_dims(made, axis=number)
    return made


def _lengths(scores: Any, axis: int) -> Any:
    """How many scores there are along an axis, beside each score."""
    many = count(scores, axis)
    return many if isinstance(many, int) else ops.expand_like(many, scores, axis=axis)


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
    body=_attention_body,
    kinds=("float",),
    samples=(
        "x[..., None], x[..., None], x[..., None]",
        "x[..., None], x[..., None], x[..., None], causal=True, window=1",
        "x[..., None], x[..., None], x[..., None], causal='lower_right', window=(1, 2), scale=2.0, "
        "bias=x[..., None] * x[..., None, :], mask=x[..., None] + x[..., None, :] < 1.1",
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
    dialect=written("attention"),
)
