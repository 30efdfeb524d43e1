"""Kernel IR as Python source, in which every load, store and index computation is checked.

`thread`, the function that is made, is what one thread of one block does. It is a generator that yields at barriers and
reductions, if the kernel has any. The lines of the source are mapped to statements, so that checks need not say where
they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from serrate.fusion.scalar import Scalar
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel.check.scalars import ExpressionWriter, Line, Place, Scope
from serrate.kernel.ir import (
    Allocate,
    Barrier,
    BlockReduce,
    Buffer,
    BulkCopy,
    Fault,
    For,
    GridReduce,
    If,
    Kernel,
    Let,
    Prefetch,
    Scan,
    Statement,
    Store,
    expressions,
    head,
    scan_of,
    walk,
)

FILE = "<kernel>"
_CONCURRENT = (ParallelType.Thread, ParallelType.Simd, ParallelType.Vectorize)
_COORDINATES = ("bx", "by", "bz", "tx", "ty", "tz")


@dataclass(frozen=True)
class Site:
    """A statement at which the threads of a block meet, and the dtypes of the state it combines."""

    statement: Barrier | BlockReduce | GridReduce | BulkCopy
    combine: str = ""
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A kernel as Python code, and the names in it that have to be given a meaning."""

    code: CodeType
    lines: tuple[Line, ...]
    sites: tuple[Site, ...]
    constants: dict[str, Any]
    reads: dict[tuple[str, str], str]  # by buffer and dtype
    writes: dict[str, str]  # by buffer
    lengths: dict[str, str]  # by buffer
    sizes: dict[str, str]  # by symbol
    shared: dict[int, Buffer]  # by the number that the source asks for

    def where(self, line: int, names: Mapping[str, Any]) -> str:
        """The statement of a line of the source, and the values of what is bound there."""
        statement, scope = self.lines[line - 1].statement, self.lines[line - 1].scope
        bound = [f"{symbol} = {names[name]}" for symbol, name in scope.symbols.items() if name in names]
        where = "" if statement is None else f"  at: {head(statement)}"
        return where + ("\n  where: " + ", ".join(bound) if bound else "")


@lru_cache(maxsize=512)
def program(kernel: Kernel) -> Program:
    """The source of the kernel, compiled."""
    return _Writer(kernel).program()


class _Writer(ExpressionWriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.kernel = kernel
        self.sites: list[Site] = []
        self.shared: dict[int, Buffer] = {}
        self.tracked = _stored_concurrently(kernel)
        self.sizes = {size.value: self.fresh(size.value) for size in kernel.sizes}
        self.scope.symbols.update((size, self.sizes[size.value]) for size in kernel.sizes)
        for buffer in kernel.buffers:
            name = self.fresh(buffer.name)
            self.scope.places[buffer.name] = Place(buffer, name, name + "_size", not buffer.written)

    def program(self) -> Program:
        places = self.scope.places
        self.line(f"def thread({', '.join(_COORDINATES)}, launch, strand, shared, loops):")
        self.depth = 1
        self.body(self.kernel.body, self.scope)
        self.line("return")
        for number in self.shared:
            self.lines.insert(1, Line(f"    entry_{number} = -1", None, self.scope))
        for number, site in enumerate(self.sites):
            if isinstance(site.statement, (BlockReduce, GridReduce)):
                self.combine(number, site.statement)
        source = "\n".join(line.text for line in self.lines) + "\n"
        return Program(
            compile(source, FILE, "exec"),
            tuple(self.lines),
            tuple(self.sites),
            self.constants,
            self.reads,
            {name: place.name for name, place in places.items() if place.buffer.written},
            {name: place.size for name, place in places.items()},
            self.sizes,
            self.shared,
        )

    def body(self, statements: tuple[Statement, ...], scope: Scope) -> None:
        outer, self.scope = self.scope, scope
        for statement in statements:
            self.statement = statement
            self.begin(*expressions(statement))
            match statement:
                case For():
                    self.loop(statement)
                case If(condition, inside):
                    self.line(f"if {self.value(condition)}:")
                    self.indented(inside, self.scope.inner())
                case Let(var, value):
                    text = self.converted(self.value(value), value.dtype, var.dtype)
                    name = self.fresh(var.value)
                    self.line(f"{name} = {text}")
                    self.bind(var, name)
                case Allocate(buffer):
                    self.allocate(buffer)
                case Store():
                    self.store(statement)
                case Fault(condition, buffer, number):
                    self.line(f"if {self.value(condition)}: {self.place(buffer).name}.values[0] = {number}")
                case Prefetch() | Scan():
                    pass  # a hint, which may name any place; a state that already holds what a lane is to read
                case BulkCopy():
                    self.copy_box(statement)
                case _:
                    self.meet(statement)
        self.scope = outer

    def bind(self, symbol: Scalar, name: str) -> None:
        # A new scope: earlier lines keep theirs, in which the name is not yet known.
        self.scope = self.scope.inner()
        self.scope.symbols[symbol] = name

    def indented(self, statements: tuple[Statement, ...], scope: Scope) -> None:
        self.depth += 1
        self.body(statements, scope)
        self.line("pass")
        self.depth -= 1

    def loop(self, loop: For) -> None:
        extent, name = self.value(loop.extent), self.fresh(loop.var.value)
        scope = self.scope.inner()
        scope.symbols[loop.var] = name
        if loop.parallel.is_block or loop.parallel.is_thread:
            coordinate = ("b" if loop.parallel.is_block else "t") + loop.parallel.name[-1]
            launched = f"launch[{_COORDINATES.index(coordinate)}]"
            self.line(f"{name} = {coordinate}")
            self.line(f"if {extent} > {launched}: over_launch({extent}, {launched})")
            self.body(loop.body, scope)
        elif _is_concurrent(loop):
            outer, number = self.fresh("strand"), self.fresh("loop")
            self.line(f"{outer}, {number} = strand, next(loops)")
            self.line(f"for {name} in range({extent}):")
            self.line(f"    strand = {outer} + ({number}, {name})")
            self.indented(loop.body, Scope(scope.symbols, scope.places, True))
            self.line(f"strand = {outer}")
        else:
            self.line(f"for {name} in range({extent}):")
            self.indented(loop.body, scope)

    def allocate(self, buffer: Buffer) -> None:
        if not buffer.size.is_const and buffer.memory != Memory.SCRATCH:
            raise self.wrong(f"the size of {buffer.name} is no constant")
        name, size = self.fresh(buffer.name), str(buffer.size.value)
        if not buffer.size.is_const:
            size = self.fresh(f"{buffer.name}_size")
            self.line(f"{size} = {self.value(buffer.size)}")
        # On the CPU, inside a loop over threads, what is shared by a block belongs to one thread.
        if buffer.memory == Memory.SHARED and not self.scope.concurrent:
            site = next(self.numbers)
            self.shared[site] = buffer
            self.line(f"{name} = shared({site})")
            self.line(f"entry_{site} += 1")
            place = Place(buffer, name, size, False, f", entry_{site}")
        elif buffer.name in self.tracked:
            self.line(f"{name} = SharedMemory({buffer.name!r}, {size})")
            place = Place(buffer, name, size, False)
        else:
            self.line(f"{name} = [None] * {size}")
            place = Place(buffer, name, size, True)
        self.scope = self.scope.inner()
        self.scope.places[buffer.name] = place

    def store(self, store: Store) -> None:
        place = self.place(store.buffer)
        if place.buffer.memory == Memory.GLOBAL and not place.buffer.written:
            raise self.wrong(f"store to {store.buffer}, which is a parameter that the kernel does not write")
        index = self.value(store.index)
        value = self.converted(self.value(store.value), store.value.dtype, place.buffer.dtype)
        if not place.plain:
            if store.draft and place.buffer.memory != Memory.GLOBAL:
                raise self.wrong(f"a draft is stored to {store.buffer}, which is no output")
            self.line(f"{place.name}.{'draft' if store.draft else 'store'}({index}, {value}, strand{place.entry})")
        else:
            if not place.holds(store.index):
                name = self.fresh("position")
                self.line(f"{name} = {index}")
                self.line(f"if not 0 <= {name} < {place.size}: outside({store.buffer!r}, {name}, {place.size})")
                index = name
            self.line(f"{place.name}[{index}] = {value}")

    def meet(self, statement: Barrier | BlockReduce | GridReduce) -> None:
        if self.scope.concurrent:
            raise self.wrong("a barrier or a reduction inside a loop over threads or lanes")
        number = len(self.sites)
        if isinstance(statement, Barrier):
            self.sites.append(Site(statement))
            self.line(f"strand, last = yield {number}, ()")
            return
        states = [self.place(name) for name in statement.state]
        for state in states:
            if state.buffer.memory != Memory.REGISTER or int(state.size) < statement.size:
                raise self.wrong(f"the state {state.buffer.name} is not {statement.size} registers")
        if isinstance(statement, GridReduce):
            for name in (*statement.workspace, statement.counter):
                if not self.place(name).buffer.written:
                    raise self.wrong(f"{name} is not a parameter that the kernel writes")
        self.sites.append(Site(statement, f"combine_{number}", tuple(s.buffer.dtype for s in states)))
        lists = "".join(f"{s.name if s.plain else s.name + '.values'}, " for s in states)
        self.line(f"strand, last = yield {number}, ({lists})")
        if isinstance(statement, GridReduce):
            self.line("if last:")
            self.indented(statement.body, self.scope.inner())

    def copy_box(self, copy: BulkCopy) -> None:
        """Where the threads of a block meet, each with the memory of the box, the elements and where the box begins."""
        if self.scope.concurrent:
            raise self.wrong("a box is copied inside a loop over threads or lanes")
        to, source = self.place(copy.to), self.place(copy.source)
        if to.buffer.memory != Memory.SHARED or to.buffer.dtype != source.buffer.dtype:
            raise self.wrong(f"{copy.to} is not shared memory of {source.buffer.dtype}")
        if source.buffer.memory != Memory.GLOBAL or source.buffer.written:
            raise self.wrong(f"{copy.source} is not a parameter that is only read")
        start, shape = ("".join(f"{self.value(part)}, " for part in parts) for parts in (copy.start, copy.shape))
        elements = self.reading(source, source.buffer.dtype)
        self.sites.append(Site(copy))
        state = f"({to.name}{to.entry or ', 0'}, {elements}, ({start}), ({shape}))"
        self.line(f"strand, last = yield {len(self.sites) - 1}, {state}")

    def combine(self, number: int, statement: BlockReduce | GridReduce) -> None:
        rule = statement.combine
        scope = self.scope.inner()
        names = {symbol: self.fresh(symbol.value) for symbol in rule.left + rule.right}
        scope.symbols.update(names)
        self.scope, self.statement, self.depth = scope, statement, 0
        self.line(f"def combine_{number}({', '.join(names.values())}):")
        self.depth = 1
        self.begin(*rule.values)
        dtypes = self.sites[number].dtypes
        pairs = zip(rule.values, dtypes, strict=True)
        values = "".join(self.converted(self.value(v), v.dtype, dtype) + ", " for v, dtype in pairs)
        self.line(f"return ({values})")


def _is_concurrent(loop: For) -> bool:
    """Whether the iterations of a loop may run at the same time. Those of lanes that scan wait for each other."""
    return loop.parallel in _CONCURRENT and scan_of(loop) is None


def _stored_concurrently(kernel: Kernel) -> frozenset[str]:
    """Buffers stored inside a loop whose iterations are concurrent, but allocated outside of it."""
    found: set[str] = set()
    for loop in walk(kernel.body):
        if isinstance(loop, For) and _is_concurrent(loop):
            inside = list(walk(loop.body))
            own = {statement.buffer.name for statement in inside if isinstance(statement, Allocate)}
            found.update(s.buffer for s in inside if isinstance(s, Store) and s.buffer not in own)
    return frozenset(found)
