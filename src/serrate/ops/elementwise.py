"""Elementwise operations: on packed values as they are, operands stretched to a common shape.

The array API's functions and those that networks need. A number or a torch tensor may stand for any operand; a uniform
axis of size 1 and a missing leading axis stretch, along ragged axes too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from serrate.ops import meanings
from serrate.ops.apply import ALL, FLOAT, FLOATS, INTEGER, NUMERIC, REAL, binary, by_standard, enter, operands_of, unary
from serrate.tensor import bits, broadcast, promotion
from serrate.tensor.tensor import Tensor, as_tensor


def _real(x: Any) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype == torch.bool:
        raise TypeError(f"real needs numeric elements, got {tensor.dtype}")
    return tensor._with(tensor.values.real)


def _imag(x: Any) -> Tensor:
    tensor = as_tensor(x)
    if not tensor.is_complex():
        raise TypeError(f"imag needs complex elements, got {tensor.dtype}")
    return tensor._with(tensor.values.imag)


def _clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    given = as_tensor(x)
    if given.dtype == torch.bool or given.is_complex():
        raise TypeError(f"clip takes elements of the kinds float, int, got {given.dtype}")
    made = given
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is not None and not _is_idle(bound, given.dtype, name):
            made = broadcast.elementwise(_BOUNDED[name], operands_of("clip", (made, bound)))
    if made is given:
        return given.clone()
    return made.to(given.dtype) if made.is_floating_point() == given.is_floating_point() else made


# As maximum and minimum, but at the bound the gradient is all the element's.
_BOUNDED = {
    "maximum": by_standard("maximum", torch.clamp_min, REAL, numbers=True),
    "minimum": by_standard("minimum", torch.clamp_max, REAL, numbers=True),
}


def _is_idle(bound: Any, dtype: torch.dtype, name: str) -> bool:
    """Whether a bound lies beyond all integers of the dtype, on the side where it changes nothing."""
    if isinstance(bound, (Tensor, torch.Tensor)) or promotion.fits(bound, dtype):
        return False
    return bool(bound < 0) == (name == "maximum")


def _where(condition: Any, x1: Any, x2: Any) -> Tensor:
    given = condition if isinstance(condition, (Tensor, torch.Tensor)) else as_tensor(condition)
    if given.dtype != torch.bool:
        raise TypeError(f"where takes a condition of bools, got {given.dtype}")
    return broadcast.elementwise(_chosen, operands_of("where", (given, x1, x2)))


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

unary("abs", torch.abs, "Absolute value.", "[[-1., 2.], []]", "[[1.0, 2.0], []]", "g * sign(x)", NUMERIC,
      ("absolute",), dtype="real")
unary("acos", torch.acos, "Inverse cosine.", "[[1.], []]", "[[0.0], []]", "-g / sqrt(1 - x * x)", others=("arccos",),
      meaning=meanings.acos)
unary("acosh", torch.acosh, "Inverse hyperbolic cosine.", "[[1.], []]", "[[0.0], []]", "g / sqrt(x * x - 1)",
      others=("arccosh",))
unary("asin", torch.asin, "Inverse sine.", "[[0.], []]", "[[0.0], []]", "g / sqrt(1 - x * x)", others=("arcsin",))
unary("asinh", torch.asinh, "Inverse hyperbolic sine.", "[[0.], []]", "[[0.0], []]", "g / sqrt(x * x + 1)",
      others=("arcsinh",))
unary("atan", torch.atan, "Inverse tangent.", "[[0.], []]", "[[0.0], []]", "g / (1 + x * x)", others=("arctan",))
unary("atanh", torch.atanh, "Inverse hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", "g / (1 - x * x)",
      others=("arctanh",))
unary("bitwise_invert", torch.bitwise_not, "Every bit inverted.", "[[0, 1], []]", "[[-1, -2], []]", "", INTEGER)
unary("ceil", torch.ceil, "The least integer not below.", "[[1.2], []]", "[[2.0], []]", "0 * g", REAL)
unary("conj", torch.conj_physical, "Complex conjugate.", "[[1.+2j]]", "[[(1-2j)]]", "conj(g)", NUMERIC, ("conj",))
unary("cos", torch.cos, "Cosine.", "[[0.], []]", "[[1.0], []]", "-g * sin(x)")
unary("cosh", torch.cosh, "Hyperbolic cosine.", "[[0.], []]", "[[1.0], []]", "g * sinh(x)")
unary("exp", torch.exp, "e to the power of each element.", "[[0.], []]", "[[1.0], []]", "g * out")
unary("expm1", torch.expm1, "exp(x) - 1, exact near 0.", "[[0.], []]", "[[0.0], []]", "g * (out + 1)",
      meaning=meanings.expm1)
unary("floor", torch.floor, "The greatest integer not above.", "[[1.8], []]", "[[1.0], []]", "0 * g", REAL)
unary("imag", torch.imag, "Imaginary part.", "[[1.+2j]]", "[[2.0]]", "", ("complex",), compute=_imag, dtype="real")
unary("isfinite", torch.isfinite, "Where an element is neither infinite nor NaN.", "[[1., float('inf')]]",
      "[[True, False]]", "", ALL, dtype="bool")
unary("isinf", torch.isinf, "Where an element is infinite.", "[[1., float('inf')]]", "[[False, True]]",
      "", ALL, dtype="bool")
unary("isnan", torch.isnan, "Where an element is NaN.", "[[1., float('nan')]]", "[[False, True]]",
      "", ALL, dtype="bool")
unary("log", torch.log, "Natural logarithm.", "[[1.], []]", "[[0.0], []]", "g / x")
unary("log1p", torch.log1p, "log(1 + x), exact near 0.", "[[0.], []]", "[[0.0], []]", "g / (1 + x)",
      meaning=meanings.log1p)
unary("log2", torch.log2, "Logarithm to base 2.", "[[8.], []]", "[[3.0], []]", "g / (x * 0.6931471805599453)")
unary("log10", torch.log10, "Logarithm to base 10.", "[[100.], []]", "[[2.0], []]", "g / (x * 2.302585092994046)")
unary("logical_not", torch.logical_not, "Where an element is 0 or False.", "[[True, False]]", "[[False, True]]", "",
      ALL, dtype="bool")
unary("negative", torch.neg, "Each element with the other sign.", "[[1, -2]]", "[[-1, 2]]", "-g", NUMERIC,
      ("negative", "neg"), meaning=meanings.negative)
unary("positive", torch.positive, "Each element as it is.", "[[1, -2]]", "[[1, -2]]", "g", NUMERIC)
unary("real", torch.real, "Real part.", "[[1.+2j]]", "[[1.0]]", "g", ("complex", "float"), compute=_real, dtype="real")
unary("reciprocal", torch.reciprocal, "1 / x.", "[[2.], []]", "[[0.5], []]", "-g * out * out")
unary("round", torch.round, "The nearest integer, halves to even.", "[[0.5, 1.5]]", "[[0.0, 2.0]]", "0 * g", NUMERIC,
      meaning=meanings.round)
unary("rsqrt", torch.rsqrt, "1 / sqrt(x).", "[[4.], []]", "[[0.5], []]", "-g * out * out * out / 2")
unary("sign", torch.sgn, "-1, 0 or 1 by sign; for complex numbers x / abs(x).", "[[-2., 0.]]", "[[-1.0, 0.0]]",
      "0 * g", NUMERIC, ("sign", "sgn"), meaning=meanings.sign)
unary("signbit", torch.signbit, "Where the sign bit is set, that of -0.0 too.", "[[-0., 1.]]", "[[True, False]]", "",
      REAL, dtype="bool")
unary("sin", torch.sin, "Sine.", "[[0.], []]", "[[0.0], []]", "g * cos(x)")
unary("sinh", torch.sinh, "Hyperbolic sine.", "[[0.], []]", "[[0.0], []]", "g * cosh(x)")
unary("sqrt", torch.sqrt, "Square root.", "[[4.], []]", "[[2.0], []]", "g / (2 * out)")
unary("square", torch.square, "x * x.", "[[3, -2]]", "[[9, 4]]", "2 * g * x", NUMERIC)
unary("tan", torch.tan, "Tangent.", "[[0.], []]", "[[0.0], []]", "g * (1 + out * out)")
unary("tanh", torch.tanh, "Hyperbolic tangent.", "[[0.], []]", "[[0.0], []]", "g * (1 - out * out)")
unary("trunc", torch.trunc, "The integer towards 0.", "[[-1.8], []]", "[[-1.0], []]", "0 * g", REAL, ("fix",))
unary("erf", torch.erf, "The error function.", "[[0.], []]", "[[0.0], []]",
      "g * 1.1283791670955126 * exp(-x * x)", FLOAT)
unary("relu", torch.relu, "The greater of x and 0.", "[[-1., 2.]]", "[[0.0, 2.0]]", "where(x > 0, g, 0 * g)", REAL)
unary("sigmoid", torch.sigmoid, "1 / (1 + exp(-x)).", "[[0.], []]", "[[0.5], []]", "g * out * (1 - out)", FLOATS,
      ("expit",))
unary("log_sigmoid", F.logsigmoid, "log(sigmoid(x)).", "[[float('-inf')], []]", "[[-inf], []]",
      "g * sigmoid(-x)", FLOAT,
      ("logsigmoid",))
unary("silu", F.silu, "x * sigmoid(x).", "[[0.], []]", "[[0.0], []]", "g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
      FLOAT)
unary("softplus", F.softplus, "log(1 + exp(x)).", "[[100.], []]", "[[100.0], []]", "g * sigmoid(x)", FLOAT)
unary("gelu", F.gelu, "x times the normal distribution's cumulative probability of x.", "[[0.], []]", "[[0.0], []]",
      "g * ((1 + erf(x * 0.7071067811865476)) / 2 + x * exp(-x * x / 2) * 0.3989422804014327)", FLOAT,
      approximate="none")
unary("leaky_relu", F.leaky_relu, "x, or a small multiple of it below 0.", "[[-100., 1.]]", "[[-1.0, 1.0]]",
      "where(x > 0, g, negative_slope * g)", FLOAT, negative_slope=0.01)
unary("elu", F.elu, "x, or alpha * (exp(x) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]",
      "where(x > 0, g, g * (out + alpha))", FLOAT, alpha=1.0)
unary("mish", F.mish, "x * tanh(softplus(x)).", "[[0.], []]", "[[0.0], []]",
      "g * (tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x)))))", FLOAT)

unary("celu", F.celu, "x, or alpha * (exp(x / alpha) - 1) below 0.", "[[0., 1.]]", "[[0.0, 1.0]]",
      "where(x > 0, g, g * exp(x / alpha))", FLOAT, alpha=1.0)
unary("hardtanh", F.hardtanh, "x between -1 and 1.", "[[-3., 0.5]]", "[[-1.0, 0.5]]",
      "where(logical_and(x > -1, x < 1), g, 0 * g)", FLOAT)
unary("relu6", F.relu6, "x between 0 and 6.", "[[-3., 7.]]", "[[0.0, 6.0]]",
      "where(logical_and(x > 0, x < 6), g, 0 * g)", REAL)
unary("hardswish", F.hardswish, "x times (x + 3) / 6 between 0 and 1.", "[[0., 9.]]", "[[0.0, 9.0]]",
      "where(x < -3, 0 * g, where(x <= 3, g * (x / 3 + 0.5), g))", FLOAT)
unary("softsign", F.softsign, "x / (1 + abs(x)).", "[[0., 1.]]", "[[0.0, 0.5]]", "g / square(1 + abs(x))", FLOAT)
unary("tanhshrink", F.tanhshrink, "x - tanh(x).", "[[0.], []]", "[[0.0], []]", "g * square(tanh(x))", FLOAT)
unary("nan_to_num", torch.nan_to_num, "0 for NaN, and the greatest and least numbers for infinities.",
      "[[float('nan'), 1.]]", "[[0.0, 1.0]]", "where(isfinite(x), g, 0 * g)", REAL, nan=0.0, posinf=None, neginf=None)

# ------------------------------------------------------------------------------------------------ two operands

_X = "sr.ragged([[1, 2], [3]])"
_Y = "sr.ragged([[4, 5], [6]])"
_F = "sr.ragged([[1., 2.], [4.]])"
_B = "sr.ragged([[True, False], [True]])"
binary("add", torch.add, "x1 + x2.", f"{_X}, {_Y}", "[[5, 7], [9]]", "(g, g)", NUMERIC, meaning=meanings.add)
binary("atan2", torch.atan2, "The angle of the point (x2, x1).", "sr.ragged([[0.], [0.]]), 1.0", "[[0.0], [0.0]]",
       "(g * x2 / (x1 * x1 + x2 * x2), -g * x1 / (x1 * x1 + x2 * x2))", FLOAT, ("arctan2",))
binary("bitwise_and", torch.bitwise_and, "Bits set in both.", f"{_X}, 2", "[[0, 2], [2]]", "", INTEGER)
binary("bitwise_or", torch.bitwise_or, "Bits set in either.", f"{_X}, 4", "[[5, 6], [7]]", "", INTEGER)
binary("bitwise_xor", torch.bitwise_xor, "Bits set in one but not both.", f"{_X}, 1", "[[0, 3], [2]]", "", INTEGER)
binary("bitwise_left_shift", torch.bitwise_left_shift, "Bits of x1 moved up by x2.", f"{_X}, 1", "[[2, 4], [6]]", "",
       ("int",))
binary("bitwise_right_shift", torch.bitwise_right_shift, "Bits of x1 moved down by x2.", f"{_Y}, 1", "[[2, 2], [3]]",
       "", ("int",))
binary("copysign", torch.copysign, "x1 with the sign of x2.", f"{_F}, -1.0", "[[-1.0, -2.0], [-4.0]]",
       "(where(logical_xor(signbit(x1), signbit(x2)), -g, g), 0 * g)", FLOAT)
binary("divide", torch.true_divide, "x1 / x2.", f"{_F}, 2", "[[0.5, 1.0], [2.0]]", "(g / x2, -g * out / x2)", NUMERIC,
       ("div", "divide"), dtype="float")
binary("equal", torch.eq, "Where x1 == x2.", f"{_X}, 2", "[[False, True], [False]]", "", ALL, dtype="bool")
binary("floor_divide", torch.floor_divide, "x1 / x2 rounded down.", f"{_Y}, 4", "[[1, 1], [1]]", "(0 * g, 0 * g)", REAL,
       meaning=meanings.floor_divide)
binary("greater", torch.gt, "Where x1 > x2.", f"{_X}, 1", "[[False, True], [True]]", "", REAL, dtype="bool")
binary("greater_equal", torch.ge, "Where x1 >= x2.", f"{_X}, 2", "[[False, True], [True]]", "", REAL, dtype="bool")
binary("hypot", torch.hypot, "sqrt(x1² + x2²).", "sr.ragged([[3.]]), sr.ragged([[4.]])", "[[5.0]]",
       "(g * x1 / out, g * x2 / out)", FLOAT)
binary("less", torch.lt, "Where x1 < x2.", f"{_X}, 2", "[[True, False], [False]]", "", REAL, dtype="bool")
binary("less_equal", torch.le, "Where x1 <= x2.", f"{_X}, 2", "[[True, True], [False]]", "", REAL, dtype="bool")
binary("logaddexp", torch.logaddexp, "log(exp(x1) + exp(x2)).",
       "sr.ragged([[0.]]), float('-inf') + sr.ragged([[0.]])", "[[0.0]]", "(g * exp(x1 - out), g * exp(x2 - out))",
       FLOAT)
binary("logical_and", torch.logical_and, "Where both hold.", f"{_B}, {_B}", "[[True, False], [True]]",
       "", ALL, dtype="bool")
binary("logical_or", torch.logical_or, "Where either holds.", f"{_B}, {_B}", "[[True, False], [True]]",
       "", ALL, dtype="bool")
binary("logical_xor", torch.logical_xor, "Where one holds but not both.", f"{_B}, {_B}", "[[False, False], [False]]",
       "", ALL, dtype="bool")
binary("maximum", torch.maximum, "The greater of both, NaN if either is.", f"{_X}, {_Y}", "[[4, 5], [6]]",
       "(where(x1 == x2, g / 2, where(x1 > x2, g, 0 * g)), where(x1 == x2, g / 2, where(x2 > x1, g, 0 * g)))", REAL)
binary("minimum", torch.minimum, "The smaller of both, NaN if either is.", f"{_X}, {_Y}", "[[1, 2], [3]]",
       "(where(x1 == x2, g / 2, where(x1 < x2, g, 0 * g)), where(x1 == x2, g / 2, where(x2 < x1, g, 0 * g)))", REAL)
binary("multiply", torch.mul, "x1 * x2.", f"{_X}, {_Y}", "[[4, 10], [18]]", "(g * x2, g * x1)", NUMERIC,
       ("mul", "multiply"))
binary("nextafter", torch.nextafter, "The next number after x1 towards x2.", "sr.ragged([[0.]]), sr.ragged([[0.]])",
       "[[0.0]]", "", FLOAT)
binary("not_equal", torch.ne, "Where x1 != x2.", f"{_X}, 2", "[[True, False], [True]]", "", ALL, dtype="bool")
binary("pow", torch.pow, "x1 to the power of x2.", f"{_X}, 2", "[[1, 4], [9]]",
       "(g * x2 * pow(x1, x2 - 1), g * out * log(x1))", NUMERIC, meaning=meanings.pow)
binary("remainder", torch.remainder, "What is left of x1 / x2, with the sign of x2.", f"{_Y}, 4", "[[0, 1], [2]]",
       "(g, -g * floor_divide(x1, x2))", REAL, meaning=meanings.remainder)
binary("subtract", torch.sub, "x1 - x2.", f"{_Y}, {_X}", "[[3, 3], [3]]", "(g, -g)", NUMERIC, ("sub", "subtract"),
       meaning=meanings.subtract)

# ------------------------------------------------------------------------------------------------ more operands

enter("where", 3, torch.where, "x1 where the condition holds, else x2.", ALL,
       (f"sr.where({_B}, {_X}, 0).tolist()", "[[1, 0], [3]]"),
       "(None, where(condition, g, 0 * g), where(condition, 0 * g, g))",
       (), _where, names=("condition", "x1", "x2"))
enter("clip", 1, torch.clamp, "Each element no less than `min` and no more than `max`.", REAL,
       (f"sr.clip({_X}, min=2).tolist()", "[[2, 2], [3]]"),
       "where(logical_and(x >= min, x <= max), g, 0 * g)", ("clip", "clamp"),
       _clip, min=None, max=None)
# fmt: on
