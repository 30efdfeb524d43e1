"""Arguments: a schema and a block as numbers and addresses, the form in which gather.cpp takes them."""

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
from serrate.table.gathering.sources import Sources, check_block, source_name
from serrate.table.schema import Schema, depth_of, parent_of

_KINDS = {
    dtype: kind
    for kind, dtype in enumerate((torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32))
}
_OTHER = len(_KINDS)


class LevelColumn(NamedTuple):
    """A column that has a level."""

    name: str
    level: int
    """The number of its level."""
    features: tuple[int, ...]
    stored: torch.dtype
    nullable: bool


class BatchTensor(NamedTuple):
    """A tensor of a batch: the values or the mask of a column."""

    kind: str
    """Either "values" or "valid"."""
    name: str
    level: int
    """The number of its level; -1 if the column has none."""
    features: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Layout:
    """A schema whose levels are numbered. gather.h describes `numbers`."""

    schema: Schema
    levels: tuple[str, ...]
    parents: tuple[int, ...]
    """For each level the number of its parent; -1 for the root."""
    columns: tuple[LevelColumn, ...]
    tensors: tuple[BatchTensor, ...]
    """The tensors of a batch for all columns."""
    loose: tuple[str, ...]
    """The columns without a level."""
    texts: tuple[str, ...]
    """The columns of strings."""
    is_walkable: bool
    """Whether gather.cpp can handle levels as deep as these."""
    numbers: array[int]
    none: bytes
    """One zero for each level."""
    bound: WeakKeyDictionary[Block, BoundBlock] = field(default_factory=WeakKeyDictionary)
    """The blocks that were described before."""

    @classmethod
    def of(cls, schema: Schema) -> Layout:
        """Return the layout of a schema."""
        levels = schema.levels
        place = {level: i for i, level in enumerate(levels)}
        parents = tuple(place.get(parent_of(level) or "", -1) for level in levels)
        columns = tuple(
            LevelColumn(name, place[column.level], column.features, column.stored, column.nullable)
            for name, column in schema.items()
            if column.level is not None
        )
        tensors: list[BatchTensor] = []
        for name, column in schema.items():
            level = -1 if column.level is None else place[column.level]
            tensors.append(BatchTensor("values", name, level, column.features, column.stored))
            if column.nullable:
                tensors.append(BatchTensor("valid", name, level, (), torch.bool))
        numbers = array("q", (len(levels), len(columns), *parents))
        for slot in columns:
            numbers.extend((slot.level, math.prod(slot.features), slot.stored.itemsize))
        texts = tuple(name for name, column in schema.items() if column.text)
        walkable = all(depth_of(level) <= DEEPEST for level in levels)
        return cls(
            schema, levels, parents, columns, tuple(tensors), schema.columns_at(None), texts, walkable, numbers,
            bytes(8 * len(levels)),
        )  # fmt: skip

    def bind(self, sources: Sources, block: Block, number: int) -> BoundBlock:
        """Describe a block, which belongs to the source of this number."""
        found = self.bound.get(block)
        if found is None or found.has_moved:
            found = self.bound[block] = BoundBlock.of(sources, self, block, number)
        return found


@dataclass(frozen=True, eq=False)
class BoundBlock:
    """A block as numbers, and the tensors whose addresses are among them. gather.h describes `numbers`."""

    numbers: array[int]
    narrow: tuple[bool, ...]
    """For each level whether its offsets are int32."""
    tensors: list[torch.Tensor]
    addresses: list[int]

    @property
    def has_moved(self) -> bool:
        """Whether the memory has moved since; pickling for another process moves it to shared memory."""
        return [tensor.data_ptr() for tensor in self.tensors] != self.addresses

    @classmethod
    def of(cls, sources: Sources, layout: Layout, block: Block, number: int) -> BoundBlock:
        """Check the sizes of a block, and describe what it has for the schema."""
        check_block(block, layout.schema, source_name(sources, number))
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
