"""Prefetching: the system reads the bytes of many rows of a mapped file together, before they are used one by one."""

from __future__ import annotations

import os
from array import array
from functools import cache
from itertools import chain

import torch

from serrate.native.loading import Routines, load
from serrate.table.schema import Schema, parent_of
from serrate.table.storage.header import Header

_TOO_MANY, _NO_ROW = -1, -2


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    return load("reading.cpp", ["prefetch"])


@cache
def _most() -> int:
    """Return how many bytes to ask for at once. With more, the first would leave the memory before they are used."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class PrefetchPlan:
    """Where the entries of rows are for some columns in a file that is mapped at an address.

    It finds the entries of a row through the offsets of all levels, because those are read anyway; composed offsets
    would only be more pages to read.
    """

    def __init__(self, header: Header, address: int, columns: tuple[str, ...]) -> None:
        schema, counts = header.schema, header.counts
        self._rows = header.rows
        numbers: dict[str, int] = {}
        # Each has: address, bytes of an offset, number of the parent, entries.
        levels: list[tuple[int, int, int, int]] = []
        arrays: list[tuple[int, int, int]] = []  # Each has: address, bytes of an entry, number of its level.
        for level in _needed(schema, columns):
            above = parent_of(level) or ""
            span = header.tensors[f"offsets/{level}"]
            item = (span.stop - span.start) // span.shape[0]
            parent = numbers.get(above, -1)
            numbers[level] = len(levels)
            levels.append((address + span.start, item, parent, counts[level]))
        for name in columns:
            at = schema[name].level
            for kind in ("values", "valid") if at is not None else ():
                found = header.tensors.get(f"{kind}/{name}")
                if found is not None and found.stop > found.start:
                    width = (found.stop - found.start) // counts[at or ""]
                    arrays.append((address + found.start, width, numbers.get(at or "", -1)))
        self._told = array("q", chain(*levels)), array("q", chain(*arrays))
        self._where = self._told[0].buffer_info()[0], len(levels), self._told[1].buffer_info()[0], len(arrays)

    def prefetch(self, rows: torch.Tensor) -> bool:
        """Ask the system to read the bytes of these rows into memory; return False if that is not possible."""
        library = _library()
        if library is None or not self._rows:
            return library is not None
        rows = rows.contiguous()
        done = library["prefetch"](*self._where, self._rows, rows.data_ptr(), rows.numel(), _most())
        if done == _NO_ROW:
            raise IndexError(
                f"the numbers of rows must be from 0 to {self._rows - 1}, got {rows.min()} to {rows.max()}"
            )
        return done != _TOO_MANY


def _needed(schema: Schema, columns: tuple[str, ...]) -> list[str]:
    """Return the levels whose offsets lead to these columns; all levels below a root if there are no columns."""
    if not columns:
        return [level for level in schema.levels if parent_of(level) in schema.levels]
    chosen = schema.select(columns)
    return [level for level in chosen.levels if parent_of(level) in chosen.levels]
