"""TensorType: everything that is known about a tensor before its elements are."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from serrate.program.devices import Device
from serrate.program.partitions import Expression
from serrate.program.sizes import Size

if TYPE_CHECKING:
    from serrate.program.abstract import AbstractRun
    from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class RaggedAxis:
    """A ragged axis of a type: its partition, and the axes stored before it whose cells number the components."""

    partition: Expression
    parents: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.partition)


TypeAxis = Size | RaggedAxis


class Origin(Protocol):
    """What a tensor of a class of its own knows, as a part of its type."""

    def restored(self, run: AbstractRun, plain: Tensor) -> Tensor:
        """A plain tensor as one of that class."""


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: equal types mean equal structure, whatever the elements are."""

    dtype: torch.dtype
    device: Device
    axes: tuple[TypeAxis, ...]
    """The packed axes as they are stored; none for a dense tensor."""
    rows: Size | None
    """How many rows the packed axis has room for; None for a dense tensor."""
    features: tuple[Size, ...]
    """The sizes of all other axes as they are stored."""
    order: tuple[int, ...]
    """For each axis that a user sees the stored axis: packed ones first, then the features."""
    team: int | None = None
    """The team of processes that hold it in parts."""
    origin: Origin | None = None
    """What a tensor of a class of its own knows besides: a result of group_by knows the way back of its rows."""
    program: int | None = field(default=None, compare=False, repr=False)
    """The `Inputs` that the names in it come from: other ones give the same names to other sizes and partitions."""

    @property
    def partitions(self) -> tuple[Expression, ...]:
        """The partitions of the ragged axes, outermost first."""
        return tuple(axis.partition for axis in self.axes if isinstance(axis, RaggedAxis))

    @property
    def shape(self) -> tuple[TypeAxis, ...]:
        """The axes as a user sees them; parents are numbered as they are stored."""
        stored = (*self.axes, *self.features)
        return tuple(stored[c] for c in self.order)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        team = "" if self.team is None else f" in team {self.team}"
        return f"{str(self.dtype).removeprefix('torch.')}[{shape}] on {self.device}{team}"


@dataclass(frozen=True)
class Value:
    """A tensor that a program names: results that its elements decide about are told apart by that name."""

    type: TensorType
    name: Hashable
