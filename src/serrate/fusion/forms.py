"""How C writes a scalar function: a text with a place for each operand, and how strongly operators bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# How strongly C's operators bind.
SELECT, OR, AND, EQUALITY, ORDER, SUM, PRODUCT, UNARY, POSTFIX = range(1, 10)

Written = tuple[str, int]  # a text, and how strongly its outermost operator binds


@dataclass(frozen=True)
class Form:
    """A text with a place `{}` for each operand."""

    text: str
    level: int = POSTFIX
    """How strongly the outermost operator of the text binds."""
    operands: tuple[int, ...] = ()
    """How strongly operands have to bind to stand without parentheses; where nothing is said, any do."""
    is_operator: bool = False
    """Whether it is written with signs, so that it reads in any text as it does in C."""
    compound: str = ""
    """The operator that stores the result where the first operand lies, if C has one."""
    is_typed: bool = False
    """Whether the type of the first operand is that of the result."""

    def write(self, operands: Sequence[Written]) -> Written:
        """The text with these operands."""
        levels = self.operands or (SELECT,) * len(operands)
        texts = [text if own >= level else f"({text})" for (text, own), level in zip(operands, levels, strict=True)]
        return self.text.format(*texts), self.level


Forms = Mapping[str, Form]
"""Forms by the dtype of the last operand, or its kind: "int", "float", "bool", or "" for all others."""


def infix(sign: str, level: int) -> Form:
    """An operator between two operands, the left one grouped first."""
    compound = f"{sign}=" if sign in ("+", "-", "*", "/") else ""
    return Form(f"{{}} {sign} {{}}", level, (level, level + 1), is_operator=True, compound=compound)


def bits(sign: str) -> Form:
    """An operator on bits, in parentheses, since few know how strongly those bind."""
    return Form(f"({{}} {sign} {{}})", POSTFIX, (SUM, SUM), is_operator=True)


def prefix(sign: str) -> Form:
    """An operator before its operand."""
    return Form(f"{sign}{{}}", UNARY, (POSTFIX,), is_operator=True)


def called(name: str, arity: int) -> Form:
    """A function of that name."""
    return Form(f"{name}({', '.join(['{}'] * arity)})")


def prelude(name: str, arity: int = 1) -> Forms:
    """A function of the prelude, for every dtype."""
    return {"": Form(called(f"sr::{name}", arity).text, is_typed=True)}


def library(name: str, arity: int = 1) -> Forms:
    """A function of C's mathematical library, whose name for float ends in f."""
    return {"float32": called(f"{name}f", arity), "float64": called(name, arity)}
