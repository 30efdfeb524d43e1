"""Kernels as C: what the C++ and the CUDA printer share, expressions and statements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import ClassVar

import numpy as np

from serrate.fusion.analysis import repeated
from serrate.fusion.dtypes import COMPLEX, INDEX, INTEGERS, parts_of
from serrate.fusion.forms import EQUALITY, OR, ORDER, POSTFIX, PRODUCT, SELECT, SUM, UNARY, Form, Written
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar, const
from serrate.fusion.types import Memory
from serrate.kernel.ir import (
    Allocate,
    Buffer,
    Fault,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Scan,
    Statement,
    Store,
    expressions,
    walk,
)

_LONGEST = 12  # operations of an expression that may be written twice
# C computes these in int, so that their results have to be narrowed.
_NARROW = ("bool", "uint8", "uint16", "int8", "int16")
_SUFFIXES = {"uint32": "u", "uint64": "ull"}  # of constants


@cache
def prelude(name: str) -> str:
    """The text of a prelude, with the scalar functions that C lacks, and the exponential that native code has too."""
    folder, exponential = files("serrate.kernel"), "exponential.h"
    text = folder.joinpath(name).read_text()
    text = text.replace("\nSCALAR_FUNCTIONS\n", f"\n{folder.joinpath('scalars.h').read_text()}")
    return text.replace(f'#include "{exponential}"\n', files("serrate.runtime").joinpath(exponential).read_text())


def complex_functions(kernels: Iterable[Kernel]) -> list[str]:
    """The text about complex numbers that the source of some kernels needs: none, if they have no such numbers."""
    needed = any(dtypes(kernel) & {*COMPLEX} for kernel in kernels)
    return [files("serrate.kernel").joinpath("complex.h").read_text()] if needed else []


@cache
def word(name: str) -> str:
    """The name with nothing but letters, digits and underscores in it, beginning with a letter."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return name if name[:1].isalpha() else f"x{name}"


def identifier(name: str) -> str:
    """What a name of a kernel is called in its source: the name with an underscore at its end.

    No word, macro or function that a source can see begins with a letter and ends with an underscore, nor does anything
    that the printers name by themselves, so that users may call their tensors, sizes and axes what they like.

    >>> identifier("x"), identifier("round"), identifier("my axis"), identifier("2nd")
    ('x_', 'round_', 'my_axis_', 'x2nd_')
    """
    return f"{word(name)}_"


def check_distinct(kernels: Sequence[Kernel]) -> None:
    """Refuse kernels of one source that would have one name."""
    names: dict[str, str] = {}
    for kernel in kernels:
        other = names.get(identifier(kernel.name))
        if other is not None:
            raise ValueError(f"kernels {other!r} and {kernel.name!r} cannot stand in one source: they have one name")
        names[identifier(kernel.name)] = kernel.name


def dtypes(kernel: Kernel) -> frozenset[str]:
    """The dtypes of a kernel's buffers and expressions."""
    statements = list(walk(kernel.body))
    local = (statement.buffer for statement in statements if isinstance(statement, Allocate))
    nodes = (node for statement in statements for e in expressions(statement) for node in e.walk())
    return frozenset([buffer.dtype for buffer in (*kernel.buffers, *local)] + [node.dtype for node in nodes])


class Printer:
    """The C of a kernel's expressions and statements; what differs between C++ and CUDA is for subclasses to say."""

    target: ClassVar[str]  # whose forms of scalar functions are written
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "unsigned", "uint64": "uint64_t",
        "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t", "float32": "float",
        "float64": "double", "complex64": "sr::complex<float>", "complex128": "sr::complex<double>",
    }  # fmt: skip

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in kernel.buffers}
        self.named: dict[Scalar, str] = {}  # what is called so in the statement that is being written
        self._parts = 0  # how many names were made for what occurs twice

    # Expressions

    def type(self, dtype: str) -> str:
        """The C type of a dtype."""
        return self.types[self.kernel.index if dtype == INDEX else dtype]

    def expression(self, node: Scalar, level: int = SELECT) -> str:
        """The text of an expression, in parentheses if its outermost operator binds less than `level`."""
        text, own = self._written(node)
        return text if own >= level else f"({text})"

    def _written(self, root: Scalar) -> Written:
        """The text of an expression, and how strongly its outermost operator binds."""
        made: dict[Scalar, Written] = {}
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.named:
                made[node] = self.named[node], POSTFIX
            elif missing := [argument for argument in node.args if argument not in made]:
                stack += reversed(missing)
                continue
            elif node not in made:
                made[node] = self._text(node, [made[argument] for argument in node.args])
            stack.pop()
        return made[root]

    def parts(self, *values: Scalar) -> Iterator[str]:
        """Names for long parts of expressions that occur in them more than once, on lines of their own."""
        for part in repeated(values, _LONGEST):
            self._parts += 1
            yield f"const {self.type(part.dtype)} part{self._parts} = {self.assigned(part)};"
            self.named[part] = f"part{self._parts}"

    def assigned(self, node: Scalar) -> str:
        """The text of an expression whose value is assigned to a variable of its type, as C then converts integers."""
        if node in self.named:
            return self.named[node]
        if node.op == "load" and node.dtype in INTEGERS and self._buffer(node.value).dtype in INTEGERS:
            return self.element(node.value, node.args[0])
        if self._is_narrowed(node):
            return self._function(node, [self._written(argument) for argument in node.args])[0]
        return self.expression(node)

    def element(self, name: str, index: Scalar) -> str:
        """An element of a buffer."""
        return self._element(name, self.expression(index))

    def _element(self, name: str, index: str) -> str:
        """Local buffers of one element are plain variables."""
        return identifier(name) if self._is_variable(self._buffer(name)) else f"{identifier(name)}[{index}]"

    def _is_variable(self, buffer: Buffer) -> bool:
        return buffer not in self.kernel.buffers and buffer.size.value == 1 and buffer.memory != Memory.SCRATCH

    def _buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            raise ValueError(f"kernel {self.kernel.name} has no buffer {name!r}; it has {', '.join(self.buffers)}")
        return self.buffers[name]

    def _is_narrowed(self, node: Scalar) -> bool:
        return node.op in FUNCTIONS and FUNCTIONS[node.op].widens and node.dtype in _NARROW

    def _text(self, node: Scalar, operands: list[Written]) -> Written:
        """The text of a node with these operands."""
        if self._is_narrowed(node):
            return f"{self.type(node.dtype)}({self._function(node, operands)[0]})", POSTFIX
        if node.op in FUNCTIONS:
            return self._function(node, operands)
        match node.op:
            case "const":
                return self._constant(node)
            case "symbol":
                return identifier(node.value), POSTFIX
            case "load":
                return self._load(node, operands[0][0])
            case "search":
                (count, _), (position, _) = operands
                return self.search(identifier(node.value), count, position), POSTFIX
        assert node.op == "cast"
        if self.type(node.dtype) == self.type(node.args[0].dtype):
            return operands[0]
        if node.args[0].dtype == "bool" and node.dtype in ("float32", "float64"):  # compilers make lanes of a choice
            one, zero = (self._constant(const(number, node.dtype))[0] for number in (1, 0))
            return Form("{} ? " + f"{one} : {zero}", SELECT, (OR,)).write(operands)
        return f"{self.type(node.dtype)}({operands[0][0]})", POSTFIX

    def search(self, offsets: str, count: str, position: str) -> str:
        """The component that a position lies in."""
        return f"sr::search({offsets}, {count}, {position})"

    def _function(self, node: Scalar, operands: list[Written]) -> Written:
        """A scalar function as its row says."""
        form = FUNCTIONS[node.op].form(self.target, node.args[-1].dtype)
        first = node.args[0]
        if form.is_typed and first.is_const and first.dtype in INTEGERS and self.type(first.dtype) != "int":
            operands = [(f"{self.type(first.dtype)}({operands[0][0]})", POSTFIX), *operands[1:]]
        return form.write(operands)

    def _constant(self, node: Scalar) -> Written:
        value, dtype = node.value, node.dtype
        if dtype == "bool":
            return str(value).lower(), POSTFIX
        if dtype in INTEGERS:
            # C has no negative literals, and 2^63 is not an int64_t.
            if value == -(2**63):
                return f"{value + 1} - 1", SUM
            return f"{value}{_SUFFIXES.get(dtype, '')}", UNARY if value < 0 else POSTFIX
        if dtype in COMPLEX:
            parts = (self._constant(const(part, parts_of(dtype)))[0] for part in (value.real, value.imag))
            return f"{self.type(dtype)}({', '.join(parts)})", POSTFIX
        if math.isfinite(value):
            text = repr(value) if dtype == "float64" else str(np.float32(value)) + "f"
        else:
            text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
            if dtype == "float64":
                return f"double({text})", POSTFIX
        if dtype in ("float16", "bfloat16"):
            return f"{self.type(dtype)}({text})", POSTFIX
        return text, UNARY if text.startswith("-") else POSTFIX

    def _load(self, node: Scalar, index: str) -> Written:
        element, wanted, buffer = self._element(node.value, index), self.type(node.dtype), self._buffer(node.value)
        if buffer.dtype == "bool" and self.element_type(buffer) != wanted:
            return f"{element} != 0", EQUALITY
        return (element if self.type(buffer.dtype) == wanted else f"{wanted}({element})"), POSTFIX

    def element_type(self, buffer: Buffer) -> str:
        """The C type of what a buffer holds."""
        return self.type(buffer.dtype)

    # Statements

    def lines(self, body: tuple[Statement, ...]) -> Iterator[str]:
        """The lines of a body, not indented."""
        self.named.clear()  # what is stored in a loop may change what was read before it
        skip = False
        for position, statement in enumerate(body):
            following = body[position + 1] if position + 1 < len(body) else None
            first = self._first_value(statement, following)
            if skip:
                skip = False
            elif isinstance(statement, Allocate) and first is not None:
                buffer = statement.buffer
                self.buffers[buffer.name] = buffer
                yield from self.parts(first)
                yield f"{self.type(buffer.dtype)} {identifier(buffer.name)} = {self.assigned(first)};"
                skip = True
            else:
                if isinstance(statement, (If, Let, Store)):
                    yield from self.parts(*expressions(statement))
                yield from self.statement(statement, following is None)
            self.named.clear()

    def _first_value(self, statement: Statement, following: Statement | None) -> Scalar | None:
        """What the next statement gives a variable that this one declares."""
        if not (isinstance(statement, Allocate) and isinstance(following, Store)):
            return None
        return (
            following.value
            if following.buffer == statement.buffer.name and self._is_variable(statement.buffer)
            else None
        )

    def statement(self, statement: Statement, last: bool) -> Iterator[str]:
        """The lines of a statement, the last of its body or not."""
        match statement:
            case For():
                yield from self.loop(statement, last)
            case If(condition, body):
                yield f"if ({self.expression(condition)}) {{"
                yield from self.indented(body)
                yield "}"
            case Let(var, value):
                yield f"const {self.type(var.dtype)} {identifier(var.value)} = {self.assigned(value)};"
            case Allocate(buffer):
                self.buffers[buffer.name] = buffer
                yield self.allocation(buffer)
            case Store():
                yield self._store(statement)
            case Fault(condition, name, number):
                yield f"if ({self.expression(condition)}) {identifier(name)}[0] = {number};"
            case Prefetch(name, index):
                yield f"__builtin_prefetch({identifier(name)} + {self.expression(index, PRODUCT)});"
            case Scan():
                yield self.scan(statement)
            case _:
                yield from self.cooperation(statement)

    def indented(self, body: tuple[Statement, ...]) -> Iterator[str]:
        """The lines of a body inside braces."""
        for line in self.lines(body):
            yield line if line.startswith("#") else "  " + line

    def serial_loop(self, loop: For) -> Iterator[str]:
        """A plain loop, with its axis."""
        var, extent = identifier(loop.var.value), self.expression(loop.extent, ORDER + 1)
        yield f"for ({self.type(loop.var.dtype)} {var} = 0; {var} < {extent}; ++{var}) {{  // {one_line(loop.axis)}"
        yield from self.indented(loop.body)
        yield "}"

    def loop(self, loop: For, last: bool) -> Iterator[str]:
        """A loop, however it is run."""
        raise NotImplementedError

    def scan(self, statement: Scan) -> str:
        """What stands where lanes have added up."""
        raise NotImplementedError

    def cooperation(self, statement: Statement) -> Iterator[str]:
        """A barrier or a reduction among threads."""
        raise NotImplementedError

    def allocation(self, buffer: Buffer) -> str:
        """The declaration of a local buffer."""
        raise NotImplementedError

    def declaration(self, buffer: Buffer) -> str:
        """A local buffer's type, name and size."""
        size = "" if self._is_variable(buffer) else f"[{self.expression(buffer.size)}]"
        return f"{self.element_type(buffer)} {identifier(buffer.name)}{size};"

    def _store(self, store: Store) -> str:
        target, value = self.element(store.buffer, store.index), store.value
        form = FUNCTIONS[value.op].operator if value.op in FUNCTIONS else None
        compound = form.compound if form is not None else ""
        if compound and value.args[0].op == "load" and value.dtype == self._buffer(store.buffer).dtype:
            source, operand = value.args
            if source.value == store.buffer and source.args[0] == store.index:
                return f"{target} {compound} {self.assigned(operand)};"
        return f"{target} = {self.assigned(value)};"

    def parameters(self) -> str:
        """The kernel's parameters, one per line, buffers with their sizes."""
        buffers = [
            (f"{'' if buffer.written else 'const '}{self.element_type(buffer)}* __restrict__ {identifier(buffer.name)}",
             f"  // [{self.expression(buffer.size)}]")
            for buffer in self.kernel.buffers
        ]  # fmt: skip
        sizes = [(f"{self.type(INDEX)} {identifier(size.value)}", "") for size in self.kernel.sizes]
        everything = buffers + sizes
        lines = [f"    {text},{comment}" for text, comment in everything[:-1]]
        lines += [f"    {text}) {{{comment}" for text, comment in everything[-1:]]
        return "\n".join(lines)


def one_line(text: str) -> str:
    """The text of a comment: one line of characters that can be seen, which does not end in a backslash, as C would
    then take the next line for a part of it."""
    seen = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(seen.split()).rstrip("\\ ")
