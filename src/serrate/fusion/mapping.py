"""Which axes of different tensors have the same index: exact mapping, a union-find closed under the axis expressions.

Two axes are mapped when an operation pairs them, when the same expression makes them of mapped axes, or when the same
expression makes mapped axes of them and nothing is lost on the way. Operations that read an operand at other indices
than their own (the kinds in MOVED) do not pair its axes with theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import history
from serrate.fusion.expressions import AxisExpression, Combine, Cover, Partition
from serrate.fusion.view import Operation, TensorView

if TYPE_CHECKING:
    from serrate.fusion.indices import Step

Pairs = Sequence[tuple[IterDomain, IterDomain]]
MOVED = (
    "resize",
    "gather",
    "select",
    "concat",
    "pad_rows",
    "unpad_rows",
)  # kinds of operations whose operands are read elsewhere


def read_elsewhere(operation: Operation) -> tuple[TensorView, ...]:
    """The operands that are read at other indices than those of the result."""
    if operation.kind not in MOVED:
        return ()
    return operation.inputs[:1] if operation.kind == "gather" else operation.inputs


def read_here(operation: Operation) -> tuple[TensorView, ...]:
    """The operands that are read at the indices of the result; of a gather its indices. Offsets are not read."""
    if operation.kind == "nest":
        return operation.inputs[:1]
    return operation.inputs[len(read_elsewhere(operation)) :]


class AxisGraph:
    """Groups of mapped axes, and the expressions between them."""

    def __init__(self, tensors: Iterable[TensorView], further: Iterable[IterDomain] = ()) -> None:
        self._parent: dict[IterDomain, IterDomain] = {}
        self.expressions: dict[AxisExpression, None] = {}
        self.steps: dict[IterDomain, list[Step]] = {}  # between groups, by what they need; see `indices.route`
        for tensor in tensors:
            domain = tensor.domain
            self._add((*domain.root, *domain.logical, *domain.allocation, *domain.loop))
            pairs = () if tensor.definition is None else tensor.definition.axes
            self._add(new for _, new in pairs)
            for old, new in pairs:
                self._unite(old, new)
        self._add(further)
        self._close()

    def _add(self, axes: Iterable[IterDomain]) -> None:
        self.expressions.update(dict.fromkeys(history(axes)))

    def find(self, axis: IterDomain) -> IterDomain:
        """The axis that stands for the group of this one."""
        root = axis
        while self._parent.get(root, root) is not root:
            root = self._parent[root]
        while axis is not root:
            self._parent[axis], axis = root, self._parent.get(axis, root)
        return root

    def same(self, first: IterDomain, second: IterDomain) -> bool:
        """Whether two axes have the same index and extent."""
        return self.find(first) is self.find(second)

    def groups(self, axes: Iterable[IterDomain]) -> frozenset[IterDomain]:
        return frozenset(self.find(axis) for axis in axes)

    def _unite(self, first: IterDomain, second: IterDomain) -> bool:
        a, b = self.find(first), self.find(second)
        self._parent.setdefault(a, a)
        if a is b:
            return False
        self._parent[b] = a
        return True

    def _close(self) -> None:
        changed = True
        while changed:
            changed = False
            made: dict[tuple[object, ...], Sequence[IterDomain]] = {}
            for step in self.expressions:
                for key, axes in self._sides(step):
                    known = made.setdefault(key, axes)
                    for first, second in zip(known, axes, strict=True):
                        changed |= self._unite(first, second)

    def _sides(self, step: AxisExpression) -> list[tuple[tuple[object, ...], Sequence[IterDomain]]]:
        """What follows from which groups: (signature and groups, axes that are then the same)."""
        below, above = step.inputs, step.outputs
        if isinstance(step, Partition):  # the inverse of Combine: one relation
            below, above = above, below
        forward = ((*step.key, "of", *map(self.find, below)), above)
        if isinstance(step, Cover):
            return [forward]
        # Extents as well: 15 and 16 split by 6 into axes of the same extents, but are not the same.
        extents = tuple(ragged(axis).raggedness if axis.is_ragged else axis.extent for axis in below)
        if isinstance(step, (Partition, Combine)):
            extents = ()
        backward = ((*step.key, "makes", *map(self.find, above), *extents), below)
        covers = not isinstance(step, Partition) or step.covers  # else the rows are only part of the axis
        return [forward, backward] if covers else [backward]
