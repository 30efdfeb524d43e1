"""Attention by torch's kernels, which want rectangles: one or a few calls per length class of rows.

The first derivative is the kernel's own. Kernels have no second derivative: the caller gives a function that computes
gradients by scores, which can be derived again.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.attention import Call
from serrate.eager.attention_bands import Bands, Block
from serrate.eager.blocks import Lengths, Side
from serrate.eager.classes import LengthClass
from serrate.native.loading import empty
from serrate.tensor.differentiable import Differentiable, beyond_gradients
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor

Gradients = Callable[[Tensor, Tensor, Tensor, Tensor, Call], tuple[torch.Tensor, ...]]
"""A function that gives the gradients of the values of q, k and v, from those, the gradient of the result and the call.
Its own derivative can be taken again."""


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows of queries, and rows of keys and values, [rows, heads, features], both cut into as many components."""

    queries: Partition
    keys: Partition
    call: Call

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: list[Attended] | None = None
    ) -> torch.Tensor:
        """Attention by torch's kernel, one length class after the other. What the gradient needs is added to `kept`."""
        lengths = Lengths({"q": self.queries, "k": self.keys})
        sides = Side(("q",), (), self.queries), Side(("k",), (), self.keys)
        out: torch.Tensor | None = None
        for group in lengths.classes:
            ours, theirs = (_Rows(lengths, side, group) for side in sides)
            made = Attended(ours, theirs, self.call.scale, kept is not None)
            rows = made.compute(ours.read(q), theirs.read(k), theirs.read(v), self._bands(lengths, group, q))
            if kept is not None:
                kept.append(made)
            if ours.run == (0, q.shape[0]):
                return rows.flatten(0, 1)
            if out is None:  # What stands for no query is written to a spare row past the last.
                out = self.room((q.shape[0] + 1, q.shape[1], v.shape[2]), rows)
            ours.write(rows, out)
        return q.new_zeros((q.shape[0], q.shape[1], v.shape[2])) if out is None else out[:-1]

    def room(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Memory for packed rows that all classes write to, with 0 in the rows that are in no class."""
        if self.queries is not self.keys or not self.queries.is_exact:
            return like.new_zeros(shape)
        return empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)

    def _bands(self, lengths: Lengths, group: LengthClass, q: torch.Tensor) -> Bands:
        wide, high = (group.sizes[lengths.number[label]] for label in ("q", "k"))
        width = q.shape[1] * q.shape[2]
        rows = self.queries, self.keys
        return Bands(self.call, group.members, rows, wide, high, group.is_exact, width, q.dtype, q.device)


@dataclass(eq=False)
class _Rows:
    """Where the rows of a class lie among packed ones, as [members, sequence, heads, features]."""

    lengths: Lengths
    side: Side
    group: LengthClass

    @property
    def run(self) -> tuple[int, int] | None:
        """The first row and the number of rows, where they lie one after the other."""
        return self.lengths.run(self.side, self.group)

    @property
    def size(self) -> int:
        """The longest member's length."""
        (longest,) = self.lengths.sizes(self.side, self.group)
        return longest

    def read(self, values: torch.Tensor) -> torch.Tensor:
        """The rows of the class: a view, or a copy with 0 where there is no row, so that no other row is multiplied."""
        if self.run is not None:
            return self._shaped(values.narrow(0, *self.run))
        return self._shaped(self.lengths.cells(self.side, self.group, values.device).read(values, blank=True))

    def write(self, blocks: torch.Tensor, values: torch.Tensor) -> None:
        """Write blocks into packed rows. The last of these is a spare one, for what stands for no row."""
        if self.run is not None:
            self.read(values).copy_(blocks)
            return
        places = self.lengths.cells(self.side, self.group, values.device).places(values.shape[0] - 1)
        values.index_copy_(0, places, blocks.flatten(0, 1))

    def room(self, values: torch.Tensor) -> torch.Tensor:
        """Memory in which to add up rows of the class: a view of the packed rows, or zeros, to be written there."""
        if self.run is not None:
            return self.read(values)
        return values.new_zeros((self.group.members.numel(), self.size, *values.shape[1:]))

    def _shaped(self, rows: torch.Tensor) -> torch.Tensor:
        count = self.group.members.numel()
        return rows.view(count, rows.shape[0] // count, *rows.shape[1:])


@dataclass(eq=False)
class Attended:
    """The calls of the kernel for one class, each a block of queries, and what their gradients need."""

    ours: _Rows
    theirs: _Rows
    scale: float
    keeps: bool
    """Whether somebody will ask for gradients."""
    calls: list[tuple[Block, list[torch.Tensor], torch.Tensor]] = field(default_factory=list)
    """For each block of queries, what the kernel was given and what it gave, with the kernel's own graph."""

    def compute(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bands: Bands) -> torch.Tensor:
        """The result for the queries of a class. Operands and result are [members, sequence, heads, features]."""
        out: torch.Tensor | None = None
        for block in bands:
            given = [q[:, block.queries], k[:, block.keys], v[:, block.keys]]
            made = self._call(block, given)
            if made.shape[1] == q.shape[1]:
                return made
            if out is None:
                out = made.new_empty((*q.shape[:3], v.shape[3]))
            out[:, block.queries] = made
        assert out is not None
        return out

    def _call(self, block: Block, given: list[torch.Tensor]) -> torch.Tensor:
        if block.keys.start == block.keys.stop:  # These queries see no key.
            return given[0].new_zeros((*given[0].shape[:3], given[2].shape[3]))
        mask = None if block.mask is None else block.mask()
        if self.keeps:
            given = [x.detach().requires_grad_() for x in given]
        with _not_kept(mask, block):
            heads = [x.transpose(1, 2) for x in given]
            made = F.scaled_dot_product_attention(
                heads[0], heads[1], heads[2], mask, 0.0, block.causal, scale=self.scale
            )
        made = made.transpose(1, 2)
        if self.keeps:
            self.calls.append((block, given, made))
        return made.detach()

    def pass_back(self, gradient: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """The gradients of all packed rows, if one call of the kernel was given all of them; else None."""
        whole = [place.run == (0, x.shape[0]) for place, x in zip(self._places, inputs, strict=True)]
        if not all(whole) or not self.at_once:
            return None
        return [part.flatten(0, 1) for part in self._found(0, self.ours.read(gradient))]

    def add_back(self, gradient: torch.Tensor, packed: list[torch.Tensor]) -> None:
        """Write the gradients of the class's queries, keys and values to packed rows, which hold 0."""
        got = self.ours.read(gradient)
        if self.at_once:
            parts = self._found(0, got)
            for place, rows in zip(self._places, packed, strict=True):
                place.write(parts.pop(0), rows)
            return
        sums = [place.room(rows) for place, rows in zip(self._places, packed, strict=True)]
        for number, (block, _, _) in enumerate(self.calls):
            wheres = block.queries, block.keys, block.keys
            for total, part, where in zip(sums, self._found(number, got), wheres, strict=True):
                total[:, where] += part
        for place, rows in zip(self._places, packed, strict=True):
            total = sums.pop(0)
            if place.run is None:
                place.write(total, rows)

    @property
    def at_once(self) -> bool:
        """Whether one call of the kernel had all queries and all keys of the class."""
        if len(self.calls) != 1:
            return False
        _, given, made = self.calls[0]
        return made.shape[1] == self.ours.size and given[1].shape[1] == self.theirs.size

    @property
    def _places(self) -> tuple[_Rows, _Rows, _Rows]:
        """Where queries, keys and values lie."""
        return self.ours, self.theirs, self.theirs

    def _found(self, number: int, got: torch.Tensor) -> list[torch.Tensor]:
        block, given, made = self.calls[number]
        return list(torch.autograd.grad(made, given, got[:, block.queries], retain_graph=True))


def _not_kept(mask: torch.Tensor | None, block: Block) -> contextlib.AbstractContextManager[Any]:
    """A context in which autograd keeps how a mask is made, and not the mask itself, unless blocks share it."""
    make = block.mask
    if mask is None or make is None or block.shared or torch._C._are_functorch_transforms_active():
        return contextlib.nullcontext()
    memory = mask.untyped_storage().data_ptr()

    def pack(saved: torch.Tensor) -> Any:
        return saved if saved.untyped_storage().data_ptr() != memory else (make, saved.shape)

    def unpack(kept: Any) -> torch.Tensor:
        return kept if isinstance(kept, torch.Tensor) else kept[0]().expand(kept[1])

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def varlen(rows: Packed, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
    """Attention by the kernel that takes offsets, for half types on CUDA without a mask; the host needs no length."""
    call, size = rows.call, q.shape[-1]
    if not q.is_cuda or q.dtype not in (torch.float16, torch.bfloat16) or call.dense_mask is not None:
        return None
    if size != v.shape[-1] or size % 8 or size > 256:
        return None
    if rows.queries is not rows.keys and (call.causal is True or call.window is not None):
        return None  # The kernel counts positions from the ends of rows.
    before, after = call.window or (-1, -1)
    return _varlen_attention(rows, q, k, v, (before, 0 if call.causal else after))


def _varlen_attention(
    rows: Packed, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: tuple[int, int]
) -> torch.Tensor | None:
    """torch's varlen_attn; None if this version of torch lacks an option that is asked for."""
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


class Saved:
    """What a call keeps for its gradient: the kernel's own graphs, where they can be used, and how rows are shaped."""

    def __init__(self, packed: Packed, shaped: list[Tensor], gradients: Gradients) -> None:
        self.packed = packed
        self.shaped = shaped
        self.gradients = gradients
        """The gradients by scores, for where the kernel's own graphs cannot be used."""
        self.classes: list[Attended] = []
        self.inputs: list[torch.Tensor] = []
        self.out: torch.Tensor | None = None
        """What the kernel for packed rows gave."""

    def pass_back(self, gradient: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients of queries, keys and values."""
        if self.out is not None:
            return list(torch.autograd.grad(self.out, self.inputs, gradient, retain_graph=True))
        made = self.classes[0].pass_back(gradient, inputs) if len(self.classes) == 1 else None
        if made is not None:
            return made
        at_once = all(each.at_once for each in self.classes)  # else gradients are added up there
        shapes = [(x.shape[0] + 1, *x.shape[1:]) for x in inputs]
        packed = [gradient.new_zeros(shape) if not at_once else self.packed.room(shape, gradient) for shape in shapes]
        for each in self.classes:
            each.add_back(gradient, packed)
        return [x[:-1] for x in packed]


class _Attend(Differentiable):
    """Attention by kernels. The kernel computes the first derivative; higher ones are computed by scores."""

    @staticmethod
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, saved: Saved) -> torch.Tensor:
        with torch.enable_grad():
            saved.inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            saved.out = varlen(saved.packed, *saved.inputs)
            if saved.out is not None:
                return saved.out.detach()
            return saved.packed.attend(q.detach(), k.detach(), v.detach(), saved.classes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, ctx.saved = inputs
        # The kernel's graph reads the result, so torch has to find out if somebody writes to it.
        ctx.save_for_backward(q, k, v, output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        saved: Saved = ctx.saved
        *given, _ = ctx.saved_tensors
        if torch.is_grad_enabled() or beyond_gradients() or _transformed(gradient):
            q, k, v = (like._with(x) for like, x in zip(saved.shaped, given, strict=True))
            return (*saved.gradients(q, k, v, q._with(gradient), saved.packed.call), None)
        return (*saved.pass_back(gradient, given), None)


def _transformed(values: torch.Tensor) -> bool:
    """Whether a transform of torch.func is active, which cannot use the kernel's graph."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(values))


def by_kernel(q: Tensor, k: Tensor, v: Tensor, call: Call, gradients: Gradients) -> Tensor | None:
    """Attention by kernels; None unless queries and keys have one ragged axis each, on the same outer axes.

    `gradients` are those by scores, for derivatives that the kernel lacks.
    """
    if beyond_gradients():
        return None  # Kernels have no forward mode, and no rule for vmap.
    for x in (q, k, v):
        last = len(x.structure.axes) - 1
        if not x.is_ragged or not x.structure.is_chain or x.order[-2] != last or x.order[-1] <= last:
            return None
    if not q.order == k.order == v.order or not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2]):
        return None  # Cells and heads meet in the order in which they are stored.
    queries, keys = (x.structure.partition_of(len(x.structure.axes) - 1) for x in (q, k))
    packed = Packed(queries, keys, call)
    rows = [_with_heads(x) for x in (q, k, v)]
    if rows[0].shape[1] != rows[1].shape[1]:
        return None
    if 0 in (rows[0].shape[0], rows[1].shape[0], rows[0].shape[2], rows[0].shape[1]):
        return None  # There is nothing for a kernel to do.
    if q.is_cuda and (rows[0].shape[2] % 8 or rows[2].shape[2] % 8):
        return None  # Kernels on CUDA refuse some layouts of features that they would have to pad.
    if torch.is_grad_enabled() and any(x.requires_grad for x in rows):
        like = [_by_heads(x, r) for x, r in zip((q, k, v), rows, strict=True)]
        values = _Attend.call(*rows, Saved(packed, like, gradients))
    else:
        made = varlen(packed, *rows)
        values = packed.attend(rows[0], rows[1], rows[2]) if made is None else made
    return _without_heads(q, values)


def _by_heads(x: Tensor, rows: torch.Tensor) -> Tensor:
    """[rows, heads, features] as [..., heads, sequence, features]."""
    last = len(x.structure.axes) - 1
    return Tensor(rows, x.structure, (*range(last), last + 1, last, last + 2), x.team)


def _feature_dims(x: Tensor) -> list[int]:
    """The dimensions of the features in the order in which they are seen, the last axis last."""
    packed = len(x.structure.axes)
    return [c - packed + 1 for c in x.order if c >= packed]


def _with_heads(x: Tensor) -> torch.Tensor:
    """The values as [rows, heads, features]."""
    values = x.values.permute(0, *_feature_dims(x))
    rows = values.reshape(values.shape[0], math.prod(values.shape[1:-1]), values.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()  # Kernels want contiguous features.


def _without_heads(q: Tensor, values: torch.Tensor) -> Tensor:
    """[rows, heads, features] in the layout of the queries."""
    dims = _feature_dims(q)
    sizes = [q.values.shape[d] for d in dims[:-1]]
    made = values.reshape(values.shape[0], *sizes, values.shape[-1])
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d - 1] = i + 1
    return q._with(made.permute(0, *back))
