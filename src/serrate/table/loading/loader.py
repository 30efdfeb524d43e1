"""Loader: a table as batches for training, epoch after epoch, which threads read ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from serrate.table.gathering import gather
from serrate.table.gathering.padding import Padding
from serrate.table.loading.ahead import Ahead
from serrate.table.loading.batching import Batch, Cursor, Oversize, Shuffle
from serrate.table.loading.epochs import Epochs
from serrate.table.loading.measuring import checked_count
from serrate.table.loading.planning import BatchOptions, rank_of
from serrate.table.loading.transfer import SentBatch, Transfer

if TYPE_CHECKING:
    from serrate.table.block import Source
    from serrate.table.gathering.batch import Dense, Packed
    from serrate.table.gathering.gather import Pieces
    from serrate.table.schema import Schema
    from serrate.table.table import Table

DENSE_OPTIONS = ("padding", "side", "max_lengths", "multiple_of")


class Loader(Epochs):
    """Batches of the rows of a table; each iteration is the next epoch. `Table.loader` makes a loader.

    `batch_size` is the number of rows of a batch. `max_tokens` limits the number of entries of the level `tokens_at` in
    a batch; with `to="dense"` padding counts too. `oversize` says what happens to a row that alone has more: it is an
    "error", it becomes a batch "alone", or the loader will "drop" it. `bucket_by` puts similar rows into one batch,
    chosen from `pool` rows at a time: rows with similar lengths if it names a level or a column below the rows, and
    rows with similar values if it names a column of the rows. `window` keeps that many entries of the `level` below the
    rows of each row; `keep` says which ones: the "head", the "tail" or a "random" run. `columns` are the columns to
    read.

    `shuffle` depends only on `seed` and the number of the epoch; the numbers of workers and ranks do not change the
    batches. `"blocks"` shuffles blocks of neighbouring rows, and then the rows of each `pool`; this reads far less from
    a disk. Each of `world_size` ranks gets every `world_size`-th batch; the ranks are those of torch.distributed unless
    they are given. The rest at the end is divided among the ranks. `drop_last` leaves out this rest, and a last batch
    that is not full.

    Batches are `to="packed"` or "dense", which takes the options of `Table.to_dense`, and lie on the `device`.
    `num_workers` threads read up to `prefetch` batches ahead; by default these are twice as many as workers.

    >>> import serrate as sr
    >>> t = sr.Table({"id": [0, 1, 2, 3, 4], "code": [[1], [2, 3], [], [4, 5, 6], [7]]}, schema={"code": "codes"})
    >>> for batch in t.loader(batch_size=2):
    ...     print(batch["id"].tolist(), batch["code"].tolist())
    [0, 1] [[1], [2, 3]]
    [2, 3] [[], [4, 5, 6]]
    [4] [[7]]
    >>> loader = t.loader(max_tokens=4, shuffle=True, seed=1, num_workers=2)
    >>> [batch["code"].values.numel() for batch in loader]
    [3, 4]
    >>> loader.epoch
    1
    """

    def __init__(
        self,
        table: Table,
        batch_size: int | None = None,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        drop_last: bool = False,
        max_tokens: int | None = None,
        tokens_at: str | None = None,
        bucket_by: str | None = None,
        pool: int = 2**14,
        oversize: Oversize = "error",
        window: int | None = None,
        keep: str = "head",
        level: str | None = None,
        columns: Iterable[str] | None = None,
        to: str = "packed",
        device: torch.device | str | int | None = None,
        num_workers: int = 0,
        prefetch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **dense: Any,
    ) -> None:
        batching = BatchOptions(
            batch_size, shuffle, seed, drop_last, max_tokens, tokens_at, bucket_by, pool, oversize, window, keep, level
        )
        self._schema = table.schema if columns is None else table.select(columns).schema
        self._dense, self._padding = dense_options(self._schema, to, dense)
        plan, self._reader, described = batching.plan(table, self._dense)
        super().__init__(table, plan, *rank_of(rank, world_size), described)
        self._device = _device(device)
        self._workers = checked_count("num_workers", num_workers, 0)
        if prefetch is not None and not self._workers:
            raise ValueError("prefetch says how many batches workers read ahead: give num_workers=… too")
        self._ahead = 2 * self._workers if prefetch is None else checked_count("prefetch", prefetch, 1)

    @property
    def table(self) -> Table:
        """The table that the batches come from."""
        return self._reader.table

    def __iter__(self) -> Batches:
        return Batches(self)

    def __repr__(self) -> str:
        told = {name: value for name, value in self._described.items() if value is not None and value is not False}
        return f"Loader({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    def _maker(self, transfer: Transfer | None) -> Callable[[Batch], tuple[Packed | Dense | SentBatch, Cursor]]:
        """Return the function that makes a batch from its rows."""

        def make(batch: Batch) -> tuple[Packed | Dense | SentBatch, Cursor]:
            pieces = reader.pieces(batch.rows, batch.after.epoch)
            if transfer is None:
                return read_batch(reader.sources, schema, pieces, padding), batch.after
            packed = gather.pack(reader.sources, schema, pieces, pin=transfer.pins)
            return transfer.send(packed), batch.after  # It is padded on the device.

        reader, schema, padding = self._reader, self._schema, self._padding
        return make

    def _transfer(self) -> Transfer | None:
        if self._device.type == "cpu":
            return None
        dense = self._dense
        return Transfer(self._device, lambda packed: packed if dense is None else packed.to_dense(**dense))


class Batches(Iterator["Packed | Dense"]):
    """The batches of one epoch. The threads end at its end, with `close`, or when the iterator is dropped."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._transfer = loader, loader._transfer()
        self._iteration, planned = loader._batches()
        make = loader._maker(self._transfer)
        self._made: Any
        if loader._workers:
            self._made = Ahead(planned, make, loader._workers, loader._ahead)
        else:
            self._made = (make(batch) for batch in planned)
        self._open = True

    def __next__(self) -> Packed | Dense:
        if not self._open:
            raise StopIteration
        try:
            made, after = next(self._made)
        except StopIteration:
            self.close()
            self._loader._passed(self._iteration, None)
            raise
        except BaseException:
            self.close()  # The state stays that of the last batch.
            raise
        batch: Packed | Dense = made if self._transfer is None else self._transfer.receive(made)
        self._loader._passed(self._iteration, after)
        return batch

    def close(self) -> None:
        """Stop reading."""
        self._open = False
        self._made.close()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dense_options(schema: Schema, to: str, given: dict[str, Any]) -> tuple[dict[str, Any] | None, Padding | None]:
    """Return the options of `to_dense`, and their meaning for the columns of a schema; None for packed batches."""
    if to not in ("packed", "dense"):
        raise ValueError(f'to must be "packed" or "dense", got {to!r:.40}')
    unknown = [name for name in given if name not in DENSE_OPTIONS]
    if unknown:
        raise TypeError(
            f"there is no option {unknown[0]!r}; see help(serrate.table.Loader), and for dense batches there are "
            f"{', '.join(DENSE_OPTIONS)}"
        )
    if given and to == "packed":
        raise TypeError(f'{", ".join(given)}: packed batches have no padding; give to="dense" too')
    return (None, None) if to == "packed" else (given, Padding.of(schema, **given))


def read_batch(sources: Sequence[Source], schema: Schema, pieces: Pieces, padding: Padding | None) -> Packed | Dense:
    """Read a batch, padded if `padding` is given, and packed otherwise."""
    if padding is None:
        return gather.pack(sources, schema, pieces)
    return gather.pad(sources, schema, pieces, padding)


def _device(given: torch.device | str | int | None) -> torch.device:
    device = torch.device("cpu") if given is None else torch.device(given)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise ValueError(f"device={given!r}: there is no such device, torch finds {count} CUDA devices")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
