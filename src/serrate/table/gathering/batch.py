"""Batches: rows of a table without padding (Packed), or as rectangles with masks (Dense)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from serrate.table.block import Block
from serrate.table.gathering.memory import Region, laid_out, lies_within, regions_of, view
from serrate.table.schema import Schema, parent_of
from serrate.table.words import Vocabularies
from serrate.tensor import bits
from serrate.tensor.offsets import INT32_MAX
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


class Packed(Mapping[str, Tensor]):
    """Rows of a table without padding: a tensor for each column, with one partition for all columns of a level.

    All tensors lie in one piece of memory, so that one copy moves them to a device. The host still knows all lengths.

    >>> import serrate as sr
    >>> t = sr.Table({"time": [[3, 7], [1]], "code": [[[5, 5], []], [[8]]]}, schema={"time": "v", "code": "v.c"})
    >>> p = t.to_packed()
    >>> p["code"].tolist(), p.flat("code")
    ([[[5, 5], []], [[8]]], tensor([5, 5, 8]))
    >>> p.lengths["v.c"], p.cu_seqlens("v.c"), p.max_seqlen("v.c")
    (tensor([2, 0, 1]), tensor([0, 2, 3], dtype=torch.int32), 2)
    """

    __slots__ = ("_block", "_buffer", "_ends", "_longest")

    def __init__(
        self, block: Block, buffer: torch.Tensor | None = None, longest: Mapping[str, int] | None = None
    ) -> None:
        """Make a batch of a block, whose values have the dtypes that readers get; all of them lie in `buffer`."""
        if buffer is None:
            block, buffer = laid_out(block)
        self._block, self._buffer, self._longest = block, buffer, longest
        self._ends: Mapping[str, torch.Tensor] = block.offsets

    @classmethod
    def _over(
        cls, schema: Schema, counts: Mapping[str, int], buffer: torch.Tensor, regions: list[Region],
        vocabularies: Mapping[str, tuple[str, ...]], longest: Mapping[str, int] | None,
        known: Mapping[str, torch.Tensor] | None,
    ) -> Packed:  # fmt: skip
        """Return the batch whose tensors are these regions of a buffer.

        `known` are the offsets in the memory of the host if the buffer is on a device.
        """
        kinds: dict[str, dict[str, torch.Tensor]] = {"offsets": {}, "values": {}, "valid": {}}
        for region in regions:
            kinds[region.kind][region.name] = view(buffer, region)
        offsets = kinds["offsets"] if known is None else known
        made = cls(Block(schema, counts, offsets, kinds["values"], kinds["valid"], vocabularies), buffer, longest)
        made._ends = kinds["offsets"]
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self._in_one_piece()
        buffer = whole._buffer
        if buffer.is_cpu and not buffer.untyped_storage().is_shared():
            # torch moves a tensor to share it and frees its old memory. The columns still use that, so a second tensor
            # keeps it.
            buffer = torch.from_numpy(buffer.numpy())
        return Packed._over, whole._state(buffer, None if buffer.is_cpu else whole._block.offsets)

    def _in_one_piece(self) -> Packed:
        """Return the batch itself if all tensors lie in its buffer, and a copy otherwise.

        torch moves tensors one by one when it shares them with another process.
        """
        return self if lies_within(self._buffer, self._ends, self._block) else Packed(self._block, None, self._longest)

    def _state(self, buffer: torch.Tensor, known: Mapping[str, torch.Tensor] | None) -> tuple[Any, ...]:
        block, regions = self._block, regions_of(self._buffer, self._ends, self._block)
        return block.schema, dict(block.counts), buffer, regions, Vocabularies(block.vocabularies), self._longest, known

    # ------------------------------------------------------------------------------------------------------ look

    @property
    def schema(self) -> Schema:
        """What the columns hold; all are stored in the dtype that readers get."""
        return self._block.schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._block.rows

    @property
    def device(self) -> torch.device:
        """The device of the values."""
        return self._buffer.device

    @property
    def nbytes(self) -> int:
        """The number of bytes of values, masks and offsets."""
        return self._block.nbytes

    @property
    def counts(self) -> Mapping[str, int]:
        """For each level the number of entries of all rows."""
        return self._block.counts

    def __getitem__(self, name: str) -> Tensor:
        _require_column(name, self.schema)
        self._share_partitions()
        return self._block.tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._block.schema)

    def __len__(self) -> int:
        return len(self._block.schema)

    def __repr__(self) -> str:
        levels = ", ".join(f"{level} {count}" for level, count in self.counts.items())
        return f"Packed({', '.join(self)}; {levels}; {self.device})"

    def _share_partitions(self) -> None:
        """Make partitions of the offsets on the host, which also know the offsets on the device."""
        block = self._block
        if len(block._partitions) < len(block.offsets):
            for level, offsets in block.offsets.items():
                made = block._partitions[level] = Partition._of(offsets, block.counts[level])
                if not self._buffer.is_cpu:
                    made.derived(("offsets", self.device), partial(self._ends.__getitem__, level))

    # --------------------------------------------------------------------------------------------------- for kernels

    def flat(self, column: str) -> torch.Tensor:
        """Return the values of a column, one after the other: [entries, *features]."""
        return self._block.values[column]

    @property
    def offsets(self) -> Mapping[str, torch.Tensor]:
        """For each level below the rows its offsets: the first entry of each entry of the parent, and the end."""
        return dict(self._ends)

    @property
    def lengths(self) -> Mapping[str, torch.Tensor]:
        """For each level below the rows the number of entries of each entry of its parent."""
        return {level: torch.diff(ends) for level, ends in self._ends.items()}

    @property
    def valid(self) -> Mapping[str, torch.Tensor]:
        """For each column that may have missing entries the mask of those that are present: bool [entries]."""
        return dict(self._block.valid)

    def vocabulary(self, column: str) -> tuple[str, ...]:
        """Return the words of a column of strings; its values are positions in this tuple."""
        return self._block.vocabularies[column]

    def cu_seqlens(self, level: str) -> torch.Tensor:
        """Return the first entry of each row at a level of any depth, and the end: int32 [rows + 1]."""
        if self._count(level) > INT32_MAX:
            raise OverflowError(f"level {level!r} has {self._count(level)} entries, too many for int32")
        return self._composed(level).to(torch.int32)

    def max_seqlen(self, level: str) -> int:
        """Return the greatest number of entries of a level that a row has."""
        if self._count(level) == 0:
            return 0
        return int(torch.diff(_composed(self._block.offsets, level, self.rows, torch.device("cpu"))).max())

    def segment_ids(self, level: str) -> torch.Tensor:
        """Return for each entry of a level the number of its row: int64."""
        rows = torch.arange(self.rows, device=self.device)
        return torch.repeat_interleave(rows, torch.diff(self._composed(level)), output_size=self._count(level))

    def position_ids(self, level: str) -> torch.Tensor:
        """Return for each entry of a level its position in its row: int64."""
        ends, total = self._composed(level), self._count(level)
        starts = torch.repeat_interleave(ends[:-1].to(torch.int64), torch.diff(ends), output_size=total)
        return torch.arange(total, device=self.device) - starts

    def _composed(self, level: str) -> torch.Tensor:
        return _composed(self._ends, level, self.rows, self.device)

    def _count(self, level: str) -> int:
        if level not in self._block.counts:
            raise KeyError(f"there is no level {level!r:.60}; the levels are {', '.join(self._block.counts)}")
        return self._block.counts[level]

    # ---------------------------------------------------------------------------------------------------- elsewhere

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Packed:
        """Return the batch on a device, moved by one copy; the host still knows all lengths."""
        whole = self._in_one_piece()
        buffer = whole._buffer.to(device, non_blocking=non_blocking)
        if buffer is whole._buffer:
            return whole
        # Without the clones all of the old memory would be kept.
        known = {level: ends.clone() for level, ends in self._block.offsets.items()}
        return Packed._over(*whole._state(buffer, None if buffer.is_cpu else known))

    def pin_memory(self) -> Packed:
        """Return the batch in page-locked memory, so that `.to("cuda", non_blocking=True)` does not wait."""
        whole = self._in_one_piece()
        buffer = whole._buffer.pin_memory()
        return whole if buffer is whole._buffer else Packed._over(*whole._state(buffer, None))

    def to_dense(
        self,
        padding: Any = 0,
        side: str | Mapping[str, str] = "right",
        max_lengths: int | Mapping[str, int] | None = None,
        multiple_of: int | Mapping[str, int] = 1,
        out: Dense | None = None,
    ) -> Dense:
        """Return dense columns and masks, made on the device of the batch without waiting; see `Table.to_dense`."""
        from serrate.table.gathering import gather
        from serrate.table.gathering.padding import Padding

        options = Padding.of(self.schema, padding, side, max_lengths, multiple_of)
        return gather.pad_packed(self._block, self._ends, self._longest, options, out)


def _composed(offsets: Mapping[str, torch.Tensor], level: str, rows: int, device: torch.device) -> torch.Tensor:
    """Return the first entry of each row at a level, and the end."""
    if level not in offsets:
        return torch.arange(rows + 1, device=device)
    above = str(parent_of(level))
    return offsets[level] if above not in offsets else offsets[level][_composed(offsets, above, rows, device)]


def _require_column(name: object, schema: Schema) -> None:
    if name not in schema:
        hint = "; a batch is a mapping of columns: give collate_fn=rows.collate to the DataLoader"
        raise KeyError(
            f"there is no column {name!r:.60}; the columns are {', '.join(map(repr, schema))}"
            f"{hint if isinstance(name, int) else ''}"
        )


class Dense(Mapping[str, torch.Tensor]):
    """Rows of a table as rectangles: a tensor for each column, and for each level a mask of the real entries.

    >>> import serrate as sr
    >>> d = sr.Table({"time": [[3, 7], [1]]}, schema={"time": "visits"}).to_dense()
    >>> d["time"], d.masks["visits"]
    (tensor([[3, 7],
            [1, 0]]), tensor([[ True,  True],
            [ True, False]]))
    """

    __slots__ = ("columns", "masks", "rows", "schema", "valid", "vocabularies")

    def __init__(
        self, schema: Schema, rows: int, columns: dict[str, torch.Tensor], masks: dict[str, torch.Tensor],
        valid: dict[str, torch.Tensor], vocabularies: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.schema, self.rows = schema, rows
        self.columns = columns
        """The tensor of each column, [rows, size, …, *features]; `d[name]` returns it too."""
        self.masks = masks
        """For each level below the rows the mask of the cells that have an entry: bool [rows, size, …]."""
        self.valid = valid
        """For each column that may have missing entries the mask of those that are present: bool [rows, size, …]."""
        self.vocabularies: Mapping[str, tuple[str, ...]] = vocabularies or {}

    @classmethod
    def _over(
        cls, schema: Schema, rows: int, columns: Mapping[str, torch.Tensor], masks: dict[str, torch.Tensor],
        valid: dict[str, torch.Tensor], vocabularies: Mapping[str, tuple[str, ...]],
    ) -> Dense:  # fmt: skip
        named = {name: each.view(schema[name].dtype) for name, each in columns.items()}
        return cls(schema, rows, named, masks, valid, vocabularies)

    def __reduce__(self) -> tuple[Any, ...]:
        carried = {name: bits.as_carrier(each) for name, each in self.columns.items()}
        return Dense._over, (self.schema, self.rows, carried, self.masks, self.valid, Vocabularies(self.vocabularies))

    def __getitem__(self, name: str) -> torch.Tensor:
        _require_column(name, self.schema)
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema)

    def __len__(self) -> int:
        return len(self.schema)

    def __repr__(self) -> str:
        return f"Dense({', '.join(f'{name} {list(self[name].shape)}' for name in self)}; {self.device})"

    @property
    def device(self) -> torch.device:
        """The device of the columns."""
        return next((each.device for each in self.columns.values()), torch.device("cpu"))

    @property
    def nbytes(self) -> int:
        """The number of bytes of columns and masks."""
        return sum(each.nbytes for kind in (self.columns, self.masks, self.valid) for each in kind.values())

    def vocabulary(self, column: str) -> tuple[str, ...]:
        """Return the words of a column of strings; its values are positions in this tuple."""
        return self.vocabularies[column]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Dense:
        """Return the batch on a device."""
        return self._each(lambda given: given.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Dense:
        """Return the batch in page-locked memory, so that `.to("cuda", non_blocking=True)` does not wait."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, change: Any) -> Dense:
        columns, masks, valid = [
            {name: change(each) for name, each in kind.items()} for kind in (self.columns, self.masks, self.valid)
        ]
        return Dense(self.schema, self.rows, columns, masks, valid, self.vocabularies)
