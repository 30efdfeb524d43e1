"""What a scheduler sees of a fusion: the axes of its reference, and what the kernel's tensors have to do with each.

Two neighbouring axes can be one loop if every tensor that the kernel loads, stores, reduces or scans treats them alike:
it has both or neither, and reduces both or neither. The *uses* of an axis say so; axes of equal uses make a *run*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import MOVED, AxisGraph
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import is_reduction, is_scan, stored_outputs

INDEXED = ("positions", "packed_positions", "row_lengths")
"""Pointwise operations whose value is an index or a length, which a loop over several axes would have to divide for."""


@dataclass(eq=False)
class Structure:
    """A fusion, its own to schedule, and the tensor whose loops its kernel has."""

    fusion: Fusion
    reference: TensorView

    @cached_property
    def needed(self) -> list[TensorView]:
        """What the outputs are computed of, in the order of definition."""
        wanted = set(stored_outputs(self.fusion))
        for tensor in reversed(self.fusion.tensors):
            if tensor in wanted and tensor.definition is not None:
                wanted.update(tensor.definition.inputs)
        return [tensor for tensor in self.fusion.tensors if tensor in wanted]

    @cached_property
    def graph(self) -> AxisGraph:
        """Which axes of these tensors have the same index."""
        return AxisGraph(self.needed)

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of operations that the outputs are computed by."""
        return {tensor.definition.kind for tensor in self.needed if tensor.definition is not None}

    @cached_property
    def reductions(self) -> list[TensorView]:
        """The reductions among what is needed."""
        return [tensor for tensor in self.needed if is_reduction(tensor)]

    @cached_property
    def scans(self) -> list[TensorView]:
        """The scans among what is needed."""
        return [tensor for tensor in self.needed if is_scan(tensor)]

    @property
    def has_moves(self) -> bool:
        """Whether operands are read at other indices."""
        return bool(self.kinds & set(MOVED))

    @cached_property
    def _walked_again(self) -> frozenset[IterDomain]:
        """The groups of axes that are reduced, and that something has which reads the result."""
        behind: dict[TensorView, frozenset[IterDomain]] = {}  # the axes that were reduced on the way to a tensor
        found = frozenset[IterDomain]()
        for tensor in self.needed:
            operation = tensor.definition
            if operation is None or operation.kind == "offsets":
                behind[tensor] = frozenset()
                continue
            before = frozenset[IterDomain]().union(*(behind.get(x, frozenset()) for x in operation.inputs))
            found |= before & self.graph.groups(axis for axis in tensor.domain.root if not axis.is_broadcast)
            behind[tensor] = before | self._reduced_by(tensor)
        return found

    @property
    def has_phases(self) -> bool:
        """Whether something with a reduced axis reads the result of the reduction, so that the axis is walked again."""
        return bool(self._walked_again)

    @cached_property
    def walked_again(self) -> list[bool]:
        """For each axis whether several phases walk it."""
        return [self.graph.find(axis) in self._walked_again for axis in self.axes]

    def _reduced_by(self, tensor: TensorView) -> frozenset[IterDomain]:
        if not is_reduction(tensor):
            return frozenset()
        return self.graph.groups(axis for axis in tensor.domain.logical if axis.is_reduction)

    def _scanned_by(self, tensor: TensorView) -> frozenset[IterDomain]:
        if tensor.definition is None or not is_scan(tensor):
            return frozenset()
        return self.graph.groups([tensor.domain.root[tensor.definition.options[0]]])

    # The axes of the reference

    @cached_property
    def axes(self) -> list[IterDomain]:
        """The axes that are walked, outermost first."""
        return [axis for axis in self.reference.loop if not axis.is_broadcast]

    @cached_property
    def reduced(self) -> list[bool]:
        """For each axis whether something is reduced over it."""
        found = frozenset[IterDomain]().union(*map(self._reduced_by, self.reductions))
        return [self.graph.find(axis) in found for axis in self.axes]

    @cached_property
    def scanned(self) -> list[bool]:
        """For each axis whether something is scanned along it."""
        found = frozenset[IterDomain]().union(*map(self._scanned_by, self.scans))
        return [self.graph.find(axis) in found for axis in self.axes]

    def is_walked(self, run: Sequence[int]) -> bool:
        """Whether something is reduced or scanned over some axes."""
        return any(self.reduced[at] or self.scanned[at] for at in run)

    def size(self, run: Sequence[int]) -> int | None:
        """How many indices some axes have together, if that is a constant."""
        axes = [self.axes[at] for at in run]
        known = all(axis.extent.is_const and not axis.is_ragged for axis in axes)
        return prod(int(axis.extent.value) for axis in axes) if known else None

    def dtypes_along(self, run: Sequence[int]) -> list[str]:
        """The dtypes of what the kernel loads or stores for each index of some axes."""
        stored = {*self.fusion.inputs, *self.fusion.outputs}
        read = [x for x, column in self.columns.items() if any(column[at] for at in run)]
        return [tensor.dtype for tensor in read if tensor in stored or _is_nested(tensor)]

    @cached_property
    def columns(self) -> dict[TensorView, list[int]]:
        """For each tensor of the kernel what it has to do with each axis: 0 if it lacks it, 1 if it has it, 2 if it
        reduces it, 3 if it is scanned along it, and more where the axis must stay alone."""
        return {tensor: self._column(tensor) for tensor in self.needed if self._counts(tensor)}

    @cached_property
    def uses(self) -> list[tuple[int, ...]]:
        """For each axis what each tensor of the kernel has to do with it."""
        return [tuple(column[at] for column in self.columns.values()) for at in range(len(self.axes))]

    @cached_property
    def _nested_only(self) -> set[TensorView]:
        """Inputs that are read as nested tensors alone, so that what counts is the axes that those have."""
        read: dict[TensorView, set[str]] = {}
        for tensor in self.needed:
            operation = tensor.definition
            for number, x in enumerate(operation.inputs if operation is not None else ()):
                assert operation is not None
                read.setdefault(x, set()).add("offsets" if operation.kind == "nest" and number else operation.kind)
        return {tensor for tensor, kinds in read.items() if kinds <= {"nest", "offsets"}}

    def _counts(self, tensor: TensorView) -> bool:
        """Whether a tensor is loaded, stored, reduced, scanned, moved, or made of an index."""
        operation = tensor.definition
        if operation is None or operation.kind == "nest":
            return tensor not in self._nested_only
        if tensor in self.fusion.outputs or is_reduction(tensor):
            return True
        return operation.kind in ("scan", *MOVED) or operation.name in INDEXED

    def _column(self, tensor: TensorView) -> list[int]:
        domain, operation = tensor.domain, tensor.definition
        axes = domain.logical if _is_nested(tensor) else (*domain.root, *domain.logical)
        groups = self.graph.groups(axis for axis in axes if not axis.is_broadcast)
        reduced, scanned = self._reduced_by(tensor), self._scanned_by(tensor)
        alone = _strided(tensor) or (operation is not None and operation.kind in MOVED)
        column = []
        for at, axis in enumerate(self.axes):
            group = self.graph.find(axis)
            use = 0 if group not in groups else 2 if group in reduced else 3 if group in scanned else 1
            column.append(4 + at if use and alone else use)
        if operation is not None and operation.name == "positions":
            column[:] = [4 + at if use else 0 for at, use in enumerate(column)]
        return column

    @cached_property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """The axes, by number, that can be one loop each."""
        made: list[list[int]] = []
        for at in range(len(self.axes)):
            if made and self.uses[at] == self.uses[at - 1] and self._follow(made[-1], at):
                made[-1].append(at)
            else:
                made.append([at])
        return tuple(map(tuple, made))

    def _follow(self, before: Sequence[int], at: int) -> bool:
        """Whether an axis may join those before it: a ragged one joins its own component, and no axis that the rows of
        a later one are numbered by is taken from them."""
        axis = self.axes[at]
        rest = [other for other in self.axes[at + 1 :] if other.is_ragged]
        if axis.is_ragged and not self._is_component(before, axis):
            return False
        taken = {self.axes[number] for number in before}
        return not any(ragged(other).component in taken for other in rest)

    def _is_component(self, before: Sequence[int], axis: IterDomain) -> bool:
        component = ragged(axis).component
        if component is self.axes[before[-1]] and len(before) == 1:
            return True
        step = None if component is None else component.definition
        return step is not None and set(step.inputs) <= {*(self.axes[at] for at in before), *_made_of(step.inputs)}


def _is_nested(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "nest"


def _strided(tensor: TensorView) -> bool:
    """Whether the elements of a tensor, or of the input that it nests, need not lie one behind the other."""
    while tensor.definition is not None and _is_nested(tensor):
        tensor = tensor.definition.inputs[0]
    return tensor.strides is not None


def _made_of(axes: Sequence[IterDomain]) -> set[IterDomain]:
    """Axes that are made of several, since those that follow are rows of theirs."""
    return {axis for axis in axes if axis.definition is not None}
