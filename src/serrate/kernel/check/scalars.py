"""Scalar expressions as Python source, in which every load and index computation is checked."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from serrate.fusion.dtypes import INDEX, INTEGERS
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar
from serrate.fusion.types import Memory
from serrate.kernel.check.accesses import Violation
from serrate.kernel.check.numbers import CONVERT, function_name, rounded
from serrate.kernel.ir import Buffer, Kernel, Statement, head

_DIVISIONS = ("index_divide", "index_remainder")
_WITHIN = (*_DIVISIONS, "minimum", "maximum")  # functions of indices that are indices if their operands are
_JOINED = {"logical_and": "and", "logical_or": "or"}
_LONG = 200  # characters of an expression, above which it gets a name: Python nests no more than 200 parentheses


@dataclass(frozen=True)
class Place:
    """The memory of a buffer in the source. `plain` memory is a list, all other has methods that see races."""

    buffer: Buffer
    name: str
    size: str
    plain: bool
    entry: str = ""  # the argument that says how often a thread has come past the allocation

    def holds(self, index: Scalar) -> bool:
        """Whether a constant index is within the bounds of registers."""
        return index.is_const and self.buffer.size.is_const and 0 <= index.value < self.buffer.size.value


@dataclass(frozen=True)
class Scope:
    """What names mean at a statement."""

    symbols: dict[Scalar, str]
    places: dict[str, Place]
    concurrent: bool = False  # inside a loop whose iterations are concurrent

    def inner(self) -> Scope:
        """A copy, to bind more names in."""
        return Scope(dict(self.symbols), dict(self.places), self.concurrent)


@dataclass(frozen=True)
class Line:
    """A line of the source, and the statement that it belongs to."""

    text: str
    statement: Statement | None
    scope: Scope


def _needed(node: Scalar) -> tuple[Scalar, ...]:
    """The operands that are evaluated whatever their values."""
    return node.args[:1] if node.op in ("where", "logical_and", "logical_or") else node.args


class ExpressionWriter:
    """Writes lines, and on them the expressions of one statement after the other."""

    def __init__(self, kernel: Kernel) -> None:
        self.limit = 2**31 if kernel.index == "int32" else 2**63
        self.index = kernel.index
        self.numbers = count()
        self.lines: list[Line] = []
        self.depth = 0
        self.statement: Statement | None = None
        self.scope = Scope({}, {})
        self.uses: Counter[Scalar] = Counter()
        self.made: dict[Scalar, str] = {}
        self.constants: dict[str, Any] = {}
        self.reads: dict[tuple[str, str], str] = {}  # the name of a parameter's elements as values of a dtype

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append(Line("    " * self.depth + text, self.statement, self.scope))

    def fresh(self, name: str = "x") -> str:
        """A new name that reads like the one given."""
        return f"{re.sub(r'[^0-9a-zA-Z_]', '_', name)}_{next(self.numbers)}"

    def wrong(self, what: str) -> Violation:
        """What to raise for a statement that is wrong whatever the sizes."""
        return Violation(what, "" if self.statement is None else f"  at: {head(self.statement)}")

    def place(self, name: str) -> Place:
        """The memory of a buffer."""
        if name not in self.scope.places:
            raise self.wrong(f"there is no buffer {name}")
        return self.scope.places[name]

    def begin(self, *roots: Scalar) -> None:
        """Begin with the expressions of a statement: count what each of their parts is used for."""
        self.made = {}
        self.uses = Counter(roots)
        seen: set[Scalar] = set()
        for root in roots:
            for node in root.walk():
                if node not in seen:
                    seen.add(node)
                    self.uses.update(node.args)

    def value(self, node: Scalar) -> str:
        """Source of the value. What is used more than once gets a name, on a line of its own."""
        stack = [node]  # operands are made before what needs them, so that deep expressions do not recurse
        while stack:
            part = stack[-1]
            missing = [argument for argument in _needed(part) if argument not in self.made]
            if part not in self.made and missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if part not in self.made:
                self.made[part] = self.named(part, self.text(part))
        return self.made[node]

    def named(self, node: Scalar, text: str) -> str:
        """The name of the value, if it needs one, else its source."""
        if not node.args or text.isidentifier() or (self.uses[node] == 1 and len(text) <= _LONG):
            return text
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def text(self, node: Scalar) -> str:
        """Source of the value, in one expression but for the lines of its operands."""
        match node.op:
            case "const":
                return self.constant(node)
            case "symbol":
                if node not in self.scope.symbols:
                    raise self.wrong(f"nothing binds {node.dtype} {node}")
                return self.scope.symbols[node]
            case "load":
                return self.load(node)
            case "search":
                place = self.place(node.value)
                if not place.plain or place.buffer.memory != Memory.GLOBAL:
                    raise self.wrong(f"search in {node.value}, which is not a parameter that is only read")
                offsets = self.reading(place, INDEX)
                arguments = ", ".join(self.value(a) for a in node.args)
                return f"search({node.value!r}, {offsets}, {place.size}, {arguments})"
            case "where" | "logical_and" | "logical_or":
                return self.lazy(node)
            case "cast":
                return self.converted(self.value(node.args[0]), node.args[0].dtype, node.dtype)
        return self.operation(node)

    def operation(self, node: Scalar) -> str:
        """Scalar functions that evaluate all of their operands."""
        row, dtype = FUNCTIONS[node.op], node.args[-1].dtype
        arguments = [self.value(argument) for argument in node.args]
        number = row.number_of(dtype)
        if node.op in _DIVISIONS and not (node.args[1].is_const and node.args[1].value > 0):
            return f"{node.op}({', '.join(arguments)})"
        if isinstance(number, str):
            text = number.format(*arguments)
        else:
            text = f"{function_name(row, dtype)}({', '.join(arguments)})"
        if node.dtype == INDEX and node.op not in _WITHIN:
            return self.in_range(text)
        return rounded(text, node.dtype)

    def lazy(self, node: Scalar) -> str:
        """Of the operands after the first, only those that are needed are evaluated."""
        first = self.value(node.args[0])
        branches = [self.branch(argument) for argument in node.args[1:]]
        if not any(lines for lines, _ in branches):
            if node.op == "where":
                return f"({branches[0][1]} if {first} else {branches[1][1]})"
            return f"({first} {_JOINED[node.op]} {branches[0][1]})"
        name = self.fresh()
        self.line(f"{name} = {first}")
        openings = {
            "where": (f"if {name}:", "else:"),
            "logical_and": (f"if {name}:",),
            "logical_or": (f"if not {name}:",),
        }[node.op]
        for opening, (lines, text) in zip(openings, branches, strict=True):
            self.line(opening)
            self.lines.extend(lines)
            self.line(f"    {name} = {text}")
        return name

    def branch(self, node: Scalar) -> tuple[list[Line], str]:
        """The lines that are needed for a value, and its source."""
        lines, made = self.lines, self.made
        self.lines, self.made = [], dict(made)
        self.depth += 1
        text = self.value(node)
        self.depth -= 1
        new, self.lines, self.made = self.lines, lines, made
        return new, text

    def constant(self, node: Scalar) -> str:
        """A literal, or the name of a numpy scalar."""
        if node.dtype == INDEX and not -self.limit <= node.value < self.limit:
            raise self.wrong(f"overflow: {node.value} does not fit {self.index}")
        if node.dtype in (INDEX, "bool"):
            return f"({node.value})" if node.value < 0 else str(node.value)
        name = self.fresh("constant")
        self.constants[name] = CONVERT[node.dtype](node.value)
        return name

    def load(self, node: Scalar) -> str:
        """An element, if the index is in bounds and something is stored there."""
        place, index = self.place(node.value), self.value(node.args[0])
        dtype, stored = node.dtype, place.buffer.dtype
        if dtype == INDEX and stored not in INTEGERS:
            raise self.wrong(f"load of an index from {node.value}, which is {stored}")
        if place.plain and place.buffer.memory == Memory.GLOBAL:
            name = self.reading(place, dtype)
            text = f"({name}[t] if 0 <= (t := {index}) < {place.size} else outside({node.value!r}, t, {place.size}))"
            wide = dtype == INDEX and np.dtype(stored if stored != INDEX else self.index).itemsize == 8
            return self.in_range(text) if wide and self.index == "int32" else text
        if not place.plain:
            text = f"{place.name}.load({index}, strand{place.entry})"
        elif place.holds(node.args[0]):
            bad = f"bad_load({node.value!r}, {index}, {place.size})"
            text = f"(v if (v := {place.name}[{index}]) is not None else {bad})"
        else:
            bad = f"bad_load({node.value!r}, t, {place.size})"
            text = f"(v if 0 <= (t := {index}) < {place.size} and (v := {place.name}[t]) is not None else {bad})"
        return self.converted(text, stored, dtype)

    def reading(self, place: Place, dtype: str) -> str:
        """The name of the list of a parameter's elements, as values of the dtype."""
        name = f"{place.name}_{dtype}"
        self.reads[place.buffer.name, dtype] = name
        return name

    def converted(self, text: str, old: str, new: str) -> str:
        """A value of one dtype as one of another."""
        if old == new:
            return text
        return self.in_range(f"to_{INDEX}({text})") if new == INDEX else f"to_{new}({text})"

    def in_range(self, text: str) -> str:
        """An index, if it fits the index type. `t` is read at once after it is set, so that all checks can use it."""
        return f"(t if {-self.limit} <= (t := {text}) < {self.limit} else overflow(t))"
