"""Operations of a fusion that read their operands at other indices than those of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.derived_raggedness import Longest, most_taken, slice_bounds
from serrate.fusion.domain import TensorDomain
from serrate.fusion.moved_axes import concat_axes, gather_axes, sliced
from serrate.fusion.pointwise import Pointwise
from serrate.fusion.scalar import Scalar, const, minimum
from serrate.fusion.shapes import (
    Shape,
    axes_like,
    axis_number,
    check_same_extent,
    clones,
    depends_on,
)
from serrate.fusion.transforms import resize
from serrate.fusion.view import Operation, TensorView


class Movement(Pointwise):
    """Operations that move elements."""

    def pad(self, x: TensorView, axis: int, left: int, right: int, value: float = 0) -> TensorView:
        """`value` before and after the elements of an axis; of each row, if it is ragged."""
        if left < 0 or right < 0:
            raise ValueError(f"pad takes numbers of 0 or more, got {left} and {right}")
        at, root = self._resizable(x, axis)
        logical = list(root)
        logical[at] = resize(root[at], left, right)
        operation = Operation("resize", "pad", (x,), (), (at, left, right, value))
        return self._add(TensorDomain(root, logical), x.dtype, operation)

    def slice(self, x: TensorView, axis: int, start: int | None, stop: int | None) -> TensorView:
        """The elements `start:stop` of an axis, as Python means it: negative numbers count from the end, and bounds
        past an end mean that end. Of a ragged axis: of each row, by its own length.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> x = fusion.view_as_nested(data, offsets)
        >>> first, last = fusion.slice(x, 1, None, 2), fusion.slice(x, 1, -2, None)
        >>> y, z = fusion.output(first, "y"), fusion.output(last, "z")
        >>> fusion.evaluate(torch.tensor([1, 2, 3, 4.0]), torch.tensor([0, 3, 3, 4]))
        [tensor([1., 2., 4.]), tensor([2., 3., 4.])]
        """
        at, root = self._resizable(x, axis)
        made: IterDomain
        old = root[at]
        if old.is_broadcast:
            raise AxisError(f"axis {axis} of {x} cannot be sliced: it is a broadcast axis")
        if old.is_ragged:
            rows = sliced(ragged(old).raggedness, start, stop)
            made = RaggedIterDomain.of(rows, component=ragged(old).component, name=old.name)
        else:
            made = IterDomain(slice_bounds(start, stop, old.extent)[1], name=old.name)
            most = most_taken(start, stop)
            made.bounded_by(slice_bounds(start, stop, old.bound)[1] if most is None else minimum(old.bound, most))
        root[at] = made
        return self._add(TensorDomain(root), x.dtype, Operation("resize", "slice", (x,), (), (at, start, stop)))

    def _resizable(self, x: TensorView, axis: int) -> tuple[int, list[IterDomain]]:
        """The number of an axis, and new axes of the tensor."""
        self._check_own(x)
        at = axis_number(x, axis)
        root, _ = clones(x.domain.kept)
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            raise RaggednessError(f"axis {axis} of {x} cannot be resized: a ragged axis depends on it")
        return at, root

    def concat(self, tensors: Sequence[TensorView], axis: int) -> TensorView:
        """Tensors behind each other along an axis. Along a ragged axis rows are joined, component by component; along a
        component axis there are the components of all tensors, with their rows.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> x = fusion.view_as_nested(data, offsets)
        >>> y = fusion.output(fusion.concat([x, x * 10, x], 1), "y")
        >>> fusion.evaluate(torch.tensor([1, 2, 3.0]), torch.tensor([0, 2, 2, 3]))[0]
        tensor([ 1.,  2., 10., 20.,  1.,  2.,  3., 30.,  3.])
        """
        if not tensors:
            raise ValueError("concat needs at least one tensor")
        self._check_own(*tensors)
        tensors = self._in_one_dtype("concat", tensors)
        at = axis_number(tensors[0], axis)
        operation = Operation("concat", "concat", tuple(tensors), (), (at,))
        return self._add(TensorDomain(concat_axes(tensors, at)), tensors[0].dtype, operation)

    def to_dense(
        self,
        x: TensorView,
        axis: int | None = None,
        length: int | str | Scalar | None = None,
        value: float = 0,
    ) -> TensorView:
        """A ragged axis as a regular one of `length`: rows that are shorter are followed by `value`, of those that are
        longer the rest is not there. Without a length it is that of the longest row; without an axis all ragged axes
        become regular, the innermost first.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> y = fusion.output(fusion.to_dense(fusion.view_as_nested(data, offsets), value=-1), "y")
        >>> fusion.evaluate(torch.tensor([1, 2, 3.0]), torch.tensor([0, 2, 2, 3]))[0]
        tensor([[ 1.,  2.],
                [-1., -1.],
                [ 3., -1.]])
        """
        self._check_own(x)
        if axis is None:
            numbers = [at for at, one in enumerate(x.domain.kept) if one.is_ragged]
            if len(numbers) > 1 and length is not None:
                raise RaggednessError(f"{x} has several ragged axes; say of which the length is {length}")
            for at in reversed(numbers):
                x = self.to_dense(x, at, length, value)
            return x
        at = axis_number(x, axis)
        old = x.domain.kept[at]
        if not old.is_ragged:
            raise RaggednessError(f"axis {axis} of {x} is regular already")
        _, root = self._resizable(x, at)
        options: tuple[Any, ...] = (at, value)
        if length is None:
            longest = Longest(ragged(old).raggedness)
            root[at] = IterDomain(longest.total, name=old.name).bounded_by(longest.total_bound)
            options = (at, value, longest)
        else:
            root[at] = IterDomain(length, name=old.name)
        return self._add(TensorDomain(root), x.dtype, Operation("pad_rows", "to_dense", (x,), (), options))

    def from_dense(self, x: TensorView, like: Shape, value: float = 0) -> TensorView:
        """A tensor of regular axes read at the positions of the ragged axes of another: [k, m, d] → [k, r, d]. A row
        that is longer than the regular axis ends with `value`.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", [4], "int64")
        >>> rows = fusion.view_as_nested(data, offsets)
        >>> y = fusion.output(fusion.from_dense(fusion.input("x", [3, 2]), rows), "y")
        >>> dense = torch.tensor([[1, 2], [3, 4], [5, 6.0]])
        >>> fusion.evaluate(torch.zeros(4), torch.tensor([0, 1, 1, 4]), dense)[0]
        tensor([1., 5., 6., 0.])
        """
        self._check_own(x)
        root, pairs = axes_like(like)
        if len(root) != x.ndim:
            raise AxisError(f"from_dense reads tensors of as many axes, got {x} for the axes {root}")
        read = []
        for number, (old, new) in enumerate(zip(x.domain.kept, root, strict=True)):
            if new.is_ragged and not old.is_ragged and not old.is_broadcast:
                read.append(number)
            elif not old.is_broadcast:
                check_same_extent("from_dense", old, new, f"{x} at {root}")
        operation = Operation("unpad_rows", "from_dense", (x,), pairs, (tuple(read), value))
        return self._add(TensorDomain(root), x.dtype, operation)

    def gather(self, x: TensorView, indices: TensorView, axis: int = 0, batch: int | None = None) -> TensorView:
        """Elements of `x` along an axis by indices, whose axes stand in the place of that axis: [n, d], [k, r] →
        [k, r, d]. An index that is out of range is an IndexError; a kernel reads 0 there, and nothing out of bounds.

        The first `batch` axes are those of both tensors, which are read at the same indices. Along a regular axis that
        is none if nothing is said; along a ragged one it is all before it, and indices are those within each row:
        [k, r, d], [k, m] → [k, m, d].

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", [4], "int64")
        >>> rows, ids = fusion.view_as_nested(data, offsets), fusion.input("ids", [3, 2], "int64")
        >>> y = fusion.output(fusion.gather(rows, ids, 1), "y")
        >>> chosen = torch.tensor([[1, 0], [0, 0], [2, 0]])
        >>> fusion.evaluate(torch.tensor([1, 2, 3, 4, 5, 6.0]), torch.tensor([0, 2, 3, 6]), chosen)[0]
        tensor([[2., 1.],
                [3., 3.],
                [6., 4.]])
        """
        self._check_own(x, indices)
        if indices.dtype not in ("int32", "int64"):
            raise TypeError(f"gather needs indices of int32 or int64, got {indices}")
        at = axis_number(x, axis)
        root, pairs, shared = gather_axes(x, indices, at, batch)
        operation = Operation("gather", "gather", (x, indices), pairs, (at, shared))
        return self._add(TensorDomain(root), x.dtype, operation)

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
