"""Operations of a fusion that read their operands at other indices than those of the result."""

from __future__ import annotations

from typing import Any

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import TensorDomain
from serrate.fusion.pointwise import Pointwise
from serrate.fusion.scalar import const
from serrate.fusion.shapes import axis_number, clones, depends_on
from serrate.fusion.transforms import resize
from serrate.fusion.view import Operation, TensorView


class Movement(Pointwise):
    """Operations that move elements."""

    def pad(self, x: TensorView, axis: int, left: int, right: int, value: float = 0) -> TensorView:
        """`value` before and after the elements of an axis; of each row, if it is ragged."""
        return self._resize("pad", x, axis, left, right, (value,))

    def slice(self, x: TensorView, axis: int, start: int, stop: int) -> TensorView:
        """Without the first `start` elements of an axis and, counted from the end, those from `stop` ≤ 0 on."""
        if start < 0 or stop > 0:
            raise ValueError(f"slice takes start ≥ 0 and stop ≤ 0 (from the end), got {start} and {stop}")
        return self._resize("slice", x, axis, -start, stop, ())

    def _resize(
        self, name: str, x: TensorView, axis: int, left: int, right: int, options: tuple[Any, ...]
    ) -> TensorView:
        if name == "pad" and (left < 0 or right < 0):
            raise ValueError(f"pad takes numbers of 0 or more, got {left} and {right}")
        at = axis_number(x, axis)
        root, _ = clones(x.domain.kept)
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            raise RaggednessError(f"axis {axis} of {x} cannot be resized: a ragged axis depends on it")
        logical = list(root)
        logical[at] = resize(root[at], left, right)
        operation = Operation("resize", name, (x,), (), (at, left, right, *options))
        return self._add(TensorDomain(root, logical), x.dtype, operation)

    def concat(self, x: TensorView, y: TensorView, axis: int) -> TensorView:
        """`y` after `x` along an axis that is regular in both."""
        if x.ndim != y.ndim:
            raise AxisError(f"concat needs tensors of as many axes, got {x} and {y}")
        at = axis_number(x, axis)
        sizes = [tensor.domain.kept[at].extent for tensor in (x, y)]
        if any(
            tensor.domain.kept[at].is_ragged or not size.is_const for tensor, size in zip((x, y), sizes, strict=True)
        ):
            raise RaggednessError(f"concat along axis {axis} needs axes of known extents, got {x} and {y}")
        first = self.pad(x, axis, 0, sizes[1].value)
        second = self.pad(y, axis, sizes[0].value, 0)
        ones = self.pad(self.full_like(x, 1, "int32"), axis, 0, sizes[1].value)
        return self.where(self.binary("not_equal", ones, 0), first, second)

    def gather(self, x: TensorView, indices: TensorView) -> TensorView:
        """x[indices] along the first axis, which must be regular: [n, d], [k, r] → [k, r, d]."""
        if indices.dtype not in ("int32", "int64"):
            raise TypeError(f"gather needs indices of int32 or int64, got {indices}")
        if x.domain.kept[0].is_ragged or any(axis.is_ragged for axis in x.domain.kept[1:]):
            raise RaggednessError(f"gather takes from a tensor of regular axes, got {x}")
        places, pairs = clones(indices.domain.kept)
        rest, _ = clones(x.domain.kept[1:])
        operation = Operation("gather", "gather", (x, indices), pairs, (len(places),))
        return self._add(TensorDomain(places + rest), x.dtype, operation)

    def select(self, x: TensorView, axis: int, index: int) -> TensorView:
        """One index of an axis. Of a component axis: the row, whose ragged axis becomes the regular one of that row."""
        at = axis_number(x, axis)
        chosen = x.domain.kept[at]
        if index < 0 or (chosen.extent.is_const and index >= chosen.extent.value):
            raise IndexError(f"index {index} of axis {axis} of {x}")
        if chosen.is_ragged:
            raise RaggednessError(f"{chosen} of {x} is ragged; select its component axis instead")
        kept = [other for number, other in enumerate(x.domain.kept) if number != at]
        for other in kept:
            if other.is_ragged and depends_on(other, chosen) and ragged(other).component is not chosen:
                raise RaggednessError(f"select on {chosen} of {x}: {other} depends on it through other axes")
        rows = [other for other in kept if other.is_ragged and ragged(other).component is chosen]
        plain = [other for other in kept if other not in rows]
        fresh, _ = clones(plain)
        made = dict(zip(plain, fresh, strict=True))
        for row in rows:
            made[row] = IterDomain(ragged(row).raggedness.extent_at(const(index)), name=row.name)
            made[row].bounded_by(row.bound)
        root = [made[other] for other in kept]
        operation = Operation("select", "select", (x,), (), (at, index))
        return self._add(TensorDomain(root), x.dtype, operation)
