"""Rows of a table for `torch.utils.data`: a map-style dataset that reads whole batches, and a batch sampler."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, Sampler

from serrate.table.gathering.batch import Dense, Packed
from serrate.table.gathering.sources import Sources
from serrate.table.loading.epochs import Epochs
from serrate.table.loading.loader import dense_options, read_batch
from serrate.table.loading.planning import BatchOptions, rank_of

if TYPE_CHECKING:
    from serrate.table.table import Table


class TableDataset(Dataset["Table"]):
    """Rows of a table for a `DataLoader`, which reads each batch in one step. `Table.dataset` makes a dataset.

    `columns` are the columns to read. Batches are `to="packed"` or "dense", which takes the options of
    `Table.to_dense`. Give `collate` to the `DataLoader`: it returns batches unchanged, and joins rows that were read
    one by one.

    >>> import serrate as sr
    >>> from torch.utils.data import DataLoader
    >>> rows = sr.Table({"code": [[1], [2, 3], []]}, schema={"code": "codes"}).dataset(to="dense", padding=-1)
    >>> [batch["code"].tolist() for batch in DataLoader(rows, batch_size=2, collate_fn=rows.collate)]
    [[[1, -1], [2, 3]], [[]]]
    >>> len(rows), rows[1]["code"].tolist()
    (3, [2, 3])
    """

    def __init__(self, table: Table, *, columns: Iterable[str] | None = None, to: str = "packed", **dense: Any) -> None:
        table.row_level  # noqa: B018 It raises an error if the table has no rows.
        self.table = table if columns is None else table.select(columns)
        self._sources = Sources(table.sources)
        self._dense, self._padding = dense_options(self.table.schema, to, dense)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> Table:
        """Return one row as a table."""
        if isinstance(row, bool):
            raise TypeError(f"the number of a row must be an integer, got {row}")
        one: Table = self.table[operator.index(row)]
        return one

    def __getitems__(self, rows: Sequence[int] | torch.Tensor) -> Packed | Dense:
        """Return rows as a batch."""
        numbers = torch.as_tensor(rows, dtype=torch.int64).cpu()
        if numbers.ndim != 1:
            raise IndexError(f"the numbers of rows must be a vector, got shape {list(numbers.shape)}")
        return read_batch(self._sources, self.table.schema, self.table.pieces(numbers), self._padding)

    def collate(self, batch: Any) -> Packed | Dense:
        """Return a batch unchanged, or join single rows to a batch."""
        if isinstance(batch, (Packed, Dense)):
            return batch
        from serrate.table.table import Table

        table = Table.stack(list(batch))
        return table.to_packed() if self._dense is None else table.to_dense(**self._dense)

    def batches(
        self, batch_size: int | None = None, *, rank: int | None = None, world_size: int | None = None, **options: Any
    ) -> RowBatches:
        """Return a `batch_sampler` for a `DataLoader`: the row numbers of the batches that `Table.loader` would make.

        Its options are shuffle, seed, drop_last, max_tokens, tokens_at, bucket_by, pool and oversize, as there.

        >>> import serrate as sr
        >>> rows = sr.Table({"code": [[1], [2, 3], [], [4]]}).dataset()
        >>> list(rows.batches(max_tokens=3))
        [[0, 1, 2], [3]]
        """
        for name in ("window", "keep", "level"):
            if name in options:
                raise TypeError(f"{name}: a sampler chooses rows, not their entries; Table.loader reads windows")
        return RowBatches(self.table, BatchOptions(batch_size, **options), self._dense, rank, world_size)


class RowBatches(Epochs, Sampler[list[int]]):
    """The row numbers of each batch of an epoch, as lists; each iteration is the next epoch.

    The state is that of the last batch that was asked for. A `DataLoader` with workers asks for batches ahead of time.
    """

    def __init__(
        self,
        table: Table,
        batching: BatchOptions,
        dense: dict[str, Any] | None,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        plan, _, described = batching.plan(table, dense)
        super().__init__(table, plan, *rank_of(rank, world_size), described)

    def __iter__(self) -> Iterator[list[int]]:
        iteration, batches = self._batches()
        for batch in batches:
            self._passed(iteration, batch.after)
            yield batch.rows.tolist()
        self._passed(iteration, None)
