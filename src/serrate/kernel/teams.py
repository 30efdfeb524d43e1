"""Teams: a loop that is spread over the ranks of a team of processes, of which a kernel does one rank's part.

The index of such a loop is a number that the caller gives, the rank. Inputs are given whole, to every rank. What of an
output is in the memory of a rank is decided by how the output lies in memory:

- by the axis of the loop itself: the axis is left out, and the memory holds the slice of this rank alone;
- by an axis that the loop is only a part of: the memory is that of the whole, of which this rank stores its part. Where
  the kernel makes the memory, the rest of it is 0, so that the sum over all ranks is the whole;
- by neither: every rank computes and stores all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.requirements import Requirement
from serrate.fusion.scalar import Scalar, const, equal
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.jobs import Job, Role
from serrate.kernel.phases import PhasedFusion


@dataclass(frozen=True)
class Team:
    """The loop of a kernel that is spread over the ranks of a team."""

    loop: IterDomain
    rank: Scalar
    """Its index: a size of the kernel, which the caller gives."""
    memory: Mapping[TensorView, tuple[IterDomain, ...]]
    """The axes by which an output lies in the memory of a rank, where that is a slice."""
    parts: frozenset[str]
    """The outputs that are whole in memory, and of which a rank stores a part."""

    def given(self, rank: int, size: int) -> tuple[dict[str, int], tuple[Requirement, ...]]:
        """The sizes of the kernel that follow from a rank and the size of its team, and what that requires."""
        if not 0 <= rank < size:
            raise ValueError(f"the ranks of a team of {size} are 0 to {size - 1}, got {rank}")
        extent, sizes = self.loop.extent, {str(self.rank.value): rank}
        why = f"loop {self.loop} is spread over a team of {size}, but has another number of indices"
        if extent.is_const and extent.value != size:
            raise ScheduleError(f"loop {self.loop} has {extent} indices, one for each rank; the team has {size}")
        if extent.op == "symbol":
            return {**sizes, str(extent.value): size}, ()
        return sizes, () if extent.is_const else (Requirement(equal(extent, const(size)), ScheduleError, why),)


def team_of(phased: PhasedFusion, rank: Scalar) -> Team | None:
    """What a rank has to do with the loops of a fusion; None if none of them is spread over a team."""
    loop = next((each for each in phased.loops if each.parallel_type == ParallelType.DIDx), None)
    if loop is None:
        return None
    memory: dict[TensorView, tuple[IterDomain, ...]] = {}
    parts: list[str] = []
    for tensor in phased.outputs:
        axes = tensor.domain.allocation
        own = tuple(axis for axis in axes if not phased.graph.same(axis, loop))
        if len(own) < len(axes):
            memory[tensor] = own
        elif phased.involves(Job(Role.STORE, tensor), loop):
            parts.append(tensor.name)
    return Team(loop, rank, memory, frozenset(parts))


def check_team(phased: PhasedFusion, loop: IterDomain) -> None:
    """Refuse what a rank cannot do alone."""
    reference = phased.reference.name
    if loop.is_ragged:
        raise ScheduleError(
            f"loop {loop} of {reference} is ragged, so that it has no index for each rank of a team; spread its "
            f"component axis, or all rows together"
        )
    for tensor in phased.reductions:
        if phased.is_reduced_by(tensor, loop):
            raise ScheduleError(
                f"{tensor} is reduced over loop {loop} of {reference}, which is spread over the ranks of a team; what "
                f"several ranks have is put together by a collective, not by a kernel: reduce the other loops, by "
                f"rfactor, and store that",
                tensor=tensor,
            )


def memory_axes(team: Team | None, tensor: TensorView) -> tuple[IterDomain, ...]:
    """The axes by which a tensor lies in the memory that a kernel is given."""
    return tensor.domain.allocation if team is None else team.memory.get(tensor, tensor.domain.allocation)
