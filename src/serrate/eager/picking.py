"""Rows picked out of packed values, as runs of neighbours or by an index; differentiable twice.

torch has no call that copies runs of rows: its calls need the number of each row, and take two to three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.eager.precision import ACCUMULATE
from serrate.native import rows as library
from serrate.native.loading import allocate, reads
from serrate.tensor import bits, indexing, plan
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.offsets import offsets_from_lengths
from serrate.tensor.partition import CPU, Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor


def selects(x: Any, key: Any, /) -> bool:
    """Whether compiled code copies the rows that `x[key]` selects: packed ones in the memory of the CPU.

    One row, which an int selects, is a view.
    """
    if type(key) is int:
        return False
    return isinstance(x, Tensor) and x.is_ragged and reads(x.values) and library.is_there()


def getitem(x: Tensor, key: Any, /) -> Tensor:
    """`x[key]` of tensors that `selects` accepts."""
    made = at_once(x, key)
    return indexing.get(x, key, read) if made is None else made


def at_once(x: Tensor, key: Any) -> Tensor | None:
    """x[index] along the first axis of [B, r, …] and x[:, a:b] along its ragged one, by one pass over the offsets.

    None for any other key, and for positions that are wrong or negative.
    """
    axes = x.structure.axes
    if len(axes) != 2 or not isinstance(axes[1], Ragged) or not axes[1].partition.is_host_born:
        return None
    level = axes[1].partition
    if type(key) is torch.Tensor:
        picked = _rows_at(level, key) if x.order[0] == 0 and key.ndim == 1 else None
    else:
        picked = _rows_cut(level, key) if x.order[:2] == (0, 1) else None
    if picked is None:
        return None
    ends, runs = picked
    made = Partition._of(ends, runs.rows)
    made.remember_lengths(runs.lengths)
    structure = Structure((runs.lengths.numel(), Ragged(made)), runs.rows)
    return type(x)(take(x.values, runs), structure, x.order, x.team)


def _rows_at(level: Partition, index: torch.Tensor) -> tuple[torch.Tensor, Runs] | None:
    """The components at an index, or where a mask holds, as runs, with the offsets of these runs."""
    if not reads(index):
        return None
    if index.dtype is torch.bool:
        if index.numel() != level.num_components:
            return None
        index = index.nonzero().flatten()
    lengths, offsets = level.lengths, level.offsets_on(CPU)
    offsets = offsets if offsets.dtype is torch.int64 else offsets.to(torch.int64)
    ends = allocate((index.numel() + 1,), (1,), lengths.dtype)
    found = library.select_runs(lengths, offsets, index, ends)
    return None if found is None else (ends, Runs(*found))


def _rows_cut(level: Partition, key: Any) -> tuple[torch.Tensor, Runs] | None:
    """The same slice of each component as runs, with the offsets of these runs."""
    if type(key) is not tuple or len(key) != 2 or not type(key[0]) is type(key[1]) is slice or key[0] != _ALL:
        return None
    start, stop, step = key[1].start, key[1].stop, key[1].step
    if not (start is None or type(start) is int) or not (stop is None or type(stop) is int) or step not in (None, 1):
        return None
    if not start and stop is None:
        return None
    offsets = level.offsets_on(CPU)
    ends = allocate((offsets.numel(),), (1,), offsets.dtype)
    found = library.cut_runs(offsets, start or 0, stop, ends)
    return None if found is None else (ends, Runs(*found, once=True))


_ALL = slice(None)


def read(walk: plan.Plan, values: torch.Tensor) -> torch.Tensor:
    """The rows that a walk selects: copied as runs where they are runs, else as torch reads them."""
    found = None if walk.misses else walk.runs(values.device)
    if found is None:
        return walk.read(values)
    starts, new = found
    return take(values, Runs(starts, new.lengths_on(values.device), new.num_values, not walk.repeats))


def is_on_host(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies on the CPU, so that reading it needs no wait."""
    return tensor.device.type == "cpu"


def complete(lengths: torch.Tensor) -> torch.Tensor:
    """The int64 offsets of lengths."""
    made = library.offsets(lengths)
    return offsets_from_lengths(lengths, None).to(torch.int64) if made is None else made


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of rows, one after the other: run j has `lengths[j]` rows from row `starts[j]`, int64, on.

    Together they have `rows` rows.
    """

    starts: torch.Tensor
    lengths: torch.Tensor
    rows: int
    once: bool = False
    """Whether it is known that no row lies in two runs."""

    @cached_property
    def index(self) -> torch.Tensor:
        """The number of each row, int64, as a running sum of steps, which waits for no device.

        Within a run each step is 1. The step from one run to the next is the jump from the last row of the one to the
        first row of the other. The jumps of empty runs fall on one place and add up.
        """
        jumps = self.starts.clone()
        jumps[1:] -= (self.starts + self.lengths)[:-1]
        jumps[:1] -= 1
        at = complete(self.lengths)[:-1].clamp_(0, self.rows)
        steps = torch.ones(self.rows + 1, dtype=torch.int64, device=jumps.device)
        return steps.index_add_(0, at, jumps).cumsum_(0)[: self.rows]

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """Return these rows of `values`."""
        made = library.copy_runs(values, self.starts, self.lengths, self.rows)
        return _take(values, self.index) if made is None else made

    def put(self, values: torch.Tensor, rows: int) -> torch.Tensor:
        """Return `rows` rows: `values` are added up at these rows, and all other rows are 0."""
        made = library.put_runs(values, self.starts, self.lengths, rows) if self.once else self._add(values, rows)
        return _put(values, self.index, rows, self.once) if made is None else made

    def _add(self, values: torch.Tensor, rows: int) -> torch.Tensor | None:
        """Return the same for runs that may share rows, by compiled code; None where there is none."""
        wide = values.to(ACCUMULATE.get(values.dtype, values.dtype))
        numbers = torch.view_as_real(wide.resolve_conj()) if wide.is_complex() else wide
        made = library.add_runs(numbers, self.starts, self.lengths, rows)
        if made is None:
            return None
        return (torch.view_as_complex(made) if wide.is_complex() else made).to(values.dtype)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows at an index, which names no row twice."""

    index: torch.Tensor

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """Return these rows of `values`."""
        return _take(values, self.index)

    def put(self, values: torch.Tensor, rows: int) -> torch.Tensor:
        """Return `rows` rows: `values` at these rows, and 0 elsewhere."""
        return _put(values, self.index, rows, True)


def _take(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    if not is_on_host(values):
        if not values.shape[0]:
            return values.new_zeros((index.numel(), *values.shape[1:]))
        index = index.clamp(0, values.shape[0] - 1)
    return bits.take(values, index)


def _put(values: torch.Tensor, index: torch.Tensor, rows: int, once: bool) -> torch.Tensor:
    shape = (rows, *values.shape[1:])
    if not is_on_host(values):
        if not rows:
            return values.new_zeros(shape)
        index = index.clamp(0, rows - 1)
    if once:
        return values.new_zeros(shape).index_copy_(0, index, values)
    wide = values.to(ACCUMULATE.get(values.dtype, values.dtype))
    return wide.new_zeros(shape).index_add_(0, index, wide).to(values.dtype)


class _Take(Differentiable):
    """The picked rows of a tensor; if a row is picked several times, its gradients are added in float32 or wider."""

    @staticmethod
    def forward(values: torch.Tensor, picked: Runs | Rows) -> torch.Tensor:
        return picked.copy(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.picked = inputs
        ctx.rows = values.shape[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Put.call(gradient, ctx.picked, ctx.rows), None


class _Put(Differentiable):
    """The gradient of `_Take`: rows are added up at the places they were picked from, and all other rows are 0."""

    @staticmethod
    def forward(values: torch.Tensor, picked: Runs | Rows, rows: int) -> torch.Tensor:
        return picked.put(values, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.picked = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Take.call(gradient, ctx.picked), None, None


def take(values: torch.Tensor, picked: Runs | Rows) -> torch.Tensor:
    """Return the picked rows of `values`."""
    return _Take.call(values, picked)
