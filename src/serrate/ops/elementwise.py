"""Elementwise operations: on packed values as they are, operands stretched to a common shape.

The array API's functions and those that networks need. A number or a torch tensor may stand for any operand; a uniform
axis of size 1 and a missing leading axis stretch, along ragged axes too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from serrate.eager import meanings
from serrate.eager.elementwise import Elementwise, apply, operands_of
from serrate.errors import RaggednessError
from serrate.ops.record import (
    ALL,
    FLOAT,
    FLOATS,
    INTEGER,
    NUMERIC,
    REAL,
    Error,
    Kind,
    define,
    operation,
    torch_names,
)
from serrate.tensor import bits, broadcast, promotion
from serrate.tensor.tensor import Tensor, as_tensor

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

    return handler


def _enter(
    name: str,
    arity: int,
    function: Callable[..., torch.Tensor],
    summary: str,
    kinds: tuple[Kind, ...],
    example: tuple[str, str],
    gradient: str,
    others: tuple[str, ...] = (),
    compute: Callable[..., Tensor] | None = None,
    operands: tuple[str, ...] | None = None,
    spellings: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    defaults: dict[str, Any] | None = None,
    **properties: Any,
) -> None:
    """A record of any number of operands.

    `others` are further names torch has for it, `compute` what computes it where its `Elementwise` does not do so
    alone, `properties` those of the `Elementwise`.
    """
    run = Elementwise(name, function, kinds, **{"in_floats": "int" not in kinds} | properties)
    answered = [f for f in (function, *torch_names(name, function.__name__, *others)) if f not in _OTHER_MEANING]
    define(
        operation(_public(arity, run, defaults or {}) if compute is None else compute),
        name,
        family="elementwise",
        summary=summary,
        spellings={each: _answer(run, each, arity) for each in answered} | (spellings or {}),
        operands=operands,
        kinds=kinds,
        gradient=gradient,
        example=example,
        samples={1: ("x",), 2: ("x, x", "x, torch.ones([1] * x.ndim, dtype=x.dtype)"), 3: ("x != 0, x, x",)}[arity],
        errors={1: (_NO_TENSOR,), 2: (_OTHER_ROWS, _OTHER_SIZE), 3: (_OTHER_THIRD,)}[arity],
        traced=True,
    )


def _unary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    gradient: str,
    kinds: tuple[Kind, ...] = FLOATS,
    others: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """A record of one operand; `given` and `gives` are its example, a nested list before and after."""
    _enter(
        name, 1, function, summary, kinds, (f"sr.{name}(sr.ragged({given})).tolist()", gives), gradient, others, **more
    )


def _binary(
    name: str,
    function: Callable[..., torch.Tensor],
    summary: str,
    given: str,
    gives: str,
    gradient: str,
    kinds: tuple[Kind, ...] = NUMERIC,
    others: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """A record of two operands; the example's `given` is both, as the call writes them."""
    _enter(name, 2, function, summary, kinds, (f"sr.{name}({given}).tolist()", gives), gradient, others, **more)


# ------------------------------------------------------------------------------------------- implementations


def _real(x: Any, /) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype == torch.bool:
        raise TypeError(f"real needs numeric elements, got {tensor.dtype}")
    return tensor._with(tensor.values.real)


def _imag(x: Any, /) -> Tensor:
    tensor = as_tensor(x)
    if not tensor.is_complex():
        raise TypeError(f"imag needs complex elements, got {tensor.dtype}")
    return tensor._with(tensor.values.imag)


def _clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    given = as_tensor(x)
    if given.dtype == torch.bool or given.is_complex():
        raise TypeError(f"clip takes elements of the kinds float, int, got {given.dtype}")
    made = given
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is not None and not _is_idle(bound, given.dtype, name):
            made = broadcast.elementwise(_BOUNDED[name].on_values, operands_of("clip", (made, bound)))
    if made is given:
        return given.clone()
    return made.to(given.dtype) if made.is_floating_point() == given.is_floating_point() else made


# As maximum and minimum, but at the bound the gradient is all the element's.
_BOUNDED = {
    "maximum": Elementwise("maximum", torch.clamp_min, REAL),
    "minimum": Elementwise("minimum", torch.clamp_max, REAL),
}


def _is_idle(bound: Any, dtype: torch.dtype, name: str) -> bool:
    """Whether a bound lies beyond all integers of the dtype, on the side where it changes nothing."""
    if isinstance(bound, (Tensor, torch.Tensor)) or promotion.fits(bound, dtype):
        return False
    return bool(bound < 0) == (name == "maximum")


def _where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    given = condition if isinstance(condition, (Tensor, torch.Tensor)) else as_tensor(condition)
    if given.dtype != torch.bool:
        raise TypeError(f"where takes a condition of bools, got {given.dtype}")
    return broadcast.elementwise(_chosen, operands_of("where", (given, x1, x2)))


def _masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
    """torch's masked_fill: `value` where the mask holds, else the element."""
    return apply(torch.where, mask, value, self)


def _chosen(condition: torch.Tensor, x1: Any, x2: Any) -> torch.Tensor:
    """torch's where, with the array API's dtypes."""
    if not isinstance(x1, torch.Tensor) and not isinstance(x2, torch.Tensor):
        return torch.where(condition, x1, x2)
    dtype = promotion.together((x1, x2))
    for value in (x1, x2):
        promotion.require_fit("where", value, dtype)
    made = [v.to(dtype) if isinstance(v, torch.Tensor) else promotion.as_operand(v, dtype) for v in (x1, x2)]
    return bits.where(condition, *made)


# fmt: off

# ------------------------------------------------------------------------------------------------ one operand

_unary("abs", torch.abs, "Absolute value.", "[[-1., 2.], []]", "[[1.0, 2.0], []]", "g * sign(x)", NUMERIC,
      ("absolute",))
_unary("acos", torch.acos, "Inverse cosine.", "[[1.], []]", "[[0.0], []]", "-g / sqrt(1 - x * x)", others=("arccos",),
      meaning=meanings.acos)
_unary("acosh", torch.acosh, "Inverse hyperbolic cosine.", "[[1.], []]", "[[0.0], []]", "g / sqrt(x * x - 1)",
      others=("arccosh",))
_unary("asin", torch.asin, "Inverse sine.", "[[0.], []]", "[[0.0], []]", "g / sqrt(1 - x * x)", others=("arcsin",))
_unary("asinh", torch.asinh, "Inverse hyperbolic sine.", "[[0.], []]", "[[0.0], []]", "g / sqrt(x * x + 1)",
      others=("arcsinh",))
_unary("atan", torch.atan, "Inverse tangent.", "[[0.], []]", "[[0.0], []]", "g / (1 + x * x)", others=("arctan",))
_unary("atanh", torch.atanh, "Inverse hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", "g / (1 - x * x)",
      others=("arctanh",))
_unary("bitwise_invert", torch.bitwise_not, "Every bit inverted.", "[[0, 1], []]", "[[-1, -2], []]", "", INTEGER)
_unary("ceil", torch.ceil, "The least integer not below.", "[[1.2], []]", "[[2.0], []]", "0 * g", REAL)
_unary("conj", torch.conj_physical, "Complex conjugate.", "[[1.+2j]]", "[[(1-2j)]]", "conj(g)", NUMERIC, ("conj",))
_unary("cos", torch.cos, "Cosine.", "[[0.], []]", "[[1.0], []]", "-g * sin(x)")
_unary("cosh", torch.cosh, "Hyperbolic cosine.", "[[0.], []]", "[[1.0], []]", "g * sinh(x)")
_unary("exp", torch.exp, "e to the power of each element.", "[[0.], []]", "[[1.0], []]", "g * out")
_unary("expm1", torch.expm1, "exp(x) - 1, exact near 0.", "[[0.], []]", "[[0.0], []]", "g * (out + 1)",
      meaning=meanings.expm1)
_unary("floor", torch.floor, "The greatest integer not above.", "[[1.8], []]", "[[1.0], []]", "0 * g", REAL)
_unary("imag", torch.imag, "Imaginary part.", "[[1.+2j]]", "[[2.0]]", "", ("complex",), compute=_imag)
_unary("isfinite", torch.isfinite, "Where an element is neither infinite nor NaN.", "[[1., float('inf')]]",
      "[[True, False]]", "", ALL)
_unary("isinf", torch.isinf, "Where an element is infinite.", "[[1., float('inf')]]", "[[False, True]]", "", ALL)
_unary("isnan", torch.isnan, "Where an element is NaN.", "[[1., float('nan')]]", "[[False, True]]", "", ALL)
_unary("log", torch.log, "Natural logarithm.", "[[1.], []]", "[[0.0], []]", "g / x")
_unary("log1p", torch.log1p, "log(1 + x), exact near 0.", "[[0.], []]", "[[0.0], []]", "g / (1 + x)",
      meaning=meanings.log1p)
_unary("log2", torch.log2, "Logarithm to base 2.", "[[8.], []]", "[[3.0], []]", "g / (x * 0.6931471805599453)")
_unary("log10", torch.log10, "Logarithm to base 10.", "[[100.], []]", "[[2.0], []]", "g / (x * 2.302585092994046)")
_unary("logical_not", torch.logical_not, "Where an element is 0 or False.", "[[True, False]]", "[[False, True]]", "",
      ALL)
_unary("negative", torch.neg, "Each element with the other sign.", "[[1, -2]]", "[[-1, 2]]", "-g", NUMERIC,
      ("negative", "neg"), meaning=meanings.negative)
_unary("positive", torch.positive, "Each element as it is.", "[[1, -2]]", "[[1, -2]]", "g", NUMERIC)
_unary("real", torch.real, "Real part.", "[[1.+2j]]", "[[1.0]]", "g", ("complex", "float"), compute=_real)
_unary("reciprocal", torch.reciprocal, "1 / x.", "[[2.], []]", "[[0.5], []]", "-g * out * out")
_unary("round", torch.round, "The nearest integer, halves to even.", "[[0.5, 1.5]]", "[[0.0, 2.0]]", "0 * g", NUMERIC,
      meaning=meanings.round)
_unary("rsqrt", torch.rsqrt, "1 / sqrt(x).", "[[4.], []]", "[[0.5], []]", "-g * out * out * out / 2")
_unary("sign", torch.sgn, "-1, 0 or 1 by sign; for complex numbers x / abs(x).", "[[-2., 0.]]", "[[-1.0, 0.0]]",
      "0 * g", NUMERIC, ("sign", "sgn"), meaning=meanings.sign)
_unary("signbit", torch.signbit, "Where the sign bit is set, that of -0.0 too.", "[[-0., 1.]]", "[[True, False]]", "",
      REAL)
_unary("sin", torch.sin, "Sine.", "[[0.], []]", "[[0.0], []]", "g * cos(x)")
_unary("sinh", torch.sinh, "Hyperbolic sine.", "[[0.], []]", "[[0.0], []]", "g * cosh(x)")
_unary("sqrt", torch.sqrt, "Square root.", "[[4.], []]", "[[2.0], []]", "g / (2 * out)")
_unary("square", torch.square, "x * x.", "[[3, -2]]", "[[9, 4]]", "2 * g * x", NUMERIC)
_unary("tan", torch.tan, "Tangent.", "[[0.], []]", "[[0.0], []]", "g * (1 + out * out)")
_unary("tanh", torch.tanh, "Hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", "g * (1 - out * out)")
_unary("trunc", torch.trunc, "The integer towards 0.", "[[-1.8], []]", "[[-1.0], []]", "0 * g", REAL, ("fix",))
_unary("erf", torch.erf, "The error function.", "[[0.], []]", "[[0.0], []]",
      "g * 1.1283791670955126 * exp(-x * x)", FLOAT)
_unary("relu", torch.relu, "The greater of x and 0.", "[[-1., 2.]]", "[[0.0, 2.0]]", "where(x > 0, g, 0 * g)", REAL)
_unary("sigmoid", torch.sigmoid, "1 / (1 + exp(-x)).", "[[0.], []]", "[[0.5], []]", "g * out * (1 - out)", FLOATS,
      ("expit",))
_unary("log_sigmoid", F.logsigmoid, "log(sigmoid(x)).", "[[float('-inf')], []]", "[[-inf], []]",
      "g * sigmoid(-x)", FLOAT,
      ("logsigmoid",))
_unary("silu", F.silu, "x * sigmoid(x).", "[[0.], []]", "[[0.0], []]", "g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
      FLOAT)
_unary("softplus", F.softplus, "log(1 + exp(x)).", "[[100.], []]", "[[100.0], []]", "g * sigmoid(x)", FLOAT)
_unary("gelu", F.gelu, "x times the normal distribution's cumulative probability of x.", "[[0.], []]", "[[0.0], []]",
      "g * ((1 + erf(x * 0.7071067811865476)) / 2 + x * exp(-x * x / 2) * 0.3989422804014327)", FLOAT,
      defaults={"approximate": "none"})
_unary("leaky_relu", F.leaky_relu, "x, or a small multiple of it below 0.", "[[-100., 1.]]", "[[-1.0, 1.0]]",
      "where(x > 0, g, negative_slope * g)", FLOAT, defaults={"negative_slope": 0.01})
_unary("elu", F.elu, "x, or alpha * (exp(x) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]",
      "where(x > 0, g, g * (out + alpha))", FLOAT, defaults={"alpha": 1.0})
_unary("mish", F.mish, "x * tanh(softplus(x)).", "[[0.], []]", "[[0.0], []]",
      "g * (tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x)))))", FLOAT)

_unary("celu", F.celu, "x, or alpha * (exp(x / alpha) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]",
      "where(x > 0, g, g * exp(x / alpha))", FLOAT, defaults={"alpha": 1.0})
_unary("hardtanh", F.hardtanh, "x between -1 and 1.", "[[-3., 0.5]]", "[[-1.0, 0.5]]",
      "where(logical_and(x > -1, x < 1), g, 0 * g)", FLOAT)
_unary("relu6", F.relu6, "x between 0 and 6.", "[[-3., 7.]]", "[[0.0, 6.0]]",
      "where(logical_and(x > 0, x < 6), g, 0 * g)", REAL)
_unary("hardswish", F.hardswish, "x times (x + 3) / 6 between 0 and 1.", "[[0., 9.]]", "[[0.0, 9.0]]",
      "where(x < -3, 0 * g, where(x <= 3, g * (x / 3 + 0.5), g))", FLOAT)
_unary("softsign", F.softsign, "x / (1 + abs(x)).", "[[0., 1.]]", "[[0.0, 0.5]]", "g / square(1 + abs(x))", FLOAT)
_unary("tanhshrink", F.tanhshrink, "x - tanh(x).", "[[0.], []]", "[[0.0], []]", "g * square(tanh(x))", FLOAT)
_unary("nan_to_num", torch.nan_to_num, "0 for NaN, and the greatest and least numbers for infinities.",
      "[[float('nan'), 1.]]", "[[0.0, 1.0]]", "where(isfinite(x), g, 0 * g)", REAL,
       defaults={"nan": 0.0, "posinf": None, "neginf": None})

# ------------------------------------------------------------------------------------------------ two operands

_X = "sr.ragged([[1, 2], [3]])"
_Y = "sr.ragged([[4, 5], [6]])"
_F = "sr.ragged([[1., 2.], [4.]])"
_B = "sr.ragged([[True, False], [True]])"
_binary("add", torch.add, "x1 + x2.", f"{_X}, {_Y}", "[[5, 7], [9]]", "(g, g)", NUMERIC, meaning=meanings.add)
_binary("atan2", torch.atan2, "The angle of the point (x2, x1).", "sr.ragged([[0.], [0.]]), 1.0", "[[0.0], [0.0]]",
       "(g * x2 / (x1 * x1 + x2 * x2), -g * x1 / (x1 * x1 + x2 * x2))", FLOAT, ("arctan2",), takes_numbers=False)
_binary("bitwise_and", torch.bitwise_and, "Bits set in both.", f"{_X}, 2", "[[0, 2], [2]]", "", INTEGER)
_binary("bitwise_or", torch.bitwise_or, "Bits set in either.", f"{_X}, 4", "[[5, 6], [7]]", "", INTEGER)
_binary("bitwise_xor", torch.bitwise_xor, "Bits set in one but not both.", f"{_X}, 1", "[[0, 3], [2]]", "", INTEGER)
_binary("bitwise_left_shift", torch.bitwise_left_shift, "Bits of x1 moved up by x2.", f"{_X}, 1", "[[2, 4], [6]]", "",
       ("int",))
_binary("bitwise_right_shift", torch.bitwise_right_shift, "Bits of x1 moved down by x2.", f"{_Y}, 1", "[[2, 2], [3]]",
       "", ("int",))
_binary("copysign", torch.copysign, "x1 with the sign of x2.", f"{_F}, -1.0", "[[-1.0, -2.0], [-4.0]]",
       "(where(logical_xor(signbit(x1), signbit(x2)), -g, g), 0 * g)", FLOAT, takes_numbers=False)
_binary("divide", torch.true_divide, "x1 / x2.", f"{_F}, 2", "[[0.5, 1.0], [2.0]]", "(g / x2, -g * out / x2)", NUMERIC,
       ("div", "divide"), in_floats=True, divides=True)
_binary("equal", torch.eq, "Where x1 == x2.", f"{_X}, 2", "[[False, True], [False]]", "", ALL, beyond=(False, False))
_binary("floor_divide", torch.floor_divide, "x1 / x2 rounded down.", f"{_Y}, 4", "[[1, 1], [1]]", "(0 * g, 0 * g)",
       REAL,
       meaning=meanings.floor_divide, divides=True)
_binary("greater", torch.gt, "Where x1 > x2.", f"{_X}, 1", "[[False, True], [True]]", "", REAL, beyond=(False, True))
_binary("greater_equal", torch.ge, "Where x1 >= x2.", f"{_X}, 2", "[[False, True], [True]]", "", REAL,
       beyond=(False, True))
_binary("hypot", torch.hypot, "sqrt(x1² + x2²).", "sr.ragged([[3.]]), sr.ragged([[4.]])", "[[5.0]]",
       "(g * x1 / out, g * x2 / out)", FLOAT, takes_numbers=False)
_binary("less", torch.lt, "Where x1 < x2.", f"{_X}, 2", "[[True, False], [False]]", "", REAL, beyond=(True, False))
_binary("less_equal", torch.le, "Where x1 <= x2.", f"{_X}, 2", "[[True, True], [False]]", "", REAL,
       beyond=(True, False))
_binary("logaddexp", torch.logaddexp, "log(exp(x1) + exp(x2)).",
       "sr.ragged([[0.]]), float('-inf') + sr.ragged([[0.]])", "[[0.0]]", "(g * exp(x1 - out), g * exp(x2 - out))",
       FLOAT, takes_numbers=False)
_binary("logical_and", torch.logical_and, "Where both hold.", f"{_B}, {_B}", "[[True, False], [True]]",
       "", ALL, takes_numbers=False)
_binary("logical_or", torch.logical_or, "Where either holds.", f"{_B}, {_B}", "[[True, False], [True]]",
       "", ALL, takes_numbers=False)
_binary("logical_xor", torch.logical_xor, "Where one holds but not both.", f"{_B}, {_B}", "[[False, False], [False]]",
       "", ALL, takes_numbers=False)
_binary("maximum", torch.maximum, "The greater of both, NaN if either is.", f"{_X}, {_Y}", "[[4, 5], [6]]",
       "(where(x1 == x2, g / 2, where(x1 > x2, g, 0 * g)), where(x1 == x2, g / 2, where(x2 > x1, g, 0 * g)))", REAL,
       takes_numbers=False)
_binary("minimum", torch.minimum, "The smaller of both, NaN if either is.", f"{_X}, {_Y}", "[[1, 2], [3]]",
       "(where(x1 == x2, g / 2, where(x1 < x2, g, 0 * g)), where(x1 == x2, g / 2, where(x2 < x1, g, 0 * g)))", REAL,
       takes_numbers=False)
_binary("multiply", torch.mul, "x1 * x2.", f"{_X}, {_Y}", "[[4, 10], [18]]", "(g * x2, g * x1)", NUMERIC,
       ("mul", "multiply"))
_binary("nextafter", torch.nextafter, "The next number after x1 towards x2.", "sr.ragged([[0.]]), sr.ragged([[0.]])",
       "[[0.0]]", "", FLOAT, takes_numbers=False)
_binary("not_equal", torch.ne, "Where x1 != x2.", f"{_X}, 2", "[[True, False], [True]]", "", ALL, beyond=(True, True))
_binary("pow", torch.pow, "x1 to the power of x2.", f"{_X}, 2", "[[1, 4], [9]]",
       "(g * x2 * pow(x1, x2 - 1), g * out * log(x1))", NUMERIC, meaning=meanings.pow)
_binary("remainder", torch.remainder, "What is left of x1 / x2, with the sign of x2.", f"{_Y}, 4", "[[0, 1], [2]]",
       "(g, -g * floor_divide(x1, x2))", REAL, meaning=meanings.remainder, divides=True)
_binary("subtract", torch.sub, "x1 - x2.", f"{_Y}, {_X}", "[[3, 3], [3]]", "(g, -g)", NUMERIC, ("sub", "subtract"),
       meaning=meanings.subtract)

# ------------------------------------------------------------------------------------------------ more operands

_enter("where", 3, torch.where, "x1 where the condition holds, else x2.", ALL,
       (f"sr.where({_B}, {_X}, 0).tolist()", "[[1, 0], [3]]"),
       "(None, where(condition, g, 0 * g), where(condition, 0 * g, g))",
       (), _where, in_bits=False, spellings=dict.fromkeys(torch_names("masked_fill"), _masked_fill))
_enter("clip", 1, torch.clamp, "Each element no less than `min` and no more than `max`.", REAL,
       (f"sr.clip({_X}, min=2).tolist()", "[[2, 2], [3]]"),
       "where(logical_and(x >= min, x <= max), g, 0 * g)", ("clip", "clamp"),
       _clip, operands=("x", "min", "max"))
# fmt: on
