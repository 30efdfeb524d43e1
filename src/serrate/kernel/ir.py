"""Kernel IR: what a kernel does, as plain data. One page.

    Kernel    a name, parameters (buffers and sizes), a launch and a body of statements
    For       a loop over an axis, serial or spread over threads, blocks or lanes
    If        statements under a condition
    Let       a name for a value
    Allocate  memory in registers or scratch memory (per thread), or shared by a block
    Store     buffer[index] = value; loads are scalar expressions
    Prefetch  a hint that an element will be needed soon
    BulkCopy  a box of a parameter to shared memory, by the copy engine
    Fault     a report to the caller, where something went wrong
    Scan      from here on a lane has what it and the lanes before it have added together
    Barrier   all threads of a block arrive before any goes on
    BlockReduce, GridReduce   what threads or blocks have gathered, combined in the order of their indices

Scalar expressions are those of `serrate.fusion.scalar`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from serrate.fusion.scalar import Scalar, const
from serrate.fusion.types import Memory, ParallelType

DEEPEST = 16
"""How many operations lowering lets stand one inside another in a value: what is deeper has names for its parts."""


@dataclass(frozen=True)
class Buffer:
    """A flat array of `size` elements."""

    name: str
    dtype: str
    size: Scalar
    memory: Memory = Memory.GLOBAL
    written: bool = False  # a parameter that the kernel writes


@dataclass(frozen=True)
class For:
    """`body` for each value of `var` from 0 to `extent`.

    A loop bound to blocks or threads is entered once by each of them, with its index as `var`: the launch has at least
    `extent` of them, and where it may have more the body guards itself.
    """

    var: Scalar
    extent: Scalar
    body: tuple[Statement, ...]
    axis: str  # which axis it walks, for the reader of the generated source
    parallel: ParallelType = ParallelType.Serial


@dataclass(frozen=True)
class If:
    """`body` where the condition holds."""

    condition: Scalar
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Let:
    """A name for a value, to the end of the enclosing body."""

    var: Scalar
    value: Scalar


@dataclass(frozen=True)
class Allocate:
    """A local buffer, uninitialised, until the end of the enclosing body. Its size is a constant, unless it is scratch
    memory."""

    buffer: Buffer


@dataclass(frozen=True)
class Store:
    """buffer[index] = value. A draft is not yet what an output is to hold: it is read, and stored again, by the same
    thread."""

    buffer: str
    index: Scalar
    value: Scalar
    draft: bool = False


@dataclass(frozen=True)
class Prefetch:
    """A hint to the processor: buffer[index] will be loaded soon. The index may be past the end."""

    buffer: str
    index: Scalar


@dataclass(frozen=True)
class BulkCopy:
    """A box of a parameter, an array of `shape` whose last dimension lies together, at `start`: to[0], to[1], … are its
    elements, of which the last dimension changes fastest. Those outside of the shape are `fill`; without one they are
    left as they were.

    All threads of a block must arrive, with the same start. The copy engine writes the box as if it were one more
    thread of the block: others may read it after the next barrier, and must not have read it since the last one.
    """

    to: str
    source: str
    start: tuple[Scalar, ...]
    box: tuple[int, ...]
    shape: tuple[Scalar, ...]
    fill: int | None = 0


@dataclass(frozen=True)
class Fault:
    """A report to the caller, where a condition holds: buffer[0] = number, which is not 0. Many threads may report at
    once; the number of one of them stays."""

    condition: Scalar
    buffer: str
    number: int


@dataclass(frozen=True)
class Scan:
    """Stands in a loop over lanes whose every lane has added to a state (or multiplied it, by `operator`) once before
    it, and nothing reads that before it. What stands after it reads what the lanes so far, with its own, have made."""

    state: str
    operator: str


@dataclass(frozen=True)
class Barrier:
    """No thread of a block goes on before all have arrived."""


@dataclass(frozen=True)
class CombineRule:
    """How two states of a reduction become one: `values` in terms of `left` and `right`, of which left comes first."""

    left: tuple[Scalar, ...]
    right: tuple[Scalar, ...]
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class BlockReduce:
    """Each element of the register buffers `state` (one per component of the state, `size` elements each), combined
    over the threads of a block that differ only in `over` (some of TIDx, TIDy, TIDz), in the order of their indices.
    Afterwards every one of them has the result. All threads of the block must arrive.
    """

    state: tuple[str, ...]
    size: int
    over: tuple[ParallelType, ...]
    combine: CombineRule


@dataclass(frozen=True)
class GridReduce:
    """As BlockReduce, over the blocks that differ only in `over` (some of BIDx, BIDy, BIDz): each writes its state to
    `workspace` (per component of the state), and `body` is run by the last of them to arrive, with the result.

    `workspace[k]` holds, for each group of blocks, each block in it, each thread, `size` elements. `counter` has an
    int32 per group, 0 before and after.
    """

    state: tuple[str, ...]
    size: int
    over: tuple[ParallelType, ...]
    combine: CombineRule
    workspace: tuple[str, ...]
    counter: str
    body: tuple[Statement, ...]


Statement = For | If | Let | Allocate | Store | Prefetch | BulkCopy | Fault | Scan | Barrier | BlockReduce | GridReduce


@dataclass(frozen=True)
class Launch:
    """Blocks of the grid and threads of a block along x, y, z. On the CPU both are ones."""

    grid: tuple[Scalar, Scalar, Scalar] = (const(1), const(1), const(1))
    block: tuple[Scalar, Scalar, Scalar] = (const(1), const(1), const(1))

    def size(self, parallel: ParallelType) -> Scalar | None:
        """How many blocks or threads a loop is spread over; None if it is not."""
        if not (parallel.is_block or parallel.is_thread):
            return None
        return (self.grid if parallel.is_block else self.block)["xyz".index(parallel.name[-1])]


@dataclass(frozen=True)
class Kernel:
    """A kernel. Its parameters are `buffers` (global), in order, then `sizes`, index symbols."""

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Scalar, ...]
    body: tuple[Statement, ...]
    launch: Launch = field(default_factory=Launch)
    index: str = "int64"  # what an index is computed in, int32 or int64

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def children(statement: Statement) -> tuple[Statement, ...]:
    """The statements inside."""
    return statement.body if isinstance(statement, (For, If, GridReduce)) else ()


def replace_body(statement: For | If | GridReduce, body: tuple[Statement, ...]) -> For | If | GridReduce:
    """The same statement around others."""
    return replace(statement, body=body)


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, outer ones first."""
    for statement in body:
        yield statement
        yield from walk(children(statement))


def scan_of(loop: For) -> Scan | None:
    """The scan that goes along the lanes of a loop, if one does."""
    return next((statement for statement in loop.body if isinstance(statement, Scan)), None)


def rewrite(body: tuple[Statement, ...], change: Callable[[Statement], tuple[Statement, ...]]) -> tuple[Statement, ...]:
    """The body with every statement, inner ones first, replaced by what `change` makes of it."""
    made: list[Statement] = []
    for statement in body:
        if isinstance(statement, (For, If, GridReduce)):
            statement = replace(statement, body=rewrite(statement.body, change))
        made.extend(change(statement))
    return tuple(made)


def expressions(statement: Statement) -> tuple[Scalar, ...]:
    """The expressions a statement itself evaluates."""
    match statement:
        case For():
            return (statement.extent,)
        case If():
            return (statement.condition,)
        case Let():
            return (statement.value,)
        case Store():
            return (statement.index, statement.value)
        case Allocate():
            return (statement.buffer.size,)
        case Prefetch():
            return (statement.index,)
        case BulkCopy():
            return (*statement.start, *statement.shape)
        case Fault():
            return (statement.condition,)
    return ()


def map_expressions(statement: Statement, change: Callable[[Scalar], Scalar]) -> Statement:
    """The statement with each of its own expressions changed."""
    old = expressions(statement)
    new = tuple(map(change, old))
    if new == old:
        return statement
    match statement:
        case For():
            return replace(statement, extent=new[0])
        case If():
            return replace(statement, condition=new[0])
        case Let():
            return replace(statement, value=new[0])
        case Store():
            return replace(statement, index=new[0], value=new[1])
        case Prefetch():
            return replace(statement, index=new[0])
        case BulkCopy():
            rank = len(statement.box)
            return replace(statement, start=new[:rank], shape=new[rank:])
        case Fault():
            return replace(statement, condition=new[0])
        case Allocate():
            return replace(statement, buffer=replace(statement.buffer, size=new[0]))
    return statement


def _lines(kernel: Kernel) -> Iterator[str]:
    buffers = ", ".join(f"{'' if b.written else 'const '}{b.dtype} {b.name}[{b.size}]" for b in kernel.buffers)
    sizes = "".join(f", {size}" for size in kernel.sizes)
    grid, block = ("×".join(map(str, dims)) for dims in (kernel.launch.grid, kernel.launch.block))
    yield f"kernel {kernel.name}({buffers}{sizes}) of {grid} blocks of {block} threads"
    yield from _body_lines(kernel.body, "  ")


def _body_lines(body: tuple[Statement, ...], indent: str) -> Iterator[str]:
    for statement in body:
        yield indent + head(statement)
        yield from _body_lines(children(statement), indent + "  ")


def head(statement: Statement) -> str:
    match statement:
        case For(var, extent, _, axis, parallel):
            how = "" if parallel == ParallelType.Serial else f" {parallel.name}"
            return f"for {var} in {extent}:{how}  # {axis}"
        case If(condition, _):
            return f"if {condition}:"
        case Let(var, value):
            return f"{var} = {value}"
        case Allocate(buffer):
            return f"allocate {buffer.memory.value} {buffer.dtype} {buffer.name}[{buffer.size}]"
        case Store(buffer, index, value, _):
            return f"{buffer}[{index}] = {value}"
        case Prefetch(buffer, index):
            return f"prefetch {buffer}[{index}]"
        case BulkCopy(to, source, start, box, shape, fill):
            where = ", ".join(map(str, start))
            rest = "" if fill is None else f", {fill} outside"
            return f"{to} = box {'×'.join(map(str, box))} of {source}[{'×'.join(map(str, shape))}] at ({where}){rest}"
        case Fault(condition, buffer, number):
            return f"fault {number} if {condition}: {buffer}"
        case Scan(state, operator):
            return f"scan {state} by {operator}"
        case Barrier():
            return "barrier"
        case BlockReduce(state, size, over, _):
            return f"reduce {', '.join(state)} ({size}) over {', '.join(p.name for p in over)}"
        case GridReduce(state, size, over, _):
            return f"reduce {', '.join(state)} ({size}) over {', '.join(p.name for p in over)}; the last block:"
