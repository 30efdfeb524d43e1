"""Comparing a table with one in plain Python: levels, columns, what is missing, every value."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tests.table import oracle
from tests.table.oracle import Plain
from tests.table.strategies import Kind, Sample

import serrate as sr


def column_lists(table: sr.Table, name: str) -> Any:
    """A column as nested lists of Python values: strings decoded, None for what is missing."""
    column = table.schema[name]
    x = table[name]
    depth = x.ndim - len(column.features)
    valid = table.valid(name).tolist() if column.nullable else None
    words = table.vocabulary(name) if column.text else None
    return _decoded(x.tolist(), valid, depth, words)


def _decoded(value: Any, valid: Any, depth: int, words: tuple[str, ...] | None) -> Any:
    if depth:
        return [_decoded(v, None if valid is None else valid[i], depth - 1, words) for i, v in enumerate(value)]
    if valid is False:
        return None
    return value if words is None else words[value]


def check(table: sr.Table, plain: Plain, kinds: Mapping[str, Kind]) -> None:
    """That a table is what the plain one says."""
    at = oracle.columns(plain)
    assert set(table.levels) == set(oracle.levels(plain))
    assert {name: table.schema[name].level for name in table.keys()} == at  # noqa: SIM118
    for name, kind in kinds.items():
        column = table.schema[name]
        assert (column.dtype, column.features, column.unit, column.text) == (
            kind.dtype, kind.features, kind.unit, kind.text,
        )  # fmt: skip
        assert table[name].dtype == kind.dtype
        assert column_lists(table, name) == oracle.column(plain, name), name
        zeros_under_missing(table, name)
    if len(plain.shape.children) == 1:
        assert len(table) == len(plain.rows)
    table.block().check()


def zeros_under_missing(table: sr.Table, name: str) -> None:
    if table.schema[name].nullable:
        values = table[name].values
        valid = table.valid(name).values
        assert not torch.any(values[~valid] != 0)


@contextmanager
def saved(table: sr.Table, **options: Any) -> Iterator[sr.Table]:
    """The table read back from a folder."""
    with tempfile.TemporaryDirectory() as folder:
        table.save(Path(folder) / "t", **options)
        yield sr.open(Path(folder) / "t")


def everywhere(sample: Sample, action: Callable[[sr.Table], sr.Table], expected: Plain, rows_per_shard: int) -> None:
    """That an action gives what is expected in memory, on disk in one shard, and on disk in several."""
    table = sample.table()
    check(action(table), expected, sample.kinds)
    with saved(table, rows_per_shard=rows_per_shard) as read:
        check(action(read), expected, sample.kinds)
