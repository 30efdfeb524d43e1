"""Planning: the options of a loader are checked, and become a plan of batches for the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from serrate.table.loading.batching import BatchPlan, Oversize, Shuffle
from serrate.table.loading.measuring import Reader, bucket_level, checked_count, padded_cells, token_level

if TYPE_CHECKING:
    from serrate.table.table import Table


@dataclass(frozen=True)
class BatchOptions:
    """The options that decide which rows a batch has, and which entries of them."""

    batch_size: int | None = None
    shuffle: Shuffle = False
    seed: int = 0
    drop_last: bool = False
    max_tokens: int | None = None
    tokens_at: str | None = None
    bucket_by: str | None = None
    pool: int = 2**14
    oversize: Oversize = "error"
    window: int | None = None
    keep: str = "head"
    level: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size is None and self.max_tokens is None:
            raise ValueError("batches need a size: give batch_size, max_tokens or both")
        for name, least in (("batch_size", 1), ("max_tokens", 1), ("pool", 1), ("window", 0)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_count(name, getattr(self, name), least))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise TypeError(f"seed must be an int, got {self.seed!r:.40}")
        if self.shuffle not in (False, True, "blocks"):
            raise ValueError(f'shuffle must be True, False or "blocks", got {self.shuffle!r:.40}')
        object.__setattr__(self, "shuffle", self.shuffle if self.shuffle == "blocks" else bool(self.shuffle))
        object.__setattr__(self, "drop_last", bool(self.drop_last))
        if self.oversize not in ("error", "alone", "drop"):
            raise ValueError(f'oversize must be "error", "alone" or "drop", got {self.oversize!r:.40}')
        if self.max_tokens is None and (self.tokens_at is not None or self.oversize != "error"):
            raise ValueError("tokens_at and oversize say what max_tokens counts and limits: give max_tokens=… too")

    def plan(self, table: Table, dense: Mapping[str, Any] | None) -> tuple[BatchPlan, Reader, dict[str, Any]]:
        """Return the plan of the batches of a table, the reader of its rows, and all options that both depend on.

        `dense` are the options of `to_dense` if batches are padded.
        """
        reader = Reader.of(table, self.window, self.keep, self.level, self.seed)
        options: dict[str, Any] = {}
        bucketed = None
        if self.bucket_by is not None:
            bucketed = bucket_level(table, self.bucket_by)
            options["bucket"] = reader.values(self.bucket_by) if bucketed is None else reader.lengths(bucketed)
        described = asdict(self)
        if self.max_tokens is not None:
            level = described["tokens_at"] = token_level(table, self.tokens_at, bucketed)
            options["widths"] = reader.lengths(level) if dense is None else reader.widths(level)
            if dense is not None:
                options["cells"] = cells = padded_cells(table, level, dense)
                described |= {"fixed": list(cells.fixed), "multiples": list(cells.multiples)}
        plan = BatchPlan(
            len(table), self.batch_size, self.shuffle, self.seed, self.drop_last, self.max_tokens,
            self.oversize, self.pool, **options,
        )  # fmt: skip
        return plan, reader, described


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks: as given, or those of torch.distributed if it runs, or 0 and 1."""
    if (rank is None) != (world_size is None):
        raise ValueError(f"give both rank and world_size, or neither, got rank={rank}, world_size={world_size}")
    if rank is None or world_size is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    world_size, rank = checked_count("world_size", world_size, 1), checked_count("rank", rank, 0)
    if rank >= world_size:
        raise ValueError(f"rank must be less than world_size={world_size}, got {rank}")
    return rank, world_size
