"""These functions pad and pack row by row, by the place of each packed row, as FBGEMM's functions must."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

Path = tuple[int, ...]


def offsets_of(*lengths: Sequence[int], dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    return [torch.tensor([0, *accumulate(level)], dtype=dtype) for level in lengths]


def random_levels(depth: int, rows: int, seed: int, longest: int = 4) -> list[list[int]]:
    """Draw the lengths of nested levels, outermost first; empty rows are frequent."""
    generator = torch.Generator().manual_seed(seed)
    made: list[list[int]] = []
    for level in range(depth):
        made.append(torch.randint(0, longest if level < 2 else 3, (rows,), generator=generator).tolist())
        rows = sum(made[-1])
    return made


def paths(offsets: Sequence[torch.Tensor]) -> list[Path]:
    """Return for each packed row its indices at all levels."""
    found: list[Path] = [(b,) for b in range(len(offsets[0]) - 1)]
    for level in offsets:
        ends = level.tolist()
        found = [(*path, i) for path, (a, b) in zip(found, pairwise(ends), strict=True) for i in range(b - a)]
    return found


def inside(path: Path, sizes: Sequence[int]) -> bool:
    return all(i < size for i, size in zip(path[1:], sizes, strict=True))


def padded(values: torch.Tensor, offsets: Sequence[torch.Tensor], sizes: Sequence[int], padding: Any) -> torch.Tensor:
    out = torch.full((len(offsets[0]) - 1, *sizes, *values.shape[1:]), padding, dtype=values.dtype)
    for row, path in enumerate(paths(offsets)):
        if inside(path, sizes):
            out[path] = values[row]
    return out


def unpadded(dense: torch.Tensor, offsets: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    depth = len(offsets)
    out = dense.new_zeros((rows, *dense.shape[depth + 1 :]))
    for row, path in enumerate(paths(offsets)):
        if inside(path, dense.shape[1 : depth + 1]):
            out[row] = dense[path]
    return out


def reached(offsets: Sequence[torch.Tensor], sizes: Sequence[int], rows: int) -> torch.Tensor:
    """Return which packed rows have a place in a padded tensor of these sizes."""
    made = torch.zeros(rows, dtype=torch.bool)
    for row, path in enumerate(paths(offsets)):
        made[row] = inside(path, sizes)
    return made


def same(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that both are equal bit by bit, except for the bits of NaN."""
    assert ours.shape == expected.shape
    assert ours.dtype == expected.dtype
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)
