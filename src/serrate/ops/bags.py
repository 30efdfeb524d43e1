"""Bags of table rows: each row of indices, along the last ragged axis, becomes the sum, mean or greatest it names."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager.reducing import Reduction
from serrate.eager.runs import along
from serrate.eager.sums import blocks_of, sum_of_runs
from serrate.errors import AxisError
from serrate.ops.record import operation, ops, record
from serrate.ops.reductions import accumulating
from serrate.tensor import broadcast, host
from serrate.tensor.combine import zeroed
from serrate.tensor.differentiable import Differentiable, beyond_gradients
from serrate.tensor.offsets import INT32_MAX
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor

_MODES = {"sum": 0, "mean": 1, "max": 2}
_LONG, _BLOCK = 256, 64  # indices: of bags that are cut into blocks, and of these


@dataclass(eq=False)
class Bags:
    """Indices as torch's kernels take them, one vector cut into bags, and how the entries of a bag are combined."""

    ids: torch.Tensor
    offsets: torch.Tensor
    mode: int
    padding: int
    """The row of the table that is left out of every bag; -1 for none."""
    most: int
    """A number of indices that no bag exceeds."""
    kept: list[torch.Tensor] = field(default_factory=list)
    """What torch's forward kernel leaves for its backward: the bag of each index, sizes, places of the greatest."""

    def are_long(self, table: torch.Tensor) -> bool:
        """Whether some bag may have more rows of float32 than are added up one after the other."""
        return self.most > _LONG and self.mode != _MODES["max"] and table.dtype == torch.float32

    @cached_property
    def bag(self) -> torch.Tensor:
        """The bag of each index."""
        numbers = torch.arange(self.ids.numel(), device=self.ids.device, dtype=self.offsets.dtype)
        return torch.searchsorted(self.offsets[1:], numbers, right=True).clamp(max=max(self.offsets.numel() - 2, 0))

    @cached_property
    def counts(self) -> torch.Tensor:
        """How many indices of each bag count, shaped to meet what the bags give."""
        zeros = torch.zeros(self.offsets.numel() - 1, dtype=torch.int64, device=self.ids.device)
        return zeros.index_add(0, self.bag, (self.ids != self.padding).to(torch.int64))[:, None]

    @property
    def greatest(self) -> torch.Tensor:
        """The row of the table that holds the greatest of each bag, for each column."""
        return self.kept[2].to(torch.int64).clamp(min=0)


class _Bag(Differentiable):
    """torch's kernels forward and backward; where the backward is to be differentiated, the same composed."""

    @staticmethod
    def forward(table: torch.Tensor, weights: torch.Tensor | None, bags: Bags) -> torch.Tensor:
        if bags.are_long(table):
            bags.kept = [bags.bag.to(bags.ids.dtype), *[bags.counts[:, 0].to(bags.ids.dtype)] * 2]
            return _in_blocks(table, weights, bags)
        made, *bags.kept = torch.ops.aten._embedding_bag(
            table, bags.ids, bags.offsets, False, bags.mode, False, weights, True, bags.padding
        )
        return made  # type: ignore[no-any-return]

    @staticmethod
    def composed(table: torch.Tensor, weights: torch.Tensor | None, bags: Bags) -> torch.Tensor:
        if bags.mode == _MODES["max"]:
            _Bag.forward(table.detach(), None, bags)  # leaves which rows are the greatest
            return torch.where(bags.counts > 0, table.gather(0, bags.greatest), 0)
        each = torch.where((bags.ids != bags.padding)[:, None], table.index_select(0, bags.ids), 0)
        each = each if weights is None else each * weights[:, None]
        made = each.new_zeros((bags.offsets.numel() - 1, table.shape[1])).index_add(0, bags.bag, each)
        return made / bags.counts.clamp(min=1) if bags.mode == _MODES["mean"] else made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        table, weights, ctx.bags = inputs
        ctx.save_for_backward(table, weights, ctx.bags.ids)  # so that torch notices if they are overwritten

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        table, weights, _ = ctx.saved_tensors
        bags: Bags = ctx.bags
        if torch.is_grad_enabled() or beyond_gradients():
            return *_composed(gradient, table, weights, bags), None
        bag, sizes, greatest = bags.kept
        to_table = to_weights = None
        kernels = torch.ops.aten
        if ctx.needs_input_grad[0]:
            rows, mode, padding = table.shape[0], bags.mode, bags.padding
            to_table = kernels._embedding_bag_backward(
                gradient, bags.ids, bags.offsets, bag, sizes, greatest, rows, False, mode, False, weights, padding
            )
        if weights is not None and ctx.needs_input_grad[1]:
            to_weights = kernels._embedding_bag_per_sample_weights_backward(
                gradient, table, bags.ids, bags.offsets, bag, bags.mode, bags.padding
            )
        return to_table, to_weights, None


def _in_blocks(table: torch.Tensor, weights: torch.Tensor | None, bags: Bags) -> torch.Tensor:
    """Sums or means of long bags: torch's kernel adds up one row after the other, so it gets blocks of them."""
    starts, ends = blocks_of(bags.offsets.to(torch.int64), bags.ids.numel(), _BLOCK)
    padding = None if bags.padding < 0 else bags.padding
    parts, *_ = torch.embedding_bag(
        table, bags.ids, starts.to(bags.ids.dtype), False, _MODES["sum"], False, weights, True, padding
    )
    made = sum_of_runs(parts, Partition._of(ends, parts.shape[0], device_born=True, exact=False))
    return made / bags.counts.clamp(min=1) if bags.mode == _MODES["mean"] else made


def _composed(
    gradient: torch.Tensor, table: torch.Tensor, weights: torch.Tensor | None, bags: Bags
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of table and weights by operations that have derivatives themselves."""
    zeros = table.new_zeros(table.shape)
    if bags.mode == _MODES["max"]:
        return zeros.scatter_add(0, bags.greatest, torch.where(bags.counts > 0, gradient, 0)), None
    if bags.mode == _MODES["mean"]:
        gradient = gradient / bags.counts.clamp(min=1)
    counted = (bags.ids != bags.padding)[:, None]
    each = torch.where(counted, gradient.index_select(0, bags.bag), 0)
    if weights is None:
        return zeros.index_add(0, bags.ids, each), None
    to_weights = (each * table.index_select(0, bags.ids)).sum(1)
    return zeros.index_add(0, bags.ids, each * weights[:, None]), to_weights


@operation
def _embedding_bag(
    x: Any, weight: Any, /, *, mode: str = "mean", per_sample_weights: Any = None, padding_idx: int | None = None
) -> Tensor:
    return _lookup(x, weight, mode, per_sample_weights, padding_idx, {})


def _lookup(x: Any, weight: Any, mode: str, weights: Any, padding_idx: int | None, options: dict[str, Any]) -> Tensor:
    tensor, table = as_tensor(x), as_tensor(weight).torch()
    _check(tensor, table, mode, weights)
    rows = table.shape[0]
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx must name a row of a table of {rows} rows, got {padding_idx}")
    layout = _Layout(tensor)
    known = not table.is_cuda and table.numel() > 0  # torch's own kernels on the host look at every index
    if not known:
        layout.report(rows)
    values = layout.values.clamp(0, max(rows - 1, 0)) if table.is_cuda else layout.values
    bags = layout.bags(values, _MODES[mode], padding % rows if padding_idx is not None else -1)
    aligned = None if weights is None else layout.weights(weights, table.dtype)
    if table.numel() == 0:
        made = table.new_zeros((bags.offsets.numel() - 1, table.shape[1])) + table.sum()
        return layout.finish(made)
    try:
        return layout.finish(_give(table, aligned, bags, options, layout.partial))
    except RuntimeError:
        if known:
            layout.report(rows)
        raise


def _check(x: Tensor, table: torch.Tensor, mode: str, weights: Any) -> None:
    if x.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"embedding_bag looks up int32 or int64 indices, got {x.dtype}")
    if table.ndim != 2 or not table.is_floating_point():
        raise ValueError(f"the table must be 2-D and floating-point, got shape {list(table.shape)} of {table.dtype}")
    if mode not in _MODES:
        raise ValueError(f"mode must be 'sum', 'mean' or 'max', got {mode!r:.40}")
    if weights is not None and mode != "sum":
        raise ValueError(f"per_sample_weights go with mode='sum' only, got mode={mode!r}")
    if not x.is_ragged and x.ndim < 2:
        raise AxisError(f"embedding_bag reduces the last ragged axis, or the last of a dense tensor, got {x.shape}")
    broadcast.require_one_device(x, table)


def _give(
    table: torch.Tensor, weights: torch.Tensor | None, bags: Bags, options: dict[str, Any], partial: bool
) -> torch.Tensor:
    """What each bag gives."""
    padding = None if bags.padding < 0 else bags.padding
    if any(options.values()):
        if partial and (options["max_norm"] is not None or options["scale_grad_by_freq"]):
            raise TypeError("max_norm and scale_grad_by_freq count every index, so lengths must be known to the host")
        mode = next(name for name, number in _MODES.items() if number == bags.mode)
        options = options | {"per_sample_weights": weights, "include_last_offset": True, "padding_idx": padding}
        return F.embedding_bag(bags.ids, table, bags.offsets, mode=mode, **options)
    asked = torch.is_grad_enabled() and (table.requires_grad or (weights is not None and weights.requires_grad))
    if asked or beyond_gradients():
        return _Bag.call(table, weights, bags)
    if bags.are_long(table):
        return _in_blocks(table, weights, bags)
    made = torch.embedding_bag(table, bags.ids, bags.offsets, False, bags.mode, False, weights, True, padding)
    return made[0]


class _Layout:
    """How the indices of a tensor become one vector of bags, and what the bags give a tensor again."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.partial = x.is_ragged and not x.structure.is_exact
        self.features = x.values.shape[1:] if x.is_ragged else torch.Size()
        # The axis whose rows are the bags: the last ragged one, as the axes are seen.
        self.along = along(x, max((a for a, n in enumerate(x.shape) if isinstance(n, Ragged)), default=x.ndim - 1))

    @cached_property
    def count(self) -> int:
        """How many bags each feature has."""
        if not self.x.is_ragged:
            return math.prod(self.x.values.shape[:-1])
        runs = self.along.runs
        return runs.level.num_components if runs.contiguous else self.along.segments.cells

    def _offsets(self, device: torch.device) -> torch.Tensor:
        """Where the bags of one feature begin and end."""
        if not self.x.is_ragged:
            return Partition.uniform(self.count, self.x.values.shape[-1]).offsets_on(device)
        if self.along.runs.contiguous:
            return self.along.runs.level.offsets_on(device)
        return F.pad(self.along.segments.counts(device).cumsum(0), (1, 0))

    @cached_property
    def values(self) -> torch.Tensor:
        """The indices, those of undefined rows made 0."""
        values = self.x.values
        return zeroed(values, self.x.structure) if self.partial else values

    def report(self, rows: int) -> None:
        """An IndexError for the first index that a table of so many rows lacks."""
        flat = self.values.reshape(-1)
        wrong = (self.values < 0) | (self.values >= rows)
        wrong = wrong & self.x.structure.defined_rows(wrong) if self.partial else wrong

        def error(i: int) -> IndexError:
            return IndexError(f"index {int(flat[i])}, packed element {i}, is out of range for a table of {rows} rows")

        host.defer(host.first_fault(wrong.reshape(-1)), error)

    def _vector(self, values: torch.Tensor) -> torch.Tensor:
        """Feature by feature, all rows of each, bag after bag."""
        values = self.along.runs.gathered(values) if self.x.is_ragged else values
        return values.flatten(1).T.reshape(-1) if len(self.features) else values.reshape(-1)

    def bags(self, values: torch.Tensor, mode: int, padding: int) -> Bags:
        """The bags: for each feature one per run, and one for its undefined rows if there may be some."""
        ids, offsets = self._vector(values), self._offsets(values.device)
        if len(self.features) or self.partial:
            starts = offsets.to(torch.int64)[: None if self.partial else -1]
            shifts = torch.arange(self.features.numel(), device=ids.device)[:, None] * values.shape[0]
            offsets = F.pad((starts + shifts).reshape(-1), (0, 1), value=ids.numel())
        if ids.dtype != offsets.dtype:
            wide = torch.int64 if ids.numel() > INT32_MAX else ids.dtype
            ids, offsets = ids.to(wide), offsets.to(wide)
        axis = self.x.shape[self.along.axis]
        return Bags(ids, offsets, mode, padding, axis.partition.max_length_bound if isinstance(axis, Ragged) else axis)

    def weights(self, given: Any, dtype: torch.dtype) -> torch.Tensor:
        """A weight for each index."""
        aligned = broadcast.align(given, self.x)
        made = aligned if isinstance(aligned, torch.Tensor) else torch.as_tensor(aligned, dtype=dtype, device="cpu")
        made = host.send(made, self.x.device).to(dtype)
        made = made.expand(self.x.values.shape)
        return self._vector(zeroed(made, self.x.structure) if self.partial else made)

    def finish(self, made: torch.Tensor) -> Tensor:
        """What the bags give, [bags, columns], in the place of the indices."""
        x, width, count = self.x, made.shape[1], self.count
        if not x.is_ragged:
            return Tensor(made.view(*x.values.shape[:-1], width), team=x.team)
        if len(self.features) or self.partial:
            made = made.view(self.features.numel(), count + self.partial, width)[:, :count]
            made = made.movedim(0, 1).reshape(count, *self.features, width)
        if len(x.structure.axes) == 2 and x.order == (0, 1):
            return Tensor(made, team=x.team)
        seen = Tensor(x.values.unsqueeze(-1).expand(*x.values.shape, width), x.structure, (*x.order, x.ndim), x.team)
        return Reduction(seen, (self.along.axis,)).finish(made, keepdims=False)


def _answer_embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if offsets is not None:
        raise TypeError("embedding_bag of an sr.Tensor takes no offsets: its rows are the bags")
    options = {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
    options |= {"norm_type": norm_type} if max_norm is not None else {}
    return _lookup(input, weight, mode, per_sample_weights, padding_idx, options)


def _embedding_bag_body(
    x: Any, weight: Any, /, *, mode: str = "mean", per_sample_weights: Any = None, padding_idx: int | None = None
) -> Any:
    axis = max((a for a, size in enumerate(x.shape) if isinstance(size, Ragged)), default=x.ndim - 1)
    each, counted = accumulating(ops.embedding(x, weight)), ops.ones_like(x, dtype=torch.bool)
    if per_sample_weights is not None:
        each = each * ops.expand_dims(ops.astype(per_sample_weights, weight.dtype), axis=-1)
    if padding_idx is not None:
        counted = ops.not_equal(x, padding_idx % weight.shape[0])
        each = ops.where(ops.expand_dims(counted, axis=-1), each, -math.inf if mode == "max" else 0)
    if mode == "sum":
        return ops.astype(ops.sum(each, axis=axis), weight.dtype)
    many = ops.expand_dims(ops.sum(counted, axis=axis), axis=-1)
    if mode == "max":
        made = ops.where(ops.equal(many, 0), 0, ops.max(each, axis=axis))
    else:
        made = ops.sum(each, axis=axis) / ops.maximum(many, 1)
    return ops.astype(made, weight.dtype)


record(
    "bags",
    "embedding_bag",
    _embedding_bag,
    _answer_embedding_bag,
    summary="The mean, sum or greatest of the table's rows that each row of the last ragged axis names; 0 of nothing.",
    torch=(F.embedding_bag,),
    example=(
        "sr.embedding_bag(sr.ragged([[1, 0], []]), torch.tensor([[1., 2.], [3., 4.]])).tolist()",
        "[[2.0, 3.0], [0.0, 0.0]]",
    ),
    operands=("x", "weight", "per_sample_weights"),
    body=_embedding_bag_body,
    kinds=("int",),
    samples=(
        "x.to(torch.int64), torch.ones(6, 2)",
        "x.to(torch.int64), torch.linspace(0, 1, 12).view(6, 2), mode='max'",
        "x.to(torch.int64), torch.ones(6, 2), mode='sum', per_sample_weights=x.to(torch.float32), padding_idx=1",
    ),
    errors=(
        ("x, torch.ones(4, 2)", TypeError, "int32 or int64"),
        ("x.to(torch.int64) + 9, torch.ones(4, 2)", IndexError, "out of range for a table of 4 rows"),
        ("x.to(torch.int64), torch.ones(4)", ValueError, "the table must be 2-D"),
        ("x.to(torch.int64), torch.ones(4, 2), mode='min'", ValueError, "mode must be"),
        ("x.to(torch.int64), torch.ones(4, 2), per_sample_weights=x", ValueError, "mode='sum' only"),
        ("x.to(torch.int64), torch.ones(4, 2), padding_idx=4", ValueError, "padding_idx must name a row"),
    ),
)
