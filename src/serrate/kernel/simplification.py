"""Simplification of kernels: expressions by proven rules under the bounds of their loops; nothing that is not used."""

from __future__ import annotations

from functools import partial

from serrate.fusion.analysis import reads
from serrate.fusion.dtypes import BOOL, INDEX
from serrate.fusion.proof import Bounds
from serrate.fusion.scalar import FALSE, TRUE, Scalar, const, rebuild
from serrate.fusion.simplify import simplify
from serrate.kernel.ir import (
    Allocate,
    Fault,
    For,
    GridReduce,
    If,
    Launch,
    Let,
    Statement,
    Store,
    children,
    expressions,
    map_expressions,
    replace_body,
)


def simplified(body: tuple[Statement, ...], launch: Launch) -> tuple[Statement, ...]:
    """The body, doing the same with less."""
    body = _simplify(_inlined(body, {}), {}, launch)
    while True:
        smaller = _used_once(_without_unused(body))
        if smaller == body:
            return body
        body = smaller


def _inlined(body: tuple[Statement, ...], values: dict[Scalar, Scalar]) -> tuple[Statement, ...]:
    """Quotients and remainders in place of their names: most of them meet again in an address, and are gone."""
    made: list[Statement] = []
    for statement in body:
        statement = map_expressions(statement, partial(Scalar.substitute, values=values))
        if isinstance(statement, Let) and statement.value.op in ("index_divide", "index_remainder"):
            values = {**values, statement.var: statement.value}
            continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _inlined(statement.body, values))
        made.append(statement)
    return tuple(made)


def _simplify(body: tuple[Statement, ...], bounds: Bounds, launch: Launch) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for statement in body:
        changed = map_expressions(statement, lambda expression: _expression(expression, bounds))
        if isinstance(changed, (If, Fault)) and changed.condition == FALSE:
            continue
        if isinstance(changed, For):
            launched = launch.size(changed.parallel)
            exact = launched is None or launched == changed.extent  # more may be launched than there are indices
            inner = {**bounds, changed.var: (const(0), changed.extent if exact else None)}
            made.append(replace_body(changed, _simplify(changed.body, inner, launch)))
        elif isinstance(changed, If):
            inside = _simplify(changed.body, bounds, launch)
            made.extend(inside if changed.condition == TRUE else [replace_body(changed, inside)])
        elif isinstance(changed, GridReduce):
            made.append(replace_body(changed, _simplify(changed.body, bounds, launch)))
        else:
            made.append(changed)
    return tuple(made)


def _expression(expression: Scalar, bounds: Bounds) -> Scalar:
    """Indices, sizes and guards as a whole; of values only the addresses they are loaded from."""
    if all(node.dtype in (INDEX, BOOL) for node in expression.walk()):
        return simplify(expression, bounds)
    loads = [node for node in expression.walk() if node.op == "load"]
    return expression.substitute({node: rebuild(node, (simplify(node.args[0], bounds),)) for node in loads})


def _without_unused(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Without names that nothing reads, and loops and conditions around nothing."""
    made: list[Statement] = []
    for position, statement in enumerate(body):
        if isinstance(statement, Let) and not _uses(body[position + 1 :], statement.var):
            continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _without_unused(statement.body))
            if not statement.body and not isinstance(statement, GridReduce):
                continue
            if _only_binds(statement):
                made.extend(statement.body)
                continue
        made.append(statement)
    return tuple(made)


def _only_binds(statement: Statement) -> bool:
    """Whether a loop over blocks or threads gives an index that nothing reads, and nothing inside needs its scope."""
    if not isinstance(statement, For) or not (statement.parallel.is_block or statement.parallel.is_thread):
        return False
    scoped = any(isinstance(inside, (Let, Allocate)) for inside in statement.body)
    return not scoped and not _uses(statement.body, statement.var)


def _used_once(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Values in place of names that are read once, by a statement of the same body, before anything is stored."""
    made: list[Statement] = []
    values: dict[Scalar, Scalar] = {}
    for position, statement in enumerate(body):
        statement = map_expressions(statement, partial(Scalar.substitute, values=values))
        if isinstance(statement, Let) and _is_read_at_once(body[position + 1 :], statement.var):
            values[statement.var] = statement.value
            continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _used_once(statement.body))
        made.append(statement)
    return tuple(made)


def _is_read_at_once(following: tuple[Statement, ...], name: Scalar) -> bool:
    if _uses(following, name) != 1:
        return False
    for statement in following:
        if isinstance(statement, (Let, Store)):
            if any(name in expression.symbols for expression in expressions(statement)):
                return True
            if isinstance(statement, Let):
                continue
        return False
    return False


def _uses(body: tuple[Statement, ...], name: Scalar) -> int:
    """How often a name is read; what is bound to the same name further in is another."""
    count = 0
    for statement in body:
        count += sum(reads(expression, name) for expression in expressions(statement))
        if isinstance(statement, Let) and statement.var == name:
            return count
        if not (isinstance(statement, For) and statement.var == name):
            count += _uses(children(statement), name)
    return count
