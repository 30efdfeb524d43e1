"""Fingerprints: short strings that differ if tables have different rows, computed from few of the rows."""

from __future__ import annotations

import os
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.gathering import gather
from serrate.table.storage.block_file import checksum, memory_of

if TYPE_CHECKING:
    from serrate.table.gathering.batch import Packed
    from serrate.table.table import Table

_RUNS, _RUN, _BYTES = 8, 8, 2**22
"""A fingerprint reads this many runs of rows, each of at most this many rows, and about this many bytes in all."""


def fingerprint(table: Table) -> str:
    """Return 16 digits that depend on the columns, the counts of the levels, and the contents of up to 64 rows.

    They do not depend on how the rows are stored, or in which files.

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
    """Return the first row and the end of each run that is read. The runs are spread evenly; few rows are all read."""
    rows = len(table)
    if rows <= _RUNS * _RUN:
        return [(0, rows)]
    columns = [column for column in table.schema.values() if column.level is not None]
    size = sum(counts[column.level or ""] * column.dtype.itemsize * prod(column.features) for column in columns)
    run = max(1, min(_RUN, _BYTES * rows // (_RUNS * max(size, 1))))
    starts = [number * (rows - run) // (_RUNS - 1) for number in range(_RUNS)]
    return [(start, start + run) for start in starts]


def _add(digest: Any, batch: Packed) -> None:
    """Add the contents of a batch to the digest."""
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
    """Add strings to the digest by the order of their first occurrence, which does not depend on their codes."""
    found, first, inverse = np.unique(codes[there], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    digest.update(memory_of(torch.from_numpy(places[inverse])))
    for code in found[order].tolist():
        word = words[code].encode("utf-8", "surrogatepass")  # A string in memory may contain half of a surrogate pair.
        digest.update(f"{len(word)}\0".encode() + word)


def table_name(table: Table) -> str:
    """Return a description of a table: its path and its size."""
    places = sorted({path for origin in table.sources.origins for _, path in origin.files})
    folders = sorted({os.path.dirname(path) for path in places})
    where = "in memory"
    if places:
        where = f"of {places[0] if len(places) == 1 else folders[0]}{' and others' if len(folders) > 1 else ''}"
    return f"the table {where}, {len(table)} rows of {', '.join(table.keys()):.80}"
