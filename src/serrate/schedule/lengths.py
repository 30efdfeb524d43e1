"""Kernels by the lengths of rows: a call takes another one where rows are short, or one is a large part of all.

A kernel that goes component by component has lanes along the rows, if there are no features, and threads that take one
component after another. Of rows shorter than its lanes most lanes would be idle: for such calls there is a kernel
without them. And one row that is a large part of all would be the work of one thread: it is cut out of the call, and
done by a kernel whose threads share one row, between calls for what comes before and after it. Only for that are
offsets read, once for each tensor of them, and only if there are enough elements for such a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch

from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.binding import TORCH, bind, check_offsets, compute_offsets, stored_raggedness
from serrate.fusion.mapping import read_elsewhere
from serrate.fusion.raggedness import Stored
from serrate.fusion.remembering import memory_of
from serrate.fusion.view import TensorView
from serrate.kernel import Lowered
from serrate.native.loading import empty
from serrate.schedule import model
from serrate.schedule.grid import Grid
from serrate.schedule.loops import Parameters
from serrate.schedule.structure import Structure

Call = Callable[..., list[torch.Tensor]]
ROWS, COMPONENTS, OFFSETS, WHOLE = "rows", "components", "offsets", "whole"


@dataclass(frozen=True)
class Rows:
    """The rows that a kernel goes through, component by component."""

    loop: int
    """Which of its loops walks them."""
    offsets: str
    """The input that holds their offsets."""
    width: int
    """How many elements belong to each position of a row, about."""
    cuts: dict[str, str]
    """What of each input and output belongs to some of the components: their rows, a part along the components, their
    offsets, or the whole tensor."""


def rows_of(structure: Structure, parameters: Parameters | Grid) -> Rows | None:
    """The rows inside of the outermost loop; None if there are none, or if a call cannot be cut between them."""
    runs, axes = parameters.runs, structure.axes
    loop = next((number for number, run in enumerate(runs) if axes[run[0]].is_ragged), 0)
    if not loop or len(runs[0]) != 1 or parameters.parts or any(structure.size(run) != 1 for run in runs[1:loop]):
        return None
    component, rows = axes[runs[0][0]], ragged(axes[runs[loop][0]])
    if rows.component is not component or structure.reduced[runs[0][0]]:
        return None
    if any(structure.scanned[at] for at in (*runs[0], *runs[loop])):
        return None
    cuts = _Cuts(structure, component, rows).found()
    width = 1
    for run in runs[loop:]:
        width *= structure.size([at for at in run if not axes[at].is_ragged]) or model.MOST_LANES
    return None if cuts is None else Rows(loop, rows.raggedness.array, width, cuts)


class _Cuts:
    """How each tensor in memory is cut between components."""

    def __init__(self, structure: Structure, component: IterDomain, rows: RaggedIterDomain) -> None:
        self.structure, self.component, self.rows = structure, component, rows

    def found(self) -> dict[str, str] | None:
        """The cut of each input and output; None if there is one that cannot be cut."""
        stored, fusion = self.rows.raggedness, self.structure.fusion
        if not isinstance(stored, Stored) or not stored.size.symbols or not stored.count.symbols:
            return None
        if any(self._knows_its_place(tensor) for tensor in self.structure.needed):
            return None
        made = {}
        for tensor in (*fusion.inputs, *fusion.outputs):
            cut = self._cut(tensor, stored)
            if cut is None:
                return None
            made[tensor.name] = cut
        return made if made.get(stored.array) == OFFSETS else None

    def _knows_its_place(self, tensor: TensorView) -> bool:
        """Whether a tensor holds indices that would be others in a part, or offsets, or reads other components."""
        operation = tensor.definition
        if operation is None:
            return False
        if operation.name == "positions":
            return self._is_component(tensor.domain.kept[operation.options[0]])
        if operation.name == "packed_positions" or operation.kind == "offsets":
            return True
        here = read_at_own_indices(tensor)
        graph, whole = self.structure.graph, {*self._components, *self._rows}
        return any(
            graph.find(axis) in whole and number not in here
            for x in read_elsewhere(operation)
            for number, axis in enumerate(x.domain.kept)
        )

    @cached_property
    def _components(self) -> set[IterDomain]:
        """The groups of axes with the index of the component: also of what is read at the same one, and at other
        indices of other axes."""
        graph = self.structure.graph
        found = {graph.find(self.component)}
        for tensor in reversed(self.structure.needed):
            for number in read_at_own_indices(tensor):
                if graph.find(tensor.domain.kept[number]) in found:
                    assert tensor.definition is not None
                    found |= {graph.find(x.domain.kept[number]) for x in read_elsewhere(tensor.definition)}
        return found

    @cached_property
    def _rows(self) -> set[IterDomain]:
        """The groups of the rows, and of all rows as they lie one behind the other."""
        graph = self.structure.graph
        return {graph.find(self.rows), *(graph.find(axis) for axis in self._packed_rows)}

    def _is_component(self, axis: IterDomain) -> bool:
        return self.structure.graph.find(axis) in self._components

    def _cut(self, tensor: TensorView, stored: Stored) -> str | None:
        if tensor.name == stored.array:
            return OFFSETS
        axes = tensor.domain.allocation
        sizes = {*stored.size.symbols, *stored.count.symbols}
        if any(sizes.intersection(axis.extent.symbols) for axis in axes[1:]):
            return None
        if not axes or not sizes.intersection(axes[0].extent.symbols):
            return None if any(self._is_component(axis) for axis in tensor.domain.kept) else WHOLE
        needed = tensor in self.structure.needed
        if axes[0].extent == stored.count and (not needed or self._is_component(axes[0])):
            return COMPONENTS
        if axes[0] in self._packed_rows or (not needed and axes[0].extent == stored.size):
            return ROWS
        return None

    @cached_property
    def _packed_rows(self) -> set[IterDomain]:
        """The axes by which the rows lie in memory, one behind the other."""
        graph = self.structure.graph
        found = set()
        for tensor in self.structure.needed:
            kept = tensor.domain.kept
            if len(kept) > 1 and self._is_component(kept[0]) and graph.same(kept[1], self.rows):
                found.add(graph.find(tensor.domain.allocation[0]))
        axes = [tensor.domain.allocation[:1] for tensor in self.structure.needed]
        return {axis for first in axes for axis in first if graph.find(axis) in found}


def read_at_own_indices(tensor: TensorView) -> list[int]:
    """The axes at whose own indices an operation reads operands that it reads at other indices of other axes."""
    operation = tensor.definition
    if operation is None or operation.kind not in ("resize", "pad_rows", "unpad_rows", "gather"):
        return []
    moved = operation.options[0]
    if operation.kind == "gather":
        return list(range(operation.options[1]))
    return [number for number in range(tensor.ndim) if number != moved and number not in _listed(moved)]


def _listed(numbers: object) -> tuple[int, ...]:
    return numbers if isinstance(numbers, tuple) else ()


@dataclass(frozen=True)
class ByLength:
    """A kernel, and those that take its place for rows of some lengths."""

    usual: Lowered
    rows: Rows
    short: Lowered | None
    """For rows that are short on the average."""
    within: Lowered | None
    """For a row that all threads share."""

    @property
    def kernels(self) -> list[Lowered]:
        """All kernels, the usual one first."""
        return [made for made in (self.usual, self.short, self.within) if made is not None]

    def renamed(self, name: str) -> ByLength:
        """The same, all kernels named after one."""
        short = None if self.short is None else named(self.short, f"{name}_of_short_rows")
        within = None if self.within is None else named(self.within, f"{name}_of_a_long_row")
        return ByLength(named(self.usual, name), self.rows, short, within)

    def prepared(self, devices: Sequence[torch.device | str]) -> Call:
        """A function of the inputs, which lie on these devices, that returns the outputs: see `Lowered.prepared`."""
        names = [tensor.name for tensor in self.usual.fusion.inputs]
        at = names.index(self.rows.offsets)
        rows_at = next((number for number, name in enumerate(names) if self.rows.cuts[name] == ROWS), at)
        usual = self.usual.prepared(devices)
        short = usual if self.short is None else self.short.prepared(devices)
        least, mean = model.least_shared(self.rows.width), model.SHORT_ROWS
        within = self.within is not None and rows_at != at

        def call(*inputs: torch.Tensor) -> list[torch.Tensor]:
            count = inputs[rows_at].shape[0]
            if within and count >= least:
                parts = self._parts(inputs[at], count, least)
                if parts:
                    return self._in_parts(parts, inputs)
            return short(*inputs) if count < mean * inputs[at].shape[0] else usual(*inputs)

        return call

    def _parts(self, offsets: torch.Tensor, count: int, least: int) -> list[Part]:
        """The parts of a call: those of one long row, and those before and after; none if no row is so long."""
        memory = memory_of(offsets)
        key = "parts of a call", least, count
        if key not in memory:
            memory[key] = parts_of(offsets, max(least, count // model.SHARED_ROWS))
        found: list[Part] = memory[key]
        return found

    def _in_parts(self, parts: Sequence[Part], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        fusion = self.usual.fusion
        run = bind(fusion, inputs)
        compute_offsets(fusion, run)
        check_offsets(stored_raggedness(fusion), run)
        outputs = [empty(tuple(map(run.capacity, t.domain.allocation)), TORCH[t.dtype]) for t in fusion.outputs]
        devices = [given.device for given in inputs]
        for part in parts:
            kernel = self._kernel_of(part)
            given = [self._cut(tensor, x, part) for tensor, x in zip(fusion.inputs, inputs, strict=True)]
            into = [self._cut(tensor, y, part) for tensor, y in zip(fusion.outputs, outputs, strict=True)]
            kernel.prepared(devices, given_outputs=True)(*given, *into)
        return outputs

    def _kernel_of(self, part: Part) -> Lowered:
        if part.shared and self.within is not None:
            return self.within
        is_short = part.stop - part.start < model.SHORT_ROWS * (part.last - part.first)
        return self.short if is_short and self.short is not None else self.usual

    def _cut(self, tensor: TensorView, whole: torch.Tensor, part: Part) -> torch.Tensor:
        match self.rows.cuts[tensor.name]:
            case "rows":
                return whole[part.start : part.stop]
            case "components":
                return whole[part.first : part.last]
            case "offsets":
                return part.offsets
        return whole


@dataclass(frozen=True)
class Part:
    """Some components that one kernel does at once."""

    first: int
    last: int
    start: int
    """Where their rows begin."""
    stop: int
    offsets: torch.Tensor
    """Their own, from 0 on."""
    shared: bool
    """Whether it is one row that all threads share."""


def named(lowered: Lowered, name: str) -> Lowered:
    """A kernel by another name."""
    return lowered if lowered.kernel.name == name else replace(lowered, kernel=replace(lowered.kernel, name=name))


def parts_of(offsets: torch.Tensor, length: int) -> list[Part]:
    """The parts of a call where some rows are longer than `length`; none if there is no such row, or offsets are wrong.

    >>> [(part.first, part.last, part.shared) for part in parts_of(torch.tensor([0, 2, 9, 10, 11]), 5)]
    [(0, 1, False), (1, 2, True), (2, 4, False)]
    """
    lengths = offsets.diff()
    long = (lengths > length).nonzero()[:, 0].tolist()
    if not long or bool((lengths < 0).any()):
        return []
    edges = sorted({0, len(lengths), *long, *(at + 1 for at in long)})
    return [_part(offsets, first, last, first in long) for first, last in pairwise(edges)]


def _part(offsets: torch.Tensor, first: int, last: int, shared: bool) -> Part:
    start, stop = int(offsets[first]), int(offsets[last])
    return Part(first, last, start, stop, offsets[first : last + 1] - start, shared)
