"""Elementwise operations: functions of numbers, comparisons and bits, mostly the array API's."""

from __future__ import annotations

import cmath
import math
from typing import Any

import torch

from serrate.eager import meanings
from serrate.eager.elementwise import Elementwise, apply, operands_of
from serrate.ops.record import ALL, FLOAT, INTEGER, NUMERIC, REAL, ops, torch_names
from serrate.ops.rules import conjugate, slope_of_size
from serrate.ops.scalar import binary, enter, torch_dtype, unary
from serrate.tensor import bits, broadcast, promotion
from serrate.tensor.tensor import Tensor, as_tensor

_TRUTH = "the result is a truth value"
_WHOLE = "elements are integers or bools"
_STEP = "the result is constant between steps"


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
    """x1 where the condition holds, else x2.

    A Python bool is a condition for all elements: the result has the shape and the dtype that both have together.

    >>> import serrate as sr
    >>> x = sr.ragged([[1, 2], [], [3]])
    >>> sr.where(x > 1, x, 0).tolist()
    [[0, 2], [], [3]]
    >>> sr.where(False, x, x * 2).tolist()
    [[2, 4], [], [6]]
    """
    given = broadcast.plain_number(condition)
    if isinstance(given, bool):
        near = next((each for each in (x1, x2) if isinstance(each, (Tensor, torch.Tensor))), None)
        given = given if near is None else torch.tensor(given, device=near.device)
    elif not isinstance(given, (Tensor, torch.Tensor)):
        given = as_tensor(given)
    if not isinstance(given, bool) and given.dtype != torch.bool:
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


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _clip_body(x: Any, /, min: Any = None, max: Any = None) -> Any:
    made = x
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is not None and not _is_idle(bound, torch_dtype(x), name):
            made = ops[name](made, bound)
    same_kind = torch_dtype(made).is_floating_point == torch_dtype(x).is_floating_point
    return ops.astype(made, x.dtype) if same_kind else made


def _clip_vjp(g: Any, out: Any, x: Any, min: Any, max: Any) -> tuple[Any, Any, Any]:
    below = None if min is None else x < min
    above = None if max is None else x > max
    for_x = g
    for inside in (None if min is None else x >= min, None if max is None else x <= max):  # NaN is not
        for_x = for_x if inside is None else ops.where(inside, for_x, 0)
    cut = None if below is None else ops.where(below, g, 0)
    if cut is not None and above is not None:  # a lower bound above the upper one gives the upper one
        cut = ops.where(ops.maximum(x, min) > max, 0, cut)
        above = ops.maximum(x, min) > max
    return for_x, cut, None if above is None else ops.where(above, g, 0)


def _acosh_factor(out: Any, x: Any) -> Any:
    """On the complex plane the root of a product is not the product of the roots."""
    return 1 / (ops.sqrt(x - 1) * ops.sqrt(x + 1)) if x.is_complex() else ops.rsqrt(x * x - 1)


def _sign_vjp(g: Any, out: Any, x: Any) -> Any:
    """Only complex signs, points of the unit circle, change with the element."""
    if not x.is_complex():
        return None
    size = ops.abs(x)
    return ops.where(size == 0, 0, g / size - ops.real(g / x) * out)


def _extreme_vjp(g: Any, smaller: Any, greater: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Of two equal elements each has half of the gradient."""
    shared = ops.where(ops.equal(x1, x2), g / 2, g)
    return ops.where(smaller, 0, shared), ops.where(greater, 0, shared)


def _pow_factors(out: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    if not isinstance(x2, (Tensor, torch.Tensor)):
        return (0 if x2 == 0 else x2 * ops.pow(x1, x2 - 1)), 0
    if not isinstance(x1, (Tensor, torch.Tensor)):
        by_exponent = out * _logarithm(x1)
        return 0, ops.where(ops.real(x2) >= 0, 0, by_exponent) if x1 == 0 else by_exponent
    by_base = ops.where(ops.equal(x2, 0), 0, x2 * ops.pow(x1, x2 - 1))
    at_zero = ops.logical_and(ops.equal(x1, 0), ops.real(x2) >= 0)
    return by_base, ops.where(at_zero, 0, out * ops.log(x1))


def _logarithm(number: complex) -> complex:
    """The logarithm of a number, as torch has it where there is none."""
    if isinstance(number, complex):
        return cmath.log(number) if number else complex(-math.inf)
    return math.log(number) if number > 0 else -math.inf if number == 0 else math.nan


def _logaddexp_body(x1: Any, x2: Any, /) -> Any:
    same = ops.logical_and(ops.isinf(x1), ops.equal(x1, x2))  # whose difference is NaN
    return ops.where(same, x1, ops.maximum(x1, x2) + ops.log1p(ops.exp(-ops.abs(x1 - x2))))


def _divide_vjp(g: Any, out: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    for_x1 = g / conjugate(x2)
    return for_x1, -for_x1 * conjugate(out)


def _atan2_factors(out: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    square = x1 * x1 + x2 * x2
    share = ops.where(square == 0, 0, 1 / square)
    return x2 * share, -x1 * share


def _copysign_vjp(g: Any, out: Any, x1: Any, x2: Any) -> tuple[Any, None]:
    return ops.where(ops.equal(x1, 0), 0, ops.where(ops.signbit(x1) == ops.signbit(x2), g, -g)), None


# fmt: off
# ------------------------------------------------------------------------------------------------ one operand

unary("abs", torch.abs, "Absolute value.", "[[-1., 2.], []]", "[[1.0, 2.0], []]", NUMERIC, ("absolute",),
      vjp=lambda g, out, x: g * slope_of_size(x))
unary("acos", torch.acos, "Inverse cosine.", "[[1.], []]", "[[0.0], []]", others=("arccos",), meaning=meanings.acos,
      derivative=lambda out, x: -ops.rsqrt(1 - x * x))
unary("acosh", torch.acosh, "Inverse hyperbolic cosine.", "[[1.], []]", "[[0.0], []]", others=("arccosh",),
      derivative=_acosh_factor)
unary("asin", torch.asin, "Inverse sine.", "[[0.], []]", "[[0.0], []]", others=("arcsin",),
      derivative=lambda out, x: ops.rsqrt(1 - x * x))
unary("asinh", torch.asinh, "Inverse hyperbolic sine.", "[[0.], []]", "[[0.0], []]", others=("arcsinh",),
      derivative=lambda out, x: ops.rsqrt(x * x + 1))
unary("atan", torch.atan, "Inverse tangent.", "[[0.], []]", "[[0.0], []]", others=("arctan",),
      derivative=lambda out, x: 1 / (x * x + 1))
unary("atanh", torch.atanh, "Inverse hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", others=("arctanh",),
      derivative=lambda out, x: 1 / (1 - x * x))
unary("bitwise_invert", torch.bitwise_not, "Every bit inverted.", "[[0, 1], []]", "[[-1, -2], []]", INTEGER,
      flat=_WHOLE)
unary("ceil", torch.ceil, "The least integer not below.", "[[1.2], []]", "[[2.0], []]", REAL, flat=_STEP)
unary("conj", torch.conj_physical, "Complex conjugate.", "[[1.+2j]]", "[[(1-2j)]]", NUMERIC, ("conj",),
      vjp=lambda g, out, x: ops.conj(g))
unary("cos", torch.cos, "Cosine.", "[[0.], []]", "[[1.0], []]", derivative=lambda out, x: -ops.sin(x))
unary("cosh", torch.cosh, "Hyperbolic cosine.", "[[0.], []]", "[[1.0], []]", derivative=lambda out, x: ops.sinh(x))
unary("exp", torch.exp, "e to the power of each element.", "[[0.], []]", "[[1.0], []]", derivative=lambda out, x: out)
unary("expm1", torch.expm1, "exp(x) - 1, exact near 0.", "[[0.], []]", "[[0.0], []]", meaning=meanings.expm1,
      derivative=lambda out, x: out + 1)
unary("floor", torch.floor, "The greatest integer not above.", "[[1.8], []]", "[[1.0], []]", REAL, flat=_STEP)
unary("imag", torch.imag, "Imaginary part.", "[[1.+2j]]", "[[2.0]]", ("complex",), compute=_imag,
      vjp=lambda g, out, x: 1j * g)
unary("isfinite", torch.isfinite, "Where an element is neither infinite nor NaN.", "[[1., float('inf')]]",
      "[[True, False]]", ALL, flat=_TRUTH)
unary("isinf", torch.isinf, "Where an element is infinite.", "[[1., float('inf')]]", "[[False, True]]", ALL,
      flat=_TRUTH)
unary("isnan", torch.isnan, "Where an element is NaN.", "[[1., float('nan')]]", "[[False, True]]", ALL, flat=_TRUTH)
unary("log", torch.log, "Natural logarithm.", "[[1.], []]", "[[0.0], []]", derivative=lambda out, x: 1 / x)
unary("log1p", torch.log1p, "log(1 + x), exact near 0.", "[[0.], []]", "[[0.0], []]", meaning=meanings.log1p,
      derivative=lambda out, x: 1 / (1 + x))
unary("log2", torch.log2, "Logarithm to base 2.", "[[8.], []]", "[[3.0], []]",
      derivative=lambda out, x: 1 / (x * 0.6931471805599453))
unary("log10", torch.log10, "Logarithm to base 10.", "[[100.], []]", "[[2.0], []]",
      derivative=lambda out, x: 1 / (x * 2.302585092994046))
unary("logical_not", torch.logical_not, "Where an element is 0 or False.", "[[True, False]]", "[[False, True]]", ALL,
      flat=_TRUTH)
unary("negative", torch.neg, "Each element with the other sign.", "[[1, -2]]", "[[-1, 2]]", NUMERIC,
      ("negative", "neg"), meaning=meanings.negative, derivative=lambda out, x: -1)
unary("positive", torch.positive, "Each element as it is.", "[[1, -2]]", "[[1, -2]]", NUMERIC,
      body=lambda x, /: ops.astype(x, x.dtype), derivative=lambda out, x: 1)
unary("real", torch.real, "Real part.", "[[1.+2j]]", "[[1.0]]", ("complex", "float"), compute=_real,
      vjp=lambda g, out, x: g)
unary("reciprocal", torch.reciprocal, "1 / x.", "[[2.], []]", "[[0.5], []]", body=lambda x, /: 1 / x,
      derivative=lambda out, x: -out * out)
unary("round", torch.round, "The nearest integer, halves to even.", "[[0.5, 1.5]]", "[[0.0, 2.0]]", NUMERIC,
      meaning=meanings.round, flat=_STEP)
unary("rsqrt", torch.rsqrt, "1 / sqrt(x).", "[[4.], []]", "[[0.5], []]",
      derivative=lambda out, x: -0.5 * out * out * out)
unary("sign", torch.sgn, "-1, 0 or 1 by sign; for complex numbers x / abs(x).", "[[-2., 0.]]", "[[-1.0, 0.0]]",
      NUMERIC, ("sign", "sgn"), meaning=meanings.sign, vjp=_sign_vjp)
unary("signbit", torch.signbit, "Where the sign bit is set, that of -0.0 too.", "[[-0., 1.]]", "[[True, False]]", REAL,
      flat=_TRUTH)
unary("sin", torch.sin, "Sine.", "[[0.], []]", "[[0.0], []]", derivative=lambda out, x: ops.cos(x))
unary("sinh", torch.sinh, "Hyperbolic sine.", "[[0.], []]", "[[0.0], []]", derivative=lambda out, x: ops.cosh(x))
unary("sqrt", torch.sqrt, "Square root.", "[[4.], []]", "[[2.0], []]", derivative=lambda out, x: 0.5 / out)
unary("square", torch.square, "x * x.", "[[3, -2]]", "[[9, 4]]", NUMERIC, body=lambda x, /: x * x,
      derivative=lambda out, x: 2 * x)
unary("tan", torch.tan, "Tangent.", "[[0.], []]", "[[0.0], []]", derivative=lambda out, x: out * out + 1)
unary("tanh", torch.tanh, "Hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", derivative=lambda out, x: 1 - out * out)
unary("trunc", torch.trunc, "The integer towards 0.", "[[-1.8], []]", "[[-1.0], []]", REAL, ("fix",), flat=_STEP)
unary("erf", torch.erf, "The error function.", "[[0.], []]", "[[0.0], []]", FLOAT,
      derivative=lambda out, x: 1.1283791670955126 * ops.exp(-x * x))

# ------------------------------------------------------------------------------------------------ two operands

_X = "sr.ragged([[1, 2], [3]])"
_Y = "sr.ragged([[4, 5], [6]])"
_F = "sr.ragged([[1., 2.], [4.]])"
_B = "sr.ragged([[True, False], [True]])"
binary("add", torch.add, "x1 + x2.", f"{_X}, {_Y}", "[[5, 7], [9]]", NUMERIC, meaning=meanings.add,
       derivative=lambda out, x1, x2: (1, 1))
binary("atan2", torch.atan2, "The angle of the point (x2, x1).", "sr.ragged([[0.], [0.]]), 1.0", "[[0.0], [0.0]]",
       FLOAT, ("arctan2",), takes_numbers=False, derivative=_atan2_factors)
binary("bitwise_and", torch.bitwise_and, "Bits set in both.", f"{_X}, 2", "[[0, 2], [2]]", INTEGER, flat=_WHOLE)
binary("bitwise_or", torch.bitwise_or, "Bits set in either.", f"{_X}, 4", "[[5, 6], [7]]", INTEGER, flat=_WHOLE)
binary("bitwise_xor", torch.bitwise_xor, "Bits set in one but not both.", f"{_X}, 1", "[[0, 3], [2]]", INTEGER,
       flat=_WHOLE)
binary("bitwise_left_shift", torch.bitwise_left_shift, "Bits of x1 moved up by x2.", f"{_X}, 1", "[[2, 4], [6]]",
       ("int",), flat=_WHOLE)
binary("bitwise_right_shift", torch.bitwise_right_shift, "Bits of x1 moved down by x2.", f"{_Y}, 1", "[[2, 2], [3]]",
       ("int",), flat=_WHOLE)
binary("copysign", torch.copysign, "x1 with the sign of x2.", f"{_F}, -1.0", "[[-1.0, -2.0], [-4.0]]", FLOAT,
       takes_numbers=False, vjp=_copysign_vjp)
binary("divide", torch.true_divide, "x1 / x2.", f"{_F}, 2", "[[0.5, 1.0], [2.0]]", NUMERIC, ("div", "divide"),
       in_floats=True, divides=True, vjp=_divide_vjp)
binary("equal", torch.eq, "Where x1 == x2.", f"{_X}, 2", "[[False, True], [False]]", ALL, beyond=(False, False),
       flat=_TRUTH)
binary("floor_divide", torch.floor_divide, "x1 / x2 rounded down.", f"{_Y}, 4", "[[1, 1], [1]]", REAL,
       meaning=meanings.floor_divide, divides=True, flat=_STEP)
binary("greater", torch.gt, "Where x1 > x2.", f"{_X}, 1", "[[False, True], [True]]", REAL, beyond=(False, True),
       flat=_TRUTH)
binary("greater_equal", torch.ge, "Where x1 >= x2.", f"{_X}, 2", "[[False, True], [True]]", REAL,
       beyond=(False, True), flat=_TRUTH)
binary("hypot", torch.hypot, "sqrt(x1² + x2²).", "sr.ragged([[3.]]), sr.ragged([[4.]])", "[[5.0]]", FLOAT,
       takes_numbers=False, derivative=lambda out, x1, x2: (x1 / out, x2 / out))
binary("less", torch.lt, "Where x1 < x2.", f"{_X}, 2", "[[True, False], [False]]", REAL, beyond=(True, False),
       flat=_TRUTH)
binary("less_equal", torch.le, "Where x1 <= x2.", f"{_X}, 2", "[[True, True], [False]]", REAL, beyond=(True, False),
       flat=_TRUTH)
binary("logaddexp", torch.logaddexp, "log(exp(x1) + exp(x2)).",
       "sr.ragged([[0.]]), float('-inf') + sr.ragged([[0.]])", "[[0.0]]", FLOAT, takes_numbers=False,
       body=_logaddexp_body, derivative=lambda out, x1, x2: (ops.sigmoid(x1 - x2), ops.sigmoid(x2 - x1)))
binary("logical_and", torch.logical_and, "Where both hold.", f"{_B}, {_B}", "[[True, False], [True]]", ALL,
       takes_numbers=False, flat=_TRUTH)
binary("logical_or", torch.logical_or, "Where either holds.", f"{_B}, {_B}", "[[True, False], [True]]", ALL,
       takes_numbers=False, flat=_TRUTH)
binary("logical_xor", torch.logical_xor, "Where one holds but not both.", f"{_B}, {_B}", "[[False, False], [False]]",
       ALL, takes_numbers=False, flat=_TRUTH)
binary("maximum", torch.maximum, "The greater of both, NaN if either is.", f"{_X}, {_Y}", "[[4, 5], [6]]", REAL,
       takes_numbers=False,
       vjp=lambda g, out, x1, x2: _extreme_vjp(g, ops.less(x1, x2), ops.greater(x1, x2), x1, x2))
binary("minimum", torch.minimum, "The smaller of both, NaN if either is.", f"{_X}, {_Y}", "[[1, 2], [3]]", REAL,
       takes_numbers=False,
       vjp=lambda g, out, x1, x2: _extreme_vjp(g, ops.greater(x1, x2), ops.less(x1, x2), x1, x2))
binary("multiply", torch.mul, "x1 * x2.", f"{_X}, {_Y}", "[[4, 10], [18]]", NUMERIC, ("mul", "multiply"),
       vjp=lambda g, out, x1, x2: (g * conjugate(x2), g * conjugate(x1)))
binary("nextafter", torch.nextafter, "The next number after x1 towards x2.", "sr.ragged([[0.]]), sr.ragged([[0.]])",
       "[[0.0]]", FLOAT, takes_numbers=False, vjp=lambda g, out, x1, x2: (ops.where(ops.equal(x1, x2), 0, g), None))
binary("not_equal", torch.ne, "Where x1 != x2.", f"{_X}, 2", "[[True, False], [True]]", ALL, beyond=(True, True),
       flat=_TRUTH)
binary("pow", torch.pow, "x1 to the power of x2.", f"{_X}, 2", "[[1, 4], [9]]", NUMERIC, meaning=meanings.pow,
       derivative=_pow_factors)
binary("remainder", torch.remainder, "What is left of x1 / x2, with the sign of x2.", f"{_Y}, 4", "[[0, 1], [2]]",
       REAL, meaning=meanings.remainder, divides=True,
       derivative=lambda out, x1, x2: (1, -ops.floor_divide(x1, x2)))
binary("subtract", torch.sub, "x1 - x2.", f"{_Y}, {_X}", "[[3, 3], [3]]", NUMERIC, ("sub", "subtract"),
       meaning=meanings.subtract, derivative=lambda out, x1, x2: (1, -1))

# ------------------------------------------------------------------------------------------------ more operands

enter("where", 3, torch.where, "x1 where the condition holds, else x2.", ALL,
      (f"sr.where({_B}, {_X}, 0).tolist()", "[[1, 0], [3]]"), compute=_where, in_bits=False,
      spellings=dict.fromkeys(torch_names("masked_fill"), _masked_fill),
      vjp=lambda g, out, condition, x1, x2: (None, ops.where(condition, g, 0), ops.where(condition, 0, g)))
enter("clip", 1, torch.clamp, "Each element no less than `min` and no more than `max`.", REAL,
      (f"sr.clip({_X}, min=2).tolist()", "[[2, 2], [3]]"), ("clip", "clamp"), compute=_clip,
      operands=("x", "min", "max"), body=_clip_body, vjp=_clip_vjp)
# fmt: on
