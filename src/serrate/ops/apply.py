"""How an elementwise operation runs, and how its record is made from one line of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.ops.table import TORCH, Error, Kind, Op, Result, define, torch_names
from serrate.tensor import broadcast
from serrate.tensor.partition import CPU
from serrate.tensor.tensor import Tensor, as_tensor

_WIDER = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.int64}
_TENSORS_ONLY = {
    torch.atan2,
    torch.hypot,
    torch.logaddexp,
    torch.logical_and,
    torch.logical_or,
    torch.logical_xor,
    torch.maximum,
    torch.minimum,
    torch.nextafter,
}
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
    given = [broadcast.plain_number(operand) for operand in operands]
    if not any(isinstance(operand, Tensor) for operand in given):
        given = [as_tensor(operand) if isinstance(operand, torch.Tensor) else operand for operand in given]
    wide = False
    for i, operand in enumerate(given):
        if isinstance(operand, (Tensor, torch.Tensor)):
            wide = wide or operand.dtype in _WIDER
        elif not isinstance(operand, broadcast.Scalar):
            name = getattr(function, "__name__", "the operation")
            raise TypeError(f"{name} takes tensors and numbers, got {type(operand).__name__}: {operand!r:.60}")
        elif (i == 0 and len(given) > 1) or function in _TENSORS_ONLY:
            given[i] = torch.as_tensor(operand, device=CPU)  # a 0-d tensor counts as a number when dtypes are chosen
    if not any(isinstance(operand, Tensor) for operand in given):
        raise TypeError(f"{getattr(function, '__name__', 'the operation')} takes at least one tensor, got numbers only")
    return _through_int64(function, given, options) if wide else broadcast.elementwise(function, given, options)


def _through_int64(function: Callable[..., torch.Tensor], operands: list[Any], options: dict[str, Any]) -> Tensor:
    """torch lacks arithmetic on wide unsigned types: compute in int64, and go back where the result is an integer."""
    tensors = [operand for operand in operands if isinstance(operand, (Tensor, torch.Tensor))]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    wide = [o.to(_WIDER.get(o.dtype, o.dtype)) if isinstance(o, (Tensor, torch.Tensor)) else o for o in operands]
    result = broadcast.elementwise(function, wide, options)
    return result.to(dtype) if result.dtype == torch.int64 and dtype in _WIDER else result


def _answer(function: Callable[..., torch.Tensor], arity: int) -> Callable[..., Tensor]:
    """torch's own function on laid-out operands, with its own defaults; `out=` has no place to write ragged results."""

    def handler(*args: Any, **options: Any) -> Tensor:
        if options.pop("out", None) is not None:
            raise TypeError(f"{function.__name__}(out=…) is not defined for sr.Tensor")
        names = [n for n in ("input", "self", "other", "exponent", "condition") if n in options]
        operands = [*args[:arity], *[options.pop(n) for n in names]]
        rest = args[arity:]
        if rest:
            return apply(lambda *values, **kw: function(*values, *rest, **kw), *operands, **options)
        return apply(function, *operands, **options)

    return handler


def _public(arity: int, compute: Callable[..., Tensor], **defaults: Any) -> Callable[..., Tensor]:
    """A function of `arity` positional operands, with the signature the array API gives it."""
    kind = inspect.Parameter
    names = ["x"] if arity == 1 else [f"x{i + 1}" for i in range(arity)]
    parameters = [kind(name, kind.POSITIONAL_ONLY, annotation=Any) for name in names]
    parameters += [kind(n, kind.KEYWORD_ONLY, default=d, annotation=Any) for n, d in defaults.items()]

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
    **defaults: Any,
) -> None:
    """A record of any number of operands; `others` are further names torch has for it."""
    answered = tuple(f for f in torch_names(name, function.__name__, *others) if f not in _OTHER_MEANING)
    samples = {1: ("x",), 2: ("x, x", "x, torch.ones([1] * x.ndim, dtype=x.dtype)"), 3: ("x != 0, x, x",)}[arity]
    errors = {1: (_NO_TENSOR,), 2: (_OTHER_ROWS, _OTHER_SIZE), 3: (_OTHER_THIRD,)}[arity]
    for each in answered:
        TORCH[each] = _answer(each, arity)
    chosen = compute if compute is not None else lambda *operands, **options: apply(function, *operands, **options)
    op = Op(
        name=name,
        family="elementwise",
        summary=summary,
        eager=_public(arity, chosen, **defaults),
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
    **defaults: Any,
) -> None:
    """A record of one operand; `given` and `gives` are its example, a nested list before and after."""
    call = (f"sr.{name}(sr.ragged({given})).tolist()", gives)
    enter(name, 1, function, summary, kinds, call, gradient, others, compute, dtype, **defaults)


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
) -> None:
    """A record of two operands; the example's `given` is both, as the call writes them."""
    example = (f"sr.{name}({given}).tolist()", gives)
    enter(name, 2, function, summary, kinds, example, gradient, others, dtype=dtype)
