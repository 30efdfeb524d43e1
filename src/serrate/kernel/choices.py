"""Choices that are the same for all lanes: made once, before the loop over the lanes, so that each of the loops that
are then two loads what it reads without a mask."""

from __future__ import annotations

from functools import partial

from serrate.fusion.scalar import FALSE, TRUE, Scalar, logical_not
from serrate.fusion.types import ParallelType
from serrate.kernel.ir import For, If, Let, Statement, Store, expressions, map_expressions, replace_body, rewrite, walk

_MOST = 3  # choices that are made before one loop: each of them may double what is printed


def chosen_before_lanes(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The body, doing the same.

    >>> from serrate.fusion.scalar import less, load, symbol, where, const
    >>> from serrate.kernel.ir import head
    >>> c, lane = symbol("c"), symbol("lane")
    >>> value = where(less(c, 3), load("x", c * 8 + lane, "float32"), const(0.0, "float32"))
    >>> loop = For(lane, const(8), (Store("y", c * 8 + lane, value),), "lanes", ParallelType.Simd)
    >>> for statement in walk(chosen_before_lanes((loop,))):
    ...     print(head(statement))
    if c < 3:
    for lane in 8: Simd  # lanes
    y[c * 8 + lane] = x[c * 8 + lane]
    if !(c < 3):
    for lane in 8: Simd  # lanes
    y[c * 8 + lane] = 0.0
    """
    return rewrite(body, lambda statement: _divided(statement, _MOST))


def _divided(statement: Statement, most: int) -> tuple[Statement, ...]:
    """A loop over lanes as several, each for one outcome of a choice that all lanes share."""
    if not isinstance(statement, For) or statement.parallel != ParallelType.Simd or not most:
        return (statement,)
    condition = _shared_condition(statement)
    if condition is None:
        return (statement,)
    inside, outside = condition
    made: list[Statement] = []
    for truth, test in ((TRUE, outside), (FALSE, logical_not(outside))):
        decided = partial(Scalar.substitute, values={inside: truth})
        body = tuple(map_expressions(each, decided) for each in statement.body)
        loop = replace_body(statement, body)
        assert isinstance(loop, For)
        made.append(If(test, _divided(loop, most - 1)))
    return tuple(made)


def _shared_condition(loop: For) -> tuple[Scalar, Scalar] | None:
    """The first condition of a choice in a loop that is the same for all lanes: as it stands there, and before it."""
    if not all(isinstance(statement, (Let, Store)) for statement in loop.body):
        return None
    stored = {statement.buffer for statement in walk(loop.body) if isinstance(statement, Store)}
    differing = {loop.var}  # names that are not the same for all lanes
    names: dict[Scalar, Scalar] = {}  # what the others mean
    for statement in loop.body:
        for expression in expressions(statement):
            for condition in _conditions(expression):
                outside = condition.substitute(names)
                if _is_shared(outside, differing, stored):
                    return condition, outside
        if isinstance(statement, Let):
            value = statement.value.substitute(names)
            if _is_shared(value, differing, stored):
                names[statement.var] = value
            else:
                differing.add(statement.var)
    return None


def _conditions(expression: Scalar) -> list[Scalar]:
    """The conditions of the outermost choices of an expression. Those inside are made only where these allow it."""
    found: list[Scalar] = []
    stack = [expression]
    while stack:
        node = stack.pop()
        if node.op == "where":
            found.append(node.args[0])
        elif node.op not in ("logical_and", "logical_or"):  # whose second operand need not be looked at
            stack += reversed(node.args)
    return found


def _is_shared(expression: Scalar, differing: set[Scalar], stored: set[str]) -> bool:
    """Whether all lanes see the same value."""
    read = {node.value for node in expression.walk() if node.op in ("load", "search")}
    return differing.isdisjoint(expression.symbols) and stored.isdisjoint(read)
