"""`torch.nn.MultiheadAttention` and the transformer layers on ragged sequences: they call one function of torch."""

from __future__ import annotations

from typing import Any

import torch

from serrate.eager.attention import prepare
from serrate.eager.attention_kernels import by_kernel
from serrate.errors import AxisError
from serrate.ops.record import ops
from serrate.ops.scores import by_scores, gradients
from serrate.tensor import abstract
from serrate.tensor.indexing import expand_dims
from serrate.tensor.join import concat
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """torch's function of the same name; operands come as [sequence, batch, features], a view of ours."""
    if static_k is not None or static_v is not None:
        raise TypeError("static_k and static_v are not defined for sr.Tensor")
    own = query is key and key is value
    # A compiled call gives dense tensors of Serrate's class for weights and masks.
    in_proj_weight, in_proj_bias, bias_k, bias_v = map(_plain, (in_proj_weight, in_proj_bias, bias_k, bias_v))
    q_proj_weight, k_proj_weight, v_proj_weight = map(_plain, (q_proj_weight, k_proj_weight, v_proj_weight))
    attn_mask, key_padding_mask = _plain(attn_mask), _plain(key_padding_mask)
    rows = [_batch_first(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value"))]
    if abstract.differ(rows[0].shape[-1], embed_dim_to_check):
        raise ValueError(f"query must have {embed_dim_to_check} features, got {rows[0].shape[-1]}")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(rows, weights, in_proj_bias, own)
    if bias_k is not None or add_zero_attn:
        if attn_mask is not None or key_padding_mask is not None:
            name = "key_padding_mask" if attn_mask is None else "attn_mask"
            raise TypeError(f"{name} together with bias_k or add_zero_attn is not defined for sr.Tensor")
        k, v = _with_more_keys(k, bias_k, add_zero_attn), _with_more_keys(v, bias_v, add_zero_attn)
    causal = is_causal and (attn_mask is None or not need_weights)
    biases = _biases(None if causal else attn_mask, key_padding_mask, len(rows[0]), num_heads)
    q, k, v = (_split_heads(x, num_heads) for x in (q, k, v))
    q, k, v, call = prepare(q, k, v, causal, None, biases, None, None, dropout_p if training else 0.0)
    made = by_kernel(q, k, v, call, gradients) if call.fuses and not need_weights else None
    seen: Tensor | None = None
    if made is None:
        made, seen = by_scores(q, k, v, call)
    out = ops.linear(_merge_heads(made), out_proj_weight, out_proj_bias)
    if need_weights and seen is not None:
        seen = ops.mean(seen, axis=1) if average_attn_weights else seen
    return out.permute_dims((1, 0, 2)), seen if need_weights else None


def _plain(x: Any) -> Any:
    """The torch tensor inside of a dense tensor."""
    return x.values if isinstance(x, Tensor) and not x.is_ragged else x


def _batch_first(given: Any, name: str) -> Tensor:
    x = as_tensor(given)
    if x.ndim != 3:
        raise ValueError(f"{name} must be [batch, sequence, features], got shape {x.shape}")
    if x.is_ragged and not isinstance(x.shape[0], Ragged):
        raise AxisError(
            f"the ragged axis of {name} arrived as the batch: shape {x.shape} is read as [sequence, batch, features]; "
            f"make the module with batch_first=True"
        )
    return x.permute_dims((1, 0, 2))


def _projected(rows: list[Tensor], weights: Any, bias: Any, own: bool) -> list[Tensor]:
    """Queries, keys and values out of the given rows; one product where all three come from the same."""
    if own and isinstance(weights, torch.Tensor):
        made = ops.linear(rows[0], weights, bias)
        return [made._with(part) for part in made.values.chunk(3, -1)]
    each = weights.chunk(3) if isinstance(weights, torch.Tensor) else weights
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [ops.linear(x, w, b) for x, w, b in zip(rows, each, biases, strict=True)]


def _with_more_keys(x: Tensor, bias: Any, zero: bool) -> Tensor:
    """A learned entry, or one of zeros, behind every row."""
    features = x.values.shape[-1]
    parts = [x]
    if bias is not None:
        parts.append(as_tensor(bias.reshape(1, 1, features).expand(len(x), 1, features)))
    if zero:
        parts.append(as_tensor(x.values.new_zeros(len(x), 1, features)))
    return concat(parts, axis=1)


def _biases(mask: Any, padding: Any, batch: int, heads: int) -> tuple[Any, ...]:
    """What is added to scores: torch has made -inf of what a mask hides."""
    biases: list[Any] = []
    if mask is not None and mask.ndim == 3:
        ragged = isinstance(mask, Tensor)
        biases.append(expand_dims(mask, 1) if ragged else mask.view(batch, heads, *mask.shape[1:]))
    elif mask is not None:
        biases.append(mask)
    if padding is not None:
        if not isinstance(padding, Tensor) or not padding.is_ragged:
            raise TypeError(
                "ragged rows have no padding: key_padding_mask must be left out, or be ragged, [batch, sequence]"
            )
        biases.append(expand_dims(expand_dims(padding, 1), 1))
    return tuple(biases)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, sequence, features] as [batch, heads, sequence, features of one], a view."""
    values = x.values.view(*x.values.shape[:-1], heads, x.values.shape[-1] // heads)
    if not x.is_ragged:
        return Tensor(values.transpose(1, 2), team=x.team)
    return Tensor(values, x.structure, (0, 2, 1, 3), x.team)


def _merge_heads(x: Tensor) -> Tensor:
    if not x.is_ragged:
        return Tensor(x.values.transpose(1, 2).flatten(2), team=x.team)
    values = x.values if x.order == (0, 2, 1, 3) else x.values.transpose(1, 2)
    return Tensor(values.flatten(1), x.structure, (0, 1, 2), x.team)
