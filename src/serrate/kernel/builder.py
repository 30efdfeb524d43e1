"""Builder: kernel IR written statement by statement, with names and guards.

A guard opens an `If` around all that follows in its scope. Where a block-wide reduction follows, threads must not part
ways: a guard that differs between threads is then only noted; values that could not be computed outside of it are
computed under it, and the leaves of the loop nest, `leaf`, are put under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from serrate.fusion.analysis import PARTIAL
from serrate.fusion.axes import IterDomain
from serrate.fusion.dtypes import BOOL
from serrate.fusion.indices import is_natural
from serrate.fusion.scalar import TRUE, Scalar, both, const, symbol, where
from serrate.fusion.types import ParallelType
from serrate.kernel.ir import Fault, For, GridReduce, If, Let, Statement
from serrate.kernel.source import word


class Builder:
    """Statements under construction."""

    def __init__(self, converged: bool, taken: set[str]) -> None:
        self._bodies: list[list[Statement]] = [[]]
        self._open: list[Statement] = []
        self.faults = "faults"  # the buffer that faults are reported in
        while self.faults in taken:
            self.faults += "_"
        self._taken = frozenset(taken | {self.faults})
        self._names: list[set[str]] = [set()]  # by scope: what is closed may be named again
        self._lets: list[dict[Scalar, Scalar]] = [{}]  # by scope: values that have names
        self._known: dict[Scalar, Scalar] = {}  # those of all open scopes
        self._read: dict[Scalar, set[str]] = {}  # the buffers that the value of a name was read from
        self._noted: list[Scalar] = []
        self._before: dict[int, list[Statement]] = {}  # what is to stand before a loop that is open, by its depth
        self.converged = converged  # whether threads must stay together
        self.varying: set[Scalar] = set()  # names whose values differ between the threads of a block

    def add(self, statement: Statement) -> None:
        self._bodies[-1].append(statement)

    @property
    def body(self) -> tuple[Statement, ...]:
        assert not self._open
        return tuple(self._bodies[0])

    def name(self, wanted: str) -> str:
        """A name not used yet."""
        wanted = word(wanted)
        name, number = wanted, 2
        while name in self._taken or any(name in names for names in self._names):
            name, number = f"{wanted}{number}", number + 1
        self._names[-1].add(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is opened inside is closed at the end."""
        depth, noted = len(self._open), list(self._noted)
        yield
        while len(self._open) > depth:
            self._close()
        self._noted = noted

    def _enter(self, statement: Statement) -> None:
        self._open.append(statement)
        self._bodies.append([])
        self._lets.append({})
        self._names.append(set())

    def _close(self) -> None:
        body, statement = tuple(self._bodies.pop()), self._open.pop()
        for value in self._lets.pop():
            self._known.pop(value, None)
        self._names.pop()
        if not body:
            return
        for before in self._before.pop(len(self._open), ()):
            self.add(before)
        match statement:
            case For(var, extent, _, axis, parallel):
                self.add(For(var, extent, body, axis, parallel))
            case If(condition, _):
                self.add(If(condition, body))
            case GridReduce():
                self.add(replace(statement, body=body))

    def loop(self, name: str, extent: Scalar, axis: str, parallel: ParallelType = ParallelType.Serial) -> Scalar:
        """Open a loop; returns its variable."""
        extent = self._under_noted(self.by_names(extent))
        differs = parallel.is_thread or self.differs(extent)
        self._enter(For(const(0), extent, (), axis, parallel))
        var = symbol(self.name(name))
        self._open[-1] = For(var, extent, (), axis, parallel)
        (self.varying.add if differs else self.varying.discard)(var)
        return var

    def differs(self, expression: Scalar) -> bool:
        """Whether threads of a block may see different values."""
        return not self.varying.isdisjoint(expression.symbols)

    def guard(self, condition: Scalar) -> None:
        """Only where `condition` holds, from here to the end of the scope."""
        condition = self.by_names(condition)
        if condition == TRUE:
            return
        if self.converged and self.differs(condition):
            self._noted = [self.let("inside", both(*self._noted, condition))]
        elif self._open and isinstance(self._open[-1], If) and not self._bodies[-1]:
            joined = both(self._open[-1].condition, condition)  # nothing between the two: one condition
            self._open[-1] = If(joined, ())
        else:
            self._enter(If(condition, ()))

    @property
    def right_inside_lanes(self) -> bool:
        """Whether a loop over lanes is the last thing that was opened."""
        return isinstance(opened := self._open[-1], For) and opened.parallel.is_lanes

    def before_lanes(self, var: Scalar, expression: Scalar, statement: Callable[[Scalar], Statement]) -> None:
        """A statement to stand before the open lanes loop over `var`, with an expression of inside it at lane 0."""
        depth = next(at for at, opened in enumerate(self._open) if isinstance(opened, For) and opened.var == var)
        inside = {name: value for scope in self._lets[depth + 1 :] for value, name in scope.items()}
        for _ in inside:
            expression = expression.substitute(inside)
        self._before.setdefault(depth, []).append(statement(expression.substitute({var: const(0)})))

    def report(self, condition: Scalar, number: int) -> None:
        """A fault where a condition holds: before the loops around here whose indices it does not depend on."""
        depth = len(self._open)
        while depth and isinstance(loop := self._open[depth - 1], For):
            outside, inside = condition, {name: value for value, name in self._lets[depth].items()}
            for _ in inside:
                outside = outside.substitute(inside)
            bound = loop.parallel.is_block or loop.parallel.is_thread
            if bound or loop.var in outside.symbols or not (loop.extent.is_const and loop.extent.value > 0):
                break
            condition, depth = outside, depth - 1
        if depth == len(self._open):
            self.add(Fault(self.by_names(condition), self.faults, number))
        else:
            self._before.setdefault(depth, []).append(Fault(condition, self.faults, number))

    def last_block(self, statement: GridReduce) -> None:
        """What follows, to the end of the scope, is done by the last block to arrive."""
        self._enter(statement)

    @contextmanager
    def leaf(self) -> Iterator[None]:
        """Statements that must not run where a noted guard does not hold."""
        with self.scope():
            if self._noted:
                self._enter(If(self._noted[-1], ()))
            self._noted = []
            yield

    def _under_noted(self, expression: Scalar) -> Scalar:
        risky = any(node.op in PARTIAL and self.differs(node) for node in expression.walk())
        if not self._noted or expression.dtype == BOOL or not risky:
            return expression
        return where(self._noted[-1], expression, const(0, expression.dtype))

    def let(self, name: str, value: Scalar) -> Scalar:
        """A name for a value, or the value itself where it needs none."""
        whole, value = value, self.by_names(value)
        if value.op in ("const", "symbol"):
            return value
        guarded = self._under_noted(value)
        var = symbol(self.name(name), value.dtype)
        (self.varying.add if self.differs(guarded) else self.varying.discard)(var)
        self.add(Let(var, guarded))
        self._read[var] = {str(node.value) for node in value.walk() if node.op == "load"}
        self._read[var].update(*(self._read.get(name, ()) for name in value.symbols))
        for known in dict.fromkeys((whole, value)):
            if known not in self._known:
                self._lets[-1][known] = self._known[known] = var
        return var

    def forget(self, buffers: Iterable[str]) -> None:
        """Something else is now stored in these: names of what was read from them no longer stand for it."""
        changed = {*buffers}
        for value in [value for value, name in self._known.items() if not changed.isdisjoint(self._read[name])]:
            del self._known[value]

    def by_names(self, value: Scalar) -> Scalar:
        """The value in terms of what has a name already."""
        return value.substitute(self._known)

    def index(self, axis: IterDomain, value: Scalar) -> Scalar:
        """An index of an axis by a name of its own. One that may be negative stays an expression, so that a predicate
        can see that it may be negative."""
        return self.let(axis_name(axis), value) if is_natural(value) else value


def axis_name(axis: IterDomain) -> str:
    return axis.name or "i"
