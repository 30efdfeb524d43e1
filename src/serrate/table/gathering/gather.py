"""Gather: rows of any sources become one block, a packed batch or a padded batch; each column is copied once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from serrate.table.block import Block, Source
from serrate.table.gathering import compiled, rectangles, uncompiled
from serrate.table.gathering.arguments import Layout
from serrate.table.gathering.batch import Dense, Packed
from serrate.table.gathering.memory import allocated, apart
from serrate.table.gathering.padding import Padding
from serrate.table.gathering.sources import Pieces, Sources, choose, holding, stored_as_read
from serrate.table.schema import Schema, path_to

__all__ = ["Pieces", "Sources", "pack", "pad", "row_lengths", "take", "take_entries", "vocabulary"]


def take(sources: Sequence[Source], schema: Schema, pieces: Pieces) -> Block:
    """Return the rows as one block with the stored dtypes of the schema; the vocabularies of the sources are joined.

    >>> import serrate as sr
    >>> t = sr.Table({"time": [[3, 7], [], [1]]})
    >>> take(t.sources, t.schema, Pieces(None, torch.tensor([2, 0]))).tensor("time").tolist()
    [[1], [3, 7]]
    """
    sources = Sources(sources)
    schema = sources.kept("taken", schema, lambda given: holding(given, sources))
    chosen = choose(sources, schema, pieces)
    measured = compiled.measure(sources, schema, chosen, pieces)
    if measured is None:
        return uncompiled.take(sources, schema, chosen, pieces)
    return compiled.packed_block(measured, apart)[0]


def row_lengths(sources: Sequence[Source], schema: Schema, pieces: Pieces, level: str) -> torch.Tensor:
    """Return the number of entries of a level that each row has, as int64."""
    sources = Sources(sources)
    (root,) = schema.roots
    if level == root:
        return torch.ones(pieces.count, dtype=torch.int64)
    needed = sources.kept(f"path to {level}", schema, lambda given: _path(given, level))
    chosen = choose(sources, needed, pieces)
    measured = compiled.measure(sources, needed, chosen, pieces)
    if measured is None:
        return torch.diff(uncompiled.take(sources, needed, chosen, pieces).composed(level)).to(torch.int64)
    return torch.diff(measured.ends[-1])


def _path(schema: Schema, level: str) -> Schema:
    """Return the schema of the levels from the root down to this one, without columns."""
    if level not in schema.levels:
        raise KeyError(f"there is no level {level!r:.60}; the levels are {', '.join(schema.levels)}")
    (root,) = schema.roots
    return Schema([root, *(above for above in path_to(level) if above in schema.levels and above != root)], {})


def pack(sources: Sequence[Source], schema: Schema, pieces: Pieces, *, pin: bool = False) -> Packed:
    """Return the rows as a batch without padding, in the dtypes that readers get; `pin` puts it in page-locked memory.

    >>> import serrate as sr
    >>> t = sr.Table({"time": [[3, 7], [], [1]]})
    >>> pack(t.sources, t.schema, t.pieces(torch.tensor([2, 0]))).flat("time")
    tensor([1, 3, 7])
    """
    sources = Sources(sources)
    wide = sources.kept("wide", schema, lambda given: holding(stored_as_read(given), sources))
    chosen = choose(sources, wide, pieces)
    measured = compiled.measure(sources, wide, chosen, pieces)
    if measured is None:
        made = Packed(uncompiled.take(sources, wide, chosen, pieces))
        return made.pin_memory() if pin else made
    block, buffer = compiled.packed_block(measured, partial(allocated, pin=pin))
    return Packed(block, buffer, dict(zip(wide.levels, measured.longest, strict=True)))


def pad(sources: Sequence[Source], schema: Schema, pieces: Pieces, options: Padding, out: Dense | None = None) -> Dense:
    """Return the rows as rectangles and masks, as `Table.to_dense` describes them.

    >>> import serrate as sr
    >>> t = sr.Table({"time": [[3, 7], [], [1]]})
    >>> pad(t.sources, t.schema, t.pieces(torch.tensor([2, 0])), Padding.of(t.schema, padding=-1))["time"]
    tensor([[ 1, -1],
            [ 3,  7]])
    """
    sources = Sources(sources)
    wide = sources.kept("wide", schema, lambda given: holding(stored_as_read(given), sources))
    chosen = choose(sources, wide, pieces)
    measured = compiled.measure(sources, wide, chosen, pieces) if compiled.can_pad() else None
    if measured is not None:
        return rectangles.from_measured(measured, options, out)
    grouped = uncompiled.grouped(sources, wide, chosen, pieces)
    return rectangles.from_packed(grouped, sources.kept("layout", wide, Layout.of), options, out)


def pad_packed(
    block: Block, offsets: Mapping[str, torch.Tensor], longest: Mapping[str, int] | None, options: Padding,
    out: Dense | None,
) -> Dense:  # fmt: skip
    """Pad a packed block on the device of its values.

    `offsets` are on that device as well, while `block.offsets` are in the memory of the host.
    """
    schema, rows = block.schema, torch.arange(block.rows)
    if compiled.can_pad() and all(each.is_cpu for each in block.values.values()):
        sources, pieces = Sources([block]), Pieces(None, rows)
        measured = compiled.measure(sources, schema, choose(sources, schema, pieces), pieces)
        if measured is not None:
            return rectangles.from_measured(measured, options, out)
    if longest is None:
        longest = {
            level: int(uncompiled.ListBounds.of(ends).lengths.max(initial=0)) for level, ends in block.offsets.items()
        }
    lists = {level: uncompiled.ListBounds.of(ends) for level, ends in offsets.items()}
    return rectangles.from_packed(uncompiled.GroupedRows(block, lists, None, longest), Layout.of(schema), options, out)


def take_entries(block: Block, level: str, ids: torch.Tensor, offsets: torch.Tensor | None) -> Block:
    """Return the block with these entries of a level, in this order, and all that is below them; the rest stays.

    `offsets` say to which entry of the parent each new entry belongs; they are None for a root.
    """
    below = block.schema.below(level)
    names = [name for name, column in block.schema.items() if column.level in below]
    schema = Schema(below, {name: block.schema[name] for name in names})
    inner = Block(schema, block.counts, block.offsets, block.values, block.valid, block.vocabularies, block.trusted)
    taken = take([inner], schema, Pieces(None, ids))
    ends = {**block.offsets, **taken.offsets}
    if offsets is not None:
        ends[level] = offsets
    return Block(
        block.schema,
        {**block.counts, **taken.counts},
        ends,
        {**block.values, **taken.values},
        {**block.valid, **taken.valid},
        block.vocabularies,
        block.trusted,
    )


def vocabulary(sources: Sequence[Source], column: str) -> tuple[str, ...]:
    """Return the words of a column of strings: those of the first source, then the new ones of the second, …."""
    return Sources(sources).words(column).words
