"""Columns: one column alone, read from lists, arrays or tensors, as offsets of its levels and flat values."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from serrate.table.entries import Wanted, column_values
from serrate.table.from_lists import read_lists
from serrate.table.schema import check_unit
from serrate.tensor.convert.chain import to_levels
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor

_NO_COLUMNS = (str, bytes, bytearray, Mapping, Set)
"""These types can be iterated over, but they have no entries in order."""
NOT_DECLARED = Wanted()


@dataclass(frozen=True, eq=False)
class NestedColumn:
    """One column: the offsets of its levels, outermost first, and the entries of the innermost level."""

    levels: tuple[torch.Tensor, ...]
    values: torch.Tensor
    """The entries: [entries, *features]."""
    valid: torch.Tensor | None = None
    vocabulary: tuple[str, ...] | None = None
    unit: str | None = None

    @property
    def rows(self) -> int:
        """The number of entries of the outermost axis."""
        return self.levels[0].numel() - 1 if self.levels else self.values.shape[0]


def read_column(given: Any, name: str, depth: int | None = None, wanted: Wanted = NOT_DECLARED) -> NestedColumn:
    """Read a column that is given as a tensor, an array, an Arrow array or nested lists.

    `depth` is the declared number of lists around an entry; if None, the nesting decides. Entries of lists may be None
    (missing), strings, dates and times. `wanted` says what the entries themselves do not show, for example if there are
    none. The values are not cast to the wanted dtype here.
    """
    if isinstance(given, Tensor):
        made = _from_tensor(given, name)
    elif isinstance(given, torch.Tensor):
        made = NestedColumn((), column_values(given, name))
    elif isinstance(given, np.ndarray) and given.dtype != object:
        made = _from_numpy(given, name)
    elif _is_arrow(given):
        from serrate.table.convert.from_arrow import read_array

        made = read_array(given, name)
    elif isinstance(given, _NO_COLUMNS) or not hasattr(given, "__iter__"):
        raise TypeError(
            f"column {name!r} must be a tensor, an array or nested lists, got {type(given).__name__} {given!r:.40}"
        )
    else:
        return NestedColumn(*read_lists(given if isinstance(given, list) else list(given), name, depth, wanted))
    return made if depth is None or depth == len(made.levels) else _redivided(made, name, depth)


def _is_arrow(given: Any) -> bool:
    return type(given).__module__.split(".")[0] == "pyarrow"


def _redivided(made: NestedColumn, name: str, depth: int) -> NestedColumn:
    """Return the column with the declared number of levels; uniform axes become lists of equal length."""
    missing = depth - len(made.levels)
    if missing < 0 or missing > made.values.ndim - 1:
        raise ValueError(
            f"column {name!r} is declared to have {depth} levels of lists, but has {len(made.levels)} "
            f"and {made.values.ndim - 1} further axes"
        )
    levels, values = list(made.levels), made.values
    for _ in range(missing):
        levels.append(Partition.uniform(values.shape[0], values.shape[1]).offsets)
        values = values.flatten(0, 1)
    valid = made.valid
    if valid is not None:
        sizes = made.values.shape[1 : 1 + missing]
        valid = valid.reshape(-1, *(1,) * missing).expand(-1, *sizes).reshape(-1).contiguous()
    return NestedColumn(tuple(levels), values, valid, made.vocabulary, made.unit)


# ------------------------------------------------------------------------------------------------------- tensors


def _from_tensor(x: Tensor, name: str) -> NestedColumn:
    if not x.is_ragged:
        return NestedColumn((), column_values(x.values, name))
    column_values(x.values[:0], name)
    _, levels, values = to_levels(x)
    offsets = []
    for level in levels:
        if not isinstance(level, Partition):
            raise ValueError(
                f"column {name!r} of shape {x.shape} has a uniform axis of size {level} between ragged axes; "
                f"all levels of a table are ragged"
            )
        offsets.append(level.host_offsets("making a table"))
    return NestedColumn(tuple(offsets), column_values(values, name))


def _from_numpy(given: np.ndarray[Any, Any], name: str) -> NestedColumn:
    if given.ndim == 0:
        raise ValueError(f"column {name!r} needs an entry per row, got a 0-d array")
    if isinstance(given, np.ma.MaskedArray):
        return _from_masked(given, name)
    kind = given.dtype.kind
    if kind in "US" or given.dtype.kind == "T":
        return NestedColumn(*read_lists(given.astype(str).tolist(), name, given.ndim - 1, NOT_DECLARED))
    if kind in "mM":
        try:
            unit = check_unit(given.dtype.name)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
        return NestedColumn((), torch.from_numpy(_native(given).view(np.int64)), None, None, unit)
    try:
        return NestedColumn((), column_values(torch.from_numpy(_native(given)), name))
    except TypeError as error:
        raise TypeError(f"column {name!r} has dtype {given.dtype}, which no tensor has") from error


def _from_masked(given: Any, name: str) -> NestedColumn:
    """Read a masked array; its masked entries are missing."""
    if given.ndim > 1:
        raise TypeError(
            f"column {name!r} is a masked array of {given.ndim} axes; only whole entries can be missing in a table"
        )
    made = _from_numpy(given.filled(np.zeros((), given.dtype)), name)
    return replace(made, valid=torch.from_numpy(~np.ma.getmaskarray(given)))


def _native(given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a contiguous, writable array in the byte order of the machine, as torch needs it."""
    made = np.ascontiguousarray(given, given.dtype.newbyteorder("="))
    return made if made.flags.writeable else made.copy()
