"""The primitive scalar functions, one row each. A new scalar function is a new row.

Names are the array API's, else torch's. The row of a function says what it takes and gives, how C++ and CUDA write it,
what it is worth for numbers (which the checking interpreter and constants ask), and which function of torch means the
same. Scalar expressions, printers, checker, reference and documents read the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from serrate.fusion import philox
from serrate.fusion.dtypes import BOOL, INDEX, of_dtype
from serrate.fusion.forms import (
    AND,
    EQUALITY,
    OR,
    ORDER,
    PRODUCT,
    SELECT,
    SUM,
    Form,
    Forms,
    bits,
    infix,
    library,
    prefix,
    prelude,
)

Number = str | Callable[..., Any]  # Python source with a place for each operand, or a function


@dataclass(frozen=True, eq=False)
class Function:
    """One scalar function."""

    name: str
    arity: int
    kinds: tuple[str, ...]
    """The kinds of dtypes it takes: "float", "complex", "int", "bool"; "index" is for indices alone."""
    cpp: Forms
    """How C++ writes it."""
    number: Number | Mapping[str, Number]
    """What it is worth for numpy scalars, for Python integers as indices, and for truth values; by dtype or kind where
    that differs."""
    reference: Callable[..., torch.Tensor] | None
    """The function of torch tensors that means the same."""
    cuda: Forms = field(default_factory=dict)
    """How CUDA writes it, where that is not how C++ does."""
    operands: str = "same"
    """What operands become before it is computed: "same" nothing, "float" float32 if they are whole, "bool" truths."""
    result: str = "same"
    """The dtype of the result: "same" as that of its operands, "bool", "parts" that of the real and the imaginary part,
    or "complex", the one that has such parts."""
    widens: bool = False
    """Whether C computes it of short integers in int, so that its result has to be narrowed."""
    keeps: tuple[str, ...] = ()
    """The kinds of numbers that it gives back as they are."""
    in_own_dtype: bool = False
    """Whether it is computed in half types themselves, where others are computed in float32."""
    has_vector_form: bool = False
    """Whether glibc has a form of C's function of this name that computes several numbers at once."""

    def form(self, target: str, dtype: str) -> Form:
        """How a target writes it for operands of a dtype."""
        forms = self.cuda if target == "cuda" and self.cuda else self.cpp
        found = of_dtype(forms, dtype)
        if found is None:
            raise TypeError(f"{self.name} of {dtype} has no form in {target}")
        return found

    def number_of(self, dtype: str) -> Number:
        """What it is worth for operands of a dtype."""
        if not isinstance(self.number, Mapping):
            return self.number
        found = of_dtype(self.number, dtype)
        assert found is not None, (self.name, dtype)
        return found

    def evaluator(self, dtype: str) -> Callable[..., Any]:
        """The same as a function."""
        return _evaluator(self.number_of(dtype), self.arity)

    @property
    def operator(self) -> Form | None:
        """The signs it is written with in any text, if it is."""
        form = self.cpp.get("")
        return form if form is not None and form.is_operator else None


@cache
def _evaluator(number: Number, arity: int) -> Callable[..., Any]:
    if not isinstance(number, str):
        return number
    names = [f"x{place}" for place in range(arity)]
    made: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {number.format(*names)}")
    return made


FUNCTIONS: dict[str, Function] = {}
"""All primitive scalar functions by name."""


def enter(row: Function) -> Function:
    """Put a scalar function into the table."""
    if row.name in FUNCTIONS:
        raise ValueError(f"there is a scalar function {row.name!r} already")
    FUNCTIONS[row.name] = row
    return row


def function_named(name: str) -> Function:
    """The row of a function."""
    if name not in FUNCTIONS:
        raise ValueError(f"no scalar function {name!r}; there are {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


# Numbers: what numpy has no function for, or another meaning.


def _maximum(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b  # a nan wins


def _minimum(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


def _rsqrt(a: Any) -> Any:
    return type(a)(1) / np.sqrt(a)


def _erf(a: Any) -> Any:
    return type(a)(math.erf(a))


def _floor_divide(a: Any, b: Any) -> Any:
    infinite = np.isinf(a) or np.isinf(b)
    return a / b if infinite or b == 0 else np.floor_divide(a, b)


def _power(a: Any, b: Any) -> Any:
    """C's power; numpy takes square roots, which see -0.0 and -inf otherwise."""
    rooted = abs(b) == 0.5 and (a == 0 or np.isinf(a))
    return np.power(abs(a) if rooted else a, b)


def _whole_power(a: Any, b: Any) -> Any:
    """Powers wrap as products do; of negative exponents only those of 1 and -1 are whole, all others are 0."""
    base, exponent = int(a), int(b)
    if exponent < 0:
        base, exponent = (base, -exponent) if base in (1, -1) else (0, 1)
    return np.uint64(pow(base, exponent, 2**64)).astype(type(a))


def _complex_power(a: Any, b: Any) -> Any:
    """Of 0, the power with an exponent whose real part is positive is 0, that with the exponent 0 is 1."""
    if b == 0:
        return type(a)(1)
    if a == 0:
        return type(a)(0 if b.real > 0 else complex(math.nan, math.nan))
    return np.exp(b * np.log(a))


def _complex_expm1(a: Any) -> Any:
    """exp(a) - 1, precise near 0, where numpy's is not."""
    power, half = np.exp(a), np.sin(a.imag / 2)
    real = np.expm1(a.real) * np.cos(a.imag) - 2 * half * half if np.isfinite(a) else power.real - 1
    return type(a)(complex(real, power.imag))


def _complex_log1p(a: Any) -> Any:
    """log(1 + a), precise near 0, where numpy's is not."""
    found = np.log(type(a)(complex(a.real + 1, a.imag)))
    if not (abs(a.real) < 0.5 and abs(a.imag) < 0.5):
        return found
    return type(a)(complex(np.log1p(a.real * (2 + a.real) + a.imag * a.imag) / 2, found.imag))


def _complex_sign(a: Any) -> Any:
    if np.isnan(a):
        return type(a)(complex(math.nan, math.nan))
    size = abs(a)
    return type(a)(0) if size == 0 else type(a)(complex(a.real / size, a.imag / size))


def _of_parts(real: Any, imaginary: Any) -> Any:
    kind = np.complex128 if isinstance(real, np.float64) else np.complex64
    return kind(complex(real, imaginary))


def _next_float16(a: Any, b: Any) -> Any:
    return b if a == b else np.float32(np.nextafter(np.float16(a), np.float16(b)))


def _next_bfloat16(a: Any, b: Any) -> Any:
    return torch.nextafter(*torch.tensor([a, b], dtype=torch.bfloat16)).float().numpy()[()]


# References: the array API's meaning where torch has another.


def _sign(a: torch.Tensor) -> torch.Tensor:
    if a.is_complex():
        return torch.where(torch.isnan(a), complex(math.nan, math.nan), torch.sgn(a))
    return torch.where(torch.isnan(a), a, torch.sign(a)) if a.is_floating_point() else torch.sign(a)


def _round(a: torch.Tensor) -> torch.Tensor:
    """Complex numbers by their parts."""
    return torch.view_as_complex(torch.view_as_real(a).round()) if a.is_complex() else torch.round(a)


def _quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not a.is_floating_point():
        return torch.floor_divide(a, b)
    return torch.where(torch.isinf(a) | torch.isinf(b), a / b, torch.div(a, b, rounding_mode="floor"))


def _remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = torch.remainder(a, b)
    return torch.copysign(made, b) if made.is_floating_point() else made


_INT, _COMPLEX = ("int",), ("complex",)
_REAL, _WHOLE, _ORDERED = ("float", "int"), ("int", "bool"), ("float", "int", "bool")
_NUMERIC, _ALL = ("float", "complex", "int"), ("float", "complex", "int", "bool")
_CHOICE = Form("{} ? {} : {}", SELECT, (OR, SELECT, SELECT), is_operator=True)


def _in_floats(
    name: str,
    number: Number | Mapping[str, Number],
    reference: Callable[..., torch.Tensor],
    arity: int = 1,
    cpp: Forms | None = None,
    vector: bool = True,
    real: bool = False,
) -> None:
    """A function of floating-point numbers, complex ones too unless it is for `real` ones. C's library has it, but
    where C++ writes it another way; most have vector forms. The prelude has those of complex numbers."""
    of_complex = {} if real else {"complex": prelude(name)[""]}
    own = {**library(name, arity), **of_complex}
    forms = {**cpp, **of_complex} if cpp else own
    kinds = _REAL if real else _NUMERIC
    enter(Function(name, arity, kinds, forms, number, reference, own, operands="float", has_vector_form=vector))


def _to_whole(name: str, c: str, number: Number, reference: Callable[..., torch.Tensor]) -> None:
    """A function that gives whole numbers, of the same dtype."""
    enter(Function(name, 1, _REAL, library(c), number, reference, keeps=_INT))


def _tested(name: str, number: Mapping[str, Number], reference: Callable[..., torch.Tensor]) -> None:
    """A question about one number."""
    enter(Function(name, 1, _ALL, prelude(name), number, reference, result=BOOL))


def _arithmetic(name: str, sign: str, level: int, reference: Callable[..., torch.Tensor]) -> None:
    """An operator of numbers."""
    enter(Function(name, 2, _NUMERIC, {"": infix(sign, level)}, f"({{}} {sign} {{}})", reference, widens=True))


def _compared(name: str, sign: str, level: int, reference: Callable[..., torch.Tensor]) -> None:
    """A comparison. Complex numbers have no order."""
    kinds = _ALL if level == EQUALITY else _ORDERED
    enter(Function(name, 2, kinds, {"": infix(sign, level)}, f"({{}} {sign} {{}})", reference, result=BOOL))


def _logical(name: str, form: Form, number: str, reference: Callable[..., torch.Tensor], arity: int = 2) -> None:
    """A function of truths; a number is true where it is not 0."""
    enter(Function(name, arity, _ALL, {"": form}, number, reference, operands=BOOL, result=BOOL))


def _bitwise(name: str, sign: str, reference: Callable[..., torch.Tensor]) -> None:
    """An operator on bits."""
    enter(Function(name, 2, _WHOLE, {"": bits(sign)}, f"({{}} {sign} {{}})", reference, widens=True))


# fmt: off
enter(Function("negative", 1, _NUMERIC, {"": prefix("-")}, "(-{})", torch.neg, widens=True))
enter(Function("abs", 1, _NUMERIC, {**library("fabs"), **dict.fromkeys(("int", "complex"), prelude("abs")[""])}, abs,
               torch.abs, result="parts"))
enter(Function("sign", 1, _NUMERIC, prelude("sign"), {"complex": _complex_sign, "": np.sign}, _sign))
enter(Function("conj", 1, _NUMERIC, prelude("conj"), np.conj, torch.conj_physical, keeps=_REAL))
enter(Function("real", 1, _NUMERIC, prelude("real"), np.real, torch.real, result="parts", keeps=_REAL))
enter(Function("imag", 1, _COMPLEX, prelude("imag"), np.imag, torch.imag, result="parts"))
enter(Function("angle", 1, _COMPLEX, prelude("angle"), np.angle, torch.angle, result="parts"))
enter(Function("complex", 2, ("float",), prelude("of_parts", 2), _of_parts, torch.complex, result="complex"))
enter(Function("signbit", 1, _REAL, prelude("signbit"), {"int": "({} < 0)", "": np.signbit}, torch.signbit,
               result=BOOL))
_in_floats("exp", np.exp, torch.exp, cpp={**library("exp"), "float32": prelude("exp")[""]})
_in_floats("expm1", {"complex": _complex_expm1, "": np.expm1}, torch.expm1)
_in_floats("log", np.log, torch.log)
_in_floats("log1p", {"complex": _complex_log1p, "": np.log1p}, torch.log1p)
_in_floats("log2", np.log2, torch.log2)
_in_floats("log10", np.log10, torch.log10)
_in_floats("sqrt", np.sqrt, torch.sqrt, vector=False)
_in_floats("rsqrt", _rsqrt, torch.rsqrt, cpp={"float32": Form("1.0f / sqrtf({})", PRODUCT),
                                              "float64": Form("1.0 / sqrt({})", PRODUCT)}, vector=False)
_in_floats("sin", np.sin, torch.sin)
_in_floats("cos", np.cos, torch.cos)
_in_floats("tan", np.tan, torch.tan)
_in_floats("asin", np.arcsin, torch.asin)
_in_floats("acos", np.arccos, torch.acos)
_in_floats("atan", np.arctan, torch.atan)
_in_floats("sinh", np.sinh, torch.sinh)
_in_floats("cosh", np.cosh, torch.cosh)
_in_floats("tanh", np.tanh, torch.tanh)
_in_floats("asinh", np.arcsinh, torch.asinh)
_in_floats("acosh", np.arccosh, torch.acosh)
_in_floats("atanh", np.arctanh, torch.atanh)
_in_floats("erf", _erf, torch.erf, real=True, cpp={**library("erf"), "float32": prelude("erf")[""]})
_to_whole("floor", "floor", np.floor, torch.floor)
_to_whole("ceil", "ceil", np.ceil, torch.ceil)
_to_whole("trunc", "trunc", np.trunc, torch.trunc)
enter(Function("round", 1, _NUMERIC, {**library("rint"), "complex": prelude("round")[""]}, np.rint, _round,
               keeps=_INT))
_tested("isnan", {"float": np.isnan, "complex": np.isnan, "": "({0} != {0})"}, torch.isnan)
_tested("isinf", {"float": np.isinf, "complex": np.isinf, "": "({0} != {0})"}, torch.isinf)
_tested("isfinite", {"float": np.isfinite, "complex": np.isfinite, "": "({0} == {0})"}, torch.isfinite)
_logical("logical_not", prefix("!"), "(not {})", torch.logical_not, 1)
enter(Function("bitwise_invert", 1, _WHOLE, {"": prefix("~"), BOOL: prefix("!")}, {"": "(~{})", BOOL: "(not {})"},
               torch.bitwise_not, widens=True))

_arithmetic("add", "+", SUM, torch.add)
_arithmetic("subtract", "-", SUM, torch.sub)
_arithmetic("multiply", "*", PRODUCT, torch.mul)
enter(Function("divide", 2, _NUMERIC, {"": infix("/", PRODUCT)}, "({} / {})", torch.true_divide, operands="float"))
enter(Function("floor_divide", 2, _REAL, prelude("floor_divide", 2), {"float": _floor_divide, "": np.floor_divide},
               _quotient))
enter(Function("remainder", 2, _REAL, prelude("remainder", 2), np.remainder, _remainder))
enter(Function("pow", 2, _NUMERIC, {**library("pow", 2), **dict.fromkeys(("int", "complex"), prelude("pow", 2)[""])},
               {"float": _power, "complex": _complex_power, "": _whole_power}, torch.pow, has_vector_form=True))
enter(Function("maximum", 2, _ORDERED, prelude("max", 2), _maximum, torch.maximum))
enter(Function("minimum", 2, _ORDERED, prelude("min", 2), _minimum, torch.minimum))
_in_floats("atan2", np.arctan2, torch.atan2, 2, real=True)
_in_floats("hypot", np.hypot, torch.hypot, 2, real=True)
_in_floats("copysign", np.copysign, torch.copysign, 2, vector=False, real=True)
enter(Function("nextafter", 2, _REAL, prelude("nextafter", 2),
               {"float16": _next_float16, "bfloat16": _next_bfloat16, "": np.nextafter}, torch.nextafter,
               operands="float", in_own_dtype=True))
_bitwise("bitwise_and", "&", torch.bitwise_and)
_bitwise("bitwise_or", "|", torch.bitwise_or)
_bitwise("bitwise_xor", "^", torch.bitwise_xor)
enter(Function("bitwise_left_shift", 2, _INT, prelude("left_shift", 2), "({} << {})", torch.bitwise_left_shift))
enter(Function("bitwise_right_shift", 2, _INT, prelude("right_shift", 2), "({} >> {})", torch.bitwise_right_shift))
_compared("equal", "==", EQUALITY, torch.eq)
_compared("not_equal", "!=", EQUALITY, torch.ne)
_compared("less", "<", ORDER, torch.lt)
_compared("less_equal", "<=", ORDER, torch.le)
_compared("greater", ">", ORDER, torch.gt)
_compared("greater_equal", ">=", ORDER, torch.ge)
_logical("logical_and", infix("&&", AND), "({} and {})", torch.logical_and)
_logical("logical_or", infix("||", OR), "({} or {})", torch.logical_or)
_logical("logical_xor", infix("!=", EQUALITY), "({} != {})", torch.logical_xor)

enter(Function("where", 3, _ALL, {"": _CHOICE}, "({1} if {0} else {2})", torch.where))

# Random bits: a place, a seed and the number of a call.
enter(Function("philox", 3, ("int64",), prelude("philox", 3), philox.word, philox.by_torch))

# Quotients and remainders of indices, which are Euclid's: no remainder is negative. C's agree where the dividend is 0
# or more, which kernels see to. Their names are their own, since `floor_divide` and `remainder` are for values.
enter(Function("index_divide", 2, (INDEX,), {"": infix("/", PRODUCT)}, "({} // {})", None))
enter(Function("index_remainder", 2, (INDEX,), {"": infix("%", PRODUCT)}, "({} % {})", None))
# fmt: on

COMPARISONS = tuple(
    name for name, row in FUNCTIONS.items() if row.result == BOOL and row.arity == 2 and row.operands == "same"
)
"""The functions that compare two numbers."""
