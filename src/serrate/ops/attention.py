"""Attention on packed sequences: each row attends to itself alone, whatever its neighbours are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from serrate.errors import AxisError, RaggednessError
from serrate.ops.fused import by_kernel
from serrate.ops.scores import Call, Causal, by_scores, check_reach
from serrate.ops.table import record
from serrate.tensor.broadcast import require_one_device
from serrate.tensor.layout import identical
from serrate.tensor.rearrange import repeat
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


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
    made = by_kernel(q, k, v, call) if call.fuses else None
    return _laid_out_as(q, by_scores(q, k, v, call)[0]) if made is None else made


def _laid_out_as(q: Tensor, made: Tensor) -> Tensor:
    """The same tensor, its features stored in the order of the query's."""
    if made.order == q.order or not identical(made.structure, q.structure):
        return made
    packed = len(q.structure.axes)
    dims = {c: made.order[axis] - packed + 1 for axis, c in enumerate(q.order) if c >= packed}
    return q._with(made.values.permute(0, *(dims[c] for c in sorted(dims))))


def prepare(
    query: Any,
    key: Any,
    value: Any,
    causal: Any,
    window: Any,
    biases: tuple[Any, ...],
    mask: Any,
    scale: Any,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Call]:
    """Checked operands, keys and values with as many heads as queries."""
    q, k, v = (as_tensor(x) for x in (query, key, value))
    require_one_device(q, k, v)
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not x.is_floating_point():
            raise TypeError(f"attention needs floating-point elements, got {x.dtype} in {name}")
        if x.ndim < 3 or x.ndim != q.ndim:
            raise ValueError(f"{name} must be [batch, (heads,) sequence, features] as the query, got shape {x.shape}")
        if isinstance(x.shape[-1], Ragged):
            raise AxisError(
                f"the last axis of {name} must be its features, [batch, (heads,) sequence, features], "
                f"got shape {x.shape}"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"query, key and value must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"query and key must have as many features, got {q.shape[-1]} and {k.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise RaggednessError(f"key and value must have the same rows, got {k.shape[-2]} and {v.shape[-2]}")
    if causal not in (False, True, "upper_left", "lower_right"):
        raise ValueError(f"causal must be a bool, 'upper_left' or 'lower_right', got {causal!r}")
    if mask is not None and as_tensor(mask).dtype != torch.bool:
        raise TypeError(f"mask must be bool, True where a key may be seen, got {mask.dtype}; bias is added to scores")
    for bias in biases:
        if not as_tensor(bias).is_floating_point():
            raise TypeError(f"bias must be floating-point, got {bias.dtype}; a bool mask is given as mask")
        _check_mask("bias", bias, q, k)
    _check_mask("mask", mask, q, k)
    sides = None if window is None else (window, window) if isinstance(window, int) else tuple(window)
    if sides is not None and (len(sides) != 2 or min(sides) < -1):
        raise ValueError(f"window must be how many keys are seen before and after, -1 for all, got {window}")
    features = q.shape[-1]
    assert isinstance(features, int)
    factor = 1 / math.sqrt(max(features, 1)) if scale is None else scale
    call = Call(factor, True if causal == "upper_left" else causal, sides, biases, mask, dropout)
    return q, _grouped(q, k, "key"), _grouped(q, v, "value"), call


def _check_mask(name: str, given: Any, q: Tensor, k: Tensor) -> None:
    """A dense mask must have a block for the longest row."""
    x = None if given is None else as_tensor(given)
    if x is None or x.is_ragged:
        return
    if x.ndim < 2:
        raise ValueError(f"{name} must have axes for queries and keys, got shape {x.shape}")
    for axis, rows in ((-2, q.shape[-2]), (-1, k.shape[-2])):
        if isinstance(rows, Ragged):
            check_reach(x.values.shape[axis], rows, x, name)


def _grouped(q: Tensor, x: Tensor, name: str) -> Tensor:
    """Keys or values with each head repeated for the queries of its group."""
    if q.ndim < 4:
        return x
    have, wanted = x.shape[-3], q.shape[-3]
    if have == wanted or isinstance(have, Ragged) or isinstance(wanted, Ragged):
        return x
    if have == 0 or wanted % have:
        raise ValueError(f"the heads of the query, {wanted}, must be a multiple of those of the {name}, {have}")
    return repeat(x, wanted // have, axis=x.ndim - 3)


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
    gradient="",
    kinds=("float",),
    shape="own",
    dtype="same",
    fusion="serrate.native.attention:library_call",
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
