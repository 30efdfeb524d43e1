"""Attention by scores: a product, a softmax and a product of ragged operations.

It takes every mask and bias, drops weights, and can be differentiated any number of times.
"""

from __future__ import annotations

from typing import Any

import torch

from serrate.eager.attention import Call, check_reach, within
from serrate.eager.elementwise import apply
from serrate.eager.precision import widened
from serrate.eager.reducing import extreme_values, reduction, sum_values
from serrate.ops.record import ops
from serrate.tensor.broadcast import align
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Nest, Ragged
from serrate.tensor.tensor import Tensor, as_tensor


def by_scores(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """The output and the weights [..., q, k], by ragged operations alone."""
    scores = apply(torch.mul, ops.matmul(q, k.mT), call.scale)
    for bias in call.biases:
        scores = apply(torch.add, scores, like(bias, scores, "bias"))
    hidden = _hidden(scores, call)
    if hidden is not None:
        scores = apply(torch.where, hidden, -float("inf"), scores)
    weights = _weights(scores).to(v.dtype)  # a wider bias does not make the output wider
    if call.dropout:
        weights = ops.dropout(weights, call.dropout)
    return ops.matmul(weights, v), weights


def gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor, call: Call) -> tuple[torch.Tensor, ...]:
    """What attention without dropout passes back to the values of q, k and v; it can be derived again."""
    matmul = ops.matmul
    weights = by_scores(q, k, v, call)[1]
    by_weight = matmul(g, v.mT)
    mean = ops.sum(apply(torch.mul, by_weight, weights), axis=-1, keepdims=True)
    by_score = apply(torch.mul, weights, apply(torch.sub, by_weight, mean))
    by_score = apply(torch.mul, by_score, call.scale)
    made = (matmul(by_score, k), matmul(by_score.mT, q), matmul(weights.mT, g))
    return tuple(align(m, x) for m, x in zip(made, (q, k, v), strict=True))


def _weights(scores: Tensor) -> Tensor:
    """Softmax along the last axis; a query that sees no key has weights of 0."""
    wide = scores._with(widened(scores.values))
    call = reduction(wide, -1)
    top = extreme_values(call, wide.values.detach(), largest=True)
    shifted = wide.values - call.spread(torch.where(top.isfinite(), top, torch.zeros_like(top)))
    made = shifted.exp()
    total = sum_values(call, made)
    return wide._with(made / call.spread(torch.where(total == 0, torch.ones_like(total), total))).to(scores.dtype)


def _hidden(scores: Tensor, call: Call) -> Tensor | None:
    """Which scores are not seen."""
    hidden: Tensor | None = None
    if call.mask is not None:
        hidden = ops.logical_not(like(call.mask, scores, "mask"))
    if call.reach != (None, None):
        made = _on_rows(scores, _out_of_reach(scores, call))
        hidden = made if hidden is None else apply(torch.logical_or, hidden, made)
    return hidden


def _out_of_reach(scores: Tensor, call: Call) -> torch.Tensor:
    """Whether the key of each score is out of its query's reach, broadcastable to the values."""
    packed = len(scores.structure.axes)
    if scores.order[-1] == packed - 1 and scores.order[-2] < packed:
        return _outside_runs(scores, call)
    queries, keys = _positions(scores, -2), _positions(scores, -1)
    seen = within(queries + _shift(scores, scores.structure.whole, call), keys, call.reach)
    assert seen is not None
    return ~seen


def _outside_runs(scores: Tensor, call: Call) -> torch.Tensor:
    """The same where the keys of each query are a run of packed rows: what it sees is a part of the run.

    A part begins and ends with a mark, and marks are added up: no row needs to know which run it is in.
    """
    structure, device, number = scores.structure, scores.device, scores.order[-2]
    outer = structure.whole[:-1]
    runs = structure.level(structure.whole)
    assert isinstance(runs, Partition)
    queries = structure.positions(outer, number, device)
    queries = queries + _shift(scores, outer, call).reshape(-1)
    before, after = call.reach
    lengths, starts = (each.to(torch.int64) for each in (runs.lengths_on(device), runs.offsets_on(device)[:-1]))
    begin = torch.zeros_like(queries) if before is None else torch.minimum((queries - before).clamp(min=0), lengths)
    end = lengths if after is None else torch.minimum((queries + after + 1).clamp(min=0), lengths)
    end = torch.maximum(begin, end)
    marks = torch.zeros(runs.num_values + 1, dtype=torch.int8, device=device)
    marks[0] = 1
    one = torch.ones_like(begin, dtype=torch.int8)
    marks.index_add_(0, starts + begin, -one).index_add_(0, starts + end, one)
    hidden = torch.cumsum(marks, 0, dtype=torch.int8)[:-1].view(torch.bool)
    return hidden.view(-1, *[1] * (scores.values.ndim - 1))


def _positions(x: Tensor, axis: int) -> torch.Tensor:
    """For each packed row (or, of a uniform axis, broadcastable to them) its position along an axis of scores."""
    c = x.order[axis]
    packed = len(x.structure.axes)
    if x.is_ragged and c < packed:
        along = x.structure.positions(x.structure.whole, c, x.device)
        return along.view(-1, *[1] * (x.values.ndim - 1))
    dim = c - packed + 1 if x.is_ragged else c
    return torch.arange(x.values.shape[dim], device=x.device).view(-1, *[1] * (x.values.ndim - 1 - dim))


def _shift(scores: Tensor, nest: Nest, call: Call) -> torch.Tensor:
    """How much farther along keys are than queries at one position: 0, or as many as there are more of them.

    For each cell of `nest`, shaped to meet values; or one number for all.
    """
    ahead = torch.zeros((), dtype=torch.int64, device=scores.device)
    for axis, sign in ((-1, 1), (-2, -1)) if call.causal == "lower_right" else ():
        size = scores.shape[axis]
        if isinstance(size, int):
            ahead = ahead + sign * size
            continue
        parents = tuple(scores.order[p] for p in size.parents)
        cells = scores.structure.project(nest, parents, scores.device)
        lengths = size.partition.lengths_on(scores.device).to(torch.int64)
        if lengths.numel():
            ahead = ahead + sign * lengths[cells].view(-1, *[1] * (scores.values.ndim - 1))
    return ahead


def _on_rows(x: Tensor, values: torch.Tensor) -> Tensor:
    """Values that broadcast against x's, as a tensor of x's shape."""
    return x._with(values.expand(x.values.shape))


def like(given: Any, scores: Tensor, name: str) -> Any:
    """A mask or bias that broadcasts against scores; a dense one lends each row its top-left block."""
    x = as_tensor(given)
    if x.is_ragged or not scores.is_ragged:
        return x
    if x.ndim < 2:
        raise ValueError(f"{name} must have axes for queries and keys, got shape {x.shape}")
    shape: list[int] = []
    for axis in range(-scores.ndim, 0):
        wanted = scores.shape[axis]
        have = x.shape[axis] if -axis <= x.ndim else 1
        assert isinstance(have, int)
        if isinstance(wanted, Ragged):
            check_reach(have, wanted, x, name)
            shape.append(wanted.partition.max_length if have == 1 else have)
        else:
            if have not in (1, wanted):
                raise ValueError(f"{name} of shape {x.shape} does not fit scores of shape {scores.shape}")
            shape.append(wanted)
    return ops.from_dense(ops.broadcast_to(x, shape), like=scores)
