"""Operations of a fusion that give the same values other axes."""

from __future__ import annotations

from collections.abc import Sequence

from serrate.errors import AxisError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import clones
from serrate.fusion.types import IterType
from serrate.fusion.view import Operation, TensorView


class Renaming(Operations):
    """Operations on axes: what is read is what was there, under other names."""

    def broadcast(self, x: TensorView, new: Sequence[bool]) -> TensorView:
        """New axes of extent 1 where `new` is True, between the old ones: [k, d], [False, True, False] → [k, 1, d]."""
        if len(new) - sum(new) != x.ndim:
            raise AxisError(f"{x} has {x.ndim} axes, but {list(new)} leaves place for {len(new) - sum(new)}")
        olds, pairs = clones(x.domain.kept)
        old = iter(olds)
        root = [IterDomain(1, iter_type=IterType.Broadcast) if fresh else next(old) for fresh in new]
        return self._add(TensorDomain(root), x.dtype, Operation("broadcast", "broadcast", (x,), pairs, tuple(new)))
