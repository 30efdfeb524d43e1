"""Batching: which rows each batch of an epoch has, for one rank of many, from any point of the epoch on.

An epoch has an order of the rows. Batches are cut from it in one of three ways:

  plainly     batch i has the places i · B … (i + 1) · B of the order: nothing has to be known about the rows;
  in order    by max_tokens: a batch takes the next rows as long as they fit. Where a batch begins is all that the
              ones after it depend on;
  in pools    by bucket_by: the next V rows are sorted, cut in the sorted order, and their batches shuffled. Where the
              pool begins, and how many of its batches are taken, is all that the rest depends on.

So a `Cursor` says where to go on. Every rank plans the same batches and takes each W-th of them; after each step all
ranks have the same cursor, with which any number of ranks may go on.
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

from serrate.table.loading.sampling import Blocks, Order, key_of, shuffled

Numbers = npt.NDArray[np.int64]
Measure = Callable[[torch.Tensor, int], torch.Tensor]
"""Of rows and the number of an epoch: one number, or a line of numbers, for each row."""
Oversize = Literal["error", "alone", "drop"]
Shuffle = Literal["blocks"] | bool

_BLOCK = 512  # rows of a block: some pages of every column
_CHUNK = 2**14  # places that are looked up at once: the cost of a look-up is that of its calls


@dataclass(frozen=True, order=True)
class Cursor:
    """Where the next batch begins: so many places of an epoch's order are done, and batches of the pool there."""

    epoch: int = 0
    position: int = 0
    taken: int = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a batch, and where the epoch goes on after it."""

    rows: torch.Tensor
    after: Cursor


@dataclass(frozen=True)
class Cells:
    """How many cells a batch takes whose rows have these widths: what max_tokens is the greatest number of.

    Packed, that is the sum of the widths. Padded, it is rows · size · size …, where each size is the greatest width, or
    what it is set to, rounded up to a multiple.
    """

    padded: bool = False
    fixed: tuple[int | None, ...] = (None,)
    """For each width the size that is set, whatever the rows have; None: as wide as the widest."""
    multiples: tuple[int, ...] = (1,)

    def running(self, widths: Numbers) -> npt.NDArray[np.float64]:
        """[n, levels] → [n]: the cells of the first row, of the first two, …; never decreasing."""
        if not self.padded:
            return np.cumsum(widths[:, 0], dtype=np.float64)
        widest = np.maximum.accumulate(widths, axis=0)
        return self.alone(widest) * np.arange(1, len(widths) + 1)

    def alone(self, widths: Numbers) -> npt.NDArray[np.float64]:
        """[n, levels] → [n]: the cells of each row by itself."""
        made = np.ones(len(widths))
        for width, size, multiple in zip(widths.T, self.fixed, self.multiples, strict=True):
            made *= -(-(width if size is None else size) // multiple) * multiple
        return made


@dataclass(frozen=True, eq=False)
class Plan:
    """How an epoch is cut into batches.

    >>> plan = Plan(rows=7, batch_size=3)
    >>> [batch.rows.tolist() for batch in plan.batches(Cursor())]
    [[0, 1, 2], [3, 4, 5], [6]]
    >>> [batch.rows.tolist() for batch in plan.batches(Cursor(position=3), rank=1, world=2)]
    [[6]]
    >>> widths = torch.tensor([4, 1, 2, 5, 3])
    >>> plan = Plan(rows=5, max_tokens=6, widths=lambda rows, epoch: widths[rows])
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
    """What max_tokens counts, [n] or [n, levels]."""
    cells: Cells = Cells()
    bucket: Measure | None = None
    """What pools are sorted by."""

    def order(self, epoch: int) -> Order | Blocks:
        """The order of an epoch."""
        if not self.shuffle:
            return Order(self.rows)
        key = key_of(self.seed, epoch, "rows")
        return Order.shuffled(self.rows, key) if self.shuffle is True else Blocks(self.rows, key, _BLOCK, self.pool)

    def batches(self, cursor: Cursor, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The rest of an epoch for one of `world` ranks; none of its batches is empty."""
        if self.bucket is not None:
            return share(self._in_pools(cursor), rank, world, self.drop_last)
        if self.max_tokens is not None:
            return share(self._in_order(cursor), rank, world, self.drop_last)
        return self._plainly(cursor, rank, world)

    def steps(self, rank: int = 0, world: int = 1) -> int | None:
        """How many batches an epoch has for a rank; None if that depends on the rows."""
        if self.max_tokens is not None:
            return None
        assert self.batch_size is not None
        full, left = divmod(self.rows, self.batch_size * world)
        if self.drop_last:
            return full
        return full + (rank < left)  # what is left is shared out, see `share`

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
        """Rows as they come, as many as fit; a batch has at most as many as a pool."""
        order, position = self.order(cursor.epoch), cursor.position
        while position < self.rows:
            end = min(position + self.pool, self.rows)
            places, rows, widths = self._next(order, cursor.epoch, position, end)
            runs, is_open = self._cut(widths)
            if is_open and (self.drop_last if end == self.rows else len(runs) > 1):
                runs.pop()  # before the end it may take rows of the next pool too
            for start, stop in runs:
                position = int(places[stop - 1]) + 1
                yield self._batch(rows[start:stop], widths[start:stop], replace(cursor, position=position))
            if end == self.rows or not runs:
                position = end

    def _in_pools(self, cursor: Cursor) -> Iterator[Batch]:
        """Rows of a pool in sorted order; a batch that the end of the epoch cuts short comes last."""
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
                key = key_of(self.seed, cursor.epoch, "batches", position)
                runs = [runs[i] for i in shuffled(len(runs), key).tolist()]
            runs += [] if self.drop_last else last
            taken = cursor.taken if position == cursor.position else 0
            for number, (start, stop) in enumerate(runs[taken:], taken + 1):
                done = Cursor(cursor.epoch, end) if number == len(runs) else Cursor(cursor.epoch, position, number)
                yield self._batch(rows[start:stop], widths[start:stop], done)

    def _next(self, order: Order | Blocks, epoch: int, start: int, stop: int) -> tuple[Numbers, Numbers, Numbers]:
        """Places from start to stop, the rows there and their widths [n, levels], without those to be dropped.

        Arrays of numpy, as torch starts all its threads to index some thousand of them.
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
                f"row {rows[0]} alone has {cells:.0f} tokens, more than max_tokens={self.max_tokens}; raise it, "
                'cut rows with window=…, or say what to do with such rows by oversize="alone" or oversize="drop"'
            )
        return Batch(torch.from_numpy(rows), after)

    @property
    def _most(self) -> float:
        return math.inf if self.max_tokens is None else self.max_tokens

    def _cut(self, widths: Numbers) -> tuple[list[tuple[int, int]], bool]:
        """Runs of rows, each as long as it may be, and whether more rows might still go into the last one."""
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
        """How many of the first rows fit together, or 1 if not even one does; `look` is a guess of more than that."""
        most = len(widths) if self.batch_size is None else min(len(widths), self.batch_size)
        while self.max_tokens is not None:
            look = min(look, most)
            fitting = int(np.searchsorted(self.cells.running(widths[:look]), self._most, side="right"))
            if fitting < look or look == most:
                return max(1, fitting)
            look *= 2
        return most


def share(batches: Iterable[Batch], rank: int, world: int, drop_last: bool) -> Iterator[Batch]:
    """Each `world`-th batch. Those left over at the end, fewer than ranks, are cut into pieces, one for each rank.

    A rank goes without only where fewer rows than ranks are left, or with `drop_last`, which leaves them all out.
    """
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == world:
            yield Batch(group[rank].rows, batch.after)
            group = []
    if group and not drop_last:
        piece = pieces([batch.rows for batch in group], world)[rank]
        if piece.numel():
            yield Batch(piece, group[-1].after)


def pieces(batches: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """At most `count` batches cut into `count` pieces, the longest first to be cut; empty ones come last.

    >>> [piece.tolist() for piece in pieces([torch.arange(5), torch.arange(5, 7)], 4)]
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
