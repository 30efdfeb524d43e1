"""Rows for tests of writers: numbers, words, lists, and now and then something missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

import serrate as sr
from serrate.table.schema import Column, Schema

LEVELS = {"time": "visits", "code": "visits.codes"}


TYPES = Schema(
    ("rows", "visits", "visits.codes"),
    {
        "id": Column("rows", torch.int64),
        "word": Column("rows", torch.int64, torch.int32, text=True),
        "time": Column("visits", torch.int64),
        "code": Column("visits.codes", torch.int64),
    },
)


def batch(start: int, count: int) -> dict[str, Any]:
    """Rows with numbers, words, empty lists, and now and then something missing."""
    rows = range(start, start + count)
    return {
        "id": list(rows),
        "word": [None if n % 11 == 3 else f"w{n % (n // 5 + 1)}" for n in rows],
        "time": [[n * 10 + k for k in range(n % 4)] for n in rows],
        "code": [[[n + k + j for j in range((n + k) % 3)] for k in range(n % 4)] for n in rows],
    }


def joined(*batches: dict[str, Any]) -> dict[str, Any]:
    return {name: [row for each in batches for row in each[name]] for name in batches[0]}


def table(columns: dict[str, Any]) -> sr.Table:
    return sr.Table(columns, schema=TYPES)


def files(path: Path) -> set[str]:
    return set(os.listdir(path))
