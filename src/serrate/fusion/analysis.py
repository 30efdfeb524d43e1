"""What is asked of scalar expressions: their value, how often they read a symbol, what occurs in them twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serrate.fusion.dtypes import INDEX
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar


def reads(expression: Scalar, name: Scalar) -> int:
    """How often an expression, written out, reads a symbol; twice counts as many."""
    if name not in expression.symbols:
        return 0
    if expression == name:
        return 1
    found = 0
    for argument in expression.args:
        found += reads(argument, name)
        if found > 1:  # no need to look further, which would take long where parts are shared
            return 2
    return found


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
            case "logical_and":
                return of(n.args[0]) and of(n.args[1])
            case "logical_or":
                return of(n.args[0]) or of(n.args[1])
            case "where":
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
            case "cast":
                return args[0]
        return FUNCTIONS[n.op].evaluator(n.args[-1].dtype)(*args)

    return of(node)


def common(values: Sequence[Scalar]) -> list[Scalar]:
    """Subexpressions that occur more than once, smaller ones first; those that cost nothing, and indices, are left."""
    readers: dict[Scalar, int] = {}
    nodes = list(dict.fromkeys(node for value in values for node in value.walk()))
    for node in nodes:
        for argument in node.args:
            readers[argument] = readers.get(argument, 0) + 1
    for value in values:
        readers[value] = readers.get(value, 0) + 1
    plain = ("const", "symbol", "load", "cast")
    return [node for node in nodes if readers.get(node, 0) > 1 and node.op not in plain and node.dtype != INDEX]
