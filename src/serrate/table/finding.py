"""Finding: which entries of a column are given ones, and which rows have given entries as their key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.table.arranging import comparable
from serrate.table.block import Block
from serrate.table.nested import Nested, read_column
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.table.table import Table


def isin(block: Block, column: str, values: Any) -> torch.Tensor:
    """Which entries of a column are one of some values."""
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
        asked = comparable(_rounded(wanted.values, described.dtype))
    found = torch.from_numpy(np.isin(comparable(held), asked))
    mask = block.valid.get(column)
    return found if mask is None else found & mask.reshape(mask.shape + (1,) * (found.ndim - mask.ndim))


def _rounded(asked: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Floats as a column of floats has them, without those outside of its range; other numbers as they are."""
    floats = asked.is_floating_point() and (dtype.is_floating_point or dtype.is_complex)
    if not floats and not (asked.is_complex() and dtype.is_complex):
        return asked
    made = asked.to(dtype)
    return made[~(torch.isinf(made) & torch.isfinite(asked))]


def _in_unit(wanted: Nested, unit: str, column: str) -> Any:
    """Times as numbers of a unit; those that are no whole number of it are equal to none of them."""
    if wanted.unit is None or wanted.unit.split("[")[0] != unit.split("[")[0]:
        raise TypeError(f"column {column!r} holds {unit}, got {wanted.unit or 'numbers'}")
    given = wanted.values.numpy().view(wanted.unit)
    made = given.astype(unit)
    held = made.astype(given.dtype) == given  # not the other way round: numpy lets what does not fit a unit overflow
    return made[held].view(np.int64)


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """Where each entry of a column stands, by search."""

    column: str
    ordered: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    words: dict[str, int] | None
    unit: str | None

    @classmethod
    def of(cls, table: Table, column: str) -> KeyIndex:
        """The index of a column of the rows, of integers or strings that all differ."""
        described = table._column(column)
        if described.level != table.row_level or described.features or described.nullable:
            raise TypeError(f"rows are found by a column of theirs without features or gaps, got {described}")
        if described.dtype.is_floating_point or described.dtype.is_complex:
            raise TypeError(f"rows are found by integers, bools, times or strings, got {described}")
        block = table.select([column]).block()
        wide = torch.uint64 if described.dtype == torch.uint64 else torch.int64  # as ids are, so that none is converted
        held = block.values[column].to(wide).numpy()
        rows = np.argsort(held, kind="stable")
        ordered = held[rows]
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(twice):
            a, b = rows[twice[0]], rows[twice[0] + 1]
            raise ValueError(f"column {column!r} has the same entry in rows {a} and {b}, so that it is no key")
        words = {word: place for place, word in enumerate(block.vocabularies[column])} if described.text else None
        return cls(column, ordered, rows, words, described.unit)

    def find(self, ids: Any) -> torch.Tensor:
        """The rows of some entries; KeyError that names one that is not there."""
        ids = list(ids) if isinstance(ids, Iterator) else ids
        asked = self._asked(ids)
        place = np.searchsorted(self.ordered, asked)
        clipped = np.minimum(place, max(len(self.ordered) - 1, 0))
        bad = (self.ordered[clipped] != asked) if len(self.ordered) else np.ones(len(asked), bool)
        if bad.any():
            missing = np.atleast_1d(np.asarray(ids, dtype=object))[np.flatnonzero(bad)[0]]
            raise KeyError(
                f"no row has {missing!r:.60} as its {self.column!r} ({int(bad.sum())} of {len(asked)} missing)"
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
            asked = np.asarray(ids, object)  # numpy makes floats of integers that no dtype of its own holds
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
