"""Steps that compute with two or three operands element by element, and write in place."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.assigning import is_writable, stretching
from tests.programs.broadcast import common, elementwise, fits, kind_of, result_type, stretched
from tests.programs.elementwise import DOMAINS, Function, has_zero, widened
from tests.programs.leaves import UNSIGNED, like
from tests.programs.mapped import Mapped, is_chain, same_axes
from tests.programs.operands import Operand, check_kinds, fitting, meets, number, second
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Refused, Undecided

from serrate.ops.record import TABLE


def floor_divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.floor(x / y) if x.is_floating_point() else torch.div(x, y, rounding_mode="floor")


BINARY: dict[str, Function] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "floor_divide": floor_divide,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "less": torch.less,
    "less_equal": torch.less_equal,
    "greater": torch.greater,
    "greater_equal": torch.greater_equal,
    "equal": torch.eq,
    "not_equal": torch.not_equal,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "nextafter": torch.nextafter,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}

OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "pow": "**",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
}
GUARDED = ("divide", "floor_divide", "remainder", "pow", "bitwise_left_shift", "bitwise_right_shift")
"""Functions whose second operand is kept away from 0, and small."""


@generator(9)
def binary(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    function = fitting(draw, list(BINARY), x.dtype)
    if function in GUARDED:
        other = guarded(draw, x)
        if other is None:
            return None
        if function == "pow" and kind_of(x.dtype) >= 2:
            return _power(draw, name, other)
    else:
        other = second(draw, name)
    first = Operand(name)
    if function not in GUARDED and draw.chance(0.3):
        first, other = other, first
    if not isinstance(first.value, str) and not isinstance(other.value, str):
        return None
    text = f"sr.{function}({first.text}, {other.text})"
    is_torch = isinstance(first.value, str) and first.value in draw.program.plain
    if function in OPERATORS and draw.chance(0.5) and not is_torch:
        text = f"{first.text} {OPERATORS[function]} {other.text}"
    if all(n in draw.program.plain for n in (*first.uses, *other.uses)):
        return None
    ragged = [draw[n] for n in (*first.uses, *other.uses) if draw[n].is_ragged]
    quiet = all(is_chain(y) and same_axes(y.axes, ragged[0].axes) for y in ragged)

    def oracle(env: Environment) -> Mapped:
        return compute(function, first.read(env), other.read(env))

    uses = tuple(dict.fromkeys((*first.uses, *other.uses)))
    return Step(function, text, oracle, uses, (draw.name(),), waits=not quiet)


def compute(function: str, *operands: Any) -> Mapped:
    """A function of two operands, by the array API's rules about dtypes."""
    check_kinds(TABLE[function].kinds, *operands)
    if len({kind_of(x.dtype) if isinstance(x, Mapped) else -1 for x in operands} - {-1}) > 1 and any(
        isinstance(x, Mapped) and x.dtype == torch.bool for x in operands
    ):
        raise Undecided
    if function == "copysign" and has_zero(*operands):  # at 0 torch's second derivative is NaN
        raise Undecided
    dtype = _type_of_all(operands)
    if function.startswith("bitwise") and any(isinstance(x, float) for x in operands):
        raise Undecided
    if any(not isinstance(x, Mapped) and kind_of(dtype) == 1 and not _holds(dtype, x) for x in operands):
        raise Undecided
    if function == "divide" and kind_of(dtype) < 2:
        flats = lambda a, b: torch.divide(a.to(torch.float64), b.to(torch.float64)).to(torch.float32)  # noqa: E731
        return elementwise(flats, *operands)
    return elementwise(widened(BINARY[function]), *operands)


def _type_of_all(operands: tuple[Any, ...]) -> torch.dtype:
    """The dtype of the result; where shapes do not meet either, both exceptions may come."""
    try:
        return result_type(*operands)
    except Refused as refused:
        try:
            common(*[x.axes for x in operands if isinstance(x, Mapped)])
        except (Refused, Undecided):
            raise Refused(*refused.errors, ValueError) from None
        raise


def _holds(dtype: torch.dtype, value: Any) -> bool:
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


def guarded(draw: Draw, x: Mapped) -> Operand | None:
    """A second operand away from 0: small positive integers, or floats around 1."""
    if draw.chance(0.3):
        return Operand(draw.choice((1, 2, 3)) if kind_of(x.dtype) < 2 else draw.choice((0.5, 1.5, 2.0)))
    shape = x if draw.chance(0.6) else stretching(draw, x)
    number_ = (
        (lambda: draw.integer(1, 3)) if kind_of(x.dtype) < 2 else (lambda: round(draw.random.uniform(0.5, 2.0), 2))
    )
    dtype = x.dtype if x.dtype != torch.bool else torch.int64
    values = {index: number_() for index in shape.indices}
    if dtype.is_floating_point and dtype not in (torch.float64, torch.float32):
        values = {index: round(v * 8) / 8 for index, v in values.items()}
    leaf = like(draw.random, shape, dtype, values=values)
    return None if leaf is None else Operand(draw.like(leaf))


def _power(draw: Draw, name: str, other: Operand) -> Step:
    """A power of something positive."""
    expression, inner = DOMAINS["positive"]

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        check_kinds(TABLE["pow"].kinds, x)
        return elementwise(torch.pow, x.computed(inner(x.flat)), other.read(env))

    text = f"sr.pow({expression.format(x=name)}, {other.text})"
    return Step("pow", text, oracle, (name, *other.uses), (draw.name(),))


# ------------------------------------------------------------------------------------------------------ more operands


@generator(2)
def where(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    one, two = Operand(name), second(draw, name)
    if draw.chance(0.3):
        one, two = two, one
    x = draw[name]
    found = [n for n, y in draw.program.environment.items() if y.dtype == torch.bool and meets(x, y)]
    if found and draw.chance(0.5):
        condition = draw.choice(found)
    else:
        leaf = like(draw.random, x if draw.chance(0.7) else stretching(draw, x), torch.bool)
        if leaf is None:
            return None
        condition = draw.given(leaf)

    def oracle(env: Environment) -> Mapped:
        c, a, b = env[condition], one.read(env), two.read(env)
        dtype = result_type(
            *[v for v in (a, b) if isinstance(v, Mapped)], *[v for v in (a, b) if not isinstance(v, Mapped)]
        )
        if any(not isinstance(v, Mapped) and kind_of(dtype) == 1 and not _holds(dtype, v) for v in (a, b)):
            raise Undecided
        axes = common(*[v.axes for v in (c, a, b) if isinstance(v, Mapped)])
        parts = [
            stretched(v, axes).to(dtype) if isinstance(v, Mapped) else torch.tensor(v, dtype=dtype) for v in (a, b)
        ]
        return Mapped.of(axes, torch.where(stretched(c, axes), *parts))

    uses = tuple(dict.fromkeys((condition, *one.uses, *two.uses)))
    if all(n in draw.program.plain for n in uses):
        return None
    return Step("where", f"sr.where({condition}, {one.text}, {two.text})", oracle, uses, (draw.name(),))


@generator(1)
def clip(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: kind_of(x.dtype) in (1, 2))
    if name is None:
        return None
    x = draw[name]
    low: Operand | None = Operand(-1 if kind_of(x.dtype) == 1 and x.dtype.is_signed else 0)
    high: Operand | None = Operand(number(draw, x.dtype)) if draw.chance(0.5) else second(draw, name, dtype=x.dtype)
    if draw.chance(0.2):
        low = None
    elif draw.chance(0.2):
        high = None

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        bounds = [b.read(env) if b is not None else None for b in (low, high)]
        tensors = [b for b in bounds if isinstance(b, Mapped)]
        given = [b for b in bounds if b is not None]
        if any(b.dtype != x.dtype for b in tensors) or (any(type(b) is float for b in given) and kind_of(x.dtype) == 1):
            raise Undecided
        if tensors and not fits(tensors[0], x.axes):
            raise Undecided
        return elementwise(lambda flat, *limits: _clamped(flat, bounds, limits), x, *given)

    uses = tuple(dict.fromkeys((name, *[u for b in (low, high) if b for u in b.uses])))
    words = ", ".join(f"{k}={b.text}" for k, b in (("min", low), ("max", high)) if b is not None)
    return Step("clip", f"sr.clip({name}, {words})", oracle, uses, (draw.name(),))


def _clamped(flat: torch.Tensor, bounds: list[Any], limits: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """x not below the first bound and not above the second; its gradient is kept at the bounds themselves."""
    found = iter(limits)
    low, high = [None if b is None else next(found) for b in bounds]
    dtype = flat.dtype
    if dtype in UNSIGNED:
        flat, low, high = [None if v is None else v.to(torch.int64) for v in (flat, low, high)]
    made = torch.clamp(
        flat, None if low is None else low.expand_as(flat), None if high is None else high.expand_as(flat)
    )
    return made.to(dtype)


@generator(2)
def in_place(draw: Draw) -> Step | None:
    """x += y and its like: where everyone who shares the memory sees it."""
    name = draw.tensor(lambda x: is_writable(x) and kind_of(x.dtype) > 0)
    if name is None:
        return None
    function, sign = draw.choice((("add", "+="), ("subtract", "-="), ("multiply", "*=")))
    other = second(draw, name)

    def oracle(env: Environment) -> Mapped:
        x, y = env[name], other.read(env)
        made = compute(function, x, y)
        if kind_of(made.dtype) > kind_of(x.dtype):
            raise Refused(TypeError, ValueError)
        if len(made.axes) != x.ndim or not fits(made, x.axes) or len(made.indices) != len(x.indices):
            raise Refused(ValueError)
        x.write(range(len(x.indices)), made.flat.to(x.dtype))
        return x

    return Step(f"i{function}", f"{name} {sign} {other.text}", oracle, (name, *other.uses), writes=name)
