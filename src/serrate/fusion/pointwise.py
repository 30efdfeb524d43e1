"""Pointwise operations of a fusion: each element of the result is computed of one element of each operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from serrate.errors import AxisError, RaggednessError
from serrate.fusion import elementwise
from serrate.fusion.axes import ragged
from serrate.fusion.domain import TensorDomain
from serrate.fusion.dtypes import BOOL, COMPLEX, INTEGERS, common_dtype, holds, wrapped
from serrate.fusion.expressions import component_of
from serrate.fusion.functions import COMPARISONS
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import (
    Shape,
    axes_like,
    axis_number,
    broadcast_axes,
    check_fit,
    check_known,
    clones,
    dtype_name,
    parents_of,
)
from serrate.fusion.view import Operation, TensorView

Operand = TensorView | complex
Operands = tuple[Operand, ...]
_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Pointwise(Operations):
    """Operations on elements."""

    def unary(self, name: str, x: TensorView, **options: Any) -> TensorView:
        """An elementwise operation of one operand, by its name in `fusion.elementwise`; with options if it has any."""
        return self.elementwise(name, x, **options)

    def binary(self, name: str, x: Operand, y: Operand, **options: Any) -> TensorView:
        """An elementwise operation of two operands, one of which may be a number."""
        return self.elementwise(name, x, y, **options)

    def where(self, condition: TensorView, x: Operand, y: Operand) -> TensorView:
        """`x` where the condition holds, else `y`."""
        if condition.dtype != BOOL:
            raise TypeError(f"where needs a condition of bool, got {condition}")
        return self.elementwise("where", condition, x, y)

    def elementwise(self, name: str, *operands: Operand, **options: Any) -> TensorView:
        """An elementwise operation, by its name in `fusion.elementwise`. Tensors of several dtypes become one that
        holds them, as eager operations have it, and numbers take it unless they are of a higher kind; whole numbers
        become the default dtype where floating-point numbers are computed of them.

        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> x, y = fusion.input("x", ["n"], "int16"), fusion.input("y", ["n"], "float64")
        >>> (x + y).dtype, (x * 0.5).dtype, (x * 2).dtype
        ('float64', 'float32', 'int16')
        """
        if not elementwise.is_known(name) or elementwise.named(name).arity != len(operands):
            check_known(name, elementwise.names(len(operands)))
        row = elementwise.named(name)
        if not any(isinstance(x, TensorView) for x in operands):
            raise TypeError(f"{name} needs at least one tensor, got {' and '.join(map(repr, operands))}")
        for x in operands:
            if not isinstance(x, (TensorView, int, float, complex)):
                raise TypeError(
                    f"{name} takes tensors of the fusion and numbers, got {type(x).__name__}; make it an input"
                )
        if name == "where" and isinstance(operands[0], TensorView):
            operands = (operands[0], *self._promoted(name, operands[1:], operands[0]))
        else:
            operands = self._promoted(name, operands)
        beyond = _compared_beyond(name, operands)
        if beyond is not None:
            return self.full_like(next(x for x in operands if isinstance(x, TensorView)), beyond, BOOL)
        try:
            dtype = row.result_dtype([x.dtype if isinstance(x, TensorView) else x for x in operands], options)
        except TypeError as error:
            raise TypeError(f"{name} of {', '.join(map(str, operands))}: {error}") from None
        return self._pointwise(name, operands, dtype, options)

    def _promoted(self, name: str, operands: Operands, like: TensorView | None = None) -> Operands:
        """The operands in the one dtype that is computed in. Of numbers alone, the first is given the shape of a
        tensor."""
        dtype = _dtype_of(name, operands)
        if elementwise.named(name).in_floats and dtype in INTEGERS:
            dtype = common_dtype([dtype, 0.5])
        if like is not None and not isinstance(operands[0], TensorView) and not isinstance(operands[1], TensorView):
            operands = (self.full_like(like, operands[0], dtype), *operands[1:])
        for x in operands:
            if not isinstance(x, TensorView) and name not in COMPARISONS:
                check_fit(name, x, dtype)
        return tuple(self._in_dtype(x, dtype) if isinstance(x, TensorView) else x for x in operands)

    def _in_one_dtype(self, name: str, tensors: Sequence[TensorView]) -> list[TensorView]:
        """The tensors in the dtype that they have in common."""
        dtype = _dtype_of(name, tensors)
        return [self._in_dtype(x, dtype) for x in tensors]

    def _in_dtype(self, x: TensorView, dtype: str) -> TensorView:
        return x if x.dtype == dtype else self.cast(x, dtype)

    def cast(self, x: TensorView, dtype: str | torch.dtype) -> TensorView:
        """The elements in another dtype."""
        dtype = dtype_name(dtype)
        if x.dtype in COMPLEX and dtype not in COMPLEX:
            raise TypeError(f"{x} does not become {dtype}, since a part would be lost; take real, imag or abs")
        return self._pointwise("cast", [x], dtype)

    def copy(self, x: TensorView) -> TensorView:
        """The same elements, in a tensor of their own."""
        return self._pointwise("copy", [x], x.dtype)

    def full(self, shape: Shape, value: complex, dtype: str | torch.dtype = "float32") -> TensorView:
        """One number everywhere, with the axes of a tensor, or of a list of numbers, names of sizes and axes."""
        dtype = dtype_name(dtype)
        if not holds(dtype, value):
            raise TypeError(f"{value} is not a number of {dtype}")
        check_fit("full", value, dtype)
        return self._of_indices("full", shape, dtype, (value,))

    def full_like(self, x: TensorView, value: complex, dtype: str | torch.dtype | None = None) -> TensorView:
        """One number everywhere, with the axes of a tensor, and its dtype if no other is said."""
        return self.full(x, value, x.dtype if dtype is None else dtype)

    def positions(self, shape: Shape, axis: int) -> TensorView:
        """The index of each element along one axis, within its row if that is ragged, as int64.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> x = fusion.view_as_nested(data, offsets)
        >>> y = fusion.output(fusion.positions(x, 1), "y")
        >>> fusion.evaluate(torch.zeros(5), torch.tensor([0, 2, 2, 5]))[0]
        tensor([0, 1, 0, 1, 2])
        """
        ndim = shape.ndim if isinstance(shape, TensorView) else len(shape)
        if not -ndim <= axis < ndim:
            raise AxisError(f"axis {axis} of {shape}, which has {ndim} axes")
        return self._of_indices("positions", shape, "int64", (axis % ndim,))

    def packed_positions(self, shape: Shape) -> TensorView:
        """The place of each element among all of them, as int64: rows are packed one after another."""
        return self._of_indices("packed_positions", shape, "int64", ())

    def row_lengths(self, x: TensorView, axis: int) -> TensorView:
        """The lengths of the rows of a ragged axis, as int64: one for each index of the axes that it depends on.

        >>> import torch
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> data, offsets = fusion.input("data", ["n"]), fusion.input("offsets", ["k"], "int64")
        >>> y = fusion.output(fusion.row_lengths(fusion.view_as_nested(data, offsets), 1), "y")
        >>> fusion.evaluate(torch.zeros(5), torch.tensor([0, 2, 2, 5]))[0]
        tensor([2, 0, 3])
        """
        self._check_own(x)
        rows = x.domain.kept[axis_number(x, axis)]
        if not rows.is_ragged:
            raise RaggednessError(f"row_lengths needs a ragged axis, got {rows} of {x}")
        (*root, made), pairs = clones([*parents_of(rows, x.domain.kept), rows])
        # The last pair says which index the lengths are found by.
        pairs = (*pairs[:-1], (component_of(rows), component_of(made)))
        operation = Operation("pointwise", "row_lengths", (), pairs, (ragged(rows).raggedness,))
        return self._add(TensorDomain(root), "int64", operation)

    def _of_indices(self, name: str, shape: Shape, dtype: str, options: tuple[Any, ...]) -> TensorView:
        """A tensor whose elements depend on nothing but their indices."""
        if isinstance(shape, TensorView):
            self._check_own(shape)
        root, pairs = axes_like(shape)
        return self._add(TensorDomain(root), dtype, Operation("pointwise", name, (), pairs, options))

    def _pointwise(
        self, name: str, operands: Sequence[Operand], dtype: str, settings: Mapping[str, Any] = _NO_SETTINGS
    ) -> TensorView:
        tensors = [x for x in operands if isinstance(x, TensorView)]
        self._check_own(*tensors)
        root, pairs = broadcast_axes(name, tensors)
        constants = tuple(x if not isinstance(x, TensorView) else None for x in operands)
        operation = Operation(
            "pointwise",
            name,
            tuple(tensors),
            pairs,
            () if all(c is None for c in constants) else constants,
            tuple(sorted(settings.items())),
        )
        return self._add(TensorDomain(root), dtype, operation)


def _dtype_of(name: str, operands: Sequence[Operand]) -> str:
    """The dtype of what an operation computes of its operands."""
    given = [x.dtype if isinstance(x, TensorView) else x for x in operands]
    try:
        return common_dtype(given)
    except TypeError:
        found = " and ".join(dict.fromkeys(each for each in given if isinstance(each, str)))
        raise TypeError(f"{name} of {found}, which have no dtype in common; cast one of them") from None


_ABOVE = {"less": True, "less_equal": True, "greater": False, "greater_equal": False}
"""Whether a number is so of those above it."""


def _compared_beyond(name: str, operands: Operands) -> bool | None:
    """What a comparison of whole numbers gives for a number that their dtype does not hold; None if it is no such."""
    if name not in COMPARISONS or len(operands) != 2 or all(isinstance(x, TensorView) for x in operands):
        return None
    place = 0 if isinstance(operands[1], TensorView) else 1
    tensor, number = operands[1 - place], operands[place]
    assert isinstance(tensor, TensorView)
    if not isinstance(number, int) or tensor.dtype not in INTEGERS or wrapped(number, tensor.dtype) == number:
        return None
    is_above = (number > 0) == (place == 1)  # of the two, the second is the greater
    return _ABOVE[name] == is_above if name in _ABOVE else name == "not_equal"
