"""Rectangles: padded columns and masks, by gather.cpp out of any blocks, or by torch out of a packed one anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.gathering import compiled
from serrate.table.gathering.addresses import Layout
from serrate.table.gathering.batch import Dense
from serrate.table.gathering.memory import allocated
from serrate.table.gathering.padding import Padding
from serrate.table.gathering.runs import numbers, spread
from serrate.table.schema import Schema, parent_of
from serrate.tensor import bits, host


def from_measured(measured: compiled.Measured, options: Padding, out: Dense | None) -> Dense:
    """The measured rows, padded in one pass from where they lie."""
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
    """For each level the sizes of its cells."""
    made: list[tuple[int, ...]] = []
    for parent, size in zip(parents, sizes, strict=True):
        made.append((rows,) if parent < 0 else (*made[parent], size))
    return made


def _empty(layout: Layout, rows: int, shapes: Sequence[tuple[int, ...]]) -> Dense:
    """Memory for all columns and masks, to be written."""
    wanted = [
        ((*(shapes[held.level] if held.level >= 0 else ()), *held.features), held.dtype) for held in layout.tensors
    ]
    masked = [number for number, parent in enumerate(layout.parents) if parent >= 0]
    wanted += [(shapes[number], torch.bool) for number in masked]
    _, tensors = allocated(wanted)
    made = Dense(layout.schema, rows, {}, {}, {})
    for held, each in zip(layout.tensors, tensors, strict=False):
        (made.columns if held.kind == "values" else made.valid)[held.name] = each
    for number, each in zip(masked, tensors[len(layout.tensors) :], strict=True):
        made.masks[layout.levels[number]] = each
    return made


def from_packed(
    block: Block, offsets: Mapping[str, torch.Tensor], longest: Mapping[str, int], layout: Layout, options: Padding,
    out: Dense | None,
) -> Dense:  # fmt: skip
    """A packed block, padded where its values and `offsets` lie; nothing waits for a device."""
    schema, device = block.schema, next((each.device for each in block.values.values()), torch.device("cpu"))
    sizes = options.sizes([longest.get(level, 0) for level in schema.levels])
    shapes = _shapes(layout.parents, block.rows, sizes)
    if out is not None:
        _checked(out, schema, dict(zip(schema.levels, shapes, strict=True)), device.type)
    made = Dense(schema, block.rows, {}, {}, {}, block.vocabularies)
    grids = _grids(block, offsets, longest, layout, options, shapes, device)
    for level, grid in grids.items():
        made.masks[level] = grid.presence()
    for name, column in schema.items():
        kinds = [(made.columns, block.values[name], options.fillings.get(name))]
        kinds += [(made.valid, block.valid[name], None)] if name in block.valid else []
        grid_ = grids.get(str(column.level))
        for to, values, filling in kinds:
            to[name] = values.clone() if grid_ is None else grid_.scattered(values, filling)
    return made if out is None else _copied(made, out)


def _checked(out: Dense, schema: Schema, cells: Mapping[str, tuple[int, ...]], device: str) -> Dense:
    """`out`, or a ValueError that names the first thing of it that cannot be written to."""
    if not isinstance(out, Dense):
        raise TypeError(f"out must be a Dense, as an earlier call gave it, got {type(out).__name__}")
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


@dataclass(frozen=True, eq=False)
class _Grid:
    """The cells of a level of a rectangle, and for each packed entry the one it belongs to."""

    shape: tuple[int, ...]
    cells: torch.Tensor
    """int64 [entries]; one past the last cell for entries that are cut off."""
    cuts: bool
    """Whether there are such."""

    def scattered(self, values: torch.Tensor, filling: torch.Tensor | None) -> torch.Tensor:
        """Packed values in their cells, the filling in all others."""
        count = math.prod(self.shape)
        shape = (count + self.cuts, *values.shape[1:])
        if filling is None:
            base = torch.zeros(shape, dtype=values.dtype, device=values.device)
        else:
            base = host.send(filling, values.device).expand(shape).clone()
        if values.ndim == 1 and (carrier := _CARRIERS.get(values.element_size())) is not None:
            base.view(carrier).scatter_(0, self.cells, values.view(carrier))  # a quarter of the time of index_put_
        else:
            bits.put(base, (self.cells,), values)
        return base[:count].view(*self.shape, *values.shape[1:])

    def presence(self) -> torch.Tensor:
        """True in the cells that have an entry."""
        count = math.prod(self.shape)
        base = torch.zeros(count + self.cuts, dtype=torch.uint8, device=self.cells.device)
        base.scatter_(
            0, self.cells, torch.ones_like(self.cells, dtype=torch.uint8)
        )  # a number alone takes three times as long
        return base.view(torch.bool)[:count].view(self.shape)


_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _grids(
    block: Block, offsets: Mapping[str, torch.Tensor], longest: Mapping[str, int], layout: Layout, options: Padding,
    shapes: Sequence[tuple[int, ...]], device: torch.device,
) -> dict[str, _Grid]:  # fmt: skip
    """For each level below the rows the cells of its entries; on the host by numpy, whose calls take half the time."""
    m: Any = np if device.type == "cpu" else torch
    cells: list[Any] = []
    made: dict[str, _Grid] = {}
    cuts: list[bool] = []
    for i, (level, parent) in enumerate(zip(layout.levels, layout.parents, strict=True)):
        total = block.counts[level]
        if parent < 0:
            cells.append(numbers(total, device))
            cuts.append(False)
            continue
        ends = offsets[level].numpy() if m is np else offsets[level].to(torch.int64)
        size, starts, lengths = shapes[i][-1], ends[:-1], ends[1:] - ends[:-1]
        keep = min(options.keep[i], size)
        first = cells[parent] * size - starts
        if options.left[i]:
            first = first + (size - m.where(lengths < keep, lengths, keep))
        here = spread(first, lengths, total)
        here += numbers(total, device)
        cuts.append(cuts[parent] or keep < longest[level])
        if cuts[i]:
            lasts = m.where(cells[parent] >= math.prod(shapes[parent]), starts, starts + keep)
            here = m.where(numbers(total, device) < spread(lasts, lengths, total), here, math.prod(shapes[i]))
        cells.append(here)
        made[level] = _Grid(shapes[i], torch.from_numpy(here) if m is np else here, cuts[i])
    return made


def longest_lists(block: Block) -> dict[str, int]:
    """The longest list of each level that has a parent."""
    return {level: int(torch.diff(ends).max()) if ends.numel() > 1 else 0 for level, ends in block.offsets.items()}
