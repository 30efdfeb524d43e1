"""This module checks the lengths and indices of selecting functions, and describes and takes the rows they pick.

On the CPU every check happens at once. On a device no check waits: lengths and indices are clamped, so that nothing is
read out of bounds, and a later call raises the error (`serrate.tensor.host.defer`).
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
    """Return whether the tensor lies on the CPU, so that reading it needs no wait."""
    return tensor.device.type == "cpu"


def check_rows(values: torch.Tensor, lengths: torch.Tensor, name: str = "values") -> None:
    """Raise an error unless `values` have rows and lie on the device of the lengths."""
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, got a 0-d tensor")
    if values.device != lengths.device:
        raise DeviceMismatchError(f"{name} lie on {values.device}, but lengths or offsets lie on {lengths.device}")


def check_weights(weights: torch.Tensor | None, values: torch.Tensor) -> None:
    """Raise an error unless `weights` are None or have a row for each row of `values`."""
    if weights is None:
        return
    check_rows(weights, values, "weights")
    if weights.shape[0] != values.shape[0]:
        raise ValueError(f"weights must have a row for each of the {values.shape[0]} values, got {weights.shape[0]}")


def complete(lengths: torch.Tensor) -> torch.Tensor:
    """Return the int64 offsets of lengths."""
    made = library.offsets(lengths)
    return offsets_from_lengths(lengths, None).to(torch.int64) if made is None else made


def cut(lengths: torch.Tensor, total: int, name: str = "lengths") -> torch.Tensor:
    """Return the int64 offsets of `lengths`, which must be 0 or more and add up to `total`."""
    offsets = library.offsets(lengths)
    if offsets is not None and int(offsets[-1]) == total:
        return offsets
    return cut_by_lengths(lengths, total, True, name)[0].to(torch.int64)  # raises an error if lengths are wrong


def within(given: Any, count: int, name: str, of: str) -> torch.Tensor:
    """Return indices as a vector; each must lie in 0 .. count - 1."""
    index = as_index_vector(given, name)

    def error(position: int) -> IndexError:
        bounds = f"must lie in 0 .. {count - 1}" if count else "must be empty"
        return IndexError(
            f"{name} {bounds}, as there are {count} {of}, but position {position} holds {index[position]}"
        )

    if count == 0 and index.numel():
        raise error(0)
    host.defer(host.first_fault((index < 0) | (index >= count)), error)
    return index if is_on_host(index) else index.clamp(0, max(count - 1, 0))


def counted(total: torch.Tensor | int, given: Any, name: str) -> int:
    """Return how many rows are picked: the number that the caller gave, which is checked, or else `total`."""
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
        put = library.put_runs if self.once else library.add_runs
        made = put(values, self.starts, self.lengths, rows)
        return _put(values, self.index, rows, self.once) if made is None else made


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
