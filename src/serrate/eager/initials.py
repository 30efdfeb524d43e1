"""What a scan starts from, put before the first entry of each group."""

from __future__ import annotations

import torch

from serrate.eager.runs import Along, Runs, along, settled
from serrate.tensor.combine import exact
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


def with_initial(call: Along, values: torch.Tensor, initial: int) -> Tensor:
    """`values`, a scan, with what it starts from before the first entry of each group."""
    x = call.x
    if call.dim is not None:
        shape = [1 if d == call.dim else n for d, n in enumerate(values.shape)]
        return x._with(torch.cat([values.new_full(shape, initial), values], call.dim))
    if call.depended_on:
        trimmed = exact(x._with(values))
        call = along(trimmed, call.axis)
        groups = call.regrouped(lambda counts: counts + 1)
        rows = groups.first + groups.place - 1
        return groups.tensor(_after_initials(call.runs, trimmed.values, rows, groups.place == 0, initial))
    longer = Structure(_lengthened(x.structure, call.label), values.shape[0] + call.segments.cells)
    return settled(Tensor(_initials_before(call.runs, longer, values, initial), longer, x.order, x.team))


def _initials_before(runs: Runs, longer: Structure, values: torch.Tensor, initial: int) -> torch.Tensor:
    """The rows of a structure whose runs are one longer: `initial` first in each, then what the run has in `values`."""
    new = Runs(longer, runs.axis, runs.device)
    begins = new.place == 0
    rows = torch.arange(new.rows, device=runs.device) - begins.cumsum(0)
    return new.returned(_after_initials(runs, values, rows, begins, initial))


def _after_initials(
    runs: Runs, values: torch.Tensor, rows: torch.Tensor, begins: torch.Tensor, initial: int
) -> torch.Tensor:
    """The `rows` of `values` in run order, and `initial` where a run begins, which may have nothing else."""
    if values.shape[0] == 0:
        return values.new_full((rows.numel(), *values.shape[1:]), initial)
    found = runs.gathered(values).index_select(0, rows.clamp(0, values.shape[0] - 1))
    return torch.where(begins.view(-1, *[1] * (values.ndim - 1)), initial, found)


def _lengthened(structure: Structure, number: int) -> list[Axis]:
    """The axes with a ragged one whose defined components have one entry more."""
    axis = structure.axes[number]
    assert isinstance(axis, Ragged)
    own, count = axis.partition, axis.partition.num_components
    defined = torch.arange(count, device=own.home) < structure.defined_cells(axis.parents)
    lengths = own.lengths.to(torch.int64) + defined
    bound = None if own.is_host_born else own.max_length_bound + 1
    longer = own.with_lengths(lengths, capacity=own.num_values + count, bound=bound)
    axes = list(structure.axes)
    axes[number] = Ragged(longer, axis.parents)
    return axes
