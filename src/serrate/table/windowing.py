"""Windows: one run of entries of a level for each row, as medical and behavioural sequences are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.gathering import gather
from serrate.table.indexing import positions

if TYPE_CHECKING:
    from serrate.table.gathering.gather import Pieces
    from serrate.table.table import Table


def windows(
    table: Table, rows: Any, start: Any, stop: Any, size: int | None, keep: str, seed: int | None, level: str | None
) -> Pieces:
    """Return the entries and rows that `Table.windows` reads."""
    check_keep(keep)
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise ValueError(f"size must be an int of 0 or more, got {size!r:.40}")
    level = windowed_level(table, level)
    numbers = torch.arange(len(table)) if rows is None else positions(_vector(rows, "rows"), len(table), "rows")
    pieces = table.pieces(numbers)
    lengths = gather.row_lengths(table.sources, table.schema, pieces, level)
    first = _bound(start, "start", lengths, 0)
    last = torch.maximum(_bound(stop, "stop", lengths, None), first)
    if size is not None:
        excess = torch.clamp(last - first - size, min=0)
        if keep == "tail":
            first = first + excess
        elif keep == "random":
            first = first + _up_to(excess, seed)
        last = torch.minimum(last, first + size)
    return gather.Pieces(pieces.source, pieces.row, level, first, last)


def check_keep(keep: str) -> None:
    """Raise a ValueError unless `keep` says which entries of a row to keep."""
    if keep not in ("head", "tail", "random"):
        raise ValueError(f'keep must be "head", "tail" or "random", got {keep!r:.40}')


def windowed_level(table: Table, level: str | None) -> str:
    """Return the level right below the rows that windows cut; if none is named, it is the only one."""
    below = table.schema.children(table.row_level)
    if level is None:
        if len(below) != 1:
            have = ", ".join(below) or "none"
            raise ValueError(f"windows cut one level right below the rows, but there are {have}; name one with level=")
        return below[0]
    if level not in below:
        raise ValueError(
            f"windows cut a level right below the rows ({', '.join(below) or 'there is none'}), got {level!r:.60}"
        )
    return level


def _vector(given: Any, what: str) -> torch.Tensor:
    held = np.atleast_1d(given.cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given))
    if held.size == 0 and held.ndim == 1:
        return torch.zeros(0, dtype=torch.int64)
    if held.ndim != 1 or held.dtype.kind not in ("iub" if what == "rows" else "iu"):
        raise TypeError(f"{what} must be integers, one or a vector of them, got {given!r:.60}")
    if held.dtype.kind == "u":
        held = np.minimum(held, np.iinfo(np.int64).max)  # Both numbers are greater than every length.
    return torch.from_numpy(held.astype(bool if held.dtype.kind == "b" else np.int64))


def _bound(given: Any, what: str, lengths: torch.Tensor, default: int | None) -> torch.Tensor:
    """Return one bound of the slice of each row, limited to the length of the row."""
    if given is None:
        return lengths if default is None else torch.full_like(lengths, default)
    bound = _vector(given, what)
    if bound.numel() not in (1, lengths.numel()):
        raise ValueError(f"{what} must be one number or one for each of {lengths.numel()} rows, got {bound.numel()}")
    bound = bound.expand_as(lengths)
    return torch.minimum(torch.clamp(torch.where(bound < 0, bound + lengths, bound), min=0), lengths)


def _up_to(most: torch.Tensor, seed: int | None) -> torch.Tensor:
    """Draw for each number an integer from 0 up to and including it, all with the same probability."""
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.integers(0, most.numpy(), endpoint=True))
