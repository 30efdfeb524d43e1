"""Nested Python lists to packed values and partitions, level by level. Errors show the path to what is wrong."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.tensor.partition import CPU, Partition

_SEQUENCES = (list, tuple)
_ENTRIES = (int, float, complex, list, tuple, np.generic, np.ndarray, torch.Tensor)


def read_nested(
    nested: Any, ragged_rank: int | None, feature_size: int | str | None, dtype: torch.dtype | None
) -> tuple[torch.Tensor, list[Partition]]:
    """Values and partitions of nested lists whose first `ragged_rank` inner levels (None: all) are ragged."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r:.40}")
    if isinstance(nested, (torch.Tensor, np.ndarray)):
        nested = nested.tolist()
    if not isinstance(nested, _SEQUENCES):
        raise TypeError(f"ragged data must be nested lists, got {type(nested).__name__}")
    if ragged_rank is not None and ragged_rank < 1:
        raise RaggednessError(f"ragged_rank must be at least 1, got {ragged_rank}")
    depth = _depth(nested) if ragged_rank is None else ragged_rank
    if depth < 1:
        rows = isinstance(nested[0], (torch.Tensor, np.ndarray))
        hint = "sr.from_rows takes a list of tensors" if rows else "write [[1, 2], [3]], a list of rows"
        raise RaggednessError(f"ragged data must be lists of lists, but entry [0] is {nested[0]!r:.40}; {hint}")
    partitions = []
    level: Any = nested
    for d in range(depth):
        _require_lists(level, nested, d)
        partitions.append(Partition.from_lengths(np.fromiter(map(len, level), np.int64, len(level))))
        level = list(chain.from_iterable(level))
    if ragged_rank is None:
        _require_numbers(level, nested, depth)
    values = _values(level, nested, depth, dtype)
    return (values, partitions) if feature_size is None else _featured(values, partitions, feature_size)


def _depth(nested: Any) -> int:
    """How many inner list levels there are, going by the first entry of each level."""
    depth, level = 0, nested
    while level and isinstance(level[0], _SEQUENCES):
        depth += 1
        level = list(chain.from_iterable(entry for entry in level if isinstance(entry, _SEQUENCES)))
    return 1 if depth == 0 and not level else depth


def _require_lists(level: Any, nested: Any, depth: int) -> None:
    if set(map(type, level)) <= set(_SEQUENCES):
        return
    for i, entry in enumerate(level):
        if not isinstance(entry, _SEQUENCES):
            path = _path(nested, depth, i)
            raise RaggednessError(
                f"lists must nest to one depth, but entry {path} is {entry!r:.40} where others are lists"
            )


def _require_numbers(level: Any, nested: Any, depth: int) -> None:
    if set(map(type, level)) <= {int, float, bool, complex}:
        return
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
    """The entries of the last ragged level as a tensor; what lists remain in them must be rectangular."""
    if level and all(isinstance(entry, torch.Tensor) for entry in level):
        odd = next((i for i, entry in enumerate(level) if entry.shape != level[0].shape), None)
        if odd is not None:
            raise RaggednessError(
                f"tensors in the lists must have one shape, but entry {_path(nested, depth, 0)} has "
                f"{list(level[0].shape)} and entry {_path(nested, depth, odd)} {list(level[odd].shape)}"
            )
        return torch.stack(level) if dtype is None else torch.stack(level).to(dtype)
    _require_one_kind(level, nested, depth, dtype)
    try:
        return torch.tensor(level, dtype=dtype, device=CPU)
    except (ValueError, TypeError, RuntimeError) as error:
        if "verflow" in str(error) or "out of range" in str(error):
            raise _overflow(level, nested, depth, dtype) from None
        raise RaggednessError(f"the levels past the ragged ones must be rectangular: {error}") from None


def _overflow(level: list[Any], nested: Any, depth: int, dtype: torch.dtype | None) -> OverflowError:
    """An OverflowError that shows which number does not fit."""
    for i, entry in enumerate(level):
        try:
            torch.tensor(entry, dtype=dtype, device=CPU)
        except (ValueError, RuntimeError, OverflowError):
            return OverflowError(f"entry {_path(nested, depth, i)}, {entry!r:.40}, does not fit {dtype or torch.int64}")
    return OverflowError(f"ragged data holds a number that does not fit {dtype or torch.int64}")


def _require_one_kind(level: list[Any], nested: Any, depth: int, dtype: torch.dtype | None) -> None:
    """A TypeError unless all are numbers. Ints and floats mix, as in torch; bools mix only if a dtype is given."""
    inner = level
    while inner and all(isinstance(entry, _SEQUENCES) for entry in inner):
        inner, depth = list(chain.from_iterable(inner)), depth + 1
    kinds = set(map(type, inner))
    for kind in kinds:
        if not issubclass(kind, _ENTRIES):
            i = next(i for i, entry in enumerate(inner) if type(entry) is kind)
            raise TypeError(f"entry {_path(nested, depth, i)} must be a number, got {inner[i]!r:.40}")
    if dtype is None and bool in kinds and len(kinds) > 1:
        i = next(i for i, entry in enumerate(inner) if (type(entry) is bool) != (type(inner[0]) is bool))
        raise TypeError(
            f"bools and numbers are mixed: entry {_path(nested, depth, 0)} is {inner[0]!r:.40}, "
            f"entry {_path(nested, depth, i)} is {inner[i]!r:.40}; give a dtype to convert them"
        )


def _featured(
    values: torch.Tensor, partitions: list[Partition], feature_size: int | str
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
    rows = values.view(values.shape[0] // size, size, *values.shape[1:])
    return rows, [*partitions[:-1], Partition.from_lengths(lengths // size)]
