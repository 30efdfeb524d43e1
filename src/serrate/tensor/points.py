"""Several index arrays on the first axes. They meet point by point, and each point selects all that lies under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from serrate.tensor import abstract, combine, host, plan, select
from serrate.tensor.layout import assemble, unfolded
from serrate.tensor.storage import stored_as_seen
from serrate.tensor.structure import Axis, Nest, Structure, step_into

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor

Entry = int | slice | torch.Tensor  # An entry of a key for one axis. A tensor holds integers.


def select_points(
    x: Tensor, per_axis: dict[int, Entry], arrays: list[int], reader: plan.Reader
) -> tuple[Tensor, dict[int, Entry]]:
    """x at the points where index arrays on its first axes meet, and the entries of the key for the other axes."""
    depth = max(arrays) + 1
    entries = [per_axis.get(a) for a in range(depth)]
    if any(isinstance(e, slice) or e is None for e in entries):
        raise IndexError(
            f"index arrays on axes {arrays} of shape {x.shape} must stand on the first axes, "
            f"without slices between them"
        )
    x = stored_as_seen(x, depth)
    home = x.structure.home
    given = [
        torch.full((), e, device=home) if isinstance(e, int) else plan.host_index(e, x.structure)
        for e in entries
        if isinstance(e, (int, torch.Tensor))
    ]
    abstract.meet(*[g.shape for g in given])
    try:
        common = torch.broadcast_shapes(*[g.shape for g in given])  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = ", ".join(str(tuple(g.shape)) for g in given)
        raise IndexError(f"index arrays must broadcast to one shape to meet point by point, got {shapes}") from None
    points = [g.expand(common) for g in given]
    nest: Nest = tuple(range(depth))
    cells = _rank_points(x.structure, nest, [p.flatten() for p in points])
    merged: Structure = x.structure
    for _ in range(depth - 1):
        merged = combine.merge_outermost(merged)
    walk = plan.Plan(merged, {0: select.Pick(cells, drop=not common)})
    taken = reader(walk, x.values)
    axes: list[tuple[int, Axis]] = [(number + depth - 1 if number else 0, axis) for number, axis in walk.result()]
    axes, fresh = unfolded(axes, 0, common) if common else (axes, [])
    result = assemble(x, taken, axes, [*fresh, *x.order[depth:]])
    rest = {a - depth + len(common): e for a, e in per_axis.items() if a >= depth}
    return result, rest


def _rank_points(structure: Structure, nest: Nest, points: list[torch.Tensor]) -> torch.Tensor:
    """The cells of `nest` at the given points; an error if a position does not lie in its row."""
    cells = torch.zeros_like(points[0])
    for depth, index in enumerate(points):
        level = structure.level(nest[: depth + 1])
        if isinstance(level, int):
            have = torch.full_like(index, level)
        else:
            lengths = level.lengths_on(index.device).to(torch.int64)
            have = lengths[cells] if lengths.numel() else torch.zeros_like(index)
        wrapped = torch.where(index < 0, index + have, index)

        def error(i: int, index: torch.Tensor = index, have: torch.Tensor = have, axis: int = depth) -> IndexError:
            return IndexError(
                f"index {int(index[i])} at point {i} is out of range on axis {axis}, which has {int(have[i])} entries"
            )

        host.defer(host.first_fault((wrapped < 0) | (wrapped >= have)), error)
        cells = step_into(level, cells, torch.minimum(wrapped.clamp(min=0), (have - 1).clamp(min=0)))
        cells = cells.clamp(0, max(structure.cells(nest[: depth + 1]) - 1, 0))
    return cells
