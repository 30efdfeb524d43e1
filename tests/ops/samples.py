"""What every operation is tested on: structures with all their edges, elements of every dtype, the per-row oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import serrate as sr

DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "float": (torch.float64, torch.float32, torch.float16, torch.bfloat16),
    "complex": (torch.complex128, torch.complex64),
    "int": (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    "bool": (torch.bool,),
}


def elements(count: int, features: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Elements away from 0 and from each other, so that rules with cases are smooth there."""
    generator = torch.Generator().manual_seed(seed + 1)
    if dtype == torch.bool:
        return torch.rand(count, *features, generator=generator) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(1, 6, (count, *features), generator=generator).to(dtype)
    made = 0.15 + 0.7 * torch.rand(count, *features, generator=generator, dtype=torch.float64)
    if dtype.is_complex:
        made = torch.complex(made, made.flip(0) / 2)
    return made.to(dtype)


# name: (lengths per level, feature axes)
STRUCTURES: dict[str, tuple[list[list[int]], tuple[int, ...]]] = {
    "rows": ([[3, 1, 2]], ()),
    "features": ([[3, 1, 2]], (2,)),
    "empty rows": ([[0, 2, 0, 0, 1, 0]], (2,)),
    "all rows empty": ([[0, 0]], (2,)),
    "no rows": ([[]], (2,)),
    "one row": ([[4]], (2,)),
    "equal rows": ([[2, 2, 2]], (2,)),
    "one giant row": ([[1, 300, 0, 2]], ()),
    "zero-size features": ([[2, 1]], (0,)),
    "two levels": ([[2, 0, 1], [3, 0, 2]], (2,)),
}


def sample(name: str, dtype: torch.dtype, seed: int = 0) -> sr.Tensor:
    """The tensor of a structure's name; some names change how it is stored or what is in it."""
    if name == "int32 offsets":
        values = elements(6, (2,), dtype, seed)
        return sr.from_offsets(values, torch.tensor([0, 3, 3, 6], dtype=torch.int32))
    if name == "non-contiguous":
        return sr.from_lengths(elements(2, (6,), dtype, seed).T, [3, 1, 2])
    if name == "permuted":
        return sr.from_lengths(elements(6, (2,), dtype, seed), [3, 1, 2]).permute_dims((0, 2, 1))
    if name == "product":
        p, q = sr.Partition.from_lengths([2, 0, 1]), sr.Partition.from_lengths([1, 2, 3])
        return sr.from_product(elements(5, (), dtype, seed), p, q)
    if name == "NaN and inf":
        values = elements(6, (2,), dtype, seed).clone()
        values[0], values[3] = float("nan"), float("inf")
        return sr.from_lengths(values, [3, 1, 2])
    lengths, features = STRUCTURES[name]
    return sr.from_lengths(elements(sum(lengths[-1]), features, dtype, seed), lengths)


NAMES = [*STRUCTURES, "int32 offsets", "non-contiguous", "permuted", "product", "NaN and inf"]


def leaves(x: sr.Tensor) -> Iterator[torch.Tensor]:
    """The dense tensors that a tensor consists of, row by row, level by level: what the oracle works on."""
    if not x.is_ragged:
        yield x.torch()
        return
    for i in range(len(x)):
        yield from leaves(x[i])


def per_row(function: Callable[..., torch.Tensor], *operands: Any, **options: Any) -> list[torch.Tensor]:
    """The oracle: torch applied to each dense leaf on its own."""
    split = [list(leaves(o)) if isinstance(o, sr.Tensor) else o for o in operands]
    count = next(len(s) for s, o in zip(split, operands, strict=True) if isinstance(o, sr.Tensor))
    return [
        function(*[s[i] if isinstance(o, sr.Tensor) else s for s, o in zip(split, operands, strict=True)], **options)
        for i in range(count)
    ]
