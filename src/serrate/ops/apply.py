"""How an elementwise operation runs, and how its record is made from one line of a table.

`sr.*` and operators have the dtypes and special cases of the array API (`standard`), `torch.*` and methods those of
torch (`apply`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from serrate.eager import unsigned
from serrate.errors import RaggednessError
from serrate.ops.table import TORCH, Error, Kind, Op, Result, define, torch_names
from serrate.tensor import bits, broadcast, host, promotion
from serrate.tensor.tensor import Tensor, as_tensor

STANDARD: dict[str, Callable[..., torch.Tensor]] = {}
"""For each elementwise operation the function of laid-out values that `sr.*` and operators compute."""
_NAMES: dict[Callable[..., Any], str] = {}
"""The operation that a function of torch's is."""
_IN_BITS: dict[str, bool] = {}
"""The operations of elements alone, and whether they compute integers as floats."""
_TENSORS_ONLY = {
    "atan2",
    "copysign",
    "hypot",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "nextafter",
}
_BEYOND: dict[str, tuple[bool, bool]] = {
    "equal": (False, False),
    "not_equal": (True, True),
    "less": (True, False),
    "less_equal": (True, False),
    "greater": (False, True),
    "greater_equal": (False, True),
}
"""Comparisons of integers with a number above, and with one below, all that their dtype holds."""
_OTHER_MEANING = {torch.equal, torch.Tensor.equal}  # one bool for all elements
FLOAT: tuple[Kind, ...] = ("float",)
FLOATS: tuple[Kind, ...] = ("float", "complex")
REAL: tuple[Kind, ...] = ("float", "int")
NUMERIC: tuple[Kind, ...] = ("float", "complex", "int")
INTEGER: tuple[Kind, ...] = ("int", "bool")
ALL: tuple[Kind, ...] = ("float", "complex", "int", "bool")


_NO_TENSOR: Error = ("None", TypeError, "got NoneType")
_OTHER_ROWS: Error = (
    "x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])",
    RaggednessError,
    r"different raggedness: Ragged\(\[3, 1, 2\]\) and Ragged\(\[1, 2, 3\]\)",
)
_OTHER_THIRD: Error = ("x != 0, x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", *_OTHER_ROWS[1:])
_OTHER_SIZE: Error = ("x, torch.ones(3)", ValueError, "do not broadcast")


def apply(function: Callable[..., torch.Tensor], *operands: Any, **options: Any) -> Tensor:
    """`function` of torch on operands laid out for their common shape."""
    return _applied(_NAMES.get(function, ""), function, operands, options)


def _applied(
    name: str, function: Callable[..., torch.Tensor], operands: tuple[Any, ...], options: dict[str, Any]
) -> Tensor:
    given = operands_of(getattr(function, "__name__", "the operation"), operands)
    tensors = [operand for operand in given if not isinstance(operand, broadcast.SCALARS)]
    if name in _IN_BITS and any(tensor.dtype == torch.uint64 for tensor in tensors):
        return broadcast.elementwise(_in_bits(name, function, options), given, options)
    wide = any(tensor.dtype in promotion.WIDE for tensor in tensors)
    for i, operand in enumerate(given):
        first = i == 0 and len(given) > 1
        if isinstance(operand, broadcast.SCALARS) and (first or function.__name__ in _TENSORS_ONLY):
            # A 0-d tensor counts as a number when dtypes are chosen.
            number = promotion.as_operand(operand, promotion.narrow(promotion.beside(tensors[0].dtype, operand)))
            # Not all of these functions take a number of the host beside tensors of a device.
            given[i] = host.send(number, tensors[0].device)
    return _through_int64(function, given, options) if wide else broadcast.elementwise(function, given, options)


def standard(name: str, *operands: Any, **options: Any) -> Tensor:
    """The operation of this name as the array API means it, on operands laid out for their common shape."""
    return broadcast.elementwise(STANDARD[name], operands_of(name, operands), options)


def operands_of(name: str, operands: tuple[Any, ...]) -> list[Any]:
    """Operands as Tensors (at least one), torch tensors and Python numbers."""
    given = [broadcast.plain_number(operand) for operand in operands]
    found = False
    for operand in given:
        if isinstance(operand, Tensor):
            found = True
        elif not isinstance(operand, (torch.Tensor, *broadcast.SCALARS)):
            raise TypeError(f"{name} takes tensors and numbers, got {type(operand).__name__}: {operand!r:.60}")
    if not found:
        given = [as_tensor(operand) if isinstance(operand, torch.Tensor) else operand for operand in given]
        if not any(isinstance(operand, Tensor) for operand in given):
            raise TypeError(f"{name} takes at least one tensor, got numbers only")
    if name in _DIVIDES and len(given) == 2:
        given[1] = _divisor(given[1])
    return given


_DIVIDES = ("floor_divide", "remainder", "div", "divide")


def _divisor(x: Any) -> Any:
    """x with 1 in undefined rows of integers, which may hold 0: on the host, torch refuses to divide by that."""
    if not isinstance(x, Tensor) or x.dtype not in promotion.INTEGERS or x.structure.is_exact:
        return x
    return x._with(bits.where(x.structure.defined_rows(x.values), x.values, bits.constant(1, x.dtype, x.device)))


def _in_bits(name: str, function: Callable[..., torch.Tensor], options: dict[str, Any]) -> Callable[..., torch.Tensor]:
    """torch's function of uint64 elements, half of which int64 does not hold."""
    if name == "divide" and options.get("rounding_mode") is not None:
        del options["rounding_mode"]  # without signs, down is towards 0
        return by_standard("floor_divide", torch.floor_divide, ALL, False)
    return by_standard(name, function, ALL, _IN_BITS[name])


def _through_int64(function: Callable[..., torch.Tensor], operands: list[Any], options: dict[str, Any]) -> Tensor:
    """torch lacks arithmetic on wide unsigned types: compute in int64, and go back where the result is an integer."""
    tensors = [operand for operand in operands if isinstance(operand, (Tensor, torch.Tensor))]
    dtype = reduce(promotion.promote, [tensor.dtype for tensor in tensors])
    wide = [o.to(promotion.narrow(o.dtype)) if isinstance(o, (Tensor, torch.Tensor)) else o for o in operands]
    result = broadcast.elementwise(function, wide, options)
    return result.to(dtype) if result.dtype == torch.int64 and dtype in promotion.WIDE else result


def by_standard(
    name: str,
    function: Callable[..., torch.Tensor],
    kinds: tuple[Kind, ...],
    in_floats: bool = False,
    numbers: bool | None = None,
) -> Callable[..., torch.Tensor]:
    """`function` with the array API's dtypes: 0-d tensors count like others, numbers by their kind alone.

    `numbers`: whether it takes Python numbers after the first operand.
    """
    refused = _refused(kinds)
    numbers = name not in _TENSORS_ONLY if numbers is None else numbers

    def call(*values: Any, **options: Any) -> torch.Tensor:
        dtype = _one_float_type(values, numbers)
        if dtype is None or dtype in refused:
            return promoted(*values, **options)
        return function(*values, **options)

    def promoted(*values: Any, **options: Any) -> torch.Tensor:
        dtype = promotion.together(values)
        if dtype in refused:
            raise TypeError(
                f"{name} takes elements of the kinds {', '.join(kinds)}, got {dtype}{_instead(name, dtype)}"
            )
        if in_floats and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        if name in _BEYOND and dtype in promotion.INTEGERS:
            beyond = _compare_beyond(name, values, dtype)
            if beyond is not None:
                return beyond
        made = [_operand(v, dtype, name, i == 0 or not numbers) for i, v in enumerate(values)]
        if not numbers:  # nor do all of these functions take a number of the host beside tensors of a device
            device = next(v.device for v in values if isinstance(v, torch.Tensor))
            made = [host.send(v, device) if v.ndim == 0 else v for v in made]
        if dtype in promotion.WIDE:
            return unsigned.compute(name, function, made, options)
        return function(*made, **options)

    return call


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


def _compare_beyond(name: str, values: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor | None:
    """A comparison with a number that the integer dtype does not hold; None if it is not one."""
    for i, value in enumerate(values):
        if not isinstance(value, torch.Tensor) and not promotion.fits(value, dtype):
            above = (value > 0) == (i == 1)
            return torch.full_like(values[1 - i], _BEYOND[name][0 if above else 1], dtype=torch.bool)
    return None


def _refused(kinds: tuple[Kind, ...]) -> frozenset[torch.dtype]:
    """The dtypes an operation of these kinds does not take; integers become floats where only those are taken."""
    refused: set[torch.dtype] = set() if "bool" in kinds else {torch.bool}
    if "complex" not in kinds:
        refused |= {torch.complex32, torch.complex64, torch.complex128}
    if not {"float", "complex"} & set(kinds):
        refused |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    return frozenset(refused)


def _instead(name: str, dtype: torch.dtype) -> str:
    other = {"add": "|", "multiply": "&", "subtract": "^", "negative": "~"}.get(name)
    return f"; for bools there is {other}" if other and dtype == torch.bool else ""


def _answer(name: str, function: Callable[..., torch.Tensor], arity: int) -> Callable[..., Tensor]:
    """torch's own function on laid-out operands, with its own defaults; `out=` has no place to write ragged results."""

    def handler(*args: Any, **options: Any) -> Tensor:
        if options.pop("out", None) is not None:
            raise TypeError(f"{function.__name__}(out=…) is not defined for sr.Tensor")
        names = [n for n in ("input", "self", "other", "exponent", "condition") if n in options]
        operands = [*args[:arity], *[options.pop(n) for n in names]]
        rest = args[arity:]
        if rest and name == "clip":
            options, rest = options | dict(zip(("min", "max"), rest, strict=False)), ()
        call = (lambda *values, **kw: function(*values, *rest, **kw)) if rest else function
        return _applied(name, call, tuple(operands), options)

    return handler


def _public(names: tuple[str, ...], compute: Callable[..., Tensor], **defaults: Any) -> Callable[..., Tensor]:
    """A function of positional operands with these names, with the signature the array API gives it."""
    kind = inspect.Parameter
    parameters = [kind(name, kind.POSITIONAL_ONLY, annotation=Any) for name in names]
    for name, default in defaults.items():
        open_to = kind.POSITIONAL_OR_KEYWORD if name in ("min", "max") else kind.KEYWORD_ONLY
        parameters.append(kind(name, open_to, default=default, annotation=Any))

    def function(*operands: Any, **options: Any) -> Tensor:
        bound = shape.bind(*operands, **options)
        return compute(*bound.args, **bound.kwargs)

    shape = inspect.Signature(parameters, return_annotation=Tensor)
    function.__signature__ = shape  # type: ignore[attr-defined]
    return function


def enter(
    name: str,
    arity: int,
    function: Callable[..., torch.Tensor],
    summary: str,
    kinds: tuple[Kind, ...],
    example: tuple[str, str],
    gradient: str,
    others: tuple[str, ...] = (),
    compute: Callable[..., Tensor] | None = None,
    dtype: Result = "promoted",
    meaning: Callable[..., torch.Tensor] | None = None,
    names: tuple[str, ...] = (),
    **defaults: Any,
) -> None:
    """A record of any number of operands.

    `others` are further names torch has for it, `meaning` what the array API means where `function` means something
    else, `names` those of the operands.
    """
    answered = tuple(f for f in torch_names(name, function.__name__, *others) if f not in _OTHER_MEANING)
    samples = {1: ("x",), 2: ("x, x", "x, torch.ones([1] * x.ndim, dtype=x.dtype)"), 3: ("x != 0, x, x",)}[arity]
    errors = {1: (_NO_TENSOR,), 2: (_OTHER_ROWS, _OTHER_SIZE), 3: (_OTHER_THIRD,)}[arity]
    for each in answered:
        TORCH[each] = _answer(name, each, arity)
        _NAMES[each] = name
    in_floats = dtype == "float" or "int" not in kinds
    STANDARD[name] = by_standard(name, meaning or function, kinds, in_floats)
    _NAMES[function] = name
    if name != "where":
        _IN_BITS[name] = in_floats
    chosen = compute if compute is not None else lambda *operands, **options: standard(name, *operands, **options)
    op = Op(
        name=name,
        family="elementwise",
        summary=summary,
        eager=_public(names or (("x",) if arity == 1 else ("x1", "x2")), chosen, **defaults),
        torch=(function, *answered),
        kinds=kinds,
        gradient=gradient,
        shape="broadcast",
        dtype=dtype,
        dialect=f"ptensor.{name}",
        fusion="serrate.fusion.pointwise:pointwise",
        example=example,
        samples=samples,
        errors=errors,
        traced=True,
    )
    define(op)


def unary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    gradient: str,
    kinds: tuple[Kind, ...] = FLOATS,
    others: tuple[str, ...] = (),
    compute: Callable[..., Tensor] | None = None,
    dtype: Result = "promoted",
    meaning: Callable[..., torch.Tensor] | None = None,
    **defaults: Any,
) -> None:
    """A record of one operand; `given` and `gives` are its example, a nested list before and after."""
    call = (f"sr.{name}(sr.ragged({given})).tolist()", gives)
    enter(name, 1, function, summary, kinds, call, gradient, others, compute, dtype, meaning, **defaults)


def binary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    gradient: str,
    kinds: tuple[Kind, ...] = NUMERIC,
    others: tuple[str, ...] = (),
    dtype: Result = "promoted",
    meaning: Callable[..., torch.Tensor] | None = None,
) -> None:
    """A record of two operands; the example's `given` is both, as the call writes them."""
    example = (f"sr.{name}({given}).tolist()", gives)
    enter(name, 2, function, summary, kinds, example, gradient, others, dtype=dtype, meaning=meaning)
