"""Where indices occur: the positions of all that say 0, then of those that say 1, and where each of these begins.

torch computes both before a kernel runs, where the indices are. Nothing waits for a device, and the order is the same
in every run. An index that is out of range is an IndexError, which a device reports later; its position stands behind
all others, where nobody reads it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from serrate.fusion.raggedness import Raggedness
from serrate.fusion.remembering import forgetting
from serrate.fusion.view import Operation
from serrate.tensor import host

if TYPE_CHECKING:
    from serrate.fusion.binding import Run


def order_of_indices(operation: Operation, run: Run) -> torch.Tensor:
    """The positions of indices, those of equal ones in the order in which they stand."""
    keys, total = _keys(operation, run)
    indices = run.arrays[operation.inputs[0].name]
    host.defer(host.first_fault(keys == total), forgetting(indices, partial(_error, operation, indices)))
    return keys.sort(stable=True).indices


def offsets_of_indices(operation: Operation, run: Run) -> torch.Tensor:
    """Where the positions of each index begin in that order."""
    keys, total = _keys(operation, run)
    counts = keys.new_zeros(total + 1).scatter_add_(0, keys, torch.ones_like(keys))
    return torch.nn.functional.pad(counts[:total].cumsum(0), (1, 0))


def _keys(operation: Operation, run: Run) -> tuple[torch.Tensor, int]:
    """(which index each is, those of all cells behind each other; how many there are, which stands for a wrong one)."""
    total, each = run.number(operation.options[0]), operation.options[1]
    indices, *cells = (run.arrays[x.name].reshape(-1).long() for x in operation.inputs)
    first, limit = torch.zeros_like(indices), torch.full_like(indices, total)
    if isinstance(each, Raggedness):
        offsets = each.offsets(run.arrays, run.sizes).to(indices.device).long()
        first = offsets[cells[0]]
        limit = offsets[cells[0] + 1] - first
    elif each is not None:
        first, limit = cells[0] * run.number(each), torch.full_like(indices, run.number(each))
    return torch.where((indices >= 0) & (indices < limit), first + indices, total), total


def _error(operation: Operation, indices: torch.Tensor, position: int) -> IndexError:
    value, given = int(indices.reshape(-1)[position]), operation.inputs[0]
    return IndexError(f"{operation}: an index of {given} is out of range: position {position} holds {value}")
