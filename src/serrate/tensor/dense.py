"""Between packed and padded: to_dense, from_dense, mask. No row is walked in Python, nothing waits for a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.errors import AxisError, RaggednessError
from serrate.tensor import abstract, bits, plan, select
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Ragged, Structure

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor


def to_dense(x: Tensor, /, padding_value: Any = 0, max_lengths: Any = None, axis: Any = None) -> Tensor:
    """A padded copy: every ragged axis (or those in `axis`) becomes uniform, as long as its longest row.

    `max_lengths` (an int, or one per axis, None for the longest) sets the sizes; rows longer keep their prefix.

    >>> import serrate as sr
    >>> sr.ragged([[1, 2], [], [3, 4, 5]]).to_dense(-1, max_lengths=2).tolist()
    [[1, 2], [-1, -1], [3, 4]]
    """
    chosen = chosen_axes(x, axis)
    if not chosen:
        return x
    sizes = padded_sizes(x, chosen, max_lengths)
    cuts = any(size < x.structure.partition_of(c).max_length_bound for c, size in sizes.items())
    if len(chosen) == len(x.partitions) and not cuts:
        return _scatter(x, sizes, padding_value)
    # What is cut off goes first, so that the work is in proportion to the result.
    walk = plan.Plan(x.structure, {c: select.Pad(size) for c, size in sizes.items()})
    return assemble(x, walk.read(x.values, padding_value), walk.result(), x.order)


def chosen_axes(x: Tensor, axis: Any) -> list[int]:
    """The canonical numbers of the ragged axes to pad."""
    if axis is None:
        return [c for c, a in enumerate(x.structure.axes) if isinstance(a, Ragged)]
    chosen = []
    for number in axis if isinstance(axis, (list, tuple, range)) else [axis]:
        c = x.order[x._axis(number)]
        if c >= len(x.structure.axes) or not isinstance(x.structure.axes[c], Ragged):
            raise AxisError(f"axis {number} of shape {x.shape} is not ragged")
        if c in chosen:
            raise AxisError(f"axis {number} is named twice in {axis}")
        chosen.append(c)
    return chosen


def padded_sizes(x: Tensor, chosen: list[int], max_lengths: Any) -> dict[int, int]:
    """The padded size of each chosen axis: the one that is given for it, or the length of its longest row."""
    if max_lengths is None or isinstance(max_lengths, (int, np.integer)):
        max_lengths = [max_lengths] * len(chosen)
    if not isinstance(max_lengths, Sequence) or len(max_lengths) != len(chosen):
        raise ValueError(
            f"max_lengths must be an int or {len(chosen)} of them (or None), one per ragged axis, got {max_lengths!r}"
        )
    sizes = {}
    for c, given in zip(chosen, max_lengths, strict=True):
        if given is not None and (not isinstance(given, (int, np.integer)) or given < 0):
            raise ValueError(f"max_lengths must be integers of 0 or more, got {given!r}")
        sizes[c] = x.structure.partition_of(c).max_length if given is None else int(given)
    return sizes


def _scatter(x: Tensor, sizes: dict[int, int], padding_value: Any) -> Tensor:
    """All ragged axes padded, and none cut: each packed row is written to its place, undefined ones to a spare row."""
    structure, values = x.structure, x.values
    grid = [sizes[c] if isinstance(a, Ragged) else a for c, a in enumerate(structure.axes)]
    spare = not _is_exact(structure)
    cells = math.prod(grid)
    if cells == values.shape[0] and not spare:
        return reshaped(x, grid, padding_value)
    place = _places(structure, grid, values.device, cells if spare else None)
    packed = bits.padded(cells + spare, place, values, padding_value)[:cells]
    return type(x)(packed.view(*grid, *values.shape[1:]).permute(x.order), DENSE, (), x.team)


def reshaped(x: Tensor, grid: Sequence[int], padding_value: Any) -> Tensor:
    """A padded copy of a tensor whose rows fill the grid of packed axes, so that nothing is padded."""
    values = x.values
    if type(padding_value) is not int or padding_value:  # A value that does not fit is an error all the same.
        bits.constant(padding_value, values.dtype, values.device)
    return type(x)(values.reshape(*grid, *values.shape[1:]).permute(x.order).clone(), DENSE, (), x.team)


def _places(structure: Structure, grid: Sequence[int], device: torch.device, drop: int | None) -> torch.Tensor:
    """What `grid_cells` gives. If the tensor has one partition only, it is kept with that partition."""
    if len(grid) != 2 or drop is not None:
        return grid_cells(structure, grid, device, drop)
    key = ("places", grid[1], device)
    return structure.partition_of(1).derived(key, lambda: grid_cells(structure, grid, device, None))


def _is_exact(structure: Structure) -> bool:
    return all(p.is_host_born for p in structure.partitions)


def grid_cells(structure: Structure, grid: Sequence[int], device: torch.device, drop: int | None) -> torch.Tensor:
    """For each packed row its cell in a dense grid; rows outside the grid or past the last offset go to `drop`."""
    cells: torch.Tensor | None = None
    outside: torch.Tensor | None = None
    for depth, size in enumerate(grid):
        rows, positions = structure.rows_and_positions(structure.whole[: depth + 1], device)
        # At depth 1 the rows are the cells outside.
        outer = rows if depth == 1 else cells[rows] if cells is not None else None
        cells = positions if outer is None else outer * size + positions
        if drop is not None:
            here = positions >= size
            outside = here if outside is None else outside[rows] | here
    assert cells is not None
    if outside is not None and drop is not None:
        if not _is_exact(structure):
            last = structure.level(structure.whole)
            assert isinstance(last, Partition)
            outside = outside | (torch.arange(cells.numel(), device=device) >= last.offsets_on(device)[-1])
        cells = torch.where(outside, cells.new_full((), drop), cells)
    return cells


def mask(x: Tensor, /, max_lengths: Any = None) -> Tensor:
    """A dense boolean tensor of the padded shape without features: True where the tensor has an entry.

    >>> import serrate as sr
    >>> sr.ragged([[1., 2.], [3.]]).mask()
    sr.Tensor([[ True,  True],
               [ True, False]], shape=(2, 2), dtype=torch.bool, device='cpu')
    """
    return to_dense(present(x), False, max_lengths, None)


def present(x: Tensor) -> Tensor:
    """True for each cell of x: a tensor of the same axes without the features."""
    packed = len(x.structure.axes)
    values = torch.ones(x.values.shape[: 1 if x.is_ragged else x.values.ndim], dtype=torch.bool, device=x.device)
    order = tuple(c for c in x.order if c < packed)
    return type(x)(values, x.structure, order, x.team)


def gather_from(dense: torch.Tensor, structure: Structure, order: tuple[int, ...], padding_value: Any) -> torch.Tensor:
    """Packed values for (structure, order) read out of a padded tensor of those axes, `padding_value` past its end."""
    arranged = arranged_as(dense, structure, order)
    packed = len(structure.axes)
    grid = arranged.shape[:packed]
    rows = arranged.reshape(math.prod(grid), *arranged.shape[packed:])
    covered = all(
        size >= axis.partition.max_length_bound
        for axis, size in zip(structure.axes, grid, strict=True)
        if isinstance(axis, Ragged)
    )
    if covered and _is_exact(structure):
        return bits.take(rows, grid_cells(structure, grid, dense.device, drop=None))
    return plan.take_or_fill(rows, grid_cells(structure, grid, dense.device, drop=-1), padding_value)


def arranged_as(dense: torch.Tensor, structure: Structure, order: tuple[int, ...]) -> torch.Tensor:
    """A padded tensor with its axes in the order of storage; uniform ones must have the sizes of the structure."""
    packed = len(structure.axes)
    if dense.ndim < len(order) or dense.ndim < packed:
        raise RaggednessError(f"dense must have at least {len(order)} axes, got shape {list(dense.shape)}")
    inverse = [order.index(c) for c in range(len(order))]
    arranged = dense.permute(*inverse, *range(len(order), dense.ndim))
    for c, (axis, size) in enumerate(zip(structure.axes, arranged.shape[:packed], strict=True)):
        if isinstance(axis, int) and abstract.differ(axis, size):
            raise RaggednessError(
                f"axis {order.index(c)} of dense must have size {axis}, got shape {list(dense.shape)}"
            )
    return arranged
