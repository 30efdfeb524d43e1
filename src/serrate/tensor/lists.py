"""Nested Python lists to packed values and partitions, one pass per level, errors naming the path to the fault."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.tensor.partition import Partition

_SEQUENCES = (list, tuple)
_ENTRIES = (int, float, complex, list, tuple, np.generic, np.ndarray, torch.Tensor)


def read_nested(
    nested: Any, ragged_rank: int | None, feature_size: int | str | None, dtype: torch.dtype | None
) -> tuple[torch.Tensor, list[Partition]]:
    """Values and partitions of nested lists whose first `ragged_rank` inner levels (None: all) are ragged."""
    if isinstance(nested, (torch.Tensor, np.ndarray)):
        nested = nested.tolist()
    if not isinstance(nested, _SEQUENCES):
        raise TypeError(f"ragged data must be nested lists, got {type(nested).__name__}")
    depth = _depth(nested) if ragged_rank is None else ragged_rank
    if depth < 1:
        raise RaggednessError(f"ragged_rank must be at least 1 and the lists at least two deep, got {depth}")
    partitions = []
    level: Any = nested
    for d in range(depth):
        _require_lists(level, nested, d)
        partitions.append(Partition.from_lengths(np.fromiter(map(len, level), np.int64, len(level))))
        level = list(chain.from_iterable(level))
    if ragged_rank is None:
        _require_numbers(level, nested, depth)
    if feature_size is not None:
        return _featured(level, partitions, feature_size, dtype)
    return _values(level, nested, depth, dtype), partitions


def _depth(nested: Any) -> int:
    """How many inner list levels there are, looking at the first entry found at each level."""
    depth, level = 0, nested
    while True:
        inner = [entry for entry in level if isinstance(entry, _SEQUENCES)]
        if not inner:
            return 1 if depth == 0 and not level else depth
        depth += 1
        if len(inner) < len(level):
            return depth
        level = list(chain.from_iterable(inner))


def _require_lists(level: Any, nested: Any, depth: int) -> None:
    for i, entry in enumerate(level):
        if not isinstance(entry, _SEQUENCES):
            path = _path(nested, depth, i)
            if depth == 0:
                raise RaggednessError(f"every row must be a list, but entry {path} is {entry!r:.40}")
            raise RaggednessError(
                f"lists must nest to one depth, but entry {path} is {entry!r:.40} where others are lists"
            )


def _require_numbers(level: Any, nested: Any, depth: int) -> None:
    for i, entry in enumerate(level):
        if isinstance(entry, _SEQUENCES):
            path = _path(nested, depth, i)
            raise RaggednessError(f"lists must nest to one depth, but entry {path} is a list where others are numbers")


def _path(nested: Any, depth: int, index: int) -> str:
    """Where entry `index` of the flattened level `depth` stands: `[2][0]`."""
    path: list[int] = []
    for d in range(depth, 0, -1):
        level: Any = nested
        for _ in range(d - 1):
            level = list(chain.from_iterable(level))
        parent = 0
        while index >= len(level[parent]):
            index -= len(level[parent])
            parent += 1
        path.insert(0, index)
        index = parent
    return "".join(f"[{i}]" for i in (index, *path))


def _values(level: list[Any], nested: Any, depth: int, dtype: torch.dtype | None) -> torch.Tensor:
    if level and isinstance(level[0], torch.Tensor):
        return torch.stack(level) if dtype is None else torch.stack(level).to(dtype)
    strange = tuple(kind for kind in set(map(type, level)) if not issubclass(kind, _ENTRIES))
    if strange:
        i = next(i for i, entry in enumerate(level) if type(entry) in strange)
        raise TypeError(f"entry {_path(nested, depth, i)} must be a number, got {level[i]!r:.40}")
    _require_one_kind(level, nested, depth, dtype)
    try:
        return torch.tensor(level, dtype=dtype)
    except (ValueError, TypeError) as error:
        raise RaggednessError(f"the levels past the ragged ones must be rectangular: {error}") from None


def _require_one_kind(level: list[Any], nested: Any, depth: int, dtype: torch.dtype | None) -> None:
    """Ints and floats mix, as in torch; bools mix with neither unless a dtype is given."""
    if dtype is not None or not level:
        return
    kinds = set(map(type, level))
    if bool in kinds and len(kinds) > 1:
        i = next(i for i, entry in enumerate(level) if type(entry) is not type(level[0]))
        raise TypeError(
            f"bools and numbers are mixed: entry {_path(nested, depth, 0)} is {level[0]!r:.40}, "
            f"entry {_path(nested, depth, i)} is {level[i]!r:.40}; give a dtype to convert them"
        )


def _featured(
    level: list[Any], partitions: list[Partition], feature_size: int | str, dtype: torch.dtype | None
) -> tuple[torch.Tensor, list[Partition]]:
    """The innermost level cut into dense rows of `feature_size` numbers (the jagged-tensor format's row size)."""
    lengths = partitions[-1].lengths
    if feature_size == "gcd":
        size = math.gcd(*lengths.tolist()) or 1
    elif isinstance(feature_size, int) and feature_size > 0:
        size = feature_size
    else:
        raise ValueError(f'feature_size must be a positive int or "gcd", got {feature_size!r}')
    odd = (lengths % size != 0).nonzero()
    if odd.numel():
        row = int(odd[0])
        raise RaggednessError(
            f"innermost row {row} has {int(lengths[row])} numbers, which feature_size {size} does not divide"
        )
    values = torch.tensor(level, dtype=dtype).view(-1, size) if level else torch.zeros(0, size, dtype=dtype)
    return values, [*partitions[:-1], Partition.from_lengths(lengths // size)]
