"""Padding: the options of a call that pads, and the sizes that result from them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.table.schema import Schema, is_integer, parent_of
from serrate.tensor import bits

NO_LIMIT = 2**63 - 1
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Padding:
    """How lists become rectangles: options for each level of a schema, including the root, and for each column."""

    levels: tuple[str, ...]
    left: array[int]
    """For each level whether the padding goes before its entries."""
    keep: array[int]
    """For each level how many entries a list keeps; NO_LIMIT means all."""
    multiple_of: array[int]
    fillings: Mapping[str, torch.Tensor | None]
    """For each column the element to fill with; None for zeros."""

    @classmethod
    def of(
        cls, schema: Schema, padding: Any = 0, side: Any = "right", max_lengths: Any = None, multiple_of: Any = 1
    ) -> Padding:
        """Return the options of `Table.to_dense`; raise an error that says which one is wrong."""
        levels = schema.levels
        return cls(
            levels,
            _per_level(side, levels, "side", "right", _left),
            _per_level(max_lengths, levels, "max_lengths", None, _length),
            _per_level(multiple_of, levels, "multiple_of", 1, _multiple),
            _fillings(schema, padding),
        )

    def sizes(self, longest: Sequence[int]) -> list[int]:
        """Return the size of the rectangles at each level: as asked for, or the longest list, rounded up."""
        return [
            -(-(have if keep == NO_LIMIT else keep) // step) * step
            for have, keep, step in zip(longest, self.keep, self.multiple_of, strict=True)
        ]


def _per_level(
    given: Any, levels: Sequence[str], what: str, default: Any, read: Callable[[Any, str], int]
) -> array[int]:
    """Return an option for each level; it is given once for all levels, or by name for some."""
    if not isinstance(given, Mapping):
        return array("q", [read(given, what)] * len(levels))
    below = [level for level in levels if parent_of(level) in levels]
    for level in given:
        if level not in below:
            raise ValueError(f"{what} names {level!r:.60}, but the levels below the rows are {', '.join(below)}")
    return array("q", [read(given.get(level, default), what) for level in levels])


def _left(given: Any, what: str) -> int:
    if given not in ("left", "right"):
        raise ValueError(f'{what} must be "left" or "right", or a dict of these by level, got {given!r:.60}')
    return int(given == "left")


def _length(given: Any, what: str) -> int:
    return NO_LIMIT if given is None else _int(given, what, 0)


def _multiple(given: Any, what: str) -> int:
    return _int(given, what, 1)


def _int(given: Any, what: str, least: int) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or not least <= int(given) < NO_LIMIT:
        raise ValueError(f"{what} must be an int of {least} or more, or a dict of these by level, got {given!r:.60}")
    return int(given)


def _fillings(schema: Schema, padding: Any) -> dict[str, torch.Tensor | None]:
    """Return the element that fills each padded column."""
    if type(padding) is int and padding == 0:
        return {}
    if isinstance(padding, Mapping):
        unknown = [name for name in padding if name not in schema]
        if unknown:
            raise ValueError(f"padding names {unknown[0]!r:.60}, but the columns are {', '.join(schema)}")
    made = {}
    for name, column in schema.items():
        if column.level is not None and parent_of(column.level) in schema.levels:
            made[name] = filling(padding.get(name, 0) if isinstance(padding, Mapping) else padding, column.dtype, name)
    return made


def filling(value: Any, dtype: torch.dtype, name: str) -> torch.Tensor | None:
    """Return the element of the padding as a tensor; None if all its bits are 0, which is not the case for -0.0."""
    if isinstance(value, torch.Tensor) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, complex) and not hasattr(value, "__float__"):
        raise TypeError(f"padding must be a number, or a dict of numbers by column, got {value!r:.60} for {name!r:.60}")
    if dtype == torch.bool and value not in (0, 1):
        raise ValueError(f"padding of column {name!r:.60}: {value!r:.60} does not fit {dtype}")
    if not isinstance(value, complex) and value == 0 and math.copysign(1, value) > 0:
        return None
    if is_integer(dtype) and isinstance(value, int):
        info = torch.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise ValueError(f"padding of column {name!r:.60}: {value!r:.60} does not fit {dtype}")
        return torch.tensor(int(value), dtype=dtype)
    return checked_constant(value, dtype, f"padding of column {name!r:.60}")


def checked_constant(value: Any, dtype: torch.dtype, what: str) -> torch.Tensor:
    """Return one element of a dtype; raise a ValueError that says what does not fit."""
    try:
        return bits.constant(value, dtype, CPU)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
