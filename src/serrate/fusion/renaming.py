"""Operations of a fusion that give the same values other axes."""

from __future__ import annotations

from collections.abc import Sequence

from serrate.errors import AxisError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import Shape, axes_like, check_same_extent, clones
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

    def expand(self, x: TensorView, shape: Shape) -> TensorView:
        """`x` with the axes of another tensor, or of a list of axes: its broadcast axes and those that it lacks at the
        front become as long as these, ragged ones included, and what is in `x` stands at all their indices.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> x = fusion.view_as_nested(data, offsets)
        >>> total = fusion.reduce("sum", x, [1], keepdims=True)
        >>> y = fusion.output(fusion.expand(total, x), "y")
        >>> fusion.evaluate(torch.tensor([1.0, 2, 4]), torch.tensor([0, 2, 2, 3]))[0]
        tensor([3., 3., 4.])
        """
        self._check_own(x)
        wanted, pairs = axes_like(shape)
        if len(wanted) < x.ndim:
            raise AxisError(f"{x} has {x.ndim} axes, and cannot be expanded to the {len(wanted)} of {list(wanted)}")
        for old, new in zip(x.domain.kept, wanted[len(wanted) - x.ndim :], strict=True):
            if not old.is_broadcast:
                check_same_extent("expand", old, new, f"{x} to {wanted}")
            if not old.is_broadcast or new.is_broadcast:
                pairs += ((old, new),)
        return self._add(TensorDomain(wanted), x.dtype, Operation("broadcast", "expand", (x,), pairs))
