"""Simplification of kernels: expressions by proven rules under the bounds of their loops; nothing that is not used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from serrate.fusion.analysis import reads
from serrate.fusion.dtypes import BOOL, INDEX
from serrate.fusion.scalar import FALSE, TRUE, Scalar, const
from serrate.fusion.simplify import Simplifier
from serrate.kernel.choices import chosen_before_lanes
from serrate.kernel.ir import (
    DEEPEST,
    Allocate,
    Fault,
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


def simplified(body: tuple[Statement, ...], launch: Launch) -> tuple[Statement, ...]:
    """The body, doing the same with less."""
    body = _tidied(_simplify(_inlined(body, {}), Simplifier({}), launch))
    divided = chosen_before_lanes(body)
    return body if divided == body else _tidied(divided)


def _tidied(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    tidying = _Tidying()
    while tidying.again:
        tidying.again = False
        body, _ = tidying.body(body)
    return body


def _inlined(body: tuple[Statement, ...], outer: Mapping[Scalar, Scalar]) -> tuple[Statement, ...]:
    """Quotients and remainders in place of their names: most of them meet again in an address, and are gone."""
    made: list[Statement] = []
    values = dict(outer)
    for statement in body:
        statement = map_expressions(statement, partial(_with_values, values))
        if isinstance(statement, Let) and statement.value.op in ("index_divide", "index_remainder"):
            values[statement.var] = statement.value
            continue
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace_body(statement, _inlined(statement.body, values))
        made.append(statement)
    return tuple(made)


def _with_values(values: dict[Scalar, Scalar], expression: Scalar) -> Scalar:
    """An expression with values in place of names."""
    return expression if values.keys().isdisjoint(expression.symbols) else expression.substitute(values)


def _simplify(body: tuple[Statement, ...], simplifier: Simplifier, launch: Launch) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for statement in body:
        changed = map_expressions(statement, partial(_expression, simplifier))
        if isinstance(changed, (If, Fault)) and changed.condition == FALSE:
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
    """Indices, sizes and guards as a whole; of values the addresses they are loaded from, and the conditions on indices
    by which they are chosen."""
    if not expression.args:
        return expression
    nodes = list(expression.walk())
    plain: set[Scalar] = set()  # what is made of indices and truths alone
    for node in nodes:
        if node.dtype in (INDEX, BOOL) and plain.issuperset(node.args):
            plain.add(node)
    if expression in plain:
        return simplifier.visit(expression)
    roots = {argument for node in nodes if node not in plain for argument in node.args if argument in plain}
    return expression.substitute({root: simplifier.visit(root) for root in roots})


class _Tidying:
    """What is left of bodies without the names that they do not need."""

    def __init__(self) -> None:
        self._reads: dict[Scalar, dict[Scalar, int]] = {}
        self.again = True  # statements have left the loop around them: names may now stand right before what reads them

    def body(self, body: tuple[Statement, ...]) -> tuple[tuple[Statement, ...], dict[Scalar, int]]:
        """The body without names that nothing reads, without loops and conditions around nothing, and with values in
        place of names that are read once; and how often it reads each name that stands outside of it."""
        kept: list[Statement] = []  # from the end
        once: dict[Scalar, Statement] = {}  # names that are read once, and what reads them
        times: dict[Scalar, int] = {}
        readers: dict[Scalar, Statement] = {}  # since the last statement that is no name
        for statement in reversed(body):
            if isinstance(statement, Let):
                many, reader = times.pop(statement.var, 0), readers.pop(statement.var, None)
                if not many:
                    continue
                if many == 1 and reader is not None:
                    once[statement.var] = reader
            else:
                readers.clear()
            for name, many in self._reads_of(statement):
                times[name] = times.get(name, 0) + many
                if isinstance(statement, (Let, Store)):
                    readers[name] = statement
            kept += reversed(self._inside(statement, times))
        return _without(tuple(reversed(kept)), once), times

    def _inside(self, statement: Statement, times: dict[Scalar, int]) -> tuple[Statement, ...]:
        """What a statement becomes if its body is tidied, whose reads are counted too."""
        if not isinstance(statement, (For, If, GridReduce)):
            return (statement,)
        inside, inner = self.body(statement.body)
        only_binds = isinstance(statement, For) and not inner.pop(statement.var, 0) and _is_bound(statement, inside)
        for name, many in inner.items():
            times[name] = times.get(name, 0) + many
        if only_binds or not (inside or isinstance(statement, GridReduce)):
            self.again |= bool(inside)
            return inside
        return (replace_body(statement, inside),)

    def _reads_of(self, statement: Statement) -> list[tuple[Scalar, int]]:
        """What the statement itself reads, and how often."""
        found: list[tuple[Scalar, int]] = []
        for expression in expressions(statement):
            if expression not in self._reads:
                self._reads[expression] = reads(expression)
            found += self._reads[expression].items()
        return found


def _is_bound(loop: For, inside: tuple[Statement, ...]) -> bool:
    """Whether a loop is over blocks or threads, and what stands inside does not need its scope."""
    scoped = any(isinstance(statement, (Let, Allocate)) for statement in inside)
    return (loop.parallel.is_block or loop.parallel.is_thread) and not scoped


def _without(body: tuple[Statement, ...], once: Mapping[Scalar, Statement]) -> tuple[Statement, ...]:
    """Values in place of names that are read once, by a statement of the same body, before anything is stored."""
    made: list[Statement] = []
    values: dict[Scalar, Scalar] = {}
    for statement in body:
        changed = map_expressions(statement, partial(_with_values, values))
        if isinstance(changed, Let) and changed.var in once:
            around = max(e.depth for e in expressions(once[changed.var]) if changed.var in e.symbols)
            if changed.value.depth + around <= DEEPEST:
                values[changed.var] = changed.value
                continue
        made.append(changed)
    return tuple(made)
