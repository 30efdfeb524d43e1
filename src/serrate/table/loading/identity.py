"""Identity: what tells the rows of one table from those of another, in memory or on disk, by a look at few of them."""

from __future__ import annotations

import os
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.gathering import gather
from serrate.table.storage.layout import checksum, memory_of

if TYPE_CHECKING:
    from serrate.table.gathering.batch import Packed
    from serrate.table.table import Table

_RUNS, _RUN, _BYTES = 8, 8, 2**22
"""Rows are looked at in so many runs, each of so many rows or fewer, and about so many bytes of them."""


def fingerprint(table: Table) -> str:
    """16 digits that depend on the columns, the number of entries of each level, and the contents of up to 64 rows.

    How rows are stored, and in which files, does not matter.

    >>> import serrate as sr
    >>> t = sr.Table({"code": [[7, 300], [2]]})
    >>> fingerprint(t) == fingerprint(sr.Table({"code": [[7, 300], [2]]}, narrow=True))
    True
    >>> fingerprint(t) == fingerprint(sr.Table({"code": [[7, 301], [2]]}))
    False
    """
    digest = checksum()
    counts = {level: table.count(level) for level in table.levels}
    for level in sorted(counts):
        digest.update(f"{level}\0{counts[level]}\0".encode())
    for name, column in sorted(table.schema.items()):
        digest.update(
            f"{name}\0{column.level}\0{column.dtype}\0{column.features}\0{column.unit}\0{column.text}\0".encode()
        )
    for start, stop in _runs(table, counts):
        pieces = table.pieces(torch.arange(start, stop))
        _add(digest, gather.pack(table.sources, table.schema, pieces))
    return digest.hexdigest()


def _runs(table: Table, counts: dict[str, int]) -> list[tuple[int, int]]:
    """From which row to which rows are looked at: from end to end, all of them where there are few."""
    rows = len(table)
    if rows <= _RUNS * _RUN:
        return [(0, rows)]
    columns = [column for column in table.schema.values() if column.level is not None]
    size = sum(counts[column.level or ""] * column.dtype.itemsize * prod(column.features) for column in columns)
    run = max(1, min(_RUN, _BYTES * rows // (_RUNS * max(size, 1))))
    starts = [number * (rows - run) // (_RUNS - 1) for number in range(_RUNS)]
    return [(start, start + run) for start in starts]


def _add(digest: Any, batch: Packed) -> None:
    """Take all that a batch has into account."""
    for level in sorted(batch.lengths):
        digest.update(memory_of(batch.lengths[level].to(torch.int64)))
    for name, column in sorted(batch.schema.items()):
        values = batch.flat(name)
        mask = batch.valid.get(name)
        there = torch.ones(values.shape[:1], dtype=torch.bool) if mask is None else mask
        digest.update(memory_of(there.contiguous()))
        if column.text:
            _add_words(digest, values.to(torch.int64).numpy(), there.numpy(), batch.vocabulary(name))
        else:
            digest.update(memory_of(values.contiguous()))


def _add_words(digest: Any, codes: Any, there: Any, words: Any) -> None:
    """Strings, whatever their places in the vocabulary are: by the order in which they come."""
    found, first, inverse = np.unique(codes[there], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    digest.update(memory_of(torch.from_numpy(places[inverse])))
    for code in found[order].tolist():
        word = words[code].encode("utf-8", "surrogatepass")  # a table in memory may have half a character
        digest.update(f"{len(word)}\0".encode() + word)


def name_of(table: Table) -> str:
    """What to call a table: where it lies, and how large it is."""
    places = sorted({path for origin in table.sources.origins for _, path in origin.files})
    folders = sorted({os.path.dirname(path) for path in places})
    where = "in memory"
    if places:
        where = f"of {places[0] if len(places) == 1 else folders[0]}{' and others' if len(folders) > 1 else ''}"
    return f"the table {where}, {len(table)} rows of {', '.join(table.keys()):.80}"
