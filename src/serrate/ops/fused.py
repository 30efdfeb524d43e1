"""Attention by torch's kernels, which want rectangles: one call per length class of rows.

The first derivative is the kernel's own; the second, which kernels lack, goes through scores.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from serrate.ops.blocks import Lengths, Side
from serrate.ops.classes import LengthClass
from serrate.ops.differentiable import Differentiable, beyond_gradients
from serrate.ops.scores import Call, gradients
from serrate.tensor import host
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows of queries and of keys and values, [rows, heads, features], of as many components."""

    queries: Partition
    keys: Partition
    call: Call

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """torch's kernel: on packed rows where it has one for them, else on each length class."""
        packed = varlen(self, q, k, v)
        if packed is not None:
            return packed
        lengths = Lengths({"q": self.queries, "k": self.keys})
        ours, theirs = Side(("q",), (), self.queries), Side(("k",), (), self.keys)
        parts: list[torch.Tensor] = []
        places: list[torch.Tensor] = []
        for group in lengths.classes:
            queries, keys, values = (_block(lengths, s, group, x) for s, x in ((ours, q), (theirs, k), (theirs, v)))
            seen = self._seen(lengths, group, q.device)
            seen = seen if seen is None or seen.dtype == torch.bool else seen.to(q.dtype)
            plain = self.call.causal is True and seen is None
            made = F.scaled_dot_product_attention(queries, keys, values, seen, 0.0, plain, scale=self.call.scale)
            parts.append(made.transpose(1, 2).flatten(0, 1))
            if lengths.run(ours, group) == (0, q.shape[0]):
                return parts[0]
            places.append(lengths.cells(ours, group, q.device).places(q.shape[0]))
        out = q.new_zeros((q.shape[0] + 1, q.shape[1], v.shape[2]))
        if parts:
            out = out.to(parts[0].dtype).index_copy(0, torch.cat(places), torch.cat(parts))
        return out[:-1]

    def _seen(self, lengths: Lengths, group: LengthClass, device: torch.device) -> torch.Tensor | None:
        """The mask of a class, [members or 1, 1, q, k]; None where all is seen, or causality alone decides."""
        call = self.call
        wide, high = (group.sizes[lengths.number[label]] for label in ("q", "k"))
        own_rows = self.queries is self.keys  # then what a causal query sees is never beyond its row
        if call.causal is True and call.window is None and call.dense_mask is None and (group.is_exact or own_rows):
            return None
        keys = torch.arange(high, device=device)
        have = [
            p.lengths_on(device).to(torch.int64)[host.send(group.members, device)] for p in (self.keys, self.queries)
        ]
        seen = call.visible(torch.arange(wide, device=device)[:, None], keys, (have[0] - have[1])[:, None, None])
        seen = seen[:, None] if seen is not None and seen.ndim == 3 else seen
        if not group.is_exact:
            valid = (keys < have[0][:, None])[:, None, None]
            seen = valid if seen is None else seen & valid
        given = call.dense_mask
        if given is None:
            return seen
        block = given[:wide, :high]
        if seen is None:
            return block
        return block & seen if block.dtype == torch.bool else torch.where(seen, block, -float("inf"))


def varlen(rows: Packed, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
    """The kernel that takes offsets: half types on CUDA, without a mask; it asks for no length, only for a bound."""
    call, size = rows.call, q.shape[-1]
    if not q.is_cuda or q.dtype not in (torch.float16, torch.bfloat16) or call.dense_mask is not None:
        return None
    if size != v.shape[-1] or size % 8 or size > 256:
        return None
    if rows.queries is not rows.keys and (call.causal is True or call.window is not None):
        return None  # it counts positions from the ends of rows
    before, after = call.window or (-1, -1)
    return _varlen_attention(rows, q, k, v, (before, 0 if call.causal else after))


def _varlen_attention(
    rows: Packed, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: tuple[int, int]
) -> torch.Tensor | None:
    """torch's varlen_attn, whose options differ between versions; None where this one lacks what is asked for."""
    from torch.nn.attention.varlen import varlen_attn

    known, scale = inspect.signature(varlen_attn).parameters, rows.call.scale
    options: dict[str, Any] = {}
    if "window_size" in known:
        options["window_size"] = window
    elif window in ((-1, -1), (-1, 0)):
        options["is_causal"] = window == (-1, 0)
    else:
        return None
    if "scale" in known:
        options["scale"] = scale
    elif not math.isclose(scale, q.shape[-1] ** -0.5):
        return None
    q_ends, k_ends = (p.offsets_on(q.device).to(torch.int32) for p in (rows.queries, rows.keys))
    most = rows.queries.max_length_bound, rows.keys.max_length_bound
    made = varlen_attn(q.contiguous(), k.contiguous(), v.contiguous(), q_ends, k_ends, *most, **options)
    assert isinstance(made, torch.Tensor)
    return made


def _block(lengths: Lengths, side: Side, group: LengthClass, values: torch.Tensor) -> torch.Tensor:
    """The class's rows as [members, heads, sequence, features]; 0 where there is no row, so that nothing of another
    row is ever multiplied."""
    run = lengths.run(side, group)
    if run is not None:
        made = values.narrow(0, *run)
    else:
        made = lengths.cells(side, group, values.device).read(values, blank=True)
    count = group.members.numel()
    return made.view(count, made.shape[0] // count, *values.shape[1:]).transpose(1, 2)


class Saved:
    """What a call keeps for its gradient: the kernel's own graph, where it can be used, and how rows are shaped."""

    def __init__(self, packed: Packed, shaped: list[Tensor]) -> None:
        self.packed = packed
        self.shaped = shaped
        self.inputs: list[torch.Tensor] = []
        self.out: torch.Tensor | None = None


class _Attend(Differentiable):
    """The fused form; its first derivative is the kernel's own, others go through scores."""

    @staticmethod
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, saved: Saved) -> torch.Tensor:
        with torch.enable_grad():
            saved.inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            saved.out = saved.packed.attend(*saved.inputs)
        return saved.out.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, ctx.saved = inputs
        ctx.save_for_backward(q, k, v)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        saved: Saved = ctx.saved
        if torch.is_grad_enabled() or beyond_gradients() or _transformed(gradient):
            q, k, v = (like._with(x) for like, x in zip(saved.shaped, ctx.saved_tensors, strict=True))
            return (*gradients(q, k, v, q._with(gradient), saved.packed.call), None)
        assert saved.out is not None
        if saved.out.grad_fn is None:  # no row has both queries and keys
            return (*(torch.zeros_like(x) for x in saved.inputs), None)
        return (*torch.autograd.grad(saved.out, saved.inputs, gradient, retain_graph=True), None)


def _transformed(values: torch.Tensor) -> bool:
    """Whether a transform of torch.func is at work, to which the kernel's graph means nothing."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(values))


def by_kernel(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor | None:
    """The fused form, where it applies: one ragged axis for queries, one for keys, on the same outer axes."""
    if beyond_gradients():
        return None  # kernels know neither tangents nor lines
    for x in (q, k, v):
        last = len(x.structure.axes) - 1
        if not x.is_ragged or not x.structure.is_chain or x.order[-2] != last or x.order[-1] <= last:
            return None
    if not q.order == k.order == v.order or not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2]):
        return None  # cells and heads are paired as they are stored
    queries, keys = (x.structure.partition_of(len(x.structure.axes) - 1) for x in (q, k))
    packed = Packed(queries, keys, call)
    rows = [_with_heads(x) for x in (q, k, v)]
    if rows[0].shape[1] != rows[1].shape[1]:
        return None
    if 0 in (rows[0].shape[0], rows[1].shape[0], rows[0].shape[2], rows[0].shape[1]):
        return None  # nothing for a kernel to do
    if q.is_cuda and (rows[0].shape[2] % 8 or rows[2].shape[2] % 8):
        return None  # CUDA kernels refuse some layouts of features that they would have to pad
    if torch.is_grad_enabled() and any(x.requires_grad for x in rows):
        like = [_by_heads(x, r) for x, r in zip((q, k, v), rows, strict=True)]
        values = _Attend.call(*rows, Saved(packed, like))
    else:
        values = packed.attend(*rows)
    return _without_heads(q, values)


def _by_heads(x: Tensor, rows: torch.Tensor) -> Tensor:
    """[rows, heads, features] as [..., heads, sequence, features]."""
    last = len(x.structure.axes) - 1
    return Tensor(rows, x.structure, (*range(last), last + 1, last, last + 2), x.team)


def _feature_dims(x: Tensor) -> list[int]:
    """Dimensions of the values in the order their axes are seen, the last axis last."""
    packed = len(x.structure.axes)
    return [c - packed + 1 for c in x.order if c >= packed]


def _with_heads(x: Tensor) -> torch.Tensor:
    """The values as [rows, heads, features]."""
    values = x.values.permute(0, *_feature_dims(x))
    rows = values.reshape(values.shape[0], math.prod(values.shape[1:-1]), values.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()  # kernels want contiguous features


def _without_heads(q: Tensor, values: torch.Tensor) -> Tensor:
    """[rows, heads, features] in the layout of the queries."""
    dims = _feature_dims(q)
    sizes = [q.values.shape[d] for d in dims[:-1]]
    made = values.reshape(values.shape[0], *sizes, values.shape[-1])
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d - 1] = i + 1
    return q._with(made.permute(0, *back))
