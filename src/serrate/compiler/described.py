"""Described: the arguments of a call as constants, beside the torch tensors that they are made of.

Where torch.compile traces a call, its tensors have no elements and their sizes no numbers. What the compiler of Serrate
has to know is a `Description`, which is the same for all batches: kinds, dtypes, features, and which axes are ragged by
which partition. Together with packed values and offsets it gives arguments again, those of a call or small examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serrate.compiler.signature import Unsupported
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor

Spec = tuple[Any, ...]
"""A part of arguments: ("tensor", number), ("constant", value), ("dict", names, parts), ("slice", parts), or the class
of a tuple or a list, and its parts."""
ROWS = 5
"""How many rows the first axis of a dense example has."""
COMPONENTS = LENGTH = 2
"""How many components the outermost axis of a ragged example has, and how long each of them is."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor among the arguments."""

    kind: str
    """"torch", "parameter", "dense" for a dense tensor of Serrate, or "ragged"."""
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    sizes: tuple[int, ...]
    """The sizes of the values; −1 for the first one, where batches differ in it."""
    order: tuple[int, ...]
    axes: tuple[Any, ...]
    """The packed axes: −1 for the first one, sizes, and (number of the partition, parents)."""


@dataclass(frozen=True)
class PartitionSpec:
    """A partition of one or several arguments."""

    dtype: torch.dtype
    searched: bool
    """Whether nobody has checked its offsets."""
    uniform_length: int | None


@dataclass(frozen=True)
class Description:
    """All constants of the arguments of a call."""

    arguments: tuple[Spec, ...]
    named: tuple[tuple[str, Spec], ...]
    tensors: tuple[TensorSpec, ...]
    partitions: tuple[PartitionSpec, ...]

    def arguments_of(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with these tensors in their places."""
        positional = tuple(_part(each, tensors) for each in self.arguments)
        return positional, {name: _part(each, tensors) for name, each in self.named}

    def partitions_of(self, offsets: Sequence[torch.Tensor]) -> list[Partition]:
        """The partitions that have these offsets."""
        made = []
        for each, spec in zip(offsets, self.partitions, strict=True):
            total = int(each[-1])
            made.append(Partition._of(each, total, trusted=not spec.searched, uniform_length=spec.uniform_length))
        return made

    def tensors_of(self, values: Sequence[torch.Tensor], partitions: Sequence[Partition]) -> list[Any]:
        """The tensors with these values, cut by these partitions."""
        structures: dict[tuple[Any, ...], Structure] = {}
        made: list[Any] = []
        for each, spec in zip(values, self.tensors, strict=True):
            if spec.kind == "ragged":
                if spec.axes not in structures:
                    structures[spec.axes] = _structure(spec.axes, partitions)
                made.append(Tensor(each, structures[spec.axes], spec.order))
            else:
                made.append(Tensor(each, order=spec.order) if spec.kind == "dense" else each)
        return made

    def examples(self) -> list[Any]:
        """Small tensors that fit the description, of lengths that mean nothing."""
        partitions: dict[int, Partition] = {}
        values = []
        for spec in self.tensors:
            sizes = list(spec.sizes)
            if spec.kind == "ragged":
                whole = self._example_structure(spec.axes, partitions)
                sizes[0] = whole.cells(whole.whole)
            elif sizes and sizes[0] < 0:
                sizes[0] = ROWS
            each = torch.zeros(sizes, dtype=spec.dtype, device=spec.device)
            each = torch.nn.Parameter(each, requires_grad=False) if spec.kind == "parameter" else each
            values.append(each.requires_grad_() if spec.requires_grad else each)
        return self.tensors_of(values, [partitions[number] for number in range(len(self.partitions))])

    def _example_structure(self, axes: tuple[Any, ...], partitions: dict[int, Partition]) -> Structure:
        """The structure of an example, whose partitions are made where no other example has them."""
        made: list[Axis] = []
        for axis in axes:
            if isinstance(axis, int):
                made.append(COMPONENTS if axis < 0 else axis)
                continue
            number, parents = axis
            cells, spec = Structure(made).cells(parents), self.partitions[number]
            if number not in partitions:
                length = LENGTH if spec.uniform_length is None else spec.uniform_length
                offsets = torch.arange(cells + 1, dtype=spec.dtype, device="cpu") * length
                partitions[number] = Partition._of(
                    offsets, cells * length, trusted=not spec.searched, uniform_length=spec.uniform_length
                )
            elif partitions[number].num_components != cells:
                raise Unsupported("one partition has another number of parents in one argument than in another one")
            made.append(Ragged(partitions[number], parents))
        if _structure(axes, [partitions.get(n, _NONE) for n in range(len(self.partitions))]).axes[0] != made[0]:
            raise Unsupported("the offsets of an argument do not say how long its first axis is")
        return Structure(made)


_NONE = Partition.uniform(0, 0)
"""It stands for a partition that other axes are cut by."""


def _structure(axes: tuple[Any, ...], partitions: Sequence[Partition]) -> Structure:
    """The structure of axes as a description has them. The size of the first one follows from the outermost offsets."""
    number, parents = next(axis for axis in axes if not isinstance(axis, int))
    inner = 1
    for place in parents:
        inner *= axes[place] if place else 1
    first = partitions[number].num_components // inner if inner else -1
    return Structure(
        (first, *(axis if isinstance(axis, int) else Ragged(partitions[axis[0]], axis[1]) for axis in axes[1:]))
    )


def _part(spec: Spec, tensors: Sequence[Any]) -> Any:
    kind, *rest = spec
    if kind == "tensor":
        return tensors[rest[0]]
    if kind == "constant":
        return rest[0]
    parts = [_part(each, tensors) for each in rest[-1]]
    if kind == "dict":
        return dict(zip(rest[0], parts, strict=True))
    if kind == "slice":
        return slice(*parts)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
