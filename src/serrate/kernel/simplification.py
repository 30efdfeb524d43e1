"""Simplification of kernels: expressions by proven rules under the bounds of their loops; nothing that is not used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from serrate.fusion.analysis import reads
from serrate.fusion.dtypes import BOOL, INDEX
from serrate.fusion.scalar import FALSE, TRUE, Scalar, const, rebuild
from serrate.fusion.simplify import Simplifier
from serrate.kernel.ir import (
    Allocate,
    For,
    GridReduce,
    If,
    Launch,
    Let,
    Statement,
    Store,
    expressions,
    map_expressions,
    replace_body,
)

DEEPEST = 32  # operations that stand one inside another where a value is written in place of its name


def simplified(body: tuple[Statement, ...], launch: Launch) -> tuple[Statement, ...]:
    """The body, doing the same with less."""
    body = _simplify(_inlined(body, {}), Simplifier({}), launch)
    while True:
        used, _ = _used(body)
        smaller = _used_once(used)
        if smaller == body:
            return body
        body = smaller


def _inlined(body: tuple[Statement, ...], outer: Mapping[Scalar, Scalar]) -> tuple[Statement, ...]:
    """Quotients and remainders in place of their names: most of them meet again in an address, and are gone."""
    made: list[Statement] = []
    values = dict(outer)
    for statement in body:
        statement = map_expressions(statement, partial(Scalar.substitute, values=values))
        if isinstance(statement, Let) and statement.value.op in ("index_divide", "index_remainder"):
            values[statement.var] = statement.value
            continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _inlined(statement.body, values))
        made.append(statement)
    return tuple(made)


def _simplify(body: tuple[Statement, ...], simplifier: Simplifier, launch: Launch) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for statement in body:
        changed = map_expressions(statement, partial(_expression, simplifier))
        if isinstance(changed, If) and changed.condition == FALSE:
            continue
        if isinstance(changed, For):
            launched = launch.size(changed.parallel)
            exact = launched is None or launched == changed.extent  # more may be launched than there are indices
            bound = (const(0), changed.extent if exact else None)
            inner = Simplifier({**simplifier.bounds, changed.var: bound})
            made.append(replace_body(changed, _simplify(changed.body, inner, launch)))
        elif isinstance(changed, If):
            inside = _simplify(changed.body, simplifier, launch)
            made.extend(inside if changed.condition == TRUE else [replace_body(changed, inside)])
        elif isinstance(changed, GridReduce):
            made.append(replace_body(changed, _simplify(changed.body, simplifier, launch)))
        else:
            made.append(changed)
    return tuple(made)


def _expression(simplifier: Simplifier, expression: Scalar) -> Scalar:
    """Indices, sizes and guards as a whole; of values only the addresses they are loaded from."""
    nodes = list(expression.walk())
    if all(node.dtype in (INDEX, BOOL) for node in nodes):
        return simplifier.visit(expression)
    loads = [node for node in nodes if node.op == "load"]
    return expression.substitute({node: rebuild(node, (simplifier.visit(node.args[0]),)) for node in loads})


def _used(body: tuple[Statement, ...]) -> tuple[tuple[Statement, ...], dict[Scalar, int]]:
    """The body without names that nothing reads, and without loops and conditions around nothing; and how often it
    reads each name that stands outside of it."""
    kept: list[Statement] = []
    times: dict[Scalar, int] = {}
    for statement in reversed(body):
        if isinstance(statement, Let) and not times.pop(statement.var, 0):
            continue
        _count(statement, times)
        if not isinstance(statement, (For, If, GridReduce)):
            kept.append(statement)
            continue
        inside, inner = _used(statement.body)
        only_binds = isinstance(statement, For) and not inner.pop(statement.var, 0) and _is_bound(statement, inside)
        for name, many in inner.items():
            times[name] = times.get(name, 0) + many
        if only_binds:
            kept.extend(reversed(inside))
        elif inside or isinstance(statement, GridReduce):
            kept.append(replace_body(statement, inside))
    return tuple(reversed(kept)), times


def _count(statement: Statement, times: dict[Scalar, int]) -> list[Scalar]:
    """Count what the statement itself reads; returns the names."""
    found: list[Scalar] = []
    for expression in expressions(statement):
        for name, many in reads(expression).items():
            times[name] = times.get(name, 0) + many
            found.append(name)
    return found


def _is_bound(loop: For, inside: tuple[Statement, ...]) -> bool:
    """Whether a loop is over blocks or threads, and what stands inside does not need its scope."""
    scoped = any(isinstance(statement, (Let, Allocate)) for statement in inside)
    return (loop.parallel.is_block or loop.parallel.is_thread) and not scoped


def _used_once(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Values in place of names that are read once, by a statement of the same body, before anything is stored."""
    readers = _only_readers(body)
    made: list[Statement] = []
    values: dict[Scalar, Scalar] = {}
    for position, statement in enumerate(body):
        statement = map_expressions(statement, partial(Scalar.substitute, values=values))
        reader = readers.get(position)
        if isinstance(statement, Let) and reader is not None:
            around = max(expression.depth for expression in expressions(body[reader]))
            if statement.value.depth + around <= DEEPEST:
                values[statement.var] = statement.value
                continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _used_once(statement.body))
        made.append(statement)
    return tuple(made)


def _only_readers(body: tuple[Statement, ...]) -> dict[int, int]:
    """For each name that is read once, and by a name or a store that follows with nothing but names between: where it
    is bound, and where it is read."""
    found: dict[int, int] = {}
    times: dict[Scalar, int] = {}
    readers: dict[Scalar, int] = {}
    stop = len(body)  # the first statement that follows and is no name
    for position in reversed(range(len(body))):
        statement = body[position]
        if isinstance(statement, Let):
            reader = readers.pop(statement.var, None)
            if times.pop(statement.var, 0) == 1 and reader is not None and reader <= stop:
                found[position] = reader
        else:
            stop = position
        for name in _count(statement, times):
            if isinstance(statement, (Let, Store)):
                readers[name] = position
        if isinstance(statement, (For, If, GridReduce)):
            _, inner = _used(statement.body)
            if isinstance(statement, For):
                inner.pop(statement.var, None)
            for name, many in inner.items():
                times[name] = times.get(name, 0) + many
    return found
