"""Operations of a fusion that make ragged axes, and the offsets of these as tensors."""

from __future__ import annotations

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain, RaggedIterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.operations import Operations
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.shapes import axis_number, clones, depend_on, depends_on
from serrate.fusion.transforms import combine, partition
from serrate.fusion.view import Operation, TensorView


class Nesting(Operations):
    """Operations on offsets. Kernels read these; torch computes them, before a kernel runs."""

    def view_as_nested(
        self,
        data: TensorView,
        offsets: TensorView | Raggedness,
        ragged_dim: int = 0,
        *,
        exact: bool = True,
        names: tuple[str, str] = ("c", "r"),
    ) -> TensorView:
        """`data` with axis `ragged_dim` cut into components and rows: [n, d] → [k, ragged, d].

        The last offset is n; if not `exact`, at most n, and what comes after it is not part of the nested tensor. Loops
        over components and rows are called `names`. For several levels nest the innermost first.
        """
        root, pairs = clones(data.domain.kept)
        at = axis_number(data, ragged_dim)
        if root[at].is_ragged:
            raise RaggednessError(f"axis {ragged_dim} of {data} is ragged already")
        inputs: tuple[TensorView, ...] = (data,)
        if isinstance(offsets, TensorView):
            raggedness = RaggedIterDomain.from_offsets(offsets, size=root[at].extent, exact=exact).raggedness
            inputs = (data, offsets)
        else:
            raggedness = offsets
        component, rows = partition(root[at], raggedness)
        component.name, rows.name = names
        if any(other.is_ragged and depends_on(other, root[at]) for other in root):
            depend_on(root, {root[at]: combine(component, rows)})  # rows of what is cut now: those of a row of rows
        logical = (*root[:at], component, rows, *root[at + 1 :])
        domain = TensorDomain(root, logical)
        return self._add(domain, data.dtype, Operation("nest", "view_as_nested", inputs, pairs, (at,)))

    def offsets_of_extents(self, extents: TensorView) -> TensorView:
        """Offsets of components whose extents are data."""
        if len(extents.domain.kept) != 1:
            raise RaggednessError(f"extents must have one axis, got {extents}")
        if extents.dtype not in ("int32", "int64"):
            raise TypeError(f"extents must be int32 or int64, got {extents}")
        domain = TensorDomain([IterDomain(extents.domain.kept[0].extent + 1)])
        return self._add(domain, "int64", Operation("offsets", "offsets_of_extents", (extents,), ()))

    def offsets_of(self, tensor: TensorView, axis: RaggedIterDomain) -> TensorView:
        """The offsets of a ragged axis as a tensor."""
        raggedness = axis.raggedness
        bases = tuple(self.named(name) for name in raggedness.base_arrays)
        domain = TensorDomain([IterDomain(raggedness.count + 1)])
        return self._add(domain, "int64", Operation("offsets", "offsets_of", bases, (), (raggedness,)))
