"""What tests of loaders share: a table whose rows tell their numbers, ways to cut it into batches, and odd sources."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

import serrate as sr
from serrate.table.block import Block
from serrate.table.gathering.batch import Packed
from serrate.table.schema import Column
from serrate.table.table import Table

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 8},
    "shuffled": {"batch_size": 8, "shuffle": True, "seed": 5},
    "blocks": {"batch_size": 8, "shuffle": "blocks", "pool": 20},
    "tokens": {"max_tokens": 40, "tokens_at": "visits.codes", "shuffle": True, "oversize": "alone"},
    "visits": {"max_tokens": 20, "tokens_at": "visits", "batch_size": 9},
    "buckets": {"batch_size": 8, "bucket_by": "visits", "shuffle": True, "pool": 32},
    "both": {"max_tokens": 50, "bucket_by": "code", "shuffle": True, "pool": 30, "oversize": "alone"},
    "by value": {"batch_size": 5, "bucket_by": "id", "shuffle": True, "pool": 20},
}


def make(rows: int, seed: int = 0, longest: int = 6) -> Table:
    """Rows that have a number, visits with times, codes of visits and medicines; some of each empty."""
    random = torch.Generator().manual_seed(seed)

    def lengths(count: int) -> list[int]:
        return torch.randint(0, longest + 1, (count,), generator=random).tolist()

    visits = lengths(rows)
    codes = [lengths(count) for count in visits]
    return sr.Table(
        {
            "id": list(range(rows)),
            "weight": torch.rand(rows, 2, generator=random),
            "time": sr.from_rows([torch.arange(n) + 100 * i for i, n in enumerate(visits)]) if rows else [[1]][:0],
            "code": [[[7 * i + j] * n for j, n in enumerate(each)] for i, each in enumerate(codes)],
            "drug": [["aspirin", None, "none"][: i % 4] for i in range(rows)],
        },
        schema={
            "id": "rows", "weight": Column("rows", torch.float32, features=(2,)), "time": Column("visits", torch.int64),
            "code": Column("visits.codes", torch.int64), "drug": "drugs",
        },
    )  # fmt: skip


def lists(batch: Packed) -> dict[str, Any]:
    return {name: batch[name].tolist() for name in batch}


def ids(loader: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("serrate-loader")]


def threads_end() -> bool:
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not threads()


class Failing:
    """A source that has its own mind about some rows."""

    def __init__(self, block: Block, bad: int | None = None, wait: Any = None, first: int = 0) -> None:
        self.block, self.bad, self.wait, self.first, self.read = block, bad, wait, first, 0
        self.schema, self.rows, self.counts = block.schema, block.rows, block.counts

    def whole(self) -> Block:
        return self.block

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        self.read += 1
        if self.bad is not None and bool((rows == self.bad).any()):
            raise OSError(f"row {self.bad} cannot be read")
        if self.wait is not None and rows.numel() and int(rows[0]) >= self.first:
            assert self.wait.wait(20)
        return self.block, rows


def over(source: Any) -> Table:
    return Table._of(source.schema, [source])
