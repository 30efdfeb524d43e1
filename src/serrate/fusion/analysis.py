"""What is asked of scalar expressions: their value, how often they read a symbol, what occurs in them twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serrate.fusion.dtypes import INDEX
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar


def reads(expression: Scalar) -> dict[Scalar, int]:
    """How often an expression, written out, reads each of its symbols; more than once counts as 2.

    >>> from serrate.fusion import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> reads((x + y) * (x + 2))
    {y: 1, x: 2}
    """
    times = {expression: 1}
    for node in reversed(list(expression.walk())):  # what reads a node comes before it
        for argument in node.args:
            times[argument] = min(times.get(argument, 0) + times[node], 2)
    return {node: many for node, many in times.items() if node.op == "symbol"}


def evaluate(node: Scalar, values: Mapping[str, int], arrays: Mapping[str, Sequence[int]] | None = None) -> Any:
    """What an integer or boolean expression is worth, symbols and arrays given by name."""
    arrays = arrays or {}
    made: dict[Scalar, Any] = {}
    stack = [node]
    while stack:
        part = stack[-1]
        missing = [argument for argument in _asked(part, made) if argument not in made]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        if part not in made:
            made[part] = _worth(part, [made[argument] for argument in _asked(part, made)], values, arrays)
    return made[node]


def _asked(node: Scalar, made: Mapping[Scalar, Any]) -> tuple[Scalar, ...]:
    """The operands that have to be evaluated; which those are, the first of them may say."""
    first = node.args[:1]
    match node.op:
        case "logical_and" | "logical_or" | "where" if first[0] not in made:
            return first
        case "logical_and":
            return node.args if made[first[0]] else first
        case "logical_or":
            return first if made[first[0]] else node.args
        case "where":
            return (first[0], node.args[1] if made[first[0]] else node.args[2])
    return node.args


def _worth(node: Scalar, args: list[Any], values: Mapping[str, int], arrays: Mapping[str, Sequence[int]]) -> Any:
    """What a node is worth, of the operands that were asked for."""
    match node.op:
        case "const":
            return node.value
        case "symbol":
            return values[node.value]
        case "load":
            if not 0 <= args[0] < len(arrays[node.value]):
                raise IndexError(f"{node.value}[{args[0]}] of {len(arrays[node.value])}")
            return arrays[node.value][args[0]]
        case "search":
            count, position = args
            return max(c for c in range(count) if arrays[node.value][c] <= position)
        case "cast":
            return args[0]
        case "logical_and" | "logical_or" | "where":
            return args[-1]
    return FUNCTIONS[node.op].evaluator(node.args[-1].dtype)(*args)


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
