"""A team of several processes, which are threads here: what the lowering of programs over teams is checked with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from serrate.team.runtime import Cut, Cuts, Shape


class Team:
    """What the threads of a team share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=30)
        self.said: list[Any] = [None] * size

    def run(self, work: Callable[[Rank], Any]) -> list[Any]:
        """What each rank gives."""
        with ThreadPoolExecutor(self.size) as pool:
            return [each.result() for each in [pool.submit(work, Rank(self, rank)) for rank in range(self.size)]]


class Rank:
    """The runtime of one thread. The first axis is cut into blocks, of which the first ones are the longer."""

    def __init__(self, team: Team, rank: int) -> None:
        self.team, self.rank = team, rank
        self.known: dict[int, tuple[Shape, Cuts | None, int | None]] = {}
        self.calls: list[str] = []

    def block(self, size: int, rank: int | None = None) -> range:
        """The indices of the first axis that a rank has."""
        rank = self.rank if rank is None else rank
        least, more = divmod(size, self.team.size)
        begin = rank * least + min(rank, more)
        return range(begin, begin + least + (rank < more))

    def exchange_all(self, given: Any) -> list[Any]:
        """What all ranks give."""
        self.team.said[self.rank] = given
        self.team.barrier.wait()
        found = list(self.team.said)
        self.team.barrier.wait()
        return found

    def _add(self, shape: Shape, cuts: Cuts | None = None, of: int | None = None) -> int:
        self.known[len(self.calls)] = shape, cuts, of
        return len(self.calls)

    def init_dtensor(self, team: int, shape: Shape) -> int:
        self.calls.append("init_dtensor")
        return self._add(shape)

    def fini_dtensor(self, team: int, dtensor_id: int) -> None:
        self.calls.append("fini_dtensor")
        del self.known[dtensor_id]

    def init_view(self, team: int, dtensor_id: int, cuts: Cuts) -> int:
        self.calls.append("init_view")
        return self._add(tuple(cut.size for cut in cuts), cuts, dtensor_id)

    def local_shape(self, team: int, dtensor_id: int) -> Shape:
        shape = self.known[dtensor_id][0]
        return (len(self.block(shape[0])), *shape[1:]) if shape else ()

    def local_slice(self, team: int, dtensor_id: int) -> Cuts:
        shape = self.known[dtensor_id][0]
        mine = self.block(shape[0])
        return (Cut(mine.start, len(mine), 1), *(Cut(0, size, 1) for size in shape[1:]))

    def copy(self, team: int, from_id: int, to_id: int, from_ltensor: torch.Tensor, to_ltensor: torch.Tensor) -> None:
        _, cuts, _ = self.known[from_id]
        assert cuts is not None
        whole = torch.cat(self.exchange_all(from_ltensor))
        mine = self.block(self.known[to_id][0][0])
        to_ltensor.copy_(whole[tuple(cut.slice for cut in cuts)][mine.start : mine.stop])

    def finalize_reduce(self, team: int, dtensor_id: int, ltensor: torch.Tensor, kind: str) -> None:
        parts = torch.stack(self.exchange_all(ltensor.clone()))
        ltensor.copy_({"max": torch.amax, "min": torch.amin}.get(kind, getattr(torch, kind))(parts, 0))

    def exchange(self, team: int, ltensor: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sent = self.exchange_all([part.clone() for part in ltensor.split(counts.tolist())])
        come = [each[self.rank] for each in sent]
        return torch.cat(come), torch.tensor([len(each) for each in come])
