"""Reductions and scans of a fusion."""

from __future__ import annotations

from collections.abc import Iterable

from serrate.errors import AxisError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.monoids import MONOIDS, check_kind
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import axis_number, check_known, clones, covered, loop_order
from serrate.fusion.types import IterType
from serrate.fusion.view import Operation, TensorView


class Reductions(Operations):
    """Operations that gather elements: into one, or each with those before it."""

    def reduce(self, name: str, x: TensorView, axes: int | Iterable[int], keepdims: bool = False) -> TensorView:
        """One of `monoids.MONOIDS` over axes, ragged and component axes included.

        A ragged axis that stays while an axis it depends on is reduced becomes regular, up to the longest row: the
        result is by position, over the rows that reach it.
        """
        check_known(name, MONOIDS)
        monoid = MONOIDS[name]
        check_kind(monoid, x.dtype, x)
        gone = {axis_number(x, axis) for axis in ([axes] if isinstance(axes, int) else axes)}
        if not gone:
            raise AxisError(f"{name} of {x} needs at least one axis to reduce")
        if monoid.positions and len(gone) != 1:
            raise AxisError(f"{name} of {x} reduces one axis, got {sorted(gone)}")
        root, pairs = clones(x.domain.kept)
        if any(root[at].is_broadcast for at in gone):
            raise AxisError(f"{name} of {x} cannot reduce a broadcast axis")
        for at in gone:
            root[at].iter_type = IterType.Reduction
        logical = covered(root)
        if keepdims:
            logical = [
                IterDomain(1, iter_type=IterType.Broadcast) if at in gone else axis for at, axis in enumerate(logical)
            ]
            logical += [root[at] for at in sorted(gone)]
        domain = TensorDomain(root, logical, loop=loop_order(root, logical))
        operation = Operation("reduce", name, (x,), pairs, (tuple(sorted(gone)), keepdims))
        return self._add(domain, monoid.gives(x.dtype), operation)

    def scan(
        self, name: str, x: TensorView, axis: int, *, exclusive: bool = False, reverse: bool = False
    ) -> TensorView:
        """For each element of an axis the reduction of the elements up to it; of each row, if the axis is ragged.

        `name` is `sum`, `prod`, `max`, `min`, `any`, `all` or `logsumexp`. `exclusive` leaves the element itself out,
        so that the first of a row is the neutral value; `reverse` begins at the end.
        """
        known = [row.name for row in MONOIDS.values() if row.rejoins or row.name == "logsumexp"]
        if name not in known:
            raise ValueError(f"{name!r} cannot be scanned; a scan is one of {', '.join(known)}")
        monoid = MONOIDS[name]
        check_kind(monoid, x.dtype, x)
        at = axis_number(x, axis)
        root, pairs = clones(x.domain.kept)
        if root[at].is_broadcast:
            raise AxisError(f"{name} of {x} cannot be scanned along a broadcast axis")
        operation = Operation("scan", name, (x,), pairs, (at, exclusive, reverse))
        return self._add(TensorDomain(root), monoid.gives(x.dtype), operation)
