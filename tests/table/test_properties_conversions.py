"""Random tables through every format and back: the same lists, dtypes and units, by the oracle's lists."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from tests.table import oracle
from tests.table.comparing import column_lists
from tests.table.strategies import KINDS, Kind, Sample, samples

import serrate as sr

Back = Callable[..., sr.Table]


def by_parquet(table: sr.Table, **options: Any) -> sr.Table:
    with tempfile.TemporaryDirectory() as folder:
        table.to_parquet(f"{folder}/t.parquet", flat=True, rows_per_group=2)
        return sr.Table.from_parquet(f"{folder}/t.parquet", **options)


def in_arrow(kind: Kind) -> bool:
    """Whether Arrow has such entries."""
    return not (kind.dtype.is_complex or kind.dtype == torch.bfloat16 or kind.unit == "timedelta64[D]")


def bounded(kind: Kind) -> Kind:
    """Times that every format can hold: the least number of int64 is NaT, the greatest fits no other unit."""
    return replace(kind, stored=torch.int16) if kind.unit is not None else kind


HELD = tuple(bounded(kind) for kind in KINDS if in_arrow(kind))
PLAIN = tuple(kind for kind in HELD if 0 not in kind.features)
"""Without features of size 0, which Awkward, polars and Parquet do not read."""
NUMBERS = tuple(kind for kind in PLAIN if not kind.text)
"""Without strings, which Awkward cannot give back where there are none."""
FORMATS: dict[str, tuple[Back, tuple[Kind, ...]]] = {
    "arrow": (lambda t, **o: sr.Table.from_arrow(t.to_arrow(flat=True), **o), HELD),
    "Parquet": (by_parquet, PLAIN),
    "pandas": (lambda t, **o: sr.Table.from_pandas(t.to_pandas(flat=True), **o), PLAIN),
    "polars": (lambda t, **o: sr.Table.from_polars(t.to_polars(flat=True), **o), PLAIN),
    "awkward": (lambda t, **o: sr.Table.from_awkward(t.to_awkward(flat=True), **o), NUMBERS),
    "Hugging Face": (lambda t, **o: sr.Table.from_datasets(t.to_datasets(flat=True), **o), PLAIN),
}


@pytest.mark.parametrize("how", FORMATS)
def test_there_and_back(how: str) -> None:
    back, kinds = FORMATS[how]

    @given(samples(max_depth=2, kinds=kinds, max_rows=4))
    def check(sample: Sample) -> None:
        assume(how not in ("polars", "awkward") or "" not in sample.kinds)  # which need a name for every column
        table = sample.table()
        levels = {name: str(level) for name, level in oracle.columns(sample.plain).items() if level != oracle.ROWS}
        made = back(table, levels=levels)
        assert set(made.keys()) == set(table.keys())
        for name, kind in sample.kinds.items():
            unit = kind.unit.replace("[s]", "[ms]") if how == "polars" and kind.unit else kind.unit
            column = made.schema[name]
            assert (column.dtype, column.unit, column.text) == (kind.dtype, unit, kind.text), name
            assert column.features == kind.features, name
            assert lists(made, name, kind.unit) == oracle.column(sample.plain, name), name

    check()


def lists(table: sr.Table, name: str, unit: str | None) -> Any:
    """A column as nested lists, times as counts of a unit."""
    held, own = column_lists(table, name), table.schema[name].unit
    step = 1000 if unit is not None and own != unit else 1
    return deep(held, lambda each: each // step if unit is not None and each is not None else each)


def deep(held: Any, change: Callable[[Any], Any]) -> Any:
    return [deep(each, change) for each in held] if isinstance(held, list) else change(held)
