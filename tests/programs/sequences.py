"""Steps on sequences: attention and convolution, each row on its own."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from tests.programs.broadcast import kind_of
from tests.programs.keys import shape_only
from tests.programs.leaves import Leaf, like, random_values
from tests.programs.lines import groups
from tests.programs.mapped import Axis, Lengths, Mapped, cells
from tests.programs.program import Draw, Environment, Step, generator


def batch_leaf(draw: Draw, heads: bool, lengths: list[int], heads_count: int, width: int, dtype: torch.dtype) -> str:
    """Such a tensor, its sequences packed."""
    sizes = Lengths((0,), {(i,): n for i, n in enumerate(lengths)})
    axes: tuple[Axis, ...] = (len(lengths), *([heads_count] if heads else []), sizes, width)
    leaf = like(draw.random, shape_only(axes), dtype)
    assert leaf is not None
    return draw.like(leaf)


@generator(2.5)
def attention(draw: Draw) -> Step | None:
    dtype = draw.dtype if draw.dtype in (torch.float64, torch.float32) else torch.float64
    heads = draw.chance(0.4)
    batch = draw.integer(0, 3)
    queries = [draw.integer(0, 3) for _ in range(batch)]
    keys = queries if draw.chance(0.5) else [draw.integer(0, 3) for _ in range(batch)]
    head_count, width, out = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 2)
    q = batch_leaf(draw, heads, queries, head_count, width, dtype)
    k = batch_leaf(draw, heads, keys, head_count, width, dtype)
    v = batch_leaf(draw, heads, keys, head_count, out, dtype)
    causal = draw.choice((False, False, True, "lower_right"))
    window = draw.choice((None, None, 1, (1, 0), (0, 2), (-1, 1)))
    scale = draw.choice((None, 0.5))
    mask = bias = None
    longest = (max(queries, default=0), max(keys, default=0))
    if draw.chance(0.3) and min(longest) > 0:
        values = random_values(draw.random, math.prod(longest), torch.bool)
        mask = draw.given(Leaf(longest, values, torch.bool, plain=True))
    if draw.chance(0.3) and min(longest) > 0:
        bias = draw.like(Leaf(longest, random_values(draw.random, math.prod(longest), dtype), dtype, plain=True))

    def oracle(env: Environment) -> Mapped:
        x, y, z = env[q], env[k], env[v]
        assert (x.axes[-1], y.axes[-1], z.axes[-1]) == (width, width, out)
        axes = (*x.axes[:-1], z.axes[-1])
        rows, others, values = [groups(t, [t.ndim - 2, t.ndim - 1]) for t in (x, y, z)]
        found: dict[Any, torch.Tensor] = {}
        for index, ranks in rows.items():
            query = x.flat[torch.tensor(ranks)].reshape(-1, width)
            key = y.flat[torch.tensor(others.get(index, []), dtype=torch.int64)].reshape(-1, width)
            value = z.flat[torch.tensor(values.get(index, []), dtype=torch.int64)].reshape(-1, out)
            given = [None if n is None else env[n].dense_values() for n in (mask, bias)]
            row = attend(query, key, value, causal, window, scale, *given)
            found |= {(*index, i, j): row[i, j] for i in range(row.shape[0]) for j in range(out)}
        order = cells(axes)
        made = torch.stack([found[i] for i in order]) if order else z.flat[:0]
        return Mapped.of(axes, made)

    options = [f"causal={causal!r}"] if causal else []
    options += [f"window={window}"] if window is not None else []
    options += [f"scale={scale}"] if scale else []
    options += [f"mask={mask}"] if mask else []
    options += [f"bias={bias}"] if bias else []
    words = f"sr.attention({', '.join([q, k, v, *options])})"
    return Step("attention", words, oracle, (q, k, v, *[n for n in (mask, bias) if n]), (draw.name(),))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: Any,
    window: Any,
    scale: float | None,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """One row: softmax of masked scores, 0 for a query that sees no key."""
    n, m = query.shape[0], key.shape[0]
    scores = query @ key.mT * (1 / math.sqrt(query.shape[1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias[:n, :m]
    shift = m - n if causal == "lower_right" else 0
    i = torch.arange(n)[:, None] + shift
    j = torch.arange(m)[None, :]
    seen = torch.ones(n, m, dtype=torch.bool)
    if causal:
        seen = seen & (j <= i)
    if window is not None:
        before, after = (window, window) if isinstance(window, int) else window
        seen = seen & ((j >= i - before) | torch.tensor(before < 0)) & ((j <= i + after) | torch.tensor(after < 0))
    if mask is not None:
        seen = seen & mask[:n, :m]
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), 1)
    weights = torch.where(seen.any(1, keepdim=True), weights, 0.0) if m else weights
    return torch.where(seen, weights, 0.0) @ value


@generator(2)
def conv1d(draw: Draw) -> Step | None:
    """[batch, channels, ragged sequence]."""
    dtype = draw.dtype if kind_of(draw.dtype) == 2 and draw.dtype in (torch.float64, torch.float32) else torch.float64
    batch, groups_, inner = draw.integer(0, 3), draw.choice((1, 1, 2)), draw.integer(1, 2)
    channels, out, width = groups_ * inner, groups_ * draw.integer(1, 2), draw.integer(1, 3)
    lengths = {(i,): draw.integer(0, 4) for i in range(batch)}
    axes: tuple[Axis, ...] = (batch, channels, Lengths((0,), lengths))
    leaf = like(draw.random, shape_only(axes), dtype)
    assert leaf is not None
    name = draw.like(leaf)
    weight = draw.like(
        Leaf((out, inner, width), random_values(draw.random, out * inner * width, dtype), dtype, plain=True)
    )
    bias = (
        draw.like(Leaf((out,), random_values(draw.random, out, dtype), dtype, plain=True)) if draw.chance(0.5) else None
    )
    stride, padding, dilation = draw.choice((1, 1, 2)), draw.integer(0, 2), draw.choice((1, 1, 2))

    def oracle(env: Environment) -> Mapped:
        x, w = env[name], env[weight].dense_values()
        assert x.axes == axes
        b = None if bias is None else env[bias].flat
        made: dict[tuple[int, ...], torch.Tensor] = {}
        sizes = {}
        for i in range(batch):
            n = lengths[(i,)]
            here = [k for k, index in enumerate(x.indices) if index[0] == i]
            row = x.flat[torch.tensor(here, dtype=torch.int64)].reshape(1, channels, n)
            reach = dilation * (width - 1) + 1
            if n == 0 or n + 2 * padding < reach:
                sizes[(i,)] = 0
                continue
            found = F.conv1d(row, w, b, stride, padding, dilation, groups_)[0]
            sizes[(i,)] = found.shape[1]
            made |= {(i, c, t): found[c, t] for c in range(out) for t in range(found.shape[1])}
        shape: tuple[Axis, ...] = (batch, out, Lengths((0,), sizes))
        order = cells(shape)
        return Mapped.of(shape, torch.stack([made[k] for k in order]) if order else x.flat[:0])

    options = f", stride={stride}, padding={padding}, dilation={dilation}, groups={groups_}"
    given = [name, weight] if bias is None else [name, weight, bias]
    return Step("conv1d", f"sr.conv1d({', '.join(given)}{options})", oracle, tuple(given), (draw.name(),))
