"""Scattering: elements are added where indices say. It is a sum over the positions that each index occurs at, which
are in order, so that results are the same in every run; nothing is added atomically."""

from __future__ import annotations

from collections.abc import Sequence

from serrate.errors import AxisError, RaggednessError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.binding import room
from serrate.fusion.domain import TensorDomain
from serrate.fusion.dtypes import BOOL
from serrate.fusion.moved_axes import gather_axes
from serrate.fusion.nesting import Nesting
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.reductions import Reductions
from serrate.fusion.renaming import Renaming
from serrate.fusion.reshaping import product
from serrate.fusion.scalar import Scalar, const, symbol
from serrate.fusion.shapes import Shape, axes_like, axis_number, check_same_extent, parents_of
from serrate.fusion.view import Operation, TensorView


class Scattering(Renaming, Reductions, Nesting):
    """Operations that go by where indices occur."""

    def places_of(self, indices: TensorView, size: int | str | Scalar) -> TensorView:
        """Where each index below `size` occurs among all elements of `indices`, in order: [size, r], as int64. What is
        gathered there can be reduced in any way.

        torch finds the places before the kernel runs, once for each tensor of indices. If the fusion computes the
        indices itself, it has stages: see `stages_of`.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> x, ids = fusion.input("x", ["n"]), fusion.input("ids", ["n"], "int64")
        >>> places = fusion.places_of(ids, 4)
        >>> y = fusion.output(fusion.reduce("max", fusion.gather(x, places), [1]), "y")
        >>> fusion.evaluate(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([2, 0, 2]))[0]
        tensor([3., -inf, 2., -inf])
        """
        made = symbol(size) if isinstance(size, str) else const(size) if isinstance(size, int) else size
        return self._places(self._packed_indices(indices), made, None)

    def scatter_add(
        self, x: TensorView, indices: TensorView, like: Shape, axis: int = 0, batch: int | None = None
    ) -> TensorView:
        """The elements of `x` added up where `indices` say, in a tensor with the axes of `like`, which is 0 elsewhere:
        for each element of `gather(like, indices, axis, batch)`, which `x` has the axes of, what was gathered there.
        So it is the derivative of that. An index that is out of range is an IndexError, and nothing is added for it.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> x, ids = fusion.input("x", ["n", 2]), fusion.input("ids", ["n"], "int64")
        >>> y = fusion.output(fusion.scatter_add(x, ids, [3, 2]), "y")
        >>> fusion.evaluate(torch.tensor([[1.0, 2], [3, 4], [5, 6]]), torch.tensor([2, 0, 2]))[0]
        tensor([[3., 4.],
                [0., 0.],
                [6., 8.]])
        """
        self._check_own(x, indices)
        if x.dtype == BOOL:
            raise TypeError(f"scatter_add needs numbers, got {x}; cast it")
        target = like if isinstance(like, TensorView) else _shaped(x, like)
        at = axis_number(target, axis)
        expected, _, shared = gather_axes(target, indices, at, batch)
        if len(expected) != x.ndim:
            raise AxisError(f"scatter_add takes what has the {len(expected)} axes {expected}, got {x}")
        for wanted, given in zip(expected, x.domain.kept, strict=True):
            check_same_extent("scatter_add", wanted, given, f"{x} by {indices} into {target}")
        if shared and at > shared:
            raise AxisError(
                f"scatter_add shares the {shared} first axes, so that the one that indices go along comes next, got "
                f"axis {at} of {target}; permute both"
            )
        first = 0 if shared else at
        if not indices.ndim:  # one index
            x = self._with_one(x, at)
        elif indices.ndim > 1:
            x = self.flatten(x, first, first + indices.ndim - 1)
        places = self._places_in(target, self._packed_indices(indices), indices, at, shared)
        if shared:
            places = self._nested_like(places, target.domain.kept[: at + 1])
        total = self.reduce("sum", self._picked(x, places, first), [at + 1])
        return self.cast(total, x.dtype) if total.dtype != x.dtype else total

    def _with_one(self, x: TensorView, at: int) -> TensorView:
        """`x` with an axis of one index before axis `at`."""
        wide = self.broadcast(x, [number == at for number in range(x.ndim + 1)])
        axes: list[IterDomain | int] = list(x.domain.kept)
        return self.expand(wide, [*axes[:at], 1, *axes[at:]])

    # The places of indices

    def _packed_indices(self, indices: TensorView) -> TensorView:
        """The indices as one array: what is given, if it has them in their order, else one that is computed."""
        self._check_own(indices)
        if indices.dtype not in ("int32", "int64"):
            raise TypeError(f"places need indices of int32 or int64, got {indices}")
        given = indices
        while (operation := given.definition) is not None and operation.kind == "nest" and _is_whole(given):
            given = operation.inputs[0]
        if given.definition is None and _is_whole(given):
            return given
        flat = self.flatten(indices, 0, indices.ndim - 1) if indices.ndim > 1 else indices
        flat = flat if flat.ndim else self._with_one(flat, 0)
        if not _is_known(flat.domain.kept[0]):
            raise RaggednessError(
                f"places of {indices}: how many there are is data; the host must know it, as of exact offsets"
            )
        return self.copy(flat)

    def _places_in(
        self, target: TensorView, packed: TensorView, indices: TensorView, at: int, shared: int
    ) -> TensorView:
        """Where each index along an axis of a tensor occurs, in each of the cells that both share."""
        chosen = target.domain.kept[at]
        if not shared:
            return self._places(packed, chosen.extent, None)
        axes = target.domain.kept[: at + 1]
        if chosen.is_ragged and [*parents_of(chosen, axes)] != list(axes[:shared]):
            raise AxisError(f"scatter_add along {chosen} of {target} shares the axes that it depends on, and no others")
        cells = self.packed_positions(indices.domain.kept[:shared])
        cells = self.broadcast(cells, [*[False] * shared, *[True] * (indices.ndim - shared)])
        cells = self._packed_indices(self.expand(cells, indices))
        each = ragged(chosen).raggedness if chosen.is_ragged else chosen.extent
        return self._places(packed, product(_packed_sizes(axes)), each, cells)

    def _places(
        self, indices: TensorView, total: Scalar, each: Raggedness | Scalar | None, *cells: TensorView
    ) -> TensorView:
        """[total, r]: where each index occurs; with `cells`, each index within that cell, which has `each` indices."""
        if any(node.op == "load" for node in total.walk()):
            raise RaggednessError(f"places of {indices} below {total}, which is data; the host must know how many")
        count = product([axis.extent for axis in indices.domain.allocation])
        found = [
            self._add(
                TensorDomain([IterDomain(extent)]),
                "int64",
                Operation("offsets", name, (indices, *cells), (), (total, each)),
            )
            for name, extent in (("order_of_indices", count), ("offsets_of_indices", total + 1))
        ]
        order, offsets = found
        stored = Stored(offsets.name, total, count, exact=False)  # which leaves out what is out of range
        return self.view_as_nested(order, RaggedIterDomain.of(stored).raggedness, names=("p", "r"))

    def _picked(self, x: TensorView, places: TensorView, at: int) -> TensorView:
        """`x` at places along a regular axis that are known to be in bounds."""
        root, pairs, shared = gather_axes(x, places, at, 0)
        return self._add(TensorDomain(root), x.dtype, Operation("gather", "pick", (x, places), pairs, (at, shared)))

    def _nested_like(self, x: TensorView, axes: Sequence[IterDomain]) -> TensorView:
        """`x` with its first axis as several: those that others lie packed by."""
        sizes = _packed_sizes(axes)
        x = self.unflatten(x, 0, sizes) if len(sizes) > 1 else x
        place = len(sizes)
        for number in reversed(range(len(axes))):
            if not axes[number].is_ragged:
                place -= 1
                continue
            x = self.view_as_nested(x, ragged(axes[number]).raggedness, place - 1)
        return x


def _shaped(x: TensorView, shape: Shape) -> TensorView:
    """What has axes like these, and is no tensor of the fusion: only its axes are looked at."""
    return TensorView(x.fusion, "like", TensorDomain(axes_like(shape)[0]), x.dtype, None)


def _packed_sizes(axes: Sequence[IterDomain]) -> list[Scalar]:
    """The sizes of axes as they lie packed: a component axis with the rows of its rows is one."""
    sizes: list[Scalar] = []
    for number, axis in enumerate(axes):
        if not axis.is_ragged:
            sizes.append(axis.extent)
            continue
        parents = parents_of(axis, axes)
        if axes[number - 1] not in parents:
            raise AxisError(f"{axis} of {list(axes)} does not follow the axes that it depends on; permute them")
        sizes[-1] = ragged(axis).raggedness.total_bound
    return sizes


def _is_known(axis: IterDomain) -> bool:
    """Whether the host knows how many indices an axis has, and there is room for no more."""
    return room(axis) == axis.extent and not any(node.op == "load" for node in axis.extent.walk())


def _is_whole(x: TensorView) -> bool:
    """Whether a tensor has all elements of what it lies in, in their order."""
    if x.definition is None:
        return all(_is_known(axis) for axis in x.domain.allocation)
    if x.definition.name != "view_as_nested":
        return True
    at = x.definition.options[0]
    before: IterDomain = x.definition.inputs[0].domain.kept[at]
    return ragged(x.domain.kept[at + 1]).raggedness.total == before.extent
