"""Fusion: tensors, what computes them, and what goes in and comes out."""

from __future__ import annotations

import copy as copying
from collections.abc import Sequence
from typing import Any

import torch

from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import TensorDomain
from serrate.fusion.drawing import drawn
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.randomness import Randomness
from serrate.fusion.rewriting import Rewriting
from serrate.fusion.scalar import Scalar
from serrate.fusion.scattering import Scattering
from serrate.fusion.shapes import dtype_name
from serrate.fusion.strides import span_of, strides_of
from serrate.fusion.types import Memory
from serrate.fusion.view import Operation, TensorView


class Fusion(Scattering, Randomness, Rewriting):
    """A small program over tensors, to become one kernel.

    >>> import torch
    >>> from serrate.fusion import Fusion
    >>> fusion = Fusion()
    >>> data, offsets = fusion.input("data", ["n", 4]), fusion.input("offsets", ["k"], "int64")
    >>> x = fusion.view_as_nested(data, offsets)
    >>> y = fusion.output(fusion.reduce("sum", x, [1]), "y")
    >>> fusion.evaluate(torch.ones(5, 4), torch.tensor([0, 2, 2, 5]))[0]
    tensor([[2., 2., 2., 2.],
            [0., 0., 0., 0.],
            [3., 3., 3., 3.]])
    """

    def __init__(self) -> None:
        self.inputs: list[TensorView] = []
        self.outputs: list[TensorView] = []
        self.tensors: list[TensorView] = []  # in the order of definition: operands come first
        self._names: set[str] = set()  # of tensors
        self._sizes: set[str] = set()  # names of sizes
        self._strides: set[str] = set()  # names of strides, and of what else a call says of an input that has some
        self.lengths: tuple[Raggedness, ...] = ()  # what extents of given tensors are read from

    # Making tensors

    def _name(self, wanted: str | None) -> str:
        if wanted is not None:
            if wanted in self._names:
                raise ValueError(f"there is a tensor named {wanted!r} already")
            if wanted in self._sizes:
                raise ValueError(f"{wanted!r} is the name of a size already; a tensor needs another")
            return wanted
        number = len(self.tensors)
        while f"t{number}" in self._names:
            number += 1
        return f"t{number}"

    def _rename_tensor(self, tensor: TensorView, wanted: str) -> None:
        """Let a tensor have another name."""
        name = self._name(wanted)
        self._names.remove(tensor.name)
        self._names.add(name)
        tensor.name = name

    def _add(
        self, domain: TensorDomain, dtype: str, operation: Operation | None, name: str | None = None
    ) -> TensorView:
        made = TensorView(self, self._name(name), domain, dtype, operation)
        sizes = {str(size.value) for axis in domain.root for size in axis.extent.symbols}
        for size in sizes:
            if size in self._names or size == made.name:
                raise ValueError(f"{size} is the name of a tensor; a size of {made} needs another")
            if size in self._strides:
                raise ValueError(f"{size} is a stride of an input; a size of {made} needs another name")
        self._names.add(made.name)
        self._sizes |= sizes
        self.tensors.append(made)
        return made

    def input(
        self,
        name: str,
        shape: Sequence[int | str | Scalar | IterDomain] | TensorDomain,
        dtype: str | torch.dtype = "float32",
        *,
        strides: Sequence[int | None] | None = None,
    ) -> TensorView:
        """A tensor that is given: a shape of numbers, names of sizes known when it runs, or axes.

        It lies contiguously in memory, unless `strides` has an entry for each axis by which it lies there: a number of
        elements, 0 for an axis that repeats, or None if it is known only when it runs. It is then read in place.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> from serrate.kernel import lower
        >>> fusion = Fusion()
        >>> y = fusion.output(fusion.input("x", ["m", "n"], strides=[None, None]) * 2, "y")
        >>> lower(fusion, y)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T)[0]
        tensor([[2., 6.],
                [4., 8.]])
        """
        if not isinstance(shape, TensorDomain):
            axes = [
                axis if isinstance(axis, IterDomain) else IterDomain(axis, name=axis_name)
                for axis, axis_name in zip(shape, _axis_names(len(shape)), strict=True)
            ]
            shape = TensorDomain(axes)
        known = None if strides is None else strides_of(name, shape, strides)
        made = self._add(shape, dtype_name(dtype), None, name)
        made.strides = known
        if known is not None:
            self._strides |= {str(each.value) for each in (*known, span_of(made)) if not each.is_const}
            for taken in self._strides & self._sizes:
                raise ValueError(
                    f"{taken} is the name of a size already, and now that of a stride of {made}; rename it"
                )
        self.inputs.append(made)
        return made

    def output(self, tensor: TensorView, name: str | None = None) -> TensorView:
        """Say that a tensor is a result of the fusion, and give it a name."""
        self._check_own(tensor)
        operation = tensor.definition
        renamed_offsets = operation is not None and operation.kind == "offsets" and name is not None
        packed = operation is not None and operation.name == "packed_positions"  # wherever the result is stored
        if operation is None or operation.kind == "nest" or tensor in self.outputs or renamed_offsets or packed:
            tensor = self.copy(tensor)  # a result of its own
        if name is not None and name != tensor.name:
            self._rename_tensor(tensor, name)
        tensor.memory = Memory.GLOBAL
        self.outputs.append(tensor)
        return tensor

    # As a whole

    def evaluate(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The outputs, by reference: element by element as defined, whatever the schedule; as they lie in memory."""
        from serrate.fusion.reference import results_of

        return results_of(self, inputs)

    def clone(self, tensors: Sequence[TensorView] | None = None) -> Fusion:
        """A fusion like this one that shares nothing with it that could change; with only some of its tensors, if these
        are given. What they are computed of that is not among them is then to be replaced."""
        return self._copy(self.tensors if tensors is None else tensors, {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Fusion:
        return self._copy(self.tensors, memo)

    def _copy(self, tensors: Sequence[TensorView], memo: dict[int, Any]) -> Fusion:
        # Empty tensors first: none then copies those that it was computed of, of which there may be many.
        made = memo[id(self)] = Fusion.__new__(Fusion)
        for tensor in self.tensors:
            memo[id(tensor)] = TensorView.__new__(TensorView)
        kept = vars(self) | {"tensors": list(tensors)}
        for old, new in [(kept, made), *((vars(tensor), memo[id(tensor)]) for tensor in tensors)]:
            vars(new).update(copying.deepcopy(old, memo))
        return made

    def key(self) -> tuple[object, ...]:
        """What makes two fusions the same: operations, axes, schedules; not the identity of anything."""
        from serrate.fusion.equality import key_of

        return key_of(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fusion) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def draw(self) -> Any:
        """A drawing of the tensors and their axes; shown by notebooks. `serrate.viz` has to be imported."""
        return drawn("fusion", self)

    def __str__(self) -> str:
        lines = ["inputs:"] + [f"  {tensor}" for tensor in self.inputs]
        lines += [f"{tensor} = {tensor.definition}" for tensor in self.tensors if tensor.definition is not None]
        return "\n".join([*lines, "outputs: " + ", ".join(tensor.name for tensor in self.outputs)])


def _axis_names(count: int) -> list[str]:
    """How the axes of an input are called: i, j, …, the last one d, if there are several."""
    if count < 2:
        return ["i"] * count
    letters = "ijlmpq"
    names = [f"{letters[at % 6]}{at // 6 + 1 if at >= 6 else ''}" for at in range(count - 1)]
    return [*names, "d"]


def inject_offsets(fusion: Fusion) -> Fusion:
    """The fusion with, after each nested output, the offsets of its ragged axes as outputs of their own.

    The user's fusion has one value per nested tensor; memory has two. Offsets computed on a device stay there.
    """
    made = fusion.clone()
    outputs: list[TensorView] = []
    for tensor in list(made.outputs):
        outputs.append(tensor)
        for number, axis in enumerate(axis for axis in tensor.domain.kept if axis.is_ragged):
            offsets = made.offsets_of(tensor, ragged(axis))
            made._rename_tensor(offsets, f"{tensor.name}_offsets" + (f"{number}" if number else ""))
            offsets.memory = Memory.GLOBAL
            outputs.append(offsets)
    made.outputs = outputs
    return made
