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
from serrate.fusion.dtypes import BOOL, FLOATS
from serrate.fusion.expressions import component_of
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import (
    Shape,
    axes_like,
    axis_number,
    broadcast_axes,
    check_known,
    check_one_dtype,
    clones,
    dtype_name,
    parents_of,
)
from serrate.fusion.view import Operation, TensorView

_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Pointwise(Operations):
    """Operations on elements."""

    def unary(self, name: str, x: TensorView, **options: Any) -> TensorView:
        """An elementwise operation of one operand, by its name in `fusion.elementwise`; with options if it has any."""
        return self.elementwise(name, x, **options)

    def binary(self, name: str, x: TensorView | float, y: TensorView | float, **options: Any) -> TensorView:
        """An elementwise operation of two operands, one of which may be a number."""
        return self.elementwise(name, x, y, **options)

    def where(self, condition: TensorView, x: TensorView | float, y: TensorView | float) -> TensorView:
        """`x` where the condition holds, else `y`."""
        if condition.dtype != BOOL:
            raise TypeError(f"where needs a condition of bool, got {condition}")
        check_one_dtype("where", x, y)
        return self.elementwise("where", condition, x, y)

    def elementwise(self, name: str, *operands: TensorView | float, **options: Any) -> TensorView:
        """An elementwise operation, by its name in `fusion.elementwise`. Tensors have one dtype, and numbers take it;
        whole numbers become float32 where floating-point numbers are computed of them."""
        if not elementwise.is_known(name) or elementwise.named(name).arity != len(operands):
            check_known(name, elementwise.names(len(operands)))
        row = elementwise.named(name)
        if not any(isinstance(x, TensorView) for x in operands):
            raise TypeError(f"{name} needs at least one tensor, got {' and '.join(map(repr, operands))}")
        for x in operands:
            if not isinstance(x, (TensorView, int, float)):
                raise TypeError(
                    f"{name} takes tensors of the fusion and numbers, got {type(x).__name__}; make it an input"
                )
        check_one_dtype(name, *(operands[1:] if name == "where" else operands))
        try:
            dtype = row.result_dtype([x.dtype if isinstance(x, TensorView) else x for x in operands], options)
        except TypeError as error:
            raise TypeError(f"{name} of {', '.join(map(str, operands))}: {error}") from None
        return self._pointwise(name, operands, dtype, options)

    def cast(self, x: TensorView, dtype: str | torch.dtype) -> TensorView:
        """The elements in another dtype."""
        dtype = dtype_name(dtype)
        return self._pointwise("cast", [x], dtype)

    def copy(self, x: TensorView) -> TensorView:
        """The same elements, in a tensor of their own."""
        return self._pointwise("copy", [x], x.dtype)

    def full(self, shape: Shape, value: float, dtype: str | torch.dtype = "float32") -> TensorView:
        """One number everywhere, with the axes of a tensor, or of a list of numbers, names of sizes and axes."""
        dtype = dtype_name(dtype)
        if dtype not in FLOATS and value != int(value):
            raise TypeError(f"{value} is not a number of {dtype}")
        return self._of_indices("full", shape, dtype, (value,))

    def full_like(self, x: TensorView, value: float, dtype: str | torch.dtype | None = None) -> TensorView:
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
        self, name: str, operands: Sequence[TensorView | float], dtype: str, settings: Mapping[str, Any] = _NO_SETTINGS
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
