"""Cheap questions about a fusion, asked before it is lowered: what surely cannot be one kernel, and why.

A "no" is certain, a "perhaps" is found out by lowering. All is by the names of tensors, since parts of a fusion are
fusions of their own, whose tensors have the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from serrate.fusion.axes import IterDomain
from serrate.fusion.fusion import Fusion
from serrate.fusion.mapping import AxisGraph, read_elsewhere
from serrate.fusion.stages import arrays_of, computed_extents
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import is_gathered, is_reduction, stored_outputs

RENAMED = ("nest", "broadcast")
"""Kinds of operations that give other axes to the same values: what is stored is their operand."""


class Questions:
    """A fusion, and what is known about it."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.tensors = {tensor.name: tensor for tensor in fusion.tensors}
        self.order = {tensor.name: number for number, tensor in enumerate(fusion.tensors)}
        self.outputs = [tensor.name for tensor in stored_outputs(fusion)]
        self._walks: dict[tuple[frozenset[str], frozenset[str]], tuple[list[TensorView], set[str]]] = {}

    # What is computed of what

    @cached_property
    def _offsets(self) -> dict[str, tuple[str, ...]]:
        """The tensors that hold the offsets of the axes of each."""
        return {
            t.name: tuple(x for x in sorted(arrays_of(t)) if x in self.tensors and x != t.name)
            for t in self.fusion.tensors
        }

    @cached_property
    def _before(self) -> dict[str, tuple[str, ...]]:
        """The tensors that each is computed of: its operands, and the offsets of its axes."""
        made = {}
        for tensor in self.fusion.tensors:
            operands = [] if tensor.definition is None else [x.name for x in tensor.definition.inputs]
            made[tensor.name] = tuple(dict.fromkeys([*operands, *self._offsets[tensor.name]]))
        return made

    def computed(self, results: Collection[str], stored: Collection[str]) -> list[TensorView]:
        """The tensors that a kernel of some results computes where others are stored, in the order of definition."""
        return self._walk(results, stored)[0]

    def loaded(self, results: Collection[str], stored: Collection[str]) -> set[str]:
        """The stored tensors that a kernel of some results loads."""
        return self._walk(results, stored)[1]

    def _walk(self, results: Collection[str], stored: Collection[str]) -> tuple[list[TensorView], set[str]]:
        key = frozenset(results), frozenset(stored)
        if key not in self._walks:
            self._walks[key] = self._walked(*key)
        return self._walks[key]

    def _walked(self, results: Collection[str], stored: Collection[str]) -> tuple[list[TensorView], set[str]]:
        found, loaded, stack = set[str](), set[str](), list(results)
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            for x in self._before[name]:
                if x not in stored or (x in results and not self._is_offsets(name)):
                    stack.append(x)
                elif x not in loaded:
                    loaded.add(x)
                    stack += self._offsets[x]
        wanted = sorted(
            (name for name in found if self.tensors[name].definition is not None), key=self.order.__getitem__
        )
        return [self.tensors[name] for name in wanted], loaded - {*results}

    def _is_offsets(self, name: str) -> bool:
        operation = self.tensors[name].definition
        return operation is not None and operation.kind == "offsets"

    # What has to be stored

    def stored_of(self, tensor: TensorView) -> TensorView:
        """What is stored of a tensor that may only give other axes to another."""
        while tensor.definition is not None and tensor.definition.kind in RENAMED:
            tensor = tensor.definition.inputs[0]
        return tensor

    def must_be_stored(self) -> dict[str, str]:
        """The tensors that no kernel can both compute and read, each with the reason."""
        found = {}
        for tensor in self.computed(self.outputs, ()):
            for x in self._gathered_elsewhere(tensor, ()):
                found[x.name] = f"{tensor.name} reads it at other indices than those that a kernel has it for"
        for x in computed_extents(self.fusion):
            name = self.stored_of(x).name
            found[name] = "offsets of rows are made of it, which have to be there before a kernel runs"
        return {name: why for name, why in found.items() if self.tensors[name].definition is not None}

    def _gathered_elsewhere(self, tensor: TensorView, stored: Collection[str]) -> list[TensorView]:
        """What loops gather of the operands that an operation reads at other indices than its own."""
        operation, found, seen = tensor.definition, [], set[TensorView]()
        stack = [] if operation is None else list(read_elsewhere(operation))
        while stack:
            x = stack.pop()
            if x in seen or x.name in stored:
                continue
            seen.add(x)
            if is_gathered(x):
                found.append(x)
            elif x.definition is not None and x.definition.kind != "offsets":
                stack += x.definition.inputs
        return found

    # What cannot be together

    def may_be_one(self, results: Collection[str], stored: Collection[str]) -> bool:
        """Whether a kernel may have all of these results: false only where it is certain that none can."""
        computed, inside = self.computed(results, stored), {*results}
        others = {name for name in stored if name not in inside}
        if any(self._gathered_elsewhere(tensor, others) for tensor in computed):
            return False
        if any(x.name in inside for tensor in computed for x in self._extents_of(tensor)):
            return False
        return bool(self.covering(computed, inside))

    def _extents_of(self, tensor: TensorView) -> list[TensorView]:
        operation = tensor.definition
        if operation is None or operation.kind != "offsets":
            return []
        return [self.stored_of(x) for x in operation.inputs if x.definition is not None]

    def covering(self, computed: Iterable[TensorView], results: Collection[str]) -> list[str]:
        """Those of the results and reductions whose axes have to do with the axes of all of them, so that a kernel may
        have their loops; those with the most axes first, and of these results that are not reduced."""
        jobs = [tensor for tensor in computed if tensor.name in results or is_reduction(tensor)]
        families = {tensor: self._families(tensor) for tensor in jobs}
        every = frozenset[IterDomain]().union(*families.values())
        found = [tensor for tensor in jobs if families[tensor] >= every]
        found.sort(key=lambda tensor: (-len(_axes(tensor)), is_reduction(tensor), self.order[tensor.name]))
        return [tensor.name for tensor in found]

    def beyond(self, computed: Iterable[TensorView], results: Collection[str]) -> TensorView | None:
        """Where nothing covers all: the first reduction or result that the one with the most axes does not cover."""
        jobs = [tensor for tensor in computed if tensor.name in results or is_reduction(tensor)]
        widest = max(jobs, key=lambda tensor: len(self._families(tensor)), default=None)
        if widest is None:
            return None
        known = self._families(widest)
        return next((tensor for tensor in jobs if not self._families(tensor) <= known), None)

    def _families(self, tensor: TensorView) -> frozenset[IterDomain]:
        return frozenset(self._family(axis) for axis in _axes(tensor))

    @cached_property
    def _graph(self) -> AxisGraph:
        return AxisGraph(self.fusion.tensors)

    @cached_property
    def _relatives(self) -> dict[IterDomain, IterDomain]:
        """For each group of axes that steps make of others, or others of them, one that stands for all of these."""
        parent: dict[IterDomain, IterDomain] = {}

        def find(axis: IterDomain) -> IterDomain:
            while parent.get(axis, axis) is not axis:
                axis = parent[axis]
            return axis

        for step in self._graph.expressions:
            first, *rest = (find(self._graph.find(axis)) for axis in (*step.inputs, *step.outputs))
            for other in rest:
                parent[find(other)] = find(first)
        return {axis: find(axis) for axis in parent}

    def _family(self, axis: IterDomain) -> IterDomain:
        group = self._graph.find(axis)
        return self._relatives.get(group, group)


def _axes(tensor: TensorView) -> list[IterDomain]:
    return [axis for axis in tensor.domain.root if not axis.is_broadcast]
