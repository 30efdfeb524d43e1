"""Taps: what lies under a kernel that moves along packed rows, and the products that convolution consists of.

What lies under a kernel takes as many times the memory of the input as the kernel is long, and its addresses take more.
So a product handles some of its rows at once, and its memory is little beside that of operands and result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager.precision import WAITING
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.partition import Partition

# A part has so many elements and addresses under the kernel; on CUDA more, since every part costs launches.
_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}
_PARTS = 32  # With so many parts, the memory of one is little beside the whole.


@dataclass(frozen=True, eq=False)
class Taps:
    """Where a kernel lies: for entry j of a new row, tap t is over entry j · step - before + t · apart of the old."""

    old: Partition
    new: Partition
    step: int
    before: int
    apart: int

    def parts(self, count: int, width: int, size: int, device: torch.device) -> Iterator[tuple[int, int]]:
        """`count` rows in parts, each so small that what lies under a kernel of this size is not too much."""
        most = max(_AT_ONCE.get(device.type, 2**20) // (size * (width + 2)), -(count // -_PARTS), 1)
        for first in range(0, count, most):
            yield first, min(first + most, count)

    def under(self, values: torch.Tensor, size: int, first: int, last: int) -> torch.Tensor:
        """For some new entries, the old ones under the kernel, [entries, size, channels]; 0 outside of the row."""
        rows, position = _places(self.new, first, last, values.device)
        start = position * self.step - self.before
        at = start[:, None] + torch.arange(size, device=values.device) * self.apart
        return _read(values, self.old, rows, at, at >= 0)

    def over(self, values: torch.Tensor, size: int, first: int, last: int) -> torch.Tensor:
        """For some old entries, the new ones that have them under a tap, [entries, size, channels]."""
        rows, position = _places(self.old, first, last, values.device)
        at = (position + self.before)[:, None] - torch.arange(size, device=values.device) * self.apart
        if self.step == 1:
            return _read(values, self.new, rows, at, at >= 0)
        met = (at >= 0) & (at % self.step == 0)
        return _read(values, self.new, rows, at // self.step, met)


def _places(entries: Partition, first: int, last: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The row and the position in it of each entry. For an undefined entry, the row is the number of rows."""
    if (first, last) == (0, entries.num_values) and entries.is_exact:
        return entries.row_ids_on(device), entries.positions_on(device)
    ends = entries.offsets_on(device)
    numbers = torch.arange(first, last, dtype=ends.dtype, device=device)
    rows = torch.searchsorted(ends[1:], numbers, right=True)
    return rows, (numbers - ends[rows]).to(torch.int64)


def _read(
    values: torch.Tensor, entries: Partition, rows: torch.Tensor, at: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """The values at some positions of rows; 0 at a position that a row does not have."""
    if values.shape[0] == 0 or entries.num_components == 0:
        return values.new_zeros((*at.shape, *values.shape[1:]))
    ends = entries.offsets_on(values.device).to(torch.int64)
    ends = torch.cat([ends, ends[-1:]])  # Undefined entries are in a row past the last, which is empty.
    cells = at + ends[rows][:, None]
    valid = valid & (cells < ends[rows + 1][:, None])
    found = values.index_select(0, torch.where(valid, cells, 0).flatten()).view(*cells.shape, *values.shape[1:])
    return torch.where(valid[..., None], found, 0)


def convolve(values: torch.Tensor, kernel: torch.Tensor, taps: Taps) -> torch.Tensor:
    """[old entries, channels] with a kernel [groups, out, in, size]: [new entries, out channels]."""
    return _Slide.call(values, kernel, taps, False)


class _Slide(Differentiable):
    """Each new entry from the old ones under the kernel; with `back`, each old entry from the new ones that had it."""

    @staticmethod
    def forward(values: torch.Tensor, kernel: torch.Tensor, taps: Taps, back: bool) -> torch.Tensor:
        size, width = kernel.shape[3], values.shape[1]
        kernel = kernel.transpose(1, 2) if back else kernel
        read, entries = (taps.over, taps.old) if back else (taps.under, taps.new)
        parts = taps.parts(entries.num_values, width, size, values.device)
        made = [_times(read(values, size, *part), kernel) for part in parts]
        if not made:
            return values.new_zeros((0, kernel.shape[0] * kernel.shape[1]))
        return made[0] if len(made) == 1 else torch.cat(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, kernel, ctx.taps, ctx.back = inputs
        ctx.save_for_backward(values, kernel)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        values, kernel = ctx.saved_tensors
        for_values = for_kernel = None
        if ctx.needs_input_grad[0]:
            for_values = _Slide.call(gradient, kernel.conj(), ctx.taps, not ctx.back)
        if ctx.needs_input_grad[1]:
            pair = (gradient, values.conj()) if ctx.back else (values.conj(), gradient)
            for_kernel = _Between.call(*pair, kernel.shape, ctx.taps)
        return for_values, for_kernel, None, None


class _Between(Differentiable):
    """The gradient of the kernel: for each tap, a sum over all pairs of an old and a new entry that it connects."""

    @staticmethod
    def forward(values: torch.Tensor, gradient: torch.Tensor, shape: torch.Size, taps: Taps) -> torch.Tensor:
        wide = WAITING.get(values.dtype, values.dtype)
        total = values.new_zeros(shape, dtype=wide)
        for first, last in taps.parts(taps.new.num_values, values.shape[1], shape[3], values.device):
            columns = taps.under(values, shape[3], first, last).view(last - first, shape[3], shape[0], shape[2])
            rows = gradient[first:last].reshape(last - first, *shape[:2])
            total = total + torch.einsum("nkgc,ngo->gock", columns, rows).to(wide)
        return total.to(values.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, gradient, _, ctx.taps = inputs
        ctx.save_for_backward(values, gradient)

    @staticmethod
    def backward(ctx: Any, second: torch.Tensor) -> Any:
        values, gradient = ctx.saved_tensors
        need = ctx.needs_input_grad
        return (
            _Slide.call(gradient.conj(), second, ctx.taps, True) if need[0] else None,
            _Slide.call(values.conj(), second, ctx.taps, False) if need[1] else None,
            None,
            None,
        )


def _times(columns: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """[entries, size, channels] with a kernel [groups, out, in, size]."""
    groups, _, channels, _ = kernel.shape
    if groups == 1:
        return columns.flatten(1) @ kernel[0].permute(2, 1, 0).flatten(0, 1)
    return torch.einsum("nkgc,gock->ngo", columns.view(*columns.shape[:2], groups, channels), kernel).flatten(1)
