"""What tests of the compiled rows share: lengths of rows, offsets, and exact comparison."""

from __future__ import annotations

from itertools import accumulate

import torch

INTS = [torch.int32, torch.int64]
ROWS = {"some": [2, 0, 3, 1, 0], "long": [40, 3, 17, 0, 33], "one": [4], "empty": [0, 0], "none": []}


def offsets_of(lengths: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=dtype)


def same(made: torch.Tensor | None, expected: torch.Tensor) -> None:
    assert made is not None
    torch.testing.assert_close(made, expected, rtol=0, atol=0)


def drawn(count: int, *features: int) -> torch.Tensor:
    return torch.randn(count, *features, generator=torch.Generator().manual_seed(count))
