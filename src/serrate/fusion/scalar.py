"""Scalar expressions: extents, indices, predicates, and the arithmetic of kernels. These are the functions that make
them, and make less of some operands, constants most often."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from serrate.fusion.dtypes import BOOL, COMPLEX, FLOATS, INDEX, INTEGERS, complex_of, holds, kind_of, parts_of
from serrate.fusion.functions import FUNCTIONS, Function, function_named
from serrate.fusion.nodes import MAKERS, Operand, Scalar, const, make, scalar, symbol, text

__all__ = [
    "FALSE",
    "TRUE",
    "Operand",
    "Scalar",
    "add",
    "bitwise_xor",
    "both",
    "call",
    "cast",
    "ceildiv",
    "compare",
    "const",
    "either",
    "equal",
    "index_divide",
    "index_remainder",
    "less",
    "less_equal",
    "load",
    "logical_not",
    "make",
    "maximum",
    "minimum",
    "multiply",
    "rebuild",
    "scalar",
    "search",
    "subtract",
    "symbol",
    "text",
    "where",
]

TRUE, FALSE = const(True), const(False)


def _pair(a: Any, b: Any) -> tuple[Scalar, Scalar]:
    """Two operands of one dtype; a number takes that of the other."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        if a.dtype != b.dtype:
            raise TypeError(f"operands must have one dtype, got {a.dtype} ({a}) and {b.dtype} ({b})")
        return a, b
    dtype = a.dtype if isinstance(a, Scalar) else b.dtype if isinstance(b, Scalar) else None
    return _beside(a, dtype), _beside(b, dtype)


def _beside(value: Any, dtype: str | None) -> Scalar:
    """A number as a constant of a dtype, which has to hold it."""
    if isinstance(value, Scalar):
        return value
    if dtype is not None and not holds(dtype, value):
        raise TypeError(f"a number beside {dtype} has to be one of that kind, got {value}; cast what it stands beside")
    return const(value, dtype)


def _numbers(name: str, left: Any, right: Any) -> tuple[Scalar, Scalar]:
    """Two numbers, not truths."""
    a, b = _pair(left, right)
    if a.dtype == BOOL:
        _check_kind(FUNCTIONS[name], a)
    return a, b


def _whole(a: Scalar) -> bool:
    return a.dtype in INTEGERS


def add(left: Operand, right: Operand) -> Scalar:
    a, b = _numbers("add", left, right)
    if _whole(a):
        if a.is_const and b.is_const:
            return const(a.value + b.value, a.dtype)
        if b.is_const and b.value == 0:
            return a
        if a.is_const:
            return b if a.value == 0 else add(b, a)  # constants stand on the right
        if b.is_const and a.op == "add" and a.args[1].is_const:
            return add(a.args[0], a.args[1].value + b.value)
        if b.is_const and a.op == "subtract" and a.args[1].is_const:
            return add(a.args[0], b.value - a.args[1].value)
        if b.is_const and b.value < 0:
            return subtract(a, -b.value)
    return make("add", (a, b), None, a.dtype)


def subtract(left: Operand, right: Operand) -> Scalar:
    a, b = _numbers("subtract", left, right)
    if _whole(a):
        if a.is_const and b.is_const:
            return const(a.value - b.value, a.dtype)
        if b.is_const and b.value == 0:
            return a
        if a == b:
            return const(0, a.dtype)
        if a.op == "add" and b in a.args:  # (x + b) - b
            return a.args[1] if a.args[0] == b else a.args[0]
        if b.is_const and a.op == "add" and a.args[1].is_const:
            return add(a.args[0], a.args[1].value - b.value)
        if b.is_const and a.op == "subtract" and a.args[1].is_const:
            return add(a.args[0], -a.args[1].value - b.value)
    return make("subtract", (a, b), None, a.dtype)


def multiply(left: Operand, right: Operand) -> Scalar:
    a, b = _numbers("multiply", left, right)
    if _whole(a):
        if a.is_const and b.is_const:
            return const(a.value * b.value, a.dtype)
        if a.is_const:
            return multiply(b, a)
        if b.is_const and b.value in (0, 1):
            return a if b.value == 1 else b
        if b.is_const and a.op == "multiply" and a.args[1].is_const:
            return multiply(a.args[0], a.args[1].value * b.value)
    return make("multiply", (a, b), None, a.dtype)


def index_divide(left: Operand, right: Operand) -> Scalar:
    """Euclidean division of indices."""
    a, b = _pair(left, right)
    if b.is_const and b.value == 1:
        return a
    if a.is_const and b.is_const and b.value > 0:
        return const(a.value // b.value, a.dtype)
    if a.op == "multiply" and a.args[1] == b and b.is_const and b.value > 0:
        return a.args[0]
    return make("index_divide", (a, b), None, a.dtype)


def index_remainder(left: Operand, right: Operand) -> Scalar:
    """The remainder of Euclidean division of indices."""
    a, b = _pair(left, right)
    if b.is_const and b.value == 1:
        return const(0, a.dtype)
    if a.is_const and b.is_const and b.value > 0:
        return const(a.value % b.value, a.dtype)
    return make("index_remainder", (a, b), None, a.dtype)


def ceildiv(left: Operand, right: Operand) -> Scalar:
    """⌈a / b⌉ of indices, for a ≥ 0, b > 0."""
    a, b = _pair(left, right)
    return index_divide(a + (b - 1), b)


def bitwise_xor(left: Operand, right: Operand) -> Scalar:
    a, b = _pair(left, right)
    if a.is_const and b.is_const:
        return const(a.value ^ b.value, a.dtype)
    return make("bitwise_xor", (a, b), None, a.dtype)


def minimum(left: Operand, right: Operand) -> Scalar:
    a, b = _pair(left, right)
    if a == b or (a.is_const and b.is_const and _whole(a)):
        return a if a == b or a.value <= b.value else b
    return make("minimum", (a, b), None, a.dtype)


def maximum(left: Operand, right: Operand) -> Scalar:
    a, b = _pair(left, right)
    if a == b or (a.is_const and b.is_const and _whole(a)):
        return a if a == b or a.value >= b.value else b
    return make("maximum", (a, b), None, a.dtype)


_REFLEXIVE = ("equal", "less_equal", "greater_equal")
_TURNED = {"greater": "less", "greater_equal": "less_equal"}


def compare(name: str, left: Operand, right: Operand) -> Scalar:
    """One of the comparisons. Indices are compared by less and less_equal, which proofs know, operands turned round."""
    a, b = _pair(left, right)
    if a.is_const and b.is_const:
        return const(bool(FUNCTIONS[name].evaluator(a.dtype)(a.value, b.value)))
    if a == b and _whole(a):
        return const(name in _REFLEXIVE)
    if a.dtype == INDEX and name in _TURNED:
        return make(_TURNED[name], (b, a), None, BOOL)
    return make(name, (a, b), None, BOOL)


def less(left: Operand, right: Operand) -> Scalar:
    return compare("less", left, right)


def less_equal(left: Operand, right: Operand) -> Scalar:
    return compare("less_equal", left, right)


def equal(left: Operand, right: Operand) -> Scalar:
    return compare("equal", left, right)


def both(*conditions: Scalar) -> Scalar:
    """All of them, the first evaluated first; those after one that fails are not evaluated."""
    kept: list[Scalar] = []
    for condition in conditions:
        if condition == FALSE:
            return FALSE
        if condition != TRUE and condition not in kept:
            kept.append(condition)
    result = kept[0] if kept else TRUE
    for condition in kept[1:]:
        result = make("logical_and", (result, condition), None, BOOL)
    return result


def either(a: Scalar, b: Scalar) -> Scalar:
    """One of them, or both; the second is evaluated only where the first fails."""
    if TRUE in (a, b):
        return TRUE
    return b if a == FALSE else a if b == FALSE else make("logical_or", (a, b), None, BOOL)


def logical_not(a: Scalar) -> Scalar:
    if a.is_const:
        return const(not a.value)
    return a.args[0] if a.op == "logical_not" else make("logical_not", (a,), None, BOOL)


def where(condition: Scalar, left: Operand, right: Operand) -> Scalar:
    """`left` where the condition holds, else `right`; only the chosen one is evaluated."""
    a, b = _pair(left, right)
    if condition.is_const:
        return a if condition.value else b
    return a if a == b else make("where", (condition, a, b), None, a.dtype)


def load(array: str, index: Any, dtype: str = INDEX) -> Scalar:
    """An element of a buffer."""
    return make("load", (scalar(index),), array, dtype)


def search(offsets: str, count: Any, position: Scalar) -> Scalar:
    """The component c < `count` with offsets[c] ≤ position < offsets[c + 1]; position must be below offsets[count]."""
    return make("search", (scalar(count), position), offsets)


def cast(a: Scalar, dtype: str) -> Scalar:
    if a.dtype == dtype:
        return a
    if a.dtype in COMPLEX and dtype not in (*COMPLEX, BOOL):
        raise TypeError(f"{a.dtype} does not become {dtype}, since a part would be lost; take real, imag or abs")
    if a.is_const and (dtype in (*FLOATS, *COMPLEX) or cmath.isfinite(a.value)):
        return const(a.value, dtype)
    return make("cast", (a,), None, dtype)


_FOLDED: dict[str, Callable[..., Scalar]] = {
    "add": add, "subtract": subtract, "multiply": multiply, "index_divide": index_divide,
    "index_remainder": index_remainder, "bitwise_xor": bitwise_xor, "minimum": minimum, "maximum": maximum,
    "logical_and": both, "logical_or": either, "logical_not": logical_not, "where": where,
}  # fmt: skip


def call(name: str, *args: Operand) -> Scalar:
    """A scalar function of these operands, by its name. Operands have one dtype; numbers take it."""
    row = function_named(name)
    if len(args) != row.arity:
        raise TypeError(f"{name} takes {row.arity} operands, got {len(args)}")
    return _apply(row, _operands(row, args))


def _apply(row: Function, operands: Sequence[Scalar]) -> Scalar:
    """The function of operands as it computes them."""
    if kind_of(operands[0].dtype) in row.keeps:
        return operands[0]
    if row.name in _FOLDED:
        return _FOLDED[row.name](*operands)
    if row.result == BOOL and row.arity == 2 and row.operands == "same":
        return compare(row.name, *operands)
    return make(row.name, operands, None, _RESULTS[row.result](operands[-1].dtype))


_RESULTS: dict[str, Callable[[str], str]] = {
    "same": lambda dtype: dtype, BOOL: lambda _: BOOL, "parts": parts_of, "complex": complex_of,
}  # fmt: skip


def _operands(row: Function, args: Sequence[Operand]) -> list[Scalar]:
    """Operands of the dtype that a function computes in."""
    if row.name == "where":
        return [_truth(args[0]), *_pair(args[1], args[2])]
    if row.operands == BOOL:
        return [_truth(argument) for argument in args]
    given = [a for a in args if isinstance(a, Scalar)]
    for argument in given:
        _check_kind(row, argument)
    if row.operands == "float":
        given = [cast(a, "float32") if a.dtype in INTEGERS else a for a in given]
    dtype = given[0].dtype if given else None
    scalars = iter(given)
    made = [next(scalars) if isinstance(a, Scalar) else _beside(a, dtype) for a in args]
    for other in made[1:]:
        _pair(made[0], other)
    return made


def _truth(a: Operand) -> Scalar:
    """Whether a number is not 0."""
    return cast(scalar(a), BOOL)


def _check_kind(row: Function, a: Scalar) -> None:
    if a.dtype not in row.kinds and kind_of(a.dtype) not in row.kinds:
        instead = "take real, imag or abs of it" if a.dtype in COMPLEX else "cast it"
        raise TypeError(f"{row.name} takes {' and '.join(row.kinds)}, got {a.dtype}; {instead}")


def rebuild(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """The same operation on other operands, folded where it can be."""
    if args == node.args:
        return node
    if node.op in FUNCTIONS:
        return _apply(FUNCTIONS[node.op], args)
    if node.op == "cast":
        return cast(args[0], node.dtype)
    return make(node.op, args, node.value, node.dtype)


MAKERS.update({name: partial(call, name) for name in FUNCTIONS})
MAKERS.update(_FOLDED)
MAKERS.update(less=less, less_equal=less_equal, rebuild=rebuild)
