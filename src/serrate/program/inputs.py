"""Types of tensors that come from outside, in which equal symbols mean what is known to be equal."""

from __future__ import annotations

import itertools

import torch

from serrate.program.abstract import AbstractRun
from serrate.program.partitions import Expression
from serrate.program.sizes import Size, symbol
from serrate.program.types import RaggedAxis, TensorType, TypeAxis
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged
from serrate.tensor.tensor import Tensor

_programs = itertools.count()


class Inputs:
    """Gives tensors their types, and tells which partitions and sizes they share.

    Partitions are numbered by their first occurrence. The size of the axis that numbers the rows of a ragged tensor is
    a symbol, as is that of the first axis of a dense one; a size of 1 and all other sizes are numbers.

    The types of one program come from one `Inputs`. Another one gives the same names, so that the next batch of the
    program has equal types; but both in one call are an error, since equal names would mean different sizes there.

    >>> import serrate as sr
    >>> from serrate.program.inputs import Inputs
    >>> print(Inputs().type_of(sr.ragged([[1., 2.], []])))
    float32[n0, p0] on cpu
    """

    def __init__(self) -> None:
        self._program = next(_programs)
        self._partitions: dict[tuple[int, bool], tuple[Partition, Expression]] = {}
        self._sizes = 0

    @property
    def program(self) -> int:
        """The number that tells the names of these types from those of others."""
        return self._program

    def type_of(
        self,
        x: Tensor | torch.Tensor,
        *,
        is_static: bool = False,
        loose: frozenset[int] = frozenset(),
        apart: bool = False,
    ) -> TensorType:
        """The type of a tensor. If it `is_static`, the size of its first axis is a number: it is the same in all calls.
        The sizes of `loose` axes, counted among the features of a ragged tensor, are symbols too. The partitions of
        tensors that stand `apart` are other ones than those of the rest, also where they are the same objects.
        """
        if isinstance(x, torch.Tensor):
            x = Tensor(x)
        if not x.is_ragged:
            sizes: list[Size] = list(x.values.shape)
            for place in range(len(sizes)):
                if place in loose or (place == 0 and sizes[0] != 1 and not is_static):
                    sizes[place] = self._fresh()
            return TensorType(x.dtype, x.device, (), None, tuple(sizes), x.order, program=self._program)
        axes: list[TypeAxis] = []
        for number, axis in enumerate(x.structure.axes):
            if isinstance(axis, Ragged):
                cells = _cells(axes, axis.parents)
                axes.append(RaggedAxis(self._expression(axis.partition, cells, apart), axis.parents))
            else:
                axes.append(axis if number or is_static else self._rows_of(x.structure.axes))
        whole = x.structure.whole
        made_room = not x.structure.is_host_born and not x.structure.is_chain
        rows = self._fresh() if made_room else _cells(axes, whole)
        features = tuple(self._fresh() if n in loose else size for n, size in enumerate(x.values.shape[1:]))
        return TensorType(x.dtype, x.device, tuple(axes), rows, features, x.order, program=self._program)

    def partition_of(self, partition: Partition) -> Expression:
        """The expression of a partition that may not have come with a tensor: it has as many components as it has."""
        return self._expression(partition, partition.num_components, apart=True)

    def expression_of(self, partition: Partition) -> Expression:
        """The expression of a partition that was met before."""
        return self._partitions[id(partition), False][1]

    def _fresh(self) -> Size:
        self._sizes += 1
        return symbol("size", f"n{self._sizes - 1}")

    def _rows_of(self, axes: tuple[Axis, ...]) -> Size:
        """The size of the outermost axis: that of a partition on it which was met before, else a new symbol."""
        for axis in axes:
            if isinstance(axis, Ragged) and axis.parents == (0,) and (id(axis.partition), False) in self._partitions:
                return self.expression_of(axis.partition).components
        return self._fresh()

    def _expression(self, partition: Partition, components: Size, apart: bool = False) -> Expression:
        key = id(partition), apart
        if key not in self._partitions:
            made = Expression(
                "input",
                (f"p{len(self._partitions)}",),
                components,
                None,
                partition.is_host_born,
                partition.is_exact,
                partition.dtype,
                partition.home,
                partition.uniform_length,
            )
            self._partitions[key] = partition, made  # a partition that is kept keeps its identity
        return self._partitions[key][1]


def _cells(axes: list[TypeAxis], nest: tuple[int, ...]) -> Size:
    """How many cells a nest of packed axes has room for."""
    made: Size = 1
    for place, number in enumerate(nest):
        axis = axes[number]
        if not isinstance(axis, RaggedAxis):
            made = made * axis
        elif axis.parents == nest[:place]:
            made = axis.partition.values
        else:
            run = AbstractRun()
            with run.entered():
                return run.size(run.structure(axes).cells(nest))
    return made
