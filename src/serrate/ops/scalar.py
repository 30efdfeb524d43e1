"""How the record of an elementwise operation is made: one row has its names, its body and the rule of its derivative.

A number or a torch tensor may stand for any operand; a uniform axis of size 1 and a missing leading axis stretch, along
ragged axes too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from serrate.eager.elementwise import Elementwise
from serrate.errors import RaggednessError
from serrate.fusion import elementwise as fusion
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar, cast
from serrate.ops.call import TRACER
from serrate.ops.record import FLOATS, NUMERIC, Error, Form, Kind, Op, define, operation, torch_names, written
from serrate.ops.rules import conjugate, reduced_to
from serrate.tensor.tensor import Tensor

_NO_TENSOR: Error = ("None", TypeError, "got NoneType")
_OTHER_ROWS: Error = (
    "x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])",
    RaggednessError,
    r"different raggedness: Ragged\(\[3, 1, 2\]\) and Ragged\(\[1, 2, 3\]\)",
)
_OTHER_THIRD: Error = ("x != 0, x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", *_OTHER_ROWS[1:])
_OTHER_SIZE: Error = ("x, torch.ones(3)", ValueError, "do not broadcast")
_OTHER_MEANING = {torch.equal, torch.Tensor.equal}  # one bool for all elements


def _public(arity: int, run: Elementwise, defaults: dict[str, Any]) -> Callable[..., Tensor]:
    """A function of positional operands and named options, with the signature the array API gives it."""
    kind = inspect.Parameter
    names = ("x",) if arity == 1 else ("x1", "x2")
    parameters = [kind(name, kind.POSITIONAL_ONLY, annotation=Any) for name in names]
    parameters += [kind(name, kind.KEYWORD_ONLY, default=each, annotation=Any) for name, each in defaults.items()]
    signature = inspect.Signature(parameters, return_annotation=Tensor)

    def function(*operands: Any, **options: Any) -> Tensor:
        if len(operands) != arity or (options and not options.keys() <= defaults.keys()):
            _refuse(run.name, signature, operands, options)
        return run(*operands, **options)

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _refuse(name: str, signature: inspect.Signature, operands: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise what a call of a function with other parameters raises."""
    try:
        signature.bind(*operands, **options)
    except TypeError as error:
        raise TypeError(f"{name}{signature.replace(return_annotation=signature.empty)}: {error}") from None


def _answer(run: Elementwise, function: Callable[..., torch.Tensor], arity: int) -> Callable[..., Tensor]:
    """torch's own function on laid-out operands, with its own defaults; `out=` has no place to write ragged results."""

    def handler(*args: Any, **options: Any) -> Tensor:
        if options.pop("out", None) is not None:
            raise TypeError(f"{function.__name__}(out=…) is not defined for sr.Tensor")
        names = [n for n in ("input", "self", "other", "exponent", "condition") if n in options]
        operands = [*args[:arity], *[options.pop(n) for n in names]]
        rest = args[arity:]
        if rest and run.name == "clip":
            options, rest = options | dict(zip(("min", "max"), rest, strict=False)), ()
        call = (lambda *values, **kw: function(*values, *rest, **kw)) if rest else function
        return run.by_torch(call, tuple(operands), options)

    handler.elementwise = run  # type: ignore[attr-defined]  # what a tracer asks whether torch means the same
    return handler


def enter(
    name: str,
    arity: int,
    function: Callable[..., torch.Tensor],
    summary: str,
    kinds: tuple[Kind, ...],
    example: tuple[str, str],
    others: tuple[str, ...] = (),
    *,
    family: str = "elementwise",
    body: Callable[..., Any] | None = None,
    derivative: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    flat: str = "",
    in_own_dtype: bool = False,
    compute: Callable[..., Tensor] | None = None,
    operands: tuple[str, ...] | None = None,
    spellings: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    defaults: dict[str, Any] | None = None,
    **properties: Any,
) -> None:
    """A record of any number of operands.

    `others` are further names torch has for it, `compute` what computes it where its `Elementwise` does not do so
    alone, `properties` those of the `Elementwise`. Without a `body` it is a primitive. The rule of its derivative is a
    `vjp`, or a `derivative`: what the gradient is multiplied by for each operand, given the result and the operands.
    A body runs in kernels too, with scalars for operands; `in_own_dtype` is for one that has to see half types there.
    """
    run = Elementwise(name, function, kinds, **{"in_floats": "int" not in kinds} | properties)
    answered = [f for f in (function, *torch_names(name, function.__name__, *others)) if f not in _OTHER_MEANING]
    define(
        operation(_public(arity, run, defaults or {}) if compute is None else compute),
        name,
        family=family,
        summary=summary,
        spellings={each: _answer(run, each, arity) for each in answered} | (spellings or {}),
        operands=operands,
        kinds=kinds,
        example=example,
        primitive="scalar" if body is None else None,
        body=body,
        vjp=_rule(vjp) if vjp else _rule(_by_factors(derivative)) if derivative else None,
        flat=flat,
        samples={1: ("x",), 2: ("x, x", "x, torch.ones([1] * x.ndim, dtype=x.dtype)"), 3: ("x != 0, x, x",)}[arity],
        errors={1: (_NO_TENSOR,), 2: (_OTHER_ROWS, _OTHER_SIZE), 3: (_OTHER_THIRD,)}[arity],
        dialect=_form(name, arity),
        traced=True,
    )
    if body is not None:
        fusion.enter(
            name, arity, _expression(body, arity), function, in_floats=run.in_floats, in_own_dtype=in_own_dtype
        )


def _form(name: str, arity: int) -> Form:
    """How programs are written that call it: functions that give truths are tests."""
    if arity == 3:
        return written(name, condition="cond", x1="rhs", x2="lhs")
    known = FUNCTIONS.get(name)
    what = "test" if known is not None and known.result == "bool" else "op"
    return written(f"elementwise_{'unary' if arity == 1 else 'binary'}_{what}", name, x="rhs", x1="lhs", x2="rhs")


def _rule(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, whose gradients have the shape of the result, for operands that may have been stretched to it."""

    def reduced(gradient: Any, out: Any, *operands: Any, **attributes: Any) -> Any:
        made = vjp(gradient, out, *operands, **attributes)
        if len(operands) == 1:
            return reduced_to(made, operands[0])
        return tuple(reduced_to(each, x) for each, x in zip(made, operands, strict=True))

    return reduced


def _by_factors(derivative: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a function with these derivatives; of those of complex functions the conjugates count."""

    def vjp(gradient: Any, out: Any, *operands: Any, **attributes: Any) -> Any:
        factors = derivative(out, *operands, **attributes)
        if len(operands) == 1:
            return _times(gradient, factors)
        return tuple(_times(gradient, factor) for factor in factors)

    return vjp


def _times(gradient: Any, factor: Any) -> Any:
    if isinstance(factor, int):
        return {0: None, 1: gradient, -1: -gradient}[factor]
    return gradient * conjugate(factor)


# ------------------------------------------------------------------------------------------------ bodies in kernels


def _expression(body: Callable[..., Any], arity: int) -> Callable[..., Scalar]:
    """The body of an elementwise operation as a function of scalars: its operations become functions of scalars."""
    kind = inspect.Parameter
    parameters = list(inspect.signature(body).parameters.values())
    options = [p.replace(kind=kind.KEYWORD_ONLY) for p in parameters[arity:]]

    def expression(*operands: Scalar, **given: Any) -> Scalar:
        token = TRACER.set(_of_scalars)
        try:
            return body(*operands, **given)  # type: ignore[no-any-return]
        finally:
            TRACER.reset(token)

    expression.__signature__ = inspect.Signature(parameters[:arity] + options)  # type: ignore[attr-defined]
    return expression


def _of_scalars(op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Any) -> Scalar:
    """An operation in the body of another one, called with scalars."""
    if op.primitive == "cast":
        return cast(*arguments)
    return fusion.call(op.name, *arguments, **named)


def torch_dtype(x: Any) -> torch.dtype:
    """The dtype of an operand of a body: a tensor, or a scalar of a kernel."""
    return getattr(torch, x.dtype) if isinstance(x.dtype, str) else x.dtype  # type: ignore[no-any-return]


def unary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    kinds: tuple[Kind, ...] = FLOATS,
    others: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """A record of one operand; `given` and `gives` are its example, a nested list before and after."""
    enter(name, 1, function, summary, kinds, (f"sr.{name}(sr.ragged({given})).tolist()", gives), others, **more)


def binary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    kinds: tuple[Kind, ...] = NUMERIC,
    others: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """A record of two operands; the example's `given` is both, as the call writes them."""
    enter(name, 2, function, summary, kinds, (f"sr.{name}({given}).tolist()", gives), others, **more)
