"""How an elementwise operation runs: operands laid out for their common shape, and one function of their values.

`sr.*` and operators have the dtypes and special cases of the array API, `torch.*` and methods those of torch. An
`Elementwise` holds what both need to know about one operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from serrate.eager import unsigned
from serrate.tensor import bits, broadcast, host, promotion
from serrate.tensor.tensor import Tensor, as_tensor


@dataclass(eq=False)
class Elementwise:
    """One elementwise operation on Tensors, called as the array API means it."""

    name: str
    function: Callable[..., torch.Tensor]
    """torch's function of values."""
    kinds: tuple[str, ...]
    """The kinds of dtypes it takes."""
    in_floats: bool = False
    """Whether it computes integers as floats."""
    meaning: Callable[..., torch.Tensor] | None = None
    """What the array API means, where torch's function means something else."""
    takes_numbers: bool = True
    """Whether torch's function takes Python numbers after its first operand."""
    beyond: tuple[bool, bool] | None = None
    """What a comparison gives for an integer and a number above, or below, all that the dtype of the integer holds."""
    divides: bool = False
    """Whether the second operand divides, so that on the host it must not be 0 where it is undefined."""
    in_bits: bool = True
    """Whether the operation of uint64 elements is defined by their bits, half of which int64 does not hold."""

    def __post_init__(self) -> None:
        self.refused = _refused(self.kinds)
        self.on_values = self._on_values()

    def __call__(self, *operands: Any, **options: Any) -> Tensor:
        """The operation of these operands, by the array API."""
        return broadcast.elementwise(self.on_values, self.operands(operands), options)

    def _on_values(self) -> Callable[..., torch.Tensor]:
        """The function of laid-out values, by the array API: 0-d tensors count like others, numbers by their kind."""
        function, refused, numbers = self.meaning or self.function, self.refused, self.takes_numbers

        def of_values(*values: Any, **options: Any) -> torch.Tensor:
            dtype = _one_float_type(values, numbers)
            if dtype is None or dtype in refused:
                return self._promoted(function, values, options)
            return function(*values, **options)

        return of_values

    def _promoted(
        self, function: Callable[..., torch.Tensor], values: tuple[Any, ...], options: dict[str, Any]
    ) -> torch.Tensor:
        dtype = promotion.together(values)
        if dtype in self.refused:
            instead = _INSTEAD.get(self.name, "") if dtype == torch.bool else ""
            raise TypeError(f"{self.name} takes elements of the kinds {', '.join(self.kinds)}, got {dtype}{instead}")
        if self.in_floats and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        if self.beyond is not None and dtype in promotion.INTEGERS:
            compared = self._compared_beyond(values, dtype)
            if compared is not None:
                return compared
        made = [_operand(v, dtype, self.name, i == 0 or not self.takes_numbers) for i, v in enumerate(values)]
        if not self.takes_numbers:  # Not all of these functions take a number of the host beside tensors of a device.
            device = next(v.device for v in values if isinstance(v, torch.Tensor))
            made = [host.send(v, device) if v.ndim == 0 else v for v in made]
        if dtype in promotion.WIDE:
            return unsigned.compute(self.name, function, made, options)
        return function(*made, **options)

    def _compared_beyond(self, values: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """A comparison with a number that the integer dtype does not hold; None if the dtype holds the number."""
        assert self.beyond is not None
        for i, value in enumerate(values):
            if not isinstance(value, torch.Tensor) and not promotion.fits(value, dtype):
                above = (value > 0) == (i == 1)
                return torch.full_like(values[1 - i], self.beyond[0 if above else 1], dtype=torch.bool)
        return None

    def by_torch(self, function: Callable[..., torch.Tensor], operands: tuple[Any, ...], options: Any) -> Tensor:
        """A function of torch for this operation on laid-out operands, with the dtypes and the meaning it has there."""
        given = self.operands(operands)
        tensors = [operand for operand in given if not isinstance(operand, broadcast.SCALARS)]
        if self.in_bits and any(tensor.dtype == torch.uint64 for tensor in tensors):
            return broadcast.elementwise(self._of_bits(function, options), given, options)
        for i, operand in enumerate(given):
            first = i == 0 and len(given) > 1
            if isinstance(operand, broadcast.SCALARS) and (first or not self.takes_numbers):
                # A 0-d tensor counts as a number when dtypes are chosen.
                number = promotion.as_operand(operand, promotion.narrow(promotion.beside(tensors[0].dtype, operand)))
                # Not all of these functions take a number of the host beside tensors of a device.
                given[i] = host.send(number, tensors[0].device)
        if any(tensor.dtype in promotion.WIDE for tensor in tensors):
            return _through_int64(function, given, options)
        return broadcast.elementwise(function, given, options)

    def _of_bits(self, function: Callable[..., torch.Tensor], options: dict[str, Any]) -> Callable[..., torch.Tensor]:
        """torch's function of uint64 elements, by their bits."""
        name, floats = self.name, self.in_floats
        # Without signs, rounding down is rounding towards 0.
        if name == "divide" and options.pop("rounding_mode", None) is not None:
            name, function, floats = "floor_divide", torch.floor_divide, False
        return Elementwise(name, function, ALL, floats, takes_numbers=self.takes_numbers, beyond=self.beyond).on_values

    def operands(self, given: tuple[Any, ...]) -> list[Any]:
        """Operands as Tensors (at least one), torch tensors and Python numbers; a divisor without undefined zeros."""
        made = operands_of(self.name, given)
        if self.divides and len(made) == 2:
            made[1] = _divisor(made[1])
        return made


ALL = ("float", "complex", "int", "bool")
_OPERANDS = (torch.Tensor, *broadcast.SCALARS)
_INSTEAD = {
    name: f"; for bools there is {other}"
    for name, other in {"add": "|", "multiply": "&", "subtract": "^", "negative": "~"}.items()
}


def _refused(kinds: tuple[str, ...]) -> frozenset[torch.dtype]:
    """The dtypes an operation of these kinds does not take; integers become floats where only those are taken."""
    refused: set[torch.dtype] = set() if "bool" in kinds else {torch.bool}
    if "complex" not in kinds:
        refused |= {torch.complex32, torch.complex64, torch.complex128}
    if not {"float", "complex"} & set(kinds):
        refused |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    return frozenset(refused)


def apply(function: Callable[..., torch.Tensor], *operands: Any, **options: Any) -> Tensor:
    """A function of torch on operands laid out for their common shape."""
    return broadcast.elementwise(
        function, operands_of(getattr(function, "__name__", "the operation"), operands), options
    )


def operands_of(name: str, operands: tuple[Any, ...]) -> list[Any]:
    """Operands as Tensors (at least one), torch tensors and Python numbers."""
    given = [broadcast.plain_number(operand) for operand in operands]
    found = False
    for operand in given:
        if isinstance(operand, Tensor):
            found = True
        elif not isinstance(operand, _OPERANDS):
            raise TypeError(f"{name} takes tensors and numbers, got {type(operand).__name__}: {operand!r:.60}")
    if not found:
        given = [as_tensor(operand) if isinstance(operand, torch.Tensor) else operand for operand in given]
        if not any(isinstance(operand, Tensor) for operand in given):
            raise TypeError(f"{name} takes at least one tensor, got numbers only")
    return given


def _divisor(x: Any) -> Any:
    """x with 1 in undefined rows of integers, which may hold 0: on the host, torch refuses to divide by that."""
    if not isinstance(x, Tensor) or x.dtype not in promotion.INTEGERS or x.structure.is_exact:
        return x
    return x._with(bits.where(x.structure.defined_rows(x.values), x.values, bits.constant(1, x.dtype, x.device)))


def _through_int64(function: Callable[..., torch.Tensor], operands: list[Any], options: dict[str, Any]) -> Tensor:
    """torch lacks arithmetic on wide unsigned types: compute in int64, and go back where the result is an integer."""
    tensors = [operand for operand in operands if isinstance(operand, (Tensor, torch.Tensor))]
    dtype = reduce(promotion.promote, [tensor.dtype for tensor in tensors])
    wide = [o.to(promotion.narrow(o.dtype)) if isinstance(o, (Tensor, torch.Tensor)) else o for o in operands]
    result = broadcast.elementwise(function, wide, options)
    return result.to(dtype) if result.dtype == torch.int64 and dtype in promotion.WIDE else result


def _one_float_type(values: tuple[Any, ...], numbers: bool) -> torch.dtype | None:
    """The dtype of tensors of one floating-point type, perhaps before real `numbers`: they need no promotion."""
    first = values[0]
    if not isinstance(first, torch.Tensor) or not first.dtype.is_floating_point:
        return None
    for value in values[1:]:
        if isinstance(value, torch.Tensor):
            if value.dtype is not first.dtype:
                return None
        elif not numbers or isinstance(value, complex) or promotion.is_far(value):
            return None
    return first.dtype


def _operand(value: Any, dtype: torch.dtype, name: str, as_tensor: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.dtype is dtype else value.to(dtype)
    promotion.require_fit(name, value, dtype)
    if as_tensor or dtype in promotion.WIDE:
        return promotion.as_operand(value, dtype)
    return promotion.as_number(value, dtype)
