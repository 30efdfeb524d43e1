"""Rectangles: padded columns and masks, made by gather.cpp from any blocks, or by torch from packed rows anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from serrate.table.gathering import compiled
from serrate.table.gathering.arguments import Layout
from serrate.table.gathering.batch import Dense
from serrate.table.gathering.memory import allocated_together
from serrate.table.gathering.padding import Padding
from serrate.table.gathering.uncompiled import GroupedRows, numbers, repeat_each
from serrate.table.schema import Schema, parent_of
from serrate.tensor import bits, host


def from_measured(measured: compiled.Measured, options: Padding, out: Dense | None) -> Dense:
    """Pad the measured rows in one pass, directly from their sources."""
    layout = measured.layout
    sizes = options.sizes(measured.longest)
    shapes = _shapes(layout.parents, measured.rows, sizes)
    if out is None:
        made = _empty(layout, measured.rows, shapes)
    else:
        made = _checked(out, layout.schema, dict(zip(layout.levels, shapes, strict=True)), "cpu")
    if layout.texts:
        made.vocabularies = compiled.vocabularies(measured)
    compiled.pad(measured, sizes, options.keep, options.left, options.fillings, made.columns, made.valid, made.masks)
    compiled.copy_loose(measured, made.columns, made.valid)
    return made


def _shapes(parents: Sequence[int], rows: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return for each level the shape of its cells."""
    made: list[tuple[int, ...]] = []
    for parent, size in zip(parents, sizes, strict=True):
        made.append((rows,) if parent < 0 else (*made[parent], size))
    return made


def _empty(layout: Layout, rows: int, shapes: Sequence[tuple[int, ...]]) -> Dense:
    """Return a batch with memory for all columns and masks that is not written yet."""
    wanted = [
        ((*(shapes[held.level] if held.level >= 0 else ()), *held.features), held.dtype) for held in layout.tensors
    ]
    masked = [number for number, parent in enumerate(layout.parents) if parent >= 0]
    wanted += [(shapes[number], torch.bool) for number in masked]
    tensors = allocated_together(wanted)
    made = Dense(layout.schema, rows, {}, {}, {})
    for held, each in zip(layout.tensors, tensors, strict=False):
        (made.columns if held.kind == "values" else made.valid)[held.name] = each
    for number, each in zip(masked, tensors[len(layout.tensors) :], strict=True):
        made.masks[layout.levels[number]] = each
    return made


def from_packed(given: GroupedRows, layout: Layout, options: Padding, out: Dense | None) -> Dense:
    """Pad packed rows on the device of their values; nothing waits for the device."""
    block, schema, longest = given.block, given.block.schema, given.longest
    device = next((each.device for each in block.values.values()), torch.device("cpu"))
    sizes = options.sizes([longest.get(level, 0) for level in schema.levels])
    shapes = _shapes(layout.parents, block.rows, sizes)
    if out is not None:
        _checked(out, schema, dict(zip(schema.levels, shapes, strict=True)), device.type)
    grids = _Grids.of(layout, options, shapes, longest, device)
    cells = grids.cells(given)
    made = Dense(schema, block.rows, {}, {}, {}, block.vocabularies)
    for number, (level, parent) in enumerate(zip(layout.levels, layout.parents, strict=True)):
        if parent >= 0:
            made.masks[level] = grids.presence(number, cells[number])
    for held in layout.tensors:
        values = getattr(block, held.kind)[held.name]
        to = made.columns if held.kind == "values" else made.valid
        if held.level < 0 or (layout.parents[held.level] < 0 and given.rows is None):
            to[held.name] = values.clone()
        else:
            filling = options.fillings.get(held.name) if held.kind == "values" else None
            to[held.name] = grids.scattered(held.level, cells[held.level], values, filling)
    return made if out is None else _copied(made, out)


def _checked(out: Dense, schema: Schema, cells: Mapping[str, tuple[int, ...]], device: str) -> Dense:
    """Return `out`; raise an error that names the first part of it that cannot take the result."""
    if not isinstance(out, Dense):
        raise TypeError(f"out must be a Dense that an earlier call returned, got {type(out).__name__}")
    shapes: dict[str | None, tuple[int, ...]] = {None: ()}
    shapes.update(cells)
    wanted = {("column", name): (*shapes[c.level], *c.features, c.dtype) for name, c in schema.items()}
    wanted |= {("validity of column", name): (*shapes[c.level], torch.bool) for name, c in schema.items() if c.nullable}
    masked = [level for level in schema.levels if parent_of(level) in schema.levels]
    wanted |= {("mask of level", level): (*shapes[level], torch.bool) for level in masked}
    found = {("column", name): each for name, each in out.columns.items()}
    found |= {("validity of column", name): each for name, each in out.valid.items()}
    found |= {("mask of level", level): each for level, each in out.masks.items()}
    for kind, name in found:
        if (kind, name) not in wanted:
            raise ValueError(f"out has {kind} {name!r:.60}, which the result does not have")
    for (kind, name), (*shape, dtype) in wanted.items():
        each = found.get((kind, name))
        if each is None:
            raise ValueError(f"out lacks the {kind} {name!r:.60}")
        if list(each.shape) != shape or each.dtype != dtype:
            raise ValueError(
                f"{kind} {name!r:.60} of out must have shape {tuple(shape)} and {dtype}, got {tuple(each.shape)} and "
                f"{each.dtype}"
            )
        if not each.is_contiguous() or each.device.type != device:
            raise ValueError(f"{kind} {name!r:.60} of out must be contiguous and on {device}, got {each.device}")
    return out


def _copied(made: Dense, out: Dense) -> Dense:
    for of, to in ((made.columns, out.columns), (made.masks, out.masks), (made.valid, out.valid)):
        for name, each in of.items():
            to[name].copy_(each)
    out.vocabularies = made.vocabularies
    return out


# --------------------------------------------------------------------------------------------------------- by torch


_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CARRIED = frozenset((*_CARRIERS.values(), torch.float32, torch.float64))
_ONES = torch.ones(2**16, dtype=torch.uint8)


@dataclass(frozen=True, eq=False)
class _Grids:
    """The cells of the rectangles of each level, and the cells that packed entries go to."""

    layout: Layout
    options: Padding
    shapes: Sequence[tuple[int, ...]]
    """For each level the shape of its cells."""
    counts: Sequence[int]
    """For each level the number of its cells."""
    cuts: Sequence[bool]
    """For each level whether entries are cut off. Those are written one past the last cell."""
    device: torch.device

    @classmethod
    def of(
        cls, layout: Layout, options: Padding, shapes: Sequence[tuple[int, ...]], longest: Mapping[str, int],
        device: torch.device,
    ) -> _Grids:  # fmt: skip
        """Return the grids for lists whose greatest lengths are `longest`."""
        cuts: list[bool] = []
        for i, (level, parent) in enumerate(zip(layout.levels, layout.parents, strict=True)):
            kept = min(options.keep[i], shapes[i][-1])
            cuts.append(parent >= 0 and (cuts[parent] or kept < longest[level]))
        return cls(layout, options, shapes, [math.prod(shape) for shape in shapes], cuts, device)

    def cells(self, given: GroupedRows) -> list[torch.Tensor]:
        """Return for each level the cell of each packed entry.

        On the host this uses numpy, whose calls take half the time of torch's.
        """
        device = self.device
        m: Any = np if device.type == "cpu" else torch
        made: list[Any] = []
        for i, (level, parent) in enumerate(zip(self.layout.levels, self.layout.parents, strict=True)):
            total = given.block.counts[level]
            if parent < 0:
                made.append(numbers(total, device) if given.rows is None else given.rows.numpy())
                continue
            starts, lengths = given.lists[level]
            size = self.shapes[i][-1]
            keep = min(self.options.keep[i], size)
            first = made[parent] * size - starts
            if self.options.left[i]:
                first = first + (size - m.where(lengths < keep, lengths, keep))
            here = repeat_each(first, lengths, total)
            here += numbers(total, device)
            if self.cuts[i]:
                lasts = m.where(made[parent] >= self.counts[parent], starts, starts + keep)
                here = m.where(numbers(total, device) < repeat_each(lasts, lengths, total), here, self.counts[i])
            made.append(here)
        return [torch.from_numpy(each) for each in made] if m is np else made

    def scattered(
        self, level: int, cells: torch.Tensor, values: torch.Tensor, filling: torch.Tensor | None
    ) -> torch.Tensor:
        """Return packed values in their cells, with the filling in all other cells."""
        features = values.shape[1:]
        base = self._zeros(level, features, values.dtype)
        if filling is not None:
            base.copy_(host.send(filling, self.device))
        carrier = _CARRIERS.get(values.element_size()) if not features else None
        if carrier is None:
            bits.put(base, (cells,), values)
        elif values.dtype in _CARRIED:
            base.scatter_(0, cells, values)  # This takes a quarter of the time of index_put_.
        else:
            base.view(carrier).scatter_(0, cells, values.view(carrier))
        return self._kept(level, base).view(*self.shapes[level], *features)

    def presence(self, level: int, cells: torch.Tensor) -> torch.Tensor:
        """Return which cells have an entry."""
        few = cells.is_cpu and cells.numel() <= _ONES.numel()
        ones = _ONES[: cells.numel()] if few else torch.ones_like(cells, dtype=torch.uint8)
        # A single number in the place of `ones` takes three times as long.
        base = self._zeros(level, (), torch.uint8).scatter_(0, cells, ones)
        return self._kept(level, base).view(torch.bool).view(self.shapes[level])

    def _zeros(self, level: int, features: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a zero for each cell of a level, and one more if entries are cut off."""
        return torch.zeros((self.counts[level] + self.cuts[level], *features), dtype=dtype, device=self.device)

    def _kept(self, level: int, base: torch.Tensor) -> torch.Tensor:
        """Return the cells without the one for entries that are cut off."""
        return base[: self.counts[level]] if self.cuts[level] else base
