"""Scalar expressions: extents, indices, predicates, and the arithmetic of kernels.

One node type. Nodes are immutable and interned, so that equal expressions are one object: `==` and `hash` cost nothing,
and common subexpressions find themselves.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

INDEX, BOOL = "index", "bool"
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", INDEX)

# What an operation is called in printed text; those not named here are functions.
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "fdiv": "/", "mod": "%",
    "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&&", "or": "||",
}  # fmt: skip
COMPARISONS = ("lt", "le", "eq", "ne")
FUNCTIONS = (
    "min", "max", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "isnan",
)  # fmt: skip
_BINDING = {
    "or": 1,
    "and": 2,
    "eq": 3,
    "ne": 3,
    "lt": 4,
    "le": 4,
    "add": 5,
    "sub": 5,
    "mul": 6,
    "div": 6,
    "fdiv": 6,
    "mod": 6,
}


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Scalar:
    """A scalar expression. Make one with `const`, `symbol`, operators (`+ - * // %`) and the functions of this module.

    `//` and `%` are Euclidean. Comparisons are `lt`, `le`, `equal`, since `==` asks whether two expressions are one.

    >>> from serrate.fusion import symbol
    >>> n = symbol("n")
    >>> (n + 3) // 4 * 1
    (n + 3) / 4
    """

    op: str  # "const", "symbol", "load", "search", "select", "cast", "not", "xor", a key of INFIX or one of FUNCTIONS
    args: tuple[Scalar, ...]
    value: Any  # the number of a constant, the name of a symbol, the array of a load or a search
    dtype: str
    _symbols: list[frozenset[Scalar]] = field(default_factory=list)  # once asked for

    def __repr__(self) -> str:
        return text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (self.op, self.args, self.value, self.dtype)

    def __copy__(self) -> Scalar:
        return self

    def __deepcopy__(self, memo: Any) -> Scalar:
        return self

    def __add__(self, other: Scalar | int) -> Scalar:
        return add(self, other)

    def __radd__(self, other: int) -> Scalar:
        return add(const(other), self)

    def __sub__(self, other: Scalar | int) -> Scalar:
        return sub(self, other)

    def __rsub__(self, other: int) -> Scalar:
        return sub(const(other), self)

    def __mul__(self, other: Scalar | int) -> Scalar:
        return mul(self, other)

    def __rmul__(self, other: int) -> Scalar:
        return mul(const(other), self)

    def __floordiv__(self, other: Scalar | int) -> Scalar:
        return div(self, other)

    def __mod__(self, other: Scalar | int) -> Scalar:
        return mod(self, other)

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    def walk(self) -> Iterator[Scalar]:
        """Every node once, operands first."""
        seen: set[Scalar] = set()
        stack: list[tuple[Scalar, bool]] = [(self, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((argument, False) for argument in reversed(node.args))

    @property
    def symbols(self) -> frozenset[Scalar]:
        """The symbols in the expression."""
        if not self._symbols:
            own = {self} if self.op == "symbol" else ()
            self._symbols.append(frozenset(own).union(*(argument.symbols for argument in self.args)))
        return self._symbols[0]

    def substitute(self, values: Mapping[Scalar, Scalar]) -> Scalar:
        """This expression with some of its nodes (symbols, most often) replaced."""
        made: dict[Scalar, Scalar] = {}
        for node in self.walk():
            if node in values:
                made[node] = values[node]
            elif node.args:
                made[node] = rebuild(node, tuple(made[argument] for argument in node.args))
            else:
                made[node] = node
        return made[self]


_lock = threading.Lock()
_interned: WeakValueDictionary[tuple[Any, ...], Scalar] = WeakValueDictionary()


def make(op: str, args: Sequence[Scalar] = (), value: Any = None, dtype: str = INDEX) -> Scalar:
    """The node, as it is: nothing is folded."""
    args = tuple(args)
    key = (op, tuple(map(id, args)), repr(value), dtype)  # repr: 0.0 is not -0.0, True is not 1
    found = _interned.get(key)
    if found is None:
        with _lock:  # two threads must not make two of one
            found = _interned.setdefault(key, Scalar(op, args, value, dtype))
    return found


def const(value: Any, dtype: str | None = None) -> Scalar:
    """A constant; of dtype bool, index or float64 if not said."""
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else INDEX if isinstance(value, int) else "float64"
    kind: Callable[[Any], Any] = bool if dtype == BOOL else float if dtype in FLOATS else int
    return make("const", (), kind(value), dtype)


def symbol(name: str, dtype: str = INDEX) -> Scalar:
    """A named value that is known when the kernel runs."""
    return make("symbol", (), name, dtype)


def scalar(value: Scalar | int | float | bool, dtype: str | None = None) -> Scalar:
    """`value` itself if it is a Scalar, else a constant."""
    return value if isinstance(value, Scalar) else const(value, dtype)


TRUE, FALSE = const(True), const(False)


def _pair(a: Any, b: Any) -> tuple[Scalar, Scalar]:
    dtype = a.dtype if isinstance(a, Scalar) else b.dtype if isinstance(b, Scalar) else None
    a, b = scalar(a, dtype), scalar(b, dtype)
    if a.dtype != b.dtype:
        raise TypeError(f"operands must have one dtype, got {a.dtype} ({a}) and {b.dtype} ({b})")
    return a, b


def _whole(a: Scalar) -> bool:
    return a.dtype in INTEGERS


def add(left: Any, right: Any) -> Scalar:
    a, b = _pair(left, right)
    if _whole(a):
        if a.is_const and b.is_const:
            return const(a.value + b.value, a.dtype)
        if b.is_const and b.value == 0:
            return a
        if a.is_const:
            return b if a.value == 0 else add(b, a)  # constants stand on the right
        if b.is_const and a.op == "add" and a.args[1].is_const:
            return add(a.args[0], a.args[1].value + b.value)
        if b.is_const and b.value < 0:
            return sub(a, -b.value)
    return make("add", (a, b), None, a.dtype)


def sub(left: Any, right: Any) -> Scalar:
    a, b = _pair(left, right)
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
    return make("sub", (a, b), None, a.dtype)


def mul(left: Any, right: Any) -> Scalar:
    a, b = _pair(left, right)
    if _whole(a):
        if a.is_const and b.is_const:
            return const(a.value * b.value, a.dtype)
        if a.is_const:
            return mul(b, a)
        if b.is_const and b.value in (0, 1):
            return a if b.value == 1 else b
        if b.is_const and a.op == "mul" and a.args[1].is_const:
            return mul(a.args[0], a.args[1].value * b.value)
    return make("mul", (a, b), None, a.dtype)


def div(left: Any, right: Any) -> Scalar:
    """Euclidean division of integers."""
    a, b = _pair(left, right)
    if b.is_const and b.value == 1:
        return a
    if a.is_const and b.is_const and b.value > 0:
        return const(a.value // b.value, a.dtype)
    if a.op == "mul" and a.args[1] == b and b.is_const and b.value > 0:
        return a.args[0]
    return make("div", (a, b), None, a.dtype)


def mod(left: Any, right: Any) -> Scalar:
    """The remainder of Euclidean division."""
    a, b = _pair(left, right)
    if b.is_const and b.value == 1:
        return const(0, a.dtype)
    if a.is_const and b.is_const and b.value > 0:
        return const(a.value % b.value, a.dtype)
    return make("mod", (a, b), None, a.dtype)


def xor(a: Scalar, b: Scalar) -> Scalar:
    """Bitwise exclusive or."""
    return const(a.value ^ b.value, a.dtype) if a.is_const and b.is_const else make("xor", (a, b), None, a.dtype)


def fdiv(left: Any, right: Any) -> Scalar:
    """Division of floating-point numbers."""
    a, b = _pair(left, right)
    return make("fdiv", (a, b), None, a.dtype)


def ceildiv(left: Any, right: Any) -> Scalar:
    """⌈a / b⌉ for a ≥ 0, b > 0."""
    a, b = _pair(left, right)
    return div(a + (b - 1), b)


def minimum(left: Any, right: Any) -> Scalar:
    a, b = _pair(left, right)
    if a == b or (a.is_const and b.is_const and _whole(a)):
        return a if a == b or a.value <= b.value else b
    return make("min", (a, b), None, a.dtype)


def maximum(left: Any, right: Any) -> Scalar:
    a, b = _pair(left, right)
    if a == b or (a.is_const and b.is_const and _whole(a)):
        return a if a == b or a.value >= b.value else b
    return make("max", (a, b), None, a.dtype)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def compare(op: str, left: Any, right: Any) -> Scalar:
    """A comparison, `op` one of lt, le, eq, ne."""
    a, b = _pair(left, right)
    if a.is_const and b.is_const:
        return const(_COMPARE[op](a.value, b.value))
    if a == b and _whole(a):
        return const(op in ("le", "eq"))
    return make(op, (a, b), None, BOOL)


def lt(left: Any, right: Any) -> Scalar:
    return compare("lt", left, right)


def le(left: Any, right: Any) -> Scalar:
    return compare("le", left, right)


def equal(left: Any, right: Any) -> Scalar:
    return compare("eq", left, right)


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
        result = make("and", (result, condition), None, BOOL)
    return result


def either(a: Scalar, b: Scalar) -> Scalar:
    if TRUE in (a, b):
        return TRUE
    return b if a == FALSE else a if b == FALSE else make("or", (a, b), None, BOOL)


def negation(a: Scalar) -> Scalar:
    if a.is_const:
        return const(not a.value)
    return a.args[0] if a.op == "not" else make("not", (a,), None, BOOL)


def select(condition: Scalar, left: Any, right: Any) -> Scalar:
    """`left` where the condition holds, else `right`; only the chosen one is evaluated."""
    a, b = _pair(left, right)
    if condition.is_const:
        return a if condition.value else b
    return a if a == b else make("select", (condition, a, b), None, a.dtype)


def load(array: str, index: Any, dtype: str = INDEX) -> Scalar:
    """An element of a buffer."""
    return make("load", (scalar(index),), array, dtype)


def search(offsets: str, count: Any, position: Scalar) -> Scalar:
    """The component c < `count` with offsets[c] ≤ position < offsets[c + 1]; position must be below offsets[count]."""
    return make("search", (scalar(count), position), offsets)


def cast(a: Scalar, dtype: str) -> Scalar:
    if a.dtype == dtype:
        return a
    if a.is_const and (math.isfinite(a.value) or dtype in FLOATS):
        return const(a.value, dtype)
    return make("cast", (a,), None, dtype)


def call(function: str, *args: Scalar) -> Scalar:
    """One of FUNCTIONS."""
    if function not in FUNCTIONS:
        raise ValueError(f"no function {function!r}; there are {', '.join(FUNCTIONS)}")
    return make(function, args, None, BOOL if function == "isnan" else args[0].dtype)


_SMART: dict[str, Callable[..., Scalar]] = {
    "add": add, "sub": sub, "mul": mul, "div": div, "mod": mod, "fdiv": fdiv, "xor": xor, "min": minimum,
    "max": maximum, "lt": lt, "le": le, "eq": equal, "and": both, "or": either, "not": negation, "select": select,
}  # fmt: skip


def rebuild(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """The same operation on other operands, folded where it can be."""
    if args == node.args:
        return node
    if node.op in _SMART:
        return _SMART[node.op](*args)
    if node.op == "cast":
        return cast(args[0], node.dtype)
    return make(node.op, args, node.value, node.dtype)


def evaluate(node: Scalar, values: Mapping[str, int], arrays: Mapping[str, Sequence[int]] | None = None) -> Any:
    """What an integer or boolean expression is worth, symbols and arrays given by name."""
    arrays = arrays or {}
    made: dict[Scalar, Any] = {}

    def of(n: Scalar) -> Any:
        if n not in made:
            made[n] = step(n)
        return made[n]

    def step(n: Scalar) -> Any:
        match n.op:
            case "const":
                return n.value
            case "symbol":
                return values[n.value]
            case "and":
                return of(n.args[0]) and of(n.args[1])
            case "or":
                return of(n.args[0]) or of(n.args[1])
            case "select":
                return of(n.args[1]) if of(n.args[0]) else of(n.args[2])
        args = [of(argument) for argument in n.args]
        match n.op:
            case "load":
                if not 0 <= args[0] < len(arrays[n.value]):
                    raise IndexError(f"{n.value}[{args[0]}] of {len(arrays[n.value])}")
                return arrays[n.value][args[0]]
            case "search":
                count, position = args
                return max(c for c in range(count) if arrays[n.value][c] <= position)
            case "not":
                return not args[0]
            case "cast":
                return args[0]
        return _ARITHMETIC[n.op](*args)

    return of(node)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b, "mod": lambda a, b: a % b, "xor": lambda a, b: a ^ b,
    "min": min, "max": max, "neg": lambda a: -a, **_COMPARE,
}  # fmt: skip


def text(node: Scalar) -> str:
    """The expression as it reads in C."""
    return _text(node)[0]


def _text(node: Scalar) -> tuple[str, int]:
    """The text and how strongly its outermost operator binds."""
    if node.op in INFIX:
        level = _BINDING[node.op]
        left, right = _text(node.args[0]), _text(node.args[1])
        a = left[0] if left[1] >= level else f"({left[0]})"
        b = right[0] if right[1] > level else f"({right[0]})"
        return f"{a} {INFIX[node.op]} {b}", level
    match node.op:
        case "const":
            return (str(node.value).lower() if node.dtype == BOOL else str(node.value)), 9
        case "symbol":
            return str(node.value), 9
        case "load":
            return f"{node.value}[{text(node.args[0])}]", 9
        case "search":
            return f"search({node.value}, {text(node.args[0])}, {text(node.args[1])})", 9
        case "select":
            condition, yes, no = (text(argument) for argument in node.args)
            return f"{condition} ? {yes} : {no}", 0
        case "cast":
            return f"{node.dtype}({text(node.args[0])})", 9
        case "xor":
            return f"({_text(node.args[0])[0]} ^ {_text(node.args[1])[0]})", 9
        case "not":
            inner = _text(node.args[0])
            return (f"!{inner[0]}" if inner[1] == 9 else f"!({inner[0]})"), 9
    return f"{node.op}({', '.join(text(argument) for argument in node.args)})", 9
