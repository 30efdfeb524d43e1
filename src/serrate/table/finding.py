"""Finding: which entries of a column have given values, and which rows have given keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.block import Block
from serrate.table.casting import as_numpy
from serrate.table.columns import NestedColumn, read_column
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.table.table import Table


def isin(block: Block, column: str, values: Any) -> torch.Tensor:
    """Return which entries of a column are equal to one of some values."""
    described, held = block.schema[column], block.values[column]
    wanted = read_column([values] if isinstance(values, str) or np.ndim(values) == 0 else values, "values", 0)
    if described.text != (wanted.vocabulary is not None) and wanted.rows:
        kinds = ("numbers", "strings")
        raise TypeError(f"column {column!r} holds {kinds[described.text]}, got {kinds[not described.text]}")
    asked: Any
    if described.text:
        places = {word: place for place, word in enumerate(block.vocabularies[column])}
        asked = np.array([places.get(word, -1) for word in wanted.vocabulary or ()], np.int64)
    elif described.unit is not None:
        asked = _in_unit(wanted, described.unit, column)
    else:
        asked = as_numpy(_rounded(wanted.values, described.dtype))
    found = torch.from_numpy(np.isin(as_numpy(held), asked))
    mask = block.valid.get(column)
    return found if mask is None else found & mask.reshape(mask.shape + (1,) * (found.ndim - mask.ndim))


def _rounded(asked: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round floats to the dtype of a column of floats and drop those out of its range. Other numbers do not change."""
    floats = asked.is_floating_point() and (dtype.is_floating_point or dtype.is_complex)
    if not floats and not (asked.is_complex() and dtype.is_complex):
        return asked
    made = asked.to(dtype)
    return made[~(torch.isinf(made) & torch.isfinite(asked))]


def _in_unit(wanted: NestedColumn, unit: str, column: str) -> Any:
    """Return times as counts of a unit, without those that are not a whole number of it: they equal no entry."""
    if wanted.unit is None or wanted.unit.split("[")[0] != unit.split("[")[0]:
        raise TypeError(f"column {column!r} holds {unit}, got {wanted.unit or 'numbers'}")
    given = wanted.values.numpy().view(wanted.unit)
    made = given.astype(unit)
    held = made.astype(given.dtype) == given  # A direct comparison of both units could overflow in numpy.
    return made[held].view(np.int64)


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The rows of a table by their entry of one column, sorted for binary search."""

    column: str
    ordered: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    words: dict[str, int] | None
    unit: str | None

    @classmethod
    def of(cls, table: Table, column: str) -> KeyIndex:
        """Return the index of a column of the rows.

        Its entries must be integers, bools, times or strings, and no two of them may be equal.
        """
        described = table._column(column)
        if described.level != table.row_level or described.features or described.nullable:
            raise TypeError(
                f"rows can be found only by a column of the rows without features or missing entries, got {described}"
            )
        if described.dtype.is_floating_point or described.dtype.is_complex:
            raise TypeError(f"rows can be found only by integers, bools, times or strings, got {described}")
        block = table.select([column]).block()
        # Ids have the same dtype, so that they need no conversion.
        wide = torch.uint64 if described.dtype == torch.uint64 else torch.int64
        held = block.values[column].to(wide).numpy()
        rows = np.argsort(held, kind="stable")
        ordered = held[rows]
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(twice):
            a, b = rows[twice[0]], rows[twice[0] + 1]
            raise ValueError(f"column {column!r} has the same entry in rows {a} and {b}, so it cannot be a key")
        words = {word: place for place, word in enumerate(block.vocabularies[column])} if described.text else None
        return cls(column, ordered, rows, words, described.unit)

    def find(self, ids: Any) -> torch.Tensor:
        """Return the rows that have these entries; raise a KeyError that names the first entry that no row has."""
        ids = list(ids) if isinstance(ids, Iterator) else ids
        asked = self._asked(ids)
        place = np.searchsorted(self.ordered, asked)
        clipped = np.minimum(place, max(len(self.ordered) - 1, 0))
        bad = (self.ordered[clipped] != asked) if len(self.ordered) else np.ones(len(asked), bool)
        if bad.any():
            missing = np.atleast_1d(np.asarray(ids, dtype=object))[np.flatnonzero(bad)[0]]
            raise KeyError(
                f"no row has {missing!r:.60} as its {self.column!r} ({int(bad.sum())} of {len(asked)} ids are missing)"
            )
        return torch.from_numpy(self.rows[clipped].astype(np.int64))

    def _asked(self, ids: Any) -> np.ndarray[Any, Any]:
        if isinstance(ids, Tensor):
            ids = ids.values
        if self.words is not None:
            return np.array([self.words.get(word, -1) for word in ([ids] if isinstance(ids, str) else ids)], np.int64)
        asked = np.atleast_1d(np.asarray(ids))
        if asked.size == 0:
            return asked.astype(self.ordered.dtype)
        whole = asked.dtype.kind in "iub"
        if asked.dtype.kind in "fO" and isinstance(ids, (list, tuple)) and all(type(each) is int for each in ids):
            asked = np.asarray(ids, object)  # numpy converts integers that fit none of its dtypes to floats.
            whole = True
        times = self.unit is not None and asked.dtype.kind == np.dtype(self.unit).kind
        if not (whole or times) or asked.ndim != 1:
            raise TypeError(f"ids must be a vector of what column {self.column!r} holds, got {ids!r:.60}")
        kind = self.unit if times else self.ordered.dtype
        try:
            held = asked.astype(kind)
            bad = held != asked
        except OverflowError:
            bad = np.array([not self._holds(each) for each in asked])
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            raise KeyError(f"no row has {asked[place]} as its {self.column!r}, which holds {kind}")
        return held.view(self.ordered.dtype)

    def _holds(self, number: int) -> bool:
        limits = np.iinfo(self.ordered.dtype)
        return bool(limits.min <= number <= limits.max)
