"""Addresses: a schema and a block as gather.cpp is told of them."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from serrate.native.gather import DEEPEST
from serrate.native.loading import plain
from serrate.table.block import Block
from serrate.table.gathering.sources import Sources, check_block, name_of
from serrate.table.schema import Schema, depth_of, parent_of

_KINDS = {
    dtype: kind
    for kind, dtype in enumerate((torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32))
}
_OTHER = len(_KINDS)


class Slot(NamedTuple):
    """A column that has a level."""

    name: str
    level: int
    """The number of its level."""
    features: tuple[int, ...]
    stored: torch.dtype
    nullable: bool


class Held(NamedTuple):
    """A tensor that a batch has for a column."""

    kind: str
    """"values" or "valid"."""
    name: str
    level: int
    """The number of its level; -1 for none."""
    features: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Layout:
    """A schema, levels by number."""

    schema: Schema
    levels: tuple[str, ...]
    parents: tuple[int, ...]
    """For each level the number of its parent, -1 for the root."""
    columns: tuple[Slot, ...]
    tensors: tuple[Held, ...]
    """What a batch has for all columns."""
    loose: tuple[str, ...]
    """Columns without a level."""
    texts: tuple[str, ...]
    """Columns of strings."""
    is_walkable: bool
    """Whether gather.cpp goes so deep."""
    numbers: array[int]
    none: bytes
    """A zero for each level."""
    bound: WeakKeyDictionary[Block, Bound] = field(default_factory=WeakKeyDictionary)
    """What was said of blocks before."""

    @classmethod
    def of(cls, schema: Schema) -> Layout:
        """What a schema says."""
        levels = schema.levels
        place = {level: i for i, level in enumerate(levels)}
        parents = tuple(place.get(parent_of(level) or "", -1) for level in levels)
        columns = tuple(
            Slot(name, place[column.level], column.features, column.stored, column.nullable)
            for name, column in schema.items()
            if column.level is not None
        )
        tensors: list[Held] = []
        for name, column in schema.items():
            level = -1 if column.level is None else place[column.level]
            tensors.append(Held("values", name, level, column.features, column.stored))
            if column.nullable:
                tensors.append(Held("valid", name, level, (), torch.bool))
        numbers = array("q", (len(levels), len(columns), *parents))
        for slot in columns:
            numbers.extend((slot.level, math.prod(slot.features), slot.stored.itemsize))
        texts = tuple(name for name, column in schema.items() if column.text)
        walkable = all(depth_of(level) <= DEEPEST for level in levels)
        return cls(
            schema, levels, parents, columns, tuple(tensors), schema.columns_at(None), texts, walkable, numbers,
            bytes(8 * len(levels)),
        )  # fmt: skip

    def bind(self, sources: Sources, block: Block, number: int) -> Bound:
        """What is said of a block, which is of the source of this number."""
        found = self.bound.get(block)
        if found is None or found.has_moved:
            found = self.bound[block] = Bound.of(sources, self, block, number)
        return found


@dataclass(frozen=True, eq=False)
class Bound:
    """A block, and the tensors whose addresses are told."""

    numbers: array[int]
    narrow: tuple[bool, ...]
    """For each level whether its offsets are int32."""
    tensors: list[torch.Tensor]
    addresses: list[int]

    @property
    def has_moved(self) -> bool:
        """Whether memory lies elsewhere since: pickling for another process moves it where both can see it."""
        return [tensor.data_ptr() for tensor in self.tensors] != self.addresses

    @classmethod
    def of(cls, sources: Sources, layout: Layout, block: Block, number: int) -> Bound:
        """What a block has for the schema, after a look at its sizes."""
        check_block(block, layout.schema, name_of(sources, number))
        tensors: list[torch.Tensor] = []

        def address(given: torch.Tensor | None) -> int:
            if given is None:
                return 0
            tensors.append(plain(given))
            return tensors[-1].data_ptr()

        numbers, narrow = array("q"), []
        for level in layout.levels:
            offsets = block.offsets.get(level)
            narrow.append(offsets is not None and offsets.dtype == torch.int32)
            numbers.extend((address(offsets), not narrow[-1], block.counts[level]))
        for slot in layout.columns:
            codes, words = None, -1
            if slot.name in layout.texts:
                words = len(block.vocabularies.get(slot.name, ()))
                codes = sources.words(slot.name).codes[number] if len(sources) > 1 else None
            kind = _KINDS.get(block.values[slot.name].dtype, _OTHER)
            mask = block.valid.get(slot.name) if slot.nullable else None
            numbers.extend((address(block.values[slot.name]), kind, address(mask), address(codes), words))
        return cls(numbers, tuple(narrow), tensors, [tensor.data_ptr() for tensor in tensors])
