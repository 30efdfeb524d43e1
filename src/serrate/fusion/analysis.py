"""What is asked of scalar expressions: their value, how often they read a symbol, what occurs in them twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from serrate.fusion.dtypes import FLOATS, INDEX
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar

PARTIAL = ("load", "search", "index_divide", "index_remainder")
"""Operations that fail on some operands, which a condition may exclude."""


def reads(expression: Scalar) -> dict[Scalar, int]:
    """How often an expression, written out, reads each of its symbols; more than once counts as 2.

    >>> from serrate.fusion import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> found = reads((x + y) * (x + 2))
    >>> found[x], found[y]
    (2, 1)
    """
    if not expression.args:
        return {expression: 1} if expression.op == "symbol" else {}
    times = {expression: 1}
    for node in reversed(list(expression.walk())):  # what reads a node comes before it
        for argument in node.args:
            times[argument] = min(times.get(argument, 0) + times[node], 2)
    return {node: many for node, many in times.items() if node.op == "symbol"}


def evaluate(node: Scalar, values: Mapping[str, int], arrays: Mapping[str, Any] | None = None) -> Any:
    """What an integer or boolean expression is worth, symbols and arrays given by name: sequences or tensors."""
    arrays = {} if arrays is None else arrays
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


def _worth(node: Scalar, args: list[Any], values: Mapping[str, int], arrays: Mapping[str, Any]) -> Any:
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


def repeated(values: Sequence[Scalar], longer_than: int) -> list[Scalar]:
    """Subexpressions that would be written more than once, operands first: those of more than so many operations. What
    only some condition lets be evaluated, and could fail where that does not hold, is left where it stands.

    >>> from serrate.fusion import symbol
    >>> x = symbol("x", "float32")
    >>> twice = x * x + 1
    >>> repeated([twice * twice], 1), repeated([twice * twice], 2)
    ([x * x + 1.0], [])
    """
    nodes = list(dict.fromkeys(node for value in values for node in value.walk()))
    readers = Counter(values)
    for node in nodes:
        readers.update(node.args)
    always = _evaluated(values)
    total: set[Scalar] = set()  # what cannot fail
    size: dict[Scalar, int] = {}  # in operations, with names for what is found
    found: list[Scalar] = []
    for node in nodes:
        size[node] = bool(node.args) + sum(size[argument] for argument in node.args)
        if not may_fail(node) and total.issuperset(node.args):
            total.add(node)
        if readers[node] > 1 and size[node] > longer_than and (node in always or node in total):
            size[node] = 0
            found.append(node)
    return found


def may_fail(node: Scalar) -> bool:
    """Whether a node may fault, or mean nothing, where the condition it stands under does not hold."""
    whole = node.op == "cast" and node.args[0].dtype in FLOATS and node.dtype not in FLOATS  # of infinity
    return whole or node.op in PARTIAL


def _evaluated(values: Sequence[Scalar]) -> set[Scalar]:
    """The nodes that are evaluated whatever conditions say."""
    found: set[Scalar] = set()
    stack = list(values)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.args[:1] if node.op in ("where", "logical_and", "logical_or") else node.args
    return found


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
