"""The nodes of scalar expressions. There is one type of them.

Nodes are immutable and interned, so that equal expressions are one object: `==` and `hash` cost nothing, and common
subexpressions find themselves. What makes them, `fusion.scalar`, is also what the others import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from serrate.fusion.dtypes import BOOL, INDEX, SIZED, kind_of, wrapped
from serrate.fusion.forms import POSTFIX, Written, called
from serrate.fusion.functions import FUNCTIONS

MAKERS: dict[str, Callable[..., Scalar]] = {}
"""What operators of expressions make, by the names of functions; and `rebuild`. `fusion.scalar` enters them."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Scalar:
    """A scalar expression. Make one with `const`, `symbol`, operators and the functions of this module; `call` makes
    one of any scalar function. A number beside a Scalar takes its dtype.

    `//` and `%` of indices are Euclidean, those of other numbers Python's. Comparisons are `less`, `less_equal`,
    `equal` and their kin, since `==` asks whether two expressions are one.

    >>> from serrate.fusion import symbol
    >>> n, x = symbol("n"), symbol("x", "float32")
    >>> (n + 3) // 4 * 1, 1 / (1 + abs(x)) ** 2
    ((n + 3) / 4, 1.0 / pow(1.0 + abs(x), 2.0))
    """

    op: str  # "const", "symbol", "load", "search", "cast", or the name of a scalar function
    args: tuple[Scalar, ...]
    value: Any  # the number of a constant, the name of a symbol, the array of a load or a search
    dtype: str
    depth: int  # how many operations stand one inside another
    _symbols: list[frozenset[Scalar]] = field(default_factory=list)  # once asked for

    def __repr__(self) -> str:
        return text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (self.op, self.args, self.value, self.dtype)

    def __copy__(self) -> Scalar:
        return self

    def __deepcopy__(self, memo: Any) -> Scalar:
        return self

    def __add__(self, other: Operand) -> Scalar:
        return MAKERS["add"](self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return MAKERS["add"](other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return MAKERS["subtract"](self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return MAKERS["subtract"](other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return MAKERS["multiply"](self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return MAKERS["multiply"](other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return MAKERS["divide"](self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return MAKERS["divide"](other, self)

    def __floordiv__(self, other: Operand) -> Scalar:
        return MAKERS["index_divide"](self, other) if self.dtype == INDEX else MAKERS["floor_divide"](self, other)

    def __rfloordiv__(self, other: Operand) -> Scalar:
        return MAKERS["index_divide"](other, self) if self.dtype == INDEX else MAKERS["floor_divide"](other, self)

    def __mod__(self, other: Operand) -> Scalar:
        return MAKERS["index_remainder"](self, other) if self.dtype == INDEX else MAKERS["remainder"](self, other)

    def __rmod__(self, other: Operand) -> Scalar:
        return MAKERS["index_remainder"](other, self) if self.dtype == INDEX else MAKERS["remainder"](other, self)

    def __pow__(self, other: Operand) -> Scalar:
        return MAKERS["pow"](self, other)

    def __rpow__(self, other: Operand) -> Scalar:
        return MAKERS["pow"](other, self)

    def __lt__(self, other: Operand) -> Scalar:
        return MAKERS["less"](self, other)

    def __le__(self, other: Operand) -> Scalar:
        return MAKERS["less_equal"](self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return MAKERS["greater"](self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return MAKERS["greater_equal"](self, other)

    def __neg__(self) -> Scalar:
        return MAKERS["negative"](self)

    def __abs__(self) -> Scalar:
        return MAKERS["abs"](self)

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    def walk(self) -> Iterator[Scalar]:
        """Every node once, operands first."""
        seen: set[Scalar] = set()
        stack: list[Scalar | None] = [self]  # None: the operands of what is below it are done
        while stack:
            node = stack.pop()
            if node is None:
                done = stack.pop()
                assert done is not None
                yield done
            elif node not in seen:
                seen.add(node)
                if node.args:
                    stack += (node, None, *reversed(node.args))
                else:
                    yield node

    @property
    def symbols(self) -> frozenset[Scalar]:
        """The symbols in the expression."""
        stack = [] if self._symbols else [self]
        while stack:
            node = stack[-1]
            missing = [argument for argument in node.args if not argument._symbols]
            if missing:
                stack += missing
                continue
            stack.pop()
            if not node._symbols:
                own = {node} if node.op == "symbol" else ()
                node._symbols.append(frozenset(own).union(*(argument._symbols[0] for argument in node.args)))
        return self._symbols[0]

    def substitute(self, values: Mapping[Scalar, Scalar]) -> Scalar:
        """This expression with some of its nodes (symbols, most often) replaced."""
        if not values:
            return self
        made: dict[Scalar, Scalar] = {}
        stack = [self]
        while stack:
            node = stack[-1]
            if node not in made:
                if node in values:
                    made[node] = values[node]
                elif missing := [argument for argument in node.args if argument not in made]:
                    stack += reversed(missing)
                    continue
                else:
                    made[node] = MAKERS["rebuild"](node, tuple([made[argument] for argument in node.args]))
            stack.pop()
        return made[self]


_lock = threading.Lock()
_interned: WeakValueDictionary[tuple[Any, ...], Scalar] = WeakValueDictionary()


def make(op: str, args: Sequence[Scalar] = (), value: Any = None, dtype: str = INDEX) -> Scalar:
    """The node, as it is: nothing is folded."""
    args = tuple(args)
    # Constants are told apart by their repr: 0.0 is not -0.0, and True is not 1.
    key = (op, args, value if value is None or isinstance(value, str) else repr(value), dtype)
    found = _interned.get(key)
    if found is None:
        depth = max([argument.depth for argument in args]) + 1 if args else 0
        with _lock:  # two threads must not make two of one
            found = _interned.setdefault(key, Scalar(op, args, value, dtype, depth))
    return found


def const(value: Any, dtype: str | None = None) -> Scalar:
    """A constant; of dtype bool, index or float64 if not said."""
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else INDEX if isinstance(value, int) else "float64"
    if dtype in SIZED:
        value = wrapped(int(value), dtype)
    else:
        value = _CONSTANTS[kind_of(dtype)](value)
    return make("const", (), value, dtype)


_CONSTANTS: dict[str, Callable[[Any], Any]] = {BOOL: bool, "int": int, "float": float, "complex": complex}


def symbol(name: str, dtype: str = INDEX) -> Scalar:
    """A named value that is known when the kernel runs."""
    return make("symbol", (), name, dtype)


Operand = Scalar | int | float | complex | bool


def scalar(value: Operand, dtype: str | None = None) -> Scalar:
    """`value` itself if it is a Scalar, else a constant."""
    return value if isinstance(value, Scalar) else const(value, dtype)


def text(node: Scalar) -> str:
    """The expression as it reads in C, functions by their own names."""
    made: dict[Scalar, Written] = {}
    for part in node.walk():
        made[part] = _text(part, [made[argument] for argument in part.args])
    return made[node][0]


def _text(node: Scalar, operands: Sequence[Written]) -> Written:
    """The text and how strongly its outermost operator binds."""
    if node.op in FUNCTIONS:
        form = FUNCTIONS[node.op].operator or called(node.op, len(node.args))
        return form.write(operands)
    texts = [operand for operand, _ in operands]
    match node.op:
        case "const":
            return (str(node.value).lower() if node.dtype == BOOL else str(node.value)), POSTFIX
        case "symbol":
            return str(node.value), POSTFIX
        case "load":
            return f"{node.value}[{texts[0]}]", POSTFIX
        case "search":
            return f"search({node.value}, {texts[0]}, {texts[1]})", POSTFIX
    assert node.op == "cast"
    return f"{node.dtype}({texts[0]})", POSTFIX
