"""What a program asks of a team of processes: the calls that `dist-to-runtime` makes of operations of the dist dialect.

A team is told the shape of each tensor that it holds in parts, and gives it a number. It cuts the first axis: `Cut`
says which indices of an axis a process has. `SingleProcess` is the team of one process, which has all of them.

>>> import torch
>>> from serrate.team.runtime import Cut, SingleProcess
>>> team = SingleProcess()
>>> whole = team.init_dtensor(0, (6, 2))
>>> team.local_slice(0, whole)
(Cut(begin=0, size=6, step=1), Cut(begin=0, size=2, step=1))
>>> view = team.init_view(0, whole, (Cut(1, 2, 3), Cut(0, 2, 1)))
>>> part, made = torch.arange(12).view(6, 2), torch.empty(2, 2, dtype=torch.int64)
>>> team.copy(0, view, team.init_dtensor(0, (2, 2)), part, made)
>>> made.tolist()
[[2, 3], [8, 9]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch


class Cut(NamedTuple):
    """Indices of an axis: `size` of them, from `begin` on, each `step` behind the one before."""

    begin: int
    size: int
    step: int

    @property
    def slice(self) -> slice:
        """The same as Python writes it."""
        return slice(self.begin, self.begin + self.size * self.step, self.step)


Shape = tuple[int, ...]
Cuts = tuple[Cut, ...]


class TeamRuntime(Protocol):
    """What holds the tensors of teams."""

    def init_dtensor(self, team: int, shape: Shape) -> int:
        """Let the team know a tensor, and return its number."""

    def fini_dtensor(self, team: int, dtensor_id: int) -> None:
        """Let the team forget a tensor or a view."""

    def init_view(self, team: int, dtensor_id: int, cuts: Cuts) -> int:
        """Let the team know some elements of a tensor as a tensor, and return its number."""

    def local_shape(self, team: int, dtensor_id: int) -> Shape:
        """The shape of what this process has of a tensor."""

    def local_slice(self, team: int, dtensor_id: int) -> Cuts:
        """The indices that this process has of a tensor."""

    def copy(self, team: int, from_id: int, to_id: int, from_ltensor: torch.Tensor, to_ltensor: torch.Tensor) -> None:
        """Copy a tensor or a view to a tensor of the same shape; each process gives and gets its part."""

    def finalize_reduce(self, team: int, dtensor_id: int, ltensor: torch.Tensor, kind: str) -> None:
        """Reduce what the processes have, in place; all of them then have the result."""

    def exchange(self, team: int, ltensor: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Send `counts[i]` rows to process i, one process after the other, and return the rows that come, and how many
        from each."""


@dataclass(frozen=True)
class _Known:
    """A tensor that is known, or a view of one."""

    shape: Shape
    cuts: Cuts | None = None


class SingleProcess:
    """The runtime of a team of one process."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Known] = {}
        self._next = 0

    def _add(self, team: int, known: _Known) -> int:
        self._next += 1
        self._known[team, self._next] = known
        return self._next

    def _find(self, team: int, dtensor_id: int) -> _Known:
        if (team, dtensor_id) not in self._known:
            raise LookupError(f"the team {team} knows no tensor of the number {dtensor_id}")
        return self._known[team, dtensor_id]

    def init_dtensor(self, team: int, shape: Shape) -> int:
        """Let the team know a tensor, and return its number."""
        return self._add(team, _Known(shape))

    def fini_dtensor(self, team: int, dtensor_id: int) -> None:
        """Let the team forget a tensor or a view."""
        self._find(team, dtensor_id)
        del self._known[team, dtensor_id]

    def init_view(self, team: int, dtensor_id: int, cuts: Cuts) -> int:
        """Let the team know some elements of a tensor as a tensor, and return its number."""
        shape = self._find(team, dtensor_id).shape
        for size, cut in zip(shape, cuts, strict=True):
            if cut.size and not 0 <= cut.begin + (cut.size - 1) * cut.step < size:
                raise IndexError(f"{cut} reaches beyond an axis of {size} elements")
        return self._add(team, _Known(tuple(cut.size for cut in cuts), cuts))

    def local_shape(self, team: int, dtensor_id: int) -> Shape:
        """The shape of what this process has of a tensor."""
        return self._find(team, dtensor_id).shape

    def local_slice(self, team: int, dtensor_id: int) -> Cuts:
        """The indices that this process has of a tensor."""
        known = self._find(team, dtensor_id)
        return known.cuts or tuple(Cut(0, size, 1) for size in known.shape)

    def copy(self, team: int, from_id: int, to_id: int, from_ltensor: torch.Tensor, to_ltensor: torch.Tensor) -> None:
        """Copy a tensor or a view to a tensor of the same shape."""
        source, target = self._find(team, from_id), self._find(team, to_id)
        if source.shape != target.shape:
            raise ValueError(f"a tensor of the shape {source.shape} is copied to one of {target.shape}")
        to_ltensor.copy_(from_ltensor[tuple(cut.slice for cut in self.local_slice(team, from_id))])

    def finalize_reduce(self, team: int, dtensor_id: int, ltensor: torch.Tensor, kind: str) -> None:
        """Leave what this process has: there is no other."""
        self._find(team, dtensor_id)

    def exchange(self, team: int, ltensor: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give all rows back: there is no other process."""
        if counts.numel() != 1 or int(counts.sum()) != len(ltensor):
            raise ValueError(
                f"{counts.tolist()} rows go to the processes, of which there is one, and {len(ltensor)} are here"
            )
        return ltensor.clone(), counts.clone()
