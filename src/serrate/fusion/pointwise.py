"""Pointwise operations of a fusion: each element of the result is computed of one element of each operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from serrate.fusion import elementwise
from serrate.fusion.domain import TensorDomain
from serrate.fusion.dtypes import BOOL
from serrate.fusion.operations import Operations
from serrate.fusion.shapes import broadcast_axes, check_known, check_one_dtype, dtype_name
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
