"""Operations of a fusion that give the same values other axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.movement import Movement
from serrate.fusion.reshaping import flattened, product, reshaping, split_sizes
from serrate.fusion.scalar import Scalar, const
from serrate.fusion.shapes import (
    Shape,
    axes_like,
    axis_number,
    check_same_extent,
    clones,
    depend_on,
    depends_on,
    parents_of,
)
from serrate.fusion.transforms import merge, split
from serrate.fusion.types import IterType
from serrate.fusion.view import Operation, TensorView


class Renaming(Movement):
    """Operations on axes: what is read is what was there, under other names."""

    def broadcast(self, x: TensorView, new: Sequence[bool]) -> TensorView:
        """New axes of extent 1 where `new` is True, between the old ones: [k, d], [False, True, False] → [k, 1, d]."""
        if len(new) - sum(new) != x.ndim:
            raise AxisError(f"{x} has {x.ndim} axes, but {list(new)} leaves place for {len(new) - sum(new)}")
        olds, pairs = clones(x.domain.kept)
        old = iter(olds)
        root = [IterDomain(1, iter_type=IterType.Broadcast) if fresh else next(old) for fresh in new]
        return self._add(TensorDomain(root), x.dtype, Operation("broadcast", "broadcast", (x,), pairs, tuple(new)))

    def squeeze(self, x: TensorView, axis: int) -> TensorView:
        """Without an axis of extent 1."""
        self._check_own(x)
        at = axis_number(x, axis)
        gone = x.domain.kept[at]
        if not _is_one(gone):
            raise AxisError(f"axis {axis} of {x} cannot be squeezed: {gone} is not known to have one index")
        if gone.is_broadcast:
            root, pairs = clones([other for other in x.domain.kept if other is not gone])
            return self._add(TensorDomain(root), x.dtype, Operation("broadcast", "squeeze", (x,), pairs, (at,)))
        return self.select(x, at, 0)

    def permute(self, x: TensorView, order: Sequence[int]) -> TensorView:
        """The axes in another order, in which a ragged axis still stands behind those that it depends on."""
        self._check_own(x)
        numbers = [axis_number(x, axis) for axis in order]
        if sorted(numbers) != list(range(x.ndim)):
            raise AxisError(f"an order of {x} must name each of its {x.ndim} axes once, got {list(order)}")
        olds, pairs = clones(x.domain.kept)
        root = [olds[number] for number in numbers]
        for at, axis in enumerate(root):
            for parent in parents_of(axis, root[at:]) if axis.is_ragged else ():
                raise RaggednessError(f"{axis} cannot stand before {parent}, which it depends on, got {list(order)}")
        operation = Operation("broadcast", "permute", (x,), pairs, tuple(numbers))
        return self._add(TensorDomain(root), x.dtype, operation)

    def flatten(self, x: TensorView, start: int = 0, stop: int = -1) -> TensorView:
        """The axes from `start` to `stop`, the last one included, as one. A component axis and its ragged axis become
        the axis of all rows; a ragged axis and one that depends on it become rows of all that was in their rows.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n", 2]), fusion.input("offsets", ["k"], "int64")
        >>> x = fusion.view_as_nested(data, offsets)
        >>> fusion.flatten(x, 1), fusion.flatten(x, 0, 1), fusion.flatten(x)
        (t3[iS_c{k - 1}, iS_rd{[offsets_times_2]}] float32, t4[iS_cr{n}, iS_d{2}] float32, t5[iS_crd{n * 2}] float32)
        """
        self._check_own(x)
        first, last = axis_number(x, start), axis_number(x, stop)
        if first > last:
            raise AxisError(f"flatten of {x} from axis {start} to axis {stop}, which stands before it")
        root, pairs = clones(x.domain.kept)
        logical = flattened(root, first, last)
        operation = Operation("nest", "flatten", (x,), pairs, (first, last))
        return self._add(TensorDomain(root, logical), x.dtype, operation)

    def unflatten(self, x: TensorView, axis: int, sizes: Sequence[int | str | Scalar]) -> TensorView:
        """An axis as several, whose sizes multiplied are its extent; one of them may be -1, and is what is missing. A
        ragged axis can be cut if each of its extents is known to be a multiple, and its first part is then ragged."""
        self._check_own(x)
        at = axis_number(x, axis)
        root, pairs = clones(x.domain.kept)
        wanted = split_sizes(root[at], sizes, f"axis {axis} of {x}")
        if const(0) in wanted:
            return self.full([*x.domain.kept[:at], *wanted, *x.domain.kept[at + 1 :]], 0, x.dtype)
        parts, rest = [], root[at]
        for number, size in enumerate(wanted[:-1]):
            outer, rest = split(rest, product(wanted[number + 1 :]))
            if not outer.is_ragged:
                outer.extent = size
            parts.append(outer)
        parts.append(rest)
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            if root[at].is_ragged:
                raise RaggednessError(f"axis {axis} of {x} cannot be several: a ragged axis depends on it")
            depend_on(root, {root[at]: reduce(merge, parts)})
        logical = [*root[:at], *parts, *root[at + 1 :]]
        operation = Operation("nest", "unflatten", (x,), pairs, (at, *wanted))
        return self._add(TensorDomain(root, logical), x.dtype, operation)

    def reshape(self, x: TensorView, shape: Sequence[int | str | Scalar | IterDomain]) -> TensorView:
        """The same elements, in their order, with axes of other sizes. An axis of `x` may stand for itself, and a
        ragged one has to; one size may be -1, and is what is missing."""
        self._check_own(x)
        sizes = [1 if isinstance(size, IterDomain) and _is_one(size) else size for size in shape]
        if any(axis.extent == const(0) for axis in x.domain.kept) and any(isinstance(s, int) and s == 0 for s in sizes):
            return self.full(sizes, 0, x.dtype)
        kept = [axis for axis in x.domain.kept if not _is_one(axis)]
        for at in reversed(range(x.ndim)):
            x = self.squeeze(x, at) if _is_one(x.domain.kept[at]) else x
        ones = [isinstance(size, int) and size == 1 for size in sizes]
        now = dict(zip(kept, x.domain.kept, strict=True))
        entries = [
            now.get(size, size) if isinstance(size, IterDomain) else size
            for size, is_one in zip(sizes, ones, strict=True)
            if not is_one
        ]
        for first, last, parts in reversed(reshaping(x.domain.kept, entries, f"{x} as {list(shape)}")):
            x = self.flatten(x, first, last - 1) if last > first + 1 else x
            x = self.unflatten(x, first, parts) if len(parts) > 1 else x
        return self.broadcast(x, ones) if any(ones) else x

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


def _is_one(axis: IterDomain) -> bool:
    """Whether an axis is known to have one index."""
    return axis.is_broadcast or (not axis.is_ragged and axis.extent == const(1))
