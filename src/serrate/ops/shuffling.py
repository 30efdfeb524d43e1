"""Entries in a random order: `sr.random.shuffle`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager import philox
from serrate.eager.philox import Key, next_key
from serrate.errors import AxisError
from serrate.ops.record import ALL, operation, ops, record
from serrate.tensor import plan, rearrange, select
from serrate.tensor.layout import assemble
from serrate.tensor.structure import Ragged, step_into
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def shuffle(x: Any, /, axis: int = 0, *, key: Key | None = None) -> Tensor:
    """The entries along `axis` in a random order: each row of a ragged axis in its own, a uniform axis in one.

    >>> import serrate as sr
    >>> x = sr.ragged([[1, 2, 3], [], [4, 5]])
    >>> y = sr.random.shuffle(x, axis=1)
    >>> y.partitions[0] is x.partitions[0], [sorted(row) for row in y.tolist()]
    (True, [[1, 2, 3], [], [4, 5]])
    """
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    key = next_key(key)
    size, c = tensor.shape[number], tensor.order[number]
    packed = c < len(tensor.structure.axes)
    if isinstance(size, Ragged):
        walk = plan.Plan(tensor.structure, {c: _Shuffled(size.partition, lambda r, _: r, key=key)})
        return assemble(tensor, walk.read(tensor.values), walk.result(), tensor.order)
    place = tensor.structure.home if packed else tensor.device
    order = philox.wide_words(key, 0, size, place).argsort(stable=True)
    return rearrange._pick(tensor, number, order)


@dataclass(frozen=True, kw_only=True)
class _Shuffled(select.Remap):
    """Every row of a ragged axis in the order that sorting random numbers gives."""

    key: Key

    def source(self, at: plan.Place, device: torch.device) -> select.Cells:
        """Where the cells of the axis come from; an axis seen below others has the same order under each of them."""
        new, old, own = at.new_partition, at.old_partition, self.partition
        rows, positions = new.row_ids_on(device), new.positions_on(device)
        if not own.num_components or not own.num_values:
            return at.only_defined(positions)
        cells = step_into(own, at.component(device)[rows], positions).clamp_(max=own.num_values - 1)
        return at.only_defined(step_into(old, rows, self._order(device)[cells]))

    def _order(self, device: torch.device) -> torch.Tensor:
        """For each of the partition's values the position in its component that takes its place."""
        own = self.partition
        rows = own.row_ids_on(device)
        if not own.is_exact:
            cells = torch.arange(own.num_values, device=device)
            rows = torch.where(cells < own.offsets_on(device)[-1], rows, own.num_components)
        mixed = philox.wide_words(self.key, 0, own.num_values, device).argsort(stable=True)
        return own.positions_on(device)[mixed[rows[mixed].argsort(stable=True)]]


def _shuffle_vjp(g: Any, out: Any, x: Any, *, axis: int, key: Key | None) -> Any:
    if key is None:
        raise ValueError("the derivative of random.shuffle needs its key: without one the order cannot be drawn again")
    return ops.collect(g, shuffle(ops.numbered(x), axis, key=key), x)


_KEY = "key=sr.random.Key(1)"
record(
    "random",
    "random.shuffle",
    shuffle,
    None,
    torch=(),
    summary="The entries along `axis` in a random order, each row of a ragged axis in its own.",
    example=("", ""),
    operands=("x",),
    primitive="movement",
    vjp=_shuffle_vjp,
    kinds=ALL,
    samples=(f"x, 1, {_KEY}", f"x, 0, {_KEY}"),
    errors=(("x, 5", AxisError, "axis 5 is out of range"),),
)
