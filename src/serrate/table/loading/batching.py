"""Batching: the rows of each batch of an epoch, for one of several ranks, from any position of the epoch on.

An epoch has an order of the rows. Batches are cut from it in one of three ways:

  plainly     Batch i has the positions from i · B to (i + 1) · B of the order. Nothing about the rows has to be known.
  in order    With max_tokens, a batch takes the next rows as long as they fit. All later batches depend only on where
              a batch begins.
  in pools    With bucket_by, the next V rows are sorted and cut into batches, which are then shuffled. The rest of the
              epoch depends only on where the pool begins, and on how many of its batches are taken.

A `Cursor` therefore says where to continue. Every rank plans the same batches and takes every W-th of them. After each
step all ranks have the same cursor, and any number of ranks can continue from it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from serrate.table.loading.sampling import BlockwiseOrder, Order, random_key, shuffled

Numbers = npt.NDArray[np.int64]
Measure = Callable[[torch.Tensor, int], torch.Tensor]
"""A function of row numbers and the number of an epoch. It returns one number, or several numbers, for each row."""
Oversize = Literal["error", "alone", "drop"]
Shuffle = Literal["blocks"] | bool

_BLOCK = 512  # A block has this many rows, which are some pages of every column.
_CHUNK = 2**14  # This many positions are looked up at once, since the cost of a look-up is mostly that of its calls.


@dataclass(frozen=True, order=True)
class Cursor:
    """Where the next batch begins: the epoch, the positions that are done, and the batches taken of the pool there."""

    epoch: int = 0
    position: int = 0
    taken: int = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a batch, and where the epoch continues after it."""

    rows: torch.Tensor
    after: Cursor


@dataclass(frozen=True)
class CellCount:
    """The number of cells that a batch takes, computed from the widths of its rows; max_tokens limits this number.

    For packed batches it is the sum of the widths. For padded batches it is rows · size · size · …, where each size is
    the greatest width or a fixed number, rounded up to a multiple.
    """

    padded: bool = False
    fixed: tuple[int | None, ...] = (None,)
    """For each width a fixed size that does not depend on the rows; None if the size is the greatest width."""
    multiples: tuple[int, ...] = (1,)

    def running(self, widths: Numbers) -> npt.NDArray[np.float64]:
        """[n, levels] → [n]: the cells of the first row, of the first two rows, and so on. They never decrease."""
        if not self.padded:
            return np.cumsum(widths[:, 0], dtype=np.float64)
        widest = np.maximum.accumulate(widths, axis=0)
        return self.alone(widest) * np.arange(1, len(widths) + 1)

    def alone(self, widths: Numbers) -> npt.NDArray[np.float64]:
        """[n, levels] → [n]: the cells of each row alone."""
        made = np.ones(len(widths))
        for width, size, multiple in zip(widths.T, self.fixed, self.multiples, strict=True):
            made *= -(-(width if size is None else size) // multiple) * multiple
        return made


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """How an epoch is cut into batches.

    >>> plan = BatchPlan(rows=7, batch_size=3)
    >>> [batch.rows.tolist() for batch in plan.batches(Cursor())]
    [[0, 1, 2], [3, 4, 5], [6]]
    >>> [batch.rows.tolist() for batch in plan.batches(Cursor(position=3), rank=1, world=2)]
    [[6]]
    >>> widths = torch.tensor([4, 1, 2, 5, 3])
    >>> plan = BatchPlan(rows=5, max_tokens=6, widths=lambda rows, epoch: widths[rows])
    >>> [batch.rows.tolist() for batch in plan.batches(Cursor())]
    [[0, 1], [2], [3], [4]]
    """

    rows: int
    batch_size: int | None = None
    shuffle: Shuffle = False
    seed: int = 0
    drop_last: bool = False
    max_tokens: int | None = None
    oversize: Oversize = "error"
    pool: int = _CHUNK
    widths: Measure | None = None
    """The numbers that max_tokens counts: [n] or [n, levels]."""
    cells: CellCount = CellCount()
    bucket: Measure | None = None
    """The numbers that sort the rows of a pool."""

    def order(self, epoch: int) -> Order | BlockwiseOrder:
        """Return the order of the rows in an epoch."""
        if not self.shuffle:
            return Order(self.rows)
        key = random_key(self.seed, epoch, "rows")
        return (
            Order.shuffled(self.rows, key)
            if self.shuffle is True
            else BlockwiseOrder(self.rows, key, _BLOCK, self.pool)
        )

    def batches(self, cursor: Cursor, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Return the batches of the rest of an epoch for one of `world` ranks. No batch is empty."""
        if self.bucket is not None:
            return share(self._in_pools(cursor), rank, world, self.drop_last)
        if self.max_tokens is not None:
            return share(self._in_order(cursor), rank, world, self.drop_last)
        return self._plainly(cursor, rank, world)

    def steps(self, rank: int = 0, world: int = 1) -> int | None:
        """Return the number of batches that a rank gets in an epoch; None if it depends on the rows."""
        if self.max_tokens is not None:
            return None
        assert self.batch_size is not None
        full, left = divmod(self.rows, self.batch_size * world)
        if self.drop_last:
            return full
        return full + (rank < left)  # The remaining rows are divided among the ranks, see `share`.

    # ------------------------------------------------------------------------------------------------ plainly

    def _plainly(self, cursor: Cursor, rank: int, world: int) -> Iterator[Batch]:
        order, size = self.order(cursor.epoch), self.batch_size
        assert size is not None
        step = size * world
        position, last = cursor.position, cursor.position + (self.rows - cursor.position) // step * step
        while position < last:
            count = min(max(1, _CHUNK // size), (last - position) // step)
            starts = position + rank * size + step * torch.arange(count)
            for rows in order((starts[:, None] + torch.arange(size)).flatten()).view(count, size):
                position += step
                yield Batch(rows, Cursor(cursor.epoch, position))
        if self.drop_last:
            return
        end = Cursor(cursor.epoch, self.rows)
        rest = [
            Batch(rows, end) for rows in torch.split(order(torch.arange(position, self.rows)), size) if rows.numel()
        ]
        yield from share(rest, rank, world, False)

    # ----------------------------------------------------------------------------------- by what rows measure

    def _in_order(self, cursor: Cursor) -> Iterator[Batch]:
        """Yield batches of as many rows as fit, in their order; a batch has at most as many rows as a pool."""
        order, position = self.order(cursor.epoch), cursor.position
        while position < self.rows:
            end = min(position + self.pool, self.rows)
            places, rows, widths = self._next(order, cursor.epoch, position, end)
            runs, is_open = self._cut(widths)
            if is_open and (self.drop_last if end == self.rows else len(runs) > 1):
                runs.pop()  # Before the end of the epoch this batch can still take rows of the next pool.
            for start, stop in runs:
                position = int(places[stop - 1]) + 1
                yield self._batch(rows[start:stop], widths[start:stop], replace(cursor, position=position))
            if end == self.rows or not runs:
                position = end

    def _in_pools(self, cursor: Cursor) -> Iterator[Batch]:
        """Yield batches of the sorted rows of each pool; a batch that the end of the epoch makes shorter comes last."""
        assert self.bucket is not None
        order, size = self.order(cursor.epoch), self.pool
        if self.batch_size is not None:
            size = max(1, size // self.batch_size) * self.batch_size
        for position in range(cursor.position, self.rows, size):
            end = min(position + size, self.rows)
            _, rows, widths = self._next(order, cursor.epoch, position, end)
            found = self.bucket(torch.from_numpy(rows), cursor.epoch)
            by = np.argsort((found.float() if found.dtype == torch.bfloat16 else found).numpy(), kind="stable")
            rows, widths = rows[by], widths[by]
            runs, is_open = self._cut(widths)
            last = [runs.pop()] if is_open and end == self.rows else []
            if self.shuffle:
                key = random_key(self.seed, cursor.epoch, "batches", position)
                runs = [runs[i] for i in shuffled(len(runs), key).tolist()]
            runs += [] if self.drop_last else last
            taken = cursor.taken if position == cursor.position else 0
            for number, (start, stop) in enumerate(runs[taken:], taken + 1):
                done = Cursor(cursor.epoch, end) if number == len(runs) else Cursor(cursor.epoch, position, number)
                yield self._batch(rows[start:stop], widths[start:stop], done)

    def _next(
        self, order: Order | BlockwiseOrder, epoch: int, start: int, stop: int
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return the positions from start to stop, their rows, and the widths [n, levels], without rows to be dropped.

        The results are numpy arrays, because torch starts all its threads to index a few thousand numbers.
        """
        places = torch.arange(start, stop)
        rows = order(places)
        if self.widths is None:
            return places.numpy(), rows.numpy(), np.zeros((len(rows), 1), dtype=np.int64)
        widths: Numbers = self.widths(rows, epoch).to(torch.int64).numpy().reshape(len(rows), -1)
        if self.oversize != "drop":
            return places.numpy(), rows.numpy(), widths
        fits = self.cells.alone(widths) <= self._most
        return places.numpy()[fits], rows.numpy()[fits], widths[fits]

    def _batch(self, rows: Numbers, widths: Numbers, after: Cursor) -> Batch:
        if self.oversize == "error" and len(rows) == 1 and (cells := self.cells.alone(widths)[0]) > self._most:
            raise ValueError(
                f"row {rows[0]} alone has {cells:.0f} tokens, more than max_tokens={self.max_tokens}; raise the limit, "
                'cut rows with window=…, or say what to do with such rows by oversize="alone" or oversize="drop"'
            )
        return Batch(torch.from_numpy(rows), after)

    @property
    def _most(self) -> float:
        return math.inf if self.max_tokens is None else self.max_tokens

    def _cut(self, widths: Numbers) -> tuple[list[tuple[int, int]], bool]:
        """Return runs of rows, each as long as possible, and whether more rows could go into the last run."""
        runs: list[tuple[int, int]] = []
        start = stop = count = 0
        while start < len(widths):
            count = self._fitting(widths[start:], 2 * count + 16)
            stop = start + count
            runs.append((start, stop))
            start = stop
        if not runs:
            return runs, False
        cells = self.cells.running(widths[runs[-1][0] :])
        return runs, count != self.batch_size and bool(cells[-1] <= self._most)

    def _fitting(self, widths: Numbers, look: int) -> int:
        """Return how many of the first rows fit together, and 1 if the first alone does not fit.

        `look` is the number of rows to try first.
        """
        most = len(widths) if self.batch_size is None else min(len(widths), self.batch_size)
        while self.max_tokens is not None:
            look = min(look, most)
            fitting = int(np.searchsorted(self.cells.running(widths[:look]), self._most, side="right"))
            if fitting < look or look == most:
                return max(1, fitting)
            look *= 2
        return most


def share(batches: Iterable[Batch], rank: int, world: int, drop_last: bool) -> Iterator[Batch]:
    """Yield every `world`-th batch. The batches left at the end, fewer than ranks, are cut into a piece for each rank.

    A rank gets none only if fewer rows than ranks are left. With `drop_last` no rank gets any of them.
    """
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == world:
            yield Batch(group[rank].rows, batch.after)
            group = []
    if group and not drop_last:
        piece = split_batches([batch.rows for batch in group], world)[rank]
        if piece.numel():
            yield Batch(piece, group[-1].after)


def split_batches(batches: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """Cut at most `count` batches into `count` pieces, the longest batch first. Empty pieces come last.

    >>> [piece.tolist() for piece in split_batches([torch.arange(5), torch.arange(5, 7)], 4)]
    [[0, 1], [2, 3], [4], [5, 6]]
    """
    shares = [(float(-rows.numel()), number, 1) for number, rows in enumerate(batches)]
    heapq.heapify(shares)
    for _ in range(count - len(batches)):
        _, number, parts = shares[0]
        heapq.heapreplace(shares, (-batches[number].numel() / (parts + 1), number, parts + 1))
    parted = sorted((number, parts) for _, number, parts in shares)
    made = [piece for number, parts in parted for piece in batches[number].tensor_split(parts)]
    return sorted(made, key=lambda piece: not piece.numel())
