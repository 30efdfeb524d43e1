"""Bands of attention: blocks of queries, each with the keys in their reach and a mask between the two.

torch's kernels take a mask of all queries × all keys, which for a long row is far more memory than the row. Where a
query sees only keys near its own position, a block of queries is given those alone, and blocks that lie alike
share one mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from serrate.eager.attention import Call, within
from serrate.tensor import host
from serrate.tensor.partition import Partition

_SHARE = 8  # A mask may have one element per this many elements of the queries; per half as many, if those are copied.
_BLOCKS = 16  # With so many blocks, what one block takes in memory is little beside the whole.
# The least number of queries in a block whose mask is narrow and shared by all members, and in another block.
_LEAST = 64, 16


@dataclass(frozen=True)
class Block:
    """Some queries of each member of a class, the keys that they may see, and the mask between the two."""

    queries: slice
    keys: slice
    mask: Callable[[], torch.Tensor] | None = None
    """Makes the mask that is added to scores, [members or 1, 1, queries, keys]: 0 or a bias, -inf for an unseen key."""
    shared: bool = True
    """Whether other blocks have the same mask, so that it is made once and kept."""
    causal: bool = False
    """Whether the kernel applies its own rule, by which a query sees no key behind it."""


@dataclass(eq=False)
class Bands:
    """The blocks of one class of rows, whose members have `wide` queries and `high` keys at most."""

    call: Call
    members: torch.Tensor
    rows: tuple[Partition, Partition]
    """The queries and the keys of all components."""
    wide: int
    high: int
    exact: bool
    """Whether every member has exactly `wide` queries and `high` keys."""
    width: int
    """The number of heads times that of features."""
    dtype: torch.dtype
    device: torch.device

    @cached_property
    def own(self) -> bool:
        """Whether every row has as many keys as queries: then no query stands behind the keys of its row."""
        queries, keys = self.rows
        return queries is keys or (queries.is_host_born and keys.is_host_born and queries.same_as(keys))

    @cached_property
    def _lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """How many queries and keys each member has, on the host."""
        ends = [p.host_offsets().to(torch.int64) for p in self.rows]
        queries, keys = (each[self.members + 1] - each[self.members] for each in ends)
        return queries, keys

    @cached_property
    def shifts(self) -> tuple[int, int]:
        """The least and the greatest number by which positions of keys are ahead of those of queries."""
        if self.call.causal != "lower_right" or self.own:
            return 0, 0
        if self.exact:
            return self.high - self.wide, self.high - self.wide
        ahead = self._lengths[1] - self._lengths[0]
        return int(ahead.min()), int(ahead.max())

    @cached_property
    def reach(self) -> tuple[int | None, int | None]:
        """How many keys before and behind its own position a query sees; None where no row has more than it sees."""
        before, after = self.call.reach
        least, most = self.shifts
        before = None if before is None or before >= self.wide - 1 + most else before
        after = None if after is None or after >= self.high - 1 - least else after
        return before, after

    @cached_property
    def valid(self) -> int:
        """How many keys every member has. All keys count if no query can see beyond its own row."""
        return self.high if self.exact or (self.own and self.reach[1] == 0) else int(self._lengths[1].min())

    def __iter__(self) -> Iterator[Block]:
        before, after = self.reach
        given = self.call.dense_mask
        if before is None and after is None:
            mask = None if self.valid == self.high and given is None else lambda: self._made(0, self.wide, 0, self.high)
            yield Block(slice(0, self.wide), slice(0, self.high), mask, shared=False)
            return
        if before is None and after == 0 and self.shifts == (0, 0) and given is None and self.valid == self.high:
            yield Block(slice(0, self.wide), slice(0, self.high), causal=True)
            return
        start = 0
        while start < self.wide:
            block = self._block(start)
            yield block
            start = block.queries.stop

    def _block(self, start: int) -> Block:
        """The queries from `start` on that go together, and all keys that one of them may see."""
        before, after = self.reach
        least, most = self.shifts
        alike = least == most and self.call.dense_mask is None
        first = 0 if before is None else min(max(start + least - before, 0), self.high)
        if first == self.high:  # These queries stand so far behind all keys that they see none.
            return Block(slice(start, self.wide), slice(first, first))
        if alike:
            # A shared mask serves so many of the queries whose keys all members have.
            covered = self.wide if self.valid == self.high else 0 if after is None else self.valid - least - after
            stop = min(start + self._size, covered)
            alike = stop > start
        if not alike:
            stop = min(start + self._small_size, self.wide)
        last = self.high if after is None else min(max(stop + most + after, first), self.high)
        if alike:
            offset = start + least
            return Block(
                slice(start, stop),
                slice(first, last),
                lambda: self._base[: stop - start, first - offset + self._left : last - offset + self._left],
            )
        return Block(slice(start, stop), slice(first, last), lambda: self._made(start, stop, first, last), shared=False)

    def _fitting(self, room: int, least: int) -> int:
        """How many queries a block has: as many as `room` elements of a mask allow, but `least` at least."""
        before, after = self.reach
        fits = room // self.high
        if before is not None and after is not None:
            apart = before + after + self.shifts[1] - self.shifts[0]
            fits = max(fits, int(((apart / 2) ** 2 + room) ** 0.5 - apart / 2))
        return self.wide if self.wide <= max(fits, 2 * least) else max(min(fits, self.wide // _BLOCKS), least)

    @cached_property
    def _size(self) -> int:
        """How many queries a block has if all members share its mask."""
        room = self.members.numel() * self.wide * self.width // _SHARE
        return self._fitting(room, _LEAST[0] if None not in self.reach else _LEAST[1])

    @cached_property
    def _small_size(self) -> int:
        """How many queries a block has if its mask is its own, or one for each member."""
        each = self.members.numel() if not self._differs else 1
        return self._fitting(each * self.wide * self.width // (_SHARE if self.exact else _SHARE // 2), _LEAST[1])

    @property
    def _differs(self) -> bool:
        """Whether members need masks of their own."""
        return self.shifts[0] < self.shifts[1] or self.valid < self.high

    @cached_property
    def _left(self) -> int:
        """How many keys before the position of its first query a block sees at most."""
        before, _ = self.reach
        return self.wide + self.shifts[0] if before is None else before

    @cached_property
    def _base(self) -> torch.Tensor:
        """The mask that blocks share: from `_left` keys before the first query to the last key that is seen."""
        _, after = self.reach
        right = self.high - self.shifts[0] if after is None else self._size + after
        queries = torch.arange(self._size, device=self.device)[:, None]
        keys = torch.arange(-self._left, right, device=self.device)
        return self._added(within(queries, keys, self.reach))

    def _made(self, start: int, stop: int, first: int, last: int) -> torch.Tensor:
        """The mask of one block, with what the caller gave; one for each member where their lengths differ."""
        queries = torch.arange(start, stop, device=self.device)[:, None]
        keys = torch.arange(first, last, device=self.device)
        if self.shifts[0] < self.shifts[1]:
            queries = queries + self._sent(self._lengths[1] - self._lengths[0])
        else:
            queries = queries + self.shifts[0]
        seen = within(queries, keys, self.reach)
        if last > self.valid:
            inside = keys < self._sent(self._lengths[1])
            seen = inside if seen is None else seen & inside
        given = self.call.dense_mask
        if given is None:
            return self._added(seen)
        block = given[start:stop, first:last]
        if block.dtype == torch.bool:
            return self._added(block if seen is None else block & seen)
        block = block.to(self.dtype)
        return block if seen is None else torch.where(seen, block, -float("inf"))

    def _sent(self, each: torch.Tensor) -> torch.Tensor:
        """A number for each member, shaped to broadcast against masks."""
        return host.send(each, self.device)[:, None, None, None]

    def _added(self, seen: torch.Tensor | None) -> torch.Tensor:
        """A mask that is added to scores: 0 for a key that is seen, and -inf for any other."""
        assert seen is not None
        return torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, -float("inf"))
