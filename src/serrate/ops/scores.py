"""Attention by scores: a product, a softmax and a product of ragged operations.

It takes every mask and bias, drops weights, and can be differentiated any number of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from serrate.ops.apply import apply
from serrate.ops.precision import widened
from serrate.ops.reductions import extreme_values, reduction, sum_values
from serrate.ops.table import TABLE
from serrate.tensor.broadcast import align
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor
from serrate.tensor.unpad import from_dense

Causal = bool | Literal["upper_left", "lower_right"]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention: who may see whom, and how scores are scaled."""

    scale: float
    causal: Causal
    window: tuple[int, int] | None
    """How many keys before and after its own position a query sees; -1 for all."""
    biases: tuple[Any, ...]
    """What is added to scores [..., q, k]: -inf hides a key."""
    mask: Any
    """Which keys a query may see."""
    dropout: float

    @property
    def dense_mask(self) -> torch.Tensor | None:
        """One [q, k] mask or bias for all rows, if that is all there is and nobody asks for its gradient."""
        given = [x for x in (*self.biases, self.mask) if x is not None]
        if len(given) != 1:
            return None
        one = given[0].values if isinstance(given[0], Tensor) and not given[0].is_ragged else given[0]
        plain = isinstance(one, torch.Tensor) and one.ndim == 2 and not one.requires_grad
        return one if plain else None

    @property
    def fuses(self) -> bool:
        """Whether the fused form can do it."""
        return not self.dropout and ((not self.biases and self.mask is None) or self.dense_mask is not None)

    def visible(self, queries: torch.Tensor, keys: torch.Tensor, shift: Any = 0) -> torch.Tensor | None:
        """Whether the key at a position may be seen from the query at another; None where all may.

        `shift` is how much longer a row of keys is than the row of queries, for the lower right corner.
        """
        seen: torch.Tensor | None = None
        if self.causal == "lower_right":
            queries = queries + shift
        if self.causal:
            seen = keys <= queries
        if self.window is not None:
            before, after = self.window
            for bound, inside in ((before, keys >= queries - before), (after, keys <= queries + after)):
                if bound >= 0:
                    seen = inside if seen is None else seen & inside
        return seen


def by_scores(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """The output and the weights [..., q, k], by ragged operations alone."""
    matmul = TABLE["matmul"].eager
    scores = apply(torch.mul, matmul(q, k.mT), call.scale)
    for bias in call.biases:
        scores = apply(torch.add, scores, _like(bias, scores, "bias"))
    hidden = _hidden(scores, call)
    if hidden is not None:
        scores = apply(torch.where, hidden, -float("inf"), scores)
    weights = _weights(scores).to(v.dtype)  # a wider bias does not make the output wider
    if call.dropout:
        weights = TABLE["dropout"].eager(weights, call.dropout)
    return matmul(weights, v), weights


def gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor, call: Call) -> tuple[torch.Tensor, ...]:
    """What attention without dropout passes back to the values of q, k and v; it can be derived again."""
    matmul = TABLE["matmul"].eager
    weights = by_scores(q, k, v, call)[1]
    by_weight = matmul(g, v.mT)
    mean = TABLE["sum"].eager(apply(torch.mul, by_weight, weights), axis=-1, keepdims=True)
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
        hidden = TABLE["logical_not"].eager(_like(call.mask, scores, "mask"))
    if call.causal or call.window is not None:
        queries, keys = _positions(scores, -2), _positions(scores, -1)
        seen = call.visible(queries, keys, _shift(scores))
        if seen is not None:
            made = _on_rows(scores, ~seen)
            hidden = made if hidden is None else apply(torch.logical_or, hidden, made)
    return hidden


def _positions(x: Tensor, axis: int) -> torch.Tensor:
    """For each packed row (or, of a uniform axis, broadcastable to them) its position along an axis of scores."""
    c = x.order[axis]
    packed = len(x.structure.axes)
    if x.is_ragged and c < packed:
        along = x.structure.positions(x.structure.whole, c, x.device)
        return along.view(-1, *[1] * (x.values.ndim - 1))
    dim = c - packed + 1 if x.is_ragged else c
    return torch.arange(x.values.shape[dim], device=x.device).view(-1, *[1] * (x.values.ndim - 1 - dim))


def _shift(scores: Tensor) -> torch.Tensor | int:
    """How many more keys than queries there are, for each packed row."""
    sizes = []
    for axis in (-1, -2):
        size = scores.shape[axis]
        if isinstance(size, Ragged):
            number = scores.order[axis]
            nest = (*scores.structure.axes[number].parents, number)  # type: ignore[union-attr]
            rows = scores.structure.project(scores.structure.whole, nest[:-1], scores.device)
            lengths = size.partition.lengths_on(scores.device).to(torch.int64)
            sizes.append(lengths[rows].view(-1, *[1] * (scores.values.ndim - 1)) if lengths.numel() else 0)
        else:
            sizes.append(size)
    return sizes[0] - sizes[1]


def _on_rows(x: Tensor, values: torch.Tensor) -> Tensor:
    """Values that broadcast against x's, as a tensor of x's shape."""
    return x._with(values.expand(x.values.shape))


def _like(given: Any, scores: Tensor, name: str) -> Any:
    """A mask or bias that broadcasts against scores; a dense one lends each row its top-left block."""
    x = as_tensor(given)
    if x.is_ragged or not scores.is_ragged:
        return x
    if x.ndim < 2:
        raise ValueError(f"{name} must have axes for queries and keys, got shape {x.shape}")
    shape: list[int] = []
    for axis in range(-scores.ndim, 0):
        wanted = scores.shape[axis]
        have = x.values.shape[axis] if -axis <= x.ndim else 1
        if isinstance(wanted, Ragged):
            check_reach(have, wanted, x, name)
            shape.append(wanted.partition.max_length if have == 1 else have)
        else:
            if have not in (1, wanted):
                raise ValueError(f"{name} of shape {x.shape} does not fit scores of shape {scores.shape}")
            shape.append(wanted)
    return from_dense(x.values.expand(shape), like=scores)


def check_reach(have: int, rows: Ragged, x: Tensor, name: str) -> None:
    """A ValueError unless an axis of a dense mask of this size covers the longest row."""
    if 1 != have < rows.partition.max_length_bound and have < rows.partition.max_length:
        longest = rows.partition.max_length
        raise ValueError(f"{name} of shape {x.shape} is smaller than the longest row, {longest}")
