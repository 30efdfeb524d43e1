"""What selecting functions share: lengths and indices checked, the rows that are picked, and taking them.

On the CPU every check happens now. On a device none waits: lengths and indices are clamped, so nothing is read out of
bounds, and what was wrong is raised by a later call (`serrate.tensor.host.defer`).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from serrate.eager.precision import ACCUMULATE
from serrate.errors import DeviceMismatchError
from serrate.native import rows as library
from serrate.tensor import bits, host
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.offsets import as_index_vector, cut_by_lengths, offsets_from_lengths


def is_on_host(tensor: torch.Tensor) -> bool:
    """Whether the CPU holds the tensor, so that looking at it costs no wait."""
    return tensor.device.type == "cpu"


def check_rows(values: torch.Tensor, lengths: torch.Tensor, name: str = "values") -> None:
    """`values` must have rows, on the device of the lengths."""
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, got a 0-d tensor")
    if values.device != lengths.device:
        raise DeviceMismatchError(f"{name} lie on {values.device}, but lengths or offsets on {lengths.device}")


def check_weights(weights: torch.Tensor | None, values: torch.Tensor) -> None:
    """`weights`, if any, must have a row for each row of `values`."""
    if weights is None:
        return
    check_rows(weights, values, "weights")
    if weights.shape[0] != values.shape[0]:
        raise ValueError(f"weights must have a row for each of the {values.shape[0]} values, got {weights.shape[0]}")


def complete(lengths: torch.Tensor) -> torch.Tensor:
    """The int64 offsets of lengths."""
    made = library.offsets(lengths)
    return offsets_from_lengths(lengths, None).to(torch.int64) if made is None else made


def cut(lengths: torch.Tensor, total: int, name: str = "lengths") -> torch.Tensor:
    """The int64 offsets of `lengths`, which must be 0 or more and add up to `total`."""
    offsets = library.offsets(lengths)
    if offsets is not None and int(offsets[-1]) == total:
        return offsets
    return cut_by_lengths(lengths, total, True, name)[0].to(torch.int64)  # says what is wrong, if anything


def within(given: Any, count: int, name: str, of: str) -> torch.Tensor:
    """Indices that must lie in 0 .. count."""
    index = as_index_vector(given, name)

    def error(position: int) -> IndexError:
        bounds = f"must lie in 0 .. {count - 1}" if count else "must be none"
        return IndexError(
            f"{name} {bounds}, as there are {count} {of}, but position {position} holds {index[position]}"
        )

    if count == 0 and index.numel():
        raise error(0)
    host.defer(host.first_fault((index < 0) | (index >= count)), error)
    return index if is_on_host(index) else index.clamp(0, max(count - 1, 0))


def counted(total: torch.Tensor | int, given: Any, name: str) -> int:
    """How many rows are picked: the number the caller gave, which is checked, or else what they add up to."""
    expected = None if given is None else operator.index(given)

    def error(_: int) -> ValueError:
        return ValueError(f"{name} must be the number of selected values, {int(total)}, got {expected}")

    if isinstance(total, int) or is_on_host(total):
        if expected is not None and expected != int(total):
            raise error(0)
        return int(total)
    if expected is None:
        return int(host.read(total, "adding up the selected lengths"))
    if expected < 0:
        raise ValueError(f"{name} must be 0 or more, got {expected}")
    host.defer((total != expected).to(torch.int64), error)
    return expected


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of rows one after the other: `lengths[j]` rows from `starts[j]`, int64, on; `rows` rows together."""

    starts: torch.Tensor
    lengths: torch.Tensor
    rows: int
    once: bool = False
    """Whether no row is in two runs."""

    @cached_property
    def index(self) -> torch.Tensor:
        """Each row, int64: a running sum of steps, which waits for no device.

        A step is 1 within a run, and from one run to the next the jump between their sources. Jumps of empty runs meet
        at one place and add up.
        """
        jumps = self.starts.clone()
        jumps[1:] -= (self.starts + self.lengths)[:-1]
        jumps[:1] -= 1
        at = complete(self.lengths)[:-1].clamp_(0, self.rows)
        steps = torch.ones(self.rows + 1, dtype=torch.int64, device=jumps.device)
        return steps.index_add_(0, at, jumps).cumsum_(0)[: self.rows]

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """These rows of `values`."""
        made = library.copy_runs(values, self.starts, self.lengths, self.rows)
        return _take(values, self.index) if made is None else made

    def put(self, values: torch.Tensor, rows: int) -> torch.Tensor:
        """`rows` rows with `values` at these, added up, and 0 elsewhere."""
        put = library.put_runs if self.once else library.add_runs
        made = put(values, self.starts, self.lengths, rows)
        return _put(values, self.index, rows, self.once) if made is None else made


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows at an index, of which none stands there twice."""

    index: torch.Tensor

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """These rows of `values`."""
        return _take(values, self.index)

    def put(self, values: torch.Tensor, rows: int) -> torch.Tensor:
        """`rows` rows with `values` at these, and 0 elsewhere."""
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
    """Rows that are picked; gradients of a row that is picked often are added in float32 or wider."""

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
    """Rows added up where they were picked, 0 elsewhere: what `_Take` is the gradient of."""

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
    """The rows of `values` that are picked."""
    return _Take.call(values, picked)
