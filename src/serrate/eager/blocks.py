"""Blocks: what packed operands have of each component, as rectangles of length classes.

A component's block has its packed axes (the *tail*) and then its features. A class of components of like lengths is one
rectangle of blocks, gathered from packed rows and stored back to them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from serrate.eager.classes import LengthClass, length_classes
from serrate.tensor import host
from serrate.tensor.partition import CPU, Partition


@dataclass(frozen=True, eq=False)
class Cells:
    """The numbers of the packed rows of a rectangle of blocks, as a vector."""

    rows: torch.Tensor
    """For each place its row; 0 for a place without one."""
    valid: torch.Tensor | None
    """Which places have a row; None if all have one."""

    @cached_property
    def _holes(self) -> torch.Tensor | None:
        """The places without a row; None on a device, where the host would wait to find them."""
        if self.valid is None or self.valid.device != CPU:
            return None
        with host.lasting():
            return (~self.valid).nonzero().flatten()

    def read(self, values: torch.Tensor, blank: bool) -> torch.Tensor:
        """The rows of `values`. A place without a row has 0 if `blank`, else any row."""
        made = values.index_select(0, self.rows)
        if not blank or self.valid is None:
            return made
        if self._holes is not None:
            return made.index_fill_(0, self._holes, 0)
        return made.masked_fill_(~self.valid.view(-1, *[1] * (values.ndim - 1)), 0)

    def places(self, spare: int) -> torch.Tensor:
        """The row to store each entry in. Entries at places without a row go to the row `spare`."""
        return self.rows if self.valid is None else torch.where(self.valid, self.rows, spare)


@dataclass(frozen=True, eq=False)
class Side:
    """How an operand is stored."""

    tail: tuple[str, ...]
    """Labels of the packed axes inside a component."""
    features: tuple[str, ...]
    """Labels of the trailing dimensions of its values."""
    rows: Partition
    """The packed rows that each component has."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the tail and of the features."""
        return (*self.tail, *self.features)


@dataclass(eq=False)
class Kept:
    """What is derived from lengths. If one partition has all of them, it is kept with that partition."""

    classes: tuple[LengthClass, ...] | None = None
    cells: dict[Hashable, Cells] = field(default_factory=dict)


class Lengths:
    """The lengths of ragged labels of tails, and what is derived from them; gradients of a contraction share it."""

    def __init__(self, extents: Mapping[str, int | Partition]) -> None:
        found: list[Partition] = []
        self.extents = dict(extents)
        self.number: dict[str, int] = {}
        for label, extent in extents.items():
            if isinstance(extent, Partition):
                known = next((i for i, p in enumerate(found) if p is extent), len(found))
                if known == len(found):
                    found.append(extent)
                self.number[label] = known
        self.partitions = tuple(found)
        self.kept = found[0].derived("blocks", Kept) if len(found) == 1 else Kept()

    @property
    def classes(self) -> tuple[LengthClass, ...]:
        """The length classes of components."""
        if self.kept.classes is None:
            with host.lasting():
                self.kept.classes = length_classes(self.partitions)
        return self.kept.classes

    def sizes(self, side: Side, group: LengthClass | None = None) -> list[int]:
        """The sizes of the tail of a side in the rectangle of a class."""
        sizes = []
        for label in side.tail:
            extent = self.extents[label]
            if isinstance(extent, Partition):
                assert group is not None
                extent = group.sizes[self.number[label]]
            sizes.append(extent)
        return sizes

    def run(self, side: Side, group: LengthClass) -> tuple[int, int] | None:
        """First row and number of rows of a class whose blocks lie one after the other without gaps."""
        if not group.is_exact or group.first is None:
            return None
        start = int(side.rows.host_offsets()[group.first])
        return start, group.members.numel() * math.prod(self.sizes(side, group))

    def cells(self, side: Side, group: LengthClass, device: torch.device) -> Cells:
        """The rows of a class's blocks."""
        shape = tuple(self.number.get(label, (self.extents[label],)) for label in side.tail)
        key = (group.number, shape, device)
        if key not in self.kept.cells:
            with host.lasting():
                self.kept.cells[key] = self._make_cells(side, group, device)
        return self.kept.cells[key]

    def _make_cells(self, side: Side, group: LengthClass, device: torch.device) -> Cells:
        sizes = self.sizes(side, group)
        members = host.send(group.members, device)
        count = members.numel()
        cells = side.rows.offsets_on(device)[:-1].to(torch.int64)[members].view(count, *[1] * len(sizes))
        valid: torch.Tensor | None = None
        stride: torch.Tensor | int = 1
        for depth in range(len(sizes) - 1, -1, -1):
            extent = self.extents[side.tail[depth]]
            positions = torch.arange(sizes[depth], device=device).view(-1, *[1] * (len(sizes) - 1 - depth))
            cells = cells + positions * stride
            if isinstance(extent, Partition):
                lengths = extent.lengths_on(device).to(torch.int64)[members].view(count, *[1] * len(sizes))
                if not group.is_exact:
                    inside = positions < lengths
                    valid = inside if valid is None else valid & inside
                stride = stride * lengths
            else:
                stride = stride * extent
        cells = cells.expand(count, *sizes)
        if valid is None:
            return Cells(cells.reshape(-1), None)
        valid = valid.expand(count, *sizes)
        return Cells(torch.where(valid, cells, 0).reshape(-1), valid.reshape(-1))
