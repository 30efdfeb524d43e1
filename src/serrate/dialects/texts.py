"""Texts: modules of the dialects read and printed, with errors that say file, line and column."""

from __future__ import annotations

import re
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span

from serrate.dialects.attributes import PTensor
from serrate.dialects.calls import FUNCTIONS
from serrate.dialects.dist import DIST
from serrate.dialects.host import HOST
from serrate.dialects.ptensor import PTENSOR
from serrate.dialects.region import REGION
from serrate.dialects.terms import UNKNOWN


class TextError(ValueError):
    """This error is raised for a text that is no module of the dialects, or stands for no program.

    It says where the mistake is: file, line and column, which count from 1.
    """

    def __init__(self, message: str, where: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)


def context() -> Context:
    """What knows all dialects that a module may have."""
    made = Context()
    for dialect in (Builtin, FUNCTIONS, Arith, PTENSOR, HOST, REGION, DIST):
        made.load_dialect(dialect)
    return made


class _Parser(Parser):
    """A parser that remembers where each operation begins."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(context(), text, name)
        self.begins: dict[Operation, Span] = {}

    def parse_optional_operation(self) -> Operation | None:
        """Read an operation, if one begins here."""
        begin = self._current_token.span
        found = super().parse_optional_operation()
        if found is not None:
            self.begins[found] = begin
        return found


class Module:
    """A module, and where its operations stand in the text that it was read from."""

    def __init__(self, module: ModuleOp, begins: dict[Operation, Span] | None = None) -> None:
        self.module = module
        self._begins = begins or {}

    def __str__(self) -> str:
        return printed(self.module)

    def entry(self, name: str) -> str:
        """The function that is run: the only one, or the one of this name."""
        names = [each.sym_name.data for each in self.module.ops if isinstance(each, FuncOp)]
        if len(names) == 1:
            return names[0]
        if name not in names:
            there = ", ".join(f"@{each}" for each in names) or "none"
            raise ValueError(f"there is no function @{name} in the module; there are: {there}")
        return name

    def where(self, operation: Operation) -> str:
        """Where an operation stands: "file:line:column"."""
        span = self._begins.get(operation)
        return "" if span is None else _place(span)


_MISTAKES = (
    VerifyException, UnicodeDecodeError, ValueError, KeyError, IndexError, TypeError, AssertionError, ArithmeticError,
)  # fmt: skip
"""Errors by which xDSL refuses a text, besides those that have a place."""


def parse(text: str, name: str = "text") -> Module:
    """Read a module.

    >>> from serrate.dialects.texts import TextError, parse
    >>> try:
    ...     parse('"ptensor.reduce"() {rop = "summ"} : () -> ()', "model.mlir")
    ... except TextError as error:
    ...     print(str(error).partition(";")[0])
    model.mlir:1:1: ptensor.reduce has no rop summ
    """
    _check_quotes(text, name)
    if not _COMMENT.sub("", text).strip():
        raise TextError("a module of functions is expected, and the text is empty", f"{name}:1:1")
    try:
        parser = _Parser(text, name)  # reads the first word
        module = parser.parse_module()
        made = Module(module, parser.begins)
        _check_names(made)
        for each in module.walk():
            try:
                each.verify(verify_nested_ops=False)
            except VerifyException as error:
                raise TextError(_first_line(error), made.where(each)) from error
        _check_order(made)
    except ParseError as error:
        raise TextError(_first_line(error), _place(error.span)) from error
    except RecursionError as error:
        raise TextError("too many brackets stand inside of each other", _place(parser._current_token.span)) from error
    except _MISTAKES as error:
        if isinstance(error, TextError):
            raise
        raise TextError(_first_line(error), _place(parser._current_token.span)) from error
    return made


_QUOTED = re.compile(r"""//[^\n]*|"(?:[^"\\\n\f\v\r]++|\\[\\"nt]|\\[0-9A-Fa-f]{2})*+(")?""")
"""A comment, or a text in quotes, whose end is there or not."""


_COMMENT = re.compile(r"//[^\n]*")


def _check_quotes(text: str, name: str) -> None:
    """Refuse a text in quotes that does not end in its line: xDSL takes a time for it that grows exponentially."""
    for found in _QUOTED.finditer(text):
        if found[0].startswith('"') and found[1] is None:
            place = Span(found.start(), found.end(), Input(text, name))
            raise TextError("a text in quotes does not end in its line, or has an unknown escape", _place(place))


def _check_names(module: Module) -> None:
    """Refuse two functions of one name."""
    names: set[str] = set()
    for each in module.module.ops:
        if isinstance(each, FuncOp):
            if each.sym_name.data in names:
                raise TextError(f"the module has another function @{each.sym_name.data} already", module.where(each))
            names.add(each.sym_name.data)


def _check_order(module: Module) -> None:
    """Refuse an operation that reads what is made behind it, or inside of an operation that does not hold it."""
    known: set[SSAValue] = set()

    def check(operation: Operation) -> None:
        for each in operation.operands:
            if each not in known:
                name = f"%{each.name_hint}" if each.name_hint else "a value"
                raise TextError(
                    f"{operation.name} reads {name}, which is made behind it or inside of another operation",
                    module.where(operation),
                )
        for block in (block for part in operation.regions for block in part.blocks):
            known.update(block.args)
            for each in block.ops:
                check(each)
            known.difference_update(block.args, *(each.results for each in block.ops))
        known.update(operation.results)

    check(module.module)


def parse_type(text: str) -> PTensor:
    """Read the type of a tensor."""
    found = builtin_type(text)
    if not isinstance(found, PTensor):
        raise TextError(f"{text} is no type of a tensor", "")
    return found


def builtin_type(text: str) -> Attribute:
    """Read any type."""
    try:
        return Parser(context(), text, "type").parse_type()
    except ParseError as error:
        raise TextError(_first_line(error), _place(error.span)) from error


def printed(module: Operation) -> str:
    """A module as text, with the places of the user's program."""
    stream = StringIO()
    Printer(stream, print_debuginfo=True).print_op(module)
    return stream.getvalue().replace(UNKNOWN, "") + "\n"


def _first_line(error: Exception) -> str:
    message = error.msg if isinstance(error, ParseError) else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _place(span: Span) -> str:
    text = span.input.content[: span.start]
    line, column = text.count("\n") + 1, span.start - (text.rfind("\n") + 1) + 1
    return f"{span.input.name}:{line}:{column}"
